import pytest
from confluent_kafka import KafkaError
from structlog.testing import capture_logs

from tidegate.forwarder import settings as settings_module
from tidegate.forwarder.settings import (
    ForwarderSettings,
    client_settings,
    consumer_settings,
    producer_settings,
)
from tidegate.kafka.settings import KafkaConnection, SaslLogin, SaslMechanism, TlsFiles
from tidegate.queues.names import Guarantee, QueueNames

MB = 1024 * 1024


def settings(guarantee: Guarantee = Guarantee.AT_LEAST_ONCE) -> ForwarderSettings:
    return ForwarderSettings(
        QueueNames("shop"), guarantee, (), None, {"bootstrap.servers": "a:9092"}, "rack-1"
    )


def test_all_topics_together_read_ahead_a_bounded_number_of_bytes() -> None:
    for topics in (1, 2, 8, 64):
        found = consumer_settings(settings(), topics=topics)
        queued = int(str(found["queued.max.messages.kbytes"])) * 1024
        fetched = int(str(found["fetch.message.max.bytes"]))
        assert topics * (queued + fetched) <= 32 * MB
        assert topics * int(str(found["queued.min.messages"])) <= 64 * 1024


def test_the_settings_that_the_promises_rest_on() -> None:
    consumer = consumer_settings(settings(), topics=1)
    assert consumer["auto.offset.reset"] == "error"
    assert consumer["isolation.level"] == "read_committed"
    assert consumer["enable.auto.commit"] is False
    assert consumer["group.id"] == "shop.forwarders"
    assert consumer["client.rack"] == "rack-1"
    once = producer_settings(settings(Guarantee.EXACTLY_ONCE), "pod-1")
    least = producer_settings(settings(), "pod-1")
    for producer in (once, least):
        assert producer["acks"] == "all"
        assert producer["enable.idempotence"] is True
        assert producer["partitioner"] == "murmur2_random"
    assert once["transactional.id"] == "shop.forwarders.pod-1"
    assert once["transaction.timeout.ms"] == 10_000
    assert "transactional.id" not in least


def test_a_login_is_passed_on_and_not_shown() -> None:
    login = SaslLogin(SaslMechanism.SCRAM_SHA_512, "alice", "hunter2")
    tls = TlsFiles("/ca", "/crt", "/key")
    found = client_settings(KafkaConnection(("a:9092", "b:9092"), login, tls))
    assert found == {
        "bootstrap.servers": "a:9092,b:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": "hunter2",
        "ssl.ca.location": "/ca",
        "ssl.certificate.location": "/crt",
        "ssl.key.location": "/key",
        "ssl.endpoint.identification.algorithm": "https",
    }
    shown = repr(ForwarderSettings(QueueNames("shop"), Guarantee.AT_LEAST_ONCE, (), None, found))
    assert "hunter2" not in shown


def test_without_a_login_the_connection_is_plain() -> None:
    assert client_settings(KafkaConnection(("a:9092",)))["security.protocol"] == "PLAINTEXT"


def test_an_unreachable_broker_is_reported_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(settings_module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(settings_module, "_said", {})
    with capture_logs() as logs:
        for now[0] in (0.0, 0.1, 59.0, 60.0):
            for suffix in (" (after 0ms in state CONNECT)", " (after 7ms in state CONNECT)"):
                settings_module.report(KafkaError(KafkaError._TRANSPORT, f"refused{suffix}"))
        settings_module.report(KafkaError(KafkaError._TRANSPORT, "another"))
    assert [line["problem"] for line in logs] == ["refused", "refused", "another"]
