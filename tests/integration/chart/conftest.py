"""Helm, and an API server for the chart's tests only: installing the chart adds and removes
CRDs.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.kubernetes.api import KubeApi
from lab.kubernetes.tools import Helm
from lab.process import started
from tests.integration.chart.rendering import HERE


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm without a cluster."""
    return Helm(tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def cluster() -> Iterator[KubeApi]:
    """An API server without Tidegate's CRDs, with those of the Prometheus operator, which accept
    any content.
    """
    with started(KubeApi) as api:
        api.install_crds(HERE / "monitoring.yaml")
        yield api


@pytest.fixture(scope="session")
def cluster_helm(cluster: KubeApi, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm on `cluster`."""
    return Helm(tmp_path_factory.mktemp("cluster-helm"), cluster.kubeconfig)
