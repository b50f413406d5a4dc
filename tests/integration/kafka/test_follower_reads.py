"""What real brokers say of reads from followers, with ZooKeeper and without, and which fetch quotas
follow from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from lab.kafka import BrokersLab, KafkaLab
from lab.kraft import KraftLab
from lab.process import patience, started, wait_until
from tests.integration.conftest import AUTHORIZED
from tests.integration.connections import connection_of
from tests.unit.control.stage import Stage
from tidegate.kafka.adminapi.store import AdminQuotaStore
from tidegate.kafka.brokers import KafkaTopology
from tidegate.kafka.quota_store import QuotaStore
from tidegate.kafka.settings import SaslLogin, SaslMechanism, ZooKeeperConnection
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
FOLLOWERS = ("True", "ReadsFromFollowers")
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
    connection = connection_of(servers, login)
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


class Reader:
    """A policy whose one member is promised 2 MB/s of each partition, and its passes."""

    def __init__(self, store: QuotaStore, leaders: KafkaTopology) -> None:
        self.stage = Stage(store=store, leaders=leaders)  # type: ignore[arg-type]  # the real one
        self.leaders = leaders
        self.policy, self._tier = self.stage.policy(), self.stage.tier()
        self._edit(contract={"perPartition": {"fetch": "2M"}})
        self.stage.run()
        self.stage.now += SETTLE_SECONDS
        self.stage.run()
        question = self.stage.controllers["streaming/orders"]._pass.observer._settings._question
        assert question is not None
        question.join(patience(20))
        self.passes(1)

    def reads_in(self, *racks: str) -> None:
        self._edit(racks=list(racks))
        self.passes(4)  # a lowering takes safe steps

    def passes(self, count: int) -> None:
        for _ in range(count):
            self.stage.now += 15
            self.stage.run()

    def fetch_mb(self) -> float:
        entity = Entity(user=USER)
        values = self.stage.store.read([entity])[entity].values
        return int(values.get(QuotaKey.CONSUMER_BYTE_RATE) or 0) / 1_000_000

    def fetch_by(self) -> tuple[str | None, str | None]:
        (member,) = self.stage.kubernetes.get(self._tier)["status"]["members"]
        return member.get("fetchBy"), member.get("fetchSkew")

    def _edit(self, **changes: object) -> None:
        def change(raw: Any) -> None:
            raw["spec"]["members"][0].update(changes)

        self.stage.kubernetes.edit(self._tier, change)


@pytest.fixture(scope="module")
def in_kraft(racks_in_kraft: KraftLab) -> Iterator[Reader]:
    connection = connection_of(racks_in_kraft.bootstrap_servers)
    with (
        closing(AdminQuotaStore(connection)) as store,
        closing(topology_of(racks_in_kraft)) as topology,
    ):
        yield Reader(store, topology)


@pytest.fixture(scope="module")
def with_zookeeper(racks_with_zookeeper: KafkaLab) -> Iterator[Reader]:
    connect = ZooKeeperConnection(racks_with_zookeeper.zookeeper_connect)
    with (
        closing(ZooKeeperQuotaStore(ZooKeeperSession(connect))) as store,
        closing(topology_of(racks_with_zookeeper)) as topology,
    ):
        yield Reader(store, topology)


def test_fetch_follows_declared_racks_with_zookeeper(with_zookeeper: Reader) -> None:
    assert with_zookeeper.stage.condition(with_zookeeper.policy, CONDITION) == FOLLOWERS
    assert (with_zookeeper.fetch_mb(), with_zookeeper.fetch_by()) == (2.0, ("Leaders", "1.00"))
    with_zookeeper.reads_in("r1")
    assert (with_zookeeper.fetch_mb(), with_zookeeper.fetch_by()) == (4.0, ("Racks", "1.00"))
    with_zookeeper.reads_in("r1", "r2")
    assert (with_zookeeper.fetch_mb(), with_zookeeper.fetch_by()) == (2.0, ("Racks", "1.00"))


def test_fetch_follows_declared_racks_without_zookeeper(in_kraft: Reader) -> None:
    assert in_kraft.stage.condition(in_kraft.policy, CONDITION) == FOLLOWERS
    assert (in_kraft.fetch_mb(), in_kraft.fetch_by()) == (2.0, ("Leaders", "1.00"))
    in_kraft.reads_in("r2")
    assert (in_kraft.fetch_mb(), in_kraft.fetch_by()) == (6.0, ("Racks", "1.00"))
    in_kraft.reads_in("elsewhere")
    assert in_kraft.fetch_mb() == 2.0
    in_kraft.reads_in("r1", "r2", "r3")
    assert (in_kraft.fetch_mb(), in_kraft.fetch_by()) == (2.0, ("Racks", "1.00"))


def test_a_dead_racks_reads_are_counted_for_leaders_in_the_next_pass(
    in_kraft: Reader, racks_in_kraft: KraftLab
) -> None:
    in_kraft.reads_in("r1")
    assert in_kraft.fetch_mb() == 6.0
    racks_in_kraft.broker(1).kill()
    try:
        wait_until(
            lambda: led(in_kraft.leaders) == {2: 2, 3: 1},
            "broker 1's partition to have another leader",
            timeout_seconds=60,
        )
        in_kraft.passes(1)
        assert (in_kraft.fetch_mb(), in_kraft.fetch_by()) == (4.0, ("Racks", "1.33"))
    finally:
        racks_in_kraft.broker(1).start()

    def is_counted_again() -> bool:
        in_kraft.passes(1)
        return in_kraft.fetch_mb() == 6.0

    wait_until(
        is_counted_again,
        "broker 1's replicas to be in sync and counted again",
        timeout_seconds=90,
        poll_seconds=1,
    )


def led(leaders: KafkaTopology) -> dict[int, int]:
    """Leaders by broker; none while broker 1 still counts as in sync, or a partition has none."""
    topic = leaders.read(["acc"], with_in_sync=True).topics["acc"]
    in_sync = {one for group, _ in topic.in_sync for one in group}
    return {} if 1 in in_sync or topic.leaderless else dict(topic.leaders)
