"""kubectl as a test or a person calls it: one command, as the administrator of one cluster of the lab."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from lab.errors import LabError


class KubectlFailed(LabError):
    """kubectl ended with a code other than 0; `stderr` is what it said, which for a rejected object is the server's message."""

    def __init__(self, command: str, *, exit_code: int, stderr: str) -> None:
        super().__init__(f"`kubectl {command}` ended with code {exit_code}: {stderr.strip()}")
        self.exit_code = exit_code
        self.stderr = stderr


def run_kubectl(binary: Path, kubeconfig: Path, arguments: Sequence[str], *, input: str | None, timeout_seconds: float) -> str:
    """What kubectl, the part of `binary`, writes to stdout; what it caches lies beside the kubeconfig.

    `input` goes to its stdin (`-f -`). Raises `KubectlFailed` when it ends with another code than 0, `LabError` when it has not ended in
    time.
    """
    shown = " ".join(arguments)
    command = [str(binary), "kubectl", f"--kubeconfig={kubeconfig}", f"--cache-dir={kubeconfig.parent / 'kubectl'}", *arguments]
    try:
        done = subprocess.run(command, input=input or "", capture_output=True, text=True, timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        raise LabError(f"`kubectl {shown}` had not ended after {timeout_seconds:g} s.") from None
    if done.returncode != 0:
        raise KubectlFailed(shown, exit_code=done.returncode, stderr=done.stderr)
    return done.stdout
