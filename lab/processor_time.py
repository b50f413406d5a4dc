"""How busy the machine's processors were during a phase, and how much of them its host gave to others.

A virtual machine on a shared host can lose processor time that nothing in it asked for. A missed bound reads differently then.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

# proc(5): user nice system idle iowait irq softirq steal; guest times, which follow, are part of user and nice
_IDLE, _IOWAIT, _STEAL, _COUNTED = 3, 4, 7, 8


@dataclass(frozen=True, slots=True)
class ProcessorTimes:
    """Counters of all processors together since the machine started, in ticks."""

    total: int
    idle: int
    stolen: int

    @classmethod
    def now(cls, source: Path = Path("/proc/stat")) -> Self:
        """The counters of this moment, from the kernel."""
        first_line = source.read_text(encoding="ascii").splitlines()[0]
        ticks = [int(text) for text in first_line.split()[1 : 1 + _COUNTED]]
        return cls(sum(ticks), ticks[_IDLE] + ticks[_IOWAIT], ticks[_STEAL])


@dataclass(frozen=True, slots=True)
class ProcessorShare:
    """Shares of all processor time of a phase, in percent: what ran here, and what the host took."""

    busy_percent: float
    stolen_percent: float

    @classmethod
    def between(cls, before: ProcessorTimes, after: ProcessorTimes) -> Self:
        """The shares of the time between two moments; zeros when no tick passed."""
        total = after.total - before.total
        if total <= 0:
            return cls(0.0, 0.0)
        stolen = after.stolen - before.stolen
        busy = total - stolen - (after.idle - before.idle)
        return cls(100 * busy / total, 100 * stolen / total)

    def __str__(self) -> str:
        return f"processors {self.busy_percent:.0f} % busy, {self.stolen_percent:.0f} % taken by the machine's host"
