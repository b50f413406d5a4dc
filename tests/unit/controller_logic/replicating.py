"""A made-up Kafka cluster that moves replicas under Kafka's replication throttles."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf

from tidegate_logic.model import Direction, Level
from tidegate_logic.replication.moves import (
    ClusterReplication,
    MoveKind,
    PartitionState,
    ReplicaKey,
    Side,
    egress_of,
    ingress_of,
)
from tidegate_logic.replication.rates import (
    NicRoom,
    Priority,
    ReplicationMode,
    Terms,
    max_min,
)
from tidegate_logic.replication.replication_pass import (
    ReplicationDecision,
    ReplicationInput,
    ReplicationMemory,
    decide_replication,
    resources_of,
)
from tidegate_logic.replication.throttles import (
    ConfigChange,
    Items,
    Operation,
    Resource,
    is_listed,
    items_of,
    lists_of,
    side_resource,
)

MB = 1_000_000
OFF = Terms()
FOLLOW = Terms(ReplicationMode.FOLLOW, minimum=MB)


def apply(
    configs: dict[Resource, dict[str, str]], changes: Iterable[ConfigChange]
) -> dict[Resource, dict[str, str]]:
    """What brokers make of IncrementalAlterConfigs."""
    for one in changes:
        values = configs.setdefault(one.resource, {})
        if one.operation is Operation.DELETE:
            values.pop(one.key, None)
        elif one.operation is Operation.SET:
            values[one.key] = one.value
        else:
            there, given = items_of(one.key, values.get(one.key, "")), items_of(one.key, one.value)
            left = there | given if one.operation is Operation.APPEND else there - given
            values[one.key] = ",".join(sorted(left))
    return configs


@dataclass
class Cluster:
    """Partitions that move, NICs with other traffic, and what Kafka's configurations have.

    `sizes` are of the leaders' logs, `filled` of the replicas that are being filled; `others` is
    the traffic of clients on each side, `inflow` what is produced to each partition.
    """

    brokers: frozenset[int]
    partitions: dict[tuple[str, int], PartitionState]
    sizes: dict[tuple[str, int], float]
    filled: dict[ReplicaKey, float] = field(default_factory=dict)
    others: dict[Side, float] = field(default_factory=dict)
    inflow: dict[tuple[str, int], float] = field(default_factory=dict)
    limit: int | None = 100 * MB
    line_rate: float = 200.0 * MB
    configs: dict[Resource, dict[str, str]] = field(default_factory=dict)
    record: Items = field(default_factory=dict)
    now_seconds: float = 1000.0
    memory: ReplicationMemory = field(default_factory=ReplicationMemory)
    throttled: dict[Side, frozenset[Level]] = field(default_factory=dict)
    blind: set[Side] = field(default_factory=set)
    carried: dict[Side, list[tuple[float, float]]] = field(default_factory=dict)
    changes: list[tuple[float, ConfigChange]] = field(default_factory=list)
    terms: Mapping[MoveKind, Terms] = field(
        default_factory=lambda: {MoveKind.REASSIGNMENT: FOLLOW, MoveKind.RECOVERY: OFF}
    )

    @classmethod
    def moving(
        cls,
        flows: Iterable[tuple[int, int]],
        *,
        size: float = 500.0 * MB,
        brokers: int = 4,
        terms: Terms = FOLLOW,
        limit: int | None = 100 * MB,
    ) -> "Cluster":
        """One partition of its own topic for each flow from a leader to a new replica."""
        partitions, sizes, filled = {}, {}, {}
        for number, (source, destination) in enumerate(flows):
            name = (f"topic-{number}", 0)
            partitions[name] = PartitionState(
                *name,
                source,
                (source, destination),
                frozenset({source}),
                adding=frozenset({destination}),
            )
            sizes[name] = size
            filled[ReplicaKey(*name, destination)] = 0.0
        return cls(
            frozenset(range(1, brokers + 1)),
            partitions,
            sizes,
            filled,
            limit=limit,
            terms={MoveKind.REASSIGNMENT: terms, MoveKind.RECOVERY: OFF},
        )

    def seen(self) -> ClusterReplication:
        known = {
            ReplicaKey(*name, 0)._replace(broker=one.leader or 0): int(self.sizes[name])
            for name, one in self.partitions.items()
        }
        return ClusterReplication(
            self.now_seconds,
            self.brokers,
            tuple(self.partitions.values()),
            {**known, **{key: int(size) for key, size in self.filled.items()}},
        )

    def input(self) -> ReplicationInput:
        seen = self.seen()
        return ReplicationInput(
            self.now_seconds,
            self.terms,
            97,
            seen,
            {
                side: self._room(side)
                for broker in self.brokers
                for side in (egress_of(broker), ingress_of(broker))
            },
            {one: dict(self.configs.get(one, {})) for one in resources_of(seen, self.record)},
            self.record,
        )

    def _room(self, side: Side) -> NicRoom:
        if side in self.blind:
            return NicRoom(self.limit)
        window = [one for one in self.carried.get(side, []) if one[0] > self.now_seconds - 24]
        mean = sum(rate for _, rate in window) / len(window) if window else 0.0
        return NicRoom(
            self.limit,
            mean,
            self.now_seconds,
            float(len(window)) or 1.0,
            self.throttled.get(side, frozenset()),
        )

    def decide(self) -> ReplicationDecision:
        """One pass, with its changes applied."""
        decision, self.memory = decide_replication(self.input(), self.memory)
        self.record = decision.record
        self.changes += [(self.now_seconds, change) for change in decision.changes]
        apply(self.configs, decision.changes)
        return decision

    def play(self, seconds: int, every: int = 5) -> ReplicationDecision:
        """Seconds of traffic, with a pass every five."""
        decision = self.decide()
        for second in range(seconds):
            self._second()
            if second % every == every - 1:
                decision = self.decide()
        return decision

    def flow_rates(self) -> dict[ReplicaKey, float]:
        """What Kafka moves now: fair shares of the rates, of the NICs where there is none."""
        ends, caps = {}, {}
        for name, partition in self.partitions.items():
            for broker in partition.replicas:
                key = ReplicaKey(*name, broker)
                if broker in partition.in_sync or key not in self.filled or not partition.leader:
                    continue
                if broker in self.brokers and partition.leader in self.brokers:
                    ends[key] = (egress_of(partition.leader), ingress_of(broker))
        for side in {side for pair in ends.values() for side in pair}:
            resource, key_name = side_resource(side)
            rate = self.configs.get(resource, {}).get(key_name)
            free = max(0.0, self.line_rate - self.others.get(side, 0.0) - self.in_sync(side))
            left = inf if rate is None else float(rate) - self.in_sync(side, counted=True)
            caps[side] = min(free, max(0.0, left))
        shares = max_min(ends.values(), caps)
        times = {pair: sum(one == pair for one in ends.values()) for pair in ends.values()}
        return {key: shares[pair] / times[pair] for key, pair in ends.items()}

    def in_sync(self, side: Side, *, counted: bool = False) -> float:
        """What replicas in sync have there, or that part of it which Kafka counts in the rate."""
        lists, found = lists_of(self.configs), 0.0
        for name, one in self.partitions.items():
            if one.leader is None or (counted and not is_listed(lists, side, one)):
                continue
            for broker in one.in_sync - {one.leader}:
                if side in (egress_of(one.leader), ingress_of(broker)):
                    found += self.inflow.get(name, 0.0)
        return found

    def _second(self) -> None:
        rates = self.flow_rates()
        carried = dict.fromkeys(
            (side for broker in self.brokers for side in (egress_of(broker), ingress_of(broker))),
            0.0,
        )
        for side in carried:
            carried[side] = self.others.get(side, 0.0) + self.in_sync(side)
        for name in self.sizes:
            self.sizes[name] += self.inflow.get(name, 0.0)
        for key, rate in rates.items():
            name = (key.topic, key.partition)
            partition = self.partitions[name]
            assert partition.leader is not None
            moved = min(rate, self.sizes[name] - self.filled[key])
            self.filled[key] += moved
            carried[egress_of(partition.leader)] += moved
            carried[ingress_of(key.broker)] += moved
            if self.filled[key] >= self.sizes[name]:
                self.partitions[name] = replace(partition, in_sync=partition.in_sync | {key.broker})
        self.partitions = {
            name: one
            for name, one in self.partitions.items()
            if not set(one.replicas) <= one.in_sync
        }
        self.now_seconds += 1
        for side, rate in carried.items():
            known = self.carried.setdefault(side, [])
            known.append((self.now_seconds, rate))
            del known[:-24]

    def rate_of(self, side: Side) -> int | None:
        """The rate that is in force on one side."""
        resource, key = side_resource(side)
        text = self.configs.get(resource, {}).get(key)
        return None if text is None else int(text)

    def left(self) -> dict[Resource, dict[str, str]]:
        """Every throttle that is set somewhere."""
        return {one: values for one, values in self.configs.items() if values}


FIXED = Terms(ReplicationMode.FIXED, Priority.BELOW_L3, maximum=2 * MB)
EGRESS, INGRESS = Direction.EGRESS, Direction.INGRESS
