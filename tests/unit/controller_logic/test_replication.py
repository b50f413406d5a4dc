"""What replication may use of every NIC, which throttles that takes, and how they go again."""

from dataclasses import replace
from itertools import pairwise
from math import inf
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.controller_logic.replicating import FIXED, FOLLOW, MB, OFF, Cluster, apply
from tidegate_logic.model import Level
from tidegate_logic.replication.moves import (
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
    room_for,
)
from tidegate_logic.replication.replication_pass import (
    ReplicationInput,
    ReplicationMemory,
    decide_replication,
)
from tidegate_logic.replication.throttles import (
    FOLLOWER_LIST,
    FOLLOWER_RATE,
    LEADER_LIST,
    LEADER_RATE,
    Items,
    Operation,
    Resource,
    ResourceKind,
    broker_resource,
    items_of,
    plan_configs,
    topic_resource,
)

SEARCH = settings(deadline=None, max_examples=settings().max_examples * 3 // 5)
PLAYED = settings(
    deadline=None, max_examples=settings().max_examples // 5
)  # each plays four minutes
REASSIGNMENT = MoveKind.REASSIGNMENT


# --- the experiments of the throttle's authors: both sides of a NIC count apart ---


@pytest.mark.parametrize(
    ("flows", "seconds"),
    [(((1, 2), (1, 3)), 1365), (((1, 3), (2, 3)), 1365), (((1, 2), (2, 3)), 683)],
    ids=["both from one leader", "both to one follower", "independent"],
)
def test_the_estimate_of_a_fixed_rate_is_what_it_takes(
    flows: tuple[tuple[int, int], ...], seconds: int
) -> None:
    """200 MiB a replica at 300 KiB/s: 683 s, and twice that where a side is shared."""
    rate = 300 * 1024
    cluster = Cluster.moving(
        flows,
        size=200.0 * 1024 * 1024,
        terms=Terms(ReplicationMode.FIXED, minimum=1024, maximum=rate),
    )
    estimate = cluster.decide().estimates[REASSIGNMENT]
    assert estimate.seconds == pytest.approx(seconds, rel=0.01)
    half_way = cluster.play(seconds // 2).estimates[REASSIGNMENT]
    assert half_way.seconds == pytest.approx(seconds / 2, rel=0.05)
    cluster.play(seconds)
    assert not cluster.partitions
    assert not cluster.left()
    assert not cluster.record


def test_a_fixed_rate_is_set_once_on_every_broker_that_may_lead_and_taken_away_once() -> None:
    cluster = Cluster.moving([(1, 2)], terms=FIXED)
    name = ("topic-0", 0)
    cluster.partitions[name] = replace(
        cluster.partitions[name], replicas=(1, 3, 2), in_sync=frozenset({1, 3})
    )
    cluster.play(30)
    assert cluster.configs[topic_resource("topic-0")] == {
        LEADER_LIST: "0:1,0:3",
        FOLLOWER_LIST: "0:2",
    }
    assert cluster.configs[broker_resource(1)] == {LEADER_RATE: "2000000"}
    assert cluster.configs[broker_resource(2)] == {FOLLOWER_RATE: "2000000"}
    assert cluster.configs[broker_resource(3)] == {LEADER_RATE: "2000000"}
    cluster.play(400)
    assert not cluster.left()
    assert len(cluster.changes) == 10


# --- rates ---


def test_a_flow_has_what_the_narrower_of_its_sides_leaves() -> None:
    a, b, c = egress_of(1), ingress_of(2), ingress_of(3)
    rates = max_min([(a, b), (a, c)], {a: 100.0, b: 10.0, c: 500.0})
    assert rates == {(a, b): 10.0, (a, c): 90.0}


sides = st.integers(1, 6)


@SEARCH
@given(
    st.lists(st.tuples(sides, sides), max_size=20),
    st.dictionaries(st.tuples(st.booleans(), sides), st.floats(0, 1e9)),
)
def test_fair_rates_fill_a_side_of_each_flow_and_none_could_have_more(
    pairs: list[tuple[int, int]], given_caps: dict[tuple[bool, int], float]
) -> None:
    flows = {(egress_of(source), ingress_of(destination)) for source, destination in pairs}
    caps = {
        (egress_of(broker) if is_egress else ingress_of(broker)): cap
        for (is_egress, broker), cap in given_caps.items()
    }
    rates = max_min(flows, caps)
    assert rates.keys() == flows
    for side, cap in caps.items():
        assert sum(rate for flow, rate in rates.items() if side in flow) <= cap * (1 + 1e-9) + 1e-3
    for flow, rate in rates.items():
        if rate == inf:
            assert all(caps.get(side, inf) == inf for side in flow)
            continue
        full = [
            side
            for side in flow
            if sum(one for other, one in rates.items() if side in other)
            >= caps.get(side, inf) * (1 - 1e-9) - 1e-3
        ]
        assert any(
            rate >= max(one for other, one in rates.items() if side in other) * (1 - 1e-9) - 1e-3
            for side in full
        )


@pytest.mark.parametrize(
    ("priority", "throttled", "room"),
    [
        (Priority.BELOW_L3, (), 32 * MB),
        (Priority.BELOW_L3, (Level.L3,), 0),
        (Priority.L3, (Level.L3,), 32 * MB),
        (Priority.L3, (Level.L2,), 0),
        (Priority.L2, (Level.L3, Level.L2), 42 * MB),
        (Priority.L1, (Level.L3, Level.L2, Level.L1), 47 * MB),
    ],
)
def test_replication_gives_way_in_the_order_of_priority(
    priority: Priority, throttled: tuple[Level, ...], room: int
) -> None:
    nic = NicRoom(
        100 * MB,
        60.0 * MB,
        1000.0,
        24.0,
        frozenset(throttled),
        {Level.L3: 10.0 * MB, Level.L2: 5.0 * MB, Level.L1: 20.0 * MB},
    )
    assert room_for(nic, 0.0, Terms(ReplicationMode.FOLLOW, priority), 97) == room


def test_follow_takes_what_the_clients_leave_and_gives_it_back() -> None:
    cluster = Cluster.moving([(1, 2)], size=20_000.0 * MB)
    cluster.others = {egress_of(1): 60.0 * MB, ingress_of(2): 20.0 * MB}
    cluster.play(120)
    assert cluster.rate_of(egress_of(1)) == pytest.approx(32 * MB, rel=0.1)
    # the side that has room lets more by, so that a follower does not wait for its rate, too
    assert cluster.rate_of(ingress_of(2)) == pytest.approx(1.5 * 32 * MB, rel=0.1)
    cluster.others[ingress_of(2)] = 50.0 * MB
    cluster.play(60)
    assert cluster.rate_of(ingress_of(2)) == pytest.approx(42 * MB, rel=0.1)
    cluster.others[egress_of(1)] = 90.0 * MB
    cluster.play(60)
    assert cluster.rate_of(egress_of(1)) == pytest.approx(2 * MB, rel=0.1)
    cluster.others[egress_of(1)] = 120.0 * MB
    cluster.play(60)
    assert cluster.rate_of(egress_of(1)) == MB  # the floor
    cluster.others = {ingress_of(2): 20.0 * MB}
    decision = cluster.play(120)
    assert cluster.rate_of(ingress_of(2)) == pytest.approx(72 * MB, rel=0.1)
    assert cluster.rate_of(egress_of(1)) == pytest.approx(92 * MB, rel=0.1)
    assert decision.estimates[REASSIGNMENT].seconds is not None


@pytest.mark.parametrize("how", ["done", "cancelled"])
def test_a_move_that_is_over_leaves_its_room_to_the_others(how: str) -> None:
    """What it brought is in the NIC's mean for a while, and is no client's. Nothing that it did not
    bring is.
    """
    cluster = Cluster.moving([(1, 2), (1, 3)], size=20_000.0 * MB)
    cluster.others = {egress_of(1): 60.0 * MB}
    if how == "done":
        cluster.sizes["topic-0", 0] = 32 / 2 * MB * 120
    cluster.play(115)
    if how == "cancelled":
        del cluster.partitions["topic-0", 0], cluster.filled[ReplicaKey("topic-0", 0, 2)]
    rates = []
    for _ in range(60):
        cluster.play(1)
        rates.append((cluster.rate_of(egress_of(1)) or 0) / MB)
    assert len(cluster.partitions) == 1
    assert min(rates) == pytest.approx(32, rel=0.1)
    assert max(rates) == pytest.approx(32, rel=0.1)


rates = st.integers(0, 130).map(lambda number: float(number * MB))


@PLAYED
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(1, 4), rates, rates), max_size=4),
    st.integers(1, 20),
    st.sampled_from([None, 5 * MB, 50 * MB]),
)
def test_no_rate_is_above_the_room_nor_below_the_floor_and_steady_load_ends_all_writes(
    pairs: list[tuple[int, int]],
    load: list[tuple[int, float, float]],
    floor: int,
    maximum: int | None,
) -> None:
    flows = [(source, target) for source, target in pairs if source != target]
    minimum = floor * MB if maximum is None else min(floor * MB, maximum)
    cluster = Cluster.moving(
        flows,
        size=1e12,
        terms=Terms(ReplicationMode.FOLLOW, minimum=minimum, maximum=maximum),
    )
    for broker, out, into in load:
        cluster.others[egress_of(broker)], cluster.others[ingress_of(broker)] = out, into
    cluster.play(150)
    decision = cluster.decide()
    for side, one in decision.rates.sides.items():
        rate = cluster.rate_of(side)
        room = max(0.0, 92.0 * MB - cluster.others.get(side, 0.0))
        assert rate is not None
        assert one.floor == minimum
        assert rate >= minimum
        assert rate <= max(minimum, 1.11 * room + MB)
        assert maximum is None or rate <= maximum
    settled = len(cluster.changes)
    cluster.play(120)
    assert len(cluster.changes) == settled
    at = [(seconds, change.resource) for seconds, change in cluster.changes]
    for resource in {resource for _, resource in at}:
        moments = sorted({seconds for seconds, one in at if one == resource})
        assert all(b - a >= 15 for a, b in pairwise(moments))


def test_what_is_not_known_changes_nothing() -> None:
    cluster = Cluster.moving([(1, 2)], size=20_000.0 * MB)
    cluster.others = {egress_of(1): 60.0 * MB}
    cluster.play(120)
    before, done = {one: dict(two) for one, two in cluster.configs.items()}, len(cluster.changes)
    cluster.blind = {egress_of(1), ingress_of(2)}
    cluster.others[egress_of(1)] = 10.0 * MB
    cluster.play(60)
    assert cluster.configs == before
    decision, _ = decide_replication(
        ReplicationInput(2000.0, cluster.terms, record=cluster.record), cluster.memory
    )
    assert not decision.changes
    assert decision.record == cluster.record
    assert "did not answer" in decision.held
    assert len(cluster.changes) == done


def test_a_move_whose_nics_were_never_known_is_not_throttled() -> None:
    cluster = Cluster.moving([(1, 2)], size=20_000.0 * MB)
    cluster.blind = {egress_of(1), ingress_of(2)}
    cluster.play(60)
    assert not cluster.left()
    assert not cluster.record


def test_recovery_comes_before_reassignments_on_the_same_side() -> None:
    cluster = Cluster.moving([(1, 2)], size=20_000.0 * MB)
    cluster.partitions["behind", 0] = PartitionState("behind", 0, 1, (1, 3), frozenset({1}))
    cluster.sizes["behind", 0] = 20_000.0 * MB
    cluster.filled[ReplicaKey("behind", 0, 3)] = 0.0
    cluster.terms = {
        MoveKind.REASSIGNMENT: FOLLOW,
        MoveKind.RECOVERY: Terms(ReplicationMode.FOLLOW, Priority.L1, minimum=50 * MB),
    }
    decision = cluster.play(60)
    assert decision.rates.sides[ingress_of(3)].flows == pytest.approx(92 * MB, rel=0.05)
    assert cluster.rate_of(ingress_of(2)) == MB  # what is left is the floor
    assert cluster.configs[topic_resource("behind")] == {LEADER_LIST: "0:1", FOLLOWER_LIST: "0:3"}


@pytest.mark.parametrize(("priority", "rate_mb"), [(Priority.BELOW_L3, 30), (Priority.L1, 32)])
def test_over_the_limit_a_small_lowering_waits_only_for_levels_below_its_priority(
    priority: Priority, rate_mb: int
) -> None:
    """Reassignments that give before L3 do not wait for L3."""
    cluster = Cluster.moving([(1, 2)], size=20_000.0 * MB)
    side = egress_of(1)
    cluster.carried[side] = [(1000.0, 60.0 * MB)]
    cluster.decide()
    assert cluster.rate_of(side) == 32 * MB
    cluster.now_seconds = 1024.0
    cluster.filled[ReplicaKey("topic-0", 0, 2)] = 24 * 36.0 * MB
    cluster.carried[side] = [(1001.0 + second, 98.0 * MB) for second in range(24)]
    given = cluster.input()
    # for L1 what L3 sends is room as well: the same 30 MB/s without it
    others = 62.0 * MB if priority is Priority.BELOW_L3 else 63.0 * MB
    nic = replace(given.nics[side], reducible={Level.L3: 1.0 * MB})
    nic = replace(nic, bytes_per_second=others + 36.0 * MB)
    cluster.terms = {
        MoveKind.REASSIGNMENT: replace(FOLLOW, priority=priority),
        MoveKind.RECOVERY: OFF,
    }
    given = replace(given, terms=cluster.terms, nics={**given.nics, side: nic})
    decision, _ = decide_replication(given, cluster.memory)
    assert decision.rates.sides[side].rate == 30 * MB
    assert decision.in_force[side] == rate_mb * MB


def test_while_both_kinds_pass_no_side_lets_more_by_than_its_flows() -> None:
    """Its rate is what keeps one kind from taking what the other should have."""
    cluster = Cluster.moving([(1, 2)], size=20_000.0 * MB)
    cluster.others = {egress_of(1): 60.0 * MB}
    cluster.play(60)
    assert cluster.rate_of(ingress_of(2)) == pytest.approx(48 * MB, rel=0.1)
    cluster.partitions["behind", 0] = PartitionState("behind", 0, 1, (1, 3), frozenset({1}))
    cluster.sizes["behind", 0] = 20_000.0 * MB
    cluster.filled[ReplicaKey("behind", 0, 3)] = 0.0
    cluster.terms = dict.fromkeys(MoveKind, FOLLOW)
    decision = cluster.play(60)
    for broker in (2, 3):
        flows = decision.rates.sides[ingress_of(broker)].flows
        assert decision.rates.sides[ingress_of(broker)].rate == int(flows)


def test_a_move_that_receives_more_than_its_rate_is_told_with_both_numbers() -> None:
    cluster = Cluster.moving(
        [(1, 2)],
        size=1000.0 * MB,
        terms=Terms(ReplicationMode.FOLLOW, minimum=MB, maximum=5 * MB),
    )
    cluster.inflow["topic-0", 0] = 8.0 * MB
    estimate = cluster.play(60).estimates[REASSIGNMENT]
    assert estimate.seconds is None
    assert [stall.side for stall in estimate.stalls] == [egress_of(1), ingress_of(2)]
    assert estimate.stalls[0].rate == 5 * MB
    assert estimate.stalls[0].inflow == pytest.approx(8 * MB)
    cluster.inflow["topic-0", 0] = 1.0 * MB
    estimate = cluster.play(90).estimates[REASSIGNMENT]
    assert not estimate.stalls
    assert estimate.seconds is not None


# --- ours and somebody else's ---


def test_what_another_tool_set_stays_and_is_told() -> None:
    cluster = Cluster.moving([(1, 2)], size=100.0 * MB, terms=FIXED)
    theirs = {
        broker_resource(1): {LEADER_RATE: "777"},
        topic_resource("topic-0"): {LEADER_LIST: "0:1,7:7", FOLLOWER_LIST: "*"},
    }
    cluster.configs = {one: dict(values) for one, values in theirs.items()}
    decision = cluster.play(20)
    assert {str(one) for one in decision.others} == {
        f"broker 1 {LEADER_RATE}=777",
        f"topic topic-0 {LEADER_LIST}=0:1,7:7",
        f"topic topic-0 {FOLLOWER_LIST}=*",
    }
    assert cluster.configs[broker_resource(2)] == {FOLLOWER_RATE: "2000000"}
    cluster.partitions = {}
    cluster.decide()
    assert cluster.left() == theirs


def test_ours_that_a_tool_removes_come_back_twice_and_then_no_more() -> None:
    cluster = Cluster.moving([(1, 2)], size=1e12, terms=FIXED)
    cluster.play(20)
    for times in range(5):
        assert cluster.configs[broker_resource(1)] == (
            {LEADER_RATE: "2000000"} if times < 3 else {}
        )
        cluster.configs[broker_resource(1)] = {}
        decision = cluster.play(20)
    assert decision.left_alone == (broker_resource(1),)


values = st.sampled_from(["1", "2", "3"])
lists = st.sets(st.sampled_from(["0:1", "0:2", "1:1", "1:2"]), min_size=1)
resources = st.sampled_from([broker_resource(1), broker_resource(2), topic_resource("a")])


@st.composite
def wanted_configs(draw: st.DrawFn) -> Items:
    found: dict[Resource, dict[str, frozenset[str]]] = {}
    for resource in draw(st.sets(resources)):
        keys = (
            (LEADER_RATE, FOLLOWER_RATE)
            if resource.kind.value == "broker"
            else (LEADER_LIST, FOLLOWER_LIST)
        )
        found[resource] = {
            key: frozenset({draw(values)} if key in (LEADER_RATE, FOLLOWER_RATE) else draw(lists))
            for key in keys
            if draw(st.booleans())
        }
    return found


@SEARCH
@given(wanted_configs(), st.lists(wanted_configs(), max_size=6), st.integers(0, 2**32))
def test_whoever_is_killed_anywhere_leaves_nothing_of_ours_and_others_values_as_they_were(
    foreign: Items, wishes: list[Items], seed: int
) -> None:
    random = Random(seed)
    theirs = {
        one: {key: ",".join(sorted(items)) for key, items in keys.items()}
        for one, keys in foreign.items()
    }
    configs = {one: dict(values) for one, values in theirs.items()}
    record: Items = {}
    everything = [broker_resource(1), broker_resource(2), topic_resource("a")]
    for wish in [*wishes, {}]:
        present = {one: dict(configs.get(one, {})) for one in everything}
        plan = plan_configs(wish, present, record)
        if random.random() < 0.2:
            continue  # killed before the record was written
        record = plan.record
        apply(configs, plan.changes[: random.randint(0, len(plan.changes))])
    for _ in range(2):
        present = {one: dict(configs.get(one, {})) for one in everything}
        plan = plan_configs({}, present, record)
        record = plan.record
        apply(configs, plan.changes)
    plan = plan_configs({}, {one: configs.get(one, {}) for one in everything}, record)
    assert not plan.changes
    assert not plan.record
    left = {
        one: {key: items_of(key, text) for key, text in values.items() if text}
        for one, values in configs.items()
    }
    assert {one: keys for one, keys in left.items() if keys} == {
        one: keys for one, keys in foreign.items() if keys
    }


def test_a_list_is_never_appended_to_while_it_is_empty() -> None:
    """A broker in ZooKeeper mode makes `,0:1` of it, and cannot read that."""
    topic, ours = topic_resource("a"), {topic_resource("a"): {LEADER_LIST: frozenset({"0:1"})}}
    wanted = {topic: {LEADER_LIST: frozenset({"1:1"})}}
    for present, expected in (
        ({}, [Operation.SET]),
        ({LEADER_LIST: ""}, [Operation.SET]),
        ({LEADER_LIST: "0:1"}, [Operation.APPEND, Operation.SUBTRACT]),
    ):
        plan = plan_configs(wanted, {topic: present}, ours)
        assert [change.operation for change in plan.changes] == expected


def test_the_rate_of_a_broker_that_is_down_waits_until_it_is_back() -> None:
    record = {broker_resource(1): {LEADER_RATE: frozenset({"5"})}}
    plan = plan_configs({}, {}, record)
    assert plan.unknown == (broker_resource(1),)
    assert plan.record == record
    plan = plan_configs({}, {broker_resource(1): {LEADER_RATE: "5"}}, record)
    assert [change.operation for change in plan.changes] == [Operation.DELETE]


def test_leftovers_are_told_and_removed_only_where_asked_and_after_a_while() -> None:
    theirs = {
        broker_resource(1): {LEADER_RATE: "777"},
        topic_resource("a"): {LEADER_LIST: "*", FOLLOWER_LIST: "0:1"},
    }
    cluster = Cluster(frozenset({1, 2}), {}, {})
    for asked, looks, expected in (
        (False, (100.0, 200.0, 300.0), 0),
        (True, (100.0, 200.0, 299.0), 0),
        (True, (100.0, 200.0, 300.0), 2),
        (True, (100.0, 300.0), 0),  # a break: another tool may have begun and set the same
        (True, (100.0, 300.0, 450.0, 600.0), 2),
    ):
        given_first = replace(cluster.input(), scanned=theirs, clean_up_leftovers=asked)
        first, memory = decide_replication(given_first, ReplicationMemory())
        assert not first.changes
        assert len(first.leftovers) == 3
        for waited in looks:
            later = replace(given_first, now_seconds=given_first.now_seconds + waited)
            decision, memory = decide_replication(later, memory)
        assert len(decision.changes) == expected
        assert all(one.value != "*" for one in decision.removed_leftovers)


def test_nothing_is_left_over_while_a_partition_is_reassigned() -> None:
    cluster = Cluster.moving([(1, 2)])
    scanned = {broker_resource(3): {LEADER_RATE: "777"}}
    decision, _ = decide_replication(
        replace(cluster.input(), scanned=scanned, clean_up_leftovers=True), ReplicationMemory()
    )
    assert not decision.leftovers


def test_replication_below_l3_is_reducible_down_to_its_floor() -> None:
    cluster = Cluster.moving([(1, 2)], size=1e12)
    cluster.others = {egress_of(1): 60.0 * MB}
    decision = cluster.play(120)
    assert decision.beside[egress_of(1)].gives == pytest.approx(31 * MB, rel=0.1)
    above = Terms(ReplicationMode.FOLLOW, Priority.L1, minimum=MB)
    cluster.terms = {MoveKind.REASSIGNMENT: above, MoveKind.RECOVERY: OFF}
    assert not any(one.gives for one in cluster.play(10).beside.values())


@pytest.mark.parametrize("priority", [Priority.BELOW_L3, Priority.L1])
def test_200_partitions_on_50_brokers_leave_to_levels_what_they_may_not_take(
    priority: Priority,
) -> None:
    """How long that takes is bounded by `python -m bench replication-decide`."""
    random = Random(7)
    flows = [tuple(random.sample(range(1, 51), 2)) for _ in range(200)]
    terms = replace(FOLLOW, priority=priority)
    cluster = Cluster.moving([(a, b) for a, b in flows], size=1e12, brokers=50, terms=terms)
    for broker in cluster.brokers:
        cluster.others[Side(broker, egress_of(broker).direction)] = random.random() * 90 * MB
    cluster.play(30)
    decision, _ = decide_replication(cluster.input(), cluster.memory)
    has_levels = any(one.leaves for one in decision.beside.values())
    assert has_levels is (priority is Priority.L1)


def test_a_broker_is_written_at_most_once_in_15_seconds_however_the_load_swings() -> None:
    random = Random(11)
    flows = [tuple(random.sample(range(1, 21), 2)) for _ in range(80)]
    cluster = Cluster.moving([(a, b) for a, b in flows], size=1e12, brokers=20)
    cluster.decide()
    for _ in range(24):
        for broker in cluster.brokers:
            for side in (egress_of(broker), ingress_of(broker)):
                cluster.others[side] = random.choice((5, 40, 70, 95)) * MB
        cluster.play(5)
    written: dict[Resource, set[float]] = {}
    for at_seconds, change in cluster.changes:
        if change.resource.kind is ResourceKind.BROKER:
            written.setdefault(change.resource, set()).add(at_seconds)
    assert len(written) == 20
    assert sum(len(times) for times in written.values()) > 60, "nothing followed the load"
    for resource, times in written.items():
        ordered = sorted(times)
        apart = [later - before for before, later in pairwise(ordered)]
        assert min(apart, default=15.0) >= 15.0, (resource, ordered)
    assert len({at for at, change in cluster.changes if change.key == LEADER_LIST}) == 1


@pytest.mark.parametrize("wanted", [30.0 * MB, 60.0 * MB, 85.0 * MB])
def test_clients_that_share_a_full_nic_with_a_move_get_what_they_want_again(wanted: float) -> None:
    """A full NIC gives each a share: what clients do not get must not look like room."""
    cluster = Cluster.moving([(1, 2)], size=1e6 * MB)
    side = egress_of(1)
    cluster.others[side] = wanted / 2  # the rest of the NIC was the move's, which is not throttled
    cluster.line_rate = carries = 96.0 * MB  # of a limit of 100: headers and acknowledgements
    cluster.play(30)
    for _ in range(60):
        rate = cluster.rate_of(side)
        assert rate is not None
        # both in proportion to what they ask for, when that is more than there is
        cluster.others[side] = wanted * min(1.0, carries / (wanted + rate))
        cluster.play(5)
    assert cluster.others[side] >= 0.97 * wanted
    assert cluster.rate_of(side) == pytest.approx(92 * MB - wanted, rel=0.11)
