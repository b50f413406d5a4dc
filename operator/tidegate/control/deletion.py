"""When a policy that is being deleted may go: everything given back, or the time for it over.

The finalizer can never block for ever: the deadline counts from the first time this process saw the deletion, whether
ZooKeeper answers or not. What is left then stays in the ledger, and the claim stays with it, until `tidegate restore`.
"""

from dataclasses import dataclass

from tidegate.control.reconcile import PassResult
from tidegate.control.verdict import counted, listed


@dataclass(frozen=True, slots=True)
class Farewell:
    """The policy may go. `incomplete` says what is left behind, None when nothing is."""

    incomplete: str | None


class Deletion:
    """Watches one policy's deletion."""

    def __init__(self, deadline_seconds: float) -> None:
        self._deadline_seconds = deadline_seconds
        self._seen_at_seconds: float | None = None

    def conclude(self, result: PassResult | None, *, policy_key: str, address: str, now_seconds: float) -> Farewell | None:
        """Farewell, or None while there is something to do and time for it. `result` None = there was no pass (broken spec)."""
        if self._seen_at_seconds is None:
            self._seen_at_seconds = now_seconds
        if result is not None and result.decision.finished_deleting and result.error is None:
            notes = [note.message for note in result.decision.notes]
            return Farewell(listed(notes) if notes else None)
        if now_seconds - self._seen_at_seconds < self._deadline_seconds:
            return None
        return Farewell(self._left_behind(result, policy_key=policy_key, address=address))

    def _left_behind(self, result: PassResult | None, *, policy_key: str, address: str) -> str:
        left = None if result is None else _ours(result, policy_key)
        what = "It is not known how many quotas" if left is None else f"{counted(len(left), 'quota')} ({listed(left)})"
        why = "" if result is None or not result.decision.holds else f" because {result.decision.holds[0].message}."
        return (
            f"{what} could not be given back within {self._deadline_seconds:.0f} s; the policy is let go and they stay as they are."
            f"{why} The ledger still knows what stood there before: `tidegate restore --zookeeper {address}` gives it back"
        )


def _ours(result: PassResult, policy_key: str) -> list[str] | None:
    quotas = result.seen.observation.quotas
    if quotas is None:
        return None
    return sorted(str(entity) for entity, quota in quotas.items() if quota.ledger is not None and quota.ledger.policy_key == policy_key)
