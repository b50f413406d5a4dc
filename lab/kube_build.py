"""Builds the Go binary `kube` of `lab/kube_binary` once, and finds it again in the cache.

The first build of a machine compiles most of Kubernetes (five to nine minutes on two cores), so the key covers exactly what decides the
result: the module's files, the Go version, the platform and the flags. Running the parts is the business of `kube_api`.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from lab import cache
from lab.errors import LabError
from lab.process import Process, start
from lab.progress import say

MODULE = Path(__file__).parent / "kube_binary"
KUBERNETES_VERSION = "v1.34.4"

_BUILD_TIMEOUT_SECONDS = 3600.0
_PROGRESS_SECONDS = 15.0
_VERSION_PACKAGES = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


def kube_binary() -> Path:
    """The path of `kube`, built first when the cache has none for these sources; raises `LabError` when Go is missing or fails."""
    return cache.entry("kube", _key_parts(), build=_build) / "kube"


def is_built() -> bool:
    """Whether `kube_binary` would return at once. Go has to be there even then: its version is part of the key."""
    return cache.find("kube", _key_parts()) is not None


def _key_parts() -> Iterator[str | bytes]:
    for path in [MODULE / "go.mod", MODULE / "go.sum", *sorted((MODULE / "cmd").rglob("*.go"))]:
        yield str(path.relative_to(MODULE))
        yield path.read_bytes()
    yield _go_platform()
    yield from _flags()


def _go_platform() -> str:
    try:
        answer = subprocess.run(
            ["go", "env", "GOVERSION", "GOOS", "GOARCH"], cwd=MODULE, capture_output=True, text=True, timeout=60, check=True
        )
    except FileNotFoundError:
        raise LabError("Kubernetes cannot be built: go is not on this machine. `python -m lab doctor` says what to install.") from None
    except subprocess.CalledProcessError as error:
        raise LabError(f"`go env` failed in {MODULE}, so Kubernetes cannot be built:\n{error.stderr.strip()}") from error
    return answer.stdout


def _flags() -> list[str]:
    # Unstamped, a server calls itself v0.0.0-master, and whatever compares versions misbehaves.
    major, minor, _ = KUBERNETES_VERSION.lstrip("v").split(".")
    stamp = {
        "gitVersion": KUBERNETES_VERSION,
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
    }
    stamps = [f"-X {package}.{name}={value}" for package in _VERSION_PACKAGES for name, value in stamp.items()]
    return ["-mod=readonly", "-buildvcs=false", "-trimpath", "-ldflags", " ".join(["-s", "-w", *stamps])]


def _build(content: Path) -> None:
    say("kube", f"building Kubernetes {KUBERNETES_VERSION} from the Go module proxy; five to nine minutes on two cores, only this once")
    # Two at a time: the largest packages and the link take up to 2.5 GB each.
    argv = ["go", "build", "-v", "-p", str(min(2, os.cpu_count() or 1)), *_flags(), "-o", str(content / "kube"), "./cmd/kube"]
    with tempfile.TemporaryDirectory(prefix="tidegate-kube-build-") as scratch:
        log_path = Path(scratch) / "go-build.log"
        build = start("go build", argv, log_path=log_path, environment={"CGO_ENABLED": "0"}, working_directory=MODULE)
        try:
            _watch(build)
        finally:
            build.stop()


def _watch(build: Process) -> None:
    started = told = time.monotonic()
    while build.is_running():
        now = time.monotonic()
        if now - started > _BUILD_TIMEOUT_SECONDS:
            raise LabError(f"Building Kubernetes took more than {_BUILD_TIMEOUT_SECONDS:g} s and was ended.\n{build.log_tail()}")
        if now - told > _PROGRESS_SECONDS:
            told = now
            say("kube", f"{_lines(build.log_path)} packages compiled after {now - started:.0f} s; a fresh machine compiles about 2600")
        time.sleep(0.1)
    if build.exit_code != 0:
        raise LabError(f"Building Kubernetes failed with code {build.exit_code}. Mend what go says and run it again.\n{build.log_tail()}")


def _lines(log_path: Path) -> int:
    return log_path.read_bytes().count(b"\n")
