"""Images, charts and signatures as OCI layouts: directories that a registry takes as they are.

The same content has the same digest: JSON has one spelling, and gzip no time. Nothing here speaks
to a registry, runs a program, or knows a key.
"""

import base64
import hashlib
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.errors import LabError
from lab.image_archive import ImageConfig, architecture, canonical, configuration, sha256

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_HELM_CONFIG = "application/vnd.cncf.helm.config.v1+json"
_HELM_CHART = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
_COSIGN_PAYLOAD = "application/vnd.dev.cosign.simplesigning.v1+json"
_COSIGN_TYPE = "cosign container image signature"
_COSIGN_SIGNATURE = "dev.cosignproject.cosign/signature"
_REFERENCE = "org.opencontainers.image.ref.name"
_READ_BYTES = 1 << 20
_GZIP_WINDOW = 31  # zlib's word for "with a gzip header", which then has no time and no name

Descriptor = dict[str, Any]  # mediaType, digest, size, and what else the OCI specification allows


@dataclass(frozen=True)
class PlatformImage:
    """An image for one processor: `machine` as `uname -m` names it, layers the lowest first.

    Each layer is an uncompressed tar file with its SHA-256 in hex.
    """

    machine: str
    layers: Sequence[tuple[Path, str]]
    config: ImageConfig


def digest_of(content: bytes) -> str:
    """`sha256:...` of some bytes."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class Layout:
    """An OCI layout in a directory, made first where it is not there; it holds one thing."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
        (directory / "oci-layout").write_bytes(canonical({"imageLayoutVersion": "1.0.0"}))

    def add(self, content: bytes, media_type: str, **more: object) -> Descriptor:
        """Add a blob; its descriptor, with `more` in it."""
        digest = hashlib.sha256(content).hexdigest()
        self._blob(f"sha256:{digest}").write_bytes(content)
        return _descriptor(media_type, digest, len(content), more)

    def add_compressed(self, path: Path, media_type: str) -> Descriptor:
        """Add a file as a blob that is its gzip."""
        being_written = self.directory / "blobs" / f"{path.name}.part"
        squeeze, digest = zlib.compressobj(wbits=_GZIP_WINDOW), hashlib.sha256()
        with path.open("rb") as content, being_written.open("wb") as out:
            for block in _compressed(squeeze, content):
                digest.update(block)
                out.write(block)
        blob = being_written.replace(self._blob(f"sha256:{digest.hexdigest()}"))
        return _descriptor(media_type, digest.hexdigest(), blob.stat().st_size, {})

    def hold(self, held: Descriptor, tag: str) -> str:
        """Make `held` what this layout is of, by the name `tag`; its digest, `sha256:...`."""
        named = {**held, "annotations": {**held.get("annotations", {}), _REFERENCE: tag}}
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [named]}
        (self.directory / "index.json").write_bytes(canonical(index))
        return str(held["digest"])

    def held(self) -> Descriptor:
        """The descriptor of what it holds. Raises `LabError` unless it is one thing."""
        manifests = json.loads((self.directory / "index.json").read_bytes())["manifests"]
        if len(manifests) != 1:
            raise LabError(f"{self.directory} holds {len(manifests)} things and not one.")
        found: Descriptor = manifests[0]
        return found

    def read(self, descriptor: Mapping[str, Any]) -> bytes:
        """The blob that a descriptor means.

        Raises `LabError` when it is not there or is another than its digest says.
        """
        path = self._blob(str(descriptor["digest"]))
        content = path.read_bytes() if path.exists() else None
        if content is None:
            raise LabError(f"{self.directory} lacks {descriptor['digest']}.")
        if digest_of(content) != descriptor["digest"]:
            raise LabError(f"{path} is not what its name says: its bytes have another SHA-256.")
        return content

    def json(self, descriptor: Mapping[str, Any]) -> dict[str, Any]:
        """The blob that a descriptor means, which is JSON. Raises `LabError` as `read` does."""
        found: dict[str, Any] = json.loads(self.read(descriptor))
        return found

    def blobs(self) -> dict[str, int]:
        """The size in bytes of every blob by its digest, which is recomputed.

        Raises `LabError` for a blob with another content than its name says.
        """
        sizes = {}
        for path in sorted((self.directory / "blobs" / "sha256").iterdir()):
            if sha256(path) != path.name:
                raise LabError(f"{path} is not what its name says: its bytes have another SHA-256.")
            sizes[f"sha256:{path.name}"] = path.stat().st_size
        return sizes

    def _blob(self, digest: str) -> Path:
        return self.directory / "blobs" / Path(*digest.split(":"))


def _descriptor(
    media_type: str, digest: str, size_bytes: int, more: Mapping[str, object]
) -> Descriptor:
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": size_bytes, **more}


def _compressed(squeeze: Any, content: Any) -> Iterator[bytes]:
    while block := content.read(_READ_BYTES):
        yield squeeze.compress(block)
    yield squeeze.flush()


def add_image(
    layout: Layout, images: Sequence[PlatformImage], tag: str, *, annotations: Mapping[str, str]
) -> str:
    """Make `layout` an image for several processors; the digest of its index.

    A layer that two processors share is there once.
    """
    compressed: dict[str, Descriptor] = {}
    manifests = []
    for image in images:
        for path, digest in image.layers:
            if digest not in compressed:
                compressed[digest] = layout.add_compressed(path, _LAYER)
        digests = [digest for _, digest in image.layers]
        described = canonical(configuration(image.config, digests, machine=image.machine))
        manifest = _manifest(
            layout.add(described, _CONFIG), [compressed[digest] for digest in digests], annotations
        )
        platform = {"architecture": architecture(image.machine), "os": "linux"}
        manifests.append(layout.add(canonical(manifest), MANIFEST, platform=platform))
    index = {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": manifests,
        "annotations": dict(annotations),
    }
    return layout.hold(layout.add(canonical(index), INDEX), tag)


def add_chart(layout: Layout, archive: Path, chart: Mapping[str, Any]) -> str:
    """Make `layout` a Helm chart; the digest of its manifest.

    `archive` is what `helm package` made, `chart` the content of its Chart.yaml.
    """
    version = str(chart["version"])
    annotations = {
        "org.opencontainers.image.title": str(chart["name"]),
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.description": str(chart["description"]),
    }
    manifest = _manifest(
        layout.add(canonical(dict(chart)), _HELM_CONFIG),
        [layout.add(archive.read_bytes(), _HELM_CHART)],
        annotations,
    )
    return layout.hold(layout.add(canonical(manifest), MANIFEST), version)


def platforms(layout: Layout) -> dict[str, Descriptor]:
    """The manifests of an image for several processors, by processor as images name it.

    Empty for what has one manifest only.
    """
    held = layout.held()
    if held["mediaType"] != INDEX:
        return {}
    return {
        manifest["platform"]["architecture"]: manifest
        for manifest in layout.json(held)["manifests"]
    }


def manifest_layers(layout: Layout, manifest: Mapping[str, Any]) -> list[Path]:
    """The files of a manifest's layers as the registry keeps them, the lowest first."""
    return [
        layout.directory / "blobs" / Path(*layer["digest"].split(":"))
        for layer in layout.json(manifest)["layers"]
    ]


def _manifest(
    config: Descriptor, layers: Sequence[Descriptor], annotations: Mapping[str, str]
) -> dict[str, object]:
    return {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config,
        "layers": list(layers),
        **({"annotations": dict(annotations)} if annotations else {}),
    }


# Signatures as cosign keeps them: a small artifact beside what is signed, found by its digest. What
# is signed are the bytes of a statement that names the digest.


def signature_tag(digest: str) -> str:
    """The tag under which the signature of `sha256:...` is found, in the same repository."""
    return f"{digest.replace(':', '-')}.sig"


def add_signature(
    layout: Layout, digest: str, *, repository: str, sign: Callable[[bytes], bytes]
) -> None:
    """Make `layout` the signature of what has this digest in `repository`."""
    statement = canonical(
        {
            "critical": {
                "identity": {"docker-reference": repository},
                "image": {"docker-manifest-digest": digest},
                "type": _COSIGN_TYPE,
            },
            "optional": None,
        }
    )
    signature = base64.b64encode(sign(statement)).decode()
    layer = layout.add(statement, _COSIGN_PAYLOAD, annotations={_COSIGN_SIGNATURE: signature})
    config = {
        "architecture": "",
        "os": "",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    }
    manifest = _manifest(layout.add(canonical(config), _CONFIG), [layer], {})
    layout.hold(layout.add(canonical(manifest), MANIFEST), signature_tag(digest))


def signature(layout: Layout, digest: str, *, repository: str) -> tuple[bytes, bytes]:
    """The bytes that were signed and the signature, from what a registry has for `digest`.

    Raises `LabError` when the statement is about something else: a good signature of another image
    says nothing about this one.
    """
    (layer,) = layout.json(layout.held())["layers"]
    statement = layout.read(layer)
    critical = json.loads(statement)["critical"]
    named = critical["image"]["docker-manifest-digest"], critical["identity"]["docker-reference"]
    if critical["type"] != _COSIGN_TYPE or named != (digest, repository):
        raise LabError(
            f"The signature beside {repository}@{digest} is of {named[1]}@{named[0]}: it "
            f"signs another image. Do not use this one."
        )
    return statement, base64.b64decode(layer["annotations"][_COSIGN_SIGNATURE], validate=True)
