"""Watches from outside whether Leases are renewed in time and who may write by them, and lets people
meddle with them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidegate.kube.api import LeaseRecord
from tidegate.kube.lease import LeaseTimes

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.world import World


class LeaseWatch:
    """Sees whether a Lease is renewed in time as long as its own calls are answered."""

    TURN_SECONDS = LeaseTimes().duration_seconds - LeaseTimes().margin_seconds

    def __init__(self, world: World) -> None:
        self._world = world
        self._renewed_at: dict[tuple[str, str], float] = {}
        self._held_until: dict[tuple[str, str], float] = {}  # as the process knows
        self._disturbed_at: dict[tuple[str, str], float] = {}
        self._slow: dict[tuple[str, str], tuple[float, float]] = {}
        self._policies = {plan.name for plan in world.plan.policies}

    def slow_down(self, where: str, policy: str, seconds: float, by: float) -> None:
        """Let each call for a policy's Lease take longer for a while."""
        self._slow[where, policy] = (self._world.scheduler.now + seconds, by)

    def slow_seconds(self, where: str, lease: str) -> float:
        """How much longer a call for this Lease takes now."""
        until, by = self._slow.get((where, _policy_of(lease)), (0.0, 0.0))
        return by if self._world.scheduler.now < until else 0.0

    def fair_weather(self) -> None:
        """End what makes calls slow."""
        self._slow.clear()

    def begin(self, process: Process, lease: str, what: str) -> Callable[[Any], None]:
        """Call this before a call for a Lease is sent, and what it returns with the answer."""
        sent_at, key = self._world.scheduler.now, (process.name, lease)
        before = self._disturbed_at.get(key, 0.0)
        self._disturbed_at[key] = float("inf")  # until an answer comes

        def answered(answer: Any) -> None:
            self._disturbed_at[key] = before
            if what in ("read_lease", "list_leases"):
                return
            if not isinstance(answer, LeaseRecord) or answer.holder != process.name:
                self._renewed_at.pop(key, None)  # it was released
                self._held_until[key] = min(
                    self._held_until.get(key, 0.0), self._world.scheduler.now
                )
                return
            self._held_until[key] = sent_at + LeaseTimes().duration_seconds
            if _policy_of(lease) not in self._policies:
                return
            last = self._renewed_at.get(key)
            self._renewed_at[key] = sent_at
            disturbed_at = max(before, process.group.paused_until)
            if last is None or disturbed_at >= last or sent_at - last <= self.TURN_SECONDS:
                return
            self._world.violated(
                f"{process.name} lost {lease}: {sent_at - last:.1f} s between two renewals, though each "
                "of its calls was answered"
            )

        return answered

    def may_write(self, process: Process, policy: str) -> bool:
        """Whether a process may send a write for a policy now: it knows that it has the Lease."""
        return any(
            self._world.scheduler.now <= until
            for (name, lease), until in self._held_until.items()
            if name == process.name and _policy_of(lease) == policy
        )

    def steal(self, where: str, policy: str) -> None:
        """Let a person with kubectl put another holder into the Lease."""
        kubernetes = self._world.kubernetes[where]
        for namespace, lease in self._leases_of(where, policy):
            record = kubernetes.read_lease(namespace, lease)
            if record is not None:
                kubernetes.replace_lease(replace(record, holder="somebody"))

    def delete(self, where: str, policy: str) -> None:
        """Let a person with kubectl delete the Lease."""
        for namespace, lease in self._leases_of(where, policy):
            self._world.kubernetes[where].remove_lease(namespace, lease)

    def _leases_of(self, where: str, policy: str) -> list[tuple[str, str]]:
        found = [
            key for key in self._world.kubernetes[where]._leases if _policy_of(key[1]) == policy
        ]
        for process in self._world.processes.values():
            for _, lease in found:
                self._disturbed_at[process.name, lease] = self._world.scheduler.now + 30.0
        return found


def _policy_of(lease: str) -> str:
    return lease.replace("-", ".").rpartition(".")[2]
