"""The container engine and network tools of a node, out of Debian packages unpacked into the cache: nothing is installed or enabled."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from lab.packages import unpacked

# Most machines have some of these already, in the same versions.
IPTABLES_LIBRARIES = (
    "libxtables12",
    "libip4tc2",
    "libip6tc2",
    "libmnl0",
    "libnftnl11",
    "libnfnetlink0",
    "libnetfilter-conntrack3",
)
_PACKAGES = ("containerd", "runc", "containernetworking-plugins", "iptables", "conntrack", "libseccomp2", *IPTABLES_LIBRARIES)
# Debian makes these links to xtables-nft-multi when the package is installed.
IPTABLES_NAMES = ("iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore")
_CAP_SYS_RESOURCE = 24


@dataclass(frozen=True)
class NodeParts:
    """`cni_plugins` is a directory; `environment` makes the programs and their libraries be found."""

    containerd: Path
    cni_plugins: Path
    environment: dict[str, str]


def node_files() -> Path:
    """The packages' files, downloaded first where the cache lacks them."""
    return unpacked(_PACKAGES)


def node_parts(links: Path) -> NodeParts:
    """The parts; `links` is a directory of the caller's for names that are links."""
    files = node_files()
    links.mkdir(parents=True, exist_ok=True)
    for name in IPTABLES_NAMES:
        (links / name).symlink_to(files / "usr/sbin/xtables-nft-multi")
    (libraries,) = (path.parent for path in files.glob("usr/lib/*/libseccomp.so.2"))
    programs = [links, files / "usr/sbin", files / "usr/bin", files / "sbin", files / "bin"]
    environment = {
        "PATH": os.pathsep.join([*map(str, programs), os.environ["PATH"]]),
        "LD_LIBRARY_PATH": str(libraries),
        "XTABLES_LIBDIR": str(libraries / "xtables"),
    }
    return NodeParts(files / "usr/bin/containerd", files / "usr/lib/cni", environment)


def lacks_sys_resource() -> bool:
    """Whether this machine may not lower a process's badness for the out-of-memory killer: many virtual machines' containers may not."""
    bounding = re.search(r"^CapBnd:\s+([0-9a-f]+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return bounding is not None and not int(bounding[1], 16) >> _CAP_SYS_RESOURCE & 1
