"""BandwidthBudgets: how a total is divided, what that means for quotas, and what changes nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.controller_logic.worlds import (
    ALICE,
    BOB,
    FETCH,
    MB,
    PRODUCE,
    START_SECONDS,
    apply_in_memory,
    member,
    per_broker,
    per_partition,
    policy,
    stored,
    tier,
    topology,
)
from tidegate_logic.contracts.budgets import (
    HEADROOM,
    HYSTERESIS,
    BudgetMemory,
    Claim,
    demand_of,
    divide,
    rooms,
    settled,
)
from tidegate_logic.decide import decide, settle
from tidegate_logic.decision import Decision, Memory
from tidegate_logic.model import (
    Budget,
    ClientRate,
    Direction,
    Entity,
    Level,
    Observation,
    Policy,
    Readings,
    StoredQuota,
    Tier,
)
from tidegate_logic.reasons import Reason

OUT = Direction.EGRESS
CAROL = Entity("carol")
TOTALS = {"team": 120.0}


def claim(demand: float, **changes: object) -> Claim:
    usual = Claim(("team",), Level.L2, 1.0, 6.0, demand)
    return replace(usual, **changes)  # type: ignore[arg-type]


# --- the division ---------------------------------------------------------------------------------


def test_one_that_wants_all_gets_all_that_the_others_do_not_want() -> None:
    # 8 and 8 are left over by nobody: what is free goes to who is held back
    assert divide([claim(inf), claim(20), claim(8)], TOTALS) == [92, 20, 8]


def test_what_nobody_wants_is_there_for_everybody() -> None:
    assert divide([claim(10), claim(0), claim(0)], TOTALS) == pytest.approx(
        [10 + 98 / 3, 6 + 98 / 3, 6 + 98 / 3]
    )


def test_a_minimum_that_is_not_wanted_is_lent_and_stays_permitted() -> None:
    assert divide([claim(inf), claim(0), claim(2)], TOTALS) == [118, 6, 6]
    assert divide([claim(inf), claim(6), claim(inf)], TOTALS) == [57, 6, 57]


def test_minimums_that_do_not_fit_are_lent_as_far_as_they_fit() -> None:
    claims = [claim(inf), claim(0), claim(0)]
    assert divide(claims, {"team": 9.0}) == [9, 3, 3]


def test_a_budget_that_is_short_is_short_for_the_least_important() -> None:
    claims = [claim(inf, level=Level.L3), claim(90, level=Level.L1), claim(50)]
    assert divide(claims, TOTALS) == [6, 90, 24]


def test_nobody_has_more_than_its_contract() -> None:
    assert divide([claim(inf, most=50), claim(inf)], TOTALS) == [50, 70]


def test_what_is_fixed_counts_first_and_the_others_share_the_rest() -> None:
    claims = [claim(100, level=Level.L0, fixed=True), claim(inf), claim(inf)]
    assert divide(claims, TOTALS) == pytest.approx([100, 5, 5])  # a tenth more is left to it
    claims[0] = claim(130, level=Level.L0, fixed=True)
    assert divide(claims, TOTALS) == [130, 0, 0]


def test_what_clients_need_to_work_is_not_taken_by_what_is_fixed() -> None:
    fixed, wants = claim(130, level=Level.L0, fixed=True), claim(inf, floor=3)
    assert divide([fixed, wants, wants], TOTALS) == [130, 3, 3]
    assert divide([fixed, wants, claim(0, floor=3)], TOTALS) == [130, 6, 3]  # lent
    parent = {"team": 120.0, "all": 120.0}
    below = [replace(one, path=("team", "all")) for one in (fixed, wants, wants)]
    assert divide(below, parent) == [130, 3, 3]


def test_a_contract_is_not_exceeded_by_a_rounding_either() -> None:
    claims = [
        Claim(("a",), Level.L0, 0.1, 0.0, inf, inf, False),
        Claim(("a",), Level.L0, 0.1, 12.78125, inf, 9.995091607408595, False),
        Claim(("b", "a"), Level.L0, 0.1, 19.974407843641675, inf, 3.0, False),
    ]
    assert divide(claims, {"a": 12.0, "b": 2.0})[1] <= 9.995091607408595


def test_what_a_parent_has_bounds_its_children_by_their_weights() -> None:
    totals = {"retail": 90.0, "search": 80.0, "shop": 80.0}
    search = claim(inf, path=("search", "retail"), weight=2.0, least=0)
    shop = claim(inf, path=("shop", "retail"), weight=1.0, least=0)
    assert divide([search, shop], totals) == pytest.approx([60, 30])
    assert divide([replace(search, demand=10), shop], totals) == pytest.approx([10, 80])


claims = st.builds(
    Claim,
    st.sampled_from([("a",), ("b", "a"), ("c", "b", "a"), ("d", "a")]),
    st.sampled_from(list(Level)),
    st.sampled_from([0.1, 0.5, 1.0, 7.0]),
    st.floats(0, 20),
    st.floats(0, 500) | st.just(inf),
    st.floats(0, 300) | st.just(inf),
    st.just(False),
)
totals = st.fixed_dictionaries(dict.fromkeys("abcd", st.floats(1, 1000)))


@given(st.lists(claims, max_size=8), totals)
def test_no_total_is_exceeded_no_contract_is_and_nothing_that_is_wanted_stays_unused(
    given_claims: list[Claim], given_totals: dict[str, float]
) -> None:
    shares = divide(given_claims, given_totals)
    of_budget = {
        name: [(c, s) for c, s in zip(given_claims, shares, strict=True) if name in c.path]
        for name in given_totals
    }
    used = {name: sum(s for _, s in inside) for name, inside in of_budget.items()}
    for name, total in given_totals.items():
        assert sum(c.taken(s, c.demand) for c, s in of_budget[name]) <= total * (1 + 1e-9)
        assert used[name] <= 2 * total * (1 + 1e-9)
    for one, share in zip(given_claims, shares, strict=True):
        assert 0 <= share <= one.most
        is_full = any(used[name] >= given_totals[name] * (1 - 1e-9) for name in one.path)
        assert is_full or share >= one.most * (1 - 1e-9)


@given(st.lists(claims, min_size=1, max_size=8), totals)
def test_nobody_is_below_its_minimum_where_the_minimums_fit(
    given_claims: list[Claim], given_totals: dict[str, float]
) -> None:
    for name, total in given_totals.items():
        least = sum(one.least for one in given_claims if name in one.path)
        if least > total:
            return
    for one, share in zip(given_claims, divide(given_claims, given_totals), strict=True):
        assert share >= min(one.least, one.most) * (1 - 1e-9)


@given(st.lists(st.tuples(claims, st.integers(0, 300)), min_size=1, max_size=8), totals)
def test_limits_that_stay_take_no_room_that_is_not_there(
    known: list[tuple[Claim, int]], given_totals: dict[str, float]
) -> None:
    given_claims, before = [one for one, _ in known], [was for _, was in known]
    now = [int(min(s, 10**6)) for s in divide(given_claims, given_totals)]
    limits = settled(given_claims, rooms(given_claims, given_totals), before=before, now=now)
    for name, total in given_totals.items():
        inside = [
            c.taken(limit, c.demand / HEADROOM)
            for c, limit in zip(given_claims, limits, strict=True)
            if name in c.path
        ]
        assert sum(inside) <= total * (1 + 1e-9)
    for was, new, limit in zip(before, now, limits, strict=True):
        assert min(was, new) <= limit <= max(was, new)


def test_a_change_of_less_than_a_tenth_is_not_written() -> None:
    given_claims = [claim(inf), claim(inf)]
    assert settled(given_claims, TOTALS, before=[60, 60], now=[65, 55]) == [60, 60]
    # nobody needs what the other has too much
    assert settled(given_claims, TOTALS, before=[60, 60], now=[65, 20]) == [60, 60]
    assert settled(given_claims, TOTALS, before=[60, 60], now=[80, 40]) == [80, 40]
    assert HYSTERESIS == 0.1


def test_a_lent_minimum_changes_others_when_more_is_used_than_there_is() -> None:
    given_claims = [claim(inf), claim(0), claim(1)]
    # 119 and 1: the tenth that the third may want besides is no reason to write
    assert settled(given_claims, TOTALS, before=[119, 6, 6], now=[118, 6, 6]) == [119, 6, 6]
    given_claims = [claim(inf), claim(5), claim(5)]
    assert settled(given_claims, TOTALS, before=[119, 6, 6], now=[110, 6, 6]) == [110, 6, 6]


def test_what_is_kept_takes_room_from_raises_and_a_smaller_total_changes_all() -> None:
    given_claims = [claim(inf)] * 3
    assert settled(given_claims, TOTALS, before=[40, 40, 30], now=[38, 38, 44]) == [40, 40, 40]
    assert settled(given_claims, {"team": 100.0}, before=[40, 40, 30], now=[38, 38, 24]) == [
        38,
        38,
        24,
    ]


def test_what_is_kept_leaves_nobody_below_its_minimum() -> None:
    before, now = [43, 43, 20], [40, 40, 40]
    for least, limits in ((30, [43, 43, 34]), (36, now)):
        given_claims = [replace(claim(inf), least=least) for _ in now]
        assert settled(given_claims, TOTALS, before=before, now=now) == limits


# --- demand ---------------------------------------------------------------------------------------


def rate(mb: float, throttle_milliseconds: float | None = 0.0) -> ClientRate:
    return ClientRate(START_SECONDS, mb * MB, throttle_milliseconds)


def test_demand_has_no_bound_while_the_quota_holds_a_member_back() -> None:
    assert demand_of([rate(9.6)], 10 * MB, 10.0 * MB) == inf
    assert demand_of([rate(9.0)], 10 * MB, 9.0 * MB) == pytest.approx(9.9 * MB)
    assert demand_of([rate(6, 400)], 10 * MB, 6.0 * MB) == inf
    # Kafka's throttle time is a mean: it outlasts the throttling
    assert demand_of([rate(1, 400)], 10 * MB, 1.0 * MB) == pytest.approx(1.1 * MB)


def test_without_throttle_times_a_member_may_be_held_back_sooner() -> None:
    assert demand_of([rate(8.1, None)], 10 * MB, 8.1 * MB) == inf
    assert demand_of([rate(7, None)], 10 * MB, 7.0 * MB) == pytest.approx(9.1 * MB)


def test_who_sends_nothing_wants_nothing() -> None:
    assert demand_of([], 10 * MB, 0.0) == 0.0


# --- passes ---------------------------------------------------------------------------------------

MEASURED = policy(measured=True)
BUDGET = Budget(
    "streaming/team", {FETCH: 120 * MB}, tiers=frozenset({"streaming/t"}), minimum_percent=5
)
LED = topology({"clicks": {1: 2, 2: 2, 3: 2}})
MEMBERS = tier(
    member(ALICE, None, "clicks"),
    member(BOB, per_partition(10 * MB, 1 * MB), "clicks"),
    key="streaming/t",
    level=Level.L2,
)


@dataclass
class World:
    """A store that obeys, and members that send what a test says, evenly over three brokers."""

    policy: Policy = MEASURED
    tiers: tuple[Tier, ...] = (MEMBERS,)
    budgets: tuple[Budget, ...] = (BUDGET,)
    memory: Memory = field(default_factory=Memory)
    now: float = START_SECONDS
    quotas: dict[Entity, StoredQuota] = field(default_factory=dict)
    decision: Decision = field(default_factory=Decision)

    def run(self, sent_mb: Mapping[Entity, float] | None = None) -> Decision:
        """One pass, a minute after the last; None = no readings."""
        self.now += 60
        readings = None
        if sent_mb is not None:
            clients = {
                (who, broker, OUT): ClientRate(self.now - 1, mb * MB / 3, 0.0)
                for who, mb in sent_mb.items()
                for broker in (1, 2, 3)
            }
            readings = Readings(self.now, 15.0, clients=clients)
        for one in self.tiers:
            for each in one.members:
                self.quotas.setdefault(each.entity, stored(each.entity))
        seen = Observation(
            self.now,
            self.policy,
            self.tiers,
            LED,
            dict(self.quotas),
            readings=readings,
            budgets=self.budgets,
        )
        self.decision, memory = decide(seen, self.memory)
        self.quotas = apply_in_memory(self.quotas, self.decision.writes)
        written = [one.entity for one in self.decision.writes]
        self.memory = settle(memory, self.decision, written, now_seconds=self.now)
        return self.decision

    def fetch(self, who: Entity) -> int | None:
        """The quota on each broker."""
        text = self.quotas[who].values.get(FETCH)
        return None if text is None else int(text)

    @property
    def limits(self) -> dict[str, int]:
        """What the budget allows each member, in MB/s."""
        return {
            str(one.member.entity.user): round(one.limits[OUT] / MB)
            for report in self.decision.budgets.values()
            for one in report.members
            if OUT in one.limits
        }


def test_a_division_becomes_quotas_by_leaders_and_contracts_still_bound() -> None:
    world = World()
    world.run({ALICE: 100, BOB: 5})
    # they want a tenth more than they send, and share the 4 MB/s that are left
    assert world.limits == {"alice": 112, "bob": 8}
    assert world.fetch(ALICE) == 37_333_332
    assert world.fetch(BOB) == 2_666_666
    report = world.decision.budgets["streaming/team"]
    assert report.reason is Reason.BUDGET_DIVIDED
    assert round(report.measured[OUT] / MB) == 105


def test_who_uses_all_that_the_budget_allows_is_held_back_and_who_reaches_its_contract_is_not() -> (
    None
):
    world = World()

    def held_back() -> set[Entity]:
        report = world.decision.budgets["streaming/team"]
        return {one.member.entity for one in report.members if OUT in one.held_back}

    world.run({ALICE: 100, BOB: 5})
    assert held_back() == set()
    world.run({ALICE: 111, BOB: 5})
    assert held_back() == {ALICE}
    world.budgets = (replace(BUDGET, totals={FETCH: 1000 * MB}),)
    for _ in range(3):
        world.run({ALICE: 30, BOB: 60})
    assert held_back() == set()  # Bob has all of its contract


def test_a_direction_that_the_budget_does_not_name_is_the_contracts() -> None:
    world = World()
    world.run({ALICE: 100, BOB: 5})
    assert world.quotas[BOB].values[PRODUCE] == str(2 * MB)
    assert PRODUCE not in world.quotas[ALICE].values


def test_steady_load_writes_nothing() -> None:
    world = World()
    world.run({ALICE: 100, BOB: 5})
    for share in (1.0, 1.03, 0.97, 1.0, 1.02):
        assert world.run({ALICE: 100 * share, BOB: 5 * share}).writes == ()


def test_without_readings_everything_stays_also_after_a_restart() -> None:
    world = World()
    world.run({ALICE: 100, BOB: 5})
    before = dict(world.quotas)
    for _ in range(2):
        decision = world.run(None)
        assert decision.writes == ()
        assert decision.budgets["streaming/team"].reason is Reason.BUDGET_UNMEASURED
        assert world.limits == {"alice": 112, "bob": 8}
        world.memory = Memory()
    assert world.quotas == before
    assert world.run({ALICE: 100, BOB: 5}).writes == ()


def test_where_nobody_has_a_quota_each_member_gets_one_of_the_total_so_that_it_is_metered() -> None:
    """Kafka has no rates of clients before there is a quota: the budget would wait for ever."""
    no_contract = tier(
        member(ALICE, None, "clicks"), member(CAROL, None, "clicks"), key="streaming/t"
    )
    world = World(tiers=(replace(no_contract, level=Level.L2),))
    assert world.run(None).writes == ()  # no reading at all is something else
    decision = world.run({})
    assert decision.budgets["streaming/team"].reason is Reason.BUDGET_UNMEASURED
    assert world.limits == {"alice": 120, "carol": 120}
    assert world.fetch(ALICE) == world.fetch(CAROL) == 40_000_000
    assert world.run({}).writes == ()
    world.run({ALICE: 114, CAROL: 1})
    assert world.limits == {"alice": 119, "carol": 6}


def test_with_metering_no_quota_is_needed_to_be_metered() -> None:
    world = World(policy=policy(measured=True, metering_enabled=True))
    world.run({})
    assert world.limits == {}
    assert world.fetch(ALICE) is None


def test_a_contract_below_the_total_is_a_quota_that_meters() -> None:
    world = World()
    world.run({})
    assert world.fetch(ALICE) == 40_000_000
    assert world.fetch(BOB) == 20_000_000


def test_a_broker_that_reports_nothing_holds_the_division() -> None:
    world = World()
    world.run({ALICE: 100, BOB: 5})
    world.now += 60
    clients = {(ALICE, one, OUT): ClientRate(world.now, 1.0, 0.0) for one in (1, 2)}
    seen = Observation(
        *(world.now, MEASURED, (MEMBERS,), LED, world.quotas),
        readings=Readings(world.now, 15.0, clients=clients),
        budgets=(BUDGET,),
    )
    decision, _ = decide(seen, world.memory)
    assert decision.writes == ()
    assert decision.budgets["streaming/team"].message == (
        "no usable reading from broker 3 of what members use"
    )


def test_a_new_division_waits_until_readings_show_the_last_one() -> None:
    world = World()
    world.run({ALICE: 100, BOB: 5})
    world.now -= 55  # 5 s later, the window of 11 s still holds what was before
    world.run({ALICE: 10, BOB: 60})
    assert world.limits == {"alice": 112, "bob": 8}
    world.run({ALICE: 10, BOB: 60})
    assert world.limits["bob"] > 30


def test_without_the_budget_contracts_are_back_and_what_only_it_gave_ends() -> None:
    world = World()
    world.run({ALICE: 100, BOB: 5})
    world.budgets = ()
    world.run({ALICE: 100, BOB: 5})
    assert world.fetch(BOB) == 20_000_000
    assert world.fetch(ALICE) is None
    assert world.memory.budgets == BudgetMemory()


def test_l0_and_overridden_members_are_never_limited_and_count_first() -> None:
    important = tier(member(CAROL, per_broker(40 * MB)), key="streaming/l0", level=Level.L0)
    budget = replace(BUDGET, tiers=BUDGET.tiers | {"streaming/l0"})
    world = World(tiers=(MEMBERS, important), budgets=(budget,))
    world.run({ALICE: 100, BOB: 5, CAROL: 90})
    assert world.fetch(CAROL) == 40_000_000
    assert world.limits == {"alice": 16, "bob": 6}  # half a MB/s of a minimum is lent


def test_a_member_of_l0_that_swings_writes_nothing() -> None:
    important = tier(member(CAROL, per_broker(40 * MB)), key="streaming/l0", level=Level.L0)
    budget = replace(BUDGET, tiers=BUDGET.tiers | {"streaming/l0"})
    world = World(tiers=(MEMBERS, important), budgets=(budget,))
    for _ in range(2):
        world.run({ALICE: 40, BOB: 5, CAROL: 60})
    for carol in (63, 57, 65, 60):
        assert world.run({ALICE: 40, BOB: 5, CAROL: carol}).writes == ()


def test_l0_that_uses_all_leaves_clients_what_they_need_to_work() -> None:
    important = tier(member(CAROL, per_broker(90 * MB)), key="streaming/l0", level=Level.L0)
    small = replace(BUDGET, tiers=BUDGET.tiers | {"streaming/l0"}, minimum_percent=0)
    plain = replace(MEMBERS, members=(member(ALICE, per_broker(40 * MB), "clicks"),))
    world = World(tiers=(plain, important), budgets=(small,))
    for _ in range(9):
        world.run({ALICE: 60, CAROL: 200})
    assert world.fetch(ALICE) == 1_000_000


def test_a_total_below_what_kafka_throttles_on_is_written_all_the_same() -> None:
    plain = replace(MEMBERS, members=(member(ALICE, per_broker(1 * MB), "clicks"),))
    world = World(tiers=(plain,), budgets=(replace(BUDGET, totals={FETCH: 100}),))
    for _ in range(20):
        world.run({ALICE: 1})
    assert world.fetch(ALICE) == 1024


def test_a_parent_bounds_the_members_of_its_children_and_knows_them() -> None:
    parent = Budget("streaming/all", {FETCH: 60 * MB})
    world = World(budgets=(replace(BUDGET, parent="streaming/all"), parent))
    world.run({ALICE: 100, BOB: 5})
    assert sum(world.limits.values()) == 60
    assert world.decision.budgets["streaming/all"].children == ("streaming/team",)
    assert round(world.decision.budgets["streaming/all"].measured[OUT] / MB) == 105


@pytest.mark.parametrize("parent", ["streaming/gone", "streaming/team"])
def test_a_parent_that_does_not_fit_leaves_the_budgets_own_total(parent: str) -> None:
    world = World(budgets=(replace(BUDGET, parent=parent),))
    report = world.run({ALICE: 100, BOB: 5}).budgets["streaming/team"]
    assert report.reason is Reason.BUDGET_PARENT_UNFIT
    assert parent in report.message
    assert sum(world.limits.values()) == 120


def test_a_member_in_two_budgets_counts_for_the_older_one() -> None:
    other = Budget("streaming/later", {FETCH: 10 * MB}, tiers=frozenset({"streaming/t"}))
    world = World(budgets=(BUDGET, other))
    report = world.run({ALICE: 100, BOB: 5}).budgets["streaming/later"]
    assert (report.reason, report.members) == (Reason.OVERLAPPING, ())
    assert report.message.endswith("and 1 more")
    assert sum(world.limits.values()) == 120


def test_members_are_found_by_all_of_the_labels() -> None:
    labelled = replace(MEMBERS.members[0], labels=(("env", "prod"), ("team", "search")))
    names = Budget("b", {FETCH: 1}, labels=frozenset({("team", "search"), ("env", "prod")})).names
    assert names(MEMBERS, labelled)
    assert not names(MEMBERS, MEMBERS.members[1])
    assert not Budget("b", {FETCH: 1}).names(MEMBERS, labelled)


def test_a_division_leaves_half_of_the_write_budget_to_contracts() -> None:
    world = World(policy=policy(measured=True, write_budget_changes=10))
    world.run({ALICE: 100, BOB: 5})
    world.memory = replace(world.memory, charged=((world.now, 6),))
    report = world.run({ALICE: 1, BOB: 60}).budgets["streaming/team"]
    assert report.reason is Reason.BUDGET_WAITS
    assert world.limits == {"alice": 112, "bob": 8}


def test_a_policy_without_metrics_divides_nothing() -> None:
    world = World(policy=policy())
    report = world.run(None).budgets["streaming/team"]
    assert report.reason is Reason.METRICS_NOT_WATCHED
    assert world.fetch(BOB) == 20_000_000


def test_a_policy_that_is_deleted_has_no_budgets() -> None:
    world = World()
    world.run({ALICE: 100, BOB: 5})
    world.policy = replace(world.policy, deleting=True)
    assert world.run({ALICE: 100, BOB: 5}).budgets == {}
    assert world.fetch(ALICE) is None
