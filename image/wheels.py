"""The Python packages of the image: exactly the locked ones that the operator runs with, and our own wheel.

uv checks every download against the hashes in uv.lock, and what builds a wheel against those in build-requirements.txt.
"""

from __future__ import annotations

import os
import platform
import re
import sys
import tomllib
from pathlib import Path

from image.build_tools import run
from lab import cache

ROOT = Path(__file__).resolve().parent.parent
SITE = "usr/local/lib/python3.11/dist-packages"  # where Debian's Python looks for what Debian did not package
BUILD_REQUIREMENTS = ROOT / "image" / "build-requirements.txt"
_TIMEOUT_SECONDS = 900.0  # PySpark is half a gigabyte, and has to be built first
_COMMAND = """\
#!/usr/bin/python3
import sys

from tidegate.cli import main

sys.exit(main())
"""


def locked_requirements(*, extra: str = "") -> str:
    """What uv.lock names for running the operator, with versions and hashes, as a requirements file; with an extra's. Raises `LabError`."""
    more = ("--extra", extra) if extra else ()
    return _uv("export", "--quiet", "--frozen", "--no-default-groups", "--no-emit-project", "--no-header", "--no-annotate", *more)


def rollup_requirements() -> str:
    """What uv.lock names for rollups and not for running the operator, in the same form. Raises `LabError`."""
    common = set(_entries(locked_requirements()))
    return "\n".join(entry for entry in _entries(locked_requirements(extra="rollup")) if entry not in common) + "\n"


def install_locked(tree: Path, requirements_text: str, *, work: Path) -> None:
    """Install what `requirements_text` names, with hashes, into the empty `tree`. Raises `LabError`."""
    requirements = work / "requirements.txt"
    requirements.write_text(requirements_text)
    pinned = ("--require-hashes", "--require-build-hashes", "--build-constraints", str(BUILD_REQUIREMENTS))
    _install(tree, "--requirements", str(requirements), *pinned)


def install_own(tree: Path, *, work: Path) -> None:
    """Build our wheel and install it and the command `tidegate` into the empty `tree`. Raises `LabError`."""
    wheels = work / "wheels"
    _uv("build", "--quiet", "--wheel", "--out-dir", str(wheels), "--require-hashes", "--build-constraints", str(BUILD_REQUIREMENTS))
    # uv's cache knows a wheel by its place and version, so it could hand out the code that another build left in this very place
    _install(tree, "--no-cache", "--no-index", "--find-links", str(wheels), f"tidegate=={version()}")
    command = tree / "usr/bin/tidegate"
    command.parent.mkdir(parents=True)
    command.write_text(_COMMAND)
    command.chmod(0o755)


def version() -> str:
    """The project's version, from pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return str(project["version"])


def _entries(requirements: str) -> list[str]:
    """One text for each package: a line that names it, and indented ones with hashes."""
    return [entry.rstrip("\n") for entry in re.split(r"^(?=\S)", requirements, flags=re.MULTILINE) if entry]


def _install(tree: Path, *what: str) -> None:
    target = ("--python", sys.executable, "--python-version", "3.11", "--python-platform", f"{platform.machine()}-manylinux_2_28")
    place = ("--target", str(tree / SITE), "--link-mode", "copy", "--no-compile-bytecode")
    _uv("pip", "install", "--quiet", "--no-deps", *target, *place, *what)


def _uv(*arguments: str) -> str:
    return run([_uv_program(), "--no-progress", *arguments], timeout_seconds=_TIMEOUT_SECONDS, directory=ROOT, environment=_environment())


def _environment() -> dict[str, str]:
    """This process's own, less what would choose another Python; that of the machine runs the builds, none is downloaded."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("VIRTUAL_ENV", "UV_PYTHON", "PYTHON"))}
    return kept | {"UV_PYTHON_DOWNLOADS": "never"}


def _uv_program() -> Path:
    """The uv that the Makefile pins, fetched first where it is not there yet."""
    pinned = re.search(r"^UV_VERSION := (\S+)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert pinned is not None, "the Makefile pins uv"  # noqa: S101 - a slip of ours, for us to see
    place = cache.root() / f"uv-{pinned[1]}"
    run([ROOT / "tools" / "bootstrap-uv", place, pinned[1]], timeout_seconds=_TIMEOUT_SECONDS)
    return place / "bin" / "uv"
