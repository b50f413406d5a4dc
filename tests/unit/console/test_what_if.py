"""What if: the operator's own decisions on an edited cluster, without a second of waiting."""

import random
from dataclasses import replace

import pytest
import yaml

from tidegate.console.whatif import (
    Edits,
    Situation,
    edited,
    edits_as_yaml,
    play_what_if,
    quantity,
    situation_of,
)
from tidegate.simulation.cluster import Background, Demand
from tidegate.simulation.outcome import outcome_of
from tidegate.simulation.play import Scenario, play
from tidegate_logic.model import (
    BrokerLimit,
    BrokerLimits,
    ClientRate,
    Contract,
    Default,
    Direction,
    Entity,
    Level,
    LimitSchedule,
    Member,
    NicSpan,
    Policy,
    QuotaKey,
    RateForm,
    Readings,
    Tier,
    TopicLeaders,
    Topology,
)
from tidegate_logic.recurrence import Recurrence

MB = 1_000_000
OUT = Direction.EGRESS
LEVELS = (Level.L0, Level.L2, Level.L3)


def member(level: Level) -> Member:
    name = level.value.lower()
    return Member(name, Entity(name), ("orders",), per_partition(10))


def per_partition(rate_mb: float) -> Contract:
    return Contract(RateForm.PER_PARTITION, fetch_bytes_per_second=round(rate_mb * MB))


def situation(wants_mb: float = 20.0, **changes: object) -> Situation:
    """Three brokers that carry 10 MB/s of replication and the same of each level."""
    brokers = (1, 2, 3)
    tiers = tuple(
        Tier(
            f"streaming/{level.value.lower()}",
            level,
            (member(level),),
            () if level is Level.L0 else (per_partition(1),),
        )
        for level in LEVELS
    )
    limits = BrokerLimit(80 * MB, None, 125 * MB, None)
    policy = Policy("streaming/orders", "uid", limits=BrokerLimits(limits), measured=True)
    topology = Topology(0.0, frozenset(brokers), {"orders": TopicLeaders({1: 4, 2: 4, 3: 4})})
    wants = {
        ((Entity(one.value.lower()), OUT), b): wants_mb * MB for one in LEVELS for b in brokers
    }
    other = {(broker, OUT): 10.0 * MB for broker in brokers}
    return replace(Situation(policy, tiers, topology, wants, other), **changes)


@pytest.mark.parametrize(
    "entity",
    [
        Entity(user=Default.DEFAULT),
        Entity(client_id=Default.DEFAULT),
        Entity(Default.DEFAULT, Default.DEFAULT),
    ],
)
def test_a_policy_with_defaults_of_any_kind_is_played(entity: Entity) -> None:
    policy = replace(situation().policy, defaults={entity: {QuotaKey.CONSUMER_BYTE_RATE: 5 * MB}})
    result = play_what_if(situation(policy=policy), Edits({OUT: 40 * MB}))
    assert result.lowered


def test_a_load_within_the_limits_lowers_no_one() -> None:
    result = play_what_if(situation(), Edits())
    assert result.lowered == ()
    assert result.is_enough
    assert {round(one.at_end / MB) for one in result.nics if one.direction is OUT} == {70}


def test_a_lower_limit_makes_l3_give_before_l2_and_never_l0() -> None:
    result = play_what_if(situation(), Edits(limits={OUT: 60 * MB}))
    assert result.is_enough
    assert {one.level for one in result.lowered} == {Level.L3}
    only = result.lowered[0]
    assert only.brokers == (1, 2, 3)
    assert only.contract == 40 * MB
    assert only.at_end is not None
    assert 4 * MB <= only.at_end < 20 * MB
    assert 20 * MB <= result.gives(Level.L3) <= 48 * MB
    assert result.longest_mute_seconds <= 12
    assert all(one.at_end <= 60 * MB for one in result.nics if one.direction is OUT)


@pytest.mark.parametrize("scrape_seconds", [1, 2, 5, 15, 30, 60])
def test_levels_give_until_it_is_enough_however_often_prometheus_scrapes(
    scrape_seconds: int,
) -> None:
    now = situation(scrape_seconds=scrape_seconds)
    result = play_what_if(now, Edits(limits={OUT: 45 * MB}), seconds=1200)
    assert result.is_enough
    assert {one.level for one in result.lowered} == {Level.L3, Level.L2}
    assert not any("rhythm" in one for one in result.findings)


def test_a_combined_limit_counts_both_directions() -> None:
    def now(limit_mb: int) -> Situation:
        limits = BrokerLimits(BrokerLimit(combined=limit_mb * MB, combined_capacity=125 * MB))
        policy = replace(situation().policy, limits=limits)
        into = {(broker, Direction.INGRESS): 30.0 * MB for broker in (1, 2, 3)}
        return situation(policy=policy, other={**situation().other, **into})

    calm = play_what_if(now(110), Edits())
    assert calm.lowered == ()
    assert {(one.direction, round(one.at_end / MB)) for one in calm.nics} == {
        (Direction.COMBINED, 100)
    }
    result = play_what_if(now(110), Edits(limits={Direction.COMBINED: 90 * MB}))
    assert result.is_enough
    assert {one.level for one in result.lowered} == {Level.L3}
    assert all(one.at_end <= 90 * MB for one in result.nics)


def test_a_limit_that_cannot_be_kept_is_said_to_be_too_low() -> None:
    result = play_what_if(situation(), Edits(limits={OUT: 25 * MB}))
    assert not result.is_enough
    assert len(result.over) == 3
    assert Level.L0 not in {one.level for one in result.lowered}
    assert any("13.8 MB/s" in one for one in result.findings)  # 10 + 20 + 8, of 97 % of 25


def test_the_load_of_a_dead_broker_goes_to_those_that_lead_after_it() -> None:
    after = edited(situation(), Edits(dead=frozenset({2})))
    assert after.topology.topics["orders"].leaders == {1: 6, 3: 6}
    assert after.wants[(Entity("l0"), OUT), 1] == 30 * MB
    assert sum(after.wants.values()) == sum(situation().wants.values())
    assert after.other[1, OUT] == 15 * MB
    result = play_what_if(situation(), Edits(dead=frozenset({2})))
    assert {one.level for one in result.lowered} >= {Level.L3}
    assert {one.broker for one in result.nics} == {1, 3}


def test_all_brokers_cannot_be_dead() -> None:
    with pytest.raises(ValueError, match="at least one broker"):
        play_what_if(situation(), Edits(dead=frozenset({1, 2, 3})))


def test_an_edited_contract_alone_bounds_its_member() -> None:
    edits = Edits(contracts={("streaming/l3", "l3"): per_partition(2)})
    result = play_what_if(situation(wants_mb=24), edits)
    # 10 of replication, 24 of L0 and of L2, and 8 of L3 instead of 24: 66 of 80
    assert result.is_enough
    assert result.lowered == ()
    assert {round(one.at_end / MB) for one in result.nics if one.direction is OUT} == {66}


def test_a_tier_of_another_level_gives_in_its_turn() -> None:
    edits = Edits(
        limits={OUT: 60 * MB}, levels={"streaming/l2": Level.L3, "streaming/l3": Level.L1}
    )
    result = play_what_if(situation(), edits)
    assert {one.tier_key for one in result.lowered} == {"streaming/l2"}


def test_more_load_of_one_member_is_more_load_of_no_one_else() -> None:
    after = edited(situation(), Edits(load_percent={("streaming/l3", "l3"): 150.0}))
    assert after.wants[(Entity("l3"), OUT), 1] == 30 * MB
    assert after.wants[(Entity("l2"), OUT), 1] == 20 * MB
    everybody = edited(situation(), Edits(load_percent={None: 200.0}))
    assert set(everybody.wants.values()) == {40.0 * MB}


def test_who_is_held_by_a_quota_now_is_taken_to_want_the_contract() -> None:
    held = frozenset({((Entity("l3"), OUT), 1)})
    wants = {**situation().wants, ((Entity("l3"), OUT), 1): 4.0 * MB}
    result = play_what_if(situation(wants=wants, held=held), Edits())
    broker = next(one for one in result.nics if (one.broker, one.direction) == (1, OUT))
    assert broker.over_seconds > 0  # 10 + 20 + 20 + the whole contract of 40
    assert result.is_enough


def test_a_nic_carries_no_more_than_it_can() -> None:
    result = play_what_if(situation(), Edits(load_percent={None: 400.0}))
    assert max(one.highest for one in result.nics) == 125 * MB


def test_it_agrees_with_the_simulator_that_has_every_second() -> None:
    now = edited(situation(), Edits(limits={OUT: 60 * MB}))
    demands = tuple(Demand(*key, broker, rate) for (key, broker), rate in now.wants.items())
    background = tuple(Background(*place, rate) for place, rate in now.other.items())
    scenario = Scenario(now.policy, now.tiers, now.topology, demands, background, seconds=600)
    exact = outcome_of(play(scenario))
    result = play_what_if(now, Edits())
    assert {one.level for one in exact.members if one.lowered_at is not None} == {Level.L3}
    assert {one.level for one in result.lowered} == {Level.L3}
    lowest = min(one.lowest for one in exact.members if one.lowest is not None)
    assert result.lowered[0].lowest == pytest.approx(lowest, rel=0.35)


def test_the_same_situation_plays_the_same() -> None:
    edits = Edits(limits={OUT: 55 * MB})
    assert play_what_if(situation(), edits) == play_what_if(situation(), edits)


def test_a_reading_gives_members_their_rates_and_others_the_rest() -> None:
    now = situation()
    readings = Readings(
        1000.0,
        15.0,
        {(1, OUT): (NicSpan(1000.0, 15.0, 70.0 * MB),)},
        {
            (Entity("l3"), 1, OUT): ClientRate(1000.0, 20.0 * MB, 0.0),
            (Entity("no one"), 1, OUT): ClientRate(1000.0, 5.0 * MB, 0.0),
            (Entity("l2"), 1, OUT): ClientRate(1000.0, 4.0 * MB, 900.0),
        },
    )
    found = situation_of(now.policy, now.tiers, now.topology, readings)
    assert found.other == {(1, OUT): 46.0 * MB}  # a client in no tier is not a member's
    assert found.held == {((Entity("l2"), OUT), 1)}
    assert any("2 egress, 3 egress" in remark for remark in found.remarks)


def test_edits_become_objects_without_what_the_server_keeps() -> None:
    policy = {
        "apiVersion": "tidegate.io/v1alpha1",
        "kind": "BrokerBandwidthPolicy",
        "metadata": {"name": "orders", "namespace": "streaming", "uid": "1", "managedFields": []},
        "spec": {"brokers": {"egress": {"limit": "80M", "capacity": "125M"}}},
        "status": {"clusterId": "x"},
    }
    tier = {
        "apiVersion": "tidegate.io/v1alpha1",
        "kind": "BusinessTier",
        "metadata": {"name": "l3", "namespace": "streaming"},
        "spec": {
            "level": "L3",
            "members": [
                {"name": "l3", "user": "a: 'b", "contract": {"perPartition": {"fetch": "1M"}}}
            ],
        },
    }
    edits = Edits(
        limits={OUT: 40 * MB},
        dead=frozenset({1}),
        contracts={("streaming/l3", "l3"): per_partition(2.5)},
        levels={"streaming/l3": Level.L2},
    )
    made = list(yaml.safe_load_all(edits_as_yaml(policy, [tier], edits)))
    assert made[0]["metadata"] == {"name": "orders", "namespace": "streaming"}
    assert made[0]["spec"]["brokers"]["egress"] == {"limit": "40M", "capacity": "125M"}
    assert "status" not in made[0]
    assert made[1]["spec"]["level"] == "L2"
    assert made[1]["spec"]["members"][0]["contract"] == {"perPartition": {"fetch": "2500k"}}
    assert made[1]["spec"]["members"][0]["user"] == "a: 'b"
    assert edits_as_yaml(policy, [tier], Edits(dead=frozenset({1}))) == ""


@pytest.mark.parametrize(
    ("rate", "text"), [(40 * MB, "40M"), (2 * 10**9, "2G"), (1500, "1500"), (25_000, "25k")]
)
def test_a_quantity_is_exact(rate: int, text: str) -> None:
    assert quantity(rate) == text


def large(brokers: int, members: int, per_member: int) -> Situation:
    """Members of all levels, each on some brokers; what they want is very uneven."""
    chance = random.Random(1)
    topics, tiers, wants = {}, {level: [] for level in Level}, {}
    for number in range(members):
        at = chance.sample(range(1, brokers + 1), per_member)
        topics[f"topic-{number}"] = TopicLeaders(dict.fromkeys(at, 2))
        entity = Entity(f"user-{number}")
        level = list(Level)[number % 4]
        contract = Contract(RateForm.PER_PARTITION, 2 * MB, 2 * MB)
        tiers[level].append(Member(f"m{number}", entity, (f"topic-{number}",), contract))
        for broker in at:
            wants[(entity, OUT), broker] = chance.paretovariate(1.3) * 0.3 * MB
            wants[(entity, Direction.INGRESS), broker] = chance.paretovariate(1.3) * 0.15 * MB
    limits = BrokerLimit(140 * MB, 140 * MB, 200 * MB, 200 * MB)
    return Situation(
        Policy("ns/p", "uid", limits=BrokerLimits(limits), measured=True),
        tuple(
            Tier(
                f"ns/{level}",
                level,
                tuple(mine),
                () if level is Level.L0 else (Contract(RateForm.PER_PARTITION, MB // 2, MB // 2),),
            )
            for level, mine in tiers.items()
        ),
        Topology(0.0, frozenset(range(1, brokers + 1)), topics),
        wants,
        {(b, way): 20.0 * MB for b in range(1, brokers + 1) for way in Direction.COMBINED.parts},
    )


def test_a_large_cluster_is_played_with_fewer_samples_and_only_who_is_near_a_limit() -> None:
    result = play_what_if(large(20, 400, 6), Edits(limits={OUT: 100 * MB}))
    assert result.step_seconds == 30
    assert result.seconds == 600
    assert Level.L0 not in {one.level for one in result.lowered}
    near = {one.broker for one in result.nics if one.limit and one.highest > 0.9 * one.limit}
    assert {broker for one in result.lowered for broker in one.brokers} <= near


def test_the_limits_in_force_at_the_time_of_the_readings_are_played_and_stay() -> None:
    at_nine = Recurrence(frozenset(range(7)), 9 * 60, 10 * 60)
    schedule = LimitSchedule(at_nine, BrokerLimits(BrokerLimit(egress=40 * MB)))
    policy = Policy(
        "streaming/orders",
        "uid",
        limits=BrokerLimits(BrokerLimit(egress=100 * MB)),
        schedules=(schedule,),
    )
    topology = Topology(0.0, frozenset({1}), {})
    for hour, mb in ((8, 100), (9, 40), (10, 100)):
        found = situation_of(policy, (), topology, Readings(hour * 3600.0, 15.0))
        assert found.policy.limits.everywhere.egress == mb * MB
        assert found.policy.schedules == ()
        changed = edited(found, Edits(limits={OUT: 70 * MB}))
        assert changed.policy.limits.everywhere.egress == 70 * MB


def test_a_limit_to_apply_is_that_of_all_times() -> None:
    night = {"from": "22:00", "to": "06:00", "egress": {"limit": "40M"}}
    policy = {
        "apiVersion": "tidegate.io/v1alpha1",
        "kind": "BrokerBandwidthPolicy",
        "metadata": {"name": "orders", "namespace": "streaming"},
        "spec": {"brokers": {"egress": {"limit": "100M"}, "schedules": [night]}},
    }
    (made,) = yaml.safe_load_all(edits_as_yaml(policy, [], Edits(limits={OUT: 70 * MB})))
    brokers = made["spec"]["brokers"]
    assert (brokers["egress"]["limit"], brokers["schedules"][0]["egress"]["limit"]) == (
        "70M",
        "70M",
    )
