"""An exporter whose metrics its maker makes up anew for every scrape, so that counters grow, fall and vanish as a test wants."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# What it shows at its n-th scrape, in Prometheus' text format; scrapes are counted from 0.
Metrics = Callable[[int], str]


class Exporter(ThreadingHTTPServer):
    """Serves `metrics` on a free loopback port while `exporting`."""

    daemon_threads = True

    def __init__(self, metrics: Metrics) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._metrics = metrics
        self.scrapes = 0

    @property
    def address(self) -> str:
        """Its host:port."""
        return f"127.0.0.1:{self.server_address[1]}"

    def next_page(self) -> bytes:
        """What the next scrape gets."""
        page = self._metrics(self.scrapes)
        self.scrapes += 1
        return page.encode()


class _Handler(BaseHTTPRequestHandler):
    server: Exporter

    def do_GET(self) -> None:
        page = self.server.next_page()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@contextmanager
def exporting(metrics: Metrics) -> Iterator[Exporter]:
    """An exporter that runs."""
    exporter = Exporter(metrics)
    thread = threading.Thread(target=exporter.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield exporter
    finally:
        exporter.shutdown()
        exporter.server_close()
        thread.join()
