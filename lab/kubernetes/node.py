"""What a node of the lab is made of: its engine and network tools, its control group, CoreDNS, and
the image that holds a Pod's namespaces open. `kind` and `kind_image` put them together.
"""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from lab import cache
from lab.image_archive import ImageConfig, write_archive, write_layer
from lab.kubernetes import node_remains
from lab.kubernetes.tools import PAUSE
from lab.packages import GoModule, unpacked

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
_PACKAGES = (
    "containerd",
    "runc",
    "containernetworking-plugins",
    "iptables",
    "conntrack",
    "libseccomp2",
    *IPTABLES_LIBRARIES,
)
# Debian makes these links to xtables-nft-multi when the package is installed.
IPTABLES_NAMES = (
    "iptables",
    "iptables-save",
    "iptables-restore",
    "ip6tables",
    "ip6tables-save",
    "ip6tables-restore",
)
_CAP_SYS_RESOURCE = 24


@dataclass(frozen=True)
class NodeParts:
    """The programs of a node; `environment` makes them and their libraries be found."""

    containerd: Path
    environment: dict[str, str]


def node_parts(links: Path) -> NodeParts:
    """The parts; `links` is a directory of the caller's for names that are links."""
    files = unpacked(_PACKAGES)
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
    return NodeParts(files / "usr/bin/containerd", environment)


def lacks_sys_resource() -> bool:
    """Whether this machine may not lower a process's badness for the out-of-memory killer.

    Many virtual machines' containers may not.
    """
    bounding = re.search(
        r"^CapBnd:\s+([0-9a-f]+)$", Path("/proc/self/status").read_text(), re.MULTILINE
    )
    return bounding is not None and not int(bounding[1], 16) >> _CAP_SYS_RESOURCE & 1


# A control group for everything that a node of the lab starts, containers too: what is found in it
# is the lab's, and nothing else is.
#
# Made here; emptied and removed by `node_remains`, which must run without the rest of the lab.


_ROOT = Path("/sys/fs/cgroup")
_ENGINE_GROUP = "engine"


def make(cgroup: str) -> None:
    """Make the group: in each hierarchy of version 1, or once with version 2.

    With version 2 the group below it may limit what it runs. The engine has a group below: with
    version 2, a group that holds processes can have no groups below it that are limited.
    """
    unified = (_ROOT / "cgroup.controllers").exists()
    hierarchies = (
        [_ROOT]
        if unified
        else [path for path in sorted(_ROOT.iterdir()) if (path / "cgroup.procs").exists()]
    )
    for hierarchy in hierarchies:
        (hierarchy / cgroup / _ENGINE_GROUP).mkdir(parents=True)
        _inherit_processors(hierarchy, cgroup)
    if unified:
        controllers = (_ROOT / cgroup / "cgroup.controllers").read_text().split()
        (_ROOT / cgroup / "cgroup.subtree_control").write_text(
            " ".join(f"+{name}" for name in controllers)
        )


def joined(cgroup: str, argv: list[str]) -> list[str]:
    """The command that runs `argv` in the engine's group; what it starts is there too."""
    join = " ".join(
        f"echo $$ > {place}/{_ENGINE_GROUP}/cgroup.procs;" for place in node_remains.places(cgroup)
    )
    return ["sh", "-c", f'{join} exec "$0" "$@"', *argv]


def _inherit_processors(hierarchy: Path, cgroup: str) -> None:
    """A new group of version 1's cpuset allows no processor and no memory until it is set which."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        if (hierarchy / name).exists() and not (hierarchy / "cgroup.controllers").exists():
            allowed = (hierarchy / name).read_text()
            for group in (hierarchy / cgroup, hierarchy / cgroup / _ENGINE_GROUP):
                (group / name).write_text(allowed)


COREDNS = GoModule(
    program="coredns",
    directory=Path(__file__).parent / "coredns_binary",
    package="github.com/coredns/coredns",
    title="CoreDNS",
    takes="two to three minutes",
    packages_compiled=1300,
)


PAUSE_IMAGE = "localhost/pause:lab"


def pause_image() -> Path:
    """A docker archive of it, from the cache or built into it."""
    program = PAUSE.binary()
    return (
        cache.entry(
            "pause-image",
            [PAUSE_IMAGE, program.read_bytes()],
            build=lambda content: _build(program, content),
        )
        / "pause.tar"
    )


def _build(program: Path, content: Path) -> None:
    tree, layer = content / "tree", content / "layer.tar"
    tree.mkdir()
    shutil.copy2(program, tree / "pause")
    write_layer(tree, layer)
    write_archive(content / "pause.tar", PAUSE_IMAGE, [layer], ImageConfig(entrypoint=("/pause",)))
    shutil.rmtree(tree)
    layer.unlink()
