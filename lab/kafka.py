"""A whole Kafka 3.9 with its ZooKeeper: one to several brokers.

They are on loopback, or each in a network namespace of its own.

    with KafkaLab(brokers=3, users=("alice",)) as kafka:
        kafka.create_topic("orders", assignment=[[1, 2], [2, 3], [3, 1]])
        kafka.broker(3).kill()

It writes no quota and makes no traffic.
"""

import re
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from lab import java, zookeeper
from lab.cache import RunDirectory
from lab.errors import LabError, say
from lab.java import properties, start_java
from lab.kafka_admin import KafkaAdmin, can_log_in, login_settings
from lab.network import Namespace, Network, free_port
from lab.packages import JMX_RULES, jmx_agent, kafka_jars
from lab.process import Opened, Process, patience, wait_until
from lab.zookeeper import DigestLogin, ZooKeeperLab

MAIN_CLASS = "kafka.Kafka"
START_TIMEOUT_SECONDS = 90
_LOGIN = "org.apache.kafka.common.security"
_HEAP = ("-Xms128m", "-Xmx320m")

# Sized for a laptop: small buffers, little retention. Nothing may move leaders or make topics but
# the test itself.
SMALL_BROKER = {
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.dedupe.buffer.size": str(4 << 20),
    "log.segment.bytes": str(64 << 20),
    "log.index.size.max.bytes": str(1 << 20),
    "log.retention.bytes": str(256 << 20),
    "log.retention.check.interval.ms": "10000",
    "log.segment.delete.delay.ms": "1000",
    "queued.max.requests": "64",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
}


@dataclass(frozen=True)
class Ports:
    """The broker's listeners: between brokers, plain clients, those with a login, JMX exporter."""

    internal: int
    plain: int
    sasl: int
    jmx: int

    @classmethod
    def of(cls, namespace: Namespace | None) -> Self:
        """The same in each namespace; on loopback free ones."""
        if namespace is not None:
            return cls(internal=9091, plain=9092, sasl=9093, jmx=7071)
        return cls(free_port(), free_port(), free_port(), free_port())


@dataclass(frozen=True)
class BrokerPlan:
    """Everything that stays the same when a broker is started again."""

    broker_id: int
    host: str
    ports: Ports
    zookeeper_connect: str
    directory: Path
    namespace: Namespace | None
    plain_users: Mapping[str, str]  # user -> password, for SASL PLAIN
    zookeeper_login: DigestLogin | None
    extra_properties: Mapping[str, str]
    java_options: tuple[str, ...] = ()
    jars: Callable[[], Path] = kafka_jars


class Broker:
    """A broker that can be started, killed and started again with its data."""

    def __init__(self, plan: BrokerPlan) -> None:
        self.plan = plan
        self._process: Process | None = None
        self._log_start = 0

    @property
    def broker_id(self) -> int:
        """Its id."""
        return self.plan.broker_id

    @property
    def process(self) -> Process:
        """Its process, running or ended."""
        if self._process is None:
            raise RuntimeError(f"broker {self.broker_id} was not started yet")
        return self._process

    def is_running(self) -> bool:
        """Whether its process runs; it may not be serving yet."""
        return self._process is not None and self._process.is_running()

    def launch(self) -> None:
        """Start the process and return at once, if it does not run; `wait_started` waits for it."""
        if self.is_running():
            return
        self.plan.directory.mkdir(parents=True, exist_ok=True)
        (self.plan.directory / "server.properties").write_text(properties(self._settings()))
        self._log_start = self.log_size_bytes()
        self._process = start_java(
            f"broker-{self.broker_id}",
            MAIN_CLASS,
            arguments=["server.properties"],
            options=[
                *_HEAP,
                *self.plan.java_options,
                *self._agent_options(),
                *self._login_options(),
            ],
            jars=self.plan.jars(),
            directory=self.plan.directory,
            namespace=self.plan.namespace.name if self.plan.namespace else None,
        )

    def wait_started(self) -> None:
        """Return once it serves; `LabError` with its log when it ended or took longer than 90 s."""
        wait_until(
            lambda: self._started_line() in self.log_text(self._log_start),
            f"broker {self.broker_id} to serve",
            timeout_seconds=START_TIMEOUT_SECONDS,
            processes=[self.process],
        )

    def start(self) -> None:
        """Start it and return once it serves. Partitions it led stay with their new leaders."""
        self.launch()
        self.wait_started()

    def kill(self) -> None:
        """End it as a crash would: the controller notices after the session timeout of 6 s."""
        self.process.kill()

    def stop(self, grace_seconds: float = 30.0) -> None:
        """Shut down in order, which moves its leaders away first; kill after `grace_seconds`."""
        if self._process is not None:
            self._process.stop(grace_seconds)

    def log_text(self, since_bytes: int = 0) -> str:
        """What it has logged after its first `since_bytes`, over all its starts; may be empty."""
        try:
            with self._log_path.open("rb") as log:
                log.seek(since_bytes)
                return log.read().decode(errors="replace")
        except FileNotFoundError:
            return ""

    def log_size_bytes(self) -> int:
        """How much it has logged so far; 0 before its first start."""
        return self._log_path.stat().st_size if self._log_path.exists() else 0

    @property
    def _log_path(self) -> Path:
        return self.plan.directory / f"broker-{self.broker_id}.log"

    def _started_line(self) -> str:
        return f"[KafkaServer id={self.broker_id}] started"

    def _settings(self) -> dict[str, str]:
        return {
            **SMALL_BROKER,
            "zookeeper.session.timeout.ms": "6000",
            "broker.id": str(self.plan.broker_id),
            "zookeeper.connect": self.plan.zookeeper_connect,
            "zookeeper.set.acl": str(self.plan.zookeeper_login is not None).lower(),
            **self._client_settings(),
            **self.plan.extra_properties,
        }

    def _client_settings(self) -> dict[str, str]:
        """The data's place, the listeners, and who may log in on them."""
        plan, ports = self.plan, self.plan.ports
        listeners = f"INTERNAL://{plan.host}:{ports.internal},PLAIN://{plan.host}:{ports.plain},SASL://{plan.host}:{ports.sasl}"
        users = " ".join(f'user_{user}="{password}"' for user, password in plan.plain_users.items())
        return {
            "log.dirs": str(plan.directory / "data"),
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,PLAIN:PLAINTEXT,"
            "SASL:SASL_PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.sasl.plain.sasl.jaas.config": f"{_LOGIN}.plain.PlainLoginModule "
            f"required {users};",
            **{
                f"listener.name.sasl.{mechanism}.sasl.jaas.config": f"{_LOGIN}.scram."
                "ScramLoginModule required;"
                for mechanism in ("scram-sha-256", "scram-sha-512")
            },
        }

    def _agent_options(self) -> list[str]:
        return [
            f"-javaagent:{jmx_agent(self.plan.jars())}={self.plan.host}:{self.plan.ports.jmx}:{JMX_RULES}"
        ]

    def _login_options(self) -> list[str]:
        if self.plan.zookeeper_login is None:
            return []
        jaas = self.plan.directory / "client_jaas.conf"
        jaas.write_text(self.plan.zookeeper_login.client_section())
        return [f"-Djava.security.auth.login.config={jaas}"]


# What a broker's log says it did with quotas: the only outside proof that a broker took a change
# over (no metric shows the value).


DEFAULT = "<default>"
QuotaKind = Literal["PRODUCE", "FETCH", "REQUEST", "CONTROLLER_MUTATION"]

_LINE = re.compile(
    r"(?:Changing|Removing) ([A-Z_]+) quota for (.+?)(?: to ([0-9.E+-]+))?$", re.MULTILINE
)


@dataclass(frozen=True)
class QuotaChange:
    """A broker's quota of one kind for one entity, as it last set it.

    `value` is in bytes per second, percent, or mutations per second; `value` None means removed.
    `user` is written as in its znode's name (percent-encoded), `client_id` plainly; `DEFAULT` is
    Kafka's default entity; None means the entity has no such part.
    """

    kind: QuotaKind
    user: str | None
    client_id: str | None
    value: float | None

    def entity_text(self) -> str:
        """The entity in the words of the broker's log."""
        return " ".join(
            part for part in (_part("user", self.user), _part("client-id", self.client_id)) if part
        )


def is_applied(log_text: str, change: QuotaChange) -> bool:
    """Whether the newest line of the log about this entity and kind says exactly this value.

    False when no line speaks of it. A broker logs a removal for every kind an entity does not have,
    so a removal also shows for an entity that never had the quota.
    """
    wanted = (change.kind, change.entity_text())
    values = [value for *of, value in changes_in(log_text) if tuple(of) == wanted]
    return bool(values) and values[-1] == change.value


def changes_in(log_text: str) -> Iterator[tuple[str, str, float | None]]:
    """Every change in the log: kind, entity in the log's words, value or None."""
    for kind, entity, value in _LINE.findall(log_text):
        yield kind, entity, float(value) if value else None


def _part(word: str, name: str | None) -> str:
    if name is None:
        return ""
    return f"default {word}" if name == DEFAULT else f"{word} {name}"


# Records the class archives of ZooKeeper and of a broker in one short real run: what they do in it,
# they later do without loading.
#
# No lab needs them. Where they cannot be recorded, a line says so and every start takes longer.


_USER, _PASSWORD = "recorder", "recorder-password"
_TOPIC = "recorded"
_ANSWER_TIMEOUT_SECONDS = 20.0
_END_TIMEOUT_SECONDS = 60.0  # the archive is written while the JVM ends, which takes seconds


def record_archives(jars: Path) -> None:
    """Record them unless the cache has them for these jars, in some ten seconds.

    A failure is reported and not raised.
    """
    try:
        java.entry(jars, record=_record)
    except (LabError, KafkaException, OSError) as failure:
        say(
            "class-archive",
            f"not recorded, so ZooKeeper and brokers take some seconds longer to start: {failure}",
        )


def _record(content: Path) -> None:
    with RunDirectory() as run:
        recording = java.recording_options(zookeeper.MAIN_CLASS, content)
        with ZooKeeperLab(directory=run.path / "zookeeper", java_options=recording) as server:
            _record_broker(run.path / "broker", server.connect, content)
            end_recording(server.process, java.place(zookeeper.MAIN_CLASS, content))


def _record_broker(directory: Path, zookeeper_connect: str, content: Path) -> None:
    recorded = Broker(_plan(directory, zookeeper_connect, content))
    try:
        recorded.start()
        use_as_labs_do(recorded.plan)
        end_recording(recorded.process, java.place(MAIN_CLASS, content))
    finally:
        recorded.stop(grace_seconds=0)


def _plan(directory: Path, zookeeper_connect: str, content: Path) -> BrokerPlan:
    return BrokerPlan(
        broker_id=1,
        host="127.0.0.1",
        ports=Ports.of(None),
        zookeeper_connect=zookeeper_connect,
        directory=directory,
        namespace=None,
        plain_users={_USER: _PASSWORD},
        zookeeper_login=None,
        extra_properties={},
        java_options=tuple(java.recording_options(MAIN_CLASS, content)),
    )


def use_as_labs_do(plan: BrokerPlan) -> None:
    """Do once what labs are used for: topic, both logins, a record in and out, JMX exporter.

    Raises LabError where the broker does not do its part.
    """
    admin = KafkaAdmin(f"{plan.host}:{plan.ports.plain}")
    admin.wait_for_brokers([plan.broker_id])
    admin.create_topic(_TOPIC, [[plan.broker_id]])
    admin.create_scram_user(_USER, _PASSWORD)
    sasl = f"{plan.host}:{plan.ports.sasl}"
    wait_until(  # the controller took the user, and the broker reads of it a little later
        lambda: can_log_in(sasl, _USER, password=_PASSWORD),
        f"{sasl} to accept the SCRAM user {_USER} that was just made",
        timeout_seconds=_ANSWER_TIMEOUT_SECONDS,
    )
    user, password = next(iter(plan.plain_users.items()))
    _produce_and_fetch(login_settings(sasl, user, password=password, mechanism="PLAIN"))
    with urllib.request.urlopen(
        f"http://{plan.host}:{plan.ports.jmx}/metrics", timeout=_ANSWER_TIMEOUT_SECONDS
    ) as metrics:
        metrics.read()


def _produce_and_fetch(login: dict[str, Any]) -> None:
    producer = Producer(login)
    producer.produce(_TOPIC, b"recorded")
    unsent = producer.flush(patience(_ANSWER_TIMEOUT_SECONDS))
    consumer = Consumer({**login, "group.id": _TOPIC})
    consumer.assign([TopicPartition(_TOPIC, 0, 0)])
    record = None if unsent else consumer.poll(patience(_ANSWER_TIMEOUT_SECONDS))
    consumer.close()
    if record is None or record.value() != b"recorded":
        raise LabError(f"A record did not get through {login['bootstrap.servers']} and back.")


def end_recording(process: Process, archive: Path) -> None:
    """End it in order, which writes the archive. Raises LabError without one."""
    process.stop(_END_TIMEOUT_SECONDS)
    if not archive.exists():
        raise LabError(
            f"{process.name} ended without writing its class archive.\n{process.log_tail()}"
        )


FIRST_BROKER_HOST_NUMBER = 10
CLIENT_HOST_NUMBER = 100
_QUOTA_TIMEOUT_SECONDS = 15.0
_TOOL_TIMEOUT_SECONDS = 60.0


class BrokersLab(Opened):
    """What tests do with running brokers, however these keep their metadata."""

    def __init__(self, *, users: Sequence[str], racks: Sequence[str] = ()) -> None:
        self._users = tuple(users)
        self._racks = tuple(racks)
        self._brokers: dict[int, Broker] = {}
        self._run: RunDirectory
        self.network: Network | None = None
        self.client_namespace: Namespace | None = None
        self.cluster_id = ""

    @property
    def lab_id(self) -> str:
        """The id that this lab's directory, namespaces and bridge carry."""
        return self._run.lab_id

    @property
    def run(self) -> RunDirectory:
        """The directory of this lab, for parts that live and end with it."""
        return self._run

    @property
    def bridge(self) -> Network:
        """Where further machines can be put beside the brokers; `LabError` without namespaces."""
        if self.network is None:
            raise LabError(
                "Nothing can be put beside brokers on loopback. Give --namespaces "
                "(`namespaces=True`), as root."
            )
        return self.network

    @property
    def bootstrap_servers(self) -> str:
        """The plain listeners of all brokers."""
        return ",".join(f"{broker.plan.host}:{broker.plan.ports.plain}" for broker in self.brokers)

    @property
    def sasl_bootstrap_servers(self) -> str:
        """The listeners of all brokers on which clients log in."""
        return ",".join(f"{broker.plan.host}:{broker.plan.ports.sasl}" for broker in self.brokers)

    @property
    def jmx_targets(self) -> dict[int, str]:
        """Broker -> host:port of its JMX exporter."""
        return {
            broker.broker_id: f"{broker.plan.host}:{broker.plan.ports.jmx}"
            for broker in self.brokers
        }

    @property
    def brokers(self) -> list[Broker]:
        """All brokers by id, running or not."""
        return [self._brokers[broker_id] for broker_id in sorted(self._brokers)]

    @property
    def admin(self) -> KafkaAdmin:
        """Administration through the plain listeners."""
        return KafkaAdmin(self.bootstrap_servers)

    def broker(self, broker_id: int) -> Broker:
        """One broker; KeyError for an id outside 1..n."""
        return self._brokers[broker_id]

    def password(self, user: str) -> str:
        """The SASL PLAIN password of one of `users`."""
        return f"{user}-password"

    def create_topic(
        self,
        name: str,
        assignment: Sequence[Sequence[int]],
        *,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """As `KafkaAdmin.create_topic`."""
        self.admin.create_topic(name, assignment, config=config)

    def leaders(self, topic: str) -> dict[int, int]:
        """Partition -> broker that leads it now."""
        return self.admin.leaders(topic)

    def wait_for_leaders(
        self, topic: str, leaders: Mapping[int, int], *, timeout_seconds: float = 30.0
    ) -> None:
        """Return once every running broker says that `topic` is led exactly so."""
        self.admin.wait_for_leaders(topic, leaders, timeout_seconds=timeout_seconds)

    def restore_preferred_leaders(self, topic: str, *, timeout_seconds: float = 60.0) -> None:
        """Return once the first replica of every partition leads it again, as after its creation.

        All brokers must run.
        """
        wanted = self.admin.preferred_leaders(topic)
        wait_until(
            partial(self._is_led_as, topic, wanted),
            f"preferred leaders of topic {topic}",
            timeout_seconds=timeout_seconds,
            poll_seconds=0.5,
        )

    def create_scram_user(
        self, user: str, password: str, *, mechanism: str = "SCRAM-SHA-256"
    ) -> None:
        """As `KafkaAdmin.create_scram_user`."""
        self.admin.create_scram_user(user, password, mechanism=mechanism)

    def can_log_in(self, user: str, password: str, *, mechanism: str = "SCRAM-SHA-256") -> bool:
        """Whether the brokers accept this login on the SASL listener."""
        return can_log_in(self.sasl_bootstrap_servers, user, password=password, mechanism=mechanism)

    def run_tool(self, name: str, main_class: str, *arguments: str) -> None:
        """Run one of Kafka's own commands where the clients are. `LabError` when it fails."""
        with start_java(
            name,
            main_class,
            arguments=["--bootstrap-server", self.bootstrap_servers, *arguments],
            options=["-Xmx128m"],
            jars=self.brokers[0].plan.jars(),
            directory=self.run.path / name,
            namespace=self.client_namespace.name if self.client_namespace else None,
        ) as tool:
            tool.expect_success(_TOOL_TIMEOUT_SECONDS)

    def log_positions(self) -> dict[int, int]:
        """Broker -> how many bytes its log has now, for `since` of `wait_for_quota_applied`."""
        return {broker.broker_id: broker.log_size_bytes() for broker in self.brokers}

    def wait_for_quota_applied(
        self,
        change: QuotaChange,
        since: Mapping[int, int] | None = None,
        *,
        timeout_seconds: float = _QUOTA_TIMEOUT_SECONDS,
    ) -> None:
        """Return once `change` is the newest of its entity and kind in all running brokers' logs.

        With `since` only what was logged after those positions counts: needed where the same value
        was set before.
        """
        for broker in self.brokers:
            if broker.is_running():
                wait_until(
                    partial(
                        _has_applied, broker, change, since=(since or {}).get(broker.broker_id, 0)
                    ),
                    f"broker {broker.broker_id} to apply {change}",
                    timeout_seconds=timeout_seconds,
                    processes=[broker.process],
                )

    def _is_led_as(self, topic: str, wanted: Mapping[int, int]) -> bool:
        if self.admin.is_led_as(topic, wanted):
            return True
        self.admin.elect_preferred_leaders(topic)
        return False

    def _rack(self, broker_id: int) -> dict[str, str]:
        """The setting that puts broker 1 into the first of `racks`, and so on."""
        rack = self._racks[broker_id - 1] if broker_id <= len(self._racks) else ""
        return {"broker.rack": rack} if rack else {}

    def _kill_brokers(self) -> None:
        # A controlled shutdown would move leaders for seconds; the data goes with the lab anyway.
        for broker in self.brokers:
            if broker.is_running():
                broker.kill()


def _has_applied(broker: Broker, change: QuotaChange, *, since: int) -> bool:
    return is_applied(broker.log_text(since), change)


class KafkaLab(BrokersLab):
    """ZooKeeper and brokers 1..n; a context manager that returns once all of them serve.

    It leaves nothing behind. `users` can log in by SASL PLAIN with `password(user)`; further ones
    can be made with `create_scram_user`. `server_properties` are added to every broker's settings,
    and `racks` has the rack of each broker. With `zookeeper_logins`, the brokers log in to
    ZooKeeper as the first of them and keep everybody else from writing; `zookeeper_settings` are
    added to ZooKeeper's own. Its clock may be behind: its nodes are old at once then. `chroot` is a
    path such as "/kafka". Namespaces need root.
    """

    def __init__(
        self,
        *,
        brokers: int = 3,
        namespaces: bool = False,
        users: Sequence[str] = (),
        racks: Sequence[str] = (),
        server_properties: Mapping[str, str] | None = None,
        zookeeper_logins: tuple[DigestLogin, ...] = (),
        zookeeper_settings: Mapping[str, str] | None = None,
        zookeeper_behind_minutes: int = 0,
        chroot: str = "",
    ) -> None:
        super().__init__(users=users, racks=racks)
        self._broker_ids = range(1, brokers + 1)
        self._wants_namespaces = namespaces
        self._server_properties = dict(server_properties or {})
        self._zookeeper_logins = zookeeper_logins
        self._zookeeper_settings = zookeeper_settings
        self._zookeeper_behind_minutes = zookeeper_behind_minutes
        self._chroot = chroot

    def _open(self, stack: ExitStack) -> None:
        self._run = stack.enter_context(RunDirectory())
        if self._wants_namespaces:
            self.network = Network(self._run)
            self.client_namespace = self.network.add("cli", CLIENT_HOST_NUMBER)
        host = self.network.gateway if self.network else "127.0.0.1"
        self.zookeeper = stack.enter_context(
            ZooKeeperLab(
                host=host,
                logins=self._zookeeper_logins,
                settings=self._zookeeper_settings,
                clock_behind_minutes=self._zookeeper_behind_minutes,
                directory=self._run.path / "zookeeper",
            )
        )
        stack.callback(self._kill_brokers)
        self._start_brokers()
        self.cluster_id = self.admin.cluster_id()

    @property
    def zookeeper_connect(self) -> str:
        """ZooKeeper's connect string as the brokers use it, with the chroot."""
        return self.zookeeper.connect + self._chroot

    def _start_brokers(self) -> None:
        for broker_id in self._broker_ids:
            self._brokers[broker_id] = Broker(self._plan(broker_id))
            self._brokers[broker_id].launch()
        for broker in self.brokers:
            broker.wait_started()
        self.admin.wait_for_brokers(self._broker_ids)

    def _plan(self, broker_id: int) -> BrokerPlan:
        namespace = (
            self.network.add(f"b{broker_id}", FIRST_BROKER_HOST_NUMBER + broker_id)
            if self.network
            else None
        )
        return BrokerPlan(
            broker_id=broker_id,
            host=namespace.address if namespace else "127.0.0.1",
            ports=Ports.of(namespace),
            zookeeper_connect=self.zookeeper_connect,
            directory=self._run.path / f"broker-{broker_id}",
            namespace=namespace,
            plain_users={user: self.password(user) for user in self._users},
            zookeeper_login=self._zookeeper_logins[0] if self._zookeeper_logins else None,
            extra_properties={**self._rack(broker_id), **self._server_properties},
        )
