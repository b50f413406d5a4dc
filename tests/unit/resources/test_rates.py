"""Byte rates are exact integers, whatever suffix they are written with."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.goldens.golden import numbers
from tidegate.resources.rates import (
    CEILING_BYTES_PER_SECOND,
    FLOOR_BYTES_PER_SECOND,
    parse_byte_rate,
    rate_hint,
)


@pytest.mark.parametrize(
    ("written", "bytes_per_second"),
    [
        ("52428800", 52_428_800),
        ("50Mi", 52_428_800),
        ("50M", 50_000_000),
        ("1250M", 1_250_000_000),
        ("3Gi", 3 * 1024**3),
        ("2k", 2000),
        ("1Ki", 1024),
        ("1T", 10**12),
        ("8191Ti", 8191 * 1024**4),
        ("1024", FLOOR_BYTES_PER_SECOND),
        ("9007199254740991", CEILING_BYTES_PER_SECOND),
        ("1.5Gi", 1_610_612_736),
        ("0.5Mi", 524_288),
        ("1.50Ki", 1536),
        ("2.0625Ki", 2112),
        ("1.234k", 1234),
        ("0.001234G", 1_234_000),
        ("1.000001T", 1_000_001_000_000),
    ],
)
def test_every_form_means_its_exact_number_of_bytes_per_second(
    written: str, bytes_per_second: int
) -> None:
    assert parse_byte_rate(written) == bytes_per_second


@given(st.integers(FLOOR_BYTES_PER_SECOND, CEILING_BYTES_PER_SECOND))
def test_a_whole_number_in_range_means_itself(rate: int) -> None:
    assert parse_byte_rate(str(rate)) == rate


@given(
    st.one_of(
        st.integers(max_value=FLOOR_BYTES_PER_SECOND - 1),
        st.integers(min_value=CEILING_BYTES_PER_SECOND + 1),
    )
)
def test_a_number_out_of_range_is_refused(rate: int) -> None:
    with pytest.raises(ValueError) as refused:
        parse_byte_rate(str(rate))
    assert numbers(str(refused.value)) >= {FLOOR_BYTES_PER_SECOND, CEILING_BYTES_PER_SECOND}


@given(
    st.integers(0, 5000),
    st.text("0123456789", min_size=1, max_size=6),
    st.sampled_from(["k", "M", "Ki", "Mi", "Gi", "Ti"]),
)
def test_a_fraction_is_taken_where_it_comes_out_as_whole_bytes(
    whole: int, decimals: str, suffix: str
) -> None:
    factor = {"k": 10**3, "M": 10**6, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}[suffix]
    value = Decimal(f"{whole}.{decimals}") * factor
    in_range = FLOOR_BYTES_PER_SECOND <= value <= CEILING_BYTES_PER_SECOND
    written = f"{whole}.{decimals}{suffix}"
    if in_range and value == int(value) and not (suffix == "k" and len(decimals) > 3):
        assert parse_byte_rate(written) == value
    else:
        with pytest.raises(ValueError) as refused:
            parse_byte_rate(written)
        assert numbers(str(refused.value)) >= {FLOOR_BYTES_PER_SECOND, CEILING_BYTES_PER_SECOND}


@pytest.mark.parametrize("written", [52_428_800, 2048.0, True])
def test_a_bare_number_is_refused_with_the_way_to_write_it(written: object) -> None:
    with pytest.raises(ValueError, match="52428800"):
        parse_byte_rate(written)


@pytest.mark.parametrize(
    "written", [None, [2048], b"2048", "2048 ", "2048\n", "2_048", "２０４８", "10MiB"]
)
def test_what_is_no_rate_is_refused(written: object) -> None:
    with pytest.raises(ValueError):
        parse_byte_rate(written)


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("80MB", "80MB: write 80M (bytes per second)"),
        ("80 MB/s", "80 MB/s: write 80M (bytes per second)"),
        ("80m", "80m: write 80M (bytes per second)"),
        ("80K", "80K: write 80k (bytes per second)"),
        ("64kib", "64kib: write 64Ki (bytes per second)"),
        ("1.5GiB", "1.5GiB: write 1.5Gi (bytes per second)"),
        ("2kB", "2kB: write 2k (bytes per second)"),
        ("640Mbit", "640Mbit = 80M"),
        ("640 Mbit/s", "640 Mbit/s = 80M"),
        ("1Gbps", "1Gbps = 125M"),
        ("10Gbit", "10Gbit = 1250M"),
        ("80Mb", "80Mb: write 80M for bytes per second, 10M for bits"),
        ("80M", ""),
        ("1kbit", ""),  # 125 bytes are no rate
        ("fast", ""),
        ("80X", ""),
        ("", ""),
        ("10M\n", ""),
    ],
)
def test_what_was_probably_meant_is_offered(written: str, hint: str) -> None:
    assert rate_hint(written) == hint


@given(st.text(alphabet="0123456789.kKmMgGtTiIbBytespi/ \n", max_size=12))
def test_what_is_offered_is_a_rate(written: str) -> None:
    hint = rate_hint(written)
    offered = hint.removeprefix(written).removeprefix(": write").removeprefix(" =").split()[:1]
    assert not hint or parse_byte_rate(offered[0]) > 0
