"""What befalls each of many runs, when and for how long, all of it from one number: the same number plans the same again."""

import random
from dataclasses import dataclass
from enum import StrEnum

_EARLY_SHARE = 0.3  # of all blows come before the first rows are written
_LONGEST_SECONDS = 4.0


class Kind(StrEnum):
    """Who is struck."""

    DRIVER = "the driver's process"
    ENGINE = "Spark's Java machine"
    WORKER = "a Python worker of Spark"
    STORAGE = "the storage, which is full"
    PROMETHEUS = "Prometheus"


@dataclass(frozen=True, slots=True)
class Blow:
    """`moment` is a share (0..1) of the time until the first rows are written (`early`), or of the time from then to the end.

    What can come back (storage, Prometheus) does after `lasts_seconds`; `pick` chooses among several of a kind.
    """

    kind: Kind
    early: bool
    moment: float
    lasts_seconds: float
    pick: float
    afresh: bool

    def __str__(self) -> str:
        when = "before the first rows" if self.early else "after the first rows"
        return f"{self.kind}, at {100 * self.moment:.0f} % of the time {when}"


def plan(seed: int, blows: int, kinds: tuple[Kind, ...] = tuple(Kind)) -> list[Blow]:
    """`afresh` says that a run which is struck begins with an empty store, if the one before it was completed."""
    chance = random.Random(seed)
    return [
        Blow(
            kind=kinds[number % len(kinds)],
            early=chance.random() < _EARLY_SHARE,
            moment=chance.random(),
            lasts_seconds=chance.uniform(0.1, _LONGEST_SECONDS),
            pick=chance.random(),
            afresh=chance.random() < 0.5,
        )
        for number in range(blows)
    ]
