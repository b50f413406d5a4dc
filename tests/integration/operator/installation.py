"""One policy with fifty members in five tiers, on one ZooKeeper tree. Its whole state can be
compared with another's.

The contract of all members is changed at once. A comparison leaves out what two installations may
differ in after the same changes: times, and the names of their namespace, their ZooKeeper and their
cluster.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from kazoo.client import KazooClient
from kubernetes.client import ApiClient, CoreV1Api, CustomObjectsApi

from lab.kafka import KafkaLab
from lab.process import wait_until
from tests.integration.conftest import SASL_USERS
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS, JsonObject, ResourceKind
from tidegate.observe.secrets_and_hosts import CREDENTIALS

TIERS, MEMBERS_PER_TIER = 5, 10
_TIMES = frozenset(
    {
        "lastTransitionTime",
        "since",
        "since_seconds",
        "written_at_seconds",
        "policy_uid",
        "holder",
        "epoch",  # a new process takes the claim over
    }
)
_LEASES = ("coordination.k8s.io", "v1")
LEASE_NAMESPACE = "default"


@dataclass
class Installation:
    """A policy and its tiers in one namespace.

    `users` are the members. Their quotas are in `zookeeper`, which must be started. `topic` has one
    leader on each broker.
    """

    api_client: ApiClient
    namespace: str
    zookeeper: KazooClient
    zookeeper_connect: str
    bootstrap_servers: str
    topic: str
    users: tuple[str, ...]

    @property
    def objects(self) -> CustomObjectsApi:
        return CustomObjectsApi(self.api_client)

    def install(self, rate: int) -> None:
        """Create the namespace, the policy, and tiers whose contract is `rate` bytes per second and
        partition for every member.
        """
        CoreV1Api(self.api_client).create_namespace({"metadata": {"name": self.namespace}})
        kafka = {
            "bootstrapServers": self.bootstrap_servers,
            "quotaStore": "ZooKeeper",
            "zookeeper": {"connect": self.zookeeper_connect},
        }
        spec = {"mode": "Enforce", "kafka": kafka, "writeBudget": {"changes": 10_000}}
        self._create(BROKER_BANDWIDTH_POLICIES, "orders", spec)
        for number in range(TIERS):
            self._create(BUSINESS_TIERS, f"tier-{number}", self._tier_spec(number, rate))

    def change_contracts(self, rate: int) -> None:
        """Change the contract of every member, tier after tier, as one `kubectl apply` does."""
        for number in range(TIERS):
            body = {"spec": self._tier_spec(number, rate)}
            self.objects.patch_namespaced_custom_object(
                *self._place(BUSINESS_TIERS), f"tier-{number}", body
            )

    def delete_lease(self) -> None:
        """Do what 12 s without a renewal do: no replica holds the policy any more. Only for a
        holder that is dead.
        """
        self.objects.delete_namespaced_custom_object(
            *_LEASES, LEASE_NAMESPACE, "leases", f"tidegate.{self.namespace}.orders"
        )

    def lease_holder(self) -> str:
        """The identity of the replica that holds the policy now."""
        lease = self.objects.get_namespaced_custom_object(
            *_LEASES, LEASE_NAMESPACE, "leases", f"tidegate.{self.namespace}.orders"
        )
        return str(lease["spec"].get("holderIdentity") or "")

    def quota(self, user: str) -> str | None:
        """The produce quota in ZooKeeper."""
        content = (
            json.loads(self.zookeeper.get(f"/config/users/{user}")[0])
            if self.zookeeper.exists(f"/config/users/{user}")
            else {}
        )
        quota: str | None = content.get("config", {}).get("producer_byte_rate")
        return quota

    def has_any(self, rate: int) -> bool:
        """Whether a quota of this rate was written already. Batches are written whole, so one
        member stands for its batch.
        """
        return any(self.quota(user) == str(rate) for user in self.users)

    def tiers_reporting(self, rate: int) -> int:
        """The number of tiers whose status has this rate for all their members."""
        return sum(self._reports(tier, rate) for tier in self._list(BUSINESS_TIERS))

    def is_settled(self, rate: int) -> bool:
        """Whether ZooKeeper and every status have this rate for all members."""
        if any(
            self.quota(user) != str(rate) for user in self.users
        ):  # the cheapest check first: it is made many times
            return False
        tiers, policies = self._list(BUSINESS_TIERS), self._list(BROKER_BANDWIDTH_POLICIES)
        counted = all(_counts(policy) == (len(self.users), len(self.users)) for policy in policies)
        return (
            counted
            and all(map(_is_ready, (*tiers, *policies)))
            and sum(self._reports(tier, rate) for tier in tiers) == TIERS
        )

    def settle(self, rate: int, *, timeout_seconds: float = 60.0) -> None:
        """Return once ZooKeeper and every status have this rate for all members."""
        wait_until(
            lambda: self.is_settled(rate),
            f"{rate} B/s everywhere in {self.namespace}",
            timeout_seconds=timeout_seconds,
        )

    def state(self) -> frozenset[str]:
        """Every quota, ledger record, status and finalizer, one text each, without what two
        installations may differ in.
        """
        znodes = {
            path: json.loads(self.zookeeper.get(path)[0] or b"null") for path in self._znodes()
        }
        objects = {
            f"{kind.kind}/{obj['metadata']['name']}": [
                obj.get("status"),
                obj["metadata"].get("finalizers"),
            ]
            for kind in (BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS)
            for obj in self._list(kind)
        }
        cluster_id = json.loads(self.zookeeper.get("/cluster/id")[0])["id"]
        own = (self.namespace, self.zookeeper_connect, cluster_id)
        return frozenset(
            _without(own, f"{name} {json.dumps(_timeless(part), sort_keys=True)}")
            for name, part in (znodes | objects).items()
        )

    def versions(self) -> dict[str, Any]:
        """The versions of everything that a writer could touch, to find out whether there was a
        write.
        """
        znodes = {path: self.zookeeper.get(path)[1].mzxid for path in self._znodes()}
        objects = [*self._list(BUSINESS_TIERS), *self._list(BROKER_BANDWIDTH_POLICIES)]
        return {
            **znodes,
            **{obj["metadata"]["uid"]: obj["metadata"]["resourceVersion"] for obj in objects},
        }

    def abandon(self) -> None:
        """Remove everything that could disturb other tests, also after a failure: claim, ledger,
        quotas, finalizers.
        """
        policies = self._place(BROKER_BANDWIDTH_POLICIES)
        for policy in self._list(BROKER_BANDWIDTH_POLICIES):
            name = policy["metadata"]["name"]
            self.objects.patch_namespaced_custom_object(
                *policies, name, {"metadata": {"finalizers": None}}
            )
            self.objects.delete_namespaced_custom_object(*policies, name)
        claim = (
            self.zookeeper.exists("/tidegate/claim") and self.zookeeper.get("/tidegate/claim")[0]
        )
        if claim and json.loads(claim)["policy_key"] == f"{self.namespace}/orders":
            self.zookeeper.delete("/tidegate", recursive=True)
        CoreV1Api(self.api_client).delete_namespace(self.namespace)

    def _znodes(self) -> list[str]:
        return [f"/config/users/{user}" for user in self.users] + list(
            _below(self.zookeeper, "/tidegate")
        )

    def _tier_spec(self, number: int, rate: int) -> JsonObject:
        users = self.users[number * MEMBERS_PER_TIER : (number + 1) * MEMBERS_PER_TIER]
        contract = {"perPartition": {"produce": str(rate)}}
        members = [
            {"name": user, "user": user, "topics": [self.topic], "contract": contract}
            for user in users
        ]
        return {"policyRef": {"name": "orders"}, "level": "L0", "members": members}

    def _create(self, kind: ResourceKind, name: str, spec: JsonObject) -> None:
        body = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name},
            "spec": spec,
        }
        self.objects.create_namespaced_custom_object(*self._place(kind), body)

    def _list(self, kind: ResourceKind) -> list[JsonObject]:
        found: list[JsonObject] = self.objects.list_namespaced_custom_object(*self._place(kind))[
            "items"
        ]
        return found

    def _place(self, kind: ResourceKind) -> tuple[str, str, str, str]:
        return kind.group, kind.version, self.namespace, kind.plural

    def _reports(self, tier: JsonObject, rate: int) -> bool:
        members = (tier.get("status") or {}).get("members") or []
        return len(members) == MEMBERS_PER_TIER and all(
            member.get("quota") == {"produce": rate} for member in members
        )


def lay_out(zookeeper: KazooClient, cluster_id: str) -> None:
    """Create the nodes of a Kafka that a writer of quotas reads."""
    for path in (
        "/brokers/ids",
        "/brokers/topics",
        "/config/brokers",
        "/config/changes",
        "/config/clients",
        "/config/topics",
    ):
        zookeeper.create(path, makepath=True)
    zookeeper.create("/config/users")
    zookeeper.create(
        "/controller", b'{"version":2,"brokerid":1,"timestamp":"0","kraftControllerEpoch":-1}'
    )
    zookeeper.create("/controller_epoch", b"1")
    zookeeper.create(
        "/cluster/id", json.dumps({"version": "1", "id": cluster_id}).encode(), makepath=True
    )


def one_leader_on_each_broker(kafka: KafkaLab, topic: str) -> None:
    """Create a topic with one leader on each broker, so that a rate per partition is the quota on
    each broker.
    """
    kafka.create_topic(topic, assignment=[[1], [2], [3]])


def one_of_each_kind(
    kafka: KafkaLab, namespace: str, topic: str, *, labels: dict[str, str] | None = None
) -> dict[str, Any]:
    """A List for `kubectl apply`: a login, a policy that uses it, a tier with one member, and an
    override of its quota. `labels` are those of the login's Secret, where not the right one.
    """
    if labels is None:
        labels = {CREDENTIALS: "true"}
    spec = {
        "mode": "Enforce",
        "kafka": {
            "bootstrapServers": kafka.sasl_bootstrap_servers,
            "quotaStore": "ZooKeeper",
            "zookeeper": {"connect": kafka.zookeeper_connect},
            "authentication": {
                "type": "plain",
                "username": SASL_USERS[0],
                "passwordSecret": {"secretName": "login", "password": "password"},
            },
        },
    }
    ends = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    password = {"password": kafka.password(SASL_USERS[0])}
    decided = {
        "target": {"user": topic},
        "action": "SetRates",
        "rates": {"perPartition": {"produce": "2M"}},
    }
    decided |= {"expiresAt": ends, "reason": "a test"}
    member = {
        "name": "all",
        "user": topic,
        "topics": [topic],
        "contract": {"perPartition": {"produce": "1M"}},
    }
    version = {"apiVersion": "tidegate.io/v1alpha1"}
    items = [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "login", "namespace": namespace, "labels": labels},
            "stringData": password,
        },
        {
            **version,
            "kind": "BrokerBandwidthPolicy",
            "metadata": {"name": "orders", "namespace": namespace},
            "spec": spec,
        },
        {
            **version,
            "kind": "BusinessTier",
            "metadata": {"name": "gold", "namespace": namespace},
            "spec": {"policyRef": {"name": "orders"}, "level": "L0", "members": [member]},
        },
        {
            **version,
            "kind": "QuotaOverride",
            "metadata": {"name": "more", "namespace": namespace},
            "spec": {"policyRef": {"name": "orders"}, **decided},
        },
    ]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _is_ready(obj: JsonObject) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or []
    generation = obj["metadata"]["generation"]
    return any(
        entry["type"] == "Ready"
        and entry["status"] == "True"
        and entry.get("observedGeneration") == generation
        for entry in conditions
    )


def _counts(policy: JsonObject) -> tuple[int, int] | None:
    """Quotas in sync, and quotas managed."""
    counts = (policy.get("status") or {}).get("quotas")
    return None if not counts else (counts["inSync"], counts["managed"])


def _without(names: Iterable[str], text: str) -> str:
    for name in names:
        text = text.replace(name, "OWN")
    return text


def _timeless(part: Any) -> Any:
    if isinstance(part, dict):
        return {key: _timeless(value) for key, value in part.items() if key not in _TIMES}
    return [_timeless(item) for item in part] if isinstance(part, list) else part


def _below(zookeeper: KazooClient, path: str) -> Iterator[str]:
    for child in sorted(zookeeper.get_children(path)) if zookeeper.exists(path) else ():
        yield f"{path}/{child}"
        yield from _below(zookeeper, f"{path}/{child}")
