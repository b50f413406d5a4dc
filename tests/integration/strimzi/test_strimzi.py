"""Beside Strimzi on a real API server with the KafkaUser resource, and on a real broker with a
stand-in for the User Operator.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client as kubernetes_client

from lab.kraft import KraftLab
from lab.kubernetes.api import KubeApi
from lab.process import patience, wait_until
from tests.doubles.user_operator import UserOperator, kafka_user
from tests.integration.kafka.admin_world import AdminWorld, around
from tests.integration.operator.operator_process import OperatorProcess
from tidegate.errors import NotFound, Unauthorized
from tidegate.kafka.adminapi.quotas import alter, describe
from tidegate.kube.client import KubernetesClient, connect
from tidegate.observe.strimzi import StrimziPlace, kafka_users_now, list_kafka_users
from tidegate_logic.model import Entity, QuotaKey

pytestmark = pytest.mark.integration

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[2] / "examples" / "strimzi"
CRD = HERE / "kafkausers.yaml"
PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
POLL_SECONDS = 15


def apply(api: KubeApi, *items: Mapping[str, Any]) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": list(items)}
    api.kubectl("apply", "-f", "-", input=json.dumps(listed))


@pytest.fixture
def strimzi(crds: KubeApi) -> Iterator[KubeApi]:
    """The API server with KafkaUsers, for this test alone."""
    crds.install_crds(CRD)
    yield crds
    crds.kubectl("delete", "crd", "kafkausers.kafka.strimzi.io", "--timeout=60s")


def is_served(api: KubeApi, place: StrimziPlace) -> bool:
    try:
        list_kafka_users(KubernetesClient(connect(api.kubeconfig), "test"), place)
    except NotFound:
        return False
    return True


# --- the API server -------------------------------------------------------------------------------


def test_without_strimzi_there_are_no_kafka_users(crds: KubeApi, namespace: str) -> None:
    kubernetes = KubernetesClient(connect(crds.kubeconfig), "test")
    assert kafka_users_now(kubernetes)(StrimziPlace(namespace, "orders")) is None
    with pytest.raises(NotFound, match="serves no KafkaUsers"):
        list_kafka_users(kubernetes, StrimziPlace(namespace, "orders"))


@pytest.mark.parametrize("version", ["v1", "v1beta2"])
def test_kafka_users_are_read_in_the_version_that_is_served(
    crds: KubeApi, namespace: str, tmp_path: Path, version: str
) -> None:
    definition = yaml.safe_load(CRD.read_text(encoding="utf-8"))
    definition["spec"]["versions"][0]["name"] = version
    (tmp_path / "kafkausers.yaml").write_text(yaml.safe_dump(definition))
    place = StrimziPlace(namespace, "orders")
    crds.install_crds(tmp_path / "kafkausers.yaml")
    try:
        wait_until(lambda: is_served(crds, place), "KafkaUsers to be served", timeout_seconds=30)
        for user in (
            kafka_user("alice", quotas={"producerByteRate": 3_000_000}, namespace=namespace),
            kafka_user("search", login="tls", quotas={}, namespace=namespace),
            kafka_user("other", namespace=namespace, cluster="another"),
        ):
            apply(crds, {**user, "apiVersion": f"kafka.strimzi.io/{version}"})
        found = kafka_users_now(KubernetesClient(connect(crds.kubeconfig), "test"))(place)
        assert found is not None
        assert {
            name: (one.kafka_name, one.declares_quotas) for name, one in (found.users or {}).items()
        } == {"alice": ("alice", True), "search": ("CN=search", True)}
    finally:
        crds.kubectl("delete", "crd", "kafkausers.kafka.strimzi.io", "--timeout=60s")


def test_the_example_of_rights_is_enough_to_list_them_and_for_nothing_else(
    strimzi: KubeApi, namespace: str, tmp_path: Path
) -> None:
    place = StrimziPlace(namespace, "orders")
    wait_until(lambda: is_served(strimzi, place), "KafkaUsers to be served", timeout_seconds=30)
    strimzi.kubectl("create", "serviceaccount", "tidegate", "-n", namespace)
    token = strimzi.kubectl("create", "token", "tidegate", f"-n={namespace}", "--duration=1h")
    kubeconfig = strimzi.kubeconfig_for(token=token.strip(), path=tmp_path / "tidegate.kubeconfig")
    kubernetes = KubernetesClient(connect(kubeconfig), "test")
    with pytest.raises(Unauthorized):
        list_kafka_users(kubernetes, place)
    before = kafka_users_now(kubernetes)(place)
    assert before is not None
    assert (before.users, before.unread) == (None, "")
    rights = list(yaml.safe_load_all((EXAMPLES / "rights.yaml").read_text(encoding="utf-8")))
    for one in rights:
        one["metadata"]["namespace"] = namespace
        for subject in one.get("subjects", ()):
            subject["namespace"] = namespace
    apply(strimzi, *rights)
    wait_until(
        lambda: (kafka_users_now(kubernetes)(place) or before).users == {},
        "the right",
        timeout_seconds=30,
    )
    custom = kubernetes_client.CustomObjectsApi(connect(kubeconfig))
    for call in ("get_namespaced_custom_object", "delete_namespaced_custom_object"):
        with pytest.raises(kubernetes_client.ApiException, match="403"):
            getattr(custom, call)("kafka.strimzi.io", "v1", namespace, "kafkausers", "alice")


def test_what_the_examples_have_of_strimzis_kinds_is_accepted(
    strimzi: KubeApi, namespace: str
) -> None:
    place = StrimziPlace(namespace, "orders")
    wait_until(lambda: is_served(strimzi, place), "KafkaUsers to be served", timeout_seconds=30)
    for one in yaml.safe_load_all((EXAMPLES / "tidegate-user.yaml").read_text(encoding="utf-8")):
        one["metadata"]["namespace"] = namespace
        strimzi.kubectl(
            "create", "-f", "-", "--dry-run=server", "--validate=strict", input=json.dumps(one)
        )


# --- operator, broker, and a stand-in for the User Operator ---------------------------------------


class Cluster:
    """A Strimzi cluster as Tidegate meets it: KafkaUsers in Kubernetes, their quotas in Kafka."""

    def __init__(self, api: KubeApi, world: AdminWorld, namespace: str, unique_name: str) -> None:
        self.api, self.world, self.namespace = api, world, namespace
        self.shop, self.etl = f"{unique_name}-shop", f"{unique_name}-etl"
        self.theirs = UserOperator(self._quotas, self._write, self._kafka_users)

    def _quotas(self) -> dict[Entity, Mapping[QuotaKey, str]]:
        return describe(self.world.others, None, self.world.topic)

    def _write(self, entity: Entity, values: Mapping[QuotaKey, str | None]) -> None:
        alter(self.world.others, {entity: values}, self.world.topic)

    def _kafka_users(self) -> list[Mapping[str, Any]]:
        answer = self.api.kubectl("get", "kafkausers", "-n", self.namespace, "-o", "json")
        return list(json.loads(answer)["items"])

    def produce(self, user: str) -> str | None:
        return self.world.quotas(Entity(user)).get(PRODUCE)

    def reconcile_until(self, user: str, rate: str | None) -> None:
        """Their full reconciliation, and the broker's answer after it."""
        self.theirs.reconcile_all()
        wait_until(lambda: self.produce(user) == rate, f"{user} at {rate}", timeout_seconds=10)

    def declare(self) -> None:
        version = {"apiVersion": "tidegate.io/v1alpha1"}
        kafka = {
            "bootstrapServers": self.world.settings.bootstrap_servers[0],
            "ledgerTopic": self.world.topic,
            "strimzi": {"cluster": "orders"},
        }
        members = [
            {"name": user, "user": user, "contract": {"perBroker": {"produce": "10M"}}}
            for user in (self.shop, self.etl)
        ]
        policy = {
            **version,
            "kind": "BrokerBandwidthPolicy",
            "metadata": {"name": "orders", "namespace": self.namespace},
            "spec": {"mode": "Enforce", "kafka": kafka},
        }
        tiers = [
            {
                **version,
                "kind": "BusinessTier",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {"policyRef": {"name": "orders"}, "level": "L0", "members": [member]},
            }
            for name, member in zip(("shop", "etl"), members, strict=True)
        ]
        apply(self.api, policy, *tiers)

    def patch_user(self, user: str, patch: Mapping[str, Any]) -> None:
        self.api.kubectl(
            *("patch", "kafkauser", user, "-n", self.namespace),
            *("--type=merge", f"--patch={json.dumps(patch)}"),
        )

    def ready(self, name: str) -> tuple[str, str, str]:
        found = json.loads(self.api.kubectl("get", name, "-n", self.namespace, "-o", "json"))
        conditions = (found.get("status") or {}).get("conditions") or []
        ready = next((one for one in conditions if one["type"] == "Ready"), {})
        return ready.get("status", ""), ready.get("reason", ""), ready.get("message", "")

    def wait_for(self, name: str, reason: str) -> str:
        wait_until(
            lambda: self.ready(name)[1] == reason,
            f"{name} to be {reason}",
            timeout_seconds=POLL_SECONDS * 2 + 30,
            poll_seconds=0.5,
        )
        return self.ready(name)[2]

    def tidegate(self, *arguments: str) -> str:
        where = ["--kubeconfig", str(self.api.kubeconfig), "-n", self.namespace]
        ended = subprocess.run(
            [sys.executable, "-m", "tidegate", *arguments, *where],
            capture_output=True,
            text=True,
            timeout=patience(90),
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout


@pytest.fixture
def cluster(
    strimzi: KubeApi, kraft: KraftLab, namespace: str, unique_name: str
) -> Iterator[Cluster]:
    place = StrimziPlace(namespace, "orders")
    wait_until(lambda: is_served(strimzi, place), "KafkaUsers to be served", timeout_seconds=30)
    for world in around(kraft, unique_name):
        yield Cluster(strimzi, world, namespace, unique_name)


@pytest.mark.long
def test_the_operator_lives_beside_a_user_operator(cluster: Cluster, tmp_path: Path) -> None:
    declared = {"producerByteRate": 3_000_000, "consumerByteRate": 4_000_000}
    apply(
        cluster.api,
        kafka_user(cluster.shop, quotas=declared, namespace=cluster.namespace),
        kafka_user(cluster.etl, namespace=cluster.namespace),
    )
    cluster.reconcile_until(cluster.shop, "3000000")
    cluster.declare()
    with OperatorProcess(cluster.api, cluster.namespace, tmp_path) as operator:
        message = cluster.wait_for("bt/shop", "OwnedByStrimzi")
        assert f"KafkaUser {cluster.namespace}/{cluster.shop} declares the quotas" in message
        wait_until(
            lambda: cluster.produce(cluster.etl) == "10000000", "the contract", timeout_seconds=30
        )

        # the User Operator removes what its KafkaUser does not declare, every two minutes
        for _ in range(2):
            cluster.reconcile_until(cluster.etl, None)
            wait_until(
                lambda: cluster.produce(cluster.etl) == "10000000",
                "the quota to be put back",
                timeout_seconds=POLL_SECONDS + 15,
            )
        cluster.reconcile_until(cluster.etl, None)
        message = cluster.wait_for("bt/etl", "Contended")
        assert f"KafkaUser {cluster.namespace}/{cluster.etl} declares no quotas" in message
        text = cluster.tidegate("explain", "--user", cluster.etl, "--policy", "orders")
        assert "declares no quotas, so Strimzi's User Operator removes any" in text
        text = cluster.tidegate("explain", "--user", cluster.shop, "--policy", "orders")
        assert "declares the quotas of" in text
        imported = list(yaml.safe_load_all(cluster.tidegate("import", "--strimzi")))
        assert imported == [], "both are in tiers already"

        # paused, as the message says, and asked for at once
        paused = {"metadata": {"annotations": {"strimzi.io/pause-reconciliation": "true"}}}
        cluster.patch_user(cluster.etl, paused)
        cluster.tidegate("resync", f"{cluster.namespace}/orders")
        wait_until(
            lambda: cluster.produce(cluster.etl) == "10000000",
            "the quota after the resync",
            timeout_seconds=POLL_SECONDS + 15,
        )
        cluster.reconcile_until(cluster.etl, "10000000")

        # handed over: out of the KafkaUser, which is paused
        assert cluster.produce(cluster.shop) == "3000000"
        cluster.patch_user(cluster.shop, {**paused, "spec": {"quotas": None}})
        wait_until(
            lambda: cluster.produce(cluster.shop) == "10000000",
            "the contract of the user that was Strimzi's",
            timeout_seconds=2 * POLL_SECONDS + 30,
        )
        cluster.wait_for("bt/shop", "Contract")

        # and taken back
        taken = {
            "metadata": {"annotations": {"strimzi.io/pause-reconciliation": None}},
            "spec": {"quotas": declared},
        }
        cluster.patch_user(cluster.shop, taken)
        cluster.wait_for("bt/shop", "OwnedByStrimzi")
        cluster.reconcile_until(cluster.shop, "3000000")
        cluster.api.kubectl("delete", "bbp", "orders", "-n", cluster.namespace, "--timeout=90s")
        assert operator.is_running()
    assert cluster.world.quotas(Entity(cluster.shop)) == {PRODUCE: "3000000", FETCH: "4000000"}
    assert cluster.produce(cluster.etl) is None
