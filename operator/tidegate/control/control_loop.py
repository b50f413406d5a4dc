"""The thread of one policy: a pass at once, then whenever something wakes it, a step is due, or the poll comes round.

After a broker event leaders move late and without further events, so for a bounded while the loop asks for them twice a second
and runs a pass as soon as they differ. Whatever a pass raises is logged and counted here, and the loop goes on.
"""

import threading

import structlog

from tidegate.control.controller import Controller
from tidegate.control.runtime import World
from tidegate.control.wake import Cause, Wakeup

log = structlog.get_logger(__name__)

LOOK_EVERY_SECONDS = 0.5
SETTLE_SECONDS = 15.0


class ControlLoop:
    """One running policy. `start` once, `stop` once; a stopped loop has finished its batch."""

    def __init__(self, key: str, world: World, controller: Controller, wakeup: Wakeup) -> None:
        self.key = key
        self._world = world
        self._controller = controller
        self._wakeup = wakeup
        self._settled_at_seconds = float("-inf")
        self._thread = threading.Thread(target=self._run, name=f"policy {key}", daemon=True)

    def start(self) -> None:
        self._world.vital_signs.beat(self._thread.name)
        self._thread.start()

    def ask_to_stop(self) -> None:
        self._wakeup.poke(Cause.STOP)

    def wait(self, timeout_seconds: float) -> bool:
        """Whether the loop has ended within the time."""
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def wake(self, cause: Cause) -> None:
        self._wakeup.poke(cause)

    def _run(self) -> None:
        try:
            while not self._wakeup.stopping:
                next_in_seconds = self._pass()
                self._world.vital_signs.beat(self._thread.name)
                self._rest(next_in_seconds)
        finally:
            self._controller.close()
            self._world.vital_signs.forget(self._thread.name)
            self._world.telemetry.readings.forget(self.key)
            self._world.audit.forget(self.key)

    def _pass(self) -> float:
        try:
            return self._controller.pass_once()
        except Exception as error:
            log.exception("Pass abandoned", policy=self.key)
            return self._controller.broke(error)

    def _rest(self, seconds: float) -> None:
        ends_at_seconds = self._world.clock.monotonic() + seconds
        while (left_seconds := ends_at_seconds - self._world.clock.monotonic()) > 0:
            settling = self._world.clock.monotonic() < self._settled_at_seconds
            causes = self._wakeup.wait(min(left_seconds, LOOK_EVERY_SECONDS) if settling else left_seconds)
            if Cause.BROKERS in causes:
                self._settled_at_seconds = self._world.clock.monotonic() + SETTLE_SECONDS
            if causes != {Cause.TIMER} or (settling and self._controller.leaders_moved()):
                self._count(causes)
                return
        self._count(frozenset({Cause.TIMER}))

    def _count(self, causes: frozenset[Cause]) -> None:
        for cause in causes:
            self._world.telemetry.wakes.labels(self.key, cause.value).inc()
