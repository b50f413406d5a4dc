"""HTTP to a Prometheus: the session, and every failure as a tidegate error that says what to do.

`prometheus.client` reads what is now, `rollup.transport.exchange` reads history. Both send through
this session and fail in these words; what follows from a failure differs, so `Failures` has it.
"""

import json
import re
import shutil
import ssl
import tempfile
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
from requests import exceptions
from requests.auth import AuthBase, HTTPBasicAuth
from urllib3.exceptions import HTTPError, IncompleteRead, ReadTimeoutError

from tidegate import __version__
from tidegate.causes import cause_of, innermost
from tidegate.errors import (
    Incomplete,
    InvalidResource,
    NotFound,
    TidegateError,
    Unauthorized,
    Unreachable,
)
from tidegate.prometheus.answer import own_error
from tidegate.prometheus.settings import BasicLogin, BearerLogin, PrometheusServer, TlsTexts
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


_SHOWN_CHARACTERS = 300
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
    return " ".join(shown.split())[:_SHOWN_CHARACTERS].rstrip(".") or "no reason given"


def body_kind(answer: requests.Response) -> str:
    """The kind and length of a body as its headers give them: all that is shown of one."""
    found = _KIND.match(answer.headers.get("Content-Type", "").lower())
    length = answer.headers.get("Content-Length", "")
    size = f"{length} bytes" if length.isdecimal() and len(length) < 16 else "no stated length"
    return f"a body of {found[0] if found else 'no known kind'}, {size}"


def innermost_message(error: Exception) -> str:
    """The cause of what HTTP's libraries raised."""
    inner = innermost(error)
    if isinstance(inner, IncompleteRead):
        return f"the answer broke off after {inner.partial} bytes"
    if not isinstance(inner, OSError):
        return "what answers there does not speak HTTP"  # the error would quote it
    return cause_of(error)[:_SHOWN_CHARACTERS]


def shown_address(url: str) -> str:
    """The address without the login that it may contain, for messages."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "the address given"
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


class TooSlow(Unreachable):
    """An answer that did not come within its time. Another question may be answered in time."""


class TooLarge(Incomplete):
    """An answer above the size limit. One for fewer brokers may be below it."""


class BrokenOff(Incomplete):
    """An answer that ended early or arrived damaged; another attempt may bring it whole."""


_BAD_ADDRESS = (exceptions.InvalidURL, exceptions.MissingSchema, exceptions.InvalidSchema)
_TOO_SLOW = (exceptions.Timeout, ReadTimeoutError)
_NEVER = frozenset({400, 413, 415, 422, 501})  # the same request will not do better


@dataclass(frozen=True, slots=True)
class Failures:
    """The errors for what goes wrong with one server; each says what happens next.

    `meanwhile` is a sentence with what follows from it, such as what is not throttled. `setting` is
    where the address was given, `login` where its login is, `login_text` where that login's text
    is, `certificates` and `files` where what a connection needs is, and `fewer` is how to ask for
    less.
    """

    address: str
    meanwhile: str
    setting: str
    login: str
    login_text: str
    certificates: str
    files: str
    fewer: str

    def broken(self, error: Exception) -> TidegateError:
        """The error for no answer, or only its beginning, from a library or system error."""
        match error:
            case exceptions.InvalidHeader():
                return Unauthorized(
                    "The login for Prometheus contains a line break or another character that "
                    "HTTP does not allow.",
                    advice=f"Correct {self.login_text}.",
                )
            case _ if isinstance(error, _BAD_ADDRESS):
                return InvalidResource(
                    f"Prometheus cannot be queried: {self.address} is not a URL.",
                    advice=f"Write {self.setting} as http://host:port.",
                )
            case exceptions.SSLError():
                why = f"the encrypted connection failed: {innermost_message(error)}"
                return self.unreachable(why, f"Check {self.certificates}.")
            case exceptions.ConnectTimeout():
                return self._not_connected("the connection timed out")
            case _ if isinstance(error, _TOO_SLOW):
                return self.too_slow()
            case exceptions.RequestException() | HTTPError():
                where = "its proxy: " if isinstance(error, exceptions.ProxyError) else ""
                return self._not_connected(f"{where}{innermost_message(error)}")
        why = f"a file for the connection cannot be used: {cause_of(error)}"
        return self.unreachable(why, f"Check {self.files}.")

    def refusal(self, answer: requests.Response, said: str) -> TidegateError:
        """The error for a status other than 200, with what may be shown of the body."""
        status = answer.status_code
        if answer.headers.get("Location") and 300 <= status < 400:
            return Unauthorized(
                f"Prometheus at {self.address} redirected the request ({status}), perhaps to a "
                f"login page; redirects are not followed. {self.meanwhile}",
                advice=f"Set {self.setting} to the address of the API itself, or add {self.login}.",
            )
        if status in (401, 403):
            return Unauthorized(
                f"Prometheus at {self.address} refused the request ({status}): {said}. "
                f"{self.meanwhile}",
                advice=f"Check {self.login}.",
            )
        if status in (404, 405):
            return NotFound(
                Reason.PROMETHEUS_UNREACHABLE,
                f"There is no such API at {self.address} ({status}): {said}. {self.meanwhile}",
                advice=f"Check the path in {self.setting}; it ends before /api/v1.",
            )
        if status in _NEVER:
            return InvalidResource(
                f"Prometheus at {self.address} rejected the query ({status}): {said}. "
                f"{self.meanwhile}",
                Reason.METRICS_QUERY_REFUSED,
                advice=self.fewer,
            )
        return self.unreachable(
            f"it is overloaded or has failed ({status}): {said}", "Check its log."
        )

    def unreachable(self, why: str, fix: str) -> TidegateError:
        """The error for a server that did not answer."""
        return Unreachable(Reason.PROMETHEUS_UNREACHABLE, self._not_answered(why), advice=fix)

    def too_slow(self) -> TidegateError:
        """The error for an answer that did not come within its time."""
        what = self._not_answered("it took too long")
        fix = f"Check its load. {self.fewer}"
        return TooSlow(Reason.PROMETHEUS_UNREACHABLE, what, advice=fix)

    def too_large(self, limit_bytes: int) -> TidegateError:
        """The error for an answer above the size limit."""
        return TooLarge(
            Reason.METRICS_INCOMPLETE,
            f"The answer from Prometheus at {self.address} is larger than "
            f"{size_words(limit_bytes)} and was not read to the end. {self.meanwhile}",
            advice=self.fewer,
        )

    def broken_off(self, why: object) -> TidegateError:
        """The error for an answer of the right kind that is not whole."""
        return BrokenOff(
            Reason.METRICS_INCOMPLETE,
            f"The answer from Prometheus at {self.address} cannot be used: {why}. {self.meanwhile}",
            advice="Check its log, and that of any proxy in between.",
        )

    def other_content(self, kind: str, wanted: str, why: Exception | None = None) -> TidegateError:
        """The error for a whole answer of another kind, such as that of a login page."""
        because = "" if why is None else f": {why}"
        return Incomplete(
            Reason.METRICS_INCOMPLETE,
            f"The answer from {self.address} is {kind} instead of {wanted}{because}. "
            f"{self.meanwhile}",
            advice=f"Check {self.setting}; a login page answers like this, too.",
        )

    def partial(self, warnings: str) -> TidegateError:
        """The error for an answer with Prometheus' own warning that something may be missing."""
        return Incomplete(
            Reason.METRICS_INCOMPLETE,
            f"Prometheus at {self.address} warns that its answer may lack something: "
            f"{warnings[:_SHOWN_CHARACTERS]}. {self.meanwhile}",
            advice="Check the stores behind it.",
        )

    def _not_connected(self, why: str) -> TidegateError:
        return self.unreachable(why, f"Check {self.setting} and the network policy.")

    def _not_answered(self, why: str) -> str:
        return f"Prometheus at {self.address} did not answer: {why}. {self.meanwhile}"
