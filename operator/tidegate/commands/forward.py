"""`tidegate forward`: the data plane of a delay queue."""

import re
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.commands import options
from tidegate.commands.context import CommandContext
from tidegate.commands.inputs import named_brokers, named_zookeeper
from tidegate.commands.options import AccessOptions, Without
from tidegate.errors import InvalidResource, NotFound
from tidegate.queues.names import LONGEST_PREFIX, Guarantee, QueueNames
from tidegate.settings import LogFormat, LogLevel
from tidegate_logic.reasons import Reason

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from tidegate.forwarder.membership import Membership
    from tidegate.forwarder.settings import ForwarderSettings

_SHORTEST_SESSION_SECONDS = 3.0


class Login(StrEnum):
    """How to log in to the brokers with a password."""

    SCRAM_SHA_512 = "scram-sha-512"
    SCRAM_SHA_256 = "scram-sha-256"
    PLAIN = "plain"


@options.command
def forward(
    _: CommandContext,
    *,
    prefix: Annotated[
        str,
        typer.Option("--prefix", metavar="NAME", help="Prefix of the queue's topics."),
    ],
    access: Annotated[AccessOptions, Without({"ledger_topic"})],
    authentication: Annotated[
        Login,
        typer.Option(
            "--client-authentication",
            help="Login method for the brokers, if the credentials have a password.",
        ),
    ] = Login.SCRAM_SHA_512,
    username: Annotated[
        str | None,
        typer.Option(
            "--client-username",
            metavar="NAME",
            help="User of the brokers, if the credentials have no key username.",
        ),
    ] = None,
    login: Annotated[
        list[str] | None,
        typer.Option(
            "--client-login",
            metavar="KEY=VALUE",
            help="A key of the credentials that is not secret, such as clientId=forwarders. May be "
            "repeated.",
        ),
    ] = None,
    tls: Annotated[
        bool,
        typer.Option(
            "--client-tls",
            help="Encrypt connections to the brokers. Implied by a key ca.crt or tls.crt in the "
            "credentials, and by a login by tokens.",
        ),
    ] = False,
    guarantee: Annotated[
        Guarantee, typer.Option("--guarantee", help="How often a record may arrive.")
    ] = Guarantee.AT_LEAST_ONCE,
    allowed: Annotated[
        list[str] | None,
        typer.Option(
            "--allowed",
            metavar="PATTERN",
            help="Topics that records may name as their target; * is any text. May be repeated.",
        ),
    ] = None,
    default_target: Annotated[
        str | None,
        typer.Option(
            "--default-target",
            metavar="TOPIC",
            help="Target of records without the header tidegate-target. Unset: they go to the dead "
            "topic.",
        ),
    ] = None,
    member: Annotated[
        str,
        typer.Option(
            "--member",
            envvar="HOSTNAME",
            metavar="NAME",
            help="Name of this process, such as its Pod's; a random suffix is added.",
        ),
    ] = "forwarder",
    session_timeout: Annotated[
        float,
        typer.Option(
            "--session-timeout",
            min=_SHORTEST_SESSION_SECONDS,
            help="Seconds until the others take over from a process that is gone.",
        ),
    ] = 6.0,
    client_rack: Annotated[
        str | None,
        typer.Option(
            "--client-rack", metavar="NAME", help="Rack of this process: read replicas there."
        ),
    ] = None,
    cancellable: Annotated[
        bool,
        typer.Option(
            "--cancellable",
            help="Do not send records whose header tidegate-id is a key in the topic "
            "PREFIX.cancelled.",
        ),
    ] = False,
    hop_delays: Annotated[
        list[str] | None,
        typer.Option(
            "--hop-delay",
            metavar="SECONDSxTOPICS",
            help="A delay and its number of topics, such as 600x4, in which records with a due "
            "time of their own (header tidegate-due) may wait. May be repeated. Unset: that header "
            "has no meaning.",
        ),
    ] = None,
    metrics_port: Annotated[
        int,
        typer.Option(
            "--metrics-port", min=0, max=65535, help="Port of /metrics; 0 = any free port."
        ),
    ] = 8080,
    listen_address: Annotated[
        str, typer.Option("--listen-address", help="Address that the port listens on.")
    ] = "0.0.0.0",  # noqa: S104  # Prometheus comes from elsewhere
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", help="Log as JSON lines or as readable text.")
    ] = LogFormat.JSON,
) -> None:
    """Forward the records of a delay queue when they are due.

    Reads the level topics PREFIX.SECONDS.N until SIGTERM or Ctrl-C, and sends each record to its
    target when that many seconds have passed since it was appended. Several processes share the
    topics: through ZooKeeper with --zookeeper, else through Kafka's group protocol. At its end, it
    waits for what it has sent, commits, and leaves. A credentials file may also be the folder that
    a Secret is mounted as. Requires the extra `tidegate[forwarder]`.
    """
    names = _names(prefix)
    if access.bootstrap_servers is None:
        raise InvalidResource("--bootstrap-servers is required: the brokers to forward records on.")
    try:
        from tidegate.forwarder.forwarder import forward as forward_until
        from tidegate.forwarder.metrics import ForwarderMetrics
        from tidegate.forwarder.settings import ForwarderSettings
    except ImportError as error:
        raise NotFound(
            Reason.INVALID_SPEC,
            f"The forwarder's library is not installed ({error.name}). Install it with "
            "`pip install 'tidegate[forwarder]'`.",
        ) from error
    from tidegate.metrics import set_up_logging

    set_up_logging(log_format, LogLevel.INFO)
    metrics = ForwarderMetrics()
    with TemporaryDirectory(prefix="tidegate-") as name:
        folder = Path(name)
        settings = ForwarderSettings(
            names=names,
            guarantee=guarantee,
            allowed=tuple(allowed or ()),
            default_target=default_target,
            client=_client(access, folder, authentication, username, tls=tls, further=login or ()),
            client_rack=client_rack,
            cancellable=cancellable,
            hop_topics=dict(map(_hop, hop_delays or ())),
        )

        def open_membership(own_name: str) -> "Membership":
            return _membership(settings, access, folder, own_name, session_timeout)

        with (
            _metrics_served(metrics.registry, metrics_port, listen_address),
            _until_signalled() as stop,
        ):
            forward_until(open_membership, member, settings, metrics, stop)


def _names(prefix: str) -> QueueNames:
    names = QueueNames(prefix)
    if not names.is_valid:
        raise InvalidResource(
            f"--prefix {prefix!r} cannot begin a topic's name: at most {LONGEST_PREFIX} letters, "
            "digits, '.', '_' and '-'."
        )
    return names


def _hop(text: str) -> tuple[int, int]:
    """A delay in seconds and its number of topics."""
    match = re.fullmatch(r"([1-9][0-9]{0,8})x([1-9][0-9]{0,3})", text)
    if match is None:
        raise InvalidResource(f"--hop-delay {text!r} is not SECONDSxTOPICS, such as 600x4.")
    return int(match[1]), int(match[2])


def _key(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not value:
        raise InvalidResource(f"--client-login {text!r} is not KEY=VALUE.")
    return key, value


def _client(
    access: AccessOptions,
    folder: Path,
    login: Login,
    username: str | None,
    *,
    tls: bool,
    further: Sequence[str] = (),
) -> dict[str, object]:
    """librdkafka's settings for the brokers."""
    from tidegate.forwarder.settings import client_settings
    from tidegate.observe.connections import brokers_connection
    from tidegate.resources.authentication import Tls

    keys = dict(map(_key, further))
    if username is not None:
        keys.setdefault("username", username)
    spec, secrets = named_brokers(None, access, keys=keys)
    if spec.authentication is not None and spec.authentication.password_secret is not None:
        chosen = spec.authentication.model_copy(update={"type": str(login)})
        spec = spec.model_copy(update={"authentication": chosen})
    if tls and spec.tls is None:
        spec = spec.model_copy(update={"tls": Tls()})
    return client_settings(brokers_connection(spec, secrets, folder))


def _membership(
    settings: "ForwarderSettings",
    access: AccessOptions,
    folder: Path,
    member: str,
    session_timeout_seconds: float,
) -> "Membership":
    """Through ZooKeeper where one is named, else through Kafka."""
    if access.zookeeper is None:
        from tidegate.forwarder.kafka_members import KafkaMembers
        from tidegate.forwarder.settings import any_client_settings

        return KafkaMembers(
            any_client_settings(settings), settings.names.prefix, member, session_timeout_seconds
        )
    from tidegate.forwarder.zookeeper_members import ZooKeeperMembers
    from tidegate.observe.connections import zookeeper_connection

    connection = zookeeper_connection(*named_zookeeper(None, access), folder)
    return ZooKeeperMembers(
        replace(
            connection,
            session_timeout_seconds=session_timeout_seconds,
            meanwhile="This process forwards nothing until then.",
        ),
        settings.names.prefix,
        member,
    )


@contextmanager
def _metrics_served(registry: "CollectorRegistry", port: int, address: str) -> Iterator[None]:
    from prometheus_client import start_http_server

    from tidegate.metrics import cannot_listen

    try:
        server, thread = start_http_server(port, addr=address, registry=registry)
    except OSError as error:
        raise cannot_listen(address, port, option="--metrics-port", error=error) from error
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)


@contextmanager
def _until_signalled() -> Iterator[threading.Event]:
    """An event that SIGTERM and Ctrl-C set."""
    stop = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stop.set())
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
