"""Quotas go when that is meant: all of a policy that is deleted, and not those of tiers that go by
mistake, one after the other.
"""

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from lab.kafka import KafkaLab
from lab.kubernetes.api import KubeApi
from lab.process import CommandFailed, patience, wait_until
from lab.quota_watch import PRODUCE_KEY, ZooKeeperQuotaWatch
from tests.integration.conftest import SASL_USERS
from tests.integration.operator.installation import LEASE_NAMESPACE, lay_out
from tests.integration.operator.operator_process import OperatorProcess
from tests.unit.control.stage import Stage
from tidegate.errors import NotFound
from tidegate.kafka.settings import ZooKeeperConnection
from tidegate.kafka.zookeeper.session import ZooKeeperSession
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore
from tidegate.kube.api import BUSINESS_TIERS, ObjectRef

pytestmark = pytest.mark.integration

# --- a policy of a thousand members ---------------------------------------------------------------
# ZooKeeper is real. Kubernetes and the brokers are doubles, and so is the clock.


MEMBERS, TIERS = 1000, 4
ADOPTED_USER = "user-0007"
ADOPTED = (
    b'{"version":1,"config":{"SCRAM-SHA-256":"salt=c2FsdA==","producer_byte_rate":"10000000"}}'
)


@pytest.fixture
def stage(chroot: str, chroot_client: KazooClient) -> Iterator[Stage]:
    """An operator on this ZooKeeper."""
    lay_out(chroot_client, "memory-cluster")
    session = ZooKeeperSession(ZooKeeperConnection(chroot))
    stage = Stage(store=ZooKeeperQuotaStore(session))
    yield stage
    for controller in stage.controllers.values():
        controller.close()
    session.close()


def manage(stage: Stage) -> ObjectRef:
    """A policy with a thousand members, whose quotas are all in ZooKeeper."""
    policy = stage.policy()
    for number in range(TIERS):
        users = [f"user-{member:04}" for member in range(number, MEMBERS, TIERS)]
        members = [_member(user) for user in users]
        stage.kubernetes.create(
            BUSINESS_TIERS,
            {
                "metadata": {"name": f"tier-{number}", "namespace": "streaming"},
                "spec": {"policyRef": {"name": "orders"}, "level": "L0", "members": members},
            },
        )
    stage.run()
    assert stage.condition(policy) == ("True", "InSync")
    return policy


def _member(user: str) -> dict[str, Any]:
    return {"name": user, "user": user, "contract": {"perBroker": {"produce": "50M"}}}


def pass_until_gone(stage: Stage, policy: ObjectRef) -> float:
    """Passes as they fall due; how many seconds of the stage's clock it took."""
    began = stage.now
    while stage.now - began < 400:
        due_seconds = stage.run()
        try:
            stage.kubernetes.get(policy)
        except NotFound:
            return stage.now - began
        stage.now += max(due_seconds, 1.0)
    raise AssertionError(f"after {stage.now - began:.0f} s: {stage.message(policy)}")


def test_deleting_a_policy_of_a_thousand_members_leaves_nothing_of_ours(
    stage: Stage, chroot_client: KazooClient
) -> None:
    chroot_client.create(f"/config/users/{ADOPTED_USER}", ADOPTED)
    policy = manage(stage)
    assert len(stage.store.ledger_entities()) == MEMBERS
    stage.kubernetes.delete(policy)
    pass_until_gone(stage, policy)
    assert "RestoreIncomplete" not in stage.event_reasons()
    users = {
        user: chroot_client.get(f"/config/users/{user}")[0]
        for user in chroot_client.get_children("/config/users")
    }
    assert [user for user, data in users.items() if b"byte_rate" in data] == [ADOPTED_USER]
    assert b'"producer_byte_rate":"10000000"' in users[ADOPTED_USER]
    assert b'"SCRAM-SHA-256":"salt=c2FsdA=="' in users[ADOPTED_USER]
    assert stage.store.ledger_entities() == frozenset()
    assert stage.store.facts().owner_policy_key is None


# --- ten tiers, deleted one after the other -------------------------------------------------------
# Everything is real. Kafka's tree is a copy, so that no other test meets these quotas.

USERS = tuple(f"user-{number}" for number in range(10))
CONFIRM = "tidegate.io/confirm-removal"


def objects(kafka: KafkaLab, zookeeper: str, namespace: str) -> dict[str, Any]:
    """A policy with a confirmation that was left behind, and a tier for each user."""
    version = {"apiVersion": "tidegate.io/v1alpha1"}
    place = {"zookeeper": {"connect": zookeeper}, "quotaStore": "ZooKeeper"}
    spec = {"mode": "Enforce", "kafka": {**place, "bootstrapServers": kafka.bootstrap_servers}}
    policy = {
        **version,
        "kind": "BrokerBandwidthPolicy",
        "metadata": {"name": "orders", "namespace": namespace, "annotations": {CONFIRM: "10"}},
        "spec": spec,
    }
    tiers = [
        {
            **version,
            "kind": "BusinessTier",
            "metadata": {"name": user, "namespace": namespace},
            "spec": {"policyRef": {"name": "orders"}, "level": "L0", "members": [_member(user)]},
        }
        for user in USERS
    ]
    return {"apiVersion": "v1", "kind": "List", "items": [policy, *tiers]}


class Tiers:
    """What a person sees and does."""

    def __init__(self, api: KubeApi, namespace: str, zookeeper: KazooClient) -> None:
        self.api, self.namespace, self.zookeeper = api, namespace, zookeeper

    def managed(self) -> int:
        """How many of the users have a quota."""
        return sum(b"byte_rate" in self._data(user) for user in USERS)

    def _data(self, user: str) -> bytes:
        try:
            return bytes(self.zookeeper.get(f"/config/users/{user}")[0])
        except NoNodeError:  # with its last quota a node without anything else goes too
            return b""

    def has(self, count: int) -> None:
        wait_until(lambda: self.managed() == count, f"{count} quotas", timeout_seconds=60)

    def delete(self, *users: str) -> None:
        self.api.kubectl("delete", "bt", *users, "-n", self.namespace)

    def delete_all(self) -> None:
        tiers = f"/apis/tidegate.io/v1alpha1/namespaces/{self.namespace}/businesstiers"
        self.api.kubectl("delete", "--raw", tiers)

    def held(self, count: int) -> str:
        """The message of Ready when this many are held."""

        def message() -> str | None:
            policy = self.api.kubectl("get", "bbp", "orders", "-n", self.namespace, "-o", "json")
            conditions = (json.loads(policy).get("status") or {}).get("conditions") or []
            return next(
                (
                    str(one["message"])
                    for one in conditions
                    if (one["type"], one["reason"]) == ("Ready", "RemovalHeld")
                    and one["message"].startswith(f"{count} of 10 ")
                ),
                None,
            )

        return wait_until(message, f"{count} held", timeout_seconds=60)  # type: ignore[return-value]


def test_tiers_that_go_one_after_the_other_are_held_until_these_are_confirmed_once(
    crds: KubeApi,
    kafka: KafkaLab,
    chroot: str,
    chroot_client: KazooClient,
    namespace: str,
    tmp_path: Path,
) -> None:
    lay_out(chroot_client, kafka.cluster_id)
    declared = json.dumps(objects(kafka, chroot, namespace))
    crds.kubectl("apply", "-f", "-", input=declared)
    tiers = Tiers(crds, namespace, chroot_client)
    with OperatorProcess(crds, namespace, tmp_path) as operator:
        tiers.has(10)
        for user in USERS[:5]:
            tiers.delete(user)
        tiers.has(5)  # after the grace
        for number, user in enumerate(USERS[5:], start=1):
            tiers.delete(user)
            message = tiers.held(number)
        assert tiers.managed() == 5
        assert "its value now, 10, does not confirm this removal" in message
        command = message.partition(": kubectl ")[2].partition(" (its value")[0]
        confirmation = command.partition(f"{CONFIRM}=")[2].partition(" ")[0]
        assert confirmation in _plan(crds, namespace)
        crds.kubectl(*shlex.split(command))
        tiers.has(0)

        crds.kubectl(
            "apply", "--server-side", "--force-conflicts", "-f", "-", input=_tiers(declared)
        )
        tiers.has(10)
        with operator.stopped():  # or a busy machine deletes ten in as many passes
            tiers.delete_all()
        assert f"its value now, {confirmation}, does not confirm" in tiers.held(10)
        assert tiers.managed() == 10
        crds.kubectl("delete", "bbp", "orders", "-n", namespace, "--timeout=60s")
    assert tiers.managed() == 0
    assert chroot_client.exists("/tidegate/claim") is None


def _tiers(declared: str) -> str:
    """All but the policy, whose annotation stays."""
    whole = json.loads(declared)
    return json.dumps({**whole, "items": whole["items"][1:]})


def _plan(api: KubeApi, namespace: str) -> str:
    where = ["--kubeconfig", str(api.kubeconfig), "-n", namespace]
    command = [sys.executable, "-m", "tidegate", "plan", *where]
    return subprocess.run(command, capture_output=True, text=True, timeout=patience(90)).stdout


# --- a namespace with everything in it ------------------------------------------------------------
# The namespace controller deletes Secrets and tiers at once, and nothing new is let in. The quota
# from before is 10 MB/s, the contract 50: going back takes three steps, the first of them some time
# after the contract was written. With a quota window of 2 x 1 s they are six seconds apart, and with
# mutes of 3 s each of them halves what is in force.

SHORT_STEPS = {"kafka": {"quotaWindow": {"samples": 2}}, "escalation": {"maxMuteSeconds": 3}}
STEPS_SECONDS = 18.0
AFTER_THE_LAST_SECONDS = 30.0


def with_login(kafka: KafkaLab, zookeeper: str, namespace: str) -> str:
    """A policy that logs in with a Secret, and a tier with the adopted user."""
    login = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "login",
            "namespace": namespace,
            "labels": {"tidegate.io/credentials": "true"},
        },
        "stringData": {"password": kafka.password(SASL_USERS[0])},
    }
    policy = objects(kafka, zookeeper, namespace)["items"][0]
    policy["spec"]["escalation"] = SHORT_STEPS["escalation"]
    policy["spec"]["kafka"] |= {
        **SHORT_STEPS["kafka"],
        "bootstrapServers": kafka.sasl_bootstrap_servers,
        "authentication": {
            "type": "plain",
            "username": SASL_USERS[0],
            "passwordSecret": {"secretName": "login", "password": "password"},
        },
    }
    tier = {
        "apiVersion": "tidegate.io/v1alpha1",
        "kind": "BusinessTier",
        "metadata": {"name": "gold", "namespace": namespace},
        "spec": {
            "policyRef": {"name": "orders"},
            "level": "L0",
            "members": [_member(ADOPTED_USER)],
        },
    }
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [login, policy, tier]})


def rate_of_the_adopted(zookeeper: KazooClient) -> int:
    content = json.loads(zookeeper.get(f"/config/users/{ADOPTED_USER}")[0])
    return int(content["config"]["producer_byte_rate"])


def is_there(api: KubeApi, *what: str) -> bool:
    return api.kubectl("get", *what, "--ignore-not-found", "-o", "name") != ""


def test_a_namespace_goes_when_every_quota_was_given_back_in_safe_steps(
    crds: KubeApi,
    kafka: KafkaLab,
    chroot: str,
    chroot_client: KazooClient,
    namespace: str,
    tmp_path: Path,
) -> None:
    lay_out(chroot_client, kafka.cluster_id)
    chroot_client.create(f"/config/users/{ADOPTED_USER}", ADOPTED)
    crds.kubectl("apply", "-f", "-", input=with_login(kafka, chroot, namespace))
    with (
        ZooKeeperQuotaWatch(chroot, [ADOPTED_USER], PRODUCE_KEY) as watch,
        OperatorProcess(crds, namespace, tmp_path) as operator,
    ):
        crds.kubectl(
            "wait", "--for=condition=Ready", "bbp/orders", "-n", namespace, "--timeout=60s"
        )
        assert rate_of_the_adopted(chroot_client) == 50_000_000
        crds.kubectl("delete", "namespace", namespace, "--wait=false")
        began = time.monotonic()
        wait_until(
            lambda: not is_there(crds, "namespace", namespace),
            "the namespace to go",
            timeout_seconds=STEPS_SECONDS + AFTER_THE_LAST_SECONDS,
            poll_seconds=0.5,
        )
        rates = [write.after for write in watch.writes()]
        print(f"gone after {time.monotonic() - began:.1f} s: {rates}")
        # a watch misses none of them, as a look now and then would on a busy machine
        assert rates[rates.index(50_000_000) :] == [50_000_000, 25_000_000, 12_500_000, 10_000_000]
        assert rate_of_the_adopted(chroot_client) == 10_000_000
        assert chroot_client.exists("/tidegate/claim") is None
        lease = ("lease", f"tidegate.{namespace}.orders", "-n", LEASE_NAMESPACE)
        wait_until(lambda: not is_there(crds, *lease), "the Lease to go", timeout_seconds=10)
        assert [line for line in operator.lines() if line["event"] == "Lease lost"] == []
    with pytest.raises(CommandFailed, match="not found"):
        crds.kubectl("get", "namespace", namespace)
