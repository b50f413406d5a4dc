"""A small table of texts and how it looks: drawn by rich on a terminal, aligned plain text anywhere else.

Plain text is one line a row, without colours or frames, so that grep, awk and a pager can use it. It knows nothing of
quotas.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text

GAP = "  "
_DRAWN_GAP = "   "


@dataclass(frozen=True, slots=True)
class Column:
    """One column. Numbers are aligned right; a column that may `fold` gives way first where the terminal is narrow."""

    title: str
    right: bool = False
    fold: bool = False


@dataclass(frozen=True, slots=True)
class Sheet:
    """Columns and rows of plain texts; every row has exactly one text a column."""

    columns: tuple[Column, ...]
    rows: Sequence[Sequence[str]]

    def plain_lines(self) -> tuple[str, ...]:
        """A line of titles in capitals, then a line a row; an empty text shows as `-`, so that columns can be counted."""
        titles = [column.title.upper().replace(" ", "-") for column in self.columns]
        lines = [titles, *([text or "-" for text in row] for row in self.rows)]
        widths = [max(len(line[index]) for line in lines) for index in range(len(titles))]
        return tuple(self._aligned(line, widths) for line in lines)

    def _aligned(self, line: Sequence[str], widths: Sequence[int]) -> str:
        cells = (
            text.rjust(width) if column.right else text.ljust(width) for column, text, width in zip(self.columns, line, widths, strict=True)
        )
        return GAP.join(cells).rstrip()

    @property
    def narrowest(self) -> int:
        """The columns of a terminal below which numbers would be cut: folding texts shrink to a third, all others not at all."""
        widths = [max(len(column.title), *(len(row[index]) for row in self.rows)) for index, column in enumerate(self.columns)]
        needed = (width // 3 if column.fold else width for column, width in zip(self.columns, widths, strict=True))
        return sum(needed) + len(_DRAWN_GAP) * len(self.columns)

    def stacked_lines(self) -> tuple[str, ...]:
        """A block a row for narrow terminals: the first column, then each other that is not empty on a line of its own."""
        lines: list[str] = []
        width = max(len(column.title) for column in self.columns)
        for head, *rest in self.rows:
            lines.append(head)
            lines += [f"  {column.title:<{width}}  {text}" for column, text in zip(self.columns[1:], rest, strict=True) if text]
        return tuple(lines)

    def drawn(self) -> Table:
        """The same as a rich table without vertical lines; texts are taken literally, never as markup."""
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        for column in self.columns:
            table.add_column(column.title, justify="right" if column.right else "left", no_wrap=not column.fold, overflow="fold")
        for row in self.rows:
            table.add_row(*(Text(text) for text in row))
        return table
