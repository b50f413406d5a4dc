"""One query to Prometheus within limits of time and size.

Small answers come through prometheus-api-client, whole; of clients, of whom there may be 50,000,
series are passed on as they arrive. Both go through one session, which keeps the limits. There are
few repeats, and warnings are not lost. Failures are raised as tidegate.errors.
"""

import json
import math
import re
import shutil
import ssl
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

import requests
from prometheus_api_client.prometheus_connect import PrometheusConnect
from requests import exceptions
from requests.auth import AuthBase, HTTPBasicAuth
from urllib3.exceptions import (
    HTTPError,
    IncompleteRead,
    NewConnectionError,
    ProtocolError,
    ReadTimeoutError,
)
from urllib3.util import Retry

from tidegate import __version__
from tidegate.errors import (
    Incomplete,
    InvalidResource,
    NotFound,
    TidegateError,
    Unauthorized,
    Unreachable,
    refused_certificate,
)
from tidegate.prometheus.answer import (
    EndsEarly,
    NotJson,
    NotSamples,
    own_error,
    read_answer,
    series_of,
    warnings_of,
)
from tidegate.prometheus.series import Series
from tidegate.prometheus.settings import BasicLogin, BearerLogin, PrometheusServer, TlsTexts
from tidegate.retry import retry
from tidegate_logic.reasons import Reason
from tidegate_logic.words import size_words

# The HTTP session: login, authorities, no redirects, no compression. The client reads the body of
# an answer, within limits; requests would read it whole and without bounds.


class Session(requests.Session):
    """A session for one server. Raises InvalidHeader for a token that cannot be sent.

    The environment is ignored: no proxy but the server's, no .netrc, no other authorities.
    """

    def __init__(self, server: PrometheusServer) -> None:
        super().__init__()
        self.trust_env = False
        self.proxies = dict.fromkeys(("http", "https"), server.proxy) if server.proxy else {}
        self.verify = server.ca_file or _own_authorities()
        # Compressing costs the server ten times what sending does; a packed answer may unpack to
        # any size.
        self.headers.update(
            {"Accept-Encoding": "identity", "User-Agent": f"tidegate/{__version__}"}
        )
        self.headers.update(server.headers)
        self.auth = _authorization(server.login)
        self._remove_files: Callable[[], object] = lambda: None
        if server.tls is not None:
            self._use(server.tls)

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        return super().send(request, **{**kwargs, "stream": True})

    def close(self) -> None:
        """Hang up and leave no file behind."""
        super().close()
        self._remove_files()

    def _use(self, tls: TlsTexts) -> None:
        """Use these certificates.

        The library needs files, so they are kept in a private folder until the session ends.
        """
        folder = Path(tempfile.mkdtemp(prefix="tidegate-"))
        self._remove_files = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)

        def written(name: str, content: bytes) -> str:
            path = folder / name
            path.touch(mode=0o600)
            path.write_bytes(content)
            return str(path)

        if tls.authorities is not None:
            self.verify = written("ca.crt", tls.authorities)
        if tls.certificate is not None and tls.key is not None:
            self.cert = written("tls.crt", tls.certificate), written("tls.key", tls.key)

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Follow no redirect: it leads to a login page, or takes the login to another host."""


class _Bearer(AuthBase):
    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, r: requests.PreparedRequest) -> requests.PreparedRequest:
        r.headers["Authorization"] = f"Bearer {self._token}"
        return r


def _authorization(login: BearerLogin | BasicLogin | None) -> AuthBase | None:
    match login:
        case BearerLogin(token):
            if not (token.isascii() and token.isprintable()):
                raise requests.exceptions.InvalidHeader(
                    "the token has characters that no header can have"
                )
            return _Bearer(token)
        case BasicLogin(username, password):
            # a str would be sent as Latin-1, which lacks most of the world's letters
            return HTTPBasicAuth(username.encode(), password.encode())
    return None


def _own_authorities() -> str | bool:
    """The machine's own authorities, which administrators can extend; else the library's."""
    paths = ssl.get_default_verify_paths()
    return paths.cafile or paths.capath or True


# Short texts of HTTP answers and errors, for messages. Of a body only Prometheus' own errors are
# shown, and nothing of where a redirect leads: see `answer.own_error`.


SHOWN_CHARACTERS = 300
_REFUSAL_BYTES = 16 * 1024  # of a refusal; Prometheus' own errors are shorter
_KIND = re.compile(r"[a-z]{1,20}/[a-z0-9.+-]{1,60}")


def refused_because(
    answer: requests.Response, *, until_monotonic_seconds: float, monotonic: Callable[[], float]
) -> str:
    """Prometheus' own reason in an answer with an error; else what kind of body there is."""
    body = b""
    with suppress(OSError, HTTPError):  # whatever is wrong with the body, the status stays
        while len(body) < _REFUSAL_BYTES and monotonic() < until_monotonic_seconds:
            if not (piece := answer.raw.read1(_REFUSAL_BYTES, decode_content=True)):
                break
            body += piece
    try:
        reason = own_error(json.loads(body))
    except (ValueError, RecursionError):
        reason = None
    if reason is None:
        return body_kind(answer)
    shown = "".join(sign if sign.isprintable() else " " for sign in reason)
    return " ".join(shown.split())[:SHOWN_CHARACTERS].rstrip(".") or "no reason given"


def body_kind(answer: requests.Response) -> str:
    """The kind and length of a body as its headers give them: all that is shown of one."""
    found = _KIND.match(answer.headers.get("Content-Type", "").lower())
    length = answer.headers.get("Content-Length", "")
    size = f"{length} bytes" if length.isdecimal() and len(length) < 16 else "no stated length"
    return f"a body of {found[0] if found else 'no known kind'}, {size}"


def innermost_message(error: Exception) -> str:
    """The message of the innermost error; the outer ones repeat it and contain the whole query."""
    inner: object = error
    while isinstance(inner, Exception):
        error = inner
        inner = getattr(error, "reason", None) or next(
            (part for part in error.args if isinstance(part, Exception)), None
        )
    if isinstance(error, IncompleteRead):
        return f"the answer broke off after {error.partial} bytes"
    if isinstance(error, ssl.SSLCertVerificationError):
        return refused_certificate(error)
    if not isinstance(error, OSError | NewConnectionError):
        return "what answers there does not speak HTTP"  # the error would quote it
    # urllib3 puts the connection in front: "HTTPConnection(host='10.0.0.1', port=9090): Failed ..."
    return (getattr(error, "strerror", None) or str(error)).rsplit("): ", 1)[-1][:SHOWN_CHARACTERS]


# Failures as tidegate.errors, with a sentence that a person can act on. Each ends with what happens
# meanwhile: `tidegate_logic` does nothing about a load that it cannot see.


MEANWHILE = "Nothing is throttled further or given back on load meanwhile."
_CHECK_ADDRESS = "Check metrics.prometheus.url and the network policy."
_CHECK_TRUST = "Check metrics.prometheus.url and tls.trustedCertificates."
_BAD_ADDRESS = (exceptions.InvalidURL, exceptions.MissingSchema, exceptions.InvalidSchema)
_TOO_SLOW = (exceptions.Timeout, ReadTimeoutError)


def shown_address(url: str) -> str:
    """The address without the login that it may contain, for messages."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "the address given"
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def broken(error: Exception, address: str) -> TidegateError:
    """The tidegate error for no answer, or only its beginning, from a library or system error."""
    match error:
        case exceptions.InvalidHeader():
            return Unauthorized(
                "The login for Prometheus has a line break or another character that no request "
                "can have. Correct the Secret."
            )
        case _ if isinstance(error, _BAD_ADDRESS):
            return InvalidResource(
                f"Prometheus cannot be asked: {address} is not an address. Write it as "
                f"http://host:port in metrics.prometheus.url."
            )
        case exceptions.SSLError():
            why = f"the encrypted connection failed: {innermost_message(error)}"
            return unreachable(address, why, _CHECK_TRUST)
        case exceptions.ConnectTimeout():
            return unreachable(address, "no connection came about in time", _CHECK_ADDRESS)
        case _ if isinstance(error, _TOO_SLOW):
            return too_slow(address)
        case exceptions.RequestException() | HTTPError():
            where = "its proxy: " if isinstance(error, exceptions.ProxyError) else ""
            return unreachable(address, f"{where}{innermost_message(error)}", _CHECK_ADDRESS)
    return unreachable(
        address, f"its certificate authorities cannot be read: {error}", _CHECK_TRUST
    )


class TooSlow(Unreachable):
    """An answer that did not come within its time. Another question may be answered in time."""


def too_slow(address: str) -> TidegateError:
    """The error for an answer that did not come within its time."""
    hint = "Look at its load, and at how many series the queries match."
    return TooSlow(Reason.PROMETHEUS_UNREACHABLE, _not_answered(address, "it took too long", hint))


def unreachable(address: str, why: str, hint: str) -> TidegateError:
    """The error for a server that did not answer."""
    return Unreachable(Reason.PROMETHEUS_UNREACHABLE, _not_answered(address, why, hint))


def _not_answered(address: str, why: str, hint: str) -> str:
    return f"Prometheus at {address} did not answer: {why}. {MEANWHILE} {hint}"


def refusal(answer: requests.Response, said: str, address: str) -> TidegateError:
    """The error for a status other than 200, with what may be shown of the body."""
    status = answer.status_code
    if answer.headers.get("Location") and 300 <= status < 400:
        why = (
            f"Prometheus at {address} redirected us ({status}), perhaps to log in; redirects are "
            f"not followed. {MEANWHILE}"
        )
        return Unauthorized(
            f"{why} Give the address of the query API itself, or a login in "
            f"metrics.prometheus.authentication."
        )
    if status in (401, 403):
        why = f"Prometheus at {address} refused us ({status}): {said}. {MEANWHILE}"
        return Unauthorized(f"{why} Check the login in metrics.prometheus.authentication.")
    if status in (404, 405):
        why = f"There is no query API at {address} ({status}). {MEANWHILE}"
        return NotFound(
            Reason.PROMETHEUS_UNREACHABLE,
            f"{why} Check the path in metrics.prometheus.url; it ends before /api/v1.",
        )
    if status in (400, 422):
        return InvalidResource(
            f"Prometheus at {address} cannot carry out a query ({status}): {said}. {MEANWHILE}",
            Reason.METRICS_QUERY_REFUSED,
        )
    return unreachable(
        address, f"it is busy or at fault itself ({status}): {said}", "Look at its log."
    )


class TooLarge(Incomplete):
    """An answer above the size limit. One for fewer brokers may be below it."""


def too_large(limit_bytes: int, address: str) -> TidegateError:
    """The error for an answer above the size limit."""
    why = (
        f"The answer of Prometheus at {address} is larger than {size_words(limit_bytes)} and "
        f"was not read to its end. {MEANWHILE}"
    )
    return TooLarge(
        Reason.METRICS_INCOMPLETE, f"{why} Narrow the queries, for instance to one Kafka cluster."
    )


def not_samples(error: Exception, kind: str, address: str) -> TidegateError:
    """The error for a whole answer that is not samples; `kind` is what it is instead."""
    why = f"What answered at {address} is not usable as samples ({kind}): {error}. {MEANWHILE}"
    return Incomplete(
        Reason.METRICS_INCOMPLETE,
        f"{why} Check metrics.prometheus.url; a login page answers like this, too.",
    )


class BrokenOff(Incomplete):
    """An answer that ended before it was whole; another attempt may bring it whole."""


def broken_off(size_bytes: int, address: str) -> TidegateError:
    """The error for an answer that ended before it was whole."""
    why = f"Prometheus at {address} answered, but the answer broke off after {size_bytes} bytes."
    return BrokenOff(
        Reason.METRICS_INCOMPLETE,
        f"{why} {MEANWHILE} Look at its log, and at that of a proxy before it.",
    )


def partial(warnings: Sequence[str], address: str) -> TidegateError:
    """The error for an answer with Prometheus' own warning that something may be missing."""
    why = (
        f"Prometheus at {address} warns that its answer may lack something: "
        f"{'; '.join(warnings)[:SHOWN_CHARACTERS]}. {MEANWHILE}"
    )
    return Incomplete(Reason.METRICS_INCOMPLETE, f"{why} Look at the stores behind it.")


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
        self._address = shown_address(server.url)
        self._monotonic = monotonic

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        left_seconds = self.until_monotonic_seconds - self._monotonic()
        if left_seconds <= 0:
            raise too_slow(self._address)
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
            raise refusal(answer, said, self._address)
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
            raise broken_off(pieces.size_bytes, self._address) from None
        except (NotJson, NotSamples) as error:
            raise not_samples(error, body_kind(answer), self._address) from error

    def _read_whole(self, answer: requests.Response, pieces: "_Pieces") -> None:
        """Read the body, so that the library finds one that has what it looks for."""
        pieces.limit_bytes = min(pieces.limit_bytes, _SMALL_BYTES)
        content = b"".join(pieces)
        if warnings := warnings_of(content):
            raise partial(warnings, self._address)
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
        self._address = shown_address(server.url)
        self._until = until_monotonic_seconds
        self._monotonic = monotonic

    def __iter__(self) -> Iterator[bytes]:
        while piece := self._answer.raw.read1(_PIECE_BYTES, decode_content=True):
            self.size_bytes += len(piece)
            if self.size_bytes > self.limit_bytes:
                raise too_large(self.limit_bytes, self._address)
            if self._monotonic() > self._until:
                raise too_slow(self._address)
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
                raise not_samples(error, "JSON", self.address) from error

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
                raise partial(found.warnings, self.address)
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
                raise broken(error, self.address) from error

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
