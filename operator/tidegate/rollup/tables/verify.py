"""Whether tables tell the same of the same bytes: finer and coarser windows, users and their brokers, members and their tiers. To the byte.

Only windows that both sides have are compared; a side that is gone by retention, or is not made yet, says nothing against the other.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.rollup.tables.inspection import PUBLISHED, Finding, Inspection, added_up
from tidegate.rollup.tables.windows import Window

_CLIENT = ("broker", "user", "client_id", "direction")
_BROKER = ("broker", "direction")
_BROKER_BYTES = ("nic_bytes", "client_bytes", "replication_bytes", "unattributed_bytes")
_USED = ("bytes", "deferred_bytes")


@dataclass(frozen=True, slots=True)
class Rule:
    """Rows of `finer` added up over `keys` must be rows of `coarser`, column by column; `words` say so to people."""

    finer: str
    coarser: str
    keys: tuple[str, ...]
    columns: tuple[str, ...]

    @property
    def words(self) -> str:
        return f"{self.coarser} is not the sum of {self.finer}"


RULES = (
    Rule("usage_5m", "usage_1h", _CLIENT, _USED),
    Rule("usage_1h", "usage_1d", _CLIENT, _USED),
    Rule("broker_5m", "broker_1h", _BROKER, _BROKER_BYTES),
    Rule("broker_1h", "broker_1d", _BROKER, _BROKER_BYTES),
    Rule("tier_1h", "tier_1d", ("tier", "direction"), _USED),
    Rule("usage_1h", "tier_1h", ("tier", "direction"), _USED),
    Rule("usage_1d", "tier_1d", ("tier", "direction"), _USED),
)
GRAINS = ("5m", "1h", "1d")


def disagreements(day: Mapping[str, Inspection]) -> Iterator[Finding]:
    """Everything in which the tables of one day contradict each other; tables with findings of their own are left out."""
    sound = {name: inspection for name, inspection in day.items() if inspection.is_readable}
    for rule in RULES:
        if rule.finer in sound and rule.coarser in sound:
            yield from _of_grains(rule, sound[rule.finer], sound[rule.coarser])
    for grain in GRAINS:
        if f"usage_{grain}" in sound and f"broker_{grain}" in sound:
            yield from _of_users_and_brokers(sound[f"usage_{grain}"], sound[f"broker_{grain}"])


def _of_grains(rule: Rule, finer: Inspection, coarser: Inspection) -> Iterator[Finding]:
    keys = [PUBLISHED, *rule.keys]
    windows = [window for window in coarser.windows if _is_covered(window, finer.windows)]
    left = _signed(_in_coarser_windows(finer.sums, coarser.kind.published_ms), keys, {name: (1, name) for name in rule.columns})
    right = _signed(coarser.sums, keys, {name: (-1, name) for name in rule.columns})
    if rule.finer.startswith("usage") and rule.coarser.startswith("tier"):
        left = left.filter(pc.not_equal(left["tier"], ""))  # clients of no tier
        right = right.filter(pc.not_equal(right["tier"], ""))
    yield from _differences(rule.coarser, windows, pa.concat_tables([left, right]), keys, words=rule.words)


def _of_users_and_brokers(usage: Inspection, broker: Inspection) -> Iterator[Finding]:
    keys = [PUBLISHED, *_BROKER]
    windows = sorted(set(usage.windows) & set(broker.windows))
    terms = [(usage, 1, "bytes"), (broker, 1, "unattributed_bytes"), (broker, -1, "client_bytes")]
    sides = [_signed(side.sums, keys, {"bytes": (sign, column)}) for side, sign, column in terms]
    words = f"the users' bytes and the unattributed ones are not the clients' bytes of {broker.kind.name}"
    yield from _differences(usage.kind.name, windows, pa.concat_tables(sides), keys, words=words)


def _is_covered(window: Window, finer: Sequence[Window]) -> bool:
    return any(window.start_ms <= one.start_ms < window.end_ms for one in finer)


def _in_coarser_windows(sums: pa.Table, published_ms: int) -> pa.Table:
    at_ms = sums[PUBLISHED].to_numpy()
    return sums.set_column(sums.schema.get_field_index(PUBLISHED), PUBLISHED, pa.array(at_ms - at_ms % published_ms))


def _signed(sums: pa.Table, keys: Sequence[str], columns: Mapping[str, tuple[int, str]]) -> pa.Table:
    """The keys and, by the name they get, columns that count for (1) or against (-1)."""
    signed = {name: pc.multiply(sums[column], pa.scalar(sign, pa.int64())) for name, (sign, column) in columns.items()}
    return pa.table({**{key: sums[key] for key in keys}, **signed})


def _differences(table: str, windows: Sequence[Window], rows: pa.Table, keys: Sequence[str], *, words: str) -> Iterator[Finding]:
    """A finding for each of the windows in which something is left where everything should cancel out."""
    names = [name for name in rows.schema.names if name not in keys]
    left = added_up(rows, keys, names)
    wrong = left.filter(pc.not_equal(left[names[0]], 0))
    for name in names[1:]:
        wrong = pa.concat_tables([wrong, left.filter(pc.and_(pc.equal(left[names[0]], 0), pc.not_equal(left[name], 0)))])
    for window in windows:
        mine = wrong.filter(pc.equal(wrong[PUBLISHED], window.start_ms)).to_pylist()
        if mine:
            yield Finding(table, window.name, f"{words}: {_first(mine[0], keys, names)}{_others(len(mine) - 1)}.")


def _first(row: Mapping[str, object], keys: Sequence[str], names: Sequence[str]) -> str:
    whose = ", ".join(f"{key} {row[key]!r}" for key in keys if key != PUBLISHED)
    return f"{whose} differs by " + ", ".join(f"{row[name]:+} {name}" for name in names if row[name])


def _others(count: int) -> str:
    return f", and {count} more" if count else ""
