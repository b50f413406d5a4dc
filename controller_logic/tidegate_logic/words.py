"""Rates, sizes, times and ages as people read them, each written in one way everywhere.

Messages, tables, the console and the report's sentences all use this module; data that programs
read (YAML quantities such as `40k`, CSV columns, JSON) keeps its own exact form.

- Units are decimal, as network people use them: 1 kB is 1,000 bytes, 1 MB 1,000,000.
- A number has three significant digits and no trailing zeros: `40 kB/s`, `58.1 MB/s`, `1.5 GB/s`.
- One ordinary space joins number and unit, so that a text can be searched and pasted. A page that
  must not break there says so in its style sheet, never by another character.
- Missing is `unknown` in a sentence and `-` (`NO_VALUE`) in a table, never 0. So is a number that
  is not finite. Above 0 and below 1 is `<1 B/s`, because only nothing is 0.
- Times are in UTC and cut to whole seconds.
"""

from collections.abc import Collection
from datetime import UTC, datetime
from math import isfinite
from typing import Final

UNKNOWN: Final = "unknown"
NO_VALUE: Final = "-"
_PREFIXES = ("", "k", "M", "G", "T", "P")
_DIGITS, _MOST_DIGITS = 3, 6
_AGES = ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h"))


def rate_words(bytes_per_second: float | None, *, missing: str = UNKNOWN) -> str:
    """`40 kB/s`, `1.5 GB/s`."""
    return _scaled(bytes_per_second, "B/s", missing)


def size_words(size_bytes: float | None, *, missing: str = UNKNOWN) -> str:
    """`40 kB`, `1.5 GB`."""
    return _scaled(size_bytes, "B", missing)


def rate_of_words(
    bytes_per_second: float | None, of: float | None, *, missing: str = UNKNOWN
) -> str:
    """`58.1 of 50 MB/s`, or `40 kB/s of 50 MB/s` where the units differ.

    Two different rates never read the same: `50.01 of 50 MB/s` has as many digits as that takes,
    six at most.
    """
    for digits in range(_DIGITS, _MOST_DIGITS + 1):
        part, whole = (_scaled(one, "B/s", missing, digits) for one in (bytes_per_second, of))
        if part != whole or bytes_per_second == of:
            break
    number, _, unit = part.rpartition(" ")
    return f"{number if number and whole.endswith(f' {unit}') else part} of {whole}"


def _scaled(amount: float | None, unit: str, missing: str, digits: int = _DIGITS) -> str:
    if amount is None or not isfinite(amount):
        return missing
    if 0 < amount < 1:
        return f"<1 {unit}"
    last = len(_PREFIXES) - 1
    power = min((len(str(int(abs(amount)))) - 1) // 3, last)
    shown = float(f"{amount / 1000**power:.{digits}g}")
    if abs(shown) >= 1000 and power < last:  # 999,900 is 1 MB, not 1000 kB
        shown, power = shown / 1000, power + 1
    return f"{shown:.{_MOST_DIGITS}g} {_PREFIXES[power]}{unit}"


def rfc3339(seconds: float, timespec: str = "seconds") -> str:
    """Seconds since the epoch as `2026-11-21T11:00:15Z`; `timespec` as of `datetime.isoformat`."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec=timespec)[: -len("+00:00")] + "Z"


def rfc3339_ms(at_ms: int) -> str:
    """Milliseconds since the epoch, as `rfc3339` has it; with milliseconds where there are any."""
    return rfc3339(at_ms / 1000, "milliseconds" if at_ms % 1000 else "seconds")


def clock_words(seconds: float) -> str:
    """`14:05:09`, for a moment of today; a sentence adds `UTC`, a page has it in its head."""
    return f"{datetime.fromtimestamp(int(seconds), UTC):%H:%M:%S}"


def age_words(seconds: float) -> str:
    """`40 s`, `12 min`, `3 h`, `5 days`; nothing is younger than now (clocks differ)."""
    for limit, divisor, unit in _AGES:
        if seconds < limit:
            return f"{max(0.0, seconds) / divisor:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days"


def ago_words(seconds: float) -> str:
    """`40 s ago`, `3 h ago`; `just now` below a second and in the future (clocks differ)."""
    return "just now" if seconds < 1 else f"{age_words(seconds)} ago"


def elapsed_words(seconds: float) -> str:
    """`5:06`, or `1:05:06` from an hour on."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def broker_words(brokers: Collection[int]) -> str:
    """`broker 3`, `brokers 1, 2`; of more than ten the first ones, and how many more there are."""
    shown = ", ".join(str(one) for one in sorted(brokers)[:10])
    more = f" and {len(brokers) - 10} more" if len(brokers) > 10 else ""
    return f"broker{'s' if len(brokers) > 1 else ''} {shown}{more}"


def counted(number: int, what: str) -> str:
    """`1 quota`, `12 quotas`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
