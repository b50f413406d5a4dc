"""The chart with everything switched on: every value is where it belongs, whatever selects, binds or
mounts finds its other end, and no object lacks a label.

Each fact is compared with the values file, so a value that a template forgets is found here.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest
import yaml

from lab.kubernetes.tools import Helm
from tests.integration.chart.rendering import CHART, HERE, objects, only, rendered
from tidegate.kube.forwarders import labels as queue_labels
from tidegate.kube.rollup_jobs import labels
from tools.dashboards import RUNBOOK

pytestmark = pytest.mark.integration

EVERYTHING = HERE / "values" / "everything.yaml"
VALUES: dict[str, Any] = yaml.safe_load(EVERYTHING.read_text())
WORKLOADS = {"operator": "tidegate", "console": "tidegate-console"}
COMMON = {
    "app.kubernetes.io/name": "gate",
    "app.kubernetes.io/instance": "tidegate",
    "app.kubernetes.io/managed-by": "Helm",
    "team": "streaming",
}


@pytest.fixture(scope="module")
def found(helm: Helm) -> list[dict[str, Any]]:
    return objects(rendered(helm, EVERYTHING))


def pod_of(found: list[dict[str, Any]], part: str) -> dict[str, Any]:
    template: dict[str, Any] = only(found, "Deployment", name=WORKLOADS[part])["spec"]["template"]
    return template


def container_of(found: list[dict[str, Any]], part: str) -> dict[str, Any]:
    (container,) = pod_of(found, part)["spec"]["containers"]
    return container  # type: ignore[no-any-return]


def test_these_objects_and_no_others_are_there(found: list[dict[str, Any]]) -> None:
    there = sorted(
        f"{item['kind']} {item['metadata'].get('namespace', '')}/{item['metadata']['name']}"
        for item in found
    )
    rights = [
        *(
            f"{place}/tidegate-rollup{end}"
            for place in VALUES["rollup"]["namespaces"]
            for end in ("", "-jobs")
        ),
        *(f"platform/tidegate{end}" for end in ("", "-leases", "-console", "-console-leases")),
        "kafka/tidegate-strimzi",
        "platform/tidegate-delay-queues",
        "billing/tidegate-forwarders",
    ]
    accounts = ["platform/tidegate", "platform/tidegate-console"]
    rollups = [f"{place}/tidegate-rollup" for place in VALUES["rollup"]["namespaces"]]
    assert there == sorted(
        [
            *(f"{kind} {name}" for kind in ("Role", "RoleBinding") for name in rights),
            *(f"ServiceAccount {name}" for name in (*accounts, *rollups)),
            *(
                f"NetworkPolicy {name}"
                for name in (*accounts, *rollups, "billing/tidegate-forwarders")
            ),
            *(f"{kind} {name}" for kind in ("Deployment", "Service") for name in accounts),
            *(
                f"ClusterRole /tidegate-{duty}"
                for duty in ("view", "owner", "contracts", "overrides", "queues")
            ),
            "ClusterRole /platform-tidegate-console-reviews",
            "ClusterRoleBinding /platform-tidegate-console-reviews",
            "ConfigMap platform/tidegate-dashboard",
            "ConfigMap /more",
            "Secret /tidegate-more",
            "Pod platform/tidegate-test",
            "PodDisruptionBudget platform/tidegate",
            "PrometheusRule platform/tidegate",
            "ServiceMonitor platform/tidegate",
        ]
    )


def test_every_object_and_every_pod_has_the_labels_of_the_release(
    found: list[dict[str, Any]],
) -> None:
    for item in found:
        assert item["metadata"]["labels"].items() >= COMMON.items(), item["metadata"]["name"]
    for part in WORKLOADS:
        own = {"app.kubernetes.io/component": part, "team": "streaming", **VALUES["podLabels"]}
        assert pod_of(found, part)["metadata"]["labels"].items() >= own.items()


def test_what_selects_pods_selects_those_of_its_own_part(found: list[dict[str, Any]]) -> None:
    pods = {name: pod_of(found, name)["metadata"]["labels"] for name in WORKLOADS}
    pods |= {"rollup": labels("orders"), "test": only(found, "Pod")["metadata"]["labels"]}
    pods["forwarder"] = queue_labels("unpaid")
    selectors = {
        f"{item['kind']} {item['metadata']['name']}": _selector(item["spec"])
        for item in found
        if item["kind"] in ("Deployment", "Service", "NetworkPolicy", "PodDisruptionBudget")
    }
    chosen = {
        name: [part for part, own in pods.items() if selector.items() <= own.items()]
        for name, selector in selectors.items()
    }
    assert chosen == {
        "Deployment tidegate": ["operator"],
        "Service tidegate": ["operator"],
        "PodDisruptionBudget tidegate": ["operator"],
        "NetworkPolicy tidegate": ["operator"],
        "Deployment tidegate-console": ["console"],
        "Service tidegate-console": ["console"],
        "NetworkPolicy tidegate-console": ["console"],
        "NetworkPolicy tidegate-rollup": ["rollup"],
        "NetworkPolicy tidegate-forwarders": ["forwarder"],
    }


def _selector(spec: dict[str, Any]) -> dict[str, str]:
    selector: dict[str, Any] = spec.get("podSelector") or spec["selector"]
    return selector.get("matchLabels", selector)


def test_every_binding_gives_a_role_that_is_there_to_an_account_that_is_there(
    found: list[dict[str, Any]],
) -> None:
    accounts = {_name(item) for item in found if item["kind"] == "ServiceAccount"}
    for item in found:
        if item["kind"].endswith("RoleBinding"):
            assert only(
                [one for one in found if _name(one)[0] == _name(item)[0]],
                item["roleRef"]["kind"],
                name=item["roleRef"]["name"],
            )
            (subject,) = item["subjects"]
            assert (subject["namespace"], subject["name"]) in accounts
            jobs_own = item["metadata"]["name"] == "tidegate-rollup"
            assert (subject["namespace"] == "platform") != jobs_own
    for part, name in WORKLOADS.items():
        pod = pod_of(found, part)["spec"]
        assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == (name, True)


def _name(item: dict[str, Any]) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


@pytest.mark.parametrize("part", WORKLOADS)
def test_every_mount_has_its_volume_and_every_probe_and_service_its_port(
    found: list[dict[str, Any]], part: str
) -> None:
    pod, container = pod_of(found, part)["spec"], container_of(found, part)
    volumes = [one["name"] for one in pod["volumes"]]
    assert sorted(volumes) == sorted(one["name"] for one in container["volumeMounts"])
    ports = {one["name"] for one in container["ports"]}
    probes = [container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")]
    assert {(one["path"], one["port"] in ports) for one in probes} == {("/healthz", True)}
    (port,) = only(found, "Service", name=WORKLOADS[part])["spec"]["ports"]
    assert port["targetPort"] in ports
    (ingress,) = only(found, "NetworkPolicy", name=WORKLOADS[part])["spec"]["ingress"]
    assert {one["port"] for one in ingress["ports"]} == {port["targetPort"]}


def test_the_pods_of_operator_and_console_are_as_the_values_ask(
    found: list[dict[str, Any]],
) -> None:
    for part, values in (("operator", VALUES), ("console", VALUES["console"])):
        pod, container = pod_of(found, part)["spec"], container_of(found, part)
        assert pod["imagePullSecrets"] == [{"name": "registry"}, {"name": "mirror"}]
        assert pod["hostAliases"] == VALUES["hostAliases"]
        assert container["imagePullPolicy"] == "Always"
        assert container["resources"] == values["resources"]
        assert values["extraVolumes"][0] in pod["volumes"]
        assert values["extraVolumeMounts"][0] in container["volumeMounts"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        extra = values["operator"] if part == "operator" else values
        assert extra["extraEnv"][0] in container["env"]
    operator, spec = pod_of(found, "operator"), only(found, "Deployment", name="tidegate")["spec"]
    fields = (
        "priorityClassName",
        "nodeSelector",
        "tolerations",
        "affinity",
        "topologySpreadConstraints",
        "terminationGracePeriodSeconds",
    )
    assert {name: operator["spec"][name] for name in fields} == {
        name: VALUES[name] for name in fields
    }
    assert operator["metadata"]["annotations"] == VALUES["podAnnotations"]
    assert spec["replicas"] == VALUES["replicaCount"]
    assert spec["strategy"] == VALUES["strategy"]
    deployment = only(found, "Deployment", name="tidegate")["metadata"]
    assert deployment["annotations"] == VALUES["deploymentAnnotations"]
    assert deployment["labels"].items() >= {**VALUES["deploymentLabels"], **COMMON}.items()
    assert "tier" not in operator["metadata"]["labels"]
    container = container_of(found, "operator")
    assert container["startupProbe"] | container["livenessProbe"] == {
        "httpGet": {"path": "/healthz", "port": "liveness"},
        "initialDelaySeconds": 5,
        "periodSeconds": 15,
        "timeoutSeconds": 10,
        "failureThreshold": 3,
    }
    assert container["startupProbe"]["failureThreshold"] == 90
    assert container["readinessProbe"].keys() == {"httpGet", "periodSeconds"}
    console = only(found, "Deployment", name="tidegate-console")["spec"]
    assert (console["replicas"], console["strategy"]) == (1, {"type": "Recreate"})
    images = [container_of(found, part)["image"] for part in WORKLOADS]
    (test,) = only(found, "Pod")["spec"]["containers"]
    assert [*images, test["image"]] == [
        "registry.example/tidegate:0.1.0-rc.1",
        VALUES["console"]["image"],
        "registry.example/tidegate:0.1.0-rc.1",
    ]


def test_the_programs_get_these_arguments(found: list[dict[str, Any]]) -> None:
    operator, console = (container_of(found, part)["args"] for part in WORKLOADS)
    hosts = [f"--allowed-host={host}" for host in VALUES["operator"]["allowedHosts"]]
    assert [one for one in operator if "security-context" not in one] == [
        "run",
        "--log-level=DEBUG",
        "--log-format=console",
        "--audit-file=/audit/audit.jsonl",
        *hosts,
        "--unlabelled-secret=*",
        f"--rollup-image={VALUES['rollup']['image']}",
        "--rollup-service-account=tidegate-rollup",
        "--rollup-pull-secret=registry",
        "--rollup-pull-secret=mirror",
        f"--forwarder-image={VALUES['delayQueues']['image']}",
        "--forwarder-pull-secret=registry",
        "--forwarder-pull-secret=mirror",
        *VALUES["operator"]["extraArgs"],
    ]
    own = [f"tidegate-console{end}" for end in ("", ".platform", ".platform.svc")]
    assert console == [
        "console",
        "--host=0.0.0.0",
        "--port=8090",
        "--login",
        *(f"--browser-host={host}" for host in (*own, *VALUES["console"]["hosts"])),
        *hosts,
        "--namespace=platform",
        "--lease-namespace=platform",
        "--audit-file=/audit/audit.jsonl",
        "--metrics-credentials-file=/login/prometheus",
    ]


def test_annotations_are_on_what_they_are_for(found: list[dict[str, Any]]) -> None:
    for kind, name, section in (
        ("ServiceAccount", "tidegate", VALUES["serviceAccount"]),
        ("ServiceAccount", "tidegate-console", VALUES["console"]["serviceAccount"]),
        ("Service", "tidegate", VALUES["metrics"]["service"]),
        ("Service", "tidegate-console", VALUES["console"]["service"]),
        ("ConfigMap", "tidegate-dashboard", VALUES["metrics"]["dashboard"]),
    ):
        assert only(found, kind, name=name)["metadata"]["annotations"] == section["annotations"]
    rollups = [one for one in found if _name(one)[1] == "tidegate-rollup"]
    account = VALUES["rollup"]["serviceAccount"]["annotations"]
    assert [
        one["metadata"]["annotations"] for one in rollups if one["kind"] == "ServiceAccount"
    ] == [account, account]


def test_network_policies_open_the_ways_that_the_values_name_and_no_others(
    found: list[dict[str, Any]],
) -> None:
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())["networkPolicy"]["egress"]
    asked = VALUES["networkPolicy"]
    ways = {whom: way | asked["egress"].get(whom, {}) for whom, way in defaults.items()}
    ways["storage"] = VALUES["rollup"]["storage"]
    opened = {whom: _way(whom, way) for whom, way in ways.items()}
    for name, whom in (
        ("tidegate", ("dns", "exporters", "kafka", "kubernetes", "prometheus", "zookeeper")),
        ("tidegate-console", ("dns", "kubernetes", "prometheus")),
        ("tidegate-rollup", ("dns", "kubernetes", "prometheus", "storage")),
        ("tidegate-forwarders", ("dns", "kafka", "zookeeper")),
    ):
        own = asked["extraEgress"]
        more = {"tidegate": own, "tidegate-console": [], "tidegate-forwarders": own}
        for item in found:
            if item["kind"] == "NetworkPolicy" and item["metadata"]["name"] == name:
                assert item["spec"]["policyTypes"] == ["Ingress", "Egress"]
                jobs = [
                    {
                        "ports": item["spec"]["ingress"][0]["ports"],
                        "to": item["spec"]["ingress"][0].get("from"),
                    }
                ]
                assert item["spec"]["egress"] == [
                    *(opened[one] for one in whom),
                    *more.get(name, jobs),
                ]
    (metrics,) = only(found, "NetworkPolicy", name="tidegate")["spec"]["ingress"]
    *others, test = metrics["from"]
    assert others == asked["metricsFrom"]
    assert (
        test["podSelector"]["matchLabels"].items()
        <= only(found, "Pod")["metadata"]["labels"].items()
    )
    (pages,) = only(found, "NetworkPolicy", name="tidegate-console")["spec"]["ingress"]
    assert pages["from"] == VALUES["console"]["from"]


def _way(whom: str, way: dict[str, Any]) -> dict[str, Any]:
    protocols = ("TCP", "UDP") if whom == "dns" else ("TCP",)
    ports = chain.from_iterable(
        ({"protocol": protocol, "port": port} for protocol in protocols) for port in way["ports"]
    )
    return {"ports": list(ports), **({"to": way["to"]} if way.get("to") else {})}


def test_prometheus_and_grafana_find_what_is_theirs(found: list[dict[str, Any]]) -> None:
    monitor, values = only(found, "ServiceMonitor"), VALUES["metrics"]["serviceMonitor"]
    assert monitor["metadata"]["labels"].items() >= values["labels"].items()
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": ["platform"]}
    (endpoint,) = monitor["spec"]["endpoints"]
    service = only(found, "Service", name="tidegate")
    assert _selector(monitor["spec"]).items() <= service["metadata"]["labels"].items()
    assert endpoint == {
        "port": service["spec"]["ports"][0]["name"],
        "interval": values["interval"],
        "scrapeTimeout": values["scrapeTimeout"],
        "relabelings": values["relabelings"],
        "metricRelabelings": values["metricRelabelings"],
    }
    rule = only(found, "PrometheusRule")["metadata"]["labels"]
    assert rule.items() >= VALUES["metrics"]["prometheusRule"]["labels"].items()
    dashboards = only(found, "ConfigMap", name="tidegate-dashboard")
    assert dashboards["data"] == {
        path.name: path.read_text().replace(
            RUNBOOK, "https://docs.example/tidegate/operations.html"
        )
        for path in (CHART / "dashboards").glob("*.json")
    }
    assert dashboards["metadata"]["labels"]["grafana_dashboard"] == "1"
    budget = only(found, "PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == VALUES["podDisruptionBudget"]["maxUnavailable"]
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
