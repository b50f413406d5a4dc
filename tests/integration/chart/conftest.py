"""Helm, the chart as it is rendered for each values file, and an API server of the chart's own: installing it adds and removes CRDs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.kubernetes.api import KubeApi
from lab.kubernetes.tools import Helm

HERE = Path(__file__).parent
CHART = HERE.parents[2] / "charts" / "tidegate"


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm without a cluster."""
    return Helm(tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def cluster() -> Iterator[KubeApi]:
    """An API server that serves no kind of Tidegate's, but those that the Prometheus operator would serve, of any content."""
    with KubeApi() as api:
        api.install_crds(HERE / "monitoring.yaml")
        yield api


@pytest.fixture(scope="session")
def cluster_helm(cluster: KubeApi, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm on `cluster`."""
    return Helm(tmp_path_factory.mktemp("cluster-helm"), cluster.kubeconfig)
