"""Rights and network access of rollup Jobs in the chart: none by default, and then in the named namespaces only."""

from __future__ import annotations

from typing import Any

import pytest

from lab.kubernetes.tools import Helm
from tests.integration.chart.rendering import CHECKOUT, HERE, objects, only, rendered
from tidegate.kube.rollup_jobs import BLOCK_MANAGER_PORT, DRIVER_PORT, labels

pytestmark = pytest.mark.integration

EVERYTHING = HERE / "values" / "everything.yaml"


def of(found: list[dict[str, Any]], kind: str, name: str) -> list[dict[str, Any]]:
    return [item for item in found if item["kind"] == kind and item["metadata"]["name"] == name]


def test_without_rollups_nothing_is_there_for_them(helm: Helm) -> None:
    text = rendered(helm)
    assert "tidegate-rollup" not in text
    assert "--rollup-image" not in text
    assert "jobs" not in text


@pytest.mark.parametrize(
    ("values", "places"),
    [
        ({"rollup": {"enabled": True}}, ["platform"]),
        ({"rollup": {"enabled": True}, "watch": {"namespaces": ["streaming"]}}, ["streaming"]),
        ({"rollup": {"enabled": True, "namespaces": ["billing"]}, "watch": {"namespaces": ["streaming", "billing"]}}, ["billing"]),
    ],
)
def test_accounts_and_rights_are_in_the_namespaces_of_rollups_only(helm: Helm, values: dict[str, Any], places: list[str]) -> None:
    found = objects(rendered(helm, **values))
    ours = [item for item in found if item["metadata"]["name"].startswith("tidegate-rollup")]
    assert [item["metadata"]["namespace"] for item in of(found, "ServiceAccount", "tidegate-rollup")] == places
    assert {item["metadata"]["namespace"] for item in ours} == set(places)
    assert not [item for item in ours if item["kind"].startswith("Cluster")]


def test_the_operator_gets_no_more_than_jobs_and_their_result(helm: Helm) -> None:
    rules = only(objects(rendered(helm, rollup={"enabled": True})), "Role", name="tidegate-rollup-jobs")["rules"]
    assert [(rule["resources"], rule["verbs"]) for rule in rules] == [(["jobs"], ["list", "create", "delete"]), (["configmaps"], ["get"])]


@pytest.mark.parametrize("executors", [False, True])
def test_jobs_may_make_pods_only_where_executors_are_allowed(helm: Helm, executors: bool) -> None:
    found = objects(rendered(helm, rollup={"enabled": True, "executors": {"enabled": executors}}))
    rules = only(found, "Role", name="tidegate-rollup")["rules"]
    assert any("pods" in rule["resources"] for rule in rules) == executors


def test_the_network_policy_is_for_the_pods_that_jobs_have_and_the_ports_that_they_use(helm: Helm) -> None:
    policy = of(objects(rendered(helm, EVERYTHING)), "NetworkPolicy", "tidegate-rollup")[0]["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= labels("orders").items()
    assert [port["port"] for rule in policy["ingress"] for port in rule["ports"]] == [DRIVER_PORT, BLOCK_MANAGER_PORT]


def test_the_operator_gets_the_account_that_the_chart_made(helm: Helm) -> None:
    found = objects(rendered(helm, rollup={"enabled": True}))
    arguments = only(found, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert f"--rollup-service-account={of(found, 'ServiceAccount', 'tidegate-rollup')[0]['metadata']['name']}" in arguments
    assert "--rollup-image=tidegate-rollup:0.1.0" in arguments


@pytest.mark.parametrize("name", ["tidegate-rollup", "tidegate-rollup-jobs"])
def test_the_rights_without_the_chart_are_those_that_it_gives(helm: Helm, name: str) -> None:
    documented = objects((CHECKOUT / "examples" / "rollup" / "rights.yaml").read_text(encoding="utf-8"))
    given = objects(rendered(helm, rollup={"enabled": True, "executors": {"enabled": True}}))
    assert only(documented, "Role", name=name)["rules"] == only(given, "Role", name=name)["rules"]
