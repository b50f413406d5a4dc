"""Reads brokers near their limits from their own exporters, between two scrapes of Prometheus.

One thread for each policy that asks for it, and a few that it shares for the calls. Whatever goes
wrong with an exporter is a problem for people; the broker is then read by Prometheus alone.
"""

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import structlog

from tidegate.errors import TidegateError
from tidegate.observe.connections import Renewed, direct_settings
from tidegate.observe.secrets_and_hosts import Secrets, is_allowed
from tidegate.prometheus.direct import (
    DirectExporter,
    DirectSettings,
    Exporters,
    NotRead,
    exporter_host,
)
from tidegate.resources.policy import DirectReadings
from tidegate.settings import PolicyBounds
from tidegate_logic.model import (
    KEY_OF,
    BrokerLimits,
    Direction,
    DirectReading,
    ReadingProblem,
    Readings,
)
from tidegate_logic.reasons import Reason
from tidegate_logic.throttle.input import DIRECT_SECONDS
from tidegate_logic.throttle.nic_status import newest_direct

log = structlog.get_logger(__name__)

_AT_ONCE = 8  # calls; each takes a second or two at the most
_LEAVES_AT = 0.9  # of `abovePercent`: a load that swings around it is read on
_LONGEST_PAUSE_SECONDS = 30.0  # for an exporter that fails again and again


@dataclass
class _Broker:
    """One broker that is read directly. `failures` follow one another."""

    exporter: DirectExporter
    since_seconds: float
    failures: int = 0
    not_before_monotonic_seconds: float = 0.0
    reading: DirectReading | None = None
    problem: str = ""


@dataclass
class _Opened:
    settings: DirectSettings
    brokers: dict[int, _Broker] = field(default_factory=dict)

    def close(self) -> None:
        for broker in list(self.brokers):
            self.leave(broker)

    def leave(self, broker: int) -> None:
        self.brokers.pop(broker).exporter.close()


class DirectWatch:
    """The direct readings of one policy. `limits` None = nothing is read."""

    def __init__(
        self,
        namespace: str,
        spec: DirectReadings,
        *,
        newest: Callable[[], Readings | None],
        read_secrets: Callable[[], Secrets],
        wake: Callable[[], None],
        count: Callable[[str], None],
        bounds: PolicyBounds,
        exporters: Exporters,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits: BrokerLimits | None = None
        self._spec = spec
        self._newest = newest
        self._wake = wake
        self._count = count
        self._bounds = bounds
        self._exporters = exporters
        self._wall = wall
        self._monotonic = monotonic
        self._ended = threading.Event()
        self._found: Mapping[int, DirectReading] = {}
        self._problems: tuple[ReadingProblem, ...] = ()
        self._over: frozenset[tuple[int, Direction]] = frozenset()
        self._renewed = Renewed(
            read=lambda _: read_secrets(),
            opener=lambda secrets, _: _Opened(direct_settings(spec, secrets)),
            close=_Opened.close,
            monotonic=monotonic,
        )
        self._thread = threading.Thread(
            target=self._run, name=f"direct readings of {namespace}", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def ask_to_stop(self) -> None:
        self._ended.set()

    def added_to(self, readings: Readings) -> Readings:
        """The readings with what is known directly; the same object where that is nothing."""
        found, problems = self._found, self._problems
        return readings.with_direct(found, problems) if found or problems else readings

    def _run(self) -> None:
        try:
            with ThreadPoolExecutor(_AT_ONCE, "direct reading") as calls:
                while not self._ended.wait(DIRECT_SECONDS):
                    self.read_once(calls)
        finally:
            self._renewed.close()

    def read_once(self, calls: ThreadPoolExecutor) -> None:
        """Read every broker that is near its limit; nothing is raised."""
        readings, limits = self._newest(), self.limits
        try:
            if readings is None or limits is None:
                self._renewed.close()
                self._found, self._problems, self._over = {}, (), frozenset()
                return
            opened = self._renewed.current()
            self._choose(opened, readings, limits)
            list(
                calls.map(
                    lambda broker: self._read(broker, opened.brokers[broker], readings, limits),
                    list(opened.brokers),
                )
            )
            self._found = {
                broker: one.reading
                for broker, one in opened.brokers.items()
                if one.reading is not None
            }
            self._problems = tuple(
                _problem(f"Broker {broker} is not read directly: {one.problem}.", broker)
                for broker, one in sorted(opened.brokers.items())
                if one.problem
            )
            self._wake_for(readings.with_direct(self._found, ()), limits)
        except TidegateError as error:
            self._found, self._problems = {}, (_problem(error.message, None),)
        except Exception as error:
            log.exception("Direct readings abandoned")
            what = f"A bug in Tidegate, {type(error).__name__}: {error}. It is tried again."
            self._found, self._problems = {}, (_problem(what, None),)

    def _choose(self, opened: _Opened, readings: Readings, limits: BrokerLimits) -> None:
        """Begin with brokers that came near their limits, and leave those that are not any more."""
        above = self._spec.above_percent / 100
        hosts: dict[int, str] = {}
        for broker, exporter in readings.exporters.items():
            share = above * (_LEAVES_AT if broker in opened.brokers else 1.0)
            if _is_above(readings, self._found.get(broker), broker, limits, share):
                hosts[broker] = exporter.instance
        for broker in [one for one in opened.brokers if one not in hosts]:
            opened.leave(broker)
        for broker, instance in hosts.items():
            try:
                host = exporter_host(instance)
            except NotRead:
                host = ""  # its problem comes with the reading
            known = opened.brokers.get(broker)
            if known is not None and known.exporter.host != host:
                opened.leave(broker)
            if broker not in opened.brokers:
                opened.brokers[broker] = _Broker(
                    self._exporters.open(host, opened.settings), self._wall()
                )

    def _read(self, broker: int, one: _Broker, readings: Readings, limits: BrokerLimits) -> None:
        if self._ended.is_set() or self._monotonic() < one.not_before_monotonic_seconds:
            return
        exporter = readings.exporters[broker]
        try:
            allowed_host(exporter.instance, self._spec.port, self._bounds)
            spans = one.exporter.read(exporter, fastest(readings, broker, limits))
        except NotRead as error:
            one.failures += 1
            pause_seconds = min(DIRECT_SECONDS * 2 ** min(one.failures, 8), _LONGEST_PAUSE_SECONDS)
            one.not_before_monotonic_seconds = self._monotonic() + pause_seconds
            one.reading, one.problem = None, str(error)
            self._count("failed")
            return
        if one.reading is None:
            one.since_seconds = self._wall()
        one.failures, one.problem = 0, ""
        one.reading = DirectReading(one.since_seconds, spans)
        self._count("read")

    def _wake_for(self, readings: Readings, limits: BrokerLimits) -> None:
        """Ask for a pass where two readings agree for the first time that a limit is exceeded."""
        over = frozenset(
            (broker, way)
            for broker in readings.direct
            for way in Direction
            if (limit := limits.of(broker).limit(way)) is not None
            and (newest := newest_direct(readings, broker, way))
            and min(span.bytes_per_second for span in newest) > limit
        )
        if over - self._over:
            self._wake()
        self._over = over


def _problem(message: str, broker: int | None) -> ReadingProblem:
    return ReadingProblem(Reason.NOT_READ_DIRECTLY, message, broker)


def _is_above(
    readings: Readings,
    direct: DirectReading | None,
    broker: int,
    limits: BrokerLimits,
    share: float,
) -> bool:
    """Whether it carries more than this share of a limit, by either reading; 0 = it has a limit."""
    for way in Direction:
        limit = limits.of(broker).limit(way)
        if limit is None:
            continue
        spans = (
            *readings.spans(broker, way)[-1:],
            *(direct.spans(way)[-1:] if direct is not None else ()),
        )
        if share == 0 or any(span.bytes_per_second > share * limit for span in spans):
            return True
    return False


def allowed_host(instance: str, port: int, bounds: PolicyBounds) -> str:
    """The host of a broker's exporter. Raises NotRead where the operator may not connect there."""
    host = exporter_host(instance)
    if not is_allowed(host.strip("[]").lower(), str(port), bounds):
        raise NotRead(
            f"its exporter's host {host} is not among those that this operator may connect to "
            "(the chart's operator.allowedHosts)"
        )
    return host


def fastest(readings: Readings, broker: int, limits: BrokerLimits) -> Mapping[Direction, float]:
    """The largest of each NIC's speed, its limit, and what Prometheus saw of it, in bytes/s.

    A direction without a limit is absent.
    """
    mine = limits.of(broker)
    return {
        way: max(
            float(limit),
            float(mine.capacity(way) or 0),
            *(span.bytes_per_second for span in readings.nic.get((broker, way), ())),
        )
        for way in KEY_OF
        if (limit := mine.limit_of_rates(way)) is not None
    }
