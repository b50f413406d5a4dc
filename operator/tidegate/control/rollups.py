"""Looks after one policy's usage rollups beside its passes, which take what was seen last and never wait for it.

Jobs, storage and Kubernetes may fail or hang as they like: this thread is the only one that asks them, nobody waits for it, and no probe
counts its signs of life. It lives as long as the policy asks for rollups and this operator offers them.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog

from controller_logic.reasons import Reason
from tidegate.control.rollups_look import RollupLook, RollupSight
from tidegate.kube.api import JsonObject
from tidegate.resources.rollup import Rollup

log = structlog.get_logger(__name__)

LOOK_EVERY_SECONDS = 30.0
# Contracts that stand on a recommendation must not move back and forth because a process began: its first pass waits for the first look
# for so long, and no pass ever does again.
FIRST_LOOK_SECONDS = 5.0
_STOP_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class RollupAround:
    """What a watch needs of the process. `open_look` None = no image for Jobs was given; `wake` is called when something new is seen."""

    open_look: Callable[[], RollupLook] | None
    wake: Callable[[], None]
    wall: Callable[[], float]
    every_seconds: float = LOOK_EVERY_SECONDS


class RollupWatch:
    """What was seen last of one policy's rollups. `latest` and `close` belong to the policy's loop."""

    def __init__(self, key: str, around: RollupAround) -> None:
        self._key = key
        self._around = around
        self._round: _Round | None = None

    def latest(self, policy: JsonObject, spec: Rollup | None) -> RollupSight | None:
        """None = the policy asks for no rollups, or nothing was seen yet. An edited policy is looked at at once."""
        if spec is None:
            self.close()
            return None
        if self._around.open_look is None:
            return RollupSight(self._around.wall(), offered=False)
        if self._round is None:
            self._round = _Round(self._key, self._around, self._around.open_look(), wanted=(policy, spec))
            self._round.start()
            if spec.recommend_or_default.apply_or_default != "Never":
                self._round.wait_for_first(FIRST_LOOK_SECONDS)
        self._round.want(policy, spec)
        return self._round.newest

    def close(self) -> None:
        """End the thread; a look that is under way is waited for a moment only."""
        ended, self._round = self._round, None
        if ended is not None:
            ended.stop(_STOP_SECONDS)


class _Round:
    """The thread of one watch."""

    def __init__(self, key: str, around: RollupAround, look: RollupLook, *, wanted: tuple[JsonObject, Rollup]) -> None:
        self.newest: RollupSight | None = None
        self._key = key
        self._around = around
        self._look = look
        self._wanted = wanted
        self._now = threading.Event()
        self._looked = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=f"rollups of {key}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait_for_first(self, timeout_seconds: float) -> None:
        self._looked.wait(timeout_seconds)

    def want(self, policy: JsonObject, spec: Rollup) -> None:
        edited = spec != self._wanted[1]
        self._wanted = (policy, spec)
        if edited:
            self._now.set()

    def stop(self, timeout_seconds: float) -> None:
        self._ended = True
        self._now.set()
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while not self._ended:
            self._now.clear()
            seen, before = self._seen(), self.newest
            self.newest = seen
            self._looked.set()
            if before is None or replace(seen, looked_at_seconds=before.looked_at_seconds) != before:
                self._around.wake()
            if not self._ended:
                self._now.wait(self._around.every_seconds)

    def _seen(self) -> RollupSight:
        try:
            return self._look.look(*self._wanted)
        except Exception as error:
            log.exception("Look at rollups abandoned", policy=self._key)
            problem = Reason.INTERNAL_ERROR, f"A bug in Tidegate, {type(error).__name__}: {error}. It is tried again"
            return RollupSight(self._around.wall(), trouble=problem)
