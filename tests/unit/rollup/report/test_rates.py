"""Percentiles by nearest rank, as DuckDB's quantile_disc and numpy's inverted_cdf have them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidegate.rollup.report.rates import nearest_ranks

VALUES = st.lists(st.integers(0, 2**40), min_size=1, max_size=60)


@given(st.lists(VALUES, min_size=1, max_size=4), st.randoms())
def test_every_group_has_the_rank_of_its_own_values_in_whatever_order(groups: list[list[int]], chance: object) -> None:
    rows = [(code, value) for code, values in enumerate(groups) for value in values]
    chance.shuffle(rows)  # type: ignore[attr-defined]
    codes, values = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    expected = [np.quantile(values, 0.95, method="inverted_cdf") for values in groups]
    assert nearest_ranks(codes, values, 0.95).tolist() == expected


@given(VALUES)
def test_nearest_rank_is_a_value_that_as_many_values_do_not_exceed(values: list[int]) -> None:
    (found,) = nearest_ranks(np.zeros(len(values), np.int64), np.array(values), 0.95)
    assert sum(value <= found for value in values) >= 0.95 * len(values) > sum(value < found for value in values)
