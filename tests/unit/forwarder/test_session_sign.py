"""A session is believed in for two thirds of its timeout after an answered request was sent."""

import time

from tidegate.forwarder.session_sign import SessionSign, seconds_since_boot


class _Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_before_the_first_answer_nothing_is_known() -> None:
    assert not SessionSign(6, _Clock()).is_fresh()


def test_it_counts_from_when_the_answered_request_was_sent() -> None:
    clock = _Clock()
    sign = SessionSign(6, clock)
    clock.now = 103.5  # such a late answer says little
    sign.answered(100)
    assert sign.is_fresh()
    clock.now = 103.999
    assert sign.is_fresh()
    clock.now = 104
    assert not sign.is_fresh()


def test_an_answer_to_an_earlier_request_takes_nothing_away() -> None:
    clock = _Clock()
    sign = SessionSign(6, clock)
    clock.now = 104
    sign.answered(103)
    sign.answered(99)
    assert sign.is_fresh()


def test_the_default_clock_never_goes_back_and_counts_seconds() -> None:
    first, other = seconds_since_boot(), time.clock_gettime(time.CLOCK_BOOTTIME)
    assert first <= other <= seconds_since_boot()
