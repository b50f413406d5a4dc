"""One question to Prometheus: the only module that knows prometheus-api-client, and adds what it lacks.

That is: limits of time and size, few repeats, warnings that are not lost, samples handed on while they arrive, and failures as
tidegate.errors. Login, authorities and redirects are `session`'s; what is asked and what an answer means is not known here.
"""

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import requests
from prometheus_api_client import PrometheusConnect
from urllib3 import Retry
from urllib3.exceptions import HTTPError

from tidegate.errors import Unreachable
from tidegate.prometheus import failures
from tidegate.prometheus.answer import NotSamples, read_answer
from tidegate.prometheus.arriving_json import NotJson
from tidegate.prometheus.series import Series
from tidegate.prometheus.session import Session
from tidegate.prometheus.settings import PrometheusServer

_PAUSES_SECONDS = (0.2, 0.8)  # before the second and the third attempt
_CHUNK_BYTES = 256 * 1024
_SHOWN_BYTES = 4096  # of a refusal

Item = TypeVar("Item")


class PrometheusClient:
    """A client of one server; it connects with the first question. One thread at a time may use it."""

    def __init__(
        self, server: PrometheusServer, *, monotonic: Callable[[], float] = time.monotonic, pause: Callable[[float], None] = time.sleep
    ) -> None:
        self.address = failures.shown_address(server.url)
        self._server = server
        self._monotonic = monotonic
        self._pause = pause
        self._library: PrometheusConnect | None = None

    def query(self, promql: str, each: Callable[[Series], Item], *, until_monotonic_seconds: float) -> list[Item]:
        """What `each` makes of every series that the instant query gives; the query must give samples over a range.

        Raises Unreachable after some attempts within the time; Incomplete for an answer that is partial, too large or no samples;
        Unauthorized when a login is wanted; NotFound where there is no query API; InvalidResource when the query is refused.
        """
        for pause_seconds in (*_PAUSES_SECONDS, None):
            try:
                return self._once(promql, each, until_monotonic_seconds)
            except Unreachable:
                if pause_seconds is None or self._monotonic() + pause_seconds >= until_monotonic_seconds:
                    raise
            self._pause(pause_seconds)
        raise AssertionError("the last attempt either returns or raises")

    def close(self) -> None:
        """Hang up; the next question connects anew."""
        library, self._library = self._library, None
        if library is not None:
            library.close()

    def _once(self, promql: str, each: Callable[[Series], Item], until: float) -> list[Item]:
        try:
            with self._asked(promql, until) as answer:
                return self._read(answer, each, until)
        except (OSError, HTTPError) as error:  # the errors of requests are OSErrors
            raise failures.broken(error, self.address) from error

    def _asked(self, promql: str, until: float) -> requests.Response:
        left_seconds = until - self._monotonic()
        if left_seconds <= 0:
            raise failures.too_slow(self.address)
        timeouts = (min(self._server.connect_timeout_seconds, left_seconds), min(self._server.read_timeout_seconds, left_seconds))
        # the server, too, gives up when nobody waits any longer
        server_timeout = f"{max(round(left_seconds * 1000), 1)}ms"
        answer: requests.Response = self._connected().custom_query(promql, params={"timeout": server_timeout}, timeout=timeouts)
        return answer

    def _connected(self) -> PrometheusConnect:
        if self._library is None:
            session = Session(self._server)
            try:
                # It would repeat by itself, with pauses of seconds and no end in sight; what is worth repeating is decided here.
                self._library = PrometheusConnect(url=self._server.url.rstrip("/"), session=session, retry=Retry(0, read=False))
            except ValueError as error:
                raise requests.exceptions.InvalidURL(str(error)) from error
        return self._library

    def _read(self, answer: requests.Response, each: Callable[[Series], Item], until: float) -> list[Item]:
        if answer.status_code != 200:
            raise failures.refusal(answer, answer.raw.read1(_SHOWN_BYTES, decode_content=True), self.address)
        try:
            found = read_answer(self._chunks(answer, until), each)
        except (NotJson, NotSamples) as error:
            raise failures.not_samples(error, answer, self.address) from error
        if found.warnings:
            raise failures.partial(found.warnings, self.address)
        return found.items

    def _chunks(self, answer: requests.Response, until: float) -> Iterator[bytes]:
        """The body as it comes. One read gives what is there, so that a server that drips cannot hold us beyond the time."""
        size = 0
        while chunk := answer.raw.read1(_CHUNK_BYTES, decode_content=True):
            size += len(chunk)
            if size > self._server.answer_limit_bytes:
                raise failures.too_large(self._server.answer_limit_bytes, self.address)
            if self._monotonic() > until:
                raise failures.too_slow(self.address)
            yield chunk
