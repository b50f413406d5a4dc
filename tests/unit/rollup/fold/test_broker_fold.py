"""Properties of every fold: the order of series and the cut into runs change no row, and sums are
those of the counters.
"""

import random
from dataclasses import fields
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.rollup.fold.broker_history import BrokerHistory, windows
from tidegate.rollup.fold.broker import DirectionSamples, broker_table, fold_broker, usage_table
from tidegate.rollup.schemas import BROKER, USAGE_5M

SEARCH = settings(deadline=None, max_examples=10)
numbers = st.integers(0, 2**32)
cuts = st.sets(st.integers(1, 23), min_size=1, max_size=4)
WHOLE = windows(24)


def in_order(table: pa.Table) -> pa.Table:
    """As rows are stored: by their key."""
    key = [
        name
        for name in ("user", "client_id", "direction", "window_start")
        if name in table.column_names
    ]
    return table.sort_by([(name, "ascending") for name in key])


@SEARCH
@given(numbers, cuts)
def test_one_run_or_many_give_the_same_rows(number: int, cuts: set[int]) -> None:
    history, edges = BrokerHistory.wild(number), [0, *sorted(cuts), 24]
    parts = [history.fold(windows(until - begin, first=begin)) for begin, until in pairwise(edges)]
    whole = history.fold(WHOLE)
    assert in_order(pa.concat_tables(map(usage_table, parts))).equals(usage_table(whole))
    assert in_order(pa.concat_tables(map(broker_table, parts))).equals(broker_table(whole))


@SEARCH
@given(numbers)
def test_the_order_of_series_changes_no_row(number: int) -> None:
    read = BrokerHistory.wild(number).read(WHOLE)
    shuffled = {
        way: DirectionSamples(
            **{
                field.name: random.sample(found := getattr(each, field.name), len(found))
                for field in fields(each)
            }
        )
        for way, each in reversed(read.items())
    }
    folds = [fold_broker(1, samples, WHOLE, interval_ms=15_000) for samples in (read, shuffled)]
    assert usage_table(folds[0]).equals(usage_table(folds[1]))
    assert broker_table(folds[0]).equals(broker_table(folds[1]))


@SEARCH
@given(numbers)
def test_users_and_unattributed_are_what_the_broker_counted(number: int) -> None:
    fold = BrokerHistory.wild(number).fold(WHOLE)
    usage = (
        usage_table(fold)
        .group_by(["direction", "window_start"])
        .aggregate([("bytes", "sum")])
        .to_pylist()
    )
    users = {(row["direction"], row["window_start"]): row["bytes_sum"] for row in usage}
    for row in broker_table(fold).to_pylist():
        assert (
            users.pop((row["direction"], row["window_start"]), 0) + row["unattributed_bytes"]
            == row["client_bytes"]
        )
        assert row["unattributed_bytes"] >= 0
    assert users == {}


@SEARCH
@given(numbers)
def test_every_row_keeps_its_bounds(number: int) -> None:
    for row in usage_table(BrokerHistory.wild(number).fold(WHOLE)).to_pylist():
        assert 0 <= row["coverage"] <= 1
        assert 0 <= row["throttled_seconds"] <= 300
        assert 0 <= row["samples"] <= 21
        assert row["bytes"] >= 0
        assert row["calibration"] is None or row["calibration"] > 0


@pytest.mark.parametrize("number", range(3))
def test_tables_have_exactly_the_columns_of_the_store_in_its_order(number: int) -> None:
    fold = BrokerHistory.wild(number).fold(WHOLE)
    usage, broker = usage_table(fold), broker_table(fold)
    assert (usage.schema, broker.schema) == (USAGE_5M, BROKER)
    assert usage.num_rows > 50
    assert (in_order(usage), in_order(broker)) == (usage, broker)
    usage.validate(full=True)
    broker.validate(full=True)


def test_a_broker_of_which_nothing_is_known_has_no_rows() -> None:
    fold = fold_broker(7, {}, WHOLE)
    assert (usage_table(fold).num_rows, broker_table(fold).num_rows) == (0, 0)
    assert (usage_table(fold).schema, broker_table(fold).schema) == (USAGE_5M, BROKER)
