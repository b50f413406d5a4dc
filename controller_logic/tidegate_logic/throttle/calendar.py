"""What a policy's calendar lets each level use, and the cuts that put it in force in time.

People know of load that no reading can show before it comes. A cut by the calendar is one more
reason for a cut, and never a deeper one than load asks for: the lower value counts. It begins so
early that the safe steps are done when the entry begins. Where a quota could not be restored now,
because the load of a broker is not known, it is not lowered either. After the end, raises restore
quotas as after any cut. Rates are bytes per second, times seconds since the epoch.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from tidegate_logic.model import CalendarEntry, Level, RateKey
from tidegate_logic.quotas.mute import largest_safe_step
from tidegate_logic.recurrence import Window
from tidegate_logic.throttle.attribution import CUT_ORDER, DirectionSnapshot
from tidegate_logic.throttle.buckets import Bucket
from tidegate_logic.throttle.cuts import Outcome, cut_step
from tidegate_logic.throttle.decision import LimitedBy, StepKind, ThrottleStep
from tidegate_logic.throttle.input import WORTH_CUTTING, ThrottleSettings
from tidegate_logic.words import rfc3339

LIMITED_BY_CALENDAR: Final = "limited by calendar"
Calendar = tuple[CalendarEntry, ...]
_LOOKS_AHEAD_SECONDS: Final = 8 * 86_400.0  # every entry comes back within a week
_MANY: Final = 10**9  # so that rounding does not count
_MOST_STEPS: Final = 64


@dataclass(frozen=True, slots=True)
class LevelCalendar:
    """What the calendar says of one level: the share in force, until when, and what comes next.

    `share` None = no entry is in force. `until_seconds` is when that changes, `next_share` to what
    (None = to the whole contract); None = it does not within a week.
    """

    level: Level
    share: float | None
    until_seconds: float | None
    next_share: float | None

    @property
    def words(self) -> str:
        """`limited by calendar to 20 % of its contracts until 2026-11-30T05:00:00Z`."""
        share, lead = self.share, ""
        if share is None:
            share, lead = self.next_share or 1.0, "on its way down "
        ends = "" if self.until_seconds is None else rfc3339(self.until_seconds)
        what = f"{LIMITED_BY_CALENDAR} {lead}to {100 * share:.0f} % of its contracts"
        return f"{what} {'from' if lead else 'until'} {ends}" if ends else what


def level_calendars(calendar: Calendar, now_seconds: float) -> tuple[LevelCalendar, ...]:
    """Every level that the calendar names."""
    return tuple(
        _level_calendar(calendar, level, now_seconds)
        for level in Level
        if any(level in entry.shares for entry in calendar)
    )


def _level_calendar(calendar: Calendar, level: Level, now_seconds: float) -> LevelCalendar:
    ends_seconds = now_seconds + _LOOKS_AHEAD_SECONDS
    limits = list(_limits(calendar, level, now_seconds, ends_seconds))
    share = _lowest(limits, now_seconds)
    turns = sorted({at for _, one in limits for at in (one.begin_seconds, one.end_seconds)})
    for at_seconds in turns:
        if now_seconds < at_seconds < ends_seconds and (
            (following := _lowest(limits, at_seconds)) != share
        ):
            return LevelCalendar(level, share, at_seconds, following)
    return LevelCalendar(level, share, None, None)


def _limits(
    calendar: Calendar, level: Level, after_seconds: float, before_seconds: float
) -> Iterator[tuple[float, Window]]:
    for entry in calendar:
        if level in entry.shares:
            for window in entry.recurrence.windows(after_seconds, before_seconds):
                yield entry.shares[level], window


def _lowest(limits: Iterable[tuple[float, Window]], at_seconds: float) -> float | None:
    return min([share for share, window in limits if window.has(at_seconds)], default=None)


def lead_seconds(share: float, max_mute_seconds: int, settings: ThrottleSettings) -> float:
    """How long before an entry begins the first step has to go, to end in time."""
    value, steps = _MANY, 0
    while value * WORTH_CUTTING > share * _MANY and steps < _MOST_STEPS:
        value = largest_safe_step(value, max_mute_seconds, settings.window)
        steps += 1
    return steps * settings.dwell_seconds + settings.spread_seconds


def ceilings_of(
    calendar: Calendar, buckets: Iterable[Bucket], settings: ThrottleSettings, now_seconds: float
) -> dict[RateKey, int]:
    """The quota that each rate may have now, where the calendar allows less than its contract."""
    shares: dict[tuple[Level, int], float | None] = {}
    found: dict[RateKey, int] = {}
    for bucket in buckets if calendar else ():
        mute_seconds = bucket.longest_mute_seconds(settings)
        place = (bucket.level, mute_seconds)
        if place not in shares:
            shares[place] = _share(calendar, *place, settings, now_seconds)
        share = shares[place]
        if share is not None:
            ceiling = max(bucket.floor.value, ceil(share * bucket.contract))
            if ceiling < bucket.contract:
                found[bucket.key] = ceiling
    return found


def _share(
    calendar: Calendar,
    level: Level,
    max_mute_seconds: int,
    settings: ThrottleSettings,
    now_seconds: float,
) -> float | None:
    """The lowest that is in force, or has to be soon and is begun now."""
    begun: list[float] = []
    for entry in calendar:
        share = entry.shares.get(level)
        if share is not None:
            lead = lead_seconds(share, max_mute_seconds, settings)
            if next(entry.recurrence.windows(now_seconds, now_seconds + lead), None) is not None:
                begun.append(share)
    return min(begun, default=None)


def due_in_seconds(
    calendar: Calendar, settings: ThrottleSettings, now_seconds: float
) -> float | None:
    """When the next entry ends, or the first step of one is due; None = not within a week."""
    moments = [
        at_seconds - now_seconds
        for entry in calendar
        for share in set(entry.shares.values())
        for window in entry.recurrence.windows(now_seconds, now_seconds + _LOOKS_AHEAD_SECONDS)
        for at_seconds in (
            window.begin_seconds - lead_seconds(share, settings.max_mute_seconds, settings),
            window.end_seconds,
        )
    ]
    return min([seconds for seconds in moments if seconds > 0], default=None)


def with_calendar(scene: DirectionSnapshot, outcome: Outcome) -> Outcome:
    """The outcome with the calendar's cuts, where load asks for no deeper ones."""
    if not scene.ceilings:
        return outcome
    steps = {step.key: step for step in outcome.steps}
    for bucket in (bucket for level in CUT_ORDER for bucket in scene.tiers[level]):
        cut = _cut(bucket, scene) if bucket.key not in outcome.drains else None
        known = steps.get(bucket.key)
        if cut is not None and (known is None or known.value > cut.value):
            steps[bucket.key] = cut
    return replace(outcome, steps=tuple(steps.values()))


def _cut(bucket: Bucket, scene: DirectionSnapshot) -> ThrottleStep | None:
    """The next step down to the ceiling; None = it is there, rests, or must not be lowered now."""
    ceiling = scene.ceilings.get(bucket.key)
    if ceiling is None or bucket.rate.leads & scene.forbids_raises:
        return None
    if bucket.cap <= ceiling:
        # an edited contract would lift it above the ceiling
        return None if bucket.held is not None else _step(bucket, ceiling, ceiling, scene)
    settings = scene.settings
    if bucket.held is not None and bucket.cap * WORTH_CUTTING <= ceiling:
        return None
    if bucket.seconds_until_lowered_again(settings, scene.now_seconds):
        return None
    return _step(bucket, max(ceiling, bucket.safe_step(settings)), ceiling, scene)


def _step(bucket: Bucket, value: int, ceiling: int, scene: DirectionSnapshot) -> ThrottleStep:
    step = cut_step(bucket, value, ceiling, frozenset(), scene)
    limited = LimitedBy.MAX_MUTE if value > ceiling else LimitedBy.CALENDAR
    return replace(step, kind=StepKind.CUT, limited_by=limited)
