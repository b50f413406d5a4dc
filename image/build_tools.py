"""Programs that a build runs, and what it does to a tree of Python packages.

It makes records right and compiles modules.
"""

import base64
import csv
import hashlib
from pathlib import Path

from lab.errors import LabError
from lab.process import output_of

# RECORD, in which every Python package lists its files with their hashes: made true again after
# files were left out or changed.
#
# Auditors compare it with what lies there, and `importlib.metadata` lists a package's files from
# it.


def correct(site: Path) -> None:
    """Correct the RECORD of every package in `site`.

    Rows of files that are gone go, sizes and hashes are those of what is there.
    """
    for record in sorted(site.glob("*.dist-info/RECORD")):
        with record.open(newline="") as old:
            names = [row[0] for row in csv.reader(old) if (site / row[0]).exists()]
        with record.open("w", newline="") as new:
            csv.writer(new, lineterminator="\n").writerows(
                [_row(site, name, unhashed=record) for name in names]
            )


def _row(site: Path, name: str, *, unhashed: Path) -> tuple[str, str, str]:
    path = site / name
    if path == unhashed:
        return name, "", ""
    content = path.read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return name, f"sha256={digest}", str(len(content))


def from_tree(program: Path, *, base: Path, more_libraries: tuple[Path, ...] = ()) -> list[str]:
    """The words that start `program` with the C library unpacked in `base`.

    The program's arguments follow them.
    """
    loaders = sorted(base.glob("usr/lib/*/ld-linux*.so.*"))
    if not loaders:
        raise LabError(
            f"There is no program loader in {base}, so nothing in it can run. Where has Debian's "
            f"libc6 put it?"
        )
    libraries = ":".join(str(place) for place in (loaders[0].parent, *more_libraries))
    return [str(loaders[0]), "--library-path", libraries, str(program)]


_ELF = b"\x7fELF"
_ELF_MACHINES = {62: "x86_64", 183: "aarch64"}
_ELF_MACHINE_AT = slice(18, 20)  # e_machine, little endian on both
_PYTHON_PACKAGE = "var/lib/dpkg/status.d/python3.11-minimal"


def refuse_foreign_programs(tree: Path, machine: str) -> None:
    """Raise `LabError` when a program or library in `tree` is for another processor than `machine`.

    `machine` is as `uname -m` names it. A package that publishes no wheel for it would be built
    here, for this machine.
    """
    foreign = [
        f"{path.relative_to(tree)} ({found})"
        for path in sorted(tree.rglob("*"))
        if (found := _machine_of(path)) is not None and found != machine
    ]
    if foreign:
        shown = ", ".join(foreign[:3])
        raise LabError(
            f"{len(foreign)} programs or libraries of the image for {machine} are for another "
            f"processor, so it was not made: {shown}. Does that package publish a wheel for "
            f"{machine}?"
        )


def refuse_another_python(tree: Path, *, base: Path) -> None:
    """Raise `LabError` unless `tree` and `base` hold the same version of Debian's Python.

    What the one compiles is read by the other.
    """
    found = [_version(place / _PYTHON_PACKAGE) for place in (tree, base)]
    if found[0] != found[1]:
        raise LabError(
            f"Debian offers Python {found[0]} for the image's processor and {found[1]} for this "
            f"machine's, so no image was made: one compiles what the other reads. Fetch this "
            f"machine's package lists again (apt-get update), or wait for Debian's other build."
        )


def _machine_of(path: Path) -> str | None:
    """What processor the file is for; None for anything but a program or a library."""
    if path.is_symlink() or not path.is_file():
        return None
    with path.open("rb") as file:
        head = file.read(_ELF_MACHINE_AT.stop)
    if len(head) < _ELF_MACHINE_AT.stop or not head.startswith(_ELF):
        return None
    number = int.from_bytes(head[_ELF_MACHINE_AT], "little")
    return _ELF_MACHINES.get(number, f"ELF machine {number}")


def _version(control: Path) -> str:
    return next(
        line.removeprefix("Version: ")
        for line in control.read_text().splitlines()
        if line.startswith("Version: ")
    )


# Compiled Python for an image whose file system no one can write to: without it, every start would
# compile every module again.
#
# The image's own interpreter compiles, with its own C library, so that the machine's does not
# matter. Hashes instead of times, names as they will be in the image and a fixed hash seed make it
# the same each time; Python does not check it against the source, which cannot change.


_TIMEOUT_SECONDS = 300.0


def compile_modules(tree: Path, folder: str, *, base: Path) -> None:
    """Compile the modules in `folder` of `tree` with the Python in `base`.

    Raises `LabError`, for a module that is no Python, too.
    """
    python = from_tree(base / "usr/bin/python3.11", base=base)
    options = ["-q", "-f", "--invalidation-mode", "unchecked-hash", "-s", str(tree), "-p", "/"]
    output_of(
        [*python, "-m", "compileall", *options, str(tree / folder)],
        timeout_seconds=_TIMEOUT_SECONDS,
        environment={"PYTHONHOME": str(base / "usr"), "PYTHONHASHSEED": "0"},
    )
