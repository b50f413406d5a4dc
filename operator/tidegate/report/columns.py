"""How a figure is written, and what the tables call it.

Volumes are in GiB, the unit of the price, rates in MB/s, as Kafka users write them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, fields, replace
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any, get_args

from tidegate.report.rate_card import GIB

UNKNOWN = "–"
_FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r", "\n")


def readable(number: float) -> str:
    """About three digits, no powers of ten: `12,345`, `123.4`, `1.23`, `0.012`.

    `<0.001` is less, but not zero.
    """
    size = abs(number)
    if size == 0:
        return "0"
    if size < 0.0005:
        return "<0.001"
    decimals = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 1 else 3
    return _minus(f"{number:,.{decimals}f}")


def duration(seconds: float) -> str:
    """`0`, `42 s`, `12 min`, `4 h 48 min`, `3 d 4 h`."""
    if seconds < 120:
        return "0" if seconds == 0 else f"{seconds:.0f} s" if seconds >= 1 else "<1 s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    if minutes < 72 * 60:
        (count, rest), unit, smaller = divmod(minutes, 60), "h", "min"
    else:
        (count, rest), unit, smaller = divmod(round(minutes / 60), 24), "d", "h"
    return f"{count} {unit} {rest} {smaller}" if rest else f"{count} {unit}"


def clock(text: str) -> str:
    """`2026-11-20 03:20` of an ISO time; with seconds only if there are some."""
    at = datetime.fromisoformat(text)
    return f"{at:%Y-%m-%d %H:%M:%S}" if at.second or at.microsecond else f"{at:%Y-%m-%d %H:%M}"


def labels_words(labels: Mapping[str, str]) -> str:
    """`costCenter=4711, team=shop`."""
    return ", ".join(f"{name}={value}" for name, value in sorted(labels.items()))


def _percent(share: float) -> str:
    if 0 < share < 0.0005:
        return "<0.1 %"
    return "0 %" if share == 0 else _minus(f"{share * 100:,.1f} %")


def _minus(text: str) -> str:
    return text.replace("-", "−")


def _digits(unit: str) -> Callable[[float | int | Decimal], str]:
    return lambda value: f"{value:,} {unit}" if isinstance(value, int) else f"{value:,.3f} {unit}"


@dataclass(frozen=True, slots=True)
class _Form:
    """The rounded text, the unit that is in a column's title, and the text with all digits.

    `exact` is "" where the rounded text has all of them.
    """

    rounded: Callable[[Any], str]
    unit: str = ""
    exact: Callable[[Any], str] = lambda _: ""


class Kind(Enum):
    """The quantity of a figure, which decides how it is written."""

    TEXT = _Form(str)
    COUNT = _Form("{:,}".format)
    VOLUME = _Form(lambda count: readable(count / GIB), "GiB", _digits("bytes"))
    RATE = _Form(lambda rate: readable(rate / 1e6), "MB/s", _digits("bytes/s"))
    SECONDS = _Form(duration, exact=_digits("s"))
    BROKER_HOURS = _Form(lambda seconds: readable(seconds / 3600), "broker-hours", _digits("s"))
    SHARE = _Form(_percent, exact="{:.6f}".format)
    TOLERANCE = _Form(lambda share: f"± {_percent(share)}", exact="{:.6f}".format)
    CHANGE = _Form(lambda change: _minus(f"{change * 100:+.1f} %"), exact="{:.6f}".format)
    FACTOR = _Form("{:.3f}".format, exact="{:.6f}".format)
    MONEY = _Form(lambda amount: _minus(f"{amount:,.2f}"))
    MOMENT = _Form(clock, exact=str)
    FLAG = _Form(lambda flag: "yes" if flag else "no")
    LABELS = _Form(labels_words)
    PRICE = _Form(lambda price: format(price, "f"))
    SCORE = _Form(lambda score: _minus(f"{score:+.1f}"))
    DAY = _Form(lambda text: f"{datetime.fromisoformat(text):%Y-%m-%d}")


def cell_text(kind: Kind, value: Any) -> str:
    """A table's cell. None is a dash; a volume or rate is without its unit."""
    return UNKNOWN if value is None else kind.value.rounded(value)


def text_with_unit(kind: Kind, value: Any) -> str:
    """The same for a sentence or a tooltip."""
    return UNKNOWN if value is None else f"{cell_text(kind, value)} {kind.value.unit}".rstrip()


def exact_text(kind: Kind, value: Any) -> str:
    """All digits with their unit, for the tooltip of a cell; "" if the cell has them already."""
    return "" if value is None else kind.value.exact(value)


@dataclass(frozen=True, slots=True)
class Column:
    """What a table says of a field of its rows, which is `Annotated` with it.

    `meaning` is the title's tooltip; `absent` is shown for None, with fields of the row in braces
    (`{0.label}`). `on_page` False: only in the CSV
    file and the JSON. Columns are in the order of the fields, as in the JSON, except one that
    comes `before` an earlier field. `name` and `kind` are the field's.
    """

    title: str
    meaning: str = ""
    _: KW_ONLY
    absent: str = UNKNOWN
    on_page: bool = True
    before: str = ""
    name: str = ""
    kind: Kind = Kind.TEXT

    @property
    def title_with_unit(self) -> str:
        unit = self.kind.value.unit
        return f"{self.title}, {unit}" if unit else self.title

    @property
    def is_left(self) -> bool:
        """Whether its cells are aligned to the left, as text is."""
        return self.kind in (Kind.TEXT, Kind.FLAG, Kind.MOMENT, Kind.LABELS, Kind.DAY)

    @property
    def is_wrapped(self) -> bool:
        """Whether its cells may have several lines."""
        return self.kind is Kind.LABELS

    def text(self, row: Any) -> str:
        value = getattr(row, self.name)
        if value is None or value in ("", {}):
            return self.absent.format(row)
        return cell_text(self.kind, value)

    def exact(self, row: Any) -> str:
        return exact_text(self.kind, getattr(row, self.name))

    def pointer(self, row_pointer: str) -> str:
        """The JSON pointer of the cell's figure."""
        return f"{row_pointer}/{camel(self.name)}"


def columns_of(rows: type) -> tuple[Column, ...]:
    """The columns of a dataclass; a field that is not annotated with one is in no table."""
    found: list[Column] = []
    for field in fields(rows):
        said = {type(part): part for part in _said_of(field.type)}
        if Column in said:
            column = replace(said[Column], name=field.name, kind=said.get(Kind, Kind.TEXT))
            names = [one.name for one in found]
            found.insert(names.index(column.before) if column.before else len(found), column)
    return tuple(found)


def _said_of(hint: Any) -> Iterator[Any]:
    """Everything that `Annotated` adds to a type or to a part of it."""
    for part in get_args(hint):
        yield part
        yield from _said_of(part)


def camel(name: str) -> str:
    """`peak_rate` is `peakRate`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def harmless(text: str) -> str:
    """Put a quote before a text that a spreadsheet would take for a formula."""
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA_SIGNS) else text
