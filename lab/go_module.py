"""A program built from a Go module of the lab's own, once, and found again in the cache.

The module's files pin every dependency by its hash. The key covers exactly what decides the result: these files, the Go version, the
platform and the flags. What the program is for is the business of who declares it.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import cache
from lab.errors import LabError
from lab.process import Process, start
from lab.progress import say

_BUILD_TIMEOUT_SECONDS = 3600.0
_PROGRESS_SECONDS = 15.0


@dataclass(frozen=True)
class GoModule:
    """The `program` that `package` of the module in `directory` builds to.

    `title` is what a person calls it, `announcement` what to expect of its build, `packages_compiled` how many a fresh machine compiles,
    about, and `stamps` the variables set by the linker.
    """

    program: str
    directory: Path
    package: str
    title: str
    announcement: str
    packages_compiled: int
    stamps: Sequence[str] = ()

    def binary(self) -> Path:
        """The path of the program, built first when the cache has none for these sources; raises `LabError` when Go is missing or fails."""
        return cache.entry(self.program, self._key_parts(), build=self._build) / self.program

    def is_built(self) -> bool:
        """Whether `binary` would return at once. Go has to be there even then: its version is part of the key."""
        return cache.find(self.program, self._key_parts()) is not None

    def _key_parts(self) -> Iterator[str | bytes]:
        own_sources = sorted((self.directory / self.package).rglob("*.go")) if self.package.startswith("./") else []
        for path in [self.directory / "go.mod", self.directory / "go.sum", *own_sources]:
            yield str(path.relative_to(self.directory))
            yield path.read_bytes()
        yield self._go_platform()
        yield from self._flags()

    def _go_platform(self) -> str:
        command = ["go", "env", "GOVERSION", "GOOS", "GOARCH"]
        try:
            answer = subprocess.run(command, cwd=self.directory, capture_output=True, text=True, timeout=60, check=True)
        except FileNotFoundError:
            raise LabError(
                f"{self.title} cannot be built: go is not on this machine. `python -m lab doctor` says what to install."
            ) from None
        except subprocess.CalledProcessError as error:
            raise LabError(f"`go env` failed in {self.directory}, so {self.title} cannot be built:\n{error.stderr.strip()}") from error
        return answer.stdout

    def _flags(self) -> list[str]:
        stamps = [f"-X {stamp}" for stamp in self.stamps]
        return ["-mod=readonly", "-buildvcs=false", "-trimpath", "-ldflags", " ".join(["-s", "-w", *stamps])]

    def _build(self, content: Path) -> None:
        say(self.program, self.announcement)
        # Two at a time: the largest packages and the link of Kubernetes take up to 2.5 GB each.
        argv = [
            "go",
            "build",
            "-v",
            "-p",
            str(min(2, os.cpu_count() or 1)),
            *self._flags(),
            "-o",
            str(content / self.program),
            self.package,
        ]
        with tempfile.TemporaryDirectory(prefix=f"tidegate-{self.program}-build-") as scratch:
            log_path = Path(scratch) / "go-build.log"
            build = start("go build", argv, log_path=log_path, environment={"CGO_ENABLED": "0"}, working_directory=self.directory)
            try:
                self._watch(build)
            finally:
                build.stop()

    def _watch(self, build: Process) -> None:
        started = told = time.monotonic()
        while build.is_running():
            now = time.monotonic()
            if now - started > _BUILD_TIMEOUT_SECONDS:
                raise LabError(f"Building {self.title} took more than {_BUILD_TIMEOUT_SECONDS:g} s and was ended.\n{build.log_tail()}")
            if now - told > _PROGRESS_SECONDS:
                told = now
                progress = f"{_lines(build.log_path)} packages compiled after {now - started:.0f} s"
                say(self.program, f"{progress}; a fresh machine compiles about {self.packages_compiled}")
            time.sleep(0.1)
        if build.exit_code != 0:
            raise LabError(
                f"Building {self.title} failed with code {build.exit_code}. Mend what go says and run it again.\n{build.log_tail()}"
            )


def _lines(log_path: Path) -> int:
    return log_path.read_bytes().count(b"\n")
