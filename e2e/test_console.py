"""The console in a Pod, as the chart makes it beside an operator that is there already: who logs in
sees what their own rights let them list, while it happens. Its account changes nothing, and an
uninstall leaves nothing of it.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import requests
from playwright.sync_api import expect, sync_playwright

from e2e.cluster import Cluster
from e2e.declared import MB, policy, tier, watching
from e2e.release import CHART, Release
from e2e.release import NAMESPACE as OPERATORS_NAMESPACE
from e2e.scene import Scenario
from image import CONSOLE, build
from lab import process
from lab.browser import chromium
from lab.kafka import KafkaLab
from lab.kubernetes.kind import KindLab
from lab.kubernetes.tools import KUBE_NODE, Helm
from lab.network import free_port
from lab.process import wait_until
from lab.prometheus import PrometheusLab

_NAME = "tidegate-pages"  # of the release and of its namespace
_PASSWORD = "only-the-console-has-this"
_ACCOUNT = f"system:serviceaccount:{_NAME}:{_NAME}-console"
_READING = {"get", "list", "watch"}
_REVIEWS = {"tokenreviews.authentication.k8s.io", "subjectaccessreviews.authorization.k8s.io"}
# every account of a cluster may ask this about itself
_OF_EVERYBODY = {
    "selfsubjectreviews.authentication.k8s.io",
    "selfsubjectaccessreviews.authorization.k8s.io",
    "selfsubjectrulesreviews.authorization.k8s.io",
}
_KINDS = (
    "serviceaccounts,services,deployments,pods,networkpolicies,roles,rolebindings,"
    "clusterroles,clusterrolebindings"
)


@dataclass(frozen=True)
class DeployedConsole:
    """At `address` by kubectl port-forward; ready this long after `helm install` began."""

    cluster: Cluster
    address: str
    ready_seconds: float

    def get(self, token: str, path: str = "/") -> requests.Response:
        bearer = {"Authorization": f"Bearer {token}"}
        return requests.get(self.address + path, headers=bearer, timeout=20)

    def log(self) -> str:
        return self.cluster.kubectl("logs", f"deployment/{_NAME}-console", "-n", _NAME)


@pytest.fixture(scope="module")
def console(
    kubernetes: Cluster,
    release: Release,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[DeployedConsole]:
    """A release without replicas, beside the one with operator and kinds; its console logs in to
    Prometheus from a file.
    """
    assert release.pods()
    built = build(edition=CONSOLE)
    kubernetes.load_image(built.archive)
    place = tmp_path_factory.mktemp("console")
    helm = Helm(place, kubernetes.kubeconfig)
    kubernetes.kubectl("create", "namespace", _NAME)
    key = f"--from-literal=login.yaml=password: {_PASSWORD}"
    kubernetes.kubectl("create", "secret", "generic", "login", key, "-n", _NAME)
    values = {
        "replicaCount": 0,
        "crds.enabled": "false",
        "rbac.roles": "false",
        "watch.allNamespaces": "true",
        "networkPolicy.enabled": "true",
        "operator.leaseNamespace": OPERATORS_NAMESPACE,
        "console.enabled": "true",
        "console.image": built.name,
        "console.metricsCredentialsFile": "/login/login.yaml",
        "console.extraVolumes[0].name": "login",
        "console.extraVolumes[0].secret.secretName": "login",
        "console.extraVolumeMounts[0].name": "login",
        "console.extraVolumeMounts[0].mountPath": "/login",
    }
    sets = [f"--set={name}={value}" for name, value in values.items()]
    began = time.monotonic()
    helm.run(
        *("install", _NAME, str(CHART), f"--namespace={_NAME}", *sets, "--wait"),
        timeout_seconds=120.0,
    )
    ready_seconds = time.monotonic() - began
    print(f"the console was ready {ready_seconds:.1f} s after helm install")
    port = free_port()
    forward = [
        *(str(KUBE_NODE.binary()), "kubectl", f"--kubeconfig={kubernetes.kubeconfig}"),
        *("port-forward", f"service/{_NAME}-console", f"{port}:8090", f"--namespace={_NAME}"),
    ]
    with process.start("port-forward", forward, log_path=place / "port-forward.log"):
        address = f"http://127.0.0.1:{port}"
        wait_until(lambda: _answers(address), "the forwarded port", timeout_seconds=30)
        yield DeployedConsole(kubernetes, address, ready_seconds)
    helm.run("uninstall", _NAME, f"--namespace={_NAME}", "--wait", timeout_seconds=120.0)
    began = time.monotonic()
    wait_until(  # helm does not wait for Pods
        lambda: not _objects_of(kubernetes), "all of it to be gone", timeout_seconds=30
    )
    print(f"nothing was left {time.monotonic() - began:.1f} s after helm uninstall")
    kubernetes.kubectl("delete", "namespace", _NAME, "--timeout=90s", timeout_seconds=100.0)


def _objects_of(cluster: Cluster) -> list[str]:
    """What is there of the release, in any namespace."""
    chosen = f"--selector=app.kubernetes.io/instance={_NAME}"
    return cluster.kubectl("get", _KINDS, "--all-namespaces", "-o", "name", chosen).split()


def _answers(address: str) -> bool:
    try:
        return requests.get(f"{address}/healthz", timeout=5).text == "ok"
    except requests.ConnectionError:
        return False


def viewer(scene: Scenario, name: str, *, role: str | None) -> str:
    """A token of a ServiceAccount that may do in the namespace what the ClusterRole has."""
    scene.kubectl("create", "serviceaccount", name)
    if role is not None:
        whom = f"--serviceaccount={scene.namespace}:{name}"
        scene.kubectl("create", "rolebinding", name, f"--clusterrole={role}", whom)
    return scene.kubectl("create", "token", name).strip()


def test_a_viewer_sees_their_namespace_while_it_happens_and_nobody_else_does(
    scene: Scenario,
    topic: str,
    kafka: KafkaLab,
    prometheus: PrometheusLab,
    console: DeployedConsole,
) -> None:
    tenant = viewer(scene, "tenant", role="tidegate-view")  # the chart's own role for people
    stranger = viewer(scene, "stranger", role=None)
    scene.declare(
        policy(kafka, **watching(prometheus, egress_limit=1000 * MB)),
        tier("gold", "L0", {"checkout": 10 * MB}, topic=topic),
    )
    scene.waits_for("bbp/orders", "Ready")
    scene.waits_for("bt/gold", "Ready")

    bare = requests.get(console.address, timeout=20, allow_redirects=False)
    assert (bare.status_code, bare.headers["location"]) == (303, "/login")
    assert console.get(f"{tenant}x").status_code == 401
    named = f"policy={scene.namespace}/orders"
    for path in ("/", f"/?{named}", f"/member?{named}&member={scene.namespace}/gold/checkout"):
        nothing = console.get(stranger, path)
        assert nothing.status_code == 200
        for secret in ("gold", "checkout", kafka.bootstrap_servers):
            assert secret not in nothing.text, path
    assert "There is no BrokerBandwidthPolicy here" in console.get(stranger).text

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        page = browser.new_page()
        page.set_default_timeout(30_000)
        foreign: list[str] = []
        here = (console.address, console.address.replace("http:", "ws:"), "data:")
        page.on(
            "request", lambda one: None if one.url.startswith(here) else foreign.append(one.url)
        )
        page.goto(console.address)
        page.get_by_label("Your token").fill(tenant)
        page.get_by_role("button", name="Log in").click()
        strip = page.get_by_role("group", name="State")
        expect(strip).to_contain_text("mode Enforce")
        expect(strip.locator('[data-input="Prometheus"]')).to_contain_text("old")
        expect(strip.locator("[data-holder]")).to_contain_text("written by tidegate-")
        expect(page.locator('.tile .nic[data-state="Within"]')).to_have_count(3)
        expect(page.get_by_role("list", name="In short")).to_contain_text(
            "All members are at their contracted rates"
        )
        began = time.monotonic()
        scene.edit("bbp/orders", {"suspend": True})
        expect(strip).to_contain_text("paused by")
        print(f"on the page {time.monotonic() - began:.1f} s after kubectl began")
        scene.edit("bbp/orders", {"suspend": False})
        expect(strip).not_to_contain_text("paused by")

        page.goto(f"{console.address}/member?{named}&member={scene.namespace}/gold/checkout")
        body = page.locator(".page")
        expect(body).to_contain_text("10 MB/s")
        scene.declare(tier("gold", "L0", {"checkout": 25 * MB}, topic=topic))
        expect(body).to_contain_text("25 MB/s")
        expect(body).not_to_contain_text("10 MB/s")
        browser.close()
    assert foreign == []

    written = console.log()
    assert not [one for one in (tenant, stranger, _PASSWORD) if one in written]
    scene.delete("bt/gold", "bbp/orders")


def test_its_account_may_change_nothing_and_made_no_other_call(
    scene: Scenario, kubernetes: Cluster, console: DeployedConsole
) -> None:
    for namespace in (scene.namespace, _NAME, OPERATORS_NAMESPACE):
        listed = kubernetes.kubectl(
            "auth", "can-i", "--list", f"--as={_ACCOUNT}", f"--namespace={namespace}"
        )
        granted = list(_granted(listed))
        assert ("brokerbandwidthpolicies.tidegate.io", _READING) in granted
        for resource, verbs in granted:
            reviews = resource in _REVIEWS | _OF_EVERYBODY
            assert verbs <= ({"create"} if reviews else _READING), (namespace, resource)
            assert resource not in ("secrets", "*"), namespace

    found = kubernetes.kubectl("get", _KINDS, "-n", _NAME, "-o", "name").split()
    assert f"networkpolicy.networking.k8s.io/{_NAME}-console" in found
    assert f"service/{_NAME}-console" in found
    pods = json.loads(kubernetes.kubectl("get", "pods", "-n", _NAME, "-o", "json"))["items"]
    (pod,) = pods
    (container,) = pod["status"]["containerStatuses"]
    assert (container["ready"], container["restartCount"]) == (True, 0)
    assert console.ready_seconds < 60

    if not isinstance(kubernetes, KindLab):
        return  # only the API servers of the lab write down who asked for what
    calls = [json.loads(line) for line in kubernetes.calls_path.read_text().splitlines()]
    mine = [call for call in calls if call["user"]["username"] == _ACCOUNT]
    # a watch is written down when it ends, and these go on
    assert {call["verb"] for call in mine} >= {"get", "list", "create"}
    for call in mine:
        on = call["objectRef"]
        resource = f"{on['resource']}.{on.get('apiGroup', '')}".removesuffix(".")
        assert call["verb"] in ({"create"} if resource in _REVIEWS else _READING), call
        assert call["responseStatus"].get("code") != 403, call


def _granted(listed: str) -> Iterator[tuple[str, set[str]]]:
    """Resource -> verbs, out of what `kubectl auth can-i --list` prints."""
    for line in listed.splitlines()[1:]:
        resource, verbs = line.split(maxsplit=1)[0], re.findall(r"\[([^]]*)\]", line)[-1]
        if not line.startswith(" "):  # paths that are no resources begin so
            yield resource, set(verbs.split())
