"""What experiment 6 leaves behind, and the bounds that it has to keep.

It is played beside experiments 2 and 3: messages of a delay queue become due all the time, also
while the broker that leads their topic is over its limit.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from demo.episode import Playing
from demo.words import Check, at_most, exact_check
from lab.rates import ByteSeries, Sample

DELAY_SECONDS = 5
LATEST_SECONDS = 900
# Of all forwarders together, for what has waited.
RATE = 2_000_000
MESSAGE_BYTES, MESSAGES_PER_SECOND = 2_000, 25

SHIFT = "Experiment 6: messages that may wait, during experiments 2 and 3"
# From the first quota until the forwarder has heard of it and ended what it was sending.
HELD_WITHIN_SECONDS = 5
# Before the limit drops, so that the bound is of forwarding and not of waiting.
PUNCTUAL_SECONDS = 1
_RATE_MEAN_SECONDS = 3
_RATE_ABOVE_PERCENT = 10
# A message that was due so shortly before the end may still be on its way.
_ON_ITS_WAY_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """One message in its target: which one, when it was due, and when the broker appended it."""

    number: int
    due_seconds: float
    at_seconds: float

    @property
    def late_seconds(self) -> float:
        return self.at_seconds - self.due_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftOutcome:
    """`produced` has the time at which each message was written, by its number."""

    produced: tuple[float, ...]
    arrivals: tuple[Arrival, ...]
    held_from_seconds: float | None
    limited_at_seconds: float
    raised_at_seconds: float
    began_seconds: float
    ended_seconds: float

    @classmethod
    def of(
        cls, playing: Playing, produced: tuple[float, ...], arrivals: tuple[Arrival, ...]
    ) -> "ShiftOutcome":
        """What arrived beside that playing of experiments 2 and 3."""
        return cls(
            produced=produced,
            arrivals=arrivals,
            held_from_seconds=playing.first_write_seconds(),
            limited_at_seconds=playing.limited_at_seconds,
            raised_at_seconds=playing.raised_at_seconds,
            began_seconds=playing.began_seconds,
            ended_seconds=playing.ended_seconds,
        )

    def due_series(self) -> ByteSeries:
        """Bytes that became due, over time."""
        due = [Sample(at + DELAY_SECONDS, MESSAGE_BYTES) for at in self.produced]
        return ByteSeries([Sample(self.began_seconds, 0), *due])

    def sent_series(self) -> ByteSeries:
        """Bytes that arrived in their target, over time."""
        sent = [Sample(one.at_seconds, MESSAGE_BYTES) for one in self.arrivals]
        return ByteSeries([Sample(self.began_seconds, 0), *sent])

    def sent_while_over(self) -> int | None:
        """Messages sent while the broker was over its limit; None if no quota was ever written."""
        if self.held_from_seconds is None:
            return None
        begin = self.held_from_seconds + HELD_WITHIN_SECONDS
        return sum(begin <= one.at_seconds < self.raised_at_seconds for one in self.arrivals)

    def released_seconds(self) -> float | None:
        """When the first message was sent after the limit had been raised; None = none was."""
        return min(
            (one.at_seconds for one in self.arrivals if one.at_seconds >= self.raised_at_seconds),
            default=None,
        )

    def lost(self) -> int:
        """Messages that were due and have not arrived."""
        arrived = {one.number for one in self.arrivals}
        last = self.ended_seconds - DELAY_SECONDS - _ON_ITS_WAY_SECONDS
        return sum(at <= last and number not in arrived for number, at in enumerate(self.produced))

    def out_of_order(self) -> int:
        """Messages that arrived behind a later one, or twice."""
        return sum(after.number <= before.number for before, after in pairwise(self.arrivals))

    def usual_late_seconds(self) -> float | None:
        """The median before the limit dropped; None if nothing arrived until then."""
        late = [
            one.late_seconds for one in self.arrivals if one.at_seconds < self.limited_at_seconds
        ]
        return median(late) if late else None

    def latest_seconds(self) -> float | None:
        """How late the latest message was."""
        return max((one.late_seconds for one in self.arrivals), default=None)

    def highest_rate(self) -> float | None:
        """The highest mean of three seconds after the wait, in bytes per second."""
        released = self.released_seconds()
        if released is None:
            return None
        sent = self.sent_series()
        starts = range(int(self.ended_seconds - released - _RATE_MEAN_SECONDS))
        return max(
            (sent.mean(released + start, _RATE_MEAN_SECONDS) for start in starts), default=None
        )

    def checks(self) -> list[Check]:
        """Every bound of the experiment. That L0 loses nothing is a bound of experiment 2."""
        return list(_checks(self))


def _checks(outcome: ShiftOutcome) -> Iterator[Check]:
    yield at_most(
        SHIFT,
        "before the limit drops: how late half of the messages are, at most",
        outcome.usual_late_seconds(),
        most=PUNCTUAL_SECONDS,
    )
    yield exact_check(
        SHIFT,
        f"messages sent from {HELD_WITHIN_SECONDS} s after the first quota until the raise",
        unit="",
        expected=0,
        measured=outcome.sent_while_over(),
    )
    yield exact_check(SHIFT, "messages lost", unit="", expected=0, measured=outcome.lost())
    yield exact_check(
        SHIFT,
        "messages out of order, or sent twice",
        unit="",
        expected=0,
        measured=outcome.out_of_order(),
    )
    yield at_most(
        SHIFT, "how late the latest message is", outcome.latest_seconds(), most=LATEST_SECONDS
    )
    rate, highest = RATE / 1e6, outcome.highest_rate()
    yield Check(
        SHIFT,
        f"rate of what has waited, highest mean of {_RATE_MEAN_SECONDS} s",
        "MB/s",
        rate,
        None if highest is None else highest / 1e6,
        lowest=0.0,
        highest=rate * (1 + _RATE_ABOVE_PERCENT / 100),
        tolerance=f"at most +{_RATE_ABOVE_PERCENT} %",
    )
