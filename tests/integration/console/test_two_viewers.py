"""Two people at one console on a real API server, with rights in different namespaces: each sees what
they may, on every page and in every change, and nothing after it was taken away.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests
import socketio
from kubernetes import client as kubernetes_client
from nicegui import Client
from playwright.sync_api import Browser, Page, expect

from lab.kubernetes.api import KubeApi
from lab.process import freeze, patience, wait_until
from tests.integration.console.cluster import Live, bearer, create, names, set_status, token_of
from tests.integration.console.conftest import Shown
from tests.unit.resources.documents import policy, tier
from tidegate.commands.audit import line_words
from tidegate.console.access import Access
from tidegate.console.gate import COOKIE
from tidegate.console.history import History
from tidegate.console.viewers import Viewers
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS
from tidegate.kube.client import connect
from tidegate.view.policy import Measured
from tidegate_logic.model import ClientRate, Direction, Entity, NicSpan, Readings

pytestmark = pytest.mark.integration

MB = 1_000_000
PAGES = ("/", "/broker", "/member", "/what-if", "/history", "/policies")
NAMELESS = ("/", "/broker", "/policies")  # no member is named there while all are fine
READS_TIERS = {
    "apiGroups": ["tidegate.io"],
    "resources": ["businesstiers", "quotaoverrides"],
    "verbs": ["get", "list", "watch"],
}
READY = {
    "type": "Ready",
    "status": "True",
    "reason": "InSync",
    "message": "as it should be",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
READS_POLICIES = READS_TIERS | {"resources": ["brokerbandwidthpolicies"]}


@dataclass
class Viewer:
    """`own` and `others` are words that only this viewer's and only the other's tiers have."""

    token: str
    own: str
    others: str

    def may_read(self, text: str) -> bool:
        return self.others not in text


@dataclass
class Stage:
    """The served console, a policy that both may list, and a tier of each with one member.

    `later` is added to the clock by which rights are kept.
    """

    shown: Shown
    key: str
    first: Viewer
    second: Viewer
    later: list[float] = field(default_factory=lambda: [0.0])

    @property
    def address(self) -> str:
        return self.shown.address

    def path(self, page: str) -> str:
        return f"{self.address}{page}?policy={self.key.replace('/', '%2F')}"

    def logged_in(self, viewer: Viewer) -> requests.Session:
        person = requests.Session()
        answer = person.post(f"{self.address}/login", data={"token": viewer.token}, timeout=60)
        assert answer.status_code == 200
        return person


def _write(tier_key: str, user: str) -> dict[str, Any]:
    return {"kind": "write", "tier": tier_key, "member": user, "entity": f"user={user}"}


def _trail(folder: Path, key: str, tiers: dict[str, str]) -> Path:
    """What an operator wrote about both tiers: a line of each, one of both, one of the policy."""
    lines: list[dict[str, Any]] = [
        *(_write(tier_key, user) for tier_key, user in tiers.items()),
        {
            "kind": "round",
            "dir": "egress",
            "phase": "Throttling",
            "brokers": [],
            "actions": [{"entity": f"user={user}", "tier": "L3"} for user in tiers.values()],
        },
        {"kind": "hold", "state": "begins", "reason": "Paused", "message": "about the policy"},
    ]
    path = folder / "audit.jsonl"
    head = {"event": "Audit", "t": "2026-01-01T00:00:00Z", "policy": key}
    path.write_text("".join(json.dumps(head | line) + "\n" for line in lines))
    return path


def _measured(users: list[str]) -> Measured:
    """One broker, on which both members send more than the limit lets them."""
    now = time.time()
    spans = tuple(NicSpan(now - 15.0 * back, 15.0, 90.0 * MB) for back in (3, 2, 1, 0))
    return Measured(
        Readings(
            now,
            15.0,
            {(1, way): spans for way in Direction.COMBINED.parts},
            {
                (Entity(user), 1, Direction.EGRESS): ClientRate(now, 40.0 * MB, 0.0)
                for user in users
            },
        )
    )


@pytest.fixture
def stage(
    live: Live,
    namespace: str,
    other: str,
    crds: KubeApi,
    api_client: kubernetes_client.ApiClient,
    shown: Shown,
    tmp_path: Path,
) -> Iterator[Stage]:
    key, users = f"{namespace}/orders", {namespace: f"a-{namespace}", other: f"b-{namespace}"}
    document = policy()
    selector = {"matchLabels": {"kubernetes.io/metadata.name": other}}
    document["spec"] |= {"allowedTiers": {"namespaces": "Selector", "selector": selector}}
    create(api_client, BROKER_BANDWIDTH_POLICIES, namespace, "orders", document)
    for place, user in users.items():
        document = tier()
        document["spec"]["policyRef"] = {"name": "orders", "namespace": namespace}
        member = {"name": user, "user": user, "topics": [f"topic-{user}"]}
        contract = {"perBroker": {"fetch": "50M", "produce": "50M"}}
        document["spec"]["members"] = [member | {"contract": contract}]
        create(api_client, BUSINESS_TIERS, place, "own", document)
    brokers = {"brokers": [{"id": 1, "pressure": "Within"}]}
    set_status(api_client, BROKER_BANDWIDTH_POLICIES, namespace, "orders", brokers)
    for place in users:
        set_status(api_client, BUSINESS_TIERS, place, "own", {"conditions": [READY]})
    first = token_of(crds, "first", namespace, [READS_POLICIES, READS_TIERS], namespace)
    second = token_of(crds, "second", namespace, [READS_POLICIES], namespace)
    token_of(crds, "second", namespace, [READS_TIERS], other)
    source = live.source
    wait_until(
        lambda: (
            all("status" in names(source, place).get("own", ()) for place in users)
            and "status" in names(source, namespace).get("orders", ())
        ),
        "every object",
        timeout_seconds=50,
    )
    source._trails = (_trail(tmp_path, key, {f"{at}/own": user for at, user in users.items()}),)
    source._measured[key] = _measured(list(users.values()))
    mine, others = users.values()
    made = Stage(shown, key, Viewer(first, mine, others), Viewer(second, others, mine))

    def clock() -> float:
        return time.monotonic() + made.later[0]

    console = shown.console
    console.source, console.history = source, History()
    console.audit_words = line_words
    console.access = Access(connect(live.kubeconfig), monotonic=clock)
    console._viewers = Viewers(console.access, console._places, monotonic=clock)
    yield made
    console.access = None


@contextmanager
def opened(browser: Browser, stage: Stage, viewer: Viewer, page: str) -> Iterator[Page]:
    """A page in a browser of this viewer alone, who logs in with the form."""
    context = browser.new_context()
    context.set_default_timeout(60_000)
    made = context.new_page()
    made.goto(f"{stage.address}/login")
    made.get_by_label("Your token").fill(viewer.token)
    made.get_by_role("button", name="Log in").click()
    made.wait_for_selector(".page")
    made.goto(stage.path(page))
    made.wait_for_selector(".page")
    yield made
    context.close()


def test_each_of_two_viewers_sees_their_own_tier_on_every_page(stage: Stage) -> None:
    """In turns, so that whatever one page left behind for the next would be seen."""
    people = [(one, stage.logged_in(one)) for one in (stage.first, stage.second)]
    for _ in range(2):
        for page in PAGES:
            for viewer, person in people:
                text = person.get(stage.path(page), timeout=60).text
                assert viewer.others not in text, page
                assert viewer.own in text or page in NAMELESS, page
                asked = f"{stage.path('/member')}&member={stage.key.split('/')[0]}%2Fown%2F"
                for who in (viewer.own, viewer.others):
                    text = person.get(asked + who, timeout=60).text
                    # an address that was asked for may come back in the page, as text of it
                    assert viewer.others not in text.replace(asked + who, "")
    first, second = (person.get(stage.path("/history"), timeout=60).text for _, person in people)
    assert "about the policy" in first
    assert "about the policy" in second
    assert "2 more lines of this policy" in first
    assert "2 more lines of this policy" in second


def test_what_changes_and_what_is_played_reaches_each_with_their_own_alone(
    stage: Stage, browser: Browser, api_client: kubernetes_client.ApiClient
) -> None:
    sent: dict[str, list[str]] = {"first": [], "second": []}
    namespace = stage.key.split("/")[0]
    with (
        opened(browser, stage, stage.first, "/") as first,
        opened(browser, stage, stage.second, "/") as second,
    ):
        for page, into in ((first, sent["first"]), (second, sent["second"])):
            page.on(
                "websocket",
                lambda socket, into=into: socket.on(
                    "framereceived", lambda text: into.append(str(text))
                ),
            )
            page.reload()
            page.wait_for_selector(".page")
        for place, user in (
            (namespace, stage.first.own),
            (f"{namespace}-other", stage.second.own),
        ):
            status = {
                "name": user,
                "state": "Throttled",
                "leaders": 1,
                "quota": {"fetch": MB},
                "contractTotal": {"fetch": 50 * MB},
                "message": f"lowered-{user}",
            }
            set_status(api_client, BUSINESS_TIERS, place, "own", {"members": [status]})
        expect(first.locator(".page")).to_contain_text(stage.first.own)
        expect(second.locator(".page")).to_contain_text(stage.second.own)
        for page in (first, second):
            page.goto(stage.path("/what-if"))
            page.wait_for_selector(".page")
            page.get_by_label("Egress limit of every broker").fill("45M")
            page.get_by_role("button", name="Play ten minutes").click()
            expect(page.locator(".answer")).to_contain_text("enough")
        assert stage.first.own in first.content()
        assert stage.second.own in second.content()
        for page, viewer in ((first, stage.first), (second, stage.second)):
            assert viewer.others not in page.content()
    for heard, viewer in zip(sent.values(), (stage.first, stage.second), strict=True):
        assert viewer.own in "".join(heard)
        assert viewer.others not in "".join(heard)


@pytest.mark.parametrize("page", PAGES)
def test_rights_that_are_taken_away_close_what_was_open(
    stage: Stage, browser: Browser, crds: KubeApi, page: str
) -> None:
    """Within a minute, which tests/unit/console/test_viewers.py has by the clock."""
    namespace = stage.key.split("/")[0]
    with opened(browser, stage, stage.second, page) as shown:
        if page not in NAMELESS:
            assert stage.second.own in shown.content()
        crds.kubectl("delete", "rolebinding", f"{namespace}-second", "-n", f"{namespace}-other")
        stage.later[0] += 60.0
        shown.wait_for_function(
            "name => !document.documentElement.innerHTML.includes(name)", arg=stage.second.own
        )
        assert stage.second.own not in shown.content()
        crds.kubectl("delete", "rolebinding", f"{namespace}-second", "-n", namespace)
        stage.later[0] += 60.0
        words = "no tiers" if page == "/what-if" else "There is no BrokerBandwidthPolicy"
        expect(shown.locator(".page").first).to_contain_text(words)
        expect(shown.locator("header")).not_to_contain_text(stage.key)


@pytest.mark.parametrize("page", PAGES)
def test_a_logout_in_another_tab_closes_every_page_of_the_session(
    stage: Stage, browser: Browser, page: str
) -> None:
    with opened(browser, stage, stage.first, page) as shown:
        tab = shown.context.new_page()
        tab.goto(stage.path("/"))
        (session,) = (one for one in shown.context.cookies() if one.get("name") == COOKIE)
        tab.get_by_role("button", name="Log out").click()
        # one page may be sent there twice, and the second navigation ends the first one's wait
        expect(tab).to_have_url(f"{stage.address}/login")
        expect(shown).to_have_url(f"{stage.address}/login")
        assert stage.first.own not in shown.content()
        # the cookie, if someone kept it, is worth nothing
        answer = requests.get(
            stage.path(page),
            cookies={COOKIE: str(session.get("value"))},
            timeout=60,
            allow_redirects=False,
        )
        assert (answer.status_code, answer.headers["location"]) == (303, "/login")


def _page_id(html: str) -> str:
    found = re.search(r"""['"]client_id['"]: ?['"]([0-9a-f-]{36})""", html)
    assert found is not None
    return found[1]


class Channel:
    """A program that has a page's random id, and connects as NiceGUI's own script does."""

    def __init__(self, stage: Stage, page_id: str, headers: dict[str, str], transport: str) -> None:
        self.heard: list[str] = []
        self._socket = socketio.Client(reconnection=False)
        self._socket.on("*", self._hear)
        self.is_in = False
        query = {"client_id": page_id, "tab_id": "t", "document_id": "d", "next_message_id": "0"}
        asked = "&".join(f"{name}={value}" for name, value in query.items())
        with suppress(socketio.exceptions.ConnectionError, socketio.exceptions.TimeoutError):
            self._socket.connect(
                f"{stage.address}?{asked}",
                headers=headers,
                transports=[transport],
                socketio_path="/_nicegui_ws/socket.io",
            )
            self.is_in = bool(self._socket.call("handshake", query, timeout=30))

    def _hear(self, *said: object) -> None:
        self.heard.append(repr(said))

    @property
    def is_connected(self) -> bool:
        """Whether it could send clicks, also without having heard anything."""
        return bool(self._socket.connected)

    def close(self) -> None:
        self._socket.disconnect()


@pytest.mark.parametrize("transport", ["websocket", "polling"])
def test_a_pages_id_is_of_no_use_to_others(
    stage: Stage, live: Live, api_client: kubernetes_client.ApiClient, transport: str
) -> None:
    owner, foreign = stage.logged_in(stage.first), stage.logged_in(stage.second)
    html = owner.get(stage.path("/member"), timeout=60).text
    page_id = _page_id(html)
    cookie = {"Cookie": f"{COOKIE}={owner.cookies[COOKIE]}"}
    others = [
        {},
        {"Cookie": f"{COOKIE}={foreign.cookies[COOKIE]}"},
        {"Cookie": f"{COOKIE}=invented"},
        bearer(stage.second.token),
        cookie | bearer(stage.second.token),  # one's cookie with another's token
        cookie | {"Origin": "https://evil.example"},
        cookie | {"Sec-Fetch-Site": "cross-site"},
    ]
    channels = [Channel(stage, page_id, headers, transport) for headers in others]
    assert not any(one.is_in or one.is_connected for one in channels)
    own = Channel(stage, page_id, cookie, transport)
    assert own.is_in
    namespace = stage.key.split("/")[0]
    news = {"name": stage.first.own, "message": "news", "state": "Held"}
    set_status(api_client, BUSINESS_TIERS, namespace, "own", {"members": [news]})
    wait_until(lambda: stage.first.own in "".join(own.heard), "the change", timeout_seconds=60)
    assert not any(one.heard for one in channels)
    for one in (*channels, own):
        one.close()


def test_a_token_in_the_header_is_who_looks_whatever_the_cookie_says(stage: Stage) -> None:
    first, second = stage.logged_in(stage.first), stage.logged_in(stage.second)
    for person, viewer in ((first, stage.second), (second, stage.first)):
        text = person.get(stage.path("/member"), headers=bearer(viewer.token), timeout=60).text
        assert viewer.own in text
        assert viewer.others not in text
        assert "Log out" not in text  # there is no session of this page to end
    wrong = first.get(stage.path("/"), headers=bearer("nonsense"), timeout=60)
    assert wrong.status_code == 401
    none = first.get(stage.path("/"), headers={"Authorization": "Bearer "}, timeout=60)
    assert none.url.endswith("/login")


def test_headers_and_addresses_of_any_length_open_nothing(stage: Stage) -> None:
    before = len(Client.instances)
    for size in (1 << 10, 1 << 14, 1 << 15, 1 << 17, 1 << 20):
        for headers in (
            bearer("x" * size),
            {"Cookie": f"{COOKIE}={'x' * size}"},
            {"Cookie": "; ".join(f"a{n}=b" for n in range(size // 8))},
            {"X-Forwarded-For": "1" * size},
        ):
            with suppress(requests.ConnectionError):  # closed before all of it was sent
                answer = requests.get(
                    stage.path("/"), headers=headers, timeout=60, allow_redirects=False
                )
                assert answer.status_code in (303, 400, 401, 431), (size, *headers)
        with suppress(requests.ConnectionError):
            path = f"{stage.path('/')}&member={'x' * size}"
            answer = requests.get(path, timeout=60, allow_redirects=False)
            assert answer.status_code in (303, 400, 414, 431)
    assert len(Client.instances) <= before
    assert requests.get(f"{stage.address}/healthz", timeout=10).ok


def test_while_the_api_server_stands_still_pages_go_on_by_what_was_known_and_come_back_alone(
    stage: Stage, browser: Browser, crds: KubeApi
) -> None:
    """Rights are too old at once, so each page has them asked for, and nobody waits for it."""
    process = crds._processes["kube-apiserver"]
    ended, slowest = threading.Event(), [0.0]

    def probe() -> None:
        while not ended.wait(0.1):
            begin = time.monotonic()
            assert requests.get(f"{stage.address}/healthz", timeout=60).ok
            slowest[0] = max(slowest[0], time.monotonic() - begin)

    with (
        opened(browser, stage, stage.first, "/member") as shown,
        opened(browser, stage, stage.first, "/what-if") as form,
    ):
        person = stage.logged_in(stage.first)
        probing = threading.Thread(target=probe, daemon=True)
        probing.start()
        freeze(process.pid)
        try:
            stage.later[0] += 60.0
            # a page that tries, and has known nothing else for minutes
            for page in (shown, form):
                expect(
                    page.locator(".page").filter(has_text="could not be checked")
                ).to_be_visible()
            again = person.get(stage.path("/member"), timeout=60)
            assert again.status_code == 200
            for text in (again.text, shown.content(), form.content()):
                assert stage.first.own in text
                assert stage.first.others not in text
            login = requests.post(
                f"{stage.address}/login", data={"token": stage.second.token}, timeout=60
            )
            assert login.status_code == 503
            assert "tidegate-console" not in login.cookies
            nobody = requests.get(stage.path("/"), timeout=60, allow_redirects=False)
            assert nobody.status_code == 303
            stage.later[0] += 600.0  # by then nothing is shown that was not checked
            expect(shown.locator(".page")).to_contain_text("what you may see is not known")
            assert stage.first.own not in shown.locator(".page").inner_text()
        finally:
            os.kill(process.pid, signal.SIGCONT)
        expect(shown.locator(".page")).to_contain_text(stage.first.own)
        expect(form.locator(".page").filter(has_text="could not be checked")).to_have_count(0)
        stage.logged_in(stage.second)
        ended.set()
        probing.join(60)
    assert slowest[0] < patience(1.0), slowest
