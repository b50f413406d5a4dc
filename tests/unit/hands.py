"""A clock that a test sets, for all that takes a function of the time."""

from dataclasses import dataclass


@dataclass
class Hands:
    """Returns `now`, in seconds, until a test changes it."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now
