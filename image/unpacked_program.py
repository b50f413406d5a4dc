"""Programs of Debian's that are run from where they were unpacked, with their own loader and libraries: not this machine's."""

from __future__ import annotations

from pathlib import Path

from lab.errors import LabError


def from_tree(program: Path, *, base: Path, more_libraries: tuple[Path, ...] = ()) -> list[str]:
    """The words that start `program` with the C library unpacked in `base`; the program's arguments follow them."""
    loaders = sorted(base.glob("usr/lib/*/ld-linux*.so.*"))
    if not loaders:
        raise LabError(f"There is no program loader in {base}, so nothing in it can run. Where has Debian's libc6 put it?")
    libraries = ":".join(str(place) for place in (loaders[0].parent, *more_libraries))
    return [str(loaders[0]), "--library-path", libraries, str(program)]
