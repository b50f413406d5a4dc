"""How a large cluster fits into memory: a task's hour, and the day that is put together.

Members are on every broker in both directions. Each part is a process of its own, with made-up
history. What a part holds at once is about one broker, so its memory is that of any number of them;
the time of a day grows with their number.
"""

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.results import Cost, Figure, cost_of
from bench.rollup.synthetic import made_direction
from lab.cache import RunDirectory
from tidegate.rollup.fold.broker import broker_table, fold_broker, usage_table
from tidegate.rollup.fold.hours import broker_hour, usage_hour
from tidegate.rollup.fold.windows import Windows
from tidegate.rollup.schemas import (
    DAY_MS,
    DIRECTIONS,
    FIVE_MINUTES_MS,
    HOUR_MS,
    USAGE_5M,
)
from tidegate.rollup.tables.publication import Publication, publish, stage
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.tables.upkeep import compact_days

MEMBERS, BROKERS = 5000, 50
_MEGABYTES = 3000.0
_DAY = 20_602 * DAY_MS
_TIMEOUT_SECONDS = 3000


def size_figures(brokers: int = BROKERS) -> list[Figure]:
    """The two parts, with a bound for what each holds."""
    with RunDirectory() as run:
        task = _in_a_process("task", "-", brokers)
        published = _in_a_process("publish", str(run.path), brokers)
        compacted = _in_a_process("compact", str(run.path), brokers)
    what = f"{brokers} brokers with {MEMBERS} members each"
    return [
        _figure(f"one task: the hour of a broker with {MEMBERS} members, folded", task),
        _figure(f"{what}: 24 hours published, one after the other", published),
        _figure(f"{what}: the day put together (compaction)", compacted),
    ]


def _figure(what: str, cost: Cost) -> Figure:
    said = json.loads(cost.output.splitlines()[-1])
    note = (
        f"{said['seconds']:.1f} s for {said['rows'] / 1e6:.2f} M rows; "
        f"{cost.processor_seconds:.1f} s of processors in all"
    )
    return Figure(f"{what}: most memory", cost.peak_bytes / 1e6, "MB", _MEGABYTES, note)


def _in_a_process(part: str, folder: str, brokers: int) -> Cost:
    argv = [sys.executable, "-m", "bench.rollup.size", part, folder, str(brokers)]
    return cost_of(argv, timeout_seconds=_TIMEOUT_SECONDS)


def _task() -> tuple[int, float]:
    windows = Windows(_DAY, _DAY + HOUR_MS)
    made = {
        way: made_direction(windows, MEMBERS, number, offset_ms=4_000 * number).samples
        for number, way in enumerate(DIRECTIONS)
    }
    begun = time.perf_counter()
    fold = fold_broker(1, made, windows)
    fine, brokers = usage_table(fold), broker_table(fold)
    hours = usage_hour(fine, {}), broker_hour(brokers)
    return fine.num_rows + sum(one.num_rows for one in hours), time.perf_counter() - begun


def _publish(folder: Path, brokers: int) -> tuple[int, float]:
    """Only the publication is timed: staging is the tasks' matter."""
    store, rows, seconds = UsageStore.at(f"file://{folder}"), 0, 0.0
    for hour in range(24):
        at_ms = _DAY + hour * HOUR_MS
        staged = [
            file
            for broker in range(brokers)
            for file in stage(store, "run", "usage_5m", _hour_of(broker, at_ms), part=broker)
        ]
        begun = time.perf_counter()
        made = publish(
            store,
            Publication(table="usage_5m", window_start_ms=at_ms, run_id="run", staged=staged),
            now_ms=_DAY + 2 * DAY_MS,
        )
        seconds += time.perf_counter() - begun
        rows += made.contents.rows
        store.storage.delete(file.path for file in staged)
    return rows, seconds


def _hour_of(broker: int, at_ms: int) -> pa.Table:
    """Every member in both directions and every window, with as many digits as real rows have."""
    chance = np.random.default_rng([broker, at_ms // HOUR_MS])
    windows = HOUR_MS // FIVE_MINUTES_MS
    count = MEMBERS * len(DIRECTIONS) * windows
    member = np.repeat(np.arange(MEMBERS), len(DIRECTIONS) * windows)
    names = pa.array([f"user-{number:05}" for number in range(MEMBERS)])
    moved = chance.integers(0, 10**9, count)
    columns = {
        "window_start": pa.array(
            np.tile(at_ms + np.arange(windows) * FIVE_MINUTES_MS, MEMBERS * len(DIRECTIONS))
        ).cast(pa.timestamp("ms", tz="UTC")),
        "broker": pa.array(np.full(count, broker, np.int32)),
        "user": names.take(pa.array(member)),
        "client_id": pa.array([""]).take(pa.array(np.zeros(count, np.int64))),
        "direction": pa.array(DIRECTIONS).take(
            pa.array(np.tile(np.repeat(np.arange(len(DIRECTIONS)), windows), MEMBERS))
        ),
        "bytes": pa.array(moved),
        "peak_rate": pa.array(moved / 250 * chance.uniform(1, 1.3, count)),
        **{
            name: pa.array(np.zeros(count))
            for name in ("throttled_seconds", "over_contract_seconds")
        },
        "deferred_bytes": pa.array(np.zeros(count, np.int64)),
        "samples": pa.array(np.full(count, 20, np.int32)),
        "coverage": pa.array(np.ones(count)),
        "calibration": pa.array(chance.uniform(0.95, 1.05, count)),
    }
    return pa.table([columns[name] for name in USAGE_5M.names], schema=USAGE_5M)


def _compact(folder: Path) -> tuple[int, float]:
    store, begun = UsageStore.at(f"file://{folder}"), time.perf_counter()
    (day,) = compact_days(
        store, "usage_5m", before_ms=_DAY + DAY_MS, run_id="day", now_ms=_DAY + 2 * DAY_MS
    )
    return day.contents.rows, time.perf_counter() - begun


if __name__ == "__main__":  # one part, for the process that measures it
    part, folder, brokers = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    parts: dict[str, Callable[[], tuple[int, float]]] = {
        "task": _task,
        "publish": partial(_publish, folder, brokers),
        "compact": partial(_compact, folder),
    }
    rows, seconds = parts[part]()
    print(json.dumps({"rows": rows, "seconds": seconds}))
