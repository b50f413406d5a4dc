"""What every worker is forked with: imports that start no thread, for a fork takes none along."""

from __future__ import annotations

import subprocess
import sys

_THREADS = """
import os
from tidegate.rollup.spark import worker_daemon
print(*sorted(open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")))
"""


def test_imports_start_no_thread_but_the_one_of_the_allocator() -> None:
    """jemalloc's own thread is stopped and started again around a fork by jemalloc."""
    said = subprocess.run(
        [sys.executable, "-c", _THREADS],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        env={"OMP_NUM_THREADS": "1"},
    )
    assert [name for name in said.stdout.split() if name != "jemalloc_bg_thd"] == ["python"]
