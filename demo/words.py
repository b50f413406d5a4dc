"""What the parts of the demo share: marks in time, checks of a bound, an orderly end at Ctrl-C."""

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from types import FrameType

# Ctrl-C, SIGTERM and a closed terminal: the first ends the demo in order, what comes after it is
# ignored.
#
# Taking everything away takes a few seconds, more while a part is still starting; a second Ctrl-C
# in them would leave brokers and namespaces behind.


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """Raises KeyboardInterrupt in the main thread at the first signal; later ones do nothing.

    A signal that was ignored before (`nohup`) stays ignored.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._reported = False
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, _interrupt)

    @contextmanager
    def reported(self) -> Iterator[None]:
        """Say, only once, what happens now when the interruption passes here.

        It is said before whatever is outside is closed.
        """
        try:
            yield
        except KeyboardInterrupt:
            if not self._reported:
                self._reported = True
                self._say(
                    "Interrupted. Stopping everything that was started; this takes up to 20 s."
                )
            raise


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


# How exactly a broker holds its quota over whole sawteeth, measured on Kafka 3.9.2.
RATE_BELOW_PERCENT = 10
RATE_ABOVE_PERCENT = 5
REACTION_LIMIT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Check:
    """One bound: `measured` must lie in [`lowest`, `highest`].

    A value that could not be measured is None and misses the bound. `about` is the part of the run
    that it belongs to, `name` what is bounded in it.
    """

    about: str
    name: str
    unit: str
    expected: float
    measured: float | None
    lowest: float
    highest: float
    tolerance: str

    @property
    def kept(self) -> bool:
        return self.measured is not None and self.lowest <= self.measured <= self.highest


def within(
    about: str,
    name: str,
    unit: str,
    *,
    expected: float,
    measured: float | None,
    below: int = RATE_BELOW_PERCENT,
    above: int = RATE_ABOVE_PERCENT,
) -> Check:
    """It must lie between so many percent below and above what is expected.

    Unless said otherwise, that is how exactly a broker holds a quota.
    """
    lowest, highest = expected * (1 - below / 100), expected * (1 + above / 100)
    tolerance = f"-{below} % / +{above} %"
    return Check(about, name, unit, expected, measured, lowest, highest, tolerance)


def rate_checks(
    about: str, expected_by_broker: Mapping[int, float], *, measured_by_broker: Mapping[int, float]
) -> list[Check]:
    """One row for each broker that leads and one for their total, shown in MB/s.

    A broker that delivered nothing counts as 0.
    """
    rows = [
        (f"broker {broker}", expected, measured_by_broker.get(broker, 0.0))
        for broker, expected in expected_by_broker.items()
    ]
    total = ("total", sum(expected_by_broker.values()), sum(measured_by_broker.values()))
    return [
        within(about, name, "MB/s", expected=expected / 1e6, measured=measured / 1e6)
        for name, expected, measured in [*rows, total]
    ]


def reaction_check(seconds_after_election: float | None) -> Check:
    """The corrected quota must be committed within 5 s after the new leader was elected.

    Earlier than the election is fine, too.
    """
    return at_most(
        "How fast",
        "new leader to corrected quota",
        seconds_after_election,
        most=REACTION_LIMIT_SECONDS,
    )


def at_most(about: str, name: str, seconds: float | None, *, most: float) -> Check:
    """A time must not be longer; None = what it ends with never came."""
    tolerance = f"at most {most:g} s"
    return Check(about, name, "s", most, seconds, float("-inf"), most, tolerance)


def at_least(about: str, name: str, percent: float, *, least: float) -> Check:
    """A share of what is wanted, in percent, must not be lower."""
    tolerance = f"at least {least:g} %"
    return Check(about, name, "%", 100.0, percent, least, float("inf"), tolerance)


def exact_check(
    about: str, name: str, *, unit: str, expected: float, measured: float | None
) -> Check:
    """A number that must be exactly as expected, such as the quota in Kafka."""
    return Check(
        about, name, unit, expected, measured, lowest=expected, highest=expected, tolerance="exact"
    )


class MarkKind(StrEnum):
    """What a mark in the plot stands for."""

    QUOTA = "quota write"
    THROTTLE = "throttle"
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
