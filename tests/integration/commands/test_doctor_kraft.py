"""`tidegate doctor` on a real Kafka without ZooKeeper: a sound set-up, the broken ones that are the
same with every Kafka, and those of its own: rights on the brokers, and a real quota plugin.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka.admin import ResourceType

from lab.kraft import KraftLab
from lab.kubernetes.api import KubeApi
from lab.packages import with_quota_plugin
from lab.process import started, wait_until
from lab.prometheus import PrometheusLab, monitoring
from tests.integration.commands.conftest import allowed, use
from tests.integration.commands.doctor_set_ups import DoctorOnSetUps, Setup
from tests.integration.connections import connection_of
from tidegate.kafka.adminapi.client import AdminClient, rights_needed
from tidegate.kafka.adminapi.quotas import alter, describe
from tidegate.kafka.adminapi.store import LEDGER_TOPIC
from tidegate_logic.model import BYTE_RATE_KEYS, Entity

pytestmark = [pytest.mark.integration, pytest.mark.kraft]

USER, TOPIC = "shop", "doctor"
PLUGIN = "io.strimzi.kafka.quotas.StaticQuotaCallback"


@pytest.fixture(scope="module")
def cluster() -> Iterator[KraftLab]:
    """A broker, and a user with a quota, so that it meters the user."""
    with started(lambda: KraftLab(users=(USER,))) as kafka:
        kafka.create_topic(TOPIC, [[1], [1], [1]])
        client = _client(kafka)
        quota = dict.fromkeys(BYTE_RATE_KEYS, "900000000")
        assert alter(client, {Entity(USER): quota}, "unused") == {Entity(USER): None}
        client.close()
        yield kafka


@pytest.fixture(scope="module")
def prometheus(cluster: KraftLab) -> Iterator[PrometheusLab]:
    """One that has seen the user's traffic, both ways."""
    with monitoring(cluster) as server:

        def metered() -> bool:
            use(cluster, USER, TOPIC, cluster.password(USER))
            found = server.query('count by (resource) (kafka_quota_byte_rate{user!=""})')
            return {one["metric"]["resource"] for one in found} >= {"Fetch", "Produce"}

        wait_until(metered, "the user's rates", timeout_seconds=60, poll_seconds=1)
        yield server


@pytest.fixture
def setup(cluster: KraftLab, prometheus: PrometheusLab, crds: KubeApi, namespace: str) -> Setup:
    return Setup(cluster, {}, prometheus, crds, namespace, USER, TOPIC)


@pytest.mark.long
class TestWithoutZooKeeper(DoctorOnSetUps):
    def test_a_sound_set_up_has_no_problem_and_nothing_is_changed(
        self, setup: Setup, cluster: KraftLab
    ) -> None:
        before = _kept(cluster)
        report = self.sound(setup)
        assert report.states("zookeeper") == set()
        store, brokers = report.of("kafka", "ok")
        assert f"cluster {cluster.cluster_id}" in store["what"]
        assert "broker 1 answered; KRaft" in brokers["what"]
        assert _kept(cluster) == before


def _client(kafka: KraftLab) -> AdminClient:
    return AdminClient(connection_of(kafka.bootstrap_servers))


def _kept(kafka: KraftLab) -> tuple[Mapping[Entity, Any], set[str]]:
    """Every quota, and the names of the topics."""
    client = _client(kafka)
    quotas = describe(client, None, "unused")
    names = {topic.name for topic in client.metadata(None).topics}
    client.close()
    return quotas, names


def test_a_login_without_rights_on_the_brokers_is_told_each_of_them(
    kraft: KraftLab, prometheus: PrometheusLab, crds: KubeApi, namespace: str, unique_name: str
) -> None:
    kraft.create_topic(unique_name, [[1]])
    login = {
        "type": "scram-sha-256",
        "username": "alice",
        "passwordSecret": {"secretName": "login", "password": "password"},
    }
    by_login = {"bootstrapServers": kraft.sasl_bootstrap_servers, "authentication": login}
    setup = Setup(kraft, by_login, prometheus, crds, namespace, USER, unique_name)
    setup.apply_password(kraft.password("alice"))
    setup.apply()
    report = setup.doctor()
    assert report.problems() == {("kafka", "NotAuthorized")}
    store, leaders = report.of("kafka")
    assert rights_needed(LEDGER_TOPIC) in store["toDo"]
    assert f"describe topic {unique_name}." in leaders["what"]
    assert "Grant its user Describe" in leaders["toDo"]

    # one that may read everything and change nothing
    cluster = (ResourceType.BROKER, "kafka-cluster", "DESCRIBE_CONFIGS")
    topics = [(ResourceType.TOPIC, name, "DESCRIBE") for name in (LEDGER_TOPIC, unique_name)]
    with allowed(kraft, "alice", [cluster, *topics]):
        report = wait_until(
            lambda: found if "ok" in (found := setup.doctor()).states("window") else None,
            "the rights to be granted",
            timeout_seconds=60,
        )
    assert report is not None
    (one,) = report.of("kafka")
    assert one["reason"] == "NotAuthorized"
    assert "did not let Tidegate alter client quotas" in one["what"]
    assert "ALTER_CONFIGS" in one["toDo"]
    assert not [one for one in _kept(kraft)[1] if one == LEDGER_TOPIC]


def test_a_real_quota_plugin_is_named(
    prometheus: PrometheusLab, crds: KubeApi, namespace: str
) -> None:
    settings = {
        "client.quota.callback.class": PLUGIN,
        "client.quota.callback.static.kafka.admin.bootstrap.servers": "127.0.0.1:9",  # not asked
    }
    with started(lambda: KraftLab(server_properties=settings, jars=with_quota_plugin)) as kafka:
        kafka.create_topic(TOPIC, [[1]])
        setup = Setup(kafka, {}, prometheus, crds, namespace, USER, TOPIC)
        setup.apply()
        report = setup.doctor()
    assert ("plugin", "QuotasIgnored") in report.problems()
    (one,) = report.of("plugin")
    assert "Broker 1 sets" in one["what"]
    assert PLUGIN in one["what"]
    assert "client.quota.callback.class" in one["toDo"]
