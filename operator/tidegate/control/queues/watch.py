"""Looks after one policy's DelayQueues beside its passes, which hand them over and do not wait.

Kafka and Kubernetes may fail or hang: no pass waits for this thread, and no probe counts its signs
of life. It runs while the policy has queues, this operator serves them, and the policy's Lease is
held: without it, nothing is changed or reported any more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from tidegate.control.queues.report import QueueFinding, QueueTask, status_of, verdicts_of
from tidegate.control.report.conditions import Verdict
from tidegate.errors import LeaseLost, TidegateError
from tidegate.kube.api import JsonObject
from tidegate.resources.delay_queue import DelayQueueStatus
from tidegate_logic.reasons import Reason

if TYPE_CHECKING:  # a policy without queues does without it
    from tidegate.control.queues.keeper import QueueKeeper

log = structlog.get_logger(__name__)

LOOK_EVERY_SECONDS = 10.0
REFRESH_SECONDS = 30.0  # between two statuses that differ in numbers alone
_SETTLING_SECONDS = 1.0  # after a change, until it is seen
_STOP_SECONDS = 1.0


QueueReport = tuple[JsonObject, DelayQueueStatus, Sequence[Verdict]]


@dataclass(frozen=True, slots=True)
class QueueDependencies:
    """What a watch needs.

    `open_keeper` None = this operator serves no queues. `report` gets the reports of a look, and
    must not raise. `newest` is the object with its newest status. `measured` gets every look's
    findings for metrics, and nothing when this replica looks after the queues no more.
    """

    open_keeper: Callable[[], QueueKeeper] | None
    report: Callable[[Sequence[QueueReport]], None]
    monotonic: Callable[[], float]
    may_write: Callable[[], bool]
    newest: Callable[[JsonObject], JsonObject] = lambda raw: raw
    measured: Callable[[Sequence[QueueFinding]], None] = lambda _: None
    every_seconds: float = LOOK_EVERY_SECONDS


class QueueWatch:
    """The queues of one policy. `want` and `close` belong to the policy's loop."""

    def __init__(self, key: str, dependencies: QueueDependencies) -> None:
        self._key = key
        self._dependencies = dependencies
        self._round: _Round | None = None

    def want(self, task: QueueTask | None) -> None:
        """Look after these queues from now on; a change is looked at soon. None = after none."""
        if task is None or not task.queues:
            self.close()
            return
        if self._dependencies.open_keeper is None:
            return
        if self._round is None:
            keeper = self._dependencies.open_keeper()
            self._round = _Round(self._key, self._dependencies, keeper, task)
            self._round.start()
        self._round.want(task)

    def close(self) -> None:
        """End the thread; a look that is under way is waited for a moment only."""
        ended, self._round = self._round, None
        if ended is not None:
            ended.stop(_STOP_SECONDS)


class _Round:
    """The thread of one watch. It closes the keeper when it ends."""

    def __init__(
        self, key: str, dependencies: QueueDependencies, keeper: QueueKeeper, task: QueueTask
    ) -> None:
        self._key = key
        self._dependencies = dependencies
        self._keeper = keeper
        self._task = task
        self._now = threading.Event()
        self._ended = False
        # by uid: what was reported beside numbers, and when
        self._reported: dict[str, tuple[object, float]] = {}
        self._thread = threading.Thread(target=self._run, name=f"queues of {key}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def want(self, task: QueueTask) -> None:
        is_edited = _essence(task) != _essence(self._task)
        self._task = task
        if is_edited:
            self._now.set()

    def stop(self, timeout_seconds: float) -> None:
        self._ended = True
        self._now.set()
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        try:
            while not self._ended:
                self._now.clear()
                is_settling = self._look()
                if not self._ended:
                    every_seconds = self._dependencies.every_seconds
                    self._now.wait(
                        min(_SETTLING_SECONDS, every_seconds) if is_settling else every_seconds
                    )
        finally:
            self._dependencies.measured(())
            self._keeper.close()

    def _look(self) -> bool:
        """Look once and report; whether something was changed that is not seen yet."""
        task = self._task
        if not self._dependencies.may_write():
            self._dependencies.measured(())
            return False  # the replica that holds the Lease by now looks after them
        try:
            found = self._keeper.look(task)
        except LeaseLost:
            return False
        except Exception as error:
            log.exception("Look at queues abandoned", policy=self._key)
            bug = TidegateError(
                Reason.INTERNAL_ERROR,
                f"A bug in Tidegate, {type(error).__name__}: {error}. Tidegate retries",
            )
            found = [QueueFinding(raw, trouble=bug) for raw in task.queues]
        if self._ended or not self._dependencies.may_write():
            return False
        self._dependencies.measured(found)
        self._report(found)
        return any(_is_settling(one) for one in found)

    def _report(self, found: Sequence[QueueFinding]) -> None:
        """Report what is news, and new numbers now and then."""
        now_seconds, due = self._dependencies.monotonic(), []
        reported: dict[str, tuple[object, float]] = {}
        for finding in found:
            uid, status = str(finding.raw["metadata"]["uid"]), status_of(finding)
            verdicts = verdicts_of(finding)
            news = _news(finding.raw, status, verdicts)
            before, at_seconds = self._reported.get(uid, (None, 0.0))
            if news == before and now_seconds - at_seconds < REFRESH_SECONDS:
                reported[uid] = (before, at_seconds)
                continue
            reported[uid] = (news, now_seconds)
            due.append((self._dependencies.newest(finding.raw), status, verdicts))
        self._reported = reported
        self._dependencies.report(due)


def _is_settling(finding: QueueFinding) -> bool:
    decision = finding.decision
    return decision is not None and bool(
        decision.create or decision.corrections or decision.delete or decision.unknown
    )


def _news(raw: JsonObject, status: DelayQueueStatus, verdicts: Sequence[Verdict]) -> object:
    """What a status says beside numbers that change all the time."""
    return (
        raw["metadata"].get("generation"),
        tuple((one.type, one.status, one.reason) for one in verdicts),
        tuple((one.seconds, one.topics, one.waiting == 0) for one in status.delays or ()),
        status.forwarders,
    )


def _essence(task: QueueTask) -> object:
    """What a look depends on: not the statuses, which it writes itself."""
    return (
        task.policy.mode,
        task.policy.paused,
        task.spec,
        task.crowded,
        tuple(
            (
                raw["metadata"]["uid"],
                raw["metadata"].get("generation"),
                raw["metadata"].get("deletionTimestamp"),
            )
            for raw in task.queues
        ),
    )
