"""Byte rates are exact integers, whatever suffix they are written with."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.goldens.golden import numbers
from tidegate.resources.rates import CEILING_BYTES_PER_SECOND, FLOOR_BYTES_PER_SECOND, parse_byte_rate


@pytest.mark.parametrize(
    ("written", "bytes_per_second"),
    [
        (52_428_800, 52_428_800),
        ("52428800", 52_428_800),
        ("50Mi", 52_428_800),
        ("50M", 50_000_000),
        ("1250M", 1_250_000_000),
        ("3Gi", 3 * 1024**3),
        ("2k", 2000),
        ("1Ki", 1024),
        ("1T", 10**12),
        ("8191Ti", 8191 * 1024**4),
        (FLOOR_BYTES_PER_SECOND, 1024),
        ("9007199254740991", CEILING_BYTES_PER_SECOND),
    ],
)
def test_every_form_means_its_exact_number_of_bytes_per_second(written: object, bytes_per_second: int) -> None:
    assert parse_byte_rate(written) == bytes_per_second


@given(st.integers(FLOOR_BYTES_PER_SECOND, CEILING_BYTES_PER_SECOND))
def test_a_whole_number_in_range_means_itself_as_integer_and_as_text(rate: int) -> None:
    assert parse_byte_rate(rate) == parse_byte_rate(str(rate)) == rate


@given(st.one_of(st.integers(max_value=FLOOR_BYTES_PER_SECOND - 1), st.integers(min_value=CEILING_BYTES_PER_SECOND + 1)))
def test_a_number_out_of_range_is_refused_as_integer_and_as_text(rate: int) -> None:
    for written in (rate, str(rate)):
        with pytest.raises(ValueError) as refused:
            parse_byte_rate(written)
        assert numbers(str(refused.value)) >= {FLOOR_BYTES_PER_SECOND, CEILING_BYTES_PER_SECOND}


@pytest.mark.parametrize("written", [None, True, 2048.0, [2048], b"2048", "2048 ", "2_048", "２０４８", "10MiB"])
def test_what_is_no_rate_is_refused(written: object) -> None:
    with pytest.raises(ValueError):
        parse_byte_rate(written)
