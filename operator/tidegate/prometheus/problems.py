"""Gathers what is wrong with the series of one reading into few sentences: a thousand of the same kind are one problem with a number."""

from collections.abc import Iterable
from dataclasses import dataclass

from controller_logic.model import ReadingProblem
from controller_logic.reasons import Reason


@dataclass(frozen=True, slots=True)
class Oddity:
    """One series (or one client's) that is left out. `what` says how it is odd, `hint` what to do (a sentence, or nothing).

    `broker` None = nobody knows which, or all.
    """

    reason: Reason
    what: str
    example: str
    broker: int | None = None
    hint: str = ""


def problems_of(oddities: Iterable[Oddity]) -> tuple[ReadingProblem, ...]:
    """One problem for each broker and kind, with the number of such and the first as an example; in the order of their first ones."""
    kinds: dict[tuple[Reason, int | None, str], list[Oddity]] = {}
    for oddity in oddities:
        kinds.setdefault((oddity.reason, oddity.broker, oddity.what), []).append(oddity)
    return tuple(_problem(alike) for alike in kinds.values())


def _problem(alike: list[Oddity]) -> ReadingProblem:
    first = alike[0]
    whose = "" if first.broker is None else f"Broker {first.broker}: "
    example = first.example if len(alike) == 1 else f"{len(alike)} times, such as {first.example}"
    message = f"{whose}{first.what}: {example}. This is left out. {first.hint}"
    return ReadingProblem(first.reason, message.rstrip(), first.broker)
