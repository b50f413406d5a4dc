"""What is left out of the image, why, and how much each saves.

Licences, copyright files and *.dist-info stay: people and scanners need them. So does every .py
file: an error's traceback shows its lines.
"""

import re
import shutil
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from image.build_tools import from_tree
from image.packages import MACHINE, SITE
from image.spark_start import JAVA_HOME, SPARK_HOME
from lab import packages
from lab.process import output_of


@dataclass(frozen=True)
class Cut:
    """Something that is never loaded: globs under `/`, and `but`, what they match and stays."""

    name: str
    globs: tuple[str, ...]
    but: tuple[str, ...] = ()


@dataclass(frozen=True)
class Saving:
    """What a cut took away: files, and bytes as they lay there.

    That is before compiling, which nearly doubles Python code.
    """

    name: str
    files: int
    saved_bytes: int


_PYTHON = "usr/lib/python3.11"
_PLACES = {
    "site": SITE,
    "python": _PYTHON,
    "extensions": f"{_PYTHON}/lib-dynload",
    "java": JAVA_HOME,
    "spark": SPARK_HOME,
    "jars": f"{SPARK_HOME}/jars",
}


def table(name: str) -> dict[str, Any]:
    """The table of that name beside this file. Only modules here with the same name read it."""
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text())


def named(listed: Iterable[Mapping[str, Any]]) -> tuple[Cut, ...]:
    """The cuts of a section of a table."""
    return tuple(
        Cut(
            one["name"],
            (
                *(f"{_PLACES['jars']}/{jar}.jar" for jar in one.get("jars", ())),
                *(glob.format_map(_PLACES) for glob in one.get("globs", ())),
            ),
            tuple(glob.format_map(_PLACES) for glob in one.get("but", ())),
        )
        for one in listed
    )


DEBIAN, PACKAGES, OWN = (named(table("cuts")[part]) for part in ("debian", "packages", "own"))


def apply(cuts: Sequence[Cut], tree: Path) -> list[Saving]:
    """Take away what `cuts` name from `tree`; one saving for each, also of nothing."""
    return [_apply(cut, tree) for cut in cuts]


def _apply(cut: Cut, tree: Path) -> Saving:
    kept = {path for glob in cut.but for path in tree.glob(glob)}
    found = {path for glob in cut.globs for path in tree.glob(glob)} - kept
    sizes = [path.lstat().st_size for top in found for path in _files(top)]
    for path in sorted(found):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    return Saving(cut.name, files=len(sizes), saved_bytes=sum(sizes))


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir() or path.is_symlink():
        yield path
    else:
        yield from (inner for inner in path.rglob("*") if inner.is_symlink() or not inner.is_dir())


# What of the official Kubernetes client the operator can reach: of 64 groups of calls one, of 850
# kinds those that it names.
#
# The client loads calls and kinds when they are first asked for, so no import shows that one is
# missing. What is kept is found by reading, and a test compares `SPOKEN_APIS` with what our sources
# ask for.


SPOKEN_APIS = ("custom_objects_api",)
_NAMED_KIND = re.compile(r"^\s*from kubernetes\.client\.models\.(\w+) import", re.MULTILINE)


def take_out_the_rest(site: Path) -> list[Saving]:
    """Remove what `SPOKEN_APIS` cannot reach of the calls and kinds below `site`/kubernetes.

    Nothing where the client is not there.
    """
    client = site / "kubernetes" / "client"
    if not client.is_dir():
        return []
    spoken = [client / "api" / f"{name}.py" for name in SPOKEN_APIS]
    kept = {*spoken, *_reachable_kinds(spoken, models=client / "models")}
    modules = [*(client / "api").glob("*_api.py"), *(client / "models").glob("[!_]*.py")]
    gone = [path for path in modules if path not in kept]
    saved_bytes = sum(path.stat().st_size for path in gone)
    for path in gone:
        path.unlink()
    name = "the Kubernetes client's calls and kinds that the operator does not use"
    return [Saving(name, files=len(gone), saved_bytes=saved_bytes)]


def _reachable_kinds(starts: list[Path], *, models: Path) -> set[Path]:
    """The modules of kinds that `starts` name, and those that these name in turn."""
    reached: set[Path] = set()
    waiting = list(starts)
    while waiting:
        named = {models / f"{name}.py" for name in _NAMED_KIND.findall(waiting.pop().read_text())}
        waiting.extend(named - reached)
        reached |= named
    return reached


# What compilers leave in libraries for debuggers: more than half of the compiled modules of wheels,
# and no one debugs them in a Pod.
#
# Names of functions stay, so that a crash can be read. It is taken out with Debian's own `strip`,
# unpacked and not installed, so that the result is the same on every machine.


_STRIP_TIMEOUT_SECONDS = 60.0


def take_out(tree: Path, *, base: Path, machine: str = MACHINE) -> Saving:
    """Strip every compiled module in `tree`; the C library in `base` runs the program for it.

    `machine` is what the modules are for; the program and `base` are for this one. Raises
    `LabError`.
    """
    tools = packages.unpacked(
        (f"binutils-{machine.replace('_', '-')}-linux-gnu", "libbinutils", "libzstd1")
    )
    program = tools / "usr/bin" / f"{machine}-linux-gnu-strip"
    strip = from_tree(
        program, base=base, more_libraries=tuple(sorted((tools / "usr/lib").glob("*-linux-gnu")))
    )
    modules = sorted(path for path in tree.rglob("*.so") if not path.is_symlink())
    before = [path.stat().st_size for path in modules]
    output_of([*strip, "--strip-debug", *modules], timeout_seconds=_STRIP_TIMEOUT_SECONDS)
    saved = [size - path.stat().st_size for size, path in zip(before, modules, strict=True)]
    return Saving(
        "debug information in compiled modules",
        files=sum(size > 0 for size in saved),
        saved_bytes=sum(saved),
    )
