"""Plays experiment 1: takes each phase's steps, lets it settle, measures it.

It judges nothing and draws nothing. The order is fixed by `script`; what is started and stopped is
in `parts`.
"""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial

from demo import script
from demo.board import Board
from demo.outcome import PhaseResult, Reaction
from demo.parts import POLICY, Parts, declared_resources, revive, set_fixed_quota
from demo.witnesses import LeaderWatch, counted_by_brokers
from demo.words import MarkKind
from lab.episodes import wait_until
from lab.errors import LabError
from lab.kafka import BrokersLab
from lab.load import LoadClient, LoadPlan, ProcessorShare, ProcessorTimes, RateStep
from lab.process import Opened, repeated
from lab.quota_watch import PRODUCE_KEY, QuotaWatch
from lab.rates import SAWTOOTH_SECONDS, ByteSeries, Sample, steady_mean

TRIAL_BYTES_PER_SECOND = 30_000_000
# Cold brokers carry a tenth of what they carry once their code is compiled; a machine that is
# strong enough shows it sooner.
_TRIAL_SECONDS = 30
_TRIAL_SECONDS_COUNTED = 4
# A run ends its clients itself; this bounds them if it cannot.
_LONGEST_RUN_SECONDS = 1800


Producers = Mapping[int, LoadClient]  # by partition; rates are of bytes that brokers acknowledged


def delivered(producers: Producers) -> dict[int, ByteSeries]:
    """Partition -> everything delivered so far."""
    return {
        partition: ByteSeries(
            Sample(row.unix_seconds + 1, row.moved_bytes) for row in client.rows()
        )
        for partition, client in producers.items()
    }


def newest_rates(producers: Producers, seconds: int) -> dict[int, tuple[float, ...]]:
    """Partition -> the rates of the last whole seconds, newest last."""
    return {
        partition: tuple(float(row.moved_bytes) for row in client.rows()[-seconds:])
        for partition, client in producers.items()
    }


@contextmanager
def producing(
    kafka: BrokersLab, offered_bytes_per_second: int, *, seconds: float = _LONGEST_RUN_SECONDS
) -> Iterator[Producers]:
    """One producer for each partition, each offering this rate, while the context is open."""
    with ExitStack() as stack:
        yield {
            partition: stack.enter_context(
                _client(kafka, partition, offered=offered_bytes_per_second, seconds=seconds)
            )
            for partition in script.HEALTHY_LEADERS
        }


def carried_without_quota(kafka: BrokersLab, enough_bytes_per_second: float) -> float:
    """The most that all producers together delivered in 4 s without a quota, in bytes per second.

    Each offers 30 MB/s. It ends as soon as that is enough, or after half a minute.
    """
    most = 0.0
    with producing(kafka, TRIAL_BYTES_PER_SECOND, seconds=_TRIAL_SECONDS) as trial:
        ends = time.monotonic() + _TRIAL_SECONDS
        while most < enough_bytes_per_second and time.monotonic() < ends:
            time.sleep(1.0)
            newest = newest_rates(trial, _TRIAL_SECONDS_COUNTED).values()
            most = max(most, sum(sum(rates) / _TRIAL_SECONDS_COUNTED for rates in newest))
    return most


def _client(kafka: BrokersLab, partition: int, *, offered: int, seconds: float) -> LoadClient:
    plan = LoadPlan(
        name=f"partition-{partition}-{offered}",
        mode="produce",
        bootstrap_servers=kafka.sasl_bootstrap_servers,
        topic=script.TOPIC,
        partitions=(partition,),
        duration_seconds=seconds,
        max_bytes=int(offered * seconds),
        user=script.USER,
        password=kafka.password(script.USER),
        client_id=f"demo-{partition}",
        steps=(RateStep(0, offered),),
    )
    return LoadClient(plan, kafka.run.path / "load", namespace=kafka.client_namespace)


# Kafka notices a killed broker after its session of 6 s; far beyond that something is wrong.
_ELECTION_TIMEOUT_SECONDS = 30.0
# Long enough for a lowering in safe steps, 30 s apart.
_QUOTA_TIMEOUT_SECONDS = 75.0


class Play(Opened):
    """One run on the running parts; a context manager, because its producers must end with it."""

    def __init__(
        self,
        parts: Parts,
        board: Board,
        quota: QuotaWatch,
        leaders: LeaderWatch,
        *,
        scale: script.Scale,
        windows: script.Windows,
    ) -> None:
        self._parts = parts
        self._board = board
        self._quota = quota
        self._leaders = leaders
        self._scale = scale
        self._windows = windows
        self._producers: Producers | None = None
        self._killed_at = 0.0
        self._steps = {
            script.Step.SET_FIXED_QUOTA: self._set_fixed_quota,
            script.Step.START_PRODUCERS: self._start_producers,
            script.Step.KILL_BROKER: self._kill_broker,
            script.Step.REVIVE_BROKER: self._revive_broker,
            script.Step.APPLY_RESOURCES: self._apply_resources,
            script.Step.PATCH_TO_MEAN: self._patch_to_mean,
        }

    def _open(self, stack: ExitStack) -> None:
        """Nothing: the first phase starts the producers."""

    def run_phase(self, phase: script.Phase) -> PhaseResult:
        """Take the phase's steps, settle, measure, and put the result on the board."""
        self._take(phase, phase.preparation)
        begin = time.time()
        self._take(phase, phase.steps)
        self._await_quota(phase)
        self._wait(phase, "settling", self._windows.settle_seconds)
        # Rows of the producers end with whole seconds.
        measured_from, ticks = float(int(time.time())), ProcessorTimes.now()
        self._wait(phase, "measuring", self._windows.measure_seconds + 1)
        processor = ProcessorShare.between(ticks, ProcessorTimes.now())
        result = self._measure(phase, begin, measured_from=measured_from, processor=processor)
        self._board.say(f"measured  {phase.title}: {result.total / 1e6:.1f} MB/s in total")
        return result

    def _take(self, phase: script.Phase, steps: tuple[script.Step, ...]) -> None:
        for step in steps:
            self._board.show_activity(phase.title, step.value)
            self._steps[step]()

    def series(self) -> dict[int, ByteSeries]:
        """Everything that the producers delivered so far."""
        if self._producers is None:
            raise RuntimeError("the producers were not started yet")
        return delivered(self._producers)

    def reaction(self) -> Reaction:
        """How fast the last kill was answered, by the times of the watches."""
        elected = self._leaders.leader_elected_at(
            script.ORPHAN, other_than=script.VICTIM, after_seconds=self._killed_at
        )
        corrected = 2 * self._scale.contract_bytes_per_second
        writes = (
            write
            for write in self._quota.writes()
            if write.after == corrected and write.at_seconds >= self._killed_at
        )
        committed = next((write.at_seconds for write in writes), None)
        return Reaction(self._killed_at, elected, committed)

    def _measure(
        self, phase: script.Phase, begin: float, *, measured_from: float, processor: ProcessorShare
    ) -> PhaseResult:
        length = self._windows.measure_seconds
        return PhaseResult(
            phase=phase,
            begin_seconds=begin,
            measured_from_seconds=measured_from,
            measured_seconds=length,
            leaders=self._leaders.leaders(),
            by_partition={
                partition: steady_mean(one, measured_from, length)
                for partition, one in self.series().items()
            },
            quota=self._quota.quotas()[script.USER],
            counted_by_brokers=counted_by_brokers(
                self._parts.prometheus.ready(), measured_from, length_seconds=length
            ),
            processor=processor,
        )

    def _wait(self, phase: script.Phase, activity: str, seconds: float) -> None:
        self._board.show_activity(phase.title, activity)
        wait_until(lambda: False, self._parts.operator, longest_seconds=seconds)

    def _await_quota(self, phase: script.Phase) -> None:
        """Wait for the quota that the regime should bring.

        When it does not come, the phase is measured all the same and misses.
        """
        quota = script.quota_of(phase, self._scale.contract_bytes_per_second)
        self._board.show_activity(phase.title, f"waiting for the quota of {quota / 1e6:g} MB/s")
        if not self._quota.wait_for(script.USER, quota, timeout_seconds=_QUOTA_TIMEOUT_SECONDS):
            missing = (
                f"no quota of {quota / 1e6:g} MB/s came within {_QUOTA_TIMEOUT_SECONDS:g} "
                f"s; measuring what is there"
            )
            self._board.mark(time.time(), MarkKind.EVENT, missing)

    def _set_fixed_quota(self) -> None:
        self._command(
            f"kafka-configs: producer_byte_rate={self._scale.contract_bytes_per_second} for user "
            f"{script.USER}"
        )
        set_fixed_quota(
            self._parts.kafka,
            script.USER,
            key=PRODUCE_KEY,
            bytes_per_second=self._scale.contract_bytes_per_second,
        )

    def _start_producers(self) -> None:
        running = producing(self._parts.kafka, self._scale.offered_bytes_per_second)
        self._producers = self._stack.enter_context(running)
        self._stack.enter_context(repeated(partial(self._show_rates, self._producers)))

    def _show_rates(self, running: Producers) -> None:
        history = newest_rates(running, SAWTOOTH_SECONDS)
        self._board.show_rates({f"p{partition}": rates for partition, rates in history.items()})

    def _kill_broker(self) -> None:
        self._killed_at = time.time()
        self._board.mark(self._killed_at, MarkKind.KILL, script.Step.KILL_BROKER.value)
        self._parts.kafka.broker(script.VICTIM).kill()
        if not self._leaders.wait_for_leader(
            script.ORPHAN,
            script.LEADERS_AFTER_KILL[script.ORPHAN],
            timeout_seconds=_ELECTION_TIMEOUT_SECONDS,
        ):
            raise LabError(
                f"Kafka elected no new leader of partition {script.ORPHAN} within "
                f"{_ELECTION_TIMEOUT_SECONDS:g} s after the kill."
            )

    def _revive_broker(self) -> None:
        self._command(f"broker {script.VICTIM} is started again")
        revive(self._parts.kafka, script.VICTIM)
        self._board.mark(
            time.time(),
            MarkKind.RETURN,
            f"broker {script.VICTIM} leads partition {script.ORPHAN} again",
        )

    def _apply_resources(self) -> None:
        self._command("kubectl apply -f examples/ (mode: Enforce)")
        declared = declared_resources(self._parts.kafka, self._scale.contract_bytes_per_second)
        self._parts.kubectl("apply", "-f", "-", document=declared)
        self._parts.wait_for_ready()

    def _patch_to_mean(self) -> None:
        patch = json.dumps({"spec": {"leaderScaling": {"method": "Mean"}}})
        self._command(f"kubectl patch bbp {POLICY} --type merge -p '{patch}'")
        self._parts.kubectl("patch", "bbp", POLICY, "--type", "merge", "-p", patch)

    def _command(self, text: str) -> None:
        self._board.mark(time.time(), MarkKind.COMMAND, text)
