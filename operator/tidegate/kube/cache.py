"""Caches the custom resources: watch and lists update it, control passes read it.

Two streams meet here and neither is in order with the other. A watch reports changes at once, but
loses deletions when it has to start over. A list is complete, but was taken a moment ago. Versions
are opaque, so nothing is compared as older or newer. Instead:

- The caller of a list marks its begin (`begin_list`). An object that the watch put or removed after
  that stays as the watch left it.
- For every other object the list is right: one that is not in it is gone, even without a watch
  event.
- A uid that the watch saw deleted never comes back, whatever a list or a late event has.

`changed` is called, outside the lock, with the objects in which something changed that a decision
could depend on: an object that came or went, its spec, its deletion, annotations of `tidegate.io/`,
and a finalizer of ours that someone took off. Statuses are our own; other labels and annotations
are those of other controllers, which may write them many times a second. `forget` is called,
outside the lock too, with the uid of each object that is gone. Objects are shared with readers,
which must not change them.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidegate.kube.api import JsonObject, Kubernetes, ResourceKind

REMEMBERED_DELETIONS = 10_000
_OURS = "tidegate.io/"


@dataclass(frozen=True, slots=True)
class ListStart:
    """The moment before a full list of `kind` was asked for; `replace_all` needs it."""

    kind: ResourceKind
    at_seconds: float
    change: int


@dataclass(frozen=True, slots=True)
class Change:
    """An object before and after a change; None = it was not there, or is gone."""

    kind: ResourceKind
    before: JsonObject | None
    after: JsonObject | None

    @property
    def versions(self) -> tuple[JsonObject, ...]:
        """Both, or the only one."""
        return tuple(version for version in (self.before, self.after) if version is not None)


@dataclass(slots=True)
class _KindStore:
    objects: dict[str, JsonObject] = field(default_factory=dict)
    touched: dict[str, int] = field(default_factory=dict)
    deleted: OrderedDict[str, None] = field(default_factory=OrderedDict)
    change: int = 0
    listed_at_seconds: float | None = None

    def touch(self, uid: str) -> None:
        self.change += 1
        self.touched[uid] = self.change


class ResourceCache:
    """Objects by kind and uid, for any number of threads; `monotonic` measures ages, in seconds."""

    def __init__(
        self,
        changed: Callable[[Sequence[Change]], None],
        *,
        forget: Callable[[str], None] = lambda _: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._changed = changed
        self._forget = forget
        self._monotonic = monotonic
        self._stores: dict[ResourceKind, _KindStore] = {}
        self._lock = threading.Lock()

    def put(self, kind: ResourceKind, obj: Mapping[str, Any]) -> None:
        """Take over `obj` from the watch, or from the answer to our own write.

        The same version again, an older spec than the cached one (the watch may lag behind our
        writes), and an object that was deleted are ignored.
        """
        slim = _without_managed_fields(obj)
        uid = slim["metadata"]["uid"]
        with self._lock:
            store = self._store(kind)
            before = store.objects.get(uid)
            if uid in store.deleted or (before is not None and _is_no_news(before, slim)):
                return
            store.touch(uid)
            store.objects[uid] = slim
        if before is None or _matters(before, slim):
            self._changed([Change(kind, before, slim)])

    def remove(self, kind: ResourceKind, uid: str) -> None:
        """Forget the object for good: the watch saw its deletion."""
        with self._lock:
            store = self._store(kind)
            store.touch(uid)
            store.deleted[uid] = None
            while len(store.deleted) > REMEMBERED_DELETIONS:
                store.deleted.popitem(last=False)
            before = store.objects.pop(uid, None)
        self._forget(uid)
        if before is not None:
            self._changed([Change(kind, before, None)])

    def begin_list(self, kind: ResourceKind) -> ListStart:
        """Call this before asking for a full list."""
        with self._lock:
            return ListStart(kind, at_seconds=self._monotonic(), change=self._store(kind).change)

    def replace_all(self, start: ListStart, items: Iterable[Mapping[str, Any]]) -> None:
        """Take over a complete list that was asked for after `start`.

        The age of the list counts from `start`.
        """
        listed = {slim["metadata"]["uid"]: slim for slim in map(_without_managed_fields, items)}
        with self._lock:
            store = self._store(start.kind)
            before = store.objects
            newer = {uid for uid, change in store.touched.items() if change > start.change}
            kept = {uid: obj for uid, obj in before.items() if uid in newer}
            fresh = {
                uid: obj
                for uid, obj in listed.items()
                if uid not in newer and uid not in store.deleted
            }
            store.objects = fresh | kept
            store.touched = {uid: store.touched[uid] for uid in newer}
            store.listed_at_seconds = start.at_seconds
            gone = before.keys() - store.objects.keys()
        changes = [Change(start.kind, before[uid], None) for uid in gone]
        for uid, obj in fresh.items():
            known = before.get(uid)
            if known is None or _matters(known, obj):
                changes.append(Change(start.kind, known, obj))
        for uid in gone:
            self._forget(uid)
        if changes:
            self._changed(changes)

    def with_known_status(self, kind: ResourceKind, seen: JsonObject) -> JsonObject:
        """The cached object with the spec and generation of `seen`; `seen` itself when it is gone.

        A report belongs to the spec that was acted on, and is written over the present status.
        """
        with self._lock:
            known = self._store(kind).objects.get(seen["metadata"]["uid"])
        if known is None or _generation(known) == _generation(seen):
            return known or seen
        return {
            **known,
            "spec": seen.get("spec"),
            "metadata": {**known["metadata"], "generation": _generation(seen)},
        }

    def snapshot(self, kind: ResourceKind) -> tuple[JsonObject, ...]:
        """Every cached object of `kind`, by namespace and name.

        `list_age_seconds` shows whether these are all.
        """
        with self._lock:
            known = list(self._store(kind).objects.values())
        return tuple(
            sorted(known, key=lambda obj: (obj["metadata"]["namespace"], obj["metadata"]["name"]))
        )

    def list_age_seconds(self, kind: ResourceKind) -> float | None:
        """How long ago the last full list was asked for; None when none has ever arrived."""
        with self._lock:
            listed_at_seconds = self._store(kind).listed_at_seconds
        return None if listed_at_seconds is None else self._monotonic() - listed_at_seconds

    def _store(self, kind: ResourceKind) -> _KindStore:
        return self._stores.setdefault(kind, _KindStore())


def relist(
    cache: ResourceCache,
    kubernetes: Kubernetes,
    kind: ResourceKind,
    *,
    namespaces: Sequence[str] = (),
) -> None:
    """Correct the cache with a full list.

    Raises what `list_all` raises, and then leaves the cache as it is.
    """
    start = cache.begin_list(kind)
    cache.replace_all(start, kubernetes.list_all(kind, namespaces).items)


def _without_managed_fields(obj: Mapping[str, Any]) -> JsonObject:
    # They are often larger than all the rest and mean nothing here.
    metadata = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    return {**obj, "metadata": metadata}


def _is_no_news(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    # versions are opaque, but a generation only grows while the object exists
    return _version(before) == _version(after) or _generation(after) < _generation(before)


def _generation(obj: Mapping[str, Any]) -> int:
    return int(obj["metadata"].get("generation", 0))


def _version(obj: Mapping[str, Any]) -> object:
    return obj["metadata"].get("resourceVersion")


def _matters(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    # our own finalizer comes by our own hand; when somebody takes it off, a pass puts it back
    return _relevant(before) != _relevant(after) or not _our_finalizers(before) <= _our_finalizers(
        after
    )


def _relevant(obj: Mapping[str, Any]) -> tuple[object, ...]:
    metadata = obj["metadata"]
    annotations = metadata.get("annotations") or {}
    ours = {name: text for name, text in annotations.items() if name.startswith(_OURS)}
    return obj.get("spec"), _generation(obj), metadata.get("deletionTimestamp"), ours


def _our_finalizers(obj: Mapping[str, Any]) -> frozenset[str]:
    finalizers = obj["metadata"].get("finalizers") or ()
    return frozenset(name for name in finalizers if name.startswith(_OURS))
