"""Moves of a made-up cluster with everything that goes wrong meanwhile, by seeds: afterwards nothing
of ours is left and others' throttles are as they set them.

A pass comes every five seconds; between passes brokers die and come back, leaders change, moves
begin and are cancelled, others set, change and remove throttles, limits and terms are edited, and
the process dies between any two of its changes, with everything that it remembered.
"""

from dataclasses import dataclass, field, replace
from random import Random

import pytest

from tests.unit.controller_logic.replicating import FIXED, FOLLOW, MB, OFF, Cluster, apply
from tidegate_logic.model import Level
from tidegate_logic.replication.moves import (
    MoveKind,
    PartitionState,
    ReplicaKey,
    by_side,
    egress_of,
    ingress_of,
)
from tidegate_logic.replication.rates import (
    NicRoom,
    Priority,
    ReplicationMode,
    Terms,
    moved_by,
    room_for,
)
from tidegate_logic.replication.replication_pass import (
    ReplicationDecision,
    ReplicationInput,
    ReplicationMemory,
    decide_replication,
)
from tidegate_logic.replication.throttles import (
    FOLLOWER_LIST,
    FOLLOWER_RATE,
    LEADER_LIST,
    LEADER_RATE,
    ConfigChange,
    Operation,
    Resource,
    broker_resource,
    items_of,
    topic_resource,
)

BROKERS = (1, 2, 3, 4, 5)
TOPICS = tuple(f"topic-{number}" for number in range(6))
SEEDS, AT_ONCE, PASSES = 200, 20, 60
SECONDS = 5
RATES, LISTS = (LEADER_RATE, FOLLOWER_RATE), (LEADER_LIST, FOLLOWER_LIST)
TERMS = (
    FIXED,
    FOLLOW,
    OFF,
    replace(FOLLOW, priority=Priority.L1),
    Terms(ReplicationMode.FOLLOW, Priority.L2, 2 * MB, 30 * MB),
)


@dataclass
class Faults:
    """One seed's cluster. `theirs` is what others have set, by item."""

    dice: Random
    cluster: Cluster
    down: set[int] = field(default_factory=set)
    theirs: dict[tuple[Resource, str], frozenset[str]] = field(default_factory=dict)
    throttled: int = 0
    _number: int = 0

    def play(self) -> None:
        for _ in range(PASSES):
            for happens in self.dice.sample(HAPPENINGS, 2):
                if self.dice.random() < 0.35:
                    happens(self)
            self._pass(faulty=True)
            self._seconds()
        # all comes to an end: brokers are back, nobody moves anything any more
        self.down.clear()
        self.cluster.brokers = frozenset(BROKERS)
        self.cluster.partitions = {}
        for _ in range(8):
            decision = self._pass(faulty=False)
            self._seconds()
        assert decision.is_finished
        assert not decision.record
        left = {
            (resource, key): items_of(key, text)
            for resource, values in self.cluster.configs.items()
            for key, text in values.items()
            if text
        }
        assert left == {where: items for where, items in self.theirs.items() if items}

    # --- a pass, and what dies in it ---

    def _pass(self, *, faulty: bool) -> ReplicationDecision:
        cluster = self.cluster
        given = cluster.input()
        if faulty and self.dice.random() < 0.05:
            given = replace(given, seen=None)
        gone = {broker_resource(one) for one in self.down}
        given = replace(
            given, configs={one: held for one, held in given.configs.items() if one not in gone}
        )
        decision, memory = decide_replication(given, cluster.memory)
        if given.seen is None:
            assert not decision.changes
            return decision
        self._judge(given, decision, memory)
        if faulty and self.dice.random() < 0.05:
            cluster.memory = ReplicationMemory()
            return decision  # killed before the record was written
        cluster.record, cluster.memory = decision.record, memory
        changes = list(decision.changes)
        if faulty and self.dice.random() < 0.1:
            changes = changes[: self.dice.randint(0, len(changes))]
            cluster.memory = ReplicationMemory()
        for one in changes:
            assert one.resource not in gone
            apply(cluster.configs, [one])
        self.throttled += bool(decision.in_force)
        return decision

    def _judge(
        self, given: ReplicationInput, decision: ReplicationDecision, memory: ReplicationMemory
    ) -> None:
        """What must hold in every pass, whatever happened before."""
        for change in decision.changes:
            if change.operation in (Operation.SET, Operation.APPEND):
                recorded = decision.record.get(change.resource, {}).get(change.key, frozenset())
                assert items_of(change.key, change.value) <= recorded, change
        terms = self.cluster.terms
        if any(one.mode is ReplicationMode.FIXED for one in terms.values()):
            return
        mine = [one for one in decision.moves if terms[one.kind].mode is ReplicationMode.FOLLOW]
        for side, here in by_side(mine).items():
            one, nic = decision.rates.sides[side], given.nics.get(side, NicRoom())
            kinds = {move.kind for move in here}
            both = [*here, *by_side(memory.over).get(side, ())]
            moved = moved_by(nic, both)
            rooms = [room_for(nic, moved, terms[kind], given.cut_to_percent) for kind in kinds]
            if one.rate is not None and not one.held and None not in rooms:
                assert one.rate >= one.floor
                most = max(room or 0.0 for room in rooms) + one.floor + (one.in_sync or 0.0)
                assert one.rate <= most + 1, side
        for (broker, direction), beside in decision.beside.items():
            assert beside.gives >= 0, (broker, direction)
            assert Level.L0 not in beside.leaves
            assert Level.L1 not in beside.leaves

    def _seconds(self) -> None:
        before = dict(self.cluster.partitions)
        for _ in range(SECONDS):
            self.cluster._second()
        for name in before.keys() - self.cluster.partitions.keys():
            del self.cluster.sizes[name]

    # --- what happens ---

    def move_begins(self) -> None:
        self._number += 1
        name = (self.dice.choice(TOPICS), self._number)
        leader, old, new = self.dice.sample(BROKERS, 3)
        kept = frozenset({leader, old})
        recovers = self.dice.random() < 0.3
        self.cluster.partitions[name] = PartitionState(
            *name,
            leader,
            (leader, old, new),
            kept,
            adding=frozenset() if recovers else frozenset({new}),
            removing=frozenset() if recovers else frozenset({old}),
        )
        self.cluster.sizes[name] = self.dice.uniform(50, 3000) * MB
        self.cluster.filled[ReplicaKey(*name, new)] = 0.0
        self.cluster.inflow[name] = self.dice.choice((0.0, 0.5 * MB))

    def move_is_cancelled(self) -> None:
        if self.cluster.partitions:
            name = self.dice.choice(sorted(self.cluster.partitions))
            del self.cluster.partitions[name], self.cluster.sizes[name]

    def broker_dies(self) -> None:
        if len(self.down) < 2:
            self.down.add(self.dice.choice(BROKERS))
            self._elect()

    def broker_comes_back(self) -> None:
        if self.down:
            self.down.discard(self.dice.choice(sorted(self.down)))
            self._elect()

    def _elect(self) -> None:
        self.cluster.brokers = frozenset(BROKERS) - self.down
        for name, one in list(self.cluster.partitions.items()):
            able = sorted(one.in_sync & self.cluster.brokers)
            if one.leader not in able:
                self._led_by(name, able[0] if able else None)

    def _led_by(self, name: tuple[str, int], leader: int | None) -> None:
        self.cluster.partitions[name] = replace(self.cluster.partitions[name], leader=leader)

    def leader_changes(self) -> None:
        for name, one in list(self.cluster.partitions.items()):
            able = sorted(one.in_sync & self.cluster.brokers)
            if able and self.dice.random() < 0.5:
                self._led_by(name, self.dice.choice(able))

    def load_changes(self) -> None:
        for broker in BROKERS:
            for side in (egress_of(broker), ingress_of(broker)):
                self.cluster.others[side] = self.dice.choice((0, 30, 60, 90, 130)) * MB
                self.cluster.throttled[side] = frozenset(
                    self.dice.sample([Level.L3, Level.L2, Level.L1], self.dice.randint(0, 2))
                )

    def nic_is_unknown(self) -> None:
        side = self.dice.choice((egress_of, ingress_of))(self.dice.choice(BROKERS))
        self.cluster.blind ^= {side}

    def terms_are_edited(self) -> None:
        self.cluster.terms = {kind: self.dice.choice(TERMS) for kind in MoveKind}
        self.cluster.limit = self.dice.choice((50, 100, 200)) * MB

    def others_set_a_rate(self) -> None:
        """Over ours too, as the tools do."""
        resource, key = broker_resource(self.dice.choice(BROKERS)), self.dice.choice(RATES)
        if int(resource.name) not in self.down:
            value = str(self.dice.randint(10**8, 10**9) * 10 + 7)  # none of ours ends so
            self._by_others(resource, key, Operation.SET, value)
            self.theirs[resource, key] = frozenset({value})

    def others_take_a_rate_away(self) -> None:
        resource, key = broker_resource(self.dice.choice(BROKERS)), self.dice.choice(RATES)
        if int(resource.name) not in self.down:
            self._by_others(resource, key, Operation.DELETE)
            self.theirs.pop((resource, key), None)

    def others_list_a_replica(self) -> None:
        resource, key = topic_resource(self.dice.choice(TOPICS)), self.dice.choice(LISTS)
        item = f"900:{self.dice.randint(1, 9)}"
        there = self.cluster.configs.get(resource, {}).get(key)
        self._by_others(resource, key, Operation.APPEND if there else Operation.SET, item)
        self.theirs[resource, key] = self.theirs.get((resource, key), frozenset()) | {item}

    def others_take_a_list_away(self) -> None:
        resource, key = topic_resource(self.dice.choice(TOPICS)), self.dice.choice(LISTS)
        self._by_others(resource, key, Operation.DELETE)
        self.theirs.pop((resource, key), None)

    def _by_others(
        self, resource: Resource, key: str, operation: Operation, value: str = ""
    ) -> None:
        apply(self.cluster.configs, [ConfigChange(resource, key, operation, value)])


HAPPENINGS = (
    Faults.move_begins,
    Faults.move_begins,
    Faults.move_is_cancelled,
    Faults.broker_dies,
    Faults.broker_comes_back,
    Faults.leader_changes,
    Faults.load_changes,
    Faults.nic_is_unknown,
    Faults.terms_are_edited,
    Faults.others_set_a_rate,
    Faults.others_take_a_rate_away,
    Faults.others_list_a_replica,
    Faults.others_take_a_list_away,
)


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_nothing_of_ours_is_left_whatever_happened_while_replicas_were_filled(first: int) -> None:
    throttled = 0
    for seed in range(first, first + AT_ONCE):
        dice = Random(seed)
        cluster = Cluster(
            frozenset(BROKERS),
            {},
            {},
            terms={MoveKind.REASSIGNMENT: FOLLOW, MoveKind.RECOVERY: TERMS[3]},
        )
        played = Faults(dice, cluster)
        played.move_begins()
        try:
            played.play()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        throttled += played.throttled
    assert throttled > AT_ONCE * PASSES / 5, "hardly anything was ever throttled"
