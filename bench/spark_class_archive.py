"""Spark's classes as the Java machine wants them, for benchmarks that start it a hundred times; nothing of it is measured."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.process import wait_until

_QUICK = "-XX:TieredStopAtLevel=1 -Xshare:auto -Xlog:disable -Xlog:all=off"
_LEAST_BYTES = 10_000_000  # Spark's launcher is a Java machine, too, and writes a small one before
_TIMEOUT_SECONDS = 300


def java_options(archive: Path, argv: Sequence[str]) -> Mapping[str, str]:
    """The environment for whatever starts Spark from now on. `argv` starts it once, and its classes are written when it ends."""
    written = {"JAVA_TOOL_OPTIONS": f"-XX:ArchiveClassesAtExit={archive} {_QUICK}"}
    subprocess.run(argv, check=True, capture_output=True, timeout=_TIMEOUT_SECONDS, env={**os.environ, **written})
    wait_until(lambda: archive.exists() and archive.stat().st_size > _LEAST_BYTES, "the class archive", timeout_seconds=60)
    return {"JAVA_TOOL_OPTIONS": f"-XX:SharedArchiveFile={archive} {_QUICK}"}
