"""How long one decision about replication takes: 200 partitions that move between 50 brokers.

With nothing set yet, and a minute later, with speeds measured and throttles of ours in force.
"""

from collections.abc import Mapping
from random import Random
from statistics import median
from time import perf_counter, process_time
from typing import NamedTuple

from bench.results import Figure
from tidegate_logic.replication.moves import (
    ClusterReplication,
    MoveKind,
    PartitionState,
    ReplicaKey,
    Side,
    egress_of,
    ingress_of,
)
from tidegate_logic.replication.rates import NicRoom, ReplicationMode, Terms
from tidegate_logic.replication.replication_pass import (
    ReplicationDecision,
    ReplicationInput,
    ReplicationMemory,
    decide_replication,
    resources_of,
)
from tidegate_logic.replication.throttles import Items, Resource

BROKERS, MOVES = 50, 200
_MB = 1_000_000
_SIZE = 50_000 * _MB
_BOUND_MILLISECONDS = 20.0
_RUNS, _PASSES, _PASS_SECONDS = 25, 12, 5
_TERMS = {
    MoveKind.REASSIGNMENT: Terms(ReplicationMode.FOLLOW, minimum=_MB),
    MoveKind.RECOVERY: Terms(),
}


def replication_decide_figures() -> list[Figure]:
    """Medians of the first decision, and of one after a minute of passes."""
    first: list[_Taken] = []
    later: list[_Taken] = []
    for seed in range(_RUNS):
        times = _times(Random(seed))
        first.append(times[0])
        later.append(times[-1])
    what = f"processor of a decision on {MOVES} moving partitions of {BROKERS} brokers"
    return [
        Figure(
            f"{what}, {name}, median of {_RUNS}",
            median(one.processor for one in times),
            "ms",
            _BOUND_MILLISECONDS,
            f"best {min(one.processor for one in times):.1f} ms, worst "
            f"{max(one.processor for one in times):.1f} ms; by the clock median "
            f"{median(one.clock for one in times):.1f} ms, best "
            f"{min(one.clock for one in times):.1f} ms",
        )
        for name, times in (("nothing set yet", first), ("after a minute of passes", later))
    ]


class _Taken(NamedTuple):
    """Milliseconds of one decision."""

    processor: float
    clock: float


def _times(dice: Random) -> list[_Taken]:
    """Milliseconds of each pass of a minute; what is moved differs from pass to pass."""
    flows = [tuple(dice.sample(range(1, BROKERS + 1), 2)) for _ in range(MOVES)]
    memory, times = ReplicationMemory(), []
    configs: dict[Resource, dict[str, str]] = {}
    record: Items = {}
    for number in range(_PASSES):
        given = _input(flows, number, configs, record, dice)
        processor, clock = process_time(), perf_counter()
        decision, memory = decide_replication(given, memory)
        times.append(_Taken(1000 * (process_time() - processor), 1000 * (perf_counter() - clock)))
        record = decision.record
        _apply(decision, configs)
    return times


def _input(
    flows: list[tuple[int, ...]],
    number: int,
    configs: Mapping[Resource, Mapping[str, str]],
    record: Items,
    dice: Random,
) -> ReplicationInput:
    now_seconds = 1000.0 + number * _PASS_SECONDS
    partitions, sizes = [], {}
    for index, (source, destination) in enumerate(flows):
        topic = f"topic-{index}"
        partitions.append(
            PartitionState(
                topic,
                0,
                source,
                (source, destination),
                frozenset({source}),
                adding=frozenset({destination}),
            )
        )
        sizes[ReplicaKey(topic, 0, source)] = _SIZE
        sizes[ReplicaKey(topic, 0, destination)] = number * 5 * _PASS_SECONDS * _MB
    brokers = frozenset(range(1, BROKERS + 1))
    seen = ClusterReplication(now_seconds, brokers, tuple(partitions), sizes)
    nics: dict[Side, NicRoom] = {
        side: NicRoom(100 * _MB, dice.uniform(40, 95) * _MB, now_seconds, 15.0)
        for broker in brokers
        for side in (egress_of(broker), ingress_of(broker))
    }
    known = {one: dict(configs.get(one, {})) for one in resources_of(seen, record)}
    return ReplicationInput(now_seconds, _TERMS, 97, seen, nics, known, record)


def _apply(decision: ReplicationDecision, configs: dict[Resource, dict[str, str]]) -> None:
    """Nobody else sets anything here, so every change is a value that is set."""
    for one in decision.changes:
        configs.setdefault(one.resource, {})[one.key] = one.value
