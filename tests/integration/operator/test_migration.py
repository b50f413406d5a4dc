"""A real move from ZooKeeper to KRaft, with the operator running through all of it: nothing is
written while Kafka writes to both, the ledger goes along automatically, and what was there before
Tidegate is restored from the topic. What ZooKeeper has counts no more, not even for a policy that
is made again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from lab.kubernetes.api import KubeApi
from lab.migration import MigratingLab
from lab.process import wait_until
from lab.quota_watch import PRODUCE_KEY, ZooKeeperQuotaWatch
from tests.contract.quota_store_contract import ALICE, PRODUCE
from tests.integration.connections import connection_of
from tests.integration.kafka.admin_world import AdminWorld
from tests.integration.operator.operator_process import OperatorProcess
from tests.integration.operator.test_operator import tier
from tidegate.errors import Incomplete
from tidegate.kafka.adminapi.store import LEDGER_TOPIC
from tidegate.kafka.ledger_move import QUIET_SECONDS, LedgerMove
from tidegate.kafka.quota_store import Claim
from tidegate.kafka.settings import ZooKeeperConnection
from tidegate.kafka.zookeeper.session import ZooKeeperSession

pytestmark = [pytest.mark.integration, pytest.mark.long]

TRANSACTIONS = {
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}
POLICY = ("bbp", "orders", "-o", "json")


@pytest.fixture
def migrating() -> Iterator[MigratingLab]:
    with MigratingLab(brokers=3, server_properties=TRANSACTIONS) as kafka:
        yield kafka


def test_the_ledger_goes_along_and_no_quota_changes_on_the_way(
    crds: KubeApi, migrating: MigratingLab, unique_name: str, tmp_path: Path
) -> None:
    kafka, namespace, topic = migrating, unique_name, unique_name
    in_namespace = ("-n", namespace)

    def policy() -> Any:
        return json.loads(crds.kubectl("get", *POLICY, *in_namespace))

    def condition() -> tuple[str, str, str]:
        ready = next(one for one in policy()["status"]["conditions"] if one["type"] == "Ready")
        return ready["status"], ready["reason"], ready["message"]

    def is_held() -> bool:
        return condition()[:2] == ("False", "MigrationRunning")

    kafka.create_topic(topic, assignment=[[1, 2], [2, 3], [3, 1]])
    world = AdminWorld(connection_of(kafka.bootstrap_servers), LEDGER_TOPIC, kafka.cluster_id)
    world.put(ALICE, {PRODUCE: "7000000"})
    zookeeper = KazooClient(kafka.zookeeper_connect)
    zookeeper.start()

    def ledger_in_zookeeper() -> dict[str, bytes]:
        nodes = ["/tidegate/claim"]
        nodes += [f"/tidegate/ledger/{one}" for one in zookeeper.get_children("/tidegate/ledger")]
        return {node: zookeeper.get(node)[0] for node in nodes}

    spec = {
        "mode": "Enforce",
        "kafka": {
            "bootstrapServers": kafka.bootstrap_servers,
            "zookeeper": {"connect": kafka.zookeeper_connect},
            # going down from 7 MB/s takes three steps: six seconds apart with so short a window
            "quotaWindow": {"samples": 2},
        },
        "escalation": {"maxMuteSeconds": 3},
    }
    document = {
        "apiVersion": "tidegate.io/v1alpha1",
        "kind": "BrokerBandwidthPolicy",
        "metadata": {"name": "orders", "namespace": namespace},
        "spec": spec,
    }
    crds.kubectl("create", "namespace", namespace)
    crds.kubectl("apply", "-f", "-", input=json.dumps(document))
    crds.kubectl("apply", "-f", "-", input=json.dumps(tier(namespace, "alice", topic)))
    watch = ZooKeeperQuotaWatch(kafka.zookeeper_connect, ["alice"], PRODUCE_KEY)
    with OperatorProcess(crds, namespace, tmp_path), watch as quotas:
        assert quotas.wait_for("alice", 1_000_000, timeout_seconds=90)
        crds.kubectl("wait", "--for=condition=Ready", "bbp/orders", "--timeout=60s", *in_namespace)
        kafka.begin()
        wait_until(is_held, "the policy to be held", timeout_seconds=60)
        # until it was held, leaders moved away from each broker that was restarted
        held_at, held, ledger = time.time(), world.quotas(ALICE), ledger_in_zookeeper()
        assert held[PRODUCE] in ("1000000", "2000000")
        # a contract that changes meanwhile has to wait
        raised = tier(namespace, "alice", topic)
        raised["spec"]["members"][0]["contract"]["perPartition"]["produce"] = "3M"  # type: ignore[index]
        crds.kubectl("apply", "-f", "-", input=json.dumps(raised))
        kafka.restart_as_kraft()
        # the controllers still write to ZooKeeper, which even the least patient sees in the end
        tree = ZooKeeperSession(ZooKeeperConnection(kafka.zookeeper_connect))
        for quiet_seconds in (3.0, 0.0):
            move = LedgerMove(tree, world.another_store, quiet_seconds=quiet_seconds)
            wanted = Claim(f"{namespace}/orders", policy()["metadata"]["uid"])
            if quiet_seconds:
                assert move.attempt(wanted) is None
                time.sleep(quiet_seconds + 1)
                assert move.attempt(wanted) is None
            else:
                look = partial(move.attempt, wanted)
                with pytest.raises(Incomplete, match="still write to ZooKeeper"):
                    # notes are half a second apart, and two looks may have one between them
                    wait_until(look, "two looks without a note between", timeout_seconds=30)
        tree.close()
        wait_until(is_held, "the policy to be held still", timeout_seconds=60)
        assert "moves to a topic by itself" in condition()[2]
        assert world.quotas(ALICE) == held
        assert world.store().facts().claim is None

        kafka.finish()
        wait_until(
            lambda: condition()[0] == "True",
            "the policy to be ready without ZooKeeper",
            timeout_seconds=QUIET_SECONDS + 90,
        )
        # ZooKeeper never saw another quota, and the changed contract came after it
        assert set(quotas.values("alice", since=held_at)) == {int(held[PRODUCE])}
        kafka.restore_preferred_leaders(topic)
        wait_until(
            lambda: world.quotas(ALICE)[PRODUCE] == "3000000",
            "the changed contract, for one leader on each broker",
            timeout_seconds=60,
        )
        assert ledger_in_zookeeper() == ledger
        events = json.loads(crds.kubectl("get", "events", "-o", "json", *in_namespace))
        (moved,) = [one for one in events["items"] if one["reason"] == "LedgerMoved"]
        assert moved["message"].startswith("The ledger of 1 quota moved from ZooKeeper ")
        claim = world.another_store().facts().claim
        assert claim is not None
        assert claim.policy_uid == policy()["metadata"]["uid"]

    zookeeper.stop()
    zookeeper.close()
    kafka.zookeeper.kill()
    changes = world.changes()
    with OperatorProcess(crds, namespace, tmp_path, name="operator-2") as second:
        second.wait_for_a_pass()
        assert world.changes() == changes
        crds.kubectl(
            "delete", "bbp", "orders", *in_namespace, "--timeout=120s", timeout_seconds=130
        )
    assert world.quotas(ALICE) == {PRODUCE: "7000000"}
    assert world.another_store().facts().claim is None

    # made again, and with the ZooKeeper that still has the claim of before: that does not hold it
    kafka.zookeeper.start()
    crds.kubectl("apply", "-f", "-", input=json.dumps(document))
    with OperatorProcess(crds, namespace, tmp_path, name="operator-3"):
        wait_until(
            lambda: world.quotas(ALICE)[PRODUCE] == "3000000",
            "the contract of the policy that was made again",
            timeout_seconds=120,
        )
        claim = world.another_store().facts().claim
        assert claim is not None
        assert claim.policy_uid == policy()["metadata"]["uid"]
        crds.kubectl(
            "delete", "bbp", "orders", *in_namespace, "--timeout=120s", timeout_seconds=130
        )
    assert world.quotas(ALICE) == {PRODUCE: "7000000"}
    world.close()
