"""An HTTP server of a test's own that answers as the test says: slowly, in part, with a login page,
or not at all.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

Respond = Callable[["Request"], None]


class Request(BaseHTTPRequestHandler):
    """One request; a test's function answers it with `send`, or by hand."""

    protocol_version = "HTTP/1.1"
    server: LyingServer

    def do_GET(self) -> None:  # the library's name for it
        self._received(self.path)

    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self._received(f"{self.path}?{form}")

    def _received(self, path: str) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        seen = ReceivedRequest(path, headers, self.client_address, self.command)
        self.server.seen.append(seen)
        self.server.respond(self)

    def send(
        self, status: int, body: str | bytes, kind: str = "application/json", **headers: str
    ) -> None:
        """A whole answer."""
        content = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(content)),
            **headers,
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: what was asked is in `seen`."""


@dataclass(frozen=True)
class ReceivedRequest:
    """What one request said; header names in lower case. The form of a POST is in `path`."""

    path: str
    headers: dict[str, str]
    connection: tuple[str, int]
    method: str = "GET"

    @property
    def query(self) -> str:
        """The PromQL."""
        return parse_qs(urlsplit(self.path).query)["query"][0]


@dataclass(eq=False)
class LyingServer(ThreadingHTTPServer):
    """Listens on a free loopback port while `serving`. `gone` is set at its end, for an answer that
    hangs until then.
    """

    respond: Respond
    seen: list[ReceivedRequest] = field(default_factory=list)
    gone: threading.Event = field(default_factory=threading.Event)
    daemon_threads = True

    def __post_init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing: clients that hang up early are what these tests are about."""

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def serving(respond: Respond, *, tls: ssl.SSLContext | None = None) -> Iterator[LyingServer]:
    """A server that answers with `respond`."""
    server = LyingServer(respond)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    thread.start()
    try:
        yield server
    finally:
        server.gone.set()
        server.shutdown()
        server.server_close()
        thread.join()
