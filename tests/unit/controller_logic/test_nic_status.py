"""Is a broker over its limit, and which readings of its NIC are believed. Limits are 100 MB/s, NICs
125 MB/s.
"""

from dataclasses import replace
from math import inf, nan

import pytest

from tests.unit.controller_logic.plant import MB, OUT, asked, spans
from tidegate_logic.model import BrokerLimit, Entity, Level, NicSpan, QuotaWindow
from tidegate_logic.readings import Flows, flows_of
from tidegate_logic.throttle.input import ManagedRate, ThrottleInput
from tidegate_logic.throttle.nic_status import NicStatus, Pressure, nic_statuses


def nics(given: ThrottleInput, *, throttled: bool = False) -> dict[int, NicStatus]:
    flows = flows_of(
        given.readings,
        now_seconds=given.now_seconds,
        stale_after_seconds=given.settings.stale_after_seconds,
    )
    return nic_statuses(given, flows, OUT, throttled=throttled)


def nic(*said: NicSpan, throttled: bool = False, **changes: object) -> NicStatus:
    return nics(asked({1: said}, **changes), throttled=throttled)[1]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rates_mb", "pressure"),
    [
        pytest.param((50, 50, 50), Pressure.WITHIN, id="within"),
        pytest.param((50, 50, 105), Pressure.WITHIN, id="one of three is not enough"),
        pytest.param((50, 105, 105), Pressure.OVER, id="two of three"),
        pytest.param((105, 50, 105), Pressure.OVER, id="any two of three"),
        pytest.param((105, 105, 50), Pressure.WITHIN, id="the newest must be over"),
        pytest.param((50, 50, 111), Pressure.OVER, id="one severe sample is enough"),
        pytest.param((105, 105, 100), Pressure.WITHIN, id="at the limit is not over"),
    ],
)
def test_over_means_two_of_three_samples_or_a_severe_one(
    rates_mb: tuple[float, ...], pressure: Pressure
) -> None:
    assert nic(*spans(*rates_mb)).pressure is pressure


@pytest.mark.parametrize(
    "said",
    [
        pytest.param((), id="no reading"),
        pytest.param(spans(nan), id="not a number"),
        pytest.param(spans(inf), id="infinite"),
        pytest.param(spans(-1), id="negative, as after a counter reset"),
        pytest.param(spans(151), id="more than 1.2 times the NIC's speed"),
        pytest.param(spans(50, until=954), id="older than 45 s"),
        pytest.param(spans(50, until=1046), id="from the future"),
        pytest.param(spans(50, seconds=0), id="no time between two samples"),
        pytest.param(spans(50, seconds=300), id="a span over a gap is a mean of long ago"),
    ],
)
def test_a_newest_reading_that_cannot_be_used_makes_the_broker_unknown(
    said: tuple[NicSpan, ...],
) -> None:
    found = nic(*said)
    assert found.pressure is Pressure.UNKNOWN
    assert found.why


def test_an_earlier_reading_that_cannot_be_used_is_left_out() -> None:
    assert nic(*spans(105, 900, 105)).hot_samples == 2


def test_a_nic_that_says_less_than_half_of_what_kafka_moves_is_lying() -> None:
    assert nic(*spans(19), clients_mb={("a", 1): 40}).pressure is Pressure.UNKNOWN
    assert nic(*spans(20), clients_mb={("a", 1): 40}).pressure is Pressure.WITHIN


def test_one_short_pause_of_everybody_is_no_lie() -> None:
    """At a scrape of a second, throttled clients pause together; the last window as a whole
    counts.
    """
    assert nic(
        *spans(*[40] * 10, 0, seconds=1), clients_mb={("a", 1): 40}, scrape_seconds=1.0
    ).known


def test_a_broker_that_is_alive_and_reports_nothing_is_blind() -> None:
    found = nics(asked({1: (), 2: spans(50)}))
    assert [broker for broker, nic in found.items() if not nic.known] == [1]


def test_a_dead_broker_that_leads_nothing_is_left_out_even_if_its_last_reading_was_hot() -> None:
    given = asked({1: spans(120, 120), 2: spans(50)})
    assert nics(replace(given, live=frozenset({2}))).keys() == {2}


def test_a_dead_broker_that_still_leads_counts() -> None:
    rate = ManagedRate(Entity("a"), OUT, Level.L3, 10 * MB, MB, 10 * MB, frozenset({1}))
    given = asked({1: (), 2: spans(50)}, (rate,))
    assert nics(replace(given, live=frozenset({2})))[1].pressure is Pressure.UNKNOWN


def test_a_live_broker_that_the_policy_does_not_know_is_blind() -> None:
    given = asked({1: spans(50)})
    assert not nics(replace(given, live=frozenset({1, 9})))[9].known


def test_a_broker_without_a_limit_is_never_over_and_never_blind() -> None:
    given = asked({1: spans(500, 500)})
    assert nics(replace(given, brokers={1: BrokerLimit()}))[1].pressure is Pressure.WITHIN


def test_without_a_known_capacity_nothing_is_absurd() -> None:
    given = asked({1: spans(50, 400)})
    assert nics(replace(given, brokers={1: BrokerLimit(100 * MB)}))[1].pressure is Pressure.OVER


def test_something_throttled_and_a_short_scrape_take_the_mean_over_two_sawtooth_periods() -> None:
    said = spans(200, 60, 60, 60, 60, 60, seconds=5)
    found = nic(*said, throttled=True, scrape_seconds=5.0)
    assert found.bytes_per_second == pytest.approx(60 * MB)
    assert found.span_seconds == 25


def test_one_such_mean_above_the_limit_is_over_without_any_other() -> None:
    assert (
        nic(
            *spans(60, 110, 120, 110, 110, 60, seconds=5), throttled=True, scrape_seconds=5.0
        ).pressure
        is Pressure.OVER
    )


def test_a_sawtooth_period_above_the_limit_is_not_over() -> None:
    assert (
        nic(
            *spans(20, 110, 20, 110, 20, 110, seconds=5), throttled=True, scrape_seconds=5.0
        ).pressure
        is Pressure.WITHIN
    )


@pytest.mark.parametrize(
    ("binding_mb", "rate_mb", "pressure"),
    [
        pytest.param(5, 114, Pressure.OVER, id="less what throttled clients can have added"),
        pytest.param(10, 72, Pressure.WITHIN, id="a sawtooth may look like that"),
    ],
)
def test_a_step_load_counts_before_the_mean_of_two_sawtooth_periods_shows_all_of_it(
    binding_mb: float, rate_mb: float, pressure: Pressure
) -> None:
    given = asked({1: spans(60, 60, 60, 60, 60, 120, seconds=5)}, scrape_seconds=5.0)
    found = nic_statuses(given, Flows(), OUT, throttled=True, sawteeth={1: binding_mb * MB})[1]
    assert (found.pressure, found.bytes_per_second) == (pressure, pytest.approx(rate_mb * MB))


def test_a_scrape_as_long_as_a_sawtooth_period_keeps_the_newest_span() -> None:
    assert nic(*spans(60, 60, 90), throttled=True, scrape_seconds=15.0).bytes_per_second == 90 * MB


def test_the_mean_is_as_long_as_the_brokers_window_demands() -> None:
    said = spans(*[10] * 20, *[60] * 6, seconds=1)
    found = nic(*said, throttled=True, scrape_seconds=1.0, window=QuotaWindow(2, 1))
    assert (found.span_seconds, found.bytes_per_second) == (6, pytest.approx(60 * MB))


def test_less_than_one_sawtooth_period_of_readings_says_nothing_of_throttled_clients() -> None:
    assert not nic(*spans(60, 60, seconds=5), throttled=True, scrape_seconds=5.0).known
    assert nic(*spans(60, 60, seconds=5), scrape_seconds=5.0).known


def test_replication_goes_by_means_of_whole_periods_and_by_one_above_the_aim() -> None:
    """Replicas fetch in bursts: the newest second may have none of it, or much."""
    bursts = (80.0, 80.0, 80.0, 20.0) * 6
    found = nic(*spans(*bursts, seconds=1.0), scrape_seconds=1.0)
    assert found.bytes_per_second == 20 * MB
    assert found.steady_bytes_per_second == pytest.approx(65 * MB)
    assert found.steady_seconds == 24
    found = nic(*spans(*[50.0] * 12, *[99.0] * 12, seconds=1.0), scrape_seconds=1.0)
    assert found.steady_bytes_per_second == pytest.approx(99 * MB)
    assert found.steady_seconds == 12
    found = nic(*spans(50, 60, 70))
    assert found.steady_bytes_per_second == pytest.approx(65 * MB)
    assert found.steady_seconds == 30
