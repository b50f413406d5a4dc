"""A finished run of the demo made by arithmetic: every broker holds its quota exactly, or misses it where a test says so."""

from collections import Counter
from collections.abc import Callable, Mapping

import pytest

from demo.outcome import Outcome, PhaseResult, Reaction
from demo.script import FULL, HEALTHY_LEADERS, ORPHAN, VICTIM, Phase, Scale, Step, Windows, played_phases, quota_of
from demo.words import Mark, MarkKind
from lab.load import ProcessorShare
from lab.rates import ByteSeries, Sample

START = 1_700_000_000.0
STEPS_SECONDS = 10
CONTRACT = 10_000_000

PlayedRun = Callable[..., Outcome]


@pytest.fixture(scope="session")
def played() -> PlayedRun:
    """A run at 10 MB/s per partition, played in `windows`, in which everything delivers `delivered_share` of what it should."""
    return _played


def _played(windows: Windows = FULL, *, delivered_share: float = 1.0, seconds_after_election: float | None = 0.5) -> Outcome:
    scale = Scale(CONTRACT, "without any quota this machine (2 cores) carried 80 of 90 MB/s")
    phases = played_phases(with_second_before=windows.measures_before_second_kill)
    length = STEPS_SECONDS + windows.settle_seconds + windows.measure_seconds
    begins = [START + number * length for number in range(len(phases))]
    results = tuple(_result(phase, begin, windows=windows, share=delivered_share) for phase, begin in zip(phases, begins, strict=True))
    killed = next(result.begin_seconds for result in reversed(results) if Step.KILL_BROKER in result.phase.steps)
    committed = None if seconds_after_election is None else killed + 6 + seconds_after_election
    return Outcome(
        scale=scale,
        windows=windows,
        results=results,
        reaction=Reaction(killed, killed + 6, committed),
        series={partition: _series(results, partition, length=length) for partition in HEALTHY_LEADERS},
        marks=tuple(mark for result in results for mark in _marks(result)),
        surroundings={"Processor": "2 cores, a processor", "Network": "three brokers on loopback"},
        setup_seconds={"ZooKeeper and three brokers": 10.8},
    )


def _result(phase: Phase, begin: float, *, windows: Windows, share: float) -> PhaseResult:
    rates = _rates(phase, share)
    return PhaseResult(
        phase=phase,
        begin_seconds=begin,
        measured_from_seconds=begin + STEPS_SECONDS + windows.settle_seconds,
        measured_seconds=windows.measure_seconds,
        leaders=phase.leaders,
        by_partition=rates,
        quota=quota_of(phase, CONTRACT),
        counted_by_brokers=sum(rates.values()),
        processor=ProcessorShare(busy_percent=60.0, stolen_percent=7.0),
    )


def _rates(phase: Phase, share: float) -> Mapping[int, float]:
    crowd = Counter(phase.leaders.values())
    return {partition: share * quota_of(phase, CONTRACT) / crowd[broker] for partition, broker in phase.leaders.items()}


def _series(results: tuple[PhaseResult, ...], partition: int, *, length: int) -> ByteSeries:
    seconds = [(result, second) for result in results for second in range(1, length + 1)]
    return ByteSeries(Sample(result.begin_seconds + second, round(result.by_partition[partition])) for result, second in seconds)


def _marks(result: PhaseResult) -> list[Mark]:
    after = result.begin_seconds + STEPS_SECONDS
    written = Mark(after, MarkKind.QUOTA, f"quota {(result.quota or 0) / 1e6:g} MB/s")
    made = {
        Step.SET_FIXED_QUOTA: [written],
        Step.KILL_BROKER: [Mark(result.begin_seconds, MarkKind.KILL, "broker 3 is killed (SIGKILL)")],
        Step.REVIVE_BROKER: [Mark(result.begin_seconds + 3, MarkKind.RETURN, f"broker {VICTIM} leads partition {ORPHAN} again")],
        Step.PATCH_TO_MEAN: [written],
    }
    marks = [mark for step in (*result.phase.preparation, *result.phase.steps) for mark in made.get(step, [])]
    return [*marks, written] if result.phase.key == "max-killed" else marks
