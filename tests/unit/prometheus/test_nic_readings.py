"""NICs are assigned to their brokers. The others are reported once, with their number, and left out."""

from __future__ import annotations

import math
from collections.abc import Callable

from controller_logic.model import Direction, ReadingProblem
from controller_logic.reasons import Reason
from tests.goldens.golden import numbers
from tidegate.prometheus.nics import NicSpans, nic_spans
from tidegate.prometheus.queries import broker_of
from tidegate.prometheus.series import Series, problems_of
from tidegate.prometheus.settings import BrokerLabel

NOW = 1000.0


def nic(*samples: tuple[float, float], broker: str = "1", **labels: str) -> Series:
    return Series({"__name__": "sent", "broker": broker, **labels}, samples)


def read(*series: Series) -> tuple[NicSpans, tuple[ReadingProblem, ...]]:
    spans, oddities = nic_spans(series, Direction.EGRESS, broker_of=broker_of(BrokerLabel("broker")), read_at_seconds=NOW)
    return spans, problems_of(oddities)


def test_each_broker_has_its_own_spans() -> None:
    spans, problems = read(nic((980, 0), (990, 100)), nic((980, 0), (990, 700), broker="2"))
    assert {broker: [span.bytes_per_second for span in found] for broker, found in spans.items()} == {1: [10.0], 2: [70.0]}
    assert problems == ()


def test_series_without_a_broker_are_one_problem_with_their_number_and_an_example(golden: Callable[[str], None]) -> None:
    spans, (problem,) = read(*(nic((990, 0), broker="", device=f"eth{n}") for n in range(30)))
    assert spans == {}
    assert (problem.reason, problem.broker) == (Reason.METRICS_AMBIGUOUS, None)
    assert numbers(problem.message) >= {30}
    assert 'device="eth0"' in problem.message
    golden(problem.message)


def test_a_broker_with_two_sources_has_no_spans_and_its_neighbour_keeps_its_own(golden: Callable[[str], None]) -> None:
    two = [nic((980, 0), (990, 100), instance=instance) for instance in ("a", "b")]
    spans, (problem,) = read(*two, nic((980, 0), (990, 100), broker="2"))
    assert set(spans) == {2}
    assert (problem.reason, problem.broker) == (Reason.METRICS_AMBIGUOUS, 1)
    for source in ("'a'", "'b'"):
        assert source in problem.message
    golden(problem.message)


def test_samples_that_are_no_amounts_are_one_problem_of_their_broker(golden: Callable[[str], None]) -> None:
    spans, (problem,) = read(nic((970, math.nan), (980, math.nan), (990, 5.0)))
    assert spans == {1: ()}
    assert (problem.reason, problem.broker) == (Reason.METRICS_UNREADABLE, 1)
    assert numbers(problem.message) >= {2}
    assert "nan" in problem.message
    golden(problem.message)


def test_a_broker_whose_samples_are_ahead_of_our_clock_has_no_spans(golden: Callable[[str], None]) -> None:
    spans, (problem,) = read(nic((1020, 0), (1030, 100)))
    assert spans == {}
    assert (problem.reason, problem.broker) == (Reason.METRICS_STALE, 1)
    assert numbers(problem.message) >= {30}
    golden(problem.message)


def test_clocks_that_differ_by_little_are_no_problem() -> None:
    spans, problems = read(nic((994, 0), (1004, 100)))
    assert len(spans[1]) == 1
    assert problems == ()
