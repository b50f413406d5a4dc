"""The console's web server: NiceGUI's pages behind a content policy, and who may see what.

NiceGUI is imported here alone, inside functions, so that no other command needs the extra. Every
answer forbids other origins. Requests are GET, but for the login form and NiceGUI's own channel;
towards Kubernetes, Prometheus and Kafka the console only reads.
"""

import asyncio
import gc
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote

import structlog
from markupsafe import Markup

from tidegate.console.access import Refused
from tidegate.console.banner import banner
from tidegate.console.broker_page import broker_page
from tidegate.console.choices import Choices
from tidegate.console.gate import COOKIE, Gate, Sessions, login_page, status_of
from tidegate.console.history import History
from tidegate.console.markup import joined, name
from tidegate.console.member_page import member_page, not_looked_at, quota_levels
from tidegate.console.now_page import logged_out, no_policy, now_page
from tidegate.console.parts import Kept, Page, Part, Same, changes_between, page_html
from tidegate.console.policies_page import policies_page
from tidegate.console.source import Player, Source, Trail
from tidegate.console.trail_view import Sight, readable
from tidegate.console.viewers import LONGEST_MINUTES, Place, Reviews, Rights, Viewers
from tidegate.console.what_if_form import WhatIfForm
from tidegate.console.what_if_page import AuditRow, history_page, what_if_page
from tidegate.console.whatif import (
    Edits,
    Result,
    Situation,
    edits_as_yaml,
    play_what_if,
    situation_of,
)
from tidegate.control.audit.lines import AuditLine
from tidegate.errors import TidegateError
from tidegate.kube.api import (
    BROKER_BANDWIDTH_POLICIES,
    BUSINESS_TIERS,
    DELAY_QUEUES,
    EVENTS,
    QUOTA_OVERRIDES,
)
from tidegate.observe.declared import SpecReader
from tidegate.view.policy import (
    Objects,
    PolicyNow,
    assumed_topology,
    policy_keys,
    policy_now,
    quotas_in_force,
)
from tidegate_logic.contracts.desired import MemberState
from tidegate_logic.words import clock_words

if TYPE_CHECKING:
    from fastapi import FastAPI, Request

log = structlog.get_logger(__name__)

_UPDATE_SECONDS: Final = 0.05
_AGES_SECONDS: Final = 2.0
_NOTE_SECONDS: Final = 5.0
_COLLECTOR_THRESHOLDS: Final = (50_000, 20, 20)
_SHOWN_LINES: Final = 200
_LAST_ANSWERS_SECONDS: Final = 5
_PAGES: Final = (
    ("/", "Now"),
    ("/broker", "Broker"),
    ("/member", "Member"),
    ("/what-if", "What if"),
    ("/history", "History"),
    ("/policies", "Policies"),
)
_CSS: Final = Path(__file__).with_name("console.css")
_REVIEWS_AT_ONCE: Final = 16  # twice as many as strangers may have
_LONGEST_MESSAGE_BYTES: Final = 64 * 1024  # from a browser: clicks and what is typed
_NOT_REPORTED: Final = frozenset({MemberState.OVERLAPPING, MemberState.NOT_ALLOWED})


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """Where it listens, and by which names browsers may call it (protects from DNS rebinding).

    `proxies` are addresses and networks of proxies that end TLS: what they say of a request's
    scheme and origin is believed.
    """

    host: str = "127.0.0.1"
    port: int = 8090
    browser_hosts: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ("127.0.0.1",)

    @property
    def hosts(self) -> list[str]:
        return ["127.0.0.1", "localhost", "[::1]", *self.browser_hosts]


@dataclass(slots=True)
class Console:
    """What all viewers share: the source, the last hours, and the rounds that note them."""

    source: Source
    access: Reviews | None = None
    audit_words: Callable[[AuditLine], str] = str
    settings: ConsoleSettings = field(default_factory=ConsoleSettings)
    player: Player | None = None  # of a load that is played
    history: History = field(default_factory=History)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _begun: set[str] = field(default_factory=set)
    _readers: dict[str, SpecReader] = field(default_factory=dict)
    _known: dict[str, PolicyNow] = field(default_factory=dict)
    _pages: list["_Page"] = field(default_factory=list)
    sessions: Sessions = field(default_factory=Sessions)
    reviewing: Executor = field(
        default_factory=lambda: ThreadPoolExecutor(_REVIEWS_AT_ONCE, "reviews")
    )
    # of their own, so that neither waits for reviews or for looks at Kafka
    noting: Executor = field(default_factory=lambda: ThreadPoolExecutor(1, "history"))
    reading: Executor = field(default_factory=lambda: ThreadPoolExecutor(1, "trails"))
    _viewers: Viewers | None = None
    _trail: tuple[Source, float, Trail] | None = None
    _reads_trail: bool = False
    _rows: dict[int, tuple[AuditLine, AuditRow]] = field(default_factory=dict)

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

    def forget(self) -> None:
        """Forget the last hours: the clock is set back."""
        self.history = History()
        self._known.clear()
        self._begun.clear()

    def keep_up(self) -> None:
        """Update every page that a browser has open. A page without its browser waits for it."""
        for page in tuple(self._pages):
            try:
                page.keep_up()
            except Exception:  # one page's fault is not that of the others
                log.exception("a page was not updated")

    def keeps_up(self, page: "_Page") -> None:
        """Update this page, too, until its browser has been away for long."""
        self._pages.append(page)
        page.client.on_delete(lambda: self._pages.remove(page))

    def is_page_of(self, client_id: str, token: str | None) -> bool:
        """Whether there is such a page, and it was opened with this token."""
        asked = client_id, token
        return any((page.client.id, page.token) == asked for page in tuple(self._pages))

    def viewers(self) -> Viewers | None:
        """What is known of those who look; None without logins."""
        if self.access is None:
            return None
        if self._viewers is None or self._viewers.reviews is not self.access:
            self._viewers = Viewers(self.access, self._places)
        return self._viewers

    def _places(self) -> frozenset[Place]:
        """Every kind in every namespace that has an object of it, and tiers wherever they are."""
        objects = self.source.objects()
        of_kind = {
            BROKER_BANDWIDTH_POLICIES: objects.policies,
            BUSINESS_TIERS: objects.tiers,
            QUOTA_OVERRIDES: objects.overrides,
            DELAY_QUEUES: objects.queues,
            EVENTS: objects.events,
        }
        return frozenset(
            (kind, str(one["metadata"]["namespace"]))
            for kind, found in of_kind.items()
            for one in found
        ) | {(BUSINESS_TIERS, "")}

    def let_in(self) -> Callable[[str | None], Awaitable[object]] | None:
        """Asks for a viewer's rights in a thread; None without logins."""
        viewers = self.viewers()
        if viewers is None:
            return None

        async def ask(token: str | None) -> object:
            settled = viewers.settled(token)  # no stranger's review is in front of it
            if settled is not None:
                return settled
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self.reviewing, viewers.rights, token)

        return ask

    # The trail, which is read once for all pages

    def read_trail(self) -> Trail:
        """The newest lines as they are now."""
        source = self.source
        trail = source.trail()
        if self._trail is None or self._trail[2] is not trail:
            self._rows = {}
        self._trail = source, source.now_seconds(), trail
        return trail

    def trail(self) -> Trail:
        """The newest lines as they were read last; they are read again in a thread."""
        known = self._trail
        is_old = known is None or abs(self.source.now_seconds() - known[1]) >= _NOTE_SECONDS
        if is_old and not self._reads_trail:
            self._reads_trail = True
            self.reading.submit(self._read_trail)
        if known is None or known[0] is not self.source:
            return Trail(problem="not read yet")
        return known[2]

    def _read_trail(self) -> None:
        try:
            self.read_trail()
        finally:
            self._reads_trail = False

    def row_of(self, line: AuditLine) -> AuditRow:
        """The line as History shows it; made once for all pages where the line is the trail's."""
        known = self._rows.get(id(line))
        if known is not None and known[0] is line:
            return known[1]
        row = (
            *(str(line["t"]), str(line.get("policy", "every policy")), str(line.get("kind"))),
            *(self.audit_words(line), str(line.get("pass") or "")),
        )
        self._rows[id(line)] = line, row
        return row


def make_app(console: Console) -> "FastAPI":
    """The whole application. NiceGUI keeps one for each process."""
    from fastapi import FastAPI, Query, Request
    from nicegui import app as nicegui_app
    from nicegui import ui
    from starlette.exceptions import HTTPException
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.responses import PlainTextResponse

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(
        Gate,
        pages=[path for path, _ in _PAGES],
        hosts=console.settings.hosts,
        sessions=console.sessions,
        let_in=console.let_in,
        is_page=console.is_page_of,
    )
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=console.settings.hosts)
    _add_logins(app, console)

    async def no_such_page(_: Request, error: Exception) -> PlainTextResponse:
        status = error.status_code if isinstance(error, HTTPException) else 404
        return PlainTextResponse("there is no such page", status_code=status)

    # NiceGUI's own makes a page in memory for whatever is not there
    nicegui_app.add_exception_handler(404, no_such_page)

    # titles are those before the verdict is known, which comes with the page's content
    @ui.page("/", title="Tidegate")
    def now(request: Request, policy: str = "") -> None:
        _Page(console, request, "/", policy).now()

    @ui.page("/broker", title="Tidegate: broker")
    def broker(request: Request, policy: str = "", broker: str = "") -> None:
        _Page(console, request, "/broker", policy).broker(broker)

    @ui.page("/policies", title="Tidegate: policies")
    def policies(request: Request, policy: str = "") -> None:
        _Page(console, request, "/policies", policy).policies()

    @ui.page("/member", title="Tidegate: member")
    def one_member(request: Request, policy: str = "", member: str = "") -> None:
        _Page(console, request, "/member", policy).member(member)

    @ui.page("/what-if", title="Tidegate: what if")
    def what_if(request: Request, policy: str = "") -> None:
        _Page(console, request, "/what-if", policy).what_if()

    @ui.page("/history", title="Tidegate: history")
    async def history(
        request: Request,
        policy: str = "",
        text: Annotated[str, Query(alias="filter", max_length=200)] = "",
    ) -> None:
        await asyncio.get_running_loop().run_in_executor(console.reading, console.read_trail)
        _Page(console, request, "/history", policy).history(text)

    loops: list[asyncio.Task[None]] = []

    async def keep_up_again_and_again() -> None:
        noted: object = None
        noted_at = 0.0
        while True:
            changes, seconds = console.source.changes(), time.monotonic()
            if changes != noted or seconds - noted_at >= _NOTE_SECONDS:
                noted, noted_at = changes, seconds
                with suppress(Exception):  # shown on the page; the next round may do
                    await asyncio.get_running_loop().run_in_executor(console.noting, console.note)
            console.keep_up()
            await asyncio.sleep(_UPDATE_SECONDS)

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
        proxy_headers=True,
        forwarded_allow_ips=list(console.settings.proxies),
        ws_max_size=_LONGEST_MESSAGE_BYTES,
        log_level="warning",
        access_log=False,
        server_header=False,
        # a page that is open keeps its connection, and the next process is waited for
        timeout_graceful_shutdown=_LAST_ANSWERS_SECONDS,
    )


def _add_logins(app: "FastAPI", console: Console) -> None:
    """The probe's path, the login form, and the way out."""
    from fastapi import Request
    from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse
    from starlette.responses import Response

    @app.get("/healthz")
    async def healthz() -> PlainTextResponse:
        return PlainTextResponse("ok")

    @app.get("/login")
    async def login() -> HTMLResponse:
        return HTMLResponse(login_page(""))

    @app.post("/login")
    async def log_in(request: Request) -> Response:
        let_in = console.let_in()
        if let_in is None:
            return RedirectResponse("/", 303)
        async with request.form(max_files=0, max_fields=10) as form:
            token = str(form.get("token", "")).strip()
        try:
            await let_in(token or None)
        except Refused as refused:
            return HTMLResponse(login_page(str(refused)), status_of(refused))
        except TidegateError as error:
            return HTMLResponse(login_page(error.message), 503)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(
            COOKIE,
            console.sessions.begin(token),
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
            max_age=8 * 3600,
        )
        return answer

    @app.post("/logout")
    async def log_out(request: Request) -> Response:
        """Its pages see it with their next change; a proxy's login is the proxy's to end."""
        if request.state.session is not None:
            console.sessions.end(request.state.session)
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return answer


@cache
def _live_element() -> Any:
    """The element that a page is kept up in; its other half is `live.js`, which draws charts."""
    import nicegui.elements.echart  # noqa: F401  # from where a browser gets ECharts
    from nicegui.element import Element

    class Live(Element, component="live.js", esm={"tidegate-charts": "charts"}):
        def __init__(self, content: str, role: str, choose: Callable[[Any], None]) -> None:
            super().__init__()
            self._props["content"] = content
            self._props["role"] = role
            self.classes("page")
            self.on("choose", choose)

    return Live


class _Page:
    """One page of one viewer. What changed is sent when it changed, and nothing else."""

    def __init__(self, console: Console, request: "Request", path: str, policy: str) -> None:
        self._console, self._path, self._policy = console, path, policy
        self.token: str | None = request.state.token
        self._session: str | None = request.state.session
        self._rights: Rights | None = None
        self._granted: frozenset[Place] = frozenset()
        self._seen: PolicyNow | None = None
        self._shown: Page = ()
        self._shown_at: object = None
        self._kept = Kept()
        self._choices = Choices()
        self._logged_out = ""
        self._has_lost_rights = False
        self._named: Any = None
        self._play_button: Any = None

    # What every page has

    def _frame(self) -> None:
        from nicegui import ui

        ui.add_css(_CSS.read_text(encoding="utf-8"))
        objects = self._objects()
        keys = policy_keys(objects)
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
            if self._session is not None:
                ui.html(
                    '<form method="post" action="/logout"><button type="submit" '
                    'class="tidegate-button">Log out</button></form>',
                    sanitize=False,
                )

        if self._console.player is not None:
            self._player_row(self._console.player)

    def _player_row(self, player: Player) -> None:
        """Which load is played, and the buttons to stop it or have it go faster."""
        from nicegui import ui

        with ui.element("div").classes("player").props('role="toolbar" aria-label="Player"'):
            ui.html("This load is simulated. No cluster is asked.", sanitize=False)

            def pressed() -> None:
                if player.is_over:
                    self._console.forget()
                if player.is_paused or player.is_over:
                    player.go()
                else:
                    player.pause()
                self._show_player()

            self._play_button = ui.button("", on_click=pressed).props("flat dense no-caps")

            def at_speed(event: Any) -> None:
                player.go(event.value)
                self._show_player()

            ui.toggle(
                {speed: f"{speed}x" for speed in player.speeds},
                value=player.speed,
                on_change=at_speed,
            ).props('dense no-caps aria-label="Speed"')
        self._show_player()

    def _show_player(self) -> None:
        player = self._console.player
        if player is not None:
            is_over = player.is_over
            words = "Play again" if is_over else "Play on" if player.is_paused else "Pause"
            if self._play_button.text != words:
                self._play_button.set_text(words)

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
        """What this viewer may list, by the rights that are known by now. Never waits."""
        console, viewers = self._console, self._console.viewers()
        if viewers is None:
            return console.source.objects()
        try:
            if self._session is not None and self._session not in console.sessions:
                raise Refused("You have logged out.")
            self._rights = viewers.known(self.token, console.reviewing)
        except Refused as refused:  # the token ended while the page was open
            self._logged_out = str(refused)
            return Objects()
        if self._rights is None:
            return Objects(problem="what you may see is not known: Kubernetes does not answer")
        self._has_lost_rights |= not self._granted & self._rights.asked <= self._rights.allowed
        self._granted |= self._rights.allowed
        return console.source.objects().only(self._rights.may_list)

    def _old_rights(self) -> tuple[Part, ...]:
        viewers, rights = self._console.viewers(), self._rights
        if viewers is None or rights is None or not rights.problem:
            return ()
        minutes = max(1, int(viewers.age_seconds(rights) / 60))
        return (
            Part(
                "rights",
                Markup(
                    '<p class="unknown hatched" role="status">Kubernetes does not answer, so your '
                    "rights could not be checked again. This page uses those of {} min ago, for up "
                    "to {} min.</p>"
                ).format(minutes, LONGEST_MINUTES),
            ),
        )

    def _now(self) -> tuple[Objects, PolicyNow | None]:
        objects = self._objects()
        if self._policy:
            self._seen = self._console.policy(objects, self._policy, self._seen)
        return objects, self._seen if self._policy else None

    def _kept_up(
        self,
        body: Callable[[PolicyNow], Page],
        asked: Callable[[], object] = lambda: None,
        role: str = "main",
    ) -> None:
        """The part of the page that is looked at many times a second; what differs is sent.

        `asked` has what the viewer chose besides.
        """
        self._body, self._asked = body, asked
        self._shown_at = self._console.tick(), asked(), self._choices
        self._shown = self._page(body)
        self._live = _live_element()(page_html(self._shown), role, self._choose)
        self._moment.set_content(self._clock())
        self._console.keeps_up(self)

    def _choose(self, event: Any) -> None:
        """What comes from a browser is anything; what is no choice changes nothing."""
        given = event.args if isinstance(event.args, dict) else {}
        choice, value = given.get("choice"), given.get("value")
        if isinstance(choice, str) and isinstance(value, str):
            self._choices = self._choices.with_choice(choice, value)

    @property
    def client(self) -> Any:
        """The browser's page in NiceGUI."""
        return self._live.client

    def keep_up(self) -> None:
        """Send what differs, where anything may."""
        self._show_player()
        at = self._console.tick(), self._asked(), self._choices
        if at == self._shown_at or not self.client.has_socket_connection:
            return
        self._shown_at = at
        page = self._page(self._body)
        if self._logged_out or self._has_lost_rights:
            self._reopen()
            return
        changes = changes_between(self._shown, page)
        if changes is not None:
            self._shown = page
            self._live.run_method("change", changes)
            self._moment.set_content(self._clock())

    def _reopen(self) -> None:
        """Names that the viewer may not see any more are also in lists and fields, and go, too."""
        from nicegui import ui

        with self.client:
            ui.navigate.reload()

    def _clock(self) -> str:
        return f"{clock_words(self._console.source.now_seconds())} UTC"

    def _page(self, body: Callable[[PolicyNow], Page]) -> Page:
        objects, now = self._now()
        if now is None and objects.policies:
            self._policy = policy_keys(objects)[0]
            if self._named is not None:
                self._named.set_content(str(name(self._policy)))
            objects, now = self._now()
        if self._logged_out:
            return logged_out(self._logged_out)
        if now is None:
            seconds = self._console.source.now_seconds()
            return no_policy(objects.problem, objects.heard_at_seconds, seconds)
        above = () if self._path in ("/", "/policies") else (banner(now, is_whole=False),)
        return (*self._old_rights(), *above, *body(now))

    # The pages

    def now(self) -> None:
        self._frame()
        self._kept_up(lambda now: now_page(now, self._console.history, self._kept, self._choices))

    def broker(self, broker: str) -> None:
        self._frame()
        chosen = int(broker) if broker.isdecimal() and len(broker) < 10 else None

        def body(now: PolicyNow) -> Page:
            fullest = max(now.nics, key=lambda nic: nic.share or 0.0, default=None)
            first = fullest.broker if fullest is not None else next(iter(now.brokers), 0)
            return broker_page(
                now,
                first if chosen is None else chosen,
                self._console.history,
                self._kept,
                self._choices,
            )

        self._kept_up(body)

    def policies(self) -> None:
        self._frame()
        known: dict[str, PolicyNow] = {}

        def body(_: PolicyNow) -> Page:
            objects = self._objects()
            found = []
            for key in policy_keys(objects):
                now = self._console.policy(objects, key, known.get(key))
                if now is not None:
                    known[key] = now
                    found.append(now)
            return policies_page(found)

        self._kept_up(body)

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
        levels = {"markup": not_looked_at("not read yet.")}

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
            return member_page(now, ways, self._console.history, levels["markup"], self._choices)

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

    def history(self, wanted: str) -> None:
        from nicegui import ui

        self._frame()
        with ui.element("div").classes("form"):
            text = ui.input("Filter: part of a line, such as etl or WRITE", value=wanted).props(
                "outlined dense clearable"
            )
        kept = Kept()

        def body(now: PolicyNow) -> Page:
            trail, wanted = self._console.trail(), (text.value or "").casefold()
            allowed = None if self._rights is None else self._rights.allowed
            of = (Same(trail), wanted, now.key, tuple(map(Same, now.raw_tiers)), allowed)
            kept.begin()
            return kept.piece("history", of, lambda: self._history(trail, now, wanted))

        self._kept_up(body, lambda: (text.value, Same(self._console.trail())))

    def _history(self, trail: Trail, now: PolicyNow, wanted: str) -> Page:
        mine = [line for line in trail.lines if line.get("policy", now.key) == now.key]
        lines, left_out = self._readable(mine, now)
        rows: list[AuditRow] = []
        for line in lines:
            row = self._console.row_of(line)
            if wanted in " ".join(row).casefold():
                rows.append(row)
            if len(rows) >= _SHOWN_LINES:
                break
        return history_page(trail, rows, of=len(lines), left_out=left_out)

    def _readable(
        self, lines: Sequence[AuditLine], now: PolicyNow
    ) -> tuple[Sequence[AuditLine], int]:
        rights = self._rights
        if self._console.access is None:
            return lines, 0
        if rights is None:
            return (), len(lines)
        if rights.may_list(BUSINESS_TIERS, ""):
            return lines, 0
        own = (one for one in now.members if one.state not in _NOT_REPORTED)
        sight = Sight(
            frozenset(str(one.entity) for one in own),
            lambda namespace: rights.may_list(BUSINESS_TIERS, namespace),
            lambda namespace: rights.may_list(QUOTA_OVERRIDES, namespace),
        )
        return readable(lines, sight)

    def what_if(self) -> None:
        from nicegui import ui

        self._frame()
        _, now = self._now()
        if now is None or now.declared is None or not now.declared.tiers:
            text = Markup("<p>The policy has no tiers, or cannot be read.</p>")
            self._kept_up(lambda _: (Part("none", text),))
            return
        form = WhatIfForm(now)
        ui.html(
            "<h2>What if</h2><p>Ten minutes of the operator's own decisions on the current load. "
            "Nothing is written.</p>",
            sanitize=False,
        ).classes("page")
        self._kept_up(lambda _: (), role="group")  # what the viewer may see, and since when
        form.build()
        button = ui.button("Play ten minutes", color=None).props("no-caps unelevated")
        button.classes("tidegate-button")
        progress = ui.html("", sanitize=False).props('role="status"').classes("progress")
        with ui.element("div").classes("page result").props('role="main"') as result:
            shown = ui.html("", sanitize=False)
            copied = ui.html("", sanitize=False)

        async def run() -> None:
            if not form.is_valid():
                return
            _, current = self._now()
            button.disable()
            result.props("aria-busy=true")
            progress.set_content(
                '<span class="spinner" aria-hidden="true"></span> Playing ten '
                "minutes of decisions. The result below is the last one."
            )
            try:
                edits = form.edits()
                played, before = await asyncio.to_thread(self._played, current, edits)
            except (ValueError, TidegateError) as error:
                shown.set_content(
                    str(Markup('<p role="alert" class="problems">{}</p>').format(str(error)))
                )
                return
            finally:
                button.enable()
                result.props(remove="aria-busy")
                progress.set_content("")
            shown.set_content(str(what_if_page(played, before)))
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

    def _played(self, now: PolicyNow | None, edits: Edits) -> tuple[Result, Result | None]:
        """The play with the edits, and without them. Asks Kafka, where it may."""
        situation = self._situation(now, with_kafka=True)
        result = play_what_if(situation, edits)
        return result, None if edits.are_empty else play_what_if(situation, Edits())

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
                remarks = (f"leaders are unknown ({error.message})",)
        if topology is None:
            topology = assumed_topology(now, now.declared.tiers)
            remarks = (
                *remarks,
                "leaders are assumed to be even over the brokers that each member uses",
            )
        return situation_of(
            now.declared.policy,
            now.declared.tiers,
            topology,
            now.readings,
            overrides=now.declared.overrides or (),
            quotas=quotas_in_force(now),
            remarks=remarks,
        )
