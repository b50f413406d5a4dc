"""Plays experiment 5: two equal moves off a broker from which L0 reads, by Kafka alone and under
Tidegate.

It judges nothing. Every broker's NIC is slowed down for it, which takes a network namespace each.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from rich.console import Console

from demo.board import HISTORY_SECONDS, Board
from demo.move_outcome import CLEAN_UP_SECONDS, LEADER_RATE, Move, MoveOutcome, moved_words
from demo.parts import NAMESPACE, POLICY, REPLICATION_RESOURCES, Parts, filled_in
from demo.script import (
    BROKER,
    FEED_TOPIC,
    FOLLOWED_TOPIC,
    FOREIGN_LIST,
    FOREIGN_RATE,
    FOREIGN_RATE_BROKER,
    MOVED_TO,
    NIC,
    NIC_LIMIT,
    READER,
    TOPIC,
    UNTHROTTLED_TOPIC,
    MoveLength,
)
from demo.throttling import withdraw
from demo.views import move_view, watched_board
from demo.witnesses import (
    KubernetesEvents,
    ThrottleWatch,
    foretold_by_metrics,
    recent_nic_rate,
)
from demo.words import Interruption, Mark, MarkKind
from lab.episodes import (
    FULL_SHARE,
    ROWS_LAG_SECONDS,
    Operation,
    fill_topic,
    nic_bytes,
    running_clients,
    wait_until,
)
from lab.kafka import BrokersLab
from lab.load import ProcessorShare, ProcessorTimes
from lab.rates import SAWTOOTH_SECONDS

TITLE_ALONE = "Experiment 5, Kafka alone"
TITLE = "Experiment 5, Tidegate"
_FREE = "L0 reads what it wants"
_FULL_FOR_SECONDS = 5
_CATCHES_UP = 1.2
_LONGEST_START_SECONDS = 60.0
_READY_TIMEOUT_SECONDS = 60
_POLL_SECONDS = 0.5
_TIMEOUT_SECONDS = 20.0
_FAST_NIC = 1_250_000_000
# As in experiments 2 and 3: what L0 did not get in time it gets later, as any reader of Kafka.
_PATIENT_SECONDS = 6.0
_KEPT = {"retention.bytes": "-1", "segment.bytes": str(64 << 20)}


def run_move(
    console: Console, parts: Parts, length: MoveLength, *, interruption: Interruption
) -> tuple[MoveOutcome | None, tuple[Mark, ...]]:
    """Play both moves; also returns everything that happened, as marks.

    None where no broker has a NIC of its own: a move over loopback is over before anyone sees it,
    and takes nothing from anybody.
    """
    if parts.kafka.network is None:
        console.print(
            "Experiment 5 is left out: it slows the brokers' NICs down, and without root they have "
            "none of their own.",
            highlight=False,
        )
        return None, ()
    with ExitStack() as stack:
        board, live = watched_board(console, move_view())
        if live is not None:
            stack.enter_context(live)
        stack.enter_context(interruption.reported())
        board.show_activity(TITLE_ALONE, "two topics of equal size are filled")
        board.show_limit(NIC_LIMIT)
        withdraw(parts)
        for topic in (UNTHROTTLED_TOPIC, FOLLOWED_TOPIC):
            parts.kafka.create_topic(topic, [[BROKER]] * len(MOVED_TO), config=_KEPT)
            fill_topic(
                parts.kafka, topic, partitions=tuple(MOVED_TO), total_bytes=length.moved_bytes
            )
        set_foreign_throttles(parts.kafka)
        stack.enter_context(slow_nics(parts.kafka))
        return _play(parts, board, length), board.marks()


def _play(parts: Parts, board: Board, length: MoveLength) -> MoveOutcome:
    topics = (UNTHROTTLED_TOPIC, FOLLOWED_TOPIC, TOPIC)
    watch = ThrottleWatch(parts.kafka, board, topics=topics)
    events = KubernetesEvents(parts.kube.kubeconfig, board.mark, namespace=NAMESPACE)
    with watch, events, _Reader(parts, board) as reader:
        foreign = watch.steps()[0].throttles
        reader.wait_for_full_load(TITLE_ALONE)
        unthrottled = _move(reader, TITLE_ALONE, UNTHROTTLED_TOPIC, length)
        reader.wait_for_full_load(TITLE)
        _declare(parts, board)
        followed = _move(reader, TITLE, FOLLOWED_TOPIC, length)
        reader.wait_until(
            lambda: watch.steps()[-1].throttles == foreign,
            TITLE,
            "the throttles are taken away",
            longest_seconds=CLEAN_UP_SECONDS,
        )
        ended = time.time()
        time.sleep(ROWS_LAG_SECONDS)
        return MoveOutcome(
            length=length,
            began_seconds=reader.began,
            ended_seconds=ended,
            unthrottled=unthrottled,
            followed=followed,
            read=reader.clients.by_user()[READER.user],
            nic=nic_bytes(
                parts.kafka,
                parts.prometheus.ready(),
                reader.clients,
                operation=Operation.CONSUME,
                broker=BROKER,
                start_seconds=reader.began,
                end_seconds=ended,
            ),
            steps=watch.steps(),
            foretold=foretold_by_metrics(
                parts.prometheus.ready(),
                followed.requested_seconds,
                followed.requested_seconds + followed.watched_seconds,
            ),
            foreign=foreign,
            processor=ProcessorShare.between(reader.ticks, ProcessorTimes.now()),
        )


def _move(reader: "_Reader", title: str, topic: str, length: MoveLength) -> Move:
    """Measure before, ask for the move, and wait for its end."""
    kafka = reader.parts.kafka
    size = leaders_log_bytes(kafka, topic)
    reader.wait(title, _FREE, length.before_seconds)
    view = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    requested = time.time()
    reader.board.mark(
        requested, MarkKind.COMMAND, f"{topic}, {size / 1e6:.0f} MB, is moved: {moved_words()}"
    )
    kafka.admin.reassign({(topic, one): [to] for one, to in MOVED_TO.items()})
    is_over = reader.wait_until(
        lambda: _is_moved(view, topic),
        title,
        f"{topic} is moved",
        longest_seconds=length.longest_move_seconds,
        poll_seconds=_POLL_SECONDS,
    )
    now = time.time()
    reader.board.mark(now, MarkKind.EVENT, f"{topic} {'is' if is_over else 'is still not'} moved")
    result = f"{topic} moved in {now - requested:.0f} s" if is_over else f"{topic} was not moved"
    reader.board.show_result(f"{title}: {result}")
    return Move(topic, size, length.before_seconds, requested, now if is_over else None, now)


def _is_moved(view: AdminClient, topic: str) -> bool:
    """Whether each partition has its new replica and no other; False without an answer."""
    try:
        partitions = view.list_topics(topic, timeout=_TIMEOUT_SECONDS).topics[topic].partitions
    except KafkaException:
        return False
    return {number: list(one.replicas) for number, one in partitions.items()} == {
        number: [to] for number, to in MOVED_TO.items()
    }


def leaders_log_bytes(kafka: BrokersLab, topic: str) -> int:
    """The size of the topic's logs on the broker that leads it."""
    data: Path = kafka.broker(BROKER).plan.directory / "data"
    return sum(
        file.stat().st_size for one in MOVED_TO for file in (data / f"{topic}-{one}").glob("*.log")
    )


def _declare(parts: Parts, board: Board) -> None:
    """Apply policy and tier, and wait until they are ready."""
    board.mark(time.time(), MarkKind.COMMAND, "kubectl apply -f demo/replication.yaml")
    board.show_activity(TITLE, "kubectl apply -f demo/replication.yaml")
    declared = filled_in(REPLICATION_RESOURCES, parts.kafka, parts.prometheus.ready())
    parts.kube.kubectl("-n", NAMESPACE, "apply", "-f", "-", input=declared)
    ready = ("wait", "--for=condition=Ready", f"--timeout={_READY_TIMEOUT_SECONDS}s")
    for what in (("bbp", POLICY), ("bt", "--all")):
        parts.kube.kubectl(
            "-n", NAMESPACE, *ready, *what, timeout_seconds=_READY_TIMEOUT_SECONDS + 10
        )


@contextmanager
def slow_nics(kafka: BrokersLab) -> Iterator[None]:
    """While it is open, no broker's NIC sends faster than this experiment's."""
    namespaces = [one.plan.namespace for one in kafka.brokers if one.plan.namespace is not None]
    for namespace in namespaces:
        kafka.bridge.limit_egress(namespace, NIC)
    try:
        yield
    finally:
        for namespace in namespaces:
            kafka.bridge.limit_egress(namespace, _FAST_NIC)


def set_foreign_throttles(kafka: BrokersLab) -> None:
    """Set a rate and a list as somebody else would, where no move of the experiment passes."""
    rate = ConfigEntry(LEADER_RATE, str(FOREIGN_RATE), incremental_operation=AlterConfigOpType.SET)
    replicas = ConfigEntry(
        "leader.replication.throttled.replicas",
        FOREIGN_LIST,
        incremental_operation=AlterConfigOpType.SET,
    )
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    for resource in (
        ConfigResource(ResourceType.BROKER, str(FOREIGN_RATE_BROKER), incremental_configs=[rate]),
        ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[replicas]),
    ):
        for answer in admin.incremental_alter_configs([resource]).values():
            answer.result(_TIMEOUT_SECONDS)


class _Reader:
    """L0's consumer, the view of what it gets, and waiting; a context manager."""

    def __init__(self, parts: Parts, board: Board) -> None:
        self.parts = parts
        self.board = board
        self._prometheus = parts.prometheus.ready()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.clients = stack.enter_context(
                running_clients(
                    self.parts.kafka,
                    [READER],
                    topic=FEED_TOPIC,
                    run="move",
                    prefix="demo",
                    l0_catch_up_seconds=_PATIENT_SECONDS,
                )
            )
            ended = threading.Event()
            shown = threading.Thread(target=self._show, args=(ended,), name="rates", daemon=True)
            shown.start()
            stack.callback(shown.join)
            stack.callback(ended.set)
            self.ticks = ProcessorTimes.now()
            self.began = time.time()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def wait_for_full_load(self, title: str) -> None:
        """Until L0 has got what it wants for some seconds, and no more; a minute at most."""
        self.wait_until(self._is_full, title, _FREE, longest_seconds=_LONGEST_START_SECONDS)

    def wait(self, title: str, activity: str, seconds: float) -> None:
        """Let that much time pass."""
        self.wait_until(lambda: False, title, activity, longest_seconds=seconds)

    def wait_until(
        self,
        holds: Callable[[], bool],
        title: str,
        activity: str,
        *,
        longest_seconds: float,
        poll_seconds: float = 1.0,
    ) -> bool:
        """True as soon as it holds, False when the time is over.

        Raises `LabError` when the operator ended.
        """
        ends = time.time() + longest_seconds
        self.board.show_activity(title, activity, ends_at_seconds=ends)
        return wait_until(
            holds, self.parts.operator, longest_seconds=longest_seconds, poll_seconds=poll_seconds
        )

    def _is_full(self) -> bool:
        """Whether it got what it wants in the last seconds, and caught up in none of them."""
        newest = self.clients.newest(_FULL_FOR_SECONDS)[READER.level]
        return (
            sum(newest) / _FULL_FOR_SECONDS >= FULL_SHARE * READER.demand
            and max(newest) <= _CATCHES_UP * READER.demand
        )

    def _show(self, ended: threading.Event) -> None:
        moved: list[float] = []
        while not ended.wait(1.0):
            read = self.clients.newest(HISTORY_SECONDS)[READER.level]
            sent = recent_nic_rate(self.parts.kafka, self._prometheus, seconds=2)
            last = sum(read[-2:]) / len(read[-2:]) if read else 0.0
            moved = [*moved, max(0.0, (sent or 0.0) - last)][-HISTORY_SECONDS:]
            rates = {READER.level: read, "move": tuple(moved)}
            mean = recent_nic_rate(self.parts.kafka, self._prometheus, seconds=SAWTOOTH_SECONDS)
            self.board.show_rates(rates, mean)
            now = time.time()
            estimates = foretold_by_metrics(self._prometheus, now, now)
            state = (
                f"{estimates[-1].bytes_left / 1e6:.0f} MB left, {estimates[-1].seconds:.0f} s"
                if estimates
                else ""
            )
            self.board.show_state("move", state)
