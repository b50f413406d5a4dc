"""A broker whose every byte is known, and what Prometheus would have scraped of it: by a number, so that it is the same each time.

Of ten clients seven send all the time, two come and go by the minute, and one is throttled: it sends as fast as its quota lets it
(`flat_out_client`). Gauges are those of a broker since Kafka 3.8.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.flat_out_client import REQUESTS_PER_QUOTA_SECOND, flat_out
from tidegate.rollup.fold.broker import DirectionSamples
from tidegate.rollup.fold.gauges import Client
from tidegate.rollup.fold.windows import WINDOW_MS, Windows
from tidegate.rollup.samples import SeriesSamples

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
    """`samples` are what was scraped; `bytes_of_clients` the truth by client and window. Clients that end in 0 are `throttled`."""

    samples: DirectionSamples
    clients: tuple[Client, ...]
    bytes_of_clients: Whole
    contracts: dict[Client, float]
    throttled: NDArray[np.bool_]


def made_direction(windows: Windows, clients: int, number: int, *, scrape_ms: int = 15_000, offset_ms: int = 0) -> MadeDirection:
    """One direction of one broker. With `offset_ms` 0 a scrape falls onto each edge, so that even single windows are exact."""
    times = np.arange(windows.start_ms - 90_000 + offset_ms, windows.end_ms + 90_001, scrape_ms, dtype=np.int64)
    names = tuple((f"user-{each:05d}", f"app-{each % 7}") for each in range(clients))
    per_second = _LARGEST_BYTES_PER_SECOND / (1 + np.arange(clients)) ** 0.5
    rates: list[SeriesSamples] = []
    truth, counts = np.zeros((clients, len(windows)), np.int64), np.zeros(len(times), np.int64)
    patterns = _throttled_patterns(number, times, windows)
    for first in range(0, clients, _BLOCK):
        own = slice(first, min(first + _BLOCK, clients))
        sent = _sent(np.random.default_rng([number, first]), per_second[own], windows, first)
        told = _byte_rates(sent, times, windows)
        for row in range(-first % 10, len(sent), 10):
            requests, multiples = patterns[(first + row) // 10 % _THROTTLED_PATTERNS]
            sent[row] = np.rint(requests * (per_second[first + row] / REQUESTS_PER_QUOTA_SECOND))
            told[row] = multiples * per_second[first + row]
        truth[own] = _in_windows(sent, windows)
        counts += _counts(sent, times, windows)
        rates += [SeriesSamples(_labels(name), times, row) for name, row in zip(names[own], told, strict=True)]
    throttled = np.arange(clients) % 10 == 0
    held = np.full(len(times), _THROTTLE_MILLISECONDS)
    total = [SeriesSamples({"job": "kafka"}, times, counts.astype(np.float64))]
    return MadeDirection(
        DirectionSamples(total, total, (), rates, [SeriesSamples(_labels(names[each]), times, held) for each in np.flatnonzero(throttled)]),
        names,
        truth,
        {names[each]: float(per_second[each]) for each in np.flatnonzero(throttled)},
        throttled,
    )


def _labels(client: Client) -> dict[str, str]:
    return {"user": client[0], "client_id": client[1], "resource": "Produce", "broker": "1"}


def _sent(chance: np.random.Generator, per_second: NDArray[np.float64], windows: Windows, first: int) -> Whole:
    """Bytes by client and second, from `_AROUND_SECONDS` before the windows until as long after them."""
    seconds = (windows.end_ms - windows.start_ms) // 1000 + 2 * _AROUND_SECONDS
    kind = (first + np.arange(len(per_second))) % 10
    shape = chance.random((len(per_second), seconds), np.float32) + 0.5
    minutes = chance.random((len(per_second), seconds // 60 + 1)) < 0.5
    shape[(kind == 1) | (kind == 2)] *= np.repeat(minutes, 60, axis=1)[(kind == 1) | (kind == 2), :seconds]
    return np.rint(shape * per_second[:, None]).astype(np.int64)


def _throttled_patterns(number: int, times: Whole, windows: Windows) -> list[tuple[Whole, NDArray[np.float64]]]:
    seconds = (windows.end_ms - windows.start_ms) // 1000 + 2 * _AROUND_SECONDS
    since = times - windows.start_ms + _AROUND_SECONDS * 1000
    return [flat_out(np.random.default_rng([number, pattern]), seconds, since) for pattern in range(_THROTTLED_PATTERNS)]


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
        found[:, column] = recent.sum(axis=1) / (age + np.maximum(0.0, _DIVIDED_SECONDS - np.floor(age)))
    return found
