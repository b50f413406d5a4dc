"""A whole cluster as Prometheus holds it, of which every byte is known.

It has brokers with their NICs, counters and clients. A few are made and many are copies: broker n
does what broker n modulo `_MADE` does, and each hour is the first one again, because making them
takes longer than measuring.
"""

import sys
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lab.prometheus import PrometheusLab
from tidegate.rollup.fold.broker import DirectionSamples
from tidegate.rollup.fold.clients import Client
from tidegate.rollup.fold.windows import WINDOW_MS, Windows
from tidegate.rollup.samples import SeriesSamples
from tidegate.rollup.schemas import DIRECTIONS, HOUR_MS, Direction
from tidegate.rollup.transport.encoding import packed
from tidegate_logic.words import rfc3339_ms

# A real Prometheus whose history a benchmark writes: nothing is scraped, and samples lie as they
# would after hours of scraping.
#
# Samples go in by remote write, 18 bytes each, laid out by numpy: text for `promtool` takes ten
# times as long. Its head block is kept open for days, so that the server compacts nothing while
# somebody measures. It can be killed and started again with what it had.


_START_TIMEOUT_SECONDS = 120
_WRITE_TIMEOUT_SECONDS = 60
_REQUEST_BYTES = 4_000_000
_HEAD = "240h"
_HEADERS = {
    "Content-Encoding": "snappy",
    "Content-Type": "application/x-protobuf",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}


class HistoryPrometheus(PrometheusLab):
    """Serves while it is entered; its data is in `directory`."""

    def __init__(self, directory: Path) -> None:
        options = [
            "--storage.tsdb.retention.time=100y",
            f"--storage.tsdb.min-block-duration={_HEAD}",
            f"--storage.tsdb.max-block-duration={_HEAD}",
            "--web.enable-remote-write-receiver",
        ]
        super().__init__(
            directory=directory,
            configuration={},
            options=options,
            niceness=0,
            start_timeout_seconds=_START_TIMEOUT_SECONDS,
        )

    def write(self, series: Iterable[SeriesSamples]) -> None:
        """Store these series; each has its `__name__` as a label and rises from what it had.

        Raises HTTPError for what the server refuses.
        """
        for body in _requests(series):
            asked = urllib.request.Request(f"{self.url}/api/v1/write", packed(body), _HEADERS)
            urllib.request.urlopen(asked, timeout=_WRITE_TIMEOUT_SECONDS).close()


def _requests(series: Iterable[SeriesSamples]) -> Iterator[bytes]:
    """Messages WriteRequest of a few megabytes each."""
    parts: list[bytes] = []
    size = 0
    for one in series:
        parts.append(
            bytes_field(1, _label_messages(one.labels) + _sample_messages(one.times_ms, one.values))
        )
        size += len(parts[-1])
        if size > _REQUEST_BYTES:
            yield b"".join(parts)
            parts, size = [], 0
    if parts:
        yield b"".join(parts)


def bytes_field(number: int, content: bytes) -> bytes:
    """A field of a protocol buffers' message that holds text or a message."""
    length, size = bytearray(), len(content)
    while size >= 0x80:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + content


def _label_messages(labels: Mapping[str, str]) -> bytes:
    pairs = (
        bytes_field(1, name.encode()) + bytes_field(2, value.encode())
        for name, value in sorted(labels.items())
    )
    return b"".join(bytes_field(1, one) for one in pairs)


def _sample_messages(times_ms: NDArray[np.int64], values: NDArray[np.float64]) -> bytes:
    """Messages Sample: 12 10 | 09 value | 10 time.

    The time has six bytes as long as the year is 1972 to 2109.
    """
    laid = np.empty((len(values), 18), np.uint8)
    laid[:, :3] = 0x12, 0x10, 0x09
    laid[:, 3:11] = np.ascontiguousarray(values, "<f8").view(np.uint8).reshape(-1, 8)
    laid[:, 11] = 0x10
    for place in range(6):
        laid[:, 12 + place] = (times_ms >> (7 * place)) & 0x7F | (0x80 if place < 5 else 0)
    return laid.tobytes()


# A producer that sends as fast as its quota lets it, against the broker's own arithmetic: when it
# sends, and what its gauge shows.
#
# Kafka since 3.8, `quota.window.num` 11 of a second: twelve samples in a ring, each forgotten
# eleven seconds after its last byte; the rate is their sum over the time since the oldest began and
# as many whole seconds as are missing to ten; who is above the quota waits until he would not be.
# Such a client sends its window in a second, then waits, and no two rounds are alike.


_SAMPLES = 11
_SAMPLE_MS = 1000.0
REQUESTS_PER_QUOTA_SECOND = 5  # a request is a fifth of what the quota allows in a second
_TRANSFER_MS = 20.0  # ten times as fast as the quota
_PAUSE_MS = 30.0  # at most, before it sends again


@dataclass(slots=True)
class _Sample:
    began_ms: float
    last_ms: float
    requests: float = 0.0


@dataclass(slots=True)
class _Ring:
    samples: list[_Sample] = field(default_factory=list)
    current: int = 0

    def record(self, now_ms: float) -> None:
        if not self.samples:
            self.samples.append(_Sample(now_ms, now_ms))
        if now_ms - self.samples[self.current].began_ms >= _SAMPLE_MS:
            self.current = (self.current + 1) % (_SAMPLES + 1)
            self.samples[self.current : self.current + 1] = [_Sample(now_ms, now_ms)]
        self.samples[self.current].requests += 1
        self.samples[self.current].last_ms = now_ms

    def window_and_requests(self, now_ms: float) -> tuple[float, float]:
        """The milliseconds by which the broker divides, and what it divides."""
        for sample in self.samples:
            if now_ms - sample.last_ms >= _SAMPLES * _SAMPLE_MS:
                sample.began_ms, sample.last_ms, sample.requests = now_ms, now_ms, 0.0
        elapsed = now_ms - min((sample.began_ms for sample in self.samples), default=now_ms)
        missing = max(0.0, _SAMPLES - 1 - elapsed // _SAMPLE_MS) * _SAMPLE_MS
        return max(1.0, elapsed + missing), sum(sample.requests for sample in self.samples)


def flat_out(
    chance: np.random.Generator, until_seconds: int, read_at_ms: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Requests in each second from 0 on, and the gauge at these times in quotas."""
    ring, sent, gauge = _Ring(), np.zeros(until_seconds, np.int64), np.zeros(len(read_at_ms))
    now_ms, read = float(chance.random() * 1000), 0
    while now_ms < until_seconds * 1000:
        while read < len(read_at_ms) and read_at_ms[read] <= now_ms:
            window_ms, requests = ring.window_and_requests(float(read_at_ms[read]))
            gauge[read] = requests / REQUESTS_PER_QUOTA_SECOND / (window_ms / 1000)
            read += 1
        ring.record(now_ms)
        sent[int(now_ms // 1000)] += 1
        window_ms, requests = ring.window_and_requests(now_ms)
        excess_ms = requests / REQUESTS_PER_QUOTA_SECOND * 1000 - window_ms
        now_ms += _TRANSFER_MS + (
            excess_ms + float(chance.random()) * _PAUSE_MS if excess_ms > 0 else 0.0
        )
    return sent, gauge


# A broker whose every byte is known, and what Prometheus would have scraped of it: by a number, so
# that it is the same each time.
#
# Of ten clients seven send all the time, two come and go by the minute, and one is throttled: it
# sends as fast as its quota lets it (`flat_out`). Gauges are those of a broker since Kafka 3.8.


Whole = NDArray[np.int64]

_AROUND_SECONDS = 120  # made before and after the windows, so that their edges are whole
_REMEMBERED_SECONDS = 12
_DIVIDED_SECONDS = 10.0
_THROTTLED_PATTERNS = 4  # throttled clients do the same as every fourth of them
_BLOCK = 500  # clients made at once: their seconds are the largest thing here
_LARGEST_BYTES_PER_SECOND = 5_000_000
_THROTTLE_MILLISECONDS = 800.0


@dataclass(frozen=True, slots=True, eq=False)
class MadeDirection:
    """`samples` are what was scraped; `bytes_of_clients` the truth by client and window.

    Clients that end in 0 are `throttled`.
    """

    samples: DirectionSamples
    clients: tuple[Client, ...]
    bytes_of_clients: Whole
    contracts: dict[Client, float]
    throttled: NDArray[np.bool_]


def made_direction(
    windows: Windows, clients: int, number: int, *, offset_ms: int = 0
) -> MadeDirection:
    """One direction of one broker.

    With `offset_ms` 0 a scrape falls onto each edge, so that even single windows are exact.
    """
    times = np.arange(
        windows.start_ms - 90_000 + offset_ms, windows.end_ms + 90_001, SCRAPE_MS, dtype=np.int64
    )
    names = tuple((f"user-{each:05d}", f"app-{each % 7}") for each in range(clients))
    per_second = _LARGEST_BYTES_PER_SECOND / (1 + np.arange(clients)) ** 0.5
    rates: list[SeriesSamples] = []
    truth, counts = np.zeros((clients, len(windows)), np.int64), np.zeros(len(times), np.int64)
    patterns = _throttled_patterns(number, times, windows)
    for first in range(0, clients, _BLOCK):
        own = slice(first, min(first + _BLOCK, clients))
        sent = _sent(np.random.default_rng([number, first]), per_second[own], windows, first)
        gauge = _byte_rates(sent, times, windows)
        for row in range(-first % 10, len(sent), 10):
            requests, multiples = patterns[(first + row) // 10 % _THROTTLED_PATTERNS]
            sent[row] = np.rint(requests * (per_second[first + row] / REQUESTS_PER_QUOTA_SECOND))
            gauge[row] = multiples * per_second[first + row]
        truth[own] = _in_windows(sent, windows)
        counts += _counts(sent, times, windows)
        rates += [
            SeriesSamples(_labels(name), times, row)
            for name, row in zip(names[own], gauge, strict=True)
        ]
    throttled = np.arange(clients) % 10 == 0
    held = np.full(len(times), _THROTTLE_MILLISECONDS)
    total = [SeriesSamples({"job": "kafka"}, times, counts.astype(np.float64))]
    return MadeDirection(
        DirectionSamples(
            total,
            total,
            (),
            rates,
            [
                SeriesSamples(_labels(names[each]), times, held)
                for each in np.flatnonzero(throttled)
            ],
        ),
        names,
        truth,
        {names[each]: float(per_second[each]) for each in np.flatnonzero(throttled)},
        throttled,
    )


def _labels(client: Client) -> dict[str, str]:
    return {"user": client[0], "client_id": client[1], "resource": "Produce", "broker": "1"}


def _sent(
    chance: np.random.Generator, per_second: NDArray[np.float64], windows: Windows, first: int
) -> Whole:
    """Bytes by client and second, with `_AROUND_SECONDS` before and after the windows."""
    seconds = (windows.end_ms - windows.start_ms) // 1000 + 2 * _AROUND_SECONDS
    kind = (first + np.arange(len(per_second))) % 10
    shape = chance.random((len(per_second), seconds), np.float32) + 0.5
    minutes = chance.random((len(per_second), seconds // 60 + 1)) < 0.5
    shape[(kind == 1) | (kind == 2)] *= np.repeat(minutes, 60, axis=1)[
        (kind == 1) | (kind == 2), :seconds
    ]
    return np.rint(shape * per_second[:, None]).astype(np.int64)


def _throttled_patterns(
    number: int, times: Whole, windows: Windows
) -> list[tuple[Whole, NDArray[np.float64]]]:
    seconds = (windows.end_ms - windows.start_ms) // 1000 + 2 * _AROUND_SECONDS
    since = times - windows.start_ms + _AROUND_SECONDS * 1000
    return [
        flat_out(np.random.default_rng([number, pattern]), seconds, since)
        for pattern in range(_THROTTLED_PATTERNS)
    ]


def _in_windows(sent: Whole, windows: Windows) -> Whole:
    within = sent[:, _AROUND_SECONDS:-_AROUND_SECONDS]
    found: Whole = within.reshape(len(sent), len(windows), WINDOW_MS // 1000).sum(axis=2)
    return found


def _place(times: Whole, windows: Windows) -> tuple[Whole, NDArray[np.float64]]:
    """In which second each scrape falls, and how much of that second is over."""
    since = times - windows.start_ms + _AROUND_SECONDS * 1000
    return since // 1000, (since % 1000) / 1000


def _counts(sent: Whole, times: Whole, windows: Windows) -> Whole:
    """The broker's counter at each scrape."""
    second, part = _place(times, windows)
    total = sent.sum(axis=0)
    before = np.concatenate(([0], np.cumsum(total)))[second]
    counts: Whole = before + np.floor(total[second] * part).astype(np.int64)
    return counts


def _byte_rates(sent: Whole, times: Whole, windows: Windows) -> NDArray[np.float64]:
    """Kafka's gauge of each client at each scrape."""
    found = np.empty((len(sent), len(times)))
    for column, (second, part) in enumerate(zip(*_place(times, windows), strict=True)):
        recent = sent[:, second - _REMEMBERED_SECONDS + 1 : second + 1].astype(np.float64)
        recent[:, -1] *= part
        age = _REMEMBERED_SECONDS - 1 - np.argmax(recent > 0, axis=1) + part
        found[:, column] = recent.sum(axis=1) / (
            age + np.maximum(0.0, _DIVIDED_SECONDS - np.floor(age))
        )
    return found


SCRAPE_MS = 15_000
_MADE = 4
_NIC_OVERHEAD = 1.05
_WAYS = {"produce": ("Produce", "in", "receive"), "fetch": ("Fetch", "out", "transmit")}


@dataclass(frozen=True)
class SyntheticCluster:
    """`brokers` with so many clients in each direction, over whole hours from `start_ms` on.

    A scrape falls onto each edge with `offset_ms` 0; then counters are exact in each single window.
    """

    start_ms: int
    hours: int = 1
    brokers: int = 20
    clients: int = 250
    offset_ms: int = 0

    @property
    def end_ms(self) -> int:
        return self.start_ms + self.hours * HOUR_MS

    @property
    def rate_series(self) -> int:
        """Byte rates of clients; a tenth as many throttle times and a few counters come on top."""
        return self.brokers * len(DIRECTIONS) * self.clients

    @property
    def samples(self) -> int:
        """The number of samples of byte rates and throttle times within the hours.

        What is read beyond their edges, and the counters, are not counted.
        """
        series = self.rate_series + self.brokers * sum(
            len(made.samples.throttle_times) for made in self._made[0].values()
        )
        return series * self.hours * HOUR_MS // SCRAPE_MS

    def rollup_argv(self, url: str, folder: Path) -> list[str]:
        """The command that rolls all of it up, from that Prometheus into that folder."""
        span = ["--from", rfc3339_ms(self.start_ms), "--to", rfc3339_ms(self.end_ms)]
        run = [sys.executable, "-m", "tidegate", "rollup", "run"]
        return [*run, "--prometheus", url, *span, "--out", str(folder)]

    def made(self, broker: int) -> dict[Direction, MadeDirection]:
        """What this broker (from 1 on) moved in the first hour."""
        return self._made[broker % len(self._made)]

    def series(self) -> Iterator[SeriesSamples]:
        """Everything, with names, as a server would have scraped it."""
        for broker in range(1, self.brokers + 1):
            for way, made in self.made(broker).items():
                yield from (self._repeated(one) for one in _of_broker(broker, way, made))

    def _repeated(self, one: SeriesSamples) -> SeriesSamples:
        """Hour after hour the same; a counter goes on from where it was, a gauge starts over."""
        first, last = np.searchsorted(
            one.times_ms, (self.start_ms, self.start_ms + HOUR_MS), side="right"
        )
        hour, risen = slice(first, last), 0.0
        if one.labels["__name__"].endswith("_total"):
            risen = one.values[last - 1] - one.values[first - 1]
        after = np.arange(self.hours) * float(HOUR_MS), np.arange(self.hours) * risen
        times, values = (
            np.add.outer(step, known[hour]).ravel()
            for step, known in zip(after, (one.times_ms, one.values), strict=True)
        )
        times = np.concatenate(
            [
                one.times_ms[:first],
                times.astype(np.int64),
                one.times_ms[last:] + (self.hours - 1) * HOUR_MS,
            ]
        )
        return SeriesSamples(
            one.labels,
            times,
            np.concatenate(
                [one.values[:first], values, one.values[last:] + (self.hours - 1) * risen]
            ),
        )

    @cached_property
    def _made(self) -> list[dict[Direction, MadeDirection]]:
        first_hour = Windows(self.start_ms, self.start_ms + HOUR_MS)
        return [
            {
                way: made_direction(
                    first_hour, self.clients, 2 * pattern + number, offset_ms=self.offset_ms
                )
                for number, way in enumerate(DIRECTIONS)
            }
            for pattern in range(min(_MADE, self.brokers))
        ]


def _of_broker(broker: int, way: Direction, made: MadeDirection) -> Iterator[SeriesSamples]:
    resource, flow, wire = _WAYS[way]
    own, total = {"broker": str(broker)}, made.samples.client_bytes[0]
    yield replace(total, labels={**own, "__name__": f"kafka_broker_bytes{flow}_total"})
    on_wire = np.floor(total.values * _NIC_OVERHEAD)
    yield replace(
        total,
        labels={**own, "__name__": f"node_network_{wire}_bytes_total", "device": "eth0"},
        values=on_wire,
    )
    for name, gauges in (
        ("kafka_quota_byte_rate", made.samples.rates),
        ("kafka_quota_throttle_time", made.samples.throttle_times),
    ):
        for one in gauges:
            client = {"user": one.labels["user"], "client_id": one.labels["client_id"]}
            yield replace(one, labels={**own, **client, "__name__": name, "resource": resource})
