"""An engine asks Prometheus before it starts Spark, and a span has a readable form."""

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.unit.rollup.transport.posting import PostRequest, answering
from tidegate.errors import Unauthorized
from tidegate.prometheus.settings import MetricsSettings, PrometheusServer
from tidegate.resources.rollup import Rollup
from tidegate.rollup import engine
from tidegate.rollup.engine import (
    EVENTS_FOLDER,
    Engine,
    RollupRequest,
    Span,
    requests_of,
    spark_place,
)
from tidegate.rollup.job import Executors, Pod
from tidegate.rollup.schemas import HOUR_MS
from tidegate.rollup.spark import session
from tidegate.rollup.spark.session import SHUFFLE_PARTITIONS
from tidegate.rollup.tables.iceberg import CatalogSettings

SPAN = Span(490_000 * HOUR_MS, 490_003 * HOUR_MS)


def test_a_server_that_wants_a_login_is_reported_before_spark_is_started(tmp_path: Path) -> None:
    def refuse(request: PostRequest) -> None:
        request.send(401, "who are you?", "text/plain")

    with answering(refuse) as server:
        request = RollupRequest(MetricsSettings(PrometheusServer(server.url)), f"file://{tmp_path}")
        with (
            Engine(request, clock_ms=lambda: SPAN.end_ms, tell=lambda _: None) as opened,
            pytest.raises(Unauthorized),
        ):
            opened.publish(SPAN)
    assert SparkSession.getActiveSession() is None
    assert list(tmp_path.iterdir()) == []


def test_a_span_reads_as_its_two_ends_and_its_hours() -> None:
    assert str(SPAN) == "2025-11-24T16:00:00Z to 2025-11-24T19:00:00Z (3 h)"


def test_a_policys_settings_of_spark_are_those_of_its_session(tmp_path: Path) -> None:
    spec = Rollup.model_validate(
        {
            "storage": {"url": "s3://usage/shop"},
            "sparkConf": {"spark.sql.shuffle.partitions": "64"},
        }
    )
    place = spark_place(spec, None, None, tmp_path)
    assert place.further == {"spark.sql.shuffle.partitions": "64"}


@pytest.mark.parametrize(
    ("executors", "cores", "expected"), [(0, 2, 8), (0, 16, 32), (2, 2, 8), (10, 4, 80)]
)
def test_partitions_follow_the_cores_of_whoever_adds_up(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    executors: int,
    cores: int,
    expected: int,
) -> None:
    spec = Rollup.model_validate(
        {"storage": {"url": "s3://usage/shop"}, "driver": {"cores": 2 if executors else cores}}
    )
    several = Executors(executors, cores, 500, 4096, {}) if executors else None
    pod = Pod("orders-1", "streaming", "10.0.0.7", 3072, "tidegate:1", "rollup")
    for name in ("HOST", "PORT"):
        monkeypatch.setenv(f"KUBERNETES_SERVICE_{name}", "443")
    place = spark_place(spec, pod, several, tmp_path)
    assert place.further[SHUFFLE_PARTITIONS] == str(expected)


@pytest.mark.parametrize("machines", range(1, 101))
def test_requests_of_all_machines_together_are_eight_at_most(machines: int) -> None:
    """On a machine of its own a task has no more requests than the machine may have."""
    parallel, tasks = requests_of(machines)
    assert 1 <= parallel <= 4
    most_busy = machines if tasks is None else min(machines, tasks)
    assert parallel * most_busy <= 8
    assert (tasks is None) == (machines <= 8)


def test_executors_have_javas_own_collector_and_compilers_and_the_driver_the_quick_ones() -> None:
    found = session._settings("1g")
    executor, driver = (
        found[f"spark.{whose}.extraJavaOptions"].split() for whose in ("executor", "driver")
    )
    assert [option for option in executor if option.startswith("-XX")] == []
    assert set(executor) < set(driver)
    assert "-XX:TieredStopAtLevel=1" in driver


def test_a_policys_catalog_is_the_runs() -> None:
    catalog = {"type": "rest", "uri": "https://catalog/api", "namespace": "orders"}
    storage = {"url": "s3://usage/shop", "catalog": {**catalog, "warehouse": "lake"}}
    assert engine._catalog(Rollup.model_validate({"storage": storage})) == CatalogSettings(
        "rest", "https://catalog/api", "orders", "lake"
    )
    assert engine._catalog(Rollup.model_validate({"storage": {"url": "s3://usage/shop"}})) is None


def test_event_logs_are_on_the_claim_and_the_oldest_make_room(tmp_path: Path) -> None:
    spec = Rollup.model_validate(
        {
            "storage": {"url": f"file://{tmp_path}", "claimName": "usage"},
            "eventLog": {"keep": 3},
        }
    )
    folder = tmp_path / EVENTS_FOLDER
    for age in range(5):
        log = folder / f"eventlog_v2_local-{age}"
        log.mkdir(parents=True)
        (log / "events_1").write_text("{}")
        os.utime(log, (1_000_000 - age, 1_000_000 - age))
    place = spark_place(spec, None, None, tmp_path)
    assert place.further["spark.eventLog.dir"] == folder.as_uri()
    assert sorted(one.name for one in folder.iterdir()) == [
        "eventlog_v2_local-0",
        "eventlog_v2_local-1",
    ]
