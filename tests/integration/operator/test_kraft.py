"""The operator on Kafka without ZooKeeper: the whole path as a process once, and passes on a real
broker with doubles of the rest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.kraft import KraftLab
from lab.kubernetes.api import KubeApi
from lab.process import started, wait_until
from tests.contract.quota_store_contract import ALICE, FETCH, PRODUCE
from tests.integration.connections import connection_of
from tests.integration.kafka.admin_world import AdminWorld, around
from tests.integration.operator.operator_process import OperatorProcess
from tests.integration.operator.test_operator import tier
from tests.unit.control.stage import Leaders, Stage
from tidegate.errors import NotFound
from tidegate.kafka.adminapi.store import LEDGER_TOPIC
from tidegate_logic.model import Entity, QuotaKey

pytestmark = pytest.mark.integration

# --- passes ---------------------------------------------------------------------------------------


@pytest.fixture
def world(kraft: KraftLab, unique_name: str) -> Iterator[AdminWorld]:
    yield from around(kraft, unique_name)


@pytest.fixture
def stage(world: AdminWorld) -> Stage:
    """An operator whose quotas go to the real broker."""
    return Stage(store=world.store(), leaders=Leaders(cluster_id=world.cluster_id))


def kafka_spec(world: AdminWorld) -> dict[str, Any]:
    return {"bootstrapServers": world.settings.bootstrap_servers[0], "ledgerTopic": world.topic}


def test_a_policy_without_a_zookeeper_is_kept_and_given_back(
    world: AdminWorld, stage: Stage
) -> None:
    world.put(ALICE, {PRODUCE: "12000000", FETCH: "5000000"})
    policy = stage.policy(kafka=kafka_spec(world))
    tier = stage.tier()
    stage.run()
    assert world.quotas(ALICE) == {PRODUCE: "10000000", FETCH: "5000000"}
    assert stage.condition(policy) == ("True", "InSync")
    assert stage.message(policy, "ClusterReachable") == (
        f"The brokers of cluster {world.cluster_id} answer"
    )
    changes = world.changes()
    for _ in range(3):
        stage.run()
    assert world.changes() == changes
    assert stage.condition(tier) == ("True", "Contract")
    stage.kubernetes.delete(policy)
    stage.run()
    with pytest.raises(NotFound):
        stage.kubernetes.get(policy)
    assert world.quotas(ALICE) == {PRODUCE: "12000000", FETCH: "5000000"}
    assert (stage.store.ledger_entities(), stage.store.facts().claim) == (frozenset(), None)


def test_another_writer_is_found_by_the_next_pass_and_is_not_fought(
    world: AdminWorld, stage: Stage
) -> None:
    policy = stage.policy(kafka=kafka_spec(world))
    stage.tier()
    stage.run()
    for rate in ("1000000", "2000000", "3000000", "4000000"):
        world.put(ALICE, {PRODUCE: rate})
        stage.now += 20
        stage.run()
    assert stage.condition(policy, "QuotasInSync")[0] == "False"
    assert "Contended" in stage.event_reasons()
    changes = world.changes()
    world.put(ALICE, {PRODUCE: "5000000"})
    stage.now += 20
    stage.run()
    assert world.changes() == changes
    assert world.quotas(ALICE) == {PRODUCE: "5000000"}


def test_a_second_replica_takes_over_where_the_first_one_stopped(
    world: AdminWorld, stage: Stage
) -> None:
    policy = stage.policy(kafka=kafka_spec(world))
    tier = stage.tier()
    stage.run()
    claim = stage.store.facts().claim
    twin = Stage(stage.kubernetes, world.another_store(), stage.leaders, identity="operator-2")
    stage.kubernetes.edit(
        tier,
        lambda raw: raw["spec"]["members"][0]["contract"].update(perPartition={"produce": "20M"}),
    )
    twin.run()
    assert world.quotas(ALICE) == {PRODUCE: "20000000"}
    changes = world.changes()
    stage.now = twin.now = twin.now + 60
    stage.run()  # it lost the Lease in between and has it again
    twin.run()
    assert (world.changes(), world.quotas(ALICE)) == (changes, {PRODUCE: "20000000"})
    after = stage.store.facts().claim
    assert after == twin.store.facts().claim
    # each take-over is one epoch more, also of the one that had it before
    assert (after.holder, after.epoch) == ("operator-2", claim.epoch + 3)
    assert stage.condition(policy) == ("True", "InSync")


# --- the whole path -------------------------------------------------------------------------------


def test_a_contract_follows_leaders_of_a_kraft_cluster_and_is_given_back(
    crds: KubeApi, unique_name: str, tmp_path: Path
) -> None:
    namespace, topic = unique_name, unique_name
    policy = {
        "apiVersion": "tidegate.io/v1alpha1",
        "kind": "BrokerBandwidthPolicy",
        "metadata": {"name": "orders", "namespace": namespace},
    }
    with started(lambda: KraftLab(brokers=3, users=("alice",))) as kafka:
        # going down from 7 MB/s takes three steps: six seconds apart with so short a window
        brokers = {"bootstrapServers": kafka.bootstrap_servers, "quotaWindow": {"samples": 2}}
        escalation = {"maxMuteSeconds": 3}
        spec = {"mode": "Enforce", "kafka": brokers, "escalation": escalation}
        kafka.create_topic(topic, assignment=[[1, 2], [2, 3], [3, 1]])
        settings = connection_of(kafka.bootstrap_servers)
        world = AdminWorld(settings, LEDGER_TOPIC, kafka.cluster_id)
        world.put(ALICE, {PRODUCE: "7000000"})

        def produce() -> str | None:
            return world.quotas(Entity("alice")).get(QuotaKey.PRODUCER_BYTE_RATE)

        crds.kubectl("create", "namespace", namespace)
        crds.kubectl("apply", "-f", "-", input=json.dumps({**policy, "spec": spec}))
        crds.kubectl("apply", "-f", "-", input=json.dumps(tier(namespace, "alice", topic)))
        with OperatorProcess(crds, namespace, tmp_path):
            wait_until(lambda: produce() == "1000000", "the contract", timeout_seconds=90)
            crds.kubectl(
                *("wait", "--for=condition=Ready", "bbp/orders", "bt/gold"),
                *("-n", namespace, "--timeout=30s"),
            )
            assert kafka.can_log_in("alice", kafka.password("alice"))
            kafka.broker(3).kill()
            wait_until(
                lambda: produce() == "2000000",
                "the quota of the broker that leads two",
                timeout_seconds=60,
            )
            crds.kubectl("delete", "bbp", "orders", "-n", namespace, "--timeout=90s")
            assert world.quotas(ALICE) == {PRODUCE: "7000000"}
            assert world.another_store().facts().claim is None
            assert kafka.can_log_in("alice", kafka.password("alice"))
        world.close()
