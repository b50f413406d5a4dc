"""Rows of many files, sorted, in portions that fit into memory and become a file each.

A portion has the brokers (or tiers) of its own; files that have none of them are not read for it. One portion reads every file once,
several read a file about twice.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.rollup.schemas import TableKind
from tidegate.rollup.tables.format import in_order

MOST_ROWS = 2_000_000  # that are sorted at once; about half a gigabyte

Source = Callable[[], pa.Table]


def in_portions(kind: TableKind, sources: Sequence[Source], *, rows: int, parallel: int = 1) -> Iterator[pa.Table]:
    """Everything that the sources have, in the order of the table; no rows, no portion. `rows` is how many there are in all.

    Raises UsageDamaged where two rows have the same key, and whatever a source raises.
    """
    wanted = 1 + rows // MOST_ROWS
    for chosen, some in _shares(kind, sources, wanted) if wanted > 1 else ((sources, None),):
        found = [one if some is None else one.filter(pc.is_in(one[kind.key[0]], value_set=some)) for one in _read(chosen, parallel)]
        portion = in_order(kind, pa.concat_tables([kind.schema.empty_table(), *found]))
        if portion.num_rows:
            yield portion


def _shares(kind: TableKind, sources: Sequence[Source], wanted: int) -> Iterator[tuple[Sequence[Source], pa.Array]]:
    """Values of the leading column in as many shares as are wanted, at most one each, with the sources that have any of a share's."""
    leading = kind.key[0]
    values = [set(pc.unique(source()[leading]).to_pylist()) for source in sources]
    known = sorted(set().union(*values))
    size = max(1, -(-len(known) // wanted))
    for start in range(0, len(known), size):
        some = set(known[start : start + size])
        chosen = [source for source, its in zip(sources, values, strict=True) if its & some]
        yield chosen, pa.array(sorted(some), type=kind.schema.field(leading).type)


def _read(sources: Sequence[Source], parallel: int) -> Iterator[pa.Table]:
    if parallel < 2 or len(sources) < 2:
        yield from (source() for source in sources)
        return
    with ThreadPoolExecutor(parallel) as pool:
        yield from pool.map(lambda source: source(), sources)
