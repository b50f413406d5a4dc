"""Publish a window: verify the staged files, write them sorted under new names, swap the manifest.

Killed anywhere before the manifest is written, the window is as it was; afterwards it is the new
one. What lies about then is garbage that a clean-up removes. The same run may publish the same
window again after an error.
"""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import Unreachable
from tidegate.rollup.schemas import TABLES, TableKind
from tidegate.rollup.tables.format import (
    NOBODY,
    Contents,
    Manifest,
    OtherVersion,
    Owner,
    PublishedFile,
    Some,
    UsageDamaged,
    Window,
    checksum,
    conform,
    contents_of,
    encode,
    encode_manifest,
    in_order,
    manifest_path,
    packed,
    require_run_id,
    summed_columns,
    unpacked,
    window_at,
    with_owner,
)
from tidegate.rollup.tables.storage import Storage
from tidegate.rollup.tables.store import UsageStore
from tidegate_logic.reasons import Reason

# A worker leaves files in the staging, which no reader sees, and returns a small record of each. A
# task that is tried again writes another file. Only files with a record count.


FOLDER = "_staging"


@dataclass(frozen=True, slots=True)
class StagedFile:
    """Rows of one window in one staged file; `dataclasses.asdict` makes a row of it for Spark.

    `brokers` are the lowest and the highest one of its rows; None = it may have any, or tiers.
    """

    table: str
    window_start_ms: int
    path: str
    rows: int
    size_bytes: int
    sha256: str
    sums: Mapping[str, int]
    brokers: tuple[int, int] | None = None


def stage(
    store: UsageStore,
    run_id: str,
    table: str,
    rows: pa.Table,
    *,
    part: int,
    owner: Owner = NOBODY,
) -> list[StagedFile]:
    """Write rows of any number of windows, a file a window; no rows, no file.

    `part` distinguishes tasks for people; every row gets the `owner`'s columns. Raises
    UsageDamaged for rows that do not fit the table, Unreachable or Unauthorized where the storage
    does not take them.
    """
    kind = TABLES[table]
    conformed = conform(kind, with_owner(rows, owner))
    return [
        _stage_window(store.storage, require_run_id(run_id), kind, window, each, part=part)
        for window, each in _by_window(kind, conformed)
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
    windows = np.unique(starts_ms).tolist()
    for start_ms in windows:
        own = rows if len(windows) == 1 else rows.filter(pa.array(starts_ms == start_ms))
        yield window_at(kind, start_ms), own


def _stage_window(
    storage: Storage, run_id: str, kind: TableKind, window: Window, rows: pa.Table, *, part: int
) -> StagedFile:
    content, contents = packed(rows), contents_of(kind, rows)
    folder = f"{staging_folder(run_id)}/{kind.name}/{window.name}"
    path = f"{folder}/part-{part}-{secrets.token_hex(4)}.arrow"
    # the publisher reads it and writes the rows again, and those are forced
    storage.write(path, content, outlives_power=False)
    return StagedFile(
        kind.name,
        window.start_ms,
        path,
        contents.rows,
        len(content),
        checksum(content),
        contents.sums,
        _brokers_in(kind, rows),
    )


def _brokers_in(kind: TableKind, rows: pa.Table) -> tuple[int, int] | None:
    if kind.key[0] != "broker" or not rows.num_rows:
        return None
    ends = pc.min_max(rows["broker"]).as_py()
    return ends["min"], ends["max"]


# Rows of many files are sorted in portions that fit into memory, each of which becomes a file. A
# portion has brokers (or tiers) of its own. One portion reads every file once. Several look at the
# column of brokers first, and then each unpacks the groups of rows in which it has any: files are
# sorted by brokers, so a row is unpacked once, and those beside it in a group a second time.


MOST_ROWS = 2_000_000  # that are sorted at once; about half a gigabyte
MOST_ROWS_OF_A_PART = 1_000_000  # several of which are written at once on a machine


class Source(Protocol):
    """Rows of one file, whenever they are asked for: all, or `some`, with all columns or a few."""

    def __call__(
        self, *, columns: Sequence[str] | None = None, some: Some | None = None
    ) -> pa.Table: ...


def in_portions(
    kind: TableKind, sources: Sequence[Source], *, rows: int, parallel: int = 1
) -> Iterator[pa.Table]:
    """Yield all rows of the sources in the table's order; `rows` = how many. No rows, no portion.

    Raises UsageDamaged if two rows have the same key, and whatever a source raises.
    """
    wanted = 1 + rows // MOST_ROWS
    for chosen, some in _shares(kind, sources, wanted) if wanted > 1 else ((sources, None),):
        found = _read(chosen, parallel, some)
        portion = in_order(kind, pa.concat_tables([kind.schema.empty_table(), *found]))
        if portion.num_rows:
            yield portion


def _shares(
    kind: TableKind, sources: Sequence[Source], wanted: int
) -> Iterator[tuple[Sequence[Source], Some]]:
    """Values of the leading column in at most `wanted` shares, each with its sources."""
    leading = kind.key[0]
    values = [set(pc.unique(source(columns=[leading])[leading]).to_pylist()) for source in sources]
    known = sorted(set().union(*values))
    size = max(1, -(-len(known) // wanted))
    for start in range(0, len(known), size):
        some = set(known[start : start + size])
        chosen = [source for source, its in zip(sources, values, strict=True) if its & some]
        wanted_values = pa.array(sorted(some), type=kind.schema.field(leading).type)
        yield chosen, Some(leading, wanted_values)


def _read(sources: Sequence[Source], parallel: int, some: Some | None) -> Iterator[pa.Table]:
    if parallel < 2 or len(sources) < 2:
        yield from (source(some=some) for source in sources)
        return
    with ThreadPoolExecutor(parallel) as pool:
        yield from pool.map(lambda source: source(some=some), sources)


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """A whole window of a table; no staged file = no usage, which is published too.

    `coverage` None = the mean of the rows' own. `part` is the number of one of its parts, for the
    names of files.
    """

    table: str
    window_start_ms: int
    run_id: str
    staged: Sequence[StagedFile]
    owner: Owner = NOBODY
    source: str = ""
    source_samples: int | None = None
    coverage: float | None = None
    made_from: Mapping[str, str] = field(default_factory=dict)
    part: int = 0

    @property
    def kind(self) -> TableKind:
        return TABLES[self.table]

    @property
    def window(self) -> Window:
        return window_at(self.kind, self.window_start_ms)


@dataclass(frozen=True, slots=True)
class Written:
    """Files that no manifest names yet; `covered` adds up their rows' coverage, None without it."""

    files: tuple[PublishedFile, ...] = ()
    covered: float | None = None

    @property
    def coverage(self) -> float | None:
        """The mean of the rows."""
        rows = sum(file.rows for file in self.files)
        return None if self.covered is None or not rows else self.covered / rows


def publish(store: UsageStore, publication: Publication, *, now_ms: int) -> Manifest:
    """Verify, write and swap; returns what is published now. Raises what its two halves raise."""
    return name_files(store, publication, [write_rows(store, publication)], now_ms=now_ms)


def parts_of(publication: Publication) -> list[Publication]:
    """The publication in parts that can be written beside each other, by brokers.

    Each has at most `MOST_ROWS_OF_A_PART` rows, or those of brokers that cannot be divided.
    """
    known = [(one.brokers, one) for one in publication.staged if one.brokers is not None]
    if len(known) < len(publication.staged) or not known:
        return [publication]
    shares: list[list[StagedFile]] = [[]]
    rows, highest = 0, 0
    for (lowest, last), one in sorted(known, key=lambda each: each[0]):
        if shares[-1] and lowest > highest and rows + one.rows > MOST_ROWS_OF_A_PART:
            shares.append([])
            rows = 0
        shares[-1].append(one)
        rows, highest = rows + one.rows, max(highest, last)
    return [
        replace(publication, staged=tuple(share), part=number)
        for number, share in enumerate(shares)
    ]


def write_rows(store: UsageStore, part: Publication) -> Written:
    """Verify what was staged of the part, and write it sorted under new names.

    Raises UsageDamaged if files do not hold what was staged, rows lie outside of the window or
    come twice; RetryLater where the storage does not answer or is full.
    """
    standing = _standing(store, part)
    return write_files(
        store.storage,
        part.kind,
        part.window,
        run_id=part.run_id,
        portions=_portions(store.storage, part),
        known=() if standing is None else standing.files,
        part=part.part,
    )


def name_files(
    store: UsageStore, publication: Publication, written: Sequence[Written], *, now_ms: int
) -> Manifest:
    """Swap: the manifest names the files of all parts, and no others; what is published now.

    Where the window has the same rows already, from the same sources, nothing is written: what was
    made of it need not be made again. One that was published before it was over is published again,
    because that it is complete is news. Raises UsageDamaged if rows are lost or come twice, and
    RetryLater as `write_rows`. After any error the window is as it was.
    """
    covered = [one.covered for one in written if one.covered is not None]
    whole = Written(
        tuple(file for one in written for file in one.files), sum(covered) if covered else None
    )
    files, coverage = whole.files, whole.coverage
    _require_all(publication, files)
    manifest = Manifest(
        table=publication.table,
        window=publication.window,
        run_id=publication.run_id,
        published_at_ms=to_seconds(now_ms),
        files=files,
        owner=publication.owner,
        source=publication.source,
        source_samples=publication.source_samples,
        coverage=coverage if publication.coverage is None else publication.coverage,
        made_from=publication.made_from,
    )
    standing = _standing(store, publication)
    if standing is not None and encode_manifest(standing) == encode_manifest(
        replace(manifest, run_id=standing.run_id, published_at_ms=standing.published_at_ms)
    ):
        return standing
    store.storage.write(manifest.path, encode_manifest(manifest))
    return manifest


def _standing(store: UsageStore, publication: Publication) -> Manifest | None:
    """The window's own publication since it was over; None without one that can be read."""
    try:
        found = store.read_manifests([manifest_path(publication.table, publication.window)])
    except (UsageDamaged, OtherVersion):
        return None
    return next(
        (one for one in found if not one.retired and one.published_at_ms >= one.window.end_ms), None
    )


def to_seconds(at_ms: int) -> int:
    """Milliseconds of the whole second: manifests have times to the second."""
    return at_ms - at_ms % 1000


def write_files(
    storage: Storage,
    kind: TableKind,
    window: Window,
    *,
    run_id: str,
    portions: Iterator[pa.Table],
    known: Sequence[PublishedFile] = (),
    part: int = 0,
) -> Written:
    """Write a file for each portion.

    One of the same content among the `known` is taken as it is. No reader sees the others before a
    manifest names them.
    """
    files: list[PublishedFile] = []
    by_checksum = {one.sha256: one for one in known}
    covered = 0.0 if "coverage" in kind.schema.names else None
    for number, rows in enumerate(portions):
        name = f"part-{require_run_id(run_id)}-{part}" + (f"-{number}" if number else "")
        stem = f"{window.folder(kind)}/{name}"
        files.append(_write_file(storage, kind, stem, rows, known=by_checksum))
        if covered is not None:
            covered += pc.sum(rows["coverage"]).as_py() or 0.0
    return Written(tuple(files), covered)


def _write_file(
    storage: Storage,
    kind: TableKind,
    stem: str,
    rows: pa.Table,
    *,
    known: Mapping[str, PublishedFile],
) -> PublishedFile:
    """Write a file named by its checksum, so that no published file is replaced by other rows."""
    content, contents = encode(rows), contents_of(kind, rows)
    same = known.get(checksum(content))
    if same is not None and storage.size_bytes(same.path) == len(content):
        return same
    path = f"{stem}-{checksum(content)[:8]}.parquet"
    storage.write(path, content)
    found = storage.size_bytes(path)
    if found != len(content):
        problem = f"{path} has {found} bytes after {len(content)} were written to {storage.shown}"
        raise Unreachable(
            Reason.STORAGE_UNREACHABLE,
            f"{problem}; it is not published, and a later run tries again.",
        )
    return PublishedFile(path, contents.rows, len(content), checksum(content), contents.sums)


def _portions(storage: Storage, publication: Publication) -> Iterator[pa.Table]:
    """What was staged, verified whenever it is read."""
    _require_window(publication)
    sources = [partial(_verified, storage, staged) for staged in publication.staged]
    rows = sum(staged.rows for staged in publication.staged)
    for portion in in_portions(publication.kind, sources, rows=rows, parallel=storage.parallel):
        _require_rows_within(publication.kind, publication.window, portion)
        yield portion


def _verified(
    storage: Storage,
    staged: StagedFile,
    *,
    columns: Sequence[str] | None = None,
    some: Some | None = None,
) -> pa.Table:
    """The rows of a staged file, equal to its record; raises UsageDamaged where they are not.

    Where only a part of it is read, its checksum has to do.
    """
    content = storage.read(staged.path)
    if content is None:
        raise UsageDamaged(
            f"Staged file {staged.path} is gone; nothing is published. Was a clean-up given too "
            f"short a grace?"
        )
    if checksum(content) != staged.sha256:
        raise UsageDamaged(
            f"Staged file {staged.path} does not hold what was written to it (checksum); nothing "
            f"is published."
        )
    rows = unpacked(content)
    if some is not None:
        rows = rows.filter(pc.is_in(rows[some.column], value_set=some.values))
    if columns is not None or some is not None:
        return rows if columns is None else rows.select(columns)
    found = contents_of(TABLES[staged.table], rows)
    if found != Contents(staged.rows, staged.sums):
        raise UsageDamaged(
            f"Staged file {staged.path} holds {found}, its record has {staged.rows} rows and "
            f"{staged.sums}."
        )
    return rows


def _require_window(publication: Publication) -> None:
    window = publication.window
    alien = [
        staged
        for staged in publication.staged
        if (staged.table, staged.window_start_ms) != (publication.table, window.start_ms)
    ]
    if alien or window.start_ms != publication.window_start_ms:
        stray = alien[0].path if alien else str(publication.window_start_ms)
        raise UsageDamaged(
            f"{stray} is not of {publication.table} {window.name}; nothing is published."
        )


def _require_rows_within(kind: TableKind, window: Window, rows: pa.Table) -> None:
    outside = (published_starts_ms(kind, rows) != window.start_ms).sum()
    askew = (rows["window_start"].cast(pa.int64()).to_numpy() % kind.window_ms != 0).sum()
    if outside or askew:
        raise UsageDamaged(
            f"{outside + askew} rows for {kind.name} lie outside of {window.name} or between its "
            f"windows; nothing is published."
        )


def _require_all(publication: Publication, files: Sequence[PublishedFile]) -> None:
    """Nothing that was staged is lost, nothing is in the files twice."""
    names = summed_columns(publication.kind)
    staged, found = (
        Contents(
            sum(one.rows for one in some),
            {name: sum(one.sums.get(name, 0) for one in some) for name in names},
        )
        for some in (publication.staged, files)
    )
    if found != staged:
        raise UsageDamaged(
            f"{publication.table}: {found} would be published where {staged} was staged; nothing "
            f"is published."
        )
