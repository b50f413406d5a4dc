"""What docs/usage.md says of checking a number by hand, done with a real Prometheus that has two Kafka
clusters: the page's own queries give what the tables have.
"""

from __future__ import annotations

import json
import re
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lab.cache import RunDirectory
from lab.process import patience
from tests.integration.rollup.history_server import HistoryServer
from tests.integration.rollup.known_history import (
    CONTRACTS,
    CUT_MS,
    END_MS,
    LOWERED_MS,
    MINUTE_MS,
    POLICY,
    RELAXED_MS,
    SCRAPE_MS,
    SECOND_HOUR_MS,
    START_MS,
    write_brokers,
    write_known_history,
)
from tidegate.prometheus.settings import MetricsSettings, PrometheusServer
from tidegate.rollup.ingest import IngestOrder
from tidegate.rollup.schemas import FIVE_MINUTES_MS, HOUR_MS
from tidegate.rollup.spark.run import RollupRun, run_rollup
from tidegate.rollup.spark.session import beside
from tidegate.rollup.tables.format import new_run_id
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.transport.exchange import HistorySettings
from tidegate.rollup.transport.remote_read import RemoteReadChunks

pytestmark = pytest.mark.integration

PAGE = Path(__file__).parents[3] / "docs" / "usage.md"
OURS = {"kafka_cluster": "a"}
# The page is about what payments produces and what etl fetches; here bob fetches.
NAMES = {
    "bytesin": "bytesout",
    "Produce": "Fetch",
    'user="payments"': 'user="bob"',
    'user="etl"': 'user="bob"',
    'member="payments"': 'member="member-bob"',
    'member="etl"': 'member="member-bob"',
    'tier="gold"': 'tier="bulk"',
    'direction="produce"': 'direction="fetch"',
}
Samples = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Cluster:
    """The server, and the tables of one of its two clusters."""

    server: HistoryServer
    store: UsageStore

    def ask(self, query: str, at_ms: int) -> list[tuple[Mapping[str, str], Samples]]:
        """The answer of the query API."""
        form = urllib.parse.urlencode({"query": query, "time": at_ms / 1000})
        with urllib.request.urlopen(
            f"{self.server.url}/api/v1/query?{form}", timeout=patience(10)
        ) as answer:
            found = json.load(answer)["data"]["result"]
        return [
            (
                one["metric"],
                [(float(at), float(value)) for at, value in one.get("values") or [one["value"]]],
            )
            for one in found
        ]

    def number(self, query: str, at_ms: int) -> float:
        """Its one value; 0 where nothing is counted."""
        found = self.ask(query, at_ms)
        assert len(found) <= 1, f"{query}: {found}"
        return found[0][1][-1][1] if found else 0.0

    def row(self, table: str, start_ms: int, **where: object) -> Mapping[str, float]:
        """The row of the window and direction fetch."""
        length = HOUR_MS if table.endswith("1h") else FIVE_MINUTES_MS
        wanted = {"direction": "fetch", **where}
        (found,) = (
            row
            for row in self.store.rows(table, start_ms, start_ms + length).to_pylist()
            if all(row[name] == value for name, value in wanted.items())
        )
        return found


@pytest.fixture(scope="module")
def cluster(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with RunDirectory() as run:
        directory = run.path / "history"
        directory.mkdir()
        with HistoryServer(directory) as server:
            write_known_history(server, more_labels=OURS)
            write_brokers(server, {"kafka_cluster": "b"}, as_much=3.0)
            metrics = MetricsSettings(PrometheusServer(server.url), matchers=OURS)
            history = HistorySettings(
                metrics.server, external_labels=("cluster",), scrape_interval_ms=SCRAPE_MS
            )
            url = f"file://{tmp_path_factory.mktemp('by-hand')}"
            order = IngestOrder(new_run_id(END_MS), url, RemoteReadChunks.name, metrics, history)
            asked = RollupRun(
                order, START_MS, END_MS, POLICY, clock_ms=lambda: END_MS, tell=lambda _: None
            )
            reader = RemoteReadChunks(history)
            run_rollup(beside(spark), asked, reader)
            reader.close()
            yield Cluster(server, UsageStore.at(url))


def page_queries() -> list[str]:
    """The queries of the section, in its order, without the words beside them."""
    text = PAGE.read_text().partition("## Check a number by hand")[2].partition("\n## ")[0]
    lines = [
        line for block in re.findall(r"```text\n(.*?)```", text, re.S) for line in block.split("\n")
    ]
    return [re.split(r"\s{4,}", line)[0] for line in lines if "{" in line]


def queries() -> list[str]:
    """The same for bob, with the matchers of the policy, as the page says."""
    found = []
    for query in page_queries():
        for old, new in NAMES.items():
            query = query.replace(old, new)
        found.append(re.sub(r"(kafka_\w+)\{", r'\1{kafka_cluster="a", ', query))
    return found


(
    COUNTED,
    SHOWN,
    SHOWN_OF_ALL,
    THROTTLED,
    OVER_CONTRACT,
    CONTRACT,
    BELOW_CONTRACT,
    RATE,
    TIER_THROTTLED,
) = queries()
HELD_MS = CUT_MS  # a window in which bob is throttled
FREE_MS = SECOND_HOUR_MS + 40 * MINUTE_MS


def test_the_page_says_to_add_the_matchers() -> None:
    section = PAGE.read_text().partition("## Check a number by hand")[2].partition("\n## ")[0]
    assert "metrics.matchers" in section


@pytest.mark.parametrize("start_ms", [HELD_MS, FREE_MS])
def test_the_bytes_of_a_broker_and_of_a_client(cluster: Cluster, start_ms: int) -> None:
    end_ms = start_ms + FIVE_MINUTES_MS
    ((_, samples),) = cluster.ask(COUNTED, end_ms + SCRAPE_MS)
    counted = 0.0
    for (before, low), (after, high) in pairwise(samples):
        within = min(after, end_ms / 1000) - max(before, start_ms / 1000)
        counted += (high - low) * max(0.0, within) / (after - before)
    broker = cluster.row("broker_5m", start_ms, broker=1)
    assert counted == broker["client_bytes"]

    shown, of_all = (cluster.number(query, end_ms) for query in (SHOWN, SHOWN_OF_ALL))
    bob = cluster.row("usage_5m", start_ms, broker=1, user="bob")
    # off by the part of a scrape at each edge
    by_hand = shown / of_all * (broker["client_bytes"] - broker["unattributed_bytes"])
    assert bob["bytes"] == pytest.approx(by_hand, rel=0.1 if start_ms == HELD_MS else 1e-6)
    # without the matchers it would be two clusters
    assert cluster.number(SHOWN_OF_ALL.replace('kafka_cluster="a", ', ""), end_ms) > 3 * of_all


@pytest.mark.parametrize(("start_ms", "seconds"), [(HELD_MS, 300.0), (FREE_MS, 0.0)])
def test_seconds_throttled(cluster: Cluster, start_ms: int, seconds: float) -> None:
    by_hand = cluster.number(THROTTLED, start_ms + FIVE_MINUTES_MS)
    bob = cluster.row("usage_5m", start_ms, broker=1, user="bob")
    assert by_hand == bob["throttled_seconds"] == seconds


@pytest.mark.parametrize(("start_ms", "seconds"), [(HELD_MS, 0.0), (FREE_MS, 300.0)])
def test_seconds_over_the_contract(cluster: Cluster, start_ms: int, seconds: float) -> None:
    contract = cluster.number(CONTRACT, start_ms)
    assert contract == CONTRACTS["bob"]
    throttled = start_ms == HELD_MS  # for such scrapes the page takes 1.2 times the contract
    query = OVER_CONTRACT.replace("CONTRACT", str(contract * (1.2 if throttled else 1)))
    by_hand = cluster.number(query, start_ms + FIVE_MINUTES_MS)
    bob = cluster.row("usage_5m", start_ms, broker=1, user="bob")
    assert by_hand == bob["over_contract_seconds"] == seconds


def test_deferred_bytes(cluster: Cluster) -> None:
    end_ms = HELD_MS + FIVE_MINUTES_MS
    ratios = [cluster.number(BELOW_CONTRACT, at) for at in (CUT_MS, CUT_MS + SCRAPE_MS)]
    assert ratios[0] == 1.0 > ratios[1]
    ((_, before),) = cluster.ask(RATE, CUT_MS)
    ((_, within),) = cluster.ask(RATE, end_ms)
    held = [rate for at, rate in within if HELD_MS < at * 1000 <= end_ms]
    by_hand = sum(max(0.0, before[-1][1] - rate) * SCRAPE_MS / 1000 for rate in held)
    bob = cluster.row("usage_5m", HELD_MS, broker=1, user="bob")
    assert by_hand > 0
    assert bob["deferred_bytes"] == pytest.approx(by_hand, rel=1e-6)


def test_seconds_throttled_of_a_tier(cluster: Cluster) -> None:
    tier = cluster.row("tier_1h", SECOND_HOUR_MS, tier="streaming/bulk")
    by_hand = cluster.number(TIER_THROTTLED, END_MS)
    assert by_hand == tier["seconds_throttled"] + tier["seconds_relaxing"] == 600.0
    assert tier["seconds_throttled"] == (RELAXED_MS - CUT_MS) / 1000


@pytest.mark.parametrize("start_ms", [LOWERED_MS - FIVE_MINUTES_MS, LOWERED_MS])
def test_seconds_over_the_limit(cluster: Cluster, start_ms: int) -> None:
    end_ms = start_ms + FIVE_MINUTES_MS
    nic = 'node_network_transmit_bytes_total{kafka_cluster="a", broker="1"}[5m15s]'
    limits = 'tidegate_broker_limit_bytes_per_second{broker="1", direction="egress"}[5m15s]'
    ((_, counts),) = cluster.ask(nic, end_ms)
    ((_, known),) = cluster.ask(limits, end_ms)
    limit = dict(known)
    by_hand = sum(
        after - before
        for (before, low), (after, high) in pairwise(counts)
        if before >= start_ms / 1000 and (high - low) / (after - before) > limit[after]
    )
    broker = cluster.row("broker_5m", start_ms, broker=1)
    assert by_hand == broker["over_limit_seconds"] == (300.0 if start_ms == LOWERED_MS else 0.0)
