"""One id for a pass, in everything that it leaves behind in any thread; spans where they are wanted."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import structlog
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.unit.control.stage import Stage
from tests.unit.control.trails import Shelf
from tidegate.control.audit.lines import Wanted
from tidegate.control.audit.sink import AuditQueue
from tidegate.control.audit.trail import AuditTrail
from tidegate.control.controller import Controller
from tidegate.control.manager import ControlLoop
from tidegate.control.report.reporter import KubernetesPublisher, Reporter
from tidegate.control.runtime import KINDS, Wakeup
from tidegate.errors import UserActionRequired
from tidegate.kube.cache import relist
from tidegate.kube.client import event_body
from tidegate.kube.events import EventRecorder
from tidegate.kube.status import StatusWriter
from tidegate.tracing import (
    OFF,
    OpenTelemetryTracing,
    Tracing,
    current_pass,
    new_pass_id,
    open_tracing,
)

KEY = "streaming/orders"


@dataclass
class Played:
    """A loop whose reports and Events are delivered by threads of their own, as in the process."""

    stage: Stage
    loop: ControlLoop
    controller: Controller
    shelf: Shelf
    logged: list[dict[str, Any]] = field(default_factory=list)

    def run(self) -> None:
        self.stage.now += 15
        for kind in KINDS:
            relist(self.stage.cache, self.stage.kubernetes, kind)
        self.loop._pass()
        self.controller._reports.catch_up()

    def passes_logged(self) -> list[str]:
        return [str(line.get("pass", "")) for line in self.logged]


@pytest.fixture
def play() -> Iterator[Callable[..., Played]]:
    hands = ThreadPoolExecutor(2)
    kept = structlog.get_config()
    made: list[Controller] = []

    def make(tracing: Tracing = OFF) -> Played:
        stage, shelf = Stage(report_beside=True), Shelf()
        stage.policy()
        stage.tier()
        publisher = KubernetesPublisher(
            StatusWriter(stage.kubernetes, wall=lambda: stage.now),
            EventRecorder(stage.kubernetes, monotonic=lambda: stage.now),
            cache=stage.cache,
            telemetry=stage.telemetry,
            executor=hands,
        )
        stage.world = replace(
            stage.world,
            reporter=Reporter(publisher),
            audit=AuditTrail(AuditQueue(shelf, "-", count=lambda *_: None, beside=False)),
            tracing=tracing,
        )
        controller = Controller(KEY, stage.world, may_write=lambda: True, wake=lambda _: None)
        made.append(controller)
        played = Played(
            stage, ControlLoop(KEY, stage.world, controller, Wakeup()), controller, shelf
        )
        capture = structlog.testing.LogCapture()
        played.logged = capture.entries
        structlog.configure(processors=[structlog.contextvars.merge_contextvars, capture])
        return played

    yield make
    structlog.configure(**kept)
    for controller in made:
        controller.close()
    hands.shutdown()


def test_log_audit_and_events_of_a_pass_have_its_id_and_the_next_pass_another(
    play: Callable[..., Played],
) -> None:
    played = play()
    played.run()
    events = played.stage.kubernetes.events
    first = events[0].pass_id
    assert first == new_pass_id("operator", KEY, 1_000_015.0)
    assert {event.pass_id for event in events} == {first}
    assert {line["pass"] for line in played.shelf.lines} == {first}
    assert {line["kind"] for line in played.shelf.lines} == {"write"}
    assert len(played.logged) >= 2
    assert set(played.passes_logged()) == {first}
    assert event_body(events[0], reporting_instance="a", now=0.0)["metadata"]["annotations"] == {
        "tidegate.io/pass": first
    }

    played.logged.clear()
    played.stage.leaders.leaders = {"acc": {1: 2, 2: 1}}
    played.run()
    second = played.shelf.lines[-1]["pass"]
    assert second > first, "ids are in the order of time"
    assert played.stage.kubernetes.events[-1].pass_id == second
    assert set(played.passes_logged()) == {second}
    assert current_pass() == ""
    of_second = [line for line in played.shelf.lines if Wanted(pass_id=second).takes(line)]
    assert 0 < len(of_second) < len(played.shelf.lines)


def test_a_pass_that_breaks_is_logged_with_its_id(play: Callable[..., Played]) -> None:
    played = play()

    def broken() -> float:
        raise ZeroDivisionError("a bug")

    played.controller.pass_once = broken  # type: ignore[method-assign]
    played.run()
    abandoned = next(line for line in played.logged if line["event"] == "Pass abandoned")
    assert abandoned["pass"] == new_pass_id("operator", KEY, 1_000_015.0)


def test_two_policies_and_two_replicas_have_no_pass_id_in_common() -> None:
    ids = {
        new_pass_id(identity, key, seconds)
        for identity in ("a", "b")
        for key in ("x/y", "x/z")
        for seconds in (1.0, 1.001, 1_800_000_000.0)
    }
    assert len(ids) == 12
    assert sorted(ids)[-1].startswith(f"{1_800_000_000_000:011x}")


def _by_name(spans: tuple[ReadableSpan, ...]) -> dict[str, list[ReadableSpan]]:
    found: dict[str, list[ReadableSpan]] = {}
    for span in spans:
        found.setdefault(span.name, []).append(span)
    return found


def test_a_pass_has_a_span_with_those_of_its_parts_below_it(play: Callable[..., Played]) -> None:
    exporter = InMemorySpanExporter()
    played = play(OpenTelemetryTracing(SimpleSpanProcessor(exporter), "replica-1"))
    played.run()
    spans = _by_name(exporter.get_finished_spans())
    assert spans.keys() == {"pass", "observe", "decide", "apply", "replication", "report"}
    (whole,) = spans["pass"]
    assert whole.attributes is not None
    assert whole.attributes["tidegate.pass"] == played.shelf.lines[0]["pass"]
    assert whole.attributes["tidegate.policy.name"] == "orders"
    assert whole.resource.attributes["service.instance.id"] == "replica-1"
    for name in ("observe", "decide", "apply", "report"):
        for span in spans[name]:
            assert span.parent is not None, name
            assert span.parent.span_id == whole.context.span_id, name
            assert span.context.trace_id == whole.context.trace_id, name
    # observed and decided once more after the quota was written
    assert [len(spans[name]) for name in ("observe", "decide")] == [2, 2]
    quotas = spans["apply"][0].attributes or {}
    assert (quotas["tidegate.done"], quotas["tidegate.refused"]) == (1, 0)
    assert (spans["decide"][0].attributes or {})["tidegate.writes"] == 1

    exporter.clear()
    played.run()
    assert "apply" not in _by_name(exporter.get_finished_spans())


def test_without_a_collector_nothing_is_made_and_opentelemetry_is_not_imported() -> None:
    assert open_tracing("", "replica") is OFF
    assert OFF.span("observe") is OFF.span("decide", writes=1)
    code = (
        "import sys, tidegate.tracing, tidegate.control.reconcile; "
        "tidegate.tracing.open_tracing('', 'a'); "
        "sys.exit(any(name.startswith('opentelemetry.sdk') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_traces_without_their_libraries_are_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(UserActionRequired, match=r"extra tidegate\[tracing\]"):
        open_tracing("http://collector:4318", "a")
