"""The rendered chart: short files compared with goldens, and each part that repeats another source
compared with that source.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from image import CONSOLE as CONSOLE_IMAGE
from image import FORWARDER, OPERATOR, ROLLUP
from lab.kubernetes.tools import Helm
from lab.packages import PROMETHEUS, unpacked
from lab.process import CommandFailed, patience
from tests.integration.chart.rendering import (
    CHART,
    CHECKOUT,
    HERE,
    VALUES_FILES,
    objects,
    only,
    rendered,
)
from tidegate.cli import app
from tidegate.kube.forwarders import METRICS_PORT
from tidegate.kube.forwarders import labels as queue_labels
from tidegate.kube.rollup_jobs import BLOCK_MANAGER_PORT, DRIVER_PORT, labels
from tidegate.observe.secrets_and_hosts import Secrets
from tidegate.resources.crd import crd_document
from tidegate.resources.kinds import KINDS, VERSION
from tidegate.settings import PolicyBounds, Settings
from tools.dashboards import queries

pytestmark = pytest.mark.integration

each_values_file = pytest.mark.parametrize("values", VALUES_FILES, ids=lambda path: path.stem)


@pytest.mark.parametrize("name", ["default", "namespaces", "nothing"])
def test_the_chart_renders_to_its_golden(helm: Helm, name: str) -> None:
    """`make chart-goldens` writes them again; the difference is then for a person to read. Of the
    chart with everything switched on nobody would read it: test_everything.py states facts.
    """
    golden, values = (HERE / folder / f"{name}.yaml" for folder in ("goldens", "values"))
    text = rendered(helm, values)
    if os.environ.get("WRITE_GOLDENS"):
        golden.write_text(text)
    assert text == golden.read_text()


@each_values_file
def test_helm_finds_nothing_to_complain_about(helm: Helm, values: Path) -> None:
    assert "0 chart(s) failed" in helm.run("lint", "--strict", str(CHART), "--values", str(values))


def test_the_crds_are_those_of_the_models_and_stay_on_uninstall(helm: Helm) -> None:
    found = {
        item["metadata"]["name"]: item
        for item in objects(rendered(helm))
        if item["kind"] == "CustomResourceDefinition"
    }
    assert {name: item["spec"] for name, item in found.items()} == {
        kind.crd_name: crd_document(kind)["spec"] for kind in KINDS
    }
    assert all(
        item["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
        for item in found.values()
    )


def test_crds_that_are_not_kept_have_no_policy_that_keeps_them(helm: Helm) -> None:
    assert "resource-policy" not in rendered(helm, crds={"keep": False})


def rules_of(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return only(found, kind, name="tidegate")["rules"]


@pytest.mark.parametrize(
    ("kind", "watch"),
    [
        ("ClusterRole", {"allNamespaces": True}),
        ("Role", {"namespaces": ["streaming"]}),
        ("Role", {}),
    ],
    ids=["everywhere", "a namespace", "by default"],
)
def test_the_operator_may_do_what_the_documented_rights_allow_and_no_more(
    helm: Helm, kind: str, watch: dict[str, Any]
) -> None:
    documented = objects((CHECKOUT / "examples" / "rights" / "operator.yaml").read_text())
    found = objects(rendered(helm, watch=watch))
    assert rules_of(found, kind) == rules_of(documented, "ClusterRole")
    leases = [only(each, "Role", name="tidegate-leases")["rules"] for each in (found, documented)]
    assert leases[0] == leases[1]


_AGGREGATED = re.compile(r"rbac\.authorization\.k8s\.io/aggregate-to-(\w+)")


@pytest.mark.parametrize(
    ("values", "joins"),
    [
        ({}, {"view": [], "owner": [], "contracts": [], "overrides": []}),
        (
            {"rbac": {"aggregateRoles": True}},
            {
                "view": ["admin", "edit", "view"],
                "owner": ["admin"],
                "contracts": ["admin", "edit"],
                "overrides": ["admin", "edit"],
            },
        ),
    ],
    ids=["by default", "aggregated"],
)
def test_people_have_a_role_for_each_duty_which_joins_others_only_when_asked(
    helm: Helm, values: dict[str, Any], joins: dict[str, list[str]]
) -> None:
    found = objects(rendered(helm, **values))
    roles = {duty: only(found, "ClusterRole", name=f"tidegate-{duty}") for duty in joins}
    assert {
        duty: sorted(_AGGREGATED.findall(str(role["metadata"]["labels"])))
        for duty, role in roles.items()
    } == joins
    written = {
        duty: [
            kind
            for rule in role["rules"]
            if "create" in rule["verbs"]
            for kind in rule["resources"]
        ]
        for duty, role in roles.items()
    }
    assert written == {
        "view": [],
        "owner": ["brokerbandwidthpolicies", "bandwidthbudgets"],
        "contracts": ["businesstiers"],
        "overrides": ["quotaoverrides"],
    }
    bound = [item["roleRef"]["name"] for item in found if item["kind"].endswith("RoleBinding")]
    assert not {f"tidegate-{duty}" for duty in joins} & set(bound)


def test_which_secrets_and_hosts_policies_may_use_reaches_the_operator(helm: Helm) -> None:
    def bounds(**values: Any) -> list[str]:
        found = objects(rendered(helm, **values))
        arguments = only(found, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]
        return [one for one in arguments if "host" in one or "secret" in one]

    assert bounds() == []
    assert bounds(rbac={"secretNames": ["login"]}) == ["--unlabelled-secret=login"]
    assert bounds(rbac={"requireSecretLabel": False}) == ["--unlabelled-secret=*"]
    assert bounds(operator={"allowedHosts": ["*.example", "zk:2181"]}) == [
        "--allowed-host=*.example",
        "--allowed-host=zk:2181",
    ]


def test_tokens_are_mounted_where_the_policies_of_their_namespace_look_for_them(
    helm: Helm,
) -> None:
    token = {"namespace": "streaming", "name": "kafka", "audience": "kafka"}
    pod = only(objects(rendered(helm, operator={"tokens": [token]})), "Deployment")
    spec = pod["spec"]["template"]["spec"]
    (mount,) = (one for one in spec["containers"][0]["volumeMounts"] if one["name"] == "tokens")
    (volume,) = (one for one in spec["volumes"] if one["name"] == "tokens")
    assert (mount["mountPath"], mount["readOnly"]) == (PolicyBounds().token_folder, True)
    (source,) = volume["projected"]["sources"]
    found = source["serviceAccountToken"]
    assert found == {"path": "streaming/kafka", "audience": "kafka", "expirationSeconds": 3600}
    place = Secrets("streaming").token_file("kafka")
    assert Path(mount["mountPath"]) / found["path"] == place
    with pytest.raises(CommandFailed):
        rendered(helm, operator={"tokens": [{**token, "name": "../../kafka"}]})


def test_forwarders_may_have_tokens_for_the_same_audiences(helm: Helm) -> None:
    token = {"namespace": "streaming", "name": "kafka", "audience": "kafka"}
    found = objects(rendered(helm, operator={"tokens": [token]}, delayQueues={"enabled": True}))
    arguments = only(found, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]
    (given,) = (one for one in arguments if one.startswith("--forwarder-token="))
    assert json.loads(given.partition("=")[2]) == token


def test_the_console_is_bound_to_the_same_hosts_and_finds_leases_and_trails(helm: Helm) -> None:
    console = {"enabled": True, "image": "console:1", "hosts": ["tidegate.example"]}
    found = objects(
        rendered(
            helm,
            console=console,
            operator={
                "allowedHosts": ["*.example"],
                "leaseNamespace": "leases",
                "auditVolume": {"enabled": True, "claim": "trails"},
            },
        )
    )
    pod = only(found, "Deployment", name="tidegate-console")["spec"]["template"]["spec"]
    arguments = pod["containers"][0]["args"]
    assert "--browser-host=tidegate.example" in arguments
    assert "--allowed-host=*.example" in arguments
    assert "--lease-namespace=leases" in arguments
    assert "--audit-file=/audit" in arguments
    assert {"name": "audit", "mountPath": "/audit", "readOnly": True} in pod["containers"][0][
        "volumeMounts"
    ]
    leases = only(found, "Role", name="tidegate-console-leases")
    assert leases["metadata"]["namespace"] == "leases"
    assert leases["rules"] == [
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]}
    ]


def test_each_pod_has_a_trail_of_its_own_on_the_volume_that_was_asked_for(helm: Helm) -> None:
    asked = {"auditVolume": {"enabled": True, "storageClass": "files"}}
    found = objects(rendered(helm, operator=asked))
    claim = only(found, "PersistentVolumeClaim")
    assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert claim["spec"] == {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "files",
        "resources": {"requests": {"storage": "2Gi"}},
    }
    pod = only(found, "Deployment")["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert "--audit-file=/audit/$(POD_NAME).jsonl" in container["args"]
    assert container["env"] == [
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    ]
    assert {"name": "audit", "mountPath": "/audit"} in container["volumeMounts"]
    assert pod["securityContext"]["fsGroup"] == 65532
    named = {"name": "audit", "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}}
    assert named in pod["volumes"]
    own = objects(rendered(helm, operator={"auditVolume": {"enabled": True, "claim": "mine"}}))
    assert not [one for one in own if one["kind"] == "PersistentVolumeClaim"]
    without = rendered(helm)
    assert not [one for one in objects(without) if one["kind"] == "PersistentVolumeClaim"]
    assert "fsGroup:" not in without


def pods_of(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Every Pod that the chart makes, those of Jobs as the operator would make them."""
    pods = {
        item["metadata"]["name"]: item["spec"]["template"]["spec"]
        for item in found
        if item["kind"] == "Deployment"
    }
    pods |= {item["metadata"]["name"]: item["spec"] for item in found if item["kind"] == "Pod"}
    options = dict(
        argument.partition("=")[::2] for argument in pods["tidegate"]["containers"][0]["args"]
    )
    if "--rollup-image" in options:
        container = {"securityContext": json.loads(options["--rollup-security-context"])}
        pods["rollup"] = {
            "securityContext": json.loads(options["--rollup-pod-security-context"]),
            "containers": [container],
        }
    if "--forwarder-image" in options:
        container = {"securityContext": json.loads(options["--forwarder-security-context"])}
        pods["delayQueues"] = {
            "securityContext": json.loads(options["--forwarder-pod-security-context"]),
            "containers": [container],
        }
    return pods


def refused_by_restricted_v2(pod: dict[str, Any]) -> list[str]:
    """The fields for which OpenShift's default SCC refuses a Pod: any number is outside the
    namespace's range, the profile is the runtime's, and no capability stays.
    """
    context = pod["securityContext"]
    (container,) = (one.get("securityContext", {}) for one in pod["containers"])
    wrong = [name for name in ("runAsUser", "fsGroup") if name in {**context, **container}]
    if context.get("seccompProfile") != {"type": "RuntimeDefault"}:
        wrong.append("seccompProfile")
    if container.get("allowPrivilegeEscalation") is not False:
        wrong.append("allowPrivilegeEscalation")
    if container.get("capabilities") != {"drop": ["ALL"]}:
        wrong.append("capabilities")
    return wrong


EVERY_POD = {"operator": {"auditVolume": {"enabled": True}}, "rollup": {"enabled": True}}
CONSOLE = {"console": {"enabled": True, "image": "tidegate-console:0.1.0"}}


def test_the_values_of_the_openshift_page_leave_no_number_that_its_default_rule_refuses(
    helm: Helm, tmp_path: Path
) -> None:
    page = (CHECKOUT / "docs" / "openshift.md").read_text()
    values = tmp_path / "values.yaml"
    values.write_text(page.partition("```\n")[2].partition("```")[0])
    pods = pods_of(objects(rendered(helm, values, **CONSOLE)))
    assert pods.keys() == {"tidegate", "tidegate-console", "tidegate-test", "rollup"}
    assert not {
        name: wrong for name, pod in pods.items() if (wrong := refused_by_restricted_v2(pod))
    }
    defaults = pods_of(objects(rendered(helm, **EVERY_POD, **CONSOLE)))
    assert refused_by_restricted_v2(defaults["tidegate"]) == ["fsGroup"]
    assert refused_by_restricted_v2(defaults["rollup"]) == ["runAsUser", "fsGroup"]
    assert not refused_by_restricted_v2(defaults["tidegate-console"])


@pytest.mark.parametrize("part", ["tidegate", "tidegate-console", "rollup", "delayQueues"])
def test_security_contexts_are_changed_field_by_field_and_null_takes_one_away(
    helm: Helm, part: str
) -> None:
    changed: dict[str, Any] = {
        "podSecurityContext": {"runAsUser": 2000, "fsGroup": 3000, "seccompProfile": None},
        "securityContext": {"readOnlyRootFilesystem": None, "privileged": False},
    }
    parts: dict[str, Any] = {"rollup": {"enabled": True}, "delayQueues": {"enabled": True}}
    asked: dict[str, Any] = {**parts, **CONSOLE}
    if part == "tidegate":
        asked |= changed
    else:
        section = part.removeprefix("tidegate-")
        asked[section] = asked[section] | changed
    pods = pods_of(objects(rendered(helm, **asked)))
    context, container = pods[part]["securityContext"], pods[part]["containers"][0]
    assert (context["runAsUser"], context["fsGroup"]) == (2000, 3000)
    assert context["runAsNonRoot"] is True
    assert "seccompProfile" not in context
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "privileged": False,
    }
    others = pods.keys() - {part} - ({"tidegate-test"} if part == "tidegate" else set())
    for other in others:
        assert "seccompProfile" in pods[other]["securityContext"]


@pytest.mark.parametrize(
    ("watch", "granted", "arguments"),
    [
        ({}, {"platform"}, []),
        (
            {"namespaces": ["streaming", "billing"]},
            {"streaming", "billing"},
            ["--namespace=streaming", "--namespace=billing"],
        ),
        ({"allNamespaces": True}, set(), ["--all-namespaces"]),
    ],
    ids=["by default", "namespaces", "everywhere"],
)
def test_only_all_namespaces_grants_anything_in_the_whole_cluster(
    helm: Helm, watch: dict[str, Any], granted: set[str], arguments: list[str]
) -> None:
    found = objects(rendered(helm, watch=watch))
    bindings = [item for item in found if item["kind"] == "ClusterRoleBinding"]
    assert len(bindings) == (0 if granted else 1)
    for kind in ("Role", "RoleBinding"):
        places = {
            (item["metadata"]["name"], item["metadata"]["namespace"])
            for item in found
            if item["kind"] == kind
        }
        assert places == {
            ("tidegate-leases", "platform"),
            *(("tidegate", namespace) for namespace in granted),
        }
    container = only(found, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert [argument for argument in container["args"] if "namespace" in argument] == arguments


def test_leases_are_granted_in_the_operators_namespace_and_nowhere_else(helm: Helm) -> None:
    found = objects(rendered(helm, watch={"allNamespaces": True}))
    granting = [
        (item["kind"], item["metadata"]["name"])
        for item in found
        if any("leases" in rule["resources"] for rule in item.get("rules") or ())
    ]
    assert granting == [("Role", "tidegate-leases")]


def test_leases_kept_elsewhere_are_granted_there_and_no_more_in_the_releases_namespace(
    helm: Helm,
) -> None:
    found = objects(rendered(helm, operator={"leaseNamespace": "before"}))
    granting = [
        item
        for item in found
        if any("leases" in rule["resources"] for rule in item.get("rules") or ())
    ]
    (role,) = granting
    (binding,) = of(found, "RoleBinding", role["metadata"]["name"])
    assert {one["metadata"]["namespace"] for one in (role, binding)} == {"before"}
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"][0]["namespace"] == "platform"
    container = only(found, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert "--lease-namespace=before" in container["args"]
    # the release of before, of the same name, still has its own Role there
    assert role["metadata"]["name"] != "tidegate-leases"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"replicas": 2}, r"additional properties 'replicas' not allowed"),
        ({"replicaCount": "two"}, r"at '/replicaCount': got string, want integer"),
        (
            {"image": {"tag": "", "sha": "x"}},
            r"at '/image': additional properties 'sha' not allowed",
        ),
        (
            {"image": {"repository": "registry.example/tidegate:0.1"}},
            r"at '/image/repository': .* does not match pattern",
        ),
        ({"image": {"digest": "0123"}}, r"at '/image/digest': .* does not match pattern"),
        (
            {"watch": {"namespaces": ["streaming"], "allNamespaces": True}},
            r"watch.allNamespaces and watch.namespaces exclude each other",
        ),
        ({"watch": {"namespaces": "streaming"}}, r"at '/watch/namespaces': got string, want array"),
        (
            {"watch": {"namespaces": ["Streaming"]}},
            r"at '/watch/namespaces/0': 'Streaming' does not match pattern",
        ),
        (
            {"watch": {"namespaces": ["a", "a"]}},
            r"at '/watch/namespaces': items at 0 and 1 are equal",
        ),
        (
            {"operator": {"logLevel": "debug"}},
            r"at '/operator/logLevel': value must be one of 'DEBUG', 'INFO', 'WARNING', 'ERROR'",
        ),
        (
            {"operator": {"auditFile": "audit.jsonl"}},
            r"at '/operator/auditFile': .* does not match pattern",
        ),
        (
            {"commonLabels": {"app.kubernetes.io/name": "x"}},
            r"invalid propertyName 'app.kubernetes.io/name'",
        ),
        (
            {"terminationGracePeriodSeconds": 5},
            r"at '/terminationGracePeriodSeconds': minimum: got 5, want 30",
        ),
        (
            {"podDisruptionBudget": {"maxUnavailable": 0}},
            r"at '/podDisruptionBudget/maxUnavailable': minimum: got 0, want 1",
        ),
        (
            {"networkPolicy": {"egress": {"kafka": {"ports": ["9092"]}}}},
            r"at '/networkPolicy/egress/kafka/ports/0': got string, want integer",
        ),
        (
            {"networkPolicy": {"egress": {"ldap": {"ports": [389]}}}},
            r"at '/networkPolicy/egress': additional properties 'ldap' not allowed",
        ),
        (
            {"metrics": {"serviceMonitor": {"interval": "30"}}},
            r"at '/metrics/serviceMonitor/interval': '30' does not match pattern",
        ),
        (
            {"metrics": {"serviceMonitor": {"enabled": True}, "service": {"enabled": False}}},
            (
                r"metrics.serviceMonitor.enabled needs metrics.service.enabled: .* Enable both, or "
                r"none"
            ),
        ),
        (
            {"metrics": {"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}}},
            r"exclude each other: every replica would be scraped twice. Enable one of them",
        ),
        ({"operator": {"extraArgs": ["debug"]}}, r"at '/operator/extraArgs/0': .* pattern"),
        ({"probes": {"liveness": {"path": 1}}}, r"invalid propertyName 'path'"),
        ({"probes": {"startup": {"periodSeconds": "2"}}}, r"at '/probes/startup/periodSeconds'"),
        (
            {"global": {"imageRegistry": "https://mirror.example"}},
            r"at '/global/imageRegistry': .* does not match pattern",
        ),
        ({"deploymentLabels": {"helm.sh/chart": "x"}}, r"invalid propertyName 'helm.sh/chart'"),
    ],
    ids=str,
)
def test_a_wrong_value_is_refused_and_named(
    helm: Helm, values: dict[str, Any], message: str
) -> None:
    with pytest.raises(CommandFailed) as refusal:
        rendered(helm, **values)
    assert re.search(message, refusal.value.said)


def test_every_value_has_a_rule_and_every_rule_a_value() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(ruled(schema, schema)) - {"resources.claims"} == set(named(values, schema, schema))


def ruled(rule: dict[str, Any], schema: dict[str, Any], path: str = "") -> list[str]:
    """The path of every property of the schema, and of the properties in objects that admit no
    other.
    """
    rule = resolved(rule, schema)
    below = rule.get("properties", {}) if rule.get("additionalProperties") is False else {}
    return [
        name
        for key, value in below.items()
        for name in (f"{path}{key}", *ruled(value, schema, f"{path}{key}."))
    ]


def named(values: Any, rule: dict[str, Any], schema: dict[str, Any], path: str = "") -> list[str]:
    """The path of every key of the values, down to where the schema admits any key."""
    rule = resolved(rule, schema)
    if not isinstance(values, dict) or rule.get("additionalProperties") is not False:
        return []
    return [
        name
        for key, value in values.items()
        for name in (
            f"{path}{key}",
            *named(value, rule["properties"].get(key, {}), schema, f"{path}{key}."),
        )
    ]


def resolved(rule: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    return schema["$defs"][rule["$ref"].rpartition("/")[2]] if "$ref" in rule else rule


PARTS = {
    "rollup": {"enabled": True},
    "delayQueues": {"enabled": True, "image": "registry.example/own/forwarder:2"},
    "console": {"enabled": True, "image": "localhost/console@sha256:" + "0" * 64},
}


@pytest.mark.parametrize(
    ("registry", "names"),
    [
        (
            "",
            [
                "registry.example/a/tidegate:1",
                "registry.example/a/tidegate-rollup:1",
                "registry.example/own/forwarder:2",
                "localhost/console@sha256:" + "0" * 64,
            ],
        ),
        (
            "mirror.example:5000/x",
            [
                "mirror.example:5000/x/a/tidegate:1",
                "mirror.example:5000/x/a/tidegate-rollup:1",
                "mirror.example:5000/x/own/forwarder:2",
                "mirror.example:5000/x/console@sha256:" + "0" * 64,
            ],
        ),
    ],
)
def test_one_registry_takes_the_place_of_the_host_of_every_image(
    helm: Helm, registry: str, names: list[str]
) -> None:
    found = objects(
        rendered(
            helm,
            image={"repository": "registry.example/a/tidegate", "tag": "1"},
            **{"global": {"imageRegistry": registry}},
            **PARTS,
        )
    )
    operator, console = (
        only(found, "Deployment", name=name)["spec"]["template"]["spec"]["containers"][0]
        for name in ("tidegate", "tidegate-console")
    )
    beside = [one.partition("=")[2] for one in operator["args"] if "-image=" in one]
    assert [operator["image"], *beside, console["image"]] == names
    assert only(found, "Pod")["spec"]["containers"][0]["image"] == names[0]


@pytest.mark.parametrize(
    ("repository", "name"),
    [("tidegate", "mirror.example/tidegate"), ("team/tidegate", "mirror.example/team/tidegate")],
)
def test_a_name_without_a_host_comes_below_the_registry(
    helm: Helm, repository: str, name: str
) -> None:
    image = {"repository": repository, "digest": "sha256:" + "1" * 64}
    values = {"image": image, "global": {"imageRegistry": "mirror.example"}}
    container = only(objects(rendered(helm, **values)), "Deployment")["spec"]["template"]["spec"][
        "containers"
    ][0]
    assert container["image"] == f"{name}@sha256:" + "1" * 64


def test_a_pod_monitor_finds_the_operators_pods_under_the_job_that_alerts_name(
    helm: Helm,
) -> None:
    own = {"action": "labeldrop", "regex": "pod"}
    asked = {"enabled": True, "labels": {"release": "monitoring"}, "relabelings": [own]}
    found = objects(
        rendered(helm, metrics={"podMonitor": asked, "service": {"enabled": False}}, **PARTS)
    )
    monitor, deployment = only(found, "PodMonitor"), only(found, "Deployment", name="tidegate")
    assert monitor["metadata"]["labels"]["release"] == "monitoring"
    selector = monitor["spec"]["selector"]["matchLabels"]
    pods = [
        item["metadata"]["name"]
        for item in found
        if item["kind"] == "Deployment"
        and selector.items() <= item["spec"]["template"]["metadata"]["labels"].items()
    ]
    assert pods == ["tidegate"]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    ports = deployment["spec"]["template"]["spec"]["containers"][0]["ports"]
    assert endpoint["port"] in {port["name"] for port in ports}
    assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": "tidegate"}, own]


def test_labels_of_the_deployment_take_precedence_over_those_of_all_objects(helm: Helm) -> None:
    values = {"commonLabels": {"team": "a"}, "deploymentLabels": {"team": "b"}}
    metadata = only(objects(rendered(helm, **values)), "Deployment")["metadata"]
    assert metadata["labels"]["team"] == "b"
    assert metadata["labels"]["app.kubernetes.io/version"] == "0.1.0"


def test_the_notes_name_the_doctor() -> None:
    assert "kubectl tidegate doctor" in (CHART / "templates" / "NOTES.txt").read_text()


def test_what_an_index_of_charts_shows_is_what_the_chart_has() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["icon"].endswith("/charts/tidegate/icon.svg")
    assert (CHART / "icon.svg").exists()
    assert chart["home"] in chart["sources"]
    assert all("@" not in str(one) for one in chart["maintainers"])
    shown = {
        name.partition("/")[2]: yaml.safe_load(text) for name, text in chart["annotations"].items()
    }
    assert {(one["kind"], one["version"], one["name"]) for one in shown["crds"]} == {
        (kind.kind, VERSION, kind.crd_name) for kind in KINDS
    }
    assert {one["image"] for one in shown["images"]} == {
        f"{edition.repository}:{chart['appVersion']}"
        for edition in (OPERATOR, CONSOLE_IMAGE, FORWARDER, ROLLUP)
    }


def test_the_test_pod_is_not_taken_for_the_operator(helm: Helm) -> None:
    found = objects(rendered(helm))
    selected = only(found, "Service")["spec"]["selector"].items()
    assert selected <= only(found, "Deployment")["spec"]["template"]["metadata"]["labels"].items()
    assert not selected <= only(found, "Pod")["metadata"]["labels"].items()


def test_the_ports_of_the_pod_are_those_on_which_the_operator_listens(helm: Helm) -> None:
    (container,) = only(objects(rendered(helm)), "Deployment")["spec"]["template"]["spec"][
        "containers"
    ]
    listening = Settings(identity="")
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"liveness": listening.liveness_port, "metrics": listening.metrics_port}


def test_every_argument_of_the_operator_is_one_that_it_takes(helm: Helm) -> None:
    (container,) = only(objects(rendered(helm, HERE / "values" / "namespaces.yaml")), "Deployment")[
        "spec"
    ]["template"]["spec"]["containers"]
    group: Any = typer.main.get_command(app)
    options = {
        name for parameter in group.commands[container["args"][0]].params for name in parameter.opts
    }
    assert {argument.partition("=")[0] for argument in container["args"][1:]} <= options


# --- rollup Jobs ----------------------------------------------------------------------------------
# Rights and network access of rollup Jobs in the chart: none by default, and then in the named
# namespaces only.


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
        (
            {
                "rollup": {"enabled": True, "namespaces": ["billing"]},
                "watch": {"namespaces": ["streaming", "billing"]},
            },
            ["billing"],
        ),
    ],
)
def test_accounts_and_rights_are_in_the_namespaces_of_rollups_only(
    helm: Helm, values: dict[str, Any], places: list[str]
) -> None:
    found = objects(rendered(helm, **values))
    ours = [item for item in found if item["metadata"]["name"].startswith("tidegate-rollup")]
    assert [
        item["metadata"]["namespace"] for item in of(found, "ServiceAccount", "tidegate-rollup")
    ] == places
    assert {item["metadata"]["namespace"] for item in ours} == set(places)
    assert not [item for item in ours if item["kind"].startswith("Cluster")]


def test_the_operator_gets_no_more_than_jobs_and_their_result(helm: Helm) -> None:
    rules = only(
        objects(rendered(helm, rollup={"enabled": True})), "Role", name="tidegate-rollup-jobs"
    )["rules"]
    assert [(rule["resources"], rule["verbs"]) for rule in rules] == [
        (["jobs"], ["list", "create", "delete"]),
        (["configmaps"], ["get"]),
        (["persistentvolumeclaims"], ["get"]),
    ]


@pytest.mark.parametrize("executors", [False, True])
def test_jobs_may_make_pods_only_where_executors_are_allowed(helm: Helm, executors: bool) -> None:
    found = objects(rendered(helm, rollup={"enabled": True, "executors": {"enabled": executors}}))
    rules = only(found, "Role", name="tidegate-rollup")["rules"]
    assert any("pods" in rule["resources"] for rule in rules) == executors


def test_the_network_policy_is_for_the_pods_that_jobs_have_and_the_ports_that_they_use(
    helm: Helm,
) -> None:
    policy = of(objects(rendered(helm, EVERYTHING)), "NetworkPolicy", "tidegate-rollup")[0]["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= labels("orders").items()
    assert [port["port"] for rule in policy["ingress"] for port in rule["ports"]] == [
        DRIVER_PORT,
        BLOCK_MANAGER_PORT,
    ]


def test_the_operator_gets_the_account_that_the_chart_made(helm: Helm) -> None:
    found = objects(rendered(helm, rollup={"enabled": True}))
    arguments = only(found, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert (
        f"--rollup-service-account={of(found, 'ServiceAccount', 'tidegate-rollup')[0]['metadata']['name']}"
        in arguments
    )
    assert "--rollup-image=tidegate-rollup:0.1.0" in arguments


@pytest.mark.parametrize("name", ["tidegate-rollup", "tidegate-rollup-jobs"])
def test_the_rights_without_the_chart_are_those_that_it_gives(helm: Helm, name: str) -> None:
    documented = objects(
        (CHECKOUT / "examples" / "rollup" / "rights.yaml").read_text(encoding="utf-8")
    )
    given = objects(rendered(helm, rollup={"enabled": True, "executors": {"enabled": True}}))
    assert only(documented, "Role", name=name)["rules"] == only(given, "Role", name=name)["rules"]


# --- delay queues ---------------------------------------------------------------------------------


def test_without_delay_queues_nothing_but_their_crd_is_there(helm: Helm) -> None:
    without_crds = rendered(helm, crds={"enabled": False})
    assert "delayqueues" not in without_crds
    assert "forwarder" not in without_crds
    assert "deployments" not in without_crds


@pytest.mark.parametrize(
    ("values", "kind", "watched", "places"),
    [
        ({}, "Role", ["platform"], ["platform"]),
        ({"watch": {"namespaces": ["shop", "web"]}}, "Role", ["shop", "web"], ["shop", "web"]),
        (
            {
                "watch": {"namespaces": ["shop", "web"]},
                "delayQueues": {"enabled": True, "namespaces": ["web"]},
            },
            "Role",
            ["shop", "web"],
            ["web"],
        ),
        (
            {
                "watch": {"allNamespaces": True},
                "delayQueues": {"enabled": True, "namespaces": ["web"]},
            },
            "ClusterRole",
            [None],
            ["web"],
        ),
    ],
)
def test_deployments_may_be_made_only_in_the_namespaces_of_queues(
    helm: Helm,
    values: dict[str, Any],
    kind: str,
    watched: list[str | None],
    places: list[str],
) -> None:
    found = objects(rendered(helm, **{"delayQueues": {"enabled": True}, **values}))
    documented = objects(
        (CHECKOUT / "examples" / "delay-queues" / "rights.yaml").read_text(encoding="utf-8")
    )
    for each in (kind, f"{kind}Binding"):
        roles = of(found, each, "tidegate-delay-queues")
        assert sorted(role["metadata"].get("namespace") for role in roles) == watched
    for each in ("Role", "RoleBinding"):
        roles = of(found, each, "tidegate-forwarders")
        assert sorted(role["metadata"]["namespace"] for role in roles) == places
    assert (
        of(found, kind, "tidegate-delay-queues")[0]["rules"]
        == only(documented, "ClusterRole", name="tidegate-delay-queues")["rules"]
    )
    assert (
        of(found, "Role", "tidegate-forwarders")[0]["rules"]
        == only(documented, "Role", name="tidegate-forwarders")["rules"]
    )
    with_deployments = [
        item["metadata"]["name"]
        for item in found
        if any("deployments" in rule.get("resources", ()) for rule in item.get("rules") or ())
    ]
    assert set(with_deployments) == {"tidegate-forwarders"}


def test_forwarders_get_the_image_beside_the_operators_and_its_pull_secrets(helm: Helm) -> None:
    found = objects(
        rendered(helm, delayQueues={"enabled": True}, imagePullSecrets=[{"name": "registry"}])
    )
    arguments = only(found, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--forwarder-image=tidegate-forwarder:0.1.0" in arguments
    assert "--forwarder-pull-secret=registry" in arguments


def test_the_network_policy_of_forwarders_is_for_their_pods_and_their_metrics(helm: Helm) -> None:
    found = objects(rendered(helm, EVERYTHING))
    (policy,) = of(found, "NetworkPolicy", "tidegate-forwarders")
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= queue_labels("unpaid").items()
    assert [port["port"] for port in policy["spec"]["ingress"][0]["ports"]] == [METRICS_PORT]


def test_people_who_may_make_queues_have_a_role_of_their_own(helm: Helm) -> None:
    found = objects(rendered(helm, delayQueues={"enabled": True}))
    rules = only(found, "ClusterRole", name="tidegate-queues")["rules"]
    assert [rule["resources"] for rule in rules if "create" in rule["verbs"]] == [["delayqueues"]]
    view = only(found, "ClusterRole", name="tidegate-view")["rules"]
    assert "delayqueues" in view[0]["resources"]


@pytest.mark.parametrize(
    ("values", "kind"),
    [({}, "Role"), ({"watch": {"allNamespaces": True}}, "ClusterRole")],
    ids=["by default", "everywhere"],
)
@pytest.mark.parametrize("enabled", [True, False])
def test_the_console_reads_queues_where_they_are_served(
    helm: Helm, values: dict[str, Any], kind: str, enabled: bool
) -> None:
    found = objects(rendered(helm, delayQueues={"enabled": enabled}, **values, **CONSOLE))
    (rule, *_) = only(found, kind, name="tidegate-console")["rules"]
    assert rule["verbs"] == ["get", "list", "watch"]
    assert ("delayqueues" in rule["resources"]) == enabled
    deployment = only(found, "Deployment", name="tidegate-console")
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert ("--no-delay-queues" in arguments) == (not enabled)


# --- beside Strimzi -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "kind", "places"),
    [
        ({}, "Role", ["platform"]),
        ({"watch": {"namespaces": ["streaming", "billing"]}}, "Role", ["billing", "streaming"]),
        ({"watch": {"allNamespaces": True}}, "ClusterRole", [None]),
        ({"strimzi": {"namespaces": ["kafka"]}}, "Role", ["kafka"]),
        (
            {"watch": {"allNamespaces": True}, "strimzi": {"namespaces": ["kafka"]}},
            "Role",
            ["kafka"],
        ),
    ],
)
def test_kafka_users_may_be_listed_only_where_that_is_wanted_and_no_more(
    helm: Helm, values: dict[str, Any], kind: str, places: list[str | None]
) -> None:
    asked = {**values, "strimzi": {"enabled": True, **values.get("strimzi", {})}}
    found = objects(rendered(helm, **asked))
    for each in (kind, f"{kind}Binding"):
        roles = of(found, each, "tidegate-strimzi")
        assert sorted(role["metadata"].get("namespace") for role in roles) == places
    documented = objects(
        (CHECKOUT / "examples" / "strimzi" / "rights.yaml").read_text(encoding="utf-8")
    )
    given = of(found, kind, "tidegate-strimzi")[0]["rules"]
    assert given == only(documented, "Role", name="tidegate-strimzi")["rules"]
    assert given == [
        {"apiGroups": ["kafka.strimzi.io"], "resources": ["kafkausers"], "verbs": ["list"]}
    ]
    assert "kafkausers" not in rendered(helm, **values | {"strimzi": {"enabled": False}})
    without = asked | {"rbac": {"create": False}}
    assert "kafkausers" not in rendered(helm, **without)


# --- alerts and dashboard -------------------------------------------------------------------------
# Alerts and dashboard query metrics that the operator exports, in PromQL that Prometheus accepts.
# Alerts fire when they should.


_ROW = re.compile(r"^\| `(tidegate_\w+)` \| (\w+) \| (.*?) \|", re.MULTILINE)
_SELECTOR = re.compile(r"\b(tidegate_\w+)(?:\{([^}]*)\})?")
_ADDED_BY_PROMETHEUS = {"job", "instance", "le"}


def promtool(*arguments: str) -> str:
    program = unpacked(PROMETHEUS) / "usr" / "bin" / "promtool"
    done = subprocess.run(
        [str(program), *arguments], capture_output=True, text=True, timeout=patience(60)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def exported_labels() -> dict[str, set[str]]:
    """Every series of docs/metrics.md, with its labels. Another test compares that page with the
    program.
    """
    page = (CHECKOUT / "docs" / "metrics.md").read_text()
    found = {name: set(re.findall(r"`(\w+)`", labels)) for name, _, labels in _ROW.findall(page)}
    histograms = {
        f"{name}_bucket": found[name] for name, kind, _ in _ROW.findall(page) if kind == "histogram"
    }
    return found | histograms


def alert_queries() -> list[str]:
    rules = yaml.safe_load((CHART / "alerts" / "tidegate.yaml").read_text())
    return [rule["expr"] for group in rules["groups"] for rule in group["rules"]]


def dashboard_queries() -> list[str]:
    found = []
    for path in sorted((CHART / "dashboards").glob("*.json")):
        for _, query, _ in queries(json.loads(path.read_text())):
            for variable in ("$policy_namespace", "$policy", "$tier", "$member"):
                query = query.replace(variable, ".*")
            found.append(query.replace("$__rate_interval", "5m"))
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("query", [*alert_queries(), *dashboard_queries()])
def test_a_query_asks_for_metrics_and_labels_that_are_exported(query: str) -> None:
    exported = exported_labels()
    asked = list(_SELECTOR.finditer(query))
    for match in asked:
        assert match[1] in exported
        assert (
            set(re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", match[2] or ""))
            <= exported[match[1]] | _ADDED_BY_PROMETHEUS
        )
    grouped = {
        label.strip()
        for labels in re.findall(r"\bby \(([^)]*)\)", query)
        for label in labels.split(",")
    }
    assert grouped <= set().union(*(exported[match[1]] for match in asked)) | _ADDED_BY_PROMETHEUS


def test_prometheus_reads_every_query_of_the_dashboard(tmp_path: Path) -> None:
    rules = [
        {"record": f"query:{number}", "expr": query}
        for number, query in enumerate(dashboard_queries())
    ]
    path = tmp_path / "queries.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", str(path))


def test_alerts_fire_when_something_is_wrong_and_not_before() -> None:
    assert "SUCCESS" in promtool("test", "rules", str(HERE / "alerts.test.yaml"))


def test_every_alert_has_a_row_in_the_documentation_that_its_runbook_leads_to(helm: Helm) -> None:
    page = (CHECKOUT / "docs" / "operations.md").read_text()
    base = {"enabled": True, "runbookBase": "https://docs.example/tidegate/"}
    manifests = rendered(
        helm,
        metrics={"prometheusRule": base},
        delayQueues={"enabled": True, "image": "forwarder:1"},
    )
    spec = only(objects(manifests), "PrometheusRule")["spec"]
    rules = [rule for group in spec["groups"] for rule in group["rules"]]
    assert len(rules) == len(alert_queries())
    for rule in rules:
        address, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert address == "https://docs.example/tidegate/operations.html"
        assert f'<a id="{anchor}"></a>`{rule["alert"]}`' in page


def test_the_rules_of_a_release_are_the_alerts_with_its_own_job_and_labels(
    helm: Helm, tmp_path: Path
) -> None:
    spec = only(
        objects(
            rendered(
                helm,
                metrics={"prometheusRule": {"enabled": True, "alertLabels": {"team": "a"}}},
                delayQueues={"enabled": True, "image": "forwarder:1"},
            )
        ),
        "PrometheusRule",
    )["spec"]
    rules = [rule for group in spec["groups"] for rule in group["rules"]]
    ours = only(objects(rendered(helm, HERE / "values" / "everything.yaml")), "PrometheusRule")[
        "spec"
    ]["groups"][0]["rules"][0]
    assert [rule["expr"].strip() for rule in rules] == [query.strip() for query in alert_queries()]
    assert ours["expr"] == 'absent(up{job="tidegate-operator"} == 1)'
    assert {rule["labels"]["team"] for rule in rules} == {"a"}
    assert ours["labels"]["severity"] == "critical"
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump(spec))
    promtool("check", "rules", str(path))


def test_alerts_on_queues_come_with_queues_alone(helm: Helm) -> None:
    rules = {"prometheusRule": {"enabled": True}}
    without = only(objects(rendered(helm, metrics=rules)), "PrometheusRule")["spec"]["groups"]
    assert [group["name"] for group in without] == ["tidegate"]
    queues = {"enabled": True, "image": "forwarder:1"}
    manifests = rendered(helm, metrics=rules, delayQueues=queues)
    groups = only(objects(manifests), "PrometheusRule")["spec"]["groups"]
    assert [group["name"] for group in groups] == ["tidegate", "tidegate-delay-queues"]
    assert groups[0] == without[0]
