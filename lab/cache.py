"""Downloads and builds of the lab, kept outside the tree and found by what they were made from.

An entry is built in a directory of its own, then renamed into place together with a mark that
counts its files and bytes. An entry without its mark, or whose files no longer add up, is rebuilt
and never handed out. The cache holds no running state (see run_directory) and never removes an
entry that is still good.

    <cache>/entries/<name>-<key>/complete.json     the mark
    <cache>/entries/<name>-<key>/content/          what the build left
    <cache>/building/<name>-<key>/                 a build under way, or what one left that died
    <cache>/locks/<name>-<key>.lock                one builder at a time
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from lab.errors import LabError, say
from lab.process import ProcessIdentity

_MARK = "complete.json"
_CONTENT = "content"


@dataclass(frozen=True)
class Entry:
    """A finished entry: its name and key, its number of files, and their bytes together."""

    name: str
    key: str
    files: int
    total_bytes: int


def root() -> Path:
    """The cache's directory, `${XDG_CACHE_HOME:-~/.cache}/tidegate-lab`; it may not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "tidegate-lab"


def key_of(key_parts: Iterable[str | bytes]) -> str:
    """Sixteen hex digits that change whenever a part, or the border between two parts, changes."""
    digest = hashlib.sha256()
    for part in key_parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()[:16]


def entry(name: str, key_parts: Iterable[str | bytes], *, build: Callable[[Path], None]) -> Path:
    """The content directory of the entry `name` for these `key_parts`, built first if need be.

    `build` gets an empty directory and leaves the content in it; whatever it raises is raised here
    and nothing is kept. A second process that wants the same entry waits for the first. The
    directory is shared: read it, never write to it.
    """
    key = key_of(key_parts)
    place = root() / "entries" / f"{name}-{key}"
    if _is_whole(place):
        return place / _CONTENT
    with _locked(name, key):
        if not _is_whole(place):
            _build_into(place, name, key=key, build=build)
    return place / _CONTENT


def find(name: str, key_parts: Iterable[str | bytes]) -> Path | None:
    """The content directory of a whole entry, or None when it would have to be built."""
    place = root() / "entries" / f"{name}-{key_of(key_parts)}"
    return place / _CONTENT if _is_whole(place) else None


def entries() -> list[Entry]:
    """Every whole entry, by name; empty when nothing was ever built."""
    places = sorted((root() / "entries").glob("*"))
    return [_read_mark(place) for place in places if _is_whole(place)]


def _build_into(place: Path, name: str, *, key: str, build: Callable[[Path], None]) -> None:
    workshop = root() / "building" / place.name
    shutil.rmtree(workshop, ignore_errors=True)
    (workshop / _CONTENT).mkdir(parents=True)
    say(name, f"building into the cache ({place})")
    started = time.monotonic()
    try:
        build(workshop / _CONTENT)
        made = _measure(name, key, content=workshop / _CONTENT)
        if not made.files:
            raise LabError(
                f"The build of {name} left no files, so it is not kept. Read its output above "
                f"and run it again."
            )
        (workshop / _MARK).write_text(json.dumps(asdict(made)))
        _put_in_place(workshop, place)
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
    say(
        name,
        (
            f"built: {made.files} files, {made.total_bytes / 1e6:.0f} MB, "
            f"{time.monotonic() - started:.1f} s"
        ),
    )


def _put_in_place(workshop: Path, place: Path) -> None:
    """Rename, after setting aside a broken entry of that name.

    A reader sees the old entry, none, or the whole new one.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.exists():
        broken = workshop.with_name(f"{place.name}.broken")
        shutil.rmtree(broken, ignore_errors=True)
        place.rename(broken)
        shutil.rmtree(broken)
    workshop.rename(place)


def _is_whole(place: Path) -> bool:
    try:
        mark = _read_mark(place)
    except (OSError, ValueError, TypeError):
        return False
    return mark == _measure(mark.name, mark.key, content=place / _CONTENT)


def _read_mark(place: Path) -> Entry:
    return Entry(**json.loads((place / _MARK).read_text()))


def _measure(name: str, key: str, *, content: Path) -> Entry:
    sizes = [
        path.lstat().st_size
        for path in content.rglob("*")
        if not path.is_dir() or path.is_symlink()
    ]
    return Entry(name, key, files=len(sizes), total_bytes=sum(sizes))


@contextmanager
def _locked(name: str, key: str) -> Iterator[None]:
    locks = root() / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    with (locks / f"{name}-{key}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(name, "another process is building it; waiting until it has finished")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# A directory for one run of a lab, and the list of what to undo when that run could not undo it
# itself.
#
# Ordinary ends remove everything they made. A lab that was killed leaves its directory with its
# owner's identity and its undo list; the next lab of the same user that starts, and `lab down`,
# sweep the directories whose owner is gone. A living lab is never touched.


_UNDO_TIMEOUT_SECONDS = 20


class RunDirectory:
    """The directory of one run; a context manager that leaves nothing of it behind."""

    lab_id: str
    path: Path

    def __enter__(self) -> Self:
        sweep()
        runs_root().mkdir(parents=True, exist_ok=True)
        # Four hex digits: interface names, which carry the id, end at 15 characters. So few are
        # drawn twice now and then.
        while not self._is_made(secrets.token_hex(2)):
            pass
        return self

    def _is_made(self, lab_id: str) -> bool:
        """False where another run has the id."""
        self.lab_id, self.path = lab_id, runs_root() / lab_id
        nascent = runs_root() / f".{lab_id}"
        try:
            nascent.mkdir()
        except FileExistsError:
            return False
        (nascent / "owner.json").write_text(json.dumps(asdict(ProcessIdentity.own())))
        try:
            nascent.rename(self.path)
        except OSError as error:
            shutil.rmtree(nascent)
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            return False
        return True

    def __exit__(self, *_: object) -> None:
        clear(self.path)

    def record_undo(self, command: Sequence[str]) -> None:
        """Note how to undo a thing, before it is made.

        Undoing a thing that was never made must be harmless.
        """
        with (self.path / "undo.jsonl").open("a") as undo:
            undo.write(json.dumps(list(command)) + "\n")


def runs_root() -> Path:
    """Where the directories of all runs lie."""
    return root() / "run"


def sweep() -> None:
    """Clear every run whose owner is gone."""
    root().mkdir(parents=True, exist_ok=True)
    with (root() / "sweep.lock").open(
        "w"
    ) as lock:  # who comes second finds everything cleared, not half of it
        fcntl.flock(lock, fcntl.LOCK_EX)
        for path in sorted(runs_root().glob("[!.]*")):
            if not is_owned(path):
                say("lab", f"clearing what the interrupted run {path.name} left")
                clear(path)


def is_owned(path: Path) -> bool:
    """Whether the process that made the run at `path` still lives."""
    try:
        return ProcessIdentity(**json.loads((path / "owner.json").read_text())).is_alive()
    except (OSError, ValueError, TypeError):
        return False


def clear(path: Path) -> None:
    """Undo what the run at `path` recorded, last thing first, and remove its directory."""
    for line in reversed(_undo_lines(path)):
        subprocess.run(
            json.loads(line), check=False, capture_output=True, timeout=_UNDO_TIMEOUT_SECONDS
        )
    shutil.rmtree(path, ignore_errors=True)


def _undo_lines(path: Path) -> list[str]:
    try:
        return (path / "undo.jsonl").read_text().splitlines()
    except FileNotFoundError:  # nothing to undo, or its owner is clearing it at this moment
        return []
