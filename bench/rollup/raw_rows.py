"""Raw samples of a whole cluster as Parquet, which every engine is given.

A rollup of ours reads them in place of a Prometheus.

Columns `ts` (ms), `broker`, `user`, `client_id`, `direction`, `rate` (bytes/s, whole) and
`throttle_ms`; a file for each broker and hour, sorted by client and time, zstd; by a number, the
same each time. Scrapes fall onto the edges of windows, and one at an edge belongs to the window
that ends there, so five minutes of a client are its twenty rates times 15 s, in whatever language
one writes that. For ours only reading is replaced: the fold, the tables and Spark's part are the
product's. The broker's own counters are the sums of its clients.

A module of its own because an engine's process loads it, and nothing else of the benchmark.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tidegate.rollup.samples import ReadRequest, Selection, SeriesSamples
from tidegate.rollup.schemas import DIRECTIONS, HOUR_MS

SCRAPE_MS = 15_000
_THROTTLE_MS = 800
_THROTTLED_SHARE = 0.1


@dataclass(frozen=True)
class RawRows:
    """So many clients in each direction on each broker.

    50 brokers with 347 of them for 6 hours are 50 million rows.
    """

    start_ms: int
    hours: int = 6
    brokers: int = 50
    clients: int = 347

    @property
    def end_ms(self) -> int:
        return self.start_ms + self.hours * HOUR_MS

    @property
    def rows(self) -> int:
        return self.brokers * len(DIRECTIONS) * self.clients * self.hours * (HOUR_MS // SCRAPE_MS)

    def write(self, folder: Path) -> None:
        """All files, named `<broker>-<hour>.parquet`."""
        for broker in range(1, self.brokers + 1):
            chance = np.random.default_rng([broker])
            for hour in range(self.hours):
                rows = self._rows(chance, broker, self.start_ms + hour * HOUR_MS)
                pq.write_table(rows, folder / f"{broker}-{hour}.parquet", compression="zstd")

    def _rows(self, chance: np.random.Generator, broker: int, start_ms: int) -> pa.Table:
        series, scrapes = len(DIRECTIONS) * self.clients, HOUR_MS // SCRAPE_MS
        most = 5_000_000 / (1 + np.arange(series) % self.clients) ** 0.7
        rates = (most[:, None] * chance.uniform(0.2, 1.8, (series, scrapes))).astype(np.int64)
        throttled = (np.arange(series) % round(1 / _THROTTLED_SHARE) == 0)[:, None] & (
            chance.random((series, scrapes)) < 0.5
        )
        client = np.arange(series) % self.clients
        columns = {
            "ts": np.tile(start_ms + SCRAPE_MS * np.arange(1, scrapes + 1), series),
            "broker": np.full(series * scrapes, broker, np.int32),
            "user": _words("user", client // 3, scrapes),
            "client_id": _words("app", client, scrapes),
            "direction": pa.DictionaryArray.from_arrays(
                np.repeat(np.arange(series) // self.clients, scrapes).astype(np.int32), DIRECTIONS
            ),
            "rate": rates.ravel(),
            "throttle_ms": np.where(throttled, _THROTTLE_MS, 0).astype(np.int32).ravel(),
        }
        return pa.table(columns).cast(_SCHEMA)


def _words(stem: str, numbers: np.ndarray, times: int) -> pa.Array:
    every = pa.array([f"{stem}-{number:05d}" for number in range(int(numbers.max()) + 1)])
    return pa.DictionaryArray.from_arrays(np.repeat(numbers, times).astype(np.int32), every)


_SCHEMA = pa.schema(
    [
        ("ts", pa.int64()),
        ("broker", pa.int32()),
        ("user", pa.string()),
        ("client_id", pa.string()),
        ("direction", pa.string()),
        ("rate", pa.int64()),
        ("throttle_ms", pa.int32()),
    ]
)


_Kind = tuple[str, str]  # name and resource
_RESOURCES = {"produce": ("Produce", "in"), "fetch": ("Fetch", "out")}


class RawTransport:
    """Reads the files of `RawRows` below `folder`: of one broker's, one at a time and whole.

    Of several brokers it only says what series there are. No selection tells clients apart, so a
    kind of series is looked at once, as a server looks at its index, and not each client's.
    """

    name = "raw-rows"
    exact = True

    def __init__(self, folder: Path, start_ms: int, brokers: Sequence[int]) -> None:
        self._folder = folder
        self._start_ms = start_ms
        self._brokers = brokers
        self._kept: tuple[Path, Mapping[_Kind, Sequence[SeriesSamples]]] | None = None

    def read(self, selection: Selection, start_ms: int, end_ms: int) -> list[SeriesSamples]:
        """What a server with these rows would answer, of the hour in the middle of the range."""
        found = [
            one
            for broker in self._brokers
            for one in _series_of(broker)
            if _is_selected(one, selection)
        ]
        if len(self._brokers) > 1:  # who is there at all: the driver's question
            return [SeriesSamples(one, np.array([start_ms]), np.zeros(1)) for one in found]
        hour = ((start_ms + end_ms) // 2 - self._start_ms) // HOUR_MS
        return [series for one in found for series in self._hour(one["broker"], hour)[_kind(one)]]

    def read_all(self, asked: Sequence[ReadRequest]) -> list[list[SeriesSamples]]:
        """The same, one after the other."""
        return [self.read(*one) for one in asked]

    def close(self) -> None:
        """Nothing is open."""

    def _hour(self, broker: str, hour: int) -> Mapping[_Kind, Sequence[SeriesSamples]]:
        path = self._folder / f"{broker}-{hour}.parquet"
        if self._kept is None or self._kept[0] != path:
            rows = pq.read_table(path, read_dictionary=["user", "client_id", "direction"])
            series = defaultdict[_Kind, list[SeriesSamples]](list)
            for one in _series(rows, broker):
                series[_kind(one.labels)].append(one)
            self._kept = path, series
        return self._kept[1]


def _kind(labels: Mapping[str, str]) -> _Kind:
    return labels["__name__"], labels.get("resource", "")


def _series_of(broker: int) -> list[Mapping[str, str]]:
    """The kinds of series that each broker has."""
    own = {"broker": str(broker)}
    return [
        {**own, "__name__": name, **labels}
        for resource, flow in _RESOURCES.values()
        for name, labels in (
            (f"kafka_broker_bytes{flow}_total", {}),
            ("kafka_quota_byte_rate", {"resource": resource}),
            ("kafka_quota_throttle_time", {"resource": resource}),
        )
    ]


def _is_selected(labels: Mapping[str, str], selection: Selection) -> bool:
    if selection.metric and labels["__name__"] != selection.metric:
        return False
    return (
        all(labels.get(name, "") == value for name, value in selection.equal.items())
        and all(
            re.fullmatch(value, labels.get(name, "")) for name, value in selection.matching.items()
        )
        and not any(
            re.fullmatch(value, labels.get(name, "")) for name, value in selection.excluding.items()
        )
    )


def _series(rows: pa.Table, broker: str) -> list[SeriesSamples]:
    """The series of rows that are sorted by client and time.

    A client that was never throttled has no series of it, as NaN is none elsewhere.
    """
    rows = rows.combine_chunks()
    times = rows["ts"].to_numpy()
    rates, delays = (rows[name].to_numpy().astype(np.float64) for name in ("rate", "throttle_ms"))
    names = [rows[name].chunk(0) for name in ("direction", "user", "client_id")]
    starts = _starts([one.indices.to_numpy() for one in names])
    found: list[SeriesSamples] = []
    first = times[: starts[1]] if len(starts) > 1 else times
    totals = {way: np.zeros(len(first) + 1) for way in DIRECTIONS}
    spoken = [
        pc.take(one.dictionary, one.indices.take(pa.array(starts))).to_pylist() for one in names
    ]
    throttled = np.add.reduceat(delays, starts) > 0
    for begin, end, is_throttled, way, user, client_id in zip(
        starts, [*starts[1:], len(times)], throttled, *spoken, strict=True
    ):
        own = slice(begin, end)
        labels = {
            "broker": broker,
            "user": user,
            "client_id": client_id,
            "resource": _RESOURCES[way][0],
        }
        found.append(
            SeriesSamples({**labels, "__name__": "kafka_quota_byte_rate"}, times[own], rates[own])
        )
        if is_throttled:
            found.append(
                SeriesSamples(
                    {**labels, "__name__": "kafka_quota_throttle_time"}, times[own], delays[own]
                )
            )
        totals[way][1:] += rates[own]
    at = np.append(first[0] - SCRAPE_MS, first)
    return found + [
        _counter(broker, way, at, np.cumsum(total) * SCRAPE_MS / 1000)
        for way, total in totals.items()
    ]


def _counter(
    broker: str, way: str, times: NDArray[np.int64], counts: NDArray[np.float64]
) -> SeriesSamples:
    return SeriesSamples(
        {"broker": broker, "__name__": f"kafka_broker_bytes{_RESOURCES[way][1]}_total"},
        times,
        counts,
    )


def _starts(codes: Sequence[NDArray[np.int32]]) -> NDArray[np.int64]:
    changed = np.any([one[1:] != one[:-1] for one in codes], axis=0)
    return np.append(0, np.flatnonzero(changed) + 1)
