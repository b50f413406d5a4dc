"""A directory for one run of a lab, and the list of what to undo when that run could not undo it itself.

Ordinary ends remove everything they made. A lab that was killed leaves its directory with its owner's identity and its undo list;
the next lab of the same user that starts, and `lab down`, sweep the directories whose owner is gone. A living lab is never touched.

    <cache>/run/<lab id>/owner.json     who runs it
    <cache>/run/<lab id>/undo.jsonl     one command a line, run in reverse order
"""

from __future__ import annotations

import fcntl
import json
import secrets
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Self

from lab import cache
from lab.process_identity import ProcessIdentity
from lab.progress import say

_UNDO_TIMEOUT_SECONDS = 20


class RunDirectory:
    """The directory of one run; a context manager that leaves nothing of it behind."""

    def __init__(self) -> None:
        # Four hex digits: interface names, which carry the id, end at 15 characters.
        self.lab_id = secrets.token_hex(2)
        self.path = runs_root() / self.lab_id

    def __enter__(self) -> Self:
        sweep()
        runs_root().mkdir(parents=True, exist_ok=True)
        nascent = runs_root() / f".{self.lab_id}"
        nascent.mkdir()
        (nascent / "owner.json").write_text(json.dumps(asdict(ProcessIdentity.own())))
        nascent.rename(self.path)
        return self

    def __exit__(self, *_: object) -> None:
        clear(self.path)

    def record_undo(self, command: Sequence[str]) -> None:
        """Note how to undo a thing, before it is made; undoing a thing that was never made must be harmless."""
        with (self.path / "undo.jsonl").open("a") as undo:
            undo.write(json.dumps(list(command)) + "\n")


def runs_root() -> Path:
    """Where the directories of all runs lie."""
    return cache.root() / "run"


def sweep() -> None:
    """Clear every run whose owner is gone."""
    cache.root().mkdir(parents=True, exist_ok=True)
    with (cache.root() / "sweep.lock").open("w") as lock:  # who comes second finds everything cleared, not half of it
        fcntl.flock(lock, fcntl.LOCK_EX)
        for path in sorted(runs_root().glob("[!.]*")):
            if not is_owned(path):
                say("lab", f"clearing what the interrupted run {path.name} left")
                clear(path)


def is_owned(path: Path) -> bool:
    """Whether the process that made the run at `path` still lives."""
    try:
        return ProcessIdentity(**json.loads((path / "owner.json").read_text())).is_alive()
    except (OSError, ValueError, TypeError):
        return False


def clear(path: Path) -> None:
    """Undo what the run at `path` recorded, last thing first, and remove its directory."""
    for line in reversed(_undo_lines(path)):
        subprocess.run(json.loads(line), check=False, capture_output=True, timeout=_UNDO_TIMEOUT_SECONDS)
    shutil.rmtree(path, ignore_errors=True)


def _undo_lines(path: Path) -> list[str]:
    try:
        return (path / "undo.jsonl").read_text().splitlines()
    except FileNotFoundError:  # nothing to undo, or its owner is clearing it at this moment
        return []
