"""A console of its own with `--login`, on a real API server: how much memory strangers can take, what a
server that stands still costs its probe, and where its cookie may go.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests

from lab.kubernetes.api import KubeApi
from lab.network import free_port
from lab.operator import console_command
from lab.process import freeze, patience, start, wait_until
from tests.integration.console.cluster import token_of
from tests.integration.console.test_two_viewers import READS_POLICIES, READS_TIERS

pytestmark = pytest.mark.integration

MOST_MEGABYTES = 200


@dataclass
class Served:
    port: int
    pid: int
    token: str

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def peak_megabytes(self) -> float:
        """The most memory that the process has ever had."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        (kilobytes,) = re.findall(r"VmHWM:\s+(\d+) kB", status)
        return int(kilobytes) / 1000


@pytest.fixture
def served(crds: KubeApi, namespace: str, tmp_path: Path) -> Iterator[Served]:
    """Its viewer may list policies and tiers of the namespace."""
    port = free_port()
    command = console_command(
        crds.kubeconfig, namespace, port=port, audit_file=tmp_path / "audit.jsonl"
    )
    console = start("console", [*command, "--login"], log_path=tmp_path / "console.log")
    try:
        token = token_of(crds, "viewer", namespace, [READS_POLICIES, READS_TIERS], namespace)
        made = Served(port, console.pid, token)

        def answers() -> bool:
            try:
                return requests.get(f"{made.address}/healthz", timeout=patience(10)).ok
            except requests.RequestException:
                return False

        wait_until(answers, "the console", timeout_seconds=90, processes=[console])
        yield made
    finally:
        console.kill()


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_cookie_is_for_tls_alone_where_a_known_proxy_ends_it(
    served: Served, scheme: str
) -> None:
    answer = requests.post(
        f"{served.address}/login",
        data={"token": served.token},
        headers={"X-Forwarded-Proto": scheme},
        allow_redirects=False,
        timeout=patience(60),
    )
    assert answer.status_code == 303
    words = [one.strip() for one in answer.headers["set-cookie"].split(";")]
    assert {"HttpOnly", "SameSite=strict"} <= set(words)
    assert ("Secure" in words) == (scheme == "https")


@pytest.mark.long
def test_strangers_take_no_memory(served: Served) -> None:
    """10,000 unknown paths, 10,000 unknown tokens, 100 uploads of 100 MB."""
    person = requests.Session()
    for number in range(10_000):
        assert person.get(f"{served.address}/x{number}", timeout=patience(60)).status_code == 404
    refused = {
        person.get(
            served.address,
            headers={"Authorization": f"Bearer stranger-{number}"},
            allow_redirects=False,
            timeout=patience(60),
        ).status_code
        for number in range(10_000)
    }
    assert refused <= {401, 403, 429}
    for _ in range(100):
        _upload(served, megabytes=100)
    assert served.peak_megabytes() <= MOST_MEGABYTES
    known = {"Authorization": f"Bearer {served.token}"}
    assert requests.get(served.address, headers=known, timeout=patience(60)).ok


def _upload(served: Served, *, megabytes: int) -> None:
    """Send a form of this size until it is sent, or until the console hangs up."""
    piece = b"a" * 1_000_000
    head = (
        f"POST /login HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\n"
        f"Content-Length: {megabytes * len(piece)}\r\n\r\ntoken="
    )
    with socket.create_connection(("127.0.0.1", served.port), timeout=patience(60)) as connection:
        connection.sendall(head.encode())
        try:
            for _ in range(megabytes):
                connection.sendall(piece)
        except OSError:
            return


@pytest.mark.long
def test_the_probe_is_answered_while_the_api_server_stands_still_for_75_seconds(
    served: Served, crds: KubeApi
) -> None:
    process = crds._processes["kube-apiserver"]
    known = {"Authorization": f"Bearer {served.token}"}
    assert requests.get(served.address, headers=known, timeout=patience(60)).ok
    ended, seconds = threading.Event(), list[float]()

    def ask_as(headers: dict[str, str]) -> None:
        while not ended.wait(0.5):
            requests.get(served.address, headers=headers, timeout=120)

    viewers = [
        threading.Thread(target=ask_as, args=(headers,), daemon=True)
        for headers in (known, {"Authorization": "Bearer stranger"})
    ]
    for one in viewers:
        one.start()
    freeze(process.pid)
    try:
        until = time.monotonic() + 75.0
        while time.monotonic() < until:
            begin = time.monotonic()
            assert requests.get(f"{served.address}/healthz", timeout=60).ok
            seconds.append(time.monotonic() - begin)
            ended.wait(0.1)
    finally:
        os.kill(process.pid, signal.SIGCONT)
        ended.set()
    for one in viewers:
        one.join(150)
    assert max(seconds) < patience(1.0)
