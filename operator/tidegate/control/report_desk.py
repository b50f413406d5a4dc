"""Has passes reported beside the passes, because a quota must not wait for a Kubernetes that is slow or away.

One desk per policy. Its reports go out one at a time and in order; while one is under way, the passes that end are folded into one, so
at most one waits. It decides nothing about what is said.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace

from controller_logic.model import QuotaWrite
from tidegate.control.declared import Declared
from tidegate.control.reconcile import PassResult
from tidegate.control.rollups_look import RollupSight
from tidegate.kube.api import JsonObject


@dataclass(frozen=True, slots=True)
class PassReport:
    """All that the report on a pass is made of. `written` also holds what earlier passes wrote that were not reported by themselves."""

    result: PassResult
    declared: Declared
    policy: JsonObject
    tiers: tuple[JsonObject, ...]
    written: tuple[QuotaWrite, ...]
    overrides: tuple[JsonObject, ...] = ()
    rollups: RollupSight | None = None

    def after(self, earlier: "PassReport") -> "PassReport":
        """This report in place of both: the world as it is now, and the writes of both."""
        return replace(self, written=earlier.written + self.written)


class ReportDesk:
    """Takes reports from one control loop and has them delivered by a thread of its own, or at once when not `beside`.

    `deliver` must not raise: nobody would hear of it.
    """

    def __init__(self, deliver: Callable[[PassReport], None], name: str, *, beside: bool) -> None:
        self._deliver = deliver
        self._hand: Executor | None = ThreadPoolExecutor(1, thread_name_prefix=name) if beside else None
        self._lock = threading.Lock()
        self._waiting: PassReport | None = None

    def post(self, report: PassReport) -> None:
        """Have it delivered; returns before it is."""
        if self._hand is None:
            self._deliver(report)
            return
        with self._lock:
            asked_for = self._waiting is not None
            self._waiting = report if self._waiting is None else report.after(self._waiting)
        if not asked_for:
            self._hand.submit(self._deliver_what_waits)

    def catch_up(self) -> None:
        """Return once everything that was posted is delivered."""
        if self._hand is not None:
            self._hand.submit(lambda: None).result()

    def close(self) -> None:
        """Catch up and end the thread."""
        if self._hand is not None:
            self._hand.shutdown(wait=True)

    def _deliver_what_waits(self) -> None:
        with self._lock:
            report, self._waiting = self._waiting, None
        if report is not None:
            self._deliver(report)
