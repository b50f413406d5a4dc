"""Tables of the page: cells are rounded for people, with every digit one hover away and a pointer to the same number in the JSON.

Sorting and filtering are the page's script's; without it the tables are all there, in the order of the figures.
"""

from collections.abc import Sequence
from typing import Any

from tidegate.rollup.report.document import ROWS_SHOWN, camel
from tidegate.rollup.report.markup import Markup, element
from tidegate.rollup.report.sheets import Column, Sheet
from tidegate.rollup.report.units import UNITS, Kind, exact, words

_FILTER_FROM = 15
_LONG_SIGNS = 40
_LEFT = frozenset({Kind.TEXT, Kind.FLAG, Kind.MOMENT})


def html_table(sheet: Sheet, caption: str, *, empty: str) -> Markup:
    """The first rows, and how many more the CSV file has; `empty` stands in place of a table without rows."""
    if not sheet.rows:
        return element("p", empty, class_="none")
    columns = [column for column in sheet.columns if _is_told(column, sheet)]
    shown = sheet.rows[:ROWS_SHOWN]
    table = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *map(_title, columns))),
        element("tbody", *(_row(pointer, row, columns) for pointer, row in shown)),
        id=f"table-{sheet.name}",
    )
    filtering = _filter(sheet, caption) if len(shown) >= _FILTER_FROM else None
    return element("div", filtering, element("div", table, class_="wide"), _rest(sheet, len(shown)), class_="sheet")


def _is_told(column: Column, sheet: Sheet) -> bool:
    """A column that tells nothing, or only repeats the members' names, costs room; the CSV file has it all the same."""
    told = [(getattr(row, column.name), getattr(row, "member", None)) for _, row in sheet.rows]
    silent = all(value is None or value == "" or value is False for value, _ in told)
    repeats = column.name != "member" and all(value == name for value, name in told)
    return column.on_page and not silent and not repeats


def _title(column: Column) -> Markup:
    unit = UNITS.get(column.kind)
    name = column.title if unit is None else f"{column.title}, {unit}"
    side = "left" if column.kind in _LEFT else None
    return element("th", element("button", name, type="button", title=column.meaning), scope="col", class_=side, aria_sort="none")


def _row(pointer: str, row: Any, columns: Sequence[Column]) -> Markup:
    return element("tr", *(_cell(f"{pointer}/{camel(column.name)}", getattr(row, column.name), column) for column in columns))


def _cell(pointer: str, value: Any, column: Column) -> Markup:
    shown = column.absent if value is None or value == "" else words(column.kind, value)
    side = "left" if column.kind in _LEFT else None
    look = "left long" if side and len(shown) > _LONG_SIGNS else side
    return element("td", shown, title=exact(column.kind, value) or None, class_=look, data_figure=pointer)


def _filter(sheet: Sheet, caption: str) -> Markup:
    field = f'<input type="search" id="filter-{sheet.name}" data-table="table-{sheet.name}" autocomplete="off">'
    label = element("label", "Show only rows with", for_=f"filter-{sheet.name}", title=caption)
    return element("p", label, " ", Markup(field), element("span", class_="found", role="status"), class_="filter")


def _rest(sheet: Sheet, shown: int) -> Markup | None:
    left = len(sheet.rows) - shown
    return element("p", f"{left:,} more rows are in the CSV file {sheet.name}.csv and in the JSON.", class_="none") if left else None


def pivot_table(sheet: Sheet, *, column: Column, value: Column, caption: str) -> Markup:
    """The figures behind a plot: a line a time, a column a tier or broker, each cell one row of the sheet."""
    heads = list(dict.fromkeys(getattr(one, column.name) for _, one in sheet.rows))
    lines: dict[str, dict[Any, tuple[str, Any]]] = {}
    for pointer, one in sheet.rows:
        lines.setdefault(one.start, {})[getattr(one, column.name)] = (pointer, one)
    titles = [element("th", _head(column, head), scope="col") for head in heads]
    body = [
        element("tr", element("th", words(Kind.MOMENT, start), scope="row"), *_cells(cells, heads, value)) for start, cells in lines.items()
    ]
    table = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", element("th", "From, UTC", scope="col"), *titles)),
        element("tbody", *body),
    )
    return element("details", element("summary", "The figures of this plot"), element("div", table, class_="wide"))


def _head(column: Column, value: Any) -> str:
    return str(value) if value != "" else column.absent


def _cells(cells: dict[Any, tuple[str, Any]], heads: Sequence[Any], value: Column) -> Sequence[Markup]:
    return [
        _cell(f"{cells[head][0]}/{camel(value.name)}", getattr(cells[head][1], value.name), value) if head in cells else element("td")
        for head in heads
    ]
