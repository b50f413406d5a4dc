"""ZooKeeper and brokers that require TLS with a client certificate, connected to with a policy and
its Secrets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from controller_logic.model import QuotaKey
from lab.kafka import KafkaLab
from lab.network import free_port
from lab.zookeeper import ZooKeeperLab
from tests.contract.quota_store_contract import ALICE, CLUSTER, first, lay_out_kafka
from tests.integration.kafka.certificates import Certificates, make_certificates
from tests.integration.kafka.test_zookeeper_store import KazooWriter
from tidegate.control.connections import Secrets, brokers_connection, zookeeper_connection
from tidegate.errors import Unreachable
from tidegate.kafka.brokers import KafkaTopology
from tidegate.kafka.zookeeper.session import ZooKeeperSession
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore
from tidegate.resources.policy import KafkaCluster

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(240),
    # kazoo refuses SSLv2 and SSLv3 by options that Python 3.11 deprecates, and leaves closing to
    # the garbage collector
    pytest.mark.filterwarnings("ignore:ssl.OP_NO_SSL:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning"),
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning"
    ),
]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secure_zookeeper(certificates: Certificates) -> Iterator[str]:
    """The address of a ZooKeeper's secure port, with the nodes of a Kafka, made over its plain
    port.
    """
    port = free_port()
    settings = {
        "secureClientPort": str(port),
        "secureClientPortAddress": "127.0.0.1",
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        **certificates.server_settings(key_store="ssl.keyStore", trust_store="ssl.trustStore"),
    }
    with ZooKeeperLab(settings=settings) as server:
        client = KazooClient(server.connect)
        client.start()
        lay_out_kafka(KazooWriter(client))
        client.stop()
        client.close()
        yield f"127.0.0.1:{port}"


CA = {"trustedCertificates": ({"secretName": "ca", "certificate": "ca.crt"},)}
OURS = {"certificateAndKey": {"secretName": "user", "certificate": "user.crt", "key": "user.key"}}
PASSWORD = {"username": "alice", "passwordSecret": {"secretName": "user", "password": "password"}}
# what a client may leave out, and a server that requires it then refuses
LACKING = pytest.mark.parametrize(
    "lacking", [("tls",), ("certificate",), ("tls", "certificate")], ids=["ca", "client", "all"]
)


def secrets_of(certificates: Certificates, password: str = "") -> Secrets:
    """Secrets in the form of Strimzi's."""
    user = {
        "user.crt": certificates.certificate.read_bytes(),
        "user.key": certificates.key.read_bytes(),
        "password": password.encode(),
    }
    return Secrets(
        "streaming", {"ca": {"ca.crt": certificates.authority.read_bytes()}, "user": user}
    )


def zookeeper_spec(connect: str, lacking: tuple[str, ...] = ()) -> KafkaCluster:
    """TLS settings with our certificate. Without `tls` only the machine's own authorities are
    trusted.
    """
    login = {} if "certificate" in lacking else {"authentication": {"type": "tls", **OURS}}
    zookeeper = {"connect": connect, "tls": {} if "tls" in lacking else CA, **login}
    return KafkaCluster.model_validate(
        {"bootstrapServers": "127.0.0.1:1", "quotaStore": "ZooKeeper", "zookeeper": zookeeper}
    )


def brokers_spec(servers: str, lacking: tuple[str, ...] = ()) -> KafkaCluster:
    """TLS with a login and our certificate."""
    login = {"type": "plain", **PASSWORD, **({} if "certificate" in lacking else OURS)}
    kafka = {
        "bootstrapServers": servers,
        "tls": {} if "tls" in lacking else CA,
        "authentication": login,
    }
    return KafkaCluster.model_validate(
        {**kafka, "quotaStore": "ZooKeeper", "zookeeper": {"connect": "127.0.0.1:1"}}
    )


def test_quotas_are_written_through_an_encrypted_port(
    secure_zookeeper: str, certificates: Certificates, tmp_path: Path
) -> None:
    connection = zookeeper_connection(
        zookeeper_spec(secure_zookeeper), secrets_of(certificates), tmp_path
    )
    store = ZooKeeperQuotaStore(ZooKeeperSession(connection))
    values = {QuotaKey.PRODUCER_BYTE_RATE: "2048"}
    (outcome,) = store.write([first(store.read([ALICE])[ALICE], values)], CLUSTER)
    assert outcome.applied
    assert dict(store.read([ALICE])[ALICE].values) == values
    store.close()


@LACKING
def test_a_zookeeper_that_requires_more_than_is_declared_is_unreachable_and_named(
    secure_zookeeper: str, certificates: Certificates, tmp_path: Path, lacking: tuple[str, ...]
) -> None:
    declared = zookeeper_spec(secure_zookeeper, lacking)
    connection = replace(
        zookeeper_connection(declared, secrets_of(certificates), tmp_path),
        start_timeout_seconds=2.0,
    )
    store = ZooKeeperQuotaStore(ZooKeeperSession(connection))
    with pytest.raises(Unreachable) as error:
        store.facts()
    assert secure_zookeeper in error.value.message
    store.close()


@pytest.fixture(scope="module")
def secure_broker(certificates: Certificates) -> Iterator[KafkaLab]:
    """One broker whose listener for logins is encrypted and requires a certificate."""
    listener = "listener.name.sasl"
    settings = {
        "listener.security.protocol.map": "INTERNAL:PLAINTEXT,PLAIN:PLAINTEXT,SASL:SASL_SSL",
        f"{listener}.ssl.client.auth": "required",
        **certificates.server_settings(
            key_store=f"{listener}.ssl.keystore", trust_store=f"{listener}.ssl.truststore"
        ),
    }
    with KafkaLab(brokers=1, users=("alice",), server_properties=settings) as kafka:
        yield kafka


def topology_of(
    kafka: KafkaLab, certificates: Certificates, folder: Path, lacking: tuple[str, ...] = ()
) -> KafkaTopology:
    declared, secrets = (
        brokers_spec(kafka.sasl_bootstrap_servers, lacking),
        secrets_of(certificates, kafka.password("alice")),
    )
    return KafkaTopology(brokers_connection(declared, secrets, folder), topic_names=frozenset)


def test_leaders_are_read_through_an_encrypted_listener(
    secure_broker: KafkaLab, certificates: Certificates, tmp_path: Path
) -> None:
    topology = topology_of(secure_broker, certificates, tmp_path)
    read = topology.read([])
    assert (read.brokers, read.cluster_id) == ({1}, secure_broker.cluster_id)
    assert topology.quota_callbacks([1]) == {1: ""}
    topology.close()


@LACKING
def test_a_listener_that_requires_more_than_is_declared_is_unreachable_and_named(
    secure_broker: KafkaLab, certificates: Certificates, tmp_path: Path, lacking: tuple[str, ...]
) -> None:
    topology = topology_of(secure_broker, certificates, tmp_path, lacking)
    with pytest.raises(Unreachable) as error:
        topology.read([])
    assert secure_broker.sasl_bootstrap_servers in error.value.message
    assert "TLS" in error.value.message or "certificate" in error.value.message.lower()
    topology.close()
