"""Kafka's gauges of each client, added up by window."""

import numpy as np
import pytest

from tests.unit.rollup.fold.broker_history import COUNTER, START_MS, counter, every, series, windows
from tidegate.rollup.fold.broker import (
    DirectionFold,
    DirectionSamples,
    DirectionTerms,
    Episode,
    fold_direction,
)
from tidegate.rollup.fold.windows import StepFunction
from tidegate.rollup.samples import SeriesSamples
from tidegate_logic.model import QuotaWindow

APP = ("app", "")
LABELS = {"user": "app"}


def fold(
    rates: list[SeriesSamples],
    throttle: list[SeriesSamples] | None = None,
    number: int = 1,
    **terms: object,
) -> DirectionFold:
    samples = DirectionSamples(rates=rates, throttle_times=throttle or [])
    return fold_direction(samples, windows(number), DirectionTerms(**terms), interval_ms=15_000)


def reported_bytes(one: DirectionFold) -> list[list[float]]:
    return (one.gauges.thousandths_of_bytes / 1000).tolist()


def test_bytes_are_rate_times_the_time_it_stands_for() -> None:
    one = fold([series(LABELS, every(15, 1000.0))])
    assert (one.clients, reported_bytes(one), one.gauges.samples.tolist()) == (
        (APP,),
        [[300_000.0]],
        [[20]],
    )


def test_a_lost_scrape_is_bridged_by_the_next() -> None:
    samples = every(15, 1000.0)
    del samples[150.0], samples[165.0]
    assert reported_bytes(fold([series(LABELS, samples)])) == [[300_000.0]]


def test_time_in_which_only_others_were_reported_is_not_filled() -> None:
    mine = {at: value for at, value in every(15, 1000.0).items() if at <= 60 or at > 120}
    one = fold([series(LABELS, mine), series({"user": "other"}, every(15, 1.0))])
    assert reported_bytes(one) == [[240_000.0], [300.0]]


def test_a_sample_past_an_edge_gives_its_part_to_the_window_before() -> None:
    one = fold([series(LABELS, {295.0: 0.0, 310.0: 1000.0})], number=2)
    assert reported_bytes(one) == [[5_000.0, 10_000.0]]


def test_no_sample_stands_for_more_than_a_window() -> None:
    """Scraped each five minutes, with one scrape late by two."""
    samples = DirectionSamples(rates=[series(LABELS, {-300.0: 1000.0, 0.0: 1000.0, 420.0: 1000.0})])
    one = fold_direction(samples, windows(2), DirectionTerms(), interval_ms=300_000)
    assert reported_bytes(one) == [[180_000.0, 120_000.0]]


def test_the_peak_is_the_highest_sample_of_the_window() -> None:
    samples = every(15, 10.0, until=600) | {150.0: 70.0, 300.0: 90.0, 315.0: 50.0}
    assert fold([series(LABELS, samples)], number=2).gauges.peak_bytes_per_second.tolist() == [
        [90.0, 50.0]
    ]


@pytest.mark.parametrize(("milliseconds", "seconds"), [(50.0, 0), (50.1, 300), (9000.0, 300)])
def test_throttled_is_who_the_operator_takes_for_throttled(
    milliseconds: float, seconds: float
) -> None:
    one = fold([series(LABELS, every(15, 1.0))], [series(LABELS, every(15, milliseconds))])
    assert one.gauges.throttled_ms.tolist() == [[seconds * 1000]]


def test_no_throttle_time_is_no_throttling() -> None:
    """Kafka's mean throttle time without a throttled client is NaN, and such samples are left
    out.
    """
    one = fold([series(LABELS, every(15, 1.0))], [series(LABELS, {30.0: 900.0, 120.0: 900.0})])
    assert one.gauges.throttled_ms.tolist() == [[30_000]]


def test_over_the_contract_is_more_than_the_contract() -> None:
    samples = every(15, 1000.0) | {30.0: 1001.0, 45.0: 5000.0}
    assert fold(
        [series(LABELS, samples)], contracts={APP: 1000.0}
    ).gauges.over_contract_ms.tolist() == [[30_000]]


def test_without_a_contract_no_client_is_over_it() -> None:
    one = fold([series(LABELS, every(15, 1e9))], contracts={("another", ""): 1.0})
    assert one.gauges.over_contract_ms.tolist() == [[0]]


@pytest.mark.parametrize(
    ("reads", "over_ms"), [(1180.0, 0), (1198.0, 0), (1200.0, 300_000), (900.0, 0)]
)
def test_a_throttled_client_is_over_its_contract_only_beyond_what_its_gauge_reads_too_high(
    reads: float, over_ms: int
) -> None:
    one = fold(
        [series(LABELS, every(15, reads))],
        [series(LABELS, every(15, 200.0))],
        contracts={APP: 1000.0},
    )
    assert one.gauges.over_contract_ms.tolist() == [[over_ms]]


@pytest.mark.parametrize(
    ("samples", "reads", "over_ms"),
    [(4, 1400.0, 0), (4, 1500.0, 300_000), (1, 1050.0, 0), (2, 2100.0, 0)],
)
def test_how_high_a_throttled_client_may_read_follows_from_the_quota_window(
    samples: int, reads: float, over_ms: int
) -> None:
    throttle, window = series(LABELS, every(15, 200.0)), QuotaWindow(samples, 1)
    one = fold(
        [series(LABELS, every(15, reads))], [throttle], contracts={APP: 1000.0}, quota_window=window
    )
    assert one.gauges.over_contract_ms.tolist() == [[over_ms]]


def test_bytes_of_a_throttled_client_are_what_its_gauge_reads() -> None:
    """Single readings lie above its quota, and dip with each burst that is forgotten; their mean is
    right.
    """
    assert reported_bytes(
        fold([series(LABELS, every(15, 1180.0))], [series(LABELS, every(15, 900.0))])
    ) == [[354_000.0]]


def test_a_contract_counts_as_it_was_at_each_sample() -> None:
    lowered = StepFunction((START_MS - 60_000, START_MS + 200_000), (2000.0, 500.0))
    one = fold(
        [series(LABELS, every(15, 1000.0)), series({"user": "other"}, every(15, 1000.0))],
        contracts={APP: lowered},
    )
    assert one.gauges.over_contract_ms.tolist() == [[105_000], [0]]


def test_bytes_held_back_are_counted_against_the_contract_of_the_moment() -> None:
    raised = StepFunction((START_MS, START_MS + 150_001), (1000.0, 2000.0))
    one = fold(
        [series(LABELS, every(15, 400.0))],
        [series(LABELS, every(15, 200.0))],
        contracts={APP: raised},
    )
    assert one.gauges.deferred_thousandths.tolist() == [[(600 + 1600) * 150_000]]


def test_who_is_not_throttled_is_over_the_contract_by_any_byte() -> None:
    assert fold(
        [series(LABELS, every(15, 1001.0))], contracts={APP: 1000.0}
    ).gauges.over_contract_ms.tolist() == [[300_000]]


def test_deferred_is_what_a_throttled_client_lacks_of_its_contract() -> None:
    throttle = series(LABELS, every(15, 500.0, until=150))
    one = fold([series(LABELS, every(15, 400.0))], [throttle], contracts={APP: 1000.0})
    assert one.gauges.deferred_thousandths.tolist() == [[600 * 150 * 1000]]


def test_nothing_is_deferred_without_a_contract() -> None:
    one = fold([series(LABELS, every(15, 400.0))], [series(LABELS, every(15, 500.0))])
    assert one.gauges.deferred_thousandths.tolist() == [[0]]


def test_with_a_record_of_episodes_deferred_counts_against_what_was_wanted_in_them() -> None:
    episode = Episode(APP, START_MS + 60_001, START_MS + 120_001, wanted_bytes_per_second=700.0)
    rates, throttle = [series(LABELS, every(15, 400.0))], [series(LABELS, every(15, 500.0))]
    one = fold(rates, throttle, contracts={APP: 1000.0}, episodes=[episode])
    assert one.gauges.deferred_thousandths.tolist() == [[300 * 60 * 1000]]


def test_with_a_record_without_episodes_nothing_is_deferred() -> None:
    rates, throttle = [series(LABELS, every(15, 400.0))], [series(LABELS, every(15, 500.0))]
    assert fold(
        rates, throttle, contracts={APP: 1000.0}, episodes=[]
    ).gauges.deferred_thousandths.tolist() == [[0]]


def test_a_pair_of_servers_counts_each_client_once() -> None:
    one = series({**LABELS, "replica": "a"}, every(15, 1000.0, until=315))
    other = series(
        {**LABELS, "replica": "b"},
        {at + 7: value for at, value in every(15, 1000.0, until=315).items()},
    )
    assert reported_bytes(fold([one, other]))[0][0] == pytest.approx(300_000, abs=15_000)


def test_clients_reported_by_different_servers_of_a_pair_keep_their_whole_time() -> None:
    """Where a pair is merged series by series, the fuller server may be another one for each
    series.
    """
    one = series(LABELS, every(15, 1000.0, until=315))
    other = series(
        {"user": "other"},
        {at + 7: value for at, value in every(15, 1000.0, begin=-15, until=315).items()},
    )
    assert reported_bytes(fold([one, other])) == [[300_000.0], [300_000.0]]


def test_throttle_times_reported_by_the_other_server_of_a_pair_are_of_the_same_reading() -> None:
    throttle = series(
        LABELS, {at + 7: value for at, value in every(15, 500.0, begin=-15, until=315).items()}
    )
    one = fold([series(LABELS, every(15, 400.0))], [throttle], contracts={APP: 1000.0})
    assert one.gauges.deferred_thousandths.tolist() == [[600 * 300 * 1000]]
    assert one.gauges.throttled_ms.tolist() == [[300_000]]


def test_two_series_of_one_client_at_the_same_time_count_once() -> None:
    one, other = (
        series({**LABELS, "port": "1"}, every(15, 1000.0)),
        series({**LABELS, "port": "2"}, every(15, 900.0)),
    )
    for order in ([one, other], [other, one]):
        assert (reported_bytes(fold(order)), fold(order).gauges.samples.tolist()) == (
            [[300_000.0]],
            [[20]],
        )


def test_a_client_that_is_renamed_in_mid_flight_keeps_both_names() -> None:
    """A quota on another level: Kafka meters the same client under other tags from then on."""
    before, after = every(15, 1000.0, until=150), every(15, 1000.0, begin=150)
    one = fold([series(LABELS, before), series({**LABELS, "client_id": "web"}, after)])
    assert dict(zip(one.clients, reported_bytes(one), strict=True)) == {
        ("app", ""): [150_000.0],
        ("app", "web"): [150_000.0],
    }


def test_what_is_no_rate_and_series_without_a_client_are_left_out() -> None:
    odd = series(LABELS, every(15, 1.0) | {15.0: -5.0, 30.0: 1e200})
    one = fold([odd, series({"user": "%zz"}, every(15, 7.0)), series({}, every(15, 7.0))])
    assert (one.clients, reported_bytes(one), one.gauges.samples.tolist()) == (
        (APP,),
        [[270.0]],
        [[18]],
    )


def test_a_throttled_client_is_reported_even_without_a_rate() -> None:
    one = fold([], [series(LABELS, every(15, 500.0))])
    assert (one.clients, one.gauges.throttled_ms.tolist(), reported_bytes(one)) == (
        (APP,),
        [[300_000]],
        [[0.0]],
    )


def test_coverage_is_that_of_the_exporter_and_not_of_the_client() -> None:
    late = [series(LABELS, every(15, 1000.0, begin=150))]
    broker = [series(COUNTER, counter(500))]
    alone = DirectionSamples(rates=late)
    with_counter = DirectionSamples(rates=late, client_bytes=broker)
    folds = [
        fold_direction(samples, windows(1), DirectionTerms(), interval_ms=15_000)
        for samples in (alone, with_counter)
    ]
    assert [one.scraped_ms.tolist() for one in folds] == [[150_000], [300_000]]


def test_nothing_at_all_is_no_client() -> None:
    one = fold([])
    assert (one.clients, one.gauges.samples.shape, one.scraped_ms.tolist()) == ((), (0, 1), [0])
    assert np.isnan(one.traffic.factor).all()
