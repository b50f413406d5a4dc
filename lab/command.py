"""Commands that end by themselves: what they write, or an error that shows what they complained of. Parts that run on are `process`'s."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.errors import LabError


def output_of(
    command: Sequence[str],
    *,
    timeout_seconds: float,
    environment: Mapping[str, str] | None = None,
    working_directory: Path | None = None,
) -> str:
    """What `command` writes to stdout; `LabError` when it ends with another code than 0 or has not ended in time.

    `environment` is all that it gets, and where it is looked for; without one, it gets this process's own.
    """
    shown = " ".join(command)
    try:
        done = subprocess.run(command, env=environment, cwd=working_directory, capture_output=True, text=True, timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        raise LabError(f"`{shown}` had not ended after {timeout_seconds:g} s.") from None
    if done.returncode != 0:
        raise LabError(f"`{shown}` failed with code {done.returncode}: {(done.stdout + done.stderr).strip()}")
    return done.stdout
