"""A real Prometheus that scrapes nothing: tests write samples with any value and any time into it,
by remote write.
"""

from __future__ import annotations

import itertools
import json
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from lab import process
from lab.network import free_port
from lab.packages import PROMETHEUS, unpacked
from lab.process import patience, wait_until
from tests.unit.rollup.transport.chunk_writer import write_request

_TIMEOUT_SECONDS = 60
EXTERNAL_LABELS = {"cluster": "lab"}

Samples = Sequence[tuple[int, float]]


class HistoryServer:
    """Serves at `host` while it is entered. Frames of remote read are small, so that series span
    several. `binary` is another Prometheus than the lab's.
    """

    def __init__(
        self,
        directory: Path,
        host: str = "127.0.0.1",
        *,
        binary: Path | None = None,
        external_labels: Mapping[str, str] = EXTERNAL_LABELS,
    ) -> None:
        self._binary = binary
        self._external_labels = external_labels
        self._directory = directory
        self._host = host
        self._port = free_port(host)
        self._numbers = itertools.count(1)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        # Prometheus reads YAML, and JSON is YAML
        configuration = {
            "global": {"external_labels": dict(self._external_labels)},
            "storage": {"tsdb": {"out_of_order_time_window": "30d"}},
        }
        (self._directory / "prometheus.yml").write_text(json.dumps(configuration))
        argv = [
            str(self._binary or unpacked(PROMETHEUS) / "usr/bin/prometheus"),
            f"--config.file={self._directory}/prometheus.yml",
            f"--storage.tsdb.path={self._directory}/data",
            "--storage.tsdb.retention.time=100y",
            f"--web.listen-address={self._host}:{self._port}",
            "--web.enable-remote-write-receiver",
            "--storage.remote.read-max-bytes-in-frame=2048",
        ]
        with ExitStack() as stack:
            self.process = process.start(
                "prometheus",
                argv,
                log_path=self._directory / "prometheus.log",
                working_directory=self._directory,
            )
            stack.callback(self.process.stop)
            wait_until(
                self._is_ready,
                "Prometheus to be ready",
                timeout_seconds=_TIMEOUT_SECONDS,
                processes=[self.process],
            )
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://{self._host}:{self._port}"

    def new_metric(self) -> str:
        """A name that no test has used."""
        return f"written_{next(self._numbers)}"

    def write(self, metric: str, *series: tuple[Mapping[str, str], Samples]) -> None:
        """Store these samples of the metric."""
        body = write_request(
            ({"__name__": metric, **labels}, samples) for labels, samples in series
        )
        headers = {
            "Content-Encoding": "snappy",
            "Content-Type": "application/x-protobuf",
            "X-Prometheus-Remote-Write-Version": "0.1.0",
        }
        urllib.request.urlopen(
            urllib.request.Request(f"{self.url}/api/v1/write", body, headers), timeout=patience(10)
        ).close()

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False
