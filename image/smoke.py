"""Starts the image's content without an engine and without a network.

It runs as its own user, on a file system that is read-only but for /tmp. It shows that what the
operator loads is there and compiled. What it does in a cluster is the business of `make e2e`.
"""

import os
import platform
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from image import layers
from image.layers import ROLLUP, BuiltImage, Layer, may_lack
from lab.process import output_of

_TIMEOUT_SECONDS = 600.0
# mounts of a namespace of its own: they are gone with the last process in it
_ENTER = """
set -e
mount --bind "$1" "$1"
mount -o remount,bind,ro "$1"
mount -t proc proc "$1/proc"
mount --bind /dev "$1/dev"
mount -t tmpfs -o mode=1777,size=256m tmpfs "$1/tmp"
ip link set lo up
root=$1 user=$2
shift 2
exec chroot --userspec="$user" "$root" "$@"
"""
# as a platform may choose it: no file names this user, and its group is root's
_ANY_USER = "1000650000:0"
_SAMPLE = Path(__file__).parent / "spark_sample.py"
_INSIDE = Path(__file__).parent / "smoke_inside.py"
_IMPORT_ALL = Path(__file__).parent / "import_all.py"


def smoke(image: BuiltImage) -> str:
    """What was found, a line each, or why nothing was tried when this is not root.

    Raises `LabError` when it does not start.
    """
    if os.geteuid() != 0:
        return (
            "Not started: only root can give it a file system of its own. Run it as root, or "
            "see `make e2e`."
        )
    with tempfile.TemporaryDirectory(prefix="tidegate-smoke-") as folder:
        root = Path(folder)
        root.chmod(0o755)
        _unpack(image.layers, root)
        # as engines do
        (root / "etc/hosts").write_text(f"127.0.0.1 localhost {platform.node()}\n")
        started = time.monotonic()
        _inside(root, image, image.edition.entrypoint, "--help")
        help_seconds = time.monotonic() - started
        said = _inside(root, image, image.edition.entrypoint, "version")
        imports = f"{_IMPORT_ALL.read_text()}\n{_INSIDE.read_text()}"
        further = image.edition.further
        absent = ",".join(sorted(may_lack(further)))
        python = ("/usr/bin/python3", "-c", imports, "/", absent, *further)
        found = _inside(root, image, *python)
        _inside(root, image, image.edition.entrypoint, "version", user=_ANY_USER)
        worked = _spark(root, image) if image.edition is ROLLUP else ""
    return f"{said}{found}{worked}as any user: it starts\n{help_seconds:.2f} s to `tidegate --help`"


def _spark(root: Path, image: BuiltImage) -> str:
    """The same small job with the archive of classes, and as if there were none."""
    sample = ("/usr/bin/python3", "-c", _SAMPLE.read_text(), "local[2]", "/tmp")  # noqa: S108 - the image's own
    own = layers.config(edition=image.edition).user
    ways = {
        "with the archive of classes": ("", own),
        "without it": ("-Xshare:off", own),
        "as any user": ("", _ANY_USER),
    }
    said = {
        way: _inside(root, image, *sample, option, user=user)
        for way, (option, user) in ways.items()
    }
    return "".join(f"{way}: {words}" for way, words in said.items())


def _inside(root: Path, image: BuiltImage, *argv: str, user: str = "") -> str:
    config = layers.config(edition=image.edition)
    own = ["unshare", "--mount", "--propagation", "private", "--net", "--pid", "--fork"]
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **config.environment}
    return output_of(
        [*own, "sh", "-c", _ENTER, "sh", root, user or config.user, *argv],
        timeout_seconds=_TIMEOUT_SECONDS,
        environment=environment,
    )


def _unpack(layers: Sequence[Layer], root: Path) -> None:
    for layer in layers:
        with tarfile.open(layer.tar) as tar:
            tar.extractall(root, filter="fully_trusted")  # noqa: S202 - we wrote it
