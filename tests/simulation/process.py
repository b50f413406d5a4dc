"""One process of the operator, put together by its own `main.Operator`, on virtual time.

`install` puts the virtual threads, clocks and systems into the operator's modules instead of the
real ones, once for an interpreter. Nothing of what decides, writes, holds a Lease or reports is
replaced.
"""

from __future__ import annotations

import inspect
import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

import tidegate.control.controller as controller
import tidegate.control.manager as manager
import tidegate.control.runtime as runtime
import tidegate.main as main
import tidegate.metrics as metrics
import tidegate.observe.connections as connections
import tidegate.observe.metrics_watch as metrics_watch
from tests.simulation import virtual_time
from tests.simulation.moves import MovesLink
from tests.simulation.systems import BrokersLink, KubernetesLink, Session
from tests.simulation.virtual_time import Group, Killed, VirtualThreading, VirtualTime, running
from tidegate.control.audit.trail import unread_trail
from tidegate.errors import TidegateError
from tidegate.kafka.zookeeper.nodes import LEDGER_ROOT
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore
from tidegate.kafka.zookeeper.tree import Create, Operation, SetData
from tidegate.kube.api import ResourceKind
from tidegate.observe.connections import zookeeper_connection
from tidegate.observe.observation import KafkaCluster
from tidegate.settings import Settings

if TYPE_CHECKING:
    from tests.simulation.world import World

# a version whose Leases are in each policy's namespace cannot end a policy of a deleted namespace
LEASES_ARE_SAFE = "lease_namespace" in {field.name for field in fields(Settings)}
LEASE_NAMESPACE: dict[str, Any] = {"lease_namespace": "tidegate-system"} if LEASES_ARE_SAFE else {}

# the process that is being started: `main.Operator` asks for its Kubernetes and its clocks
_starting: list[Process] = []


class Process:
    """One process, from its start to its end. `slot` is its place, such as `blue-1`."""

    def __init__(self, world: World, slot: str, number: int) -> None:
        self.world = world
        self.slot = slot
        self.where = slot.partition("-")[0]
        self.name = f"{slot}.{number}"
        self.group = Group(self.name)
        self.kubernetes = world.kubernetes[self.where]
        self.away_until: dict[str, float] = {}
        self.on_reconnect: list[Callable[[], None]] = []
        self.operator: main.Operator | None = None
        self.is_newer = False
        self.is_stopping = False
        self.watch_gap_until = 0.0
        self.delivers_at = 0.0

    def start(self) -> None:
        with virtual_time.as_group(self.group):
            thread = virtual_time.Thread(self._run, "start")
        thread.start()

    def crash(self, why: str) -> None:
        """Let it be gone, as by SIGKILL or a node that lost power."""
        self.world.note(f"{self.name} is gone: {why}")
        self.world.scheduler.kill(self.group)
        self.world.ended(self)

    def stop(self) -> None:
        """Let it end in order, as by SIGTERM."""
        if self.operator is None or self.is_stopping or self.group.is_dead:
            return
        self.is_stopping = True
        with virtual_time.as_group(self.group):
            thread = virtual_time.Thread(self._stop, "stop")
        thread.start()

    def as_written(self, operations: Sequence[Operation]) -> Sequence[Operation]:
        """What this version really sends: a newer one has something of its own in each record."""
        if not self.is_newer:
            return operations
        return [_newer(operation) for operation in operations]

    def deliver(self, event: str, kind: ResourceKind, raw: dict[str, Any]) -> None:
        """Let the watch bring a change."""
        if self.group.is_dead or self.operator is None:
            return
        if event == "DELETED":
            self.operator.cache.remove(kind, raw["metadata"]["uid"])
        else:
            self.operator.cache.put(kind, raw)

    def _run(self) -> None:
        settings = Settings(
            identity=self.name,
            poll_seconds=self.world.plan.poll_seconds,
            relist_seconds=self.world.plan.relist_seconds,
            **LEASE_NAMESPACE,
        )
        try:
            _starting.append(self)
            try:
                operator = main.Operator(settings)
            finally:
                _starting.pop()
            self.operator = operator
            operator.check_kinds_are_served()
            operator.manager.start()
        except TidegateError as error:
            self.crash(f"it could not start: {type(error).__name__}")
            raise Killed from error

    def _stop(self) -> None:
        assert self.operator is not None
        self.operator.stop()
        self.crash("it has stopped in order")
        raise Killed


def _newer(operation: Operation) -> Operation:
    if not isinstance(operation, SetData | Create) or not operation.path.startswith(
        f"{LEDGER_ROOT}/"
    ):
        return operation
    record = json.loads(operation.data or b"{}")
    record |= {"written_by": "9.9.0", "seen_by": "a newer version"}
    return replace(operation, data=json.dumps(record, separators=(",", ":")).encode())


# --- instead of the real ones ---------------------------------------------------------------------


class _NoFolders:
    """Instead of `tempfile` and `shutil`: no certificate is ever written here."""

    @staticmethod
    def mkdtemp(prefix: str) -> str:
        return f"/nowhere/{prefix}"

    @staticmethod
    def rmtree(folder: Path, ignore_errors: bool) -> None:
        """Nothing was made."""


class _NoTrail:
    """Instead of an audit trail, which costs a tenth of a run and changes nothing."""

    def note(self, *_: Any, **__: Any) -> None:
        """Nothing is kept."""

    forget = close = note


def _audit_trail(*_: Any) -> Any:
    return unread_trail() if _starting[-1].world.plan.has_audit else _NoTrail()


def _clock() -> runtime.Clock:
    group = _starting[-1].group

    def wall() -> float:
        return VirtualTime.EPOCH_SECONDS + running().now + group.wall_offset_seconds

    return runtime.Clock(wall=wall, monotonic=VirtualTime.monotonic)


def _open_cluster(process: Process, spec: Any, *, secrets: Any, folder: Path) -> KafkaCluster:
    settings = zookeeper_connection(spec, secrets, folder)
    kafka = process.world.kafkas[spec.zookeeper.connect.partition("-zk")[0]]
    session = Session(process, kafka, settings.sasl.password if settings.sasl else None)
    moves = process.world.moves.get(kafka.name)
    return KafkaCluster(
        session.address,
        ZooKeeperQuotaStore(session),
        BrokersLink(process, kafka),
        replication=None if moves is None else MovesLink(process, moves),
    )


def _context(*args: Any, **kwargs: Any) -> runtime.OperatorContext:
    """The context with the readings of the simulated Prometheus."""
    process = _starting[-1]
    return runtime.OperatorContext(
        *args, **kwargs, open_reader=lambda settings: process.world.open_reader(process, settings)
    )


_IN_PLACE_OF: dict[str, Any] = {
    "threading": VirtualThreading,
    "time": VirtualTime,
    "ThreadPoolExecutor": virtual_time.ThreadPoolExecutor,
    "wait": virtual_time.wait_for_all,
    "Timer": virtual_time.Timer,
    "Thread": virtual_time.Thread,
}
_REAL = (
    threading,
    time,
    futures.ThreadPoolExecutor,
    futures.wait,
    threading.Timer,
    threading.Thread,
)


def install() -> None:
    """Let the operator's modules run on virtual time and on the links of the starting process."""
    for name, module in list(sys.modules.items()):
        if name.startswith("tidegate."):
            for real, virtual in _IN_PLACE_OF.items():
                if getattr(module, real, None) in _REAL:
                    setattr(module, real, virtual)
    # their own pace costs half of a run, and each is woken by what it waits for anyway
    manager._TICK_SECONDS, manager._LEASE_TICK_SECONDS = 5.0, 1.0  # type: ignore[attr-defined]
    controller.Dependencies = partial(  # type: ignore[attr-defined, misc]
        metrics_watch.Dependencies, wall=VirtualTime.time, monotonic=VirtualTime.monotonic
    )
    # what they read is of the real process, and of the machine
    for of_the_process in ("ProcessCollector", "PlatformCollector", "GCCollector"):
        setattr(metrics, of_the_process, lambda **_: None)
    connections.tempfile = connections.shutil = _NoFolders  # type: ignore[attr-defined]
    main.connect = lambda *_: None  # type: ignore[attr-defined]
    main.KubernetesClient = lambda *_: KubernetesLink(_starting[-1])  # type: ignore[attr-defined]
    main.open_cluster = _opener  # type: ignore[attr-defined]
    main.Clock = _clock  # type: ignore[attr-defined]
    main.OperatorContext = _context  # type: ignore[attr-defined]
    main.open_audit_trail = _audit_trail  # type: ignore[attr-defined]
    main.registry_of = lambda *_: None  # type: ignore[attr-defined]
    clocks = {"wall": VirtualTime.time, "monotonic": VirtualTime.monotonic}
    for name, made in list(vars(main).items()):
        if isinstance(made, type) and made.__module__.startswith("tidegate.") and name != "Clock":
            taken = clocks.keys() & inspect.signature(made).parameters.keys()
            setattr(
                main,
                name,
                partial(made, **{clock: clocks[clock] for clock in taken}) if taken else made,
            )
    structlog.configure(
        processors=[_errors_only],
        wrapper_class=structlog.make_filtering_bound_logger(40),
        cache_logger_on_first_use=False,
    )


def _opener(spec: Any, *, secrets: Any, folder: Path) -> KafkaCluster:
    """`open_cluster` of whichever process asks."""
    group = running().group
    return _open_cluster(_by_group[group.name], spec, secrets=secrets, folder=folder)


_by_group: dict[str, Process] = {}


def know(process: Process) -> None:
    """Let what this process opens be its own."""
    _by_group[process.name] = process


def _errors_only(_logger: Any, _name: str, event: dict[str, Any]) -> Any:
    error = event.get("exc_info")
    if error:
        shown = sys.exc_info()[1]
        for process in _by_group.values():
            if process.name == running().group.name:
                process.world.violated(f"a bug in the operator: {event['event']}: {shown!r}")
                process.world.tracebacks.append(shown)
    raise structlog.DropEvent
