"""What stands in front of an Iceberg catalog: it asks for a login, and can lose answers."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import parse_qs, urlsplit

_TOKENS = "/v1/oauth/tokens"
_TIMEOUT_SECONDS = 60


class CatalogGate:
    """Passes requests on while it is entered. With a `token`, none without it; it is given in
    exchange for the client's `secret`, as OAuth does.
    """

    def __init__(self, catalog_uri: str, *, token: str = "", secret: str = "") -> None:
        self.lose_answers_to_commits = False
        self.warehouses: list[str] = []  # that were asked for
        self.scopes: list[str] = []
        self._catalog_uri, self._token, self._secret = catalog_uri, token, secret
        gate = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                gate.answer(self)

            do_HEAD = do_POST = do_DELETE = do_GET  # noqa: N815  (names of http.server)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """One request, whole."""
        body = request.rfile.read(int(request.headers.get("Content-Length", "0")))
        parts = urlsplit(request.path)
        self.warehouses += parse_qs(parts.query).get("warehouse", [])
        if self._token and parts.path == _TOKENS:
            status, answer = self._exchanged(body)
        elif self._token and request.headers.get("Authorization") != f"Bearer {self._token}":
            error = {"message": "no login", "type": "NotAuthorizedException", "code": 401}
            status, answer = 401, json.dumps({"error": error}).encode()
        else:
            status, answer = self._passed_on(request, body)
        is_commit = request.command == "POST" and "/tables/" in parts.path
        if is_commit and self.lose_answers_to_commits:
            request.close_connection = True
            request.connection.close()
            return
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(answer)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(answer)

    def _exchanged(self, body: bytes) -> tuple[int, bytes]:
        given = parse_qs(body.decode())
        self.scopes += given.get("scope", [])
        if given.get("client_secret") != [self._secret]:
            return 401, json.dumps({"error": "invalid_client", "error_description": "no"}).encode()
        return 200, json.dumps(
            {"access_token": self._token, "token_type": "bearer", "expires_in": 3600}
        ).encode()

    def _passed_on(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, bytes]:
        passed = urllib.request.Request(
            f"{self._catalog_uri}{request.path}",
            body or None,
            {"Content-Type": "application/json"},
            method=request.command,
        )
        try:
            with urllib.request.urlopen(passed, timeout=_TIMEOUT_SECONDS) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read()
