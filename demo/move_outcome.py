"""What experiment 5 leaves behind, and the bounds that Tidegate has to keep in it.

Two equal moves off a broker from which L0 reads: by Kafka alone, then under Tidegate. The first is
shown beside the second, not judged.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from demo.script import BROKER, MOVED_TO, NIC_LIMIT, READER, MoveLength
from demo.words import Check, at_least, at_most, exact_check
from lab.episodes import LIMIT_SLACK
from lab.load import ProcessorShare
from lab.rates import SAWTOOTH_SECONDS, ByteSeries

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
# Resource ("broker 2", "topic acc") and key -> value, of everything that is set.
Throttles = Mapping[tuple[str, str], str]


@dataclass(frozen=True, slots=True)
class ThrottleStep:
    """From `at_seconds` on these throttles were set in Kafka; seen within a second."""

    at_seconds: float
    throttles: Throttles


@dataclass(frozen=True, slots=True)
class Foretold:
    """What the operator's metrics said from that moment on: so many seconds until the end."""

    at_seconds: float
    seconds: float
    bytes_left: int

    @property
    def end_seconds(self) -> float:
        """When the move is to end."""
        return self.at_seconds + self.seconds


@dataclass(frozen=True, slots=True)
class Move:
    """One move of all partitions of a topic.

    `moved_bytes` is what the leader had in its logs; `before_seconds` is for how long the NIC was
    measured until the request. `ended_seconds` None = it had not ended when it was given up.
    """

    topic: str
    moved_bytes: int
    before_seconds: int
    requested_seconds: float
    ended_seconds: float | None
    given_up_seconds: float

    @property
    def seconds(self) -> float | None:
        """From the request to the end."""
        return None if self.ended_seconds is None else self.ended_seconds - self.requested_seconds

    @property
    def watched_seconds(self) -> float:
        """From the request until it ended or was given up."""
        return (self.ended_seconds or self.given_up_seconds) - self.requested_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveOutcome:
    """One run of experiment 5, for report and summary.

    `read` is what L0 got, `nic` what the broker's NIC sent. `steps` are the throttles in Kafka over
    time, those of somebody else (`foreign`) among them.
    """

    length: MoveLength
    began_seconds: float
    ended_seconds: float
    unthrottled: Move
    followed: Move
    read: ByteSeries
    nic: ByteSeries
    steps: Sequence[ThrottleStep]
    foretold: Sequence[Foretold]
    foreign: Throttles
    processor: ProcessorShare

    def read_percent(self, move: Move) -> float:
        """What L0 got during the move, of what it wants."""
        got = self.read.mean(move.requested_seconds, move.watched_seconds)
        return 100 * got / READER.demand

    def longest_lag_seconds(self, move: Move) -> float:
        """By how many seconds of its demand L0 came behind at the worst during the move."""
        lag = worst = 0.0
        for got in self.read.per_second(move.requested_seconds, round(move.watched_seconds)):
            lag = max(0.0, lag + 1 - got / READER.demand)
            worst = max(worst, lag)
        return worst

    def spare(self, move: Move) -> float:
        """What the limit left before the move, in bytes per second.

        Clients are throttled down to 97 % of a limit, so that much of it is to be used.
        """
        before = move.requested_seconds - move.before_seconds
        return CUT_TO * NIC_LIMIT - self.nic.mean(before, move.before_seconds)

    def seconds_by_spare(self, move: Move) -> float:
        """How long it takes if it gets all that was spare before it; infinite if nothing was."""
        spare = self.spare(move)
        return move.moved_bytes / spare if spare > 0 else float("inf")

    def longest_seconds(self, move: Move) -> float:
        """How long it may take under Tidegate."""
        return SLOWER_THAN_SPARE * self.seconds_by_spare(move) + RATE_STANDS_SECONDS

    def highest_mean(self, move: Move, seconds: int) -> float:
        """The highest mean that the NIC sent over so many seconds, one that ends in the move."""
        ends = range(
            round(move.requested_seconds), round(move.requested_seconds + move.watched_seconds) + 1
        )
        return max(self.nic.mean(end - seconds, seconds) for end in ends)

    def ours(self, step: ThrottleStep) -> Throttles:
        """What of that is not as somebody else had set it before."""
        return {
            where: value
            for where, value in step.throttles.items()
            if self.foreign.get(where) != value
        }

    def seconds_to_first_throttle(self) -> float | None:
        """From the request to the first throttle in Kafka; None = there was none."""
        begin = self.followed.requested_seconds
        first = next(
            (one for one in self.steps if one.at_seconds >= begin and self.ours(one)), None
        )
        return None if first is None else first.at_seconds - begin

    def seconds_to_clean(self) -> float | None:
        """From the move's end until nothing of Tidegate's is left, and it stays so."""
        end = self.followed.ended_seconds
        if end is None or not self.steps or self.ours(self.steps[-1]):
            return None
        return max(0.0, self.steps[-1].at_seconds - end)

    def left(self) -> int:
        """Rates and lists of Tidegate's that were still set at the end."""
        return len(self.ours(self.steps[-1])) if self.steps else 0

    def foreign_changed(self) -> int:
        """How many values of somebody else were ever not as they had been set."""
        return sum(
            any(step.throttles.get(where) != value for step in self.steps)
            for where, value in self.foreign.items()
        )

    def rate_steps(self, broker: int, key: str) -> list[tuple[float, int | None]]:
        """When a rate of a broker was set to what; None = taken away."""
        found: list[tuple[float, int | None]] = []
        for step in self.steps:
            text = step.throttles.get((f"broker {broker}", key))
            rate = None if text is None else int(text)
            if rate != (found[-1][1] if found else None):
                found.append((step.at_seconds, rate))
        return found

    def halfway(self) -> Foretold | None:
        """The first estimate of the end when half of the bytes, or less, were left."""
        half = self.followed.moved_bytes / 2
        return next((one for one in self.foretold if one.bytes_left <= half), None)

    def estimate_off_percent(self, estimate: Foretold | None) -> float | None:
        """By how much it was off, of the move's whole time."""
        seconds, end = self.followed.seconds, self.followed.ended_seconds
        if estimate is None or seconds is None or end is None:
            return None
        return 100 * abs(estimate.end_seconds - end) / seconds

    def checks(self) -> list[Check]:
        """Every bound of the experiment."""
        return list(_checks(self))

    @property
    def passed(self) -> bool:
        return all(check.kept for check in self.checks())


# The bounds under Tidegate, as docs/replication.md states them.


MOVE = f"Experiment 5: partitions are moved off broker {BROKER} while L0 reads from it"
CUT_TO = 0.97
LOST_PERCENT = 3
SLOWER_THAN_SPARE = 1.25
# A rate changes at most once in 15 s for each broker: the first one, set on the readings of the
# move's first second, stands so long.
RATE_STANDS_SECONDS = 15
FIRST_THROTTLE_SECONDS = 5
CLEAN_UP_SECONDS = 15
ESTIMATE_OFF_PERCENT = 15


def _checks(outcome: MoveOutcome) -> Iterator[Check]:
    move = outcome.followed
    yield at_most(
        MOVE,
        "request to the first throttle in Kafka",
        outcome.seconds_to_first_throttle(),
        most=FIRST_THROTTLE_SECONDS,
    )
    percent = outcome.read_percent(move)
    yield at_least(MOVE, "L0 during the move, of what it wants", percent, least=100 - LOST_PERCENT)
    limit = NIC_LIMIT / 1e6
    slack = f"{LIMIT_SLACK:.0%}".replace("%", " %")
    yield Check(
        MOVE,
        f"NIC of broker {BROKER}, highest mean of {SAWTOOTH_SECONDS} s",
        "MB/s",
        limit,
        outcome.highest_mean(move, SAWTOOTH_SECONDS) / 1e6,
        lowest=0.0,
        highest=limit * (1 + LIMIT_SLACK),
        tolerance=f"at most +{slack}",
    )
    yield at_most(
        MOVE,
        f"the move: {SLOWER_THAN_SPARE:g} x bytes / spare before + {RATE_STANDS_SECONDS} s",
        move.seconds,
        most=round(outcome.longest_seconds(move), 1),
    )
    yield Check(
        MOVE,
        "end foretold at half of the bytes, off by, of the move's time",
        "%",
        0.0,
        outcome.estimate_off_percent(outcome.halfway()),
        lowest=0.0,
        highest=ESTIMATE_OFF_PERCENT,
        tolerance=f"at most {ESTIMATE_OFF_PERCENT} %",
    )
    yield at_most(
        MOVE,
        "end of the move until no rate and no list is left",
        outcome.seconds_to_clean(),
        most=CLEAN_UP_SECONDS,
    )
    yield exact_check(MOVE, "rates and lists left", unit="", expected=0, measured=outcome.left())
    yield exact_check(
        MOVE,
        "rates and lists of somebody else that changed",
        unit="",
        expected=0,
        measured=outcome.foreign_changed() if outcome.foreign else None,
    )


def moved_words() -> str:
    """Where the partitions go."""
    return " and ".join(f"partition {one} to broker {to}" for one, to in MOVED_TO.items())
