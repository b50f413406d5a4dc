"""Times that come back every week by the clock of a time zone: `Mon to Fri, 22:00 to 06:00`.

They are declared by people and mean what a clock on the wall there shows. Where clocks are put
forward, a time that is skipped is the moment of the change. Where they are put back and a time
comes twice, the first counts as a beginning and the second as an end, so nothing declared is left
out. Moments are seconds since the epoch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from math import inf
from typing import Final
from zoneinfo import ZoneInfo

DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_WEEK_SECONDS: Final = 7 * 86_400.0
# a window may last a day, and clocks change by a few hours at most
_LONGEST_SECONDS: Final = 2 * 86_400.0


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """One time from `begin_seconds` up to, and without, `end_seconds`."""

    begin_seconds: float
    end_seconds: float

    def has(self, at_seconds: float) -> bool:
        return self.begin_seconds <= at_seconds < self.end_seconds


@dataclass(frozen=True, slots=True)
class Recurrence:
    """On each of `days` (0 = Monday) from one time of day to another, in minutes after midnight.

    An end that is not after the beginning is on the next day, so a window may last 24 hours. `zone`
    is a name of the time zone database. Raises ValueError for anything else.
    """

    days: frozenset[int]
    begin_minutes: int
    end_minutes: int
    zone: str = "UTC"

    def __post_init__(self) -> None:
        minutes = (self.begin_minutes, self.end_minutes)
        if not self.days or not self.days <= set(range(7)):
            raise ValueError(f"{sorted(self.days)} are no days of a week, 0 to 6")
        if not all(0 <= one < 24 * 60 for one in minutes):
            raise ValueError(f"{minutes} are no minutes of a day")
        try:
            ZoneInfo(self.zone)
        except (KeyError, OSError, ValueError):  # no such name, a folder, no name at all
            raise ValueError(f"{self.zone!r} is no time zone") from None

    def windows(self, after_seconds: float, before_seconds: float) -> Iterator[Window]:
        """Those that end after one moment and begin before another, in their order."""
        zone = ZoneInfo(self.zone)
        day = _day(after_seconds - _LONGEST_SECONDS, zone)
        last = _day(before_seconds, zone)
        while day <= last:
            if day.weekday() in self.days:
                window = self._of(day, zone)
                in_reach = (
                    window.end_seconds > after_seconds and window.begin_seconds < before_seconds
                )
                if in_reach and window.begin_seconds < window.end_seconds:
                    yield window
            day += timedelta(days=1)

    def window_at(self, at_seconds: float) -> Window | None:
        """The one that the moment is in; None = there is none."""
        near = self.windows(at_seconds, at_seconds + 1.0)
        return next((one for one in near if one.has(at_seconds)), None)

    def next_window(self, after_seconds: float) -> Window:
        """The first that begins after the moment; one that clocks skip is passed over."""
        return next(
            one
            for one in self.windows(after_seconds, after_seconds + 3 * _WEEK_SECONDS)
            if one.begin_seconds > after_seconds
        )

    def stretch(self, at_seconds: float) -> Window:
        """The time that the moment is in, or the next one; windows that meet are one time.

        One that would last longer than three weeks ends never (infinity).
        """
        reach_seconds = at_seconds + 3 * _WEEK_SECONDS
        found: Window | None = None
        for one in self.windows(at_seconds, reach_seconds):
            if found is not None and one.begin_seconds > found.end_seconds:
                return found
            begin_seconds = one.begin_seconds if found is None else found.begin_seconds
            found = Window(begin_seconds, one.end_seconds)
        if found is None or found.end_seconds >= reach_seconds:
            return Window(reach_seconds if found is None else found.begin_seconds, inf)
        return found

    def _of(self, day: date, zone: ZoneInfo) -> Window:
        ends_next_day = self.end_minutes <= self.begin_minutes
        end_day = day + timedelta(days=1) if ends_next_day else day
        return Window(
            min(_moments(day, self.begin_minutes, zone)),
            max(_moments(end_day, self.end_minutes, zone)),
        )


def _day(at_seconds: float, zone: ZoneInfo) -> date:
    return datetime.fromtimestamp(at_seconds, zone).date()


def _moments(day: date, minutes: int, zone: ZoneInfo) -> tuple[float, float]:
    """When a clock shows this time: the first and the second time, mostly the same."""
    wall = datetime.combine(day, time(minutes // 60, minutes % 60), zone)
    first, second = wall.timestamp(), wall.replace(fold=1).timestamp()
    if first <= second:
        return first, second
    # the clock skips it: with the offset from before the change it is too late, with the other
    # one too early, and the change is between them
    change = _change(second, first, zone)
    return change, change


def _change(early_seconds: float, late_seconds: float, zone: ZoneInfo) -> float:
    """The moment at which clocks change, to the second."""
    before = _offset(early_seconds, zone)
    low, high = int(early_seconds), int(late_seconds)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _offset(middle, zone) == before else (low, middle)
    return float(high)


def _offset(at_seconds: float, zone: ZoneInfo) -> timedelta | None:
    return datetime.fromtimestamp(at_seconds, UTC).astimezone(zone).utcoffset()
