"""What an edition needs beyond the operator: the packages of one extra, as uv.lock has them."""

from __future__ import annotations

from pathlib import Path

from image import build_tools, cuts, packages
from image.cuts import Saving
from image.packages import MACHINE


def make_extra(
    tree: Path, extra: str, *, work: Path, base: Path, machine: str = MACHINE
) -> list[Saving]:
    """Put the packages of `extra` into the empty directory `tree`; return what was left out.

    The Python in `base` compiles them; they are for `machine`. Raises `LabError`.
    """
    packages.install_locked(tree, packages.extra_requirements(extra), work=work, machine=machine)
    savings = [*cuts.apply(cuts.PACKAGES, tree), cuts.take_out(tree, base=base, machine=machine)]
    build_tools.correct(tree / packages.SITE)
    build_tools.compile_modules(tree, packages.SITE, base=base)
    build_tools.refuse_foreign_programs(tree, machine)
    return savings
