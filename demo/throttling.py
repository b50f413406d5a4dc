"""Plays experiments 2 and 3: the broker's limit drops and rises, tiers go down and return.

Experiment 6 is played beside them.

First by Tidegate, then the published way.

It judges nothing.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from rich.console import Console

from demo import script
from demo.board import Board
from demo.episode import Playing, ThrottlingOutcome, TierStep, played
from demo.parts import (
    POLICY,
    RESOURCES,
    Parts,
    filled_in,
    limit_patch,
    revive,
    set_fixed_quota,
)
from demo.shift import create_target, digests
from demo.shift_outcome import ShiftOutcome
from demo.witnesses import (
    nic_source,
    noted_events,
    quotas_of_levels,
    recent_nic_rate,
    watched_tiers,
)
from demo.words import Interruption, Mark, MarkKind
from lab.episodes import (
    FULL_SHARE,
    LIMIT_SLACK,
    NIC_MEAN_SECONDS,
    ROWS_LAG_SECONDS,
    Business,
    at_throttled_rates,
    fill_topic,
    is_quiet,
    nic_bytes,
    running_clients,
    wait_until,
)
from lab.load import ProcessorShare, ProcessorTimes
from lab.process import Opened, repeated
from lab.quota_watch import FETCH_KEY
from lab.rates import SAWTOOTH_SECONDS, ByteSeries

_FREE = "all read what they want, the limit is far away"
LONGEST_START_SECONDS = 60.0
# what L0 did not get while the machine was busy elsewhere, it gets later, as any reader of Kafka
_PATIENT_SECONDS = 6.0


@dataclass(slots=True)
class Times:
    """When what happened in one episode; seconds since the epoch."""

    limited: float = 0.0
    measured_from: float = 0.0
    measured_seconds: int = 0
    raised: float = 0.0


class Stage(Opened):
    """Fresh consumers of these businesses, what they get on the board, and waiting.

    It writes no quota. A context manager, because its consumers must end with it. `run` makes the
    names of their files unique; `title` may change while it is open.
    """

    def __init__(
        self, parts: Parts, board: Board, businesses: Sequence[Business], *, title: str, run: str
    ) -> None:
        self.parts = parts
        self.board = board
        self.title = title
        self._businesses = businesses
        self._run = run
        self._prometheus = parts.prometheus.ready()

    def _open(self, stack: ExitStack) -> None:
        running = running_clients(
            self.parts.kafka,
            self._businesses,
            topic=script.FEED_TOPIC,
            run=self._run,
            prefix="demo",
            l0_catch_up_seconds=_PATIENT_SECONDS,
        )
        self.clients = stack.enter_context(running)
        stack.enter_context(repeated(self._show_rates))
        self._ticks = ProcessorTimes.now()
        self.began = time.time()

    def wait(self, activity: str, seconds: float) -> None:
        """Let that much time pass."""
        self.wait_until(lambda: False, activity, longest_seconds=seconds)

    def wait_until(
        self,
        holds: Callable[[], bool],
        activity: str,
        *,
        longest_seconds: float = LONGEST_START_SECONDS,
        poll_seconds: float = 1.0,
    ) -> bool:
        """True as soon as it holds, False when the time is over.

        Raises `LabError` when the operator ended.
        """
        self.board.show_activity(self.title, activity)
        return wait_until(
            holds, self.parts.operator, longest_seconds=longest_seconds, poll_seconds=poll_seconds
        )

    def nic_rate(self, seconds: int) -> float | None:
        """What the broker's NIC sent in the last seconds, in bytes per second; None = not known."""
        return recent_nic_rate(self.parts.kafka, self._prometheus, seconds=seconds)

    def nic_until(self, ended_seconds: float) -> ByteSeries:
        """What the broker's NIC sent from the beginning until then, once all rows are written."""
        time.sleep(ROWS_LAG_SECONDS)
        return nic_bytes(
            self.parts.kafka,
            self._prometheus,
            self.clients,
            broker=script.BROKER,
            start_seconds=self.began,
            end_seconds=ended_seconds,
        )

    def processor(self) -> ProcessorShare:
        """What the whole machine did since the beginning."""
        return ProcessorShare.between(self._ticks, ProcessorTimes.now())

    def all_full(self, seconds: int) -> bool:
        """Whether all have got what they want, as the mean of the last whole seconds."""
        newest = self.clients.newest(seconds)
        return all(
            sum(newest[business.level]) / seconds >= FULL_SHARE * business.demand
            for business in self._businesses
        )

    def _show_rates(self) -> None:
        rates = self.clients.newest(SAWTOOTH_SECONDS)
        self.board.show_rates(rates, self.nic_rate(SAWTOOTH_SECONDS))


class EpisodeStage(Stage):
    """One playing of experiments 2 and 3, with the watch that records its quotas."""

    def __init__(self, parts: Parts, board: Board, *, title: str, run: str) -> None:
        super().__init__(parts, board, script.BUSINESSES, title=title, run=run)

    def _open(self, stack: ExitStack) -> None:
        self.quotas = stack.enter_context(quotas_of_levels(self.parts.kafka, self.board))
        super()._open(stack)
        self.times = Times()

    def command(self, text: str) -> None:
        """Show what a person does now."""
        self.board.mark(time.time(), MarkKind.COMMAND, text)

    def wait_for_full_load(self, seconds: int) -> None:
        """Let that much time pass, and more until all get what they want.

        A busy machine gets up to a minute for it.
        """
        self.wait(_FREE, seconds)
        self.wait_until(lambda: self.all_full(SAWTOOTH_SECONDS), _FREE)

    def playing(self, tiers: Sequence[TierStep] = ()) -> Playing:
        """Everything recorded until now."""
        ended = time.time()
        nic = self.nic_until(ended)
        return Playing(
            limit=script.LIMIT,
            businesses=script.BUSINESSES,
            began_seconds=self.began,
            limited_at_seconds=self.times.limited,
            measured_from_seconds=self.times.measured_from,
            measured_seconds=self.times.measured_seconds,
            raised_at_seconds=self.times.raised,
            ended_seconds=ended,
            moved=self.clients.by_user(),
            nic=nic,
            writes=tuple(self.quotas.writes()),
            tiers=tuple(tiers),
            processor=self.processor(),
        )


TITLE = "Experiments 2 and 3, Tidegate"
_FULL_FOR_SECONDS = 14
_MOST_MEASUREMENTS = 3


def play_tidegate(
    parts: Parts, board: Board, length: script.ThrottlingLength, *, run: str
) -> tuple[Playing, ShiftOutcome]:
    """The whole episode; the policy and its tiers stay. `run` makes its file names unique."""
    declare(parts, board)
    with (
        digests(parts, run=run) as messages,
        EpisodeStage(parts, board, title=TITLE, run=run) as stage,
        watched_tiers(parts.kube.kubeconfig, board) as tiers,
        noted_events(parts.kube.kubeconfig, board),
    ):
        board.show_limit(script.HIGH_LIMIT)
        stage.wait_for_full_load(length.free_seconds)
        stage.times.limited = time.time()
        _patch_limit(stage, script.LIMIT)
        stage.wait_until(
            lambda: _is_at_rest(stage),
            "tiers step down, L3 first",
            longest_seconds=length.longest_cut_seconds,
        )
        measure_at_rest(stage, length)
        stage.times.raised = time.time()
        _patch_limit(stage, script.HIGH_LIMIT)
        stage.wait_until(
            lambda: _all_back(stage),
            "all return to their contracts",
            longest_seconds=length.longest_return_seconds,
        )
        stage.wait_until(messages.is_punctual, "what has waited is sent")
        playing = stage.playing(tiers)
        return playing, ShiftOutcome.of(playing, messages.produced(), messages.arrivals())


def declare(parts: Parts, board: Board) -> None:
    """Apply the policy and one tier a level, and wait until all is ready.

    Experiment 1's tiers are taken away.
    """
    board.show_activity(TITLE, "kubectl apply -f demo/throttling.yaml")
    declared = filled_in(RESOURCES, parts.kafka, parts.prometheus.ready())
    parts.kubectl("apply", "-f", "-", document=declared)
    parts.kubectl("delete", "bt", "accounting", "reporting", "--ignore-not-found")
    parts.wait_for_ready()


def withdraw(parts: Parts) -> None:
    """Delete the policy if it is there, which gives every quota back, and then the tiers."""
    parts.kubectl("delete", "bbp", POLICY, "--ignore-not-found", "--wait", "--timeout=60s")
    parts.kubectl("delete", "bt", "--all")


def _patch_limit(stage: EpisodeStage, limit: int) -> None:
    patch = limit_patch(limit)
    stage.command(f"kubectl patch bbp {POLICY} --type merge -p '{patch}'")
    stage.parts.kubectl("patch", "bbp", POLICY, "--type", "merge", "-p", patch)
    stage.board.show_limit(limit)


def measure_at_rest(stage: EpisodeStage, length: script.ThrottlingLength) -> None:
    """Measure from one sawtooth after the last write on.

    Where the tiers were at rest before this was called, that time counts. Where a quota is written
    meanwhile, as when the NIC's mean goes just above the limit, they were not at rest: measuring
    starts again from then, as often as `_MOST_MEASUREMENTS`.
    """
    for _ in range(_MOST_MEASUREMENTS):
        last_write = max(
            (write.at_seconds for write in stage.quotas.writes()), default=stage.times.limited
        )
        stage.times.measured_from = float(int(last_write + script.SETTLE_SECONDS))
        stage.times.measured_seconds = length.measure_seconds
        left = stage.times.measured_from + length.measure_seconds + 1 - time.time()
        stage.wait("measuring the tiers at rest", max(0.0, left))
        if all(write.at_seconds <= last_write for write in stage.quotas.writes()):
            return


def _is_at_rest(stage: EpisodeStage) -> bool:
    """Whether the tiers are at rest.

    Every lower tier is at its throttled rate, or the NIC is within the limit and nothing was
    written for a while.
    """
    if at_throttled_rates(stage.quotas.quotas(), script.BUSINESSES):
        return True
    sent = stage.nic_rate(NIC_MEAN_SECONDS)
    return (
        is_quiet(stage.quotas.writes(), since=stage.times.limited)
        and sent is not None
        and sent <= script.LIMIT * (1 + LIMIT_SLACK)
    )


def _all_back(stage: EpisodeStage) -> bool:
    """Every quota is the contract and all have got what they want for a while."""
    return set(stage.quotas.quotas().values()) == {script.CONTRACT} and stage.all_full(
        _FULL_FOR_SECONDS
    )


CLIFF_TITLE = "Experiments 2 and 3, the published way"


def play_cliff(parts: Parts, board: Board, length: script.ThrottlingLength) -> Playing:
    """The published way on the same brokers: an administrator writes each throttled rate at once.

    L3 comes first, then one level every 30 s. Kafka mutes a client for as long as its window holds
    more than the new quota allows, and nothing ends a mute early. Only the administrator writes
    quotas here, and they stay.
    """
    board.show_activity(CLIFF_TITLE, "an administrator writes the contracts")
    for business in script.BUSINESSES:
        set_fixed_quota(parts.kafka, business.user, key=FETCH_KEY, bytes_per_second=script.CONTRACT)
    with EpisodeStage(parts, board, title=CLIFF_TITLE, run="cliff") as stage:
        board.show_limit(script.HIGH_LIMIT)
        stage.wait_for_full_load(length.free_seconds)
        stage.times.limited = time.time()
        board.show_limit(script.LIMIT)
        _lower(stage)
        _measure_cliff(stage, length)
        _raise(stage)
        watched = stage.times.limited + script.CLIFF_WATCHED_SECONDS - time.time()
        stage.wait_until(
            lambda: stage.all_full(_FULL_FOR_SECONDS),
            "waiting for the muted clients",
            longest_seconds=max(0.0, watched),
        )
        return stage.playing()


def _lower(stage: EpisodeStage) -> None:
    """L3, L2, L1, as long as the NIC is over its limit."""
    for business in script.LOWERED:
        sent = stage.nic_rate(script.SETTLE_SECONDS)
        if sent is None or sent > script.LIMIT:
            _write(stage, business.user, business.throttled or 0)
        stage.wait(
            f"{business.level} was written; the next level follows",
            script.CLIFF_SECONDS_BETWEEN_LEVELS,
        )


def _measure_cliff(stage: EpisodeStage, length: script.ThrottlingLength) -> None:
    stage.times.measured_from = float(int(time.time()))
    stage.times.measured_seconds = length.measure_seconds
    until_raise = stage.times.limited + script.CLIFF_RAISED_AFTER_SECONDS - time.time()
    stage.wait("measuring the tiers at rest", max(length.measure_seconds + 1.0, until_raise))


def _raise(stage: EpisodeStage) -> None:
    """The limit is far away again: the contracts come back, the most important first."""
    stage.times.raised = time.time()
    stage.board.show_limit(script.HIGH_LIMIT)
    for business in reversed(script.LOWERED):
        _write(stage, business.user, script.CONTRACT)


def _write(stage: EpisodeStage, user: str, bytes_per_second: int) -> None:
    stage.command(f"kafka-configs: {FETCH_KEY}={bytes_per_second} for user {user}")
    set_fixed_quota(stage.parts.kafka, user, key=FETCH_KEY, bytes_per_second=bytes_per_second)


def run_throttling(
    console: Console, parts: Parts, length: script.ThrottlingLength, *, interruption: Interruption
) -> tuple[ThrottlingOutcome, ShiftOutcome, tuple[Mark, ...]]:
    """Play both experiments both ways, as far as the length asks, and experiment 6 beside them.

    Before, the killed broker is brought back. Also returns everything that happened, as marks.
    """
    board = Board(console.file)
    with interruption.reported():
        board.show_activity(TITLE, "the killed broker comes back, and a topic is filled")
        revive(parts.kafka, script.VICTIM)
        parts.kafka.create_topic(script.FEED_TOPIC, ((script.BROKER,),))
        fill_topic(parts.kafka, script.FEED_TOPIC)
        create_target(parts)
        (tidegate, shift), left_out = played(
            lambda run: play_tidegate(parts, board, length, run=run), mark=board.mark
        )
        cliff = None
        if length.plays_cliff:
            # Anyone who writes quotas by hand must be alone with them. This restores every quota.
            withdraw(parts)
            cliff = play_cliff(parts, board, length)
        throttling = ThrottlingOutcome(length, tidegate, cliff, nic_source(parts.kafka), left_out)
        return throttling, shift, board.marks()
