"""One console and one browser for all tests of its pages; each test shows a source of its own."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import uvicorn
from kubernetes import client as kubernetes_client
from playwright.sync_api import Browser, Page, expect, sync_playwright

from lab.browser import chromium
from lab.kubernetes.api import KubeApi, service_account_kubeconfig
from lab.kubernetes.tools import Helm
from lab.process import patience, wait_until
from tests.doubles.simulated_console import SimulatedSource, stopped_at
from tests.integration.chart.rendering import objects, only, rendered
from tests.integration.console.cluster import Live
from tidegate.console.access import Access, Refused, Viewer
from tidegate.console.server import Console, ConsoleSettings, make_app
from tidegate.console.source import LiveSource
from tidegate.kube.api import ResourceKind
from tidegate.kube.client import KubernetesClient, connect
from tidegate.kube.lease import LeaseAddress


@dataclass
class Shown:
    """The console that is served: a test puts what it wants to see into it."""

    console: Console
    address: str

    def show(self, console: Console, source: SimulatedSource) -> SimulatedSource:
        self.console.source = source
        self.console.history = console.history
        self.console.access = None
        return source


@pytest.fixture(scope="session")
def shown() -> Iterator[Shown]:
    console, _ = stopped_at(10)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    console.settings = ConsoleSettings(port=port)
    server = uvicorn.Server(
        uvicorn.Config(make_app(console), port=port, log_level="error", ws="websockets-sansio")
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started, "the console's server", timeout_seconds=30)
    yield Shown(console, f"http://127.0.0.1:{port}")
    server.should_exit = True
    thread.join(timeout=patience(10))


class Reviews:
    """Knows the token `good`; while `goes_on` is not set no answer comes."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.goes_on.set()

    def viewer(self, token: str | None) -> Viewer:
        assert self.goes_on.wait(patience(60))
        if token != "good":
            raise Refused("no")
        return Viewer("ann")

    def may_list(self, viewer: Viewer, kind: ResourceKind, namespace: str) -> bool:
        return True


@pytest.fixture
def reviews(shown: Shown) -> Iterator[Reviews]:
    console, source = stopped_at(10)
    shown.show(console, source)
    made = Reviews()
    shown.console.access = made
    yield made
    made.goes_on.set()
    shown.console.access = None


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    # what should come is waited for: how long that takes is the machine's affair, not the page's
    expect.set_options(timeout=1000 * patience(60))
    with sync_playwright() as started:
        opened = started.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield opened
        opened.close()


@dataclass
class Watched:
    """A page, with whatever it asked of others and whatever went wrong in it."""

    page: Page
    foreign: list[str]
    errors: list[str]


@pytest.fixture
def watched(browser: Browser, shown: Shown) -> Iterator[Watched]:
    context = browser.new_context(viewport={"width": 1300, "height": 900})
    page = context.new_page()
    page.set_default_timeout(1000 * patience(60))
    foreign: list[str] = []
    errors: list[str] = []
    here = (shown.address, shown.address.replace("http:", "ws:"), "data:")
    page.on(
        "request", lambda one: foreign.append(one.url) if not one.url.startswith(here) else None
    )
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("dialog", lambda dialog: errors.append(dialog.message))
    yield Watched(page, foreign, errors)
    context.close()
    assert foreign == []
    assert errors == []


# On a real API server

_CONSOLE = {"enabled": True, "image": "tidegate-console:test"}


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Everything that the chart grants to the console."""
    helm = Helm(tmp_path_factory.mktemp("helm"))
    found = objects(rendered(helm, console=_CONSOLE, watch={"allNamespaces": True}))
    reading = only(found, "ClusterRole", name="tidegate-console")["rules"]
    reviews = only(found, "ClusterRole", name="platform-tidegate-console-reviews")["rules"]
    leases = only(found, "Role", name="tidegate-console-leases")["rules"]
    return [*reading, *reviews, *leases]


@pytest.fixture
def live(crds: KubeApi, namespace: str, rules: list[dict[str, Any]]) -> Iterator[Live]:
    """A live source and reviews, as the chart's ServiceAccount."""
    kubeconfig = service_account_kubeconfig(crds, "console", namespace=namespace, rules=rules)
    api_client = connect(kubeconfig)
    kubernetes = KubernetesClient(api_client, "console")
    source = LiveSource(
        kubernetes,
        api_client,
        (),
        lambda _: None,
        read_lease=lambda key: kubernetes.read_lease(
            namespace, LeaseAddress.of_policy(key, operator_namespace=namespace).name
        ),
    )
    source.start()
    yield Live(source, Access(connect(kubeconfig)), kubeconfig)
    source.close()


@pytest.fixture
def other(api_client: kubernetes_client.ApiClient, namespace: str) -> Iterator[str]:
    """A second namespace."""
    name = f"{namespace}-other"
    namespaces = kubernetes_client.CoreV1Api(api_client)
    namespaces.create_namespace({"metadata": {"name": name}}, _request_timeout=30)
    yield name
    with contextlib.suppress(kubernetes_client.ApiException):
        namespaces.delete_namespace(name, _request_timeout=30)
