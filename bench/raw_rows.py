"""Raw samples of a whole estate as Parquet: what every engine is given, ours included. By a number, the same each time.

Columns `ts` (ms), `broker`, `user`, `client_id`, `direction`, `rate` (bytes/s, whole) and `throttle_ms`; a file for each broker and hour,
sorted by client and time, zstd. Scrapes fall onto the edges of windows, and one at an edge tells of the window that ends there, so five
minutes of a client are its twenty rates times 15 s, in whatever language one says it.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.rollup.schemas import DIRECTIONS, HOUR_MS

SCRAPE_MS = 15_000
_THROTTLE_MS = 800
_THROTTLED_SHARE = 0.1


@dataclass(frozen=True)
class RawRows:
    """So many clients in each direction on each broker; 50 brokers with 347 of them for 6 hours are 50 million rows."""

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
        throttled = (np.arange(series) % round(1 / _THROTTLED_SHARE) == 0)[:, None] & (chance.random((series, scrapes)) < 0.5)
        client = np.arange(series) % self.clients
        columns = {
            "ts": np.tile(start_ms + SCRAPE_MS * np.arange(1, scrapes + 1), series),
            "broker": np.full(series * scrapes, broker, np.int32),
            "user": _words("user", client // 3, scrapes),
            "client_id": _words("app", client, scrapes),
            "direction": pa.DictionaryArray.from_arrays(np.repeat(np.arange(series) // self.clients, scrapes).astype(np.int32), DIRECTIONS),
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
