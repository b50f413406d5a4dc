"""Spans of control passes arrive at a real OpenTelemetry collector over OTLP, and an unreachable
one costs no pass anything.
"""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest
import requests

from lab import process
from lab.network import free_port
from lab.process import patience, wait_until
from tests.unit.test_tracing import KEY, Played, play  # noqa: F401 - a fixture
from tidegate.tracing import new_pass_id, open_tracing

pytestmark = pytest.mark.integration


@dataclass(frozen=True)
class Collector:
    """It writes what it receives into its log."""

    endpoint: str
    log: Path

    def spans(self) -> dict[str, str]:
        """The name of each span -> all that the collector says of it."""
        parts = re.split(r"^Span #\d+$", self.log.read_text(), flags=re.MULTILINE)[1:]
        return {re.findall(r"Name +: (\S+)", part)[0]: part for part in parts}


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    found = find_spec("rotel")
    if found is None or found.origin is None:
        pytest.skip("rotel has no wheel for this Python")
    http, grpc = free_port(), free_port()
    argv = [
        *(str(Path(found.origin).with_name("rotel-agent")), "start", "--exporter", "blackhole"),
        *("--debug-log", "traces", "--debug-log-verbosity", "detailed"),
        *("--otlp-http-endpoint", f"127.0.0.1:{http}"),
        *("--otlp-grpc-endpoint", f"127.0.0.1:{grpc}"),
        *("--pid-file", str(tmp_path / "pid"), "--log-file", str(tmp_path / "daemon.log")),
    ]
    log = tmp_path / "collector.log"
    endpoint = f"http://127.0.0.1:{http}"
    with process.start("collector", argv, log_path=log):
        wait_until(lambda: _listens(endpoint), "the collector", timeout_seconds=30)
        yield Collector(endpoint, log)


def _listens(endpoint: str) -> bool:
    try:
        requests.get(endpoint, timeout=patience(5))
    except requests.ConnectionError:
        return False
    return True


def test_a_pass_is_a_trace_at_the_collector(
    collector: Collector,
    play: Callable[..., Played],  # noqa: F811
) -> None:
    tracing = open_tracing(collector.endpoint, "tidegate-7d9f")
    played = play(tracing)
    played.run()
    tracing.close()
    wait_until(lambda: "pass" in collector.spans(), "the pass", timeout_seconds=20)

    spans = collector.spans()
    assert spans.keys() >= {"pass", "observe", "decide", "apply", "report"}
    pass_id = new_pass_id("operator", KEY, 1_000_015.0)
    assert f"tidegate.pass: Str({pass_id})" in spans["pass"]
    (trace,) = {re.findall(r"Trace ID +: (\w+)", one)[0] for one in spans.values()}
    (root,) = re.findall(r"^ +ID +: (\w+)", spans["pass"], flags=re.MULTILINE)
    assert trace
    for name in ("observe", "decide", "apply"):
        assert f"Parent ID      : {root}" in spans[name]
    said = collector.log.read_text()
    assert "service.name: Str(tidegate)" in said
    assert "service.instance.id: Str(tidegate-7d9f)" in said


def test_a_collector_that_is_away_costs_a_pass_nothing(
    play: Callable[..., Played],  # noqa: F811
) -> None:
    tracing = open_tracing(f"http://127.0.0.1:{free_port()}", "tidegate-7d9f")
    played = play(tracing)
    begin = time.monotonic()
    played.run()
    assert time.monotonic() - begin < patience(2.0)
    assert played.shelf.lines
    begin = time.monotonic()
    tracing.close()
    assert time.monotonic() - begin < patience(20.0)
