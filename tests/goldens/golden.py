"""What messages read, each once: `tests/goldens/<area>.txt` has them by name, and only the test
with the `golden` fixture compares them.

Every other test asserts reasons, numbers and fields, so that a rewording changes a golden and no
test. `make goldens` writes the files again; the difference is then for a person to read.
"""

import os
import re
from pathlib import Path

HERE = Path(__file__).parent
_HEADING = "## "


def numbers(text: str) -> set[float]:
    """Every number in a text, whatever is said around it; those that belong to a name (`10.0.0.1`,
    `L3`, `zk-1`) are none.
    """
    return {
        float(found) for found in re.findall(r"(?<![\w.:/-])\d+(?:\.\d+)?(?![\w/-]|[.:]\d)", text)
    }


def line_with(text: str, *parts: str) -> str:
    """The one line of a text that has all these parts."""
    (line,) = [line for line in text.splitlines() if all(part in line for part in parts)]
    return line


class GoldenFile:
    """The messages of one area by name, in the order of their names."""

    def __init__(self, area: str) -> None:
        self._path = HERE / f"{area}.txt"
        self._messages = (
            _read(self._path.read_text(encoding="utf-8")) if self._path.exists() else {}
        )

    def check(self, name: str, text: str) -> None:
        """Compare, or write where `WRITE_GOLDENS` is set. Space at the end of a line does not
        count.
        """
        shown = "\n".join(line.rstrip() for line in text.strip("\n").splitlines())
        assert shown, f"{name} is empty"
        assert not any(line.startswith(_HEADING) for line in shown.splitlines()), (
            f"{name} has a line that reads as a heading"
        )
        if os.environ.get("WRITE_GOLDENS"):
            self._messages[name] = shown
            self._path.write_text(_written(self._messages), encoding="utf-8")
        assert shown == self._messages.get(name), (
            f"{name} in {self._path.name}; `make goldens` writes what is shown now"
        )


def _read(text: str) -> dict[str, str]:
    messages: dict[str, str] = {}
    for part in f"\n{text}".split(f"\n{_HEADING}")[1:]:
        name, _, message = part.partition("\n")
        messages[name] = message.strip("\n")
    return messages


def _written(messages: dict[str, str]) -> str:
    return "\n".join(f"{_HEADING}{name}\n{messages[name]}\n" for name in sorted(messages))
