"""A broker that takes logins as Amazon MSK does, and the check of signatures behind it.

AWS offers no broker of MSK to run. This one speaks the handshake and the login of Kafka's protocol
over TLS, and one question (ApiVersions). It checks the signature by AWS's published algorithm, with
none of the product's code.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import ssl
import struct
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self
from urllib.parse import parse_qsl, quote, urlsplit

_HEADER = struct.Struct(">hhih")  # key, version, correlation id, length of the client's id
_HANDSHAKE, _API_VERSIONS, _AUTHENTICATE = 17, 18, 36
_REFUSED = 58
_EMPTY = hashlib.sha256(b"").hexdigest()


def signature_of(url: str, secret: str, *, payload: str = _EMPTY) -> str:
    """The signature that a presigned GET of `url` must have (SigV4, query parameters)."""
    parts = urlsplit(url)
    query = [
        (name, value)
        for name, value in parse_qsl(parts.query, keep_blank_values=True)
        if name not in ("X-Amz-Signature", "User-Agent")
    ]
    known = dict(query)
    scope = known["X-Amz-Credential"].partition("/")[2]
    date, region, service, end = scope.split("/")
    canonical = "\n".join(
        (
            "GET",
            parts.path or "/",
            "&".join(sorted(f"{quote(name, '~')}={quote(value, '~')}" for name, value in query)),
            f"host:{parts.netloc}\n",
            known["X-Amz-SignedHeaders"],
            payload,
        )
    )
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    text = "\n".join((known["X-Amz-Algorithm"], known["X-Amz-Date"], scope, hashed))
    key = f"AWS4{secret}".encode()
    for part in (date, region, service, end, text):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key.hex()


def identity_in(token: str, *, region: str, secrets: Mapping[str, str]) -> str:
    """The access key's id in a token that MSK accepts. Raises ValueError with what is wrong."""
    url = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
    parts = urlsplit(url)
    known = dict(parse_qsl(parts.query))
    identity, date, of_region, service, _ = known["X-Amz-Credential"].split("/")
    signed_at = datetime.strptime(known["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    age = datetime.now(UTC) - signed_at
    if (parts.scheme, parts.netloc) != ("https", f"kafka.{region}.amazonaws.com"):
        raise ValueError(f"for {parts.netloc}")
    if (of_region, service, known["Action"]) != (region, "kafka-cluster", "kafka-cluster:Connect"):
        raise ValueError("for another service")
    if not timedelta(minutes=-5) < age < timedelta(seconds=min(900, int(known["X-Amz-Expires"]))):
        raise ValueError("expired")
    if date != f"{signed_at:%Y%m%d}" or "User-Agent" not in known:
        raise ValueError("incomplete")
    if not hmac.compare_digest(
        signature_of(url, secrets.get(identity, "")), known["X-Amz-Signature"]
    ):
        raise ValueError("the signature does not match")
    return identity


class MskBroker:
    """Listens on loopback; a context manager. `secrets` are those of the access keys by id.

    `logins` has the identity of each login that was accepted; each lasts for `lifetime_ms`.
    """

    def __init__(
        self, region: str, secrets: Mapping[str, str], *, certificate: Path, key: Path
    ) -> None:
        self.logins: list[str] = []
        self.lifetime_ms = 0
        self._region, self._secrets = region, secrets
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._listener = context.wrap_socket(
            socket.create_server(("127.0.0.1", 0)), server_side=True
        )

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, port = self._listener.getsockname()
        return host, port

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while size := stream.read(4):
                request = stream.read(struct.unpack(">i", size)[0])
                key, _, correlation_id, named = _HEADER.unpack_from(request)
                answer = self._answer(key, request[_HEADER.size + named :])
                body = struct.pack(">i", correlation_id) + answer
                connection.sendall(struct.pack(">i", len(body)) + body)

    def _answer(self, key: int, body: bytes) -> bytes:
        if key == _API_VERSIONS:
            return struct.pack(">hi", 0, 0)
        if key == _HANDSHAKE:
            offered = b"OAUTHBEARER"
            is_offered = body[2:] == offered
            return struct.pack(">hih", 0 if is_offered else 33, 1, len(offered)) + offered
        if key != _AUTHENTICATE:
            raise ValueError(f"request {key} is not known here")
        token = body[4:].decode().partition("auth=Bearer ")[2].partition("\x01")[0]
        try:
            self.logins.append(identity_in(token, region=self._region, secrets=self._secrets))
        except ValueError as why:
            said = str(why).encode()
            return struct.pack(">hh", _REFUSED, len(said)) + said + struct.pack(">iq", 0, 0)
        return struct.pack(">hhiq", 0, -1, 0, self.lifetime_ms)
