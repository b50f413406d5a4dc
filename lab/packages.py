"""Debian packages, downloaded, and programs out of them, unpacked into the cache: no root, nothing installed, no service started."""

from __future__ import annotations

import platform
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lab import cache, process
from lab.errors import LabError
from lab.progress import say

PROMETHEUS = ("prometheus", "prometheus-node-exporter")
_APT_TIMEOUT_SECONDS = 300


def unpacked(packages: Sequence[str]) -> Path:
    """A directory with the files of these packages, as they would lie under `/`; dependencies are not followed.

    Downloads with this machine's apt configuration and package lists; where the lists are missing or too old, with lists of its own.
    """
    return cache.entry(packages[0], _key_parts(packages), build=lambda content: _unpack(packages, content))


def is_unpacked(packages: Sequence[str]) -> bool:
    """Whether `unpacked` would return at once."""
    return cache.find(packages[0], _key_parts(packages)) is not None


def download(packages: Sequence[str], directory: Path) -> list[Path]:
    """The archives of these packages, the newest that apt knows, in `directory`, which is made; dependencies are not followed.

    Raises `LabError` when one of them is not to be had, neither with this machine's package lists nor with fresh ones.
    """
    directory.mkdir(parents=True)
    try:
        _apt("download", *packages, work=directory, options=())
    except LabError:
        say(packages[0], "not to be had with this machine's package lists; fetching lists of our own")
        private = _private_lists(directory)
        _apt("update", work=directory, options=private)
        _apt("download", *packages, work=directory, options=private)
    return sorted(directory.glob("*.deb"))


def offered(packages: Sequence[str]) -> list[str]:
    """File name and hash of what this machine's lists offer, a line for each package; only the names where there are no lists."""
    with tempfile.TemporaryDirectory(prefix="tidegate-apt-") as scratch:
        try:
            _apt("download", "--print-uris", *packages, work=Path(scratch), options=())
        except LabError:
            return list(packages)
        said = (Path(scratch) / "apt-get-download.log").read_text()
    # 'http://mirror/path' name size hash: which mirror it is does not matter
    return sorted(" ".join(line.split()[1::2]) for line in said.splitlines() if line.startswith("'"))


def _key_parts(packages: Sequence[str]) -> list[str]:
    return [*packages, _release(), platform.machine()]


def _release() -> str:
    os_release = Path("/etc/os-release")
    return os_release.read_text() if os_release.exists() else "unknown"


def _unpack(packages: Sequence[str], content: Path) -> None:
    work = content.parent / "download"
    say(packages[0], f"downloading the Debian packages {', '.join(packages)}")
    for archive in download(packages, work):
        _run("dpkg", ["dpkg", "-x", str(archive), str(content)], work=work)
    shutil.rmtree(content / "usr/share/doc", ignore_errors=True)


def _private_lists(work: Path) -> tuple[str, ...]:
    """Options that make apt keep its lists and caches in `work`, while sources and keys stay the machine's."""
    (work / "lists/partial").mkdir(parents=True)
    (work / "archives/partial").mkdir(parents=True)
    settings = [f"Dir::State::Lists={work}/lists", f"Dir::Cache={work}", f"Dir::Cache::Archives={work}/archives", "APT::Sandbox::User="]
    return tuple(part for setting in settings for part in ("-o", setting))


def _apt(*arguments: str, work: Path, options: Sequence[str]) -> None:
    _run(f"apt-get-{arguments[0]}", ["apt-get", "-q", *options, *arguments], work=work)


def _run(name: str, argv: list[str], *, work: Path) -> None:
    with process.start(name, argv, log_path=work / f"{name}.log", working_directory=work) as program:
        program.expect_success(_APT_TIMEOUT_SECONDS)
