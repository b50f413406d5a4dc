"""How long people wait for the command itself: the processor that `tidegate --help` takes.

The time is that of the process by the kernel, user and system together, so that other work on the
machine counts little.
"""

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from bench.results import Figure

START_BOUND_SECONDS = 0.25
_RUNS = 21


def start_figures() -> list[Figure]:
    """The medians of `--help` and `--version`; what imports a command is shown beside them."""
    return [
        _start(["--help"], START_BOUND_SECONDS),
        _start(["--version"], START_BOUND_SECONDS),
        _start(["plan", "--help"], None),
    ]


def _start(arguments: Sequence[str], bound_seconds: float | None) -> Figure:
    processor_seconds(arguments)  # the first run reads the files of the modules
    times = [processor_seconds(arguments) for _ in range(_RUNS)]
    return Figure(
        f"processor of `tidegate {' '.join(arguments)}`, median of {_RUNS}",
        median(times),
        "s",
        bound_seconds,
        f"best {min(times):.3g} s, worst {max(times):.3g} s",
    )


def processor_seconds(arguments: Sequence[str]) -> float:
    """User and system time of one run. Raises RuntimeError where it ends with another code than 0.

    It runs in an empty folder, where no checkout can take the place of what is installed.
    """
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            process = os.posix_spawn(
                sys.executable,
                [sys.executable, "-m", "tidegate", *arguments],
                os.environ,
                file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
            )
            _, status, usage = os.wait4(process, 0)
        finally:
            os.chdir(here)
    if status:
        raise RuntimeError(f"tidegate {' '.join(arguments)} ended with status {status}")
    return usage.ru_utime + usage.ru_stime
