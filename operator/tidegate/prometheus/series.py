"""One series of an answer: labels, and samples with their own times; and problems of series."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidegate_logic.model import ReadingProblem
from tidegate_logic.reasons import Reason
from tidegate_logic.value import value

# Problems of the series of one reading: a thousand of the same kind are one problem with a number.


@dataclass(frozen=True, slots=True)
class SeriesProblem:
    """One series (or one client's) that is left out.

    `what` says what is wrong, `hint` what to do (a sentence, or nothing). `broker` None = not known
    which, or all.
    """

    reason: Reason
    what: str
    example: str
    broker: int | None = None
    hint: str = ""


def problems_of(found: Iterable[SeriesProblem]) -> tuple[ReadingProblem, ...]:
    """One problem for each broker and kind, with the number of such and the first as an example.

    In the order of their first ones.
    """
    kinds: dict[tuple[Reason, int | None, str], list[SeriesProblem]] = {}
    for problem in found:
        kinds.setdefault((problem.reason, problem.broker, problem.what), []).append(problem)
    return tuple(_problem(alike) for alike in kinds.values())


def _problem(alike: list[SeriesProblem]) -> ReadingProblem:
    first = alike[0]
    whose = "" if first.broker is None else f"Broker {first.broker}: "
    example = first.example if len(alike) == 1 else f"{len(alike)} times, such as {first.example}"
    message = f"{whose}{first.what}: {example}. This is left out. {first.hint}"
    return ReadingProblem(first.reason, message.rstrip(), first.broker)


_SHOWN_LABELS = 6


@value(frozen=True, slots=True)
class Series:
    """One series of an answer.

    `samples` are (seconds since the epoch, value), in rising order of time; values may be NaN or
    infinite, as the exporter gave them.
    """

    labels: Mapping[str, str]
    samples: tuple[tuple[float, float], ...]

    @property
    def first_at_seconds(self) -> float:
        """When its first sample was taken."""
        return self.samples[0][0]

    @property
    def last_at_seconds(self) -> float:
        """When its newest sample was taken."""
        return self.samples[-1][0]

    def __str__(self) -> str:
        named = [f'{name}="{value}"' for name, value in self.labels.items() if name != "__name__"]
        more = ["..."] if len(named) > _SHOWN_LABELS else []
        shown = f"{self.labels.get('__name__', '')}{{{', '.join(named[:_SHOWN_LABELS] + more)}}}"
        # half a surrogate pair would break the writer of the message
        return shown.encode("utf-8", "replace").decode()


def is_amount(value: float) -> bool:
    """Whether a sample can be a number of bytes or milliseconds: finite and not negative."""
    return 0.0 <= value < math.inf
