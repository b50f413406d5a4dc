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


# Expected against measured: every bound of the experiment as one row, and whether it was kept. It
# measures nothing.


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


def rate_check(
    about: str, name: str, *, expected_bytes_per_second: float, measured_bytes_per_second: float
) -> Check:
    """A rate must lie between 10 % below and 5 % above what the arithmetic expects.

    It is shown in MB/s.
    """
    expected = expected_bytes_per_second / 1e6
    return Check(
        about=about,
        name=name,
        unit="MB/s",
        expected=expected,
        measured=measured_bytes_per_second / 1e6,
        lowest=expected * (1 - RATE_BELOW_PERCENT / 100),
        highest=expected * (1 + RATE_ABOVE_PERCENT / 100),
        tolerance=f"-{RATE_BELOW_PERCENT} % / +{RATE_ABOVE_PERCENT} %",
    )


def rate_checks(
    about: str, expected_by_broker: Mapping[int, float], *, measured_by_broker: Mapping[int, float]
) -> list[Check]:
    """One row for each broker that leads and one for their total.

    A broker that delivered nothing counts as 0.
    """
    measured = {broker: measured_by_broker.get(broker, 0.0) for broker in expected_by_broker}
    rows = [
        rate_check(
            about,
            f"broker {broker}",
            expected_bytes_per_second=expected,
            measured_bytes_per_second=measured[broker],
        )
        for broker, expected in expected_by_broker.items()
    ]
    expected_total, total = sum(expected_by_broker.values()), sum(measured_by_broker.values())
    return [
        *rows,
        rate_check(
            about,
            "total",
            expected_bytes_per_second=expected_total,
            measured_bytes_per_second=total,
        ),
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
    return Check(
        about,
        name,
        "s",
        most,
        seconds,
        lowest=float("-inf"),
        highest=most,
        tolerance=f"at most {most:g} s",
    )


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
