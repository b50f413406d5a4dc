"""The real client against a real API server: the common contract, lists in chunks, rights, Events, and a Lease of two replicas."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from kubernetes import client as kubernetes_client

from controller_logic.reasons import Reason
from lab.kube_api import KubeApi
from lab.kube_identity import service_account_kubeconfig
from lab.ports import free_port
from lab.waiting import wait_until
from tests.contract.kubernetes_contract import TIER_SPEC, KubernetesContract, Person
from tidegate.errors import NotFound, Unauthorized, Unreachable
from tidegate.kube.api import BUSINESS_TIERS, JsonObject, ObjectRef, ResourceKind
from tidegate.kube.client import KubernetesClient
from tidegate.kube.event_recorder import EventRecorder
from tidegate.kube.lease import LeaseTimes, PolicyLease
from tidegate.kube.status_writer import StatusWriter
from tidegate.kube.transport import Transport, connect

pytestmark = pytest.mark.integration

CRDS = Path(__file__).parents[3] / "crds"


@dataclass
class KubectlPerson:
    kube_api: KubeApi
    namespace: str

    def create(self, name: str) -> JsonObject:
        tier = {"apiVersion": BUSINESS_TIERS.api_version, "kind": BUSINESS_TIERS.kind, "metadata": {"name": name}, "spec": TIER_SPEC}
        return self._send("create", tier)

    def edit(self, ref: ObjectRef, change: Callable[[JsonObject], object]) -> JsonObject:
        obj = json.loads(self.kube_api.kubectl("get", "-n", ref.namespace, ref.kind.plural, ref.name, "-o", "json"))
        change(obj)
        return self._send("replace", obj)

    def delete(self, ref: ObjectRef) -> None:
        self.kube_api.kubectl("delete", "-n", ref.namespace, ref.kind.plural, ref.name, "--wait=false")

    def put_secret(self, name: str, data: Mapping[str, bytes]) -> None:
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        self._send("create", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": encoded})

    def _send(self, verb: str, obj: JsonObject) -> JsonObject:
        answer: JsonObject = json.loads(self.kube_api.kubectl(verb, "-n", self.namespace, "-o", "json", "-f", "-", input=json.dumps(obj)))
        return answer


@pytest.fixture(scope="module")
def kubernetes(kube_api: KubeApi) -> Iterator[KubernetesClient]:
    kube_api.install_crds(CRDS)
    real = KubernetesClient(connect(kube_api.kubeconfig), "test", chunk_size=2)
    yield real
    real.close()


@pytest.fixture
def namespace(kube_api: KubeApi, unique_name: str) -> Iterator[str]:
    kube_api.kubectl("create", "namespace", unique_name)
    yield unique_name
    kube_api.kubectl("delete", "namespace", unique_name, "--wait=false")


@pytest.fixture
def person(kube_api: KubeApi, namespace: str, kubernetes: KubernetesClient) -> Person:
    return KubectlPerson(kube_api, namespace)


class TestKubernetesClient(KubernetesContract):
    """The chunk size of 2 makes the contract's list of five objects one of three requests."""


def test_a_kind_that_is_not_installed_is_named_with_the_command_that_installs_it(kubernetes: KubernetesClient) -> None:
    absent = ResourceKind("tidegate.io", "v1alpha1", "quotaoverrides", "QuotaOverride")
    with pytest.raises(NotFound, match=r"quotaoverrides .*kubectl apply -f crds/"):
        kubernetes.list_all(absent)


def test_a_missing_right_is_said_in_the_servers_words(kube_api: KubeApi, kubernetes: KubernetesClient, namespace: str) -> None:
    kubeconfig = service_account_kubeconfig(kube_api, "poor", namespace=namespace, rules=[], granted_in=[namespace])
    poor = KubernetesClient(connect(kubeconfig), "poor")
    with pytest.raises(Unauthorized, match="cannot list resource"):
        poor.list_all(BUSINESS_TIERS, [namespace])
    poor.close()


def test_an_api_server_that_is_away_is_unreachable_within_the_time_limit() -> None:
    settings = kubernetes_client.Configuration()
    settings.host = f"http://127.0.0.1:{free_port()}"
    settings.retries = False
    pauses: list[float] = []
    away = KubernetesClient(kubernetes_client.ApiClient(settings), "test", transport=Transport(pause=pauses.append))
    with pytest.raises(Unreachable, match="did not answer"):
        away.list_all(BUSINESS_TIERS)
    assert pauses == [0.2, 0.8]
    away.close()


def test_a_status_that_says_the_same_is_not_written_again(kubernetes: KubernetesClient, person: Person) -> None:
    seen = person.create("reporting")
    writer = StatusWriter(kubernetes)
    said = {"type": "Ready", "status": "True", "reason": Reason.IN_SYNC, "message": "all well", "observedGeneration": 1}
    first = writer.write(BUSINESS_TIERS, seen, {"conditions": [said]})
    again = writer.write(BUSINESS_TIERS, seen, {"conditions": [said]})
    assert (first.written, again.written) == (True, False)
    assert again.object == first.object


def test_kubectl_describe_shows_the_event_that_was_recorded(kube_api: KubeApi, kubernetes: KubernetesClient, person: Person) -> None:
    ref = ObjectRef.of(BUSINESS_TIERS, person.create("reporting"))
    assert EventRecorder(kubernetes).record(
        ref, "Warning", reason=Reason.TOPIC_NOT_FOUND, message="topic clicks does not exist " + "ä" * 1000
    )
    described = kube_api.kubectl("describe", "-n", ref.namespace, "businesstiers", ref.name)
    assert "topic clicks does not exist" in described


def test_another_replica_takes_over_when_the_holder_is_silent(kubernetes: KubernetesClient, namespace: str) -> None:
    times = LeaseTimes(duration_seconds=3, renew_seconds=0.5, look_seconds=0.5, margin_seconds=1.0)
    first, second = (
        PolicyLease(kubernetes, name, namespace=namespace, policy_name="orders", times=times) for name in ("replica-1", "replica-2")
    )
    assert (first.attend(), second.attend()) == (True, False)

    def second_holds() -> bool:
        held = second.attend()
        assert not (held and first.remaining_seconds() > 0), "two replicas may write at once"
        return held

    wait_until(second_holds, "the second replica to take over", timeout_seconds=3 + 0.5 + 1.5)
    assert kubernetes.read_lease(namespace, "tidegate-orders").holder == "replica-2"  # type: ignore[union-attr]


def test_a_lease_given_back_is_taken_at_once(kubernetes: KubernetesClient, namespace: str) -> None:
    first, second = (PolicyLease(kubernetes, name, namespace=namespace, policy_name="orders") for name in ("replica-1", "replica-2"))
    assert first.attend()
    assert first.release()
    assert (second.attend(), first.remaining_seconds()) == (True, 0.0)
