"""Hours of a broker are the sums of their windows; ranks are exact, and sketches within 1 %."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.rollup.fold.hours import ERROR, GROWTH, broker_hour, bucket_of, ranked, usage_hour
from tidegate.rollup.schemas import BROKER, FIVE_MINUTES_MS, HOUR_MS, USAGE, USAGE_5M

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
