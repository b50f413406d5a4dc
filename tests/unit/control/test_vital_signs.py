"""A loop that is dead or stuck is named; one that waits or has ended is not."""

from collections.abc import Callable

import pytest

from tests.unit.hands import Hands
from tidegate.control.runtime import VitalSigns


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
def signs(clock: Hands) -> VitalSigns:
    return VitalSigns(clock, 120.0)


def test_nothing_is_wrong_where_nothing_runs(signs: VitalSigns) -> None:
    assert signs.failure_text() is None


@pytest.mark.parametrize(("silent_seconds", "complains"), [(119.0, False), (120.0, False), (121.0, True)])
def test_silence_is_a_complaint_only_beyond_the_limit(signs: VitalSigns, clock: Hands, silent_seconds: float, complains: bool) -> None:
    signs.beat("policy streaming/orders")
    clock.now += silent_seconds
    assert (signs.failure_text() is not None) is complains


def test_a_complaint_names_every_silent_loop_and_how_long_it_has_been_silent(
    signs: VitalSigns, clock: Hands, golden: Callable[[str], None]
) -> None:
    signs.beat("manager")
    clock.now += 30
    signs.beat("leases")
    clock.now += 130
    signs.beat("policy streaming/orders")
    assert signs.silent_seconds() == {"leases": 130, "manager": 160}
    golden(signs.failure_text() or "")


def test_a_sign_of_life_ends_a_complaint(signs: VitalSigns, clock: Hands) -> None:
    signs.beat("manager")
    clock.now += 500
    signs.beat("manager")
    assert signs.failure_text() is None


def test_a_loop_that_ended_as_it_should_is_not_missed(signs: VitalSigns, clock: Hands) -> None:
    signs.beat("policy streaming/orders")
    signs.forget("policy streaming/orders")
    clock.now += 500
    assert signs.failure_text() is None
