"""The image's layers, each kept in the cache by everything that it is made from.

A new version of ours makes one small layer anew, a new lock two, a new Debian package all: modules are compiled by Debian's Python. What
rollups need lies between the packages and our own code, so that nodes share what is below, and a new version stays small for them, too.
"""

from __future__ import annotations

import json
import platform
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from image import java, packages, rootfs, spark_classes, spark_packages, wheels
from image.cuts import Saving
from image.spark_start import JAVA_HOME, SPARK_HOME
from lab import cache
from lab import packages as debian_packages
from lab.image_archive import sha256, write_layer

_TAR, _TREE, _FACTS = "layer.tar", "tree", "layer.json"
_READ_BYTES = 1 << 20
_GZIP_WINDOW = 31  # zlib's word for "with a gzip header"
_RECIPES = Path(__file__).resolve().parent
_AFTERWARDS = (
    "__init__",
    "__main__",
    "bill",
    "jars",
    "layers",
    "product",
    "sizes",
    "smoke",
    "smoke_inside",
    "twice",
)  # layers are made by then
_ROLLUPS = ("java", "spark_classes", "spark_packages", "spark_sample", "spark_start")  # no layer of the operator has them
_SOURCES = ("controller_logic", "operator/tidegate", "pyproject.toml", "README.md", "LICENSE")

# makes a part in an empty directory, with another for what it needs meanwhile
Make = Callable[[Path, Path], list[Saving]]


@dataclass(frozen=True)
class Layer:
    """One layer: its uncompressed tar file and that file's SHA-256 in hex.

    `compressed_bytes` is what a registry keeps and a node pulls (gzip), `content_bytes` what it takes on the node's disk.
    """

    name: str
    tar: Path
    digest: str
    content_bytes: int
    compressed_bytes: int
    savings: tuple[Saving, ...]


def layers() -> list[Layer]:
    """Base, packages and our own, the lowest first; what the cache does not hold is made first. Raises `LabError`."""
    base = _base()
    return [base, _packages(base), _own(base)]


def rollup_layers() -> list[Layer]:
    """The operator's, and between packages and our own: Java, Spark, and the archive of its classes. Raises `LabError`."""
    base = _base()
    packages = _packages(base)
    java = _layer("java", _java_parts(), make=lambda tree, work: java.make_java(tree, work=work))
    python = _tree(base)
    spark = _layer(
        "spark",
        [base.digest, wheels.rollup_requirements(), SPARK_HOME, *_recipes("spark_packages")],
        make=lambda tree, work: spark_packages.make_spark(tree, work=work, base=python),
    )
    classes = _layer(
        "classes",
        [packages.digest, java.digest, spark.digest, *_recipes(*_ROLLUPS)],
        make=lambda tree, work: spark_classes.make_classes(
            tree, work=work, **{layer.name: _unpacked(layer, work / layer.name) for layer in (packages, java, spark)}
        ),
    )
    return [base, packages, java, spark, classes, _own(base)]


def _base() -> Layer:
    parts: list[str | bytes] = [*debian_packages.offered(packages.PACKAGES), platform.machine(), *_recipes()]
    return _layer("base", parts, make=lambda tree, work: rootfs.make_base(tree, work=work))


def _packages(base: Layer) -> Layer:
    parts: list[str | bytes] = [base.digest, wheels.locked_requirements(), *_recipes()]
    return _layer("packages", parts, make=lambda tree, work: rootfs.make_packages(tree, work=work, base=_tree(base)))


def _own(base: Layer) -> Layer:
    parts: list[str | bytes] = [base.digest, *_own_sources(), *_recipes()]
    return _layer("own", parts, make=lambda tree, work: rootfs.make_own(tree, work=work, base=_tree(base)))


def _java_parts() -> list[str | bytes]:
    offered = debian_packages.offered((*java.LIBRARIES, *java.TOOLS))
    return [*offered, platform.machine(), JAVA_HOME, *_recipes("java")]


def _tree(base: Layer) -> Path:
    return base.tar.parent / _TREE


def _unpacked(layer: Layer, place: Path) -> Path:
    with tarfile.open(layer.tar) as tar:
        tar.extractall(place, filter="fully_trusted")  # noqa: S202 - we wrote it
    return place


def _own_sources() -> Iterator[str | bytes]:
    for source in _SOURCES:
        top = wheels.ROOT / source
        files = [top] if top.is_file() else sorted(path for path in top.rglob("*") if path.is_file() and path.suffix != ".pyc")
        for path in files:
            yield path.relative_to(wheels.ROOT).as_posix()
            yield path.read_bytes()


def _recipes(*further: str) -> list[bytes]:
    """How it is made is part of what it is made from: the modules here that have a say in a layer's bytes, and what builds wheels."""
    others = {*_AFTERWARDS, *_ROLLUPS} - set(further)
    modules = [path for path in sorted(_RECIPES.glob("*.py")) if path.stem not in others]
    return [*(path.read_bytes() for path in modules), wheels.BUILD_REQUIREMENTS.read_bytes()]


def _layer(name: str, key_parts: Sequence[str | bytes], *, make: Make) -> Layer:
    content = cache.entry(f"image-{name}", key_parts, build=lambda content: _build(content, name, make=make))
    facts = json.loads((content / _FACTS).read_text())
    savings = tuple(Saving(**saving) for saving in facts.pop("savings"))
    return Layer(name, content / _TAR, savings=savings, **facts)


def _build(content: Path, name: str, *, make: Make) -> None:
    """Leaves the layer and its facts; of the base the tree too, since its Python compiles the others."""
    tree = (content if name == "base" else content.parent) / _TREE
    work = content.parent / "work"
    tree.mkdir()
    work.mkdir()
    savings = make(tree, work)
    write_layer(tree, content / _TAR)
    facts = {
        "digest": sha256(content / _TAR),
        "content_bytes": sum(path.lstat().st_size for path in tree.rglob("*") if path.is_file() and not path.is_symlink()),
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
