"""Every query of the dashboards on a real Prometheus, with what the operator's own code exports of an
episode: an evening of the simulated cluster, with a roll-out of the operator in the middle of it.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest

from lab.packages import PROMETHEUS, unpacked
from lab.process import patience, started
from lab.prometheus import PrometheusLab
from tests.doubles.simulated_console import EPOCH, Moment, moments
from tests.unit.control.stage import Stage
from tests.unit.simulation.loads import evening
from tidegate.control.controller import Controller
from tidegate.control.reconcile import Applied, PassResult
from tidegate.metrics import Telemetry
from tidegate.observe.observation import ObservationResult
from tidegate_logic.contracts.overrides import Overridden
from tidegate_logic.model import Entity, Hold, Override
from tidegate_logic.reasons import Reason
from tidegate_logic.rollup_schedule import Due, Window
from tools.dashboards import queries

pytestmark = pytest.mark.integration

CHART = Path(__file__).parents[3] / "charts" / "tidegate"
DOCS = CHART.parents[1] / "docs"
KEY = "streaming/orders"
_SECONDS = 900.0
_HANDED_OVER = 600.0  # from one Pod to the other
_SCRAPED_BEHIND = 60.0  # the old Pod is seen for so long beside the new one
_VARIABLES = {
    "$policy_namespace": ".*",
    "$policy": ".*",
    "$tier": ".*",
    "$member": ".*",
    "$__rate_interval": "1m",
}


class _Pod:
    """The metrics of one replica, made by the operator's own code after each pass."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stage = Stage()
        self.stage.telemetry = Telemetry()
        self.stage.world = replace(self.stage.world, telemetry=self.stage.telemetry)
        self.controller = Controller(
            KEY, self.stage.world, may_write=lambda: True, wake=lambda _: None
        )

    def note(self, one: Moment) -> None:
        now = one.observation.now_seconds
        self.stage.now = now
        decision = one.decision
        if one.at_seconds >= 120:  # what a simulated evening does not have
            shop = Entity("payments")
            fair = Override("streaming/fair", EPOCH + 7200, "a fair", shop)
            decision = replace(decision, overridden=Overridden(applied={shop: fair}))
        if 300 <= one.at_seconds <= 400:
            decision = replace(
                decision, holds=(Hold(Reason.TOPOLOGY_INCOMPLETE, "a broker", now - 30),)
            )
        done = Applied(tuple(decision.writes), batches=1 if decision.writes else 0)
        result = PassResult(
            ObservationResult(one.observation, None), decision, (done,), decided=(one.decision,)
        )
        self.controller._measure(result, None)
        reading = self.stage.telemetry.readings._by_policy[KEY]
        self.stage.telemetry.readings._by_policy[KEY] = replace(
            reading,
            rollups=Due(
                published_until_ms=round((EPOCH - 1800) * 1000),
                missing=(Window(round((EPOCH - 1800) * 1000), round(EPOCH * 1000)),),
            ),
        )
        self.stage.telemetry.pass_seconds.labels("streaming", "orders").observe(0.02)

    def exposed(self, at_seconds: float) -> Iterator[str]:
        """Samples as a scrape at this moment has them."""
        for line in _openmetrics(self.stage.telemetry.registry).splitlines():
            if line.startswith("# EOF"):
                continue
            if line.startswith("#"):
                yield line
                continue
            found = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
            assert found is not None, line
            labels = f'{found[2]},pod="{self.name}"' if found[2] else f'pod="{self.name}"'
            yield f"{found[1]}{{{labels}}} {found[3]} {at_seconds:.3f}"


def _openmetrics(registry: CollectorRegistry) -> str:
    return generate_latest(registry).decode()


def _recorded(shift_seconds: float) -> str:
    """The whole episode as OpenMetrics, in the order that importing wants: by metric."""
    pods = (_Pod("tidegate-a"), _Pod("tidegate-b"))
    by_metric: dict[str, list[str]] = {}
    heads: dict[str, list[str]] = {}
    for one in moments(evening()):
        if one.at_seconds < 0:
            continue
        first, second = pods
        (first if one.at_seconds < _HANDED_OVER else second).note(one)
        shown = [first] if one.at_seconds < _HANDED_OVER + _SCRAPED_BEHIND else []
        shown += [second] if one.at_seconds >= _HANDED_OVER else []
        for pod in shown:
            head = ""
            for line in pod.exposed(one.observation.now_seconds + shift_seconds):
                if line.startswith("#"):
                    head = line.split()[2]
                    if line not in heads.setdefault(head, []):
                        heads[head].append(line)
                else:
                    by_metric.setdefault(head, []).append(line)
    text = [line for head in by_metric for line in (*heads[head], *by_metric[head])]
    return "\n".join([*text, "# EOF"]) + "\n"


@pytest.fixture(scope="module")
def episode(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PrometheusLab, float]]:
    """A Prometheus that scraped the evening, and when that began."""
    place = tmp_path_factory.mktemp("prometheus")
    began = float(round(time.time() - 3600))
    recording = place / "episode.om"
    recording.write_text(_recorded(began - EPOCH))
    (place / "data").mkdir()
    promtool = unpacked(PROMETHEUS) / "usr" / "bin" / "promtool"
    done = subprocess.run(
        [promtool, "tsdb", "create-blocks-from", "openmetrics", recording, place / "data"],
        capture_output=True,
        text=True,
        timeout=patience(120),
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    with started(lambda: PrometheusLab(directory=place)) as prometheus:
        yield prometheus, began


def _document(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CHART / "dashboards" / f"{name}.json").read_text())
    return found


def _asked() -> list[tuple[str, str, str, bool]]:
    return [
        (name, *query)
        for name in ("tidegate", "tidegate-tenant")
        for query in queries(_document(name))
    ]


@pytest.mark.parametrize(("name", "title", "expression", "instant"), _asked())
def test_a_panel_has_something_to_show_and_no_line_twice(
    episode: tuple[PrometheusLab, float], name: str, title: str, expression: str, instant: bool
) -> None:
    prometheus, began = episode
    for variable, value in _VARIABLES.items():
        expression = expression.replace(variable, value)
    series = (
        prometheus.query(expression, began + 660)
        if instant
        else prometheus.query_range(
            expression, began, end_unix_seconds=began + _SECONDS, step_seconds=15
        )
    )
    assert series, f"{name}: {title} shows nothing"
    labels = [tuple(sorted(one["metric"].items())) for one in series]
    assert not any("pod" in one["metric"] for one in series), "one line for each Pod"
    assert len(labels) == len(set(labels))
    values = [float(v) for one in series for _, v in one.get("values", [one.get("value")])]
    assert any(value == value for value in values), f"{name}: {title} shows no number"


def test_the_dashboards_tell_the_evening(episode: tuple[PrometheusLab, float]) -> None:
    """Not just anything: who is over and who gives, as it was played."""
    prometheus, began = episode
    by_title = {title: query for _, title, query, _ in _asked()}

    def at(title: str, second: float) -> dict[str, float]:
        query = by_title[title]
        for variable, value in _VARIABLES.items():
            query = query.replace(variable, value)
        found = prometheus.query(query, began + second)
        return {
            "/".join(
                v for k, v in sorted(one["metric"].items()) if not k.startswith("policy")
            ): float(one["value"][1])
            for one in found
        }

    assert at("Levels", 200) == {"L0": 0, "L2": 0, "L3": 0}
    assert at("Levels", 645) == {"L0": 0, "L2": 2, "L3": 2}, "2 is Throttled"
    assert at("Brokers over their limits", 200) == {"": 0}
    assert at("Throttled now", 645)[""] >= 2
    assert 0 < at("Lowest share of a contract", 645)[""] < 1
    was = at("Was I throttled?", 645)
    assert was["backfill/reports"] == 1
    assert min(was.values()) == 0


@pytest.mark.parametrize("name", ["tidegate", "tidegate-tenant"])
def test_a_dashboard_is_what_grafana_imports(name: str) -> None:
    document = _document(name)
    assert document["uid"] == name
    assert next(one["name"] for one in document["annotations"]["list"]) == "Throttled"
    assert all("{{" in one["titleFormat"] for one in document["annotations"]["list"])
    assert {one["type"] for one in document["links"]} == {"dashboards", "link"}
    page, _, anchor = document["links"][1]["url"].rpartition("/docs/operations.md#")
    assert page
    assert f"## {anchor.replace('-', ' ').capitalize()}\n" in (DOCS / "operations.md").read_text()
    names = [one["name"] for one in document["templating"]["list"]]
    assert names[:3] == ["datasource", "policy_namespace", "policy"]
    ids = [panel["id"] for panel in document["panels"]]
    assert len(ids) == len(set(ids))
    for panel in document["panels"]:
        if panel["type"] == "row":
            continue
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, panel["title"]
        assert panel["description"], panel["title"]
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for target in panel["targets"]:
            assert "(tidegate_" in target["expr"]
            assert "max by (" in target["expr"] or "sum by (" in target["expr"], target["expr"]
    taken: set[tuple[int, int]] = set()
    for panel in document["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells, f"{panel['title']} lies over another panel"
        taken |= cells
