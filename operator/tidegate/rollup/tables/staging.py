"""What a worker hands over: files nobody reads yet, and a small record of each that travels to whoever publishes.

A task that is tried again leaves another file, never the same one again: only those count of which a record arrives.
"""

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidegate.rollup.schemas import TABLES, TableKind
from tidegate.rollup.tables.format import checksum, conform, contents_of, encode
from tidegate.rollup.tables.runs import require_run_id
from tidegate.rollup.tables.storage import Storage
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.tables.windows import Window, window_at

FOLDER = "_staging"


@dataclass(frozen=True, slots=True)
class StagedFile:
    """Rows of one window of one table in one staged file. Plain values only: `dataclasses.asdict` makes a row of it for Spark."""

    table: str
    window_start_ms: int
    path: str
    rows: int
    size_bytes: int
    sha256: str
    sums: Mapping[str, int]


def stage(store: UsageStore, run_id: str, table: str, rows: pa.Table, *, part: int) -> list[StagedFile]:
    """Write rows of any number of windows, a file a window; `part` tells tasks apart for people. No rows, no file.

    Raises UsageDamaged for rows that do not fit the table, Unreachable or Unauthorized where the storage does not take them.
    """
    kind = TABLES[table]
    conformed = conform(kind, rows)
    return [
        _stage_window(store.storage, require_run_id(run_id), kind, window, each, part=part) for window, each in _by_window(kind, conformed)
    ]


def discard_staging(store: UsageStore, run_id: str) -> None:
    """Remove what the run staged, once all of it is published or given up."""
    store.storage.delete_folder(staging_folder(run_id))


def staging_folder(run_id: str) -> str:
    return f"{FOLDER}/{require_run_id(run_id)}"


def published_starts_ms(kind: TableKind, rows: pa.Table) -> np.ndarray:
    """For each row the start of the window that it is published in."""
    at_ms = rows["window_start"].cast(pa.int64()).to_numpy()
    starts_ms: np.ndarray = at_ms - at_ms % kind.published_ms
    return starts_ms


def _by_window(kind: TableKind, rows: pa.Table) -> Iterator[tuple[Window, pa.Table]]:
    starts_ms = published_starts_ms(kind, rows)
    for start_ms in np.unique(starts_ms):
        yield window_at(kind, int(start_ms)), rows.filter(pa.array(starts_ms == start_ms))


def _stage_window(storage: Storage, run_id: str, kind: TableKind, window: Window, rows: pa.Table, *, part: int) -> StagedFile:
    content, contents = encode(rows), contents_of(kind, rows)
    path = f"{staging_folder(run_id)}/{kind.name}/{window.name}/part-{part}-{secrets.token_hex(4)}.parquet"
    storage.write(path, content, outlives_power=False)  # whoever publishes reads it, writes the rows anew, and forces those
    return StagedFile(kind.name, window.start_ms, path, contents.rows, len(content), checksum(content), contents.sums)
