"""What goes wrong around a counter, each with its stated error: an hour in which a broker's clients
move 1 MB/s, a 60 % and b 40 % of it.

Two more are elsewhere: two Kafka clusters in one Prometheus (A, tests of `ingest` and on a real
Prometheus), two policies with one storage (B, `tables/test_owner.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from tidegate.rollup.fold.broker import DirectionSamples, broker_table, fold_broker, usage_table
from tidegate.rollup.fold.windows import Windows
from tidegate.rollup.samples import SeriesSamples

HOUR_MS = 3_600_000
START_MS = 494_445 * HOUR_MS
RATE = 1_000_000
SECONDS = 3600
BASE = 10**12  # what the counter has from before: weeks of uptime
Times = NDArray[np.int64]


def at(begin: float = -3600, end: float = 7200, step: float = 15) -> Times:
    """Times of scrapes, in ms; seconds after the hour began."""
    return START_MS + np.round(1000 * np.arange(begin, end, step)).astype(np.int64)


def series(labels: Mapping[str, str], times: Times, values: object) -> SeriesSamples:
    return SeriesSamples(
        {"broker": "1", "__name__": "bytesin", "instance": "a", **labels},
        times,
        np.broadcast_to(np.asarray(values, np.float64), times.shape),
    )


def total(times: Times, *, rate: float = RATE, base: float = BASE) -> NDArray[np.float64]:
    return base + rate * (times - START_MS) / 1000


def counter(times: Times, **labels: str) -> SeriesSamples:
    return series(labels, times, total(times))


def since(second: float, times: Times, *, rate: float = RATE) -> NDArray[np.float64]:
    """The counter of a process that started then."""
    return rate * ((times - START_MS) / 1000 - second)


def started(second: float, times: Times, **labels: str) -> SeriesSamples:
    names = {"__name__": "process_start_time_seconds"} | labels
    return series(names, times, START_MS / 1000 + second)


def gauges(times: Times, *, metered: float = 1.0) -> Sequence[SeriesSamples]:
    return [
        series({"user": user, "__name__": "rate"}, times, share * metered * RATE)
        for user, share in (("a", 0.6), ("b", 0.4))
    ]


@dataclass(frozen=True)
class Hour:
    """What the tables have of the hour."""

    counted: int
    unattributed: int
    users: Mapping[str, int]
    coverage: float
    factors: Sequence[float]


def fold(samples: DirectionSamples) -> Hour:
    windows = Windows(START_MS, START_MS + HOUR_MS)
    found = fold_broker(1, {"produce": samples}, windows, interval_ms=15_000)
    rows = usage_table(found).to_pylist()
    brokers = [row for row in broker_table(found).to_pylist() if row["direction"] == "produce"]
    users = {user: sum(row["bytes"] for row in rows if row["user"] == user) for user in "ab"}
    by_window = {row["window_start"]: row["coverage"] for row in rows}
    return Hour(
        sum(row["client_bytes"] for row in brokers),
        sum(row["unattributed_bytes"] for row in brokers),
        users,
        sum(by_window.values()) / 12,
        sorted({row["calibration"] for row in rows}),
    )


def pod(second: float, times: Times, address: str) -> SeriesSamples:
    return series({"instance": address}, times, since(second, times))


def crash_loop(*, known: bool) -> DirectionSamples:
    """A new Pod each minute for the whole hour: up for 50 s, scraped from 10 s on."""
    times = [at(60 * number + 10, 60 * number + 50) for number in range(60)]
    return DirectionSamples(
        client_bytes=[pod(60 * n, each, f"10.0.0.{n}") for n, each in enumerate(times)],
        rates=gauges(np.concatenate(times)),
        starts=[started(60 * n, each, instance=f"10.0.0.{n}") for n, each in enumerate(times)]
        if known
        else [],
    )


def moved_pod(*, known: bool) -> DirectionSamples:
    """The Pod dies after 30 minutes; another starts 30 s later at another address."""
    old, new = at(end=1800), at(begin=1845)
    return DirectionSamples(
        client_bytes=[counter(old, instance="10.0.0.1"), pod(1830, new, "10.0.0.9")],
        rates=gauges(np.concatenate([old, new])),
        starts=[
            started(-9e5, old, instance="10.0.0.1"),
            started(1830, new, instance="10.0.0.9"),
        ]
        if known
        else [],
    )


EVERY = at()
TRUTH = RATE * SECONDS


def restarted_in_place() -> DirectionSamples:
    old, new = at(end=1800), at(begin=1872)
    times = np.concatenate([old, new])
    values = np.concatenate([total(old), since(1860, new)])
    return DirectionSamples(client_bytes=[series({}, times, values)], rates=gauges(times))


def two_replicas_in_one_series() -> DirectionSamples:
    """One 1.2 s after the other, with a count of 2.5 s before."""
    late = EVERY + 1200
    times = np.sort(np.concatenate([EVERY, late]))
    values = np.where(np.isin(times, late), total(times - 2500), total(times))
    return DirectionSamples(client_bytes=[series({}, times, values)], rates=gauges(EVERY))


def absurd_sample() -> DirectionSamples:
    """One scrape has a count of 10^17, the next one is right again."""
    values = total(EVERY)
    values[EVERY == START_MS + 1_800_000] = 1e17
    return DirectionSamples(client_bytes=[series({}, EVERY, values)], rates=gauges(EVERY))


def relabelled() -> DirectionSamples:
    old, new = at(end=1800), at(begin=1800)
    return DirectionSamples(
        client_bytes=[counter(old, instance="a:1"), counter(new, instance="a:2")],
        rates=gauges(EVERY),
    )


def two_names() -> DirectionSamples:
    names = ("kafka_bytesin_total", "kafka_bytesinpersec_total")
    return DirectionSamples(
        client_bytes=[counter(EVERY, __name__=name) for name in names], rates=gauges(EVERY)
    )


def replica_pair() -> DirectionSamples:
    other = EVERY + 7000
    return DirectionSamples(
        client_bytes=[counter(EVERY, replica="0"), counter(other, replica="1")],
        rates=[
            series({**one.labels, "replica": replica}, times, one.values)
            for replica, times in (("0", EVERY), ("1", other))
            for one in gauges(times)
        ],
    )


def slow(step: float) -> DirectionSamples:
    times = at(step=step)
    return DirectionSamples(client_bytes=[counter(times)], rates=gauges(times))


def late_by_an_hour() -> DirectionSamples:
    """No sample for 3700 s from the tenth minute on."""
    times = np.concatenate([at(end=600), at(begin=4300)])
    return DirectionSamples(client_bytes=[counter(times)], rates=gauges(times))


@pytest.mark.parametrize(
    ("samples", "truth", "error", "least_coverage"),
    [
        pytest.param(slow(15), TRUTH, 0.0, 1.0, id="nothing wrong"),
        pytest.param(two_replicas_in_one_series(), TRUTH, 0.001, 1.0, id="D: replicas in a series"),
        pytest.param(absurd_sample(), TRUTH, 0.0, 1.0, id="D: a count of no NIC"),
        pytest.param(two_names(), TRUTH, 0.0, 1.0, id="E: two names of a counter"),
        pytest.param(moved_pod(known=True), TRUTH - 30 * RATE, 0.005, 0.98, id="F: a moved Pod"),
        pytest.param(moved_pod(known=False), TRUTH - 30 * RATE, 0.005, 0.98, id="F: start unknown"),
        pytest.param(restarted_in_place(), TRUTH - 60 * RATE, 0.005, 0.97, id="F: same address"),
        pytest.param(crash_loop(known=True), 50 * 60 * RATE, 0.2, 0.65, id="G: a crash loop"),
        pytest.param(crash_loop(known=False), 50 * 60 * RATE, 0.21, 0.65, id="G: start unknown"),
        pytest.param(relabelled(), TRUTH, 0.0, 1.0, id="H: a relabelled instance"),
        pytest.param(replica_pair(), TRUTH, 0.0, 1.0, id="I: a pair of Prometheus servers"),
        pytest.param(slow(60), TRUTH, 0.0, 0.8, id="K: scraped each minute"),
        pytest.param(late_by_an_hour(), 600 * RATE, 0.03, 0.16, id="L: a gap above an hour"),
    ],
)
def test_a_broker_is_counted_with_the_stated_error_and_no_client_gets_more(
    samples: DirectionSamples, truth: int, error: float, least_coverage: float
) -> None:
    found = fold(samples)
    assert truth * (1 - error) <= found.counted <= truth
    for user, share in (("a", 0.6), ("b", 0.4)):
        assert found.users[user] <= share * truth * 1.001
        assert found.users[user] == pytest.approx(share * found.counted, rel=0.03)
    assert found.coverage >= least_coverage


@pytest.mark.parametrize("known", [True, False])
def test_a_moved_pod_lowers_the_coverage_by_the_time_whose_bytes_are_lost(known: bool) -> None:
    found = fold(moved_pod(known=known))
    assert found.coverage == pytest.approx(1 - 45 / 3600, abs=16 / 3600)
    assert found.coverage < 0.995


def test_each_start_of_a_crash_loop_loses_one_scrape_at_most() -> None:
    lost = 50 * 60 * RATE - fold(crash_loop(known=True)).counted
    assert 0 <= lost <= 60 * 15 * RATE


@pytest.mark.parametrize(
    ("metered", "factor"), [(0.9, 1 / 0.9), (0.7, 1 / 0.7), (0.5, 2.0), (0.4, 2.5)]
)
def test_c_a_client_never_pays_more_than_15_percent_for_those_without_a_gauge(
    metered: float, factor: float
) -> None:
    found = fold(
        DirectionSamples(client_bytes=[counter(EVERY)], rates=gauges(EVERY, metered=metered))
    )
    assert found.counted == TRUTH
    billed = min(1.15, factor)
    assert found.users["a"] == pytest.approx(0.6 * metered * TRUTH * billed, rel=1e-6)
    assert found.users["a"] + found.users["b"] + found.unattributed == TRUTH
    assert found.unattributed == pytest.approx(TRUTH * max(0.0, 1 - metered * 1.15), abs=50)
    assert found.factors == pytest.approx([factor])
    assert found.coverage == pytest.approx(1 - found.unattributed / TRUTH)


def test_j_while_gauges_are_gone_bytes_are_unattributed() -> None:
    half = EVERY[EVERY < START_MS + 1_800_000]
    found = fold(DirectionSamples(client_bytes=[counter(EVERY)], rates=gauges(half)))
    assert found.counted == TRUTH
    assert found.unattributed == pytest.approx(TRUTH / 2, rel=0.02)


@pytest.mark.parametrize("seconds", [60, 90])
def test_k_a_longer_interval_than_declared_changes_no_byte_but_the_coverage(seconds: int) -> None:
    found = fold(slow(seconds))
    assert found.counted == TRUTH
    assert found.users["a"] == 0.6 * TRUTH
    assert (found.coverage < 0.3) == (seconds == 90)


def test_a_standalone_exporter_that_restarts_is_no_restart_of_the_broker() -> None:
    """Its start time changes and the broker's count goes on."""
    old, new = at(end=1800), at(begin=1800)
    starts = series(
        {"__name__": "process_start_time_seconds"},
        EVERY,
        np.where(new[0] > EVERY, START_MS / 1000 - 9e6, START_MS / 1000 + 1795),
    )
    assert len(old) + len(new) == len(EVERY)
    found = fold(
        DirectionSamples(client_bytes=[counter(EVERY)], rates=gauges(EVERY), starts=[starts])
    )
    assert found.counted == TRUTH


def test_a_restart_too_quick_to_fall_counts_from_its_start() -> None:
    """A young counter is higher again at the next scrape than it was before the restart."""
    old, new = at(begin=0, end=15), at(begin=300, end=3600)
    times = np.concatenate([old, new])
    values = np.concatenate([since(-3, old), since(285, new)])
    starts = series(
        {"__name__": "process_start_time_seconds"},
        times,
        START_MS / 1000 + np.where(times < new[0], -3, 285),
    )
    found = fold(
        DirectionSamples(
            client_bytes=[series({}, times, values)], rates=gauges(times), starts=[starts]
        )
    )
    assert found.counted == RATE * 3300
