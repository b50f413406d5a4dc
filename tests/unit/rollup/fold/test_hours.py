"""Hours of a broker are the sums of their windows; ranks are exact, and sketches within 1 %."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.rollup.fold.hours import (
    ERROR,
    GROWTH,
    broker_day,
    broker_hour,
    bucket_of,
    ranked,
    usage_day,
    usage_hour,
)
from tidegate.rollup.labels import NO_LABELS, labels_text
from tidegate.rollup.schemas import BROKER, DAY_MS, FIVE_MINUTES_MS, HOUR_MS, USAGE, USAGE_5M

HOUR = 494_445 * HOUR_MS
LABELS = '{"team":"shop"}'


def usage(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    zeros = {
        "broker": 7,
        "client_id": "",
        "peak_rate": 0.0,
        "throttled_seconds": 0.0,
        "over_contract_seconds": 0.0,
        "deferred_bytes": 0,
        "samples": 20,
        "coverage": 1.0,
        "calibration": 1.0,
    }
    return pa.Table.from_pylist([{**zeros, **row} for row in rows], schema=USAGE_5M)


def five(user: str, direction: str, counts: Sequence[int], **more: Any) -> list[dict[str, Any]]:
    return [
        {
            "window_start": HOUR + number * FIVE_MINUTES_MS,
            "user": user,
            "direction": direction,
            "bytes": count,
            **{name: values[number] for name, values in more.items()},
        }
        for number, count in enumerate(counts)
    ]


def test_a_client_has_one_row_of_an_hour_and_direction_with_what_it_moved() -> None:
    counts = [300 * number for number in range(12)]
    rows = usage(
        [
            *five("a", "fetch", counts, peak_rate=[float(n) for n in range(12)]),
            *five("a", "produce", [5, 7], deferred_bytes=[1, 2], throttled_seconds=[15.0, 30.0]),
            *five("b", "produce", [9], coverage=[0.6]),
        ]
    )
    made = usage_hour(rows, {("a", ""): ("ns/gold", LABELS)})
    assert made.schema.equals(USAGE)
    first, second, third = made.to_pylist()
    assert (first["bytes"], first["peak_rate"], first["samples"]) == (300 * 66, 11.0, 240)
    # nearest ranks of 0, 1, .. 11 B/s: the 6th, the 12th and the 12th
    assert (first["p50"], first["p95"], first["p99"]) == (5.0, 11.0, 11.0)
    assert (first["tier"], first["labels"], first["coverage"]) == ("ns/gold", LABELS, 1.0)
    assert (second["direction"], second["bytes"], second["deferred_bytes"]) == ("produce", 12, 3)
    assert (second["throttled_seconds"], second["coverage"]) == (45.0, pytest.approx(2 / 12))
    assert (third["tier"], third["labels"], third["p50"]) == ("", "{}", 9 / 300)
    assert third["coverage"] == pytest.approx(0.05)
    assert {row["window_start"].timestamp() for row in made.to_pylist()} == {HOUR / 1000}


def test_hours_are_kept_apart() -> None:
    rows = five("a", "fetch", [1] * 24)
    assert usage_hour(usage(rows), {})["bytes"].to_pylist() == [12, 12]


def test_a_broker_has_the_limit_that_was_in_force_last() -> None:
    def window(number: int, direction: str, limit: int | None) -> dict[str, Any]:
        names = ("nic_bytes", "client_bytes", "replication_bytes", "unattributed_bytes")
        return {
            "window_start": HOUR + number * FIVE_MINUTES_MS,
            "broker": 7,
            "direction": direction,
            "limit": limit,
            "over_limit_seconds": 1.5,
            **{name: 10**place + number for place, name in enumerate(names)},
        }

    rows = [window(0, "fetch", 5), window(1, "fetch", 6), window(2, "fetch", None)]
    rows += [window(0, "produce", None)]
    made = broker_hour(pa.Table.from_pylist(rows, schema=BROKER))
    assert made.schema.equals(BROKER)
    first, second = made.to_pylist()
    assert (first["limit"], first["over_limit_seconds"], first["client_bytes"]) == (6, 4.5, 33)
    assert (second["limit"], second["replication_bytes"]) == (None, 100)


def test_no_rows_are_no_hour() -> None:
    assert usage_hour(USAGE_5M.empty_table(), {}).equals(USAGE.empty_table())
    assert broker_hour(BROKER.empty_table()).equals(BROKER.empty_table())
    assert usage_day(USAGE_5M.empty_table(), USAGE.empty_table()).equals(USAGE.empty_table())
    assert broker_day(BROKER.empty_table()).equals(BROKER.empty_table())


DAY = HOUR - HOUR % DAY_MS
SHOP, OPS = labels_text([("team", "shop")]), labels_text([("team", "ops")])
PLACES = [("", NO_LABELS), ("ns/gold", SHOP), ("ns/gold", OPS), ("ns/bulk", OPS)]
clients = st.sampled_from([("a", ""), ("a", "x"), ("b", ""), ("", "x"), ("ab", "c"), ("a", "bc")])
windows = st.fixed_dictionaries(
    {
        "bytes": st.integers(0, 10**12),
        "peak_rate": st.integers(0, 10**6).map(float),
        "throttled_seconds": st.integers(0, 300).map(float),
        "over_contract_seconds": st.integers(0, 300).map(float),
        "deferred_bytes": st.integers(0, 10**9),
        "samples": st.integers(0, 20),
        "coverage": st.sampled_from([0.0, 0.25, 0.5, 1.0]),
    }
)
keys = st.tuples(
    st.integers(0, 287), clients, st.sampled_from(["fetch", "produce"]), st.integers(7, 8)
)


@settings(max_examples=60)
@given(
    st.dictionaries(keys, windows, max_size=60),
    st.dictionaries(st.tuples(st.integers(0, 23), clients), st.sampled_from(PLACES)),
    st.randoms(use_true_random=False),
)
def test_a_day_is_the_sum_of_its_windows_by_the_tiers_and_labels_of_its_hours(
    moved: dict[Any, dict[str, Any]], places: dict[Any, tuple[str, str]], order: Any
) -> None:
    rows = [
        {
            "window_start": DAY + number * FIVE_MINUTES_MS,
            "user": user,
            "client_id": client_id,
            "direction": direction,
            "broker": broker,
            **measured,
        }
        for (number, (user, client_id), direction, broker), measured in moved.items()
    ]
    order.shuffle(rows)
    hours = [
        {
            "window_start": DAY + hour * HOUR_MS,
            "user": user,
            "client_id": client_id,
            "tier": tier,
            "labels": labels,
        }
        for (hour, (user, client_id)), (tier, labels) in places.items()
        for _ in range(2)  # of both directions
    ]
    names = ["window_start", "user", "client_id", "tier", "labels"]
    of_hours = pa.Table.from_pylist(hours, schema=pa.schema([USAGE.field(one) for one in names]))
    made = usage_day(usage(rows), of_hours)
    assert made.schema.equals(USAGE)
    expected: dict[Any, list[dict[str, Any]]] = {}
    for (number, client, direction, broker), measured in sorted(moved.items()):
        place = places.get((number // 12, client), ("", NO_LABELS))
        expected.setdefault((*client, *place, direction, broker), []).append(measured)
    columns = ("user", "client_id", "tier", "labels", "direction", "broker")
    found = {tuple(row[name] for name in columns): row for row in made.to_pylist()}
    assert len(found) == made.num_rows
    assert found.keys() == expected.keys()
    for key, windows_of_key in expected.items():
        row, counts = found[key], sorted(one["bytes"] for one in windows_of_key)
        for name in ("bytes", "throttled_seconds", "over_contract_seconds", "deferred_bytes"):
            assert row[name] == sum(one[name] for one in windows_of_key), name
        assert row["peak_rate"] == max(one["peak_rate"] for one in windows_of_key)
        assert row["samples"] == sum(one["samples"] for one in windows_of_key)
        assert row["coverage"] == sum(one["coverage"] for one in windows_of_key) / 288
        assert row["p95"] == counts[-(-len(counts) * 95 // 100) - 1] / 300
        assert sum(dict(row["sketch"]).values()) == len(counts)
        assert row["window_start"].timestamp() * 1000 == DAY


def test_a_brokers_day_has_the_limit_of_its_last_window_that_had_one() -> None:
    names = ("nic_bytes", "client_bytes", "replication_bytes", "unattributed_bytes")
    rows = [
        {
            "window_start": DAY + hour * HOUR_MS,
            "broker": 7,
            "direction": direction,
            "limit": limit,
            "over_limit_seconds": 1.5,
            **dict.fromkeys(names, 10 + hour),
        }
        for hour, direction, limit in (
            (20, "fetch", None),
            (3, "fetch", 5),
            (1, "produce", None),
            (11, "fetch", 6),
        )
    ]
    made = broker_day(pa.Table.from_pylist(rows, schema=BROKER))
    assert made.schema.equals(BROKER)
    found = {row["direction"]: row for row in made.to_pylist()}
    fetch, produce = found["fetch"], found["produce"]
    assert (fetch["limit"], fetch["over_limit_seconds"], fetch["client_bytes"]) == (6, 4.5, 64)
    assert (produce["limit"], produce["nic_bytes"]) == (None, 11)
    assert {row["window_start"].timestamp() for row in made.to_pylist()} == {DAY / 1000}


@given(st.lists(st.lists(st.integers(0, 10**13), max_size=30), min_size=1, max_size=5))
@settings(max_examples=200, deadline=None)
def test_ranks_are_those_of_each_row_and_the_sketch_is_near_them(lists: list[list[int]]) -> None:
    edges = np.cumsum([0, *(len(one) for one in lists)])
    found = ranked(np.array([one for each in lists for one in each], np.int64), edges)
    for number, values in enumerate(lists):
        rates = sorted(value / 300 for value in values)
        entries = found.sketch[number].as_py()
        if not values:
            assert entries is None
            assert all(one[number].as_py() is None for one in found.percentiles.values())
            continue
        assert sum(count for _, count in entries) == len(values)
        for percent in (50, 95, 99):
            place = -(-len(rates) * percent // 100) - 1
            assert found.percentiles[f"p{percent}"][number].as_py() == rates[place]
            estimate = at_rank(entries, place)
            assert abs(estimate - rates[place]) <= max(ERROR * rates[place] * (1 + 1e-9), 1.0)


def at_rank(entries: Sequence[tuple[int, int]], place: int) -> float:
    """As docs/usage-tables.md has it in SQL."""
    for bucket, count in entries:
        if place < count:
            return 0.0 if bucket == 0 else 2 * GROWTH**bucket / (GROWTH + 1)
        place -= count
    raise AssertionError("the sketch has too few values")


def test_buckets_have_the_edges_that_the_documentation_says() -> None:
    assert bucket_of(np.array([0.0, 1.0, 1.0001, GROWTH, GROWTH * 1.0001])).tolist() == [
        *(0, 0, 1, 1, 2)
    ]
