"""What a command cost with all processes that it started: seconds of the clock and of the processors, and the most memory at once.

Memory is the sum of resident sets, which counts what processes share once for each of them: it is never told too small.
"""

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

_LOOK_SECONDS = 0.05
_TAIL_LINES = 15


@dataclass(frozen=True, slots=True)
class Cost:
    """`output` is what the command said on standard output."""

    seconds: float
    processor_seconds: float
    peak_bytes: int
    output: str

    @property
    def note(self) -> str:
        """For a figure of one of the three: the others."""
        return f"{self.seconds:.1f} s, {self.processor_seconds:.1f} s of processors, {self.peak_bytes / 1e6:,.0f} MB"


@dataclass(slots=True)
class _Watch:
    """What was seen of a tree of processes so far; one that ends between two looks loses what it did since the last."""

    peak_bytes: int = 0
    processor_seconds: dict[tuple[int, float], float] = field(default_factory=dict)

    def look(self, root: psutil.Process) -> None:
        resident = 0
        for one in (root, *root.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                times = one.cpu_times()
                self.processor_seconds[one.pid, one.create_time()] = times.user + times.system
                resident += one.memory_info().rss
        self.peak_bytes = max(self.peak_bytes, resident)


def cost_of(
    argv: Sequence[str], *, timeout_seconds: float, environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> Cost:
    """Run it to its end. Raises RuntimeError, with what it said last, when it fails, and TimeoutExpired when it takes longer."""
    started, watch = time.monotonic(), _Watch()
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, env={**os.environ, **(environment or {})}
    ) as command:
        root = psutil.Process(command.pid)
        try:
            output, said = _watched(command, root, watch, until=started + timeout_seconds)
        except BaseException:
            _end(root)
            raise
    seconds = time.monotonic() - started
    if command.returncode:
        tail = "\n".join((output + said).splitlines()[-_TAIL_LINES:])
        raise RuntimeError(f"{' '.join(argv[:6])} ... ended with code {command.returncode}:\n{tail}")
    return Cost(seconds, sum(watch.processor_seconds.values()), watch.peak_bytes, output)


def _watched(command: "subprocess.Popen[str]", root: psutil.Process, watch: _Watch, *, until: float) -> tuple[str, str]:
    while True:
        with suppress(psutil.NoSuchProcess):
            watch.look(root)
        try:
            return command.communicate(timeout=_LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            if time.monotonic() > until:
                raise


def _end(root: psutil.Process) -> None:
    for one in (*root.children(recursive=True), root):
        with suppress(psutil.NoSuchProcess):
            one.kill()
