"""Whether two stores say the same: every row of every window, whatever the files are."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from tidegate.rollup.schemas import TABLES
from tidegate.rollup.tables.store import UsageStore

Rows = Mapping[tuple[str, str], pa.Table]  # by table and window

_UNCOMPARED = ("sketch",)  # the same values in another order make other bytes, and the percentiles beside it are of the same values
_CLOSE = 1e-12  # seconds and shares are added up in any order


def published(store: UsageStore) -> Rows:
    """Everything that is published, sorted."""
    return {
        (name, window.name): _sorted(store.rows(name, window.start_ms, window.end_ms), kind.key)
        for name, kind in TABLES.items()
        for window in store.windows(name)
    }


def differences(expected: Rows, found: Rows, *, whole: bool) -> list[str]:
    """What is wrong with `found`; without `whole` windows may be missing from it."""
    told = [f"{table} {window} should not be there" for table, window in found.keys() - expected.keys()]
    if whole:
        told += [f"{table} {window} is missing" for table, window in expected.keys() - found.keys()]
    for table, window in sorted(expected.keys() & found.keys()):
        columns = _different(expected[table, window], found[table, window])
        told += [f"{table} {window} differs in {', '.join(columns)}"] if columns else []
    return told


def _sorted(rows: pa.Table, key: tuple[str, ...]) -> pa.Table:
    kept = [name for name in rows.schema.names if name not in _UNCOMPARED]
    return rows.select(kept).sort_by([(name, "ascending") for name in key]).combine_chunks()


def _different(expected: pa.Table, found: pa.Table) -> list[str]:
    if expected.num_rows != found.num_rows:
        return [f"rows: {found.num_rows} where {expected.num_rows} belong"]
    return [field.name for field in expected.schema if not _are_equal(expected[field.name], found[field.name])]


def _are_equal(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    if one.equals(other):
        return True
    if not pa.types.is_floating(one.type):
        return False
    return bool(np.allclose(one.to_numpy(), other.to_numpy(), rtol=_CLOSE, atol=0, equal_nan=True))
