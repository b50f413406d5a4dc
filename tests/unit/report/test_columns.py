"""Numbers as people read them."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.report.columns import (
    UNKNOWN,
    Kind,
    cell_text,
    duration,
    exact_text,
    readable,
    text_with_unit,
)


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (Kind.VOLUME, 0, "0"),
        (Kind.VOLUME, 1, "<0.001"),
        (Kind.VOLUME, 2**30, "1.00"),
        (Kind.VOLUME, 123_456 * 2**30, "123,456"),
        (Kind.RATE, 12_345_678, "12.35"),
        (Kind.RATE, -62_410_000.0, "−62.41"),
        (Kind.SHARE, 0.1234, "12.3 %"),
        (Kind.SHARE, 0.0001, "<0.1 %"),
        (Kind.SHARE, 0, "0 %"),
        (Kind.CHANGE, -0.05, "−5.0 %"),
        (Kind.FACTOR, 0.95, "0.950"),
        (Kind.MONEY, Decimal("1084.5"), "1,084.50"),
        (Kind.MOMENT, "2026-11-20T03:20:00Z", "2026-11-20 03:20"),
        (Kind.MOMENT, "2026-11-20T03:20:07.250Z", "2026-11-20 03:20:07"),
        (Kind.FLAG, True, "yes"),
        (Kind.VOLUME, None, UNKNOWN),
    ],
)
def test_a_figure_is_worded_by_its_kind(kind: Kind, value: object, text: str) -> None:
    assert cell_text(kind, value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0"),
        (0.4, "<1 s"),
        (42, "42 s"),
        (600, "10 min"),
        (7199, "2 h"),
        (17_280, "4 h 48 min"),
        (172_800, "48 h"),
        (273_600, "3 d 4 h"),
        (31 * 86_400, "31 d"),
    ],
)
def test_a_time_has_two_units_at_most(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_all_digits_are_one_hover_away() -> None:
    assert exact_text(Kind.VOLUME, 10_921_503_830_789) == "10,921,503,830,789 bytes"
    assert exact_text(Kind.RATE, 1234.5) == "1,234.500 bytes/s"
    assert exact_text(Kind.VOLUME, None) == exact_text(Kind.TEXT, "x") == ""


def test_a_sentence_has_the_unit_that_a_column_has_in_its_title() -> None:
    assert text_with_unit(Kind.RATE, 2_000_000) == "2.00 MB/s"
    assert text_with_unit(Kind.RATE, None) == UNKNOWN


@given(st.floats(0.001, 1e12))
def test_what_is_shown_is_within_half_a_percent_of_what_is_meant(number: float) -> None:
    shown = float(readable(number).replace(",", ""))
    assert abs(shown - number) <= max(0.005 * number, 0.0005)
