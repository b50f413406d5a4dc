"""What happens during a run, as marks in time: of which kind, when, in words. It keeps none of them."""

import time
from dataclasses import dataclass
from enum import StrEnum


class MarkKind(StrEnum):
    """What a mark in the plot stands for."""

    QUOTA = "quota write"
    KILL = "broker killed"
    RETURN = "broker back"
    LEADER = "leader moved"
    COMMAND = "command"
    EVENT = "event"
    STATE = "tier state"


@dataclass(frozen=True, slots=True)
class Mark:
    """One thing that happened, when, in words."""

    at_seconds: float
    kind: MarkKind
    text: str

    @property
    def clock(self) -> str:
        """The local time of day."""
        return clock(self.at_seconds)


def clock(at_seconds: float) -> str:
    """The local time of day of a moment, in seconds since the epoch."""
    return time.strftime("%H:%M:%S", time.localtime(at_seconds))
