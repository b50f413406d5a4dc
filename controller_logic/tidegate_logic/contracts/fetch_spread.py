"""Where consumers read a member's partitions, if brokers send them to followers (KIP-392).

A leader with Kafka's RackAwareReplicaSelector answers a consumer that sets `client.rack`:

    the leader is in the rack            read from the leader
    in-sync followers are in the rack    read from the one that is most caught up
    neither                              read from the leader

So fetch has a spread of its own. Where the member declares the racks of its consumers, each
partition is divided evenly among the racks, and within a rack among the followers that may be most
caught up: so a total is kept, although the share of each rack is not known. Where it declares none,
leaders are expected to serve, as without a selector. Either way, what each broker *may* have to
serve is its reach, and where that leaves a choice, measured rates choose: see `adaptive.py`.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import lcm

from tidegate_logic.contracts.leader_scaling import Leaders, LeaderSpread
from tidegate_logic.model import InSync, Member, ReplicaSelection
from tidegate_logic.value import value


class FetchBasis(StrEnum):
    """What a fetch quota is scaled by where followers serve reads."""

    __hash__ = str.__hash__

    LEADERS = "Leaders"
    RACKS = "Racks"
    MEASURED = "Measured"


@value(frozen=True, slots=True)
class FetchSpread:
    """How a member's reads are expected to lie on the brokers, by leaders or by its racks.

    `reach` counts the partitions that each broker may have to serve; None = exactly the expected
    ones. `certain` is false while the selector of a leader is not known: then nothing is lowered.
    """

    expected: LeaderSpread
    basis: FetchBasis
    reach: LeaderSpread | None = None
    certain: bool = True

    @property
    def widest(self) -> LeaderSpread:
        """Every broker that may serve."""
        return self.reach or self.expected


@value(frozen=True, slots=True)
class _Served:
    """Who serves partitions with the same in-sync replicas.

    `chosen` has for each rack the brokers one of which does, `reach` all that may.
    """

    chosen: tuple[InSync, ...]
    reach: InSync


class Reads:
    """The reads of one topology, asked for many members; answers are kept."""

    def __init__(self, leaders: Leaders, selection: ReplicaSelection) -> None:
        self._leaders = leaders
        self._selection = selection
        self._known: dict[tuple[tuple[str, ...], tuple[str, ...]], FetchSpread | None] = {}
        # thousands of partitions have the same in-sync replicas
        self._served: dict[tuple[InSync, tuple[str, ...]], _Served] = {}

    @classmethod
    def of_topology(cls, leaders: Leaders | None) -> "Reads | None":
        """None if leaders serve all reads, or it is not known whether they do."""
        selection = None if leaders is None else leaders.topology.selection
        if leaders is None or selection is None or not (selection.by_rack | selection.otherwise):
            return None
        return cls(leaders, selection)

    @property
    def racks(self) -> frozenset[str]:
        """The racks of live brokers."""
        live = self._leaders.topology.brokers
        return frozenset(rack for one, rack in self._selection.racks.items() if one in live)

    def of(self, member: Member) -> FetchSpread | None:
        """The member's reads; None if only the leaders of its topics serve them."""
        key = member.topics, member.racks
        if key not in self._known:
            spread = self._of_topics(*key) if member.topics else self._of_all_brokers()
            self._known[key] = spread
        return self._known[key]

    def _of_all_brokers(self) -> FetchSpread | None:
        """Without topics, a total is divided among all brokers, and any may serve all of it."""
        live = self._leaders.topology.brokers
        if len(live) < 2:
            return None
        evenly = _spread(dict.fromkeys(live, 1), LeaderSpread(leaders=1), parts=len(live))
        reach = _spread(dict.fromkeys(live, 1), LeaderSpread(leaders=1))
        return FetchSpread(evenly, FetchBasis.LEADERS, reach)

    def _of_topics(self, patterns: tuple[str, ...], racks: tuple[str, ...]) -> FetchSpread | None:
        led = self._leaders.spread(patterns)
        topics, _ = self._leaders.matching(patterns)
        groups: dict[InSync, int] = {}
        for topic in topics:
            for group, partitions in topic.in_sync:
                groups[group] = groups.get(group, 0) + partitions
        served = [(self._served_of(group, racks), count) for group, count in groups.items()]
        reach: dict[int, int] = {}
        for one, partitions in served:
            for broker in one.reach:
                reach[broker] = reach.get(broker, 0) + partitions
        if not groups or (not racks and reach == led.led):
            return None
        leaves_a_choice = sum(reach.values()) > led.leaders
        return FetchSpread(
            _divided(served, led) if racks else led,
            FetchBasis.RACKS if racks else FetchBasis.LEADERS,
            _spread(reach, led) if leaves_a_choice else None,
            not any(group[0] in self._selection.unknown for group in groups),
        )

    def _served_of(self, group: InSync, racks: tuple[str, ...]) -> _Served:
        found = self._served.get((group, racks))
        if found is None:
            chosen = self._chosen(group, racks)
            found = _Served(chosen, self._reach(group, chosen, racks))
            self._served[group, racks] = found
        return found

    def _chosen(self, group: InSync, racks: tuple[str, ...]) -> tuple[InSync, ...]:
        """For each rack, the brokers one of which Kafka's selector chooses."""
        leader, *followers = group
        if leader not in self._selection.by_rack:
            return ((leader,),)
        rack_of = self._selection.racks
        return tuple(
            [
                (leader,)
                if rack == rack_of.get(leader)
                else tuple([one for one in followers if rack_of.get(one) == rack]) or (leader,)
                for rack in racks
            ]
        )

    def _reach(self, group: InSync, chosen: tuple[InSync, ...], racks: tuple[str, ...]) -> InSync:
        leader, *followers = group
        if leader in self._selection.otherwise:
            return group
        if racks:
            return tuple({one for brokers in chosen for one in brokers})
        if leader not in self._selection.by_rack:
            return (leader,)
        rack_of = self._selection.racks
        elsewhere = {None, rack_of.get(leader)}
        return (leader, *(one for one in followers if rack_of.get(one) not in elsewhere))


def _divided(served: Sequence[tuple[_Served, int]], led: LeaderSpread) -> LeaderSpread:
    """Each partition evenly among the racks, and within a rack among the brokers that may serve."""
    parts = lcm(*{len(one.chosen) * len(brokers) for one, _ in served for brokers in one.chosen})
    counts: dict[int, int] = {}
    for one, partitions in served:
        for brokers in one.chosen:
            share = partitions * parts // (len(one.chosen) * len(brokers))
            for broker in brokers:
                counts[broker] = counts.get(broker, 0) + share
    return _spread(counts, led, parts=parts)


def _spread(served: Mapping[int, int], led: LeaderSpread, *, parts: int = 1) -> LeaderSpread:
    """What each broker serves, of as many partitions as are led."""
    largest = max(served.values())
    return LeaderSpread(
        led.topics,
        led.leaders,
        len(served),
        largest,
        min(served.values()),
        led.leaderless,
        led.missing,
        len(served) * largest / (led.leaders * parts),
        dict(served),
        parts,
    )
