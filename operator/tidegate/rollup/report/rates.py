"""Each member's rates on the broker where they are highest, against its contract, which every broker enforces on its own."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidegate.rollup.report.figures import ContractUse
from tidegate.rollup.report.grouping import Row, Wanted, grouped
from tidegate.rollup.report.members import CLIENT, client_of, share_of
from tidegate.rollup.report.registry import Registry
from tidegate.rollup.schemas import FIVE_MINUTES_MS

Places = NDArray[np.int64]
_Who = tuple[str, str, str]  # user, client id, direction
_FIVE_MINUTES_SECONDS = FIVE_MINUTES_MS / 1000


def contract_use(usage: pa.Table, usage_5m: pa.Table | None, registry: Registry) -> tuple[ContractUse, ...]:
    """A line for each member and direction, nearest to its contract first, those without one last.

    p95 is by nearest rank over the 5-minute rates of the windows in which a broker saw the member, exactly. Without those rows it is the
    highest p95 of any hour or day, which the true one does not exceed.
    """
    rows = grouped(usage, (*CLIENT, "direction"), Wanted(highest=("peak_rate", "p95")))
    exact = None if usage_5m is None else _p95_rates(usage_5m)
    found = [_use(row, exact, registry) for row in rows]
    return tuple(sorted(found, key=lambda one: (one.p95_share is None, -(one.p95_share or 0), -one.peak_rate, one.member, one.direction)))


def _use(row: Row, exact: Mapping[_Who, float] | None, registry: Registry) -> ContractUse:
    client = client_of(row)
    contract = registry.contract(client, row["direction"])
    p95_rate = row["p95"] if exact is None else exact.get((client.user, client.client_id, row["direction"]))
    return ContractUse(
        member=registry.name(client),
        tier=client.tier,
        user=client.user,
        client_id=client.client_id,
        direction=row["direction"],
        contract=contract,
        p95_rate=p95_rate,
        p95_share=None if p95_rate is None else share_of(p95_rate, contract),
        peak_rate=row["peak_rate"],
        peak_share=share_of(row["peak_rate"], contract),
        p95_is_bound=exact is None,
    )


def _p95_rates(usage_5m: pa.Table) -> Mapping[_Who, float]:
    """The p95 on the broker where it is highest."""
    measured = usage_5m.filter(pc.greater(usage_5m["samples"], 0))
    if not measured.num_rows:
        return {}
    codes, groups = _codes(measured.select(["user", "client_id", "direction", "broker"]))
    highest: dict[_Who, float] = {}
    marks = nearest_ranks(codes, measured["bytes"].to_numpy(), 0.95) / _FIVE_MINUTES_SECONDS
    for row, rate in zip(groups.to_pylist(), marks.tolist(), strict=True):
        who = (row["user"], row["client_id"], row["direction"])
        highest[who] = max(highest.get(who, 0.0), rate)
    return highest


def _codes(keys: pa.Table) -> tuple[Places, pa.Table]:
    """A number for each row that is the same in rows with the same keys, from 0 on, and the keys by number. There must be a row."""
    combined = np.zeros(keys.num_rows, np.int64)
    for name in keys.column_names:
        encoded = keys[name].combine_chunks().dictionary_encode()
        combined = combined * len(encoded.dictionary) + encoded.indices.to_numpy()
    _, first, codes = np.unique(combined, return_index=True, return_inverse=True)
    return codes, keys.take(first)


def nearest_ranks(codes: Places, values: Places, fraction: float) -> Places:
    """Of each group, by number, the smallest value that at least this fraction of its values do not exceed. No group is empty."""
    ordered = values[np.lexsort((values, codes))]
    sizes = np.bincount(codes)
    ends = np.cumsum(sizes)
    ranks: Places = ordered[ends - sizes + np.ceil(fraction * sizes).astype(np.int64) - 1]
    return ranks
