"""The parts of the scenarios, started once: three brokers, Prometheus, a cluster, the image, and
the chart installed with two replicas.

Each scenario gets a namespace and users of its own and leaves Kafka and the cluster as it found
them; that is checked after each.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from e2e.cluster import Cluster, cluster
from e2e.kafka_side import KafkaSide
from e2e.login import SECRET, Login
from e2e.release import Image, Release
from e2e.scene import Scenario
from image import build
from lab.kafka import KafkaLab
from lab.kubernetes.tools import Helm
from lab.prometheus import PrometheusLab, monitoring

USERS = ("checkout", "orders", "search", "reports")


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaLab]:
    """Three brokers, each with a NIC of its own; one of the users has a login in ZooKeeper, beside
    its quotas.
    """
    with KafkaLab(brokers=3, namespaces=True, users=USERS) as lab:
        lab.create_scram_user("orders", "a password")
        yield lab


@pytest.fixture(scope="session")
def prometheus(kafka: KafkaLab) -> Iterator[PrometheusLab]:
    """It scrapes NICs and clients every second."""
    with monitoring(kafka) as lab:
        yield lab


@pytest.fixture(scope="session")
def kubernetes(kafka: KafkaLab) -> Iterator[Cluster]:
    """The cluster that the environment asks for."""
    with cluster(kafka.bridge) as running:
        yield running


@pytest.fixture(scope="session")
def release(kubernetes: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """Two replicas of the operator that watch the whole cluster."""
    built = build()
    kubernetes.load_image(built.archive)
    repository, _, tag = built.name.rpartition(":")
    installed = Release(
        kubernetes,
        Helm(tmp_path_factory.mktemp("helm"), kubernetes.kubeconfig),
        Image(repository, tag),
    )
    installed.install()
    yield installed
    installed.uninstall()


@pytest.fixture(scope="session")
def zookeeper(kafka: KafkaLab) -> Iterator[KazooClient]:
    """A reader of Kafka's ZooKeeper."""
    client = KazooClient(
        kafka.zookeeper_connect, command_retry={"max_tries": 100, "max_delay": 1.0}
    )
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture
def in_kafka(kafka: KafkaLab, zookeeper: KazooClient) -> Iterator[KafkaSide]:
    """What Kafka has; nothing of it may be different afterwards."""
    side = KafkaSide(kafka, zookeeper)
    before = side.everything()
    yield side
    assert side.everything() == before


@pytest.fixture
def topic(kafka: KafkaLab) -> str:
    """A topic of three partitions, each led by another broker."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(name, assignment=[[1, 2], [2, 3], [3, 1]])
    return name


@pytest.fixture
def scene(kubernetes: Cluster, release: Release, in_kafka: KafkaSide) -> Iterator[Scenario]:
    """A namespace with a login for Prometheus in it, deleted at the end; by then no log and no
    event may hold the password.
    """
    assert release.pods(), "the scenario needs an operator"
    namespace = f"e2e-{uuid.uuid4().hex[:8]}"
    kubernetes.kubectl("create", "namespace", namespace)
    opened = Scenario(kubernetes, namespace)
    login = Login()
    opened.credentials(SECRET, login.literals())
    yield opened
    release.wait_until_ready()
    written = "\n".join([release.logs(), opened.events()])
    opened.delete_namespace()
    assert not login.lines_that_tell(written)
