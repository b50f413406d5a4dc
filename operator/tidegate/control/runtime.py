"""Shared parts of all controllers of one process, put together once by `main.py` or by a test."""

import random
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

import structlog

from tidegate.control.audit.trail import AuditTrail, unread_trail
from tidegate.control.report.reporter import Reporter
from tidegate.errors import NotFound, Unauthorized
from tidegate.kube.api import (
    BROKER_BANDWIDTH_POLICIES,
    BUSINESS_TIERS,
    QUOTA_OVERRIDES,
    JsonObject,
    Kubernetes,
    ResourceKind,
)
from tidegate.kube.cache import ResourceCache, relist
from tidegate.metrics import Telemetry
from tidegate.observe.connections import OpenCluster
from tidegate.observe.metrics_watch import OpenReader
from tidegate.prometheus.direct import Exporters
from tidegate.prometheus.reader import PrometheusReader
from tidegate.settings import Settings
from tidegate.tracing import OFF, Tracing

log = structlog.get_logger(__name__)

# Object events come in bursts (a person applies a folder), so `Wakeup.wait` lets a burst end, for a
# bounded time, before it returns. Other causes are never delayed.


class Cause(StrEnum):
    """Why a pass runs; also a metric label."""

    OBJECTS = "objects"
    LEASE = "lease"
    METRICS = "metrics"
    BROKERS = "brokers"
    ROLLUPS = "rollups"
    REASSIGNMENTS = "reassignments"
    TIMER = "timer"
    STOP = "stop"


QUIET_SECONDS = 0.02
LONGEST_BURST_SECONDS = 0.2


class Wakeup:
    """A sticky flag per cause: the next `wait` finds what was poked since the last one.

    `poke` may be called from any thread and never blocks for long; `wait` belongs to the one loop.
    """

    def __init__(
        self,
        *,
        quiet_seconds: float = QUIET_SECONDS,
        longest_burst_seconds: float = LONGEST_BURST_SECONDS,
    ) -> None:
        self._quiet_seconds = quiet_seconds
        self._longest_burst_seconds = longest_burst_seconds
        self._changed = threading.Condition()
        self._causes: set[Cause] = set()
        self._pokes = 0

    def poke(self, cause: Cause) -> None:
        with self._changed:
            self._causes.add(cause)
            self._pokes += 1
            self._changed.notify_all()

    @property
    def stopping(self) -> bool:
        with self._changed:
            return Cause.STOP in self._causes

    def wait(self, timeout_seconds: float) -> frozenset[Cause]:
        """Return the causes since the last call, or TIMER after the time. STOP stays set."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._causes), max(0.0, timeout_seconds))
            if not self._causes:
                return frozenset({Cause.TIMER})
            self._let_the_burst_end()
            causes = frozenset(self._causes)
            self._causes.intersection_update({Cause.STOP})
            return causes

    def _let_the_burst_end(self) -> None:
        ends_at = time.monotonic() + self._longest_burst_seconds
        while self._causes == {Cause.OBJECTS}:
            seen = self._pokes
            remaining = min(self._quiet_seconds, ends_at - time.monotonic())
            if remaining <= 0:
                return
            if not self._changed.wait_for(lambda: self._pokes != seen, remaining):  # noqa: B023
                return


class PassAllowance:
    """When the next pass for changed objects may begin: `at_once` of them, then one a distance.

    Who edits now and then waits for nothing; who edits all the time has the last edit in a pass
    within one distance. It fills up again at one pass a distance.
    """

    def __init__(self, *, distance_seconds: float, at_once: int) -> None:
        self._distance_seconds = distance_seconds
        self._ahead_seconds = distance_seconds * max(0, at_once - 1)
        self._full_at_seconds = float("-inf")  # when all of `at_once` may be used again

    def wait_seconds(self, now_seconds: float) -> float:
        """How long the next pass has to wait; 0 = not at all."""
        return max(0.0, self._full_at_seconds - self._ahead_seconds - now_seconds)

    def take(self, now_seconds: float) -> None:
        """Count a pass, also one that brought its changes along without having had to wait."""
        latest_seconds = now_seconds + self._ahead_seconds
        used_seconds = min(max(self._full_at_seconds, now_seconds), latest_seconds)
        self._full_at_seconds = used_seconds + self._distance_seconds


class Backoff:
    """Seconds to the next try after a pass that failed: `first`, then doubling up to `most`.

    Jitter makes each between half and all of that, so that replicas do not try in step.
    """

    def __init__(
        self,
        *,
        first_seconds: float = 1.0,
        most_seconds: float = 30.0,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._first_seconds = first_seconds
        self._most_seconds = most_seconds
        self._jitter = jitter
        self._failures = 0

    def reset(self) -> None:
        self._failures = 0

    def next_seconds(self) -> float:
        """Count one more failure and return how long to wait because of it."""
        exponent = min(self._failures, 30)  # no overflow after a day of failures
        self._failures += 1
        whole = min(self._most_seconds, self._first_seconds * 2.0**exponent)
        return whole * (0.5 + 0.5 * self._jitter())


@dataclass(frozen=True, slots=True)
class Clock:
    """The clocks: `wall` for what is written (seconds since the epoch), `monotonic` for waiting."""

    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic


class VitalSigns:
    """The last sign of life of every loop, by name, on the monotonic clock, for the liveness probe.

    A pass that ends with an error is a sign of life too. So is each answer that a loop waits for:
    a restart makes no API server faster.
    """

    def __init__(self, now_seconds: Callable[[], float], stuck_after_seconds: float) -> None:
        self._now_seconds = now_seconds
        self._stuck_after_seconds = stuck_after_seconds
        self._lock = threading.Lock()
        self._last_seconds: dict[str, float] = {}
        self._here = threading.local()

    def beat(self, loop: str) -> None:
        self._here.loop = loop
        with self._lock:
            self._last_seconds[loop] = self._now_seconds()

    def goes_on(self) -> None:
        """Beat for the loop that did so last in this thread, while what it waits for goes on."""
        loop: str | None = getattr(self._here, "loop", None)
        with self._lock:
            if loop in self._last_seconds:
                self._last_seconds[loop] = self._now_seconds()

    def forget(self, loop: str) -> None:
        """Drop a loop that ended as it should."""
        with self._lock:
            self._last_seconds.pop(loop, None)

    def silent_seconds(self) -> dict[str, float]:
        """Return the loops without a sign of life for too long, and for how long."""
        now_seconds = self._now_seconds()
        with self._lock:
            ages = {loop: now_seconds - last for loop, last in self._last_seconds.items()}
        return {loop: age for loop, age in ages.items() if age > self._stuck_after_seconds}

    def failure_text(self) -> str | None:
        """A sentence on the loops without a sign of life for too long; None when all are well."""
        stuck = [f"{loop} for {age:.0f} s" for loop, age in sorted(self.silent_seconds().items())]
        return (
            f"No sign of life from {', '.join(stuck)}; the limit is "
            f"{self._stuck_after_seconds:.0f} s"
            if stuck
            else None
        )


# A hundred first passes at once would share one interpreter, and each end as late as the last
_FIRST_PASSES_AT_ONCE = 4
# A pass that waits for its cluster for longer than this keeps no other back.
_FIRST_PASS_SECONDS = 2.0


class FirstPasses:
    """The first passes of policies that this replica has just got, whose quotas may be old.

    A few at a time, and everything that can wait waits for them. For any thread.
    """

    def __init__(self, now_seconds: Callable[[], float]) -> None:
        self._now_seconds = now_seconds
        self._changed = threading.Condition()
        self._waiting: frozenset[str] = frozenset()
        self._begun: dict[str, float] = {}

    def wait_for_their_turn(self, keys: Iterable[str]) -> None:
        """These policies wait, and no others."""
        with self._changed:
            self._waiting = frozenset(keys)
            self._changed.notify_all()

    def begin(self, key: str) -> bool:
        """Whether the first pass of this policy may begin now; then it counts until its end."""
        with self._changed:
            if len(self._recent()) >= _FIRST_PASSES_AT_ONCE:
                return False
            self._begun[key] = self._now_seconds()
            return True

    def end(self, key: str) -> None:
        """Its first pass has ended, or there will be none."""
        with self._changed:
            self._begun.pop(key, None)
            self._changed.notify_all()

    def go_first(self, timeout_seconds: float) -> None:
        """Return when none waits or is under way, and after this time anyway."""
        with self._changed:
            self._changed.wait_for(
                lambda: not self._waiting and not self._recent(), timeout_seconds
            )

    def _recent(self) -> list[str]:
        begun_after = self._now_seconds() - _FIRST_PASS_SECONDS
        return [key for key, began in self._begun.items() if began > begun_after]


KINDS = (BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS, QUOTA_OVERRIDES)
# A server that is being replaced may lack a definition that is there. Objects of a definition that
# is deleted are reported as deleted before; this is for a watch that missed it.
_GONE_AFTER_SECONDS = 10.0


@dataclass(slots=True)
class OptionalKind:
    """A kind that a cluster may lack, or that this process may not list.

    `why` it cannot be listed, "" = it can; `missing_since_seconds` Kubernetes does not serve it.
    """

    why: str = ""
    missing_since_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class OperatorContext:
    """One process: its settings, its clock, Kubernetes, and where it reports.

    `report_beside`: passes do not wait until Kubernetes has taken the report of the last one.
    """

    settings: Settings
    clock: Clock
    kubernetes: Kubernetes
    cache: ResourceCache
    reporter: Reporter
    telemetry: Telemetry
    vital_signs: VitalSigns
    open_cluster: OpenCluster
    report_beside: bool = True
    open_reader: OpenReader = PrometheusReader
    exporters: Exporters = field(default_factory=Exporters)
    audit: AuditTrail = field(default_factory=unread_trail)
    tracing: Tracing = OFF
    optional_kinds: dict[ResourceKind, OptionalKind] = field(default_factory=dict)
    first_passes: FirstPasses = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "first_passes", FirstPasses(self.clock.monotonic))

    @property
    def kinds(self) -> tuple[ResourceKind, ...]:
        """The kinds that could be listed the last time, and so can be watched."""
        return (*KINDS, *(kind for kind, known in self.optional_kinds.items() if not known.why))

    @property
    def unlisted_kinds(self) -> tuple[ResourceKind, ...]:
        """The optional kinds that could not be listed the last time."""
        return tuple(kind for kind, known in self.optional_kinds.items() if known.why)

    def why_unlisted(self, kind: ResourceKind) -> str:
        """Why an optional kind cannot be listed; "" = it can, or this process has no use for it."""
        known = self.optional_kinds.get(kind)
        return "" if known is None else known.why

    def relist(self, kind: ResourceKind) -> None:
        """Correct the cache with a full list. For any thread.

        Raises what `list_all` raises; not NotFound and Unauthorized for an optional kind. While
        its list is refused, the cache keeps what was known. A kind that is not served any more has
        no objects.
        """
        start, known = self.cache.begin_list(kind), self.optional_kinds.get(kind)
        try:
            relist(self.cache, self.kubernetes, kind, namespaces=self.settings.namespaces)
        except (NotFound, Unauthorized) as error:
            if known is None:
                raise
            is_missing = isinstance(error, NotFound)
            if is_missing and self._has_gone(known, start.at_seconds):
                self.cache.replace_all(start, ())
            elif not is_missing:
                known.missing_since_seconds = None
            if error.message != known.why:
                known.why = error.message
                log.warning(
                    f"{kind.kind}s cannot be listed. Install their CRD and grant the rights",
                    why=error.message,
                )
            return
        if known is not None and known.why:
            log.info(f"{kind.kind}s can be listed")
        if known is not None:
            known.why, known.missing_since_seconds = "", None

    @staticmethod
    def _has_gone(known: OptionalKind, now_seconds: float) -> bool:
        """Whether Kubernetes has not served it for a while."""
        if known.missing_since_seconds is None:
            known.missing_since_seconds = now_seconds
        return now_seconds - known.missing_since_seconds >= _GONE_AFTER_SECONDS

    def list_is_fresh(self, kind: ResourceKind) -> bool:
        """Whether the objects of this kind are known in full, from a list that is not too old."""
        age_seconds = self.cache.list_age_seconds(kind)
        return age_seconds is not None and age_seconds < self.settings.list_stale_after_seconds

    def policies(self) -> dict[str, JsonObject]:
        """Every known policy by namespace/name."""
        found = self.cache.snapshot(BROKER_BANDWIDTH_POLICIES)
        return {f"{raw['metadata']['namespace']}/{raw['metadata']['name']}": raw for raw in found}
