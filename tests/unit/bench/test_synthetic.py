"""The cluster that rollups are measured on: what is exported of it adds up to what was made."""

import numpy as np

from bench.rollup.synthetic import SCRAPE_MS, SyntheticCluster
from tidegate.rollup.schemas import HOUR_MS

START_MS = 494_445 * HOUR_MS
SMALL = SyntheticCluster(START_MS, hours=3, brokers=1, clients=10)


def test_counters_never_fall_and_count_every_hour_alike() -> None:
    for one in SMALL.series():
        if one.labels["__name__"] == "kafka_broker_bytesin_total":
            edges = np.searchsorted(one.times_ms, START_MS + HOUR_MS * np.arange(4))
            made = SMALL.made(int(one.labels["broker"]))["produce"]
            assert np.diff(one.values[edges]).tolist() == [made.bytes_of_clients.sum()] * 3


def test_there_is_a_scrape_every_fifteen_seconds_without_a_gap() -> None:
    assert {tuple(np.unique(np.diff(one.times_ms))) for one in SMALL.series()} == {(SCRAPE_MS,)}


def test_as_many_samples_are_counted_as_are_exported_within_the_hours() -> None:
    clients = [one for one in SMALL.series() if "user" in one.labels]
    exported = sum(
        int(((one.times_ms > START_MS) & (one.times_ms <= SMALL.end_ms)).sum()) for one in clients
    )
    assert (exported, SMALL.rate_series) == (SMALL.samples, 20)
