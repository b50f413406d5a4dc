"""How many writes of the throttle go out now: spread evenly over one quota window, so that clients do not burst in step.

Cut in one moment, thirty flat-out clients sent their next window in the same second, 3.6 times the card's mean; spread over a window it was
1.2 to 1.9 times. A slot is as long as one sample of the window; longer where several writes share it, so that all slots together last as
long as the teeth in which throttled clients send. Recoveries and contracts that follow leaders are not held up here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from controller_logic.model import QuotaWindow

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class WritePace:
    """A spread under way: so many writes in each slot, the next one at `next_at_seconds`; over when a window has gone by since."""

    per_slot: int
    slot_seconds: float
    next_at_seconds: float


@dataclass(frozen=True, slots=True)
class Paced:
    """How many of the waiting go now, how soon the next slot comes (None = none is left waiting), and what to remember."""

    now: int
    due_in_seconds: float | None
    pace: WritePace | None


def paced(waiting: Sequence[Item], pace: WritePace | None, window: QuotaWindow, *, now_seconds: float) -> Paced:
    """The share of `waiting` for this moment. All of them are gone after one window, whatever their number."""
    count = len(waiting)
    if pace is not None and abs(now_seconds - pace.next_at_seconds) > window.seconds:
        pace = None  # an old spread, or a clock that was set back
    if not count:
        return Paced(0, None, pace)
    if pace is not None and now_seconds < pace.next_at_seconds:
        return Paced(0, pace.next_at_seconds - now_seconds, pace)
    going = _going(count, pace, window, now_seconds=now_seconds)
    return Paced(min(count, going.per_slot), going.slot_seconds if count > going.per_slot else None, going)


def _going(count: int, pace: WritePace | None, window: QuotaWindow, *, now_seconds: float) -> WritePace:
    slots = window.samples + 1
    per_slot = -(-count // slots)
    slot_seconds = float(window.sample_seconds) * (slots * per_slot / count if per_slot > 1 else 1.0)
    if pace is not None and pace.per_slot >= per_slot:
        per_slot, slot_seconds = pace.per_slot, pace.slot_seconds
    return WritePace(per_slot, slot_seconds, now_seconds + slot_seconds)
