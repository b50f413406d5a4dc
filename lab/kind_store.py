"""A dockerd's data that already holds the image of kind's node: what a KindLab starts from, instead of loading 500 MB each time."""

from __future__ import annotations

import shutil
from pathlib import Path

from lab import cache
from lab.dockerd import Dockerd
from lab.kubernetes.kind_image import image_inputs, write_node_image
from lab.network import Network
from lab.progress import say
from lab.run_directory import RunDirectory

_LOAD_TIMEOUT_SECONDS = 300.0


def node_data() -> Path:
    """The data directory, from the cache or built into it; read it, never write to it. Needs root."""
    return cache.entry("kind-node", image_inputs(), build=_build) / "data"


def _build(content: Path) -> None:
    say("kind-node", "putting the image of kind's node together; about half a minute")
    work, archive = content.parent / "work", content.parent / "node.tar"
    work.mkdir()
    write_node_image(archive, work)
    with RunDirectory() as run:
        directory = run.path / "kind"
        with Dockerd(run, Network(run).add("kind", 60), directory) as engine:
            engine.docker("load", "--quiet", "--input", str(archive), timeout_seconds=_LOAD_TIMEOUT_SECONDS)
        (directory / "data").rename(content / "data")
    shutil.rmtree(work)
    archive.unlink()
