"""Looks at every file of a day of one table as if nobody could be trusted, and adds its rows up for comparisons with other tables.

Each file is read once and whole. What is wrong is a finding and never an error; storage that does not answer is an error as everywhere.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.rollup.schemas import TableKind
from tidegate.rollup.tables.format import Contents, UsageDamaged, checksum, contents_of, decode, in_order, summed_columns
from tidegate.rollup.tables.manifest import Manifest, PublishedFile
from tidegate.rollup.tables.resolution import Part, resolve
from tidegate.rollup.tables.staging import published_starts_ms
from tidegate.rollup.tables.store import UsageStore, valid_rows
from tidegate.rollup.tables.windows import Window

PUBLISHED = "published_ms"  # the column of sums that says in which window rows were published


@dataclass(frozen=True, slots=True)
class Finding:
    """What is broken, where: a window's name, or "" for the table as a whole."""

    table: str
    window: str
    message: str


@dataclass(slots=True)
class Inspection:
    """A day of a table. `sums` has a row for each published window and key without its time, with the columns that count bytes."""

    kind: TableKind
    windows: tuple[Window, ...]
    sums: pa.Table
    files: int = 0
    rows: int = 0
    size_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_readable(self) -> bool:
        """Whether its sums are worth comparing."""
        return not self.findings


def inspect_day(store: UsageStore, kind: TableKind, manifests: Sequence[Manifest]) -> Inspection:
    """Every file, row and sum of a day, of which these are all manifests."""
    own = {one.window: one for one in manifests if not one.combines}
    parts = resolve(manifests)
    found = Inspection(kind, tuple(sorted(window for part in parts for window in part.windows)), _no_sums(kind))
    sums = [_inspect_part(store, found, part, own) for part in parts]
    found.sums = pa.concat_tables([found.sums, *sums])
    return found


def _inspect_part(store: UsageStore, found: Inspection, part: Part, own: Mapping[Window, Manifest]) -> pa.Table:
    """The sums of one part; what is wrong with it goes to `found`."""
    name = part.manifest.window.name
    tables: list[pa.Table] = []
    for file in part.files:
        found.files, found.size_bytes = found.files + 1, found.size_bytes + file.size_bytes
        try:
            tables.append(_inspect_file(found.kind, file, store.storage.read(file.path)))
        except UsageDamaged as error:
            found.findings.append(Finding(found.kind.name, name, error.message))
    if len(tables) < len(part.files) or not tables:
        return _no_sums(found.kind)
    rows = pa.concat_tables(tables)
    valid = rows.filter(valid_rows(rows, found.kind, part))
    found.rows += valid.num_rows
    sums = _sums(found.kind, valid)
    found.findings += [Finding(found.kind.name, name, message) for message in _wrong_rows(found.kind, rows, part)]
    wrong = _wrong_sums(found.kind, valid, sums, [own[each] for each in part.windows])
    found.findings += [Finding(found.kind.name, window, message) for window, message in wrong]
    return sums


def _inspect_file(kind: TableKind, file: PublishedFile, content: bytes | None) -> pa.Table:
    """The columns that name rows and count bytes. Raises UsageDamaged for anything other than what was published."""
    if content is None:
        raise UsageDamaged(f"{file.path} is gone.")
    if checksum(content) != file.sha256:
        raise UsageDamaged(f"{file.path} does not hold what was published (checksum).")
    rows = decode(content, where=file.path)
    if not rows.schema.remove_metadata().equals(kind.schema):
        raise UsageDamaged(f"{file.path} has other columns than {kind.name}.")
    contents = contents_of(kind, rows)
    if contents != Contents(file.rows, file.sums):
        raise UsageDamaged(f"{file.path} holds {contents}, its manifest tells {file.rows} rows and {file.sums}.")
    return rows.select([*kind.key, *summed_columns(kind)])


def _wrong_rows(kind: TableKind, rows: pa.Table, part: Part) -> Iterator[str]:
    """Rows that come twice, or whose time is none of the table's or of the manifest's."""
    try:
        in_order(kind, rows)
    except UsageDamaged as error:
        yield error.message
    at_ms = rows["window_start"].cast(pa.int64()).to_numpy()
    window = part.manifest.window
    outside = int(((at_ms < window.start_ms) | (at_ms >= window.end_ms) | (at_ms % kind.window_ms != 0)).sum())
    if outside:
        yield f"{outside} rows have a time outside of {window.name} or between its windows."


def _wrong_sums(kind: TableKind, valid: pa.Table, sums: pa.Table, own: Sequence[Manifest]) -> Iterator[tuple[str, str]]:
    """Windows whose rows add up to something else than their own manifest tells."""
    counted = pa.table({PUBLISHED: published_starts_ms(kind, valid)}).group_by(PUBLISHED).aggregate([([], "count_all")])
    rows = dict(zip(counted[PUBLISHED].to_pylist(), counted["count_all"].to_pylist(), strict=True))
    for manifest in own:
        mine = sums.filter(pc.equal(sums[PUBLISHED], manifest.window.start_ms))
        found = Contents(rows.get(manifest.window.start_ms, 0), {name: pc.sum(mine[name]).as_py() or 0 for name in summed_columns(kind)})
        told = Contents(manifest.contents.rows, {name: manifest.contents.sums.get(name, 0) for name in summed_columns(kind)})
        if found != told:
            yield manifest.window.name, f"holds {found}, its manifest tells {told}."


def _sums(kind: TableKind, rows: pa.Table) -> pa.Table:
    names, keys = list(summed_columns(kind)), [PUBLISHED, *kind.key[:-1]]
    timed = rows.append_column(PUBLISHED, pa.array(published_starts_ms(kind, rows)))
    return added_up(timed, keys, names).cast(_no_sums(kind).schema)


def added_up(rows: pa.Table, keys: Sequence[str], names: Sequence[str]) -> pa.Table:
    """The columns `names` summed for each value of `keys`, under their own names."""
    grouped = rows.group_by(list(keys), use_threads=False).aggregate([(name, "sum") for name in names])
    return grouped.select([*keys, *(f"{name}_sum" for name in names)]).rename_columns([*keys, *names])


def _no_sums(kind: TableKind) -> pa.Table:
    keys = [pa.field(PUBLISHED, pa.int64()), *(kind.schema.field(name).with_nullable(True) for name in kind.key[:-1])]
    return pa.schema([*keys, *(pa.field(name, pa.int64()) for name in summed_columns(kind))]).empty_table()
