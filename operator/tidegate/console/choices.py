"""What a viewer chose on a page: how long charts reach back, which brokers, which members first.

Values come from a browser, so only those that exist are taken. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

RANGES: Final[Mapping[int, str]] = {
    900: "15 min",
    3600: "1 h",
    6 * 3600: "6 h",
    24 * 3600: "24 h",
}
BROKERS: Final = ("all", "over", "near", "unknown")
SORTS: Final = ("level", "member", "rate", "quota", "contract", "delay", "state")
ROWS: Final = ("top", "all")
SCALES: Final = ("quota", "contract")
_LONGEST_FILTER: Final = 256


@dataclass(frozen=True, slots=True)
class Choices:
    """`sort` "" = the least important first; `is_ascending` is of `sort`."""

    seconds: int = 900
    brokers: str = "all"
    sort: str = ""
    is_ascending: bool = False
    text: str = ""
    rows: str = "top"
    scale: str = "quota"

    def with_choice(self, choice: str, value: str) -> "Choices":
        """The same, but for this; what cannot be chosen changes nothing."""
        if choice == "seconds" and value.isdecimal() and int(value) in RANGES:
            return replace(self, seconds=int(value))
        if choice == "brokers" and value in BROKERS:
            return replace(self, brokers=value)
        if choice == "sort" and value in SORTS:
            turns = self.sort == value and not self.is_ascending
            return replace(self, sort=value, is_ascending=turns)
        if choice == "text":
            return replace(self, text=value[:_LONGEST_FILTER])
        if choice == "rows" and value in ROWS:
            return replace(self, rows=value)
        if choice == "scale" and value in SCALES:
            return replace(self, scale=value)
        return self
