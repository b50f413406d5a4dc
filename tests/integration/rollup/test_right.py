"""Two Kafka clusters in one real Prometheus, a Pod that moves, and a client without a gauge: what
the tables have against the truth.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from lab.cache import RunDirectory
from tests.integration.rollup.history_server import HistoryServer, Samples
from tidegate.cli import main
from tidegate.commands.context import CommandContext
from tidegate.prometheus.settings import MetricsSettings, PrometheusServer
from tidegate.rollup.ingest import IngestOrder, WorkItem, ingest_by, read_source
from tidegate.rollup.samples import ReadRequest, Selection
from tidegate.rollup.schemas import HOUR_MS
from tidegate.rollup.show import Question, top
from tidegate.rollup.tables.format import Owner
from tidegate.rollup.tables.publication import Publication, publish
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.transport.exchange import HistorySettings
from tidegate.rollup.transport.readers import choose_reader

pytestmark = pytest.mark.integration

START_MS = 1_767_225_600_000 + 10 * HOUR_MS  # 2026-01-01T10:00:00Z
END_MS = START_MS + 2 * HOUR_MS
SCRAPE_MS = 15_000
MOVED_MS = START_MS + HOUR_MS + 1_800_000  # cluster a's broker comes back at another address
DOWN_MS = 30_000
SCRAPED_MS = MOVED_MS + 45_000  # for the first time
BASE = 10**12
RATES = {"a": {"alice": 600_000, "bob": 400_000}, "b": {"alice": 5_000_000}}
UNMETERED = 300_000  # of cluster b's broker, beside alice's 700,000 of cluster c


@pytest.fixture(scope="module")
def two_clusters() -> Iterator[HistoryServer]:
    with RunDirectory() as run:
        directory = run.path / "history"
        directory.mkdir()
        with HistoryServer(directory) as server:
            _write(server)
            yield server


def _write(server: HistoryServer) -> None:
    times = range(START_MS - HOUR_MS, END_MS + HOUR_MS, SCRAPE_MS)
    for cluster, rates in {**RATES, "c": {"alice": 700_000}}.items():
        labels = {"kafka_cluster": cluster, "broker": "1", "job": "kafka"}
        moves = cluster == "a"
        total = sum(rates.values()) + (UNMETERED if cluster == "c" else 0)
        kept = [at for at in times if not moves or not MOVED_MS <= at < SCRAPED_MS]
        before = [at for at in kept if not moves or at < MOVED_MS]
        after = kept[len(before) :]
        old = {**labels, "instance": "10.0.0.1:9404"}
        new = {**labels, "instance": "10.0.0.9:9404"}
        began_ms = MOVED_MS + DOWN_MS
        counter = "kafka_broker_bytesout_total"
        start = "process_start_time_seconds"
        server.write(counter, (old, [(at, BASE + total * (at - START_MS) / 1000) for at in before]))
        server.write(start, (old, [(at, START_MS / 1000 - 9e6) for at in before]))
        if after:
            server.write(counter, (new, [(at, total * (at - began_ms) / 1000) for at in after]))
            server.write(start, (new, [(at, began_ms / 1000) for at in after]))
        for user, rate in rates.items():
            gauge = {**labels, "user": user, "resource": "Fetch"}
            samples: Samples = [(at, float(rate)) for at in kept]
            server.write("kafka_quota_byte_rate", (gauge, samples))


@dataclass(frozen=True)
class Ran:
    code: int
    said: str
    store: UsageStore


def rolled_up(
    server: HistoryServer, folder: Path, cluster: str, *more: str, now_ms: int = END_MS
) -> Ran:
    out = io.StringIO()
    given = ["rollup", "run", "--prometheus", server.url, "--out", str(folder)]
    given += ["--matcher", f"kafka_cluster={cluster}"]
    period = ["--from", "2026-01-01T10:00:00Z", "--to", "2026-01-01T12:00:00Z"]
    argv = [*given, *period, "--cluster-id", f"kafka-{cluster}", *more]
    code = main(argv, CommandContext(out=out, err=out, now_seconds=lambda: now_ms / 1000))
    return Ran(code, out.getvalue(), UsageStore.at(f"file://{folder}"))


@pytest.fixture(scope="module")
def ingested(
    two_clusters: HistoryServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, UsageStore]:
    """The rows of five minutes by cluster, as a run's tasks make them; no Spark is needed for it."""
    return {
        cluster: ingested_hours(two_clusters, tmp_path_factory.mktemp(cluster), cluster)
        for cluster in "abc"
    }


def ingested_hours(server: HistoryServer, folder: Path, cluster: str) -> UsageStore:
    metrics = MetricsSettings(PrometheusServer(server.url), matchers={"kafka_cluster": cluster})
    history = HistorySettings(metrics.server, scrape_interval_ms=SCRAPE_MS)
    probe = ReadRequest(Selection("kafka_broker_bytesout_total"), END_MS - HOUR_MS, END_MS)
    reader = choose_reader(history, probe).reader
    owner = Owner(cluster=f"kafka-{cluster}")
    store = UsageStore.at(f"file://{folder}")
    order = IngestOrder("run", f"file://{folder}", reader.name, metrics, history, owner=owner)
    assert read_source(reader, metrics, START_MS, END_MS).brokers == (1,)
    for start_ms in range(START_MS, END_MS, HOUR_MS):
        files = ingest_by(reader, order, WorkItem(1, start_ms, start_ms + HOUR_MS, 0))
        for table in ("usage_5m", "broker_5m"):
            own = [file for file in files if file.table == table]
            publication = Publication(
                table=table, window_start_ms=start_ms, run_id="run", staged=own, owner=owner
            )
            publish(store, publication, now_ms=END_MS)
    reader.close()
    return store


def of_hour(store: UsageStore, hour: int, user: str, table: str = "usage_5m") -> int:
    start_ms = START_MS + hour * HOUR_MS
    rows = store.rows(table, start_ms, start_ms + HOUR_MS).filter(pc.field("user") == user)
    return int(pc.sum(rows["bytes"]).as_py())


def coverages(store: UsageStore, hour: int) -> list[float]:
    start_ms = START_MS + hour * HOUR_MS
    rows = store.rows("usage_5m", start_ms, start_ms + HOUR_MS).to_pylist()
    by_window = {row["window_start"]: row["coverage"] for row in rows}
    return [by_window[at] for at in sorted(by_window)]


@pytest.mark.parametrize("cluster", ["a", "b"])
def test_two_kafka_clusters_in_one_prometheus_never_mix(
    ingested: dict[str, UsageStore], cluster: str
) -> None:
    store = ingested[cluster]
    assert {user: of_hour(store, 0, user) for user in RATES[cluster]} == {
        user: rate * 3600 for user, rate in RATES[cluster].items()
    }
    assert set(store.rows("broker_5m")["cluster"].to_pylist()) == {f"kafka-{cluster}"}


def test_a_pod_that_moved_loses_one_scrape_at_most_and_coverage_tells(
    ingested: dict[str, UsageStore],
) -> None:
    truth = 1_000_000 * (3600 - DOWN_MS // 1000)
    found = sum(of_hour(ingested["a"], 1, user) for user in RATES["a"])
    assert truth - 1_000_000 * SCRAPE_MS // 1000 <= found <= truth
    assert coverages(ingested["a"], 0) == [1.0] * 12
    assert sum(coverages(ingested["a"], 1)) == pytest.approx(12 - 45_000 / 300_000, abs=0.001)


def test_a_client_without_a_gauge_is_billed_to_nobody_and_coverage_tells(
    ingested: dict[str, UsageStore],
) -> None:
    alice = of_hour(ingested["c"], 0, "alice")
    assert alice == pytest.approx(700_000 * 3600 * 1.15, rel=1e-6)
    brokers = ingested["c"].rows("broker_5m", None, START_MS + HOUR_MS)
    brokers = brokers.filter(pc.field("direction") == "fetch")
    assert pc.sum(brokers["unattributed_bytes"]).as_py() == 1_000_000 * 3600 - alice
    assert coverages(ingested["c"], 0) == pytest.approx([0.805] * 12)


@pytest.fixture(scope="module")
def of_cluster_c(
    two_clusters: HistoryServer, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Ran:
    return rolled_up(two_clusters, tmp_path_factory.mktemp("c"), "c")


def test_the_run_and_show_say_what_is_on_nobodys_account(of_cluster_c: Ran) -> None:
    assert of_cluster_c.code == 0, of_cluster_c.said
    assert "19.5% of the clients' bytes are unattributed" in of_cluster_c.said
    answer = top(of_cluster_c.store, Question(table="usage_1h"))
    assert answer.unattributed["fetch"] == (
        2 * (1_000_000 * 3600) - 2 * of_hour(of_cluster_c.store, 0, "alice", "usage_1h"),
        2 * 1_000_000 * 3600,
    )


def test_another_clusters_run_into_the_same_tables_is_refused_with_64_and_changes_nothing(
    of_cluster_c: Ran, two_clusters: HistoryServer
) -> None:
    store = of_cluster_c.store
    folder = Path(store.storage.address("").removeprefix("file://"))
    before: Sequence[object] = store.rows("usage_1h").to_pylist()
    ran = rolled_up(two_clusters, folder, "b")
    assert ran.code == 64
    assert "kafka-c" in ran.said
    assert store.rows("usage_1h").to_pylist() == before


def test_samples_that_came_late_are_found_and_computed_again(
    two_clusters: HistoryServer, spark: SparkSession, tmp_path: Path
) -> None:
    """An agent sends what it kept of another broker through an outage."""
    out = tmp_path / "usage"
    first = rolled_up(two_clusters, out, "c")
    assert first.code == 0, first.said
    labels = {"kafka_cluster": "c", "broker": "2", "job": "kafka", "instance": "late:9404"}
    times = range(START_MS - HOUR_MS, START_MS + HOUR_MS + 60_000, SCRAPE_MS)
    late = [(at, BASE + 50_000 * (at - START_MS) / 1000) for at in times]
    two_clusters.write("kafka_broker_bytesout_total", (labels, late))
    gauge = {**labels, "user": "carol", "resource": "Fetch"}
    two_clusters.write("kafka_quota_byte_rate", (gauge, [(at, 50_000.0) for at in times]))

    told = backfilled(two_clusters, out, "--dry-run=client")
    assert "2026-01-01T10" in told.said
    assert "--again" in told.said
    assert "None of 2 hours is missing" in told.said
    assert backfilled(two_clusters, out, "--again").code == 0
    assert of_hour(first.store, 0, "carol") == 50_000 * 3600
    assert "--again" not in backfilled(two_clusters, out, "--dry-run=client").said


def backfilled(server: HistoryServer, folder: Path, *more: str) -> Ran:
    out = io.StringIO()
    given = ["rollup", "backfill", "--prometheus", server.url, "--out", str(folder)]
    given += ["--matcher", "kafka_cluster=c", "--cluster-id", "kafka-c", *more]
    period = ["--from", "2026-01-01T10:00:00Z", "--to", "2026-01-01T12:00:00Z"]
    code = main(
        [*given, *period],
        CommandContext(out=out, err=out, now_seconds=lambda: END_MS / 1000),
    )
    return Ran(code, out.getvalue(), UsageStore.at(f"file://{folder}"))


def policy_file(folder: Path, tier: str) -> Path:
    """A policy with one tier, of which alice is the only member."""
    kafka = {"bootstrapServers": "kafka-1:9092", "quotaStore": "ZooKeeper"}
    shop = {
        "kafka": {**kafka, "zookeeper": {"connect": "zk-1:2181"}},
        "mode": "Enforce",
    }
    contract = {"perBroker": {"fetch": "2000000"}}
    business = {
        "policyRef": {"name": "shop"},
        "level": "L2",
        "members": [{"name": "alice", "user": "alice", "contract": contract}],
        "throttledRates": {"perBroker": {"fetch": "1000000"}},
    }
    objects = (("BrokerBandwidthPolicy", "shop", shop), ("BusinessTier", tier, business))
    file = folder / f"{tier}.yaml"
    file.write_text(
        "\n---\n".join(
            json.dumps(
                {
                    "apiVersion": "tidegate.io/v1alpha1",
                    "kind": kind,
                    "metadata": {"name": name, "namespace": "streaming"},
                    "spec": spec,
                }
            )
            for kind, name, spec in objects
        )
    )
    return file


def test_a_past_hour_that_is_computed_again_keeps_the_tiers_that_it_had(
    two_clusters: HistoryServer, spark: SparkSession, tmp_path: Path
) -> None:
    out = tmp_path / "usage"
    first = rolled_up(
        two_clusters, out, "b", "-f", str(policy_file(tmp_path, "gold")), now_ms=START_MS + HOUR_MS
    )
    assert first.code == 0, first.said
    again = rolled_up(two_clusters, out, "b", "-f", str(policy_file(tmp_path, "bulk")))
    assert again.code == 0, again.said
    assert "2 of 2 hours had other members in tiers than now" in again.said
    # the change was seen at noon, when both hours were over
    tiers = {
        (row["window_start"].hour, row["tier"]) for row in again.store.rows("usage_1h").to_pylist()
    }
    assert tiers == {(10, "streaming/gold"), (11, "streaming/gold")}


def test_two_clusters_that_nothing_keeps_apart_are_refused_and_nothing_is_published(
    two_clusters: HistoryServer, spark: SparkSession, tmp_path: Path
) -> None:
    out = io.StringIO()
    given = ["rollup", "run", "--prometheus", two_clusters.url, "--out", str(tmp_path / "usage")]
    period = ["--from", "2026-01-01T10:00:00Z", "--to", "2026-01-01T12:00:00Z"]
    context = CommandContext(out=out, err=out, now_seconds=lambda: END_MS / 1000)
    assert main([*given, *period], context) == 1
    assert "--matcher" in out.getvalue()
    assert 'kafka_cluster="b"' in out.getvalue()
    assert UsageStore.at(f"file://{tmp_path / 'usage'}").windows("usage_5m") == []
