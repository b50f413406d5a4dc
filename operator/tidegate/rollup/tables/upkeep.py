"""Upkeep after a run's publications: join ended days, retire old windows, remove garbage.

Each of it may be cut short or left out; the next run takes it up. It changes where rows lie and
never what they say.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tidegate.errors import InvalidResource
from tidegate.rollup.schemas import DAY_MS, FIVE_MINUTES_MS, HOUR_MS, TABLES, TableKind
from tidegate.rollup.tables import publication
from tidegate.rollup.tables.format import (
    MANIFESTS,
    Contents,
    Manifest,
    UsageDamaged,
    Window,
    encode_manifest,
    summed_columns,
    window_named,
    window_of_path,
)
from tidegate.rollup.tables.publication import (
    Source,
    discard_staging,
    in_portions,
    to_seconds,
    write_files,
)
from tidegate.rollup.tables.storage import StoredFile, is_unfinished
from tidegate.rollup.tables.store import Part, UsageStore, is_current, resolve

# Compaction: one sorted file a day instead of one or more an hour, for tables that are published
# by the hour. No row changes. The day's manifest names the stamp of every hour in its file. An hour
# that is published again later replaces its rows there, and the next compaction takes it in. The
# hours' own files stay until a clean-up removes them.


_MARGIN_MS = 600_000  # clocks differ, and putting a day together takes a while
_ATTEMPTS = 3


def compact_days(
    store: UsageStore, table: str, *, before_ms: int, run_id: str, now_ms: int
) -> list[Manifest]:
    """Join the hours of days that ended by then, if not done or changed since; the new manifests.

    Choose `before_ms` so that late hours are published by then: a day that changes afterwards is
    put together again.
    """
    kind = TABLES[table]
    if kind.published_ms == DAY_MS:
        return []
    days = [day for day in _changed_days(store, table) if day.end_ms <= before_ms]
    return [
        made
        for day in days
        for made in _compact_until_settled(store, kind, day, run_id=run_id, now_ms=now_ms)
    ]


def _changed_days(store: UsageStore, table: str) -> list[Window]:
    """Days with an hour written since, or shortly before, their compaction, by listings alone."""
    days: dict[Window, int] = {}
    windows: dict[Window, int] = {}
    for window, file in store.listed(table):
        if window == window.day:
            days[window] = file.modified_ms
        else:
            windows[window.day] = max(windows.get(window.day, 0), file.modified_ms)
    return [
        day
        for day, written_ms in sorted(windows.items())
        if day not in days or written_ms > days[day] - _MARGIN_MS
    ]


def _compact_until_settled(
    store: UsageStore, kind: TableKind, day: Window, *, run_id: str, now_ms: int
) -> Iterator[Manifest]:
    """Again where an hour was published meanwhile; if that goes on, the next run has to do it."""
    for _ in range(_ATTEMPTS):
        if all(
            part.manifest.combines and not part.superseded
            for part in store.parts(kind.name, day.start_ms, day.end_ms)
        ):
            return
        yield _compact(store, kind, day, run_id=run_id, now_ms=now_ms)


def _compact(
    store: UsageStore, kind: TableKind, day: Window, *, run_id: str, now_ms: int
) -> Manifest:
    hours = list(filter(is_current, store.manifests(kind.name, day.start_ms, day.end_ms)))
    rows = sum(hour.contents.rows for hour in hours)
    sources = _sources(store, day, store.parts(kind.name, day.start_ms, day.end_ms))
    portions = in_portions(kind, sources, rows=rows, parallel=store.storage.parallel)
    written = write_files(store.storage, kind, day, run_id=run_id, portions=portions)
    manifest = Manifest(
        table=kind.name,
        window=day,
        run_id=run_id,
        published_at_ms=to_seconds(now_ms),
        files=written.files,
        owner=hours[-1].owner,
        coverage=written.coverage,
        made_from={hour.name: hour.stamp for hour in hours},
    )
    _require_all(kind, manifest, hours)
    store.storage.write(manifest.path, encode_manifest(manifest))
    return manifest


def _sources(store: UsageStore, day: Window, parts: Sequence[Part]) -> list[Source]:
    """Every file of the day, as it is whenever it is read."""
    return [
        partial(store.file_rows, part, file, start_ms=day.start_ms, end_ms=day.end_ms)
        for part in parts
        for file in part.files
    ]


def _require_all(kind: TableKind, day: Manifest, hours: Sequence[Manifest]) -> None:
    """Raises UsageDamaged if rows were lost or doubled, as when an hour changed meanwhile."""
    wanted = {
        name: sum(hour.contents.sums.get(name, 0) for hour in hours)
        for name in summed_columns(kind)
    }
    found = {name: day.contents.sums.get(name, 0) for name in wanted}
    rows = sum(hour.contents.rows for hour in hours)
    if Contents(day.contents.rows, found) != Contents(rows, wanted):
        raise UsageDamaged(
            f"{day.name} put together has {day.contents.rows} rows and {found}, its hours have "
            f"{rows} and {wanted}. The hours stay as"
            " they are: one of them was published again meanwhile, or a file is damaged (run "
            "`tidegate rollup verify`)."
        )


# Retention: five-minute and hourly tables expire after their days, daily ones never. A window
# expires by a manifest that retires it. Its files stay for the grace of the clean-up, for readers
# that have begun to read them.


@dataclass(frozen=True, slots=True)
class Retention:
    """How many days the rows of each grain are kept; a day goes once all of it is older."""

    five_minutes_days: int = 30
    hours_days: int = 400

    def before_ms(self, kind: TableKind, now_ms: int) -> int | None:
        """Days that end by then go; None = kept for ever."""
        days = {FIVE_MINUTES_MS: self.five_minutes_days, HOUR_MS: self.hours_days}.get(
            kind.window_ms
        )
        return None if days is None else now_ms - days * DAY_MS


def retire(store: UsageStore, retention: Retention, *, run_id: str, now_ms: int) -> list[Manifest]:
    """Publish that the windows out of retention are over; the manifests that say so."""
    return [
        _retire(store, manifest, run_id, now_ms=now_ms)
        for manifest in _overdue(store, retention, now_ms)
    ]


def _overdue(store: UsageStore, retention: Retention, now_ms: int) -> Iterator[Manifest]:
    """Hours before their day: a day is not retired while its hours still count on its files."""
    for kind in TABLES.values():
        before_ms = retention.before_ms(kind, now_ms)
        if before_ms is None:
            continue
        old = [
            one
            for one in store.manifests(kind.name, None, before_ms)
            if one.window.day.end_ms <= before_ms and not one.retired
        ]
        yield from sorted(old, key=lambda one: one.combines)


def _retire(store: UsageStore, manifest: Manifest, run_id: str, *, now_ms: int) -> Manifest:
    gone = replace(
        manifest,
        run_id=run_id,
        published_at_ms=to_seconds(now_ms),
        files=(),
        made_from={},
        retired=True,
    )
    store.storage.write(gone.path, encode_manifest(gone))
    return gone


# Clean-up: removes files that no manifest names any more, after a grace: those of runs that died,
# of windows published again, and of the staging. Only files with a run's name are touched. The
# grace must be longer than any run or read. It begins when the file was written or, if later, when
# its day was last published. It may run twice or be cut short.


GRACE_MS = DAY_MS
_OURS = re.compile(
    r"[a-z0-9_]+/dt=(?P<day>\d{4}-\d\d-\d\d)/(hour=\d\d/)?part-[A-Za-z0-9-]+-\d+-[0-9a-f]{8}\.parquet"
)


@dataclass(frozen=True, slots=True)
class Swept:
    """What a clean-up removed: table files, staged files, and manifests of retired windows."""

    files: int
    size_bytes: int
    staged: int
    manifests: int


NOTHING_SWEPT = Swept(0, 0, 0, 0)


def sweep(store: UsageStore, *, now_ms: int, grace_ms: int = GRACE_MS) -> Swept:
    """Remove garbage that is older than the grace.

    Raises InvalidResource for a grace below an hour, OtherVersion and UsageDamaged while there are
    manifests that cannot be read: nothing of that table is removed then.
    """
    if grace_ms < HOUR_MS:
        raise InvalidResource(
            f"A grace of {grace_ms / 60_000:g} minutes could remove files that are being read or "
            f"published: at least 60."
        )
    before_ms = now_ms - grace_ms
    files, over = [], []
    for table in TABLES:
        garbage, ended = _of_table(store, table, before_ms)
        store.storage.delete(file.path for file in garbage)
        # last: while it is there, it says why the files may go
        store.storage.delete(manifest.path for manifest in ended)
        store.storage.delete_empty_folders(table)
        files += garbage
        over += ended
    staged = list(_staged(store.storage.files(publication.FOLDER), before_ms))
    unfinished = [
        file
        for file in store.storage.files(MANIFESTS)
        if is_unfinished(file.path) and file.modified_ms < before_ms
    ]
    store.storage.delete(file.path for file in unfinished)
    for folder in sorted({"/".join(file.path.split("/")[:2]) for file in staged}):
        store.storage.delete_folder(folder)
    store.storage.delete_empty_folders(publication.FOLDER)
    return Swept(len(files), sum(file.size_bytes for file in files), len(staged), len(over))


def _of_table(
    store: UsageStore, table: str, before_ms: int
) -> tuple[list[StoredFile], list[Manifest]]:
    """Files that may go, and manifests of windows that are over.

    Files are listed first, so that what is published meanwhile is named.
    """
    files = store.storage.files(table)
    listed: dict[Window, list[str]] = {}
    for window, file in store.listed(table):
        listed.setdefault(window.day, []).append(file.path)
    old = [file for file in files if file.modified_ms < before_ms]
    garbage, over = [file for file in old if is_unfinished(file.path)], list[Manifest]()
    by_day = _by_day(old)
    for day in sorted(by_day.keys() | (listed.keys() - _by_day(files).keys())):
        unnamed, ended = _of_day(
            store, by_day.get(day, []), listed.get(day, []), before_ms=before_ms
        )
        garbage += unnamed
        over += ended
    return garbage, over


def _of_day(
    store: UsageStore, old: Sequence[StoredFile], paths: Sequence[str], *, before_ms: int
) -> tuple[Sequence[StoredFile], Sequence[Manifest]]:
    """The same of one day.

    Most days are in one file that the day's own manifest names: then no other manifest is read.
    """
    whole = store.read_manifests(
        [
            path
            for path in paths
            if (window := window_of_path(path)) is not None and window == window.day
        ]
    )
    if any(
        one.combines
        and not one.retired
        and {file.path for file in one.files} >= {file.path for file in old}
        for one in whole
    ):
        return [], []
    manifests = store.read_manifests(paths) if len(whole) < len(paths) else whole
    named = {file.path for part in resolve(manifests) for file in part.files}
    # when rows of the day last changed their place
    published_ms = max((one.published_at_ms for one in manifests), default=0)
    unnamed = [file for file in old if file.path not in named] if published_ms < before_ms else []
    return unnamed, [one for one in manifests if one.retired and one.published_at_ms < before_ms]


def _by_day(files: Iterable[StoredFile]) -> dict[Window, list[StoredFile]]:
    """Files that a run made, by the day they are of."""
    days: dict[Window, list[StoredFile]] = {}
    for file in files:
        ours = _OURS.fullmatch(file.path)
        if ours is not None:
            days.setdefault(window_named(ours["day"]), []).append(file)
    return days


def _staged(files: Iterable[StoredFile], before_ms: int) -> Iterator[StoredFile]:
    """Files of runs that have staged nothing for the whole of the grace."""
    runs: dict[str, list[StoredFile]] = {}
    for file in (file for file in files if file.path.count("/") > 1):
        runs.setdefault(file.path.split("/")[1], []).append(file)
    for staged in runs.values():
        if max(file.modified_ms for file in staged) < before_ms:
            yield from staged


SETTLED_MS = 3 * HOUR_MS  # after a day's end: its last hours were rolled up again for late samples


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What was done: days put together, windows let go, and what was removed."""

    days: int
    retired: int
    swept: Swept


def keep_up(
    store: UsageStore,
    retention: Retention,
    *,
    run_id: str,
    now_ms: int,
    before_sweep: Callable[[], bool] = lambda: True,
) -> Upkeep:
    """Do all of it, and drop what this run staged. Call it after the last publication of the run.

    `before_sweep` tells other readers where rows are now; where it gives False they may still read
    what is named no more, and nothing is swept.

    Raises RetryLater if the storage does not answer, UserActionRequired for tables that are
    damaged or of another version; what is published stays.
    """
    discard_staging(store, run_id)
    days = [
        day
        for table in TABLES
        for day in compact_days(
            store, table, before_ms=now_ms - SETTLED_MS, run_id=run_id, now_ms=now_ms
        )
    ]
    retired = retire(store, retention, run_id=run_id, now_ms=now_ms)
    swept = sweep(store, now_ms=now_ms) if before_sweep() else NOTHING_SWEPT
    return Upkeep(len(days), len(retired), swept)
