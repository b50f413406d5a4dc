"""Plays experiments 2 and 3 under Tidegate: kubectl lowers the limit, tiers go down, kubectl raises it, all return. It judges nothing."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Self

from rich.console import Console

from demo.board import ThrottlingBoard
from demo.episode import CARD_MEAN_SECONDS, FULL_SHARE, LIMIT_SLACK, Episode, ThrottlingOutcome, TierStep, played
from demo.estate import NAMESPACE, POLICY, Estate, limit_patch, revive, set_fixed_quota, throttling_resources
from demo.script import (
    BROKER,
    BUSINESSES,
    CLIFF_RAISED_AFTER_SECONDS,
    CLIFF_SECONDS_BETWEEN_LEVELS,
    CLIFF_WATCHED_SECONDS,
    CONTRACT,
    FEED_TOPIC,
    HIGH_LIMIT,
    LIMIT,
    LOWERED,
    PARTITION,
    QUIET_SECONDS,
    SETTLE_SECONDS,
    VICTIM,
    Business,
    ThrottlingLength,
    business_of,
)
from demo.views import PlainView, ThrottlingPlainView, throttling_live_view
from demo.witnesses import FETCH_KEY, KubernetesEvents, QuotaWitness, TierWatch, card_source, recent_card_rate, sent_by_card
from demo.words import Interruption, Mark, MarkKind
from lab.errors import LabError
from lab.kafka import KafkaLab
from lab.load import LoadClient, LoadPlan, ProcessorShare, ProcessorTimes, RateStep
from lab.rates import SAWTOOTH_SECONDS, ByteSeries, Sample

# The clients of experiments 2 and 3: one consumer a business, each a user of its own, and what
# each was sent. Only quotas limit them.


# What the consumers read round and round; it stays in the page cache.
_FILLED_BYTES = 160_000_000
_FILL_SECONDS = 60
_PATIENT_SECONDS = 6.0
_CATCH_UP_SECONDS = 2.0
# A run ends its clients itself; this bounds them if it cannot.
_LONGEST_RUN_SECONDS = 1200
_CONSUMER = (
    # A muted client of librdkafka connects anew after a minute and gets away with it; a Java client waits it out, and so do these.
    ("socket.timeout.ms", "300000"),
    # Little is fetched ahead, so that what a client is sent is what it wanted in that second.
    ("queued.max.messages.kbytes", "4096"),
    ("fetch.queue.backoff.ms", "20"),
    ("fetch.wait.max.ms", "50"),
    # Half of what 1 MB/s allows in a second: a fetch as large as that second leaves a tenth of such a quota unused.
    ("fetch.message.max.bytes", "524288"),
)


class Consumers:
    """The running consumers. Rates are bytes per second of payload that arrived."""

    def __init__(self, clients: Mapping[str, LoadClient]) -> None:
        self._clients = clients

    def series(self) -> dict[str, ByteSeries]:
        """Level -> everything that arrived so far."""
        return {
            level: ByteSeries(Sample(row.unix_seconds + 1, row.moved_bytes) for row in client.rows())
            for level, client in self._clients.items()
        }

    def together(self) -> ByteSeries:
        """Everything that arrived at any of them."""
        arrived: Counter[int] = Counter()
        for client in self._clients.values():
            arrived.update({row.unix_seconds + 1: row.moved_bytes for row in client.rows()})
        return ByteSeries(Sample(at, moved) for at, moved in arrived.items())

    def history(self, seconds: int) -> dict[str, tuple[float, ...]]:
        """Level -> the rates of the last whole seconds, newest last."""
        return {level: tuple(float(row.moved_bytes) for row in client.rows()[-seconds:]) for level, client in self._clients.items()}


def make_topic(kafka: KafkaLab) -> None:
    """The topic, one partition on one broker, and something to read in it; written without login, so under no quota."""
    kafka.create_topic(FEED_TOPIC, ((BROKER,),))
    plan = LoadPlan(
        name="fill",
        mode="produce",
        bootstrap_servers=kafka.bootstrap_servers,
        topic=FEED_TOPIC,
        partitions=(PARTITION,),
        duration_seconds=_FILL_SECONDS,
        max_bytes=_FILLED_BYTES,
    )
    with LoadClient(plan, kafka.run.path / "load", namespace=kafka.client_namespace) as client:
        client.wait()


@contextmanager
def consumers(kafka: KafkaLab, run: str) -> Iterator[Consumers]:
    """A fresh consumer for each business while the context is open, which comes up within 8 s and without a burst.

    `run` tells its files from those of another run.
    """
    with ExitStack() as stack:
        yield Consumers({business.level: stack.enter_context(_client(kafka, business, run=run)) for business in BUSINESSES})


def _client(kafka: KafkaLab, business: Business, *, run: str) -> LoadClient:
    plan = LoadPlan(
        name=f"{run}-{business.user}",
        mode="consume",
        bootstrap_servers=kafka.sasl_bootstrap_servers,
        topic=FEED_TOPIC,
        partitions=(PARTITION,),
        duration_seconds=_LONGEST_RUN_SECONDS,
        max_bytes=business.wanted * _LONGEST_RUN_SECONDS,
        user=business.user,
        password=kafka.password(business.user),
        client_id=f"demo-{business.user}",
        steps=(RateStep(0, business.wanted // 4), RateStep(4, business.wanted // 2), RateStep(8, business.wanted)),
        # What L0 did not get while the machine was busy elsewhere, it gets later, as any reader of Kafka; the others ask for little of it,
        # because a flood after the raise is not what is shown here.
        catch_up_seconds=_PATIENT_SECONDS if business.throttled is None else _CATCH_UP_SECONDS,
        settings=_CONSUMER,
    )
    return LoadClient(plan, kafka.run.path / "load", namespace=kafka.client_namespace)


# Where an episode is played: fresh consumers, the witnesses that record what happens to them, and
# waiting. It writes no quota.


_FREE = "all read what they want, the limit is far away"
_LONGEST_START_SECONDS = 60.0
_HISTORY_SECONDS = 48
# The consumers write a second's row when it is over, and Prometheus' newest scrape is a second old.
_ROWS_LAG_SECONDS = 2


@dataclass(slots=True)
class Times:
    """When what happened in one episode; seconds since the epoch."""

    began: float
    limited: float = 0.0
    measured_from: float = 0.0
    measured_seconds: int = 0
    raised: float = 0.0


class Stage:
    """One episode's surroundings; a context manager, because its consumers and witnesses must end with it."""

    def __init__(self, parts: Estate, board: ThrottlingBoard, *, title: str, run: str) -> None:
        self.parts = parts
        self.board = board
        self.prometheus = parts.prometheus.ready()
        self._title = title
        self._run = run
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.witness = stack.enter_context(QuotaWitness(self.parts.kafka.zookeeper_connect, self.board))
            self._consumers = stack.enter_context(consumers(self.parts.kafka, self._run))
            ended = threading.Event()
            reader = threading.Thread(target=self._show_rates, args=(self._consumers, ended), name="rates", daemon=True)
            reader.start()
            stack.callback(reader.join)
            stack.callback(ended.set)
            self._ticks = ProcessorTimes.now()
            self.times = Times(began=time.time())
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def command(self, text: str) -> None:
        """Show what a person does now."""
        self.board.note(time.time(), MarkKind.COMMAND, text)

    def wait_for_full_load(self, seconds: int) -> None:
        """Let that much time pass, and more until everybody gets what they want; a busy machine gets up to a minute for it."""
        self.wait(_FREE, seconds)
        self.wait_until(lambda: self.all_full(SAWTOOTH_SECONDS), _FREE, longest_seconds=_LONGEST_START_SECONDS)

    def wait(self, activity: str, seconds: float) -> None:
        """Let that much time pass."""
        self.wait_until(lambda: False, activity, longest_seconds=seconds)

    def wait_until(self, holds: Callable[[], bool], activity: str, *, longest_seconds: float) -> bool:
        """Look once a second; True as soon as it holds, False when the time is over. `LabError` when the operator ended."""
        ends = time.time() + longest_seconds
        self.board.show_activity(self._title, activity, ends_at_seconds=ends)
        while (left := ends - time.time()) > 0:
            if holds():
                return True
            self._refuse_dead_operator()
            time.sleep(min(1.0, left))
        return holds()

    def card_rate(self, seconds: int) -> float | None:
        """What the broker's card sent in the last seconds, in bytes per second; None before it is known."""
        return recent_card_rate(self.parts.kafka, self.prometheus, seconds=seconds)

    def all_full(self, seconds: int) -> bool:
        """Whether everybody has got what they want, as the mean of the last whole seconds."""
        means = {level: sum(rates) / seconds for level, rates in self._consumers.history(seconds).items()}
        return all(rate >= FULL_SHARE * business_of(level).wanted for level, rate in means.items())

    def episode(self, tiers: tuple[TierStep, ...]) -> Episode:
        """Everything recorded until now."""
        ended = time.time()
        time.sleep(_ROWS_LAG_SECONDS)
        return Episode(
            began_seconds=self.times.began,
            limited_at_seconds=self.times.limited,
            measured_from_seconds=self.times.measured_from,
            measured_seconds=self.times.measured_seconds,
            raised_at_seconds=self.times.raised,
            ended_seconds=ended,
            arrived=self._consumers.series(),
            card=self._sent(ended),
            quotas=self.witness.steps(),
            tiers=tiers,
            processor=ProcessorShare.between(self._ticks, ProcessorTimes.now()),
        )

    def _sent(self, ended_seconds: float) -> ByteSeries:
        if self.parts.kafka.network is None:
            return self._consumers.together()
        return sent_by_card(self.prometheus, start_seconds=self.times.began, end_seconds=ended_seconds)

    def _show_rates(self, running: Consumers, ended: threading.Event) -> None:
        while not ended.wait(1.0):
            self.board.show_rates(running.history(_HISTORY_SECONDS), self.card_rate(SAWTOOTH_SECONDS))

    def _refuse_dead_operator(self) -> None:
        if not self.parts.operator.is_running():
            code = self.parts.operator.exit_code
            raise LabError(f"The operator ended with code {code} during the experiment.\n{self.parts.operator.log_tail()}")


# Plays the published way on the same brokers: an administrator writes each throttled rate at once,
# L3 first, one level every 30 s.
#
# Kafka mutes a client for as long as its window holds more than the new quota allows, and nothing
# ends a mute early. It judges nothing.


CLIFF_TITLE = "Experiments 2 and 3, the published way"
_FULL_FOR_SECONDS = 14


def play_cliff(parts: Estate, board: ThrottlingBoard, length: ThrottlingLength) -> Episode:
    """The whole episode; nobody but the administrator writes quotas in it, and its quotas stay."""
    board.show_activity(CLIFF_TITLE, "an administrator writes the contracts")
    for business in BUSINESSES:
        set_fixed_quota(parts.kafka, business.user, key=FETCH_KEY, bytes_per_second=CONTRACT)
    with Stage(parts, board, title=CLIFF_TITLE, run="cliff") as stage:
        board.show_limit(HIGH_LIMIT)
        stage.wait_for_full_load(length.free_seconds)
        stage.times.limited = time.time()
        board.show_limit(LIMIT)
        _lower(stage)
        _measure_cliff(stage, length)
        _raise(stage)
        watched = stage.times.limited + CLIFF_WATCHED_SECONDS - time.time()
        stage.wait_until(lambda: stage.all_full(_FULL_FOR_SECONDS), "waiting for the muted clients", longest_seconds=max(0.0, watched))
        return stage.episode(())


def _lower(stage: Stage) -> None:
    """L3, L2, L1, as long as the card is over its limit."""
    for business in LOWERED:
        sent = stage.card_rate(SETTLE_SECONDS)
        if sent is None or sent > LIMIT:
            _write(stage, business.user, business.throttled or 0)
        stage.wait(f"{business.level} was written; the next level follows", CLIFF_SECONDS_BETWEEN_LEVELS)


def _measure_cliff(stage: Stage, length: ThrottlingLength) -> None:
    stage.times.measured_from = float(int(time.time()))
    stage.times.measured_seconds = length.measure_seconds
    until_raise = stage.times.limited + CLIFF_RAISED_AFTER_SECONDS - time.time()
    stage.wait("measuring the tiers at rest", max(length.measure_seconds + 1.0, until_raise))


def _raise(stage: Stage) -> None:
    """The limit is far away again: the contracts come back, the most important first."""
    stage.times.raised = time.time()
    stage.board.show_limit(HIGH_LIMIT)
    for business in reversed(LOWERED):
        _write(stage, business.user, CONTRACT)


def _write(stage: Stage, user: str, bytes_per_second: int) -> None:
    stage.command(f"kafka-configs: {FETCH_KEY}={bytes_per_second} for user {user}")
    set_fixed_quota(stage.parts.kafka, user, key=FETCH_KEY, bytes_per_second=bytes_per_second)


TITLE = "Experiments 2 and 3, Tidegate"
_READY_TIMEOUT_SECONDS = 60
# How far above its throttled rate a quota may rest: a floor of its own for consumers lies 5 % above 1 MB/s.
_AT_FLOOR = 1.06


def play_tidegate(parts: Estate, board: ThrottlingBoard, length: ThrottlingLength, *, run: str) -> Episode:
    """The whole episode; the policy and its tiers stay. `run` tells its files from those of another playing."""
    declare(parts, board)
    events = KubernetesEvents(parts.kube.kubeconfig, board.note, namespace=NAMESPACE)
    with Stage(parts, board, title=TITLE, run=run) as stage, TierWatch(parts.kube.kubeconfig, board) as tiers, events:
        board.show_limit(HIGH_LIMIT)
        stage.wait_for_full_load(length.free_seconds)
        stage.times.limited = time.time()
        _patch_limit(stage, LIMIT)
        stage.wait_until(lambda: _rests(stage), "tiers step down, L3 first", longest_seconds=length.longest_cut_seconds)
        _measure(stage, length)
        stage.times.raised = time.time()
        _patch_limit(stage, HIGH_LIMIT)
        stage.wait_until(lambda: _all_back(stage), "all return to their contracts", longest_seconds=length.longest_return_seconds)
        return stage.episode(tiers.steps())


def declare(parts: Estate, board: ThrottlingBoard) -> None:
    """Apply the policy with its limits and one tier a level, take experiment 1's tiers away, and wait until all is ready."""
    board.show_activity(TITLE, "kubectl apply -f demo/throttling.yaml")
    declared = throttling_resources(parts.kafka, parts.prometheus.ready())
    parts.kube.kubectl("-n", NAMESPACE, "apply", "-f", "-", input=declared)
    parts.kube.kubectl("-n", NAMESPACE, "delete", "bt", "accounting", "reporting", "--ignore-not-found")
    ready = ("wait", "--for=condition=Ready", f"--timeout={_READY_TIMEOUT_SECONDS}s")
    parts.kube.kubectl("-n", NAMESPACE, *ready, "bt", "--all", timeout_seconds=_READY_TIMEOUT_SECONDS + 10)


def withdraw(parts: Estate) -> None:
    """Delete the policy, which gives every quota back, and then the tiers."""
    timeout = _READY_TIMEOUT_SECONDS + 10
    parts.kube.kubectl("-n", NAMESPACE, "delete", "bbp", POLICY, "--wait", f"--timeout={_READY_TIMEOUT_SECONDS}s", timeout_seconds=timeout)
    parts.kube.kubectl("-n", NAMESPACE, "delete", "bt", "--all", timeout_seconds=timeout)


def _patch_limit(stage: Stage, limit: int) -> None:
    patch = limit_patch(limit)
    stage.command(f"kubectl patch bbp {POLICY} --type merge -p '{patch}'")
    stage.parts.kube.kubectl("-n", NAMESPACE, "patch", "bbp", POLICY, "--type", "merge", "-p", patch)
    stage.board.show_limit(limit)


def _measure(stage: Stage, length: ThrottlingLength) -> None:
    """Measure from one sawtooth after the last write on; where the tiers rested before this was called, that time counts."""
    last_write = max((step.at_seconds for step in stage.witness.steps()), default=stage.times.limited)
    stage.times.measured_from = float(int(last_write + SETTLE_SECONDS))
    stage.times.measured_seconds = length.measure_seconds
    left = stage.times.measured_from + length.measure_seconds + 1 - time.time()
    stage.wait("measuring the tiers at rest", max(0.0, left))


def _rests(stage: Stage) -> bool:
    """Every lower tier is at its throttled rate, or the card is within the limit and nothing was written for a while."""
    quotas = stage.witness.quotas()
    if all((quotas.get(business.level) or CONTRACT) <= (business.throttled or 0) * _AT_FLOOR for business in LOWERED):
        return True
    writes = [step.at_seconds for step in stage.witness.steps() if step.at_seconds >= stage.times.limited]
    quiet = bool(writes) and time.time() - writes[-1] >= QUIET_SECONDS
    sent = stage.card_rate(CARD_MEAN_SECONDS)
    return quiet and sent is not None and sent <= LIMIT * (1 + LIMIT_SLACK)


def _all_back(stage: Stage) -> bool:
    """Every quota is the contract and everybody has got what they want for a while."""
    return set(stage.witness.quotas().values()) == {CONTRACT} and stage.all_full(_FULL_FOR_SECONDS)


# Experiments 2 and 3 as a part of the demo: the broker that was killed comes back, Tidegate's
# episode, then the published way.


def run_throttling(
    console: Console, parts: Estate, length: ThrottlingLength, *, interruption: Interruption
) -> tuple[ThrottlingOutcome, tuple[Mark, ...]]:
    """Play both experiments both ways, as far as the length says; also gives everything that happened."""
    with ExitStack() as stack:
        board = _watched(console, stack)
        stack.enter_context(interruption.told())
        board.show_activity(TITLE, "the killed broker comes back, and a topic is filled")
        revive(parts.kafka, VICTIM)
        make_topic(parts.kafka)
        gate, left_out = played(lambda run: play_tidegate(parts, board, length, run=run), tell=board.note)
        cliff = None
        if length.plays_cliff:
            # Whoever writes quotas by hand must be alone with them. This gives every quota back.
            withdraw(parts)
            cliff = play_cliff(parts, board, length)
        return ThrottlingOutcome(length, gate, cliff, card_source(parts.kafka), left_out), board.all_marks()


def _watched(console: Console, stack: ExitStack) -> ThrottlingBoard:
    """The board, with a live view on a terminal, plain lines elsewhere."""
    if console.is_terminal:
        board = ThrottlingBoard(on_mark=lambda _: None, on_rates=lambda _: None)
        stack.enter_context(throttling_live_view(console, board.snapshot))
        return board
    return ThrottlingBoard(on_mark=PlainView(console.file).on_mark, on_rates=ThrottlingPlainView(console.file).on_rates)
