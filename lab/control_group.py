"""A control group for everything that a node of the lab starts, containers too: what is found in it is the lab's, and nothing else is.

Made here; emptied and removed by `node_remains`, which must run without the rest of the lab.
"""

from __future__ import annotations

from pathlib import Path

from lab.kubernetes import node_remains

_ROOT = Path("/sys/fs/cgroup")
_ENGINE = "engine"


def make(cgroup: str) -> None:
    """In each hierarchy of version 1, or once with version 2, where the group below it may then limit what it runs.

    The engine has a group below: with version 2, a group that holds processes can have no groups below it that are limited.
    """
    unified = (_ROOT / "cgroup.controllers").exists()
    hierarchies = [_ROOT] if unified else [path for path in sorted(_ROOT.iterdir()) if (path / "cgroup.procs").exists()]
    for hierarchy in hierarchies:
        (hierarchy / cgroup / _ENGINE).mkdir(parents=True)
        _inherit_processors(hierarchy, cgroup)
    if unified:
        controllers = (_ROOT / cgroup / "cgroup.controllers").read_text().split()
        (_ROOT / cgroup / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in controllers))


def joined(cgroup: str, argv: list[str]) -> list[str]:
    """The command that runs `argv` in the engine's group; what it starts is there too."""
    join = " ".join(f"echo $$ > {place}/{_ENGINE}/cgroup.procs;" for place in node_remains.places(cgroup))
    return ["sh", "-c", f'{join} exec "$0" "$@"', *argv]


def _inherit_processors(hierarchy: Path, cgroup: str) -> None:
    """A new group of version 1's cpuset allows no processor and no memory until it is told which."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        if (hierarchy / name).exists() and not (hierarchy / "cgroup.controllers").exists():
            allowed = (hierarchy / name).read_text()
            for group in (hierarchy / cgroup, hierarchy / cgroup / _ENGINE):
                (group / name).write_text(allowed)
