"""Builds the image twice from nothing, in ways that must not matter: from copies of the sources in two places, with two homes and umasks.

Only what `.dockerignore` lets through is copied, so it is seen, too, that this is enough.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from image import wheels
from image.build_tools import run

_TIMEOUT_SECONDS = 1800.0
_UMASKS = ("022", "077")
_LITTER = shutil.ignore_patterns("__pycache__")


def digests(*options: str) -> Iterator[str]:
    """The digest of each build with these options as soon as it is known. Raises `LabError`.

    The operator's takes about half a minute each time and downloads 30 MB, that of rollups some minutes and 600 MB.
    """
    for umask in _UMASKS:
        with tempfile.TemporaryDirectory(prefix=f"tidegate-image-{umask}-") as folder:
            place = Path(folder)
            sources = place / f"checkout-{umask}"
            _copy_sources(sources)
            build = [sys.executable, "-m", "image", "--digest", *options]
            command = ["sh", "-c", 'umask "$0"; exec "$@"', umask, *build]
            yield run(command, timeout_seconds=_TIMEOUT_SECONDS, directory=sources, environment=_environment(place)).strip()


def _copy_sources(target: Path) -> None:
    for line in (wheels.ROOT / ".dockerignore").read_text().splitlines():
        for source in wheels.ROOT.glob(line.removeprefix("!")) if line.startswith("!") else ():
            copy = target / source.relative_to(wheels.ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, copy, ignore=_LITTER)
            else:
                shutil.copy(source, copy)


def _environment(place: Path) -> dict[str, str]:
    """This process's own with a home and a cache in `place`; where packages come from is still found where people configure it."""
    configured = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    kept = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "UV_CACHE_DIR")}
    return kept | {"HOME": str(place / "home"), "XDG_CACHE_HOME": str(place / "cache"), "XDG_CONFIG_HOME": configured}
