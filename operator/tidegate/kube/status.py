"""Writes a status only where it differs, and never over what others wrote.

Writes are compare-and-set. It gets a status, completes its conditions and finds the difference. An
object that did not change costs no request.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from tidegate.errors import (
    Conflict,
    NotFound,
    OutcomeUnknown,
    ServerFault,
    TidegateError,
    Unreachable,
)
from tidegate.kube.api import JsonObject, Kubernetes, ObjectRef, ResourceKind
from tidegate_logic.words import rfc3339

_log = structlog.get_logger(__name__)

# --- conditions, by the Kubernetes API conventions: a list keyed by type --------------------------
#
# lastTransitionTime moves only when status does.


def merge(
    present: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]], *, now: str
) -> list[JsonObject]:
    """`present` with every condition of `wanted` set; other writers' types stay as they are.

    The order stays, and new types come last. lastTransitionTime is kept where the status is what it
    was, and is `now` otherwise; that of `wanted` is ignored.
    """
    by_type = {condition["type"]: condition for condition in wanted}
    merged = [
        _settled(condition, by_type.pop(condition["type"], None), now=now) for condition in present
    ]
    return [*merged, *(_settled(None, condition, now=now) for condition in by_type.values())]


def _settled(
    before: Mapping[str, Any] | None, wanted: Mapping[str, Any] | None, *, now: str
) -> JsonObject:
    if wanted is None:
        return dict(before or {})
    unchanged = before is not None and before.get("status") == wanted["status"]
    moved_at = before.get("lastTransitionTime") if before is not None and unchanged else None
    return {**wanted, "lastTransitionTime": moved_at or now}


# --- RFC 7386 JSON merge patch: lists are values, replaced as a whole -----------------------------


def difference(current: Mapping[str, Any], desired: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that makes every key of `desired` hold; {} when it holds already.

    Keys that `desired` does not name are left as they are. A key whose desired value is None is
    removed if it is there.
    """
    patch: dict[str, Any] = {}
    for key, wanted in desired.items():
        present = current.get(key)
        if isinstance(wanted, Mapping) and isinstance(present, Mapping):
            if inner := difference(present, wanted):
                patch[key] = inner
        elif wanted != present or isinstance(wanted, bool) is not isinstance(present, bool):
            patch[key] = wanted
    return patch


def apply(patch: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, Any]:
    """`current` with `patch` merged into it; `current` itself is not changed."""
    merged = dict(current)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            present = merged.get(key)
            merged[key] = apply(value, present if isinstance(present, Mapping) else {})
        else:
            merged[key] = value
    return merged


@dataclass(frozen=True, slots=True)
class StatusWrite:
    """The outcome of a write: `written` = a request changed the status.

    `object` is the object as it is now (None: it is gone).
    """

    object: JsonObject | None
    written: bool


FAULTS_IN_A_ROW = 3


class Answers:
    """Whether Kubernetes is unreachable, as the writes of one report see it.

    No answer means that it is. An answer of 5xx may be about one object, such as one that is too
    large for etcd; several of them in a row mean that nothing behind it answers.
    """

    def __init__(self) -> None:
        self.away = False
        self._faults = 0

    def note(self, error: TidegateError | None) -> None:
        """Take in how a write ended; None = the status is written."""
        self._faults = self._faults + 1 if isinstance(error, ServerFault) else 0
        if self._faults >= FAULTS_IN_A_ROW or (
            isinstance(error, Unreachable | OutcomeUnknown) and not self._faults
        ):
            self.away = True


class StatusWriter:
    """Writes statuses for one process; `wall` is seconds since the epoch.

    Safe for several threads as long as one object has one writer.
    """

    def __init__(self, kubernetes: Kubernetes, *, wall: Callable[[], float] = time.time) -> None:
        self._kubernetes = kubernetes
        self._wall = wall
        # By uid: the version that the caller saw when we last wrote, and the object as that write
        # left it. A cache fed by a watch shows the version before our write for a moment, and must
        # not make us write again.
        self._written: dict[str, tuple[str, JsonObject]] = {}
        self._not_kept: dict[str, JsonObject] = {}
        self._failed: set[str] = set()

    def failed(self, seen: Mapping[str, Any]) -> bool:
        """Whether the server failed at the last write of this object: it had better come last."""
        return seen["metadata"]["uid"] in self._failed

    def write(
        self, kind: ResourceKind, seen: Mapping[str, Any], desired: Mapping[str, Any]
    ) -> StatusWrite:
        """Make every key of `desired` hold in the status of the object last seen as `seen`.

        A key with the value None is removed; keys that are not named stay. `conditions` are merged
        by type and keep their lastTransitionTime while their status stays. When the object has
        moved on since it was seen it is read again, once; a second Conflict is raised. Raises what
        `Kubernetes.patch_status` raises, except NotFound: an object that is gone needs no status.
        """
        ref = ObjectRef.of(kind, seen)
        # Enums and tuples become what parsed JSON has, so that equal things compare as equal.
        wanted: JsonObject = json.loads(json.dumps(desired))
        try:
            try:
                done = self._write_over(ref, self._newest(seen), wanted)
            except Conflict:
                done = self._write_over(ref, self._kubernetes.get(ref), wanted)
        except NotFound:
            self.forget(ref.uid)
            return StatusWrite(None, written=False)
        except ServerFault:
            self._failed.add(ref.uid)
            raise
        self._failed.discard(ref.uid)
        if done.written and done.object is not None:
            self._written[ref.uid] = (seen["metadata"]["resourceVersion"], done.object)
        return done

    def forget(self, uid: str) -> None:
        """Drop what is remembered of an object that is gone."""
        self._written.pop(uid, None)
        self._not_kept.pop(uid, None)
        self._failed.discard(uid)

    def _newest(self, seen: Mapping[str, Any]) -> Mapping[str, Any]:
        over, ours = self._written.get(seen["metadata"]["uid"], ("", {}))
        return ours if over == seen["metadata"]["resourceVersion"] else seen

    def _write_over(
        self, ref: ObjectRef, current: Mapping[str, Any], wanted: JsonObject
    ) -> StatusWrite:
        patch = self._patch(current, wanted)
        if not patch or patch == self._not_kept.get(ref.uid):
            return StatusWrite(dict(current), written=False)
        after = self._kubernetes.patch_status(
            ref, patch, resource_version=current["metadata"]["resourceVersion"]
        )
        self._note_what_was_not_kept(ref, self._patch(after, wanted))
        return StatusWrite(after, written=True)

    def _patch(self, current: Mapping[str, Any], wanted: JsonObject) -> JsonObject:
        status = current.get("status") or {}
        if "conditions" in wanted:
            merged = merge(
                status.get("conditions") or [], wanted["conditions"], now=rfc3339(self._wall())
            )
            wanted = {**wanted, "conditions": merged}
        return difference(status, wanted)

    def _note_what_was_not_kept(self, ref: ObjectRef, rest: JsonObject) -> None:
        """Log once that a server with older CRDs drops unknown fields.

        They are not written again at every pass.
        """
        if rest and rest != self._not_kept.get(ref.uid):
            _log.warning(
                "Kubernetes did not keep a part of the status; apply the CRDs of this version",
                object=str(ref),
                fields=sorted(rest),
            )
        self._not_kept[ref.uid] = rest
