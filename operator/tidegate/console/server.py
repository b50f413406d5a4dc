"""The console's web server: NiceGUI's pages behind a content policy, and who may see what.

NiceGUI is imported here alone, inside functions, so that no other command needs the extra. Every
answer forbids other origins. Requests are GET, but for the login form and NiceGUI's own channel;
towards Kubernetes, Prometheus and Kafka the console only reads.
"""

import asyncio
import gc
import secrets as random_names
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import structlog
from markupsafe import Markup

from tidegate.console.access import Access, Refused
from tidegate.console.history import History
from tidegate.console.markup import clock, joined, name
from tidegate.console.member_page import member_page, not_looked_at, quota_levels
from tidegate.console.now_page import logged_out, no_policy, now_page
from tidegate.console.parts import Kept, Page, Part, changes_between, page_html
from tidegate.console.snapshot import (
    Objects,
    PolicyNow,
    assumed_topology,
    declared_overrides,
    policy_keys,
    policy_now,
    quotas_in_force,
)
from tidegate.console.source import Source
from tidegate.console.what_if_page import history_page, what_if_page
from tidegate.console.whatif import (
    Edits,
    Result,
    Situation,
    edits_as_yaml,
    play_what_if,
    situation_of,
)
from tidegate.control.audit.lines import AuditLine
from tidegate.control.declared import SpecReader
from tidegate.errors import TidegateError
from tidegate.resources.rates import parse_byte_rate
from tidegate_logic.model import Contract, Direction, Level, RateForm

if TYPE_CHECKING:
    from fastapi import FastAPI, Request

log = structlog.get_logger(__name__)

COOKIE: Final = "tidegate-console"
_UPDATE_SECONDS: Final = 0.05
_AGES_SECONDS: Final = 2.0
_NOTE_SECONDS: Final = 5.0
_COLLECTOR_THRESHOLDS: Final = (50_000, 20, 20)
_SHOWN_LINES: Final = 200
_LAST_ANSWERS_SECONDS: Final = 5
_CONTENT_POLICY: Final = "; ".join(
    (
        "default-src 'self'",
        # NiceGUI's page starts with scripts of its own in it, and Vue compiles templates
        "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
_HEADERS: Final = {
    "Content-Security-Policy": _CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
_PAGES: Final = (
    ("/", "Now"),
    ("/member", "Member"),
    ("/what-if", "What if"),
    ("/history", "History"),
)
_CSS: Final = Path(__file__).with_name("console.css")
# the form, and NiceGUI's channel where a proxy has no websockets
_POSTED_PATHS: Final = ("/login", "/_nicegui_ws/")
_OPEN_PATHS: Final = ("/_nicegui", "/login", "/healthz")


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """Where it listens, and by which names browsers may call it (protects from DNS rebinding)."""

    host: str = "127.0.0.1"
    port: int = 8090
    browser_hosts: tuple[str, ...] = ()

    @property
    def hosts(self) -> list[str]:
        return ["127.0.0.1", "localhost", "[::1]", *self.browser_hosts]


@dataclass(slots=True)
class Console:
    """What all viewers share: the source, the last hours, and the rounds that note them."""

    source: Source
    access: Access | None = None
    audit_words: Callable[[AuditLine], str] = str
    settings: ConsoleSettings = field(default_factory=ConsoleSettings)
    history: History = field(default_factory=History)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _begun: set[str] = field(default_factory=set)
    _readers: dict[str, SpecReader] = field(default_factory=dict)
    _known: dict[str, PolicyNow] = field(default_factory=dict)
    _pages: list["_Page"] = field(default_factory=list)

    def policies(self, objects: Objects) -> tuple[str, ...]:
        return policy_keys(objects)

    def policy(
        self, objects: Objects, key: str, before: PolicyNow | None = None
    ) -> PolicyNow | None:
        """The policy as it is now. `before` is what this viewer saw of it last.

        Without logins all viewers see the same one.
        """
        measured = self.source.measured(key)
        is_of_all = self.access is None or before is None
        with self._lock:  # a reader has one caller at a time
            reader = self._readers.setdefault(key, SpecReader())
            known = self._known.get(key) if is_of_all else before
            now = policy_now(objects, key, measured, self.source.now_seconds(), reader, known)
            if now is not None and is_of_all:
                self._known[key] = now
        return now

    def tick(self) -> object:
        """Another value whenever a page may look different: also by its ages, now and then."""
        return self.source.changes(), int(self.source.now_seconds() / _AGES_SECONDS)

    def note(self) -> None:
        """Add this moment of every policy to the history."""
        objects = self.source.objects()
        for key in policy_keys(objects):
            now = self.policy(objects, key)
            past = self.source.past(key)
            if past is not None and key not in self._begun:
                self._begun.add(key)
                self.history.begin(key, past)
            if now is not None and now.input_of("Kubernetes").is_known(now.now_seconds):
                self.history.note(now)

    def keep_up(self) -> None:
        """Update every page that a browser has open. Pages whose browser is away wait for it."""
        for page in tuple(self._pages):
            try:
                page.keep_up()
            except Exception:  # one page's fault is not that of the others
                log.exception("a page was not updated")

    def keeps_up(self, page: "_Page") -> None:
        """Update this page, too, until its browser has been away for long."""
        self._pages.append(page)
        page.client.on_delete(lambda: self._pages.remove(page))

    def seen_by(self, token: str | None) -> Objects:
        """The objects of the namespaces that this viewer may read. Raises Refused."""
        objects = self.source.objects()
        if self.access is None:
            return objects
        viewer, access = self.access.viewer(token), self.access
        return objects.only(lambda kind, namespace: access.may_list(viewer, kind, namespace))


def make_app(console: Console) -> "FastAPI":
    """The whole application. NiceGUI keeps one for each process."""
    from fastapi import FastAPI, Form, Request
    from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse
    from nicegui import ui
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.responses import Response

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    sessions: dict[str, str] = {}

    @app.middleware("http")
    async def guard(request: Request, call_next: Callable[..., Any]) -> Response:
        path = request.url.path
        if request.method not in ("GET", "HEAD") and not path.startswith(_POSTED_PATHS):
            return PlainTextResponse("only GET", status_code=405, headers=_HEADERS)
        request.state.token = _token(request, sessions)
        if console.access is not None and not path.startswith(_OPEN_PATHS):
            try:
                await asyncio.to_thread(console.access.viewer, request.state.token)
            except Refused as refused:
                if request.state.token is not None:
                    return HTMLResponse(_login_page(str(refused)), 401, headers=_HEADERS)
                return RedirectResponse("/login", 303, headers=_HEADERS)
            except TidegateError as error:
                return HTMLResponse(_login_page(error.message), 503, headers=_HEADERS)
        response: Response = await call_next(request)
        for header, value in _HEADERS.items():
            response.headers[header] = value
        return response

    app.add_middleware(TrustedHostMiddleware, allowed_hosts=console.settings.hosts)

    @app.get("/healthz")
    def healthz() -> PlainTextResponse:
        return PlainTextResponse("ok")

    @app.get("/login")
    def login() -> HTMLResponse:
        return HTMLResponse(_login_page(""))

    @app.post("/login")
    def log_in(request: Request, token: str = Form("")) -> Response:
        if console.access is None:
            return RedirectResponse("/", 303)
        try:
            console.access.viewer(token.strip() or None)
        except Refused as refused:
            return HTMLResponse(_login_page(str(refused)), 401)
        except TidegateError as error:
            return HTMLResponse(_login_page(error.message), 503)
        session = random_names.token_urlsafe(32)
        sessions[session] = token.strip()
        while len(sessions) > 1000:
            del sessions[next(iter(sessions))]
        answer = RedirectResponse("/", 303)
        answer.set_cookie(
            COOKIE,
            session,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
            max_age=8 * 3600,
        )
        return answer

    @ui.page("/", title="Tidegate: now")
    def now(request: Request, policy: str = "") -> None:
        _Page(console, request, "/", policy).now()

    @ui.page("/member", title="Tidegate: member")
    def one_member(request: Request, policy: str = "", member: str = "") -> None:
        _Page(console, request, "/member", policy).member(member)

    @ui.page("/what-if", title="Tidegate: what if")
    def what_if(request: Request, policy: str = "") -> None:
        _Page(console, request, "/what-if", policy).what_if()

    @ui.page("/history", title="Tidegate: history")
    def history(request: Request, policy: str = "") -> None:
        _Page(console, request, "/history", policy).history()

    loops: list[asyncio.Task[None]] = []

    async def keep_up_again_and_again() -> None:
        noted: object = None
        noted_at = 0.0
        while True:
            changes, seconds = console.source.changes(), time.monotonic()
            if changes != noted or seconds - noted_at >= _NOTE_SECONDS:
                noted, noted_at = changes, seconds
                with suppress(Exception):  # shown on the page; the next round may do
                    await asyncio.to_thread(console.note)
            console.keep_up()
            await asyncio.sleep(_UPDATE_SECONDS)

    from nicegui import app as nicegui_app

    nicegui_app.on_startup(lambda: loops.append(asyncio.create_task(keep_up_again_and_again())))
    ui.run_with(
        app,
        title="Tidegate",
        dark=None,
        language="en-US",
        tailwind=False,
        show_welcome_message=False,
        binding_refresh_interval=None,
        reconnect_timeout=10.0,
        favicon="🌊",
    )
    return app


def serve(console: Console) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    import uvicorn

    app = make_app(console)
    # a reading is ten thousands of objects that die without the collector's help, and the modules
    # of a web server, which stay for ever, are many more
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTOR_THRESHOLDS)
    uvicorn.run(
        app,
        host=console.settings.host,
        port=console.settings.port,
        log_level="warning",
        access_log=False,
        server_header=False,
        # a page that is open keeps its connection, and the next process is waited for
        timeout_graceful_shutdown=_LAST_ANSWERS_SECONDS,
    )


def _token(request: "Request", sessions: dict[str, str]) -> str | None:
    """The viewer's token: what a proxy in front or a program sends, or what was typed in here."""
    header = request.headers.get("authorization", "")
    if header.lower().startswith("bearer "):
        return header[7:].strip() or None
    return sessions.get(request.cookies.get(COOKIE, ""))


def _login_page(problem: str) -> str:
    said = Markup('<p role="alert">{}</p>').format(problem) if problem else Markup("")
    return str(
        Markup(
            '<!doctype html><html lang="en"><head><title>Tidegate: log in</title><meta '
            'name="viewport" content="width=device-width"></head><body><main class="login" '
            'style="max-width:560px;margin:40px auto;font-family:sans-serif"><h1>Tidegate</h1>'
            '{}<form method="post" action="/login"><label for="token">A token of yours for this '
            "Kubernetes cluster (<code>kubectl create token ACCOUNT</code>, or that of your login)"
            '</label><br><input id="token" name="token" type="password" autocomplete="off" '
            'style="width:100%" required><p><button type="submit">Log in</button></p></form>'
            "<p>You see the policies, tiers and overrides of the namespaces in which you may read "
            "them. The token stays in this process's memory.</p></main></body></html>"
        ).format(said)
    )


@cache
def _live_element() -> Any:
    """The element that a page is kept up in; its other half is `live.js`."""
    from nicegui.element import Element

    class Live(Element, component="live.js"):
        def __init__(self, content: str) -> None:
            super().__init__()
            self._props["content"] = content
            self.classes("page").props('role="main"')

    return Live


class _Page:
    """One page of one viewer. What changed is sent when it changed, and nothing else."""

    def __init__(self, console: Console, request: "Request", path: str, policy: str) -> None:
        self._console, self._path, self._policy = console, path, policy
        self._token: str | None = request.state.token
        self._seen: PolicyNow | None = None
        self._shown: Page = ()
        self._shown_at: object = None
        self._kept = Kept()
        self._logged_out = ""
        self._named: Any = None

    # What every page has

    def _frame(self) -> None:
        from nicegui import ui

        ui.add_css(_CSS.read_text(encoding="utf-8"))
        objects = self._objects()
        keys = self._console.policies(objects)
        if self._policy not in keys and keys:
            self._policy = keys[0]
        with ui.element("header").classes("bar"):
            ui.html("<h1>Tidegate</h1>", sanitize=False)
            ui.html(self._links(), sanitize=False)
            if len(keys) > 1:
                ui.select(
                    list(keys), value=self._policy, label="Policy", on_change=self._other_policy
                ).props("dense outlined").style("min-width: 240px")
            else:  # empty until there is a policy
                self._named = ui.html(str(name(self._policy)) if keys else "", sanitize=False)
            self._moment = ui.html("", sanitize=False).classes("moment")
            dark = ui.dark_mode(None)
            ui.select(
                {"auto": "as the system", "light": "light", "dark": "dark"},
                value="auto",
                label="Colours",
                on_change=lambda event: dark.set_value(
                    {"auto": None, "light": False, "dark": True}[event.value]
                ),
            ).props("dense outlined").style("min-width: 130px")

    def _links(self) -> str:
        query = f"?policy={quote(self._policy, safe='')}" if self._policy else ""
        return str(
            Markup('<nav class="pages" aria-label="Pages">{}</nav>').format(
                joined(
                    Markup('<a href="{}"{}>{}</a>').format(
                        path + query,
                        Markup(' aria-current="page"') if path == self._path else "",
                        words,
                    )
                    for path, words in _PAGES
                )
            )
        )

    def _other_policy(self, event: Any) -> None:
        from nicegui import ui

        ui.navigate.to(f"{self._path}?policy={quote(event.value, safe='')}")

    def _objects(self) -> Objects:
        try:
            return self._console.seen_by(self._token)
        except Refused as refused:  # the token ended while the page was open
            self._logged_out = str(refused)
            return Objects()
        except TidegateError as error:
            return Objects(problem=error.message)

    def _now(self) -> tuple[Objects, PolicyNow | None]:
        objects = self._objects()
        if self._policy:
            self._seen = self._console.policy(objects, self._policy, self._seen)
        return objects, self._seen if self._policy else None

    def _kept_up(
        self, body: Callable[[PolicyNow], Page], asked: Callable[[], object] = lambda: None
    ) -> None:
        """The part of the page that is looked at many times a second; what differs is sent.

        `asked` has what the viewer chose besides.
        """
        self._body, self._asked = body, asked
        self._shown_at = self._console.tick(), asked()
        self._shown = self._page(body)
        self._live = _live_element()(page_html(self._shown))
        self._moment.set_content(self._clock())
        self._console.keeps_up(self)

    @property
    def client(self) -> Any:
        """The browser's page in NiceGUI."""
        return self._live.client

    def keep_up(self) -> None:
        """Send what differs, where anything may."""
        at = self._console.tick(), self._asked()
        if at == self._shown_at or not self.client.has_socket_connection:
            return
        self._shown_at = at
        page = self._page(self._body)
        changes = changes_between(self._shown, page)
        if changes is not None:
            self._shown = page
            self._live.run_method("change", changes)
            self._moment.set_content(self._clock())

    def _clock(self) -> str:
        return f"{clock(self._console.source.now_seconds())} UTC"

    def _page(self, body: Callable[[PolicyNow], Page]) -> Page:
        objects, now = self._now()
        if now is None and objects.policies:
            self._policy = self._console.policies(objects)[0]
            if self._named is not None:
                self._named.set_content(str(name(self._policy)))
            objects, now = self._now()
        if self._logged_out:
            return logged_out(self._logged_out)
        if now is None:
            seconds = self._console.source.now_seconds()
            return no_policy(objects.problem, objects.heard_at_seconds, seconds)
        return body(now)

    # The pages

    def now(self) -> None:
        self._frame()
        self._kept_up(lambda now: now_page(now, self._console.history, self._kept))

    def member(self, member: str) -> None:
        from nicegui import ui

        self._frame()
        _, now = self._now()
        names = sorted({one.key for one in now.members}) if now is not None else []
        if member not in names:
            member = (
                now.elsewhere[0].key if now is not None and now.elsewhere else next(iter(names), "")
            )
        chosen = member

        def go(event: Any) -> None:
            where = f"/member?policy={quote(self._policy, safe='')}&member="
            ui.navigate.to(where + quote(str(event.value), safe=""))

        if names:
            ui.select(
                names, value=chosen, label="Member (type a part of its name)", with_input=True
            ).props("outlined dense").classes("w-full").on_value_change(go)
        levels = {"markup": not_looked_at("no one has asked yet.")}

        async def look() -> None:
            levels["markup"] = await asyncio.to_thread(self._quota_levels, chosen)

        if chosen:
            ui.button("Look at Kafka's quota levels", on_click=look, color=None).props(
                "no-caps unelevated"
            ).classes("tidegate-button")

        def body(now: PolicyNow) -> Page:
            ways = [one for one in now.members if one.key == chosen]
            if not ways:
                return (Part("none", Markup("<p>This policy has no such member.</p>")),)
            return member_page(now, ways, self._console.history, levels["markup"])

        self._kept_up(body, lambda: levels["markup"])

    def _quota_levels(self, member: str) -> Markup:
        _, now = self._now()
        cluster = self._console.source.cluster
        one = next((m for m in (now.members if now else ()) if m.key == member), None)
        if one is None or now is None:
            return not_looked_at("there is no such member.")
        if cluster is None or self._console.access is not None:
            return not_looked_at(
                "this console has no access to Kafka. Run tidegate explain, or tidegate console "
                "from where that works."
            )
        user, client_id = (part if isinstance(part, str) else "" for part in one.entity)
        try:
            return quota_levels(cluster.explain(now.key, user or "ANONYMOUS", client_id))
        except TidegateError as error:
            return not_looked_at(error.message)

    def history(self) -> None:
        from nicegui import ui

        self._frame()
        with ui.element("div").classes("form"):
            text = ui.input("Filter: part of a line, such as etl or WRITE").props(
                "outlined dense clearable"
            )
        asked: dict[str, Any] = {"trail": None, "at": 0.0}

        def body(now: PolicyNow) -> Page:
            seconds = self._console.source.now_seconds()
            if asked["trail"] is None or seconds - asked["at"] >= _NOTE_SECONDS:
                asked["trail"], asked["at"] = self._console.source.trail(), seconds
            trail = asked["trail"]
            mine = [line for line in trail.lines if line.get("policy") == now.key]
            wanted = (text.value or "").casefold()
            rows = []
            for line in mine:
                words = self._console.audit_words(line)
                row = (
                    *(str(line["t"]), str(line.get("policy")), str(line.get("kind"))),
                    *(words, str(line.get("pass") or "")),
                )
                if wanted in " ".join(row).casefold():
                    rows.append(row)
                if len(rows) >= _SHOWN_LINES:
                    break
            return history_page(trail, rows, of=len(mine))

        self._kept_up(body, lambda: text.value)

    def what_if(self) -> None:
        from nicegui import ui

        self._frame()
        _, now = self._now()
        if now is None or now.declared is None or not now.declared.tiers:
            text = Markup("<p>The policy has no tiers, or cannot be read.</p>")
            self._kept_up(lambda _: (Part("none", text),))
            return
        form = _WhatIfForm(now)
        ui.html(
            "<h2>What if</h2><p>Ten minutes of the operator's own decisions on the load as it is "
            "now. Nothing is written.</p>",
            sanitize=False,
        ).classes("page")
        with ui.element("div").classes("form"):
            form.build()
        button = ui.button("Play ten minutes", color=None).props("no-caps unelevated")
        button.classes("tidegate-button")
        shown = ui.html("", sanitize=False).classes("page").props('role="main"')
        copied = ui.html("", sanitize=False).classes("page")

        async def run() -> None:
            _, current = self._now()
            try:
                edits = form.edits()
                situation = self._situation(current, with_kafka=True)
                result, before = await asyncio.to_thread(_both, situation, edits)
            except (ValueError, TidegateError) as error:
                shown.set_content(
                    str(Markup('<p role="alert" class="problems">{}</p>').format(str(error)))
                )
                return
            shown.set_content(str(what_if_page(result, before)))
            text = edits_as_yaml(current.raw_policy, current.raw_tiers, edits) if current else ""
            copied.set_content(
                str(
                    Markup(
                        "<h3>To apply it</h3>"
                        '<pre class="yaml" tabindex="0" aria-label="YAML to apply">{}</pre>'
                    ).format(text)
                )
                if text
                else ""
            )

        button.on_click(run)

    def _situation(self, now: PolicyNow | None, *, with_kafka: bool) -> Situation:
        """Raises ValueError where too little is known to play anything."""
        if now is None or now.declared is None or now.declared.tiers is None:
            raise ValueError("the policy or its tiers are not known now")
        if now.readings is None or not now.readings.nic:
            raise ValueError("no broker's load is known, so nothing can be played on it")
        remarks: tuple[str, ...] = ()
        topology = None
        cluster = self._console.source.cluster
        if with_kafka and cluster is not None:
            try:
                topology = cluster.topology(now.key)
            except TidegateError as error:
                remarks = (f"leaders are not known ({error.message})",)
        if topology is None:
            topology = assumed_topology(now, now.declared.tiers)
            remarks = (
                *remarks,
                "leaders are taken as even over the brokers that each member moves bytes on",
            )
        return situation_of(
            now.declared.policy,
            now.declared.tiers,
            topology,
            now.readings,
            overrides=declared_overrides(now),
            quotas=quotas_in_force(now),
            remarks=remarks,
        )


def _both(situation: Situation, edits: Edits) -> tuple[Result, Result | None]:
    """The play with the edits, and without them."""
    result = play_what_if(situation, edits)
    return result, None if edits.are_empty else play_what_if(situation, Edits())


class _WhatIfForm:
    """The fields of What if, and the edits that they spell."""

    def __init__(self, now: PolicyNow) -> None:
        self._now = now
        declared = now.declared
        tiers = () if declared is None else declared.tiers or ()
        self._contracts = {
            f"{tier.key}/{member.name}": (tier.key, member)
            for tier in tiers
            for member in tier.members
        }
        self._tiers = [tier.key for tier in tiers]

    def build(self) -> None:
        from nicegui import ui

        self._limits = {
            way: ui.input(f"{way.value.capitalize()} limit of every broker, such as 40M").props(
                "outlined dense"
            )
            for way in Direction
        }
        self._dead = ui.select(
            list(self._now.brokers), label="Brokers that die", multiple=True, value=[]
        ).props("outlined dense use-chips")
        self._load = ui.number("Load of everybody, in percent", value=100, min=0, max=10_000)
        self._load.props("outlined dense")
        self._member = ui.select(
            {"": "no member", **{key: key for key in sorted(self._contracts)}},
            value="",
            label="Contract of member",
            with_input=True,
        ).props("outlined dense")
        self._rates = {
            word: ui.input(f"its {word}, such as 10M").props("outlined dense")
            for word in ("fetch", "produce")
        }
        self._member_load = ui.number("its load, in percent", value=100, min=0, max=10_000)
        self._member_load.props("outlined dense")
        self._tier = ui.select(
            {"": "no tier", **{key: key for key in self._tiers}}, value="", label="Level of tier"
        ).props("outlined dense")
        self._level = ui.select([level.value for level in Level], value="L3", label="its level")
        self._level.props("outlined dense")

    def edits(self) -> Edits:
        """Raises ValueError for a rate that does not read."""
        load: dict[tuple[str, str] | None, float] = {}
        if self._load.value not in (None, 100):
            load[None] = float(self._load.value)
        contracts = {}
        if self._member.value:
            tier_key, member = self._contracts[self._member.value]
            if self._member_load.value not in (None, 100):
                load[tier_key, member.name] = float(self._member_load.value)
            given = {word: _rate(f.value, word) for word, f in self._rates.items() if f.value}
            if given:
                old = member.contract or Contract(RateForm.PER_BROKER)
                contracts[tier_key, member.name] = replace(
                    old,
                    fetch_bytes_per_second=given.get("fetch", old.fetch_bytes_per_second),
                    produce_bytes_per_second=given.get("produce", old.produce_bytes_per_second),
                )
        limits = {
            way: _rate(one.value, f"{way.value} limit")
            for way, one in self._limits.items()
            if one.value
        }
        levels = {self._tier.value: Level(self._level.value)} if self._tier.value else {}
        return Edits(limits, frozenset(self._dead.value or ()), contracts, levels, load)


def _rate(text: str, what: str) -> int:
    try:
        return parse_byte_rate(text.strip())
    except ValueError as error:
        raise ValueError(f"{what} {text!r}: {error}") from None
