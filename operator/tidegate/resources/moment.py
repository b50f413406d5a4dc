"""A moment as people write it in a resource: RFC 3339 with seconds and an offset, such as `2026-11-30T06:00:00Z`.

The schema does not name the format `date-time`: the API server would read it loosely (small letters, second 60), answer without an
example, and take a list in place of the text. Rules in words say all of it.
"""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from tidegate.resources.fields import matching, ruled
from tidegate.resources.rules import Rule

_DAYS = r"(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|[12][0-9])"
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_MOMENT = rf"2[0-9][0-9][0-9]-(?:{_DAYS})T{_CLOCK}:[0-5][0-9](?:[.][0-9]{{1,9}})?(?:Z|[+-]{_CLOCK})"
_YEAR = "int(self.substring(0, 4))"


def parse_moment(written: str) -> float:
    """Seconds since the epoch of a moment that its model has accepted."""
    return datetime.fromisoformat(written).timestamp()


def _is_a_day(written: str) -> bool:
    try:
        parse_moment(written)
    except ValueError:
        return False
    return True


_moment_check, _moment_schema = ruled(
    matching(_MOMENT, "must be a date and time with seconds and an offset, such as 2026-11-30T06:00:00Z or 2026-11-30T08:00:00+02:00"),
    Rule(
        cel=f"!self.matches(r'^2[0-9][0-9][0-9]-02-29') || ({_YEAR} % 4 == 0 && ({_YEAR} % 100 != 0 || {_YEAR} % 400 == 0))",
        message="must be a day that exists: February has no 29th in that year",
        holds=_is_a_day,
    ),
)
Moment = Annotated[str, Field(min_length=1, max_length=40), _moment_check, _moment_schema]
"""A moment of a spec; it stays the text that was written."""
