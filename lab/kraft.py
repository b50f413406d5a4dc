"""A whole Kafka in KRaft mode: brokers and controllers, in the same processes or in their own.

    with KraftLab(brokers=3, users=("alice",)) as kafka:
        kafka.create_topic("orders", assignment=[[1, 2], [2, 3], [3, 1]])
        kafka.broker(3).kill()

What tests do with its brokers is what they do with those of `lab.kafka`. It writes no quota and
makes no traffic.
"""

import base64
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaException

from lab import java
from lab.cache import RunDirectory
from lab.doctor import refuse_missing
from lab.errors import LabError, say
from lab.java import properties, start_java
from lab.kafka import (
    CLIENT_HOST_NUMBER,
    FIRST_BROKER_HOST_NUMBER,
    MAIN_CLASS,
    SMALL_BROKER,
    Broker,
    BrokerPlan,
    BrokersLab,
    Ports,
    end_recording,
    use_as_labs_do,
)
from lab.network import Namespace, Network, free_port
from lab.packages import chosen_kraft, kafka_jars
from lab.process import Process, wait_until

_STORAGE_TOOL = "kafka.tools.StorageTool"
_FORMAT_TIMEOUT_SECONDS = 60.0
_FIRST_CONTROLLER_ID = 101  # of controllers in processes of their own
_FIRST_CONTROLLER_HOST_NUMBER = 30
_NAMESPACE_CONTROLLER_PORT = 9090
_HOST_NUMBERS_BESIDE = 100  # those of the other lab's machines are below
_SCRAM = "SCRAM-SHA-256"


@dataclass(frozen=True)
class Quorum:
    """The controllers, as every node is configured with them: id -> host:port."""

    voters: Mapping[int, str]

    def settings(self) -> dict[str, str]:
        """The settings by which a node finds them, be it one of them or not."""
        voters = ",".join(f"{node}@{address}" for node, address in sorted(self.voters.items()))
        return {
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.election.timeout.ms": "500",
            "controller.quorum.fetch.timeout.ms": "1000",
            "controller.quorum.election.backoff.max.ms": "500",
            # a killed broker is noticed after the same time as with ZooKeeper
            "broker.session.timeout.ms": "6000",
            "broker.heartbeat.interval.ms": "1000",
        }


@dataclass(frozen=True)
class Format:
    """What a node's directory is formatted with, once, before its first start."""

    cluster_id: str
    scram_users: Mapping[str, str]  # user -> password, for SCRAM-SHA-256

    def arguments(self) -> list[str]:
        """The arguments of Kafka's storage tool."""
        scram = [
            f"--add-scram={_SCRAM}=[name={user},password={password}]"
            for user, password in self.scram_users.items()
        ]
        return ["format", f"--cluster-id={self.cluster_id}", "--config=server.properties", *scram]


def _new_cluster_id() -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")


class Node(Broker):
    """A node that has its metadata from the quorum, of which it may be a part."""

    def __init__(
        self, plan: BrokerPlan, quorum: Quorum, wanted: Format, *, is_formatted: bool = False
    ) -> None:
        super().__init__(plan)
        self._quorum = quorum
        self._format = wanted
        self._formatting: Process | None = None
        self._is_formatted = is_formatted

    @property
    def is_controller(self) -> bool:
        """Whether it is one of the quorum."""
        return self.broker_id in self._quorum.voters

    def format(self) -> None:
        """Begin to format its directory, unless it is."""
        if self._is_formatted:
            return
        self._is_formatted = True
        self.plan.directory.mkdir(parents=True, exist_ok=True)
        (self.plan.directory / "server.properties").write_text(properties(self._settings()))
        self._formatting = start_java(
            f"format-{self.broker_id}",
            _STORAGE_TOOL,
            arguments=self._format.arguments(),
            options=["-Xmx128m"],
            jars=self.plan.jars(),
            directory=self.plan.directory,
        )

    def launch(self) -> None:
        """As `Broker.launch`, in a formatted directory."""
        self.format()
        if self._formatting is not None:
            self._formatting.expect_success(_FORMAT_TIMEOUT_SECONDS)
            self._formatting = None
        super().launch()

    def _started_line(self) -> str:
        return f"[KafkaRaftServer nodeId={self.broker_id}] Kafka Server started"

    def _settings(self) -> dict[str, str]:
        clients = self._client_settings()
        protocols = f"CONTROLLER:PLAINTEXT,{clients['listener.security.protocol.map']}"
        settings = {
            **SMALL_BROKER,
            "node.id": str(self.broker_id),
            "process.roles": "broker",
            **self._quorum.settings(),
            **clients,
            "listener.security.protocol.map": protocols,
        }
        if self.is_controller:
            settings["process.roles"] = "broker,controller"
            settings["listeners"] += f",CONTROLLER://{self._quorum.voters[self.broker_id]}"
        # the lab's caller may choose a listener's protocol, but never the quorum's
        extra = dict(self.plan.extra_properties)
        chosen = extra.pop("listener.security.protocol.map", None)
        if chosen is not None:
            settings["listener.security.protocol.map"] = f"CONTROLLER:PLAINTEXT,{chosen}"
        return settings | extra


class Controller(Node):
    """A controller in a process of its own, which serves no client."""

    def _settings(self) -> dict[str, str]:
        settings = super()._settings()
        for of_brokers in ("inter.broker.listener.name", "advertised.listeners"):
            if of_brokers not in self.plan.extra_properties:
                settings.pop(of_brokers)
        address = self._quorum.voters[self.broker_id]
        return {
            **{key: value for key, value in settings.items() if not key.startswith("listener.n")},
            "process.roles": "controller",
            "listeners": f"CONTROLLER://{address}",
        }


class KraftLab(BrokersLab):
    """Brokers 1..n with their controllers; a context manager that returns once all serve.

    Their version is by default that of `chosen_kraft`.

    `controllers` 0 = every broker is a controller as well; otherwise as many controllers, from id
    101 on, run in processes of their own. `users` can log in by SASL PLAIN and, as they are
    formatted into the metadata, by SCRAM-SHA-256, with `password(user)`. `server_properties` are
    added to the settings of every node and `java_options` to those of its JVM, and `racks` has the
    rack of each broker; `jars` gives other jars than those of this Kafka. Namespaces need root;
    `beside` puts them on the network of another lab, which has to end later.
    """

    def __init__(
        self,
        *,
        version: str | None = None,
        brokers: int = 1,
        controllers: int = 0,
        namespaces: bool = False,
        beside: Network | None = None,
        users: Sequence[str] = (),
        racks: Sequence[str] = (),
        server_properties: Mapping[str, str] | None = None,
        java_options: Sequence[str] = (),
        jars: Callable[[], Path] | None = None,
    ) -> None:
        super().__init__(users=users, racks=racks)
        self.version = version or chosen_kraft()
        self._jars = jars or partial(kafka_jars, self.version)
        self._broker_ids = range(1, brokers + 1)
        self._controller_ids = range(_FIRST_CONTROLLER_ID, _FIRST_CONTROLLER_ID + controllers)
        self._wants_namespaces = namespaces
        self._beside = beside
        self._server_properties = dict(server_properties or {})
        self._java_options = tuple(java_options)
        self._controllers: dict[int, Controller] = {}

    def _open(self, stack: ExitStack) -> None:
        refuse_missing("linux", "util-linux", "java", "maven")
        self._run = stack.enter_context(RunDirectory())
        if self._wants_namespaces or self._beside is not None:
            self.network = self._beside or Network(self._run)
            self.client_namespace = self._machine("cli", CLIENT_HOST_NUMBER)
        stack.callback(self._kill_nodes)
        self._start_nodes()
        self.cluster_id = self.admin.cluster_id()

    @property
    def controllers(self) -> list[Broker]:
        """The nodes of the quorum by id, whether they are brokers as well or not."""
        apart = [self._controllers[node] for node in sorted(self._controllers)]
        return [*apart] or self.brokers

    def _start_nodes(self) -> None:
        plans = {
            broker: self._plan(broker, f"b{broker}", FIRST_BROKER_HOST_NUMBER + broker)
            for broker in self._broker_ids
        }
        apart = {
            controller: self._plan(controller, f"c{number}", _FIRST_CONTROLLER_HOST_NUMBER + number)
            for number, controller in enumerate(self._controller_ids, start=1)
        }
        quorum = Quorum(
            {
                node: f"{plan.host}:{self._controller_port(plan)}"
                for node, plan in (apart or plans).items()
            }
        )
        formatted = Format(
            _new_cluster_id(),
            {user: self.password(user) for user in self._users},
        )
        nodes = [Controller(plan, quorum, formatted) for plan in apart.values()]
        self._controllers = {node.broker_id: node for node in nodes}
        brokers = [Node(plan, quorum, formatted) for plan in plans.values()]
        self._brokers = {node.broker_id: node for node in brokers}
        every = [*nodes, *brokers]
        for begin in (Node.format, Node.launch, Node.wait_started):
            for node in every:
                begin(node)
        self.admin.wait_for_brokers(self._broker_ids)
        for user in self._users:
            wait_until(
                partial(self.can_log_in, user, self.password(user)),
                f"the login of {user} by {_SCRAM}",
                timeout_seconds=30,
            )

    def _controller_port(self, plan: BrokerPlan) -> int:
        return _NAMESPACE_CONTROLLER_PORT if plan.namespace else free_port()

    def _plan(self, node_id: int, machine: str, host_number: int) -> BrokerPlan:
        namespace = self._machine(machine, host_number) if self.network else None
        replicas = str(min(3, len(self._broker_ids)))
        return BrokerPlan(
            broker_id=node_id,
            host=namespace.address if namespace else "127.0.0.1",
            ports=Ports.of(namespace),
            zookeeper_connect="",
            directory=self._run.path / f"broker-{node_id}",
            namespace=namespace,
            plain_users={user: self.password(user) for user in self._users},
            zookeeper_login=None,
            extra_properties={
                "offsets.topic.replication.factor": replicas,
                "transaction.state.log.num.partitions": "3",
                "transaction.state.log.replication.factor": replicas,
                "transaction.state.log.min.isr": str(min(2, int(replicas))),
                **self._rack(node_id),
                **self._server_properties,
            },
            java_options=self._java_options,
            jars=self._jars,
        )

    def _machine(self, name: str, host_number: int) -> Namespace:
        if self._beside is None:
            return self.bridge.add(name, host_number)
        return self.bridge.add(f"k{name}", host_number + _HOST_NUMBERS_BESIDE)

    def _kill_nodes(self) -> None:
        self._kill_brokers()
        for node in self._controllers.values():
            if node.is_running():
                node.kill()


# Records the class archives of a broker and of the storage tool, as `lab.kafka` does it for brokers
# with ZooKeeper. Those of Kafka 3.9 start from what a broker with ZooKeeper loads.


def record_kraft_archives() -> None:
    """Record them unless the cache has them, in some ten seconds. A failure is only reported."""
    version = chosen_kraft()
    try:
        java.entry(kafka_jars(version), record=partial(_record, version))
    except (LabError, KafkaException, OSError) as failure:
        say(
            "class-archive",
            f"not recorded, so brokers of Kafka {version} take some seconds longer to start: "
            f"{failure}",
        )


def _record(version: str, content: Path) -> None:
    with RunDirectory() as run:
        host = "127.0.0.1"
        lab = KraftLab(version=version, users=("recorder",))
        lab._run = run
        plan = lab._plan(1, "b1", FIRST_BROKER_HOST_NUMBER + 1)
        options = tuple(java.recording_options(MAIN_CLASS, content))
        quorum = Quorum({1: f"{host}:{free_port()}"})
        node = Node(replace(plan, java_options=options), quorum, Format(_new_cluster_id(), {}))
        try:
            node.start()
            use_as_labs_do(node.plan)
            end_recording(node.process, java.place(MAIN_CLASS, content))
        finally:
            node.stop(grace_seconds=0)
