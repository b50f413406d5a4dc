"""Takes away whatever a node of the lab left: `node_remains.py CGROUP DIRECTORY`.

It ends what runs in the control group, unmounts what is below the directory, and removes the group.

A container outlives the engine that started it, on purpose; so neither the end of a process nor the
death of its parent shows that it is gone. Everything of a node runs in one control group of its
own, and nothing else does: what is found there is the lab's and is ended. It runs by itself too,
after a crash, so it needs the standard library alone.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_DEADLINE_SECONDS = 15.0
_POLL_SECONDS = 0.05


def clear(cgroup: str, directory: Path) -> None:
    """End every process of the control group, unmount everything below the directory.

    The group is removed, too. Nothing there is no error.
    """
    _end_processes(cgroup)
    for mount_point in _mounted_below(directory):
        subprocess.run(
            ["umount", "--lazy", mount_point],
            check=False,
            capture_output=True,
            timeout=_DEADLINE_SECONDS,
        )
    for place in places(cgroup):
        for path in sorted((path for path in place.rglob("*") if path.is_dir()), reverse=True):
            _remove(path)
        _remove(place)


def places(cgroup: str) -> list[Path]:
    """Where the group stands: once with control groups of version 2, in each hierarchy with 1."""
    return [path for path in (_ROOT / cgroup, *sorted(_ROOT.glob(f"*/{cgroup}"))) if path.is_dir()]


def _end_processes(cgroup: str) -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while (pids := set(_pids(cgroup))) and time.monotonic() < deadline:
        for pid in pids:
            _kill(pid)
        time.sleep(_POLL_SECONDS)


def _pids(cgroup: str) -> Iterator[int]:
    for place in places(cgroup):
        for listing in [place / "cgroup.procs", *place.rglob("cgroup.procs")]:
            try:
                yield from (int(line) for line in listing.read_text().split())
            except OSError:  # the group went away meanwhile
                continue


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _mounted_below(directory: Path) -> list[str]:
    """Mount points below it, the innermost first."""
    mounted = (line.split()[1] for line in Path("/proc/mounts").read_text().splitlines())
    return sorted((place for place in mounted if place.startswith(f"{directory}/")), reverse=True)


def _remove(group: Path) -> None:
    try:
        group.rmdir()
    except OSError:  # something of it still ends; an empty group costs nothing
        return


if __name__ == "__main__":
    clear(sys.argv[1], Path(sys.argv[2]))
