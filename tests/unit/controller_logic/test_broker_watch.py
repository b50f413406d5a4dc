"""Every live broker against its limits: established, not jumped at; unknown is never taken for
well.
"""

from dataclasses import replace

import pytest

from tidegate_logic.decide import decide
from tidegate_logic.decision import Memory
from tidegate_logic.model import (
    BrokerLimit,
    BrokerLimits,
    Direction,
    NicSpan,
    Observation,
    Policy,
    Readings,
    Topology,
)
from tidegate_logic.readings import Flows
from tidegate_logic.throttle.nic_status import Pressure, watch

NOW = 1_000_000.0
LIMIT = 50_000_000
SCRAPE = 15.0


def seen(
    *egress: float, age_seconds: float = 5.0, ingress: tuple[float, ...] = (), **policy: object
) -> Observation:
    """Broker 1 with these rates in MB/s as shares of its limit, oldest first; broker 2 has an
    ingress limit of its own.
    """
    limits = BrokerLimits(BrokerLimit(egress=LIMIT), {2: BrokerLimit(egress=LIMIT, ingress=LIMIT)})
    nic = {
        (1, Direction.EGRESS): spans(egress, age_seconds),
        (2, Direction.EGRESS): spans((0.1, 0.1, 0.1), age_seconds),
    }
    nic[2, Direction.INGRESS] = spans(ingress or (0.1, 0.1, 0.1), age_seconds)
    named = Policy(key="streaming/orders", uid="uid", limits=limits, **policy)  # type: ignore[arg-type]
    topology = Topology(NOW, frozenset({1, 2}), {})
    return Observation(NOW, named, (), topology, {}, readings=Readings(NOW, SCRAPE, nic=nic))


def spans(shares: tuple[float, ...], age_seconds: float) -> tuple[NicSpan, ...]:
    last = NOW - age_seconds
    return tuple(
        NicSpan(last - SCRAPE * back, SCRAPE, share * LIMIT)
        for back, share in reversed(list(enumerate(reversed(shares))))
    )


def pressure(
    observation: Observation, before: Pressure | None = None, *, broker: int = 1
) -> Pressure:
    watched = watch(observation, Flows(), {} if before is None else {broker: before})
    assert watched is not None
    return {one.broker: one.pressure for one in watched}[broker]


@pytest.mark.parametrize(
    ("egress", "expected"),
    [
        ((0.5, 0.5, 0.5), Pressure.WITHIN),
        ((0.5, 0.5, 1.05), Pressure.WITHIN),
        ((0.5, 1.05, 1.05), Pressure.OVER),
        ((0.5, 0.5, 1.2), Pressure.OVER),
        ((1.05, 0.9, 1.05), Pressure.OVER),
    ],
    ids=["calm", "one-sample", "two-of-three", "severe", "two-of-three-apart"],
)
def test_over_is_established_by_two_of_three_samples_or_one_far_above(
    egress: tuple[float, ...], expected: Pressure
) -> None:
    assert pressure(seen(*egress)) is expected


@pytest.mark.parametrize(
    ("egress", "expected"),
    [
        ((0.9, 1.05, 0.9), Pressure.OVER),
        ((1.05, 0.9, 0.9), Pressure.OVER),
        ((0.9, 0.9, 0.9), Pressure.WITHIN),
    ],
)
def test_a_load_that_swings_around_the_limit_is_one_episode(
    egress: tuple[float, ...], expected: Pressure
) -> None:
    assert pressure(seen(*egress), Pressure.OVER) is expected
    assert pressure(seen(*egress), Pressure.WITHIN) is Pressure.WITHIN


def test_at_a_scrape_of_a_second_the_sawtooth_periods_of_a_throttled_client_are_one_episode() -> (
    None
):
    def every_second(*shares: float) -> Observation:
        nic = {
            (1, Direction.EGRESS): tuple(
                NicSpan(NOW - back, 1.0, share * LIMIT)
                for back, share in reversed(list(enumerate(reversed(shares))))
            )
        }
        calm = seen(0.1)
        assert calm.readings is not None
        return replace(calm, readings=Readings(NOW, 1.0, nic={**calm.readings.nic, **nic}))

    one_period = (1.5, *(0.3,) * 11)
    assert pressure(every_second(*one_period, *one_period), Pressure.OVER) is Pressure.OVER
    assert pressure(every_second(1.5, *(0.3,) * 24), Pressure.OVER) is Pressure.WITHIN


def test_either_direction_counts_and_a_limit_of_a_brokers_own_is_kept() -> None:
    assert pressure(seen(0.5, ingress=(1.2, 1.2, 1.2)), broker=2) is Pressure.OVER


def test_an_old_reading_is_unknown_whatever_it_says() -> None:
    for rates in ((0.1, 0.1, 0.1), (2.0, 2.0, 2.0)):
        assert pressure(seen(*rates, age_seconds=46.0)) is Pressure.UNKNOWN
        assert (
            pressure(seen(*rates, age_seconds=46.0, stale_after_seconds=90.0))
            is not Pressure.UNKNOWN
        )


def test_a_broker_without_a_reading_is_unknown_and_the_others_are_not() -> None:
    observation = seen(0.5, 0.5)
    assert observation.readings is not None
    nic = {key: value for key, value in observation.readings.nic.items() if key[0] == 2}
    blind = replace(observation, readings=replace(observation.readings, nic=nic))
    assert (pressure(blind), pressure(blind, broker=2)) == (Pressure.UNKNOWN, Pressure.WITHIN)


def test_without_readings_or_brokers_nothing_is_said() -> None:
    assert watch(replace(seen(0.5), readings=None), Flows(), {}) is None
    assert watch(replace(seen(0.5), topology=None), Flows(), {}) is None


def test_a_decision_reports_it_even_while_everything_is_held_and_remembers_it() -> None:
    decision, memory = decide(seen(0.5, 1.05, 1.05, paused_by=("spec.suspend",)), Memory())
    assert decision.holds
    assert memory.pressures == {1: Pressure.OVER, 2: Pressure.WITHIN}
    decision, memory = decide(seen(1.05, 0.9, 0.9, paused_by=("spec.suspend",)), memory)
    assert decision.watched is not None
    assert [one.pressure for one in decision.watched] == [Pressure.OVER, Pressure.WITHIN]


def test_load_writes_nothing() -> None:
    calm, _ = decide(seen(0.5, 0.5, 0.5), Memory())
    hot, _ = decide(seen(2.0, 2.0, 2.0), Memory())
    assert replace(hot, watched=None) == replace(calm, watched=None)


@pytest.mark.parametrize(
    ("egress", "expected"),
    [
        ((0.8, 1.12, 0.78, 1.08, 0.95, 0.92), Pressure.WITHIN),
        ((0.98, 1.12, 0.98, 1.12, 0.98, 1.12), Pressure.OVER),
        # too few for a whole rhythm of a throttled client
        ((1.12, 1.12), Pressure.OVER),
    ],
    ids=["swings-below-the-limit", "swings-above-it", "not-covered-yet"],
)
def test_while_something_is_throttled_means_over_whole_rhythms_count(
    egress: tuple[float, ...], expected: Pressure
) -> None:
    every_five_seconds = tuple(
        NicSpan(NOW - 5.0 * back, 5.0, share * LIMIT)
        for back, share in reversed(list(enumerate(reversed(egress))))
    )
    observation = seen(0.1)
    assert observation.readings is not None
    nic = {**observation.readings.nic, (1, Direction.EGRESS): every_five_seconds}
    observation = replace(observation, readings=Readings(NOW, 5.0, nic=nic))
    before = {1: Pressure.OVER}
    watched = watch(observation, Flows(), before, throttled={Direction.EGRESS})
    assert watched is not None
    assert watched[0].pressure is expected
    # without a throttle one sample above the limit keeps it over
    free = watch(observation, Flows(), before)
    assert free is not None
    assert free[0].pressure is Pressure.OVER
