"""What a run of the demo leaves behind: phases, marks in time, every bound with its verdict.

Report and summary read only this. Times are seconds since the epoch; rates are bytes per second.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from demo.episode import ThrottlingOutcome
from demo.move_outcome import MoveOutcome
from demo.script import Phase, Scale, Windows, expected_by_broker, quota_of
from demo.shift_outcome import ShiftOutcome
from demo.usage_outcome import UsageOutcome
from demo.words import Check, Mark, exact_check, rate_checks, reaction_check
from lab.load import ProcessorShare
from lab.rates import ByteSeries


@dataclass(frozen=True, slots=True)
class PhaseResult:
    """One measured phase.

    `by_partition` holds steady means; `quota` what stood in Kafka at its end (None = no quota).
    `counted_by_brokers` is the total as the brokers themselves counted it, read through Prometheus;
    None when it gave no answer. `processor` is what the whole machine did while it was measured.
    """

    phase: Phase
    begin_seconds: float
    measured_from_seconds: float
    measured_seconds: int
    leaders: Mapping[int, int]
    by_partition: Mapping[int, float]
    quota: int | None
    counted_by_brokers: float | None
    processor: ProcessorShare

    @property
    def end_seconds(self) -> float:
        return self.measured_from_seconds + self.measured_seconds

    @property
    def total(self) -> float:
        return sum(self.by_partition.values())

    @property
    def by_broker(self) -> dict[int, float]:
        """The partitions' rates, summed over the broker that leads them."""
        sums: dict[int, float] = {}
        for partition, rate in self.by_partition.items():
            broker = self.leaders[partition]
            sums[broker] = sums.get(broker, 0.0) + rate
        return sums


@dataclass(frozen=True, slots=True)
class Reaction:
    """One failure under Tidegate: the kill, the election, the corrected quota.

    The last two are as the watches of `witnesses` saw them; None = never came.
    """

    killed_at_seconds: float
    elected_at_seconds: float | None
    committed_at_seconds: float | None

    @property
    def seconds_to_election(self) -> float | None:
        return _difference(self.elected_at_seconds, self.killed_at_seconds)

    @property
    def seconds_after_election(self) -> float | None:
        """Kafka's own waiting is not in it: from the new leader to the committed quota."""
        return _difference(self.committed_at_seconds, self.elected_at_seconds)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The whole run.

    `surroundings` describes machine and parts as label and text, in the order in which they are
    shown. `throttling` is what experiments 2 and 3 left, `usage` is read from the tables made
    after them, `move` is what experiment 5 left, `shift` experiment 6, the rest is of experiment
    1; None where they were not played.
    """

    scale: Scale
    windows: Windows
    results: tuple[PhaseResult, ...]
    reaction: Reaction
    series: Mapping[int, ByteSeries]
    marks: tuple[Mark, ...]
    surroundings: Mapping[str, str]
    setup_seconds: Mapping[str, float]
    throttling: ThrottlingOutcome | None = None
    usage: UsageOutcome | None = None
    move: MoveOutcome | None = None
    shift: ShiftOutcome | None = None

    def checks(self) -> list[Check]:
        """Every bound of the run, in the order in which it was played."""
        rows = [check for result in self.results for check in self._checks_of(result)]
        later = [
            check
            for part in (self.throttling, self.usage, self.move, self.shift)
            if part is not None
            for check in part.checks()
        ]
        return [*rows, reaction_check(self.reaction.seconds_after_election), *later]

    @property
    def passed(self) -> bool:
        return all(check.kept for check in self.checks())

    def expected_by_broker(self, phase: Phase) -> dict[int, int]:
        """What the arithmetic expects of every broker in the phase, on this run's scale."""
        quota = quota_of(phase, self.scale.contract_bytes_per_second)
        return expected_by_broker(
            phase.leaders, quota, offered_bytes_per_second=self.scale.offered_bytes_per_second
        )

    def processors_of_missed(self) -> dict[str, ProcessorShare]:
        """Part of the run in which a bound was missed -> what the machine did meanwhile."""
        missed = {
            result.phase.title: result.processor
            for result in self.results
            if not all(check.kept for check in self._checks_of(result))
        }
        if self.throttling is not None and not self.throttling.passed:
            missed["experiments 2 and 3"] = self.throttling.tidegate.processor
        if self.move is not None and not self.move.passed:
            missed["experiment 5"] = self.move.processor
        return missed

    def _checks_of(self, result: PhaseResult) -> list[Check]:
        title = result.phase.title
        quota = quota_of(result.phase, self.scale.contract_bytes_per_second)
        in_force = None if result.quota is None else result.quota / 1e6
        return [
            exact_check(
                title, "quota in Kafka", unit="MB/s", expected=quota / 1e6, measured=in_force
            ),
            *rate_checks(
                title, self.expected_by_broker(result.phase), measured_by_broker=result.by_broker
            ),
        ]


def _difference(later: float | None, earlier: float | None) -> float | None:
    return None if later is None or earlier is None else later - earlier
