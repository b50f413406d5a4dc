"""Brings tables that an older version wrote up to the current one, a window at a time, by publishing them again.

Cut short, the windows done are done and the next run goes on; until all are, readers are told so. A window keeps the name of the run whose
samples it has, but not its stamp: what was made from it shows as outdated.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from tidegate.rollup.schemas import TABLES, TableKind
from tidegate.rollup.tables.format import conform, decode, in_order
from tidegate.rollup.tables.manifest import Manifest, encode_manifest
from tidegate.rollup.tables.publication import to_seconds, write_files
from tidegate.rollup.tables.resolution import Part, resolve
from tidegate.rollup.tables.store import UsageStore, valid_rows
from tidegate.rollup.tables.windows import Window


def migrate(store: UsageStore, *, run_id: str, now_ms: int) -> list[Manifest]:
    """Publish every window of an older version again; the new manifests, none where everything is current.

    Raises OtherVersion where something is newer, or nothing leads from its version to the current one; nothing is changed at all then.
    While there are no steps, the newest manifest of each table speaks for all: a year of them takes a minute to read from a bucket.
    """
    if not store.ladder.steps and _newest_are_current(store):
        return []
    manifests = {table: store.manifests(table, any_version=True) for table in TABLES}
    for one in (one for each in manifests.values() for one in each):
        store.ladder.require_way(one.version, where=one.path)
    return [new for table, each in manifests.items() for new in _migrate_table(store, TABLES[table], each, run_id=run_id, now_ms=now_ms)]


def _newest_are_current(store: UsageStore) -> bool:
    listed = [[file for _, file in store.listed(table)] for table in TABLES]
    newest = [max(files, key=lambda file: file.modified_ms).path for files in listed if files]
    return all(one.version == store.ladder.current for one in store.read_manifests(newest, any_version=True))


def _migrate_table(store: UsageStore, kind: TableKind, manifests: Sequence[Manifest], *, run_id: str, now_ms: int) -> Iterator[Manifest]:
    """Windows first: the old file of a day is let go only when nobody needs it."""
    own = {one.window: one for one in manifests if not one.combines}
    for part in resolve(manifests):
        for window in (window for window in part.windows if own[window].version != store.ladder.current):
            rows = _current_rows(store, kind, part, window)
            files, _ = write_files(store.storage, kind, window, run_id=run_id, portions=iter([rows] if rows.num_rows else []))
            yield _write(store, replace(own[window], files=files), now_ms=now_ms)
    for one in manifests:
        if one.version != store.ladder.current and (one.combines or one.retired):
            yield _write(store, replace(one, files=(), made_from={}, retired=True), now_ms=now_ms)


def _current_rows(store: UsageStore, kind: TableKind, part: Part, window: Window) -> pa.Table:
    """A window's rows in the columns of the current version, sorted."""
    only = Part(part.manifest, (window,))
    read = (decode(store.content(file), where=file.path) for file in part.files)
    tables = [rows.filter(valid_rows(rows, kind, only)) for rows in read]
    climbed = (store.ladder.climb(kind.name, rows, version=part.manifest.version) for rows in tables)
    return in_order(kind, pa.concat_tables([kind.schema.empty_table(), *(conform(kind, rows) for rows in climbed)]))


def _write(store: UsageStore, manifest: Manifest, *, now_ms: int) -> Manifest:
    current = replace(manifest, version=store.ladder.current, published_at_ms=to_seconds(now_ms))
    store.storage.write(current.path, encode_manifest(current))
    return current
