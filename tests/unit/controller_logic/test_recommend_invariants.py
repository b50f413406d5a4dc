"""What holds of recommended contracts whatever people declared and whatever was measured."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.controller_logic.worlds import topology
from tidegate_logic.contracts.recommend import (
    WORTH_PERCENT,
    AdviceBasis,
    Recommendations,
    advise,
)
from tidegate_logic.model import (
    MIN_BYTE_RATE,
    AdviceTerms,
    BrokerLimit,
    BrokerLimits,
    Contract,
    DirectionUsage,
    Entity,
    Level,
    Member,
    QuotaKey,
    RateForm,
    Tier,
    Usage,
)

FETCH = QuotaKey.CONSUMER_BYTE_RATE
RATES = st.integers(MIN_BYTE_RATE, 10**10)
SHARES = st.floats(0, 1)
Scenario = tuple[AdviceBasis, tuple[Tier, ...], Recommendations]
TOPOLOGY = topology({"orders": {1: 3, 2: 2, 3: 1}})


@st.composite
def usages(draw: st.DrawFn) -> DirectionUsage:
    brokers, busiest = draw(st.integers(1, 3)), draw(st.floats(0, 1e10))
    return DirectionUsage(
        draw(st.floats(busiest, busiest * brokers)), busiest, brokers, draw(SHARES), draw(SHARES)
    )


@st.composite
def tiers(draw: st.DrawFn) -> tuple[Tier, ...]:
    made = []
    for number in range(draw(st.integers(1, 3))):
        form = draw(st.sampled_from(RateForm))
        rates = draw(st.lists(RATES, min_size=1, max_size=3))
        members = [
            Member(f"m{i}", Entity(f"u{number}-{i}"), ("orders",), Contract(form, rate))
            for i, rate in enumerate(rates)
        ]
        throttled = Contract(form, draw(st.integers(MIN_BYTE_RATE, min(rates))))
        made.append(Tier(f"streaming/t{number}", Level.L2, tuple(members), (throttled,)))
    return tuple(made)


@st.composite
def bases(draw: st.DrawFn, declared: tuple[Tier, ...]) -> AdviceBasis:
    entities = [member.entity for tier in declared for member in tier.members]
    named = draw(st.lists(st.sampled_from(entities), unique=True))
    usage = Usage(7, 0.0, {(entity, FETCH): draw(usages()) for entity in named})
    terms = AdviceTerms(draw(st.integers(0, 100)), draw(st.none() | st.integers(1, 100)))
    limits = BrokerLimits(BrokerLimit(egress=draw(st.none() | RATES)))
    return AdviceBasis(usage, declared, terms, limits, TOPOLOGY)


@st.composite
def scenes(draw: st.DrawFn, *, has_past: bool) -> Scenario:
    declared = draw(tiers())
    basis = draw(bases(declared))
    if not has_past:
        return basis, declared, advise(basis)
    past = advise(draw(bases(declared)))
    return basis, declared, advise(basis, past)


@settings(max_examples=settings().max_examples * 3 // 2, deadline=None)
@given(scenes(has_past=True))
def test_recommendations_keep_floor_bound_and_distance_and_are_the_same_each_time(
    scene: Scenario,
) -> None:
    basis, declared, result = scene
    assert advise(basis, result) is result
    floors = {tier.key: tier.throttled[0].fetch_bytes_per_second or 0 for tier in declared}
    percent = basis.terms.max_change_percent
    for (tier_key, _), (said,) in result.advice.items():
        assert said.recommended is None or said.recommended >= floors[tier_key]
        assert (
            said.recommended is None
            or abs(said.recommended - said.declared) * 100 >= WORTH_PERCENT * said.declared
        )
        assert (said.applied is None) == (said.recommended is None or percent is None)
        if said.applied is not None and percent is not None:
            assert abs(said.applied - said.declared) * 100 <= percent * said.declared
            assert said.applied >= floors[tier_key]


@settings(max_examples=settings().max_examples * 3 // 2, deadline=None)
@given(scenes(has_past=False))
def test_raises_never_take_a_tier_beyond_its_share_of_the_limits(scene: Scenario) -> None:
    basis, declared, result = scene
    limit = basis.limits.everywhere.egress
    if limit is None:
        return
    times = {RateForm.TOTAL: 1, RateForm.PER_BROKER: 3, RateForm.PER_PARTITION: 6}
    promised = {
        t.key: sum(
            times[m.contract.form] * (m.contract.fetch_bytes_per_second or 0)
            for m in t.members
            if m.contract
        )
        for t in declared
    }
    for tier in declared:
        said = [result.advice[tier.key, member.name][0] for member in tier.members]
        form = times[tier.throttled[0].form]
        total = sum(
            form * (one.declared if one.recommended is None else one.recommended) for one in said
        )
        share = 3 * limit * promised[tier.key] / sum(promised.values())
        raised = any(one.recommended is not None and one.recommended > one.declared for one in said)
        assert (
            not raised
            or total <= max(share, 0) * (1 + 1e-9) + 1
            or total <= promised[tier.key] * (1 + WORTH_PERCENT / 100)
        )


@settings(max_examples=settings().max_examples, deadline=None)
@given(scenes(has_past=True))
def test_what_is_not_applied_leaves_tiers_as_they_were_declared(scene: Scenario) -> None:
    _, declared, result = scene
    assert result.tiers is not None
    for before, after in zip(declared, result.tiers, strict=True):
        for was, is_now in zip(before.members, after.members, strict=True):
            applied = result.advice[before.key, was.name][0].applied
            rate = None if is_now.contract is None else is_now.contract.fetch_bytes_per_second
            assert rate == (
                applied
                if applied is not None
                else was.contract and was.contract.fetch_bytes_per_second
            )
