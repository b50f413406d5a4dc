"""A broker's NIC, read from its own node_exporter between two scrapes of Prometheus.

A page is only used where it goes on from the counters that Prometheus read last: another machine's
counters, or false ones, do not. Times are those of this process, halfway between question and
answer, so that Prometheus' clock does not count.
"""

import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf

from prometheus_client.parser import text_string_to_metric_families
from requests import Response, exceptions
from urllib3.exceptions import HTTPError

from tidegate.prometheus.http import Session, innermost_message, shown_address
from tidegate.prometheus.nics import FUTURE_SECONDS
from tidegate.prometheus.series import is_amount
from tidegate.prometheus.settings import PrometheusServer
from tidegate_logic.model import Direction, Exporter, NicSpan

LONGEST_SECONDS = 1.0
LARGEST_BYTES = 1_000_000
KEPT_SPANS = 30
SHARED_SECONDS = 1.2  # policies ask every 2 s: whichever of two is late gets the other's answer
_Counted = tuple[float, Mapping[Direction, Mapping[str, float]]]  # when, and bytes by interface
_COUNTERS = {
    Direction.EGRESS: "node_network_transmit_bytes_total",
    Direction.INGRESS: "node_network_receive_bytes_total",
}
_LINE = re.compile(r"(?m)^node_network_(?:transmit|receive)_bytes_total\{.*$")
# only what the kernel counts of NICs: a whole page costs an exporter fifty times as much
_ONLY_NETWORK = {"collect[]": "netdev"}
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")
_FASTER = 4.0  # than its limit, or than it was: no NIC's load grows by more within a scrape


@dataclass(frozen=True, slots=True)
class DirectSettings:
    """How all exporters are reached: the scheme, certificates and login of `server`."""

    server: PrometheusServer
    port: int = 9100
    path: str = "/metrics"


class NotRead(Exception):
    """An exporter was not read, or what it says is not used; the message says why, for people."""


def exporter_host(instance: str) -> str:
    """The host of the label `instance`. Raises NotRead for what is none."""
    found = _HOST.fullmatch(instance)
    if found is None:
        raise NotRead(f"the label instance of its series, {instance!r}, is not host:port")
    return found[1]


class Exporters:
    """The exporters that this process reads. Policies with the same address and login share one."""

    def __init__(
        self,
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._open: list[_Shared] = []

    def open(self, host: str, settings: DirectSettings) -> "DirectExporter":
        """The exporter on this host; connected to with the first reading."""
        scheme = settings.server.url.partition(":")[0]
        url = f"{scheme}://{host}:{settings.port}{settings.path}"
        server = replace(settings.server, url=url, proxy=None)
        with self._lock:
            shared = next((one for one in self._open if one.server == server), None)
            if shared is None:
                shared = _Shared(server, self._wall, self._monotonic)
                self._open.append(shared)
            shared.readers += 1
        return DirectExporter(host, shared, self._leave)

    def _leave(self, shared: "_Shared") -> None:
        with self._lock:
            shared.readers -= 1
            if shared.readers:
                return
            self._open.remove(shared)
        shared.close()


class DirectExporter:
    """One broker's exporter, with what it said lately. One thread at a time may use it."""

    def __init__(self, host: str, shared: "_Shared", leave: Callable[["_Shared"], None]) -> None:
        self.host = host
        self._shared = shared
        self._leave: Callable[[_Shared], None] | None = leave
        self._samples: list[_Counted] = []

    def close(self) -> None:
        """Hang up where no one else reads it. A second call does nothing."""
        leave, self._leave = self._leave, None
        if leave is not None:
            leave(self._shared)

    def forget(self) -> None:
        """Begin again: nothing of before is compared with what comes."""
        self._samples.clear()

    def read(
        self, scraped: Exporter, fastest: Mapping[Direction, float]
    ) -> Mapping[Direction, tuple[NicSpan, ...]]:
        """Ask, unless another policy just has; the spans so far, oldest first.

        `scraped` is what Prometheus read last, `fastest` how fast the NIC can be, in bytes/s.
        Raises NotRead, after which the next sample is compared with none before it.
        """
        try:
            at_seconds, counters = self._shared.newest(scraped)
            self._refuse_another(at_seconds, counters, scraped, fastest)
        except NotRead:
            self.forget()
            raise
        mine = {
            way: {name: counters[way][name] for name in named}
            for way, named in scraped.counters.items()
        }
        self._samples = [*self._samples[-KEPT_SPANS:], (at_seconds, mine)]
        return {way: tuple(self._spans(way)) for way in scraped.counters}

    def _refuse_another(
        self,
        at_seconds: float,
        counters: Mapping[Direction, Mapping[str, float]],
        scraped: Exporter,
        fastest: Mapping[Direction, float],
    ) -> None:
        """Raise NotRead where the page cannot be of the machine that Prometheus scraped."""
        since_seconds = max(0.0, at_seconds - scraped.at_seconds) + FUTURE_SECONDS
        for way, before in scraped.counters.items():
            if lacking := sorted(before.keys() - counters.get(way, {}).keys()):
                raise NotRead(f"{self._shared.shown} has no interface {', '.join(lacking)}")
            for name, was in before.items():
                grown = counters[way][name] - was
                if not 0 <= grown <= _FASTER * fastest.get(way, inf) * since_seconds:
                    raise NotRead(
                        f"{self._shared.shown} does not go on from what Prometheus read of "
                        f"{name}, so it may be another machine's, or it has just started again"
                    )

    def _spans(self, way: Direction) -> list[NicSpan]:
        spans: list[NicSpan] = []
        for (before_at, before), (at, now) in pairwise(self._samples):
            was, is_now = before.get(way, {}), now.get(way, {})
            seconds = at - before_at
            if was.keys() != is_now.keys() or seconds <= 0:
                continue
            rate = sum(is_now[name] - was[name] for name in is_now) / seconds
            if is_amount(rate):
                spans.append(NicSpan(at, seconds, rate))
        return spans


class _Shared:
    """The session with one exporter, for all policies that read it, from any thread."""

    def __init__(
        self, server: PrometheusServer, wall: Callable[[], float], monotonic: Callable[[], float]
    ) -> None:
        self.server = server
        self.readers = 0
        self.shown = f"the exporter at {shown_address(server.url)}"
        self._wall = wall
        self._monotonic = monotonic
        self._session = Session(server)
        self._lock = threading.Lock()
        self._answer: _Counted | NotRead = NotRead(f"{self.shown} was not asked yet")
        self._answered_monotonic_seconds = -inf

    def close(self) -> None:
        self._session.close()

    def newest(self, scraped: Exporter) -> _Counted:
        """What it says now, or said to another policy a moment ago. Raises NotRead."""
        with self._lock:
            age_seconds = self._monotonic() - self._answered_monotonic_seconds
            if (
                self.readers == 1
                or age_seconds > SHARED_SECONDS
                or _is_before(self._answer, scraped)
            ):
                try:
                    self._answer = self._ask()
                except NotRead as error:
                    self._answer = error
                self._answered_monotonic_seconds = self._monotonic()
            answer = self._answer
        if isinstance(answer, NotRead):
            raise NotRead(str(answer))
        return answer

    def _ask(self) -> _Counted:
        asked_seconds, began = self._wall(), self._monotonic()
        try:
            with self._session.get(
                self.server.url, params=_ONLY_NETWORK, timeout=LONGEST_SECONDS
            ) as answer:
                text = self._body(answer, began + LONGEST_SECONDS)
        except exceptions.SSLError as error:
            why = innermost_message(error)
            raise NotRead(f"the encrypted connection to {self.shown} failed: {why}") from None
        except exceptions.Timeout:
            raise self._too_slow() from None
        except (OSError, HTTPError) as error:  # the errors of requests are OSErrors
            raise NotRead(f"{self.shown} did not answer: {innermost_message(error)}") from None
        took_seconds = self._monotonic() - began
        return asked_seconds + took_seconds / 2, _counters(text)

    def _body(self, answer: Response, until: float) -> str:
        if answer.status_code != 200:
            raise NotRead(f"{self.shown} answered {answer.status_code}")
        body = b""
        while piece := answer.raw.read1(64 * 1024, decode_content=True):
            body += piece
            if len(body) > LARGEST_BYTES:
                raise NotRead(f"the answer of {self.shown} is larger than 1 MB")
            if self._monotonic() > until:
                raise self._too_slow()
        return body.decode("utf-8", "replace")

    def _too_slow(self) -> NotRead:
        return NotRead(f"{self.shown} did not answer within {LONGEST_SECONDS:g} s")


def _is_before(answer: _Counted | NotRead, scraped: Exporter) -> bool:
    """Whether Prometheus may have scraped after this answer: some counter is further there."""
    return not isinstance(answer, NotRead) and any(
        answer[1][way].get(name, inf) < was
        for way, before in scraped.counters.items()
        for name, was in before.items()
    )


def _counters(text: str) -> Mapping[Direction, Mapping[str, float]]:
    """The bytes of every interface. Raises NotRead where the page cannot be read."""
    lines = "\n".join(_LINE.findall(text)) + "\n"
    found: dict[str, dict[str, float]] = {}
    try:
        for family in text_string_to_metric_families(lines):
            for sample in family.samples:
                if is_amount(sample.value):
                    found.setdefault(sample.name, {})[sample.labels.get("device", "")] = (
                        sample.value
                    )
    except (ValueError, IndexError, KeyError):
        raise NotRead("the exporter's answer is not what an exporter shows") from None
    return {way: found.get(name, {}) for way, name in _COUNTERS.items()}
