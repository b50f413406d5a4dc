"""What real brokers say of reads from followers, with ZooKeeper and without, and what a policy says
of it then.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from lab.kafka import BrokersLab, KafkaLab
from lab.kraft import KraftLab
from lab.process import patience, started
from tests.integration.conftest import AUTHORIZED
from tests.unit.control.stage import Stage
from tidegate.kafka.adminapi.store import AdminQuotaStore
from tidegate.kafka.brokers import KafkaTopology
from tidegate.kafka.quota_store import QuotaStore
from tidegate.kafka.settings import KafkaConnection, SaslLogin, SaslMechanism, ZooKeeperConnection
from tidegate.kafka.zookeeper.session import ZooKeeperSession
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore
from tidegate.observe.broker_settings import (
    SELECTOR,
    SETTLE_SECONDS,
    BrokerSettings,
    FollowerReads,
)
from tidegate_logic.model import Entity, QuotaKey

pytestmark = pytest.mark.integration

RACK_AWARE = {SELECTOR: "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
CONDITION = "FollowerFetch"
USER = "alice"


@pytest.fixture(scope="module")
def racks_with_zookeeper() -> Iterator[KafkaLab]:
    def lab() -> KafkaLab:
        return KafkaLab(brokers=2, racks=("r1", "r2"), server_properties=RACK_AWARE)

    with started(lab) as kafka:
        kafka.create_topic("acc", [[1, 2], [2, 1]])
        yield kafka


@pytest.fixture(scope="module")
def racks_in_kraft() -> Iterator[KraftLab]:
    def lab() -> KraftLab:
        settings = {**AUTHORIZED, **RACK_AWARE}
        racks = ("r1", "r2", "r3")
        return KraftLab(brokers=3, users=(USER,), racks=racks, server_properties=settings)

    with started(lab) as kafka:
        kafka.create_topic("acc", [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
        yield kafka


def seen(topology: KafkaTopology) -> FollowerReads:
    brokers = topology.read([]).brokers
    settings = BrokerSettings(settle_seconds=0.0, beside=False)
    return FollowerReads.of(brokers, settings.seen(topology, brokers, 0.0))


def topology_of(kafka: BrokersLab, *, login: SaslLogin | None = None) -> KafkaTopology:
    servers = kafka.bootstrap_servers if login is None else kafka.sasl_bootstrap_servers
    connection = KafkaConnection(tuple(servers.split(",")), sasl=login)
    return KafkaTopology(connection, topic_names=tuple)


def test_brokers_of_three_racks_with_a_selector_are_named(racks_in_kraft: KraftLab) -> None:
    with closing(topology_of(racks_in_kraft)) as topology:
        found = seen(topology)
    assert found.selectors == dict.fromkeys((1, 2, 3), "RackAwareReplicaSelector")
    assert (found.racks, found.smallest_share) == (3, pytest.approx(1 / 3))


def test_a_login_that_may_not_read_settings_is_no_finding(racks_in_kraft: KraftLab) -> None:
    login = SaslLogin(SaslMechanism.PLAIN, USER, racks_in_kraft.password(USER))
    with closing(topology_of(racks_in_kraft, login=login)) as topology:
        found = seen(topology)
    assert (found.refused, found.selectors, found.silent) == ({1, 2, 3}, {}, frozenset())


def test_brokers_without_a_selector_serve_reads_by_leaders(
    kafka: KafkaLab, kraft: KraftLab
) -> None:
    for one, brokers in ((kafka, {1, 2, 3}), (kraft, {1})):
        with closing(topology_of(one)) as topology:
            found = seen(topology)
        assert (found.leaders_only, found.selectors, found.refused) == (brokers, {}, frozenset())


def condition_of(store: QuotaStore, topology: KafkaTopology) -> tuple[tuple[str, str], str | None]:
    """The condition of a policy with a fetch contract, and the quota that was written."""
    stage = Stage(store=store, leaders=topology)  # type: ignore[arg-type]  # the real one
    policy, tier = stage.policy(), stage.tier()
    contract = {"perPartition": {"fetch": "2M"}}
    stage.kubernetes.edit(tier, lambda raw: raw["spec"]["members"][0].update(contract=contract))
    stage.run()
    stage.now += SETTLE_SECONDS
    stage.run()
    question = stage.controllers["streaming/orders"]._pass.observer._settings._question
    assert question is not None
    question.join(patience(20))
    stage.now += 15
    stage.run()
    entity = Entity(user=USER)
    written = store.read([entity])[entity].values.get(QuotaKey.CONSUMER_BYTE_RATE)
    return stage.condition(policy, CONDITION), written


def test_a_policy_says_so_and_writes_what_leaders_call_for_with_zookeeper(
    racks_with_zookeeper: KafkaLab,
) -> None:
    connect = ZooKeeperConnection(racks_with_zookeeper.zookeeper_connect)
    with (
        closing(ZooKeeperQuotaStore(ZooKeeperSession(connect))) as store,
        closing(topology_of(racks_with_zookeeper)) as topology,
    ):
        assert condition_of(store, topology) == (("True", "ReadsFromFollowers"), "2000000")


def test_a_policy_says_so_and_writes_what_leaders_call_for_without_zookeeper(
    racks_in_kraft: KraftLab,
) -> None:
    connection = KafkaConnection(tuple(racks_in_kraft.bootstrap_servers.split(",")))
    with (
        closing(AdminQuotaStore(connection)) as store,
        closing(topology_of(racks_in_kraft)) as topology,
    ):
        assert condition_of(store, topology) == (("True", "ReadsFromFollowers"), "2000000")
