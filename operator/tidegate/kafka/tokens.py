"""Access tokens for logins to the brokers by OAUTHBEARER, kept and renewed before they expire.

A token comes from a token endpoint (client credentials), or is read where something else renews it;
`kafka.msk_iam` signs those of AWS. No token and no secret is ever shown.
"""

import base64
import binascii
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import structlog
import urllib3
from urllib3.exceptions import HTTPError

from tidegate import __version__
from tidegate.causes import cause_of
from tidegate.errors import TidegateError, Unauthorized, Unreachable
from tidegate.kafka.settings import QUOTAS_STAY, TlsFiles, Token
from tidegate_logic.reasons import Reason

log = structlog.get_logger(__name__)

_RENEWED_AFTER = 0.8  # of a token's life; connections log in again after 0.85 of theirs
_LEAST_LEFT_SECONDS = 5.0  # of a token that is still used when no other can be had
_PAUSE_SECONDS = 2.0  # between two tries that fail
_ANSWER_SECONDS = 5.0
_ANSWER_BYTES = 256 * 1024
_ASSUMED_LIFE_SECONDS = 300.0  # of a token that does not say when it expires


class KeptTokens:
    """The tokens that `fetch` gives, each kept until four fifths of its life are over.

    While the source fails, the last token is used for as long as it is valid.
    """

    def __init__(
        self, fetch: Callable[[], Token], *, clock: Callable[[], float] = time.time
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._lock = threading.Lock()
        self._token: Token | None = None
        self._renew_at_seconds = 0.0
        self._failure: TidegateError | None = None

    def current(self) -> Token:
        """See `Tokens.current`."""
        with self._lock:
            now = self._clock()
            if now < self._renew_at_seconds:
                if self._token is not None:
                    return self._token
                if self._failure is not None:
                    raise self._failure
            return self._renewed(now)

    def forget(self) -> None:
        """See `Tokens.forget`."""
        with self._lock:
            self._token, self._failure, self._renew_at_seconds = None, None, 0.0

    def _renewed(self, now: float) -> Token:
        try:
            token = self._fetch()
        except TidegateError as error:
            self._renew_at_seconds = self._clock() + _PAUSE_SECONDS
            last = self._token
            if last is not None and last.expires_at_seconds - self._clock() > _LEAST_LEFT_SECONDS:
                log.warning("access token not renewed yet", problem=error.message)
                return last
            self._token, self._failure = None, error
            raise
        self._token, self._failure = token, None
        self._renew_at_seconds = now + _RENEWED_AFTER * (token.expires_at_seconds - now)
        return token


# --- from a token endpoint ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """A client of an authorization server (RFC 6749, section 4.4)."""

    token_endpoint: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    audience: str | None = None
    tls: TlsFiles = field(default_factory=TlsFiles)

    def fetch(self) -> Token:
        """Request a token. Raises Unreachable or Unauthorized."""
        wanted = {"scope": self.scope, "audience": self.audience}
        form = {"grant_type": "client_credentials"}
        form |= {name: value for name, value in wanted.items() if value is not None}
        login = f"{quote_plus(self.client_id)}:{quote_plus(self.client_secret)}".encode()
        endpoint = Endpoint(
            self.token_endpoint, self.tls, "the token endpoint", "tlsTrustedCertificates"
        )
        sent_at_seconds = time.time()
        body = endpoint.post(
            form,
            {
                "Accept": "application/json",
                "Authorization": f"Basic {base64.b64encode(login).decode()}",
            },
        )
        if body.status != 200:
            raise endpoint.refusal(body, f"client {self.client_id}", _refused(body))
        value, seconds = body.document.get("access_token"), body.document.get("expires_in")
        if not isinstance(value, str) or not value:
            raise endpoint.unreachable("its answer has no access_token", "Check tokenEndpointUri.")
        require_sendable(value, f"{self.token_endpoint} gave")
        ends = [end for end in (expiry_of(value),) if end is not None]
        if isinstance(seconds, int | float) and not isinstance(seconds, bool):
            ends.append(sent_at_seconds + seconds)
        return Token(value, min(ends, default=sent_at_seconds + _ASSUMED_LIFE_SECONDS))


def _refused(body: "Answer") -> str:
    """The error code of RFC 6749, section 5.2; a description might quote what was sent."""
    code = body.document.get("error")
    known = isinstance(code, str) and len(code) <= 60 and code.replace("_", "").isalnum()
    return str(code) if known else "no known reason"


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, body, and the body's JSON object; empty where it is none."""

    status: int
    text: bytes = field(repr=False)

    @property
    def document(self) -> Mapping[str, Any]:
        """The JSON object in the body; empty where there is none."""
        try:
            found = json.loads(self.text)
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address that forms are posted to, and its errors.

    `what` it is, and the field with its `authorities`, are said in messages.
    """

    url: str
    tls: TlsFiles
    what: str
    authorities: str

    def post(self, form: Mapping[str, str], headers: Mapping[str, str]) -> Answer:
        """Post once: no redirect, no proxy, a bounded answer. Raises Unreachable."""
        until_seconds = time.monotonic() + _ANSWER_SECONDS
        try:
            with urllib3.PoolManager(ssl_context=self.tls.context()) as http:
                answer = http.request(
                    "POST",
                    self.url,
                    fields=dict(form),
                    encode_multipart=False,
                    headers={"User-Agent": f"tidegate/{__version__}", **headers},
                    timeout=urllib3.Timeout(total=_ANSWER_SECONDS),
                    retries=False,
                    redirect=False,
                    preload_content=False,
                )
                with answer:
                    return Answer(answer.status, _body(answer, until_seconds))
        except (OSError, HTTPError) as error:
            raise self.unreachable(
                cause_of(error), f"Check its address, {self.authorities} and the network policy."
            ) from None

    def refusal(self, answer: Answer, who: str, why: str) -> TidegateError:
        """The error for a status other than 200."""
        where = f"{self.what[0].upper()}{self.what[1:]} {self.url}"
        if answer.status in (400, 401, 403):
            return Unauthorized(
                f"{where} refused {who} ({answer.status}, {why}).",
                consequence=QUOTAS_STAY,
                advice="Correct the client's id, secret, scope and audience in the policy's "
                "authentication and its Secret.",
            )
        return self.unreachable(f"it answered with status {answer.status}", "Check its log.")

    def unreachable(self, why: str, fix: str) -> Unreachable:
        """The error for no token just now."""
        return Unreachable(
            Reason.TOKEN_UNAVAILABLE,
            f"No token for the login to the brokers: {self.what} {self.url} did not give one "
            f"({why}).",
            consequence=QUOTAS_STAY,
            advice=fix,
        )


def _body(answer: urllib3.BaseHTTPResponse, until_seconds: float) -> bytes:
    """What has come of the body in time; more than a token needs is left unread."""
    body = b""
    while len(body) < _ANSWER_BYTES and (piece := answer.read1(_ANSWER_BYTES)):
        body += piece
        if time.monotonic() > until_seconds:
            raise TimeoutError("no answer in time")
    return body


# --- given, by a Secret or a file -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GivenToken:
    """A token that something else renews: a text, or a file that is read each time.

    `called` says in messages where it is.
    """

    called: str
    text: str | None = field(default=None, repr=False)
    file: Path | None = None

    def fetch(self) -> Token:
        """The token. Raises Unreachable if it has expired or the file cannot be read."""
        value = self.text if self.file is None else read_token_file(self.file, self.called)
        if not value:
            raise Unreachable(
                Reason.TOKEN_UNAVAILABLE, f"{self.called} is empty.", consequence=QUOTAS_STAY
            )
        require_sendable(value, f"{self.called} has")
        now, expires = time.time(), expiry_of(value)
        if expires is not None and expires <= now:
            raise Unreachable(
                Reason.TOKEN_UNAVAILABLE,
                f"{self.called} expired {now - expires:.0f} s ago.",
                consequence=QUOTAS_STAY,
                advice="Let what writes it renew it sooner, and check this machine's clock.",
            )
        # read again soon: a token may be replaced long before it expires
        return Token(value, min(expires or now + _ASSUMED_LIFE_SECONDS, now + 60.0))


def read_token_file(path: Path, called: str) -> str:
    """The text of the file. Raises Unreachable."""
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not ASCII"
        raise Unreachable(
            Reason.TOKEN_UNAVAILABLE,
            f"{called} cannot be read at {path}: {why}.",
            consequence=QUOTAS_STAY,
            advice="Mount it with the chart's operator.tokens; on your own machine, give "
            "--client-credentials-file with the key token, or with accessKeyId and "
            "secretAccessKey for AWS.",
        ) from None


def require_sendable(token: str, where: str) -> None:
    """Raise Unauthorized for a token with characters that end a message of OAUTHBEARER."""
    if not (token.isascii() and token.isprintable() and " " not in token):
        raise Unauthorized(
            f"{where} an access token with characters that no token has.", consequence=QUOTAS_STAY
        )


def claims_of(token: str) -> Mapping[str, Any]:
    """What a JSON Web Token says of itself, unchecked; empty for another kind of token."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        found = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def expiry_of(token: str) -> float | None:
    """When it expires, in seconds since 1970; None if it does not say."""
    found = claims_of(token).get("exp")
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return float(found)
