"""Ticks, scales and elements of plots: round, few, and no name becomes markup."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.report.svg import Rows, Scale, element, round_ticks, time_ticks

MIDNIGHT = 1_795_132_800


@given(st.floats(1e-6, 1e15))
def test_ticks_reach_the_top_and_are_few(top: float) -> None:
    ticks = round_ticks(top)
    assert ticks[0] == 0
    assert ticks[-1] >= top * 0.998
    assert 2 <= len(ticks) <= 8


def test_nothing_has_an_axis_all_the_same() -> None:
    assert round_ticks(0.0) == (0.0, 1.0)


@pytest.mark.parametrize("seconds", [60, 600, 3600, 86_400, 2 * 86_400, 31 * 86_400, 400 * 86_400])
def test_times_are_round_and_within_the_period(seconds: int) -> None:
    ticks = list(time_ticks(MIDNIGHT, MIDNIGHT + seconds))
    assert 1 <= len(ticks) <= 9
    assert all(MIDNIGHT <= at <= MIDNIGHT + seconds for at, _ in ticks)


def test_midnight_is_labelled_by_its_day() -> None:
    assert [words for _, words in time_ticks(MIDNIGHT, MIDNIGHT + 86_400, count=4)] == [
        "20 Nov",
        "06:00",
        "12:00",
        "18:00",
        "21 Nov",
    ]


def test_a_scale_maps_its_ends_to_its_ends() -> None:
    scale = Scale(2.0, 4.0, 100.0, 0.0)
    assert [scale.at(value) for value in (2.0, 3.0, 4.0)] == [100.0, 50.0, 0.0]


def test_a_logarithmic_scale_shows_halvings_as_equal_steps() -> None:
    scale = Scale(1.0, 16.0, 0.0, 80.0, is_logarithmic=True)
    assert [scale.at(value) for value in (1, 2, 4, 16)] == pytest.approx([0.0, 20.0, 40.0, 80.0])


def test_no_text_or_attribute_becomes_markup() -> None:
    drawn = element(
        "text", "<b>&", element("title", "x"), None, data_tip='"><script>', x=1.25, class_=None
    )
    assert (
        drawn
        == '<text data-tip="&#34;&gt;&lt;script&gt;" x="1.2">&lt;b&gt;&amp;<title>x</title></text>'
    )


def test_a_name_is_cut_to_the_room_that_its_row_has() -> None:
    assert "user-with-a-name-that-is-long" in Rows(20).name("user-with-a-name-that-is-long", 0)
    assert "user-wi…" in Rows(20, left=76).name("user-with-a-name-that-is-long", 0)
