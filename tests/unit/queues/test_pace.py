"""What the operator tells forwarders, as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.queues.pace import pace_text, parse_pace
from tidegate_logic.queues.shift import Pace, Shift

POSITIVE = st.integers(1, 2**53)


@given(st.builds(Pace, st.builds(Shift, POSITIVE, POSITIVE), st.frozensets(st.integers(0, 2**31))))
def test_what_is_written_is_read(pace: Pace) -> None:
    assert parse_pace(pace_text(pace)) == pace


def test_the_format_is_this() -> None:
    assert pace_text(Pace(Shift(3600, 20_000_000), frozenset({3, 1}))) == (
        b'{"v":1,"over":[1,3],"latest_seconds":3600,"bytes_per_second":20000000}'
    )


@pytest.mark.parametrize(
    "text",
    [
        None,
        b"",
        b"\xff",
        b"[]",
        b"7",
        b'{"v":2,"over":[1],"latest_seconds":60,"bytes_per_second":1}',
        b'{"v":1,"over":1,"latest_seconds":60,"bytes_per_second":1}',
        b'{"v":1,"over":[1],"latest_seconds":0,"bytes_per_second":1}',
        b'{"v":1,"over":[1],"latest_seconds":60,"bytes_per_second":-1}',
        b'{"v":1,"over":[1],"latest_seconds":60}',
        b'{"v":1,"over":[1e999],"latest_seconds":60,"bytes_per_second":1}',
        b"[" * 100_000,
    ],
)
def test_nothing_waits_for_what_cannot_be_read(text: bytes | None) -> None:
    assert parse_pace(text) is None
