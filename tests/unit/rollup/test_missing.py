"""Missing hours of a store, by its manifests: gaps, hours published before they were over, and
tables that were not made of finer ones.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.unit.rollup.tables.bucket import Bucket, store_in
from tests.unit.rollup.tables.usage import DAY, put, usage_5m
from tidegate.rollup.schemas import DAY_MS, HOUR_MS, TABLES
from tidegate.rollup.tables.store import UsageStore, stamps
from tidegate.rollup.tables.upkeep import Retention, retire
from tidegate.rollup.tables.verify import RULES, changed_hours, in_runs, missing_hours

FINE = ("usage_5m", "broker_5m")
NOW = DAY + 3 * DAY_MS


@pytest.fixture
def store() -> UsageStore:
    """A whole day with all that is made of it."""
    store = store_in(Bucket())
    for hour in range(24):
        publish_hour(store, hour)
    publish_day(store)
    return store


def publish_hour(
    store: UsageStore, hour: int, *, now_ms: int = NOW, run: str = "a", coarse: bool = True
) -> None:
    at_ms = DAY + hour * HOUR_MS
    for table in FINE:
        rows = TABLES[table].schema.empty_table()
        if table == "usage_5m":
            rows = usage_5m(at_ms, seed=len(run))
        put(store, run, table, rows, start_ms=at_ms, now_ms=now_ms)
    if coarse:
        publish_sums(store, "1h", at_ms, HOUR_MS, now_ms=now_ms, run=run)


def publish_day(store: UsageStore) -> None:
    publish_sums(store, "1d", DAY, DAY_MS, now_ms=NOW, run="day")


def publish_sums(
    store: UsageStore, grain: str, at_ms: int, span_ms: int, *, now_ms: int, run: str
) -> None:
    for table in (f"usage_{grain}", f"broker_{grain}", f"tier_{grain}"):
        finer = {rule.finer for rule in RULES if rule.coarser == table}
        made_from = stamps(store, finer, at_ms, at_ms + span_ms)
        put(
            store,
            run,
            table,
            TABLES[table].schema.empty_table(),
            start_ms=at_ms,
            now_ms=now_ms,
            made_from=made_from,
        )


def missing(store: UsageStore) -> list[int]:
    return [(hour - DAY) // HOUR_MS for hour in missing_hours(store, DAY, DAY + DAY_MS)]


def test_a_whole_store_lacks_nothing_and_an_empty_one_everything(store: UsageStore) -> None:
    assert missing(store) == []
    assert missing(store_in(Bucket())) == list(range(24))


def test_hours_that_are_not_published_are_missing(store: UsageStore) -> None:
    assert missing_hours(store, DAY - HOUR_MS, DAY + DAY_MS + 2 * HOUR_MS) == [
        DAY - HOUR_MS,
        DAY + DAY_MS,
        DAY + DAY_MS + HOUR_MS,
    ]


def test_an_hour_that_was_published_before_it_was_over_is_missing(store: UsageStore) -> None:
    publish_hour(store, 7, now_ms=DAY + 7 * HOUR_MS + HOUR_MS // 2, run="early")
    publish_day(store)
    assert missing(store) == [7]


def test_the_same_rows_after_the_hour_say_that_it_is_whole(store: UsageStore) -> None:
    """As of an hour in whose second half nothing moved."""
    for now_ms in (DAY + 7 * HOUR_MS + HOUR_MS // 2, NOW):
        publish_hour(store, 7, now_ms=now_ms, run="early")
    publish_day(store)
    assert missing(store) == []


def test_a_run_that_died_between_an_hour_and_what_is_made_of_it_is_gone_on_with(
    store: UsageStore,
) -> None:
    publish_hour(store, 7, run="bb", coarse=False)
    assert missing(store) == [7]
    publish_sums(store, "1h", DAY + 7 * HOUR_MS, HOUR_MS, now_ms=NOW, run="b")
    assert missing(store) == [23]  # with the day's last hour the day is made again
    publish_day(store)
    assert missing(store) == []


def test_what_went_out_of_retention_is_not_missing(store: UsageStore) -> None:
    retire(store, Retention(five_minutes_days=1, hours_days=1), run_id="c", now_ms=NOW)
    assert missing(store) == []


@pytest.mark.parametrize(
    ("hours", "runs"),
    [
        ([], []),
        ([3], [(3, 4)]),
        ([3, 4, 5], [(3, 6)]),
        ([3, 5, 6], [(3, 4), (5, 7)]),
        ([22, 23, 24, 25], [(22, 24), (24, 26)]),
    ],
)
def test_neighbours_are_one_run_within_their_day(
    hours: list[int], runs: list[tuple[int, int]]
) -> None:
    found = in_runs([DAY + hour * HOUR_MS for hour in hours])
    assert [((start - DAY) // HOUR_MS, (end - DAY) // HOUR_MS) for start, end in found] == runs


@pytest.mark.parametrize(
    ("now", "is_more"),
    [
        pytest.param({DAY: 960}, None, id="the same"),
        pytest.param({DAY: 1200}, True, id="an agent caught up"),
        pytest.param({DAY: 480}, False, id="the server let some go"),
        pytest.param({}, False, id="the server let all go"),
    ],
)
def test_an_hour_whose_samples_are_others_now_is_found(
    now: Mapping[int, int], is_more: bool | None
) -> None:
    store = store_in(Bucket())
    for at_ms, samples in ((DAY, 960), (DAY + HOUR_MS, None)):
        put(
            *(store, "a", "usage_5m", usage_5m(at_ms)),
            start_ms=at_ms,
            now_ms=DAY + DAY_MS,
            source_samples=samples,
        )
    found = changed_hours(store, now, DAY, DAY + 2 * HOUR_MS)
    assert [(one.start_ms, one.then, one.now, one.is_more) for one in found] == (
        [] if is_more is None else [(DAY, 960, now.get(DAY, 0), is_more)]
    )
