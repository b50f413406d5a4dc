"""The images themselves: their layers and what an engine has to know to run them, in one archive each."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from image import packages, wheels
from image.layers import Layer, layers, rollup_layers
from image.spark_start import JAVA_HOME, SPARK_HOME
from lab.image_archive import ImageConfig, write_archive

OUT = wheels.ROOT / "out" / "image"


@dataclass(frozen=True)
class Edition:
    """An image that is offered: its name without the version, the command it runs, and how its layers are made."""

    repository: str
    entrypoint: str
    layers: Callable[[], list[Layer]]
    description: str
    environment: dict[str, str] = field(default_factory=dict)


OPERATOR = Edition("tidegate", "/usr/bin/tidegate", layers, "Keeps Kafka brokers under their network limits with native quotas only.")
ROLLUP = Edition(
    "tidegate-rollup",
    "/usr/bin/tidegate-rollup",
    rollup_layers,
    "Adds up who used what of Kafka brokers' networks: Tidegate with Spark.",
    {"JAVA_HOME": f"/{JAVA_HOME}", "SPARK_HOME": f"/{SPARK_HOME}"},
)


@dataclass(frozen=True)
class BuiltImage:
    """An image in out/image/: `archive` is for `docker load`, `ctr images import` or `kind load image-archive`.

    `name` is `tidegate:<version>`; `digest` the image ID, `sha256:...`.
    """

    archive: Path
    name: str
    digest: str
    layers: Sequence[Layer]
    edition: Edition = OPERATOR


def config(revision: str = "", *, edition: Edition = OPERATOR) -> ImageConfig:
    """How the image runs: `tidegate` as a user who is not root. `revision` is what `tidegate version` will say it was built from."""
    known = {"org.opencontainers.image.revision": revision} if revision else {}
    return ImageConfig(
        entrypoint=(edition.entrypoint,),
        environment={**edition.environment, **({"TIDEGATE_REVISION": revision} if revision else {})},
        user=f"{packages.USER_ID}:{packages.USER_ID}",
        labels={
            "org.opencontainers.image.title": "Tidegate",
            "org.opencontainers.image.description": edition.description,
            "org.opencontainers.image.licenses": "Apache-2.0",
            "org.opencontainers.image.version": wheels.version(),
            **known,
        },
    )


def build(revision: str = "", *, edition: Edition = OPERATOR) -> BuiltImage:
    """The image for this machine's processor; only layers of which something has changed are made anew. Raises `LabError`.

    The archive is written each time: kept in the cache, every change of our code would leave another 100 MB there. Who reads an older one
    meanwhile goes on reading that.
    """
    parts = edition.layers()
    name = f"{edition.repository}:{wheels.version()}"
    OUT.mkdir(parents=True, exist_ok=True)
    archive = OUT / f"{name.replace(':', '-')}.tar"
    being_written = archive.with_suffix(f".{os.getpid()}.part")
    try:
        digest = write_archive(being_written, name, [layer.tar for layer in parts], config(revision, edition=edition))
        being_written.replace(archive)
    finally:
        being_written.unlink(missing_ok=True)
    return BuiltImage(archive, name, digest, parts, edition)


def reproducible_digest(image: BuiltImage) -> str:
    """The image's digest, where two builds of it have the same; otherwise one over the layers that are the same each time.

    Java 17 writes the same classes into an archive in another order each time.
    """
    if image.edition is not ROLLUP:
        return image.digest
    same = "".join(layer.digest for layer in image.layers if layer.name != "classes")
    return f"sha256:{hashlib.sha256(same.encode()).hexdigest()}"
