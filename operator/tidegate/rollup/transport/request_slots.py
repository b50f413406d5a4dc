"""How many requests to one server are under way at once, over all processes of this machine: Spark's workers know nothing of each other.

A slot is a file that is locked while a request runs; the kernel unlocks it when a worker dies. Executors on other machines have slots of
their own, so what a server takes is to be divided among them.
"""

import fcntl
import hashlib
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_LONGEST_PAUSE_SECONDS = 0.05


class NoSlot(Exception):
    """All slots stayed taken until the deadline."""


class RequestSlots:
    """`count` slots for the server with this address. Any thread or process may take one."""

    def __init__(self, address: str, count: int, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        name = hashlib.sha256(address.encode()).hexdigest()[:16]
        self._paths = [_directory() / f"{name}-{index}" for index in range(count)]
        self._monotonic = monotonic

    @contextmanager
    def taken(self, *, until_monotonic_seconds: float) -> Iterator[None]:
        """Hold one slot; raises NoSlot when none gets free in time, OSError when the folder for temporary files cannot be used."""
        slot = self._take(until_monotonic_seconds)
        try:
            yield
        finally:
            os.close(slot)

    def _take(self, until: float) -> int:
        while True:
            for path in random.sample(self._paths, len(self._paths)):
                if (slot := _lock(path)) is not None:
                    return slot
            if self._monotonic() >= until:
                raise NoSlot
            time.sleep(random.uniform(0.2, 1.0) * _LONGEST_PAUSE_SECONDS)  # noqa: S311 - so that those who wait do not wake in step


def _lock(path: Path) -> int | None:
    """The file, opened and locked; None when somebody else has it locked."""
    slot = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(slot)
        return None
    return slot


def _directory() -> Path:
    """A folder of this user's own, so that nobody else can lock or redirect our slots."""
    path = Path(tempfile.gettempdir()) / f"tidegate-requests-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    if path.is_symlink() or path.stat().st_uid != os.getuid():
        raise PermissionError(f"{path} belongs to somebody else")
    return path
