"""What Kafka counts against a replication throttle beside the replicas that are being filled.

A leader's rate counts every byte that followers fetch of the partitions on its list, and a
follower's rate every byte that it receives of those on its own, in sync or not. Only replicas out
of sync are ever held back. So those in sync take their part of a rate first, each as much as its
partition receives, and what is being filled gets the rest.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tidegate_logic.replication.moves import Move, Side, egress_of, ingress_of
from tidegate_logic.replication.throttles import Items, is_listed


class InSync(NamedTuple):
    """A moving partition that so many followers in sync fetch through one side of a NIC."""

    move: Move
    followers: int


def in_sync_by_side(moves: Iterable[Move], lists: Items) -> dict[Side, list[InSync]]:
    """The listed partitions of these moves that each side carries for replicas in sync.

    A partition that is filled on several brokers counts once. Partitions that someone else put on
    a list while nothing moves them are not among these: what they receive is not known.
    """
    found: dict[Side, list[InSync]] = {}
    for move in _one_of_each(moves):
        partition = move.partition
        if partition.leader is None:
            continue
        followers = partition.in_sync - {partition.leader}
        for side, count in (
            (egress_of(partition.leader), len(followers)),
            *((ingress_of(broker), 1) for broker in sorted(followers)),
        ):
            if count and is_listed(lists, side, partition):
                found.setdefault(side, []).append(InSync(move, count))
    return found


def _one_of_each(moves: Iterable[Move]) -> Iterable[Move]:
    """For each partition the move that has been watched for longest."""
    found: dict[tuple[str, int], Move] = {}
    for move in moves:
        name = (move.key.topic, move.key.partition)
        if name not in found or len(move.readings) > len(found[name].readings):
            found[name] = move
    return found.values()


def rate_of(here: Sequence[InSync], since_seconds: float | None = None) -> float | None:
    """Bytes/s of these followers since then, else in the last minute; None = not all measured."""
    total = 0.0
    for one in here:
        inflow = one.move.inflow(since_seconds)
        if inflow is None:
            return None
        total += inflow * one.followers
    return total


def rate_if_leading(moves: Iterable[Move]) -> float:
    """Bytes/s that a broker would send to followers in sync if it came to lead these partitions."""
    here = [InSync(one, max(0, len(one.partition.in_sync) - 1)) for one in _one_of_each(moves)]
    return sum(rate_of([one]) or 0.0 for one in here)


def known_rates(by_side: Mapping[Side, Sequence[InSync]]) -> dict[Side, float]:
    """Bytes/s of followers in sync for each side where all of it is measured."""
    return {side: rate for side, here in by_side.items() if (rate := rate_of(here)) is not None}
