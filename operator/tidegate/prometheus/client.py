"""One query to Prometheus within limits of time and size.

Small answers come through prometheus-api-client, whole; of clients, of whom there may be 50,000,
series are passed on as they arrive. Both go through one session, which keeps the limits. There are
few repeats, and warnings are not lost. Failures are raised as tidegate.errors.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import urlencode

import requests
from prometheus_api_client.prometheus_connect import PrometheusConnect
from requests import exceptions
from urllib3.exceptions import HTTPError, ProtocolError
from urllib3.util import Retry

from tidegate.errors import Unreachable
from tidegate.prometheus.answer import (
    EndsEarly,
    NotJson,
    NotSamples,
    read_answer,
    series_of,
    warnings_of,
)
from tidegate.prometheus.http import (
    BrokenOff,
    Failures,
    Session,
    body_kind,
    refused_because,
    shown_address,
)
from tidegate.prometheus.series import Series
from tidegate.prometheus.settings import PrometheusServer
from tidegate.retry import retry

MEANWHILE = "Until this is fixed, nothing is throttled further or restored because of load."


def failures_of(address: str) -> Failures:
    """What goes wrong with readings: `tidegate_logic` acts on no load that it cannot see."""
    return Failures(
        address,
        MEANWHILE,
        setting="metrics.prometheus.url",
        login="the login in metrics.prometheus.authentication",
        login_text="the Secret",
        certificates="metrics.prometheus.url and tls.trustedCertificates",
        files="tls.trustedCertificates",
        fewer="Narrow the queries, for instance to one Kafka cluster.",
    )


_PIECE_BYTES = 256 * 1024
_SMALL_BYTES = 32 * 1024 * 1024  # at most, of an answer that is read whole
# A proxy may refuse a longer address. Shorter questions are no POST, for which some gateways want
# another right.
_LONGEST_QUERY = 2048


class BoundedSession(Session):
    """A session whose answers end in time, within the server's limits of size, and say no warning.

    The bounds are in `send`, because prometheus-api-client mounts an adapter of its own, and its
    timeout is that of each wait for bytes. Of an answer that is asked for with `stream` the body is
    left to `pieces`. Raises tidegate.errors, and errors of requests where nothing answers.
    """

    def __init__(self, server: PrometheusServer, monotonic: Callable[[], float]) -> None:
        super().__init__(server)
        self.until_monotonic_seconds = math.inf  # when the answers of now must be whole
        self._server = server
        self._failures = failures_of(shown_address(server.url))
        self._monotonic = monotonic

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        left_seconds = self.until_monotonic_seconds - self._monotonic()
        if left_seconds <= 0:
            raise self._failures.too_slow()
        kwargs["timeout"] = (
            min(self._server.connect_timeout_seconds, left_seconds),
            min(self._server.read_timeout_seconds, left_seconds),
        )
        answer = super().send(_with_short_address(request), **kwargs)
        if answer.status_code != 200:
            with answer:
                said = refused_because(
                    answer,
                    until_monotonic_seconds=self.until_monotonic_seconds,
                    monotonic=self._monotonic,
                )
            raise self._failures.refusal(answer, said)
        if not kwargs.get("stream"):
            with answer, self.usable(answer) as pieces:
                self._read_whole(answer, pieces)
        return answer

    @contextmanager
    def usable(self, answer: requests.Response) -> Iterator["_Pieces"]:
        """The pieces of a body; what is wrong with them is raised as tidegate.errors."""
        pieces = _Pieces(answer, self._server, self.until_monotonic_seconds, self._monotonic)
        try:
            yield pieces
        except (EndsEarly, ProtocolError):
            raise self._failures.broken_off(f"it ends after {pieces.size_bytes} bytes") from None
        except (NotJson, NotSamples) as error:
            raise self._failures.other_content(body_kind(answer), "samples", error) from error

    def _read_whole(self, answer: requests.Response, pieces: "_Pieces") -> None:
        """Read the body, so that the library finds one that has what it looks for."""
        pieces.limit_bytes = min(pieces.limit_bytes, _SMALL_BYTES)
        content = b"".join(pieces)
        if warnings := warnings_of(content):
            raise self._failures.partial("; ".join(warnings))
        answer._content = content
        answer.encoding = "utf-8"  # JSON's, whatever a proxy has made of the header


def _with_short_address(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """With a long question in a form; the library would put it into the address even of a POST."""
    address, _, question = (request.url or "").partition("?")
    if request.method == "GET" and len(question) > _LONGEST_QUERY:
        request.method, request.url = "POST", address
        request.headers["Content-Type"] = "application/x-www-form-urlencoded"
        request.prepare_body(question, None)
    return request


class _Pieces:
    """A body as it comes: one read returns what is there, so that a slow server cannot keep us
    beyond the time.
    """

    def __init__(
        self,
        answer: requests.Response,
        server: PrometheusServer,
        until_monotonic_seconds: float,
        monotonic: Callable[[], float],
    ) -> None:
        self.size_bytes = 0
        self.limit_bytes = server.answer_limit_bytes
        self._answer = answer
        self._failures = failures_of(shown_address(server.url))
        self._until = until_monotonic_seconds
        self._monotonic = monotonic

    def __iter__(self) -> Iterator[bytes]:
        while piece := self._answer.raw.read1(_PIECE_BYTES, decode_content=True):
            self.size_bytes += len(piece)
            if self.size_bytes > self.limit_bytes:
                raise self._failures.too_large(self.limit_bytes)
            if self._monotonic() > self._until:
                raise self._failures.too_slow()
            yield piece


class BoundedConnect(PrometheusConnect):
    """prometheus-api-client over a bounded session, and without its own repeats: no deadline would
    bound their pauses. Raises InvalidURL for what is no address.
    """

    def __init__(self, server: PrometheusServer, monotonic: Callable[[], float]) -> None:
        self.session = BoundedSession(server, monotonic)
        try:
            super().__init__(
                server.url.rstrip("/"), session=self.session, retry=Retry(0, read=False)
            )
        except ValueError as error:
            raise exceptions.InvalidURL(str(error)) from error


_PAUSES_SECONDS = (0.2, 0.8)  # before the second and the third attempt
_QUERY_PATH = "/api/v1/query"

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class PrometheusClient:
    """A client of one server, connected at the first query. One thread at a time may use it.

    Its questions are instant queries. They raise Unreachable after some attempts within the time;
    Incomplete for an answer that is partial, too large or not samples; Unauthorized when a login is
    needed; NotFound where there is no query API; InvalidResource when the query is refused.
    `at_seconds` is the moment they are asked for, since the epoch; None = now, by the server's
    clock.
    """

    def __init__(
        self,
        server: PrometheusServer,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.address = shown_address(server.url)
        self._failures = failures_of(self.address)
        self._url = server.url.rstrip("/")
        self._server = server
        self._monotonic = monotonic
        self._pause = pause
        self._connect: BoundedConnect | None = None
        self._dated: tuple[float, float] | None = None  # its clock, and ours without a date

    @property
    def server_seconds(self) -> float | None:
        """The server's clock now, by the date of its last answer; None = no answer had one."""
        if self._dated is None:
            return None
        date_seconds, monotonic_seconds = self._dated
        return date_seconds + self._monotonic() - monotonic_seconds

    def query(
        self, promql: str, *, until_monotonic_seconds: float, at_seconds: int | None = None
    ) -> list[Series]:
        """The series of a small answer, which is held whole: those that have a sample.

        Of a selector with a range they have its samples with their own times, of anything else one
        with the time of asking.
        """

        def once(connect: BoundedConnect, asked: dict[str, str]) -> list[Series]:
            result = connect.custom_query(promql, params=asked)
            try:
                return [one for one in map(series_of, result) if one.samples]
            except NotSamples as error:
                raise self._failures.other_content("JSON", "samples", error) from error

        return self._asked(once, until_monotonic_seconds, at_seconds)

    def stream(
        self,
        promql: str,
        each: Callable[[Series], Item],
        *,
        until_monotonic_seconds: float,
        at_seconds: int | None = None,
    ) -> list[Item]:
        """What `each` makes of every series of samples over a range, as they arrive."""

        def once(connect: BoundedConnect, asked: dict[str, str]) -> list[Item]:
            form, session = urlencode({"query": promql, **asked}), connect.session
            with (
                session.get(f"{self._url}{_QUERY_PATH}?{form}", stream=True) as answer,
                session.usable(answer) as pieces,
            ):
                found = read_answer(iter(pieces), each)
            if found.warnings:
                raise self._failures.partial("; ".join(found.warnings))
            return found.items

        return self._asked(once, until_monotonic_seconds, at_seconds)

    def close(self) -> None:
        """Hang up. The next query connects again."""
        connect, self._connect = self._connect, None
        if connect is not None:
            connect.close()

    def _asked(
        self,
        once: Callable[[BoundedConnect, dict[str, str]], Answer],
        until: float,
        at_seconds: int | None,
    ) -> Answer:
        def attempt() -> Answer:
            # the server gives up as well when we no longer wait
            left_milliseconds = max(round((until - self._monotonic()) * 1000), 1)
            parameters = {"timeout": f"{left_milliseconds}ms"}
            if at_seconds is not None:
                parameters["time"] = str(at_seconds)
            try:
                if self._connect is None:
                    self._connect = BoundedConnect(self._server, self._monotonic)
                    self._connect.session.hooks["response"].append(self._note_date)
                self._connect.session.until_monotonic_seconds = until
                return once(self._connect, parameters)
            except (OSError, HTTPError) as error:  # the errors of requests are OSErrors
                raise self._failures.broken(error) from error

        return retry(
            attempt,
            attempts=1 + len(_PAUSES_SECONDS),
            is_worth_repeating=lambda error: isinstance(error, Unreachable | BrokenOff),
            pause_seconds=lambda number, _: _PAUSES_SECONDS[min(number, len(_PAUSES_SECONDS)) - 1],
            until_monotonic_seconds=until,
            monotonic=self._monotonic,
            sleep=self._pause,
        )

    def _note_date(self, answer: requests.Response, **_: Any) -> None:
        with suppress(KeyError, TypeError, ValueError):  # none, or one that cannot be read
            date = parsedate_to_datetime(answer.headers["Date"])
            # whole seconds, so half a second is missing on the mean
            self._dated = date.timestamp() + 0.5, self._monotonic()
