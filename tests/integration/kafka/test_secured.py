"""A real broker and its ZooKeeper with TLS, client certificates, logins and ACLs, connected to with
a policy and its Secrets.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import ACL, make_acl

from lab.kafka import KafkaLab, QuotaChange
from lab.process import freeze, wait_until
from lab.zookeeper import DigestLogin
from tests.contract.quota_store_contract import first, give_back
from tests.integration.conftest import LOGIN_LASTS_SECONDS, SecuredKafka
from tests.integration.kafka.certificates import Certificates, make_certificates
from tidegate.errors import Unauthorized, Unreachable
from tidegate.kafka.brokers import KafkaTopology
from tidegate.kafka.quota_store import Claim
from tidegate.kafka.zookeeper.session import ZooKeeperSession
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore
from tidegate.observe.broker_settings import PLUGIN
from tidegate.observe.connections import Secrets, brokers_connection, zookeeper_connection
from tidegate.resources.policy import KafkaCluster
from tidegate_logic.model import Entity, QuotaKey
from tidegate_logic.reasons import Reason

pytestmark = pytest.mark.integration

PRODUCE = QuotaKey.PRODUCER_BYTE_RATE
CA = {"trustedCertificates": ({"secretName": "ca", "certificate": "ca.crt"},)}
OURS = {"certificateAndKey": {"secretName": "user", "certificate": "user.crt", "key": "user.key"}}
# what a client may leave out, and a server that requires it then refuses
LACKING = pytest.mark.parametrize(
    "lacking", [("tls",), ("certificate",), ("tls", "certificate")], ids=["ca", "client", "all"]
)


def login(kind: str, user: str) -> dict[str, Any]:
    password = {"secretName": "user", "password": f"password-of-{user}"}
    return {"type": kind, "username": user, "passwordSecret": password}


def secrets_of(certificates: Certificates, **passwords: str) -> Secrets:
    """Secrets in the form of Strimzi's, with the passwords by user name."""
    user = {
        "user.crt": certificates.certificate.read_bytes(),
        "user.key": certificates.key.read_bytes(),
        **{f"password-of-{name}": word.encode() for name, word in passwords.items()},
    }
    return Secrets(
        "streaming", {"ca": {"ca.crt": certificates.authority.read_bytes()}, "user": user}
    )


def spec(
    secured: SecuredKafka,
    *,
    zookeeper_login: dict[str, Any] | None = None,
    brokers_login: dict[str, Any] | None = None,
    lacking: tuple[str, ...] = (),
    host: str = "127.0.0.1",
) -> KafkaCluster:
    """TLS with our certificate and a login to both. Without `tls` only the machine's own
    authorities are trusted.
    """

    def secure(declared: dict[str, Any]) -> dict[str, Any]:
        authentication = {**declared, **({} if "certificate" in lacking else OURS)}
        return {"tls": {} if "tls" in lacking else CA, "authentication": authentication}

    def at(address: str) -> str:
        return address.replace("127.0.0.1", host)

    zookeeper = {
        "connect": at(secured.zookeeper_connect),
        **secure(zookeeper_login or login("digest", "kafka")),
    }
    return KafkaCluster.model_validate(
        {
            "bootstrapServers": at(secured.kafka.sasl_bootstrap_servers),
            "quotaStore": "ZooKeeper",
            "zookeeper": zookeeper,
            **secure(brokers_login or login("plain", "alice")),
        }
    )


@contextmanager
def opened(
    declared: KafkaCluster, secrets: Secrets, folder: Path, *, within_seconds: float = 10.0
) -> Iterator[ZooKeeperQuotaStore]:
    connection = replace(
        zookeeper_connection(declared, secrets, folder), start_timeout_seconds=within_seconds
    )
    store = ZooKeeperQuotaStore(ZooKeeperSession(connection))
    yield store
    store.close()


@contextmanager
def asked(declared: KafkaCluster, secrets: Secrets, folder: Path) -> Iterator[KafkaTopology]:
    topology = KafkaTopology(brokers_connection(declared, secrets, folder), topic_names=frozenset)
    yield topology
    topology.close()


@pytest.fixture
def secrets(secured: SecuredKafka) -> Secrets:
    return secrets_of(
        secured.certificates,
        kafka=secured.operator.password,
        mallory=secured.stranger.password,
        alice=secured.kafka.password("alice"),
    )


@pytest.fixture
def store(secured: SecuredKafka, secrets: Secrets, tmp_path: Path) -> Iterator[ZooKeeperQuotaStore]:
    with opened(spec(secured), secrets, tmp_path) as found:
        wait_until(lambda: answers(found), "the secure port's first answer", timeout_seconds=60)
        yield found
        # other tests' policies manage the same cluster
        left = found.read(found.ledger_entities()).values()
        found.write([give_back(quota, {PRODUCE: None}) for quota in left], secured.kafka.cluster_id)
        found.release_claim("streaming/orders")
        assert found.facts().owner_policy_key is None


def answers(store: ZooKeeperQuotaStore) -> bool:
    try:
        return bool(store.facts().cluster_id)
    except Unreachable:  # a cold Java machine needs seconds for its first encrypted connection
        return False


@pytest.fixture
def kafkas_own(secured: SecuredKafka) -> Iterator[KazooClient]:
    """A client with the identity of the brokers."""
    with logged_in(secured, secured.operator) as client:
        yield client


@contextmanager
def logged_in(secured: SecuredKafka, who: DigestLogin) -> Iterator[KazooClient]:
    options = {"mechanism": "DIGEST-MD5", "username": who.user, "password": who.password}
    client = KazooClient(secured.kafka.zookeeper_connect, sasl_options=options)
    client.start()
    yield client
    client.stop()
    client.close()


def change(user: str, value: float | None) -> QuotaChange:
    return QuotaChange("PRODUCE", user, None, value)


def write(store: ZooKeeperQuotaStore, kafka: KafkaLab, user: str, rate: str) -> None:
    seen = store.read([Entity(user)])[Entity(user)]
    (outcome,) = store.write([first(seen, {PRODUCE: rate})], kafka.cluster_id)
    assert outcome.applied, outcome


# --- brokers with zookeeper.set.acl, over TLS with SASL -------------------------------------------


def test_brokers_obey_quotas_written_over_tls_and_sasl_and_purge_their_notifications(
    secured: SecuredKafka, store: ZooKeeperQuotaStore, kafkas_own: KazooClient, unique_name: str
) -> None:
    kafka = secured.kafka
    write(store, kafka, unique_name, "2048")
    kafka.wait_for_quota_applied(change(unique_name, 2048.0))
    mine = kafkas_own.get_children("/config/changes")
    seen = store.read([Entity(unique_name)])[Entity(unique_name)]
    store.write([give_back(seen, {PRODUCE: None})], kafka.cluster_id)
    kafka.wait_for_quota_applied(change(unique_name, None))
    # with the next one the broker removes what its clock says is older than a quarter of an hour
    wait_until(
        lambda: not set(mine) & set(kafkas_own.get_children("/config/changes")),
        "the broker to purge our notifications",
        timeout_seconds=15,
    )
    assert kafkas_own.exists(f"/config/users/{unique_name}") is None
    assert kafkas_own.exists(f"/tidegate/ledger/users%2F{unique_name}") is None


def test_every_node_of_ours_belongs_to_the_brokers_identity_alone(
    secured: SecuredKafka, store: ZooKeeperQuotaStore, kafkas_own: KazooClient, unique_name: str
) -> None:
    store.claim(Claim("streaming/orders", "uid-1"))
    before = set(kafkas_own.get_children("/config/changes"))
    broker = secured.kafka.broker(1).process.pid
    freeze(broker)  # or it may purge the notification before it is looked at
    try:
        write(store, secured.kafka, unique_name, "2048")
        (notification,) = set(kafkas_own.get_children("/config/changes")) - before
        acl_of_the_notification = kafkas_own.get_acls(f"/config/changes/{notification}")[0]
    finally:
        os.kill(broker, signal.SIGCONT)
    closed = [make_acl("sasl", "kafka", all=True)]
    for path in (
        "/config/users",
        f"/config/users/{unique_name}",
        "/tidegate",
        "/tidegate/claim",
        f"/tidegate/ledger/users%2F{unique_name}",
    ):
        assert kafkas_own.get_acls(path)[0] == closed, path
    readable: list[ACL] = [*closed, make_acl("world", "anyone", read=True)]
    assert sorted(acl_of_the_notification) == sorted(readable)


def test_another_identity_reads_and_writes_nothing_and_is_named(
    secured: SecuredKafka,
    store: ZooKeeperQuotaStore,
    secrets: Secrets,
    *,
    kafkas_own: KazooClient,
    tmp_path: Path,
    unique_name: str,
) -> None:
    write(store, secured.kafka, unique_name, "2048")
    before = kafkas_own.get(f"/config/users/{unique_name}")
    declared = spec(secured, zookeeper_login=login("digest", "mallory"))
    with opened(declared, secrets, tmp_path) as strangers:
        with pytest.raises(Unauthorized) as refused:
            strangers.read([Entity(unique_name)])
        assert f"user mallory at /config/users/{unique_name}" in refused.value.message
        assert refused.value.reason is Reason.NOT_AUTHORIZED
        seen = store.read([Entity(unique_name)])[Entity(unique_name)]
        with pytest.raises(Unauthorized, match="user mallory at /"):
            strangers.write([first(seen, {PRODUCE: "4096"})], secured.kafka.cluster_id)
    wrong = secrets_of(secured.certificates, kafka="wrong")
    with opened(spec(secured), wrong, tmp_path) as store, pytest.raises(Unauthorized) as refused:
        store.facts()
    assert "refused the login as kafka" in refused.value.message
    assert kafkas_own.get(f"/config/users/{unique_name}") == before


# --- SCRAM with our own client --------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "SCRAM-SHA-256"])
def test_scram_logs_in_before_during_and_after_a_quota_of_the_same_user(
    secured: SecuredKafka,
    store: ZooKeeperQuotaStore,
    kafkas_own: KazooClient,
    *,
    tmp_path: Path,
    unique_name: str,
    mechanism: str,
) -> None:
    kafka = secured.kafka
    kafka.create_scram_user(unique_name, "right, ünïcode", mechanism=mechanism)
    stored = json.loads(kafkas_own.get(f"/config/users/{unique_name}")[0])["config"]
    declared = spec(secured, brokers_login=login(mechanism.lower(), unique_name))

    def logs_in(password: str = "right, ünïcode") -> bool:
        """False = refused in a message that names the user and the mechanism."""
        known = secrets_of(secured.certificates, **{unique_name: password})
        with asked(declared, known, tmp_path) as topology:
            try:
                return topology.read([]).cluster_id == kafka.cluster_id
            except Unauthorized as refused:
                return not all(word in refused.message for word in (unique_name, mechanism))

    wait_until(logs_in, f"the login by {mechanism}", timeout_seconds=15)
    assert not logs_in("wrong")
    write(store, kafka, unique_name, "2048")
    kafka.wait_for_quota_applied(change(unique_name, 2048.0))
    assert logs_in()
    quota = json.loads(kafkas_own.get(f"/config/users/{unique_name}")[0])["config"]
    assert quota == {**stored, "producer_byte_rate": "2048"}
    seen = store.read([Entity(unique_name)])[Entity(unique_name)]
    store.write([give_back(seen, {PRODUCE: None})], kafka.cluster_id)
    kafka.wait_for_quota_applied(change(unique_name, None))
    assert logs_in()
    assert not logs_in("wrong")
    assert json.loads(kafkas_own.get(f"/config/users/{unique_name}")[0])["config"] == stored


# --- what is lacking, what is signed by somebody else, and what is for another name --------------


@LACKING
def test_a_zookeeper_that_requires_more_than_is_declared_is_unreachable_and_named(
    secured: SecuredKafka, secrets: Secrets, tmp_path: Path, lacking: tuple[str, ...]
) -> None:
    with (
        opened(spec(secured, lacking=lacking), secrets, tmp_path, within_seconds=2.0) as store,
        pytest.raises(Unreachable) as error,
    ):
        store.facts()
    assert secured.zookeeper_connect in error.value.message
    assert "certificate" in error.value.message


@LACKING
def test_a_listener_that_requires_more_than_is_declared_is_unreachable_and_named(
    secured: SecuredKafka, secrets: Secrets, tmp_path: Path, lacking: tuple[str, ...]
) -> None:
    with (
        asked(spec(secured, lacking=lacking), secrets, tmp_path) as topology,
        pytest.raises(Unreachable) as error,
    ):
        topology.read([])
    assert secured.kafka.sasl_bootstrap_servers in error.value.message
    assert "TLS" in error.value.message or "certificate" in error.value.message.lower()


def test_quota_plugins_are_asked_for_through_an_encrypted_listener(
    secured: SecuredKafka, secrets: Secrets, tmp_path: Path
) -> None:
    with asked(spec(secured), secrets, tmp_path) as topology:
        read = topology.read([])
        assert (read.brokers, read.cluster_id) == ({1}, secured.kafka.cluster_id)
        answers = topology.settings([1], [PLUGIN, "quota.window.num"])
        assert answers == {1: {"quota.window.num": "11"}}


def test_an_authority_that_only_the_machine_trusts_is_refused_where_the_secret_names_another(
    secured: SecuredKafka, secrets: Secrets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = make_certificates(tmp_path / "others")
    pinned = replace(
        secrets, data={**secrets.data, "ca": {"ca.crt": others.authority.read_bytes()}}
    )
    # the machine trusts who signed the servers' certificates; the Secret does not
    monkeypatch.setenv("SSL_CERT_FILE", str(secured.certificates.authority))
    with opened(spec(secured, lacking=("tls",)), secrets, tmp_path / "own") as store:
        assert store.facts().cluster_id == secured.kafka.cluster_id, "the machine's own are used"
    with (
        opened(spec(secured), pinned, tmp_path, within_seconds=2.0) as store,
        pytest.raises(Unreachable) as pinning,
    ):
        store.facts()
    assert "signed by none of trustedCertificates" in pinning.value.message
    with asked(spec(secured), pinned, tmp_path) as topology, pytest.raises(Unreachable) as pinning:
        topology.read([])
    assert "signed by none of trustedCertificates" in pinning.value.message


def test_a_valid_certificate_for_another_name_is_refused_with_both_names(
    secured: SecuredKafka, secrets: Secrets, tmp_path: Path
) -> None:
    declared = spec(secured, host="localhost")  # the certificates are for 127.0.0.1
    with (
        opened(declared, secrets, tmp_path, within_seconds=2.0) as store,
        pytest.raises(Unreachable) as zookeeper,
    ):
        store.facts()
    with asked(declared, secrets, tmp_path) as topology, pytest.raises(Unreachable) as brokers:
        topology.read([])
    for message in (zookeeper.value.message, brokers.value.message):
        assert "its certificate is valid, but not for localhost" in message
        assert "Use a name that the certificate has" in message
    assert LOGIN_LASTS_SECONDS
