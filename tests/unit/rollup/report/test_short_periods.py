"""A short period is drawn by windows of 5 minutes: the same bytes as the hours beside it, and nothing else of the report changes."""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.rollup.report.estate import START_MS, estate_request
from tests.unit.rollup.report.small_request import small_request
from tidegate.rollup.report import period_tables
from tidegate.rollup.report.csv_text import csv_text
from tidegate.rollup.report.figures import ReportFigures, TrafficPoint
from tidegate.rollup.report.gathering import figures_of
from tidegate.rollup.report.page import page_html
from tidegate.rollup.report.sheets import sheets_of
from tidegate.rollup.schemas import FIVE_MINUTES_MS, HOUR_MS

Row = Mapping[str, object]


def estate_hours(count: int, *, with_five_minutes: bool = True) -> ReportFigures:
    """The estate from the hour before its hot broker on."""
    start_ms = START_MS + 2 * HOUR_MS
    request = estate_request(with_five_minutes=with_five_minutes)
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
        {"window_start": start, "broker": broker, "user": user, "direction": way, "bytes": count, "tier": tiers[start, user]}  # type: ignore[index]
        for (start, broker, user, way), count in sums.items()
    ]


@pytest.mark.parametrize("count", [1, 6])
def test_there_is_a_point_for_every_five_minutes_and_every_byte_is_in_them(count: int) -> None:
    figures = estate_hours(count)
    assert {point.seconds for point in (*figures.traffic, *figures.load)} == {300.0}
    assert len({point.start for point in figures.traffic}) == len({point.start for point in figures.load}) == 12 * count
    assert by_tier(figures.traffic) == {(one.tier, one.direction): one.bytes for one in figures.tiers}
    for card in figures.brokers:
        ours = [point for point in figures.load if (point.broker, point.direction) == (card.broker, card.direction)]
        assert sum(point.nic_bytes for point in ours) == card.nic_bytes
        assert max(point.rate for point in ours) == card.busiest_rate


def test_sums_by_tier_are_those_of_the_same_period_drawn_by_the_hour() -> None:
    fine, coarse = estate_hours(6), estate_hours(6, with_five_minutes=False)
    assert {point.seconds for point in (*coarse.traffic, *coarse.load)} == {3600.0}
    assert by_tier(fine.traffic) == by_tier(coarse.traffic)


def test_nothing_but_what_is_drawn_is_finer(monkeypatch: pytest.MonkeyPatch) -> None:
    fine = estate_hours(6)
    monkeypatch.setattr(period_tables, "_SHORT_MS", 0)
    coarse = estate_hours(6)
    assert (fine.traffic, fine.load) != (coarse.traffic, coarse.load)
    assert replace(fine, traffic=(), load=()) == replace(coarse, traffic=(), load=())


def test_a_longer_period_is_drawn_by_the_hour() -> None:
    figures = estate_hours(7)
    assert {point.seconds for point in (*figures.traffic, *figures.load)} == {3600.0}


@given(
    st.lists(
        st.tuples(
            st.integers(0, 23), st.integers(1, 2), st.sampled_from("abc"), st.sampled_from(("fetch", "produce")), st.integers(0, 2**50)
        ),
        unique_by=lambda row: row[:4],
        min_size=1,
    ),
    st.lists(st.sampled_from(("", "s", "t")), min_size=6, max_size=6),
)
def test_whatever_moved_the_drawn_bytes_are_those_of_the_hours(rows: list[tuple[int, int, str, str, int]], named: list[str]) -> None:
    fine = [window(at, broker=broker, user=user, direction=way, bytes=count) for at, broker, user, way, count in rows]
    tiers = {(START_MS + place % 2 * HOUR_MS, "abc"[place // 2]): tier for place, tier in enumerate(named)}
    usage = hours_of(fine, tiers)
    figures = figures_of(small_request(usage, usage_5m=fine))
    assert {point.seconds for point in figures.traffic} == {300.0}
    told: Counter[object] = Counter()
    drawn: Counter[object] = Counter()
    for row in usage:
        told[row["tier"], row["direction"]] += row["bytes"]  # type: ignore[assignment]
    for key, count in by_tier(figures.traffic).items():
        drawn[key] += count
    assert drawn == told


def test_who_changes_tiers_at_the_hour_is_drawn_in_both() -> None:
    fine = [window(11, broker=1, user="a", direction="fetch", bytes=3), window(12, broker=1, user="a", direction="fetch", bytes=5)]
    usage = hours_of(fine, {(START_MS, "a"): "before", (START_MS + HOUR_MS, "a"): "after"})
    points = figures_of(small_request(usage, usage_5m=fine)).traffic
    assert [(point.start[11:16], point.tier, point.bytes) for point in points] == [("00:55", "before", 3), ("01:00", "after", 5)]


def test_a_window_without_rows_is_no_point() -> None:
    fine = [window(at, user="a", bytes=300) for at in (0, 2, 3)]
    cards = [window(at, nic_bytes=600, limit=4) for at in (0, 3)]
    request = small_request(
        [{"user": "a", "bytes": 900}], [{"nic_bytes": 1200, "limit": 4}], usage_5m=fine, broker_5m=cards, end_ms=START_MS + HOUR_MS
    )
    figures = figures_of(request)
    assert [point.start[11:16] for point in figures.traffic] == ["00:00", "00:10", "00:15"]
    assert [(point.start[11:16], point.rate, point.share) for point in figures.load] == [("00:00", 2.0, 0.5), ("00:15", 2.0, 0.5)]


@pytest.mark.parametrize(
    "fine", [[window(0, user="a", bytes=8)], [window(0, user="a", bytes=9), window(1, user="a", bytes=1)], [window(0, user="b", bytes=9)]]
)
def test_where_five_minutes_and_hours_do_not_agree_the_hours_are_drawn(fine: list[dict[str, object]]) -> None:
    request = small_request([{"user": "a", "tier": "t", "bytes": 9}], usage_5m=fine, end_ms=START_MS + HOUR_MS)
    (point,) = figures_of(request).traffic
    assert (point.seconds, point.bytes) == (3600.0, 9)


def test_the_page_tells_its_grain() -> None:
    page = page_html(estate_hours(1))
    assert "60 min, tables by the hour" in page
    assert page.count("Mean rate of every 5 min by tier") == 2 * 2  # in the caption, and for those who cannot see the plot
    assert page.count("The mean of every 5 min as a share of the broker&#x27;s limit.") == 2 * 2
    assert "Mean of each step as a share of the broker&#x27;s limit, fetch" in page
    assert "2026-11-20 02:05 UTC, 5 min\n" in page
    assert "Mean rate of every hour" not in page
    assert "of every cell" not in page


def test_the_page_of_a_longer_period_tells_its_own() -> None:
    page = page_html(estate_hours(7))
    assert "7 h, by the hour" in page
    assert page.count("Mean rate of every hour by tier") == page.count("The busiest 5 min of every cell") == 2 * 2
    assert "2026-11-20 02:00 UTC, 1.00 h\n" in page


def test_the_csv_files_have_every_point() -> None:
    figures = estate_hours(1)
    rows = list(csv.DictReader(io.StringIO(csv_text(sheets_of(figures)["traffic"]))))
    assert sum(int(row["bytes"]) for row in rows) == figures.total_bytes
    assert {row["seconds"] for row in rows} == {"300.0"}
