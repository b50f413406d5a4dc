"""How far and how soon a byte rate may be lowered, whatever the cause, so that no client is muted for long.

A broker mutes a client for bytes that it sent under the old quota, and no later raise frees it (control.md 0.2). So a
lowering goes down in steps, each bounded by the highest quota that was in force while the window filled. The ledger
carries what is needed, so a restarted operator goes on where the last one stopped. Not guarded: a quota where none was
in force, since nobody knows yet what its clients send.
"""

from dataclasses import dataclass

from controller_logic.model import MIN_BYTE_RATE, LedgerEntry, Policy, QuotaWindow
from controller_logic.quotas.kafka_window import largest_safe_step, predicted_mute_seconds, step_distance_seconds
from controller_logic.quotas.values import enforced_rate, same_quota


@dataclass(frozen=True, slots=True)
class MuteGuard:
    """The bounds of one policy: how long a client may be muted, given the brokers' quota window."""

    max_mute_seconds: int
    window: QuotaWindow
    step_distance_seconds: int

    @classmethod
    def of(cls, policy: Policy) -> "MuteGuard":
        return cls(policy.max_mute_seconds, policy.window, step_distance_seconds(policy.window))

    def step(self, target: int, in_force: int, entry: LedgerEntry | None, *, now_seconds: float) -> "Step":
        """The next value on the way from `in_force` down to `target` (bytes/s), or how long to wait for it.

        `entry` is our last write of the key, None if there was none. From 1024 B/s and less the way is free: only quotas that
        stood there before us are that small, and whole bytes per second are too coarse to step among them. A value equal to
        `in_force` means that no step is safe: the policy allows shorter mutes than one sample of the window.
        """
        wait_seconds = self.wait_seconds(entry, now_seconds=now_seconds)
        if wait_seconds > 0:
            return Step(in_force, in_force, wait_seconds)
        exposure = max(in_force, _recent_rate(entry))
        if exposure <= MIN_BYTE_RATE:
            return Step(target, exposure)
        value = min(in_force, max(target, largest_safe_step(exposure, self.max_mute_seconds, self.window)))
        return Step(value, exposure)

    def wait_seconds(self, entry: LedgerEntry | None, *, now_seconds: float) -> float:
        """How long until the key may be lowered again: a step distance after the last change that we made, else 0.

        After a raise too: the burst that it allowed is then still in the window. A change that lies in the future by more
        than a step distance was stamped by a wrong clock, and does not hold anything up.
        """
        if entry is None or same_quota(entry.previous, entry.written):
            return 0.0
        since_seconds = now_seconds - entry.written_at_seconds
        if since_seconds < -self.step_distance_seconds:
            return 0.0
        return max(0.0, min(self.step_distance_seconds - since_seconds, float(self.step_distance_seconds)))

    def predicted_mute_seconds(self, step: "Step") -> float:
        return predicted_mute_seconds(step.exposure, step.value, self.window)


@dataclass(frozen=True, slots=True)
class Step:
    """One lowering in bytes/s: to `value`, from a window that may hold `exposure`; or nothing yet, for `wait_seconds`."""

    value: int
    exposure: int
    wait_seconds: float = 0.0


def _recent_rate(entry: LedgerEntry | None) -> int:
    """What we wrote last, in case another writer changed it a moment ago: then it may have filled the window."""
    if entry is None:
        return 0
    return enforced_rate(entry.written) or 0
