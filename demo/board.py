"""What the running experiment says on the terminal: what happens as it happens, rates every 6 s.

Everything else is on the product's own console, whose address is printed at the set-up. The
experiment, the watches of Kafka and the readers of Kubernetes call from threads of their own.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import IO

from demo.words import Mark, MarkKind
from lab.rates import SAWTOOTH_SECONDS

_SECONDS_BETWEEN_RATES = 6


class Board:
    """Prints one experiment to `stream`, and keeps its marks. Rates are bytes per second.

    `limit` is the broker's, None where none is played with.
    """

    def __init__(self, stream: IO[str], *, limit: int | None = None) -> None:
        self._stream = stream
        self._limit = limit
        self._lock = threading.Lock()
        self._marks: list[Mark] = []
        self._activity = ""
        self._seconds = 0

    def marks(self) -> tuple[Mark, ...]:
        """Every mark so far, in the order of time."""
        with self._lock:
            return tuple(sorted(self._marks, key=lambda mark: mark.at_seconds))

    def mark(self, at_seconds: float, kind: MarkKind, text: str) -> None:
        """Note that something happened."""
        mark = Mark(at_seconds, kind, text)
        with self._lock:
            self._marks.append(mark)
        self.say(f"{mark.clock}  {mark.kind.value}: {mark.text}")

    def show_activity(self, title: str, activity: str) -> None:
        """Say beside the next rates what is played, and what is waited for."""
        self._activity = f"{title} ({activity})"

    def show_limit(self, limit: int) -> None:
        """Say beside the next rates that this is the broker's limit."""
        self._limit = limit

    def show_rates(
        self, rates: Mapping[str, Sequence[float]], nic_rate: float | None = None
    ) -> None:
        """Once a second: the last seconds of every row, newest last, and of the broker's NIC.

        One call in six prints the means of a sawtooth, with their sum or the NIC's rate.
        """
        self._seconds += 1
        if self._seconds % _SECONDS_BETWEEN_RATES:
            return
        means = {row: recent_mean(each) / 1e6 for row, each in sorted(rates.items())}
        shown = "  ".join(f"{row} {mean:5.1f}" for row, mean in means.items())
        if self._limit is None:
            end = f"total {sum(means.values()):5.1f} MB/s"
        else:
            sent = "unknown" if nic_rate is None else f"{nic_rate / 1e6:.1f}"
            end = f"NIC {sent} of {self._limit / 1e6:g} MB/s"
        self.say(f"          {self._activity}: {shown}  {end}")

    def say(self, line: str) -> None:
        """Print a line, in one piece: others print from their threads."""
        self._stream.write(f"{line}\n")
        self._stream.flush()


def recent_mean(rates: Sequence[float]) -> float:
    """The mean of the last sawtooth, or of what there is; 0 before the first second."""
    recent = rates[-SAWTOOTH_SECONDS:]
    return sum(recent) / len(recent) if recent else 0.0
