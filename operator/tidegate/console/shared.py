"""What all viewers of the console share: the source, the last day, and who may see what."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import structlog

from tidegate.console.gate import Sessions
from tidegate.console.history import History
from tidegate.console.source import Player, Source, Trail
from tidegate.console.viewers import Place, Reviews, Viewers
from tidegate.console.what_if_page import AuditRow
from tidegate.control.audit.lines import AuditLine
from tidegate.kube.api import (
    BROKER_BANDWIDTH_POLICIES,
    BUSINESS_TIERS,
    DELAY_QUEUES,
    EVENTS,
    QUOTA_OVERRIDES,
)
from tidegate.observe.declared import SpecReader
from tidegate.view.policy import Objects, PolicyNow, policy_keys, policy_now

log = structlog.get_logger(__name__)

_AGES_SECONDS: Final = 2.0
TRAIL_SECONDS: Final = 5.0
_REVIEWS_AT_ONCE: Final = 16  # twice as many as strangers may have


class OpenPage(Protocol):
    """A page that a browser has open."""

    token: str | None

    @property
    def client(self) -> Any:
        """The browser's page in NiceGUI."""

    def keep_up(self) -> None:
        """Send what differs, where anything may."""


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
    """What all viewers share: the source, the last day, and the rounds that note them."""

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
    _pages: list[OpenPage] = field(default_factory=list)
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
        """Forget the last day: the clock is set back."""
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

    def keeps_up(self, page: OpenPage) -> None:
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
        is_old = known is None or abs(self.source.now_seconds() - known[1]) >= TRAIL_SECONDS
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
