"""A bucket in memory, as object stores are: an object is there once its stream is closed, names
cannot be moved, folders do not exist.

It counts its operations, and from the n-th on it can be out of reach (`Fault`): the process was
killed, the network is gone, the quota is full.
"""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSelector, FileSystemHandler, FileType, PyFileSystem

from tidegate.rollup.tables.storage import Storage
from tidegate.rollup.tables.store import UsageStore

Fault = Callable[[], BaseException]


class Killed(BaseException):
    """The process is gone: nothing that it would still do happens."""


class Bucket(FileSystemHandler):
    """`objects` by path with the time they were written at; `now_ms` is turned by hand."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, int]] = {}
        self.now_ms = 0
        self.operations = 0
        self._fails_from: int | None = None
        self._fails_only_once = False
        self._fault: Fault = Killed
        self._action_at: int | None = None
        self._action: Callable[[], object] = lambda: None

    @contextmanager
    def failing(self, at: int, fault: Fault, *, once: bool = False) -> Iterator[None]:
        """Operation number `at` (from 0) and all after it fail, or only that one."""
        self.operations, self._fails_from, self._fault, self._fails_only_once = 0, at, fault, once
        try:
            yield
        finally:
            self._fails_from = None

    def before(self, at: int, action: Callable[[], object]) -> None:
        """Before operation number `at` from now, let something else be done completely; it is not
        counted.
        """
        self.operations, self._action_at, self._action = 0, at, action

    def calm(self) -> None:
        """Whatever was to come between comes no more."""
        self._action_at = None

    def step(self) -> None:
        if self._action_at is not None and self.operations == self._action_at:
            number, self._action_at = self.operations, None
            self._action()
            self.operations = number
        number, self.operations = self.operations, self.operations + 1
        if self._fails_from is not None and (
            number == self._fails_from or (number > self._fails_from and not self._fails_only_once)
        ):
            raise self._fault()

    def get_type_name(self) -> str:
        return "bucket"

    def get_file_info(self, paths: list[str]) -> list[FileInfo]:
        self.step()
        return [self._info(path) for path in paths]

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        self.step()
        return [
            self._info(path)
            for path in list(self.objects)
            if path.startswith(f"{selector.base_dir}/")
        ]

    def _info(self, path: str) -> FileInfo:
        if path not in self.objects:
            return FileInfo(path, FileType.NotFound)
        content, at_ms = self.objects[path]
        return FileInfo(path, FileType.File, size=len(content), mtime_ns=at_ms * 1_000_000)

    def open_input_file(self, path: str) -> pa.NativeFile:
        self.step()
        if path not in self.objects:
            raise FileNotFoundError(path)
        return pa.PythonFile(io.BytesIO(self.objects[path][0]), mode="r")

    def open_output_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        self.step()
        return pa.PythonFile(_Upload(self, path), mode="w")

    def delete_file(self, path: str) -> None:
        self.step()
        if self.objects.pop(path, None) is None:
            raise FileNotFoundError(path)

    def delete_dir(self, path: str) -> None:
        """Not atomic: an operation for each object."""
        for each in [each for each in self.objects if each.startswith(f"{path}/")]:
            self.step()
            del self.objects[each]

    def create_dir(self, path: str, recursive: bool) -> None:
        """There are no folders."""

    def normalize_path(self, path: str) -> str:
        return path

    def _absent(self, *_: Any) -> Any:
        raise AssertionError("an object store offers no such thing")

    delete_dir_contents = delete_root_dir_contents = copy_file = move = open_append_stream = (
        open_input_stream
    ) = _absent


class _Upload(io.RawIOBase):
    """Nothing of it is seen until it is closed; what fails before leaves no object."""

    def __init__(self, bucket: Bucket, path: str) -> None:
        self._bucket, self._path, self._content, self._failed = bucket, path, io.BytesIO(), False

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self._failed = True
        self._bucket.step()
        self._failed = False
        return self._content.write(content)

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        if not self._failed:
            self._bucket.step()
            self._bucket.objects[self._path] = (self._content.getvalue(), self._bucket.now_ms)


def store_in(bucket: Bucket) -> UsageStore:
    """A store in the bucket, its requests one after the other, so that operations can be
    counted.
    """
    return UsageStore(
        Storage(PyFileSystem(bucket), "usage/tidegate", shown="s3://usage/tidegate", parallel=1)
    )
