"""Tokens for Amazon MSK: an address that an identity of AWS has signed (SigV4), as OAUTHBEARER.

The identity is a policy's own: an access key, or a role taken with a token file (web identity).
Nothing is read from the environment or the metadata of the machine. kafka-python signs; MSK takes
the result by the mechanism that librdkafka has as well.
"""

import base64
import json
import re
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from urllib.parse import urlencode

from tidegate import __version__
from tidegate.kafka.protocol import AwsMskIamClient
from tidegate.kafka.settings import TlsFiles, Token
from tidegate.kafka.tokens import Answer, Endpoint, read_token_file

_SIGNED_FOR_SECONDS = 900.0  # kafka-python's, which is the most that MSK takes
_RENEWED_BEFORE_SECONDS = 300.0  # of a role's credentials, which last an hour


@dataclass(frozen=True, slots=True)
class AwsCredentials:
    """An access key, whose session ends at `expires_at_seconds` since 1970 if it has one."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)
    expires_at_seconds: float = float("inf")


def signed_token(credentials: AwsCredentials, region: str) -> Token:
    """A token that says who asks, signed for the brokers of one region."""
    host = f"kafka.{region}.amazonaws.com"
    signed = json.loads(
        AwsMskIamClient(
            host,
            credentials.access_key_id,
            credentials.secret_access_key,
            region,
            credentials.session_token,
        ).first_message()
    )
    query = {"Action": signed["action"]}
    query |= {
        f"X-Amz-{name}": signed[f"x-amz-{name.lower()}"]
        for name in (
            "Algorithm",
            "Credential",
            "Date",
            "Expires",
            "Security-Token",
            "SignedHeaders",
            "Signature",
        )
        if f"x-amz-{name.lower()}" in signed
    }
    query["User-Agent"] = f"tidegate/{__version__}"
    address = f"https://{host}/?{urlencode(query)}"
    value = base64.urlsafe_b64encode(address.encode()).decode().rstrip("=")
    return Token(value, min(time.time() + _SIGNED_FOR_SECONDS, credentials.expires_at_seconds))


class WebIdentity:
    """The credentials of a role, taken at STS with the token in a file. One thread may use it."""

    def __init__(
        self, role_arn: str, *, file: Path, called: str, endpoint: str, tls: TlsFiles | None = None
    ) -> None:
        self._role_arn = role_arn
        self._file, self._called = file, called
        self._endpoint = Endpoint(
            endpoint,
            tls or TlsFiles(),
            "AWS STS at",
            "this machine's certificate authorities",
        )
        self._known: AwsCredentials | None = None

    def credentials(self) -> AwsCredentials:
        """Those that are known while they last, else new ones. Raises Unreachable, Unauthorized."""
        known = self._known
        if known is None or known.expires_at_seconds - time.time() < _RENEWED_BEFORE_SECONDS:
            known = self._known = self._taken()
        return known

    def _taken(self) -> AwsCredentials:
        answer = self._endpoint.post(
            {
                "Action": "AssumeRoleWithWebIdentity",
                "Version": "2011-06-15",
                "RoleArn": self._role_arn,
                "RoleSessionName": "tidegate",
                "WebIdentityToken": read_token_file(self._file, self._called),
            },
            {},
        )
        if answer.status != 200:
            why = _text(answer, "Code") or "no known reason"
            raise self._endpoint.refusal(answer, f"role {self._role_arn}", why)
        key, secret, session, until = (
            _text(answer, name)
            for name in ("AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration")
        )
        if not (key and secret and session and until):
            raise self._endpoint.unreachable("its answer has no credentials", "Check stsEndpoint.")
        return AwsCredentials(key, secret, session, datetime.fromisoformat(until).timestamp())


def _text(answer: Answer, element: str) -> str | None:
    """The text of an element of a short answer in XML; those that are read contain no markup."""
    found = re.search(
        rf"<{element}>([A-Za-z0-9+/=:._-]+)</{element}>", answer.text.decode("latin-1")
    )
    return None if found is None else found[1]
