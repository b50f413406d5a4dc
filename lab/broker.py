"""One Kafka 3.9 broker in ZooKeeper mode: its settings, its process and its log. It knows nothing of the other brokers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.java import properties, start_java
from lab.kafka_jars import JMX_RULES, jmx_agent, kafka_jars
from lab.network import Namespace
from lab.process import Process
from lab.waiting import wait_until
from lab.zookeeper import DigestLogin

MAIN_CLASS = "kafka.Kafka"
START_TIMEOUT_SECONDS = 90
_HEAP = ("-Xms128m", "-Xmx320m")

# Sized for a laptop: small buffers, little retention; and nothing may move leaders or make topics but the test itself.
_SMALL_BROKER = {
    "zookeeper.session.timeout.ms": "6000",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
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
    """The broker's listeners: between brokers, plain clients, clients that log in, and the JMX exporter."""

    internal: int
    plain: int
    sasl: int
    jmx: int


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
        """Start the process and return at once; `wait_started` waits for it. Nothing happens when it runs already."""
        if self.is_running():
            return
        self.plan.directory.mkdir(parents=True, exist_ok=True)
        (self.plan.directory / "server.properties").write_text(properties(self._settings()))
        self._log_start = self.log_size_bytes()
        self._process = start_java(
            f"broker-{self.broker_id}",
            MAIN_CLASS,
            arguments=["server.properties"],
            options=[*_HEAP, *self.plan.java_options, *self._agent_options(), *self._login_options()],
            jars=kafka_jars(),
            directory=self.plan.directory,
            namespace=self.plan.namespace.name if self.plan.namespace else None,
        )

    def wait_started(self) -> None:
        """Return once it serves; `LabError` with its log when it ended or took longer than 90 s."""
        started = f"[KafkaServer id={self.broker_id}] started"
        wait_until(
            lambda: started in self.log_text(self._log_start),
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
        """A controlled shutdown, which moves its leaders away first, and a kill when that takes longer than `grace_seconds`."""
        if self._process is not None:
            self._process.stop(grace_seconds)

    def log_text(self, since_bytes: int = 0) -> str:
        """What it has logged after its first `since_bytes`, over all its starts; empty before the first."""
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

    def _settings(self) -> dict[str, str]:
        plan, ports = self.plan, self.plan.ports
        listeners = f"INTERNAL://{plan.host}:{ports.internal},PLAIN://{plan.host}:{ports.plain},SASL://{plan.host}:{ports.sasl}"
        users = " ".join(f'user_{user}="{password}"' for user, password in plan.plain_users.items())
        return {
            **_SMALL_BROKER,
            "broker.id": str(plan.broker_id),
            "zookeeper.connect": plan.zookeeper_connect,
            "zookeeper.set.acl": str(plan.zookeeper_login is not None).lower(),
            "log.dirs": str(plan.directory / "data"),
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,PLAIN:PLAINTEXT,SASL:SASL_PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "listener.name.sasl.plain.sasl.jaas.config": f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};",
            "listener.name.sasl.scram-sha-256.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
            **plan.extra_properties,
        }

    def _agent_options(self) -> list[str]:
        return [f"-javaagent:{jmx_agent(kafka_jars())}={self.plan.host}:{self.plan.ports.jmx}:{JMX_RULES}"]

    def _login_options(self) -> list[str]:
        if self.plan.zookeeper_login is None:
            return []
        jaas = self.plan.directory / "client_jaas.conf"
        jaas.write_text(self.plan.zookeeper_login.client_section())
        return [f"-Djava.security.auth.login.config={jaas}"]
