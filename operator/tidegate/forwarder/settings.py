"""Settings of a forwarder, and of the Kafka clients in it."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog

from tidegate.errors import TidegateError
from tidegate.kafka.settings import KafkaConnection, Token, TokenLogin
from tidegate.queues.names import Guarantee, QueueNames

log = structlog.get_logger(__name__)

MOST_RECORDS = 10_000
"""Records of a full chunk: what is sent of one level topic at a time."""
_READ_AHEAD_BYTES = 24 * 1024 * 1024
_BYTES_PER_RECORD = 500  # what librdkafka keeps beside a record's own bytes


@dataclass(frozen=True, slots=True)
class ForwarderSettings:
    """What one forwarder needs to know.

    `allowed` are patterns of targets, in which `*` stands for any text. `client` are librdkafka's
    settings of every connection: addresses and login. `hop_topics` are the delays in
    seconds, with their number of topics, that a message with a due time of its own may wait; empty
    = messages have none.
    """

    names: QueueNames
    guarantee: Guarantee
    allowed: tuple[str, ...]
    default_target: str | None
    client: Mapping[str, object] = field(repr=False)
    client_rack: str | None = None
    cancellable: bool = False
    hop_topics: Mapping[int, int] = field(default_factory=dict)


def client_settings(connection: KafkaConnection) -> dict[str, object]:
    """A connection in librdkafka's words.

    Raises what `Tokens.current` does: a client without a token would say less, and later.
    """
    tls, sasl = connection.tls, connection.sasl
    protocol = ("SASL_" if sasl else "") + ("SSL" if tls else "PLAINTEXT")
    found: dict[str, object] = {
        "bootstrap.servers": ",".join(connection.bootstrap_servers),
        "security.protocol": protocol,
    }
    if isinstance(sasl, TokenLogin):
        found |= {"sasl.mechanism": str(sasl.mechanism), "oauth_cb": _token_for(sasl)}
    elif sasl is not None:
        found |= {
            "sasl.mechanism": str(sasl.mechanism),
            "sasl.username": sasl.username,
            "sasl.password": sasl.password,
        }
    if tls is not None:
        files = {
            "ssl.ca.location": tls.ca_file,
            "ssl.certificate.location": tls.certificate_file,
            "ssl.key.location": tls.key_file,
            "ssl.key.password": tls.key_password,
            "ssl.endpoint.identification.algorithm": "https" if tls.check_hostname else "none",
        }
        found |= {key: value for key, value in files.items() if value is not None}
    return found


_ASKED_AGAIN_SECONDS = 10.0
_TokenOfClients = tuple[str, float, str, dict[str, str]]


def _token_for(login: TokenLogin) -> Callable[[str], _TokenOfClients]:
    """What librdkafka calls for a token, when it needs one and after four fifths of its life.

    It must not raise: its library calls further callbacks with the exception. While no token can be
    had, the last one is given, which brokers refuse once it has expired, and it is called again.
    """
    last = [login.tokens.current()]

    def token(_: str) -> _TokenOfClients:
        try:
            last[0] = login.tokens.current()
        except TidegateError as error:
            log.warning("no access token", problem=error.message)
            last[0] = Token(last[0].value, time.time() + _ASKED_AGAIN_SECONDS)
        return last[0].value, last[0].expires_at_seconds, "", dict(login.extensions)

    return token


_SAID_AGAIN_SECONDS = 60.0
_said: dict[str, float] = {}


def report(error: Any) -> None:
    """Log a problem that a client goes on with. Each client reports an unreachable broker many
    times a second: it is said once a minute.
    """
    problem, now = error.str().partition(" (after ")[0], time.monotonic()
    if now - _said.get(problem, float("-inf")) >= _SAID_AGAIN_SECONDS:
        for old in [text for text, at in _said.items() if now - at >= _SAID_AGAIN_SECONDS]:
            del _said[old]
        _said[problem] = now
        log.info("Kafka client", problem=problem)


def _commit_answered(error: Any, partitions: list[Any]) -> None:
    """Log commits that were refused; the next one of the topic is tried anyway."""
    for part in partitions:
        if problem := error or part.error:
            log.warning("position not committed", topic=part.topic, error=problem.str())


# what clients print by themselves is left out: problems come by the callback, as log lines
_QUIET: Mapping[str, object] = {"log_level": 2, "error_cb": report}


def any_client_settings(settings: ForwarderSettings) -> dict[str, object]:
    """What all clients have in common."""
    return {**_QUIET, **settings.client}


def consumer_settings(settings: ForwarderSettings, *, topics: int) -> dict[str, object]:
    """The consumer of one of `topics` level topics, which share the memory for reading ahead.

    What is not due yet stays in librdkafka's queue. It is bounded by bytes and by records, because
    each record costs as much beside its bytes as a small one has.
    """
    share = max(_READ_AHEAD_BYTES // max(topics, 1), 256 * 1024)
    found: dict[str, object] = {
        **any_client_settings(settings),
        "group.id": settings.names.group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "on_commit": _commit_answered,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "fetch.queue.backoff.ms": 10,  # with the default of 1000, a topic reaches 100,000 records/s
        "fetch.error.backoff.ms": 100,
        "queued.max.messages.kbytes": share // 1024,
        "queued.min.messages": max(share // _BYTES_PER_RECORD, 500),
        "fetch.message.max.bytes": min(share // 4, 4 * 1024 * 1024),
    }
    if settings.client_rack is not None:
        found["client.rack"] = settings.client_rack
    return found


def read_ahead_bytes(topics: int) -> int:
    """The share of one of so many level topics, for telling when it has changed much."""
    return max(_READ_AHEAD_BYTES // max(topics, 1), 256 * 1024)


def producer_settings(settings: ForwarderSettings, member: str) -> dict[str, object]:
    """The producer of one member."""
    found: dict[str, object] = {
        **any_client_settings(settings),
        "acks": "all",
        "enable.idempotence": True,
        "partitioner": "murmur2_random",  # as Java's producers, so that a key stays where it was
        "linger.ms": 0,
        "batch.num.messages": 10_000,
        "batch.size": 1_000_000,
        "message.max.bytes": 64 * 1024 * 1024,  # brokers decide what is too large
        "queue.buffering.max.messages": 100_000,
        "queue.buffering.max.kbytes": 32 * 1024,
    }
    if settings.guarantee is Guarantee.EXACTLY_ONCE:
        return found | {
            "transactional.id": settings.names.transactional_id(member),
            "transaction.timeout.ms": 10_000,
            "message.timeout.ms": 10_000,
            "retry.backoff.ms": 2,  # with the default of 100, each transaction takes as long
            "delivery.report.only.error": True,
            # When the broker that keeps the positions dies, librdkafka waits for it for ever, until
            # any connection opens or closes (librdkafka issues 5511 and 5456). Idle ones close.
            "connections.max.idle.ms": 4000,
        }
    return found | {"message.timeout.ms": 30_000}
