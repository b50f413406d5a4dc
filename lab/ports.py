"""Free TCP ports that stay free: claimed against other labs on this machine, below the range the kernel hands to clients.

A port of the kernel's ephemeral range can be taken by any outgoing connection while a killed broker is down, and the broker could not
come back. Claims are byte locks in one file, so they end with the process that made them, however it ends.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import threading
from pathlib import Path

from lab import cache
from lab.errors import LabError

_LOWEST, _HIGHEST = 20000, 32000
_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")

_lock = threading.Lock()
_claimed: set[int] = set()
_claims_file: list[int] = []


def free_port(host: str = "127.0.0.1") -> int:
    """A port on `host` that nothing listens on and no other lab has claimed; ours until this process ends.

    Raises `LabError` when none of the range is left, which means hundreds of forgotten labs.
    """
    with _lock:
        for port in random.sample(_candidates(), k=len(_candidates())):
            if port not in _claimed and _is_unused(host, port) and _claim(port):
                _claimed.add(port)
                return port
    raise LabError(f"No free port between {_LOWEST} and {_HIGHEST} on {host}. `python -m lab status` lists the labs that run.")


def _candidates() -> range:
    try:
        ephemeral_start = int(_EPHEMERAL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        ephemeral_start = _HIGHEST
    return range(_LOWEST, min(_HIGHEST, ephemeral_start)) or range(_LOWEST, _HIGHEST)


def _is_unused(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _claim(port: int) -> bool:
    if not _claims_file:
        cache.root().mkdir(parents=True, exist_ok=True)
        _claims_file.append(os.open(cache.root() / "ports.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    try:
        fcntl.lockf(_claims_file[0], fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True
