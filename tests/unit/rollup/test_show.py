"""The top of a table: sums to the byte, the highest of what has no sum, and words for people that
name the unit.
"""

import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.goldens.golden import numbers
from tests.unit.rollup.tables.bucket import Bucket, store_in
from tests.unit.rollup.tables.usage import DAY, brokers_of, put, put_hours, usage_5m
from tidegate.commands.output import Page
from tidegate.commands.rollup_page import show_top
from tidegate.errors import InvalidResource
from tidegate.rollup.schemas import DAY_MS, FIVE_MINUTES_MS, HOUR_MS, TABLES
from tidegate.rollup.show import Answer, Question, ranked_columns, top
from tidegate.rollup.tables.store import UsageStore

NOW = DAY + DAY_MS


@pytest.fixture(scope="module")
def store() -> UsageStore:
    store = store_in(Bucket())
    put_hours(store, "a", hours=[0, 1], now_ms=NOW, windows=12)
    put(store, "a", "broker_5m", brokers_of(usage_5m(DAY, windows=12)), start_ms=DAY, now_ms=NOW)
    return store


def words_of(answer: Answer) -> str:
    out = io.StringIO()
    show_top(answer, Page(out))
    return out.getvalue()


def test_rows_are_the_sums_over_the_time_highest_first(store: UsageStore) -> None:
    rows: Any = top(store, Question(table="usage_5m")).rows
    expected: dict[tuple[Any, ...], int] = {}
    for row in store.rows("usage_5m").to_pylist():
        key = (row["broker"], row["user"], row["client_id"], row["direction"])
        expected[key] = expected.get(key, 0) + row["bytes"]
    assert {
        (row["broker"], row["user"], row["client_id"], row["direction"]): row["bytes"]
        for row in rows
    } == expected
    assert [row["bytes"] for row in rows] == sorted(expected.values(), reverse=True)


@pytest.mark.parametrize("by", ["throttled_seconds", "deferred_bytes", "peak_rate"])
def test_rows_are_ranked_by_the_column_that_is_asked_for(store: UsageStore, by: str) -> None:
    found: Any = [row[by] for row in top(store, Question(table="usage_5m", by=by)).rows]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[-1]


def test_a_peak_is_the_highest_and_coverage_the_mean_of_the_windows(store: UsageStore) -> None:
    row: Any = top(store, Question(table="usage_5m", most=1)).rows[0]
    mine = [
        each
        for each in store.rows("usage_5m").to_pylist()
        if all(each[name] == row[name] for name in TABLES["usage_5m"].key[:-1])
    ]
    assert row["peak_rate"] == max(each["peak_rate"] for each in mine)
    assert row["coverage"] == 1.0
    assert row["mean_rate"] == sum(each["bytes"] for each in mine) / 7200


def test_a_range_counts_its_own_windows_and_time_only(store: UsageStore) -> None:
    answer = top(
        store,
        Question(table="usage_5m", start_ms=DAY + HOUR_MS, end_ms=DAY + HOUR_MS + FIVE_MINUTES_MS),
    )
    assert answer.published_seconds == 300
    assert answer.document()["firstWindow"] == "2026-11-21T01"
    assert {row["bytes"] for row in answer.rows} == set(
        store.rows("usage_5m", DAY + HOUR_MS, DAY + HOUR_MS + FIVE_MINUTES_MS)["bytes"].to_pylist()
    )


def test_what_is_left_out_is_counted(store: UsageStore, golden: Callable[[str], None]) -> None:
    answer = top(store, Question(table="usage_5m", most=5))
    assert (len(answer.rows), answer.others) == (5, 7)
    last = words_of(answer).splitlines()[-1]
    assert 7 in numbers(last)
    assert top(store, Question(table="usage_5m", most=0)).others == 0
    golden(last)


def test_brokers_are_ranked_by_their_nics_bytes(
    store: UsageStore, golden: Callable[[str], None]
) -> None:
    answer = top(store, Question(table="broker_5m"))
    assert answer.by == "nic_bytes"
    text = words_of(answer)
    assert 39.6 in numbers(text)
    golden(text)


def test_people_see_units_and_programs_whole_numbers(store: UsageStore) -> None:
    answer = top(store, Question(table="usage_5m"))
    text = words_of(answer)
    assert "26.4 TB" in text
    assert 3.67 in numbers(text)
    assert "100 %" in text
    document: Any = json.loads(json.dumps(answer.document()))
    assert isinstance(document["rows"][0]["bytes"], int)


def test_nothing_published_is_said_in_words(
    store: UsageStore, golden: Callable[[str], None]
) -> None:
    answer = top(store, Question(table="tier_1d"))
    assert "tier_1d" in words_of(answer)
    assert answer.document()["rows"] == []
    golden(words_of(answer))


@pytest.mark.parametrize(
    ("question", "named"),
    [
        (Question(table="usage_1w"), "usage_1w"),
        (Question(table="usage_5m", by="user"), "bytes, peak_rate"),
        (Question(table="broker_5m", by="bytes"), "nic_bytes"),
        (Question(table="usage_5m", start_ms=DAY, end_ms=DAY), "2026-11-21T00:00:00Z"),
    ],
)
def test_a_question_without_sense_is_refused_with_what_can_be_asked(
    store: UsageStore, question: Question, named: str, golden: Callable[[str], None]
) -> None:
    with pytest.raises(InvalidResource) as refused:
        top(store, question)
    assert named in refused.value.message
    golden(refused.value.message)


@pytest.mark.parametrize("table", TABLES)
def test_every_table_can_be_shown_when_empty_and_has_something_to_rank_by(table: str) -> None:
    assert top(store_in(Bucket()), Question(table=table)).rows == []
    assert ranked_columns(table)


def test_what_is_on_nobodys_account_is_shown_beside_the_rows() -> None:
    """Five bytes of each broker, direction and window: see `brokers_of`."""
    store = store_in(Bucket())
    for at_ms in (DAY, DAY + HOUR_MS):
        usage = usage_5m(at_ms)
        put(store, "a", "usage_5m", usage, start_ms=at_ms, now_ms=NOW)
        put(store, "a", "broker_5m", brokers_of(usage), start_ms=at_ms, now_ms=NOW)
    answer = top(store, Question(table="usage_5m", end_ms=DAY + HOUR_MS))
    brokers, windows = 2, 2
    total = sum(
        row["bytes"]
        for row in store.rows("usage_5m", None, DAY + HOUR_MS).to_pylist()
        if row["direction"] == "fetch"
    )
    assert answer.unattributed["fetch"] == (5 * brokers * windows, total + 5 * brokers * windows)
    assert answer.document()["unattributedBytes"] == {"fetch": 20, "produce": 20}
    assert top(store, Question(table="broker_5m")).unattributed == {}
