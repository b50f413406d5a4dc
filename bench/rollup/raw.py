"""Fifty million raw rows to the hourly table, ours and others' on the same files.

`python -m bench.rollup.raw [brokers]`

What it is for: an engine in one process is faster at this than anything on Spark, and no one should
believe us otherwise. Figures of others are of their newest versions that we have, with two threads,
as ours; their rows are compared with ours, all of them.
"""

import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from bench.results import Cost, Figure, cost_of
from bench.rollup.raw_engines import ENGINES, START
from bench.rollup.raw_rows import RawRows
from lab.cache import RunDirectory
from tidegate.rollup.schemas import HOUR_MS
from tidegate.rollup.tables.store import UsageStore

BEGIN_MS = 494_448 * HOUR_MS  # a midnight: no day ends in these hours, and no engine makes one
_SECONDS, _MEGABYTES = 22.0, 4000.0
_TIMEOUT_SECONDS = 500
_KEY = ["hour", "broker", "user", "client_id", "direction"]
_VALUES = ["bytes", "peak_rate", "throttled_seconds", "samples", "p50", "p95", "p99"]
_PACKAGES = {"duckdb": "duckdb", "polars": "polars", "chdb": "chdb", "spark-sql": "pyspark"}


def raw_figures(raw: RawRows | None = None) -> list[Figure]:
    """Ours with its bounds, then every other engine that is installed.

    Raises RuntimeError where another engine gets other rows.
    """
    raw = raw or RawRows(BEGIN_MS)
    with RunDirectory() as run:
        folder = run.path / "rows"
        folder.mkdir()
        raw.write(folder)
        cost = _cost("tidegate", folder, run.path / "tidegate")
        ours = _ours(run.path / "tidegate", raw)
        return [
            *_bounded(raw, cost, ours),
            _start(_cost(START, folder, run.path)),
            *(_other(engine, folder, run.path, ours) for engine in _others()),
        ]


def _others() -> list[str]:
    """The other engines that are installed; the dependency group `bench` brings all of them."""
    return [
        engine
        for engine in ENGINES
        if engine not in ("tidegate", START) and find_spec(_PACKAGES[engine]) is not None
    ]


def _bounded(raw: RawRows, cost: Cost, ours: pa.Table) -> list[Figure]:
    what = (
        f"{raw.rows / 1e6:.0f} M raw rows in {raw.brokers * raw.hours} files to "
        f"{ours.num_rows:,} hourly rows"
    )
    note = (
        f"{cost.processor_seconds:.1f} s of processors; tables of five minutes, of brokers and "
        f"sketches are in it"
    )
    return [
        Figure(f"{what}, ours: process started to published", cost.seconds, "s", _SECONDS, note),
        Figure(f"{what}, ours: most memory", cost.peak_bytes / 1e6, "MB", _MEGABYTES),
    ]


def _start(cost: Cost) -> Figure:
    note = f"{cost.processor_seconds:.1f} s of processors, {cost.peak_bytes / 1e6:,.0f} MB"
    return Figure(
        "of that, Spark's start: process started, one task that does nothing, stopped",
        cost.seconds,
        "s",
        None,
        note,
    )


def _other(engine: str, folder: Path, run: Path, ours: pa.Table) -> Figure:
    out = run / f"{engine}.parquet"
    try:
        cost = _cost(engine, folder, out)
    except RuntimeError as error:
        return Figure(
            f"peer: the same by {_called(engine)}",
            float("nan"),
            "s",
            None,
            f"failed: {str(error).splitlines()[-1][:120]}",
        )
    _require_same(engine, ours, _sorted(ds.dataset(out).to_table()))
    note = (
        f"{cost.processor_seconds:.1f} s of processors, {cost.peak_bytes / 1e6:,.0f} MB; every "
        f"row equals ours"
    )
    return Figure(f"peer: the same by {_called(engine)}", cost.seconds, "s", None, note)


def _called(engine: str) -> str:
    try:
        return f"{engine} {version(_PACKAGES[engine])}"
    except PackageNotFoundError:
        return engine


def _cost(engine: str, folder: Path, out: Path) -> Cost:
    argv = [
        sys.executable,
        "-m",
        "bench.rollup.raw_engines",
        engine,
        str(folder),
        str(out),
        str(BEGIN_MS),
    ]
    return cost_of(argv, timeout_seconds=_TIMEOUT_SECONDS)


def _ours(folder: Path, raw: RawRows) -> pa.Table:
    """The published hourly table in the columns of the others."""
    rows = UsageStore.at(f"file://{folder}").rows("usage_1h")
    hour = pc.divide(pc.subtract(rows["window_start"].cast(pa.int64()), raw.start_ms), HOUR_MS)
    return _sorted(rows.append_column("hour", hour))


def _sorted(rows: pa.Table) -> pa.Table:
    named = rows.rename_columns([name.rstrip("_") for name in rows.schema.names])
    strings = {name: pa.string() for name in ("user", "client_id", "direction")}
    columns: Mapping[str, pa.ChunkedArray] = {
        name: named[name].cast(strings.get(name, pa.float64())) for name in (*_KEY, *_VALUES)
    }
    return pa.table(columns).sort_by([(name, "ascending") for name in _KEY]).combine_chunks()


def _require_same(engine: str, ours: pa.Table, theirs: pa.Table) -> None:
    if ours.num_rows != theirs.num_rows:
        raise RuntimeError(f"{engine} has {theirs.num_rows} rows where ours are {ours.num_rows}")
    wrong = [name for name in _KEY if not ours[name].equals(theirs[name])]
    wrong += [
        name
        for name in _VALUES
        if not np.allclose(ours[name].to_numpy(), theirs[name].to_numpy(), rtol=1e-12, atol=0)
    ]
    if wrong:
        raise RuntimeError(f"{engine} and ours differ in {', '.join(wrong)}")


def main() -> int:
    """Print a line for each engine; the argument makes it smaller."""
    raw = RawRows(BEGIN_MS, brokers=int(sys.argv[1])) if len(sys.argv) > 1 else RawRows(BEGIN_MS)
    for figure in raw_figures(raw):
        print(figure.row(), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
