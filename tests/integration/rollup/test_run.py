"""A whole run on a real Prometheus and a real Spark: every table has every byte, and a second run
changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from tests.integration.rollup.history_server import HistoryServer
from tests.integration.rollup.known_history import (
    BROKERS,
    CUT_MS,
    DECLARED_LIMIT,
    END_MS,
    GAUGE,
    LIMIT,
    LOWER_LIMIT,
    MINUTE_MS,
    NIC,
    POLICY,
    RATES,
    RELEASED_MS,
    SCRAPE_MS,
    SECOND_HOUR_MS,
    START_MS,
    THROTTLED_RATE,
    moved,
)
from tidegate.errors import NotFound
from tidegate.prometheus.settings import BrokerLabel, MetricsSettings, PrometheusServer
from tidegate.rollup.ingest import IngestOrder
from tidegate.rollup.samples import Progress, ReadRequest, Selection, Step, unwatched
from tidegate.rollup.schemas import DAY_MS, HOUR_MS
from tidegate.rollup.spark.run import RollupRun, run_rollup
from tidegate.rollup.spark.session import SHUFFLE_PARTITIONS, Spark, beside, spark_started
from tidegate.rollup.tables import publication
from tidegate.rollup.tables.format import new_run_id
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.tables.upkeep import Retention
from tidegate.rollup.tables.verify import verify
from tidegate.rollup.terms.sources import PolicyTerms
from tidegate.rollup.transport.exchange import HistorySettings
from tidegate.rollup.transport.readers import choose_reader
from tidegate.rollup.transport.remote_read import RemoteReadChunks

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def store(
    spark: SparkSession, known_history: HistoryServer, tmp_path_factory: pytest.TempPathFactory
) -> UsageStore:
    folder = tmp_path_factory.mktemp("usage")
    run(spark, known_history, folder)
    return UsageStore.at(f"file://{folder}")


def run(
    spark: SparkSession | Spark,
    known_history: HistoryServer,
    folder: Path,
    *,
    start_ms: int = START_MS,
    end_ms: int = END_MS,
    now_ms: int | None = None,
    policy: PolicyTerms | None = POLICY,
    retention: Retention | None = None,
    progress: Progress = unwatched,
    tasks_at_once: int | None = None,
) -> int:
    server = PrometheusServer(known_history.url)
    history = HistorySettings(server, external_labels=("cluster",), scrape_interval_ms=SCRAPE_MS)
    chosen = choose_reader(
        history, ReadRequest(Selection("kafka_broker_bytesout_total"), END_MS - HOUR_MS, END_MS)
    )
    order = IngestOrder(
        new_run_id(END_MS), f"file://{folder}", chosen.reader.name, MetricsSettings(server), history
    )
    asked = RollupRun(
        order,
        start_ms,
        end_ms,
        policy,
        retention,
        clock_ms=lambda: now_ms or end_ms,
        tell=print,
        progress=progress,
        tasks_at_once=tasks_at_once,
    )
    own = spark if isinstance(spark, Spark) else beside(spark)
    published = run_rollup(own, asked, chosen.reader)
    chosen.reader.close()
    return len(published)


def bytes_by(store: UsageStore, table: str, key: str) -> Mapping[str, int]:
    rows = store.rows(table).group_by(key).aggregate([("bytes", "sum")])
    return dict(zip(rows[key].to_pylist(), rows["bytes_sum"].to_pylist(), strict=True))


@pytest.mark.parametrize("table", ["usage_5m", "usage_1h", "usage_1d"])
def test_every_grain_has_every_byte(store: UsageStore, table: str) -> None:
    assert bytes_by(store, table, "user") == {user: moved(user) for user in RATES}


@pytest.mark.parametrize("table", ["broker_5m", "broker_1h", "broker_1d"])
def test_clients_and_the_rest_are_what_the_broker_counted(store: UsageStore, table: str) -> None:
    rows = store.rows(table).filter(pc.field("direction") == "fetch")
    seconds = (END_MS - START_MS) // 1000
    assert pc.sum(rows["client_bytes"]).as_py() == sum(map(moved, RATES))
    assert pc.sum(rows["unattributed_bytes"]).as_py() == 0
    assert pc.sum(rows["nic_bytes"]).as_py() == pytest.approx(
        NIC * sum(RATES.values()) * len(BROKERS) * seconds, rel=1e-9
    )


def test_percentiles_are_those_of_the_rates(store: UsageStore) -> None:
    alice = store.rows("usage_1h").filter(pc.field("user") == "alice")
    for percent in ("p50", "p95", "p99"):
        assert set(alice[percent].to_pylist()) == {float(RATES["alice"])}
    assert pc.min(alice["coverage"]).as_py() == 1.0


def test_a_tier_is_its_members_over_all_brokers(store: UsageStore) -> None:
    gold = store.rows("tier_1h").filter(pc.field("tier") == "streaming/gold")
    assert gold.num_rows == 2
    assert set(gold["p99"].to_pylist()) == {float(RATES["alice"] * len(BROKERS))}


HELD_S = (RELEASED_MS - CUT_MS) // 1000


def hour(store: UsageStore, table: str, start_ms: int, **wanted: object) -> list[dict[str, object]]:
    rows = store.rows(table, start_ms, start_ms + HOUR_MS).to_pylist()
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def test_time_over_the_contract_is_by_the_declared_one_where_the_operator_reported_nothing(
    store: UsageStore,
) -> None:
    for start_ms, seconds in ((START_MS, 3600.0), (SECOND_HOUR_MS, 3600.0 - HELD_S)):
        assert [
            row["over_contract_seconds"] for row in hour(store, "usage_1h", start_ms, user="bob")
        ] == [seconds] * len(BROKERS)
        assert {
            row["over_contract_seconds"] for row in hour(store, "usage_1h", start_ms, user="alice")
        } == {0.0}


def test_limits_are_those_that_were_in_force_when_the_bytes_moved(store: UsageStore) -> None:
    first, second = (
        hour(store, "broker_1h", start_ms, direction="fetch")
        for start_ms in (START_MS, SECOND_HOUR_MS)
    )
    assert [(row["limit"], row["over_limit_seconds"]) for row in first] == [
        (DECLARED_LIMIT, 3600.0)
    ] * len(BROKERS)
    assert [(row["limit"], row["over_limit_seconds"]) for row in second] == [
        (LOWER_LIMIT, 1800.0)
    ] * len(BROKERS)
    assert {
        row["limit"] for row in hour(store, "broker_5m", SECOND_HOUR_MS, direction="fetch")
    } == {LIMIT, LOWER_LIMIT}


def test_bytes_held_back_are_the_rate_before_the_cut_less_the_rate_during_it(
    store: UsageStore,
) -> None:
    short = round(GAUGE * (RATES["bob"] - THROTTLED_RATE)) * HELD_S
    assert [
        row["deferred_bytes"] for row in hour(store, "usage_1h", SECOND_HOUR_MS, user="bob")
    ] == [short] * len(BROKERS)
    assert [row["deferred_bytes"] for row in hour(store, "usage_1h", START_MS, user="bob")] == [
        0
    ] * len(BROKERS)


@pytest.mark.parametrize("table", ["tier_1h", "tier_1d"])
def test_a_tier_has_its_states_and_the_episodes_that_began(store: UsageStore, table: str) -> None:
    """The operator was first scraped 90 s into the hour, and a scrape counts for the 15 s before
    it.
    """
    names = (
        "throttle_episodes",
        "seconds_contract",
        "seconds_stepping",
        "seconds_throttled",
        "seconds_relaxing",
    )
    states = {
        row["tier"]: [row[name] for name in names]
        for row in store.rows(table).filter(pc.field("direction") == "fetch").to_pylist()
        if row["window_start"].hour != 22
    }
    assert states == {
        "streaming/gold": [0, 3525.0, 0.0, 0.0, 0.0],
        "streaming/bulk": [1, 3525.0 - HELD_S, 0.0, 480.0, 120.0],
    }


def test_what_was_published_is_whole(store: UsageStore) -> None:
    verdict = verify(store)
    assert (verdict.broken, verdict.gaps, verdict.outdated) == ([], [], [])


def test_who_watches_sees_every_count_rise_to_what_was_done(
    spark: SparkSession, known_history: HistoryServer, tmp_path: Path
) -> None:
    """Prometheus has no samples of the first of these hours."""
    counts: dict[Step, list[tuple[int, int]]] = {step: [] for step in Step}
    hours, start_ms = 5, START_MS - 3 * HOUR_MS
    published = run(
        spark,
        known_history,
        tmp_path,
        start_ms=start_ms,
        progress=lambda step, done, of: counts[step].append((done, of)),
    )
    ingested, windows = counts[Step.INGESTED], counts[Step.PUBLISHED]
    assert ingested[0] == (0, hours * len(BROKERS))
    assert ingested[-1] == (hours * len(BROKERS),) * 2
    assert windows[-1] == (published, published)
    assert 0 < published < windows[0][1]
    for pairs in counts.values():
        assert [done for done, _ in pairs] == sorted(done for done, _ in pairs)


def test_an_hour_that_is_not_over_is_published_as_far_as_it_is(
    spark: SparkSession, known_history: HistoryServer, tmp_path: Path
) -> None:
    until_ms = SECOND_HOUR_MS + 15 * MINUTE_MS
    run(spark, known_history, tmp_path, start_ms=SECOND_HOUR_MS, end_ms=until_ms)
    running = UsageStore.at(f"file://{tmp_path}")
    assert bytes_by(running, "usage_1h", "user")["alice"] == RATES["alice"] * len(BROKERS) * 900
    assert running.windows("usage_1d") == []
    states = {
        row["tier"]: row["seconds_throttled"] for row in hour(running, "tier_1h", SECOND_HOUR_MS)
    }
    assert states == {"streaming/gold": 0.0, "streaming/bulk": 300.0}


def test_tasks_that_read_several_hours_and_windows_in_parts_give_the_same_rows(
    spark: SparkSession,
    known_history: HistoryServer,
    store: UsageStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As many executors and a large cluster have it."""
    monkeypatch.setattr(publication, "MOST_ROWS_OF_A_PART", 1)
    run(spark, known_history, tmp_path, tasks_at_once=1)
    again = UsageStore.at(f"file://{tmp_path}")
    for table in ("usage_5m", "broker_1h", "usage_1d", "tier_1d"):
        assert again.rows(table).equals(store.rows(table)), table
    hours, (_, part) = len(again.windows("usage_5m")), again.parts("usage_5m")
    assert (hours, len(part.files)) == (2, len(BROKERS))


def test_a_second_run_leaves_the_same_rows_and_lets_old_ones_go(
    spark: SparkSession, known_history: HistoryServer, store: UsageStore, tmp_path: Path
) -> None:
    run(spark, known_history, tmp_path)
    again = UsageStore.at(f"file://{tmp_path}")
    kept = ("usage_1h", "broker_1h", "tier_1d")
    for table in ("usage_5m", *kept):
        assert (
            again.rows(table)
            .sort_by("window_start")
            .equals(store.rows(table).sort_by("window_start"))
        )
    run(
        spark,
        known_history,
        tmp_path,
        now_ms=END_MS + 40 * DAY_MS,
        retention=Retention(five_minutes_days=30, hours_days=400),
    )
    for table in kept:
        assert (
            again.rows(table)
            .sort_by("window_start")
            .equals(store.rows(table).sort_by("window_start"))
        )
    assert (again.windows("usage_5m"), len(again.files("usage_1h"))) == ([], 1)


def test_hours_without_samples_leave_the_tables_as_they_are(
    spark: SparkSession, known_history: HistoryServer, store: UsageStore
) -> None:
    before = store.rows("usage_5m")
    server = PrometheusServer(known_history.url)
    history = HistorySettings(server, scrape_interval_ms=SCRAPE_MS)
    reader = RemoteReadChunks(history)
    without_brokers = MetricsSettings(server, brokers=BrokerLabel("missing_label"))
    order = IngestOrder(
        new_run_id(END_MS),
        f"file://{store.storage.shown.removeprefix('file://')}",
        reader.name,
        without_brokers,
        history,
    )
    with pytest.raises(NotFound):
        run_rollup(
            beside(spark),
            RollupRun(order, START_MS, END_MS, clock_ms=lambda: END_MS, tell=print),
            reader,
        )
    reader.close()
    assert store.rows("usage_5m").equals(before)


def test_a_run_that_knows_no_tiers_opens_no_session_for_sql(
    spark: SparkSession, known_history: HistoryServer, tmp_path: Path
) -> None:
    def opened() -> SparkSession:
        raise LookupError("a session for SQL was asked for")

    without = Spark(spark.sparkContext, opened)
    run(without, known_history, tmp_path / "none", end_ms=SECOND_HOUR_MS, policy=None)
    assert UsageStore.at(f"file://{tmp_path / 'none'}").rows("usage_1h").num_rows
    with pytest.raises(LookupError):
        run(without, known_history, tmp_path / "tiers", end_ms=SECOND_HOUR_MS)


def test_a_session_that_is_open_is_used_and_stays_open(spark: SparkSession) -> None:
    with spark_started("another") as another:
        assert another.context is spark.sparkContext
        assert another.session.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.range(3).count() == 3
    assert spark.conf.get(SHUFFLE_PARTITIONS) == "8"
