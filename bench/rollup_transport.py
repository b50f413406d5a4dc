"""How fast each way of reading Prometheus' history is: 2,000 series over two hours at 15 s, as four tasks of the rollup would ask for them.

Half are counters of whole bytes, half gauges of rates with many digits, of which a tenth of the clients rest at zero: the one packs to
4 bytes a sample, the other to 9. The client is one process and asks one question at a time; the server shares the machine with it.
"""

from __future__ import annotations

import json
import random
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from bench.results import Figure
from lab import process
from lab.cache import RunDirectory
from lab.network import free_port
from lab.packages import PROMETHEUS, unpacked
from lab.process import wait_until
from tidegate.prometheus.settings import PrometheusServer
from tidegate.rollup.samples import Selection, SeriesSamples, Transport
from tidegate.rollup.transport.exchange import HistorySettings
from tidegate.rollup.transport.ladder import RUNGS

_BEGIN_SECONDS = 1_700_000_000
_SCRAPE_SECONDS = 15
_TIMEOUT_SECONDS = 300
_BYTES_METRIC, _RATE_METRIC = "kafka_server_bytes_total", "kafka_server_quota_byte_rate"


@dataclass(frozen=True)
class Size:
    """How much history there is: both metrics for each client of each broker."""

    brokers: int = 4
    clients: int = 250
    scrapes: int = 480
    runs: int = 3

    @property
    def samples(self) -> int:
        """Of all series together."""
        return self.brokers * self.clients * 2 * self.scrapes

    @property
    def end_ms(self) -> int:
        """Behind the last scrape."""
        return (_BEGIN_SECONDS + self.scrapes * _SCRAPE_SECONDS) * 1000


def rollup_transport(size: Size | None = None) -> list[Figure]:
    """The clock's median for each way, with samples a second and the client's processor time beside it; all ways must agree."""
    size = size or Size()
    with _prometheus(size) as url:
        settings = HistorySettings(PrometheusServer(url), scrape_interval_ms=_SCRAPE_SECONDS * 1000)
        read = {rung.name: _read_all(rung(settings), size) for rung in RUNGS}
        expected = (size.samples, next(iter(read.values()))[1])
        if any(found != expected for found in read.values()):
            raise RuntimeError(f"the ways of reading disagree on samples and their sum: {read}, expected {expected}")
        return [_measured(rung(settings), size) for rung in RUNGS]


def _measured(way: Transport, size: Size) -> Figure:
    clock, processor = [], []
    for _ in range(size.runs):
        started = time.perf_counter(), time.process_time()
        _read_all(way, size)
        clock.append(time.perf_counter() - started[0])
        processor.append(time.process_time() - started[1])
    way.close()
    rate = f"{size.samples / median(clock) / 1e6:.2f} M samples/s"
    note = f"{rate}; the client's processor {median(processor):.2f} s; best {min(clock):.2f} s, worst {max(clock):.2f} s"
    return Figure(f"{size.samples:,} samples read by {way.name}, median of {size.runs}", median(clock), "s", None, note)


def _read_all(way: Transport, size: Size) -> tuple[int, float]:
    """How many samples there are, and their sum: a number that differs as soon as one sample does."""
    found: list[SeriesSamples] = []
    for broker in range(size.brokers):
        for metric in (_BYTES_METRIC, _RATE_METRIC):
            found += way.read(Selection(metric, {"broker": str(broker)}), _BEGIN_SECONDS * 1000, size.end_ms)
    return sum(len(series.times_ms) for series in found), float(sum(np.sum(series.values) for series in found))


@contextmanager
def _prometheus(size: Size) -> Iterator[str]:
    """The address of a Prometheus that holds the history and scrapes nothing."""
    programs = unpacked(PROMETHEUS) / "usr/bin"
    with RunDirectory() as run:
        text, data, port = run.path / "history.om", run.path / "data", free_port()
        _write_history(text, size)
        blocks = [str(programs / "promtool"), "tsdb", "create-blocks-from", "openmetrics", str(text), str(data)]
        subprocess.run(blocks, check=True, capture_output=True, timeout=_TIMEOUT_SECONDS)
        text.unlink()
        (run.path / "prometheus.yml").write_text("{}")
        options = [f"--storage.tsdb.path={data}", "--storage.tsdb.retention.time=100y", f"--web.listen-address=127.0.0.1:{port}"]
        argv = [str(programs / "prometheus"), f"--config.file={run.path}/prometheus.yml", *options]
        url = f"http://127.0.0.1:{port}"
        with process.start("prometheus", argv, log_path=run.path / "prometheus.log", working_directory=run.path) as server:
            wait_until(lambda: _is_ready(url), "Prometheus to be ready", timeout_seconds=60, processes=[server])
            yield url


def _write_history(path: Path, size: Size) -> None:
    chance = random.Random(1)
    times = [_BEGIN_SECONDS + index * _SCRAPE_SECONDS for index in range(size.scrapes)]
    with path.open("w") as text:
        for metric in (_BYTES_METRIC, _RATE_METRIC):
            text.write(f"# TYPE {metric} unknown\n")
            for broker in range(size.brokers):
                for client in range(size.clients):
                    labels = f'{metric}{{broker="{broker}",user="user-{client % 40}",client_id={json.dumps(f"client-{client}")}}}'
                    values = _counter(chance, size) if metric == _BYTES_METRIC else _gauge(chance, size, client)
                    text.writelines(f"{labels} {value!r} {at}\n" for at, value in zip(times, values, strict=True))
        text.write("# EOF\n")


def _counter(chance: random.Random, size: Size) -> Iterator[int]:
    total, most = 0, chance.randrange(1_000, 10_000_000)
    for _ in range(size.scrapes):
        total += chance.randrange(most)
        yield total


def _gauge(chance: random.Random, size: Size, client: int) -> Iterator[float]:
    most = chance.uniform(1e3, 1e6) if client % 10 else 0.0
    return (chance.uniform(0.5, 1.0) * most for _ in range(size.scrapes))


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
