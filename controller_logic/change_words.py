"""The sentence of a write: which keys change, from what to what, why, and what a client may notice."""

from collections.abc import Iterable

from controller_logic.model import BYTE_RATE_KEYS, QuotaWrite, WriteKind
from controller_logic.quotas.steps import KeyStep
from controller_logic.quotas.values import KEY_WORDS, quota_words
from controller_logic.reasons import Reason
from controller_logic.value import value

_WHY = {
    Reason.FIRST_QUOTA: "first quota of a member",
    Reason.ADOPTED: "taken over from another writer, whose value is kept in the ledger",
    Reason.CONTRACT_CHANGED: "the contract was changed",
    Reason.LEADERS_MOVED: "partition leaders moved",
    Reason.ADAPTED: "measured rates ask for it, so that their total is the contract",
    Reason.CONTRACT: "last step to the contract",
    Reason.REPAIRED: "another writer changed it",
    Reason.THROTTLED: "throttled because a broker is over its limit",
    Reason.RELAXING: "raised into measured headroom",
    Reason.RELEASED: "back at the contract",
    Reason.GIVEN_BACK: "given back as it was before Tidegate",
}


@value(frozen=True, slots=True)
class ChangeWords:
    """Puts the sentence of a write together from the steps that it makes, when somebody reads it.

    Thousands of writes have one in a pass, and an Event names three of them.
    """

    steps: tuple[KeyStep, ...]

    def __call__(self, write: QuotaWrite) -> str:
        return f"{write.entity}: {_words(self.steps)}"


def first_words(write: QuotaWrite) -> str:
    """The same sentence about first quotas, of which the ledger record says everything."""
    entries = write.ledger.entries if write.ledger is not None else {}
    steps = [KeyStep(key, None, entry.written, entry, Reason.FIRST_QUOTA, WriteKind.FIRST) for key, entry in entries.items()]
    return ChangeWords(tuple(steps))(write)


def _words(steps: Iterable[KeyStep]) -> str:
    """What happens to each key, and then why; keys of which the same is to be said share one explanation."""
    explained: dict[str, list[str]] = {}
    for step in steps:
        explained.setdefault(_why(step), []).append(_change(step))
    return "; ".join(f"{' and '.join(changes)}{why}" for why, changes in explained.items())


def _change(step: KeyStep) -> str:
    if not step.changes_quota:
        return f"{KEY_WORDS[step.key]} stays {quota_words(step.key, step.text)}"
    return f"{KEY_WORDS[step.key]} from {quota_words(step.key, step.seen)} to {quota_words(step.key, step.text)}"


def _why(step: KeyStep) -> str:
    if not step.changes_quota:
        return f", {_record_words(step)}"
    if step.due_in_seconds is not None:
        return f" per broker, one step on its way down, next in {step.due_in_seconds:.0f} s"
    if step.predicted_mute_seconds:
        return f" per broker, {_WHY[step.because]}; a busy client may be muted for up to {step.predicted_mute_seconds:.1f} s"
    return f" per broker, {_WHY[step.because]}{_unguarded_words(step)}"


def _record_words(step: KeyStep) -> str:
    return "no longer recorded as Tidegate's" if step.entry is None else "recorded as Tidegate's from now on"


def _unguarded_words(step: KeyStep) -> str:
    """A quota where none was in force cannot be stepped down to: nobody knows yet what its clients send."""
    if step.seen is not None or step.key not in BYTE_RATE_KEYS:
        return ""
    return "; set at once, since no rate was in force to step down from"
