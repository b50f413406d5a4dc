"""Debian packages, downloaded, and programs out of them, unpacked into the cache.

No root, nothing installed, no service started.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import cache, process
from lab.errors import LabError, say
from lab.image_archive import architecture as architecture_of
from lab.process import Process, output_of, start

# A program built from a Go module of the lab's own, once, and found again in the cache.
#
# The module's files pin every dependency by its hash. The key covers exactly what decides the
# result: these files, the Go version, the platform and the flags. What the program is for is the
# business of who declares it.


_BUILD_TIMEOUT_SECONDS = 3600.0
_PROGRESS_SECONDS = 15.0


@dataclass(frozen=True)
class GoModule:
    """The `program` that `package` of the module in `directory` builds to.

    `title` is what a person calls it, `takes` how long its build is on two cores,
    `packages_compiled` how many a fresh machine compiles, about, and `stamps` the variables set by
    the linker. `pins`, where it is not go.mod, is a file like it, with a .sum beside it: so one
    source is built with several versions of a library. `tags` are those of its build.
    """

    program: str
    directory: Path
    package: str
    title: str
    takes: str
    packages_compiled: int
    stamps: Sequence[str] = ()
    pins: str = "go.mod"
    tags: str = ""

    def binary(self) -> Path:
        """The path of the program, built first when the cache has none for these sources.

        Raises `LabError` when Go is missing or fails.
        """
        return cache.entry(self.program, self._key_parts(), build=self._build) / self.program

    def is_built(self) -> bool:
        """Whether `binary` would return at once.

        Go has to be there even then: its version is part of the key.
        """
        return cache.find(self.program, self._key_parts()) is not None

    def _key_parts(self) -> Iterator[str | bytes]:
        own_sources = (
            sorted((self.directory / self.package).rglob("*.go"))
            if self.package.startswith("./")
            else []
        )
        pins = self.directory / self.pins
        for path in [pins, pins.with_suffix(".sum"), *own_sources]:
            yield str(path.relative_to(self.directory))
            yield path.read_bytes()
        yield self._go_platform()
        yield from self._flags()

    def _go_platform(self) -> str:
        command = ["go", "env", "GOVERSION", "GOOS", "GOARCH"]
        return output_of(command, timeout_seconds=60.0, working_directory=self.directory)

    def _flags(self) -> list[str]:
        stamps = [f"-X {stamp}" for stamp in self.stamps]
        return [
            "-mod=readonly",
            *([] if self.pins == "go.mod" else [f"-modfile={self.pins}"]),
            *([f"-tags={self.tags}"] if self.tags else []),
            "-buildvcs=false",
            "-trimpath",
            "-ldflags",
            " ".join(["-s", "-w", *stamps]),
        ]

    def _build(self, content: Path) -> None:
        say(
            self.program,
            f"building {self.title} from the Go module proxy; {self.takes} on two cores, only this "
            f"once",
        )
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
            build = start(
                "go build",
                argv,
                log_path=log_path,
                environment={"CGO_ENABLED": "0"},
                working_directory=self.directory,
            )
            try:
                self._watch(build)
            finally:
                build.stop()

    def _watch(self, build: Process) -> None:
        started = reported = time.monotonic()
        while build.is_running():
            now = time.monotonic()
            if now - started > _BUILD_TIMEOUT_SECONDS:
                raise LabError(
                    f"Building {self.title} took more than {_BUILD_TIMEOUT_SECONDS:g} s and was "
                    f"ended.\n{build.log_tail()}"
                )
            if now - reported > _PROGRESS_SECONDS:
                reported = now
                progress = f"{_lines(build.log_path)} packages compiled after {now - started:.0f} s"
                say(
                    self.program,
                    f"{progress}; a fresh machine compiles about {self.packages_compiled}",
                )
            time.sleep(0.1)
        if build.exit_code != 0:
            raise LabError(
                f"Building {self.title} failed with code {build.exit_code}. Fix what go reports "
                f"and run it again.\n{build.log_tail()}"
            )


def _lines(log_path: Path) -> int:
    return log_path.read_bytes().count(b"\n")


FILES = Path(__file__).parent / "kafka_files"
JMX_RULES = FILES / "jmx_rules.yml"
KAFKA_3 = "3.9.2"  # the last that can keep its metadata in ZooKeeper
KAFKA_4 = "4.3.1"
KAFKA_4_4 = "4.4.0"
# What KAFKA may name, for the demo, `make test-kafka` and `make soak`.
KAFKAS = {
    "3.9-zookeeper": KAFKA_3,
    "3.9-kraft": KAFKA_3,
    "4.3-kraft": KAFKA_4,
    "4.4-kraft": KAFKA_4_4,
}
# One of these names: the version of every `KraftLab` that is given none.
CHOSEN = "LAB_KAFKA"
_DOWNLOAD_TIMEOUT_SECONDS = 600


def chosen_kraft() -> str:
    """The version that `LAB_KAFKA` of the environment names, if it has no ZooKeeper; else 4.3.1."""
    name = os.environ.get(CHOSEN, "")
    return KAFKAS[name] if name.endswith("-kraft") else KAFKA_4


def kafka_jars(version: str = KAFKA_3) -> Path:
    """The directory with all jars; about 60 MB are downloaded when the cache has none."""
    return cache.entry(
        _entry_name(version),
        [_pom(version).read_bytes()],
        build=lambda content: _download(version, content),
    )


def is_downloaded(version: str = KAFKA_3) -> bool:
    """Whether `kafka_jars` would return at once."""
    return cache.find(_entry_name(version), [_pom(version).read_bytes()]) is not None


def _pom(version: str) -> Path:
    return FILES / ("pom.xml" if version == KAFKA_3 else "pom-4.xml")


def _entry_name(version: str) -> str:
    return "kafka-jars" if version == KAFKA_3 else f"kafka-jars-{version}"


def jmx_agent(jars: Path) -> Path:
    """The JMX exporter's java agent among the jars."""
    return next(jars.glob("jmx_prometheus_javaagent-*.jar"))


def _download(version: str, content: Path) -> None:
    say(_entry_name(version), f"downloading Kafka {version} with Maven, about 60 MB")
    shutil.copy(_pom(version), content.parent / "pom.xml")
    _maven(
        content,
        "-f",
        str(content.parent / "pom.xml"),
        f"-Dkafka.version={version}",
        "dependency:copy-dependencies",
        "-DincludeScope=runtime",
        f"-DoutputDirectory={content}",
    )


_QUOTA_PLUGIN = "io.strimzi:kafka-quotas-plugin:0.3.1"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"


_TIERED_STORAGE = f"org.apache.kafka:kafka-storage:{KAFKA_4}:jar:test"  # there is none of 4.4.0


def with_quota_plugin() -> Path:
    """`chosen_kraft` with Strimzi's quota plugin, a class that replaces Kafka's quotas."""
    return _with(chosen_kraft(), "quota-plugin", _QUOTA_PLUGIN)


def with_tiered_storage() -> Path:
    """Kafka 4.3.1 with its own tests' LocalTieredStorage: a remote store in a directory."""
    return _with(KAFKA_4, "tiered-storage", _TIERED_STORAGE)


def _with(version: str, name: str, artifact: str) -> Path:
    def build(content: Path) -> None:
        _copy(artifact, content)
        for jar in kafka_jars(version).glob("*.jar"):
            (content / jar.name).symlink_to(jar)

    return cache.entry(
        f"kafka-jars-{version}-{name}", [_pom(version).read_bytes(), artifact], build=build
    )


def maven_artifact(name: str, artifact: str) -> Path:
    """The directory with this one jar, downloaded as the entry `name` when the cache has none.

    `artifact` is group:artifact:version; what it depends on is not followed.
    """
    return cache.entry(name, [artifact], build=lambda content: _copy(artifact, content))


def _copy(artifact: str, content: Path) -> None:
    _maven(content, _COPY, f"-Dartifact={artifact}", f"-DoutputDirectory={content}")


def _maven(content: Path, *arguments: str) -> None:
    # Maven keeps its notes and all it touches in a local repository, which goes with the workshop
    work = content.parent
    argv = [
        "mvn",
        "-B",
        "-ntp",
        "--strict-checksums",  # a jar that is not what its repository says ends the build
        "-Dstyle.color=never",
        f"-Dmaven.repo.local={work / 'repository'}",
        *arguments,
    ]
    with process.start("mvn", argv, log_path=work / "mvn.log") as maven:
        maven.expect_success(_DOWNLOAD_TIMEOUT_SECONDS)


PROMETHEUS = ("prometheus", "prometheus-node-exporter")
CLOCK = ("libfaketime",)
_APT_TIMEOUT_SECONDS = 300.0
_UV_TIMEOUT_SECONDS = 600.0
_REPOSITORY = Path(__file__).resolve().parent.parent


def unpacked(packages: Sequence[str]) -> Path:
    """A directory with the files of these packages, as they would lie under `/`.

    Dependencies are not followed. Downloads with this machine's apt configuration and package
    lists; where the lists are missing or too old, with lists of its own.
    """
    return cache.entry(
        packages[0], _key_parts(packages), build=lambda content: _unpack(packages, content)
    )


def is_unpacked(packages: Sequence[str]) -> bool:
    """Whether `unpacked` would return at once."""
    return cache.find(packages[0], _key_parts(packages)) is not None


def clock_behind(minutes: int) -> dict[str, str]:
    """The environment of a program that is to take now for so long ago.

    Its time limits are not touched by that, nor are the times of files.
    """
    (library,) = unpacked(CLOCK).rglob("libfaketime.so.1")
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME": f"-{minutes}m",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",  # or a JVM's timed waits last seconds longer
        "NO_FAKE_STAT": "1",
    }


def download(packages: Sequence[str], directory: Path, *, machine: str = "") -> list[Path]:
    """Download the newest archives of these packages that apt knows into the new `directory`.

    `machine` is the processor they are for as `uname -m` names it, by default this one's. For
    another, apt reads lists of our own and believes it runs there; nothing of it can be run.
    Dependencies are not followed. Raises `LabError` when one of them is not to be had, neither with
    this machine's package lists nor with fresh ones.
    """
    directory.mkdir(parents=True)
    if _is_foreign(machine):
        _apt("download", *packages, work=directory, options=_fresh_lists(directory, machine))
    else:
        _apt_with_any_lists("download", *packages, work=directory)
    return sorted(directory.glob("*.deb"))


def download_with_dependencies(packages: Sequence[str], directory: Path) -> list[Path]:
    """Download these packages and all that they depend on into the new `directory`.

    What this machine has installed does not count, so the result is the same on every machine.
    Raises `LabError` like `download`.
    """
    directory.mkdir(parents=True)
    (directory / "archives/partial").mkdir(parents=True)
    (directory / "installed").touch()
    options = _options(
        f"Dir::State::status={directory}/installed",
        f"Dir::Cache={directory}",
        f"Dir::Cache::Archives={directory}/archives",
        "APT::Sandbox::User=",
        "Debug::NoLocking=1",
    )
    install = ("install", "--yes", "--download-only", "--no-install-recommends")
    _apt_with_any_lists(*install, *packages, work=directory, options=options)
    return sorted((directory / "archives").glob("*.deb"))


def offered(packages: Sequence[str], *, machine: str = "") -> list[str]:
    """File name and hash of what this machine's lists offer, a line for each package.

    Only the names where there are no lists. For a processor that is not this machine's (`machine`,
    as `uname -m` names it), lists of our own are fetched, which takes some seconds; then it raises
    `LabError` where they are not to be had.
    """
    with tempfile.TemporaryDirectory(prefix="tidegate-apt-") as scratch:
        work = Path(scratch)
        options = _fresh_lists(work, machine) if _is_foreign(machine) else ()
        try:
            said = _apt("download", "--print-uris", *packages, work=work, options=options)
        except LabError:
            if options:
                raise
            return list(packages)
    # 'http://mirror/path' name size hash: which mirror it is does not matter
    return sorted(
        " ".join(line.split()[1::2]) for line in said.splitlines() if line.startswith("'")
    )


def _key_parts(packages: Sequence[str]) -> list[str]:
    return [*packages, _release(), platform.machine()]


def _release() -> str:
    os_release = Path("/etc/os-release")
    return os_release.read_text() if os_release.exists() else "unknown"


def _unpack(packages: Sequence[str], content: Path) -> None:
    work = content.parent / "download"
    say(packages[0], f"downloading the Debian packages {', '.join(packages)}")
    for archive in download(packages, work):
        output_of(["dpkg", "-x", archive, content], timeout_seconds=_APT_TIMEOUT_SECONDS)
    shutil.rmtree(content / "usr/share/doc", ignore_errors=True)


def _private_lists(work: Path) -> tuple[str, ...]:
    """Options that keep apt's lists and caches in `work`, but the machine's sources and keys."""
    for place in ("lists/partial", "archives/partial"):
        (work / place).mkdir(parents=True, exist_ok=True)
    return _options(
        f"Dir::State::Lists={work}/lists",
        f"Dir::Cache={work}",
        f"Dir::Cache::Archives={work}/archives",
        "APT::Sandbox::User=",
    )


def _options(*settings: str) -> tuple[str, ...]:
    return tuple(part for setting in settings for part in ("-o", setting))


def _is_foreign(machine: str) -> bool:
    return machine not in ("", platform.machine())


def _fresh_lists(work: Path, machine: str) -> tuple[str, ...]:
    """Fetch lists for another processor into `work`; options that make apt use them alone.

    Debian's words for processors are those of images.
    """
    (work / "installed").touch()
    settings = _options(
        f"APT::Architecture={architecture_of(machine)}",
        f"APT::Architectures={architecture_of(machine)}",
        f"Dir::State::status={work}/installed",
        "Acquire::Languages=none",
        "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
    )
    options = (*_private_lists(work), *settings)
    _apt("update", work=work, options=options)
    return options


def _apt_with_any_lists(*arguments: str, work: Path, options: Sequence[str] = ()) -> None:
    """With this machine's package lists, or where they do not do with lists of our own."""
    try:
        _apt(*arguments, work=work, options=options)
    except LabError:
        say("apt-get", "this machine's package lists do not do; fetching lists of our own")
        private = (*_private_lists(work), *options)
        _apt("update", work=work, options=private)
        _apt(*arguments, work=work, options=private)


def _apt(*arguments: str, work: Path, options: Sequence[str]) -> str:
    return output_of(
        ["apt-get", "-q", *options, *arguments],
        timeout_seconds=_APT_TIMEOUT_SECONDS,
        working_directory=work,
    )


def uv() -> Path:
    """The uv that the Makefile pins, fetched first where it is not there yet."""
    makefile = (_REPOSITORY / "Makefile").read_text()
    pinned = re.search(r"^UV_VERSION := (\S+)$", makefile, re.MULTILINE)
    if pinned is None:
        raise LabError("The Makefile pins no uv: it has no line `UV_VERSION := ...`.")
    place = cache.root() / f"uv-{pinned[1]}"
    bootstrap = [_REPOSITORY / "tools/bootstrap-uv", place, pinned[1]]
    output_of(bootstrap, timeout_seconds=_UV_TIMEOUT_SECONDS)
    return place / "bin" / "uv"
