"""Where the console takes everything from: objects by watch, readings from Prometheus, the trail.

Only reads: lists and watches of Kubernetes, GET of Prometheus, files. Kafka is looked at on demand,
where the process may: without that, leaders are assumed and quota levels are not shown.
"""

import json
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol

import structlog
from kubernetes import client
from urllib3.exceptions import HTTPError

from tidegate.console.history import Past
from tidegate.control.audit.lines import AuditLine, Wanted, read_lines, trail_files
from tidegate.errors import NotFound, TidegateError, Unauthorized
from tidegate.kube.api import (
    BROKER_BANDWIDTH_POLICIES,
    BUSINESS_TIERS,
    DELAY_QUEUES,
    EVENTS,
    QUOTA_OVERRIDES,
    Kubernetes,
    LeaseRecord,
    ResourceKind,
)
from tidegate.observe.declared import Declared, declare, object_key
from tidegate.observe.metrics_watch import Reader
from tidegate.prometheus.client import PrometheusClient
from tidegate.prometheus.series import Series
from tidegate.view.load import RawObject
from tidegate.view.policy import LeaseNow, Measured, Objects
from tidegate_logic.model import Direction, Level, Topology

log = structlog.get_logger(__name__)

KINDS: Final = (BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS, QUOTA_OVERRIDES, DELAY_QUEUES)
_OPTIONAL: Final = frozenset({DELAY_QUEUES})  # without its CRD or the right to it nothing is amiss
_WATCH_SECONDS: Final = 30  # then asked for again, so that a silent server is noticed
_AGAIN_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 180.0  # between looks for a kind that is not served or not granted
_SHORTEST_READING_SECONDS: Final = 5.0
_PAST_SECONDS: Final = 10.0
_MOST_EVENTS: Final = 5000  # kept of each namespace, or of all; the oldest go
_ABOUT_OURS: Final = f"regarding.apiVersion={BUSINESS_TIERS.api_version}"
_TRAIL_BYTES: Final = 4 * 1024 * 1024  # of the end of each file


class Cluster(Protocol):
    """Looks at the Kafka cluster of a policy, on demand. Both raise TidegateError."""

    def topology(self, policy_key: str) -> Topology:
        """Brokers and leaders as they are now."""
        ...

    def explain(self, policy_key: str, user: str, client_id: str) -> Mapping[str, Any]:
        """The document of `tidegate explain`."""
        ...


@dataclass(frozen=True, slots=True)
class Trail:
    """The newest audit lines, newest first; `problem` says why some or all are not known."""

    lines: tuple[AuditLine, ...] = ()
    problem: str = ""


class Player(Protocol):
    """A load that is played, and who watches it may stop it or have it go faster.

    `speeds` are how many of its seconds go by in one; `speed` is the one that is chosen.
    """

    speeds: tuple[int, ...]
    speed: int

    @property
    def is_paused(self) -> bool: ...

    @property
    def is_over(self) -> bool: ...

    def at_seconds(self) -> float:
        """How much of it is over."""
        ...

    def begin(self) -> None:
        """Someone looks: it plays from now on, if it waited for that."""
        ...

    def go(self, speed: int | None = None) -> None:
        """Play on, or again from the begin where it is over; at another speed if one is given."""
        ...

    def pause(self) -> None: ...


class Source(Protocol):
    """Everything that pages show. All but `cluster` and `trail` answer at once."""

    @property
    def cluster(self) -> Cluster | None: ...

    def now_seconds(self) -> float: ...

    def changes(self) -> object:
        """Something that is another one when anything but the time has changed."""
        ...

    def objects(self) -> Objects: ...

    def measured(self, policy_key: str) -> Measured: ...

    def trail(self) -> Trail:
        """The newest audit lines: the same object as before while none is new. Reads files."""
        ...

    def past(self, policy_key: str) -> Past | None:
        """What was before the process began; None = not known, or not asked for yet."""
        ...


OpenReader = Callable[[Declared], Reader | None]
OpenClient = Callable[[Declared], PrometheusClient | None]
ReadLease = Callable[[str], LeaseRecord | None]  # of the policy with this key


@dataclass(slots=True)
class _Kept:
    """The objects of one kind in one namespace ("" = in all)."""

    items: dict[str, RawObject] = field(default_factory=dict)
    version: str = ""
    heard_at: float | None = None
    problem: str = "not read yet"
    is_open: bool = False  # a watch is, so silence means that nothing changes
    is_absent: bool = False  # an optional kind that is not served, or not granted


class LiveSource:
    """A cluster's objects and readings, kept up by threads from `start` to `close`."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        api_client: client.ApiClient,
        namespaces: Sequence[str],
        open_reader: OpenReader,
        *,
        cluster: Cluster | None = None,
        open_client: OpenClient = lambda _: None,
        read_lease: ReadLease | None = None,
        trails: Sequence[Path] = (),
        clock: Callable[[], float] = time.time,
        look_seconds: float = _LOOK_SECONDS,
        without: Collection[ResourceKind] = (),
    ) -> None:
        self._kubernetes = kubernetes
        self._watches = client.CustomObjectsApi(api_client)
        self._open_reader, self._open_client = open_reader, open_client
        self._read_lease = read_lease
        self._leases: dict[str, LeaseNow] = {}
        self._renewals: dict[str, tuple[str, float]] = {}
        self._pasts: dict[str, Past] = {}
        self.cluster = cluster
        self._trails = trails
        self._trail: tuple[object, Trail] | None = None
        self._clock = clock
        self._look_seconds = look_seconds
        places = tuple(namespaces) or ("",)
        kinds = [kind for kind in KINDS if kind not in without]
        self._kept = {(kind, place): _Kept() for kind in kinds for place in places}
        self._events = {(EVENTS, place): _Kept() for place in places}
        self._measured: dict[str, Measured] = {}
        self._lock = threading.Lock()
        self._changes = 0
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start to watch. Nothing is waited for: what is not known yet is shown as unknown."""
        for (kind, place), kept in (*self._kept.items(), *self._events.items()):
            self._run(lambda k=kind, p=place, kept=kept: self._keep(k, p, kept))  # type: ignore[misc]
        self._run(self._measure)
        read_lease = self._read_lease
        if read_lease is not None:
            self._run(lambda: self._look_at_leases(read_lease))

    def close(self) -> None:
        """Let the threads end; a watch ends with its next line."""
        self._ended.set()

    def _run(self, loop: Callable[[], None]) -> None:
        thread = threading.Thread(target=loop, daemon=True)
        thread.start()
        self._threads.append(thread)

    def now_seconds(self) -> float:
        return self._clock()

    def changes(self) -> object:
        return self._changes

    def objects(self) -> Objects:
        with self._lock:
            found: dict[str, list[RawObject]] = {kind.kind: [] for kind in KINDS}
            for (kind, _), kept in self._kept.items():
                found[kind.kind] += kept.items.values()
            now = self._clock()
            there = [kept for kept in self._kept.values() if not kept.is_absent]
            heard = [now if kept.is_open else kept.heard_at for kept in there]
            problems = [kept.problem for kept in there if kept.problem]
            events = [one for kept in self._events.values() for one in kept.items.values()]
            unheard = [kept.problem for kept in self._events.values() if kept.problem]
        known = [at for at in heard if at is not None]
        policies, tiers, overrides, queues = (tuple(found[kind.kind]) for kind in KINDS)
        return Objects(
            policies,
            tiers,
            overrides,
            heard_at_seconds=min(known) if len(known) == len(heard) else None,
            problem=problems[0] if problems else "",
            events=tuple(events),
            events_problem=unheard[0] if unheard else "",
            leases=dict(self._leases),
            queues=queues,
        )

    def measured(self, policy_key: str) -> Measured:
        return self._measured.get(policy_key, Measured(problem="not read yet"))

    def trail(self) -> Trail:
        signature = _signature(self._trails)
        if self._trail is None or self._trail[0] != signature:
            self._trail = signature, read_trails(self._trails)
        return self._trail[1]

    def past(self, policy_key: str) -> Past | None:
        return self._pasts.get(policy_key)

    # Objects

    def _keep(self, kind: ResourceKind, place: str, kept: _Kept) -> None:
        while not self._ended.is_set():
            try:
                if not kept.version:
                    self._list(kind, place, kept)
                begin = time.monotonic()
                self._watch(kind, place, kept)
                if time.monotonic() - begin < 1.0:  # a server that ends watches at once
                    self._ended.wait(1.0)
            except (TidegateError, client.ApiException, HTTPError, OSError, ValueError) as error:
                message = error.message if isinstance(error, TidegateError) else str(error)
                is_old = isinstance(error, client.ApiException) and error.status == 410
                is_absent = kind in _OPTIONAL and _is_absent(error)
                if is_absent and not kept.is_absent:
                    log.info("a kind is not shown for now", kind=kind.plural, why=message)
                with self._lock:
                    kept.version, kept.is_absent = "", is_absent
                    kept.items = {} if is_absent else kept.items
                    kept.problem = "" if is_old else _first_line(message)
                    self._changes += 1
                seconds = self._look_seconds if is_absent else _AGAIN_SECONDS
                self._ended.wait(0 if is_old else seconds)

    def _list(self, kind: ResourceKind, place: str, kept: _Kept) -> None:
        if kind is EVENTS:  # of all Events in a cluster these are few
            found = self._ask(kind, place, 20.0, limit=_MOST_EVENTS)
            items, version = tuple(found["items"]), str(found["metadata"]["resourceVersion"])
        else:
            listing = self._kubernetes.list_all(kind, (place,) if place else ())
            items, version = listing.items, listing.resource_version
        with self._lock:
            kept.items = {_uid(one): one for one in items}
            kept.version, kept.problem, kept.is_absent = version, "", False
            self._changes += 1
            kept.heard_at = self._clock()

    def _ask(self, kind: ResourceKind, place: str, seconds: float, **options: Any) -> Any:
        if kind is EVENTS:
            options["field_selector"] = _ABOUT_OURS
        options["_request_timeout"] = (3.0, seconds)
        address = (kind.group, kind.version, *([place] if place else ()), kind.plural)
        api = self._watches
        ask = api.list_namespaced_custom_object if place else api.list_cluster_custom_object
        return ask(*address, **options)

    def _watch(self, kind: ResourceKind, place: str, kept: _Kept) -> None:
        answer = self._ask(
            *(kind, place, _WATCH_SECONDS + 10.0),
            watch=True,
            resource_version=kept.version,
            timeout_seconds=_WATCH_SECONDS,
            allow_watch_bookmarks=True,
            _preload_content=False,
        )
        with self._lock:
            kept.heard_at, kept.problem, kept.is_open = self._clock(), "", True
        try:
            left = b""
            for chunk in answer.stream(64 * 1024, decode_content=True):
                kept.heard_at = self._clock()
                *lines, left = (left + chunk).split(b"\n")
                for line in lines:
                    self._take(kept, json.loads(line))
                if self._ended.is_set():
                    return
            # ended in time, and until then silence meant that nothing changed
            kept.heard_at = self._clock()
        finally:
            with self._lock:
                kept.is_open = False
            answer.close()

    def _take(self, kept: _Kept, event: Mapping[str, Any]) -> None:
        body = event["object"]
        if event["type"] == "ERROR":
            raise client.ApiException(status=body.get("code"), reason=body.get("message"))
        with self._lock:
            kept.version = body["metadata"]["resourceVersion"]
            if event["type"] == "DELETED":
                kept.items.pop(_uid(body), None)
            elif event["type"] != "BOOKMARK":
                kept.items[_uid(body)] = body
                while len(kept.items) > _MOST_EVENTS and body["kind"] == EVENTS.kind:
                    del kept.items[next(iter(kept.items))]
            self._changes += event["type"] != "BOOKMARK"

    # Leases

    def _look_at_leases(self, read_lease: ReadLease) -> None:
        while not self._ended.wait(_SHORTEST_READING_SECONDS if self._leases else 0.5):
            for raw in self.objects().policies:
                key = object_key(raw)
                lease, before = self._lease(key, read_lease), self._leases.get(key)
                self._leases[key] = lease
                if before is None or replace(lease, at_seconds=before.at_seconds) != before:
                    self._changes += 1

    def _lease(self, key: str, read_lease: ReadLease) -> LeaseNow:
        """By whether it is renewed, on our own clock: the times in it are another's."""
        now = self._clock()
        try:
            found = read_lease(key)
        except TidegateError as error:
            return LeaseNow(problem=error.message)
        if found is None or not found.holder:
            return LeaseNow("", now)
        version, since = self._renewals.get(key, ("", now))
        if version != found.resource_version:
            since = now
        self._renewals[key] = (found.resource_version, since)
        is_held = now - since <= found.duration_seconds + _SHORTEST_READING_SECONDS
        return LeaseNow(found.holder if is_held else "", now)

    # Readings

    def _measure(self) -> None:
        readers: dict[str, tuple[object, Reader | None, str]] = {}
        while not self._ended.wait(_SHORTEST_READING_SECONDS if self._measured else 0.5):
            for raw in self.objects().policies:
                key = object_key(raw)
                try:
                    self._measured[key] = self._read(key, raw, readers)
                except TidegateError as error:
                    self._measured[key] = replace(self.measured(key), problem=error.message)
                except Exception:  # a reader's bug must not end the readings of others
                    log.exception("reading failed", policy=key)
                self._changes += 1
                if key not in self._pasts:
                    self._pasts[key] = self._past(key, raw)

    def _past(self, key: str, raw: RawObject) -> Past:
        """Asked for once. A Prometheus that does not scrape the operator has nothing of it."""
        try:
            opened = self._open_client(declare(raw, ()))
            if opened is None:
                return Past()
            with closing(opened) as prometheus:
                return read_past(prometheus, key)
        except TidegateError as error:
            log.info("no history of a policy before this process", policy=key, why=error.message)
            return Past()

    def _read(
        self, key: str, raw: RawObject, readers: dict[str, tuple[object, Reader | None, str]]
    ) -> Measured:
        spec = (raw.get("spec") or {}).get("metrics")
        known = readers.get(key)
        if known is None or known[0] != spec or known[2]:
            if known is not None and known[1] is not None:
                known[1].close()
            try:
                readers[key] = (spec, self._open_reader(declare(raw, ())), "")
            except TidegateError as error:
                readers[key] = (spec, None, error.message)
        _, reader, problem = readers[key]
        if reader is None:
            return Measured(self.measured(key).readings, problem)
        brokers = [one["id"] for one in (raw.get("status") or {}).get("brokers") or ()]
        readings = reader.read(brokers)
        if not readings.nic and not readings.clients and readings.problems:
            # away: what was known before stays, with its age
            return Measured(self.measured(key).readings, readings.problems[0].message)
        return Measured(readings)


def read_past(prometheus: PrometheusClient, policy_key: str) -> Past:
    """The operator's own metrics of the last day, of each minute: 1,440 points a line at most.

    Two requests, however many brokers there are. Raises as `PrometheusClient.query` does.
    """
    namespace, _, name = policy_key.partition("/")
    policy = f'{{policy_namespace="{namespace}",policy="{name}"}}'
    until = time.monotonic() + _PAST_SECONDS

    def ask(inner: str, span: str) -> list[Series]:
        return prometheus.query(f"({inner})[{span}]", until_monotonic_seconds=until)

    share = (
        f"max by (broker, direction) (max_over_time(tidegate_broker_bytes_per_second{policy}[1m]))"
        f" / max by (broker, direction) (tidegate_broker_limit_bytes_per_second{policy} > 0)"
    )
    nics = {
        (int(one.labels["broker"]), Direction(one.labels["direction"])): one.samples
        for one in ask(share, "24h:1m")
    }
    states: dict[Level, list[tuple[float, str]]] = {}
    for one in ask(f"max by (level, state) (tidegate_tier_state{policy} == 1)", "24h:1m"):
        level = Level(one.labels["level"])
        states.setdefault(level, []).extend((at, one.labels["state"]) for at, _ in one.samples)
    return Past(nics, {level: sorted(found) for level, found in states.items()})


def read_trails(trails: Sequence[Path]) -> Trail:
    """The newest lines of all files together: one for each replica, or all in a folder."""
    if not trails:
        return Trail(problem="no audit trail was named (--audit-file)")
    lines: list[AuditLine] = []
    problems = []
    files: list[Path] = []
    for place in trails:
        try:
            found = trail_files(place)
        except OSError as error:
            problems.append(f"{place} cannot be read ({error.strerror})")
            continue
        files += found
        if not found:
            problems.append(f"in {place} there is no trail yet")
    for path in files:
        try:
            with closing(path.open("rb")) as stream:
                size = stream.seek(0, 2)
                stream.seek(max(0, size - _TRAIL_BYTES))
                texts = stream.read().decode("utf-8", errors="replace").splitlines(keepends=True)
        except OSError as error:
            problems.append(f"{path} cannot be read ({error.strerror})")
            continue
        lines += read_lines(texts[1:] if size > _TRAIL_BYTES else texts, Wanted()).lines
    lines.sort(key=lambda line: str(line["t"]), reverse=True)
    return Trail(tuple(lines), "; ".join(problems))


def _signature(trails: Sequence[Path]) -> object:
    """Another one when a trail may have changed; never None."""
    found: list[object] = []
    for place in trails:
        try:
            files = trail_files(place)
            found += [(path, (at := path.stat()).st_size, at.st_mtime_ns) for path in files]
        except OSError as error:
            found.append((place, error.errno))
    return tuple(found)


def _is_absent(error: BaseException | None) -> bool:
    """Whether the kind is not served (404), or the account has no right to it (403, not 401)."""
    if isinstance(error, Unauthorized):
        return _is_absent(error.__cause__)
    is_answer = isinstance(error, client.ApiException) and error.status in (403, 404)
    return is_answer or isinstance(error, NotFound)


def _uid(raw: RawObject) -> str:
    return str(raw["metadata"]["uid"])


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else "it did not answer"
