"""Figures add up to the tables, and say so where something is not known."""

from decimal import Decimal

import numpy as np
import pytest

from tests.unit.rollup.report.estate import HOT_BROKER, LIMIT, estate_figures, estate_request, estate_tables
from tests.unit.rollup.report.estate_members import UNSCALED
from tests.unit.rollup.report.small_request import END_MS, PRICES, START_MS, small_request, terms
from tidegate.errors import InvalidResource
from tidegate.rollup.report.figures import ContractUse
from tidegate.rollup.report.gathering import figures_of
from tidegate.rollup.report.request import Prices
from tidegate.rollup.schemas import FIVE_MINUTES_MS, HOUR_MS

HOUR_2 = START_MS + HOUR_MS


def test_every_breakdown_adds_up_to_the_table_to_the_byte() -> None:
    figures, usage = estate_figures(), estate_tables().usage
    total = int(np.asarray(usage["bytes"]).sum())
    assert figures.total_bytes == total
    for part in (figures.members, figures.tiers, figures.totals, figures.traffic):
        assert sum(one.bytes for one in part) == total


def test_members_and_what_is_of_nobody_are_what_brokers_counted() -> None:
    for total in estate_figures().totals:
        assert total.bytes + total.unattributed_bytes == total.counted_bytes


def test_shares_of_a_direction_add_up_to_one() -> None:
    for direction in ("fetch", "produce"):
        assert sum(one.share or 0 for one in estate_figures().members if one.direction == direction) == pytest.approx(1)


def test_a_total_price_is_the_sum_of_its_rounded_lines() -> None:
    figures = estate_figures()
    lines = sum((one.amount or Decimal(0) for one in figures.members), Decimal(0))
    assert figures.total_amount == lines == sum((one.amount or Decimal(0) for one in figures.tiers), Decimal(0))


def test_without_a_price_nothing_is_charged_and_nothing_said_to_cost_zero() -> None:
    figures = figures_of(small_request([{"user": "etl", "bytes": 5}], prices=Prices()))
    assert figures.total_amount is None
    assert figures.members[0].amount is None


def test_a_direction_without_a_price_leaves_the_other_one_priced() -> None:
    request = small_request(
        [{"user": "etl", "bytes": 2**30}, {"user": "etl", "direction": "produce", "bytes": 2**30}],
        prices=Prices(per_gib={"fetch": Decimal("0.02")}),
    )
    assert {total.direction: total.amount for total in figures_of(request).totals} == {"fetch": Decimal("0.02"), "produce": None}


def test_rows_outside_the_period_are_left_out() -> None:
    rows = [{"user": "etl", "bytes": 1, "window_start": start} for start in (START_MS - HOUR_MS, START_MS, HOUR_2, END_MS)]
    figures = figures_of(small_request(rows))
    assert figures.total_bytes == 2
    assert figures.period.published_windows == figures.period.windows == 2


@pytest.mark.parametrize(("start_ms", "end_ms"), [(END_MS, START_MS), (START_MS, START_MS), (START_MS + 1, END_MS), (START_MS, END_MS - 1)])
def test_a_period_that_is_empty_or_cuts_a_window_is_refused(start_ms: int, end_ms: int) -> None:
    with pytest.raises(InvalidResource):
        figures_of(small_request(start_ms=start_ms, end_ms=end_ms))


def test_a_store_without_a_row_makes_a_report_without_a_line() -> None:
    figures = figures_of(small_request())
    assert (figures.total_bytes, figures.members, figures.brokers, figures.load, figures.talkers) == (0, (), (), (), ())


def test_a_member_in_no_tier_goes_by_its_names() -> None:
    figures = figures_of(small_request([{"user": "etl", "client_id": "app", "bytes": 1}, {"bytes": 2}]))
    assert [one.member for one in figures.members] == ["no name", "user=etl, client-id=app"]


def one_use(**more: object) -> ContractUse:
    rows = [{"user": "etl", "tier": "t", "broker": broker, "bytes": 1, "peak_rate": 90.0, "p95": 70.0 + broker} for broker in (1, 2)]
    return figures_of(small_request(rows, members=[terms("etl", fetch=100)], **more)).contract_use[0]  # type: ignore[arg-type]


def test_p95_is_of_five_minute_rates_on_the_broker_where_it_is_highest() -> None:
    fine = [
        {"user": "etl", "broker": broker, "bytes": 300 * broker * window, "window_start": START_MS + window * FIVE_MINUTES_MS}
        for broker in (1, 2)
        for window in range(10)
    ]
    assert (one_use(usage_5m=fine).p95_rate, one_use(usage_5m=fine).p95_share, one_use(usage_5m=fine).p95_is_bound) == (18.0, 0.18, False)


def test_without_five_minute_rows_p95_is_a_bound_and_says_so() -> None:
    use = one_use()
    assert (use.p95_rate, use.p95_is_bound, use.peak_share) == (72.0, True, 0.9)


def test_five_minute_rows_that_cover_a_part_of_the_period_are_not_taken_for_all_of_it() -> None:
    rows = [{"user": "etl", "bytes": 1, "window_start": start} for start in (START_MS, HOUR_2)]
    assert not figures_of(small_request(rows, usage_5m=[{"user": "etl", "bytes": 1}])).five_minutes


def test_windows_in_which_a_member_was_not_measured_do_not_lower_its_p95() -> None:
    fine = [{"user": "etl", "bytes": 3000}, *({"user": "etl", "broker": 1, "samples": 0, "window_start": START_MS + 1} for _ in range(50))]
    assert one_use(usage_5m=fine).p95_rate == 10.0


def test_the_busiest_window_is_found_and_headroom_is_negative_where_it_was_over() -> None:
    hot = next(card for card in estate_figures().brokers if card.broker == HOT_BROKER and card.direction == "fetch")
    assert "2026-11-20T03:00:00Z" <= hot.busiest_start < "2026-11-20T03:20:00Z"
    assert hot.busiest_seconds == 300
    assert hot.headroom_rate == LIMIT - hot.busiest_rate < 0
    assert [card.broker for card in estate_figures().brokers if card.over_limit_seconds > 0] == [HOT_BROKER]


def test_a_limit_is_the_last_one_known_and_its_absence_is_no_limit_of_zero() -> None:
    rows = [
        {"broker": 1, "nic_bytes": 3600, "limit": 10},
        {"broker": 1, "nic_bytes": 7200, "limit": 4, "window_start": HOUR_2},
        {"broker": 2, "nic_bytes": 7200},
    ]
    first, second = figures_of(small_request((), rows)).brokers
    assert (first.limit, first.mean_rate, first.busiest_rate, first.headroom_rate) == (4, 1.5, 2.0, 2.0)
    assert (second.limit, second.mean_share, second.headroom_rate) == (None, None, None)


def test_a_broker_that_was_away_for_an_hour_keeps_the_mean_of_the_other() -> None:
    assert figures_of(small_request((), [{"nic_bytes": 3600, "window_start": HOUR_2}])).brokers[0].mean_rate == 1.0


def test_members_that_were_never_scaled_or_missed_samples_are_doubted_and_nobody_else() -> None:
    doubtful = {(one.member, one.never_scaled) for one in estate_figures().doubtful}
    assert doubtful == {(UNSCALED, True), ("routing", False)}


def test_a_factor_at_its_bound_is_counted() -> None:
    fine = [
        {"user": "etl", "bytes": 1, "window_start": START_MS + at, "calibration": factor} for at, factor in ((0, 2.0), (1, 1.1), (2, None))
    ]
    figures = figures_of(small_request([{"user": "etl", "bytes": 3}], [{"client_bytes": 4, "unattributed_bytes": 1}], usage_5m=fine))
    found = figures.calibration[0]
    assert (found.windows, found.unscaled_windows, found.bounded_windows, found.highest_factor) == (3, 1, 1, 2.0)
    assert (found.unattributed_bytes, found.unattributed_share) == (1, 0.25)


def test_talkers_are_ranked_by_both_directions_together() -> None:
    rows = [{"user": "a", "bytes": 6}, {"user": "b", "bytes": 5}, {"user": "b", "direction": "produce", "bytes": 5}]
    first, second = figures_of(small_request(rows)).talkers
    assert (first.user, first.bytes, first.share, second.running_share) == ("b", 10, 10 / 16, 1.0)


def test_a_month_is_drawn_in_few_steps_that_still_hold_every_byte() -> None:
    request = small_request([{"user": "a", "bytes": 1, "window_start": START_MS + hour * HOUR_MS} for hour in range(31 * 24)])
    figures = figures_of(small_request(end_ms=START_MS + 31 * 24 * HOUR_MS, tables=request.tables))
    assert len(figures.traffic) <= 120
    assert sum(point.bytes for point in figures.traffic) == 31 * 24


def test_a_recommendation_tells_how_far_it_is_from_the_contract() -> None:
    found = {one.member: one for one in estate_figures().recommendations}
    assert found["checkout"].change == pytest.approx(0.175)
    assert (found["reports"].recommended, found["reports"].change) == (None, None)


def test_prices_are_told_with_the_directions_that_have_none() -> None:
    assert [price.per_gib for price in figures_of(small_request(prices=PRICES)).prices] == [Decimal("0.02"), Decimal("0.01")]
    assert [price.per_gib for price in figures_of(small_request()).prices] == [None, None]


def test_the_same_request_makes_the_same_figures() -> None:
    assert figures_of(estate_request()) == estate_figures()
