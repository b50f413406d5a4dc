"""An engine asks Prometheus before it starts Spark, and a span has a readable form."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.unit.rollup.transport.posting import PostRequest, answering
from tidegate.errors import Unauthorized
from tidegate.prometheus.settings import MetricsSettings, PrometheusServer
from tidegate.rollup.engine import Engine, RollupRequest, Span
from tidegate.rollup.schemas import HOUR_MS

SPAN = Span(490_000 * HOUR_MS, 490_003 * HOUR_MS)


def test_a_server_that_wants_a_login_is_reported_before_spark_is_started(tmp_path: Path) -> None:
    def refuse(request: PostRequest) -> None:
        request.send(401, "who are you?", "text/plain")

    with answering(refuse) as server:
        request = RollupRequest(MetricsSettings(PrometheusServer(server.url)), f"file://{tmp_path}")
        with (
            Engine(request, clock_ms=lambda: SPAN.end_ms, tell=lambda _: None) as engine,
            pytest.raises(Unauthorized),
        ):
            engine.publish(SPAN)
    assert SparkSession.getActiveSession() is None
    assert list(tmp_path.iterdir()) == []


def test_a_span_reads_as_its_two_ends_and_its_hours() -> None:
    assert str(SPAN) == "2025-11-24T16:00:00Z to 2025-11-24T19:00:00Z (3 h)"
