"""Figures as people read them: volumes in GiB, the unit of the price, rates in MB/s, Kafka's. What is shown is rounded; `exact` is not."""

from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from enum import Enum, auto
from typing import Any

from tidegate.rollup.report.pricing import GIB

_MEGA = 1e6
UNKNOWN = "–"


class Kind(Enum):
    """What a figure is a number of."""

    TEXT = auto()
    COUNT = auto()
    VOLUME = auto()
    RATE = auto()
    SECONDS = auto()
    SHARE = auto()
    CHANGE = auto()
    FACTOR = auto()
    MONEY = auto()
    MOMENT = auto()
    FLAG = auto()


UNITS: Mapping[Kind, str] = {Kind.VOLUME: "GiB", Kind.RATE: "MB/s"}
"""What stands in a column's title, so that its cells are numbers alone."""


def words(kind: Kind, value: Any) -> str:
    """A table's cell. None is a dash; a volume or rate is without its unit."""
    return UNKNOWN if value is None else _WORDS[kind](value)


def with_unit(kind: Kind, value: Any) -> str:
    """The same for a sentence."""
    unit = UNITS.get(kind, "")
    return f"{words(kind, value)} {unit}".rstrip() if value is not None else UNKNOWN


def exact(kind: Kind, value: Any) -> str:
    """What the cell says when one asks for all digits; "" where it says them already."""
    return "" if value is None else _EXACT.get(kind, lambda _: "")(value)


def readable(number: float) -> str:
    """About three digits, never in powers of ten: `12,345`, `123.4`, `1.23`, `0.012`; `<0.001` is less, but not nothing."""
    size = abs(number)
    if size == 0:
        return "0"
    if size < 0.0005:
        return "<0.001"
    decimals = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 1 else 3
    return f"{number:,.{decimals}f}".replace("-", "−")


def duration(seconds: float) -> str:
    """`0`, `42 s`, `12 min`, `4 h 48 min`, `3 d 4 h`."""
    if seconds < 120:
        return "0" if seconds == 0 else f"{seconds:.0f} s" if seconds >= 1 else "<1 s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    if minutes < 72 * 60:
        return _two(divmod(minutes, 60), "h", "min")
    return _two(divmod(round(minutes / 60), 24), "d", "h")


def _two(counts: tuple[int, int], unit: str, less: str) -> str:
    """The smaller unit is left out where there is none of it."""
    count, rest = counts
    return f"{count} {unit} {rest} {less}" if rest else f"{count} {unit}"


def clock(text: str) -> str:
    """`2026-11-20 03:20` of an ISO time; seconds only where there are some."""
    at = datetime.fromisoformat(text)
    return f"{at:%Y-%m-%d %H:%M:%S}" if at.second or at.microsecond else f"{at:%Y-%m-%d %H:%M}"


def _percent(share: float) -> str:
    return "0 %" if share == 0 else "<0.1 %" if 0 < share < 0.0005 else f"{share * 100:,.1f} %".replace("-", "−")


_WORDS: Mapping[Kind, Callable[[Any], str]] = {
    Kind.TEXT: str,
    Kind.COUNT: "{:,}".format,
    Kind.VOLUME: lambda count: readable(count / GIB),
    Kind.RATE: lambda rate: readable(rate / _MEGA),
    Kind.SECONDS: duration,
    Kind.SHARE: _percent,
    Kind.CHANGE: lambda change: f"{change * 100:+.1f} %".replace("-", "−"),
    Kind.FACTOR: "{:.3f}".format,
    Kind.MONEY: lambda amount: f"{amount:,.2f}",
    Kind.MOMENT: clock,
    Kind.FLAG: lambda flag: "yes" if flag else "no",
}


def _digits(unit: str) -> Callable[[float | int | Decimal], str]:
    return lambda value: f"{value:,} {unit}" if isinstance(value, int) else f"{value:,.3f} {unit}"


_EXACT: Mapping[Kind, Callable[[Any], str]] = {
    Kind.VOLUME: _digits("bytes"),
    Kind.RATE: _digits("bytes/s"),
    Kind.SECONDS: _digits("s"),
    Kind.SHARE: "{:.6f}".format,
    Kind.CHANGE: "{:.6f}".format,
    Kind.FACTOR: "{:.6f}".format,
    Kind.MOMENT: str,
}
