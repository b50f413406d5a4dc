"""What the benchmarks of the whole operator stand on.

Three real brokers with ZooKeeper, a real API server, the operator as a process.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from kazoo.client import KazooClient
from kubernetes import client, config

from lab import process
from lab.kafka import BrokersLab, KafkaLab
from lab.kraft import KraftLab
from lab.kubernetes.api import KubeApi
from lab.operator import operator_command
from lab.process import Process, wait_until
from lab.prometheus import PrometheusLab
from tidegate.kafka.adminapi.client import AdminClient
from tidegate.kafka.adminapi.quotas import alter
from tidegate.kafka.adminapi.store import LEDGER_TOPIC
from tidegate.kafka.settings import KafkaConnection
from tidegate_logic.model import Entity, QuotaKey

CRDS = Path(__file__).parent.parent.parent / "crds"
GROUP, VERSION, NAMESPACE, POLICY, TOPIC = "tidegate.io", "v1alpha1", "bench", "bench", "bench"
TIERS = 10
_MERGE_PATCH = "application/merge-patch+json"
_RAISE = 1_000  # bytes/s


@dataclass(frozen=True)
class OnKubernetes:
    """A real API server with an operator, and our own access to its objects."""

    kube: KubeApi
    operator: Process
    objects: client.CustomObjectsApi

    def listed(self, plural: str) -> list[dict[str, Any]]:
        """All objects of a kind in the benchmark's namespace, status included."""
        answer = self.objects.list_namespaced_custom_object(GROUP, VERSION, NAMESPACE, plural)
        return list(answer["items"])

    def read(self, plural: str, name: str) -> dict[str, Any]:
        """One object of the benchmark's namespace, status included."""
        return dict(
            self.objects.get_namespaced_custom_object(GROUP, VERSION, NAMESPACE, plural, name)
        )

    def create(self, plural: str, resource: dict[str, Any]) -> None:
        """Create one object."""
        self.objects.create_namespaced_custom_object(GROUP, VERSION, NAMESPACE, plural, resource)

    def delete(self, plural: str, name: str) -> None:
        """Delete one object; the operator may still be about it when this returns."""
        self.objects.delete_namespaced_custom_object(GROUP, VERSION, NAMESPACE, plural, name)

    def create_tiers(self, entities: int) -> None:
        """Ten tiers with `entities` contracts."""
        for number in range(TIERS):
            self.create("businesstiers", tier(number, entities))

    def raise_contract(self) -> tuple[float, int]:
        """Send a raise of one member's contract: when that was, and the new rate."""
        rate = _rate(self.read("businesstiers", "tier-0")) + _RAISE
        path = "/spec/members/0/contract/perPartition/produce"
        sent_seconds = time.time()
        self.objects.patch_namespaced_custom_object(
            GROUP,
            VERSION,
            NAMESPACE,
            "businesstiers",
            "tier-0",
            [{"op": "replace", "path": path, "value": str(rate)}],
            _content_type="application/json-patch+json",
        )
        return sent_seconds, rate

    def wait(
        self,
        condition: Callable[[], object],
        what: str,
        *,
        poll_seconds: float = 0.05,
        timeout_seconds: float = 240.0,
    ) -> None:
        """As `lab.process.wait_until`, as long as the operator runs."""
        wait_until(
            condition,
            what,
            timeout_seconds=timeout_seconds,
            processes=[self.operator],
            poll_seconds=poll_seconds,
        )

    def wait_for_status(self, entities: int) -> None:
        """Return once every status has all `entities` in sync.

        The tiers are asked one by one, and only afterwards: they are large, and to list them all
        the time is half of the server's work.
        """
        self.wait(partial(self._policy_reports, entities), "the policy's status")
        for number in range(TIERS):
            self.wait(partial(self._tier_reports, f"tier-{number}"), "every status")

    def wait_for_member(self, quota: int) -> None:
        """Return once the status shows this quota of the member that `raise_contract` raises."""

        def shows() -> bool:
            member = self.read("businesstiers", "tier-0")["status"]["members"][0]
            return bool(member.get("quota", {}).get("produce") == quota)

        self.wait(shows, "the status of the change", poll_seconds=0.1)

    def _policy_reports(self, entities: int) -> bool:
        known = self.read("brokerbandwidthpolicies", POLICY)
        quotas = (known.get("status") or {}).get("quotas", {})
        return is_true(known, "Ready") and quotas.get("inSync") == entities

    def _tier_reports(self, name: str) -> bool:
        return is_true(self.read("businesstiers", name), "Ready")


def is_true(resource: Mapping[str, Any], condition: str) -> bool:
    """Whether the status says so."""
    conditions = (resource.get("status") or {}).get("conditions") or ()
    return any(one["type"] == condition and one["status"] == "True" for one in conditions)


def _rate(tier: Mapping[str, Any]) -> int:
    return int(tier["spec"]["members"][0]["contract"]["perPartition"]["produce"])


@dataclass(frozen=True)
class World(OnKubernetes):
    """The running parts and our own read access to them."""

    kafka: KafkaLab
    zookeeper: KazooClient


@dataclass(frozen=True)
class KraftWorld(OnKubernetes):
    """The same with a Kafka that has no ZooKeeper."""

    kafka: KraftLab


@contextmanager
def kraft_world(
    brokers: int,
    *,
    used: bool = True,
    server_properties: Mapping[str, str] | None = None,
    ledger_replicas: Sequence[int] = (),
) -> Iterator[KraftWorld]:
    """Kafka 4 on as many brokers, each a controller, and the rest as in `world`.

    With `used` they have had a transaction and a quota before, as a cluster in use has: for the
    first transaction ever, Kafka makes a topic. The ledger's topic and the log of transactions are
    on `ledger_replicas`, of which the first one that lives leads; without them Kafka chooses.
    """
    with ExitStack() as stack:
        kafka = stack.enter_context(KraftLab(brokers=brokers, server_properties=server_properties))
        kafka.create_topic(TOPIC, [[1, 2], [2, 3], [3, 1]] if brokers == 3 else [[1], [1], [1]])
        if ledger_replicas:
            settings = {"cleanup.policy": "compact", "min.insync.replicas": "2"}
            kafka.create_topic(LEDGER_TOPIC, [ledger_replicas], config=settings)
            kafka.create_topic("__transaction_state", 3 * [ledger_replicas], config=settings)
        if used:
            _use(kafka)
        on = stack.enter_context(operator_beside(kafka))
        yield KraftWorld(on.kube, on.operator, on.objects, kafka)


def _use(kafka: KraftLab) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "bench"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(TOPIC, b"used")
    producer.commit_transaction(30)
    client = AdminClient(KafkaConnection(tuple(kafka.bootstrap_servers.split(","))))
    somebody = Entity("somebody")
    for rate in ("1000000", None):
        answer = alter(client, {somebody: {QuotaKey.PRODUCER_BYTE_RATE: rate}}, "unused")
        if answer != {somebody: None}:
            raise RuntimeError(f"The brokers did not take a quota: {answer}")
    client.close()


@contextmanager
def world(brokers: int = 3) -> Iterator[World]:
    """Everything running: an empty namespace, a topic of three partitions, an idle operator."""
    with ExitStack() as stack:
        kafka = stack.enter_context(KafkaLab(brokers=brokers))
        kafka.create_topic(TOPIC, [[1, 2], [2, 3], [3, 1]] if brokers == 3 else [[1], [1], [1]])
        on = stack.enter_context(operator_beside(kafka))
        zookeeper = KazooClient(kafka.zookeeper_connect)
        zookeeper.start()
        stack.callback(zookeeper.close)
        stack.callback(zookeeper.stop)
        yield World(on.kube, on.operator, on.objects, kafka, zookeeper)


@contextmanager
def operator_beside(kafka: BrokersLab, log: Path | None = None) -> Iterator[OnKubernetes]:
    """A Kubernetes API and an operator, for this Kafka cluster and any number of others."""
    with ExitStack() as stack:
        kube = stack.enter_context(KubeApi())
        kube.install_crds(CRDS)
        kube.kubectl("create", "namespace", NAMESPACE)
        objects = client.CustomObjectsApi(config.new_client_from_config(str(kube.kubeconfig)))
        _warm_up(kube, objects, kafka)
        yield OnKubernetes(kube, _operator(stack, kube, log), objects)


def _operator(stack: ExitStack, kube: KubeApi, log: Path | None) -> Process:
    log = (
        log
        or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-bench-")))
        / "operator.log"
    )
    argv = operator_command(kube.kubeconfig, NAMESPACE)
    operator = stack.enter_context(process.start("operator", argv, log_path=log, niceness=0))
    wait_until(
        lambda: log.exists() and log.stat().st_size > 0,
        "the operator to say something",
        timeout_seconds=30,
        processes=[operator],
    )
    return operator


def _warm_up(kube: KubeApi, objects: client.CustomObjectsApi, kafka: BrokersLab) -> None:
    """Have the API server compile the rules of both kinds.

    It does so at the first object of a kind, and takes seconds for it.
    """
    kube.kubectl("create", "namespace", "warm-up")
    for plural, one in (
        ("brokerbandwidthpolicies", policy(kafka)),
        ("businesstiers", tier(0, TIERS)),
    ):
        place = (GROUP, VERSION, "warm-up", plural)
        objects.create_namespaced_custom_object(*place, one)
        name = one["metadata"]["name"]
        objects.patch_namespaced_custom_object_status(
            *place, name, {"status": {"observedGeneration": 1}}, _content_type=_MERGE_PATCH
        )
        objects.delete_namespaced_custom_object(*place, name)


def tier(number: int, entities: int) -> dict[str, Any]:
    """One BusinessTier with its share of `entities` users, each with a contract on the topic."""
    members = [
        {
            "name": f"member-{index}",
            "user": f"user-{index}",
            "topics": [TOPIC],
            "contract": {
                "perPartition": {"fetch": str(2_000_000 + index), "produce": str(1_000_000 + index)}
            },
        }
        for index in range(number, entities, TIERS)
    ]
    spec = {"policyRef": {"name": POLICY}, "level": "L0", "members": members}
    return resource("BusinessTier", f"tier-{number}", spec)


def policy(kafka: BrokersLab, deletion: str = "Retain", name: str = POLICY) -> dict[str, Any]:
    """The BrokerBandwidthPolicy for this Kafka, in mode Enforce."""
    connection: dict[str, Any] = {"bootstrapServers": kafka.bootstrap_servers}
    if isinstance(kafka, KafkaLab):
        connection |= {
            "quotaStore": "ZooKeeper",
            "zookeeper": {"connect": kafka.zookeeper_connect},
        }
    spec = {"mode": "Enforce", "kafka": connection, "deletionPolicy": deletion}
    return resource("BrokerBandwidthPolicy", name, spec)


def metrics_of(kafka: BrokersLab, prometheus: PrometheusLab) -> dict[str, Any]:
    """spec.metrics of its policy: a NIC for each broker, where it has one, read every second."""
    return {
        "prometheus": {"url": prometheus.url},
        "preset": "JmxExporter" if kafka.network is None else "NodeExporter",
        "brokerIdentity": {"label": "broker"},
        "scrapeIntervalSeconds": 1,
        "staleAfterSeconds": 15,
    }


def resource(kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """One of our objects."""
    version = f"{GROUP}/{VERSION}"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": dict(spec)}
