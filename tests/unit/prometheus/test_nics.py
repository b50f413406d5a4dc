"""NICs: spans between neighbouring samples, and the brokers that they belong to."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.goldens.golden import numbers
from tidegate.prometheus.nics import Ambiguous, NicSpans, nic_spans, spans_of
from tidegate.prometheus.queries import broker_of
from tidegate.prometheus.series import Series, problems_of
from tidegate.prometheus.settings import BrokerLabel
from tidegate_logic.model import Direction, NicSpan, ReadingProblem
from tidegate_logic.reasons import Reason

# --- spans ----------------------------------------------------------------------------------------
# A span is the plain difference of neighbouring samples, and is missing wherever that difference
# could be wrong.


def nic(samples: Sequence[tuple[float, float]], **labels: str) -> Series:
    return Series(
        {"__name__": "sent", "instance": "a:9100", "device": "eth0", **labels}, tuple(samples)
    )


def test_each_two_neighbouring_samples_make_a_span_with_the_later_ones_time() -> None:
    spans = spans_of([nic([(10, 1000), (25, 2500), (41, 2500)])])
    assert spans == (NicSpan(25, 15, 100.0), NicSpan(41, 16, 0.0))


def test_one_sample_makes_no_span() -> None:
    assert spans_of([nic([(10, 1000)])]) == ()


def test_a_scrape_that_failed_makes_a_longer_span() -> None:
    assert spans_of([nic([(0, 0), (30, 3000)])]) == (NicSpan(30, 30, 100.0),)


def test_a_counter_that_fell_makes_no_span_until_its_next_sample() -> None:
    assert spans_of([nic([(0, 9000), (15, 30), (30, 1530)])]) == (NicSpan(30, 15, 100.0),)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, -1.0])
def test_a_sample_that_is_no_amount_is_passed_over(wrong: float) -> None:
    assert spans_of([nic([(0, 0), (15, wrong), (30, 3000)])]) == (NicSpan(30, 30, 100.0),)


def test_nics_of_one_scrape_are_added() -> None:
    spans = spans_of([nic([(0, 0), (10, 100)]), nic([(0, 50), (10, 450)], device="eth1")])
    assert spans == (NicSpan(10, 10, 50.0),)


def test_counters_of_one_scrape_that_differ_in_name_are_added() -> None:
    client, replication = (
        nic([(0, 0), (10, 100)], __name__="bytesout"),
        nic([(0, 0), (10, 300)], __name__="replicationbytesout"),
    )
    assert spans_of([client, replication]) == (NicSpan(10, 10, 40.0),)


def test_one_nic_that_fell_leaves_the_sum_unknown() -> None:
    assert spans_of([nic([(0, 0), (10, 100)]), nic([(0, 50), (10, 0)], device="eth1")]) == ()


def test_a_nic_that_comes_or_goes_leaves_the_sum_unknown_at_that_moment() -> None:
    lasting = nic([(0, 0), (10, 100), (20, 200), (30, 300)])
    passing = nic([(10, 5_000_000), (20, 5_000_100)], device="eth1")
    assert spans_of([lasting, passing]) == (NicSpan(20, 10, 20.0),)


@pytest.mark.parametrize("later", ["a:9100", "b:9100"])
def test_two_sources_are_named_in_the_same_words_whichever_was_scraped_first(later: str) -> None:
    begins = {"a:9100": 0.0, "b:9100": 0.0, later: 5.0}
    with pytest.raises(Ambiguous) as raised:
        spans_of(
            [nic([(at, 0), (at + 10, 100)], instance=instance) for instance, at in begins.items()]
        )
    in_order = str(raised.value)
    with pytest.raises(Ambiguous) as raised:
        spans_of(
            [
                nic([(at, 0), (at + 10, 100)], instance=instance)
                for instance, at in reversed(begins.items())
            ]
        )
    assert str(raised.value) == in_order


def test_two_sources_at_the_same_time_are_ambiguous_and_the_message_says_how_they_differ(
    golden: Callable[[str], None],
) -> None:
    with pytest.raises(Ambiguous) as raised:
        spans_of([nic([(0, 0), (10, 100)]), nic([(5, 0), (15, 100)], instance="b:9100")])
    for source in ("'a:9100'", "'b:9100'"):
        assert source in str(raised.value)
    golden(str(raised.value))


def test_two_sources_with_different_nics_are_ambiguous_too() -> None:
    with pytest.raises(Ambiguous):
        spans_of(
            [nic([(0, 0), (10, 100)]), nic([(0, 0), (10, 100)], instance="b:9100", device="ens5")]
        )


def test_a_source_may_take_over_from_another_and_no_span_lies_between_them() -> None:
    spans = spans_of([nic([(30, 70), (40, 370)], instance="b:9100"), nic([(0, 0), (10, 100)])])
    assert spans == (NicSpan(10, 10, 10.0), NicSpan(40, 10, 30.0))


def test_a_sum_beyond_all_numbers_is_unknown() -> None:
    huge = [(0.0, 0.0), (10.0, 1.7e308)]
    assert spans_of([nic(huge), nic(huge, device="eth1")]) == ()


COUNTERS = st.lists(
    st.tuples(st.integers(1, 60), st.one_of(st.floats(), st.integers(0, 10**15).map(float))),
    max_size=12,
)


@given(first=COUNTERS, second=COUNTERS)
def test_whatever_the_counters_say_spans_are_amounts_in_order_and_never_overlap(
    first: list[tuple[int, float]], second: list[tuple[int, float]]
) -> None:
    spans = spans_of([nic(at_rising_times(first)), nic(at_rising_times(second), device="eth1")])
    assert all(0 <= span.bytes_per_second < math.inf and span.seconds > 0 for span in spans)
    assert all(
        earlier.at_seconds <= later.at_seconds - later.seconds for earlier, later in pairwise(spans)
    )


def at_rising_times(steps: list[tuple[int, float]]) -> list[tuple[float, float]]:
    return [
        (float(sum(step for step, _ in steps[: n + 1])), value)
        for n, (_, value) in enumerate(steps)
    ] or [(0.0, 0.0)]


# --- readings -------------------------------------------------------------------------------------
# NICs are assigned to their brokers. The others are reported once, with their number, and left out.


NOW = 1000.0


def broker_nic(*samples: tuple[float, float], broker: str = "1", **labels: str) -> Series:
    return Series({"__name__": "sent", "broker": broker, **labels}, samples)


def read(*series: Series) -> tuple[NicSpans, tuple[ReadingProblem, ...]]:
    spans, oddities = nic_spans(
        series, Direction.EGRESS, broker_of=broker_of(BrokerLabel("broker")), read_at_seconds=NOW
    )
    return spans, problems_of(oddities)


def test_each_broker_has_its_own_spans() -> None:
    spans, problems = read(
        broker_nic((980, 0), (990, 100)), broker_nic((980, 0), (990, 700), broker="2")
    )
    assert {
        broker: [span.bytes_per_second for span in found] for broker, found in spans.items()
    } == {1: [10.0], 2: [70.0]}
    assert problems == ()


def test_series_without_a_broker_are_one_problem_with_their_number_and_an_example(
    golden: Callable[[str], None],
) -> None:
    spans, (problem,) = read(
        *(broker_nic((990, 0), broker="", device=f"eth{n}") for n in range(30))
    )
    assert spans == {}
    assert (problem.reason, problem.broker) == (Reason.METRICS_AMBIGUOUS, None)
    assert numbers(problem.message) >= {30}
    assert 'device="eth0"' in problem.message
    golden(problem.message)


def test_a_broker_with_two_sources_has_no_spans_and_its_neighbour_keeps_its_own(
    golden: Callable[[str], None],
) -> None:
    two = [broker_nic((980, 0), (990, 100), instance=instance) for instance in ("a", "b")]
    spans, (problem,) = read(*two, broker_nic((980, 0), (990, 100), broker="2"))
    assert set(spans) == {2}
    assert (problem.reason, problem.broker) == (Reason.METRICS_AMBIGUOUS, 1)
    for source in ("'a'", "'b'"):
        assert source in problem.message
    golden(problem.message)


def test_samples_that_are_no_amounts_are_one_problem_of_their_broker(
    golden: Callable[[str], None],
) -> None:
    spans, (problem,) = read(broker_nic((970, math.nan), (980, math.nan), (990, 5.0)))
    assert spans == {1: ()}
    assert (problem.reason, problem.broker) == (Reason.METRICS_UNREADABLE, 1)
    assert numbers(problem.message) >= {2}
    assert "nan" in problem.message
    golden(problem.message)


def test_a_broker_whose_samples_are_ahead_of_our_clock_has_no_spans(
    golden: Callable[[str], None],
) -> None:
    spans, (problem,) = read(broker_nic((1020, 0), (1030, 100)))
    assert spans == {}
    assert (problem.reason, problem.broker) == (Reason.METRICS_STALE, 1)
    assert numbers(problem.message) >= {30}
    golden(problem.message)


def test_clocks_that_differ_by_little_are_no_problem() -> None:
    spans, problems = read(broker_nic((994, 0), (1004, 100)))
    assert len(spans[1]) == 1
    assert problems == ()
