"""Budgets on the modelled cluster: six members share 120 MB/s on two brokers, leaders 2:1."""

from collections.abc import Iterable, Sequence

import pytest

from tidegate.simulation.cluster import Demand
from tidegate.simulation.play import Play, Scenario, play
from tidegate_logic.contracts.budgets import BudgetReport
from tidegate_logic.decision import Decision
from tidegate_logic.model import (
    BrokerLimit,
    BrokerLimits,
    Budget,
    Contract,
    Direction,
    Entity,
    Level,
    Member,
    Observation,
    Policy,
    QuotaKey,
    RateForm,
    ScalingMethod,
    Tier,
    TopicLeaders,
    Topology,
)

MB, START_SECONDS = 1_000_000, 1_000_000.0
OUT = Direction.EGRESS
MINIMUM = 6
USERS = [Entity(f"u{number}") for number in range(6)]
LEADERS = {1: 2, 2: 1}
KEY = "streaming/search"
Wanted = tuple[int, float, int, int | None]  # who, MB/s, from, to
Passes = list[tuple[int, BudgetReport]]


def played(method: ScalingMethod, wanted: Iterable[Wanted], seconds: int) -> tuple[Play, Passes]:
    members = tuple(
        Member(f"m{number}", user, ("clicks",), labels=(("team", "search"),))
        for number, user in enumerate(USERS)
    )
    rates = Contract(RateForm.PER_PARTITION, fetch_bytes_per_second=2 * MB)
    nic = BrokerLimit(1250 * MB, None, 1250 * MB, None)
    passes: Passes = []

    def note(seen: Observation, decision: Decision) -> None:
        if seen.now_seconds < START_SECONDS:  # nobody is metered yet
            return
        passes.append((len(decision.writes), decision.budgets[KEY]))

    scenario = Scenario(
        Policy("s/p", "uid", scaling=method, measured=True, limits=BrokerLimits(nic)),
        (Tier("streaming/t", Level.L2, members, (rates,)),),
        Topology(0.0, frozenset(LEADERS), {"clicks": TopicLeaders(LEADERS)}),
        tuple(
            Demand(USERS[who], OUT, broker, mb * MB * led / 3, begin, end)
            for who, mb, begin, end in wanted
            for broker, led in LEADERS.items()
        ),
        epoch_seconds=START_SECONDS,
        seconds=seconds,
        budgets=(
            Budget(
                KEY,
                {QuotaKey.CONSUMER_BYTE_RATE: 120 * MB},
                labels=frozenset({("team", "search")}),
            ),
        ),
    )
    return play(scenario, note), passes


def moved_mb(one: Play, begin: int, end: int) -> float:
    """What all members move on the mean, in MB/s."""
    seconds = one.seconds[begin:end]
    return sum(second.carried[broker, OUT] for second in seconds for broker in LEADERS) / (
        MB * len(seconds)
    )


def limits_mb(report: BudgetReport) -> Sequence[float]:
    return [one.limits.get(OUT, 0) / MB for one in report.members]


def beyond_minimums(limits: Sequence[float]) -> float:
    """The limits of those who have more than the minimum, which is lent while it is not wanted."""
    return sum(limit for limit in limits if limit > MINIMUM + 0.01)


@pytest.mark.parametrize("method", [ScalingMethod.MEAN, ScalingMethod.MAX])
def test_one_that_wants_all_has_what_the_others_leave_and_then_nothing_is_written(
    method: ScalingMethod,
) -> None:
    wanted: list[Wanted] = [(0, 300, 60, None)]
    wanted += [(who, 5, 0, None) for who in range(1, 6)]
    one, passes = played(method, wanted, 420)
    final = limits_mb(passes[-1][1])
    assert final[0] >= 0.95 * (120 - 5 * 1.5 * 5)
    assert min(final[1:]) >= MINIMUM - 0.01
    assert beyond_minimums(final) <= 120
    late = [writes for writes, _ in passes[len(passes) // 2 :]]
    assert sum(late) == 0
    assert max(mute.seconds for second in one.seconds for mute in second.mutes) <= 22


def test_three_of_six_flat_out_keep_the_total_while_they_change() -> None:
    wanted: list[Wanted] = [
        ((3 * turn + place) % 6, 200, turn * 120, (turn + 1) * 120)
        for turn in range(3)
        for place in range(3)
    ]
    one, passes = played(ScalingMethod.MEAN, wanted, 360)
    for _, report in passes:
        limits = limits_mb(report)
        assert beyond_minimums(limits) <= 120
        assert min(limits, default=0) >= MINIMUM - 0.01 or not any(limits)
    for turn in range(3):  # once everybody has what it needs
        moved = moved_mb(one, turn * 120 + 80, turn * 120 + 116)
        # clients that want five times their quota get nine tenths of it
        assert 0.88 * 120 <= moved <= 1.05 * 120
    assert max(mute.seconds for second in one.seconds for mute in second.mutes) <= 22


def test_adaptive_begins_with_quotas_that_add_up_to_the_budget() -> None:
    """At Max they would permit a third more until each member was measured for a minute."""
    one, _ = played(ScalingMethod.ADAPTIVE, [(who, 30, 0, None) for who in range(6)], 60)
    assert moved_mb(one, 24, 60) == pytest.approx(120, rel=0.05)


def test_steady_demand_of_more_than_the_total_writes_nothing_and_is_held() -> None:
    one, passes = played(ScalingMethod.MEAN, [(who, 30, 0, None) for who in range(6)], 300)
    assert moved_mb(one, 60, 300) == pytest.approx(120, rel=0.05)
    assert sum(writes for writes, _ in passes) == 0
