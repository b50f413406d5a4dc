"""One page of one viewer in NiceGUI: its frame, what is sent when it changes, and each page's body.

What a viewer may see is asked for again with each change.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from markupsafe import Markup

from tidegate.console.access import Refused
from tidegate.console.banner import banner, policies_page
from tidegate.console.broker_page import broker_page
from tidegate.console.choices import Choices
from tidegate.console.markup import joined, name
from tidegate.console.member_page import member_page, not_looked_at, quota_levels
from tidegate.console.now_page import logged_out, no_policy, now_page
from tidegate.console.parts import Kept, Page, Part, Same, changes_between, page_html
from tidegate.console.shared import Console
from tidegate.console.source import Player, Trail
from tidegate.console.trail_view import Sight, readable
from tidegate.console.viewers import LONGEST_MINUTES, Place, Rights
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
from tidegate.kube.api import BUSINESS_TIERS, QUOTA_OVERRIDES
from tidegate.view.policy import (
    Objects,
    PolicyNow,
    assumed_topology,
    policy_keys,
    quotas_in_force,
)
from tidegate_logic.contracts.desired import MemberState
from tidegate_logic.words import clock_words

if TYPE_CHECKING:
    from fastapi import Request

PAGES: Final = (
    ("/", "Now"),
    ("/broker", "Broker"),
    ("/member", "Member"),
    ("/what-if", "What if"),
    ("/history", "History"),
    ("/policies", "Policies"),
)
_CSS: Final = Path(__file__).with_name("console.css")
_SHOWN_LINES: Final = 200
_NOT_REPORTED: Final = frozenset({MemberState.OVERLAPPING, MemberState.NOT_ALLOWED})


@cache
def _live_element() -> Any:
    """The element that a page is kept up in; its other half is `live.js`, which draws charts."""
    import nicegui.elements.echart  # noqa: F401  # from where a browser gets ECharts
    from nicegui.element import Element

    class Live(Element, component="live.js", esm={"tidegate-charts": "chart_drawing"}):
        def __init__(self, content: str, role: str, choose: Callable[[Any], None]) -> None:
            super().__init__()
            self._props["content"] = content
            self._props["role"] = role
            self.classes("page")
            self.on("choose", choose)

    return Live


class ViewerPage:
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
        self._player_words: Any = None

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

        player.begin()
        with ui.element("div").classes("player").props('role="toolbar" aria-label="Player"'):
            self._player_words = ui.html("", sanitize=False).props('role="status"')

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
            words = "Play it again" if is_over else "Play on" if player.is_paused else "Pause"
            if self._play_button.text != words:
                self._play_button.set_text(words)
                self._player_words.set_content(
                    "<strong>The simulated load is over.</strong> This is how it ended."
                    if is_over
                    else "This load is simulated. No cluster is asked."
                )

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
                    for path, words in PAGES
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
            shown.set_content(str(what_if_page(self._policy, played, before)))
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
        """Raises ValueError if too little is known to play anything."""
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
