"""Programs that a build runs: their output, or an error that says what they said."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.errors import LabError


def run(
    argv: Sequence[str | Path], *, timeout_seconds: float, environment: Mapping[str, str] | None = None, directory: Path | None = None
) -> str:
    """What the program writes to standard output. `environment` is all it gets; None hands on this process's own.

    Raises `LabError` with the end of its words when it fails, cannot be started, or has not ended in time.
    """
    shown = Path(argv[0]).name
    env = os.environ if environment is None else environment
    try:
        done = subprocess.run(argv, env=env, cwd=directory, capture_output=True, text=True, timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        raise LabError(f"{shown} had not ended after {timeout_seconds:g} s and was stopped. Run it again.") from None
    except OSError as error:
        raise LabError(f"{shown} cannot be started: {error.strerror}. `make doctor` says what this machine lacks.") from error
    if done.returncode != 0:
        said = "\n".join(f"  {line}" for line in (done.stdout + done.stderr).splitlines()[-20:])
        raise LabError(f"{shown} ended with code {done.returncode}. It said:\n{said}")
    return done.stdout
