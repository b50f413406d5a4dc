"""When to stop putting an entity back that another writer keeps changing: two repairs, then back off; never a fight.

The count lives in memory only. A restarted operator repairs twice more and then backs off again.
"""

from dataclasses import dataclass

REPAIRS_BEFORE_BACKING_OFF = 2
_FIRST_BACK_OFF_SECONDS = 15 * 60
_LONGEST_BACK_OFF_SECONDS = 4 * 3600


@dataclass(frozen=True, slots=True)
class Repairs:
    """How often an entity was put back after another writer changed it, and until when we leave it alone."""

    count: int
    last_at_seconds: float
    suspended_until_seconds: float = 0.0


def back_off_seconds(repairs: int) -> int:
    """How long an entity is left alone after this many repairs: 15 minutes after two, doubling, at most 4 hours."""
    doublings = min(max(0, repairs - REPAIRS_BEFORE_BACKING_OFF), 10)
    return min(_FIRST_BACK_OFF_SECONDS << doublings, _LONGEST_BACK_OFF_SECONDS)


def reviewed(repairs: Repairs | None, *, disturbed: bool, now_seconds: float) -> Repairs | None:
    """What is remembered of an entity's repairs after looking at it now; None = nothing, a repair is allowed.

    A quiet spell as long as the back-off forgives everything. A change after the second repair starts a suspension; one
    repair is allowed when it is over, and a change after that starts a longer one.
    """
    if repairs is None:
        return None
    quiet_since = max(repairs.last_at_seconds, repairs.suspended_until_seconds)
    few = repairs.count < REPAIRS_BEFORE_BACKING_OFF
    if (few or not disturbed) and now_seconds - quiet_since >= back_off_seconds(repairs.count):
        return None
    suspended_already = repairs.suspended_until_seconds > repairs.last_at_seconds
    if few or not disturbed or suspended_already:
        return repairs
    return Repairs(repairs.count, repairs.last_at_seconds, now_seconds + back_off_seconds(repairs.count))


def is_suspended(repairs: Repairs | None, *, now_seconds: float) -> bool:
    """Whether a disturbed entity is left alone now."""
    return repairs is not None and now_seconds < repairs.suspended_until_seconds


def repaired(repairs: Repairs | None, *, now_seconds: float) -> Repairs:
    """What to remember after one more repair was really written."""
    return Repairs(1 if repairs is None else repairs.count + 1, now_seconds)
