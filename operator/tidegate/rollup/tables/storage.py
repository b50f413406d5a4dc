"""Files by name on a disk or in a bucket, each written whole or not at all.

Over pyarrow's file systems, which take credentials from the environment as the clouds' own clients
do. On a disk a write goes to a file beside it, is forced to the disk and renamed; an object store's
one PUT is atomic by itself. There is no append and no rename between names. Errors are those of
`tidegate.errors`: absent is None or nothing, refused is Unauthorized, all else of a file system is
Unreachable.
"""

import errno
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa
from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem, S3FileSystem

from tidegate.errors import Conflict, InvalidResource, TidegateError, Unauthorized, Unreachable
from tidegate_logic.reasons import Reason
from tidegate_logic.words import rfc3339_ms

# A file on a local disk is there whole or not at all, also after the machine lost its power: it is
# written under another name, forced to the disk and renamed. That name starts with a dot, so that
# readers by pattern (`*.parquet`) skip it and a clean-up finds it.


_UNFINISHED = ".unfinished"
_ATTEMPTS = 3
_NOT_OFFERED = (errno.EINVAL, errno.ENOTSUP, errno.EBADF)
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


def is_unfinished(path: str) -> bool:
    """Whether a file of this name is one that a writer never finished."""
    return path.endswith(_UNFINISHED)


def write_durably(path: str, content: bytes, *, outlives_power: bool = True) -> None:
    """Replace the file's content; an OSError (disk full, no right) leaves the old one.

    Without `outlives_power` nothing is forced to the disk: for files that are useless once this
    machine starts again.
    """
    for attempt in range(_ATTEMPTS):
        try:
            _write(Path(path), content, forced=outlives_power)
            return
        except FileNotFoundError:  # a clean-up took the folder for an empty one
            if attempt + 1 == _ATTEMPTS:
                raise


def create_durably(path: str, content: bytes) -> bool | None:
    """Write a file that must be new; False if it exists, None if the disk cannot tell.

    A second name for a written file is given to one process only, over a network as well.
    """
    target = Path(path)
    try:
        _write(target, content, forced=True, new=True)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno in _NO_LINKS:
            return None
        raise
    return True


def _write(target: Path, content: bytes, *, forced: bool, new: bool = False) -> None:
    _make_folder(target.parent)
    beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}{_UNFINISHED}")
    try:
        _write_all(beside, content, forced=forced)
        if new:
            os.link(beside, target)
            beside.unlink()
        else:
            os.replace(beside, target)
    except OSError:
        with suppress(OSError):  # the clean-up finds it later
            beside.unlink()
        raise
    if forced:
        _settle(target.parent)


def remove_empty_folders(root: str) -> None:
    """Remove `root` and its folders that are empty, deepest first; one filled meanwhile stays."""
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
    """Force the folder's names to the disk; some file systems over a network cannot."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NOT_OFFERED:
            raise
    finally:
        os.close(handle)


_REFUSALS = (
    "ACCESS_DENIED",
    "AccessDenied",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "AuthorizationFailure",
    "PERMISSION_DENIED",
)
_BUCKETS = ("s3", "gcs", "abfs")  # folders are a way of speaking there
_CLAIM, _CLAIM_LOOKS, _CLAIM_WAIT_SECONDS = ".claim", 20, 0.5


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in a listing; `path` is relative to the root. A store without times gives 1970."""

    path: str
    size_bytes: int
    modified_ms: int


class Storage:
    """A folder of a disk or prefix of a bucket, `root`; `shown` is its address without secrets.

    `url` is the address with them, by which `open_storage` opens it again.

    At most `parallel` requests are under way, in calls that take several paths.
    """

    def __init__(
        self, filesystem: FileSystem, root: str, *, shown: str, url: str = "", parallel: int = 8
    ) -> None:
        self.filesystem = filesystem
        self._root = root.rstrip("/")
        self.parallel = parallel
        self.shown = shown
        self.url = url or shown

    def address(self, path: str) -> str:
        """Where engines find it: a path of the disk, or `s3://bucket/…`."""
        return f"{self._root}/{path}" if self._is_disk else f"{self.shown}/{path}"

    def read(self, path: str) -> bytes | None:
        """The whole content; None if there is no such file."""
        with self._as_our_errors("read", path):
            try:
                with self.filesystem.open_input_file(self._full(path)) as stream:
                    content: bytes = stream.read()
                    return content
            except FileNotFoundError:
                return None

    def read_all(self, paths: Sequence[str]) -> Iterator[bytes | None]:
        """The contents in the order of the paths, several being read at a time."""
        if len(paths) < 2 or self.parallel < 2:
            yield from map(self.read, paths)
            return
        with ThreadPoolExecutor(self.parallel) as pool:
            yield from pool.map(self.read, paths)

    def write(self, path: str, content: bytes, *, outlives_power: bool = True) -> None:
        """Replace the file's content; after an error the old content is still whole.

        Without `outlives_power` a disk may lose it with the machine's power; a bucket never does.
        """
        with self._as_our_errors("write", path):
            if self._is_disk:
                write_durably(self._full(path), content, outlives_power=outlives_power)
                return
            if self.filesystem.type_name not in _BUCKETS:
                self.filesystem.create_dir(self._full(path).rpartition("/")[0], recursive=True)
            stream = self.filesystem.open_output_stream(self._full(path))
            stream.write(content)
            stream.close()  # not by `with`: an error above must not complete the object

    def create(
        self, path: str, content: bytes, *, wait: Callable[[float], None] = time.sleep
    ) -> bool:
        """Write a file that must be new; of several processes exactly one gets True.

        pyarrow cannot ask a bucket for that. So each process puts a claim beside the file before it
        looks: the only one to see no other claim writes, the first of several waits until the rest
        have withdrawn. Raises Conflict if another claim stays, perhaps of a process that was
        killed, or whose write failed: such a write may still arrive.
        """
        if self._is_disk:
            with self._as_our_errors("write", path):
                created = create_durably(self._full(path), content)
            if created is not None:
                return created
        own = f"{path}.{secrets.token_hex(8)}{_CLAIM}"
        self.write(own, b"")
        is_known = True
        try:
            for _ in range(_CLAIM_LOOKS):
                others = [one for one in self._claims(path) if one.path != own]
                if not others:
                    if self.read(path) is not None:
                        return False
                    is_known = False
                    self.write(path, content)
                    is_known = True
                    return True
                if others[0].path < own:
                    break
                wait(_CLAIM_WAIT_SECONDS)
            raise Conflict(
                f"Another process has been writing {path} at {self.shown} since "
                f"{rfc3339_ms(others[0].modified_ms)}, so nothing was written here. See what that "
                f"one says; if it was killed, delete {others[0].path} and try again."
            )
        finally:
            if is_known:
                with suppress(TidegateError):
                    self.delete([own])

    def _claims(self, path: str) -> list[StoredFile]:
        named = self.files(path.rpartition("/")[0])
        return [
            one for one in named if one.path.startswith(f"{path}.") and one.path.endswith(_CLAIM)
        ]

    def size_bytes(self, path: str) -> int | None:
        """None if there is no such file."""
        with self._as_our_errors("look at", path):
            found = self.filesystem.get_file_info(self._full(path))
            return found.size if found.type == FileType.File else None

    def files(self, folder: str) -> list[StoredFile]:
        """All files below, sorted by path; a folder that does not exist has none."""
        selector = FileSelector(self._full(folder), recursive=True, allow_not_found=True)
        with self._as_our_errors("list", folder):
            found = [
                one for one in self.filesystem.get_file_info(selector) if one.type == FileType.File
            ]
        skipped = len(self._root) + 1
        timed = ((one, one.mtime_ns) for one in found)
        return sorted(
            (
                StoredFile(one.path[skipped:], one.size, (at_ns or 0) // 1_000_000)
                for one, at_ns in timed
            ),
            key=lambda one: one.path,
        )

    def delete(self, paths: Iterable[str]) -> None:
        """Remove files; one that is gone already is no error."""
        for path in paths:
            with self._as_our_errors("remove", path):
                try:
                    self.filesystem.delete_file(self._full(path))
                except FileNotFoundError:
                    continue

    def delete_folder(self, folder: str) -> None:
        """Remove a folder without other writers and all in it; a bucket needs few requests."""
        with self._as_our_errors("remove", folder):
            try:
                self.filesystem.delete_dir(self._full(folder))
            except FileNotFoundError:
                return
            except OSError:  # Google's store has no error of its own for a folder that is not there
                left = self.filesystem.get_file_info(self._full(folder))
                if left.type != FileType.NotFound:
                    raise

    def delete_empty_folders(self, folder: str) -> None:
        """On a disk, remove the empty folders from here down; one filled meanwhile stays."""
        if self._is_disk:
            remove_empty_folders(self._full(folder))

    @property
    def _is_disk(self) -> bool:
        return isinstance(self.filesystem, LocalFileSystem)

    def _full(self, path: str) -> str:
        return f"{self._root}/{path}"

    @contextmanager
    def _as_our_errors(self, doing: str, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._error(error, f"{doing} {path}") from error

    def _error(self, error: OSError, doing: str) -> TidegateError:
        problem = f"The usage tables at {self.shown} could not {doing}: {error}."
        if isinstance(error, PermissionError) or any(word in str(error) for word in _REFUSALS):
            return Unauthorized(
                f"{problem} Give the identity that runs this the right to read, write, list and "
                f"delete there."
            )
        return Unreachable(
            Reason.STORAGE_UNREACHABLE,
            f"{problem} What is published stays as it is, and a later run tries again.",
        )


# A URL may carry options of pyarrow, secrets among them. They are never shown.


SCHEMES = ("file", "s3", "gs", "abfs", "abfss")
_AZURE_HOST = ".dfs.core.windows.net"  # of another host pyarrow takes the container for the account


def open_storage(url: str, *, parallel: int = 8) -> Storage:
    """Open `file:///path`, `s3://bucket/prefix`, `gs://…`, `abfs://…` or a plain path.

    A container of Azure is `abfs://container@account.dfs.core.windows.net/…`; `abfss://` is the
    same, over TLS both. An S3 endpoint and login may come from the variables of AWS' own clients.
    Raises InvalidResource for another scheme, or a URL without a path, and Unreachable if S3
    does not say where a bucket is.
    """
    if "://" not in url:
        return (
            open_storage(Path(url).absolute().as_uri(), parallel=parallel) if url else _refuse(url)
        )
    shown = _shown(url)
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES or (
        parts.scheme.startswith("abfs") and not (parts.hostname or "").endswith(_AZURE_HOST)
    ):
        _refuse(shown)
    try:
        filesystem, root = _opened(url)
    except OSError as error:  # a bucket of S3 is asked where it is, unless an endpoint is given
        raise Unreachable(
            Reason.STORAGE_UNREACHABLE,
            f"{shown} was not found, or did not answer. What is published stays as it is, and a "
            "later run tries again. Check the name of the bucket, the endpoint and the network.",
        ) from error
    except (ValueError, pa.ArrowException) as error:
        raise InvalidResource(
            f"{shown} cannot be opened as a storage ({_plain(error)}). {_FORMS}"
        ) from error
    if not root.strip("/"):
        _refuse(shown)
    return Storage(filesystem, root, shown=shown, url=url, parallel=parallel)


def _opened(url: str) -> tuple[FileSystem, str]:
    """As pyarrow opens it; `path_style=false` is our own option, for a bucket in the host."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    if parts.scheme != "s3" or options.pop("path_style", "true") != "false":
        opened: tuple[FileSystem, str] = FileSystem.from_uri(url)
        return opened
    filesystem = S3FileSystem(**options, force_virtual_addressing=True)
    return filesystem, f"{parts.netloc.rpartition('@')[2]}{parts.path}"


_FORMS = (
    "Give file:///path, s3://bucket/prefix, gs://bucket/prefix or "
    "abfs://container@account.dfs.core.windows.net/prefix."
)


def _refuse(shown: str) -> Storage:
    raise InvalidResource(
        f"{shown or 'An empty address'} is not a storage address for usage tables. {_FORMS}"
    )


def _shown(url: str) -> str:
    """Without options, and without a key and secret before the host; a container's name stays."""
    parts = urlsplit(url)
    name, _, host = parts.netloc.rpartition("@")
    container = name.partition(":")[0] if parts.scheme.startswith("abfs") else ""
    shown = f"{container}@{host}" if container else host
    return f"{parts.scheme}://{shown}{parts.path.rstrip('/')}"


def _plain(error: Exception) -> str:
    """The kind of the error alone: pyarrow's messages repeat the URL, which may hold secrets."""
    return type(error).__name__
