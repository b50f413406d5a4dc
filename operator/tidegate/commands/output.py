"""Where a command writes for people: colours and tables on a terminal, plain text when piped; or one document for programs.

The three output formats are decided here and nowhere else. A document is plain data; it goes out whole or not at all.
"""

import json
from collections.abc import Callable, Mapping
from enum import IntEnum, StrEnum
from typing import TextIO

import yaml
from rich.console import Console
from rich.text import Text

from tidegate.commands.sheet import Sheet

Document = Mapping[str, object]


class OutputFormat(StrEnum):
    TABLE = "table"
    YAML = "yaml"
    JSON = "json"


class ExitCode(IntEnum):
    """What a script may rely on; the same for every command."""

    OK = 0  # nothing to do, or done
    ERROR = 1  # the question could not be answered, or not all of it was done
    WOULD_CHANGE = 2  # something would change


class Page:
    """Text and sheets for people on one stream. Texts are literal: a name in brackets is a name, never markup."""

    def __init__(self, stream: TextIO) -> None:
        self._console = Console(file=stream, highlight=False, emoji=False, markup=False)

    def say(self, text: str = "", style: str = "") -> None:
        """One paragraph; a terminal wraps it, a pipe gets it on one line."""
        self._console.print(Text(text, style=style), soft_wrap=not self._console.is_terminal)

    @property
    def screen(self) -> Console | None:
        """Where something can be drawn that moves, with whatever is said above it; None where nobody would see it move."""
        return self._console if self._console.is_terminal else None

    def heading(self, text: str) -> None:
        """A line that starts a part, with an empty line before it."""
        self.say()
        self.say(text, "bold")

    def warn(self, text: str) -> None:
        """Something that a person must not overlook."""
        self.say(f"warning: {text}", "yellow")

    def sheet(self, sheet: Sheet) -> None:
        """A table; one without rows leaves no trace, not even its titles."""
        if not sheet.rows:
            return
        if self._console.is_terminal and sheet.narrowest <= self._console.width:
            self._console.print(sheet.drawn())
            return
        for line in sheet.stacked_lines() if self._console.is_terminal else sheet.plain_lines():
            self.say(line)


def publish(stream: TextIO, output: OutputFormat, document: Document, *, show: Callable[[Page], None]) -> None:
    """Write `document` as YAML or JSON, or let `show` write it for people; keys keep their order."""
    if output is OutputFormat.JSON:
        stream.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    elif output is OutputFormat.YAML:
        stream.write(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120))
    else:
        show(Page(stream))
