"""The image of the container that holds a Pod's namespaces open: one static program, built here, so that nothing is pulled."""

from __future__ import annotations

import shutil
from pathlib import Path

from image.archive import ImageConfig, write_archive, write_layer
from lab import cache
from lab.kubernetes.tools import PAUSE

PAUSE_IMAGE = "localhost/pause:lab"


def pause_image() -> Path:
    """A docker archive of it, from the cache or built into it."""
    program = PAUSE.binary()
    return cache.entry("pause-image", [PAUSE_IMAGE, program.read_bytes()], build=lambda content: _build(program, content)) / "pause.tar"


def _build(program: Path, content: Path) -> None:
    tree, layer = content / "tree", content / "layer.tar"
    tree.mkdir()
    shutil.copy2(program, tree / "pause")
    write_layer(tree, layer)
    write_archive(content / "pause.tar", PAUSE_IMAGE, [layer], ImageConfig(entrypoint=("/pause",)))
    shutil.rmtree(tree)
    layer.unlink()
