"""The answer of a real API server with this checkout's CRDs to an object that it is asked to create."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from kubernetes import client

from lab.kubernetes.api import KubeApi
from tests.integration.conftest import CHECKOUT
from tidegate.resources import GROUP, KINDS, VERSION

NAMESPACE = "streaming"
Answer = Callable[[Mapping[str, Any]], str | None]


@pytest.fixture(scope="session")
def served(crds: KubeApi) -> KubeApi:
    """The API server with both kinds served and the namespace of the documents in place."""
    crds.kubectl("apply", "-f", str(CHECKOUT / "examples" / "00-namespace.yaml"))
    return crds


@pytest.fixture(scope="session")
def answer(served: KubeApi, api_client: client.ApiClient) -> Answer:
    """The server's answer to creating a document, strictly and as a dry run: None if it accepts, else its message."""
    api = client.CustomObjectsApi(api_client)

    def create(document: Mapping[str, Any]) -> str | None:
        plural = next(kind.plural for kind in KINDS if kind.kind == document["kind"])
        try:
            api.create_namespaced_custom_object(GROUP, VERSION, NAMESPACE, plural, document, dry_run="All", field_validation="Strict")
        except client.ApiException as refusal:
            if refusal.status not in (400, 422):
                raise
            return str(json.loads(refusal.body)["message"])
        return None

    return create
