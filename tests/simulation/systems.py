"""The systems around the operator as one of its processes reaches them, with all that can happen.

The systems themselves are the in-memory doubles, which the contract tests hold to the real ones. A
link is one process's way to one of them: each call takes its time, and may be lost, late, or the
last one that the process makes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.doubles.quota_store import MemoryQuotaStore
from tests.simulation.plan import BROKERS, TOPICS
from tests.simulation.virtual_time import Killed
from tidegate.errors import OutcomeUnknown, TidegateError, Unauthorized, Unreachable
from tidegate.kafka.zookeeper.tree import Acl, Delete, Operation, Znode
from tidegate.kube import api
from tidegate.observe.broker_settings import Settings
from tidegate_logic.model import Entity, TopicLeaders, Topology
from tidegate_logic.reasons import Reason

if TYPE_CHECKING:
    from tests.simulation.world import Process, World

_UNREACHABLE = {
    "zookeeper": Reason.ZOOKEEPER_UNREACHABLE,
    "brokers": Reason.BROKERS_UNREACHABLE,
    "kubernetes": Reason.KUBERNETES_UNREACHABLE,
    "lease": Reason.KUBERNETES_UNREACHABLE,
    "prometheus": Reason.PROMETHEUS_UNREACHABLE,
}
STANDS_STILL_SECONDS = 30.0
_LIMIT_SECONDS = {"zookeeper": 10.0, "brokers": 10.0, "kubernetes": 10.0, "prometheus": 10.0}


@dataclass
class Fault:
    """Something that happens at a call: to the process of this place, after `skip` other calls."""

    what: str
    slot: str
    system: str
    skip: int
    seconds: float
    writes_only: bool


class Link:
    """Calls of one process to one system."""

    def __init__(self, process: Process, system: str) -> None:
        self.process = process
        self.system = system
        self.world: World = process.world

    def call(
        self,
        what: str,
        effect: Callable[[], Any],
        *,
        is_write: bool = False,
        slow_seconds: float = 0.0,
    ) -> Any:
        """Do it, or let happen what this day has in store for it."""
        scheduler, system = self.world.scheduler, self.system
        scheduler.current.require_alive()
        limit_seconds = api.LEASE_CALL_SECONDS if system == "lease" else _LIMIT_SECONDS[system]
        is_slow_there = scheduler.random.random() < 0.5  # or on the way back
        if is_slow_there:
            self._take_time()
        fault = self.world.fault_at(self.process.slot, system, is_write)
        if fault is not None:
            self.world.note(f"{fault.what}: {what}")
        if fault is not None and fault.what == "crash before":
            self._crash()
        if fault is not None and fault.what == "stop before":
            self._stand_still()
        self._wait_for_connection(what, limit_seconds, is_write)
        if fault is not None and fault.what == "lost":
            self._never_answered(what, limit_seconds, is_write)
        if fault is not None and fault.what == "late" and is_write:
            scheduler.after(fault.seconds, lambda: self._late(what, effect))
            self._never_answered(what, min(limit_seconds, fault.seconds), is_write)
        error: TidegateError | None = None
        answer = None
        try:
            answer = effect()
        except TidegateError as refusal:
            error = refusal
        if is_write or error is not None or fault is not None:
            self.world.note(f"{what}{'' if error is None else f' -> {type(error).__name__}'}")
        if fault is not None and fault.what == "crash after":
            self._crash()
        if fault is not None and fault.what == "stop after":
            self._stand_still()
        if fault is not None and fault.what == "lost answer":
            self._never_answered(what, limit_seconds, is_write)
        slow_seconds += (
            fault.seconds if fault is not None and fault.what in ("hang", "late") else 0.0
        )
        if slow_seconds >= limit_seconds:
            self._never_answered(what, limit_seconds, is_write)
        if slow_seconds:
            scheduler.sleep(slow_seconds)
        if not is_slow_there:
            self._take_time()
        if error is not None:
            raise error
        return answer

    def _stand_still(self) -> None:
        """The whole process, as by SIGSTOP or a machine that is moved; then it goes on from here."""
        scheduler = self.world.scheduler
        scheduler.pause(scheduler.group, STANDS_STILL_SECONDS)
        scheduler.sleep(0.001)

    def _take_time(self) -> None:
        latency = self.world.plan.latency_seconds
        scheduler = self.world.scheduler
        if latency:
            scheduler.sleep(scheduler.random.random() * latency)
        elif scheduler.random.random() < 0.1:
            scheduler.sleep(0.0)

    def _crash(self) -> None:
        self.process.crash("at a call")
        raise Killed

    def _wait_for_connection(self, what: str, limit_seconds: float, is_write: bool) -> None:
        scheduler = self.world.scheduler
        back_at = self.process.away_until.get(
            "kubernetes" if self.system == "lease" else self.system, 0.0
        )
        if back_at <= scheduler.now:
            return
        waits_seconds = min(limit_seconds, back_at - scheduler.now)
        if self.system in ("kubernetes", "lease") and scheduler.random.random() < 0.5:
            waits_seconds = 0.01  # refused at once
        scheduler.sleep(waits_seconds)
        if back_at > scheduler.now or self.system in ("kubernetes", "lease"):
            self.world.note(f"{what} -> no connection")
            raise self._silence(what)

    def _never_answered(self, what: str, limit_seconds: float, is_write: bool) -> None:
        self.world.scheduler.sleep(limit_seconds)
        if is_write:
            raise OutcomeUnknown(f"The connection broke while {what} was under way.")
        raise self._silence(what)

    def _silence(self, what: str) -> Unreachable:
        return Unreachable(_UNREACHABLE[self.system], f"No answer came to {what}.")

    def _late(self, what: str, effect: Callable[[], Any]) -> None:
        """The request arrives after all, when no one waits for its answer any more."""
        try:
            effect()
            self.world.note(f"{self.process.name}: {what}, late")
        except TidegateError as error:
            self.world.note(f"{self.process.name}: {what}, late -> {type(error).__name__}")


# --- Kubernetes -----------------------------------------------------------------------------------

_WRITES = frozenset({"patch_status", "add_finalizer", "remove_finalizer", "create_event"})
_LEASE_READS = frozenset({"read_lease", "list_leases"})
_LEASE_CALLS = _LEASE_READS | {"create_lease", "replace_lease", "delete_lease"}


class KubernetesLink:
    """`api.Kubernetes` of one process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._objects = Link(process, "kubernetes")
        self._leases = Link(process, "lease")

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Every call of the protocol, on the double of the process's Kubernetes."""
        inner = getattr(self._process.kubernetes, name)
        method = (
            self._lease_method(name, inner) if name in _LEASE_CALLS else self._method(name, inner)
        )
        self.__dict__[name] = method
        return method

    def _method(self, name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            about = args[0]
            what = f"{name} {about.regarding if name == 'create_event' else getattr(about, 'plural', about)}"
            if name == "create_event":
                what += f" {about.reason}"
            return self._objects.call(
                what, lambda: inner(*args, **kwargs), is_write=name in _WRITES
            )

        return call

    def _lease_method(self, name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            is_read = name in _LEASE_READS
            lease = args[-1] if is_read else args[0].name
            holder = "" if is_read else f" {args[0].holder}"
            slow_seconds = self._process.world.leases.slow_seconds(self._process.where, lease)
            watch = self._process.world.leases.begin(self._process, lease, name)
            answer = self._leases.call(
                f"{name} {lease}{holder}",
                lambda: inner(*args, **kwargs),
                is_write=not is_read,
                slow_seconds=slow_seconds,
            )
            watch(answer)
            return answer

        return call


# --- Kafka ----------------------------------------------------------------------------------------


class Kafka:
    """One Kafka cluster with its ZooKeeper: brokers, leaders, quotas, and the password of a login."""

    def __init__(self, name: str, before: dict[str, dict[str, int]]) -> None:
        self.name = name
        self.store = MemoryQuotaStore(cluster_id=name, topics=TOPICS)
        self.tree = self.store.tree
        self.password = "first"
        self._parsed: dict[bytes, dict[str, str]] = {}
        self.brokers = set(BROKERS)
        self.replicas = {
            (topic, partition): [BROKERS[(partition + turn) % len(BROKERS)] for turn in range(3)]
            for topic, partitions in TOPICS.items()
            for partition in range(partitions)
        }
        self.leaders: dict[tuple[str, int], int | None] = {
            partition: replicas[0] for partition, replicas in self.replicas.items()
        }
        for user, quotas in before.items():
            self.put(user, _with_credentials(user, quotas))

    def store_view(self, entity: Entity) -> dict[str, str]:
        """The quota node's settings of now, parsed once a version."""
        node = self.tree._nodes.get(f"/config/users/{entity.user}")
        if node is None or not node.data:
            return {}
        known = self._parsed.get(node.data)
        if known is None:
            known = self._parsed[node.data] = json.loads(node.data)["config"]
        return known

    def put(self, user: str, data: bytes) -> None:
        self.store.put_raw(Entity(user), data)

    def lose_ledger(self) -> bool:
        """Let somebody delete `/tidegate` with everything below it; whether a claim was there."""
        paths = [path for path in self.tree._nodes if path.startswith("/tidegate")]
        paths.sort(key=lambda path: -path.count("/"))
        self.tree.commit([Delete(path, self.tree._nodes[path].version) for path in paths])
        return "/tidegate/claim" in paths

    def elect_leaders(self) -> None:
        """Each partition is led by its first live replica."""
        for partition, replicas in self.replicas.items():
            self.leaders[partition] = next((one for one in replicas if one in self.brokers), None)
        self.tree.wake_all()

    def lose_leaders_of(self, broker: int) -> None:
        self.brokers.discard(broker)
        for partition, leader in self.leaders.items():
            if leader == broker:
                self.leaders[partition] = None
        self.tree.wake_all()

    def topology(self, patterns: Collection[str], now_seconds: float) -> Topology:
        topics = {}
        for topic in TOPICS:
            if topic not in patterns:
                continue
            led = [leader for (name, _), leader in self.leaders.items() if name == topic]
            counts = {broker: led.count(broker) for broker in BROKERS if broker in led}
            topics[topic] = TopicLeaders(counts, leaderless=led.count(None))
        return Topology(now_seconds, frozenset(self.brokers), topics, self.name)

    def largest_leaders(self, topics: Collection[str]) -> int:
        """The most leaders of these topics on one broker."""
        led = [leader for (topic, _), leader in self.leaders.items() if topic in topics]
        return max((led.count(broker) for broker in BROKERS), default=0)


def _with_credentials(user: str, quotas: dict[str, int]) -> bytes:
    """A quota node as another tool may have written it: escapes that JSON allows, on both sides."""
    scram = r'"%s":"salt=%s,stored_key=STORED,server_key=a2V5,iterations=4096"'
    scram = scram.replace("STORED", user)
    pairs = [
        scram % (r"SCRAM\u002dSHA-256", r"c2F\/cw=="),
        *(f'"{QUOTA_KEYS[name]}":"{rate}"' for name, rate in quotas.items()),
        scram % ("SCRAM-SHA-512", r"\u00632"),
    ]
    return ('{"version":1,"config":{' + ",".join(pairs) + "}}").encode()


def _users(operations: Sequence[Operation]) -> list[str]:
    paths = [one.path for one in operations if type(one).__name__ in ("SetData", "Create")]
    return [path.removeprefix(_USERS) for path in paths if path.startswith(_USERS)]


_USERS = "/config/users/"
QUOTA_KEYS = {"fetch": "consumer_byte_rate", "produce": "producer_byte_rate"}


class Session:
    """A ZnodeTree: one process's session with the ZooKeeper of one Kafka cluster."""

    def __init__(self, process: Process, kafka: Kafka, password: str | None) -> None:
        self.address = f"{kafka.name}-zk:2181"
        self._process = process
        self._kafka = kafka
        self._password = password
        self._link = Link(process, "zookeeper")
        self._is_closed = False

    def read(self, paths: Sequence[str]) -> list[Znode | None]:
        users = [path.removeprefix(_USERS) for path in paths if path.startswith(_USERS)]
        if users and len(users) < len(self._kafka.tree._nodes["/config/users"].children):
            # of some only: it is about to write them, and has decided before
            self._link.world.meddle(self._kafka, "before an attempt", users)
        return self._asked("read", lambda: self._kafka.tree.read(paths)) if paths else []

    def children(self, paths: Sequence[str]) -> list[list[str] | None]:
        return self._asked("children", lambda: self._kafka.tree.children(paths)) if paths else []

    def acls(self, paths: Sequence[str]) -> list[Acl | None]:
        return self._asked("acls", lambda: self._kafka.tree.acls(paths)) if paths else []

    def sync(self) -> None:
        self._asked("sync", lambda: None)

    def commit(self, operations: Sequence[Operation]) -> None:
        writer = self._link.world.scheduler.current.name
        operations = self._process.as_written(operations)
        # what is on its way may arrive late (known limits), so it counts as it was sent
        has_lease = self._link.world.leases.may_write(self._process, writer.rpartition("/")[2])

        def effect() -> None:
            self._link.world.meddle(self._kafka, "before a commit", _users(operations))
            before = self._kafka.tree._nodes
            self._kafka.tree.commit(operations)
            self._link.world.invariants.committed(
                self._kafka,
                self._process,
                writer,
                before,
                self._kafka.tree._nodes,
                has_lease=has_lease,
            )

        self._link.world.let_another_take_over(self._process, _users(operations))
        paths = [
            one.path for one in operations if type(one).__name__ in ("SetData", "Create", "Delete")
        ]
        try:
            self._asked(f"commit {self._kafka.name} {' '.join(paths)}", effect, is_write=True)
        except OutcomeUnknown:
            self._link.world.invariants.rules.forget_charges(self._kafka.name)
            raise

    def watch(self, wake: Callable[[], None]) -> None:
        process = self._process

        def later() -> None:
            if not process.group.is_dead:
                self._link.world.scheduler.after(
                    0.01, lambda: None if process.group.is_dead else wake()
                )

        process.on_reconnect.append(later)
        self._asked("watch", lambda: self._kafka.tree.watch(later))

    def close(self) -> None:
        self._is_closed = True

    def _asked(self, what: str, effect: Callable[[], Any], *, is_write: bool = False) -> Any:
        if self._is_closed:
            raise Unreachable(Reason.ZOOKEEPER_UNREACHABLE, "The session was closed.")

        def authorized() -> Any:
            if self._password not in (None, self._kafka.password):
                raise Unauthorized(f"ZooKeeper {self.address} refused the login.")
            return effect()

        return self._link.call(what, authorized, is_write=is_write)


class BrokersLink:
    """A TopologySource of one process."""

    def __init__(self, process: Process, kafka: Kafka) -> None:
        self._kafka = kafka
        self._link = Link(process, "brokers")

    def read(self, patterns: Collection[str], *, with_in_sync: bool = False) -> Topology:
        now = self._link.world.scheduler.now
        topology: Topology = self._link.call("leaders", lambda: self._kafka.topology(patterns, now))
        return topology

    def settings(self, brokers: Collection[int], _: Collection[str]) -> Settings:
        live = self._kafka.brokers
        answers: dict[int, dict[str, str]] = {}
        with suppress(TidegateError):  # who does not answer is left out
            answers = self._link.call(
                "plugins",
                lambda: {
                    broker: {"quota.window.num": "11"} for broker in brokers if broker in live
                },
            )
        return answers

    def close(self) -> None:
        """Nothing is open."""
