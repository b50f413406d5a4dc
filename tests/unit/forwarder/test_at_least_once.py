"""Commits are in order and never before the records have arrived; errors go back to the last one."""

from __future__ import annotations

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaError
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.forwarder.kafka_twin import (
    DEAD,
    TARGET,
    ConsumerTwin,
    Message,
    ProducerTwin,
    level,
    outbox,
)
from tidegate.forwarder.at_least_once import AtLeastOnce
from tidegate.forwarder.level import Level
from tidegate.forwarder.outbox import Failure, StartAgain
from tidegate.forwarder.settings import MOST_RECORDS
from tidegate.forwarder.targets import DeadReason

NOW = 10_000.0  # everything is due


class World:
    def __init__(self) -> None:
        self.producer = ProducerTwin()
        self.outbox = outbox(self.producer)
        self.sender = AtLeastOnce(self.producer, self.outbox)

    def send(self, *levels: Level, now_ms: float = NOW) -> None:
        ready = [one for one in levels if self.sender.has_room_for(one)]
        self.sender.send([(one, one.count_due(now_ms)) for one in ready], now_ms)

    def metric(self, name: str, **labels: str) -> float:
        return self.outbox.metrics.registry.get_sample_value(name, labels) or 0.0


def consumer_of(one: Level) -> ConsumerTwin:
    consumer = one.consumer
    assert isinstance(consumer, ConsumerTwin)
    return consumer


def test_nothing_is_committed_before_all_of_a_chunk_has_arrived() -> None:
    world, one = World(), level(records=3)
    world.send(one)
    world.producer.answer([0, 2])
    world.sender.settle(NOW)
    assert consumer_of(one).committed == []
    world.producer.answer_all()
    world.sender.settle(NOW)
    assert consumer_of(one).committed == [3]
    assert world.metric("tidegate_queue_forwarded_total", delay_seconds="1") == 3


def test_what_falls_due_while_a_small_chunk_is_open_is_the_next() -> None:
    world, one, two = World(), level(0, records=3), level(1, records=3)
    world.send(one)
    assert not world.sender.has_room(NOW)
    assert world.sender.has_room(NOW + 1000), "a slow one does not hold up others"
    assert not world.sender.has_room_for(one)
    assert world.sender.has_room_for(two)
    world.producer.answer_all()
    world.sender.settle(NOW)
    assert world.sender.has_room(NOW)
    assert world.sender.has_room_for(one)


def test_four_full_chunks_are_open_at_a_time() -> None:
    world, one = World(), level(records=6 * MOST_RECORDS)
    for _ in range(6):
        if world.sender.has_room(NOW):
            world.send(one)
    assert len(world.producer.open) == 4 * MOST_RECORDS


def test_large_records_make_full_chunks_of_fewer() -> None:
    world, one = World(), level(records=100, size=1024 * 1024)
    world.send(one)
    assert len(world.producer.open) == 8


def test_commits_are_at_once_and_then_20_ms_apart() -> None:
    world, one = World(), level(records=1)
    times = [0.0, 5.0, 10.0, 19.0, 20.0, 30.0, 45.0]
    for number, at in enumerate(times):
        consumer_of(one).waiting = [Message(number)]
        world.send(one, now_ms=NOW + at)
        world.producer.answer_all()
        world.sender.settle(NOW + at)
    assert consumer_of(one).committed == [1, 5, 7]


def test_a_failed_chunk_goes_back_to_the_last_commit_and_waits() -> None:
    world, one = World(), level(records=5)
    world.send(one)
    world.producer.answer([0, 1, 3, 4])
    world.producer.answer_all(KafkaError._MSG_TIMED_OUT)
    world.sender.settle(NOW)
    assert consumer_of(one).committed == []
    assert one.note.error
    world.send(one)
    assert not world.producer.open, "it waits"
    world.send(one, now_ms=NOW + 1000)
    assert len(world.producer.open) == 5, "all of it again, in order"
    world.producer.answer_all()
    world.sender.settle(NOW + 1000)
    assert consumer_of(one).committed == [5]
    assert consumer_of(one).note.error == ""
    assert world.metric("tidegate_queue_retries_total", delay_seconds="1") == 1


def test_pauses_get_longer_up_to_30_seconds() -> None:
    one, now_ms, pauses = level(records=1), NOW, []
    for _ in range(8):
        one.stop_for_a_while("error", now_ms)
        pauses.append(one.stopped_until_ms - now_ms)
        now_ms = one.stopped_until_ms
    assert pauses == [1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000]


def test_chunks_after_a_failed_one_are_sent_again_with_it() -> None:
    world, one = World(), level(records=2 * MOST_RECORDS)
    world.send(one)
    world.send(one)
    world.producer.answer([0], KafkaError._MSG_TIMED_OUT)
    world.sender.settle(NOW)
    assert one.sent == 2 * MOST_RECORDS, "not before everything has come back"
    world.producer.answer_all()
    world.sender.settle(NOW)
    assert (one.sent, one.position) == (0, 0)


def test_one_refused_record_is_found_and_goes_to_the_dead_topic() -> None:
    world, one = World(), level(records=4)
    too_large, arrived = 2, list[int]()
    for _ in range(20):
        world.send(one)
        batch = [sent.topic for sent in world.producer.open]
        alone = len(batch) == 1
        first = one.position
        if batch == [DEAD] or (alone and first != too_large) or not batch:
            world.producer.answer_all()
        else:
            world.producer.answer_all(KafkaError.MSG_SIZE_TOO_LARGE)
        world.sender.settle(NOW)
        arrived.append(one.position)
    assert arrived[-1] == 4
    dead = [sent for sent in world.producer.sent if sent.topic == DEAD]
    assert len(dead) == 1
    assert (dict(dead[0].headers)["tidegate-reason"] or b"").startswith(b"TargetRefused: ")
    assert one.note.dead == 1
    assert world.metric("tidegate_queue_dead_total", reason="TargetRefused") == 1
    assert not one.note.error


def test_a_refused_target_is_not_tried_for_each_record() -> None:
    world, one = World(), level(records=100)
    world.send(one)
    world.producer.answer_all(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    world.sender.settle(NOW)
    world.send(one)
    assert {sent.topic for sent in world.producer.open} == {DEAD}
    assert len(world.producer.open) == 100


@pytest.mark.parametrize(
    "code",
    [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION],
)
def test_a_broker_that_does_not_know_a_target_yet_makes_nothing_dead(code: int) -> None:
    world, one = World(), level(records=3)
    world.send(one)
    world.producer.answer_all(code)
    world.sender.settle(NOW)
    assert (one.position, bool(one.note.error)) == (0, True)
    world.send(one, now_ms=one.stopped_until_ms)
    assert {sent.topic for sent in world.producer.open} == {TARGET}
    world.producer.answer_all(code)
    world.sender.settle(NOW)
    world.outbox.targets.list(frozenset({DEAD}))  # it is missing indeed
    world.send(one, now_ms=one.stopped_until_ms)
    assert {sent.topic for sent in world.producer.open} == {DEAD}
    assert [dict(sent.headers)["tidegate-reason"] for sent in world.producer.open] == [
        f"TargetNotFound: topic {TARGET} does not exist, or the forwarders' user may not see "
        "it".encode()
    ] * 3


def test_a_transaction_of_one_record_tells_which_target_refuses() -> None:
    world, one = World(), level(records=2)
    world.send(one)
    error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    failures = [Failure(KafkaError(KafkaError._PURGE_QUEUE), TARGET), Failure(error)]
    world.outbox.recover(one, failures, NOW, is_alone=True)
    assert world.outbox.targets.judge(None).reason is DeadReason.REFUSED


def test_headers_that_cannot_be_read_are_asked_for_once() -> None:
    world, one = World(), level()
    asked = list[int]()

    class Unreadable(Message):
        def headers(self) -> list[tuple[str, bytes | None]] | None:
            asked.append(self.at)
            raise SystemError("returned a result with an exception set")

    consumer_of(one).waiting = [Unreadable(0)]
    world.send(one)
    world.producer.answer_all(KafkaError._MSG_TIMED_OUT)
    world.sender.settle(NOW)
    world.send(one, now_ms=NOW + 1000)
    world.producer.answer_all()
    world.sender.settle(NOW + 1000)
    assert consumer_of(one).committed == [1]
    assert [sent.topic for sent in world.producer.sent] == [DEAD, DEAD]
    assert asked == [0]
    assert not one.unreadable


def test_a_dead_topic_that_refuses_stops_the_level() -> None:
    world, one = World(), level()
    consumer_of(one).waiting = [Message(0, headers_=[("tidegate-target", b"__x")])]
    world.send(one)
    assert [sent.topic for sent in world.producer.open] == [DEAD]
    world.producer.answer_all(KafkaError.MSG_SIZE_TOO_LARGE)
    world.sender.settle(NOW)
    assert one.note.error
    assert one.position == 0


def test_a_fatal_error_ends_the_member() -> None:
    world, one = World(), level(records=1)
    world.send(one)
    world.producer.answer_all(KafkaError._FATAL)
    with pytest.raises(StartAgain):
        world.sender.settle(NOW)


def test_a_full_producer_ends_a_chunk_early() -> None:
    world, one = World(), level(records=10)
    world.producer.room = 4
    world.send(one)
    assert one.sent == 4
    world.producer.answer_all()
    world.sender.settle(NOW)
    assert consumer_of(one).committed == [4]
    world.send(one)
    assert [sent.due_ms for sent in world.producer.open] == [1000] * 4


def test_an_earlier_due_time_is_replaced_and_the_rest_of_the_headers_kept() -> None:
    world, one = World(), level()
    given: list[tuple[str, bytes | None]] = [("a", b"1"), ("tidegate-due", b"7"), ("a", None)]
    consumer_of(one).waiting = [Message(0, appended_ms=500, headers_=given)]
    world.send(one)
    assert world.producer.sent[0].headers == [("a", b"1"), ("a", None), ("tidegate-due", b"1500")]
    assert len(given) == 3


errors = st.sampled_from(
    [None, None, None, KafkaError._MSG_TIMED_OUT, KafkaError.MSG_SIZE_TOO_LARGE]
)


@given(st.lists(st.integers(0, 4), max_size=8), st.lists(errors, max_size=40))
def test_whatever_fails_each_record_arrives_before_it_is_committed(
    batches: list[int], errors: list[int | None]
) -> None:
    """Records come in batches; each arrives or fails, until errors are over."""
    world, one, now_ms = World(), level(), NOW
    total, arrived = sum(batches), set[int]()
    fed = 0
    for round_ in range(200):
        for _ in range(batches[round_] if round_ < len(batches) else 0):
            consumer_of(one).waiting.append(Message(fed, appended_ms=fed))
            fed += 1
        world.send(one, now_ms=now_ms)
        for sent in list(world.producer.open):
            error = errors.pop() if errors and sent.topic == TARGET else None
            world.producer.answer([world.producer.open.index(sent)], error)
            if error is None:
                arrived.add(sent.due_ms - 1000)
        world.sender.settle(now_ms)
        assert arrived >= set(range(one.position)), "committed before it arrived"
        now_ms += 40_000
    assert one.position == total
    assert consumer_of(one).committed[-1:] == ([total] if total else [])


def test_little_is_kept_here_of_what_is_not_due() -> None:
    world, one = World(), level(records=5 * MOST_RECORDS)
    one._read_most = 128
    assert one.count_due(500.0) == 0
    assert len(one.messages) == 128
    world.send(one)
    world.producer.answer_all()
    world.sender.settle(NOW)
    world.send(one)
    assert len(one.messages) == 128, "that was read before anything was due"
    world.producer.answer_all()
    world.sender.settle(NOW)
    world.send(one)
    assert len(world.producer.open) == MOST_RECORDS, "full chunks once all that was read is due"


def test_a_producers_own_time_makes_nothing_early_and_blocks_nothing() -> None:
    one = level()
    consumer_of(one).waiting = [
        Message(0, appended_ms=0, kind=TIMESTAMP_CREATE_TIME),
        Message(1, appended_ms=10**12, kind=TIMESTAMP_CREATE_TIME),
    ]
    assert one.count_due(NOW) == 0
    assert one.due_ms == [NOW + 1000] * 2
