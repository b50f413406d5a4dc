"""What every worker is forked with: imports that start no thread, for a fork takes none along."""

from __future__ import annotations

import subprocess
import sys

from lab.process import patience

_THREADS = """
import os
from tidegate.rollup.spark import worker_daemon
print(*sorted(open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")))
"""

_LIBRARIES = """
import sys
from tidegate.rollup.spark import worker_daemon
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def test_imports_start_no_thread_but_the_one_of_the_allocator() -> None:
    """jemalloc's own thread is stopped and started again around a fork by jemalloc."""
    said = subprocess.run(
        [sys.executable, "-c", _THREADS],
        check=True,
        capture_output=True,
        text=True,
        timeout=patience(60),
        env={"OMP_NUM_THREADS": "1"},
    )
    assert [name for name in said.stdout.split() if name != "jemalloc_bg_thd"] == ["python"]


def test_libraries_that_only_the_driver_needs_are_not_among_the_imports() -> None:
    """Each of these takes part of a second of the start; a type in an import brought them all."""
    said = subprocess.run(
        [sys.executable, "-c", _LIBRARIES],
        check=True,
        capture_output=True,
        text=True,
        timeout=patience(60),
    )
    found = set(said.stdout.split())
    assert {"pyarrow", "numpy", "pandas", "pyspark", "requests"} <= found
    assert not found & {"pydantic", "structlog", "prometheus_client", "rich", "kopf"}
