"""One sorted file a day in place of one or more an hour, for tables that are published by the hour. No row changes.

The day's manifest names the stamp of every hour that went into its file; an hour that is published again later goes before it by itself,
and the next compaction takes it in. The hours' own files stay until a clean-up removes them.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from tidegate.rollup.schemas import DAY_MS, TABLES, TableKind
from tidegate.rollup.tables.format import Contents, UsageDamaged, summed_columns
from tidegate.rollup.tables.manifest import Manifest, encode_manifest
from tidegate.rollup.tables.portions import Source, in_portions
from tidegate.rollup.tables.publication import to_seconds, write_files
from tidegate.rollup.tables.resolution import Part
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.tables.windows import Window

_MARGIN_MS = 600_000  # clocks differ, and putting a day together takes a while
_ATTEMPTS = 3


def compact_days(store: UsageStore, table: str, *, before_ms: int, run_id: str, now_ms: int) -> list[Manifest]:
    """Put together every day that ended before then and is not yet, or has changed since; the new manifests.

    Choose `before_ms` so that late hours are published by then: a day that changes afterwards is put together again.
    """
    kind = TABLES[table]
    if kind.published_ms == DAY_MS:
        return []
    days = [day for day in _changed_days(store, table) if day.end_ms <= before_ms]
    return [made for day in days for made in _compact_until_settled(store, kind, day, run_id=run_id, now_ms=now_ms)]


def _changed_days(store: UsageStore, table: str) -> list[Window]:
    """Days that something was written for since, or not long before, they were put together. Only names and times are looked at."""
    days: dict[Window, int] = {}
    windows: dict[Window, int] = {}
    for window, file in store.listed(table):
        if window == window.day:
            days[window] = file.modified_ms
        else:
            windows[window.day] = max(windows.get(window.day, 0), file.modified_ms)
    return [day for day, written_ms in sorted(windows.items()) if day not in days or written_ms > days[day] - _MARGIN_MS]


def _compact_until_settled(store: UsageStore, kind: TableKind, day: Window, *, run_id: str, now_ms: int) -> Iterator[Manifest]:
    """Again where an hour was published meanwhile; if that goes on, the next run has to do it."""
    for _ in range(_ATTEMPTS):
        if all(part.manifest.combines and not part.superseded for part in store.parts(kind.name, day.start_ms, day.end_ms)):
            return
        yield _compact(store, kind, day, run_id=run_id, now_ms=now_ms)


def _compact(store: UsageStore, kind: TableKind, day: Window, *, run_id: str, now_ms: int) -> Manifest:
    hours = [one for one in store.manifests(kind.name, day.start_ms, day.end_ms) if not one.combines and not one.retired]
    rows = sum(hour.contents.rows for hour in hours)
    sources = _sources(store, day, store.parts(kind.name, day.start_ms, day.end_ms))
    portions = in_portions(kind, sources, rows=rows, parallel=store.storage.parallel)
    files, coverage = write_files(store.storage, kind, day, run_id=run_id, portions=portions)
    manifest = Manifest(
        table=kind.name,
        window=day,
        run_id=run_id,
        published_at_ms=to_seconds(now_ms),
        files=files,
        coverage=coverage,
        made_from={hour.name: hour.stamp for hour in hours},
        version=store.ladder.current,
    )
    _require_all(kind, manifest, hours)
    store.storage.write(manifest.path, encode_manifest(manifest))
    return manifest


def _sources(store: UsageStore, day: Window, parts: Sequence[Part]) -> list[Source]:
    """Every file of the day, as it is whenever it is read."""
    return [partial(store.file_rows, part, file, start_ms=day.start_ms, end_ms=day.end_ms) for part in parts for file in part.files]


def _require_all(kind: TableKind, day: Manifest, hours: Sequence[Manifest]) -> None:
    """Nothing was lost or doubled. An hour that was published again while the day was read shows here, too."""
    told = {name: sum(hour.contents.sums.get(name, 0) for hour in hours) for name in summed_columns(kind)}
    found = {name: day.contents.sums.get(name, 0) for name in told}
    rows = sum(hour.contents.rows for hour in hours)
    if Contents(day.contents.rows, found) != Contents(rows, told):
        raise UsageDamaged(
            f"{day.name} put together has {day.contents.rows} rows and {found}, its hours have {rows} and {told}. The hours stay as"
            " they are: one of them was published again meanwhile, or a file is damaged (`tidegate rollup verify` tells)."
        )
