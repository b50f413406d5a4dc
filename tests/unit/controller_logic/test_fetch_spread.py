"""Who serves a consumer's reads, by the rule of Kafka's RackAwareReplicaSelector, and what follows
for a quota: bounds that hold for any replicas, racks and selectors.
"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.controller_logic.worlds import (
    ALICE,
    FETCH,
    MB,
    PRODUCE,
    member,
    per_partition,
    policy,
    total,
)
from tidegate_logic.contracts.fetch_spread import FetchBasis, FetchSpread, Reads
from tidegate_logic.contracts.leader_scaling import (
    ADAPTIVE_SHARES,
    Leaders,
    expected_scale,
    read_scale,
)
from tidegate_logic.contracts.targets import QuotaScalings, by_reads, promise_of, promised_by
from tidegate_logic.model import (
    Contract,
    InSync,
    Member,
    RateForm,
    ReplicaSelection,
    ScalingMethod,
    TopicLeaders,
    Topology,
)

RACKS = {1: "a", 2: "b", 3: "c"}
EVEN: dict[InSync, int] = {(1, 2, 3): 1, (2, 1, 3): 1, (3, 1, 2): 1}
EVERYWHERE = ReplicaSelection(by_rack=frozenset(RACKS), racks=RACKS)


def cluster(
    groups: dict[InSync, int], selection: ReplicaSelection | None, leaderless: int = 0
) -> Topology:
    led: dict[int, int] = {}
    for (leader, *_), partitions in groups.items():
        led[leader] = led.get(leader, 0) + partitions
    topic = TopicLeaders(led, leaderless, tuple(groups.items()))
    brokers = {1, 2, 3} | {one for group in groups for one in group}
    return Topology(0.0, frozenset(brokers), {"acc": topic}, selection=selection)


def spread(
    groups: dict[InSync, int], *racks: str, selection: ReplicaSelection = EVERYWHERE
) -> FetchSpread | None:
    reads = Reads.of_topology(Leaders(cluster(groups, selection)))
    return None if reads is None else reads.of(replace(member(ALICE, None, "acc"), racks=racks))


def serves(groups: dict[InSync, int], *racks: str, **given: ReplicaSelection) -> dict[int, float]:
    """Partitions by the broker that is expected to serve them."""
    found = spread(groups, *racks, **given)
    assert found is not None
    return {one: count / found.expected.parts for one, count in found.expected.led.items()}


# --- Kafka's rule


def test_consumers_of_one_rack_read_from_its_replicas() -> None:
    assert serves(EVEN, "b") == {2: 3}


@pytest.mark.parametrize(
    ("groups", "brokers"),
    [
        ({(1,): 2, (3, 1): 1}, {1: 2, 3: 1}),  # no replica in rack b: the leader
        ({(2, 4): 1}, {2: 1}),  # the leader is preferred to a follower of its rack
        ({(1, 2, 4): 2}, {2: 1, 4: 1}),  # either follower may be the most caught up
    ],
)
def test_otherwise_the_leader_serves_and_followers_of_one_rack_share(
    groups: dict[InSync, int], brokers: dict[int, float]
) -> None:
    racks = {**RACKS, 4: "b"}
    selection = ReplicaSelection(by_rack=frozenset(racks), racks=racks)
    assert serves(groups, "b", selection=selection) == brokers


def test_a_leader_without_a_selector_serves_its_own_partitions() -> None:
    some = replace(EVERYWHERE, by_rack=frozenset({1, 2}))
    assert serves(EVEN, "b", selection=some) == {2: 2, 3: 1}


def test_several_racks_divide_every_partition() -> None:
    assert serves(EVEN, "a", "b", "c") == {1: 1, 2: 1, 3: 1}
    assert serves(EVEN, "a", "b") == {1: 1.5, 2: 1.5}


def test_a_rack_that_died_is_read_from_the_leaders_of_the_others() -> None:
    assert serves({(2, 3): 2, (3, 2): 1}, "a") == {2: 2, 3: 1}


def test_without_declared_racks_leaders_are_expected_and_any_rack_is_in_reach() -> None:
    found = spread(EVEN)
    assert found is not None
    assert found.basis is FetchBasis.LEADERS
    assert found.reach is not None
    assert found.expected.led == {1: 1, 2: 1, 3: 1}
    assert found.reach.led == {1: 3, 2: 3, 3: 3}


def test_a_follower_without_a_rack_or_in_the_leaders_rack_is_never_chosen() -> None:
    selection = replace(EVERYWHERE, racks={1: "a", 2: "a"})
    assert spread({(1, 2, 3): 4}, selection=selection) is None


def test_a_selector_of_an_unknown_rule_may_choose_any_replica_whatever_is_declared() -> None:
    other = ReplicaSelection(otherwise=frozenset(RACKS), racks=RACKS)
    found = spread(EVEN, "a", selection=other)
    assert found is not None
    assert found.reach is not None
    assert found.expected.led == {1: 1, 2: 1, 3: 1}
    assert found.reach.led == {1: 3, 2: 3, 3: 3}


def test_a_leader_whose_selector_is_not_known_makes_it_uncertain() -> None:
    known = ReplicaSelection(frozenset({1, 2}), unknown=frozenset({3}), racks=RACKS)
    found = spread(EVEN, "a", selection=known)
    assert found is not None
    assert not found.certain


@pytest.mark.parametrize("selection", [None, ReplicaSelection(), ReplicaSelection(racks=RACKS)])
def test_without_a_selector_there_is_no_spread_of_reads(
    selection: ReplicaSelection | None,
) -> None:
    assert Reads.of_topology(Leaders(cluster(EVEN, selection))) is None


# --- quotas


def quotas(contract: Contract, *racks: str, method: ScalingMethod = ScalingMethod.MAX) -> list[int]:
    """Fetch and produce."""
    leaders = Leaders(cluster(EVEN, EVERYWHERE))
    scalings = QuotaScalings(leaders, method, reads=Reads.of_topology(leaders))
    one = replace(member(ALICE, contract, "acc"), racks=racks)
    values = promise_of(contract, scalings.under(one)).values
    return [values[FETCH] // MB, values[PRODUCE] // MB]


@pytest.mark.parametrize(
    ("contract", "racks", "expected"),
    [
        (per_partition(2 * MB, 2 * MB), (), [2, 2]),
        (per_partition(2 * MB, 2 * MB), ("a",), [6, 2]),
        (per_partition(2 * MB, 2 * MB), ("a", "b", "c"), [2, 2]),
        (total(6 * MB, 6 * MB), ("a",), [6, 2]),
        (total(6 * MB, 6 * MB), ("a", "b"), [3, 2]),
        (Contract(RateForm.PER_BROKER, 5 * MB, 5 * MB), ("a",), [5, 5]),
    ],
)
@pytest.mark.parametrize("method", ScalingMethod)
def test_fetch_follows_reads_and_produce_follows_leaders(
    contract: Contract, racks: tuple[str, ...], expected: list[int], method: ScalingMethod
) -> None:
    assert quotas(contract, *racks, method=method) == expected


def test_the_ledgers_basis_names_the_reads_and_the_same_promise() -> None:
    leaders = Leaders(cluster(EVEN, EVERYWHERE))
    contract = replace(per_partition(MB), override_only_keys=frozenset({FETCH}))
    bases = []
    for racks in ((), ("a",)):
        scalings = QuotaScalings(leaders, ScalingMethod.MAX, reads=Reads.of_topology(leaders))
        one = replace(member(ALICE, contract, "acc"), racks=racks)
        bases.append(promise_of(contract, scalings.under(one)).targets[FETCH].basis)
    by_leaders, by_racks = bases
    assert (by_reads(by_leaders), by_reads(by_racks)) == (False, True)
    assert promised_by(by_leaders) == promised_by(by_racks) == by_leaders


# --- whatever the replicas, racks and selectors are

BROKERS = st.integers(1, 6)
GROUPS = st.dictionaries(
    st.lists(BROKERS, min_size=1, max_size=4, unique=True).map(
        lambda one: (one[0], *sorted(one[1:]))
    ),
    st.integers(1, 20),
    min_size=1,
    max_size=8,
)
PLACES = st.sampled_from("abc")


@st.composite
def selections(draw: st.DrawFn) -> ReplicaSelection:
    kinds = draw(st.dictionaries(BROKERS, st.sampled_from(("by", "other", "unknown")), max_size=6))

    def of(kind: str) -> frozenset[int]:
        return frozenset(one for one, has in kinds.items() if has == kind)

    racks = draw(st.dictionaries(BROKERS, PLACES, max_size=6))
    return ReplicaSelection(of("by"), of("other"), of("unknown"), racks)


SITES = st.lists(PLACES, max_size=3, unique=True).map(tuple)


@given(GROUPS, selections(), SITES)
def test_what_is_expected_adds_up_to_the_partitions_and_stays_in_reach(
    groups: dict[InSync, int], selection: ReplicaSelection, racks: tuple[str, ...]
) -> None:
    found = spread(groups, *racks, selection=selection)
    if found is None:
        return
    on = found.expected
    assert sum(on.led.values()) == sum(groups.values()) * on.parts
    widest = found.widest
    for broker, count in on.led.items():
        assert count <= widest.led[broker] * on.parts / widest.parts
    for broker in widest.led:
        assert any(broker in group for group in groups)


@given(GROUPS, selections(), SITES, st.integers(0, ADAPTIVE_SHARES), st.integers(1024, 10**9))
def test_a_measured_quota_is_between_an_equal_share_and_one_broker_serving_its_reach(
    groups: dict[InSync, int],
    selection: ReplicaSelection,
    racks: tuple[str, ...],
    share: int,
    promised: int,
) -> None:
    found = spread(groups, *racks, selection=selection)
    if found is None or found.reach is None:
        return
    reach, partitions = found.reach, sum(groups.values())
    for form, whole in (
        (RateForm.PER_PARTITION, promised * partitions),
        (RateForm.TOTAL, promised),
    ):
        value = read_scale(form, reach, share).of(promised)
        assert value >= min(whole, whole // reach.brokers)
        assert value <= max(1024, -(-whole * reach.largest // partitions))
        if share < ADAPTIVE_SHARES:
            assert value <= read_scale(form, reach, share + 1).of(promised)


@given(GROUPS, selections(), SITES, st.sampled_from(ScalingMethod))
def test_no_broker_is_expected_to_serve_more_than_max_lets_through(
    groups: dict[InSync, int],
    selection: ReplicaSelection,
    racks: tuple[str, ...],
    method: ScalingMethod,
) -> None:
    found = spread(groups, *racks, selection=selection)
    if found is None:
        return
    on = found.expected
    scale = expected_scale(RateForm.PER_PARTITION, on, method)
    most = expected_scale(RateForm.PER_PARTITION, on, ScalingMethod.MAX)
    assert scale is not None
    assert most is not None
    assert scale.of(MB) <= most.of(MB)
    assert most.of(MB) * on.parts >= max(on.led.values()) * MB


@given(GROUPS, SITES, st.sampled_from(ScalingMethod), st.sampled_from(RateForm))
def test_without_a_selector_scaling_is_what_leaders_say(
    groups: dict[InSync, int], racks: tuple[str, ...], method: ScalingMethod, form: RateForm
) -> None:
    contract = Contract(form, 2 * MB, 3 * MB)

    def scaled(selection: ReplicaSelection | None, one: Member) -> dict[object, tuple[int, str]]:
        leaders = Leaders(cluster(groups, selection))
        scalings = QuotaScalings(
            leaders, policy(scaling=method).scaling, reads=Reads.of_topology(leaders)
        )
        targets = promise_of(contract, scalings.under(one)).targets
        return {key: (target.value, target.basis) for key, target in targets.items()}

    plain = member(ALICE, contract, "acc")
    assert scaled(ReplicaSelection(), replace(plain, racks=racks)) == scaled(None, plain)
