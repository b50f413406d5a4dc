"""The image's layers, each cached by everything that it is made from, and the images of them.

A new version of ours rebuilds one small layer, a new lock two, a new Debian package all: modules
are compiled by Debian's Python. What rollups need lies between the packages and our own code, so
that nodes share what is below, and a new version stays small for them, too.
"""

import hashlib
import json
import os
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from image import java, packages, rootfs
from image.cuts import Saving
from image.packages import MACHINE
from image.spark_start import JAVA_HOME, SPARK_HOME
from lab import cache
from lab import packages as debian_packages
from lab.errors import LabError
from lab.image_archive import ImageConfig, sha256, write_archive, write_layer

_TAR, _TREE, _FACTS = "layer.tar", "tree", "layer.json"
_READ_BYTES = 1 << 20
_GZIP_WINDOW = 31  # zlib's word for "with a gzip header"
_RECIPES = Path(__file__).resolve().parent
# Made when the layers are made already, or not part of a layer at all: no layer is rebuilt when one
# of these changes.
_AFTERWARDS = ("__init__", "__main__", "bill", "layers", "smoke", "smoke_inside", "import_all")
# only layers of the image of rollup Jobs have them
_ROLLUPS = ("java", "spark_sample", "spark_start")
_SOURCES = ("operator/tidegate", "controller_logic", "pyproject.toml", "README.md", "LICENSE")

# what the image of rollup Jobs adds: in the operator's, modules that need one of these stay unused
_COLUMNS = ("numpy", "pandas", "pyarrow", "pyspark")
ROLLUP_PACKAGES = ("google_crc32c", "jinja2", "markupsafe", *_COLUMNS)
FORWARDER_PACKAGE = "confluent_kafka"  # likewise of the image of forwarders

# makes a part in an empty directory, with another for what it needs meanwhile
Make = Callable[[Path, Path], list[Saving]]


@dataclass(frozen=True)
class Layer:
    """One layer: its uncompressed tar file and that file's SHA-256 in hex.

    `compressed_bytes` is what a registry keeps and a node pulls (gzip), `content_bytes` what it
    takes on the node's disk.
    """

    name: str
    tar: Path
    digest: str
    content_bytes: int
    compressed_bytes: int
    savings: tuple[Saving, ...]


def layers(machine: str = MACHINE) -> list[Layer]:
    """Base, packages and our own, the lowest first; what the cache does not hold is made first.

    `machine` is the processor they are for, as `uname -m` names it; our own is the same for all.
    Raises `LabError`.
    """
    here, base = _base(MACHINE), _base(machine)
    return [base, _packages(base, here=here, machine=machine), _own(here)]


def rollup_layers(machine: str = MACHINE) -> list[Layer]:
    """The operator's, and between packages and our own: Java, Spark, the archive of its classes.

    Raises `LabError`, also for a `machine` that is not this one: the archive is written by the
    image's own Java, which has to run for that.
    """
    if machine != MACHINE:
        raise LabError(
            f"The image of rollup Jobs for {machine} can only be built on such a machine: its own "
            f"Java writes the archive of classes. Run `make image-rollup` there."
        )
    base = _base(MACHINE)
    packages_layer = _packages(base, here=base)
    offered = debian_packages.offered((*java.LIBRARIES, *java.TOOLS))
    java_layer = _layer(
        "java",
        [*offered, MACHINE, JAVA_HOME, *_recipes("java")],
        make=lambda tree, work: java.make_java(tree, work=work),
    )
    python = _tree(base)
    spark = _layer(
        "spark",
        [base.digest, packages.extra_requirements("rollup"), SPARK_HOME, *_recipes("java")],
        make=lambda tree, work: java.make_spark(tree, work=work, base=python),
    )
    classes = _layer(
        "classes",
        [packages_layer.digest, java_layer.digest, spark.digest, *_recipes(*_ROLLUPS)],
        make=lambda tree, work: java.make_classes(
            tree,
            work=work,
            **{
                layer.name: _unpacked(layer, work / layer.name)
                for layer in (packages_layer, java_layer, spark)
            },
        ),
    )
    return [base, packages_layer, java_layer, spark, classes, _own(base)]


def extra_layers(extra: str, machine: str = MACHINE) -> list[Layer]:
    """The operator's, and between packages and our own those of `extra`.

    `machine` is the processor they are for. Raises `LabError`.
    """
    base, packages_layer, own = layers(machine)
    further = _packages(base, here=_base(MACHINE), machine=machine, extra=extra)
    return [base, packages_layer, further, own]


def _base(machine: str) -> Layer:
    """The base for a processor; where that is another one, our own base's Python compiles it."""
    here = None if machine == MACHINE else _base(MACHINE)
    offered = debian_packages.offered(packages.PACKAGES, machine=machine)
    parts = [*offered, machine, *([here.digest] if here else []), *_recipes()]
    base = _tree(here) if here else None
    return _layer(
        "base",
        parts,
        make=lambda tree, work: rootfs.make_base(tree, work=work, machine=machine, base=base),
    )


def _packages(
    base: Layer, *, here: Layer, machine: str = MACHINE, extra: str | None = None
) -> Layer:
    """The locked packages that the operator runs with, or those that only `extra` needs."""
    requirements = packages.extra_requirements(extra) if extra else packages.locked_requirements()
    parts = [base.digest, requirements, *_recipes()]
    return _layer(
        extra or "packages",
        parts,
        make=lambda tree, work: rootfs.make_packages(
            tree, requirements, work=work, base=_tree(here), machine=machine
        ),
    )


def _own(base: Layer) -> Layer:
    parts = [base.digest, *_own_sources(), *_recipes()]
    return _layer(
        "own", parts, make=lambda tree, work: rootfs.make_own(tree, work=work, base=_tree(base))
    )


def _tree(base: Layer) -> Path:
    return base.tar.parent / _TREE


def _unpacked(layer: Layer, place: Path) -> Path:
    with tarfile.open(layer.tar) as tar:
        tar.extractall(place, filter="fully_trusted")  # noqa: S202 - we wrote it
    return place


def _own_sources() -> Iterator[str | bytes]:
    for source in _SOURCES:
        top = packages.ROOT / source
        files = (
            [top]
            if top.is_file()
            else sorted(path for path in top.rglob("*") if path.is_file() and path.suffix != ".pyc")
        )
        for path in files:
            yield path.relative_to(packages.ROOT).as_posix()
            yield path.read_bytes()


def _recipes(*further: str) -> list[str | bytes]:
    """The modules here that have a say in a layer's bytes, their tables, and what builds wheels.

    How it is made is part of what it is made from.
    """
    others = {*_AFTERWARDS, *_ROLLUPS} - set(further)
    files = [*_RECIPES.glob("*.py"), *_RECIPES.glob("*.toml"), packages.BUILD_REQUIREMENTS]
    return [path.read_bytes() for path in sorted(files) if path.stem not in others]


def _layer(name: str, key_parts: Sequence[str | bytes], *, make: Make) -> Layer:
    content = cache.entry(
        f"image-{name}", key_parts, build=lambda content: _build(content, name, make=make)
    )
    facts = json.loads((content / _FACTS).read_text())
    savings = tuple(Saving(**saving) for saving in facts.pop("savings"))
    return Layer(name, content / _TAR, savings=savings, **facts)


def _build(content: Path, name: str, *, make: Make) -> None:
    """Leave the layer and its facts; of the base the tree too: its Python compiles the others."""
    tree = (content if name == "base" else content.parent) / _TREE
    work = content.parent / "work"
    tree.mkdir()
    work.mkdir()
    savings = make(tree, work)
    write_layer(tree, content / _TAR)
    facts = {
        "digest": sha256(content / _TAR),
        "content_bytes": sum(
            path.lstat().st_size
            for path in tree.rglob("*")
            if path.is_file() and not path.is_symlink()
        ),
        "compressed_bytes": _compressed_bytes(content / _TAR),
        "savings": [asdict(saving) for saving in savings],
    }
    (content / _FACTS).write_text(json.dumps(facts, indent=2))


def _compressed_bytes(path: Path) -> int:
    squeeze = zlib.compressobj(wbits=_GZIP_WINDOW)
    total = 0
    with path.open("rb") as content:
        while block := content.read(_READ_BYTES):
            total += len(squeeze.compress(block))
    return total + len(squeeze.flush())


OUT = packages.ROOT / "out" / "image"


@dataclass(frozen=True)
class Edition:
    """An image that is offered: its name without the version, its command, and its layers."""

    repository: str
    entrypoint: str
    layers: Callable[[str], list[Layer]]  # for the processor of that name
    description: str
    environment: dict[str, str] = field(default_factory=dict)
    further: tuple[str, ...] = ()  # packages that it has beside the operator's


OPERATOR = Edition(
    "tidegate",
    "/usr/bin/tidegate",
    layers,
    "Keeps Kafka brokers under their network limits with native quotas only.",
)
ROLLUP = Edition(
    "tidegate-rollup",
    "/usr/bin/tidegate-rollup",
    rollup_layers,
    "Adds up who used what of Kafka brokers' networks: Tidegate with Spark.",
    {"JAVA_HOME": f"/{JAVA_HOME}", "SPARK_HOME": f"/{SPARK_HOME}"},
    ROLLUP_PACKAGES,
)
CONSOLE = Edition(
    "tidegate-console",
    "/usr/bin/tidegate",
    partial(extra_layers, "console"),
    "Shows in a browser which Kafka broker is over its limit, who gives, and what would help.",
    # NiceGUI's few files; nothing else can be written
    {"NICEGUI_STORAGE_PATH": "/tmp/nicegui"},  # noqa: S108 - the image's own
    ("nicegui", "uvicorn"),
)
FORWARDER = Edition(
    "tidegate-forwarder",
    "/usr/bin/tidegate",
    partial(extra_layers, "forwarder"),
    "Sends messages of delay queues on when they are due: Tidegate with Kafka's C client.",
    further=(FORWARDER_PACKAGE,),
)


def may_lack(further: Sequence[str]) -> set[str]:
    """The packages without which an image is whole that has these `further` ones."""
    return {*ROLLUP_PACKAGES, FORWARDER_PACKAGE} - set(further)


@dataclass(frozen=True)
class BuiltImage:
    """An image in out/image/.

    `archive` is for `docker load`, `ctr images import` or `kind load image-archive`. `name` is
    `tidegate:<version>`; `digest` the image ID, `sha256:...`.
    """

    archive: Path
    name: str
    digest: str
    layers: Sequence[Layer]
    edition: Edition = OPERATOR


def config(revision: str = "", *, edition: Edition = OPERATOR) -> ImageConfig:
    """How the image runs: `tidegate` as a user who is not root.

    `revision` is what `tidegate version` will say it was built from.
    """
    known = {"org.opencontainers.image.revision": revision} if revision else {}
    return ImageConfig(
        entrypoint=(edition.entrypoint,),
        environment={
            **edition.environment,
            **({"TIDEGATE_REVISION": revision} if revision else {}),
        },
        user=f"{packages.USER_ID}:{packages.USER_ID}",
        labels={
            "org.opencontainers.image.title": "Tidegate",
            "org.opencontainers.image.description": edition.description,
            "org.opencontainers.image.licenses": "Apache-2.0",
            "org.opencontainers.image.version": packages.version(),
            **known,
        },
    )


def build(revision: str = "", *, edition: Edition = OPERATOR) -> BuiltImage:
    """Build the image for this machine's processor, rebuilding only layers that changed.

    Raises `LabError`. The archive is written each time: kept in the cache, every change of our code
    would leave another 100 MB there. Who reads an older one meanwhile goes on reading that.
    """
    parts = edition.layers(MACHINE)
    name = f"{edition.repository}:{packages.version()}"
    OUT.mkdir(parents=True, exist_ok=True)
    archive = OUT / f"{name.replace(':', '-')}.tar"
    being_written = archive.with_suffix(f".{os.getpid()}.part")
    try:
        digest = write_archive(
            being_written, name, [layer.tar for layer in parts], config(revision, edition=edition)
        )
        being_written.replace(archive)
    finally:
        being_written.unlink(missing_ok=True)
    return BuiltImage(archive, name, digest, parts, edition)


def reproducible_digest(image: BuiltImage) -> str:
    """The image's digest, where two builds of it have the same.

    Otherwise one over the layers that are the same each time. Java 17 writes the same classes into
    an archive in another order each time.
    """
    if image.edition is not ROLLUP:
        return image.digest
    same = "".join(layer.digest for layer in image.layers if layer.name != "classes")
    return f"sha256:{hashlib.sha256(same.encode()).hexdigest()}"
