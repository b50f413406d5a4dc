"""The law of adaptive scaling, one reading at a time: who moves, where to, how soon, and what holds
it.
"""

from dataclasses import replace

import pytest

from tests.unit.controller_logic.uneven_brokers import IN, MB, USER, adapted, rate_of, spread_of
from tidegate_logic.contracts.adaptive import (
    Adaptation,
    AdaptiveInput,
    AdaptiveRate,
    level_of,
)
from tidegate_logic.contracts.leader_scaling import (
    ADAPTIVE_SHARES,
    adaptive_scale,
    partition_scale,
)
from tidegate_logic.model import ClientRate, Entity, Readings, ScalingMethod

LEADERS = {1: 2, 2: 1}
START_SECONDS = 1_000_000.0
Reported = dict[int, tuple[float, float | None]]  # broker -> MB/s, throttle time in ms

GREEDY: Reported = {1: (21.0, 900.0), 2: (20.4, 800.0)}
EVEN_AT_MEAN: Reported = {1: (15.9, 700.0), 2: (10.0, 0.0)}
EVEN_AT_MAX: Reported = {1: (20.3, 60.0), 2: (10.2, 0.0)}


def readings(reported: Reported, now_seconds: float) -> Readings:
    clients = {
        (USER, broker, IN): ClientRate(now_seconds, rate * MB, muted)
        for broker, (rate, muted) in reported.items()
    }
    return Readings(now_seconds, 15.0, clients=clients)


def look(
    rate: AdaptiveRate,
    reported: Reported,
    seconds: float = 120.0,
    was: Adaptation | None = None,
    start: float = START_SECONDS,
) -> Adaptation:
    """What is remembered after looking at the same readings every 15 seconds for so long, or until
    the share moves.
    """
    passed = 0.0
    while passed <= seconds:
        now_seconds = start + passed
        memory = {} if was is None else {rate.key: was}
        before = was
        was = adapted(AdaptiveInput(now_seconds, readings(reported, now_seconds), (rate,)), memory)[
            rate.key
        ]
        if before is not None and was.share != before.share:
            break
        passed += 15.0
    assert was is not None
    return was


def quota_mb(rate: AdaptiveRate, known: Adaptation) -> float:
    return rate.value_at(known.share) / MB


# --- where to
# ---------------------------------------------------------------------------------------------------------


def test_greedy_clients_go_to_where_the_total_is_the_contract() -> None:
    rate = rate_of(LEADERS, in_force=20 * MB)
    assert quota_mb(rate, look(rate, GREEDY)) == 15.0


def test_even_demand_goes_to_where_no_partition_is_held_back() -> None:
    rate = rate_of(LEADERS, in_force=15 * MB)
    assert quota_mb(rate, look(rate, EVEN_AT_MEAN)) == 20.0


def test_even_demand_at_max_stays_there() -> None:
    rate = rate_of(LEADERS, in_force=20 * MB)
    assert quota_mb(rate, look(rate, EVEN_AT_MAX)) == 20.0


def test_greedy_clients_at_mean_stay_there_although_kafka_reads_them_above_their_quota() -> None:
    rate = rate_of(LEADERS, in_force=15 * MB)
    assert quota_mb(rate, look(rate, {1: (17.6, 900.0), 2: (16.0, 900.0)})) == 15.0


def test_in_between_is_right_for_demand_in_between() -> None:
    """13 MB/s per partition: 17 on the crowded broker and 13 on the other make 30."""
    rate = rate_of(LEADERS, in_force=20 * MB)
    assert quota_mb(rate, look(rate, {1: (20.0, 500.0), 2: (13.0, 0.0)})) == pytest.approx(
        17.0, rel=0.01
    )


def test_a_last_bit_of_the_way_that_would_never_be_worth_a_write_is_gone_with_the_rest() -> None:
    """While demand turns, a mean of before and after asks for 15.9; from there to Mean is less than
    the least change.
    """
    rate = rate_of(LEADERS, in_force=20 * MB)
    assert quota_mb(rate, look(rate, {1: (20.0, 500.0), 2: (14.1, 500.0)})) == 15.0


def test_below_the_contract_nothing_is_raised_while_the_quota_limits_no_one() -> None:
    rate = rate_of(LEADERS, in_force=15 * MB)
    assert look(rate, {1: (11.0, 0.0), 2: (6.0, 0.0)}).share == 0


def test_a_rate_near_the_quota_counts_as_limited_where_kafka_reports_no_throttle_time() -> None:
    rate = rate_of(LEADERS, in_force=15 * MB)
    assert quota_mb(rate, look(rate, {1: (14.5, None), 2: (8.0, None)})) == 20.0


def test_a_broker_without_a_series_of_the_client_counts_as_idle_where_it_reports_of_others() -> (
    None
):
    """Kafka makes no series for a client that never sent there."""
    rate = rate_of(LEADERS, in_force=15 * MB)
    now_seconds, known = START_SECONDS, None
    for turn in range(9):
        now_seconds = START_SECONDS + 15 * turn
        reported = readings({1: (15.5, 500.0)}, now_seconds)
        other = {(Entity("other", USER.client_id), 2, IN): ClientRate(now_seconds, 1.0, 0.0)}
        memory = {} if known is None else {rate.key: known}
        known = adapted(
            AdaptiveInput(
                now_seconds, replace(reported, clients={**reported.clients, **other}), (rate,)
            ),
            memory,
        )[rate.key]
    assert known is not None
    assert known.share == ADAPTIVE_SHARES


@pytest.mark.parametrize(
    ("rates", "total", "cap"),
    [([20, 20], 30, 15), ([20, 10], 25, 15), ([18, 14], 30, 16), ([5, 5], 30, 5)],
)
def test_the_level_is_the_cap_under_which_rates_add_up(
    rates: list[float], total: float, cap: float
) -> None:
    assert level_of(rates, total) == cap


# --- how soon
# ---------------------------------------------------------------------------------------------------------


def test_nothing_moves_on_less_than_two_sawtooth_periods_of_readings() -> None:
    rate = rate_of(LEADERS, in_force=20 * MB)
    assert look(rate, GREEDY, seconds=30.0).share == ADAPTIVE_SHARES


def test_a_change_in_force_starts_the_looking_anew() -> None:
    before = look(rate_of(LEADERS, in_force=20 * MB), GREEDY, seconds=30.0)
    changed = rate_of(LEADERS, in_force=19 * MB)
    assert (
        look(changed, GREEDY, seconds=30.0, was=before, start=START_SECONDS + 45).share
        == ADAPTIVE_SHARES
    )


def test_a_turn_waits_longer_than_going_on() -> None:
    moved = Adaptation(
        0, rate_of(LEADERS, in_force=15 * MB).scene, START_SECONDS, moved_at_seconds=START_SECONDS
    )
    rate = rate_of(LEADERS, in_force=15 * MB)
    assert look(rate, EVEN_AT_MEAN, seconds=75.0, was=moved).share == 0
    assert look(rate, EVEN_AT_MEAN, seconds=105.0, was=moved).share == ADAPTIVE_SHARES


def test_after_the_clock_went_back_it_goes_on() -> None:
    ahead = Adaptation(
        ADAPTIVE_SHARES,
        rate_of(LEADERS, in_force=20 * MB).scene,
        START_SECONDS + 1e6,
        moved_at_seconds=START_SECONDS + 1e6,
    )
    rate = rate_of(LEADERS, in_force=20 * MB)
    assert look(rate, GREEDY, was=ahead).share == 0


# --- what holds it
# ----------------------------------------------------------------------------------------------------


def test_a_broker_that_reports_nothing_holds() -> None:
    rate = rate_of(LEADERS, in_force=20 * MB)
    assert look(rate, {1: GREEDY[1]}).share == ADAPTIVE_SHARES


def test_readings_that_are_too_old_hold() -> None:
    rate, known = rate_of(LEADERS, in_force=20 * MB), {}
    for turn in range(20):
        now_seconds = START_SECONDS + 15 * turn
        known = adapted(
            AdaptiveInput(now_seconds, readings(GREEDY, now_seconds - 46), (rate,)), known
        )
    assert known[rate.key].share == ADAPTIVE_SHARES


def test_the_same_old_reading_again_is_no_second_sighting() -> None:
    rate, known = rate_of(LEADERS, in_force=20 * MB), {}
    for turn in range(9):
        once = readings(GREEDY, START_SECONDS + 40)
        known = adapted(AdaptiveInput(START_SECONDS + 10 * turn, once, (rate,)), known)
    assert known[rate.key].share == ADAPTIVE_SHARES


@pytest.mark.parametrize(
    "change", [{"throttled": True}, {"in_force": None}], ids=["throttled", "no quota"]
)
def test_a_throttled_rate_and_one_without_a_quota_stand_still(change: dict[str, object]) -> None:
    known = look(rate_of(LEADERS, in_force=20 * MB), GREEDY, seconds=30.0)
    rate = rate_of(LEADERS, **{"in_force": 20 * MB, **change})  # type: ignore[arg-type]
    assert look(rate, GREEDY, was=known, start=START_SECONDS + 45).share == ADAPTIVE_SHARES


def test_a_quota_on_its_way_down_to_its_place_stands_still() -> None:
    """Steps of a lowering are a step distance apart; what is measured in between says nothing of
    where it ends.
    """
    rate = rate_of(LEADERS, in_force=40 * MB)
    known = Adaptation(512, rate.scene, START_SECONDS)
    assert look(rate, {1: (40.0, 900.0), 2: (40.0, 900.0)}, was=known).share == 512


def test_leaders_that_are_not_known_in_full_hold() -> None:
    rate = rate_of(LEADERS, in_force=20 * MB, spread=replace(spread_of(LEADERS), leaderless=1))
    assert look(rate, GREEDY).share == ADAPTIVE_SHARES


def test_even_leaders_leave_nothing_to_choose() -> None:
    rate = rate_of({1: 1, 2: 1, 3: 1}, in_force=10 * MB)
    assert rate.value_at(0) == rate.value_at(ADAPTIVE_SHARES) == 10 * MB
    assert (
        look(rate, {1: (10.5, 900.0), 2: (10.5, 900.0), 3: (10.5, 900.0)}).share == ADAPTIVE_SHARES
    )


# --- where a new operator starts
# --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("in_force", "throttled", "share"),
    [
        (None, False, ADAPTIVE_SHARES),
        (15 * MB, False, 0),
        (17_500_000, False, 512),
        (17_500_000, True, 512),
        (99 * MB, False, ADAPTIVE_SHARES),
        (10 * MB, False, ADAPTIVE_SHARES),
    ],
    ids=[
        "nothing stands",
        "Mean stands",
        "half way",
        "half way when it was throttled",
        "of other leaders",
        "of other leaders too",
    ],
)
def test_a_new_operator_finds_its_place(in_force: int | None, throttled: bool, share: int) -> None:
    rate = rate_of(LEADERS, in_force=in_force, throttled=throttled)
    assert look(rate, {}, seconds=0).share == share


@pytest.mark.parametrize(
    "leaders", [{1: 2, 2: 1}, {1: 4, 2: 3, 3: 3, 4: 2}, {1: 10, 2: 1, 3: 1, 4: 1}]
)
@pytest.mark.parametrize("promised_mb", [1, 10])
def test_a_new_operator_finds_every_share_again_to_the_byte(
    leaders: dict[int, int], promised_mb: int
) -> None:
    for share in range(ADAPTIVE_SHARES + 1):
        value = rate_of(leaders, promised_mb).value_at(share)
        rate = rate_of(leaders, promised_mb, in_force=value)
        assert rate.value_at(look(rate, {}, seconds=0).share) == value


def test_who_is_not_asked_for_is_forgotten() -> None:
    rate = rate_of(LEADERS, in_force=20 * MB)
    known = {rate.key: look(rate, GREEDY, seconds=0)}
    assert adapted(AdaptiveInput(START_SECONDS, readings({}, START_SECONDS), ()), known) == {}


# --- the scale
# --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "leaders",
    [{1: 2, 2: 1}, {1: 4, 2: 3, 3: 3, 4: 2}, {1: 10, 2: 1, 3: 1, 4: 1}, {1: 3}, {1: 1, 2: 1}],
)
def test_the_ends_of_the_scale_are_mean_and_max_to_the_byte(leaders: dict[int, int]) -> None:
    spread = spread_of(leaders)
    for promised in (1024, 10 * MB, 10_485_761):
        assert adaptive_scale(spread, 0).of(promised) == partition_scale(
            spread, ScalingMethod.MEAN
        ).of(promised)
        assert adaptive_scale(spread, ADAPTIVE_SHARES).of(promised) == partition_scale(
            spread, ScalingMethod.MAX
        ).of(promised)
