"""Real parts of the lab for integration tests: started when the first test asks for them, shared by all, stopped at the end.

Tests stay apart by a chroot of their own in the shared ZooKeeper (`chroot`) and by names nobody else uses (`unique_name`). A part that
this machine lacks is an error that says how to install it, never a skip.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from lab.kafka import KafkaLab
from lab.kube_api import KubeApi
from lab.prometheus import PrometheusLab, monitoring
from lab.zookeeper import ZooKeeperLab

SASL_USERS = ("alice", "bob", "carol", "dave", "erin")


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[ZooKeeperLab]:
    """A ZooKeeper server with no Kafka on it."""
    with ZooKeeperLab() as server:
        yield server


@pytest.fixture
def chroot(zookeeper: ZooKeeperLab) -> Iterator[str]:
    """A connect string whose chroot exists, is empty and belongs to this test alone."""
    path = f"/test-{uuid.uuid4().hex[:12]}"
    client = KazooClient(zookeeper.connect)
    client.start()
    client.create(path)
    yield zookeeper.connect + path
    client.delete(path, recursive=True)
    client.stop()
    client.close()


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


@pytest.fixture
def unique_name() -> str:
    """A name for a topic, user or client-id that no other test uses."""
    return f"t-{uuid.uuid4().hex[:12]}"
