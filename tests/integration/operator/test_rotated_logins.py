"""Passwords that change while an operator works: what the Secret says counts within its minute, and
passes go on. ZooKeeper, broker and logins are real; the operator's clock is the test's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

from lab.kafka import QuotaChange
from lab.process import started, wait_until
from lab.zookeeper import DigestLogin, ZooKeeperLab
from tests.contract.quota_store_contract import CLUSTER, lay_out_kafka
from tests.integration.conftest import LOGIN_LASTS_SECONDS, SecuredKafka
from tests.integration.kafka.test_zookeeper_store import KazooWriter
from tests.unit.control.stage import Leaders, Stage
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, ObjectRef
from tidegate.observe.connections import SECRET_AGE_SECONDS, open_cluster
from tidegate.observe.observation import KafkaCluster, TopologySource

pytestmark = pytest.mark.integration

OPERATOR = DigestLogin("kafka", "first")
# other tests leave records of streaming/orders in the ledger of the same cluster
POLICY = "rotated"


@dataclass
class RealStage(Stage):
    """An operator that opens what its policy names, with the Secrets of the in-memory
    Kubernetes.
    """

    real_brokers: bool = True
    declared: list[ObjectRef] = field(default_factory=list)

    def restart(self) -> None:
        super().restart()
        self.world = replace(self.world, open_cluster=self._open)

    def declare(self, kafka: dict[str, Any]) -> ObjectRef:
        made = self.kubernetes.create(
            BROKER_BANDWIDTH_POLICIES,
            {
                "metadata": {"name": POLICY, "namespace": "streaming"},
                "spec": {"mode": "Enforce", "kafka": {"quotaStore": "ZooKeeper", **kafka}},
            },
        )
        self.declared.append(ObjectRef.of(BROKER_BANDWIDTH_POLICIES, made))
        return self.declared[-1]

    def later(self, seconds: float) -> None:
        """The time of the operator's next pass."""
        self.now += seconds
        self.run(POLICY)

    def close(self) -> None:
        for controller in self.controllers.values():
            controller.close()

    def _open(self, *given: Any, **named: Any) -> KafkaCluster:
        if not self.real_brokers:
            named["open_topology"] = self._leaders
        return open_cluster(*given, **named)

    def _leaders(self, *_: object, **__: object) -> TopologySource:
        return self.leaders


def password_secret(password: str) -> dict[str, bytes]:
    return {"password": password.encode()}


def login(kind: str, user: str, secret: str) -> dict[str, Any]:
    return {
        "type": kind,
        "username": user,
        "passwordSecret": {"secretName": secret, "password": "password"},
    }


# --- ZooKeeper ------------------------------------------------------------------------------------


@pytest.fixture
def closed_zookeeper() -> Iterator[ZooKeeperLab]:
    """The nodes of a Kafka, for one identity alone."""
    with started(lambda: ZooKeeperLab(logins=(OPERATOR,))) as server:
        options = {"mechanism": "DIGEST-MD5", "username": "kafka", "password": OPERATOR.password}
        client = KazooClient(server.connect, sasl_options=options)
        client.start()
        lay_out_kafka(KazooWriter(client))
        for path in ("/config/users", "/config/changes"):
            client.set_acls(path, [make_acl("sasl", "kafka", all=True)])
        client.stop()
        client.close()
        yield server


def test_a_rotated_zookeeper_password_holds_quotas_until_the_secret_has_it(
    closed_zookeeper: ZooKeeperLab,
) -> None:
    stage = RealStage(leaders=Leaders(cluster_id=CLUSTER), real_brokers=False)
    stage.kubernetes.put_secret("streaming", "zookeeper", password_secret("first"))
    zookeeper = {
        "connect": closed_zookeeper.connect,
        "authentication": login("digest", "kafka", "zookeeper"),
    }
    policy = stage.declare({"bootstrapServers": "kafka:9092", "zookeeper": zookeeper})
    tier = stage.tier(policy=POLICY)
    stage.run(POLICY)
    assert stage.condition(tier)[0] == "True", stage.message(tier)
    # the server knows the new password alone, and every session has to log in again
    closed_zookeeper.kill()
    closed_zookeeper.logins = (DigestLogin("kafka", "second"),)
    closed_zookeeper.start()
    stage.leaders.leaders = {"acc": {1: 2, 2: 1}}
    wait_until(
        passing(stage, lambda: "refused the login as kafka" in stage.message(policy)),
        "the old password to be refused",
        timeout_seconds=40,
    )
    assert stage.condition(policy) == ("False", "NotAuthorized")
    stage.kubernetes.put_secret("streaming", "zookeeper", password_secret("second"))
    stage.later(SECRET_AGE_SECONDS + 1)
    assert stage.condition(policy)[0] == "True", stage.message(policy)
    options = {"mechanism": "DIGEST-MD5", "username": "kafka", "password": "second"}
    client = KazooClient(closed_zookeeper.connect, sasl_options=options)
    client.start()
    data, found = client.get("/config/users/alice")
    client.stop()
    client.close()
    assert b'"producer_byte_rate":"20000000"' in data
    assert found.version == 1, "first written, then followed once"
    stage.close()


# --- brokers --------------------------------------------------------------------------------------


@pytest.fixture
def scram_stage(secured: SecuredKafka, unique_name: str) -> Iterator[RealStage]:
    """An operator that manages the secured broker with a SCRAM login of its own; its policy gives
    everything back at the end.
    """
    secured.kafka.create_scram_user(unique_name, "first", mechanism="SCRAM-SHA-512")
    secured.kafka.create_topic("acc", [[1]])
    stage = RealStage()
    stage.kubernetes.put_secret("streaming", "brokers", password_secret("first"))
    stage.kubernetes.put_secret(
        "streaming", "zookeeper", password_secret(secured.operator.password)
    )
    made = secured.certificates
    stage.kubernetes.put_secret(
        "streaming",
        "tls",
        {
            "ca.crt": made.authority.read_bytes(),
            "crt": made.certificate.read_bytes(),
            "key": made.key.read_bytes(),
        },
    )
    yield stage
    for ref in stage.declared:
        stage.kubernetes.delete(ref)
    stage.later(1)
    assert not stage.kubernetes.list_all(BROKER_BANDWIDTH_POLICIES).items
    stage.close()


def test_a_rotated_scram_password_holds_quotas_until_the_secret_has_it(
    secured: SecuredKafka, scram_stage: RealStage, unique_name: str
) -> None:
    stage, kafka = scram_stage, secured.kafka
    tls = {"trustedCertificates": [{"secretName": "tls", "certificate": "ca.crt"}]}
    ours = {"certificateAndKey": {"secretName": "tls", "certificate": "crt", "key": "key"}}
    zookeeper = {
        "connect": secured.zookeeper_connect,
        "tls": tls,
        "authentication": {**login("digest", "kafka", "zookeeper"), **ours},
    }
    policy = stage.declare(
        {
            "bootstrapServers": kafka.sasl_bootstrap_servers,
            "tls": tls,
            "authentication": {**login("scram-sha-512", unique_name, "brokers"), **ours},
            "zookeeper": zookeeper,
        }
    )
    tier = stage.tier(user=unique_name, policy=POLICY)
    wait_until(
        passing(stage, lambda: stage.condition(tier)[0] == "True"), "a quota", timeout_seconds=30
    )
    kafka.wait_for_quota_applied(QuotaChange("PRODUCE", unique_name, None, 10_000_000.0))
    kafka.create_scram_user(unique_name, "second", mechanism="SCRAM-SHA-512")
    wait_until(
        passing(stage, lambda: "refused the login" in stage.message(policy)),
        "the broker to hang up on the old login",
        timeout_seconds=LOGIN_LASTS_SECONDS + 20,
    )
    assert unique_name in stage.message(policy)
    since = kafka.log_positions()
    stage.kubernetes.edit(tier, doubled)
    stage.later(1)
    assert f"user {unique_name} to" not in kafka.broker(1).log_text(since[1]), "quotas are held"
    stage.kubernetes.put_secret("streaming", "brokers", password_secret("second"))
    stage.later(SECRET_AGE_SECONDS + 1)
    assert stage.condition(policy)[0] == "True", stage.message(policy)
    kafka.wait_for_quota_applied(QuotaChange("PRODUCE", unique_name, None, 20_000_000.0), since)


def doubled(tier: dict[str, Any]) -> None:
    tier["spec"]["members"][0]["contract"]["perPartition"]["produce"] = "20M"


def passing(stage: RealStage, holds: Callable[[], bool]) -> Callable[[], bool]:
    def pass_and_look() -> bool:
        stage.later(0.1)
        return holds()

    return pass_and_look
