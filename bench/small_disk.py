"""A disk of a few megabytes that can be filled to its last byte and emptied again: a tmpfs, which only root may mount."""

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Self

from lab.cache import RunDirectory

_MEGABYTES = 64
_PIECE_BYTES = 65_536


def can_mount() -> bool:
    """Whether this user may make one."""
    return os.geteuid() == 0 and shutil.which("mount") is not None


class SmallDisk:
    """Mounted while it is entered, at `path`."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self.path = run.path / "disk"

    def __enter__(self) -> Self:
        self.path.mkdir()
        self._run.record_undo(["umount", "--lazy", str(self.path)])
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_MEGABYTES}m", "tmpfs", str(self.path)], check=True)
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "--lazy", str(self.path)], check=False)

    def fill(self) -> None:
        """Leave not a byte to others."""
        with self._ballast.open("wb", buffering=0) as ballast, suppress(OSError):
            while True:
                ballast.write(bytes(_PIECE_BYTES))

    def free(self) -> None:
        """Give back what `fill` took."""
        self._ballast.unlink(missing_ok=True)

    @property
    def _ballast(self) -> Path:
        return self.path / "ballast"
