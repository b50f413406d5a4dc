"""Plays experiment 5: two equal moves off a broker from which L0 reads, by Kafka alone and under
Tidegate.

It judges nothing. Every broker's NIC is slowed down for it, which takes a network namespace each.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from rich.console import Console

from demo import script
from demo.board import Board
from demo.move_outcome import CLEAN_UP_SECONDS, LEADER_RATE, Move, MoveOutcome, moved_words
from demo.parts import REPLICATION_RESOURCES, Parts, filled_in
from demo.throttling import Stage, withdraw
from demo.witnesses import foretold_by_metrics, noted_events, watched_throttles
from demo.words import Interruption, Mark, MarkKind
from lab.episodes import fill_topic
from lab.kafka import BrokersLab

TITLE_ALONE = "Experiment 5, Kafka alone"
TITLE = "Experiment 5, Tidegate"
_FREE = "L0 reads what it wants"
_FULL_FOR_SECONDS = 5
_CATCHES_UP = 1.2
_POLL_SECONDS = 0.5
_TIMEOUT_SECONDS = 20.0
_FAST_NIC = 1_250_000_000
_KEPT = {"retention.bytes": "-1", "segment.bytes": str(64 << 20)}


def run_move(
    console: Console, parts: Parts, length: script.MoveLength, *, interruption: Interruption
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
    board = Board(console.file, limit=script.NIC_LIMIT)
    with interruption.reported():
        board.show_activity(TITLE_ALONE, "two topics of equal size are filled")
        withdraw(parts)
        for topic in (script.UNTHROTTLED_TOPIC, script.FOLLOWED_TOPIC):
            parts.kafka.create_topic(topic, [[script.BROKER]] * len(script.MOVED_TO), config=_KEPT)
            fill_topic(
                parts.kafka,
                topic,
                partitions=tuple(script.MOVED_TO),
                total_bytes=length.moved_bytes,
            )
        set_foreign_throttles(parts.kafka)
        with slow_nics(parts.kafka):
            return _play(parts, board, length), board.marks()


def _play(parts: Parts, board: Board, length: script.MoveLength) -> MoveOutcome:
    topics = (script.UNTHROTTLED_TOPIC, script.FOLLOWED_TOPIC, script.TOPIC)
    with (
        watched_throttles(parts.kafka, board, topics=topics) as steps,
        noted_events(parts.kube.kubeconfig, board),
        Stage(parts, board, [script.READER], title=TITLE_ALONE, run="move") as stage,
    ):
        foreign = steps[0].throttles
        stage.wait_until(lambda: _is_full(stage), _FREE)
        unthrottled = _move(stage, script.UNTHROTTLED_TOPIC, length)
        stage.title = TITLE
        stage.wait_until(lambda: _is_full(stage), _FREE)
        _declare(parts, board)
        followed = _move(stage, script.FOLLOWED_TOPIC, length)
        stage.wait_until(
            lambda: steps[-1].throttles == foreign,
            "the throttles are taken away",
            longest_seconds=CLEAN_UP_SECONDS,
        )
        ended = time.time()
        nic = stage.nic_until(ended)
        return MoveOutcome(
            length=length,
            began_seconds=stage.began,
            ended_seconds=ended,
            unthrottled=unthrottled,
            followed=followed,
            read=stage.clients.by_user()[script.READER.user],
            nic=nic,
            steps=tuple(steps),
            foretold=foretold_by_metrics(
                parts.prometheus.ready(),
                followed.requested_seconds,
                followed.requested_seconds + followed.watched_seconds,
            ),
            foreign=foreign,
            processor=stage.processor(),
        )


def _is_full(stage: Stage) -> bool:
    """Whether L0 got what it wants in the last seconds, and caught up in none of them."""
    newest = stage.clients.newest(_FULL_FOR_SECONDS)[script.READER.level]
    return stage.all_full(_FULL_FOR_SECONDS) and max(newest) <= _CATCHES_UP * script.READER.demand


def _move(stage: Stage, topic: str, length: script.MoveLength) -> Move:
    """Measure before, ask for the move, and wait for its end."""
    kafka, board = stage.parts.kafka, stage.board
    size = leaders_log_bytes(kafka, topic)
    stage.wait(_FREE, length.before_seconds)
    view = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    requested = time.time()
    words = f"{topic}, {size / 1e6:.0f} MB, is moved: {moved_words()}"
    board.mark(requested, MarkKind.COMMAND, words)
    kafka.admin.reassign({(topic, one): [to] for one, to in script.MOVED_TO.items()})
    is_over = stage.wait_until(
        lambda: _is_moved(view, topic),
        f"{topic} is moved",
        longest_seconds=length.longest_move_seconds,
        poll_seconds=_POLL_SECONDS,
    )
    now = time.time()
    board.mark(now, MarkKind.EVENT, f"{topic} {'is' if is_over else 'is still not'} moved")
    result = f"{topic} moved in {now - requested:.0f} s" if is_over else f"{topic} was not moved"
    board.say(f"{stage.title}: {result}")
    return Move(topic, size, length.before_seconds, requested, now if is_over else None, now)


def _is_moved(view: AdminClient, topic: str) -> bool:
    """Whether each partition has its new replica and no other; False without an answer."""
    try:
        partitions = view.list_topics(topic, timeout=_TIMEOUT_SECONDS).topics[topic].partitions
    except KafkaException:
        return False
    return {number: list(one.replicas) for number, one in partitions.items()} == {
        number: [to] for number, to in script.MOVED_TO.items()
    }


def leaders_log_bytes(kafka: BrokersLab, topic: str) -> int:
    """The size of the topic's logs on the broker that leads it."""
    data: Path = kafka.broker(script.BROKER).plan.directory / "data"
    return sum(
        file.stat().st_size
        for one in script.MOVED_TO
        for file in (data / f"{topic}-{one}").glob("*.log")
    )


def _declare(parts: Parts, board: Board) -> None:
    """Apply policy and tier, and wait until they are ready."""
    board.mark(time.time(), MarkKind.COMMAND, "kubectl apply -f demo/replication.yaml")
    board.show_activity(TITLE, "kubectl apply -f demo/replication.yaml")
    declared = filled_in(REPLICATION_RESOURCES, parts.kafka, parts.prometheus.ready())
    parts.kubectl("apply", "-f", "-", document=declared)
    parts.wait_for_ready()


@contextmanager
def slow_nics(kafka: BrokersLab) -> Iterator[None]:
    """While it is open, no broker's NIC sends faster than this experiment's."""
    namespaces = [one.plan.namespace for one in kafka.brokers if one.plan.namespace is not None]
    for namespace in namespaces:
        kafka.bridge.limit_egress(namespace, script.NIC)
    try:
        yield
    finally:
        for namespace in namespaces:
            kafka.bridge.limit_egress(namespace, _FAST_NIC)


def set_foreign_throttles(kafka: BrokersLab) -> None:
    """Set a rate and a list as somebody else would, where no move of the experiment passes."""
    rate = ConfigEntry(
        LEADER_RATE, str(script.FOREIGN_RATE), incremental_operation=AlterConfigOpType.SET
    )
    replicas = ConfigEntry(
        "leader.replication.throttled.replicas",
        script.FOREIGN_LIST,
        incremental_operation=AlterConfigOpType.SET,
    )
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    for resource in (
        ConfigResource(
            ResourceType.BROKER, str(script.FOREIGN_RATE_BROKER), incremental_configs=[rate]
        ),
        ConfigResource(ResourceType.TOPIC, script.TOPIC, incremental_configs=[replicas]),
    ):
        for answer in admin.incremental_alter_configs([resource]).values():
            answer.result(_TIMEOUT_SECONDS)
