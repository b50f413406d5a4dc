"""Direct readings: two that agree make a broker hot before Prometheus shows it; nothing else does.

Limits are 100 MB/s, NICs 125 MB/s; Prometheus scrapes every 15 s.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from tests.unit.controller_logic.plant import MB, OUT, asked, decided, spans
from tidegate_logic.model import BrokerLimit, Direction, DirectReading, Entity, Level, NicSpan
from tidegate_logic.readings import flows_of
from tidegate_logic.throttle.buckets import Bucket
from tidegate_logic.throttle.decision import StepKind, ThrottleDecision
from tidegate_logic.throttle.input import ManagedRate, ThrottleInput
from tidegate_logic.throttle.nic_status import NicStatus, Pressure, nic_statuses
from tidegate_logic.throttle.record import as_mapping

CALM = spans(50, 50, 50, until=992.0)


def with_direct(given: ThrottleInput, *said: NicSpan, broker: int = 1) -> ThrottleInput:
    direct = {broker: DirectReading(900.0, {OUT: said})}
    return replace(given, readings=given.readings.with_direct(direct, ()))


def judged(given: ThrottleInput, *, throttled: bool = False) -> NicStatus:
    flows = flows_of(given.readings, now_seconds=given.now_seconds, stale_after_seconds=45.0)
    return nic_statuses(given, flows, OUT, throttled=throttled)[1]


def nic(*said: NicSpan, scraped: tuple[NicSpan, ...] = CALM, throttled: bool = False) -> NicStatus:
    return judged(with_direct(asked({1: scraped}), *said), throttled=throttled)


def direct(*rates_mb: float, until: float = 1000.0, seconds: float = 2.0) -> tuple[NicSpan, ...]:
    return spans(*rates_mb, seconds=seconds, until=until)


def test_two_that_agree_are_enough_and_the_smaller_one_counts() -> None:
    found = nic(*direct(60, 104, 120))
    assert (found.pressure, found.is_direct) == (Pressure.OVER, True)
    assert (found.bytes_per_second, found.at_seconds, found.span_seconds) == (104 * MB, 1000, 4)
    assert (found.hot_samples, found.samples) == (2, 2)


def test_of_both_directions_as_one_their_sums_count() -> None:
    given = asked({1: CALM})
    nics = {**given.readings.nic, (1, Direction.INGRESS): spans(20, 20, 20, until=992.0)}
    given = replace(
        given,
        readings=replace(given.readings, nic=nics),
        brokers={1: BrokerLimit(combined=100 * MB, combined_capacity=250 * MB)},
    )
    said = {OUT: direct(60, 70, 80), Direction.INGRESS: direct(20, 32, 40)}
    direct_too = given.readings.with_direct({1: DirectReading(900.0, said)}, ())
    flows = flows_of(given.readings, now_seconds=1000.0, stale_after_seconds=45.0)
    found = nic_statuses(
        replace(given, readings=direct_too), flows, Direction.COMBINED, throttled=False
    )[1]
    assert (found.pressure, found.is_direct) == (Pressure.OVER, True)
    assert found.bytes_per_second == 102 * MB


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(direct(50, 124), id="one wild sample, however far over"),
        pytest.param(direct(124, 50), id="the newest is within"),
        pytest.param(direct(124, 100), id="at the limit is not over"),
        pytest.param(direct(120), id="the first of all"),
        pytest.param(direct(120, 120_000), id="a thousand times the NIC's speed"),
        pytest.param(direct(120, 120, until=992.9), id="older than 7 s"),
        pytest.param(direct(120, 120, seconds=5.1), id="over a gap"),
        pytest.param((*direct(120, until=996.0), *direct(120)), id="one between them is missing"),
        pytest.param(direct(120, 120, until=992.0), id="no newer than Prometheus'"),
    ],
)
def test_anything_less_leaves_it_to_prometheus(said: tuple[NicSpan, ...]) -> None:
    assert nic(*said) == judged(asked({1: CALM}))


@pytest.mark.parametrize(
    "scraped",
    [
        pytest.param((), id="Prometheus knows nothing of it"),
        pytest.param(spans(50, until=950.0), id="its newest is stale"),
        pytest.param(spans(200, until=992.0), id="its newest is absurd"),
    ],
)
def test_what_prometheus_does_not_know_stays_unknown(scraped: tuple[NicSpan, ...]) -> None:
    assert nic(*direct(120, 120), scraped=scraped).pressure is Pressure.UNKNOWN


def test_once_something_is_throttled_prometheus_judges() -> None:
    """Two seconds then show the rhythm of throttled clients."""
    assert nic(*direct(120, 120), throttled=True).pressure is Pressure.WITHIN


RATES_MB = st.lists(st.floats(0, 400, allow_nan=False), min_size=0, max_size=5)


@drawn(scraped=RATES_MB, said=RATES_MB, until=st.floats(980, 1020), throttled=st.booleans())
def test_a_direct_reading_only_makes_a_broker_hotter(
    scraped: Sequence[float], said: Sequence[float], until: float, throttled: bool
) -> None:
    prometheus = asked({1: spans(*scraped, until=992.0)})
    without = judged(prometheus, throttled=throttled)
    found = judged(with_direct(prometheus, *direct(*said, until=until)), throttled=throttled)
    if found != without:
        assert (without.pressure, found.pressure) == (Pressure.WITHIN, Pressure.OVER)
        assert found.bytes_per_second is not None
        assert 100 * MB < found.bytes_per_second == min(said[-2:]) * MB


def rate(name: str, level: Level, contract_mb: int) -> ManagedRate:
    return ManagedRate(
        Entity(name), OUT, level, contract_mb * MB, MB, contract_mb * MB, frozenset({1})
    )


def cut(*rates: ManagedRate, clients_mb: dict[str, float]) -> ThrottleDecision:
    """What is decided where Prometheus says 50 MB/s and the exporter 120."""
    clients = {(name, 1): mb for name, mb in clients_mb.items()}
    given = asked({1: CALM}, rates, clients)
    assert not [one for one in decided(given)[0].steps.values() if one.kind is StepKind.CUT]
    return decided(with_direct(given, *direct(120, 120)))[0]


def test_a_cut_goes_by_what_both_readings_show() -> None:
    """97 of 100 MB/s are to be left, so 23 must go; the record says where that is known from."""
    decision = cut(rate("etl", Level.L3, 60), clients_mb={"etl": 45})
    (step,) = decision.steps.values()
    assert (step.kind, step.target, step.bucket.unseen) == (StepKind.CUT, 22 * MB, 70 * MB)
    broker: dict[str, object] = as_mapping(decision.round_of(OUT))["brokers"][0]  # type: ignore[index]
    assert (broker["direct"], broker["hotSamples"], broker["need"]) == (True, "2/2", 23 * MB)


def test_a_client_may_have_grown_by_what_its_broker_did() -> None:
    """By 70 MB/s, up to its quota: so the step is as far as 12 s of delay allow from 60, not 56."""
    decision = cut(rate("etl", Level.L3, 60), clients_mb={"etl": 45})
    (step,) = decision.steps.values()
    assert step.bucket.exposure == 60 * MB
    assert unaware(step.bucket).exposure == 56_250_000
    assert step.predicted_mute_seconds <= 12


def unaware(bucket: Bucket) -> Bucket:
    return replace(bucket, unseen=0.0, window_seconds=0.0)


def test_l1_waits_for_the_next_scrape() -> None:
    """Whose rate grew is not known yet, so a level that may be spared is not asked."""
    decision = cut(
        rate("etl", Level.L3, 60), rate("web", Level.L1, 60), clients_mb={"etl": 10, "web": 40}
    )
    assert {str(one.entity) for one in decision.steps.values() if one.kind is StepKind.CUT} == {
        "user=etl"
    }


def test_where_only_l1_could_give_nothing_is_cut_and_nothing_is_called_irreducible() -> None:
    decision = cut(rate("web", Level.L1, 60), clients_mb={"web": 45})
    assert not [one for one in decision.steps.values() if one.kind is StepKind.CUT]
    assert as_mapping(decision.round_of(OUT))["conditions"] == []
