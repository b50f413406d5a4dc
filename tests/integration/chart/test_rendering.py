"""The rendered chart: whole files compared with goldens, and each part that repeats another source compared with that source."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from lab.kubernetes.tools import Helm, HelmFailed
from tests.integration.chart.rendering import CHART, CHECKOUT, HERE, VALUES_FILES, objects, only, rendered
from tidegate.cli import app
from tidegate.resources.crd import crd_document
from tidegate.resources.kinds import KINDS
from tidegate.settings import Settings

pytestmark = pytest.mark.integration

each_values_file = pytest.mark.parametrize("values", VALUES_FILES, ids=lambda path: path.stem)


@each_values_file
def test_the_chart_renders_to_its_golden(helm: Helm, values: Path) -> None:
    """`make chart-goldens` writes them again; the difference is then for a person to read."""
    golden = HERE / "goldens" / values.name
    text = rendered(helm, values)
    if os.environ.get("WRITE_GOLDENS"):
        golden.write_text(text)
    assert text == golden.read_text()


@each_values_file
def test_helm_finds_nothing_to_complain_about(helm: Helm, values: Path) -> None:
    assert "0 chart(s) failed" in helm.run("lint", "--strict", str(CHART), "--values", str(values))


def test_the_crds_are_those_of_the_models_and_stay_on_uninstall(helm: Helm) -> None:
    found = {item["metadata"]["name"]: item for item in objects(rendered(helm)) if item["kind"] == "CustomResourceDefinition"}
    assert {name: item["spec"] for name, item in found.items()} == {kind.crd_name: crd_document(kind)["spec"] for kind in KINDS}
    assert all(item["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"} for item in found.values())


def test_crds_that_are_not_kept_have_no_policy_that_keeps_them(helm: Helm) -> None:
    assert "resource-policy" not in rendered(helm, crds={"keep": False})


def rules_of(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return only(found, kind, name="tidegate")["rules"]


@pytest.mark.parametrize(("kind", "namespaces"), [("ClusterRole", []), ("Role", ["streaming"])])
def test_the_operator_may_do_what_the_documented_rights_allow_and_no_more(helm: Helm, kind: str, namespaces: list[str]) -> None:
    documented = objects((CHECKOUT / "examples" / "rights" / "operator.yaml").read_text())
    assert rules_of(objects(rendered(helm, watch={"namespaces": namespaces})), kind) == rules_of(documented, "ClusterRole")


def test_with_namespaces_nothing_is_granted_to_the_operator_outside_of_them(helm: Helm) -> None:
    found = objects(rendered(helm, watch={"namespaces": ["streaming", "billing"]}))
    assert not [item for item in found if item["kind"] == "ClusterRoleBinding"]
    assert {item["metadata"]["namespace"] for item in found if item["kind"] in ("Role", "RoleBinding")} == {"streaming", "billing"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"replicas": 2}, r"additional properties 'replicas' not allowed"),
        ({"replicaCount": "two"}, r"at '/replicaCount': got string, want integer"),
        ({"image": {"tag": "", "sha": "x"}}, r"at '/image': additional properties 'sha' not allowed"),
        ({"image": {"repository": "registry.example/tidegate:0.1"}}, r"at '/image/repository': .* does not match pattern"),
        ({"image": {"digest": "0123"}}, r"at '/image/digest': .* does not match pattern"),
        ({"watch": {"namespaces": "streaming"}}, r"at '/watch/namespaces': got string, want array"),
        ({"watch": {"namespaces": ["Streaming"]}}, r"at '/watch/namespaces/0': 'Streaming' does not match pattern"),
        ({"watch": {"namespaces": ["a", "a"]}}, r"at '/watch/namespaces': items at 0 and 1 are equal"),
        ({"operator": {"logLevel": "debug"}}, r"at '/operator/logLevel': value must be one of 'DEBUG', 'INFO', 'WARNING', 'ERROR'"),
        ({"operator": {"auditFile": "audit.jsonl"}}, r"at '/operator/auditFile': .* does not match pattern"),
        ({"commonLabels": {"app.kubernetes.io/name": "x"}}, r"invalid propertyName 'app.kubernetes.io/name'"),
        ({"terminationGracePeriodSeconds": 5}, r"at '/terminationGracePeriodSeconds': minimum: got 5, want 30"),
        ({"podDisruptionBudget": {"maxUnavailable": 0}}, r"at '/podDisruptionBudget/maxUnavailable': minimum: got 0, want 1"),
        (
            {"networkPolicy": {"egress": {"kafka": {"ports": ["9092"]}}}},
            r"at '/networkPolicy/egress/kafka/ports/0': got string, want integer",
        ),
        (
            {"networkPolicy": {"egress": {"ldap": {"ports": [389]}}}},
            r"at '/networkPolicy/egress': additional properties 'ldap' not allowed",
        ),
        ({"metrics": {"serviceMonitor": {"interval": "30"}}}, r"at '/metrics/serviceMonitor/interval': '30' does not match pattern"),
        (
            {"metrics": {"serviceMonitor": {"enabled": True}, "service": {"enabled": False}}},
            r"metrics.serviceMonitor.enabled needs metrics.service.enabled: .* Enable both, or none",
        ),
    ],
    ids=str,
)
def test_a_wrong_value_is_refused_and_named(helm: Helm, values: dict[str, Any], message: str) -> None:
    with pytest.raises(HelmFailed) as refusal:
        rendered(helm, **values)
    assert re.search(message, refusal.value.said)


def test_every_value_has_a_rule_and_every_rule_a_value() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(ruled(schema, schema)) - {"global", "resources.claims"} == set(named(values, schema, schema))


def ruled(rule: dict[str, Any], schema: dict[str, Any], path: str = "") -> list[str]:
    """The path of every property of the schema, and of the properties in objects that admit no other."""
    rule = resolved(rule, schema)
    below = rule.get("properties", {}) if rule.get("additionalProperties") is False else {}
    return [name for key, value in below.items() for name in (f"{path}{key}", *ruled(value, schema, f"{path}{key}."))]


def named(values: Any, rule: dict[str, Any], schema: dict[str, Any], path: str = "") -> list[str]:
    """The path of every key of the values, down to where the schema admits any key."""
    rule = resolved(rule, schema)
    if not isinstance(values, dict) or rule.get("additionalProperties") is not False:
        return []
    return [
        name
        for key, value in values.items()
        for name in (f"{path}{key}", *named(value, rule["properties"].get(key, {}), schema, f"{path}{key}."))
    ]


def resolved(rule: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    return schema["$defs"][rule["$ref"].rpartition("/")[2]] if "$ref" in rule else rule


def test_the_test_pod_is_not_taken_for_the_operator(helm: Helm) -> None:
    found = objects(rendered(helm))
    selected = only(found, "Service")["spec"]["selector"].items()
    assert selected <= only(found, "Deployment")["spec"]["template"]["metadata"]["labels"].items()
    assert not selected <= only(found, "Pod")["metadata"]["labels"].items()


def test_the_ports_of_the_pod_are_those_on_which_the_operator_listens(helm: Helm) -> None:
    (container,) = only(objects(rendered(helm)), "Deployment")["spec"]["template"]["spec"]["containers"]
    listening = Settings(identity="")
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"liveness": listening.liveness_port, "metrics": listening.metrics_port}


def test_every_argument_of_the_operator_is_one_that_it_takes(helm: Helm) -> None:
    (container,) = only(objects(rendered(helm, HERE / "values" / "namespaces.yaml")), "Deployment")["spec"]["template"]["spec"][
        "containers"
    ]
    group: Any = typer.main.get_command(app)
    options = {name for parameter in group.commands[container["args"][0]].params for name in parameter.opts}
    assert {argument.partition("=")[0] for argument in container["args"][1:]} <= options
