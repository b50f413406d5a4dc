"""Replication of one Kafka cluster: partitions that are moved, replicas that catch up, throttles.

The model of the unit tests moves the bytes (`replicating.Cluster`); here it has virtual time, the
brokers of the cluster, others who set throttles too, and each process's own way to it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.simulation.plan import BROKERS, MB
from tests.simulation.systems import Kafka, Link
from tests.simulation.virtual_time import VirtualTime
from tests.unit.controller_logic.replicating import Cluster, apply
from tidegate.errors import TidegateError
from tidegate.kafka.quota_store import require_lease
from tidegate.kafka.throttle_record import record_of
from tidegate.kafka.zookeeper.nodes import THROTTLES_PATH
from tidegate_logic.replication.background import Tiering
from tidegate_logic.replication.moves import (
    ClusterReplication,
    PartitionState,
    ReplicaKey,
)
from tidegate_logic.replication.throttles import (
    ConfigChange,
    Configs,
    Items,
    Operation,
    Resource,
    ResourceKind,
    broker_resource,
    items_of,
)

if TYPE_CHECKING:
    from tests.simulation.world import Process, World

_LATE_SECONDS = 10.0  # a request that waits for longer goes with its connection


class Moves:
    """What is moved and what is throttled in one cluster; `theirs` is what others have set."""

    def __init__(self, world: World, kafka: Kafka) -> None:
        self.theirs: dict[tuple[Resource, str], frozenset[str]] = {}
        self._world = world
        self._kafka = kafka
        self._cluster = Cluster(frozenset(BROKERS), {}, {}, now_seconds=world.scheduler.now)
        self._number = 0
        self.set_by_us = 0

    # --- what people do ---

    def begin(self, leader: int, new: int, megabytes: int, *, is_move: bool) -> None:
        """Let `new` be filled from `leader`, because somebody moves it there or it was away."""
        self._number += 1
        name = ("moved", self._number)
        self._cluster.partitions[name] = PartitionState(
            *name,
            leader,
            (leader, new),
            frozenset({leader}),
            adding=frozenset({new}) if is_move else frozenset(),
        )
        self._cluster.sizes[name] = float(megabytes * MB)
        self._cluster.filled[ReplicaKey(*name, new)] = 0.0

    def end(self) -> None:
        """All of it is done, or cancelled."""
        self._cluster.partitions = {}

    def set_by_others(self, change: ConfigChange) -> None:
        """Somebody else's throttle, over ours too, as the tools do."""
        there = self._cluster.configs.get(change.resource, {}).get(change.key)
        if change.operation is Operation.APPEND and not there:
            change = replace(change, operation=Operation.SET)
        apply(self._cluster.configs, [change])
        where, items = (change.resource, change.key), items_of(change.key, change.value)
        kept = self.theirs.get(where, frozenset()) if change.operation is Operation.APPEND else ()
        self.theirs[where] = items.union(kept)

    # --- what a broker answers ---

    def seen(self) -> ClusterReplication:
        """What is moving now."""
        self._pass_time()
        wall = VirtualTime.EPOCH_SECONDS + self._world.scheduler.now
        return replace(self._cluster.seen(), read_at_seconds=wall)

    def configs(self, resources: Collection[Resource]) -> Configs:
        """The throttles of these; a broker that is down is left out."""
        down = {broker_resource(one) for one in BROKERS if one not in self._kafka.brokers}
        return {
            one: dict(self._cluster.configs.get(one, {})) for one in resources if one not in down
        }

    def brokers(self) -> frozenset[int]:
        """Those that are up."""
        return frozenset(self._kafka.brokers)

    def scan(self) -> Configs:
        """Every throttle."""
        return {one: held for one, held in self.configs(self._cluster.configs).items() if held}

    def alter(self, process: Process, changes: Sequence[ConfigChange]) -> str:
        """Change one resource; returns why not."""
        resource = changes[0].resource
        if resource.kind is ResourceKind.BROKER and int(resource.name) not in self._kafka.brokers:
            return "it did not answer"
        for change in changes:
            self._judge(process, change)
            apply(self._cluster.configs, [change])
            self.set_by_us += change.operation is not Operation.DELETE
        return ""

    def _judge(self, process: Process, change: ConfigChange) -> None:
        """Nothing is set that is not in the record, and nothing of others is changed."""
        name = f"{self._kafka.name} {change.resource.name} {change.key}"
        there = self._cluster.configs.get(change.resource, {}).get(change.key, "")
        theirs = self.theirs.get((change.resource, change.key), frozenset())
        after = apply({change.resource: {change.key: there} if there else {}}, [change])
        left = items_of(change.key, after[change.resource].get(change.key, ""))
        if items_of(change.key, there) & theirs - left:
            self._world.violated(f"{process.name} took {sorted(theirs)} of others from {name}")
        if change.operation in (Operation.SET, Operation.APPEND):
            recorded = self.record().get(change.resource, {}).get(change.key, frozenset())
            if not items_of(change.key, change.value) <= recorded:
                self._world.violated(f"{process.name} set {name}, which is not in the record")

    def record(self) -> Items:
        """What ZooKeeper keeps of what may be ours."""
        node = self._kafka.tree._nodes.get(THROTTLES_PATH)
        return record_of(None if node is None else node.data)

    def problems(self) -> list[str]:
        """What is left of ours, or is not there any more of others, once nothing moves."""
        left = {
            (resource, key): items_of(key, text)
            for resource, values in self._cluster.configs.items()
            for key, text in values.items()
            if text
        }
        found = [
            f"{self._kafka.name}: {resource.name} {key} is {sorted(left.get((resource, key), ()))}, "
            f"others set {sorted(self.theirs.get((resource, key), ()))}"
            for resource, key in sorted(left.keys() | self.theirs.keys())
            if left.get((resource, key)) != self.theirs.get((resource, key))
        ]
        return found + [
            f"{self._kafka.name}: a record of {one.name} is left" for one in self.record()
        ]

    def _pass_time(self) -> None:
        cluster, now = self._cluster, self._world.scheduler.now
        cluster.brokers = frozenset(self._kafka.brokers)
        for name, one in cluster.partitions.items():
            able = sorted(one.in_sync & cluster.brokers)
            if one.leader not in able:
                cluster.partitions[name] = replace(one, leader=able[0] if able else None)
        while cluster.partitions and cluster.now_seconds < now:
            cluster._second()
        cluster.now_seconds = max(cluster.now_seconds, now)


class MovesLink:
    """A ReplicationSource of one process."""

    def __init__(self, process: Process, moves: Moves) -> None:
        self._process = process
        self._moves = moves
        self._link = Link(process, "brokers")
        self._listed: frozenset[tuple[str, int]] | None = None

    def read(self, *, with_recovery: bool) -> ClusterReplication:
        seen: ClusterReplication = self._link.call("reassignments", self._moves.seen)
        self._listed = _listed(seen)
        kept = [one for one in seen.partitions if with_recovery or one.is_reassigned]
        return replace(seen, partitions=tuple(kept))

    def has_changed(self) -> bool:
        if self._listed is None:
            return False
        with suppress(TidegateError):
            listed = _listed(self._link.call("reassignments", self._moves.seen))
            is_new, self._listed = listed != self._listed, listed
            return is_new
        self._listed = None
        return False

    def configs(self, resources: Collection[Resource]) -> Configs:
        answer: Configs = self._link.call("throttles", lambda: self._moves.configs(resources))
        return answer

    def tiering(self) -> Mapping[int, Tiering]:
        return {}

    def everywhere(self, resources: Collection[Resource]) -> Mapping[int, Configs | None]:
        answer: Configs = self._link.call("throttles", lambda: self._moves.configs(resources))
        return dict.fromkeys(self._moves.brokers(), answer)

    def scan(self) -> Configs:
        answer: Configs = self._link.call("all throttles", self._moves.scan)
        return answer

    def alter(
        self, changes: Sequence[ConfigChange], may_write: Callable[[], bool] = lambda: True
    ) -> Mapping[Resource, str]:
        failed: dict[Resource, str] = {}
        for resource in dict.fromkeys(one.resource for one in changes):
            some = [one for one in changes if one.resource == resource]
            require_lease(may_write)
            try:
                why = self._alter(some)
            except TidegateError as error:
                why = str(error)
            if why:
                failed[resource] = why
        return failed

    def _alter(self, some: Sequence[ConfigChange]) -> str:
        scheduler = self._link.world.scheduler
        sent_at = scheduler.now

        def effect() -> str:
            if scheduler.now - sent_at > _LATE_SECONDS:
                return "it did not answer"
            return self._moves.alter(self._process, some)

        said = " ".join(f"{one.operation.value} {one.key}={one.value}" for one in some)
        why: str = self._link.call(f"alter {some[0].resource.name} {said}", effect, is_write=True)
        return why

    def close(self) -> None:
        """Nothing is open."""


def _listed(seen: ClusterReplication) -> frozenset[tuple[str, int]]:
    return frozenset((one.topic, one.partition) for one in seen.partitions if one.is_reassigned)
