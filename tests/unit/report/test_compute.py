"""Figures computed from tables of a few rows, and from the sample report."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.report.sample_report import (
    HOT_BROKER,
    LIMIT,
    UNSCALED,
    sample_figures,
    sample_request,
    sample_tables,
)
from tests.unit.report.small_request import END_MS, PRICES, START_MS, small_request, terms
from tidegate import __version__
from tidegate.errors import InvalidResource
from tidegate.report import period
from tidegate.report.compute import figures_of, nearest_ranks
from tidegate.report.figures import ContractUse, ReportFigures, ThrottledWindow, TrafficPoint
from tidegate.report.page import csv_text, page_html
from tidegate.report.rate_card import GIB, RateCard
from tidegate.report.request import Provenance
from tidegate.report.sheets import sheets_of
from tidegate.rollup.schemas import FIVE_MINUTES_MS, HOUR_MS

HOUR_2 = START_MS + HOUR_MS


def test_every_breakdown_adds_up_to_the_table_to_the_byte() -> None:
    figures, usage = sample_figures(), sample_tables().usage
    total = int(np.asarray(usage["bytes"]).sum())
    assert figures.total_bytes == total
    for part in (figures.members, figures.tiers, figures.totals, figures.traffic):
        assert sum(one.bytes for one in part) == total


def test_members_and_unattributed_bytes_are_what_brokers_counted() -> None:
    for total in sample_figures().totals:
        assert total.bytes + total.unattributed_bytes == total.counted_bytes


def test_shares_of_a_direction_add_up_to_one() -> None:
    for direction in ("fetch", "produce"):
        assert sum(
            one.share or 0 for one in sample_figures().members if one.direction == direction
        ) == pytest.approx(1)


def test_a_total_price_is_the_sum_of_its_rounded_lines() -> None:
    figures = sample_figures()
    lines = sum((one.amount or Decimal(0) for one in figures.members), Decimal(0))
    assert (
        figures.total_amount
        == lines
        == sum((one.amount or Decimal(0) for one in figures.tiers), Decimal(0))
    )


def test_without_a_price_nothing_is_charged_and_nothing_said_to_cost_zero() -> None:
    figures = figures_of(small_request([{"user": "etl", "bytes": 5}], rate_card=RateCard()))
    assert figures.total_amount is None
    assert figures.members[0].amount is None


def test_a_direction_without_a_price_leaves_the_other_one_priced() -> None:
    request = small_request(
        [{"user": "etl", "bytes": 2**30}, {"user": "etl", "direction": "produce", "bytes": 2**30}],
        rate_card=RateCard.flat({"fetch": Decimal("0.02")}),
    )
    assert {total.direction: total.amount for total in figures_of(request).totals} == {
        "fetch": Decimal("0.02"),
        "produce": None,
    }


def test_rows_outside_the_period_are_left_out() -> None:
    rows = [
        {"user": "etl", "bytes": 1, "window_start": start}
        for start in (START_MS - HOUR_MS, START_MS, HOUR_2, END_MS)
    ]
    figures = figures_of(small_request(rows))
    assert figures.total_bytes == 2
    assert figures.period.published_windows == figures.period.windows == 2


@pytest.mark.parametrize(
    ("start_ms", "end_ms"),
    [(END_MS, START_MS), (START_MS, START_MS), (START_MS + 1, END_MS), (START_MS, END_MS - 1)],
)
def test_a_period_that_is_empty_or_cuts_a_window_is_refused(start_ms: int, end_ms: int) -> None:
    with pytest.raises(InvalidResource):
        figures_of(small_request(start_ms=start_ms, end_ms=end_ms))


def test_a_store_without_a_row_makes_a_report_without_a_line() -> None:
    figures = figures_of(small_request())
    assert (
        figures.total_bytes,
        figures.members,
        figures.brokers,
        figures.load,
        figures.talkers,
    ) == (0, (), (), (), ())


def test_a_member_in_no_tier_goes_by_its_names() -> None:
    figures = figures_of(
        small_request([{"user": "etl", "client_id": "app", "bytes": 1}, {"bytes": 2}])
    )
    assert [one.member for one in figures.members] == ["no name", "user=etl, client-id=app"]


def one_use(**more: object) -> ContractUse:
    rows = [
        {
            "user": "etl",
            "tier": "t",
            "broker": broker,
            "bytes": 1,
            "peak_rate": 90.0,
            "p95": 70.0 + broker,
        }
        for broker in (1, 2)
    ]
    return figures_of(small_request(rows, members=[terms("etl", fetch=100)], **more)).contract_use[
        0
    ]  # type: ignore[arg-type]


def test_p95_is_of_five_minute_rates_on_the_broker_where_it_is_highest() -> None:
    fine = [
        {
            "user": "etl",
            "broker": broker,
            "bytes": 300 * broker * window,
            "window_start": START_MS + window * FIVE_MINUTES_MS,
        }
        for broker in (1, 2)
        for window in range(10)
    ]
    assert (
        one_use(usage_5m=fine).p95_rate,
        one_use(usage_5m=fine).p95_share,
        one_use(usage_5m=fine).p95_is_bound,
    ) == (18.0, 0.18, False)


def test_without_five_minute_rows_p95_is_a_bound_and_says_so() -> None:
    use = one_use()
    assert (use.p95_rate, use.p95_is_bound, use.peak_share) == (72.0, True, 0.9)


def test_five_minute_rows_that_cover_a_part_of_the_period_are_not_taken_for_all_of_it() -> None:
    rows = [{"user": "etl", "bytes": 1, "window_start": start} for start in (START_MS, HOUR_2)]
    assert not figures_of(small_request(rows, usage_5m=[{"user": "etl", "bytes": 1}])).five_minutes


def test_windows_in_which_a_member_was_not_measured_do_not_lower_its_p95() -> None:
    fine = [
        {"user": "etl", "bytes": 3000},
        *(
            {"user": "etl", "broker": 1, "samples": 0, "window_start": START_MS + 1}
            for _ in range(50)
        ),
    ]
    assert one_use(usage_5m=fine).p95_rate == 10.0


def test_the_busiest_window_is_found_and_headroom_is_negative_where_it_was_over() -> None:
    hot = next(
        nic
        for nic in sample_figures().brokers
        if nic.broker == HOT_BROKER and nic.direction == "fetch"
    )
    assert "2026-11-20T03:00:00Z" <= hot.busiest_start < "2026-11-20T03:20:00Z"
    assert hot.busiest_seconds == 300
    assert hot.headroom_rate == LIMIT - hot.busiest_rate < 0
    assert [nic.broker for nic in sample_figures().brokers if nic.over_limit_seconds > 0] == [
        HOT_BROKER
    ]


def test_a_limit_is_the_last_one_known_and_its_absence_is_no_limit_of_zero() -> None:
    rows = [
        {"broker": 1, "nic_bytes": 3600, "limit": 10},
        {"broker": 1, "nic_bytes": 7200, "limit": 4, "window_start": HOUR_2},
        {"broker": 2, "nic_bytes": 7200},
    ]
    first, second = figures_of(small_request((), rows)).brokers
    assert (first.limit, first.mean_rate, first.busiest_rate, first.headroom_rate) == (
        4,
        1.5,
        2.0,
        2.0,
    )
    assert (second.limit, second.mean_share, second.headroom_rate) == (None, None, None)


def test_a_broker_that_was_away_for_an_hour_keeps_the_mean_of_the_other() -> None:
    assert (
        figures_of(small_request((), [{"nic_bytes": 3600, "window_start": HOUR_2}]))
        .brokers[0]
        .mean_rate
        == 1.0
    )


def test_members_that_were_never_scaled_or_missed_samples_are_doubted_and_no_others() -> None:
    doubtful = {(one.member, one.never_scaled) for one in sample_figures().doubtful}
    assert doubtful == {(UNSCALED, True), ("routing", False)}


def test_a_factor_at_its_bound_is_counted() -> None:
    fine = [
        {"user": "etl", "bytes": 1, "window_start": START_MS + at, "calibration": factor}
        for at, factor in ((0, 2.0), (1, 1.1), (2, None))
    ]
    figures = figures_of(
        small_request(
            [{"user": "etl", "bytes": 3}],
            [{"client_bytes": 4, "unattributed_bytes": 1}],
            usage_5m=fine,
        )
    )
    found = figures.calibration[0]
    assert (
        found.windows,
        found.unscaled_windows,
        found.bounded_windows,
        found.highest_factor,
    ) == (
        3,
        1,
        1,
        2.0,
    )
    assert (found.unattributed_bytes, found.unattributed_share) == (1, 0.25)


def test_talkers_are_ranked_by_both_directions_together() -> None:
    rows = [
        {"user": "a", "bytes": 6},
        {"user": "b", "bytes": 5},
        {"user": "b", "direction": "produce", "bytes": 5},
    ]
    first, second = figures_of(small_request(rows)).talkers
    assert (first.user, first.bytes, first.share, second.running_share) == ("b", 10, 10 / 16, 1.0)


def test_a_month_is_drawn_in_few_steps_that_still_hold_every_byte() -> None:
    request = small_request(
        [
            {"user": "a", "bytes": 1, "window_start": START_MS + hour * HOUR_MS}
            for hour in range(31 * 24)
        ]
    )
    figures = figures_of(small_request(end_ms=START_MS + 31 * 24 * HOUR_MS, tables=request.tables))
    assert len(figures.traffic) <= 120
    assert sum(point.bytes for point in figures.traffic) == 31 * 24


def test_a_recommendation_has_how_far_it_is_from_the_contract() -> None:
    found = {one.member: one for one in sample_figures().recommendations}
    assert found["checkout"].change == pytest.approx(0.175)
    assert (found["reports"].recommended, found["reports"].change) == (None, None)


def test_prices_are_listed_with_the_directions_that_have_none() -> None:
    fetch_only = RateCard.flat({"fetch": Decimal("0.02")})
    for card, amounts in (
        (PRICES, [Decimal("0.02"), Decimal("0.01")]),
        (fetch_only, [Decimal("0.02"), None]),
    ):
        prices = figures_of(small_request(rate_card=card)).prices
        assert [(price.what, price.amount) for price in prices] == list(
            zip(("fetch", "produce"), amounts, strict=True)
        )
    assert figures_of(small_request()).prices == ()


def test_the_same_request_makes_the_same_figures() -> None:
    assert figures_of(sample_request()) == sample_figures()


VALUES = st.lists(st.integers(0, 2**40), min_size=1, max_size=60)


@given(st.lists(VALUES, min_size=1, max_size=4), st.randoms())
def test_every_group_has_the_rank_of_its_own_values_in_whatever_order(
    groups: list[list[int]], chance: object
) -> None:
    rows = [(code, value) for code, values in enumerate(groups) for value in values]
    chance.shuffle(rows)  # type: ignore[attr-defined]
    codes, values = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    expected = [np.quantile(values, 0.95, method="inverted_cdf") for values in groups]
    assert nearest_ranks(codes, values, 0.95).tolist() == expected


@given(VALUES)
def test_nearest_rank_is_a_value_that_as_many_values_do_not_exceed(values: list[int]) -> None:
    (found,) = nearest_ranks(np.zeros(len(values), np.int64), np.array(values), 0.95)
    assert (
        sum(value <= found for value in values)
        >= 0.95 * len(values)
        > sum(value < found for value in values)
    )


AT_CONTRACT: Mapping[str, object] = {"tier": "t", "seconds_contract": 3600.0}
HELD: Mapping[str, object] = {
    "tier": "t",
    "window_start": START_MS + HOUR_MS,
    "throttle_episodes": 2,
    "seconds_contract": 3000.0,
    "seconds_throttled": 480.0,
    "seconds_relaxing": 120.0,
}


def figures(*tiers: Mapping[str, object], **more: object) -> ReportFigures:
    return figures_of(
        small_request(
            [{"user": "u", "tier": "t", "bytes": 1}], tiers=tiers, members=[terms("u")], **more
        )
    )


def test_a_window_with_time_below_the_contract_is_a_line() -> None:
    [window] = figures(AT_CONTRACT, HELD).throttled_windows
    assert window == ThrottledWindow(
        "2026-11-20T01:00:00Z", 3600.0, "t", "L1", "fetch", 2, 480.0, 120.0
    )


@pytest.mark.parametrize(
    ("tiers", "expected"),
    [
        ((HELD,), "By the operator's metrics, for each window"),
        ((AT_CONTRACT,), "By the operator's metrics no quota was below its contract"),
        (({"tier": "t"},), "the tables have no states of tiers"),
        ((), "the tables have no states of tiers"),
    ],
)
def test_without_a_trail_the_page_says_what_the_tables_know(
    tiers: tuple[Mapping[str, object], ...], expected: str
) -> None:
    assert expected in page_html(figures(*tiers))


def test_with_a_trail_the_trail_speaks() -> None:
    assert "By the audit trail no quota was below its contract" in page_html(
        figures(HELD, trail=())
    )


Row = Mapping[str, object]


def sample_hours(count: int, *, with_five_minutes: bool = True) -> ReportFigures:
    """The sample from the hour before its hot broker on."""
    start_ms = START_MS + 2 * HOUR_MS
    request = sample_request(with_five_minutes=with_five_minutes)
    return figures_of(replace(request, start_ms=start_ms, end_ms=start_ms + count * HOUR_MS))


def by_tier(points: Iterable[TrafficPoint]) -> Mapping[tuple[str, str], int]:
    moved: Counter[tuple[str, str]] = Counter()
    for point in points:
        moved[point.tier, point.direction] += point.bytes
    return moved


def window(number: int, **more: object) -> dict[str, object]:
    """A row of the window of 5 minutes with this number in the period."""
    return {"window_start": START_MS + number * FIVE_MINUTES_MS, **more}


def hour_of(row: Row, *names: str) -> tuple[object, ...]:
    start = row["window_start"]
    assert isinstance(start, int)
    return start // HOUR_MS * HOUR_MS, *(row[name] for name in names)


def hours_of(fine: Sequence[Row], tiers: Mapping[tuple[int, str], str]) -> list[dict[str, object]]:
    """What a run makes of rows of 5 minutes, when these are the tiers by hour and user."""
    sums: Counter[tuple[object, ...]] = Counter()
    for row in fine:
        sums[hour_of(row, "broker", "user", "direction")] += row["bytes"]  # type: ignore[assignment]
    return [
        {
            "window_start": start,
            "broker": broker,
            "user": user,
            "direction": way,
            "bytes": count,
            "tier": tiers[start, user],
        }  # type: ignore[index]
        for (start, broker, user, way), count in sums.items()
    ]


@pytest.mark.parametrize("count", [1, 6])
def test_there_is_a_point_for_every_five_minutes_and_every_byte_is_in_them(count: int) -> None:
    figures = sample_hours(count)
    assert {point.seconds for point in (*figures.traffic, *figures.load)} == {300.0}
    assert (
        len({point.start for point in figures.traffic})
        == len({point.start for point in figures.load})
        == 12 * count
    )
    assert by_tier(figures.traffic) == {
        (one.tier, one.direction): one.bytes for one in figures.tiers
    }
    for nic in figures.brokers:
        ours = [
            point
            for point in figures.load
            if (point.broker, point.direction) == (nic.broker, nic.direction)
        ]
        assert sum(point.nic_bytes for point in ours) == nic.nic_bytes
        assert max(point.rate for point in ours) == nic.busiest_rate


def test_sums_by_tier_are_those_of_the_same_period_drawn_by_the_hour() -> None:
    fine, coarse = sample_hours(6), sample_hours(6, with_five_minutes=False)
    assert {point.seconds for point in (*coarse.traffic, *coarse.load)} == {3600.0}
    assert by_tier(fine.traffic) == by_tier(coarse.traffic)


def test_nothing_but_what_is_drawn_is_finer(monkeypatch: pytest.MonkeyPatch) -> None:
    fine = sample_hours(6)
    monkeypatch.setattr(period, "_SHORT_MS", 0)
    coarse = sample_hours(6)
    assert (fine.traffic, fine.load) != (coarse.traffic, coarse.load)
    assert replace(fine, traffic=(), load=()) == replace(coarse, traffic=(), load=())


def test_a_longer_period_is_drawn_by_the_hour() -> None:
    figures = sample_hours(7)
    assert {point.seconds for point in (*figures.traffic, *figures.load)} == {3600.0}


@given(
    st.lists(
        st.tuples(
            st.integers(0, 23),
            st.integers(1, 2),
            st.sampled_from("abc"),
            st.sampled_from(("fetch", "produce")),
            st.integers(0, 2**50),
        ),
        unique_by=lambda row: row[:4],
        min_size=1,
    ),
    st.lists(st.sampled_from(("", "s", "t")), min_size=6, max_size=6),
)
def test_whatever_moved_the_drawn_bytes_are_those_of_the_hours(
    rows: list[tuple[int, int, str, str, int]], named: list[str]
) -> None:
    fine = [
        window(at, broker=broker, user=user, direction=way, bytes=count)
        for at, broker, user, way, count in rows
    ]
    tiers = {
        (START_MS + place % 2 * HOUR_MS, "abc"[place // 2]): tier
        for place, tier in enumerate(named)
    }
    usage = hours_of(fine, tiers)
    figures = figures_of(small_request(usage, usage_5m=fine))
    assert {point.seconds for point in figures.traffic} == {300.0}
    expected: Counter[object] = Counter()
    drawn: Counter[object] = Counter()
    for row in usage:
        expected[row["tier"], row["direction"]] += row["bytes"]  # type: ignore[assignment]
    for key, count in by_tier(figures.traffic).items():
        drawn[key] += count
    assert drawn == expected


def test_who_changes_tiers_at_the_hour_is_drawn_in_both() -> None:
    fine = [
        window(11, broker=1, user="a", direction="fetch", bytes=3),
        window(12, broker=1, user="a", direction="fetch", bytes=5),
    ]
    usage = hours_of(fine, {(START_MS, "a"): "before", (START_MS + HOUR_MS, "a"): "after"})
    points = figures_of(small_request(usage, usage_5m=fine)).traffic
    assert [(point.start[11:16], point.tier, point.bytes) for point in points] == [
        ("00:55", "before", 3),
        ("01:00", "after", 5),
    ]


def test_a_window_without_rows_is_no_point() -> None:
    fine = [window(at, user="a", bytes=300) for at in (0, 2, 3)]
    nics = [window(at, nic_bytes=600, limit=4) for at in (0, 3)]
    request = small_request(
        [{"user": "a", "bytes": 900}],
        [{"nic_bytes": 1200, "limit": 4}],
        usage_5m=fine,
        broker_5m=nics,
        end_ms=START_MS + HOUR_MS,
    )
    figures = figures_of(request)
    assert [point.start[11:16] for point in figures.traffic] == ["00:00", "00:10", "00:15"]
    assert [(point.start[11:16], point.rate, point.share) for point in figures.load] == [
        ("00:00", 2.0, 0.5),
        ("00:15", 2.0, 0.5),
    ]


@pytest.mark.parametrize(
    "fine",
    [
        [window(0, user="a", bytes=8)],
        [window(0, user="a", bytes=9), window(1, user="a", bytes=1)],
        [window(0, user="b", bytes=9)],
    ],
)
def test_where_five_minutes_and_hours_do_not_agree_the_hours_are_drawn(
    fine: list[dict[str, object]],
) -> None:
    request = small_request(
        [{"user": "a", "tier": "t", "bytes": 9}], usage_5m=fine, end_ms=START_MS + HOUR_MS
    )
    (point,) = figures_of(request).traffic
    assert (point.seconds, point.bytes) == (3600.0, 9)


def test_the_page_names_its_grain() -> None:
    page = page_html(sample_hours(1))
    assert "60 min, tables by the hour" in page
    assert (
        page.count("Mean rate of every 5 min by tier") == 2 * 2
    )  # in the caption, and for those who cannot see the plot
    assert page.count("The mean of every 5 min as a share of the broker&#39;s limit.") == 2 * 2
    assert "Mean of each step as a share of the broker&#39;s limit, fetch" in page
    assert "2026-11-20 02:05 UTC, 5 min\n" in page
    assert "Mean rate of every hour" not in page
    assert "of every cell" not in page


def test_the_page_of_a_longer_period_names_its_own() -> None:
    page = page_html(sample_hours(7))
    assert "7 h, by the hour" in page
    assert (
        page.count("Mean rate of every hour by tier")
        == page.count("The busiest 5 min of every cell")
        == 2 * 2
    )
    assert "2026-11-20 02:00 UTC, 1.00 h\n" in page


def test_the_csv_files_have_every_point() -> None:
    figures = sample_hours(1)
    rows = list(csv.DictReader(io.StringIO(csv_text(sheets_of(figures)["traffic"]))))
    assert sum(int(row["bytes"]) for row in rows) == figures.total_bytes
    assert {row["seconds"] for row in rows} == {"300.0"}


# Rates of one row are of one broker; what adds up brokers says so.


def test_no_row_has_a_p95_above_its_peak() -> None:
    """A tier's percentiles are of all brokers together: the page has those of one broker."""
    fine = [
        {"user": "etl", "broker": broker, "bytes": 300 * 100, "peak_rate": 90.0}
        for broker in (1, 2, 3)
    ]
    usage = [{**row, "tier": "t", "p95": 100.0, "p99": 100.0} for row in fine]
    tiers = [{"tier": "t", "peak_rate": 90.0, "p95": 300.0}]
    for usage_5m in (fine, None):
        figures = figures_of(small_request(usage, tiers=tiers, usage_5m=usage_5m))
        for peak, p95 in (
            *((one.peak_rate, one.highest_p95_rate) for one in figures.tiers),
            *((one.peak_rate, one.p95_rate) for one in figures.contract_use),
        ):
            assert (peak, p95) == (100.0, 100.0)
    for one in (*sample_figures().contract_use,):
        assert one.p95_rate is None or one.p95_rate <= one.peak_rate


def test_time_that_adds_up_brokers_is_in_broker_hours_and_a_share_of_all_of_them() -> None:
    usage = [
        {
            "user": "etl",
            "broker": broker,
            "window_start": at,
            "over_contract_seconds": 3000,
            "throttled_seconds": 1800,
        }
        for broker in (1, 2, 3, 4)
        for at in (START_MS, HOUR_2)
    ]
    figures = figures_of(small_request(usage))
    (member,) = figures.members
    assert (member.over_contract_seconds, member.over_contract_share) == (24_000, 24_000 / 28_800)
    columns = {column.name: column for column in sheets_of(figures)["members"].columns}
    assert columns["over_contract_seconds"].title_with_unit == "Over contract, broker-hours"
    assert columns["over_contract_seconds"].text(member) == "6.67"
    assert "throttled for 4.00 broker-hours" in page_html(figures)


def test_a_factor_far_from_one_is_a_warning_and_doubts_whoever_it_was_applied_to() -> None:
    fine = [
        {"user": "etl", "bytes": 1, "calibration": 1.42},
        {"user": "etl", "bytes": 1, "calibration": 1.0, "window_start": START_MS + 300_000},
        {"user": "app", "broker": 2, "bytes": 1, "calibration": 1.14},
        {"user": "app", "broker": 2, "bytes": 1, "calibration": 1.0, "window_start": HOUR_2},
    ]
    usage = [{"user": row["user"], "broker": row.get("broker", 1), "bytes": 2} for row in fine[1:3]]
    nics = [{"client_bytes": 3}, {"client_bytes": 2, "broker": 2}]
    figures = figures_of(
        small_request([*usage, {**usage[1], "window_start": HOUR_2}], nics, usage_5m=fine)
    )
    assert [(one.broker, one.bounded_windows) for one in figures.calibration] == [(1, 1), (2, 0)]
    assert [(one.member, one.highest_factor) for one in figures.doubtful] == [("user=etl", 1.42)]
    page = page_html(figures)
    assert "Bills of this period are suspect: on 1 of 2" in page
    assert "1.420" in page
    calm = page_html(figures_of(small_request(usage, nics, usage_5m=fine[2:])))
    assert "Bills of this period are suspect" not in calm


def test_the_page_bills_nobody_a_promise_that_is_true_of_brokers_only() -> None:
    page = page_html(sample_figures())
    assert "No member is ever billed for more" not in page
    assert "a single one may be" in page


def test_the_head_has_when_the_figures_were_made_and_by_which_version() -> None:
    page = page_html(sample_figures())
    head = page[page.index("<header>") : page.index("</header>")]
    assert f"As of 2026-11-22 01:00 UTC, by Tidegate {__version__}" in head


def test_windows_without_a_policy_have_the_tiers_of_the_files_and_the_page_says_so() -> None:
    usage = [
        {"user": "etl", "bytes": 1},
        {"user": "etl", "bytes": 2, "window_start": HOUR_2},
        {"user": "other", "bytes": 4},
    ]
    members = [replace(terms("etl", name="loads", tier="gold"), labels='{"team":"shop"}')]
    provenance = Provenance(
        store_url="file:///usage", schema_version=1, tierless=frozenset({START_MS})
    )
    figures = figures_of(
        small_request(usage, members=members, provenance=provenance, by_labels=("team",))
    )
    assert {(one.tier, one.bytes) for one in figures.tiers} == {("gold", 1), ("", 6)}
    assert {(one.value, one.bytes) for one in figures.labels} == {("shop", 1), ("", 6)}
    assert "1 of 2 windows were rolled up without a policy" in page_html(figures)


def test_labels_of_today_replace_those_of_the_time_only_where_they_are_asked_for() -> None:
    usage = [{"user": "etl", "tier": "gold", "bytes": 1, "labels": '{"team":"old"}'}]
    members = [replace(terms("etl", tier="gold"), labels='{"team":"new"}')]
    for labels_of_today, team in ((False, "old"), (True, "new")):
        request = small_request(
            usage, members=members, by_labels=("team",), labels_of_today=labels_of_today
        )
        assert [one.value for one in figures_of(request).labels] == [team]


def test_every_factor_outside_its_bounds_is_named_and_what_is_nobodys_is_priced_apart() -> None:
    windows = [
        {
            "window_start": START_MS + number * FIVE_MINUTES_MS,
            "broker": 1,
            "user": user,
            "direction": "fetch",
            "bytes": 10 * GIB,
            "coverage": 0.97,
            "calibration": factor if user == "mixed" else 1.0,
        }
        for number, factor in enumerate((1.0, 1.16, 0.89))
        for user in ("mixed", "even")
    ]
    usage = [
        {"user": user, "tier": "t", "direction": "fetch", "bytes": 30 * GIB, "coverage": 0.97}
        for user in ("mixed", "even")
    ]
    usage = [row | {"window_start": START_MS, "broker": 1} for row in usage]
    brokers = [
        {
            "window_start": START_MS,
            "broker": 1,
            "direction": "fetch",
            "client_bytes": 65 * GIB,
            "unattributed_bytes": 5 * GIB,
        }
    ]
    figures = figures_of(
        small_request(
            usage,
            brokers,
            usage_5m=windows,
            members=[terms("mixed"), terms("even")],
            rate_card=RateCard.flat({"fetch": Decimal("0.02")}),
        )
    )
    (doubtful,) = figures.doubtful
    assert (doubtful.member, doubtful.windows_outside) == ("mixed", 2)
    assert (doubtful.lowest_factor, doubtful.highest_factor) == (0.89, 1.16)
    fetch = next(one for one in figures.totals if one.direction == "fetch")
    assert (fetch.amount, fetch.unattributed_amount) == (Decimal("1.20"), Decimal("0.10"))
    assert figures.total_amount == Decimal("1.20")
