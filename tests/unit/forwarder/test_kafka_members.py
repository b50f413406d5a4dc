"""What the coordinator's answers mean to a member; without a broker, so that none comes by itself."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from confluent_kafka import KafkaError

from tidegate.forwarder.kafka_members import KafkaMembers


@pytest.fixture
def member() -> Iterator[KafkaMembers]:
    config = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
    member = KafkaMembers(config, "shop", "only", 6, clock=lambda: 100.0)
    yield member
    member.close()


@dataclass(frozen=True)
class _Part:
    """A part of an answer; the library's own cannot be made with an error."""

    error: KafkaError | None = None


def test_only_an_accepted_commit_is_a_sign_and_each_only_once(member: KafkaMembers) -> None:
    refused = KafkaError(KafkaError.UNKNOWN_MEMBER_ID)
    member._asked_at = 99.0
    member._on_commit(refused, [_Part()])
    assert not member.may_send()
    member._on_commit(None, [_Part()])
    assert not member.may_send(), "nothing was asked since"
    member._asked_at = 99.0
    member._on_commit(None, [_Part(refused)])
    assert not member.may_send()
    member._asked_at = 99.0
    member._on_commit(None, [_Part(refused), _Part()])
    assert member.may_send(), "a topic that has just been deleted is refused"


def test_a_member_that_closes_is_lost_and_has_nothing(member: KafkaMembers) -> None:
    member.topics(["shop.5.0"])
    assert not member.is_lost()
    member.close()
    assert member.is_lost()
    assert member.wanted() == frozenset()
    assert not member.take("shop.5.0")
    assert not member.may_send()
