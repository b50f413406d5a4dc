"""Which published windows were made from rows that are no more the newest: a run was killed between two tables, or late samples came.

It compares stamps only and reads no rows. A source that is gone (retention) outdates nothing.
"""

from collections.abc import Iterable, Mapping

from tidegate.rollup.tables.manifest import Manifest
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.tables.windows import Window


def stamps(store: UsageStore, tables: Iterable[str], start_ms: int | None = None, end_ms: int | None = None) -> Mapping[str, str]:
    """What is made from these tables' rows in the range is made from: for `Publication.made_from`. Ask before reading the rows."""
    return {one.name: one.stamp for table in tables for one in store.manifests(table, start_ms, end_ms) if is_current(one)}


def outdated(store: UsageStore, table: str, sources: Iterable[str], start_ms: int | None = None, end_ms: int | None = None) -> list[Window]:
    """Windows of the table in which a source has a window that is newer than what theirs was made from, or is new.

    One that does not tell what it was made from is never outdated.
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
