"""The lowest part of the image: the Debian packages that Python and our wheels load, laid out as Debian lays them out.

No package runs its install script: what those would have made, and what a program expects of a system around it, is made here by hand.
There is no shell and no package manager in it.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from image.build_tools import run
from lab import packages
from lab.errors import LabError

PACKAGES = (
    "base-files",  # os-release, by which scanners know the distribution, and the licences that copyright files refer to
    "ca-certificates",
    "gcc-12-base",  # the copyright of libgcc-s1
    "libbz2-1.0",  # the Prometheus client imports bz2
    "libc6",
    "libexpat1",
    "libffi8",
    "libgcc-s1",  # wheels written in Rust unwind with it
    "liblzma5",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
    "libssl3",
    "python3.11-minimal",
    "zlib1g",
)
USER_ID = 65532  # the number that images without a shell agree on for their only user
_MERGED = ("bin", "lib", "lib64", "sbin")
_UNPACK_TIMEOUT_SECONDS = 60.0
_USERS = f"root:x:0:0:root:/root:/usr/sbin/nologin\ntidegate:x:{USER_ID}:{USER_ID}:Tidegate:/tmp:/usr/sbin/nologin\n"
_GROUPS = f"root:x:0:\ntidegate:x:{USER_ID}:\n"
_LINKS = {
    "usr/bin/python": "python3",
    "usr/bin/python3": "python3.11",
    # where OpenSSL looks when nobody names a file; Debian's `openssl` package would have made them
    "usr/lib/ssl/cert.pem": "/etc/ssl/certs/ca-certificates.crt",
    "usr/lib/ssl/certs": "/etc/ssl/certs",
}


def lay_out(tree: Path, *, work: Path) -> None:
    """Fill the empty directory `tree`. `work` is for downloads; what is left in it is of no use afterwards. Raises `LabError`."""
    archives = packages.download(PACKAGES, work / "debian")
    for archive in archives:
        run(["dpkg", "-x", archive, tree], timeout_seconds=_UNPACK_TIMEOUT_SECONDS)
    _merge_into_usr(tree)
    tell_scanners(tree, archives)
    _bundle_certificates(tree)
    _name_users(tree)
    for name, target in _LINKS.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).symlink_to(target)


def tell_scanners(tree: Path, archives: Sequence[Path]) -> None:
    """One file for each package in var/lib/dpkg/status.d, where scanners look in images that have no package manager."""
    place = tree / "var/lib/dpkg/status.d"
    place.mkdir(parents=True)
    for archive in archives:
        control = run(["dpkg-deb", "--field", archive], timeout_seconds=_UNPACK_TIMEOUT_SECONDS)
        (place / archive.name.split("_")[0]).write_text(control)


def _merge_into_usr(tree: Path) -> None:
    """`dpkg -x` puts directories where Debian 12 has links to those under usr/; some processors have no lib64."""
    for name in _MERGED:
        if not (tree / name).is_dir():
            continue
        shutil.copytree(tree / name, tree / "usr" / name, symlinks=True, dirs_exist_ok=True)
        shutil.rmtree(tree / name)
        (tree / name).symlink_to(f"usr/{name}")


def _bundle_certificates(tree: Path) -> None:
    """The public authorities in one file, as Debian's install script would have joined them."""
    mozilla = tree / "usr/share/ca-certificates"
    certificates = sorted(mozilla.rglob("*.crt"))
    if not certificates:
        raise LabError(
            "Debian's ca-certificates holds no certificate where it used to, so the image would trust nobody. image/debian.py looks there."
        )
    bundle = tree / "etc/ssl/certs/ca-certificates.crt"
    bundle.parent.mkdir(parents=True, exist_ok=True)
    bundle.write_text("".join(certificate.read_text().rstrip("\n") + "\n" for certificate in certificates))


def _name_users(tree: Path) -> None:
    (tree / "etc/passwd").write_text(_USERS)
    (tree / "etc/group").write_text(_GROUPS)
    (tree / "etc/nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files dns\n")
