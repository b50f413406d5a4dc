"""A free port stays ours, also while nothing listens on it."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from lab import ports


@pytest.fixture(autouse=True)
def few_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_candidates", lambda: range(31900, 31904))
    monkeypatch.setattr(ports, "_claimed", set())


def test_no_port_is_given_twice() -> None:
    given = {ports.free_port() for _ in range(3)}
    assert len(given) == 3


def test_a_port_somebody_listens_on_is_not_given() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 31900))
        listener.listen()
        assert 31900 not in {ports.free_port() for _ in range(3)}


def test_another_process_does_not_get_a_port_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_candidates", lambda: range(31910, 31914))  # the claims of the other tests last as long as this process
    ours = {ports.free_port() for _ in range(3)}
    asks = "from lab import ports; ports._candidates = lambda: range(31910, 31914); print(ports.free_port())"
    theirs = subprocess.run([sys.executable, "-c", asks], capture_output=True, text=True, check=True)
    assert int(theirs.stdout) not in ours


def test_a_given_port_is_outside_what_the_kernel_hands_to_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    first_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert ports.free_port() < max(first_ephemeral, 32000)
