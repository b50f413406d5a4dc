"""One question to a server and its answer: slots, time limits, repeats with pauses, and a bound on the answer's size.

What is asked and what an answer means is the business of each way of reading; here is known only which failures are worth another attempt.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import requests
from urllib3.exceptions import HTTPError

from tidegate.errors import TidegateError, Unreachable
from tidegate.prometheus.client import shown_address
from tidegate.rollup.transport import failures
from tidegate.rollup.transport.history_session import HistorySession
from tidegate.rollup.transport.request_slots import NoSlot, RequestSlots
from tidegate.rollup.transport.settings import HistorySettings

_WORTH_REPEATING = (Unreachable, failures.Damaged)
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.25, 10.0
_PIECE_BYTES = 256 * 1024
_SHOWN_BYTES = 4096

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Question:
    """What to POST, and to which path below the server's address."""

    path: str
    body: bytes | Mapping[str, str]
    headers: Mapping[str, str]


class Answer:
    """An answer with status 200 whose body is still to be read, once, as a whole or in pieces."""

    def __init__(
        self, response: requests.Response, *, limit_bytes: int, until: float, monotonic: Callable[[], float], address: str
    ) -> None:
        self.kind = response.headers.get("Content-Type", "")
        self.packed = response.headers.get("Content-Encoding", "").lower()
        self.address = address
        self.limit_bytes = limit_bytes
        self._response = response
        self._until = until
        self._monotonic = monotonic

    def pieces(self) -> Iterator[bytes]:
        """The body as it comes; raises what urllib3 does when the connection ends before the body.

        One read gives what is there, so that a server that drips cannot hold us beyond the time.
        """
        received = 0
        while piece := self._response.raw.read1(_PIECE_BYTES, decode_content=self.packed in ("gzip", "deflate")):
            received += len(piece)
            if received > self.limit_bytes:
                raise failures.too_large(self.limit_bytes, self.address)
            if self._monotonic() > self._until:
                raise failures.too_slow(self.address)
            yield piece

    def whole(self) -> bytes:
        """All of the body."""
        return b"".join(self.pieces())

    def other_content(self, wanted: str) -> TidegateError:
        """The error for an answer of another kind than wanted."""
        return failures.other_content(self.kind, next(self.pieces(), b"")[:_SHOWN_BYTES], wanted=wanted, address=self.address)


class Exchange:
    """Asks one server. It connects with the first question; one thread at a time may use it."""

    def __init__(
        self, settings: HistorySettings, *, monotonic: Callable[[], float] = time.monotonic, pause: Callable[[float], None] = time.sleep
    ) -> None:
        self.address = shown_address(settings.server.url)
        self._settings = settings
        self._monotonic = monotonic
        self._pause = pause
        self._session: HistorySession | None = None

    def deadline(self) -> float:
        """When whoever begins now must be done with all questions, on the monotonic clock."""
        return self._monotonic() + self._settings.deadline_seconds

    def ask(self, question: Question, read: Callable[[Answer], Result], *, until: float) -> Result:
        """What `read` makes of the answer; `until` is the deadline for all attempts.

        Raises what `read` raises; Unreachable after all attempts or when the time is over; Incomplete for an answer that is damaged, of
        another kind or too large; Unauthorized, NotFound or InvalidResource when the server says so.
        """
        for attempt in range(self._settings.attempts):
            try:
                return self._once(question, read, until)
            except _WORTH_REPEATING:
                pause_seconds = _pause_seconds(attempt)
                if attempt + 1 == self._settings.attempts or self._monotonic() + pause_seconds >= until:
                    raise
            self._pause(pause_seconds)
        raise AssertionError("the last attempt either returns or raises")

    def close(self) -> None:
        """Hang up; the next question connects anew."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _once(self, question: Question, read: Callable[[Answer], Result], until: float) -> Result:
        try:
            slots = RequestSlots(self.address, self._settings.parallel_requests, monotonic=self._monotonic)
            with slots.taken(until_monotonic_seconds=until):
                until = min(until, self._monotonic() + self._settings.request_timeout_seconds)
                with self._posted(question, until) as response:
                    return read(self._answer(response, until))
        except NoSlot:
            raise failures.no_slot(self.address, self._settings.parallel_requests) from None
        except (OSError, HTTPError) as error:  # the errors of requests are OSErrors
            raise failures.broken(error, self.address) from error

    def _posted(self, question: Question, until: float) -> requests.Response:
        left_seconds = until - self._monotonic()
        if left_seconds <= 0:
            raise failures.too_slow(self.address)
        timeouts = (
            min(self._settings.server.connect_timeout_seconds, left_seconds),
            min(self._settings.read_timeout_seconds, left_seconds),
        )
        if self._session is None:
            self._session = HistorySession(self._settings)
        url = self._settings.server.url.rstrip("/") + question.path
        return self._session.post(url, data=question.body, headers=dict(question.headers), timeout=timeouts)

    def _answer(self, response: requests.Response, until: float) -> Answer:
        if response.status_code != 200:
            raise failures.refusal(response, response.raw.read1(_SHOWN_BYTES, decode_content=True), self.address)
        limit_bytes = self._settings.answer_limit_bytes
        return Answer(response, limit_bytes=limit_bytes, until=until, monotonic=self._monotonic, address=self.address)


def _pause_seconds(attempt: int) -> float:
    """Twice as long each time, and never the same for two: those who failed together would ask together again."""
    longest: float = min(_FIRST_PAUSE_SECONDS * 2.0**attempt, _LONGEST_PAUSE_SECONDS)
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - nothing secret
