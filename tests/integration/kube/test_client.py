"""The real client against a real API server: the common contract, lists in chunks, rights, Events,
and a Lease of two replicas.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pytest
from kubernetes import client as kubernetes_client

from lab.kubernetes.api import KubeApi, service_account_kubeconfig
from lab.network import free_port
from lab.process import wait_until
from tests.contract.kubernetes_contract import TIER_SPEC, KubernetesContract, Person
from tests.unit.resources.documents import policy
from tidegate.errors import NotFound, Unauthorized, Unreachable
from tidegate.kube.api import (
    BROKER_BANDWIDTH_POLICIES,
    BUSINESS_TIERS,
    JsonObject,
    LeaseRecord,
    ObjectRef,
    ResourceKind,
)
from tidegate.kube.client import KubernetesClient, Transport, connect
from tidegate.kube.events import EventRecorder
from tidegate.kube.lease import LeaseAddress, LeaseTimes, SharedLease
from tidegate.kube.status import StatusWriter
from tidegate_logic.reasons import Reason

pytestmark = pytest.mark.integration


@dataclass
class RealPerson:
    """Somebody who works beside the client under test, with requests of their own."""

    api: kubernetes_client.ApiClient
    namespace: str

    def create(self, name: str) -> JsonObject:
        tier = {
            "apiVersion": BUSINESS_TIERS.api_version,
            "kind": BUSINESS_TIERS.kind,
            "metadata": {"name": name},
            "spec": TIER_SPEC,
        }
        created: JsonObject = self._tiers.create_namespaced_custom_object(
            *self._place, tier, _request_timeout=30
        )
        return created

    def create_policy(self, name: str) -> JsonObject:
        kind, declared = BROKER_BANDWIDTH_POLICIES, {**policy(), "metadata": {"name": name}}
        created: JsonObject = self._tiers.create_namespaced_custom_object(
            kind.group, kind.version, self.namespace, kind.plural, declared, _request_timeout=30
        )
        return created

    def edit(self, ref: ObjectRef, change: Callable[[JsonObject], object]) -> JsonObject:
        obj: JsonObject = self._tiers.get_namespaced_custom_object(
            *self._place, ref.name, _request_timeout=30
        )
        change(obj)
        replaced: JsonObject = self._tiers.replace_namespaced_custom_object(
            *self._place, ref.name, obj, _request_timeout=30
        )
        return replaced

    def delete(self, ref: ObjectRef) -> None:
        self._tiers.delete_namespaced_custom_object(*self._place, ref.name, _request_timeout=30)

    def put_secret(
        self, name: str, data: Mapping[str, bytes], labels: Mapping[str, str] | None = None
    ) -> None:
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        secret = {"metadata": {"name": name, "labels": dict(labels or {})}, "data": encoded}
        kubernetes_client.CoreV1Api(self.api).create_namespaced_secret(
            self.namespace, secret, _request_timeout=30
        )

    def label_namespace(self, labels: Mapping[str, str]) -> None:
        kubernetes_client.CoreV1Api(self.api).patch_namespace(
            self.namespace, {"metadata": {"labels": dict(labels)}}, _request_timeout=30
        )

    def put_claim(self, name: str, labels: Mapping[str, str]) -> None:
        claim = {
            "metadata": {"name": name, "labels": dict(labels)},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        kubernetes_client.CoreV1Api(self.api).create_namespaced_persistent_volume_claim(
            self.namespace, claim, _request_timeout=30
        )

    @property
    def _tiers(self) -> kubernetes_client.CustomObjectsApi:
        return kubernetes_client.CustomObjectsApi(self.api)

    @property
    def _place(self) -> tuple[str, str, str, str]:
        return (BUSINESS_TIERS.group, BUSINESS_TIERS.version, self.namespace, BUSINESS_TIERS.plural)


@pytest.fixture(scope="module")
def kubernetes(crds: KubeApi) -> Iterator[KubernetesClient]:
    real = KubernetesClient(connect(crds.kubeconfig), "test", chunk_size=2)
    yield real
    real.close()


@pytest.fixture
def person(
    api_client: kubernetes_client.ApiClient, namespace: str, kubernetes: KubernetesClient
) -> Person:
    return RealPerson(api_client, namespace)


class TestKubernetesClient(KubernetesContract):
    """The chunk size of 2 makes the contract's list of five objects one of three requests."""


def test_a_server_with_older_crds_drops_what_it_does_not_know_of_any_number_of_members(
    kubernetes: KubernetesClient, person: Person
) -> None:
    """It would warn of each field in a header of its own, and Python's HTTP client reads no answer
    of more than 100 headers.
    """
    tier = person.create("reporting")
    ref = ObjectRef.of(BUSINESS_TIERS, tier)
    members = [
        {"name": f"m-{number}", "state": "Contract", "ofTomorrow": 1} for number in range(150)
    ]
    after = kubernetes.patch_status(
        ref, {"members": members}, resource_version=tier["metadata"]["resourceVersion"]
    )
    assert after["status"]["members"] == [
        {"name": f"m-{number}", "state": "Contract"} for number in range(150)
    ]


def test_a_kind_that_is_not_installed_is_named_with_the_command_that_installs_it(
    kubernetes: KubernetesClient,
) -> None:
    absent = ResourceKind("tidegate.io", "v1alpha1", "dreams", "Dream")
    with pytest.raises(NotFound) as missing:
        kubernetes.list_all(absent)
    assert "dreams" in missing.value.message
    assert "kubectl apply --server-side -f crds/" in missing.value.message  # a command to paste


def test_a_missing_right_is_said_in_the_servers_words(
    kube_api: KubeApi, kubernetes: KubernetesClient, namespace: str
) -> None:
    kubeconfig = service_account_kubeconfig(
        kube_api, "poor", namespace=namespace, rules=[], granted_in=[namespace]
    )
    poor = KubernetesClient(connect(kubeconfig), "poor")
    with pytest.raises(Unauthorized, match="cannot list resource"):
        poor.list_all(BUSINESS_TIERS, [namespace])
    poor.close()


def test_an_api_server_that_is_away_is_unreachable_within_the_time_limit() -> None:
    settings = kubernetes_client.Configuration()
    settings.host = f"http://127.0.0.1:{free_port()}"
    settings.retries = False
    pauses: list[float] = []
    away = KubernetesClient(
        kubernetes_client.ApiClient(settings), "test", transport=Transport(pause=pauses.append)
    )
    with pytest.raises(Unreachable) as error:
        away.list_all(BUSINESS_TIERS)
    assert error.value.reason is Reason.KUBERNETES_UNREACHABLE
    assert pauses == [0.2, 0.8]
    away.close()


def test_a_namespace_in_deletion_refuses_what_is_new_and_that_is_no_missing_right(
    kubernetes: KubernetesClient, person: Person, namespace: str, kube_api: KubeApi
) -> None:
    ref = ObjectRef.of(BUSINESS_TIERS, person.create("staying"))
    kubernetes.add_finalizer(ref, "tidegate.io/restore")
    kube_api.kubectl("delete", "namespace", namespace, "--wait=false")
    record = LeaseRecord(namespace, "new", "a", 12, 0, acquired_at=1e9, renewed_at=1e9)
    try:
        with pytest.raises(Unauthorized) as refused:
            kubernetes.create_lease(record)
    finally:
        kubernetes.remove_finalizer(ref, "tidegate.io/restore")
    assert "the namespace is being deleted and accepts no new objects" in refused.value.message
    assert "No right is missing" in refused.value.message


def test_a_status_that_says_the_same_is_not_written_again(
    kubernetes: KubernetesClient, person: Person
) -> None:
    seen = person.create("reporting")
    writer = StatusWriter(kubernetes)
    said = {
        "type": "Ready",
        "status": "True",
        "reason": Reason.IN_SYNC,
        "message": "all well",
        "observedGeneration": 1,
    }
    first = writer.write(BUSINESS_TIERS, seen, {"conditions": [said]})
    again = writer.write(BUSINESS_TIERS, seen, {"conditions": [said]})
    assert (first.written, again.written) == (True, False)
    assert again.object == first.object


def test_kubectl_describe_shows_the_event_that_was_recorded(
    kube_api: KubeApi, kubernetes: KubernetesClient, person: Person
) -> None:
    ref = ObjectRef.of(BUSINESS_TIERS, person.create("reporting"))
    assert EventRecorder(kubernetes).record(
        ref,
        "Warning",
        reason=Reason.TOPIC_NOT_FOUND,
        message="topic clicks does not exist " + "ä" * 1000,
    )
    described = kube_api.kubectl("describe", "-n", ref.namespace, "businesstiers", ref.name)
    assert "topic clicks does not exist" in described


def address_in(namespace: str) -> LeaseAddress:
    """The Lease of a policy in the operator's namespace."""
    return LeaseAddress.of_policy("streaming/orders", operator_namespace=namespace)


def test_another_replica_takes_over_when_the_holder_is_silent(
    kubernetes: KubernetesClient, namespace: str
) -> None:
    times = LeaseTimes(duration_seconds=3, renew_seconds=0.5, look_seconds=0.5, margin_seconds=1.0)
    first, second = (
        SharedLease(kubernetes, name, address_in(namespace), times=times)
        for name in ("replica-1", "replica-2")
    )
    assert (first.attend(), second.attend()) == (True, False)

    def second_holds() -> bool:
        held = second.attend()
        assert not (held and first.remaining_seconds() > 0), "two replicas may write at once"
        return held

    wait_until(second_holds, "the second replica to take over", timeout_seconds=3 + 0.5 + 1.5)
    present = kubernetes.read_lease(namespace, "tidegate.streaming.orders")
    assert present is not None
    assert present.holder == "replica-2"


def test_a_lease_given_back_is_taken_at_once(kubernetes: KubernetesClient, namespace: str) -> None:
    first, second = (
        SharedLease(kubernetes, name, address_in(namespace)) for name in ("replica-1", "replica-2")
    )
    assert first.attend()
    assert first.release()
    assert (second.attend(), first.remaining_seconds()) == (True, 0.0)
