"""One request to a server and its answer: slots, time limits, retries, and a bound on its size.

Each way of reading makes its own requests and reads its own answers. This module decides only which
failures are worth another attempt.
"""

import fcntl
import hashlib
import os
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import requests
from requests.auth import AuthBase
from urllib3.exceptions import HTTPError

from tidegate.errors import TidegateError, Unreachable
from tidegate.prometheus.http import (
    BrokenOff,
    Failures,
    Session,
    body_kind,
    refused_because,
    shown_address,
)
from tidegate.prometheus.settings import PrometheusServer
from tidegate.retry import retry

# Slots bound the requests to one server over all processes of this machine, because Spark's workers
# share no memory. A slot is a file, locked while a request runs; the kernel unlocks it when a
# worker dies. Executors on other machines have their own: divide the server's bound among them.


_LONGEST_SLOT_PAUSE_SECONDS = 0.05


class NoSlot(Exception):
    """All slots stayed taken until the deadline."""


class RequestSlots:
    """`count` slots for the server with this address. Any thread or process may take one."""

    def __init__(
        self, address: str, count: int, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        name = hashlib.sha256(address.encode()).hexdigest()[:16]
        self._paths = [_directory() / f"{name}-{index}" for index in range(count)]
        self._monotonic = monotonic

    @contextmanager
    def taken(self, *, until_monotonic_seconds: float) -> Iterator[None]:
        """Hold one slot; raises NoSlot when none gets free in time.

        Raises OSError when the folder for temporary files cannot be used.
        """
        slot = self._take(until_monotonic_seconds)
        try:
            yield
        finally:
            os.close(slot)

    def _take(self, until: float) -> int:
        while True:
            for path in random.sample(self._paths, len(self._paths)):
                if (slot := _lock(path)) is not None:
                    return slot
            if self._monotonic() >= until:
                raise NoSlot
            time.sleep(random.uniform(0.2, 1.0) * _LONGEST_SLOT_PAUSE_SECONDS)  # noqa: S311 - so that those who wait do not wake in step


def _lock(path: Path) -> int | None:
    """The file, opened and locked; None when someone else has it locked."""
    slot = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(slot)
        return None
    return slot


def _directory() -> Path:
    """Return a folder of this user's own, so that no other user can lock or redirect the slots."""
    path = Path(tempfile.gettempdir()) / f"tidegate-requests-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    if path.is_symlink() or path.stat().st_uid != os.getuid():
        raise PermissionError(f"{path} belongs to somebody else")
    return path


_NO_USAGE = "No usage is written for what was asked; a later run reads it again."


def failures_of(address: str) -> Failures:
    """What goes wrong with reading history."""
    return Failures(
        address,
        _NO_USAGE,
        setting="the address",
        login="the login",
        login_text="it",
        certificates="the address and the certificates",
        files=(
            "the paths of token and certificates, and that there is a folder for temporary files"
        ),
        fewer="Ask for a shorter time range or fewer series.",
    )


# `question_timeout_seconds` of the server is for the control loop's readings; history takes longer.


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """Files in PEM with which we show who we are."""

    certificate_file: str
    key_file: str


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """Settings of all ways of reading.

    `token_file` takes precedence over a token in `server.login` and is read again when it changes.
    `headers` go with every request, such as Mimir's X-Scope-OrgID. `parallel_requests` bounds those
    of all processes on this machine to this server together (Prometheus allows 10 of remote read by
    default). `request_timeout_seconds` bounds one attempt, `deadline_seconds` one `read` with all
    attempts and waits.
    """

    server: PrometheusServer
    token_file: str | None = None
    client_certificate: ClientCertificate | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    replica_labels: tuple[str, ...] = ()
    external_labels: tuple[str, ...] = ()
    scrape_interval_ms: int = 15_000
    parallel_requests: int = 4
    attempts: int = 5
    read_timeout_seconds: float = 60.0
    request_timeout_seconds: float = 120.0
    deadline_seconds: float = 600.0
    answer_limit_bytes: int = 512 * 1024 * 1024


class HistorySession(Session):
    """A session for one server: no environment settings, no compression, no redirects."""

    def __init__(self, settings: HistorySettings) -> None:
        super().__init__(settings.server)
        self.headers.update(settings.headers)
        if settings.token_file is not None:
            self.auth = _TokenFile(Path(settings.token_file))
        if settings.client_certificate is not None:
            self.cert = (
                settings.client_certificate.certificate_file,
                settings.client_certificate.key_file,
            )


class _TokenFile(AuthBase):
    """A token file, read again when it changes: Kubernetes renews it before the token expires."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._token = ""

    def __call__(self, r: requests.PreparedRequest) -> requests.PreparedRequest:
        r.headers["Authorization"] = f"Bearer {self._current()}"
        return r

    def _current(self) -> str:
        found = os.stat(self._path)
        seen = found.st_ino, found.st_mtime_ns
        if seen != self._seen:
            token = self._path.read_text(encoding="utf-8").strip()
            if not (token and token.isascii() and token.isprintable()):
                raise requests.exceptions.InvalidHeader(
                    "the token contains a character that no header can have"
                )
            self._token, self._seen = token, seen
        return self._token


_WORTH_REPEATING = (Unreachable, BrokenOff)
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.25, 10.0
_PIECE_BYTES = 256 * 1024

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
        self,
        response: requests.Response,
        *,
        limit_bytes: int,
        until: float,
        monotonic: Callable[[], float],
        failures: Failures,
    ) -> None:
        self.kind = response.headers.get("Content-Type", "")
        self.packed = response.headers.get("Content-Encoding", "").lower()
        self.failures = failures
        self.limit_bytes = limit_bytes
        self._response = response
        self._until = until
        self._monotonic = monotonic

    def whole(self) -> bytes:
        """All of the body; raises what urllib3 does when the connection ends before the body.

        Prometheus sends a chunk for each series, so a read waits for many of them. The connection
        is hung up at the end of the time, so that a server that drips cannot hold us beyond it.
        """
        unpack, pieces, left = self.packed in ("gzip", "deflate"), list[bytes](), self.limit_bytes
        with _hung_up_after(self._until - self._monotonic(), self._response) as is_over:
            try:
                while piece := self._response.raw.read(_PIECE_BYTES, decode_content=unpack):
                    pieces.append(piece)
                    left -= len(piece)
                    if left < 0:
                        raise self.failures.too_large(self.limit_bytes)
                    if self._monotonic() > self._until:
                        raise self.failures.too_slow()
            except (HTTPError, OSError, ValueError) as error:  # ValueError: TLS that was hung up
                if is_over():
                    raise self.failures.too_slow() from error
                raise
            if is_over():  # an answer of no stated length seems to be whole then
                raise self.failures.too_slow()
        return b"".join(pieces)

    def other_content(self, wanted: str, why: Exception | None = None) -> TidegateError:
        """The error for an answer of another kind than wanted; `why` shows nothing of the body."""
        return self.failures.other_content(body_kind(self._response), wanted, why)


@contextmanager
def _hung_up_after(seconds: float, response: requests.Response) -> Iterator[Callable[[], bool]]:
    """End all reads of the body after this time; gives whether it is over."""
    over = threading.Event()

    def hang_up() -> None:
        over.set()
        with suppress(OSError, RuntimeError, ValueError):  # the answer ended meanwhile
            response.raw.shutdown()

    timer = threading.Timer(max(seconds, 0.0), hang_up)
    timer.daemon = True
    timer.start()
    try:
        yield over.is_set
    finally:
        # the connection goes on to the next question, which must not be hung up
        timer.cancel()
        timer.join()


class Exchange:
    """Asks one server. It connects with the first question; one thread at a time may use it."""

    def __init__(
        self,
        settings: HistorySettings,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.address = shown_address(settings.server.url)
        self.failures = failures_of(self.address)
        self._settings = settings
        self._monotonic = monotonic
        self._pause = pause
        self._session: HistorySession | None = None

    def deadline(self) -> float:
        """When a read that begins now must have all its answers, on the monotonic clock."""
        return self._monotonic() + self._settings.deadline_seconds

    def ask(
        self,
        question: Question,
        read: Callable[[Answer], Result],
        *,
        until: float,
        attempts: int | None = None,
    ) -> Result:
        """What `read` makes of the answer; `until` is the deadline for all attempts.

        There are as many `attempts` as the settings allow, unless given.

        Raises what `read` raises; Unreachable after all attempts or when the time is over;
        Incomplete for an answer that is damaged, of another kind or too large; Unauthorized,
        NotFound or InvalidResource when the server says so.
        """
        return retry(
            lambda: self._once(question, read, until),
            attempts=attempts or self._settings.attempts,
            is_worth_repeating=lambda error: isinstance(error, _WORTH_REPEATING),
            pause_seconds=lambda attempt, _: _pause_seconds(attempt),
            until_monotonic_seconds=until,
            monotonic=self._monotonic,
            sleep=self._pause,
        )

    def close(self) -> None:
        """Hang up; the next question connects again."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _once(self, question: Question, read: Callable[[Answer], Result], until: float) -> Result:
        try:
            slots = RequestSlots(
                self.address, self._settings.parallel_requests, monotonic=self._monotonic
            )
            with slots.taken(until_monotonic_seconds=until):
                until = min(until, self._monotonic() + self._settings.request_timeout_seconds)
                with self._posted(question, until) as response:
                    return read(self._answer(response, until))
        except NoSlot:
            number = self._settings.parallel_requests
            why = f"this machine's limit of parallel requests ({number}) was used up throughout"
            raise self.failures.unreachable(
                why, "Allow more time, or more parallel requests."
            ) from None
        except (OSError, HTTPError) as error:  # the errors of requests are OSErrors
            raise self.failures.broken(error) from error

    def _posted(self, question: Question, until: float) -> requests.Response:
        left_seconds = until - self._monotonic()
        if left_seconds <= 0:
            raise self.failures.too_slow()
        timeouts = (
            min(self._settings.server.connect_timeout_seconds, left_seconds),
            min(self._settings.read_timeout_seconds, left_seconds),
        )
        if self._session is None:
            self._session = HistorySession(self._settings)
        url = self._settings.server.url.rstrip("/") + question.path
        return self._session.post(
            url, data=question.body, headers=dict(question.headers), timeout=timeouts
        )

    def _answer(self, response: requests.Response, until: float) -> Answer:
        if response.status_code != 200:
            said = refused_because(
                response, until_monotonic_seconds=until, monotonic=self._monotonic
            )
            raise self.failures.refusal(response, said)
        limit_bytes = self._settings.answer_limit_bytes
        return Answer(
            response,
            limit_bytes=limit_bytes,
            until=until,
            monotonic=self._monotonic,
            failures=self.failures,
        )


def _pause_seconds(attempt: int) -> float:
    """Twice as long each time, and random: what failed together must not ask together again."""
    longest: float = min(_FIRST_PAUSE_SECONDS * 2.0 ** (attempt - 1), _LONGEST_PAUSE_SECONDS)
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - nothing secret
