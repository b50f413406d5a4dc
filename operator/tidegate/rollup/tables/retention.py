"""Windows that are old enough to go: five-minute and hourly tables after their days, daily ones never.

Going is publishing a manifest that says so. Files stay for the grace of the clean-up, for those who have begun to read them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tidegate.rollup.schemas import DAY_MS, FIVE_MINUTES_MS, HOUR_MS, TABLES, TableKind
from tidegate.rollup.tables.manifest import Manifest, encode_manifest
from tidegate.rollup.tables.publication import to_seconds
from tidegate.rollup.tables.store import UsageStore


@dataclass(frozen=True, slots=True)
class Retention:
    """For how many days rows of each grain are kept; a day goes as a whole, once all of it is older."""

    five_minutes_days: int = 30
    hours_days: int = 400

    def before_ms(self, kind: TableKind, now_ms: int) -> int | None:
        """Days that end by then go; None = kept for ever."""
        days = {FIVE_MINUTES_MS: self.five_minutes_days, HOUR_MS: self.hours_days}.get(kind.window_ms)
        return None if days is None else now_ms - days * DAY_MS


def retire(store: UsageStore, retention: Retention, *, run_id: str, now_ms: int) -> list[Manifest]:
    """Publish that the windows out of retention are over; the manifests that say so."""
    return [_retire(store, manifest, run_id, now_ms=now_ms) for manifest in _overdue(store, retention, now_ms)]


def _overdue(store: UsageStore, retention: Retention, now_ms: int) -> Iterator[Manifest]:
    """Hours before their day, so that a day is never retired while its hours still count on its files."""
    for kind in TABLES.values():
        before_ms = retention.before_ms(kind, now_ms)
        if before_ms is None:
            continue
        old = [one for one in store.manifests(kind.name, None, before_ms) if one.window.day.end_ms <= before_ms and not one.retired]
        yield from sorted(old, key=lambda one: one.combines)


def _retire(store: UsageStore, manifest: Manifest, run_id: str, *, now_ms: int) -> Manifest:
    gone = replace(manifest, run_id=run_id, published_at_ms=to_seconds(now_ms), files=(), made_from={}, retired=True)
    store.storage.write(gone.path, encode_manifest(gone))
    return gone
