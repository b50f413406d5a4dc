"""A whole small world for commands: a Kafka tree in memory, leaders that tests choose, files, and a
clock that waits by itself.
"""

import io
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.doubles.kubernetes import InMemoryKubernetes
from tests.doubles.quota_store import MemoryQuotaStore
from tidegate.cli import main
from tidegate.commands.context import CommandContext
from tidegate.kube.login import Right
from tidegate.observe.broker_settings import CORDONED, PLUGIN, RACK, SELECTOR
from tidegate.prometheus.probe import Found
from tidegate_logic.model import Readings, ShareGroup, TopicLeaders, Topology

NAMESPACE = "streaming"


KAFKA_DEFAULTS = {
    "quota.window.num": "11",
    "quota.window.size.seconds": "1",
    "inter.broker.protocol.version": "3.9-IV0",
}


class FixedShareGroups:
    """Share groups as a test says."""

    def __init__(self, groups: tuple[ShareGroup, ...]) -> None:
        self._groups = groups

    def read(self) -> tuple[ShareGroup, ...]:
        return self._groups


class FixedTopology:
    """Leaders as a test says."""

    def __init__(
        self,
        topology: Topology,
        callbacks: Mapping[int, str],
        said: Mapping[str, str] = KAFKA_DEFAULTS,
        racks: Mapping[int, str] | None = None,
    ) -> None:
        self.topology = topology
        self.callbacks = callbacks
        self.said = said
        self.racks = racks or {}

    def read(self, patterns: Collection[str], *, with_in_sync: bool = False) -> Topology:
        return self.topology

    def settings(
        self, brokers: Collection[int], names: Collection[str]
    ) -> Mapping[int, Mapping[str, str]]:
        given = {PLUGIN: self.callbacks, RACK: self.racks}
        return {
            broker: {
                **self.said,
                **{name: of[broker] for name, of in given.items() if broker in of},
            }
            for broker in brokers
        }

    def close(self) -> None:
        """Nothing was opened."""


class FixedLogin:
    """A login to an API server with the rights and kinds that a test says."""

    def __init__(self, world: "World") -> None:
        self._world = world

    @property
    def server_seconds(self) -> float | None:
        return self._world.now + self._world.server_ahead_seconds

    def version(self) -> str:
        return "v1.34.1"

    def user(self) -> str:
        return self._world.user

    def served(self, group: str, version: str) -> frozenset[str]:
        return self._world.served

    def may(self, right: Right) -> bool:
        return str(right) not in self._world.denied

    def close(self) -> None:
        """Nothing was opened."""


class FixedProbe:
    """Series as a test says."""

    def __init__(self, world: "World") -> None:
        self._world = world

    @property
    def server_seconds(self) -> float | None:
        return self._world.now + self._world.prometheus_ahead_seconds

    def look(self, brokers: Collection[int]) -> tuple[Found, ...]:
        return tuple(self._world.found)

    def close(self) -> None:
        """Nothing was opened."""


class FixedReader:
    """Readings as a test says."""

    def __init__(self, readings: Callable[[], Readings]) -> None:
        self._readings = readings

    def read(self, brokers: Collection[int]) -> Readings:
        return self._readings()

    def close(self) -> None:
        """Nothing was opened."""


class OpenTwice:
    """A tree whose `close` is harmless, so that a test can look at it after the command and run
    another.
    """

    def __init__(self, tree: Any) -> None:
        self._tree = tree

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tree, name)

    def close(self) -> None:
        """The test goes on using it."""


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@dataclass
class Answer:
    """What one command left behind."""

    code: int
    out: str
    err: str


@dataclass
class World:
    """One Kafka cluster `orders`, one policy with tiers, and a clock that only waiting moves."""

    folder: Path
    store: MemoryQuotaStore = field(default_factory=MemoryQuotaStore)
    kubernetes: InMemoryKubernetes = field(default_factory=InMemoryKubernetes)
    leaders: dict[str, dict[int, int]] = field(default_factory=lambda: {"acc": {1: 1, 2: 1, 3: 1}})
    callbacks: dict[int, str] = field(default_factory=dict)
    brokers: Any = None  # the quota store through them, for a test that has one
    replication: Any = None  # what moves, for a test that looks at it
    share_groups: tuple[ShareGroup, ...] = ()
    now: float = 1_000_000.0
    settings: Mapping[str, str] = field(default_factory=lambda: KAFKA_DEFAULTS)
    racks: dict[int, str] = field(default_factory=dict)
    user: str = "admin"
    context_namespace: str = NAMESPACE
    served: frozenset[str] = frozenset(
        {"brokerbandwidthpolicies", "businesstiers", "quotaoverrides"}
    )
    denied: set[str] = field(default_factory=set)
    server_ahead_seconds: float = 0.0
    prometheus_ahead_seconds: float = 0.0
    found: list[Found] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    asked_as: list[str | None] = field(default_factory=list)
    readings: Callable[[], Readings] = lambda: Readings(1_000_000.0, 15.0)
    open_out: Callable[[], io.StringIO] = io.StringIO
    during_wait: Callable[[], None] = lambda: None

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds
        self.during_wait()

    def topology(self) -> FixedTopology:
        topics = {
            name: TopicLeaders(
                leaders,
                in_sync=tuple(
                    ((one, *sorted({1, 2, 3} - {one})), count) for one, count in leaders.items()
                ),
            )
            for name, leaders in self.leaders.items()
        }
        return FixedTopology(
            Topology(self.now, frozenset({1, 2, 3}), topics),
            self.callbacks,
            self.settings,
            self.racks,
        )

    def read_from_followers(self) -> None:
        """Three racks, and brokers that let consumers read from the nearest replica."""
        self.settings = {**self.settings, SELECTOR: "org.apache.RackAwareReplicaSelector"}
        self.racks = {1: "a", 2: "b", 3: "c"}

    def cordon(self) -> None:
        """Brokers that take no new partitions."""
        self.settings = {**self.settings, CORDONED: "*"}

    def run(self, *arguments: str, standard_input: str = "") -> Answer:
        """Run one command as the process would."""
        out, err = self.open_out(), io.StringIO()
        around = CommandContext(
            out=out,
            err=err,
            standard_input=io.StringIO(standard_input),
            now_seconds=lambda: self.now,
            wait_seconds=self.wait,
            open_tree=lambda spec, secret, *, folder: OpenTwice(self.store.faults),
            open_admin_store=lambda spec, secret, *, folder: self.brokers,
            open_topology=lambda spec, secret, *, folder, topic_names: self.topology(),
            open_replication=lambda spec, secret, *, folder: self.replication,
            open_share_groups=lambda spec, secret, *, folder: FixedShareGroups(self.share_groups),
            open_kubernetes=self.opened_kubernetes,
            context_namespace=lambda kubeconfig, context: self.context_namespace,
            open_reader=lambda settings: FixedReader(lambda: self.readings()),
            open_login=lambda kubeconfig, context, as_user: FixedLogin(self),
            open_probe=lambda settings: FixedProbe(self),
        )
        code = main(list(arguments), around)
        return Answer(int(code), out.getvalue(), err.getvalue())

    def opened_kubernetes(
        self, kubeconfig: Path | None, context: str | None, as_user: str | None
    ) -> InMemoryKubernetes:
        self.asked_as.append(as_user)
        return self.kubernetes

    def write_files(self, *objects: Mapping[str, Any]) -> str:
        path = self.folder / "all.yaml"
        path.write_text(yaml.safe_dump_all(objects))
        return str(path)

    def plan(self, *objects: Mapping[str, Any], options: Iterable[str] = ()) -> Answer:
        return self.run("plan", "-f", self.write_files(*objects), *options)

    def snapshot(self) -> dict[str, object]:
        """Every znode with data and version."""
        return {path: (node.data, node.version) for path, node in self.store.tree._nodes.items()}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def policy() -> dict[str, Any]:
    """A fresh policy that a test may change."""
    return {
        "apiVersion": "tidegate.io/v1alpha1",
        "kind": "BrokerBandwidthPolicy",
        "metadata": {"name": "orders", "namespace": NAMESPACE},
        "spec": {
            "mode": "Enforce",
            "kafka": {
                "bootstrapServers": "kafka-1:9092",
                "quotaStore": "ZooKeeper",
                "zookeeper": {"connect": "zk-1:2181/kafka"},
            },
        },
    }


@pytest.fixture
def tier() -> dict[str, Any]:
    """A fresh tier with one member, alice, promised 10 MB/s of fetch a partition of `acc`."""
    return {
        "apiVersion": "tidegate.io/v1alpha1",
        "kind": "BusinessTier",
        "metadata": {"name": "core", "namespace": NAMESPACE},
        "spec": {
            "policyRef": {"name": "orders"},
            "level": "L0",
            "members": [
                {
                    "name": "shop",
                    "user": "alice",
                    "topics": ["acc"],
                    "contract": {"perPartition": {"fetch": "10M"}},
                }
            ],
        },
    }
