"""`docs/cli.md`: every command with its options, generated from the commands themselves, so that the page cannot drift.

It formats only; what an option means is said where the option is declared.
"""

import inspect
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import typer

from tidegate.cli import EPILOGUE, app
from tools.generate import write_or_check

PAGE = Path("docs/cli.md")
HEAD = f"""\
# The command line

<!-- Generated from operator/tidegate/commands by `make generate`; do not edit by hand. -->

`tidegate COMMAND --help` prints the same. `python -m tidegate` is the same program.

{EPILOGUE}

On a terminal the output is drawn with colours; in a pipe it is plain text, one line a row. `--output json` and `--output yaml` print one
document: byte rates are integers in bytes per second, stored values are exact texts, and an entity is `user` and `clientId`, of which those
listed in `defaults` are Kafka's default entity.
"""


def reference_page() -> str:
    """The whole page, commands in the order in which `tidegate --help` lists them."""
    parts = [HEAD]
    for name, command in _commands(typer.main.get_command(app)):
        parts.append(f"\n## tidegate {name}\n\n{_prose(command.help)}\n\n| Option | Meaning |\n|---|---|\n")
        parts.extend(_option_row(option) for option in command.params if not option.hidden)
    return "".join(parts)


def _commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Each command with its words after `tidegate`; a group stands for its commands."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def _prose(text: str | None) -> str:
    """A docstring as Markdown: paragraphs on one line each, as the terminal's help has them."""
    paragraphs = inspect.cleandoc(text or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _option_row(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in option.opts) if option.param_type_name == "option" else f"`{option.metavar}`"
    takes = "" if option.param_type_name == "argument" or option.is_flag else f" `{option.metavar or _choices(option)}`"
    return f"| {_cell(names + takes)} | {_cell(' '.join(_meaning(option)))} |\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _choices(option: Any) -> str:
    default = option.default
    return "|".join(member.value for member in type(default)) if isinstance(default, Enum) else option.bare_type().upper()


def _meaning(option: Any) -> Iterator[str]:
    yield option.help or ""
    if option.required:
        yield "Required."
    elif option.param_type_name == "option" and not option.is_flag and option.default not in (None, ""):
        default = option.default.value if isinstance(option.default, Enum) else option.default
        yield f"Default: `{default}`."
    if option.envvar:
        yield f"Environment: `{option.envvar}`."


if __name__ == "__main__":
    sys.exit(write_or_check({PAGE: reference_page()}, command="python -m tidegate.commands.reference"))
