"""Real parts of the lab for integration tests: started when the first test asks for them, shared by
all, stopped at the end.

Each test has a chroot of its own in the shared ZooKeeper (`chroot`), a namespace of its own in the
Kubernetes API (`namespace`) and names that no other test uses (`unique_name`). A part that this
machine lacks is an error that names the command to install it, never a skip. Each pytest process
has parts of its own, so several can run side by side.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kubernetes import client as kubernetes_client
from kubernetes import config as kubernetes_config

from lab.kafka import KafkaLab
from lab.kubernetes.api import KubeApi
from lab.process import wait_until
from lab.prometheus import PrometheusLab, monitoring
from lab.zookeeper import ZooKeeperLab
from tests.unit.resources.documents import override, policy, tier
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS, QUOTA_OVERRIDES

CHECKOUT = Path(__file__).parents[2]
SASL_USERS = ("alice", "bob", "carol", "dave", "erin")


@pytest.hookimpl(tryfirst=True)  # before `-m` selects by it
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by the costliest part they share, for `make` to run each kind in a process of its
    own, beside the others.

    Starting parts takes more processor time than the tests themselves: a further kind must be worth
    its own brokers.
    """
    for item in items:
        if "kafka" in getattr(item, "fixturenames", ()) and not item.get_closest_marker(
            "throttling"
        ):
            item.add_marker(pytest.mark.brokers)


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[ZooKeeperLab]:
    """A ZooKeeper server with no Kafka on it."""
    with ZooKeeperLab() as server:
        yield server


@pytest.fixture
def chroot(zookeeper: ZooKeeperLab) -> str:
    """A connect string whose chroot exists, is empty and belongs to this test alone."""
    path = f"/test-{uuid.uuid4().hex[:12]}"
    client = KazooClient(zookeeper.connect)
    client.start()
    client.create(path)
    client.stop()
    client.close()
    # It is left behind: emptying it node by node takes longer than most tests, and it goes with the
    # server.
    return zookeeper.connect + path


@pytest.fixture
def chroot_client(chroot: str) -> Iterator[KazooClient]:
    """A started client in `chroot`."""
    started = KazooClient(chroot)
    started.start()
    yield started
    started.stop()
    started.close()


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaLab]:
    """Three brokers on loopback. A test that kills one starts it again before it ends."""
    with KafkaLab(brokers=3, users=SASL_USERS) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def prometheus(kafka: KafkaLab) -> Iterator[PrometheusLab]:
    """A Prometheus that scrapes the JMX exporters of `kafka` every second."""
    with monitoring(kafka) as server:
        yield server


@pytest.fixture(scope="session")
def kube_api() -> Iterator[KubeApi]:
    """A Kubernetes API: etcd, kube-apiserver and kube-controller-manager."""
    with KubeApi() as api:
        yield api


@pytest.fixture(scope="session")
def api_client(kube_api: KubeApi) -> Iterator[kubernetes_client.ApiClient]:
    """An administrator's client of `kube_api`, for what is not about kubectl: a call takes a
    hundredth of kubectl's time.
    """
    client = kubernetes_config.new_client_from_config(config_file=str(kube_api.kubeconfig))
    yield client
    client.close()


@pytest.fixture(scope="session")
def crds(kube_api: KubeApi, api_client: kubernetes_client.ApiClient) -> KubeApi:
    """`kube_api` with the CRDs of this checkout installed."""
    kube_api.install_crds(CHECKOUT / "crds")
    wait_until(
        lambda: _accepts_every_kind(api_client),
        "the first write to the fresh CRDs",
        timeout_seconds=30,
    )
    return kube_api


def _accepts_every_kind(api_client: kubernetes_client.ApiClient) -> bool:
    objects = kubernetes_client.CustomObjectsApi(api_client)
    try:
        for kind, document in (
            (BROKER_BANDWIDTH_POLICIES, policy()),
            (BUSINESS_TIERS, tier()),
            (QUOTA_OVERRIDES, override()),
        ):
            body = {**document, "metadata": {"name": "probe"}}
            objects.create_namespaced_custom_object(
                kind.group,
                kind.version,
                "default",
                kind.plural,
                body,
                dry_run="All",
                _request_timeout=30,
            )
    except (
        kubernetes_client.ApiException
    ):  # a CRD that is Established may still be unknown for a moment
        return False
    return True


@pytest.fixture
def namespace(api_client: kubernetes_client.ApiClient, unique_name: str) -> Iterator[str]:
    """A namespace of the Kubernetes API that belongs to this test alone."""
    namespaces = kubernetes_client.CoreV1Api(api_client)
    namespaces.create_namespace({"metadata": {"name": unique_name}}, _request_timeout=30)
    yield unique_name
    with contextlib.suppress(kubernetes_client.ApiException):  # the test may have deleted it
        namespaces.delete_namespace(unique_name, _request_timeout=30)


@pytest.fixture
def unique_name() -> str:
    """A name for a topic, user or client-id that no other test uses."""
    return f"t-{uuid.uuid4().hex[:12]}"
