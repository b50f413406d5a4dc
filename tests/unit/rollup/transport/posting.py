"""A lying server that takes questions by POST, and transports that ask it without waiting between
attempts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs

from tests.unit.prometheus.lying_server import LyingServer, Request, serving
from tidegate.prometheus.settings import PrometheusServer
from tidegate.rollup.transport.exchange import Exchange, HistorySettings
from tidegate.rollup.transport.series import HistoryReader

STREAMED = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse"


class PostRequest(Request):
    """One question; `body` is what was posted."""

    body: bytes

    def do_POST(self) -> None:  # noqa: N802 - the library's name for it
        self.body = self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    @property
    def form(self) -> dict[str, str]:
        """The fields of a form."""
        return {name: values[0] for name, values in parse_qs(self.body.decode()).items()}


Respond = Callable[[Any], None]


@contextmanager
def answering(respond: Respond) -> Iterator[LyingServer]:
    """A server that answers POSTs with `respond`."""
    with serving(respond) as server:
        server.RequestHandlerClass = PostRequest
        yield server


@contextmanager
def asking(
    kind: type[HistoryReader], server: LyingServer, /, **settings: Any
) -> Iterator[HistoryReader]:
    """A way of reading this server."""
    asked_settings = replace(HistorySettings(PrometheusServer(server.url)), **settings)
    reader = kind(asked_settings, exchange=Exchange(asked_settings, pause=lambda seconds: None))
    yield reader
    reader.close()


def first_then(first: Respond, then: Respond) -> Respond:
    """Answers once with `first`, from then on with `then`."""
    asked = threading.Event()

    def respond(request: Any) -> None:
        if asked.is_set():
            then(request)
        else:
            asked.set()
            first(request)

    return respond
