"""Share groups as real brokers report them, and a policy whose member one reads with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from confluent_kafka import ShareConsumer

from lab.kafka import BrokersLab, KafkaLab
from lab.kraft import KraftLab
from lab.process import patience, started, wait_until
from tests.integration.conftest import AUTHORIZED
from tests.integration.connections import connection_of
from tests.unit.control.stage import Stage
from tidegate.errors import Unreachable
from tidegate.kafka.adminapi.store import AdminQuotaStore
from tidegate.kafka.brokers import KafkaTopology
from tidegate.kafka.settings import KafkaConnection, SaslLogin, SaslMechanism
from tidegate.kafka.share_groups import KafkaShareGroups
from tidegate.observe.share_groups import REPEAT_SECONDS
from tidegate_logic.contracts.share_groups import DWELL_SECONDS
from tidegate_logic.model import Entity, QuotaKey

pytestmark = pytest.mark.integration

TOPIC = "acc"
STATE = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
READER = Entity(client_id="reader")


@pytest.fixture(scope="module")
def sharing() -> Iterator[KraftLab]:
    """Two brokers that can coordinate share groups; who logs in may do nothing."""

    def lab() -> KraftLab:
        return KraftLab(brokers=2, users=("alice",), server_properties={**AUTHORIZED, **STATE})

    with started(lab) as kafka:
        kafka.create_topic(TOPIC, [[1], [2]])
        yield kafka


def connection(kafka: BrokersLab, login: SaslLogin | None = None) -> KafkaConnection:
    servers = kafka.bootstrap_servers if login is None else kafka.sasl_bootstrap_servers
    return connection_of(servers, login)


@contextmanager
def reading(kafka: KraftLab, group: str, client_id: str) -> Iterator[ShareConsumer]:
    """A share consumer that has joined its group."""
    consumer = ShareConsumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": group,
            "client.id": client_id,
        }
    )
    consumer.subscribe([TOPIC])
    try:
        source = KafkaShareGroups(connection(kafka))

        def has_joined() -> bool:
            consumer.poll(0.2)
            try:
                found = {one.name: one.client_ids for one in source.read()}
            except Unreachable:  # a coordinator is still loading its groups
                return False
            return client_id in found.get(group, ())

        wait_until(has_joined, f"{client_id} in share group {group}", timeout_seconds=60)
        yield consumer
    finally:
        consumer.close()


def test_groups_with_members_are_reported_with_client_ids_topics_and_locks(
    sharing: KraftLab,
) -> None:
    source = KafkaShareGroups(connection(sharing))
    with reading(sharing, "sg-1", "c-1"), reading(sharing, "sg-2", "c-2"):
        found = {one.name: one for one in source.read()}
        assert {name: one.client_ids for name, one in found.items()} == {
            "sg-1": {"c-1"},
            "sg-2": {"c-2"},
        }
        assert found["sg-1"].topics == {TOPIC}
        assert found["sg-1"].lock_seconds == 30
    wait_until(lambda: source.read() == (), "no share group with members", timeout_seconds=60)


def test_a_login_without_rights_on_groups_learns_of_none(sharing: KraftLab) -> None:
    login = SaslLogin(SaslMechanism.PLAIN, "alice", sharing.password("alice"))
    with reading(sharing, "sg-3", "c-3"):
        assert KafkaShareGroups(connection(sharing, login)).read() == ()


def test_brokers_without_share_groups_have_none(kafka: KafkaLab) -> None:
    assert KafkaShareGroups(connection(kafka)).read() == ()


def test_brokers_that_do_not_answer_are_not_brokers_without_groups() -> None:
    with pytest.raises(Unreachable):
        KafkaShareGroups(KafkaConnection(("127.0.0.1:1",))).read()


def pass_after(stage: Stage, seconds: float) -> None:
    """One pass that asks the brokers, and one that knows their answer."""
    stage.now += seconds
    stage.run()
    question = stage.controllers["streaming/orders"]._pass.observer._share_groups._question
    assert question is not None
    question.join(patience(30))
    stage.run()


def test_a_policy_takes_its_fetch_quota_away_while_a_share_group_reads_with_the_member(
    sharing: KraftLab,
) -> None:
    settings = connection(sharing)
    source = KafkaShareGroups(settings)
    with (
        closing(AdminQuotaStore(settings)) as store,
        closing(KafkaTopology(settings, topic_names=tuple)) as topology,
    ):
        stage = Stage(store=store, leaders=topology, share_groups=source)  # type: ignore[arg-type]
        stage.policy()
        tier = stage.tier()
        contract = {"perPartition": {"fetch": "2M", "produce": "3M"}}
        stage.kubernetes.edit(
            tier,
            lambda raw: raw["spec"]["members"][0].update(
                user=None, clientId="reader", contract=contract
            ),
        )

        def quotas() -> tuple[str | None, str | None]:
            values = store.read([READER])[READER].values
            return tuple(  # type: ignore[return-value]
                values.get(key)
                for key in (QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.PRODUCER_BYTE_RATE)
            )

        pass_after(stage, 0.0)
        assert quotas() == ("2000000", "3000000")
        with reading(sharing, "sg-policy", "reader"):
            pass_after(stage, REPEAT_SECONDS)
            assert quotas() == (None, "3000000")
            assert stage.condition(tier, "Ready") == ("True", "ShareGroup")
            stage.restart()
            pass_after(stage, 1.0)
            assert quotas() == (None, "3000000")
        wait_until(lambda: source.read() == (), "the share group to be empty", timeout_seconds=60)
        pass_after(stage, REPEAT_SECONDS)
        assert quotas() == (None, "3000000")
        pass_after(stage, DWELL_SECONDS)
        assert quotas()[0] is not None
        for _ in range(15):  # in safe steps from what its clients may have read without a quota
            pass_after(stage, REPEAT_SECONDS)
        assert quotas() == ("2000000", "3000000")
