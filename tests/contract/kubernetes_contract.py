"""The contract of `tidegate.kube.api.Kubernetes`, as tests that the real client and the in-memory
double both pass.

A subclass gives the fixtures `kubernetes` (the implementation), `person` (who uses kubectl beside
it) and `namespace`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

import pytest

from lab.process import wait_until
from tidegate.errors import Conflict, InvalidResource, NotFound
from tidegate.kube.api import (
    BUSINESS_TIERS,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    JsonObject,
    Kubernetes,
    LeaseRecord,
    ObjectRef,
)
from tidegate.kube.rollup_jobs import JobPod, is_owned, job_body, selector
from tidegate_logic.reasons import Reason

FINALIZER = "tidegate.io/restore"
TIER_SPEC: JsonObject = {
    "policyRef": {"name": "orders"},
    "level": "L0",
    "members": [{"name": "m", "user": "alice", "contract": {"perBroker": {"fetch": "1Mi"}}}],
}


class Person(Protocol):
    """A person with kubectl."""

    def create(self, name: str) -> JsonObject: ...
    def create_policy(self, name: str) -> JsonObject: ...
    def edit(self, ref: ObjectRef, change: Callable[[JsonObject], object]) -> JsonObject: ...
    def delete(self, ref: ObjectRef) -> None: ...
    def put_secret(
        self, name: str, data: Mapping[str, bytes], labels: Mapping[str, str] | None = None
    ) -> None: ...
    def label_namespace(self, labels: Mapping[str, str]) -> None: ...
    def put_claim(self, name: str, labels: Mapping[str, str]) -> None: ...


POLICY: JsonObject = {
    "apiVersion": "tidegate.io/v1alpha1",
    "kind": "BrokerBandwidthPolicy",
    "metadata": {"name": "orders", "uid": "11111111-2222-3333-4444-555555555555", "generation": 3},
}
POD = JobPod(
    "tidegate:0.1.0",
    "rollup",
    cores=2,
    requested_millicores=500,
    memory="3Gi",
    deadline_seconds=1800,
    mount=("usage", "/var/lib/usage"),
    has_executors=True,
)


def rollup_job(namespace: str, start_ms: int = 0) -> JsonObject:
    """The Job of a policy that does not exist; a real Kubernetes collects such a Job as garbage
    soon after it is stored.
    """
    return job_of({**POLICY, "metadata": {**POLICY["metadata"], "namespace": namespace}}, start_ms)


def job_of(policy: JsonObject, start_ms: int = 0) -> JsonObject:
    return job_body(policy, POD, start_ms=start_ms, end_ms=start_ms + 300_000)


def ready(message: str) -> dict[str, Any]:
    return {
        "type": "Ready",
        "status": "True",
        "reason": "InSync",
        "message": message,
        "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


class KubernetesContract:
    @pytest.fixture
    def tier(self, person: Person) -> JsonObject:
        return person.create("reporting")

    @pytest.fixture
    def ref(self, tier: JsonObject) -> ObjectRef:
        return ObjectRef.of(BUSINESS_TIERS, tier)

    def test_a_list_names_every_object_of_the_namespace(
        self, kubernetes: Kubernetes, person: Person, namespace: str
    ) -> None:
        names = {person.create(f"tier-{number}")["metadata"]["name"] for number in range(5)}
        assert {
            item["metadata"]["name"] for item in kubernetes.list_all(BUSINESS_TIERS, [namespace])
        } == names

    def test_a_status_patch_merges_and_leaves_spec_and_generation_alone(
        self, kubernetes: Kubernetes, tier: JsonObject, ref: ObjectRef
    ) -> None:
        first = kubernetes.patch_status(
            ref, {"conditions": [ready("a")]}, resource_version=tier["metadata"]["resourceVersion"]
        )
        second = kubernetes.patch_status(
            ref, {"observedGeneration": 1}, resource_version=first["metadata"]["resourceVersion"]
        )
        assert second["status"] == {"conditions": [ready("a")], "observedGeneration": 1}
        assert (second["spec"], second["metadata"]["generation"]) == (
            tier["spec"],
            tier["metadata"]["generation"],
        )

    def test_none_in_a_status_patch_removes_the_key(
        self, kubernetes: Kubernetes, tier: JsonObject, ref: ObjectRef
    ) -> None:
        first = kubernetes.patch_status(
            ref, {"observedGeneration": 1}, resource_version=tier["metadata"]["resourceVersion"]
        )
        second = kubernetes.patch_status(
            ref, {"observedGeneration": None}, resource_version=first["metadata"]["resourceVersion"]
        )
        assert second.get("status", {}) == {}

    def test_a_status_patch_over_an_old_version_is_a_conflict_and_changes_nothing(
        self, kubernetes: Kubernetes, tier: JsonObject, ref: ObjectRef, person: Person
    ) -> None:
        person.edit(ref, lambda obj: obj["metadata"].update(labels={"team": "orders"}))
        with pytest.raises(Conflict):
            kubernetes.patch_status(
                ref, {"observedGeneration": 9}, resource_version=tier["metadata"]["resourceVersion"]
            )
        assert "status" not in kubernetes.get(ref)

    def test_an_edited_spec_moves_the_generation(
        self, kubernetes: Kubernetes, tier: JsonObject, ref: ObjectRef, person: Person
    ) -> None:
        person.edit(ref, lambda obj: obj["spec"]["members"][0].update(user="bob"))
        assert kubernetes.get(ref)["metadata"]["generation"] == tier["metadata"]["generation"] + 1

    def test_an_object_that_took_the_name_of_another_is_not_found(
        self, kubernetes: Kubernetes, ref: ObjectRef, person: Person
    ) -> None:
        person.delete(ref)
        person.create(ref.name)
        with pytest.raises(NotFound):
            kubernetes.get(ref)

    def test_an_annotation_is_set_beside_the_others_and_moves_no_generation(
        self, kubernetes: Kubernetes, ref: ObjectRef, person: Person
    ) -> None:
        person.edit(ref, lambda obj: obj["metadata"].update(annotations={"example.com/a": "1"}))
        for value in ("1 user=alice, client-id=app", "2"):
            annotated = kubernetes.annotate(ref, "tidegate.io/resync", value)
            assert annotated["metadata"]["annotations"] == {
                "example.com/a": "1",
                "tidegate.io/resync": value,
            }
            assert annotated["metadata"]["generation"] == 1

    def test_an_annotation_is_removed_and_the_others_stay(
        self, kubernetes: Kubernetes, ref: ObjectRef, person: Person
    ) -> None:
        person.edit(ref, lambda obj: obj["metadata"].update(annotations={"example.com/a": "1"}))
        kubernetes.annotate(ref, "tidegate.io/paused", "true")
        for _ in range(2):  # one that is not there is no error
            annotated = kubernetes.annotate(ref, "tidegate.io/paused", None)
            assert annotated["metadata"]["annotations"] == {"example.com/a": "1"}

    def test_an_object_is_created_once(
        self, kubernetes: Kubernetes, tier: JsonObject, ref: ObjectRef
    ) -> None:
        metadata = {"name": f"{ref.name}-more", "namespace": ref.namespace}
        more = {
            "apiVersion": BUSINESS_TIERS.api_version,
            "kind": BUSINESS_TIERS.kind,
            "metadata": metadata,
            "spec": tier["spec"],
        }
        made = kubernetes.create(BUSINESS_TIERS, more)
        assert made["spec"] == tier["spec"]
        assert kubernetes.get(ObjectRef.of(BUSINESS_TIERS, made)) == made
        with pytest.raises(Conflict):
            kubernetes.create(BUSINESS_TIERS, more)

    def test_an_object_that_took_the_name_of_another_is_not_annotated(
        self, kubernetes: Kubernetes, ref: ObjectRef, person: Person
    ) -> None:
        person.delete(ref)
        with pytest.raises(NotFound):
            kubernetes.annotate(ref, "tidegate.io/resync", "1")
        made = ObjectRef.of(BUSINESS_TIERS, person.create(ref.name))
        with pytest.raises(InvalidResource):
            kubernetes.annotate(ref, "tidegate.io/resync", "1")
        assert "annotations" not in kubernetes.get(made)["metadata"]

    def test_a_finalizer_is_added_once_and_keeps_those_of_others(
        self, kubernetes: Kubernetes, ref: ObjectRef, person: Person
    ) -> None:
        person.edit(ref, lambda obj: obj["metadata"].update(finalizers=["example.com/other"]))
        first = kubernetes.add_finalizer(ref, FINALIZER)
        assert first["metadata"]["finalizers"] == ["example.com/other", FINALIZER]
        assert kubernetes.add_finalizer(ref, FINALIZER) == first
        kubernetes.remove_finalizer(ref, "example.com/other")

    def test_a_finalizer_goes_on_an_object_that_has_none(
        self, kubernetes: Kubernetes, ref: ObjectRef
    ) -> None:
        assert kubernetes.add_finalizer(ref, FINALIZER)["metadata"]["finalizers"] == [FINALIZER]

    def test_a_deleted_object_stays_until_its_finalizer_is_taken_off(
        self, kubernetes: Kubernetes, ref: ObjectRef, person: Person
    ) -> None:
        kubernetes.add_finalizer(ref, FINALIZER)
        person.delete(ref)
        assert "deletionTimestamp" in kubernetes.get(ref)["metadata"]
        kubernetes.remove_finalizer(ref, FINALIZER)
        with pytest.raises(NotFound):
            kubernetes.get(ref)

    def test_an_object_on_its_way_out_gets_no_new_finalizer(
        self, kubernetes: Kubernetes, ref: ObjectRef, person: Person
    ) -> None:
        kubernetes.add_finalizer(ref, "example.com/other")
        person.delete(ref)
        assert kubernetes.add_finalizer(ref, FINALIZER)["metadata"]["finalizers"] == [
            "example.com/other"
        ]
        kubernetes.remove_finalizer(ref, "example.com/other")

    def test_taking_a_finalizer_off_an_object_that_is_gone_is_no_error(
        self, kubernetes: Kubernetes, ref: ObjectRef, person: Person
    ) -> None:
        person.delete(ref)
        kubernetes.remove_finalizer(ref, FINALIZER)
        with pytest.raises(NotFound):
            kubernetes.get(ref)

    def test_a_secret_is_decoded_and_never_shown(
        self, kubernetes: Kubernetes, person: Person, namespace: str
    ) -> None:
        person.put_secret("login", {"password": b"\x00hidden-value"})
        secret = kubernetes.read_secret(namespace, "login")
        assert dict(secret) == {"password": b"\x00hidden-value"}
        assert "hidden-value" not in f"{secret} {secret!r}"

    def test_labels_of_secrets_namespaces_and_claims_are_read(
        self, kubernetes: Kubernetes, person: Person, namespace: str
    ) -> None:
        person.put_secret("labelled", {"password": b"x"}, {"tidegate.io/credentials": "true"})
        person.put_secret("bare", {"password": b"x"}, {})
        person.label_namespace({"team": "orders"})
        person.put_claim("usage", {"tidegate.io/usage-tables": "true"})
        assert kubernetes.read_secret(namespace, "labelled").labels == {
            "tidegate.io/credentials": "true"
        }
        assert kubernetes.read_secret(namespace, "bare").labels == {}
        labels = kubernetes.namespace_labels(namespace)
        assert labels["team"] == "orders"
        assert labels["kubernetes.io/metadata.name"] == namespace
        assert kubernetes.claim_labels(namespace, "usage") == {"tidegate.io/usage-tables": "true"}

    def test_a_missing_namespace_or_claim_is_named(
        self, kubernetes: Kubernetes, namespace: str
    ) -> None:
        with pytest.raises(NotFound, match="nowhere") as missing:
            kubernetes.namespace_labels("nowhere")
        assert missing.value.reason is Reason.NAMESPACES_UNREAD
        with pytest.raises(NotFound, match="nothing") as missing:
            kubernetes.claim_labels(namespace, "nothing")
        assert missing.value.reason is Reason.CLAIM_NOT_ALLOWED

    def test_a_missing_secret_is_named(self, kubernetes: Kubernetes, namespace: str) -> None:
        with pytest.raises(NotFound, match=f"{namespace}/nowhere"):
            kubernetes.read_secret(namespace, "nowhere")

    def test_a_lease_has_one_winner(self, kubernetes: Kubernetes, namespace: str) -> None:
        assert kubernetes.read_lease(namespace, "turn") is None
        wanted = LeaseRecord(
            namespace,
            "turn",
            "a",
            duration_seconds=15,
            transitions=0,
            acquired_at=1e9,
            renewed_at=1e9,
        )
        made = kubernetes.create_lease(wanted)
        with pytest.raises(Conflict):
            kubernetes.create_lease(wanted)
        again = LeaseRecord(
            namespace,
            "turn",
            "b",
            15,
            1,
            acquired_at=1e9,
            renewed_at=1e9 + 1,
            resource_version=made.resource_version,
        )
        kubernetes.replace_lease(again)
        with pytest.raises(Conflict):
            kubernetes.replace_lease(again)
        found = kubernetes.read_lease(namespace, "turn")
        assert found is not None
        assert (found.holder, found.transitions, found.renewed_at) == ("b", 1, 1e9 + 1)

    def test_leases_are_found_by_their_labels_and_deleted_as_they_were_seen(
        self, kubernetes: Kubernetes, namespace: str
    ) -> None:
        labels = {"tidegate.io/policy": "orders"}
        made = [
            kubernetes.create_lease(
                LeaseRecord(namespace, name, "a", 15, 0, 1e9, 1e9, labels=with_labels)
            )
            for name, with_labels in (("one", labels), ("two", {}))
        ]
        for wanted in ("tidegate.io/policy", "tidegate.io/policy=orders"):
            assert kubernetes.list_leases(namespace, selector=wanted) == made[:1]
        assert kubernetes.list_leases(namespace, selector="tidegate.io/policy=other") == []
        renewed = kubernetes.replace_lease(replace(made[0], renewed_at=1e9 + 1))
        with pytest.raises(Conflict):
            kubernetes.delete_lease(made[0])
        kubernetes.delete_lease(renewed)
        kubernetes.delete_lease(renewed)
        assert kubernetes.read_lease(namespace, "one") is None

    def test_a_job_is_made_once_and_found_by_its_policy(
        self, kubernetes: Kubernetes, person: Person, namespace: str
    ) -> None:
        policy = person.create_policy("orders")
        body = job_of(policy)
        made = kubernetes.create_job(namespace, body)
        with pytest.raises(Conflict):
            kubernetes.create_job(namespace, body)
        (found,) = kubernetes.list_jobs(namespace, selector=selector("orders"))
        assert found["metadata"]["uid"] == made["metadata"]["uid"]
        assert is_owned(found, policy["metadata"]["uid"])
        assert not is_owned(found, "another")
        assert kubernetes.list_jobs(namespace, selector=selector("payments")) == []

    def test_a_job_of_another_uid_is_not_deleted(
        self, kubernetes: Kubernetes, person: Person, namespace: str
    ) -> None:
        body = job_of(person.create_policy("orders"))
        made = kubernetes.create_job(namespace, body)
        name, uid = made["metadata"]["name"], made["metadata"]["uid"]
        kubernetes.delete_job(namespace, name, uid=uid)
        kubernetes.delete_job(namespace, name, uid=uid)
        again = kubernetes.create_job(namespace, body)
        with suppress(Conflict):
            kubernetes.delete_job(namespace, name, uid=uid)
        assert [
            job["metadata"]["uid"]
            for job in kubernetes.list_jobs(namespace, selector=selector("orders"))
        ] == [again["metadata"]["uid"]]

    def test_a_config_map_is_replaced_only_where_no_other_writer_was_faster(
        self, kubernetes: Kubernetes, namespace: str
    ) -> None:
        assert kubernetes.read_config_map(namespace, "orders-rollup") is None
        body: JsonObject = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "orders-rollup"},
            "data": {"a": "1"},
        }
        made = kubernetes.write_config_map(namespace, body)
        with pytest.raises(Conflict):
            kubernetes.write_config_map(namespace, body)
        kubernetes.write_config_map(namespace, {**made, "data": {"a": "2"}})
        with pytest.raises(Conflict):
            kubernetes.write_config_map(namespace, {**made, "data": {"a": "3"}})
        found = kubernetes.read_config_map(namespace, "orders-rollup")
        assert found is not None
        assert found["data"] == {"a": "2"}

    def test_a_deployment_is_made_as_it_is_applied_and_only_what_changed_is_news(
        self, kubernetes: Kubernetes, namespace: str
    ) -> None:
        body = deployment_of(namespace, replicas=2)
        assert kubernetes.read_managed(DEPLOYMENTS, namespace, "unpaid-forwarders") is None
        made = kubernetes.apply_managed(DEPLOYMENTS, body)
        again = kubernetes.apply_managed(DEPLOYMENTS, body)
        assert again["metadata"]["uid"] == made["metadata"]["uid"]
        assert again["metadata"]["generation"] == made["metadata"]["generation"] == 1
        grown = kubernetes.apply_managed(DEPLOYMENTS, deployment_of(namespace, replicas=3))
        assert (grown["metadata"]["generation"], grown["spec"]["replicas"]) == (2, 3)
        found = kubernetes.read_managed(DEPLOYMENTS, namespace, "unpaid-forwarders")
        assert found is not None
        assert found["spec"]["replicas"] == 3
        uid = found["metadata"]["uid"]
        kubernetes.delete_managed(DEPLOYMENTS, namespace, "unpaid-forwarders", uid=uid)
        wait_until(
            lambda: kubernetes.read_managed(DEPLOYMENTS, namespace, "unpaid-forwarders") is None,
            "the Deployment's end, after that of its Pods",
            timeout_seconds=30,
        )
        kubernetes.delete_managed(DEPLOYMENTS, namespace, "unpaid-forwarders", uid=uid)

    def test_what_is_no_longer_applied_goes(self, kubernetes: Kubernetes, namespace: str) -> None:
        body = deployment_of(namespace, replicas=2)
        body["spec"]["template"]["spec"]["priorityClassName"] = "low"
        kubernetes.apply_managed(DEPLOYMENTS, body)
        kubernetes.apply_managed(DEPLOYMENTS, deployment_of(namespace, replicas=2))
        found = kubernetes.read_managed(DEPLOYMENTS, namespace, "unpaid-forwarders")
        assert found is not None
        assert "priorityClassName" not in found["spec"]["template"]["spec"]

    def test_a_disruption_budget_is_applied_too(
        self, kubernetes: Kubernetes, namespace: str
    ) -> None:
        body = budget_of(namespace)
        made = kubernetes.apply_managed(DISRUPTION_BUDGETS, body)
        assert made["spec"]["maxUnavailable"] == 1
        assert kubernetes.read_managed(DISRUPTION_BUDGETS, namespace, "unpaid-forwarders")


def deployment_of(namespace: str, *, replicas: int) -> JsonObject:
    labels = {"app": "forwarders"}
    container = {"name": "forwarder", "image": "tidegate:0.1.0"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "unpaid-forwarders", "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def budget_of(namespace: str) -> JsonObject:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "unpaid-forwarders", "namespace": namespace},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "forwarders"}}},
    }
