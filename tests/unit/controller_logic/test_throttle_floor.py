"""The rate below which no client is throttled."""

from dataclasses import replace

import pytest

from tests.goldens.golden import numbers
from tests.unit.controller_logic.plant import BARE, IN, MB, OUT
from tidegate_logic.model import MIN_BYTE_RATE, Entity, Level
from tidegate_logic.throttle.buckets import floor_of
from tidegate_logic.throttle.input import ClientFloors, ManagedRate

CONSUMER = ManagedRate(Entity("a"), OUT, Level.L3, 50 * MB, 2 * MB, 50 * MB, frozenset({1}))
PRODUCER = replace(CONSUMER, direction=IN, producers=20)


def test_a_tiers_throttled_rate_is_the_floor() -> None:
    assert floor_of(CONSUMER, ClientFloors()).value == 2 * MB
    assert not floor_of(CONSUMER, ClientFloors()).because


def test_never_below_what_kafka_throttles_on() -> None:
    assert floor_of(replace(CONSUMER, floor=5), BARE).value == MIN_BYTE_RATE


def test_a_consumer_gets_a_mebibyte_and_that_is_said() -> None:
    floor = floor_of(replace(CONSUMER, floor=40_000), ClientFloors())
    assert floor.value == 1_000_000
    assert numbers(floor.because) == {1.0}


def test_a_higher_floor_for_consumers_is_kept() -> None:
    assert floor_of(CONSUMER, ClientFloors(consumer=5 * MB)).value == 5 * MB


def test_every_known_producer_gets_a_full_buffer_per_delivery_timeout() -> None:
    floor = floor_of(PRODUCER, ClientFloors())
    assert floor.value == 20 * 279_621
    assert numbers(floor.because) == {20, 280}


def test_a_floor_is_never_above_the_contract() -> None:
    assert floor_of(replace(PRODUCER, contract=3 * MB), ClientFloors()).value == 3 * MB


def test_who_is_never_throttled_has_no_floor() -> None:
    with pytest.raises(ValueError):
        floor_of(replace(CONSUMER, floor=None), ClientFloors())
