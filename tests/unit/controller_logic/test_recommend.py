"""Recommended contracts: what usage asks for in each form of a contract, what bounds it, and what
says nothing.
"""

from dataclasses import replace

import pytest

from tests.unit.controller_logic.worlds import (
    START_SECONDS,
    member,
    per_broker,
    per_partition,
    policy,
    tier,
    topology,
    total,
)
from tidegate_logic.contracts.recommend import (
    AdviceBasis,
    PreviousAdvice,
    Recommendations,
    advise,
    rounded_up,
)
from tidegate_logic.decide import decide
from tidegate_logic.decision import Memory
from tidegate_logic.model import (
    Advice,
    AdviceTerms,
    BrokerLimit,
    BrokerLimits,
    Contract,
    DirectionUsage,
    Entity,
    Level,
    Observation,
    Override,
    QuotaKey,
    RateForm,
    Tier,
    Usage,
)
from tidegate_logic.reasons import Reason

ALICE, BOB = Entity("alice"), Entity("bob")
FETCH, PRODUCE = QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.PRODUCER_BYTE_RATE
EVEN = topology({"orders": {1: 4, 2: 4, 3: 4}})
MB = 1_000_000


def moved(
    rate: float,
    *,
    busiest: float | None = None,
    brokers: int = 3,
    coverage: float = 1.0,
    throttled: float = 0.0,
) -> DirectionUsage:
    """Usage of `rate` bytes/s in total, evenly over brokers where nothing else is said."""
    return DirectionUsage(
        rate, rate / brokers if busiest is None else busiest, brokers, coverage, throttled
    )


def advised(
    *tiers: Tier,
    limits: BrokerLimits | None = None,
    terms: AdviceTerms | None = None,
    before: PreviousAdvice | None = None,
    leaders: bool = True,
    **of_users: DirectionUsage,
) -> Recommendations:
    usage = Usage(
        7, START_SECONDS, {(Entity(user), FETCH): figures for user, figures in of_users.items()}
    )
    basis = AdviceBasis(
        usage, tiers, terms or AdviceTerms(), limits or BrokerLimits(), EVEN if leaders else None
    )
    past = Recommendations(
        kept={} if before is None else {(ALICE, FETCH): before},
        basis=replace(basis, usage=Usage(7, 0.0)),
    )
    return advise(basis, past)


def only(result: Recommendations) -> Advice:
    ((said,),) = result.advice.values()
    return said


def orders(
    contract: Contract, *, level: Level = Level.L1, throttled: tuple[Contract, ...] = ()
) -> Tier:
    return Tier("streaming/orders", level, (member(ALICE, contract, "orders"),), throttled)


@pytest.mark.parametrize(
    ("contract", "figures", "expected"),
    [
        pytest.param(total(fetch=60 * MB), moved(30 * MB), 39 * MB, id="total"),
        pytest.param(
            total(fetch=80 * MB),
            moved(30 * MB, busiest=15 * MB),
            58_500_000,
            id="total is divided evenly",
        ),
        pytest.param(per_broker(fetch=90 * MB), moved(30 * MB), 13 * MB, id="per broker"),
        pytest.param(per_partition(fetch=20 * MB), moved(30 * MB), 3_250_000, id="per partition"),
        pytest.param(
            per_partition(fetch=20 * MB),
            moved(30 * MB, busiest=20 * MB),
            6_500_000,
            id="a partition that is busier than others",
        ),
    ],
)
def test_a_recommendation_is_p99_and_headroom_in_the_contracts_form(
    contract: Contract, figures: DirectionUsage, expected: int
) -> None:
    said = only(advised(orders(contract), alice=figures))
    assert (said.recommended, said.reason, said.applied) == (expected, Reason.RECOMMENDED, None)


def test_what_the_busiest_broker_moves_because_it_leads_more_is_not_counted_twice() -> None:
    uneven = topology({"orders": {1: 8, 2: 2, 3: 2}})
    usage = Usage(7, START_SECONDS, {(ALICE, FETCH): moved(12 * MB, busiest=8 * MB)})
    said = only(advise(AdviceBasis(usage, (orders(per_partition(fetch=5 * MB)),), topology=uneven)))
    assert said.recommended == 1_300_000


@pytest.mark.parametrize(
    ("figures", "reason"),
    [
        (moved(30 * MB, coverage=0.79), Reason.USAGE_INCOMPLETE),
        (moved(30 * MB, throttled=0.51), Reason.USAGE_THROTTLED),
        (moved(0.0), Reason.UNUSED),
    ],
)
def test_usage_that_says_nothing_recommends_nothing_and_says_why(
    figures: DirectionUsage, reason: Reason
) -> None:
    result = advised(
        orders(total(fetch=60 * MB)), terms=AdviceTerms(max_change_percent=50), alice=figures
    )
    assert (only(result).recommended, only(result).applied, only(result).reason) == (
        None,
        None,
        reason,
    )
    assert result.tiers == (orders(total(fetch=60 * MB)),)


def test_a_member_that_no_table_names_gets_no_recommendation() -> None:
    assert only(advised(orders(total(fetch=60 * MB)))).reason is Reason.USAGE_UNKNOWN


@pytest.mark.parametrize(
    ("contract", "expected"),
    [(36 * MB, None), (35 * MB, 39 * MB), (43 * MB, None), (44 * MB, 39 * MB)],
)
def test_a_difference_of_less_than_a_tenth_is_not_recommended(
    contract: int, expected: int | None
) -> None:
    said = only(advised(orders(total(fetch=contract)), alice=moved(30 * MB)))
    assert said.recommended == expected
    assert (said.reason is Reason.CONTRACT_FITS) == (expected is None)


@pytest.mark.parametrize(
    ("rate", "expected"),
    [(31 * MB, 39 * MB), (27.5 * MB, 39 * MB), (34 * MB, 44_200_000), (20 * MB, 26 * MB)],
)
def test_a_recommendation_moves_only_by_a_tenth(rate: float, expected: int) -> None:
    said = only(
        advised(
            orders(total(fetch=80 * MB)),
            before=PreviousAdvice(RateForm.TOTAL, 39 * MB, 39 * MB),
            alice=moved(rate),
        )
    )
    assert said.recommended == expected


def test_no_contract_is_recommended_below_the_tiers_throttled_rate() -> None:
    said = only(
        advised(
            orders(
                total(fetch=60 * MB), throttled=(total(fetch=50 * MB), per_broker(fetch=55 * MB))
            ),
            alice=moved(1 * MB),
        )
    )
    assert said.recommended == 50 * MB


def test_a_raise_ends_at_the_smallest_brokers_limit() -> None:
    limits = BrokerLimits(BrokerLimit(egress=200 * MB), {2: BrokerLimit(egress=50 * MB)})
    said = only(advised(orders(per_broker(fetch=20 * MB)), limits=limits, alice=moved(300 * MB)))
    assert said.recommended == 50 * MB


def test_raises_of_a_tier_share_what_its_part_of_the_limits_leaves() -> None:
    limits = BrokerLimits(
        BrokerLimit(egress=100 * MB)
    )  # 300 MB/s, of which each tier has promised a half and so may have 150 MB/s
    gold = tier(
        member(ALICE, total(fetch=50 * MB)), member(BOB, total(fetch=50 * MB)), key="streaming/gold"
    )
    silver = tier(member(Entity("carol"), total(fetch=100 * MB)), key="streaming/silver")
    result = advised(
        gold, silver, limits=limits, alice=moved(100 * MB), bob=moved(60 * MB), carol=moved(10 * MB)
    )
    said = {name: one.recommended for (_, name), (one,) in result.advice.items()}
    assert said == {
        "member-alice": 50 * MB + 80 * MB * 50 // 108,
        "member-bob": 50 * MB + 28 * MB * 50 // 108,
        "member-carol": 13 * MB,
    }


def test_a_tier_whose_share_is_spent_is_reported_so() -> None:
    limits = BrokerLimits(BrokerLimit(egress=100 * MB))
    both = tier(member(ALICE, total(fetch=150 * MB)), member(BOB, total(fetch=150 * MB)))
    result = advised(both, limits=limits, alice=moved(200 * MB), bob=moved(110 * MB))
    said = {name: one.reason for (_, name), (one,) in result.advice.items()}
    assert said == {"member-alice": Reason.SHARE_SPENT, "member-bob": Reason.CONTRACT_FITS}


def test_a_direction_without_a_limit_bounds_nothing() -> None:
    said = only(
        advised(
            orders(total(fetch=60 * MB)),
            limits=BrokerLimits(BrokerLimit(ingress=1 * MB)),
            alice=moved(300 * MB),
        )
    )
    assert said.recommended == 390 * MB


def test_unknown_leaders_recommend_nothing_per_partition_but_keep_what_was_recommended() -> None:
    partitioned = orders(per_partition(fetch=20 * MB))
    assert (
        only(advised(partitioned, leaders=False, alice=moved(30 * MB))).reason
        is Reason.TOPOLOGY_INCOMPLETE
    )
    past = PreviousAdvice(RateForm.PER_PARTITION, 3_250_000, 3_250_000)
    kept = advised(partitioned, leaders=False, before=past, alice=moved(30 * MB))
    assert (only(kept).recommended, kept.kept) == (3_250_000, {(ALICE, FETCH): past})


def test_of_members_that_overlap_only_the_first_is_advised() -> None:
    result = advised(
        orders(total(fetch=60 * MB)),
        tier(member(ALICE, total(fetch=1 * MB)), key="streaming/late"),
        alice=moved(30 * MB),
    )
    assert list(result.advice) == [("streaming/orders", "member-alice")]


@pytest.mark.parametrize(("percent", "applied"), [(20, 48 * MB), (50, 39 * MB)])
def test_what_is_applied_is_within_the_policys_bound_of_the_declared_contract(
    percent: int, applied: int
) -> None:
    result = advised(
        orders(total(fetch=60 * MB, produce=7 * MB)),
        terms=AdviceTerms(30, percent),
        alice=moved(30 * MB),
    )
    assert result.tiers is not None
    contract = result.tiers[0].members[0].contract
    assert contract == total(fetch=applied, produce=7 * MB)


def test_an_override_wins_over_an_applied_recommendation() -> None:
    seen = observation(
        override=Override(
            "streaming/more", START_SECONDS + 60, "a test", entity=ALICE, rates=total(fetch=70 * MB)
        )
    )
    decision, _ = decide(seen, Memory())
    assert decision.members[0].member.contract == total(fetch=70 * MB)
    assert decision.advice["streaming/orders", "member-alice"][0].applied == 48 * MB


def test_a_decision_stands_on_the_applied_contract_and_remembers_what_was_recommended() -> None:
    decision, memory = decide(observation(), Memory())
    assert decision.members[0].contract_total == {FETCH: 48 * MB}
    assert memory.advised is not None
    assert memory.advised.kept == {(ALICE, FETCH): PreviousAdvice(RateForm.TOTAL, 39 * MB, 39 * MB)}


def test_a_broker_that_dies_moves_no_recommendation_and_one_that_was_never_made_waits_for_room() -> (
    None
):
    limits = BrokerLimits(BrokerLimit(egress=100 * MB))
    usage = Usage(7, START_SECONDS, {(ALICE, FETCH): moved(200 * MB), (BOB, FETCH): moved(10 * MB)})
    both = (tier(member(ALICE, total(fetch=150 * MB)), member(BOB, total(fetch=50 * MB))),)
    three = AdviceBasis(usage, both, limits=limits, topology=EVEN)
    two = replace(three, topology=topology({"orders": {1: 6, 2: 6}}, brokers=(1, 2)))
    before = advise(three)
    fresher = replace(two, usage=replace(usage, until_seconds=START_SECONDS + 3600))
    assert advise(two, before) is before
    assert advise(fresher, before).advice == before.advice
    assert advise(two).advice != before.advice


def test_other_limits_or_terms_end_what_was_recommended_before() -> None:
    basis = AdviceBasis(
        Usage(7, 0.0, {(ALICE, FETCH): moved(30 * MB)}),
        (orders(total(fetch=60 * MB)),),
        topology=EVEN,
    )
    before = advise(basis)
    less = advise(replace(basis, terms=AdviceTerms(headroom_percent=25)), before)
    assert (only(before).recommended, only(less).recommended) == (39 * MB, 37_500_000)


def test_a_contract_in_another_form_takes_nothing_over_from_the_one_before() -> None:
    before = PreviousAdvice(RateForm.PER_BROKER, 3_200_000, 3_200_000)
    assert (
        only(
            advised(orders(per_partition(fetch=20 * MB)), before=before, alice=moved(30 * MB))
        ).recommended
        == 3_250_000
    )


def test_advice_that_lacked_leaders_is_made_again_when_they_are_known() -> None:
    basis = AdviceBasis(
        Usage(7, 0.0, {(ALICE, FETCH): moved(30 * MB)}), (orders(per_partition(fetch=20 * MB)),)
    )
    without = advise(basis)
    assert advise(basis, without) is without
    assert only(advise(replace(basis, topology=EVEN), without)).recommended == 3_250_000


def test_a_policy_on_its_way_out_takes_no_advice() -> None:
    seen = observation()
    decision, _ = decide(replace(seen, policy=replace(seen.policy, deleting=True)), Memory())
    assert decision.advice == {}


def observation(*, override: Override | None = None) -> Observation:
    declared = policy(advice=AdviceTerms(30, 20))
    usage = Usage(7, START_SECONDS, {(ALICE, FETCH): moved(30 * MB)})
    overrides = () if override is None else (override,)
    return Observation(
        START_SECONDS,
        declared,
        (orders(total(fetch=60 * MB)),),
        EVEN,
        {},
        overrides=overrides,
        usage=usage,
    )


@pytest.mark.parametrize(
    ("rate", "expected"),
    [(0, 0), (1, 1), (999, 999), (1234.5, 1240), (1_240_000, 1_240_000), (9_999_999, 10**7)],
)
def test_rates_are_rounded_up_to_three_digits(rate: float, expected: int) -> None:
    assert rounded_up(rate) == expected


def test_a_form_is_never_changed() -> None:
    result = advised(
        orders(per_broker(fetch=90 * MB)), terms=AdviceTerms(30, 100), alice=moved(30 * MB)
    )
    assert result.tiers is not None
    assert result.tiers[0].members[0].contract == Contract(RateForm.PER_BROKER, 13 * MB)
