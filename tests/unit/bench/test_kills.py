"""A rollup that is disturbed a hundred times: the plan of a seed, and the comparison of its
tables.
"""

from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pytest

from bench.rollup.kills import Kind, Rows, differences, plan

# --- the plan -------------------------------------------------------------------------------------
# A seed names its blows: who reproduces a failure gets the same ones.


def test_the_same_seed_plans_the_same_and_another_one_something_else() -> None:
    assert plan(7, 50) == plan(7, 50)
    assert plan(7, 50) != plan(8, 50)


def test_everybody_is_struck_as_often() -> None:
    assert set(Counter(blow.kind for blow in plan(1, 100)).values()) == {100 // len(Kind)}


def test_a_kind_that_this_machine_cannot_strike_is_left_out() -> None:
    assert {blow.kind for blow in plan(1, 20, (Kind.DRIVER, Kind.WORKER))} == {
        Kind.DRIVER,
        Kind.WORKER,
    }


def test_a_longer_plan_begins_as_the_shorter_one_does() -> None:
    assert plan(3, 40)[:10] == plan(3, 10)


# --- the comparison -------------------------------------------------------------------------------
# Whether a disturbed rollup is right is seen in every row: a comparison that overlooks one would
# let a hundred kills pass.


WINDOW = ("usage_1h", "2026-01-01T00")
ROWS = pa.table({"user": ["alice", "bob"], "bytes": [5, 7], "coverage": [0.3, 1.0]})


def other(**columns: list[object]) -> Rows:
    return {WINDOW: pa.table({**ROWS.to_pydict(), **columns})}


def test_the_same_rows_do_not_differ() -> None:
    assert differences({WINDOW: ROWS}, other(), whole=True) == []


def test_a_sum_of_seconds_in_another_order_is_the_same() -> None:
    assert differences({WINDOW: ROWS}, other(coverage=[0.1 + 0.2, 1.0]), whole=True) == []


@pytest.mark.parametrize(
    "columns", [{"bytes": [5, 8]}, {"user": ["alice", "carol"]}, {"coverage": [0.3, 0.999]}]
)
def test_one_other_value_is_found(columns: dict[str, list[object]]) -> None:
    (said,) = differences({WINDOW: ROWS}, other(**columns), whole=True)
    assert next(iter(columns)) in said


def test_a_lost_row_is_found() -> None:
    assert differences({WINDOW: ROWS}, {WINDOW: ROWS.slice(1)}, whole=False) != []


def test_a_window_may_be_missing_only_while_the_run_was_cut_short(
    golden: Callable[[str], None],
) -> None:
    assert differences({WINDOW: ROWS}, {}, whole=False) == []
    (said,) = differences({WINDOW: ROWS}, {}, whole=True)
    assert " ".join(WINDOW) in said
    golden(said)


def test_a_window_that_is_not_expected_is_wrong(golden: Callable[[str], None]) -> None:
    (said,) = differences({}, {WINDOW: ROWS}, whole=False)
    assert " ".join(WINDOW) in said
    golden(said)
