"""A bridge and one network namespace per machine of the lab. Needs root.

So a broker's network counters are its own.

The bridge, its gateway address and everything that is not a broker or a client (ZooKeeper,
Prometheus, the operator) stay in the namespace of the lab itself. Addresses come from
198.18.0.0/15, the range set aside for benchmarks, one /24 per lab; names carry the lab's id.
Nothing is routed beyond the bridge.
"""

import fcntl
import json
import os
import random
import shutil
import socket
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from random import SystemRandom

from lab import cache
from lab.cache import RunDirectory
from lab.errors import LabError
from lab.process import output_of, patience

# Free TCP ports that stay free: claimed against other labs on this machine, below the range the
# kernel hands to clients.
#
# A port of the kernel's ephemeral range can be taken by any outgoing connection while a killed
# broker is down, and the broker could not come back. Claims are byte locks in one file, so they end
# with the process that made them, however it ends.


_LOWEST, _HIGHEST = 20000, 32000
_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def answers(url: str) -> bool:
    """Whether a server is ready there, be it that it wants a login or knows no such page."""
    try:
        urllib.request.urlopen(url, timeout=patience(1)).close()
    except urllib.error.HTTPError as refused:
        return refused.code < HTTPStatus.INTERNAL_SERVER_ERROR
    except OSError:
        return False
    return True


_lock = threading.Lock()
_claimed: set[int] = set()
_claims_file: list[int] = []


def free_port(host: str = "127.0.0.1") -> int:
    """A port on `host` that nothing listens on and no other lab has claimed.

    It is ours until this process ends. Raises `LabError` when none of the range is left, which
    means hundreds of forgotten labs.
    """
    with _lock:
        for port in random.sample(_candidates(), k=len(_candidates())):
            if port not in _claimed and _is_unused(host, port) and _claim(port):
                _claimed.add(port)
                return port
    raise LabError(
        f"No free port between {_LOWEST} and {_HIGHEST} on {host}. `python -m lab status` lists "
        f"the labs that run."
    )


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
        _claims_file.append(
            os.open(cache.root() / "ports.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        )
    try:
        fcntl.lockf(_claims_file[0], fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


_COMMAND_TIMEOUT_SECONDS = 20
_DEVICE = "eth0"


@dataclass(frozen=True)
class Namespace:
    """One machine of the lab: its network namespace and its address on the bridge."""

    name: str
    address: str


class Network:
    """The bridge of one lab.

    The run directory takes it down, at its end or at the sweep after a crash.
    """

    def __init__(self, run: RunDirectory) -> None:
        """Make the bridge on a free /24; `LabError` without root or without `ip`."""
        refuse_without_root()
        self._run = run
        self._prefix = f"tg{run.lab_id}"
        self._bridge = f"{self._prefix}br"
        with (cache.root() / "network.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._subnet = _free_subnet()
            run.record_undo(["ip", "link", "del", self._bridge])
            _ip("link", "add", self._bridge, "type", "bridge")
            _ip("addr", "add", f"{self.gateway}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")

    @property
    def gateway(self) -> str:
        """The address of the lab itself on the bridge."""
        return f"{self._subnet}.1"

    def add(self, machine: str, host_number: int) -> Namespace:
        """A namespace for `machine` (a short word, "b1"); its address ends in `host_number`."""
        namespace = Namespace(f"{self._prefix}-{machine}", f"{self._subnet}.{host_number}")
        veth = f"{self._prefix}{machine}"
        self._run.record_undo(["ip", "netns", "del", namespace.name])
        self._run.record_undo(["ip", "link", "del", veth])
        _ip("netns", "add", namespace.name)
        _ip("link", "add", veth, "type", "veth", "peer", "name", _DEVICE, "netns", namespace.name)
        _ip("link", "set", veth, "master", self._bridge, "up")
        _ip("-n", namespace.name, "addr", "add", f"{namespace.address}/24", "dev", _DEVICE)
        _ip("-n", namespace.name, "link", "set", _DEVICE, "up")
        _ip("-n", namespace.name, "link", "set", "lo", "up")
        return namespace

    def limit_egress(self, namespace: Namespace, bytes_per_second: int) -> None:
        """Give the machine a NIC that sends no faster than this; a second call changes the rate.

        The kernel's own figure for the NIC's speed does not change, so a limit has to be declared,
        never read from it.
        """
        _ip("netns", "exec", namespace.name, *_token_bucket(_DEVICE, bytes_per_second))


def refuse_without_root() -> None:
    """Raise `LabError` where namespaces cannot be made, and say what works instead."""
    if os.geteuid() != 0:
        raise LabError(
            "Network namespaces need root. Without it, leave out --namespaces: brokers then run "
            "on loopback and traffic is read from JMX."
        )
    if shutil.which("ip") is None:
        raise LabError(
            "Network namespaces need the `ip` command. Install it: apt-get install iproute2"
        )


def _token_bucket(device: str, bytes_per_second: int) -> list[str]:
    # A bucket of 10 ms, but at least 64 KiB: one segment that the NIC splits later must fit.
    burst_bytes = max(65536, bytes_per_second // 100)
    rate = ["rate", f"{bytes_per_second * 8}bit", "burst", f"{burst_bytes}b", "latency", "50ms"]
    return ["tc", "qdisc", "replace", "dev", device, "root", "tbf", *rate]


def _free_subnet() -> str:
    """The first three numbers of a /24 that no interface of this machine uses."""
    listed = output_of(["ip", "-j", "-4", "addr"], timeout_seconds=_COMMAND_TIMEOUT_SECONDS)
    used = {
        address["local"].rpartition(".")[0]
        for link in json.loads(listed)
        for address in link["addr_info"]
    }
    free = [
        subnet
        for second in (18, 19)
        for third in range(256)
        if (subnet := f"198.{second}.{third}") not in used
    ]
    if not free:
        raise LabError(
            "All 512 networks of 198.18.0.0/15 are in use on this machine. `python -m lab "
            "status` lists the labs that run."
        )
    return SystemRandom().choice(free)


def _ip(*arguments: str) -> None:
    output_of(["ip", *arguments], timeout_seconds=_COMMAND_TIMEOUT_SECONDS)
