"""The image's file system in three parts: Debian, locked packages, our own code.

They go from what changes seldom to what changes always. The Dockerfile copies them as they are
(`python3 -m image --parts DIRECTORY`), `python -m image` makes layers of them. It needs Debian 12
with apt-get, and Python 3.11 with nothing but its standard library.
"""

from pathlib import Path

from image import build_tools, cuts, packages
from image.cuts import Saving
from image.java import make_classes, make_java, make_spark
from image.packages import MACHINE
from lab.errors import LabError

PARTS = ("base", "packages", "own")
ROLLUP_PARTS = ("java", "spark", "classes")


def make_base(
    tree: Path, *, work: Path, machine: str = MACHINE, base: Path | None = None
) -> list[Saving]:
    """Debian and its Python in the empty directory `tree`; returns what was left out.

    `machine` is the processor it is for, as `uname -m` names it. Where that is not this machine's,
    `base` is the same for this machine, whose Python compiles: compiled Python is the same for all
    processors. Raises `LabError`.
    """
    packages.lay_out(tree, work=work, machine=machine)
    savings = cuts.apply(cuts.DEBIAN, tree)
    if base is not None:
        build_tools.refuse_another_python(tree, base=base)
    build_tools.compile_modules(tree, "usr/lib/python3.11", base=base or tree)
    build_tools.refuse_foreign_programs(tree, machine)
    return savings


def make_packages(
    tree: Path, requirements: str, *, work: Path, base: Path, machine: str = MACHINE
) -> list[Saving]:
    """Put locked packages into the empty directory `tree`; return what was left out.

    The Python in `base`, which is for this machine, compiles them. Nothing of a package is run, so
    they may be for another processor (`machine`). Raises `LabError`.
    """
    packages.install_locked(tree, requirements, work=work, machine=machine)
    site = tree / packages.SITE
    savings = [
        *cuts.apply(cuts.PACKAGES, tree),
        *cuts.take_out_the_rest(site),
        cuts.take_out(tree, base=base, machine=machine),
    ]
    build_tools.correct(site)
    build_tools.compile_modules(tree, packages.SITE, base=base)
    build_tools.refuse_foreign_programs(tree, machine)
    return savings


def make_own(tree: Path, *, work: Path, base: Path) -> list[Saving]:
    """Put our code and the command into the empty directory `tree`; return what was left out.

    The Python in `base` compiles them. It is the same for every processor.
    """
    packages.install_own(tree, work=work)
    savings = cuts.apply(cuts.OWN, tree)
    build_tools.correct(tree / packages.SITE)
    build_tools.compile_modules(tree, packages.SITE, base=base)
    return savings


def make_all(directory: Path) -> list[Saving]:
    """Make all three parts below `directory`; return what was left out.

    `directory` must be empty or not there. Raises `LabError`.
    """
    if directory.exists() and any(directory.iterdir()):
        raise LabError(
            f"{directory} is not empty, so nothing was put there. Name a directory that is empty "
            f"or not there."
        )
    base, site, own = (directory / part for part in PARTS)
    work = directory / "work"
    for place in (base, site, own, work):
        place.mkdir(parents=True)
    return [
        *make_base(base, work=work),
        *make_packages(site, packages.locked_requirements(), work=work, base=base),
        *make_own(own, work=work, base=base),
    ]


def add_rollup_parts(directory: Path) -> list[Saving]:
    """Add what rollups need to the parts that `make_all` put into `directory`.

    Returns what was left out. Raises `LabError`.
    """
    base, packages, _ = (directory / part for part in PARTS)
    java, spark, classes = (directory / part for part in ROLLUP_PARTS)
    if not base.is_dir() or java.exists():
        raise LabError(
            f"{directory} has to hold the operator's parts and no others. Run this with --parts "
            f"and without --rollup before."
        )
    for place in (java, spark, classes):
        place.mkdir()
    works = [directory / "work" / place.name for place in (java, spark, classes)]
    for work in works:
        work.mkdir(parents=True)
    return [
        *make_java(java, work=works[0]),
        *make_spark(spark, work=works[1], base=base),
        *make_classes(classes, work=works[2], packages=packages, java=java, spark=spark),
    ]
