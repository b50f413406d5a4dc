"""One condition as the control pass means it, before it has times and generations; and the words they share."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from controller_logic.reasons import Reason

MAX_MESSAGE_LENGTH = 1024
SHOWN = 5  # of a list of things that may be long


class Truth(StrEnum):
    """The three values of a condition's status."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be said of one aspect (`type`) of one object."""

    type: str
    status: Truth
    reason: Reason
    message: str


def ready(status: Truth, reason: Reason, message: str) -> Verdict:
    return Verdict("Ready", status, reason, shortened(sentence(message)))


def sentence(text: str) -> str:
    """The text with a capital first letter, as conditions and Events have it."""
    return text[:1].upper() + text[1:]


def shortened(text: str, most: int = MAX_MESSAGE_LENGTH) -> str:
    """The text, cut with an ellipsis where it is longer than Kubernetes takes."""
    return text if len(text) <= most else text[: most - 1] + "…"


def listed(texts: Sequence[str], *, of: int | None = None) -> str:
    """The first few, separated by semicolons, and how many there are beyond; `of` says how many there are when not all were given."""
    total = len(texts) if of is None else of
    shown = "; ".join(text.rstrip(".") for text in texts[:SHOWN])
    return shown if total <= SHOWN else f"{shown}; and {total - SHOWN} more"


def counted(number: int, what: str) -> str:
    """`1 quota`, `12 quotas`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
