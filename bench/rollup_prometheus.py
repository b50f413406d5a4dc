"""A real Prometheus whose history a benchmark writes: nothing is scraped, and samples lie as they would after hours of scraping.

Samples go in by remote write, 18 bytes each, laid out by numpy: text for `promtool` takes ten times as long. Its head block is kept open
for days, so that the server compacts nothing while somebody measures. It can be killed and started again with what it had.
"""

import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from lab import process
from lab.network import free_port
from lab.packages import PROMETHEUS, unpacked
from lab.process import Process, wait_until
from tidegate.rollup.samples import SeriesSamples
from tidegate.rollup.transport.wire import bytes_field, packed

_START_TIMEOUT_SECONDS = 120
_WRITE_TIMEOUT_SECONDS = 60
_REQUEST_BYTES = 4_000_000
_HEAD = "240h"
_HEADERS = {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf", "X-Prometheus-Remote-Write-Version": "0.1.0"}


class HistoryPrometheus:
    """Serves while it is entered; its data is in `directory`, which exists."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = free_port()
        self._process: Process | None = None

    def __enter__(self) -> Self:
        (self._directory / "prometheus.yml").write_text("{}")
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.stop()

    @property
    def url(self) -> str:
        """Its address, which a restart does not change."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it with the data that it has, and wait until it answers."""
        argv = [
            str(unpacked(PROMETHEUS) / "usr/bin/prometheus"),
            f"--config.file={self._directory}/prometheus.yml",
            f"--storage.tsdb.path={self._directory}/data",
            "--storage.tsdb.retention.time=100y",
            f"--storage.tsdb.min-block-duration={_HEAD}",
            f"--storage.tsdb.max-block-duration={_HEAD}",
            f"--web.listen-address=127.0.0.1:{self._port}",
            "--web.enable-remote-write-receiver",
        ]
        log_path = self._directory / "prometheus.log"
        self._process = process.start("prometheus", argv, log_path=log_path, working_directory=self._directory, niceness=0)
        wait_until(self._is_ready, "Prometheus to be ready", timeout_seconds=_START_TIMEOUT_SECONDS, processes=[self._process])

    def kill(self) -> None:
        """End it as a crash would."""
        if self._process is not None:
            self._process.kill()

    def write(self, series: Iterable[SeriesSamples]) -> None:
        """Store these; each series has its `__name__` among its labels and rises from what it had. Raises HTTPError for what it refuses."""
        for body in _requests(series):
            asked = urllib.request.Request(f"{self.url}/api/v1/write", packed(body), _HEADERS)
            urllib.request.urlopen(asked, timeout=_WRITE_TIMEOUT_SECONDS).close()

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def _requests(series: Iterable[SeriesSamples]) -> Iterator[bytes]:
    """Messages WriteRequest of a few megabytes each."""
    parts: list[bytes] = []
    size = 0
    for one in series:
        parts.append(bytes_field(1, _labels(one.labels) + _samples(one.times_ms, one.values)))
        size += len(parts[-1])
        if size > _REQUEST_BYTES:
            yield b"".join(parts)
            parts, size = [], 0
    if parts:
        yield b"".join(parts)


def _labels(labels: Mapping[str, str]) -> bytes:
    told = (bytes_field(1, name.encode()) + bytes_field(2, value.encode()) for name, value in sorted(labels.items()))
    return b"".join(bytes_field(1, one) for one in told)


def _samples(times_ms: NDArray[np.int64], values: NDArray[np.float64]) -> bytes:
    """Messages Sample: 12 10 | 09 value | 10 time, six bytes of it as long as the year is 1972 to 2109."""
    laid = np.empty((len(values), 18), np.uint8)
    laid[:, :3] = 0x12, 0x10, 0x09
    laid[:, 3:11] = np.ascontiguousarray(values, "<f8").view(np.uint8).reshape(-1, 8)
    laid[:, 11] = 0x10
    for place in range(6):
        laid[:, 12 + place] = (times_ms >> (7 * place)) & 0x7F | (0x80 if place < 5 else 0)
    return laid.tobytes()
