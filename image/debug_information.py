"""What compilers leave in libraries for debuggers: more than half of the compiled modules of wheels, and nobody debugs them in a Pod.

Names of functions stay, so that a crash can be told. It is taken out with Debian's own `strip`, unpacked and not installed, so that the
result is the same on every machine.
"""

from __future__ import annotations

import platform
from pathlib import Path

from image.build_tools import run
from image.cuts import Saving
from image.unpacked_program import from_tree
from lab import packages

_PACKAGES = (f"binutils-{platform.machine().replace('_', '-')}-linux-gnu", "libbinutils", "libzstd1")
_TIMEOUT_SECONDS = 60.0


def take_out(tree: Path, *, base: Path) -> Saving:
    """Strip every compiled module in `tree`; the C library in `base` runs the program that does it. Raises `LabError`."""
    tools = packages.unpacked(_PACKAGES)
    program = tools / "usr/bin" / f"{platform.machine()}-linux-gnu-strip"
    strip = from_tree(program, base=base, more_libraries=tuple(sorted((tools / "usr/lib").glob("*-linux-gnu"))))
    modules = sorted(path for path in tree.rglob("*.so") if not path.is_symlink())
    before = [path.stat().st_size for path in modules]
    run([*strip, "--strip-debug", *modules], timeout_seconds=_TIMEOUT_SECONDS)
    saved = [size - path.stat().st_size for size, path in zip(before, modules, strict=True)]
    return Saving("debug information in compiled modules", files=sum(size > 0 for size in saved), saved_bytes=sum(saved))
