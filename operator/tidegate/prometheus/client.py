"""One query to Prometheus within limits of time and size.

There are few repeats, warnings are not lost, samples are passed on as they arrive. Failures are
raised as tidegate.errors.
"""

import json
import re
import shutil
import ssl
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

import requests
from requests import exceptions
from requests.auth import AuthBase, HTTPBasicAuth
from urllib3.exceptions import (
    HTTPError,
    IncompleteRead,
    NewConnectionError,
    ProtocolError,
    ReadTimeoutError,
)

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
from tidegate.prometheus.answer import EndsEarly, NotJson, NotSamples, own_error, read_answer
from tidegate.prometheus.series import Series
from tidegate.prometheus.settings import BasicLogin, BearerLogin, PrometheusServer, TlsTexts
from tidegate.retry import retry
from tidegate_logic.reasons import Reason

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
        f"The answer of Prometheus at {address} is larger than {limit_bytes / 1e6:g} MB and "
        f"was not read to its end. {MEANWHILE}"
    )
    return TooLarge(
        Reason.METRICS_INCOMPLETE, f"{why} Narrow the queries, for instance to one Kafka cluster."
    )


def not_samples(error: Exception, answer: requests.Response, address: str) -> TidegateError:
    """The error for a whole answer that is not samples."""
    why = (
        f"What answered at {address} is not usable as samples ({body_kind(answer)}): {error}. "
        f"{MEANWHILE}"
    )
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


_PAUSES_SECONDS = (0.2, 0.8)  # before the second and the third attempt
_CHUNK_BYTES = 256 * 1024
_QUERY_PATH = "/api/v1/query"
# A proxy may refuse a longer address. Shorter questions are no POST, for which some gateways want
# another right.
_LONGEST_ADDRESS = 2048
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}

Item = TypeVar("Item")


class PrometheusClient:
    """A client of one server, connected at the first query. One thread at a time may use it."""

    def __init__(
        self,
        server: PrometheusServer,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.address = shown_address(server.url)
        self._server = server
        self._monotonic = monotonic
        self._pause = pause
        self._session: Session | None = None
        self._dated: tuple[float, float] | None = None  # its clock, and ours without a date

    @property
    def server_seconds(self) -> float | None:
        """The server's clock now, by the date of its last answer; None = no answer had one."""
        if self._dated is None:
            return None
        date_seconds, monotonic_seconds = self._dated
        return date_seconds + self._monotonic() - monotonic_seconds

    def query(
        self,
        promql: str,
        each: Callable[[Series], Item],
        *,
        until_monotonic_seconds: float,
        at_seconds: int | None = None,
    ) -> list[Item]:
        """Send an instant query for samples over a range; return what `each` makes of every series.

        The range ends at `at_seconds` since the epoch; None = now, by the server's clock.

        Raises Unreachable after some attempts within the time; Incomplete for an answer that is
        partial, too large or not samples; Unauthorized when a login is needed; NotFound where there
        is no query API; InvalidResource when the query is refused.
        """
        return retry(
            lambda: self._once(promql, each, until_monotonic_seconds, at_seconds),
            attempts=1 + len(_PAUSES_SECONDS),
            is_worth_repeating=lambda error: isinstance(error, Unreachable | BrokenOff),
            pause_seconds=lambda attempt, _: _PAUSES_SECONDS[
                min(attempt, len(_PAUSES_SECONDS)) - 1
            ],
            until_monotonic_seconds=until_monotonic_seconds,
            monotonic=self._monotonic,
            sleep=self._pause,
        )

    def close(self) -> None:
        """Hang up. The next query connects again."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _once(
        self,
        promql: str,
        each: Callable[[Series], Item],
        until: float,
        at_seconds: int | None,
    ) -> list[Item]:
        try:
            with self._asked(promql, until, at_seconds) as answer:
                self._note_date(answer)
                return self._read(answer, each, until)
        except (OSError, HTTPError) as error:  # the errors of requests are OSErrors
            raise broken(error, self.address) from error

    def _asked(self, promql: str, until: float, at_seconds: int | None) -> requests.Response:
        left_seconds = until - self._monotonic()
        if left_seconds <= 0:
            raise too_slow(self.address)
        timeouts = (
            min(self._server.connect_timeout_seconds, left_seconds),
            min(self._server.read_timeout_seconds, left_seconds),
        )
        # the server gives up as well when we no longer wait
        server_timeout = f"{max(round(left_seconds * 1000), 1)}ms"
        if self._session is None:
            self._session = Session(self._server)
        url = self._server.url.rstrip("/") + _QUERY_PATH
        moment = {} if at_seconds is None else {"time": str(at_seconds)}
        form = urlencode({"query": promql, "timeout": server_timeout, **moment})
        if len(form) <= _LONGEST_ADDRESS:
            return self._session.get(f"{url}?{form}", timeout=timeouts)
        return self._session.post(url, data=form, headers=_FORM, timeout=timeouts)

    def _note_date(self, answer: requests.Response) -> None:
        with suppress(KeyError, TypeError, ValueError):  # none, or one that cannot be read
            date = parsedate_to_datetime(answer.headers["Date"])
            # whole seconds, so half a second is missing on the mean
            self._dated = date.timestamp() + 0.5, self._monotonic()

    def _read(
        self, answer: requests.Response, each: Callable[[Series], Item], until: float
    ) -> list[Item]:
        if answer.status_code != 200:
            said = refused_because(answer, until_monotonic_seconds=until, monotonic=self._monotonic)
            raise refusal(answer, said, self.address)
        body = _Body()
        try:
            found = read_answer(self._chunks(answer, body, until), each)
        except (EndsEarly, ProtocolError):
            raise broken_off(body.size, self.address) from None
        except (NotJson, NotSamples) as error:
            raise not_samples(error, answer, self.address) from error
        if found.warnings:
            raise partial(found.warnings, self.address)
        return found.items

    def _chunks(self, answer: requests.Response, body: "_Body", until: float) -> Iterator[bytes]:
        """The body as it comes.

        One read returns what is there, so that a slow server cannot keep us beyond the time.
        """
        while chunk := answer.raw.read1(_CHUNK_BYTES, decode_content=True):
            body.size += len(chunk)
            if body.size > self._server.answer_limit_bytes:
                raise too_large(self._server.answer_limit_bytes, self.address)
            if self._monotonic() > until:
                raise too_slow(self.address)
            yield chunk


@dataclass(slots=True)
class _Body:
    """How many bytes of an answer have come."""

    size: int = 0
