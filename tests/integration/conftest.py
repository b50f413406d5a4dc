"""Real parts of the lab for integration tests: started when the first test asks for them, shared by
all, stopped at the end.

Each test has a chroot of its own in the shared ZooKeeper (`chroot`), a namespace of its own in the
Kubernetes API (`namespace`) and names that no other test uses (`unique_name`). A part that this
machine lacks is an error that names the command to install it, never a skip. Each pytest process
has parts of its own, so several can run side by side.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kubernetes import client as kubernetes_client
from kubernetes import config as kubernetes_config

from lab.kafka import BrokersLab, KafkaLab
from lab.kraft import KraftLab
from lab.kubernetes.api import KubeApi
from lab.network import free_port
from lab.packages import CHOSEN
from lab.process import started, wait_until
from lab.prometheus import PrometheusLab, monitoring
from lab.zookeeper import DigestLogin, ZooKeeperLab
from tests.integration.kafka.certificates import Certificates, make_certificates
from tests.unit.resources.documents import override, policy, queue, tier
from tidegate.kube.api import (
    BROKER_BANDWIDTH_POLICIES,
    BUSINESS_TIERS,
    DELAY_QUEUES,
    QUOTA_OVERRIDES,
)

CHECKOUT = Path(__file__).parents[2]
OPERATORS = Path(__file__).parent / "operator"
KINDS = ("throttling", "operators", "brokers", "kraft", "replicas")
SASL_USERS = ("alice", "bob", "carol", "dave", "erin")


@pytest.hookimpl(tryfirst=True)  # before `-m` selects by it
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by the costliest parts they share, for `make` to run each kind in a process of its
    own, beside the others.

    Starting parts takes processor time: a further kind must be worth its own.
    """
    for item in items:
        kind = _kind(item)
        if kind is not None:
            item.add_marker(kind)


def _kind(item: pytest.Item) -> pytest.MarkDecorator | None:
    if any(map(item.get_closest_marker, KINDS)):  # as the test itself says
        return None
    asked_for = getattr(item, "fixturenames", ())
    if "kafka" in asked_for or "three_brokers" in asked_for:
        # of those on the brokers, the ones that run an operator mostly wait for it
        has_operator = "crds" in asked_for and "prometheus" not in asked_for
        return pytest.mark.operators if has_operator else pytest.mark.brokers
    if "kraft" in asked_for:
        return pytest.mark.kraft
    if OPERATORS in item.path.parents:
        return pytest.mark.replicas
    return None


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[ZooKeeperLab]:
    """A ZooKeeper server with no Kafka on it."""
    with started(ZooKeeperLab) as server:
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
    with started(lambda: KafkaLab(brokers=3, users=SASL_USERS)) as cluster:
        yield cluster


# everyone on the plain listener may do everything, and those who log in only what an ACL grants
AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="session")
def kraft() -> Iterator[KraftLab]:
    """A broker of Kafka 4 that is its own controller, and has an authorizer."""
    users = ("alice", "bob")
    with started(lambda: KraftLab(users=users, server_properties=AUTHORIZED)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kraft_of_three() -> Iterator[KraftLab]:
    """Three brokers of Kafka 4 that are controllers. A test that kills one starts it again."""
    with started(lambda: KraftLab(brokers=3, users=SASL_USERS)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def three_brokers(request: pytest.FixtureRequest) -> BrokersLab:
    """Three brokers: `kafka`, or `kraft_of_three` where one without ZooKeeper was chosen."""
    is_kraft = os.environ.get(CHOSEN, "").endswith("-kraft")
    found: BrokersLab = request.getfixturevalue("kraft_of_three" if is_kraft else "kafka")
    return found


@dataclass(frozen=True)
class SecuredKafka:
    """A broker and its ZooKeeper that let no one in without TLS and a login, but over the lab's own
    plain ports.
    """

    kafka: KafkaLab
    zookeeper_connect: str
    certificates: Certificates
    operator: DigestLogin
    stranger: DigestLogin


# After this time brokers hang up on a client that does not log in again, as with
# `connections.max.reauth.ms`: so a changed password counts soon.
LOGIN_LASTS_SECONDS = 3


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """One broker with `zookeeper.set.acl`, SASL and TLS everywhere. ZooKeeper's clock is 20 minutes
    behind, so that a broker takes every notification for older than the 15 minutes it keeps them.
    """
    certificates = make_certificates(tmp_path_factory.mktemp("certificates"), minutes_ago=30)
    operator, stranger = DigestLogin("kafka", "kafka-secret"), DigestLogin("mallory", "hers")
    port = free_port()
    secure_port = {
        "secureClientPort": str(port),
        "secureClientPortAddress": "127.0.0.1",
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        **certificates.server_settings(key_store="ssl.keyStore", trust_store="ssl.trustStore"),
    }
    listener = "listener.name.sasl"
    encrypted = {
        "listener.security.protocol.map": "INTERNAL:PLAINTEXT,PLAIN:PLAINTEXT,SASL:SASL_SSL",
        f"{listener}.ssl.client.auth": "required",
        f"{listener}.scram-sha-512.connections.max.reauth.ms": f"{LOGIN_LASTS_SECONDS * 1000}",
        **certificates.server_settings(
            key_store=f"{listener}.ssl.keystore", trust_store=f"{listener}.ssl.truststore"
        ),
    }
    with KafkaLab(
        brokers=1,
        users=SASL_USERS,
        server_properties=encrypted,
        zookeeper_logins=(operator, stranger),
        zookeeper_settings=secure_port,
        zookeeper_behind_minutes=20,
    ) as kafka:
        yield SecuredKafka(kafka, f"127.0.0.1:{port}", certificates, operator, stranger)


@pytest.fixture(scope="session")
def prometheus(kafka: KafkaLab) -> Iterator[PrometheusLab]:
    """A Prometheus that scrapes the JMX exporters of `kafka` every second."""
    with started(lambda: monitoring(kafka)) as server:
        yield server


@pytest.fixture(scope="session")
def kube_api() -> Iterator[KubeApi]:
    """A Kubernetes API: etcd, kube-apiserver and kube-controller-manager."""
    with started(KubeApi) as api:
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
            (DELAY_QUEUES, queue()),
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
