"""Reads one policy's metrics beside its passes, which take the newest reading and do not wait.

A Prometheus that is slow or away must not delay a quota that follows its leaders. The core judges
whether a reading is fresh enough, from the times of its samples. One thread, as long as the policy
names metrics.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import structlog

from tidegate.errors import TidegateError
from tidegate.kube.api import Kubernetes
from tidegate.observe.connections import Renewed, metrics_settings
from tidegate.observe.direct_watch import DirectWatch
from tidegate.observe.secrets_and_hosts import Secrets, read_secrets
from tidegate.prometheus.direct import Exporters
from tidegate.prometheus.reader import PrometheusReader
from tidegate.prometheus.settings import MetricsSettings
from tidegate.resources.policy import MetricsSource
from tidegate.settings import PolicyBounds
from tidegate_logic.model import BrokerLimits, ReadingProblem, Readings
from tidegate_logic.reasons import Reason
from tidegate_logic.throttle.nic_status import seconds_until_next_reading

log = structlog.get_logger(__name__)

# More passes would be of no use: NICs are judged over several scrapes, and each pass reads every
# quota. But a pass with another cause needs a fresh reading, so two fit in the time until stale.
SHORTEST_INTERVAL_SECONDS = 5.0
_BEAT_SECONDS = 30.0  # scrapes may lie minutes apart, and a thread that rests is not stuck
_STOP_SECONDS = 1.0


class Reader(Protocol):
    """Reads once; see `PrometheusReader`."""

    def read(self, brokers: Collection[int]) -> Readings: ...

    def close(self) -> None: ...


OpenReader = Callable[[MetricsSettings], Reader]


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What a watch needs. `wake` is called after each reading; `beat`, `forget`: signs of life.

    `exporters` are brokers' own, which the policies of a process share; `count_direct` counts the
    readings of them: `read` or `failed`.
    """

    kubernetes: Kubernetes
    wake: Callable[[], None]
    beat: Callable[[], None]
    forget: Callable[[], None]
    opener: OpenReader = PrometheusReader
    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    bounds: PolicyBounds = field(default_factory=PolicyBounds)
    exporters: Exporters = field(default_factory=Exporters)
    count_direct: Callable[[str], None] = lambda _: None


class MetricsWatch:
    """The newest reading of one policy. `latest` and `close` belong to the policy's loop."""

    def __init__(self, namespace: str, dependencies: Dependencies) -> None:
        self._namespace = namespace
        self._dependencies = dependencies
        self._round: _Round | None = None
        self._sign = _SignOfLife(dependencies)

    def latest(
        self,
        spec: MetricsSource | None,
        brokers: Collection[int] | None,
        limits: BrokerLimits | None = None,
        *,
        background: bool = False,
    ) -> Readings | None:
        """The newest reading by these settings; None = not measured, or none has come yet.

        The next reading is of these brokers. `brokers` None = not known now: then those of last
        time are asked for. Near their `limits`, they are also read directly where the spec asks
        for it; None = no reading is needed sooner than Prometheus has it. `background` = with the
        bytes of tiered storage.
        """
        asked = spec, background
        if self._round is not None and (self._round.asked != asked or self._round.has_died()):
            self._round.ask_to_stop()
            self._round = None
        if self._round is None and spec is not None and brokers:
            self._round = _Round(
                self._namespace,
                spec,
                frozenset(brokers),
                self._dependencies,
                self._sign,
                background=background,
            )
            self._round.start()
        if self._round is None:
            return None
        if brokers:
            self._round.brokers = frozenset(brokers)
        return self._round.latest(limits)

    def close(self) -> None:
        """End the thread; a reading under way is waited for a moment only, and thrown away."""
        ended, self._round = self._round, None
        if ended is not None:
            ended.ask_to_stop()
            ended.wait(_STOP_SECONDS)


class _SignOfLife:
    """The sign of life of the newest round: one before it, which ends later, does not end it."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies
        self._lock = threading.Lock()
        self._newest: _Round | None = None

    def begin(self, one: "_Round") -> None:
        with self._lock:
            self._newest = one
            self._dependencies.beat()

    def beat(self, one: "_Round") -> None:
        with self._lock:
            if one is self._newest:
                self._dependencies.beat()

    def end(self, one: "_Round") -> None:
        with self._lock:
            if one is self._newest:
                self._dependencies.forget()


class _Round:
    """Readings by one set of settings, in a thread of its own."""

    def __init__(
        self,
        namespace: str,
        spec: MetricsSource,
        brokers: frozenset[int],
        dependencies: Dependencies,
        sign: _SignOfLife,
        *,
        background: bool,
    ) -> None:
        self.spec = spec
        self.brokers = brokers
        self.newest: Readings | None = None
        self._namespace = namespace
        self._dependencies = dependencies
        self._sign = sign
        self._ended = threading.Event()
        self.asked = spec, background
        self._source = _Source(namespace, spec, dependencies, background=background)
        self._direct: DirectWatch | None = None
        if spec.direct is not None and spec.direct.enabled:
            self._direct = DirectWatch(
                namespace,
                spec.direct,
                newest=lambda: self.newest,
                read_secrets=self._secrets_of_direct,
                wake=dependencies.wake,
                count=dependencies.count_direct,
                bounds=dependencies.bounds,
                exporters=dependencies.exporters,
            )
        self._thread = threading.Thread(
            target=self._run, name=f"metrics of {namespace}", daemon=True
        )

    def start(self) -> None:
        self._sign.begin(self)
        self._thread.start()
        if self._direct is not None:
            self._direct.start()

    def latest(self, limits: BrokerLimits | None) -> Readings | None:
        """The newest reading, with what exporters said themselves."""
        newest = self.newest
        if self._direct is None or newest is None:
            return newest
        self._direct.limits = limits
        return self._direct.added_to(newest)

    def has_died(self) -> bool:
        """Whether its thread ended unasked: a bug, after which a new one goes on."""
        return not self._thread.is_alive() and not self._ended.is_set()

    def ask_to_stop(self) -> None:
        self._ended.set()
        if self._direct is not None:
            self._direct.ask_to_stop()

    def wait(self, timeout_seconds: float) -> None:
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        shortest_seconds = min(SHORTEST_INTERVAL_SECONDS, self.spec.stale_after_seconds / 2)
        try:
            while not self._ended.is_set():
                self._sign.beat(self)
                self.newest = readings = self._read()
                self._dependencies.wake()
                now_seconds = self._dependencies.wall()
                self._rest(
                    seconds_until_next_reading(
                        readings, shortest_seconds=shortest_seconds, now_seconds=now_seconds
                    )
                )
        finally:
            self._source.close()
            self._sign.end(self)

    def _secrets_of_direct(self) -> Secrets:
        direct = self.spec.direct
        return read_secrets(
            self._dependencies.kubernetes,
            self._namespace,
            frozenset() if direct is None else direct.secret_names,
            bounds=self._dependencies.bounds,
        )

    def _rest(self, seconds: float) -> None:
        while seconds > 0 and not self._ended.wait(min(seconds, _BEAT_SECONDS)):
            self._sign.beat(self)
            seconds -= _BEAT_SECONDS

    def _read(self) -> Readings:
        scrape_seconds = float(self.spec.scrape_interval_seconds)
        try:
            return self._source.reader().read(self.brokers)
        except TidegateError as error:
            problem = ReadingProblem(error.reason, error.message)
        except Exception as error:
            log.exception("Reading abandoned", namespace=self._namespace)
            problem = ReadingProblem(
                Reason.INTERNAL_ERROR,
                f"A bug in Tidegate, {type(error).__name__}: {error}. Tidegate retries.",
            )
        return Readings(self._dependencies.wall(), scrape_seconds, problems=(problem,))


class _Source:
    """The reader, made again when a Secret changed. Belongs to the round's thread."""

    def __init__(
        self, namespace: str, spec: MetricsSource, dependencies: Dependencies, *, background: bool
    ) -> None:
        self._namespace = namespace
        self._spec = spec
        self._background = background
        self._dependencies = dependencies
        self._renewed = Renewed(
            read=self._secrets, opener=self._open, close=_close, monotonic=dependencies.monotonic
        )

    def reader(self) -> Reader:
        """Raises a TidegateError when a Secret cannot be read or lacks a key."""
        return self._renewed.current()

    def close(self) -> None:
        self._renewed.close()

    def _secrets(self, _before: object) -> Secrets:
        return read_secrets(
            self._dependencies.kubernetes,
            self._namespace,
            self._spec.prometheus.secret_names,
            bounds=self._dependencies.bounds,
        )

    def _open(self, secrets: Secrets, _folder: Path) -> Reader:
        settings = metrics_settings(self._spec, secrets)
        return self._dependencies.opener(replace(settings, background=self._background))


def _close(reader: Reader) -> None:
    with contextlib.suppress(OSError):
        reader.close()
