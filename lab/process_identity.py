"""Who a recorded pid was: a pid alone may belong to a stranger by the time it is read back."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ProcessIdentity:
    """A process for all time: its pid, when it started (kernel ticks since boot) and which boot that was."""

    pid: int
    start_ticks: int
    boot_id: str

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity | None:
        """Who has that pid now; None when nobody has, or only a process that has ended and waits to be reaped."""
        try:
            # The second field is the program's name in parentheses and may hold spaces, so count from after it.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            return None
        state, start_ticks = fields[0], int(fields[19])
        return None if state == "Z" else cls(pid, start_ticks, boot_id)

    @classmethod
    def own(cls) -> ProcessIdentity:
        """This process."""
        identity = cls.of(os.getpid())
        if identity is None:
            raise RuntimeError("/proc is not mounted; the lab needs Linux with /proc")
        return identity

    def is_alive(self) -> bool:
        """Whether exactly this process still runs."""
        return ProcessIdentity.of(self.pid) == self
