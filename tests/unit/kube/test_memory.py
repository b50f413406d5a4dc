"""The in-memory double passes the contract tests of the real client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest

from tests.contract.kubernetes_contract import TIER_SPEC, KubernetesContract, Person
from tests.doubles.kubernetes import InMemoryKubernetes
from tests.unit.resources.documents import policy
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS, JsonObject, ObjectRef


@dataclass
class MemoryPerson:
    kubernetes: InMemoryKubernetes
    namespace: str

    def create(self, name: str) -> JsonObject:
        return self.kubernetes.create(
            BUSINESS_TIERS,
            {"metadata": {"name": name, "namespace": self.namespace}, "spec": TIER_SPEC},
        )

    def create_policy(self, name: str) -> JsonObject:
        return self.kubernetes.create(
            BROKER_BANDWIDTH_POLICIES,
            {**policy(), "metadata": {"name": name, "namespace": self.namespace}},
        )

    def edit(self, ref: ObjectRef, change: Callable[[JsonObject], object]) -> JsonObject:
        return self.kubernetes.edit(ref, change)

    def delete(self, ref: ObjectRef) -> None:
        self.kubernetes.delete(ref)

    def put_secret(
        self, name: str, data: Mapping[str, bytes], labels: Mapping[str, str] | None = None
    ) -> None:
        self.kubernetes.put_secret(self.namespace, name, data, labels or {})

    def label_namespace(self, labels: Mapping[str, str]) -> None:
        self.kubernetes.put_namespace(self.namespace, labels)

    def put_claim(self, name: str, labels: Mapping[str, str]) -> None:
        self.kubernetes.put_claim(self.namespace, name, labels)


class TestInMemoryKubernetes(KubernetesContract):
    @pytest.fixture
    def namespace(self) -> str:
        return "streaming"

    @pytest.fixture
    def kubernetes(self) -> InMemoryKubernetes:
        return InMemoryKubernetes()

    @pytest.fixture
    def person(self, kubernetes: InMemoryKubernetes, namespace: str) -> Person:
        return MemoryPerson(kubernetes, namespace)
