"""The files of an Iceberg table, read and written by the file system of the store.

A module of its own because a catalog's client imports it by its name, and it imports pyiceberg.
"""

from urllib.parse import urlsplit

from pyarrow.fs import FileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

from tidegate.rollup.tables.storage import open_storage


class StoreFiles(PyArrowFileIO):  # type: ignore[misc, unused-ignore]
    """Endpoint, region and login are those by which the store itself is reached."""

    def _initialize_fs(self, scheme: str, netloc: str | None = None) -> FileSystem:
        if scheme == "file":
            return super()._initialize_fs(scheme, netloc)  # it makes folders
        return open_storage(self.properties["tidegate.store-url"]).filesystem

    @staticmethod
    def parse_location(location: str, properties: Properties = EMPTY_DICT) -> tuple[str, str, str]:
        """Of Azure's `abfss://container@host/path` the file system wants `container/path`."""
        scheme, netloc, path = PyArrowFileIO.parse_location(location, properties)
        if scheme.startswith("abfs"):
            parts = urlsplit(location)
            path = f"{parts.username}{parts.path}"
        return scheme, netloc, path
