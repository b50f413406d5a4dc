"""A file on a local disk that is there whole, or not at all, also after the machine lost its power.

The disk's own rename makes the switch; what is written but not yet renamed carries a name that starts with a dot, so that readers by
pattern (`*.parquet`) pass it over and a clean-up knows it.
"""

import errno
import os
import secrets
from contextlib import suppress
from pathlib import Path

_UNFINISHED = ".unfinished"
_ATTEMPTS = 3
_NOT_OFFERED = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)


def is_unfinished(path: str) -> bool:
    """Whether a file of this name is one that a writer never finished."""
    return path.endswith(_UNFINISHED)


def write_durably(path: str, content: bytes, *, outlives_power: bool = True) -> None:
    """Put `content` in place of whatever was there. Raises OSError (disk full, no right); the old content is then still in place.

    Without `outlives_power` nothing is forced to the disk: for what nobody needs once this machine starts anew.
    """
    for attempt in range(_ATTEMPTS):
        try:
            _write(Path(path), content, forced=outlives_power)
            return
        except FileNotFoundError:  # a clean-up took the folder for an empty one
            if attempt + 1 == _ATTEMPTS:
                raise


def _write(target: Path, content: bytes, *, forced: bool) -> None:
    _make_folder(target.parent)
    beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}{_UNFINISHED}")
    try:
        _write_all(beside, content, forced=forced)
        os.replace(beside, target)
    except OSError:
        with suppress(OSError):  # the clean-up finds it later
            beside.unlink()
        raise
    if forced:
        _settle(target.parent)


def remove_empty_folders(root: str) -> None:
    """Remove `root` and the folders below that hold nothing, deepest first; one that is filled meanwhile stays."""
    for folder, _, _ in os.walk(root, topdown=False):
        with suppress(OSError):
            os.rmdir(folder)


def _write_all(path: Path, content: bytes, *, forced: bool) -> None:
    with path.open("wb") as stream:
        stream.write(content)
        stream.flush()
        if forced:
            os.fsync(stream.fileno())


def _make_folder(folder: Path) -> None:
    """The folder and those above it, each known to the disk before anything is put into it."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    _settle(folder.parent)


def _settle(folder: Path) -> None:
    """Force the folder's list of names to the disk, where its file system has such a thing: some of those over a network do not."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NOT_OFFERED:
            raise
    finally:
        os.close(handle)
