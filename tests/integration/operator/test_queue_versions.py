"""Operators and CRDs of several versions, with DelayQueues and without: quotas follow contracts as
before, and queues are left alone by an operator that does not serve them.

`QUEUES_OLDER_CHECKOUT=<directory>` plays what is said of an operator without queues with the
operator of that checkout as well, such as one of a version before DelayQueues.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import config as kubernetes_config
from kubernetes.client import ApiException

from lab.kraft import KraftLab
from lab.kubernetes.api import KubeApi
from lab.process import started, wait_until
from tests.contract.quota_store_contract import PRODUCE
from tests.integration.conftest import CHECKOUT
from tests.integration.connections import connection_of
from tests.integration.kafka.admin_world import AdminWorld
from tests.integration.operator.operator_process import OperatorProcess
from tests.integration.operator.test_queues import IMAGE, World
from tidegate.control.queues.report import DRAIN_FINALIZER
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS
from tidegate_logic.model import Entity

pytestmark = pytest.mark.integration

CRD = CHECKOUT / "crds" / "tidegate.io_delayqueues.yaml"
FIELDS_OF_LATER = ("cancellable", "arbitraryDelays", "shift")  # the first CRD did not have them
SERVING = ("--forwarder-image", IMAGE)
LATER_SPEC: dict[str, Any] = {
    "cancellable": True,
    "arbitraryDelays": True,
    "shift": {"latestSeconds": 3600, "rate": "20M"},
}
MB = 1_000_000
OLDER = os.environ.get("QUEUES_OLDER_CHECKOUT") or ""
WITHOUT_QUEUES = ["", *([OLDER] if OLDER else [])]


@pytest.fixture(scope="module")
def own_api() -> Iterator[KubeApi]:
    """A Kubernetes API of these tests alone, whose CRDs they change."""
    with started(KubeApi) as api:
        api.install_crds(CHECKOUT / "crds")
        yield api


@dataclass
class Installation(World):
    """A policy with one member, whose contract the test raises, and queues beside it."""

    api: KubeApi = None  # type: ignore[assignment]
    kafka: AdminWorld = None  # type: ignore[assignment]
    rate: int = 5 * MB

    @property
    def user(self) -> str:
        return self.namespace

    def install(self) -> None:
        """The policy, and a tier with the member."""
        spec = {
            "mode": "Enforce",
            "kafka": {
                "bootstrapServers": self.bootstrap_servers,
                "ledgerTopic": f"ledger-{self.namespace}",
            },
        }
        metadata = {"name": "orders", "namespace": self.namespace}
        policy = {**self.policy, "metadata": metadata, "spec": spec}
        self.kubernetes.create(BROKER_BANDWIDTH_POLICIES, policy)
        tier = {
            "apiVersion": BUSINESS_TIERS.api_version,
            "kind": BUSINESS_TIERS.kind,
            "metadata": {"name": "orders", "namespace": self.namespace},
            "spec": self._tier_spec(),
        }
        self.kubernetes.create(BUSINESS_TIERS, tier)

    def expect_control(self, operator: OperatorProcess) -> None:
        """Raise the contract, and return once Kafka has its rate as the member's quota."""
        self.rate += MB
        self._objects.patch_namespaced_custom_object(
            "tidegate.io",
            "v1alpha1",
            self.namespace,
            "businesstiers",
            "orders",
            {"spec": self._tier_spec()},
        )
        wait_until(
            lambda: self.kafka.quotas(Entity(self.user)).get(PRODUCE) == str(self.rate),
            f"the quota of {self.rate} B/s",
            timeout_seconds=60,
        )
        assert operator.is_running()
        assert operator.liveness() == 200

    def ready(self, name: str = "unpaid") -> str:
        """The reason of the queue's condition Ready."""
        conditions = ((self.raw(name) or {}).get("status") or {}).get("conditions") or ()
        return next((str(one["reason"]) for one in conditions if one["type"] == "Ready"), "")

    def wait_ready(self, name: str = "unpaid") -> None:
        """No Pod of it ever runs here, so a queue that is looked after is starting."""
        wait_until(
            lambda: self.ready(name) in ("Starting", "ForwardersMissing"),
            f"the status of queue {name}",
            timeout_seconds=60,
        )

    def wait_gone(self, name: str = "unpaid") -> None:
        wait_until(lambda: self.raw(name) is None, f"{name} to be gone", timeout_seconds=60)

    def install_crd(self, *, without: tuple[str, ...] = ()) -> None:
        """Install the queues' CRD, an older one without some fields, and wait until it counts."""
        crd = yaml.load(CRD.read_text(encoding="utf-8"), yaml.CSafeLoader)
        (version,) = crd["spec"]["versions"]
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        for name in without:
            del spec["properties"][name]
        later = tuple(f".{name}" for name in without)
        rules = spec["x-kubernetes-validations"]
        spec["x-kubernetes-validations"] = [
            one for one in rules if one.get("fieldPath") not in later
        ]
        apply = ("apply", "--server-side", "--validate=strict", "-f", "-")
        self.api.kubectl(*apply, input=json.dumps(crd))
        self.api.kubectl("wait", "--for=condition=Established", "crd", crd["metadata"]["name"])
        wait_until(
            lambda: self._knows_later_fields() is not bool(without),
            "the CRD to count",
            timeout_seconds=60,
        )

    def _knows_later_fields(self) -> bool | None:
        body = {
            "apiVersion": "tidegate.io/v1alpha1",
            "kind": "DelayQueue",
            "metadata": {"name": "probe"},
            "spec": {
                "policyRef": {"name": "orders"},
                "delays": [{"seconds": 5}],
                "target": {"allowed": ["orders.*"]},
                **LATER_SPEC,
            },
        }
        try:
            made: dict[str, Any] = self._objects.create_namespaced_custom_object(
                *self._address("")[:4], body, dry_run="All"
            )
        except ApiException:  # for a moment after a change nothing is served
            return None
        return "cancellable" in made["spec"]

    def _tier_spec(self) -> dict[str, Any]:
        contract = {"perPartition": {"produce": str(self.rate)}}
        member = {
            "name": "orders",
            "user": self.user,
            "topics": [self.namespace],
            "contract": contract,
        }
        return {"policyRef": {"name": "orders"}, "level": "L0", "members": [member]}


@pytest.fixture
def installation(own_api: KubeApi, kraft: KraftLab, unique_name: str) -> Iterator[Installation]:
    """A namespace with a policy and a member, and one topic with one leader."""
    own_api.kubectl("create", "namespace", unique_name)
    kraft.create_topic(unique_name, assignment=[[1]])
    client = kubernetes_config.new_client_from_config(config_file=str(own_api.kubeconfig))
    servers = kraft.bootstrap_servers
    kafka = AdminWorld(connection_of(servers), f"ledger-{unique_name}", kraft.cluster_id)
    found = Installation(client, unique_name, servers, api=own_api, kafka=kafka)
    found.install()
    yield found
    kafka.close()
    client.close()


def test_with_the_crd_and_no_queue_quotas_are_controlled_and_nothing_is_made(
    installation: Installation, tmp_path: Path
) -> None:
    installation.install_crd()
    namespace = installation.namespace
    with OperatorProcess(installation.api, namespace, tmp_path, options=SERVING) as operator:
        installation.expect_control(operator)
        operator.terminate()
        assert operator.exit_code(60) == 0
    assert installation.clients.topics(namespace) == set()
    assert installation.deployment() is None


def test_an_older_crd_is_enough_and_a_newer_one_counts_at_once(
    installation: Installation, tmp_path: Path
) -> None:
    """The CRD is updated and taken back again while the operator runs, with a queue there."""
    installation.install_crd(without=FIELDS_OF_LATER)
    names = installation.create(deletionPolicy="Keep")
    namespace = installation.namespace
    with OperatorProcess(installation.api, namespace, tmp_path, options=SERVING) as operator:
        installation.expect_control(operator)
        installation.wait_ready()
        levels = {f"{names.prefix}.5.0", f"{names.prefix}.600.0"}
        assert levels <= installation.clients.topics(names.prefix)

        installation.install_crd()
        installation.edit(**LATER_SPEC)
        wait_until(
            lambda: names.cancelled_topic in installation.clients.topics(names.prefix),
            "the topic of the field that is known now",
            timeout_seconds=60,
        )
        installation.expect_control(operator)

        installation.install_crd(without=FIELDS_OF_LATER)
        raw = installation.raw()
        assert raw is not None
        assert not set(FIELDS_OF_LATER) & set(raw["spec"])
        installation.edit(delays=[{"seconds": 5}, {"seconds": 60}])
        wait_until(
            lambda: f"{names.prefix}.60.0" in installation.clients.topics(names.prefix),
            "the topic of a delay that was added later",
            timeout_seconds=60,
        )
        installation.expect_control(operator)
        installation.wait_ready()
        installation.delete()
        installation.wait_gone()
        installation.expect_control(operator)
    assert levels <= installation.clients.topics(names.prefix)


@pytest.mark.parametrize("checkout", WITHOUT_QUEUES, ids=lambda one: one or "this")
def test_an_operator_without_queues_leaves_them_and_controls_quotas(
    installation: Installation, tmp_path: Path, checkout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queues have finalizers by then. Those that are deleted meanwhile stay until an operator serves
    queues again, or until somebody takes their finalizer off.
    """
    installation.install_crd()
    api, namespace = installation.api, installation.namespace
    prefixes = [
        installation.create(name, deletionPolicy="Keep", **LATER_SPEC).prefix
        for name in ("unpaid", "retries", "refunds")
    ]
    with OperatorProcess(api, namespace, tmp_path, name="newer", options=SERVING) as newer:
        for name in ("unpaid", "retries", "refunds"):
            installation.wait_ready(name)
        installation.expect_control(newer)
        newer.terminate()
        assert newer.exit_code(60) == 0
    raw, deployment = installation.raw(), installation.deployment()
    assert raw is not None
    assert deployment is not None
    topics = [installation.clients.topics(prefix) for prefix in prefixes]

    with monkeypatch.context() as older_code:
        if checkout:
            paths = [f"{checkout}/operator", f"{checkout}/controller_logic"]
            older_code.setenv("PYTHONPATH", os.pathsep.join(paths))
        older = OperatorProcess(api, namespace, tmp_path, name="older")
    with older:
        installation.expect_control(older)
        installation.delete("retries")
        installation.delete("refunds")
        installation.edit(delays=[{"seconds": 7}])
        installation.expect_control(older)
        for name in ("retries", "refunds"):
            left = installation.raw(name)
            assert left is not None
            assert left["metadata"]["finalizers"] == [DRAIN_FINALIZER]
        after = installation.deployment()
        assert after is not None
        assert after["metadata"]["uid"] == deployment["metadata"]["uid"]
        assert after["spec"] == deployment["spec"]
        # what the documentation says for those who do not go back to a version with queues
        finalizers = json.dumps({"metadata": {"finalizers": None}})
        patch = ("patch", "delayqueue", "refunds", "--type=merge", "--patch", finalizers)
        api.kubectl(*patch, "--namespace", namespace)
        installation.wait_gone("refunds")
        wait_until(
            lambda: installation.deployment("refunds") is None,
            "the end of its Deployment",
            timeout_seconds=60,
        )
        installation.expect_control(older)
        older.terminate()
        assert older.exit_code(60) == 0
    assert [installation.clients.topics(prefix) for prefix in prefixes] == topics

    with OperatorProcess(api, namespace, tmp_path, name="again", options=SERVING) as again:
        installation.wait_gone("retries")
        wait_until(
            lambda: f"{prefixes[0]}.7.0" in installation.clients.topics(prefixes[0]),
            "the topic of the delay that was set meanwhile",
            timeout_seconds=60,
        )
        installation.expect_control(again)
