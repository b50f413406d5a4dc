"""A containerd's store that already holds images, so that a node finds them when it starts and pulls nothing.

The store is filled by containerd itself, started here with nothing but the store: no container runs, no root file system is unpacked.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab import process
from lab.command import output_of
from lab.waiting import wait_until

# What is in the images, and which images there are.
_KEPT = ("io.containerd.content.v1.content", "io.containerd.metadata.v1.bolt")
_IMPORT_TIMEOUT_SECONDS = 120.0


def preload(store: Path, archives: Sequence[Path], names: Mapping[str, Sequence[str]], *, programs: Path) -> None:
    """Fill `store`, which is made, with the docker archives, and give their images further `names` (image -> names).

    `programs` is the directory with containerd and ctr.
    """
    # The paths of sockets end at 108 characters, which a directory of the cache may exceed.
    with tempfile.TemporaryDirectory(prefix="tidegate-preload-") as scratch:
        work = Path(scratch)
        settings = work / "containerd.toml"
        settings.write_text(_settings(store, work))
        with process.start("containerd", [str(programs / "containerd"), "-c", str(settings)], log_path=work / "containerd.log") as engine:
            ctr = [str(programs / "ctr"), f"--address={work}/containerd.sock", "--namespace=k8s.io"]
            wait_until(lambda: _answers(ctr), "containerd to answer", timeout_seconds=30.0, processes=[engine])
            for archive in archives:
                imported = [*ctr, "images", "import", "--all-platforms", "--no-unpack", str(archive)]
                output_of(imported, timeout_seconds=_IMPORT_TIMEOUT_SECONDS)
            for image, further in names.items():
                for name in further:
                    output_of([*ctr, "images", "tag", image, name], timeout_seconds=_IMPORT_TIMEOUT_SECONDS)
    for path in store.iterdir():
        if path.name not in _KEPT:
            shutil.rmtree(path)


def _settings(store: Path, work: Path) -> str:
    return f"""version = 2
root = "{store}"
state = "{work}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "{work}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{work}/opt"
"""


def _answers(ctr: list[str]) -> bool:
    return subprocess.run([*ctr, "version"], capture_output=True, timeout=_IMPORT_TIMEOUT_SECONDS).returncode == 0
