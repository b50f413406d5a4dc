"""How far a run has come, told to whoever watches. How that looks, and whether anybody does, is not a run's business."""

from enum import StrEnum
from typing import Protocol


class Step(StrEnum):
    """What is counted, as people read it."""

    INGESTED = "broker-hours read"
    PUBLISHED = "windows published"


class Progress(Protocol):
    """Whoever watches. Called from several threads, though never at once for the same step."""

    def __call__(self, step: Step, done: int, of: int, /) -> None:
        """`done` never falls and ends at `of`, which falls where less turns out to be there."""


def unwatched(_step: Step, _done: int, _of: int) -> None:
    """Nobody watches."""


class Count:
    """One step's count."""

    def __init__(self, progress: Progress, step: Step, of: int) -> None:
        self._progress = progress
        self._step = step
        self._of = of
        self._done = 0
        self._tell()

    def done(self) -> None:
        """One more is done."""
        self._done += 1
        self._tell()

    def left_out(self, count: int) -> None:
        """So many will not be done."""
        self._of -= count
        self._tell()

    def _tell(self) -> None:
        self._progress(self._step, self._done, self._of)
