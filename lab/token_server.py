"""An authorization server on loopback: a token endpoint for client credentials, and its keys.

    with TokenServer(folder, certificate=..., key=...) as server:
        KraftLab(server_properties=server.broker_settings(), java_options=server.java_options())
        server.clients["tidegate"] = "secret"

Tokens are JSON Web Tokens by RS256, which openssl signs. Brokers read the public key (JWKS) from a
file. `lifetime_seconds` and `audience` of the next tokens, and `clients`, may be changed meanwhile.
"""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self
from urllib.parse import parse_qs, unquote_plus

from lab.doctor import refuse_missing
from lab.network import free_port

ISSUER = "https://issuer.test"
AUDIENCE = "kafka"
_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"


class TokenServer:
    """The server; a context manager. `stop` and `start` take it away and bring it back."""

    def __init__(self, folder: Path, *, certificate: Path, key: Path) -> None:
        refuse_missing("openssl")
        folder.mkdir(parents=True, exist_ok=True)
        self.clients: dict[str, str] = {}
        self.lifetime_seconds = 300.0
        self.audience = AUDIENCE
        self.requests: list[Mapping[str, str]] = []
        self._certificate, self._key = certificate, key
        self._port = free_port()
        self._signing_key = folder / "signing.pem"
        self._keys = folder / "jwks.json"
        self._server: ThreadingHTTPServer | None = None
        _openssl("genrsa", "-out", str(self._signing_key), "2048")
        self._keys.write_text(json.dumps({"keys": [self._public_key()]}))

    @property
    def url(self) -> str:
        """The token endpoint."""
        return f"https://127.0.0.1:{self._port}/token"

    def broker_settings(self) -> dict[str, str]:
        """The settings of listener `sasl` for Kafka's own validator of these tokens."""
        mechanism = "listener.name.sasl.oauthbearer"
        return {
            "listener.name.sasl.sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{mechanism}.sasl.jaas.config": _MODULE,
            f"{mechanism}.sasl.server.callback.handler.class": _HANDLER,
            "sasl.oauthbearer.jwks.endpoint.url": self._keys.as_uri(),
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
        }

    def java_options(self) -> tuple[str, ...]:
        """Without these a broker reads keys from nowhere."""
        return (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self._keys.as_uri()}",)

    def token(self, subject: str, *, lifetime_seconds: float | None = None) -> str:
        """A token of this subject; a negative lifetime makes one that has expired."""
        now = time.time()
        lasts = self.lifetime_seconds if lifetime_seconds is None else lifetime_seconds
        header = {"alg": "RS256", "typ": "JWT", "kid": "lab"}
        claims = {
            "iss": ISSUER,
            "aud": [self.audience],
            "sub": subject,
            "iat": int(now + min(lasts, 0)) - 1,
            "exp": int(now + lasts),
        }
        signed = f"{_encoded(json.dumps(header).encode())}.{_encoded(json.dumps(claims).encode())}"
        signature = _openssl(
            "dgst", "-sha256", "-sign", str(self._signing_key), content=signed.encode()
        )
        return f"{signed}.{_encoded(signature)}"

    def start(self) -> None:
        """Listen."""
        lab = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                lab._answer(self)

            def log_message(self, *_: object) -> None:
                """It writes nothing: a request has a secret."""

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._certificate, self._key)
        server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self._server = server

    def stop(self) -> None:
        """Listen no more. A second call does nothing."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        length = int(request.headers.get("Content-Length", "0"))
        found = parse_qs(request.rfile.read(length).decode())
        form = {name: values[0] for name, values in found.items()}
        kind, _, login = request.headers.get("Authorization", "").partition(" ")
        client, _, secret = base64.b64decode(login).decode().partition(":")
        client, secret = unquote_plus(client), unquote_plus(secret)
        self.requests.append({**form, "client": client})
        status, body = 200, dict[str, object]()
        if kind != "Basic" or self.clients.get(client, "") != secret or not secret:
            status, body = 401, {"error": "invalid_client", "error_description": f"not {secret}"}
        elif form.get("grant_type") != "client_credentials":
            status, body = 400, {"error": "unsupported_grant_type"}
        else:
            lasts = self.lifetime_seconds
            body = {"access_token": self.token(client), "expires_in": lasts, "token_type": "Bearer"}
        content = json.dumps(body).encode()
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)

    def _public_key(self) -> dict[str, str]:
        shown = _openssl("rsa", "-in", str(self._signing_key), "-noout", "-modulus").decode()
        modulus = bytes.fromhex(shown.strip().partition("=")[2])
        known = {"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "lab", "e": "AQAB"}
        return {**known, "n": _encoded(modulus)}


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _openssl(*arguments: str, content: bytes = b"") -> bytes:
    done = subprocess.run(["openssl", *arguments], input=content, capture_output=True, check=True)
    return done.stdout
