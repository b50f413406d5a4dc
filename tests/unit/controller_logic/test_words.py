"""Rates, sizes, times and ages in words."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate_logic.words import (
    NO_VALUE,
    age_words,
    ago_words,
    clock_words,
    elapsed_words,
    rate_of_words,
    rate_words,
    rfc3339,
    rfc3339_ms,
    size_words,
)

_SIZES = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
NOON = 1_795_262_400.0  # 2026-11-21 12:00:00 UTC


@pytest.mark.parametrize(
    ("amount", "words"),
    [
        (0, "0 B/s"),
        (0.4, "<1 B/s"),
        (999, "999 B/s"),
        (40_000, "40 kB/s"),
        (1024, "1.02 kB/s"),
        (999_499, "999 kB/s"),
        (999_900, "1 MB/s"),
        (58_123_456, "58.1 MB/s"),
        (1_500_000_000, "1.5 GB/s"),
        (9e15, "9 PB/s"),
        (-2_000_000, "-2 MB/s"),
        (None, "unknown"),
        (float("nan"), "unknown"),
        (float("inf"), "unknown"),
    ],
)
def test_a_rate_has_three_digits_and_a_decimal_unit(amount: float | None, words: str) -> None:
    assert rate_words(amount) == words
    assert size_words(amount) == words.replace("B/s", "B")


def test_what_is_missing_in_a_table_is_a_dash_and_not_a_zero() -> None:
    assert rate_words(None, missing=NO_VALUE) == "-"
    assert size_words(None, missing=NO_VALUE) == "-"
    assert rate_words(0, missing=NO_VALUE) == "0 B/s"


@given(st.floats(1, 9e15))
def test_words_are_within_half_a_percent_of_the_rate(amount: float) -> None:
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ([kMGTP]?)B/s", rate_words(amount))
    assert found is not None
    assert float(found[1]) < 1000
    assert len(found[1].replace(".", "")) <= 3
    assert float(found[1]) * _SIZES[found[2]] == pytest.approx(amount, rel=0.005)


@pytest.mark.parametrize(
    ("part", "whole", "words"),
    [
        (58_100_000, 50_000_000, "58.1 of 50 MB/s"),
        (40_000, 50_000_000, "40 kB/s of 50 MB/s"),
        (0, 50_000_000, "0 B/s of 50 MB/s"),
        (50_000_000, 50_000_000, "50 of 50 MB/s"),
        (118_812_000, 118_750_000, "118.81 of 118.75 MB/s"),
        (50_010_000, 50_000_000, "50.01 of 50 MB/s"),
        (50_000_001, 50_000_000, "50 of 50 MB/s"),  # beyond six digits
        (None, 50_000_000, "unknown of 50 MB/s"),
        (50_000_000, None, "50 MB/s of unknown"),
        (None, None, "unknown of unknown"),
    ],
)
def test_a_rate_beside_its_limit_shares_the_unit_and_shows_what_is_over(
    part: float | None, whole: float | None, words: str
) -> None:
    assert rate_of_words(part, whole) == words


def test_times_are_rfc_3339_in_utc_and_cut_to_what_is_asked_for() -> None:
    assert rfc3339(NOON + 15.75) == "2026-11-21T12:00:15Z"
    assert rfc3339(NOON + 15.75, "milliseconds") == "2026-11-21T12:00:15.750Z"
    assert rfc3339(NOON + 15.75, "microseconds") == "2026-11-21T12:00:15.750000Z"
    assert rfc3339_ms(int(NOON) * 1000) == "2026-11-21T12:00:00Z"
    assert rfc3339_ms(int(NOON) * 1000 + 7) == "2026-11-21T12:00:00.007Z"
    assert clock_words(NOON + 59.9) == "12:00:59"


@given(st.integers(0, 4_000_000_000_000))
def test_no_millisecond_is_lost_or_invented(at_ms: int) -> None:
    thousandths = f".{at_ms % 1000:03}Z" if at_ms % 1000 else "Z"
    assert rfc3339_ms(at_ms) == rfc3339(at_ms // 1000)[:-1] + thousandths


def test_ages_and_spans() -> None:
    assert [age_words(one) for one in (-3, 0, 40, 119, 720, 10_800, 432_000)] == [
        *("0 s", "0 s", "40 s", "119 s", "12 min", "3 h", "5 days")
    ]
    assert [ago_words(one) for one in (-3, 0.9, 40)] == ["just now", "just now", "40 s ago"]
    assert [elapsed_words(one) for one in (6, 306, 3906)] == ["0:06", "5:06", "1:05:06"]
