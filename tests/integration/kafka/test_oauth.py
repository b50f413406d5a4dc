"""Logins by OAuth tokens: a real broker with Kafka's own validator, and a token endpoint with its
own authority.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from lab.kafka import QuotaChange
from lab.kraft import KraftLab
from lab.process import patience, started, wait_until
from lab.token_server import AUDIENCE, TokenServer
from tests.integration.forwarder.queue_world import QueueWorld
from tests.integration.kafka.certificates import Certificates, make_certificates
from tests.integration.operator.test_rotated_logins import POLICY, RealStage, doubled, passing
from tidegate.cli import main
from tidegate.commands.context import CommandContext
from tidegate.errors import TidegateError, Unauthorized, Unreachable
from tidegate.forwarder.settings import client_settings
from tidegate.kafka.brokers import KafkaTopology
from tidegate.kafka.settings import TokenLogin
from tidegate.observe.connections import SECRET_AGE_SECONDS, brokers_connection
from tidegate.observe.secrets_and_hosts import Secrets
from tidegate.queues.names import Guarantee
from tidegate.resources.policy import KafkaCluster
from tidegate_logic.reasons import Reason

pytestmark = pytest.mark.integration

SECRET = "ebb&flood+100 %"
SESSION_SECONDS = 3600  # the broker's limit; a token's life is shorter


@dataclass(frozen=True)
class OAuth:
    """The broker, whose users are the clients of the token server."""

    kafka: KraftLab
    server: TokenServer
    certificates: Certificates


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OAuth]:
    folder = tmp_path_factory.mktemp("oauth")
    certificates = make_certificates(folder / "certificates")
    listener = "listener.name.sasl"
    with TokenServer(
        folder / "server", certificate=certificates.certificate, key=certificates.key
    ) as server:
        settings = {
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,PLAIN:PLAINTEXT,SASL:SASL_SSL",
            **certificates.server_settings(
                key_store=f"{listener}.ssl.keystore", trust_store=f"{listener}.ssl.truststore"
            ),
            **server.broker_settings(),
            f"{listener}.oauthbearer.connections.max.reauth.ms": str(SESSION_SECONDS * 1000),
        }
        options = server.java_options()
        with started(lambda: KraftLab(server_properties=settings, java_options=options)) as kafka:
            yield OAuth(kafka, server, certificates)


@pytest.fixture
def oauth(everything: OAuth) -> Iterator[OAuth]:
    server = everything.server
    server.clients = {"tidegate": SECRET}
    server.requests.clear()
    yield everything
    server.lifetime_seconds, server.audience = 300.0, AUDIENCE
    server.stop()
    server.start()


def declared(oauth: OAuth, **login: Any) -> KafkaCluster:
    by_client = {
        "tokenEndpointUri": oauth.server.url,
        "clientId": "tidegate",
        "clientSecret": {"secretName": "tidegate", "key": "clientSecret"},
        "scope": "kafka.read kafka.write",
        "audience": "kafka",
        "tlsTrustedCertificates": ({"secretName": "ca", "certificate": "ca.crt"},),
    }
    return KafkaCluster.model_validate(
        {
            "bootstrapServers": oauth.kafka.sasl_bootstrap_servers,
            "tls": {"trustedCertificates": ({"secretName": "ca", "certificate": "ca.crt"},)},
            "authentication": {"type": "oauthbearer", **(login or by_client)},
        }
    )


def secrets_of(oauth: OAuth, secret: str = SECRET, **more: bytes) -> Secrets:
    authority = oauth.certificates.authority.read_bytes()
    return Secrets(
        "streaming",
        {"ca": {"ca.crt": authority}, "tidegate": {"clientSecret": secret.encode(), **more}},
    )


@contextmanager
def asked(
    oauth: OAuth, secrets: Secrets, folder: Path, spec: KafkaCluster | None = None
) -> Iterator[KafkaTopology]:
    connection = brokers_connection(spec or declared(oauth), secrets, folder)
    topology = KafkaTopology(connection, topic_names=frozenset)
    yield topology
    topology.close()


def error_of(topology: KafkaTopology) -> TidegateError:
    with pytest.raises(TidegateError) as raised:
        topology.read([])
    assert SECRET not in raised.value.message
    return raised.value


def test_a_client_gets_a_token_and_logs_in_with_it(oauth: OAuth, tmp_path: Path) -> None:
    with asked(oauth, secrets_of(oauth), tmp_path) as topology:
        assert topology.read([]).cluster_id == oauth.kafka.cluster_id
        assert topology.settings([1], ["node.id"]) == {1: {"node.id": "1"}}
    (request,) = oauth.server.requests
    assert request == {
        "grant_type": "client_credentials",
        "client": "tidegate",
        "scope": "kafka.read kafka.write",
        "audience": "kafka",
    }


def test_a_connection_logs_in_again_before_its_token_expires(oauth: OAuth, tmp_path: Path) -> None:
    """By the broker's clock its login ends with the token; then the broker hangs up on requests."""
    oauth.server.lifetime_seconds = 5
    with asked(oauth, secrets_of(oauth), tmp_path) as topology:
        topology.read([])
        kept = topology._open

        def asks_again() -> bool:
            topology.read([])
            return len(oauth.server.requests) >= 4

        wait_until(asks_again, "three tokens more on one connection", timeout_seconds=40)
        assert topology._open is kept


def test_while_the_endpoint_is_unreachable_nothing_is_read_and_then_it_goes_on(
    oauth: OAuth, tmp_path: Path
) -> None:
    oauth.server.lifetime_seconds = 8
    with asked(oauth, secrets_of(oauth), tmp_path) as topology:
        topology.read([])
        oauth.server.stop()

        def fails() -> bool:
            try:
                topology.read([])
            except Unreachable as error:
                return error.reason is Reason.TOKEN_UNAVAILABLE and oauth.server.url in str(error)
            return False

        wait_until(fails, "the token to expire", timeout_seconds=30)
        assert "Every quota stays as it is" in str(error_of(topology))
        oauth.server.start()
        wait_until(lambda: not fails(), "a token again", timeout_seconds=30)
        assert topology.read([]).cluster_id == oauth.kafka.cluster_id


def test_a_rotated_secret_is_refused_with_its_client_and_the_new_one_is_taken(
    oauth: OAuth, tmp_path: Path
) -> None:
    oauth.server.clients["tidegate"] = "new secret"
    with asked(oauth, secrets_of(oauth), tmp_path) as topology:
        refused = error_of(topology)
        assert isinstance(refused, Unauthorized)
        for word in (oauth.server.url, "client tidegate", "invalid_client"):
            assert word in refused.message
    with asked(oauth, secrets_of(oauth, "new secret"), tmp_path) as topology:
        assert topology.read([]).cluster_id == oauth.kafka.cluster_id


def test_an_endpoint_with_a_foreign_certificate_gets_no_secret(
    oauth: OAuth, tmp_path: Path
) -> None:
    others = make_certificates(tmp_path / "others")
    secrets = secrets_of(oauth)
    foreign = Secrets(
        "streaming", {**secrets.data, "other": {"ca.crt": others.authority.read_bytes()}}
    )
    login = declared(oauth).as_document()["authentication"]
    trusted = ({"secretName": "other", "certificate": "ca.crt"},)
    spec = declared(oauth, **{**login, "tlsTrustedCertificates": trusted})
    with asked(oauth, foreign, tmp_path, spec) as topology:
        assert "signed by none of trustedCertificates" in error_of(topology).message
    assert not oauth.server.requests


def test_a_token_for_another_audience_is_refused_with_what_it_says(
    oauth: OAuth, tmp_path: Path
) -> None:
    oauth.server.audience = "account"
    with asked(oauth, secrets_of(oauth), tmp_path) as topology:
        refused = error_of(topology)
        assert isinstance(refused, Unauthorized)
        assert "client tidegate" in refused.message
        assert "aud ['account']" in refused.message
        oauth.server.audience = AUDIENCE
        assert topology.read([]).cluster_id == oauth.kafka.cluster_id, "another token is requested"


def test_a_token_of_a_file_and_of_a_secret_logs_in_and_an_expired_one_does_not(
    oauth: OAuth, tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens" / "streaming"
    tokens.mkdir(parents=True)
    secrets = secrets_of(oauth, token=oauth.server.token("by-secret").encode())
    secrets = Secrets("streaming", secrets.data, token_folder=tokens.parent)
    by_file = declared(oauth, accessTokenFile="kafka")
    (tokens / "kafka").write_text(oauth.server.token("by-file"))
    by_secret = declared(oauth, accessToken={"secretName": "tidegate", "key": "token"})
    for spec in (by_file, by_secret):
        with asked(oauth, secrets, tmp_path / "own", spec) as topology:
            assert topology.read([]).cluster_id == oauth.kafka.cluster_id
    (tokens / "kafka").write_text(oauth.server.token("by-file", lifetime_seconds=-10))
    with asked(oauth, secrets, tmp_path / "own", by_file) as topology:
        expired = error_of(topology)
        assert expired.reason is Reason.TOKEN_UNAVAILABLE
        assert "token kafka of namespace streaming expired" in expired.message


def test_brokers_refuse_a_token_that_was_changed(oauth: OAuth, tmp_path: Path) -> None:
    header, _, signature = oauth.server.token("tidegate").split(".")
    claims = oauth.server.token("admin").split(".")[1]
    forged = f"{header}.{claims}.{signature}"
    secrets = secrets_of(oauth, token=forged.encode())
    spec = declared(oauth, accessToken={"secretName": "tidegate", "key": "token"})
    with asked(oauth, secrets, tmp_path, spec) as topology:
        refused = error_of(topology)
        assert isinstance(refused, Unauthorized)
        assert forged not in refused.message


# --- a whole operator -----------------------------------------------------------------------------


def test_a_secret_rotated_in_an_episode_holds_quotas_until_the_policys_secret_has_it(
    oauth: OAuth, unique_name: str
) -> None:
    oauth.server.lifetime_seconds = 8
    oauth.kafka.create_topic("acc", [[1]])
    stage = RealStage()
    for name, data in secrets_of(oauth).data.items():
        stage.kubernetes.put_secret("streaming", name, data)
    kafka = declared(oauth).as_document()
    policy = stage.declare({**kafka, "quotaStore": "AdminApi"})
    tier = stage.tier(user=unique_name, policy=POLICY)
    try:
        wait_until(
            passing(stage, lambda: stage.condition(tier)[0] == "True"),
            "a quota",
            timeout_seconds=30,
        )
        oauth.kafka.wait_for_quota_applied(QuotaChange("PRODUCE", unique_name, None, 10_000_000.0))
        oauth.server.clients["tidegate"] = "second"
        wait_until(
            passing(stage, lambda: "invalid_client" in stage.message(policy)),
            "the last token to expire",
            timeout_seconds=40,
        )
        assert stage.condition(policy) == ("False", "NotAuthorized")
        since = oauth.kafka.log_positions()
        stage.kubernetes.edit(tier, doubled)
        stage.later(1)
        assert f"user {unique_name} to" not in oauth.kafka.broker(1).log_text(since[1]), "held"
        stage.kubernetes.put_secret(
            "streaming", "tidegate", secrets_of(oauth, "second").data["tidegate"]
        )
        stage.later(SECRET_AGE_SECONDS + 1)
        assert stage.condition(policy)[0] == "True", stage.message(policy)
        change = QuotaChange("PRODUCE", unique_name, None, 20_000_000.0)
        oauth.kafka.wait_for_quota_applied(change, since)
    finally:
        for ref in stage.declared:
            stage.kubernetes.delete(ref)
        stage.later(1)
        stage.close()


# --- commands -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["client", "token"])
def test_commands_log_in_by_the_keys_of_a_file_alone(
    oauth: OAuth, tmp_path: Path, kind: str
) -> None:
    folder = tmp_path / "credentials"  # as a Secret is mounted
    folder.mkdir()
    authority = oauth.certificates.authority.read_text()
    keys = {
        "client": {
            "tokenEndpointUri": oauth.server.url,
            "clientId": "tidegate",
            "clientSecret": SECRET,
            "tokenEndpoint.crt": authority,
        },
        "token": {"token": oauth.server.token("a-person")},
    }
    for name, value in {**keys[kind], "ca.crt": authority}.items():
        (folder / name).write_text(value)
    out, err = io.StringIO(), io.StringIO()
    login = ["--client-credentials-file", str(folder)]
    code = main(
        ["restore", "--bootstrap-servers", oauth.kafka.sasl_bootstrap_servers, *login],
        CommandContext(out=out, err=err),
    )
    assert code == 0, err.getvalue()
    (folder / ("clientSecret" if kind == "client" else "token")).write_text("wrong")
    code = main(
        ["restore", "--bootstrap-servers", oauth.kafka.sasl_bootstrap_servers, *login],
        CommandContext(out=out, err=err),
    )
    assert code == 1
    assert "refused" in err.getvalue()
    assert SECRET not in out.getvalue() + err.getvalue()


# --- forwarders -----------------------------------------------------------------------------------


def test_forwarders_clients_log_in_and_again_before_tokens_expire(
    oauth: OAuth, tmp_path: Path, unique_name: str
) -> None:
    oauth.kafka.create_topic(unique_name, assignment=[[1]])
    oauth.server.lifetime_seconds = 5
    connection = brokers_connection(declared(oauth), secrets_of(oauth), tmp_path)
    assert isinstance(connection.sasl, TokenLogin)
    settings = client_settings(connection)
    producer = Producer(settings)
    consumer = Consumer({**settings, "group.id": unique_name})
    consumer.assign([TopicPartition(unique_name, 0, 0)])
    sent, received = 0, 0
    until = time.monotonic() + patience(12)
    try:
        while time.monotonic() < until and len(oauth.server.requests) < 3:
            producer.produce(unique_name, b"x")
            sent += 1
            assert producer.flush(patience(10)) == 0
            message = consumer.poll(1.0)
            received += message is not None and message.error() is None
        while received < sent:
            message = consumer.poll(patience(10))
            assert message is not None
            assert message.error() is None, message.error()
            received += 1
    finally:
        consumer.close()
    assert len(oauth.server.requests) >= 3
    assert received == sent


def test_forwarders_clients_go_on_when_the_endpoint_is_back(
    oauth: OAuth, tmp_path: Path, unique_name: str
) -> None:
    oauth.kafka.create_topic(unique_name, assignment=[[1]])
    oauth.server.lifetime_seconds = 5
    connection = brokers_connection(declared(oauth), secrets_of(oauth), tmp_path)
    problems: list[str] = []
    producer = Producer(
        {**client_settings(connection), "error_cb": lambda error: problems.append(error.str())}
    )
    arrived: list[object] = []

    def sends() -> bool:
        """Whether a record arrives; one that does not stays in the producer and is tried on."""
        if not len(producer):
            producer.produce(
                unique_name, b"x", on_delivery=lambda error, _: arrived.append(error is None)
            )
        before = len(arrived)
        producer.poll(0.5)
        return len(arrived) > before and all(arrived)

    wait_until(sends, "a first record", timeout_seconds=20)
    oauth.server.stop()
    wait_until(
        lambda: not sends() and any("invalid_token" in problem for problem in problems),
        "the broker to refuse the last token",
        timeout_seconds=60,
    )
    oauth.server.start()
    wait_until(sends, "records again", timeout_seconds=60)


@pytest.mark.parametrize("guarantee", list(Guarantee), ids=str)
def test_a_forwarder_loses_nothing_while_no_token_can_be_had(
    oauth: OAuth, tmp_path: Path, unique_name: str, guarantee: Guarantee
) -> None:
    oauth.server.lifetime_seconds = 5
    queue = QueueWorld(oauth.kafka, unique_name, guarantee)
    (level,) = queue.create(partitions=1)
    connection = brokers_connection(declared(oauth), secrets_of(oauth), tmp_path)
    login = connection.sasl
    assert isinstance(login, TokenLogin)
    with (
        queue.forwarding(client=client_settings(connection), starts_again=True) as forwarder,
        queue.reading() as reader,
    ):
        queue.send(level, [b"%d" % number for number in range(20)])
        reader.until(20)
        oauth.server.stop()
        wait_until(lambda: not has_token(login), "the last token to expire", timeout_seconds=30)
        queue.send(level, [b"%d" % number for number in range(20, 40)])
        oauth.server.start()
        reader.until(40, timeout_seconds=90)
        assert forwarder.failure is None
        arrived = [int(record.value or b"") for record in reader.settled()]
    assert set(arrived) == set(range(40))
    if guarantee is Guarantee.EXACTLY_ONCE:
        assert arrived == list(range(40))


def has_token(login: TokenLogin) -> bool:
    try:
        login.tokens.current()
    except Unreachable:
        return False
    return True
