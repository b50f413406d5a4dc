"""The help of a command: examples first, options in groups, types as people write them."""

import inspect
import re
import textwrap
from typing import Any

from typer.core import TyperCommand

from tidegate.commands.examples import EXAMPLES

OWN = "Options"
ARGUMENTS = "Arguments"
_TYPES = {
    "bool": "",
    "int": "INT",
    "int range": "INT",
    "float": "NUMBER",
    "float range": "NUMBER",
    "str": "TEXT",
    "path": "PATH",
    "file": "FILE",
    "directory": "DIR",
}
_RANGES = (
    (re.compile(r"(-?[\d.]+)<=x<=(-?[\d.]+)"), r"\1 to \2"),
    (re.compile(r"x>=(-?[\d.]+)"), r"at least \1"),
    (re.compile(r"x<=(-?[\d.]+)"), r"at most \1"),
)


def type_words(display_type: str) -> str:
    """`INT` of typer's `<int range>`; choices as they are."""
    name = display_type.strip("<>").removeprefix("list[").removesuffix("]")
    return _TYPES.get(name, name)


class HelpfulCommand(TyperCommand):
    """A command whose help is made here."""

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """The first sentence, the examples, and the rest."""
        summary, _, rest = inspect.cleandoc(self.help or "").partition("\n\n")
        _write(formatter, summary)
        root = ctx.find_root().info_name or "tidegate"
        examples = EXAMPLES.get(ctx.command_path.removeprefix(f"{root} "))
        if examples:
            shown = re.sub(r"(?m)(^|[|(] ?)tidegate ", rf"\1{root} ", examples)
            with formatter.section("Examples"):
                formatter.write(f"{textwrap.indent(shown, ' ' * formatter.current_indent)}\n")
        _write(formatter, rest)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, the command's own options, and those that it shares, by what they are for."""
        panels: dict[str, list[tuple[str, str]]] = {ARGUMENTS: [], OWN: []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                panels.setdefault(panel_of(parameter), []).append(_in_words(parameter, *record))
        for title, records in panels.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def panel_of(parameter: Any) -> str:
    """The group of a parameter in the help of its command."""
    if parameter.param_type_name == "argument":
        return ARGUMENTS
    return str(parameter.rich_help_panel or OWN)


def _write(formatter: Any, text: str) -> None:
    if text:
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(text)


def _in_words(parameter: Any, name: str, meaning: str) -> tuple[str, str]:
    if parameter.param_type_name == "argument":
        name = re.sub(r" <[^>]*>", "", name)
    else:
        name = re.sub(r" (<[^>]*>)", lambda found: f" {type_words(found[1])}".rstrip(), name)
    for pattern, words in _RANGES:
        meaning = pattern.sub(words, meaning)
    return name, meaning
