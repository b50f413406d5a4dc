"""A Debian root file system as a tar file, out of the machine's own package mirror: what a container that runs systemd is made of.

Only what is essential and what is asked for gets in, without manuals and without kernel settings, and no trace of which mirror it came
from. Made by mmdebstrap, unpacked from its package; needs root, because packages are configured in the new root.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path

from lab import cache, process
from lab.command import output_of
from lab.errors import LabError
from lab.packages import unpacked
from lab.progress import say

_BUILD_TIMEOUT_SECONDS = 900.0
_TOOLS = ("mmdebstrap", "debian-archive-keyring")
_LIST_TARGETS = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages"]
# A container shares its machine's kernel: what a package would set there at boot is none of its business.
_LEFT_OUT = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/info/*", "/usr/lib/sysctl.d/*")
_FORGET_MIRROR = 'rm -rf "$1"/etc/apt/sources.list "$1"/etc/apt/sources.list.d/* "$1"/var/log/*'


def debian_root(name: str, packages: Sequence[str], *, without: Sequence[str]) -> Path:
    """The tar file of a root with these packages and what they depend on, less the files that match the globs `without`.

    From the cache, under `name`, or built into it with the release that this machine runs: about a minute and 80 MB of downloads.
    """
    codename = codename_of(Path("/etc/os-release").read_text())
    key_parts = [codename, platform.machine(), *_LEFT_OUT, _FORGET_MIRROR, "with", *packages, "without", *without]
    return cache.entry(name, key_parts, build=lambda content: _build(content, codename, packages=packages, without=without)) / "root.tar"


def codename_of(os_release: str) -> str:
    """The word for the release, "bookworm", in the text of /etc/os-release; `LabError` where it has none."""
    settings = dict(line.split("=", 1) for line in os_release.splitlines() if "=" in line)
    try:
        return settings["VERSION_CODENAME"].strip("\"'")
    except KeyError:
        raise LabError("This is no Debian: /etc/os-release names no VERSION_CODENAME, so no root file system can be made.") from None


def sources_of(listed_targets: str, codename: str) -> list[str]:
    """URI, suite and component, a line for each of the release's own suites among `apt-get indextargets`; others' repositories are not."""
    suites = {codename, f"{codename}-updates", f"{codename}-security"}
    lines = dict.fromkeys(listed_targets.splitlines())  # once each, in their order
    return [line for line in lines if line.split()[1] in suites and line.split()[2] == "main"]


def _build(content: Path, codename: str, *, packages: Sequence[str], without: Sequence[str]) -> None:
    say("debian", f"making a {codename} root file system; about a minute")
    work = content.parent / "work"
    work.mkdir()
    tools = unpacked(_TOOLS)
    keyring = tools / "usr/share/keyrings/debian-archive-keyring.gpg"
    mirrors = [f"deb [signed-by={keyring}] {source}" for source in sources_of(output_of(_LIST_TARGETS, timeout_seconds=60.0), codename)]
    if not mirrors:
        raise LabError(f"apt-get knows no source of {codename} main. Add Debian's own to /etc/apt/sources.list.d and run apt-get update.")
    remove = f'cd "$1" && rm -f {" ".join(without)}'
    command = [
        str(tools / "usr/bin/mmdebstrap"),
        "--mode=root",
        "--variant=essential",
        f"--include={','.join(packages)}",
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT),
        f"--customize-hook={remove}",
        f"--customize-hook={_FORGET_MIRROR}",
        "--format=tar",
        codename,
        str(content / "root.tar"),
        *mirrors,
    ]
    environment = {"PATH": os.pathsep.join([str(tools / "usr/bin"), os.environ["PATH"]]), "TMPDIR": str(work)}
    with process.start("mmdebstrap", command, log_path=work / "mmdebstrap.log", environment=environment) as making:
        making.expect_success(_BUILD_TIMEOUT_SECONDS)
