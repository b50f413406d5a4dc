"""The packages of the image: Debian's, laid out as Debian does, and the locked Python packages.

No Debian package runs its install script: what those would have made, and what a program expects of
a system around it, is made here by hand. There is no shell and no package manager in it.
"""

import os
import platform
import re
import shutil
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from lab import packages
from lab.errors import LabError
from lab.process import output_of

# The Python packages of the image: exactly the locked ones that the operator runs with, and our own
# wheel.
#
# uv checks every download against the hashes in uv.lock, and what builds a wheel against those in
# build-requirements.txt.


ROOT = Path(__file__).resolve().parent.parent
# where Debian's Python looks for what Debian did not package
SITE = "usr/local/lib/python3.11/dist-packages"
BUILD_REQUIREMENTS = ROOT / "image" / "build-requirements.txt"
MACHINE = platform.machine()  # the processor here; what is made for another cannot run here
_INSTALL_TIMEOUT_SECONDS = 900.0  # PySpark is half a gigabyte, and has to be built first
_COMMAND = """\
#!/usr/bin/python3
import sys

from tidegate.cli import main

sys.exit(main())
"""


def locked_requirements(*, extra: str = "") -> str:
    """What uv.lock names for running the operator, and for `extra`, as a requirements file.

    It has versions and hashes. Raises `LabError`.
    """
    more = ("--extra", extra) if extra else ()
    return _uv(
        "export",
        "--quiet",
        "--frozen",
        "--no-default-groups",
        "--no-emit-project",
        "--no-header",
        "--no-annotate",
        *more,
    )


def extra_requirements(extra: str) -> str:
    """What uv.lock names for `extra` and not for running the operator, in the same form.

    Raises `LabError`.
    """
    common = set(_entries(locked_requirements()))
    wanted = _entries(locked_requirements(extra=extra))
    return "\n".join(entry for entry in wanted if entry not in common) + "\n"


def install_locked(
    tree: Path, requirements_text: str, *, work: Path, machine: str = MACHINE
) -> None:
    """Install what `requirements_text` names, with hashes, into the empty `tree`.

    `machine` is the processor it is for, as `uname -m` names it. Raises `LabError`.
    """
    requirements = work / "requirements.txt"
    requirements.write_text(requirements_text)
    pinned = (
        "--require-hashes",
        "--require-build-hashes",
        "--build-constraints",
        str(BUILD_REQUIREMENTS),
    )
    _install(tree, "--requirements", str(requirements), *pinned, machine=machine)


def install_own(tree: Path, *, work: Path) -> None:
    """Build our wheel and install it and the command `tidegate` into the empty `tree`.

    Raises `LabError`.
    """
    wheels = work / "wheels"
    build_distributions(wheels, "--wheel")
    # uv's cache knows a wheel by its place and version, so it could hand out the code that another
    # build left in this very place
    _install(
        tree, "--no-cache", "--no-index", "--find-links", str(wheels), f"tidegate=={version()}"
    )
    command = tree / "usr/bin/tidegate"
    command.parent.mkdir(parents=True)
    command.write_text(_COMMAND)
    command.chmod(0o755)


def build_distributions(out: Path, *which: str) -> None:
    """Build our wheel and source archive into `out`, the wheel from the archive.

    `which` is `--wheel` for a wheel alone, made of the tree. Raises `LabError`.
    """
    _uv(
        "build",
        "--quiet",
        *which,
        "--out-dir",
        str(out),
        "--require-hashes",
        "--build-constraints",
        str(BUILD_REQUIREMENTS),
    )


def version() -> str:
    """The project's version, from pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return str(project["version"])


def _entries(requirements: str) -> list[str]:
    """One text for each package: a line that names it, and indented ones with hashes."""
    return [
        entry.rstrip("\n")
        for entry in re.split(r"^(?=\S)", requirements, flags=re.MULTILINE)
        if entry
    ]


def _install(tree: Path, *what: str, machine: str = MACHINE) -> None:
    target = (
        "--python",
        sys.executable,
        "--python-version",
        "3.11",
        "--python-platform",
        f"{machine}-manylinux_2_28",
    )
    place = ("--target", str(tree / SITE), "--link-mode", "copy", "--no-compile-bytecode")
    _uv("pip", "install", "--quiet", "--no-deps", *target, *place, *what)


def _uv(*arguments: str) -> str:
    return output_of(
        [packages.uv(), "--no-progress", *arguments],
        timeout_seconds=_INSTALL_TIMEOUT_SECONDS,
        working_directory=ROOT,
        environment=_environment(),
    )


def with_uv() -> dict[str, str]:
    """This process's environment with the pinned uv first on its PATH. Raises `LabError`."""
    given = _environment()
    return given | {"PATH": os.pathsep.join([str(packages.uv().parent), given.get("PATH", "")])}


def _environment() -> dict[str, str]:
    """This process's environment, less what would choose another Python.

    That of the machine runs the builds, none is downloaded.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("VIRTUAL_ENV", "UV_PYTHON", "PYTHON"))
    }
    return kept | {"UV_PYTHON_DOWNLOADS": "never"}


PACKAGES = (
    # os-release, by which scanners know the distribution, and the licences that copyright files
    # refer to
    "base-files",
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
_USERS = (
    "root:x:0:0:root:/root:/usr/sbin/nologin\n"
    f"tidegate:x:{USER_ID}:{USER_ID}:Tidegate:/tmp:/usr/sbin/nologin\n"
)
_GROUPS = f"root:x:0:\ntidegate:x:{USER_ID}:\n"
_LINKS = {
    "usr/bin/python": "python3",
    "usr/bin/python3": "python3.11",
    # where OpenSSL looks when no file is named; Debian's `openssl` package would have made them
    "usr/lib/ssl/cert.pem": "/etc/ssl/certs/ca-certificates.crt",
    "usr/lib/ssl/certs": "/etc/ssl/certs",
}


def lay_out(tree: Path, *, work: Path, machine: str = MACHINE) -> None:
    """Fill the empty directory `tree` with what a `machine` (as `uname -m` names it) runs.

    `work` is for downloads; what is left in it is of no use afterwards. Raises `LabError`.
    """
    archives = packages.download(PACKAGES, work / "debian", machine=machine)
    for archive in archives:
        output_of(["dpkg", "-x", archive, tree], timeout_seconds=_UNPACK_TIMEOUT_SECONDS)
    _merge_into_usr(tree)
    tell_scanners(tree, archives)
    _bundle_certificates(tree)
    _name_users(tree)
    for name, target in _LINKS.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).symlink_to(target)


def tell_scanners(tree: Path, archives: Sequence[Path]) -> None:
    """Write one file for each package into var/lib/dpkg/status.d.

    Scanners look there in images that have no package manager.
    """
    place = tree / "var/lib/dpkg/status.d"
    place.mkdir(parents=True)
    for archive in archives:
        control = output_of(
            ["dpkg-deb", "--field", archive], timeout_seconds=_UNPACK_TIMEOUT_SECONDS
        )
        (place / archive.name.split("_")[0]).write_text(control)


def _merge_into_usr(tree: Path) -> None:
    """Replace directories by links to those under usr/, as in Debian 12; `dpkg -x` makes none.

    Some processors have no lib64.
    """
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
            "Debian's ca-certificates holds no certificate where it used to, so the image would "
            "trust none. image/packages.py looks there."
        )
    bundle = tree / "etc/ssl/certs/ca-certificates.crt"
    bundle.parent.mkdir(parents=True, exist_ok=True)
    bundle.write_text(
        "".join(certificate.read_text().rstrip("\n") + "\n" for certificate in certificates)
    )


def _name_users(tree: Path) -> None:
    (tree / "etc/passwd").write_text(_USERS)
    (tree / "etc/group").write_text(_GROUPS)
    (tree / "etc/nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files dns\n")
