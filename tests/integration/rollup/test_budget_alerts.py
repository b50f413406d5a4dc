"""The alerts of docs/usage-report.md on the metrics that a report writes: each fires when it is meant
to, and not before. promtool plays them.
"""

from __future__ import annotations

import re
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.packages import PROMETHEUS, unpacked
from lab.process import patience
from tests.unit.report.small_request import END_MS, START_MS, small_request
from tidegate.report.compute import figures_of
from tidegate.report.page import metrics_text
from tidegate.report.rate_card import GIB, Budget, RateCard, Rates
from tidegate.rollup.labels import labels_text
from tidegate.rollup.schemas import HOUR_MS

pytestmark = pytest.mark.integration

PAGE = Path(__file__).parents[3] / "docs" / "usage-report.md"
MINUTES, HOURS = 5, 60  # from one scrape to the next; of played time
SAMPLE = re.compile(r"^(tidegate_\w+)(\{.*\}) (\S+)$", re.MULTILINE)


def rules_of_the_page() -> dict[str, Any]:
    (block,) = re.findall(
        r"```text\n(groups:\n.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
    )
    rules: dict[str, Any] = yaml.safe_load(block)
    return rules


def report_of_two_hours() -> str:
    """What `--metrics-file` has: shop costs half as much again as its budget, ops has none."""
    shop, ops = labels_text([("team", "shop")]), labels_text([("team", "ops")])
    usage = [
        {"user": "a", "bytes": 2 * GIB, "labels": shop},
        {"user": "a", "bytes": GIB, "labels": shop, "window_start": START_MS + HOUR_MS},
        {"user": "b", "bytes": 9 * GIB, "labels": ops},
    ]
    # November has 720 hours
    budgets = [Budget("team", "shop", Decimal(720)), Budget("team", "idle", Decimal(72))]
    card = RateCard(rates=[Rates(per_gib={"fetch": Decimal(1)})], currency="EUR", budgets=budgets)
    return metrics_text(figures_of(small_request(usage, rate_card=card, by_labels=("team",))))


def series_of(text: str) -> list[dict[str, str]]:
    """The series as node_exporter's textfile collector shows them, from the end of the period on,
    which is where promtool's time begins. After ten hours shop's ratio is below 1.
    """
    found = []
    for name, labels, value in SAMPLE.findall(text):
        now = float(value)
        if name == "tidegate_label_period_end_timestamp_seconds":
            now -= END_MS / 1000
        values = f"{now}x{HOURS * 60 // MINUTES}"
        if name == "tidegate_label_budget_ratio" and 'value="shop"' in labels:
            values = f"{now}x{10 * 60 // MINUTES - 1} 0.99x{(HOURS - 10) * 60 // MINUTES}"
        found.append({"series": f"{name}{labels}", "values": values})
    return found


def expected(at: str, alert: str, *labels: dict[str, str], says: str = "") -> dict[str, Any]:
    fired = [{"exp_labels": one, "exp_annotations": {"summary": says}} for one in labels]
    return {"eval_time": at, "alertname": alert, "exp_alerts": fired}


def test_each_alert_of_the_page_fires_and_not_before(tmp_path: Path) -> None:
    rules = rules_of_the_page()
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    over = {"policy": "streaming/main", "label": "team", "value": "shop", "currency": "EUR"}
    said = "team=shop is at 150% of its budget."
    old = "Nobody ran the report of streaming/main for two days."
    checks = [
        expected("55m", "TidegateBudgetExceeded"),
        expected("60m", "TidegateBudgetExceeded", over, says=said),
        expected("595m", "TidegateBudgetExceeded", over, says=said),
        expected("605m", "TidegateBudgetExceeded"),
        expected("48h", "TidegateBudgetsOld"),
        expected("2885m", "TidegateBudgetsOld", {"policy": "streaming/main"}, says=old),
    ]
    named = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    assert {one["alertname"] for one in checks if one["exp_alerts"]} == named
    played = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": f"{MINUTES}m",
        "tests": [
            {
                "interval": f"{MINUTES}m",
                "input_series": series_of(report_of_two_hours()),
                "alert_rule_test": checks,
            }
        ],
    }
    (tmp_path / "play.yaml").write_text(yaml.safe_dump(played))
    promtool = unpacked(PROMETHEUS) / "usr" / "bin" / "promtool"
    argv = [str(promtool), "test", "rules", str(tmp_path / "play.yaml")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=patience(60))
    assert done.returncode == 0, done.stdout + done.stderr
