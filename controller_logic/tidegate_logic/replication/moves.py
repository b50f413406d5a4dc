"""What replication moves: which replicas are being filled, how much is left, and how fast it goes.

A replica that is not in sync fetches from the partition's leader until it is. It is there because
someone reassigns the partition, or because its broker comes back and catches up. Sizes of logs
show how much is left; two readings of them show how fast it arrives and how fast the partition
grows meanwhile. All amounts are bytes, times are seconds since the epoch.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from tidegate_logic.model import Direction

KEEP_SECONDS = 180.0  # readings of sizes: more than the longest window of a NIC's mean
MEASURE_SECONDS = 60.0  # over so long a speed is measured
LEAST_MEASURED_SECONDS = 15.0
NEWEST_SECONDS = 10.0  # over so long the newest speed is measured, less only at the beginning
_LEAST_DISTANCE_SECONDS = 4.0


class MoveKind(StrEnum):
    """Why a replica is being filled."""

    REASSIGNMENT = "Reassignment"
    RECOVERY = "Recovery"


class ReplicaKey(NamedTuple):
    """One replica: a partition on a broker."""

    topic: str
    partition: int
    broker: int


class Side(NamedTuple):
    """One side of a broker's NIC.

    Leaders send through egress, and followers receive through ingress.
    """

    broker: int
    direction: Direction

    def __str__(self) -> str:
        return f"broker {self.broker} {self.direction.value}"


def egress_of(broker: int) -> Side:
    return Side(broker, Direction.EGRESS)


def ingress_of(broker: int) -> Side:
    return Side(broker, Direction.INGRESS)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition as Metadata and ListPartitionReassignments have it.

    `replicas` has the ones that a reassignment adds, too. `leader` None = it has none now.
    """

    topic: str
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: frozenset[int]
    adding: frozenset[int] = frozenset()
    removing: frozenset[int] = frozenset()

    @property
    def is_reassigned(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def old_replicas(self) -> tuple[int, ...]:
        """Those from before the reassignment: each may become the leader meanwhile."""
        return tuple([one for one in self.replicas if one not in self.adding])


@dataclass(frozen=True, slots=True)
class ClusterReplication:
    """What the brokers said of replication at one moment.

    `partitions` are those that are being reassigned and those with a replica out of sync; `sizes`
    are the bytes of their replicas' logs. A replica whose broker did not answer is not in `sizes`.
    """

    read_at_seconds: float
    brokers: frozenset[int]
    partitions: tuple[PartitionState, ...] = ()
    sizes: Mapping[ReplicaKey, int] = field(default_factory=dict)


class _Reading(NamedTuple):
    """The logs of a partition's leader and of one replica at one moment.

    `received_bytes` is what the partition received since the first reading, `arrived_bytes` what
    the replica did. Where a log shrank, because old segments went or it was truncated, and where
    another broker leads, its size says nothing: the partition goes on as before, and nothing
    arrived.
    """

    at_seconds: float
    leader: int
    leader_bytes: int
    replica_bytes: int
    received_bytes: float = 0.0
    arrived_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Move:
    """A replica that is being filled from `source`, the partition's leader.

    `bytes_left` None = the sizes are not known. `readings` are the sizes of the last minutes. A
    move whose source or destination is down does not go on (`waits_for` = that broker). `sides` is
    where it leaves its source and where it enters its destination; none while it has no source.
    """

    key: ReplicaKey
    kind: MoveKind
    source: int | None
    partition: PartitionState
    bytes_left: int | None = None
    size: int | None = None
    waits_for: int | None = None
    readings: tuple[_Reading, ...] = ()
    sides: tuple[Side, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ends = () if self.source is None else (egress_of(self.source), ingress_of(self.key.broker))
        object.__setattr__(self, "sides", ends)

    @property
    def destination(self) -> int:
        return self.key.broker

    @property
    def goes_on(self) -> bool:
        return self.source is not None and self.waits_for is None

    def arrived(self, from_seconds: float, until_seconds: float) -> float:
        """Bytes that arrived between two moments; before the first reading none are known of."""
        return max(0.0, self._arrived_at(until_seconds) - self._arrived_at(from_seconds))

    def speed(self) -> float | None:
        """Bytes/s that arrived in the last minute; None = not measured for long enough."""
        first = self._first_of_window()
        if first is None:
            return None
        last = self.readings[-1]
        return (last.arrived_bytes - first.arrived_bytes) / (last.at_seconds - first.at_seconds)

    def newest_speed(self) -> float | None:
        """Bytes/s that arrived in the last seconds; None = there are no two readings yet."""
        if len(self.readings) < 2:
            return None
        *before, last = self.readings
        first = next(
            (one for one in reversed(before) if last.at_seconds - one.at_seconds >= NEWEST_SECONDS),
            before[0],
        )
        return (last.arrived_bytes - first.arrived_bytes) / (last.at_seconds - first.at_seconds)

    def inflow(self, since_seconds: float | None = None) -> float | None:
        """Bytes/s that the partition received since then, else in the last minute.

        Over the time of two readings at least; None = there are no two yet.
        """
        if not self.readings:
            return None
        *before, last = self.readings
        known = [
            one for one in before if last.at_seconds - one.at_seconds >= _LEAST_DISTANCE_SECONDS
        ]
        if not known:
            return None
        since = last.at_seconds - MEASURE_SECONDS if since_seconds is None else since_seconds
        first = next((one for one in known if one.at_seconds >= since), known[-1])
        return (last.received_bytes - first.received_bytes) / (last.at_seconds - first.at_seconds)

    @property
    def falls_behind(self) -> bool:
        """Whether less arrived than the partition received, over the last minute and lately.

        Not where what is left comes within seconds: a replica that has caught up looks so too.
        """
        speed, newest, inflow = self.speed(), self.newest_speed(), self.inflow()
        if speed is None or newest is None or inflow is None or self.bytes_left is None:
            return False
        is_measured = self.readings[-1].at_seconds - self.readings[0].at_seconds >= MEASURE_SECONDS
        return is_measured and max(speed, newest) < inflow < self.bytes_left / NEWEST_SECONDS

    def _first_of_window(self) -> _Reading | None:
        if not self.readings:
            return None
        last_seconds = self.readings[-1].at_seconds
        inside = [one for one in self.readings if one.at_seconds >= last_seconds - MEASURE_SECONDS]
        return inside[0] if last_seconds - inside[0].at_seconds >= LEAST_MEASURED_SECONDS else None

    def _arrived_at(self, at_seconds: float) -> float:
        readings = self.readings
        if not readings:
            return 0.0
        if at_seconds <= readings[0].at_seconds:
            return float(readings[0].arrived_bytes)
        for before, after in pairwise(readings):
            if at_seconds <= after.at_seconds:
                share = (at_seconds - before.at_seconds) / (after.at_seconds - before.at_seconds)
                return before.arrived_bytes + share * (after.arrived_bytes - before.arrived_bytes)
        if len(readings) == 1:
            return float(readings[0].arrived_bytes)
        # after the newest reading it goes on as between the last two
        before, after = readings[-2:]
        speed = (after.arrived_bytes - before.arrived_bytes) / (
            after.at_seconds - before.at_seconds
        )
        return after.arrived_bytes + speed * (at_seconds - after.at_seconds)


Progress = Mapping[ReplicaKey, tuple[_Reading, ...]]


def moves_of(seen: ClusterReplication, before: Progress) -> tuple[tuple[Move, ...], Progress]:
    """Every replica that is being filled, and the readings of sizes for the next pass.

    A broker that is down fills nothing: its replicas out of sync are no recovery until it is back.
    """
    moves: list[Move] = []
    progress: dict[ReplicaKey, tuple[_Reading, ...]] = {}
    for partition in seen.partitions:
        for broker in partition.replicas:
            is_added = broker in partition.adding
            if broker in partition.in_sync or not (is_added or broker in seen.brokers):
                continue
            key = ReplicaKey(partition.topic, partition.partition, broker)
            move = _move(key, partition, seen, before.get(key, ()))
            moves.append(move)
            if move.readings:
                progress[key] = move.readings
    return tuple(moves), progress


def _move(
    key: ReplicaKey,
    partition: PartitionState,
    seen: ClusterReplication,
    readings: tuple[_Reading, ...],
) -> Move:
    source = partition.leader if partition.leader in seen.brokers else None
    # a replica that holds nothing yet has no directory, so only its broker's silence is unknown
    leader_bytes = (
        None if source is None else seen.sizes.get(ReplicaKey(key.topic, key.partition, source))
    )
    replica_bytes = seen.sizes.get(key)
    if source is not None and leader_bytes is not None and replica_bytes is not None:
        reading = _Reading(seen.read_at_seconds, source, leader_bytes, replica_bytes)
        readings = _with(readings, reading)
    return Move(
        key,
        MoveKind.REASSIGNMENT if key.broker in partition.adding else MoveKind.RECOVERY,
        source,
        partition,
        None
        if leader_bytes is None or replica_bytes is None
        else max(0, leader_bytes - replica_bytes),
        leader_bytes,
        None if key.broker in seen.brokers else key.broker,
        readings,
    )


def _with(readings: tuple[_Reading, ...], newest: _Reading) -> tuple[_Reading, ...]:
    if readings:
        grown = max(0, newest.replica_bytes - readings[-1].replica_bytes)
        newest = newest._replace(
            received_bytes=_received(readings, newest),
            arrived_bytes=readings[-1].arrived_bytes + grown,
        )
    kept = [one for one in readings if one.at_seconds > newest.at_seconds - KEEP_SECONDS]
    if len(kept) > 1 and newest.at_seconds - kept[-2].at_seconds < _LEAST_DISTANCE_SECONDS:
        kept.pop()  # one reading in some seconds is enough
    if kept and newest.at_seconds <= kept[-1].at_seconds:
        return tuple(kept)
    return (*kept, newest)


def _received(readings: tuple[_Reading, ...], newest: _Reading) -> float:
    """Bytes that the partition received from the first of these readings until the newest."""
    last = readings[-1]
    grown: float = newest.leader_bytes - last.leader_bytes
    if newest.leader != last.leader or grown < 0:
        before = readings[-2] if len(readings) > 1 else last
        lasted = last.at_seconds - before.at_seconds
        speed = (last.received_bytes - before.received_bytes) / lasted if lasted > 0 else 0.0
        grown = speed * max(0.0, newest.at_seconds - last.at_seconds)
    return last.received_bytes + grown


def lately_over(
    over: Iterable[Move],
    before: Iterable[Move],
    moves: Iterable[Move],
    *,
    now_seconds: float,
    since_seconds: float,
) -> tuple[Move, ...]:
    """The moves that ended with this pass, and those that were `over` and brought anything since.

    What one brought since its last reading is what was left of it, and no more than at its last
    speed: it may have been cancelled.
    """
    kept = [one for one in over if one.readings[-1].at_seconds > since_seconds]
    there = {move.key for move in moves}
    for move in before:
        if move.key not in there and move.goes_on and move.readings:
            last = move.readings[-1]
            at_seconds = max(now_seconds, last.at_seconds + 1)
            likely = (move.newest_speed() or 0.0) * (at_seconds - last.at_seconds)
            brought = last.arrived_bytes + round(min(move.bytes_left or 0, max(0.0, likely)))
            end = last._replace(at_seconds=at_seconds, arrived_bytes=brought)
            # the second one says that nothing comes any more
            kept.append(
                replace(
                    move, readings=(*move.readings, end, end._replace(at_seconds=at_seconds + 1))
                )
            )
    return tuple(kept)


def bytes_left(moves: Iterable[Move]) -> int | None:
    """What is left of all of them; None = of one it is not known."""
    amounts = [move.bytes_left for move in moves]
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if len(known) == len(amounts) else None


def by_side(moves: Sequence[Move]) -> dict[Side, list[Move]]:
    """The moves that go on, by each side of a NIC that they pass."""
    found: dict[Side, list[Move]] = {}
    for move in moves:
        if move.goes_on:
            for side in move.sides:
                found.setdefault(side, []).append(move)
    return found
