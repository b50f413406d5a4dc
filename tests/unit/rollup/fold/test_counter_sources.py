"""Several series that count a broker's bytes: NICs add up, exporters take over, and no byte is
counted twice.
"""

import pytest

from tests.unit.rollup.fold.broker_history import START_MS, counter, every, series, windows
from tidegate.rollup.fold.counters import Counted, counted
from tidegate.rollup.fold.windows import Rate, StepFunction
from tidegate.rollup.samples import SeriesSamples


def count(*found: SeriesSamples, number: int = 1, limit: Rate | None = None) -> Counted:
    return counted(found, windows(number), interval_ms=15_000, limit=limit)


def nic(device: str, samples: dict[float, float], instance: str = "a") -> SeriesSamples:
    return series({"device": device, "instance": instance, "job": "node"}, samples)


def test_nics_of_one_machine_add_up() -> None:
    assert count(nic("eth0", counter(100)), nic("eth1", counter(20))).counted_bytes.tolist() == [
        36_000
    ]


def test_a_pair_that_scrapes_the_same_nic_counts_it_once() -> None:
    one, other = counter(100), {at + 7: value + 700 for at, value in counter(100).items()}
    total = count(nic("eth0", one, "replica-1"), nic("eth0", other, "replica-2"))
    assert total.counted_bytes.tolist() == [30_000]


def test_of_a_pair_the_one_that_saw_more_of_a_window_counts() -> None:
    seen, missed = (
        counter(100, until=700),
        {at: value for at, value in counter(100, until=700).items() if at < 330},
    )
    total = count(nic("eth0", missed, "a"), nic("eth0", seen, "b"), number=2)
    assert total.counted_bytes.tolist() == [30_000, 30_000]


def test_an_exporter_that_takes_over_adds_to_the_one_before() -> None:
    before, after = counter(100, until=120), counter(100, begin=150, until=360, first=9e9)
    total = count(nic("eth0", before, "old"), nic("eth0", after, "new"))
    assert total.counted_bytes.tolist() == [12_000 + 15_000]
    assert total.covered_ms.tolist() == [270_000]


def test_who_was_away_for_hours_may_meanwhile_be_replaced() -> None:
    away = counter(100, begin=-9000, until=60) | counter(100, begin=8000, until=9000, first=5e6)
    total = count(nic("eth0", away, "a"), nic("eth0", counter(100, begin=120, until=600), "b"))
    assert total.counted_bytes.tolist() == [6_000 + 18_000]


def test_without_series_nothing_is_covered() -> None:
    total = count()
    assert (
        total.counted_bytes.tolist(),
        total.covered_ms.tolist(),
        total.over_limit_ms.tolist(),
    ) == ([0], [0], [0])


def test_a_limit_counts_as_it_was_when_the_bytes_moved() -> None:
    lowered = StepFunction((START_MS, START_MS + 200_000), (200.0, 50.0))
    assert count(nic("eth0", counter(100)), limit=lowered).over_limit_ms.tolist() == [105_000]


@pytest.mark.parametrize(("limit", "over_ms"), [(99, 300_000), (100, 0), (101, 0), (None, 0)])
def test_over_the_limit_is_more_than_the_limit(limit: int | None, over_ms: int) -> None:
    assert count(nic("eth0", counter(100)), limit=limit).over_limit_ms.tolist() == [over_ms]


def test_it_is_the_machine_that_is_over_and_not_a_nic() -> None:
    assert count(
        nic("eth0", counter(60)), nic("eth1", counter(60)), limit=100
    ).over_limit_ms.tolist() == [300_000]


def test_a_burst_counts_for_the_time_between_its_scrapes() -> None:
    burst = {at: value + (15_000 if at >= 30 else 0) for at, value in counter(10).items()}
    assert count(nic("eth0", burst), limit=100).over_limit_ms.tolist() == [15_000]


def test_time_over_the_limit_is_shared_out_at_edges() -> None:
    total = count(nic("eth0", {-10.0: 0.0, 5.0: 15_000.0 * 0.11, 20.0: 15_000.0 * 0.11}), limit=100)
    assert total.over_limit_ms.tolist() == [5_000]


@pytest.mark.parametrize(
    "samples",
    [
        pytest.param({0.0: 5e9, 15.0: 4e9}, id="restart"),
        pytest.param({-30.0: 0.0, -15.0: 0.0, 0.0: 0.0, 76.0: 9e9}, id="gap"),
    ],
)
def test_the_rate_over_a_restart_or_a_gap_is_unknown(samples: dict[float, float]) -> None:
    assert count(nic("eth0", samples), limit=100).over_limit_ms.tolist() == [0]


def test_nics_may_be_scraped_less_often_than_brokers() -> None:
    total = counted(
        [nic("eth0", counter(101, seconds=60))], windows(1), interval_ms=5_000, limit=100
    )
    assert total.over_limit_ms.tolist() == [300_000]


def test_the_rate_while_a_nic_comes_is_unknown() -> None:
    comes = every(15, 9e9, begin=30)
    total = count(nic("eth0", counter(10)), nic("eth1", comes), limit=100)
    assert total.over_limit_ms.tolist() == [0]
