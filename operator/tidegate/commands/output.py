"""Output of commands: colours and tables on a terminal, plain text in a pipe, or a document.

All three output formats are made here. A document is plain data and is written whole or not at all.
rich and yaml are imported where they are used, because `--help` and the operator do without
them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, Self, TextIO

from tidegate.errors import InvalidResource

if TYPE_CHECKING:
    from jsonpath import CompoundJSONPath, JSONPath
    from rich.console import Console
    from rich.table import Table

    CompiledPath = JSONPath | CompoundJSONPath


# Tables of texts: drawn by rich on a terminal, aligned plain text elsewhere. Plain text has one
# line for each row, without colours or frames, so that grep, awk and a pager can use it.


GAP = "  "
_DRAWN_GAP = "   "


@dataclass(frozen=True, slots=True)
class Column:
    """One column; numbers go `right`. Those that may `fold` shrink first on a narrow terminal."""

    title: str
    right: bool = False
    fold: bool = False


@dataclass(frozen=True, slots=True)
class Sheet:
    """Columns and rows of plain texts; every row has exactly one text a column."""

    columns: tuple[Column, ...]
    rows: Sequence[Sequence[str]]

    def plain_lines(self) -> tuple[str, ...]:
        """Titles in capitals, then a line a row; an empty text is `-`: columns can be counted."""
        titles = [column.title.upper().replace(" ", "-") for column in self.columns]
        lines = [titles, *([text or "-" for text in row] for row in self.rows)]
        widths = [max(len(line[index]) for line in lines) for index in range(len(titles))]
        return tuple(self._aligned(line, widths) for line in lines)

    def _aligned(self, line: Sequence[str], widths: Sequence[int]) -> str:
        cells = (
            text.rjust(width) if column.right else text.ljust(width)
            for column, text, width in zip(self.columns, line, widths, strict=True)
        )
        return GAP.join(cells).rstrip()

    @property
    def narrowest(self) -> int:
        """The width below which numbers would be cut; texts that fold shrink to a third."""
        widths = [
            max(len(column.title), *(len(row[index]) for row in self.rows))
            for index, column in enumerate(self.columns)
        ]
        needed = (
            width // 3 if column.fold else width
            for column, width in zip(self.columns, widths, strict=True)
        )
        return sum(needed) + len(_DRAWN_GAP) * len(self.columns)

    def stacked_lines(self) -> tuple[str, ...]:
        """For narrow terminals: a block a row, each column that is not empty on its own line."""
        lines: list[str] = []
        width = max(len(column.title) for column in self.columns)
        for head, *rest in self.rows:
            lines.append(head)
            lines += [
                f"  {column.title:<{width}}  {text}"
                for column, text in zip(self.columns[1:], rest, strict=True)
                if text
            ]
        return tuple(lines)

    def drawn(self) -> Table:
        """The same as a rich table without vertical lines; texts are literal, never markup."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        for column in self.columns:
            table.add_column(
                column.title,
                justify="right" if column.right else "left",
                no_wrap=not column.fold,
                overflow="fold",
            )
        for row in self.rows:
            table.add_row(*(Text(text) for text in row))
        return table


_LISTED = 5


def listed_words(names: Sequence[str]) -> str:
    """The names; of more than five the first ones, and how many more there are."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{', '.join(names[:_LISTED])}{more}"


Document = Mapping[str, object]


class OutputFormat(str):
    """One of the three constants, or `jsonpath=TEMPLATE`, which `of` checks."""

    __slots__ = ()
    TABLE: ClassVar[OutputFormat]
    YAML: ClassVar[OutputFormat]
    JSON: ClassVar[OutputFormat]

    @classmethod
    def of(cls, text: str) -> OutputFormat:
        """The format of that name. Raises InvalidResource for any other, or a wrong template."""
        for known in (cls.TABLE, cls.YAML, cls.JSON):
            if text == known:
                return known
        if not text.startswith(_JSONPATH):
            raise InvalidResource(
                f"There is no output format {text!r}: the formats are table, yaml, json and "
                "jsonpath=TEMPLATE, for example jsonpath={.summary.managed}."
            )
        template = cls(text)
        JsonPathTemplate.parse(template.removeprefix(_JSONPATH))
        return template

    @property
    def template(self) -> str | None:
        """What follows `jsonpath=`; None for the other formats."""
        return self.removeprefix(_JSONPATH) if self.startswith(_JSONPATH) else None


OutputFormat.TABLE = OutputFormat("table")
OutputFormat.YAML = OutputFormat("yaml")
OutputFormat.JSON = OutputFormat("json")


# kubectl's JSONPath templates: text, and paths in braces. `range` and `end` are refused; a path
# itself follows RFC 9535, by the library.


_JSONPATH = "jsonpath="
_PARTS = re.compile(r"\{((?:[^{}\"']|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')*)\}")
_TEXT = re.compile(r"\"(?:[^\"\\]|\\.)*\"")


@dataclass(frozen=True, slots=True)
class JsonPathTemplate:
    """Literal texts and compiled paths, in order."""

    parts: Sequence[str | CompiledPath]

    @classmethod
    def parse(cls, template: str) -> Self:
        """Parse `{.a.b}{"\\t"}{.c[*]}`; one path needs no braces. Raises InvalidResource."""
        if "{" not in template:
            return cls((_compiled(template),))
        parts: list[str | CompiledPath] = []
        end = 0
        for found in _PARTS.finditer(template):
            parts += [template[end : found.start()], _compiled(found[1].strip())]
            end = found.end()
        rest = template[end:]
        if any("{" in one or "}" in one for one in (*parts[::2], rest) if isinstance(one, str)):
            raise InvalidResource(
                f"The template {template!r} has an unmatched brace. Write "
                "jsonpath={.summary.managed}, in single quotes for the shell."
            )
        return cls((*parts, rest))

    def filled(self, document: Document) -> str:
        """The text for this document. What a path does not find is empty; several are apart by a
        space, and objects are JSON, as kubectl prints them.
        """
        return "".join(
            part if isinstance(part, str) else " ".join(map(_json_text, part.findall(document)))
            for part in self.parts
        )


def _compiled(expression: str) -> str | CompiledPath:
    if _TEXT.fullmatch(expression):
        return str(json.loads(expression))
    if expression.partition(" ")[0] in ("range", "end"):
        raise InvalidResource(
            f"{{{expression}}} is not supported: print several values with [*], or take "
            "--output json and jq."
        )
    import jsonpath

    rooted = expression if expression.startswith("$") else f"${expression.removeprefix('@')}"
    try:
        return jsonpath.compile(rooted)
    except jsonpath.JSONPathError as error:
        raise InvalidResource(
            f"{expression!r} is not a JSONPath ({str(error).splitlines()[0]}). Write it as "
            "{.summary.managed} or {.members[*].quota}."
        ) from error


def _json_text(found: object) -> str:
    if isinstance(found, str):
        return found
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"))


class PatientStream:
    """Standard output whose reader may leave before the end, as `head` does: the rest is dropped.

    So a command goes on to its end, is quiet, and has its own exit code. `is_left` is for those
    that have no end.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_left = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write it, or drop it."""
        with self._until_the_reader_leaves():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Pass on what was written, if someone reads it."""
        with self._until_the_reader_leaves():
            self._stream.flush()

    @contextmanager
    def _until_the_reader_leaves(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:  # what is still in the buffer goes nowhere, without a complaint
            self.is_left = True
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


class ExitCode(IntEnum):
    """Exit codes for scripts, the same for every command."""

    OK = 0  # nothing to do, or done
    ERROR = 1  # the question could not be answered, or not all of it was done
    WOULD_CHANGE = 2  # something would change


class Page:
    """Text and sheets for people on one stream. A name in brackets is a name, never markup."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console

        self._console = Console(file=stream, highlight=False, emoji=False, markup=False)

    def say(self, text: str = "", style: str = "") -> None:
        """One paragraph; a terminal wraps it, a pipe gets it on one line."""
        from rich.text import Text

        self._console.print(Text(text, style=style), soft_wrap=not self._console.is_terminal)

    @property
    def screen(self) -> Console | None:
        """The console for progress bars below the sentences; None if not a terminal."""
        return self._console if self._console.is_terminal else None

    def heading(self, text: str) -> None:
        """A line that starts a part, with an empty line before it."""
        self.say()
        self.say(text, "bold")

    def warn(self, text: str) -> None:
        """A warning that a person must not overlook."""
        self.say(f"warning: {text}", "yellow")

    def sheet(self, sheet: Sheet) -> None:
        """A table. Without rows nothing is written, not even the titles."""
        if not sheet.rows:
            return
        if self._console.is_terminal and sheet.narrowest <= self._console.width:
            self._console.print(sheet.drawn())
            return
        for line in sheet.stacked_lines() if self._console.is_terminal else sheet.plain_lines():
            self.say(line)


def publish(
    stream: TextIO, output: OutputFormat, document: Document, *, show: Callable[[Page], None]
) -> None:
    """Write `document` as YAML or JSON, keys in order, what a template takes from it, or let `show`
    write it for people.
    """
    if output.template is not None:
        stream.write(JsonPathTemplate.parse(output.template).filled(document))
    elif output is OutputFormat.JSON:
        stream.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    elif output is OutputFormat.YAML:
        from tidegate.yaml_text import yaml_text

        stream.write(yaml_text(document))
    else:
        show(Page(stream))
