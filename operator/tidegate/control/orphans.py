"""Reports tiers, overrides, budgets and queues whose policy does not exist.

A queue that is deleted then is let go: without its policy nobody can drain it, and its messages
stay in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import structlog

from tidegate.control.queues.report import DRAIN_FINALIZER
from tidegate.control.runtime import OperatorContext
from tidegate.errors import TidegateError
from tidegate.kube.api import (
    BANDWIDTH_BUDGETS,
    BUSINESS_TIERS,
    DELAY_QUEUES,
    QUOTA_OVERRIDES,
    JsonObject,
    ObjectRef,
    ResourceKind,
)
from tidegate.observe.declared import policy_name_of

log = structlog.get_logger(__name__)

ORPHAN_AFTER_SECONDS = 3.0  # a folder that is applied may have its tiers before its policy
_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class _Orphan:
    kind: ResourceKind
    raw: JsonObject
    policy_key: str


class Orphans:
    """The tiers, overrides, budgets and queues of a process that lack their policy.

    `is_mine` says by namespace/name of that policy whether this replica is the one that reports.
    """

    def __init__(self, context: OperatorContext, is_mine: Callable[[str], bool]) -> None:
        self._context = context
        self._is_mine = is_mine
        self._since_seconds: dict[str, float] = {}  # by uid
        self._hand = ThreadPoolExecutor(1, "orphans")
        self._under_way: Future[None] | None = None

    def look(self, policies: Collection[str]) -> None:
        """Begin to report what lacks its policy for a while. Never waits for Kubernetes.

        `policies` are the keys of all that exist. Of a policy in a namespace that is not watched
        here it is not known whether it exists.
        """
        now_seconds = self._context.clock.monotonic()
        orphans = {orphan.raw["metadata"]["uid"]: orphan for orphan in self._found(policies)}
        self._since_seconds = {uid: self._since_seconds.get(uid, now_seconds) for uid in orphans}
        due = [
            orphan
            for uid, orphan in orphans.items()
            if now_seconds - self._since_seconds[uid] >= ORPHAN_AFTER_SECONDS
            and self._is_mine(orphan.policy_key)
        ]
        if due and (self._under_way is None or self._under_way.done()):
            self._under_way = self._hand.submit(self._report, due)

    def close(self) -> None:
        """Report no more of them."""
        self._since_seconds = {}
        self._hand.shutdown(wait=False, cancel_futures=True)

    def _found(self, policies: Collection[str]) -> list[_Orphan]:
        watched = self._context.settings.namespaces
        named = [
            _Orphan(kind, raw, policy_name_of(raw))
            for kind in (BUSINESS_TIERS, QUOTA_OVERRIDES, BANDWIDTH_BUDGETS, DELAY_QUEUES)
            for raw in self._context.cache.snapshot(kind)
        ]
        return [
            orphan
            for orphan in named
            if orphan.policy_key
            and orphan.policy_key not in policies
            and (not watched or orphan.policy_key.partition("/")[0] in watched)
        ]

    def _report(self, due: list[_Orphan]) -> None:
        """A few at once, and none whose policy has come meanwhile: its loop reports on it."""
        try:
            due = [orphan for orphan in due if not self._let_go(orphan)]
            for start in range(0, len(due), _AT_ONCE):
                self._context.reporter.without_policy(
                    (orphan.kind, orphan.raw, orphan.policy_key)
                    for orphan in due[start : start + _AT_ONCE]
                    if orphan.raw["metadata"]["uid"] in self._since_seconds
                )
        except Exception:
            log.exception("Tiers without their policy could not be reported")

    def _let_go(self, orphan: _Orphan) -> bool:
        """Whether it is a queue that is being deleted, whose finalizer is taken off."""
        if orphan.kind != DELAY_QUEUES or not orphan.raw["metadata"].get("deletionTimestamp"):
            return False
        try:
            ref = ObjectRef.of(orphan.kind, orphan.raw)
            self._context.kubernetes.remove_finalizer(ref, DRAIN_FINALIZER)
            log.info("Queue without its policy released; its topics stay", queue=str(ref))
        except TidegateError as error:
            log.warning("Queue without its policy stays", error=error.message)
        return True
