"""A free port stays ours, also while nothing listens on it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import network

# Below the labs' range and on an address of this process: other tests take ports meanwhile.
PORTS = range(19900, 19904)
HOST = f"127.31.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"


@pytest.fixture(autouse=True)
def few_ports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(network, "_candidates", lambda: PORTS)
    monkeypatch.setattr(network, "_claimed", set())
    # of this test alone, whichever list is in place when it ends
    claims_files: list[int] = []
    monkeypatch.setattr(network, "_claims_file", claims_files)
    yield
    for claims in claims_files:
        os.close(claims)


def test_no_port_is_given_twice() -> None:
    given = {network.free_port(HOST) for _ in range(3)}
    assert len(given) == 3


def test_a_port_somebody_listens_on_is_not_given() -> None:
    with socket.socket() as listener:
        listener.bind((HOST, PORTS[0]))
        listener.listen()
        assert PORTS[0] not in {network.free_port(HOST) for _ in range(3)}


def test_another_process_does_not_get_a_port_of_ours() -> None:
    ours = {network.free_port(HOST) for _ in range(3)}
    asks = (
        f"from lab import network; network._candidates = lambda: {PORTS}; "
        f"print(network.free_port({HOST!r}))"
    )
    theirs = subprocess.run(
        [sys.executable, "-c", asks], capture_output=True, text=True, check=True
    )
    assert int(theirs.stdout) not in ours


def test_a_given_port_is_outside_what_the_kernel_hands_to_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    first_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert network.free_port() < max(first_ephemeral, 32000)
