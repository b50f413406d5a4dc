"""What only the console needs: a web server with its pages, as uv.lock has them."""

from __future__ import annotations

import re
from pathlib import Path

from image import build_tools, cuts, packages
from image.cuts import Saving
from image.packages import MACHINE


def console_requirements() -> str:
    """What uv.lock names for the console and not for running the operator, with hashes.

    Raises `LabError`.
    """
    common = set(_entries(packages.locked_requirements()))
    wanted = _entries(packages.locked_requirements(extra="console"))
    return "\n".join(entry for entry in wanted if entry not in common) + "\n"


def make_console(tree: Path, *, work: Path, base: Path, machine: str = MACHINE) -> list[Saving]:
    """Put the console's packages into the empty directory `tree`; return what was left out.

    The Python in `base` compiles them; they are for `machine`. Raises `LabError`.
    """
    packages.install_locked(tree, console_requirements(), work=work, machine=machine)
    savings = [*cuts.apply(cuts.PACKAGES, tree), cuts.take_out(tree, base=base, machine=machine)]
    build_tools.correct(tree / packages.SITE)
    build_tools.compile_modules(tree, packages.SITE, base=base)
    build_tools.refuse_foreign_programs(tree, machine)
    return savings


def _entries(requirements: str) -> list[str]:
    """One text for each package: a line that names it, and indented ones with hashes."""
    return [
        entry.rstrip("\n")
        for entry in re.split(r"^(?=\S)", requirements, flags=re.MULTILINE)
        if entry
    ]
