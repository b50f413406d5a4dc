"""The CRDs of this checkout on a real API server, and what that server answers to an object it is asked to create."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config

from lab.kube_api import KubeApi
from lab.waiting import wait_until
from tests.unit.resources.documents import policy, tier
from tidegate.resources import GROUP, KINDS, VERSION

CHECKOUT = Path(__file__).parents[3]
NAMESPACE = "streaming"
Answer = Callable[[Mapping[str, Any]], str | None]


@pytest.fixture(scope="session")
def served(kube_api: KubeApi) -> KubeApi:
    """The API server with both kinds served and the namespace of the documents in place."""
    kube_api.install_crds(CHECKOUT / "crds")
    kube_api.kubectl("apply", "-f", str(CHECKOUT / "examples" / "00-namespace.yaml"))
    return kube_api


@pytest.fixture(scope="session")
def answer(served: KubeApi) -> Answer:
    """What the server says to creating a document, strictly and as a dry run: None = accepted, else its message."""
    api = client.CustomObjectsApi(config.new_client_from_config(str(served.kubeconfig)))

    def create(document: Mapping[str, Any]) -> str | None:
        plural = next(kind.plural for kind in KINDS if kind.kind == document["kind"])
        try:
            api.create_namespaced_custom_object(GROUP, VERSION, NAMESPACE, plural, document, dry_run="All", field_validation="Strict")
        except client.ApiException as refusal:
            if refusal.status not in (400, 422):
                raise
            return str(json.loads(refusal.body)["message"])
        return None

    wait_until(lambda: _accepts(create), "the first write to the fresh CRDs", timeout_seconds=30)
    return create


def _accepts(create: Answer) -> bool:
    try:
        return create(policy()) is None and create(tier()) is None
    except client.ApiException:  # a CRD that is Established may still be unknown for a moment
        return False
