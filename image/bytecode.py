"""Compiled Python for an image whose file system nobody can write to: without it, every start would compile every module anew.

The image's own interpreter compiles, with its own C library, so that the machine's does not matter. Hashes in place of times, names as they
will be in the image and a fixed hash seed make it the same each time; Python does not check it against the source, which cannot change.
"""

from __future__ import annotations

from pathlib import Path

from image.build_tools import run
from image.unpacked_program import from_tree

_TIMEOUT_SECONDS = 300.0


def compile_modules(tree: Path, folder: str, *, base: Path) -> None:
    """Compile the modules in `folder` of `tree` with the Python in `base`. Raises `LabError`, for a module that is no Python, too."""
    python = from_tree(base / "usr/bin/python3.11", base=base)
    options = ["-q", "-f", "--invalidation-mode", "unchecked-hash", "-s", str(tree), "-p", "/"]
    run(
        [*python, "-m", "compileall", *options, str(tree / folder)],
        timeout_seconds=_TIMEOUT_SECONDS,
        environment={"PYTHONHOME": str(base / "usr"), "PYTHONHASHSEED": "0"},
    )
