"""Container images as files: layers out of directories, and the docker-archive that holds them.

`docker load`, `podman load`, `ctr images import` and `kind load image-archive` all read what is
written here. The same content gives the same bytes, no matter who writes it, where and when:
nothing of the clock, the owner or the umask of the machine gets in. What goes into an image is
decided elsewhere; no engine and no registry is spoken to.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import stat
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_EPOCH = "1970-01-01T00:00:00Z"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_READ_BYTES = 1 << 20


@dataclass(frozen=True)
class ImageConfig:
    """What an engine has to know to run an image.

    `user` is `UID` or `UID:GID`, empty for root. A PATH is set where none is given.
    """

    entrypoint: tuple[str, ...]
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    working_directory: str = "/"
    labels: Mapping[str, str] = field(default_factory=dict)
    stop_signal: str = ""


def write_layer(tree: Path, out: Path) -> None:
    """Write what lies in `tree`, as it will lie under `/`, to the uncompressed tar file `out`.

    Everything belongs to root and dates from 1970. Directories are 0755 (a sticky one 1777), files
    0755 when their owner may run them and 0644 otherwise; setuid and setgid bits of files stay.
    Links stay links. A hard link becomes a file; devices, sockets and pipes are left out, since
    engines make their own.
    """
    with tarfile.open(out, "w", format=tarfile.PAX_FORMAT, encoding="utf-8") as tar:
        for path in _sorted_paths(tree):
            entry = _entry(path, path.relative_to(tree).as_posix())
            if entry is None:
                continue
            if not entry.isreg():
                tar.addfile(entry)
                continue
            with path.open("rb") as content:
                tar.addfile(entry, content)


def write_archive(out: Path, name: str, layers: Sequence[Path], config: ImageConfig) -> str:
    """Write an image to the docker-archive `out`.

    `name` is `repository:tag`. `layers`, the lowest first, are files that `write_layer` made.
    Returns the digest of the image's configuration, `sha256:...`: the image ID that engines show,
    which changes with any byte of any layer.
    """
    digests = [sha256(layer) for layer in layers]
    described = canonical(configuration(config, digests))
    image_id = hashlib.sha256(described).hexdigest()
    manifest = [
        {
            "Config": f"{image_id}.json",
            "RepoTags": [name],
            "Layers": [f"{digest}/layer.tar" for digest in digests],
        }
    ]
    with tarfile.open(out, "w", format=tarfile.PAX_FORMAT, encoding="utf-8") as tar:
        _add_bytes(tar, f"{image_id}.json", described)
        for digest, layer in dict(zip(digests, layers, strict=True)).items():
            entry = _root_owned(tarfile.TarInfo(f"{digest}/layer.tar"), mode=0o644)
            entry.size = layer.stat().st_size
            with layer.open("rb") as content:
                tar.addfile(entry, content)
        _add_bytes(tar, "manifest.json", canonical(manifest))
    return f"sha256:{image_id}"


def sha256(path: Path) -> str:
    """The SHA-256 of a file's content in hex; of a layer, what its `diff_id` is made of."""
    digest = hashlib.sha256()
    with path.open("rb") as content:
        while block := content.read(_READ_BYTES):
            digest.update(block)
    return digest.hexdigest()


def architecture(machine: str | None = None) -> str:
    """The image's word for a processor as `uname -m` names it, by default this machine's.

    Unknown ones are handed on as they are.
    """
    machine = machine or platform.machine()
    return _ARCHITECTURES.get(machine, machine)


def _sorted_paths(tree: Path) -> Iterator[Path]:
    """Everything below `tree`, a directory before what is in it; links are not followed.

    The order is by name: no file system has a say in it.
    """
    for entry in sorted(os.scandir(tree), key=lambda found: os.fsencode(found.name)):
        yield Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            yield from _sorted_paths(Path(entry.path))


def _entry(path: Path, name: str) -> tarfile.TarInfo | None:
    status = path.lstat()
    entry = tarfile.TarInfo(name)
    if stat.S_ISLNK(status.st_mode):
        entry.type, entry.linkname = tarfile.SYMTYPE, os.readlink(path)
        return _root_owned(entry, mode=0o777)
    if stat.S_ISDIR(status.st_mode):
        entry.type = tarfile.DIRTYPE
        return _root_owned(entry, mode=0o1777 if status.st_mode & stat.S_ISVTX else 0o755)
    if stat.S_ISREG(status.st_mode):
        entry.size = status.st_size
        special = status.st_mode & (stat.S_ISUID | stat.S_ISGID)
        return _root_owned(
            entry, mode=special | (0o755 if status.st_mode & stat.S_IXUSR else 0o644)
        )
    return None


def _root_owned(entry: tarfile.TarInfo, *, mode: int) -> tarfile.TarInfo:
    """Set the mode: TarInfo begins with root's ids and a time of 0, which is what is wanted."""
    entry.mode = mode
    return entry


def configuration(
    config: ImageConfig, digests: Sequence[str], *, machine: str | None = None
) -> dict[str, object]:
    """The image's configuration as the OCI image specification names its fields.

    `digests` are those of the layers, uncompressed; `machine` is the processor that the image is
    for as `uname -m` names it, by default this machine's.
    """
    run: dict[str, object] = {
        "Env": [
            f"{name}={value}"
            for name, value in sorted({"PATH": _PATH, **config.environment}.items())
        ],
        "WorkingDir": config.working_directory,
        "Entrypoint": list(config.entrypoint),
        "Labels": dict(config.labels),
    }
    optional = {"Cmd": list(config.command), "User": config.user, "StopSignal": config.stop_signal}
    return {
        "architecture": architecture(machine),
        "os": "linux",
        "created": _EPOCH,
        "config": run | {key: value for key, value in optional.items() if value},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
        "history": [{"created": _EPOCH, "created_by": "tidegate image"} for _ in digests],
    }


def canonical(document: object) -> bytes:
    """JSON with one spelling: the same document has the same bytes, and so the same digest."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _add_bytes(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = _root_owned(tarfile.TarInfo(name), mode=0o644)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))
