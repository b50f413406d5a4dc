"""Usage read from a Thanos: a pair of Prometheus that it puts together, and one that it loses.

Not among the tests that `make test` runs: Thanos is compiled. `make test-transports` runs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc
import pytest

from lab.cache import RunDirectory
from lab.process import wait_until
from lab.thanos import ThanosQuery, thanos
from tests.integration.rollup.history_server import HistoryServer, Samples
from tidegate.errors import Incomplete, TidegateError
from tidegate.prometheus.settings import MetricsSettings, PrometheusServer
from tidegate.rollup.ingest import IngestOrder, WorkItem, ingest_by, read_source
from tidegate.rollup.samples import ReadRequest, Selection, Transport
from tidegate.rollup.schemas import HOUR_MS
from tidegate.rollup.tables.publication import Publication, publish
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.transport.exchange import HistorySettings
from tidegate.rollup.transport.http_query import QueryRange, RangeSelector
from tidegate.rollup.transport.readers import choose_reader

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(3600),  # the first time it is compiled
]

START_MS = 1_767_225_600_000 + 10 * HOUR_MS  # 2026-01-01T10:00:00Z
SCRAPE_MS = 15_000
RATES = {"alice": 600_000, "bob": 400_000}  # bytes/s
COUNTER = "kafka_broker_bytesout_total"
OF_ONE = "of_one_replica"  # only the second server has it


@dataclass(frozen=True)
class Pair:
    """Two servers that scrape the same broker, each 7 s apart; the first was away for 10 min."""

    servers: tuple[HistoryServer, HistoryServer]
    query: ThanosQuery
    folder: Path

    @property
    def settings(self) -> HistorySettings:
        return history_of(self.query)

    def reader(self) -> Transport:
        end_ms = START_MS + HOUR_MS
        return choose_reader(
            self.settings, ReadRequest(Selection(COUNTER), end_ms - 600_000, end_ms)
        ).reader


def history_of(query: ThanosQuery) -> HistorySettings:
    return HistorySettings(
        PrometheusServer(query.url), scrape_interval_ms=SCRAPE_MS, external_labels=("cluster",)
    )


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with RunDirectory() as run:
        folders = [run.path / name for name in "ab"]
        for each in folders:
            each.mkdir()
        first, second = (
            HistoryServer(folder, external_labels={"cluster": "lab", "replica": folder.name})
            for folder in folders
        )
        with (
            first,
            second,
            thanos([first.url, second.url], run.path, replica_label="replica") as query,
        ):
            _write(first, offset_ms=0, away=True)
            _write(second, offset_ms=7_000, away=False)
            second.write(OF_ONE, ({"user": "alice"}, one_replica()))
            yield Pair((first, second), query, run.path)


def one_replica() -> Samples:
    return [(START_MS + number * SCRAPE_MS, number / 3) for number in range(200)]


def _write(server: HistoryServer, *, offset_ms: int, away: bool) -> None:
    times = [
        at + offset_ms
        for at in range(START_MS - HOUR_MS, START_MS + 2 * HOUR_MS, SCRAPE_MS)
        if not (away and START_MS + 1_200_000 <= at < START_MS + 1_800_000)
    ]
    labels = {"broker": "1", "job": "kafka", "instance": "broker-1:9404"}
    total = sum(RATES.values())
    server.write(COUNTER, (labels, [(at, 1e12 + total * (at - START_MS) / 1000) for at in times]))
    for user, rate in RATES.items():
        gauge = {**labels, "user": user, "resource": "Fetch"}
        server.write("kafka_quota_byte_rate", (gauge, [(at, float(rate)) for at in times]))


def test_a_thanos_is_read_by_range_selectors_with_every_stored_sample(pair: Pair) -> None:
    end_ms = START_MS + HOUR_MS
    probe = ReadRequest(Selection(OF_ONE), START_MS, end_ms)
    chosen = choose_reader(pair.settings, probe)
    assert (chosen.reader.name, chosen.reader.exact) == ("range-selector", True)
    passed_over = [one.name for one in chosen.passed_over]
    assert passed_over == ["remote-read-chunks", "remote-read-samples"]
    for way in (RangeSelector(pair.settings), QueryRange(pair.settings)):
        (found,) = way.read(Selection(OF_ONE), START_MS, end_ms)
        way.close()
        samples = list(zip(found.times_ms.tolist(), found.values.tolist(), strict=True))
        assert (dict(found.labels), samples) == ({"user": "alice"}, one_replica()), way.name


def test_a_pair_that_thanos_puts_together_is_counted_once_and_to_the_byte(
    pair: Pair, tmp_path: Path
) -> None:
    """A tenth of an hour is in the second server only."""
    metrics = MetricsSettings(PrometheusServer(pair.query.url))
    reader, end_ms = pair.reader(), START_MS + HOUR_MS
    assert read_source(reader, metrics, START_MS, end_ms).brokers == (1,)
    order = IngestOrder("run", f"file://{tmp_path}", reader.name, metrics, pair.settings)
    files = ingest_by(reader, order, WorkItem(1, START_MS, end_ms, 0))
    reader.close()
    store = UsageStore.at(f"file://{tmp_path}")
    for table in ("usage_5m", "broker_5m"):
        own = [file for file in files if file.table == table]
        published = Publication(table=table, window_start_ms=START_MS, run_id="run", staged=own)
        publish(store, published, now_ms=end_ms)
    usage = store.rows("usage_5m")
    by_user = usage.group_by("user").aggregate([("bytes", "sum")]).to_pylist()
    assert {row["user"]: row["bytes_sum"] for row in by_user} == {
        user: rate * 3600 for user, rate in RATES.items()
    }
    brokers = store.rows("broker_5m").filter(pc.field("direction") == "fetch")
    assert set(brokers["client_bytes"].to_pylist()) == {sum(RATES.values()) * 300}
    assert pc.min(usage["coverage"]).as_py() > 0.97


def test_a_server_that_thanos_cannot_reach_is_an_error_and_never_a_part_of_the_answer(
    pair: Pair, tmp_path: Path
) -> None:
    """Queries with `--endpoint-strict` go on asking a sidecar that is gone."""
    servers = [server.url for server in pair.servers]
    end_ms = START_MS + HOUR_MS
    with thanos(servers, tmp_path, replica_label="replica", strict=True) as query:
        way = RangeSelector(history_of(query))
        assert len(way.read(Selection(OF_ONE), START_MS, end_ms)) == 1
        query.sidecars[1].kill()
        said: list[TidegateError] = []

        def refused() -> bool:
            try:
                way.read(Selection(OF_ONE), START_MS, end_ms)
            except TidegateError as error:
                said.append(error)
            return bool(said)

        wait_until(refused, "a read to fail", timeout_seconds=60)
        # and it stays so
        with pytest.raises(TidegateError):
            way.read(Selection(OF_ONE), START_MS, end_ms)
        way.close()
    assert isinstance(said[0], Incomplete), said[0]
