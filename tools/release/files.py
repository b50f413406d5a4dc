"""The files of a release: chart, plain manifests, wheel and source archive, bills, checksums.

Each is made from the tree and from the digests of images; none is fetched from a registry. Two runs
on the same tree, with the same Debian, write the same bytes, except for signatures.
"""

import gzip
import hashlib
import io
import re
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from image import packages
from image.layers import BuiltImage, Edition, Layer, config
from lab.errors import LabError
from lab.image_archive import architecture, canonical, configuration, sha256
from lab.kubernetes.tools import Helm
from tools import kustomize_base
from tools.release.oci import PlatformImage

CHART = packages.ROOT / "charts" / "tidegate"
SUMS = "SHA256SUMS"
_UNDATED = 0  # seconds since 1970: what reproducible archives have instead of a time


# The chart of a release names the images of that release, by digest: a chart that was checked
# installs what was checked with it.


def released_values(values: str, *, repository: str, digest: str, others: Mapping[str, str]) -> str:
    """The chart's values.yaml with the released images in it, comments and all.

    `repository` and `digest` are the operator's; `others` are names with digests of the images
    that other sections name. Raises `LabError` when the values lack the places they used to have.
    """
    changes = {
        r"^(image:\n(?:  .*\n)*?  repository: )tidegate$": repository,
        r'^(image:\n(?:  .*\n)*?  digest: )""$': digest,
        **{
            rf'^({section}:\n(?:  .*\n)*?  image: )""$': pinned
            for section, pinned in others.items()
        },
    }
    for pattern, value in changes.items():
        values, found = re.subn(pattern, rf"\g<1>{value}", values, flags=re.MULTILINE)
        if found != 1:
            raise LabError(
                f"charts/tidegate/values.yaml has {found} places like {pattern} and not one, so "
                f"the chart cannot name its images. tools/release/files.py looks for it."
            )
    return values


def released_description(text: str, images: Mapping[str, str]) -> str:
    """Chart.yaml, with the names with digests of `images` instead of their names with tags in the
    list that indexes of charts show.
    """
    for name, pinned in images.items():
        text = re.sub(rf"^(      image: ){name}:\S+$", rf"\g<1>{pinned}", text, flags=re.MULTILINE)
    return text


def write_chart(
    helm: Helm, out: Path, *, work: Path, changed: Mapping[str, str], version: str
) -> Path:
    """Package the chart with its `changed` files; the archive, `tidegate-VERSION.tgz`, in `out`.

    It has no times in it, so that the same chart has the same digest. Raises `LabError`.
    """
    copy = work / "tidegate"
    shutil.copytree(CHART, copy)  # makes `work` where it is not there
    for name, text in changed.items():
        (copy / name).write_text(text)
    helm.run("package", str(copy), "--destination", str(work))
    packed = work / f"tidegate-{version}.tgz"
    if not packed.exists():
        raise LabError(
            f"helm did not make {packed.name}: does charts/tidegate/Chart.yaml have version "
            f"{version}?"
        )
    archive = out / packed.name
    archive.write_bytes(_without_times(packed))
    return archive


def chart_description() -> dict[str, Any]:
    """The content of Chart.yaml."""
    found: dict[str, Any] = yaml.safe_load((CHART / "Chart.yaml").read_text())
    return found


def _without_times(packed: Path) -> bytes:
    with tarfile.open(packed) as old:
        return archive_of(
            (member, content.read() if (content := old.extractfile(member)) else b"")
            for member in old.getmembers()
        )


def archive_of(content: Iterable[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    """A tar.gz by name, without times and owners, so that the same content has the same digest."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as new:
        for member, data in sorted(content, key=lambda one: one[0].name):
            bare = tarfile.TarInfo(member.name)
            bare.size, bare.mode, bare.type = len(data), member.mode, member.type
            new.addfile(bare, io.BytesIO(data))
    return gzip.compress(plain.getvalue(), mtime=_UNDATED)


_HEAD = """\
# Tidegate {version}, for clusters without Helm: namespace, custom resource definitions, operator.
#   kubectl apply --server-side -f install.yaml
# Made by Helm from the released chart with its own values. For another namespace, other values or
# rollup Jobs, take the chart, or deploy/kustomize of the repository. Deleting the definitions
# deletes every policy, tier and override with them.
"""
_FIRST = ("Namespace", "CustomResourceDefinition")


def install_manifest(helm: Helm, chart: str, *options: str, version: str) -> str:
    """Every object of the released chart with its own values, in an order that can be applied.

    `chart` is an archive, or `oci://` and its name with `options` that choose it. Raises
    `LabError`.
    """
    # the note that keeps definitions at an uninstall is for Helm alone
    plain = ["--namespace", kustomize_base.NAMESPACE, "--no-hooks", "--set", "crds.keep=false"]
    return in_order(helm.run("template", "tidegate", chart, *plain, *options), version=version)


def in_order(rendered: str, *, version: str) -> str:
    """What Helm rendered as one file: first what others need, nothing that only Helm reads."""
    kinds = {kustomize_base.NAMESPACE_OBJECT.strip("\n"): "Namespace"}
    for text in re.split(r"^---\n", rendered, flags=re.MULTILINE):
        if document := yaml.safe_load(text):
            kinds[text.strip("\n")] = str(document["kind"])
    first = [text for kind in _FIRST for text, found in kinds.items() if found == kind]
    then = [text for text, kind in kinds.items() if kind not in _FIRST]
    joined = "".join(f"---\n{text}\n" for text in [*first, *then])
    return _HEAD.format(version=version) + kustomize_base.without_helms(joined)


PlatformLayers = tuple[Sequence[Layer], PlatformImage]


def platform_image(edition: Edition, machine: str, *, revision: str) -> PlatformLayers:
    """The edition's image for a processor as `uname -m` names it; layers are made where need be.

    `revision` is the commit that it says it was built from. Raises `LabError`.
    """
    layers = edition.layers(machine)
    described = config(revision, edition=edition)
    return layers, PlatformImage(machine, [(one.tar, one.digest) for one in layers], described)


def write_bills(out: Path, edition: Edition, images: Iterable[PlatformLayers]) -> list[Path]:
    """A CycloneDX bill of materials for each processor. Raises `LabError`."""
    from image.bill import write_bill  # developers' packages, which publishing does without

    bills = []
    for layers, image in images:
        digests = [digest for _, digest in image.layers]
        described = canonical(configuration(image.config, digests, machine=image.machine))
        image_id = f"sha256:{hashlib.sha256(described).hexdigest()}"
        name = f"{edition.repository}:{packages.version()}"
        bill = out / f"{name.replace(':', '-')}-linux-{architecture(image.machine)}.cdx.json"
        write_bill(BuiltImage(bill, name, image_id, layers, edition), bill)
        bills.append(bill)
    return bills


def checksums(files: Iterable[Path]) -> str:
    """A line for each file, by name."""
    return "".join(f"{sha256(path)}  {path.name}\n" for path in sorted(files))


def digests(root: Path, folders: Iterable[Path]) -> str:
    """A line for each file in `folders`, at any depth, by its path below `root`."""
    found = (path for folder in folders for path in folder.rglob("*") if path.is_file())
    return "".join(f"{sha256(path)}  {path.relative_to(root)}\n" for path in sorted(found))


def wrong_files(sums: str, folder: Path) -> Iterator[str]:
    """What is not as `sums` says: files that differ, are missing, or are in no line.

    SHA256SUMS and its signature need no line.
    """
    listed = {}
    for line in sums.splitlines():
        digest, _, name = line.partition("  ")
        listed[name] = digest
    there = {path.name for path in folder.iterdir() if path.is_file()}
    for name, digest in listed.items():
        if name not in there:
            yield f"{name} is missing"
        elif sha256(folder / name) != digest:
            yield f"{name} has another SHA-256"
    for name in sorted(there - set(listed) - {SUMS, f"{SUMS}.sig"}):
        yield f"{name} has no line"
