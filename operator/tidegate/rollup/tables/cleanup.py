"""Removes what no manifest names any more, after a grace: files of runs that died, of windows published again, and what was staged.

Only files that carry a run's name are touched. The grace must be longer than any run and any reading takes; it begins when the file was
written or, if later, when something was last published for its day. Run twice or cut short, it does no harm.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tidegate.errors import InvalidResource
from tidegate.rollup.schemas import DAY_MS, HOUR_MS, TABLES
from tidegate.rollup.tables import staging
from tidegate.rollup.tables.durable_file import is_unfinished
from tidegate.rollup.tables.manifest import FOLDER, Manifest, window_of_path
from tidegate.rollup.tables.resolution import resolve
from tidegate.rollup.tables.storage import StoredFile
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.tables.windows import Window, window_named

GRACE_MS = DAY_MS
_OURS = re.compile(r"[a-z0-9_]+/dt=(?P<day>\d{4}-\d\d-\d\d)/(hour=\d\d/)?part-[A-Za-z0-9-]+-\d+-[0-9a-f]{8}\.parquet")


@dataclass(frozen=True, slots=True)
class Swept:
    """What a clean-up removed: table files, staged files, and manifests of windows that are over."""

    files: int
    size_bytes: int
    staged: int
    manifests: int


def sweep(store: UsageStore, *, now_ms: int, grace_ms: int = GRACE_MS) -> Swept:
    """Remove garbage that is older than the grace.

    Raises InvalidResource for a grace below an hour, OtherVersion and UsageDamaged while there are manifests that cannot be read: nothing
    of that table is removed then.
    """
    if grace_ms < HOUR_MS:
        raise InvalidResource(f"A grace of {grace_ms / 60_000:g} minutes could remove files that are being read or published: at least 60.")
    before_ms = now_ms - grace_ms
    files, over = [], []
    for table in TABLES:
        garbage, ended = _of_table(store, table, before_ms)
        store.storage.delete(file.path for file in garbage)
        store.storage.delete(manifest.path for manifest in ended)  # last: while it stands, it says why the files may go
        store.storage.delete_empty_folders(table)
        files += garbage
        over += ended
    staged = list(_staged(store.storage.files(staging.FOLDER), before_ms))
    unfinished = [file for file in store.storage.files(FOLDER) if is_unfinished(file.path) and file.modified_ms < before_ms]
    store.storage.delete(file.path for file in unfinished)
    for folder in sorted({"/".join(file.path.split("/")[:2]) for file in staged}):
        store.storage.delete_folder(folder)
    store.storage.delete_empty_folders(staging.FOLDER)
    return Swept(len(files), sum(file.size_bytes for file in files), len(staged), len(over))


def _of_table(store: UsageStore, table: str, before_ms: int) -> tuple[list[StoredFile], list[Manifest]]:
    """Files that may go, and manifests of windows that are over. Files are listed first: what is published meanwhile is named."""
    files = store.storage.files(table)
    listed: dict[Window, list[str]] = {}
    for window, file in store.listed(table):
        listed.setdefault(window.day, []).append(file.path)
    old = [file for file in files if file.modified_ms < before_ms]
    garbage, over = [file for file in old if is_unfinished(file.path)], list[Manifest]()
    by_day = _by_day(old)
    for day in sorted(by_day.keys() | (listed.keys() - _by_day(files).keys())):
        unnamed, ended = _of_day(store, by_day.get(day, []), listed.get(day, []), before_ms=before_ms)
        garbage += unnamed
        over += ended
    return garbage, over


def _of_day(
    store: UsageStore, old: Sequence[StoredFile], paths: Sequence[str], *, before_ms: int
) -> tuple[Sequence[StoredFile], Sequence[Manifest]]:
    """The same of one day. Most days are in one file that the day's own manifest names: then no other manifest is read."""
    whole = store.read_manifests([path for path in paths if (window := window_of_path(path)) is not None and window == window.day])
    if any(one.combines and not one.retired and {file.path for file in one.files} >= {file.path for file in old} for one in whole):
        return [], []
    manifests = store.read_manifests(paths) if len(whole) < len(paths) else whole
    named = {file.path for part in resolve(manifests) for file in part.files}
    published_ms = max((one.published_at_ms for one in manifests), default=0)  # when rows of the day last changed their place
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
