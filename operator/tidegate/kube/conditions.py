"""Conditions over time: what was said stays until it changes, and a transition has the moment of the change. Pure; time comes in.

The rules are those of the Kubernetes API conventions: a list keyed by type, lastTransitionTime moves only when status moves. Which
conditions a kind has, and what they mean, is said elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tidegate.kube.api import JsonObject

MAX_MESSAGE_LENGTH = 32768

ConditionStatus = Literal["True", "False", "Unknown"]


@dataclass(frozen=True, slots=True)
class Condition:
    """One aspect of an object's state, seen at the spec of `observed_generation`; `message` is cut at 32768 characters."""

    type: str
    status: ConditionStatus
    reason: str
    message: str
    observed_generation: int

    def as_json(self) -> JsonObject:
        """The condition as a status holds it, without lastTransitionTime."""
        return {
            "type": self.type,
            "status": self.status,
            "observedGeneration": self.observed_generation,
            "reason": str(self.reason),
            "message": self.message[:MAX_MESSAGE_LENGTH],
        }


def find(conditions: Iterable[Mapping[str, Any]], condition_type: str) -> Mapping[str, Any] | None:
    """The condition of that type, or None."""
    return next((condition for condition in conditions if condition.get("type") == condition_type), None)


def set_condition(conditions: Sequence[Mapping[str, Any]], condition: Condition, *, now: str) -> list[JsonObject]:
    """`conditions` with `condition` in its place, or at the end. `now` is an RFC 3339 time."""
    return merge(conditions, [condition.as_json()], now=now)


def merge(present: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]], *, now: str) -> list[JsonObject]:
    """`present` with every condition of `wanted` set: same order, new types at the end, other writers' types untouched.

    lastTransitionTime is kept where the status is what it was, and is `now` otherwise; what `wanted` says of it is ignored.
    """
    by_type = {condition["type"]: condition for condition in wanted}
    merged = [_settled(condition, by_type.pop(condition["type"], None), now=now) for condition in present]
    return [*merged, *(_settled(None, condition, now=now) for condition in by_type.values())]


def _settled(before: Mapping[str, Any] | None, wanted: Mapping[str, Any] | None, *, now: str) -> JsonObject:
    if wanted is None:
        return dict(before or {})
    unchanged = before is not None and before.get("status") == wanted["status"]
    moved_at = before.get("lastTransitionTime") if before is not None and unchanged else None
    return {**wanted, "lastTransitionTime": moved_at or now}
