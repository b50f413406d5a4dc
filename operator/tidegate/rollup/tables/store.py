"""The store of usage tables as its readers see it: what is published, in which files, and the rows.

Nothing here writes; `publication` and `upkeep` do, and take a store as well. Two reads are two
looks: a window that is published again in between is old in the one and new in the other, but never
half.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidegate.errors import Incomplete, InvalidResource
from tidegate.rollup.schemas import DAY_MS, TABLES, TableKind
from tidegate.rollup.tables.format import (
    MANIFESTS,
    Manifest,
    Owner,
    PublishedFile,
    Some,
    Window,
    checksum,
    decode,
    decode_manifest,
    require_owner,
    window_of_path,
)
from tidegate.rollup.tables.storage import Storage, StoredFile, open_storage
from tidegate_logic.reasons import Reason

# Resolution finds the files that hold the rows of a window now, for readers and for the clean-up. A
# window's own manifest decides. Where the manifest of its day names that very publication, the
# day's files are read. Where it names another, the window was published again since, and its own
# files are read. So neither kind of manifest is ever changed because of the other.


@dataclass(frozen=True, slots=True)
class Part:
    """Files that one manifest names, and the windows whose rows in them are valid.

    `superseded` are windows that have rows in the files which must not be read any more.
    """

    manifest: Manifest
    windows: tuple[Window, ...]
    superseded: tuple[Window, ...] = ()

    @property
    def files(self) -> tuple[PublishedFile, ...]:
        return self.manifest.files


def resolve(manifests: Iterable[Manifest]) -> list[Part]:
    """Every window of one table once, in order of time, without retired ones.

    Days must come with all their windows.
    """
    own: dict[int, list[Manifest]] = {}
    days: dict[int, Manifest] = {}
    for one in manifests:
        if one.combines:
            days[one.window.start_ms] = one
        elif not one.retired:
            own.setdefault(one.window.day.start_ms, []).append(one)
    return [part for day_ms in sorted(own) for part in _resolve_day(own[day_ms], days.get(day_ms))]


def _resolve_day(own: Sequence[Manifest], day: Manifest | None) -> list[Part]:
    """The windows of one day, those that are valid in the day's files as one part."""
    valid = tuple(sorted(one.window for one in own if is_combined(one, day)))
    parts = [Part(one, (one.window,)) for one in own if one.window not in valid]
    if day is not None and valid:
        parts.append(Part(day, valid, tuple(sorted(set(_windows_in(day)) - set(valid)))))
    return sorted(parts, key=lambda part: part.windows[0])


def is_combined(window: Manifest, day: Manifest | None) -> bool:
    """Whether the day's files are valid for this window."""
    return day is not None and not day.retired and day.made_from.get(window.name) == window.stamp


def _windows_in(day: Manifest) -> Iterator[Window]:
    """The windows that have rows in the day's files."""
    kind = day.kind
    for start_ms in range(day.window.start_ms, day.window.end_ms, kind.published_ms):
        window = Window(start_ms, start_ms + kind.published_ms)
        if f"{kind.name}/{window.name}" in day.made_from:
            yield window


class UsageStore:
    """All tables at one address. Times are milliseconds, [start, end); None = no bound."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    @classmethod
    def at(cls, url: str) -> "UsageStore":
        """Open `file:///path`, `s3://…`, `gs://…`, `abfs://…` or a plain path; it may be empty.

        Raises InvalidResource for another address.
        """
        return cls(open_storage(url))

    def manifests(
        self, table: str, start_ms: int | None = None, end_ms: int | None = None
    ) -> list[Manifest]:
        """Manifests of windows that overlap the range, with retired ones and days, by time.

        Raises InvalidResource for an unknown table, UsageDamaged or OtherVersion for a manifest
        that cannot be read.
        """
        paths = [
            file.path for window, file in self.listed(table) if window.overlaps(start_ms, end_ms)
        ]
        return self.read_manifests(paths)

    def listed(self, table: str) -> list[tuple[Window, StoredFile]]:
        """The manifests that there are, in order of time, without reading any."""
        files = self.storage.files(f"{MANIFESTS}/{kind_named(table).name}")
        named = [
            (window, file) for file in files if (window := window_of_path(file.path)) is not None
        ]
        return sorted(named, key=lambda one: (one[0], one[1].path))

    def read_manifests(self, paths: Sequence[str]) -> list[Manifest]:
        """Those that are still there. Raises UsageDamaged and OtherVersion as `manifests` does."""
        read = zip(paths, self.storage.read_all(paths), strict=True)
        return [
            decode_manifest(content, where=path) for path, content in read if content is not None
        ]

    def require_writable(self, owner: Owner) -> None:
        """Raises OtherVersion if a table's newest manifest is of another version, OtherOwner
        where it is another policy's.

        A run asks before it writes. Only the newest is read, for a year of them takes a minute from
        a bucket.
        """
        listed = [[file for _, file in self.listed(table)] for table in TABLES]
        newest = self.read_manifests(
            [max(files, key=lambda file: file.modified_ms).path for files in listed if files]
        )
        for one in newest:
            require_owner(owner, one.owner, where=self.storage.shown)

    def parts(
        self, table: str, start_ms: int | None = None, end_ms: int | None = None
    ) -> list[Part]:
        """Every published window that overlaps the range, once, with the files of its rows."""
        whole_days = (
            None if start_ms is None else start_ms - start_ms % DAY_MS,
            None if end_ms is None else end_ms + -end_ms % DAY_MS,
        )
        return [
            Part(part.manifest, windows, _overlapping(part.superseded, start_ms, end_ms))
            for part in resolve(self.manifests(table, *whole_days))
            if (windows := _overlapping(part.windows, start_ms, end_ms))
        ]

    def windows(
        self, table: str, start_ms: int | None = None, end_ms: int | None = None
    ) -> list[Window]:
        """What is published, in order of time; a window without rows is, too."""
        return sorted(
            window for part in self.parts(table, start_ms, end_ms) for window in part.windows
        )

    def files(
        self, table: str, start_ms: int | None = None, end_ms: int | None = None
    ) -> list[str]:
        """Addresses for DuckDB, Spark or pandas: every row in the range once, and rows beyond it.

        Raises Incomplete while a file also has rows in the range that are valid no more; `rows`
        leaves those out.
        """
        parts = self.parts(table, start_ms, end_ms)
        stale = [window.name for part in parts for window in part.superseded]
        if stale:
            raise Incomplete(
                Reason.USAGE_DAMAGED,
                f"{table} {', '.join(stale)} was published again after its day was put into one "
                f"file, which has the older rows still."
                " The next rollup run puts the day together again; until then, `rows` reads "
                "around them.",
            )
        return [self.storage.address(file.path) for part in parts for file in part.files]

    def rows(
        self,
        table: str,
        start_ms: int | None = None,
        end_ms: int | None = None,
        *,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """All rows with a window_start in the range, in the files' order; may be an empty table."""
        kind = kind_named(table)
        wanted = kind.schema.names if columns is None else list(columns)
        empty = kind.schema.empty_table().select(wanted)
        return pa.concat_tables([empty, *self.tables(table, start_ms, end_ms, columns=wanted)])

    def tables(
        self,
        table: str,
        start_ms: int | None = None,
        end_ms: int | None = None,
        *,
        columns: Sequence[str] | None = None,
    ) -> Iterator[pa.Table]:
        """The same, file by file, for those who cannot hold everything at once."""
        kind = kind_named(table)
        wanted = kind.schema.names if columns is None else list(columns)
        for part in self.parts(table, start_ms, end_ms):
            for file in part.files:
                yield self.file_rows(part, file, start_ms=start_ms, end_ms=end_ms, columns=wanted)

    def file_rows(
        self,
        part: Part,
        file: PublishedFile,
        *,
        start_ms: int | None = None,
        end_ms: int | None = None,
        columns: Sequence[str] | None = None,
        some: Some | None = None,
    ) -> pa.Table:
        """The valid rows of one file with a window_start in the range; with `some` only those."""
        kind = part.manifest.kind
        wanted = kind.schema.names if columns is None else list(columns)
        read = {"window_start", *wanted, *(() if some is None else [some.column])}
        rows = decode(self.content(file), where=file.path, columns=sorted(read), some=some)
        return rows.filter(valid_rows(rows, kind, part, start_ms=start_ms, end_ms=end_ms)).select(
            wanted
        )

    def content(self, file: PublishedFile) -> bytes:
        """The file, to the byte what was published. Raises Incomplete if it is not."""
        content = self.storage.read(file.path)
        if content is None or checksum(content) != file.sha256:
            wrong = "is gone" if content is None else "does not hold what was published (checksum)"
            raise Incomplete(
                Reason.USAGE_DAMAGED,
                f"{file.path} at {self.storage.shown} {wrong}. Was its window published again "
                f"just now, reading again helps; else the window"
                " must be rolled up again (`tidegate rollup verify` names all that is broken).",
            )
        return content


def kind_named(table: str) -> TableKind:
    """Raises InvalidResource for a table that does not exist."""
    if table not in TABLES:
        raise InvalidResource(f"There is no table {table}: the tables are {', '.join(TABLES)}.")
    return TABLES[table]


def valid_rows(
    rows: pa.Table,
    kind: TableKind,
    part: Part,
    *,
    start_ms: int | None = None,
    end_ms: int | None = None,
) -> pa.Array:
    """For each row of one of the part's files whether it is valid and within the range."""
    at_ms = rows["window_start"].cast(pa.int64()).to_numpy()
    valid = np.isin(at_ms - at_ms % kind.published_ms, [window.start_ms for window in part.windows])
    valid &= (at_ms >= start_ms) if start_ms is not None else True
    valid &= (at_ms < end_ms) if end_ms is not None else True
    return pa.array(valid)


def _overlapping(
    windows: Sequence[Window], start_ms: int | None, end_ms: int | None
) -> tuple[Window, ...]:
    return tuple(window for window in windows if window.overlaps(start_ms, end_ms))


# A published window is outdated when the rows that it was made from were published again: a run was
# killed between two tables, or late samples came. Only stamps are compared, no rows are read. A
# source that expired (retention) outdates nothing.


def stamps(
    store: UsageStore, tables: Iterable[str], start_ms: int | None = None, end_ms: int | None = None
) -> Mapping[str, str]:
    """The stamps of these tables' windows in the range, for `Publication.made_from`.

    Ask before reading the rows: what is published meanwhile then shows as newer.
    """
    return {
        one.name: one.stamp
        for table in tables
        for one in store.manifests(table, start_ms, end_ms)
        if is_current(one)
    }


def outdated(
    store: UsageStore,
    table: str,
    sources: Iterable[str],
    start_ms: int | None = None,
    end_ms: int | None = None,
) -> list[Window]:
    """Windows of the table that lack a source window, or were made from an older one.

    One without a record of what it was made from is never outdated.
    """
    found = [one for source in sources for one in store.manifests(source, start_ms, end_ms)]
    return outdated_among(store.manifests(table, start_ms, end_ms), found)


def outdated_among(targets: Iterable[Manifest], sources: Iterable[Manifest]) -> list[Window]:
    """The same of manifests that are read already."""
    made = {one.window: one for one in targets if one.made_from and is_current(one)}
    newer: set[Window] = set()
    for source in filter(is_current, sources):
        for window in {source.window, source.window.day} & made.keys():
            if made[window].made_from.get(source.name) != source.stamp:
                newer.add(window)
    return sorted(newer)


def is_current(manifest: Manifest) -> bool:
    """Whether it is a window's own statement, and of a window that is not over."""
    return not manifest.combines and not manifest.retired
