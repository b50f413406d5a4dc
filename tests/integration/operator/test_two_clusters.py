"""Two Kubernetes clusters with a policy of the same name, one Kafka: one of them writes.

The first tests run passes of two operators on a real ZooKeeper, with Kubernetes as doubles; the
last one runs two operators as processes on two real API servers.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from lab.kafka import KafkaLab
from lab.kubernetes.api import KubeApi
from lab.process import wait_until
from tests.contract.quota_store_contract import first as first_write
from tests.integration.conftest import CHECKOUT
from tests.integration.operator.installation import lay_out, one_leader_on_each_broker
from tests.integration.operator.operator_process import OperatorProcess
from tests.unit.control.stage import Stage
from tidegate.errors import Conflict
from tidegate.kafka.settings import ZooKeeperConnection
from tidegate.kafka.zookeeper.session import ZooKeeperSession
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore
from tidegate.kube.api import ObjectRef
from tidegate_logic.model import Entity, QuotaKey

pytestmark = pytest.mark.integration

PASSES = 40  # 10 minutes of passes
BOB = Entity("bob")


def _walk(client: KazooClient, path: str) -> Iterator[str]:
    for child in client.get_children(path):
        below = f"{path.rstrip('/')}/{child}"
        yield below
        yield from _walk(client, below)


def _versions(client: KazooClient) -> dict[str, Any]:
    """The last transaction of every quota, of the ledger, the claim and the notifications."""
    roots = ("/config", "/tidegate")
    return {
        path: client.get(path)[1].mzxid
        for root in roots
        for path in (root, *_walk(client, root))
        if client.exists(path)
    }


@pytest.fixture
def operators(chroot: str, chroot_client: KazooClient) -> Iterator[tuple[Stage, Stage]]:
    """Two operators, each with a Kubernetes and a session of its own. The second one's tiers name
    one user more.
    """
    lay_out(chroot_client, "memory-cluster")
    chroot_client.create("/brokers/topics/acc")
    stores = [ZooKeeperQuotaStore(ZooKeeperSession(ZooKeeperConnection(chroot))) for _ in range(2)]
    first, second = (Stage(store=store) for store in stores)
    yield first, second
    for store in stores:
        store.close()


def _declare(stage: Stage, *more: str) -> ObjectRef:
    policy = stage.policy(removal={"maxPercent": 100})
    stage.tier()
    for user in more:
        stage.tier(f"of-{user}", user=user, rate="5M")
    return policy


def _annotate(stage: Stage, policy: ObjectRef, named: str) -> None:
    annotations = {"tidegate.io/replace-claim": named}
    stage.kubernetes.edit(policy, lambda raw: raw["metadata"].update(annotations=annotations))


def _pass_in_turn(*stages: Stage) -> None:
    for _ in range(PASSES):
        for stage in stages:
            stage.now += 15
            stage.run()


def test_one_of_two_policies_of_one_name_writes_and_the_other_says_why_not(
    operators: tuple[Stage, Stage], chroot_client: KazooClient
) -> None:
    first, second = operators
    ours, theirs = _declare(first), _declare(second, "bob")
    first.run()
    second.run()
    versions = _versions(chroot_client)
    _pass_in_turn(second, first)
    assert _versions(chroot_client) == versions
    assert first.condition(ours) == ("True", "InSync")
    assert second.condition(theirs) == ("False", "ClaimedElsewhere")
    assert ours.uid in second.message(theirs)


def test_a_take_over_moves_the_claim_once_and_the_old_owner_stops(
    operators: tuple[Stage, Stage], chroot_client: KazooClient
) -> None:
    first, second = operators
    ours, theirs = _declare(first), _declare(second, "bob")
    first.run()
    _annotate(second, theirs, ours.uid)
    second.run()
    assert second.produce(BOB) == "5000000"
    _annotate(first, ours, theirs.uid)
    versions = _versions(chroot_client)
    _pass_in_turn(first, second)
    assert _versions(chroot_client) == versions
    assert first.condition(ours) == ("False", "ClaimedElsewhere")
    assert second.condition(theirs) == ("True", "InSync")
    reasons = {
        which: [event.reason for event in stage.kubernetes.events if event.regarding == policy]
        for which, stage, policy in (("first", first, ours), ("second", second, theirs))
    }
    assert reasons["first"].count("ClaimedElsewhere") == 1
    assert reasons["second"].count("ClaimTakenOver") == 1


def test_one_of_two_operators_of_one_policy_writes_and_what_it_wrote_either_gives_back(
    operators: tuple[Stage, Stage], chroot_client: KazooClient
) -> None:
    first, other = operators
    first.lease_namespace = "tidegate"
    first.restart()
    policy = _declare(first)
    first.run()
    second = Stage(kubernetes=first.kubernetes, store=other.store, lease_namespace="laptop")
    versions = _versions(chroot_client)
    _pass_in_turn(first, second)
    assert _versions(chroot_client) == versions
    assert second.condition(policy) == ("False", "ClaimedElsewhere")
    assert "with its Leases in namespace tidegate" in second.message(policy)

    _annotate(second, policy, f"{policy.uid}@1")
    second.run()
    assert second.store.facts().claim.lease_namespace == "laptop"
    versions = _versions(chroot_client)
    _pass_in_turn(second, first)
    assert _versions(chroot_client) == versions
    assert first.condition(policy) == ("False", "ClaimedElsewhere")

    first.kubernetes.delete(policy)
    first.run()
    assert first.produce() is None
    assert first.store.facts().claim is None


def test_an_operator_of_before_writes_no_more_once_its_successor_has_begun(
    operators: tuple[Stage, Stage], chroot_client: KazooClient
) -> None:
    """The one of before has its Lease in the policy's namespace, so it does not see the new one's.
    Its claim names no place.
    """
    first, other = operators
    policy = _declare(first)
    first.run()
    claim = json.loads(chroot_client.get("/tidegate/claim")[0])
    del claim["lease_namespace"]
    chroot_client.set("/tidegate/claim", json.dumps(claim | {"version": 2}).encode())
    decided_under = first.store.facts().claim
    second = Stage(kubernetes=first.kubernetes, store=other.store, lease_namespace="tidegate")
    second.run()
    assert second.condition(policy) == ("True", "InSync")
    decided = first_write(first.store.read([BOB])[BOB], {QuotaKey.PRODUCER_BYTE_RATE: "2048"})
    with pytest.raises(Conflict):
        first.store.write([decided], "memory-cluster", decided_under)
    stored = json.loads(chroot_client.get("/tidegate/claim")[0])
    # both formats of before are read exactly, and are refused otherwise
    assert (stored["version"], stored["epoch"]) == (3, 2)


# --- as processes, on two API servers and a real Kafka --------------------------------------------


@dataclass(frozen=True)
class KubernetesCluster:
    """One of the two, with an operator in it."""

    api: KubeApi
    namespace: str
    operator: OperatorProcess

    def kubectl(self, *arguments: str) -> str:
        return self.api.kubectl(*arguments, "--namespace", self.namespace)

    def declare(self, kafka: KafkaLab, topic: str, users: Sequence[str]) -> None:
        """A policy and a tier with these users."""
        connection = {
            "bootstrapServers": kafka.bootstrap_servers,
            "quotaStore": "ZooKeeper",
            "zookeeper": {"connect": kafka.zookeeper_connect},
        }
        contract = {"perPartition": {"produce": "1M"}}
        members = [
            {"name": user, "user": user, "topics": [topic], "contract": contract} for user in users
        ]
        specs = {
            "BusinessTier": {"policyRef": {"name": "orders"}, "level": "L0", "members": members},
            "BrokerBandwidthPolicy": {
                "mode": "Enforce",
                "kafka": connection,
                "removal": {"maxPercent": 100},
            },
        }
        items = [
            {
                "apiVersion": "tidegate.io/v1alpha1",
                "kind": kind,
                "metadata": {"name": "orders", "namespace": self.namespace},
                "spec": spec,
            }
            for kind, spec in specs.items()
        ]
        self.api.kubectl(
            "apply",
            "-f",
            "-",
            input=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}),
        )

    def is_ready(self, status: str, reason: str) -> bool:
        ready = self.ready()
        return (ready.get("status"), ready.get("reason")) == (status, reason)

    def ready(self) -> dict[str, str]:
        policy = json.loads(self.kubectl("get", "bbp", "orders", "--output", "json"))
        conditions = (policy.get("status") or {}).get("conditions") or []
        return next((one for one in conditions if one["type"] == "Ready"), {})

    def waits_for(self, status: str, reason: str) -> None:
        wait_until(
            lambda: self.is_ready(status, reason),
            f"Ready={status} {reason}",
            timeout_seconds=60,
        )

    def pass_often(self) -> None:
        """Wake the operator by edits of its policy that change no quota."""
        for changes in range(300, 305):
            before = self.operator.metrics().get("tidegate_passes_total", 0.0)
            patch = {"spec": {"writeBudget": {"changes": changes}}}
            self.kubectl("patch", "bbp", "orders", "--type=merge", "--patch", json.dumps(patch))
            wait_until(
                lambda: self.operator.metrics().get("tidegate_passes_total", 0.0) > before,  # noqa: B023
                "a pass after an edit",
                timeout_seconds=30,
            )

    def has_event(self, reason: str) -> bool:
        return bool(self.kubectl("get", "events", "--field-selector", f"reason={reason}").strip())


@pytest.fixture
def clusters(
    crds: KubeApi, namespace: str, tmp_path: Path
) -> Iterator[tuple[KubernetesCluster, KubernetesCluster]]:
    with ExitStack() as stack:
        other = stack.enter_context(KubeApi())
        other.install_crds(CHECKOUT / "crds")
        other.kubectl("create", "namespace", namespace)
        first, second = (
            KubernetesCluster(
                api,
                namespace,
                stack.enter_context(OperatorProcess(api, namespace, tmp_path, name=name)),
            )
            for name, api in (("first", crds), ("second", other))
        )
        yield first, second


@pytest.fixture
def in_kafka(kafka: KafkaLab) -> Iterator[KazooClient]:
    client = KazooClient(kafka.zookeeper_connect)
    client.start()
    yield client
    if client.exists("/tidegate/claim"):  # of a test that failed: no other may meet it
        client.delete("/tidegate", recursive=True)
    client.stop()
    client.close()


def _quotas(client: KazooClient, users: Sequence[str]) -> list[bool]:
    """Which of these users have a quota."""
    return [bool(client.exists(f"/config/users/{user}")) for user in users]


def test_two_api_servers_one_kafka_and_the_command_of_the_message_moves_the_claim(
    clusters: tuple[KubernetesCluster, KubernetesCluster],
    kafka: KafkaLab,
    in_kafka: KazooClient,
    unique_name: str,
) -> None:
    first, second = clusters
    users = [f"{unique_name}-{number}" for number in range(2)]
    one_leader_on_each_broker(kafka, unique_name)
    first.declare(kafka, unique_name, users[:1])
    first.waits_for("True", "InSync")
    second.declare(kafka, unique_name, users)
    second.waits_for("False", "ClaimedElsewhere")
    versions = _versions(in_kafka)
    second.pass_often()
    first.pass_often()
    assert _versions(in_kafka) == versions
    assert first.is_ready("True", "InSync")
    assert _quotas(in_kafka, users) == [True, False]

    message = second.ready()["message"]
    assert first.operator.identity in message
    second.api.kubectl(*shlex.split(message[message.index("kubectl annotate") :])[1:])
    second.waits_for("True", "InSync")
    assert _quotas(in_kafka, users) == [True, True]
    versions = _versions(in_kafka)
    first.pass_often()
    first.waits_for("False", "ClaimedElsewhere")
    second.pass_often()
    assert _versions(in_kafka) == versions
    for cluster, reason in ((first, "ClaimedElsewhere"), (second, "ClaimTakenOver")):
        wait_until(
            lambda: cluster.has_event(reason),  # noqa: B023
            f"an Event {reason}",
            timeout_seconds=30,
        )

    first.kubectl("delete", "bbp", "orders", "--timeout=60s")
    assert _versions(in_kafka) == versions
    second.kubectl("delete", "bbp", "orders", "--timeout=60s")
    assert _quotas(in_kafka, users) == [False, False]
    assert not in_kafka.exists("/tidegate/claim")
