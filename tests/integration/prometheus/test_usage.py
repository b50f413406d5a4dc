"""Usage of days from a real Prometheus, into which clients' rates were written: the same figures as
from the one in memory, and what `tidegate import --from-usage` prints as a process.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from kazoo.client import KazooClient

from lab.process import patience
from tests.integration.rollup.history_server import HistoryServer
from tidegate.errors import InvalidResource
from tidegate.kafka.quota_node import config_path
from tidegate.prometheus.settings import BrokerLabel, MetricsSettings, PrometheusServer
from tidegate.prometheus.usage import UsageReader
from tidegate.prometheus.usage_windows import Period, UsageReading
from tidegate_logic.model import Direction, Entity, QuotaKey

pytestmark = pytest.mark.integration

HOUR, DAY = 3600, 86_400
DAYS = 3
SCRAPE_SECONDS = 60
ALICE, BOB, CAROL = Entity("alice"), Entity("bob"), Entity("carol", "app 1")
FETCH, PRODUCE = Direction.EGRESS, Direction.INGRESS
Rate = Callable[[int], float | None]


def samples(period: Period, rate: Rate) -> list[tuple[int, float]]:
    """A sample each minute, in milliseconds; None = the exporter did not answer."""
    return [
        (at * 1000, value)
        for at in range(period.start_seconds + 30, period.end_seconds, SCRAPE_SECONDS)
        if (value := rate(at)) is not None
    ]


@pytest.fixture(scope="module")
def period() -> Period:
    """The last days, one time for all tests."""
    return Period.before(time.time(), DAYS * DAY)


@pytest.fixture(scope="module")
def history(period: Period, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HistoryServer]:
    """Two Kafka clusters on one Prometheus, with brokers of the same ids."""
    start, middle = period.start_seconds, period.start_seconds + DAY

    def labels(broker: int, user: str, cluster: str = "orders", **more: str) -> dict[str, str]:
        instance = {"instance": f"{cluster}-{broker}:9404", "cluster": cluster}
        return {"broker": str(broker), "user": user, "job": "kafka", **instance, **more}

    fetch, produce = {"resource": "Fetch"}, {"resource": "Produce"}
    restarted = {"instance": "orders-2b:9404"}
    rates: list[tuple[dict[str, str], Rate]] = [
        (labels(1, "alice", **fetch), lambda at: 1_000_000.0),
        # a peak of one window, and a restart with another address after a day
        (
            labels(2, "alice", **fetch),
            lambda at: None if at > middle else 9e6 if start < at <= start + 300 else 3e6,
        ),
        (labels(2, "alice", **fetch, **restarted), lambda at: 3e6 if at > middle else None),
        # ten minutes a day
        (
            labels(1, "bob", **produce),
            lambda at: 5_000_000.0 if (at - start) % DAY < 600 else 0.0,
        ),
        # known to Kafka for two hours
        (
            labels(1, "carol", client_id='"app 1"', **fetch),
            lambda at: 40_000.0 if 0 < at - middle <= 2 * HOUR else None,
        ),
        (labels(1, "stranger", cluster="other", **fetch), lambda at: 9e9),
    ]
    with HistoryServer(tmp_path_factory.mktemp("usage")) as server:
        for series, rate in rates:
            server.write("kafka_quota_byte_rate", (series, samples(period, rate)))
        delays = labels(2, "alice", **fetch, **restarted)
        late = period.end_seconds - DAY
        server.write(
            "kafka_quota_throttle_time",
            (delays, samples(period, lambda at: 400.0 if at > late else math.nan)),
        )
        yield server


def settings(history: HistoryServer, **matchers: str) -> MetricsSettings:
    return MetricsSettings(
        PrometheusServer(history.url), brokers=BrokerLabel("broker"), matchers=matchers
    )


def read(history: HistoryServer, period: Period, **matchers: str) -> UsageReading:
    reader = UsageReader(settings(history, **matchers))
    try:
        return reader.read(period, wanted=lambda entity: True, brokers={1, 2})
    finally:
        reader.close()


def test_the_figures_are_those_of_the_samples(history: HistoryServer, period: Period) -> None:
    reading = read(history, period, cluster="orders")
    assert {entity for entity, _ in reading.clients} == {ALICE, BOB, CAROL}
    alice = reading.clients[ALICE, FETCH]
    assert (alice.broker, alice.p99, alice.peak) == (2, 3_000_000.0, 9_000_000.0)
    assert alice.peak_at_seconds == period.start_seconds + 300
    assert alice.throttled_days == 1
    assert reading.clients[BOB, PRODUCE].p99 == 5_000_000.0
    assert reading.clients[CAROL, FETCH].p99 == 40_000.0
    assert reading.problems == ()


def test_what_is_known_is_counted_in_windows(history: HistoryServer, period: Period) -> None:
    reading = read(history, period, cluster="orders")
    assert reading.known_seconds == {1: DAYS * DAY, 2: DAYS * DAY}
    assert reading.seen[ALICE].client_seconds == DAYS * DAY
    # a window counts when one sample is in it
    assert 0 <= reading.seen[CAROL].client_seconds - 2 * HOUR <= 300


def test_days_that_prometheus_does_not_have_are_not_known(
    history: HistoryServer, period: Period
) -> None:
    longer = Period(period.start_seconds - 4 * DAY, period.end_seconds)
    reading = read(history, longer, cluster="orders")
    assert reading.known_seconds == {1: DAYS * DAY, 2: DAYS * DAY}
    assert reading.seen[ALICE].known_seconds == DAYS * DAY


def test_two_clusters_that_nothing_tells_apart_are_refused(
    history: HistoryServer, period: Period
) -> None:
    with pytest.raises(InvalidResource, match="Two sources speak for broker 1"):
        read(history, period, job="kafka")


@pytest.fixture
def quotas(chroot: str) -> Iterator[str]:
    """A ZooKeeper as of a Kafka, in which bob has a quota and carol only a password."""
    client = KazooClient(chroot)
    client.start()
    for entity, config in (
        (BOB, {QuotaKey.PRODUCER_BYTE_RATE.value: "20000000"}),
        (Entity("carol"), {"SCRAM-SHA-512": "salt=x"}),
    ):
        content = json.dumps({"version": 1, "config": config}).encode()
        client.create(config_path(entity), content, makepath=True)
    yield chroot
    client.stop()
    client.close()


def test_the_command_proposes_contracts_for_those_without_a_quota(
    history: HistoryServer, quotas: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tidegate", "import", "n/orders", "--zookeeper", quotas),
            *("--from-usage", f"{DAYS}d", "--prometheus", history.url),
            *("--matcher", "cluster=orders"),
        ],
        capture_output=True,
        text=True,
        timeout=patience(90),
    )
    assert done.returncode == 0, done.stderr
    contracts = {
        member["name"]: member["contract"]["perBroker"]
        for one in yaml.safe_load_all(done.stdout)
        for member in one["spec"]["members"]
    }
    assert contracts == {
        "bob": {"produce": "20M"},
        "alice": {"fetch": "3.9M"},
        "carol-app-1": {"fetch": "100k"},
    }
    assert "stranger" not in done.stdout + done.stderr
    assert "seen for less than a day" in done.stdout
