"""The measurements of `make house` that run the product: each is a trip of one value, or the time
of one decision.

Run as `python -m tests.house.walks NAME`; it prints a line of JSON. Product and test classes are
named here and nowhere else in the script.
"""

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from tests.house.trace import CORE, ROOT, files_noted_in, trace_into, traced

MB = 1_000_000
_CUT_WITHIN = 30  # readings
_SCRAPE_SECONDS = 15.0


def cut() -> dict[str, object]:
    """One decide() that cuts the quota of the only entity, whose broker is over its NIC limit."""
    from tests.unit.controller_logic.loaded_world import USERS, loaded_world
    from tidegate_logic.decide import decide
    from tidegate_logic.model import Level, NicSpan

    world = loaded_world(limit=20 * MB, contracts={Level.L3: 60 * MB})
    world.scrape_seconds = _SCRAPE_SECONDS
    for _ in range(_CUT_WITHIN):
        before = world.text(USERS[Level.L3])
        world.now_seconds += world.scrape_seconds
        world.spans = (
            *world.spans[-20:],
            NicSpan(world.now_seconds, world.scrape_seconds, world.carried),
        )
        observation, memory = world.observation(), world.memory
        world.run()
        after = world.text(USERS[Level.L3])
        if before is not None and after is not None and int(after) < int(before):
            decide(observation, memory)
            trace = traced(partial(decide, observation, memory), CORE)
            calls = sum(trace.calls.values())
            return {
                "files": len(trace.files),
                "changes": trace.changes,
                "calls": calls,
                "entered": trace.files,
            }
    raise AssertionError("nothing was cut")


def quota_to_znode() -> dict[str, object]:
    """A BusinessTier and its policy, from the objects that Kubernetes holds to the quota's znode in
    ZooKeeper's double.
    """
    from tests.doubles.quota_store import MemoryQuotaStore
    from tests.unit.control.stage import Leaders
    from tests.unit.resources.documents import policy, tier
    from tidegate.control.declared import declare
    from tidegate.control.observe import KafkaCluster
    from tidegate.control.reconcile import ControlPass
    from tidegate_logic.model import Entity, QuotaKey

    declared_policy = {
        **policy(),
        "metadata": {"name": "orders", "namespace": "streaming", "uid": "uid-1"},
    }
    kafka = {
        name: value
        for name, value in declared_policy["spec"]["kafka"].items()
        if name != "clusterId"
    }
    declared_policy["spec"] = {"mode": "Enforce", "kafka": kafka}
    declared_tier = {
        **tier(),
        "metadata": {"name": "reporting", "namespace": "streaming", "uid": "uid-2"},
    }
    member = declared_tier["spec"]["members"][0]
    client, leaders = (
        Entity(member["user"], member["clientId"]),
        {member["topics"][0]: {1: 1, 2: 1, 3: 1}},
    )

    def trip() -> None:
        store = MemoryQuotaStore(topics=list(leaders))
        cluster = KafkaCluster(
            "zookeeper:2181", store, Leaders(leaders, cluster_id=store.facts().cluster_id)
        )
        declared = declare(declared_policy, [declared_tier])
        result = ControlPass(lambda: 1_000_000.0, lambda: True).run(declared, cluster)
        written = store.read([client])[client].values
        assert QuotaKey.PRODUCER_BYTE_RATE in written, (
            declared.broken,
            result.error,
            result.decision.holds,
        )

    trip()
    trace = traced(trip)
    return {
        "files": len(trace.files),
        "changes": trace.changes,
        "calls": sum(trace.calls.values()),
        "entered": trace.files,
    }


def sample_to_cell() -> dict[str, object]:
    """Samples of two hours, read by remote read, folded and added up by Spark into tables, to the
    cells of the report's page.

    All of it is watched: this process and the workers of Spark.
    """
    from tests.integration.rollup.known_history import (
        END_MS,
        POLICY,
        SCRAPE_MS,
        START_MS,
        write_known_history,
    )
    from tests.unit.rollup.transport.posting import answering
    from tidegate.prometheus.settings import MetricsSettings, PrometheusServer
    from tidegate.rollup.ingest import IngestOrder
    from tidegate.rollup.report.compute import figures_of
    from tidegate.rollup.report.page import page_html
    from tidegate.rollup.report.request import ReportRequest, stored_provenance, stored_tables
    from tidegate.rollup.samples import Selection
    from tidegate.rollup.schemas import HOUR_MS
    from tidegate.rollup.spark.run import RollupRun, run_rollup
    from tidegate.rollup.spark.session import spark_started
    from tidegate.rollup.tables.format import new_run_id
    from tidegate.rollup.tables.store import UsageStore
    from tidegate.rollup.transport.exchange import HistorySettings
    from tidegate.rollup.transport.readers import Probe, choose_reader

    history = RecordedHistory()
    write_known_history(history)  # type: ignore[arg-type]
    with (
        tempfile.TemporaryDirectory(prefix="tidegate-house-") as temporary,
        answering(history.answer) as prometheus,
    ):
        usage, noted = f"file://{temporary}/usage", Path(temporary) / "noted"
        noted.mkdir()
        os.environ["HOUSE_TRACE"] = str(noted)
        os.environ["PYTHONPATH"] = os.pathsep.join(
            [str(ROOT / "tests" / "house" / "traced"), os.environ.get("PYTHONPATH", "")]
        )
        server = PrometheusServer(prometheus.url)
        settings = HistorySettings(
            server, external_labels=("cluster",), scrape_interval_ms=SCRAPE_MS
        )
        with spark_started("house", memory="768m") as spark:
            spark.session.range(1).count()
            trace_into(noted)
            way = choose_reader(
                settings, Probe(Selection("kafka_broker_bytesout_total"), END_MS - HOUR_MS, END_MS)
            ).reader
            order = IngestOrder(
                new_run_id(END_MS), usage, way.name, MetricsSettings(server), settings
            )
            run_rollup(
                spark,
                RollupRun(
                    order, START_MS, END_MS, POLICY, clock_ms=lambda: END_MS, tell=lambda _: None
                ),
                way,
            )
            store = UsageStore.at(usage)
            request = ReportRequest(
                policy="streaming/shop",
                start_ms=START_MS,
                end_ms=END_MS,
                made_at_ms=END_MS,
                tables=stored_tables(store, START_MS, END_MS, grain_ms=HOUR_MS),
                provenance=stored_provenance(store, START_MS, END_MS),
            )
            page = page_html(figures_of(request))
            sys.setprofile(None)
            assert "alice" in page
        processes = len(list(noted.glob("*.txt")))
        files = files_noted_in(noted)
    return {"files": len(files), "processes": processes, "entered": files}


class RecordedHistory:
    """A Prometheus that holds what was written to it, and answers remote read in chunks, by the
    matchers of the question.
    """

    def __init__(self) -> None:
        self.series: list[tuple[Mapping[str, str], list[tuple[int, float]]]] = []

    def write(self, metric: str, *series: tuple[Mapping[str, str], Any]) -> None:
        """As the real one of the integration tests takes them."""
        self.series += [
            ({"__name__": metric, "cluster": "lab", **labels}, list(samples))
            for labels, samples in series
        ]

    def answer(self, request: Any) -> None:
        """Streamed chunks of 120 samples, as Prometheus cuts them."""
        from tests.unit.rollup.transport.chunk_writer import chunked_series, frame
        from tests.unit.rollup.transport.posting import STREAMED
        from tidegate.rollup.transport.encoding import BYTES, fields, unpacked

        message = unpacked(request.body)
        query = next(
            field for field in fields(message, 0, len(message)) if field.wire_type == BYTES
        )
        parts = list(fields(message, query.start, query.end))
        start_ms, end_ms = (part.value for part in parts if part.wire_type != BYTES)
        matchers = [_matcher(message, part) for part in parts if part.wire_type == BYTES]
        body = b""
        for labels, samples in self.series:
            within = [one for one in samples if start_ms <= one[0] <= end_ms]
            if within and all(matches(labels) for matches in matchers):
                chunks = [within[first : first + 120] for first in range(0, len(within), 120)]
                body += frame(chunked_series(labels, *chunks))
        request.send(200, body, STREAMED)


def _matcher(message: bytes, part: Any) -> Callable[[Mapping[str, str]], bool]:
    from tidegate.rollup.transport.encoding import BYTES, fields

    kind, texts = 0, []
    for field in fields(message, part.start, part.end):
        if field.wire_type == BYTES:
            texts.append(message[field.start : field.end].decode())
        else:
            kind = field.value
    name, value = texts if len(texts) == 2 else (texts[0], "")
    return {
        0: lambda labels: labels.get(name, "") == value,
        1: lambda labels: labels.get(name, "") != value,
        2: lambda labels: re.fullmatch(value, labels.get(name, "")) is not None,
        3: lambda labels: re.fullmatch(value, labels.get(name, "")) is None,
    }[kind]


def decide_time() -> dict[str, object]:
    """The median of the benchmark's rounds, of the same world, everything new.

    Garbage is collected as rarely as in the operator; the benchmark measures so too.
    """
    from bench.control.core import observation, timed
    from tidegate.main import tune_collector

    tune_collector()
    _, seconds = timed(observation())
    return {
        "milliseconds": round(median(seconds) * 1000, 1),
        "best": round(min(seconds) * 1000, 1),
        "rounds": len(seconds),
    }


WALKS: dict[str, Callable[[], dict[str, object]]] = {
    "cut": cut,
    "quota-to-znode": quota_to_znode,
    "sample-to-cell": sample_to_cell,
    "decide-time": decide_time,
}

if __name__ == "__main__":
    print(json.dumps(WALKS[sys.argv[1]]()))
