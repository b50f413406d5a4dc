"""Alerts and dashboard query metrics that the operator exports, in PromQL that Prometheus accepts. Alerts fire when they should."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from lab.kubernetes.tools import Helm
from lab.packages import PROMETHEUS, unpacked
from tests.integration.chart.rendering import CHART, CHECKOUT, HERE, objects, only, rendered

pytestmark = pytest.mark.integration

_ROW = re.compile(r"^\| `(tidegate_\w+)` \| (\w+) \| (.*?) \|", re.MULTILINE)
_SELECTOR = re.compile(r"\b(tidegate_\w+)(?:\{([^}]*)\})?")
_ADDED_BY_PROMETHEUS = {"job", "instance", "le"}


def promtool(*arguments: str) -> str:
    program = unpacked(PROMETHEUS) / "usr" / "bin" / "promtool"
    done = subprocess.run([str(program), *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def exported_labels() -> dict[str, set[str]]:
    """Every series of docs/metrics.md, with its labels. Another test compares that page with the program."""
    page = (CHECKOUT / "docs" / "metrics.md").read_text()
    found = {name: set(re.findall(r"`(\w+)`", labels)) for name, _, labels in _ROW.findall(page)}
    histograms = {f"{name}_bucket": found[name] for name, kind, _ in _ROW.findall(page) if kind == "histogram"}
    return found | histograms


def alert_queries() -> list[str]:
    rules = yaml.safe_load((CHART / "alerts" / "tidegate.yaml").read_text())
    return [rule["expr"] for group in rules["groups"] for rule in group["rules"]]


def dashboard_queries() -> list[str]:
    dashboard = json.loads((CHART / "dashboards" / "tidegate.json").read_text())
    return [
        target["expr"].replace("$policy_namespace", ".*").replace("$policy", ".*")
        for panel in dashboard["panels"]
        for target in panel["targets"]
    ]


@pytest.mark.parametrize("query", [*alert_queries(), *dashboard_queries()])
def test_a_query_asks_for_metrics_and_labels_that_are_exported(query: str) -> None:
    exported = exported_labels()
    asked = list(_SELECTOR.finditer(query))
    for match in asked:
        assert match[1] in exported
        assert set(re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", match[2] or "")) <= exported[match[1]] | _ADDED_BY_PROMETHEUS
    grouped = {label.strip() for labels in re.findall(r"\bby \(([^)]*)\)", query) for label in labels.split(",")}
    assert grouped <= set().union(*(exported[match[1]] for match in asked)) | _ADDED_BY_PROMETHEUS


def test_prometheus_reads_every_query_of_the_dashboard(tmp_path: Path) -> None:
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(dashboard_queries())]
    path = tmp_path / "queries.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", str(path))


def test_alerts_fire_when_something_is_wrong_and_not_before() -> None:
    assert "SUCCESS" in promtool("test", "rules", str(HERE / "alerts.test.yaml"))


def test_the_rules_of_a_release_are_the_alerts_with_its_own_job_and_labels(helm: Helm, tmp_path: Path) -> None:
    spec = only(objects(rendered(helm, metrics={"prometheusRule": {"enabled": True, "alertLabels": {"team": "a"}}})), "PrometheusRule")[
        "spec"
    ]
    rules = [rule for group in spec["groups"] for rule in group["rules"]]
    ours = only(objects(rendered(helm, HERE / "values" / "everything.yaml")), "PrometheusRule")["spec"]["groups"][0]["rules"][0]
    assert [rule["expr"].strip() for rule in rules] == [query.strip() for query in alert_queries()]
    assert ours["expr"] == 'absent(up{job="tidegate-operator"} == 1)'
    assert {rule["labels"]["team"] for rule in rules} == {"a"}
    assert ours["labels"]["severity"] == "critical"
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump(spec))
    promtool("check", "rules", str(path))
