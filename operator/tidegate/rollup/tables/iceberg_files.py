"""What pyiceberg does in our own way: an Iceberg table's files are read and written by the file
system of the store, and a REST catalog that does not answer is given up.

A module of its own because a catalog's client imports it by its name, and it imports pyiceberg.
"""

from typing import Any
from urllib.parse import urlsplit

from pyarrow.fs import FileSystem
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.rest.auth import AuthManager
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties
from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter

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


ANSWER_WITHIN_SECONDS = (10.0, 60.0)  # to connect, and between two pieces of an answer


class GivenUpInTime(HTTPAdapter):
    """Requests with a time limit: pyiceberg gives none, and would wait for ever."""

    def send(self, request: PreparedRequest, **given: Any) -> Response:  # type: ignore[override]
        return super().send(request, **{**given, "timeout": ANSWER_WITHIN_SECONDS})


class PatientRestCatalog(RestCatalog):  # type: ignore[misc, unused-ignore]
    """A Job that waited for its catalog until its own deadline would have failed."""

    def _create_session(self) -> Session:
        return _limited(super()._create_session())

    def _create_legacy_oauth2_auth_manager(self, session: Session) -> AuthManager:
        return super()._create_legacy_oauth2_auth_manager(_limited(session))  # it asks at once


def _limited(session: Session) -> Session:
    for scheme in ("http://", "https://"):
        session.mount(scheme, GivenUpInTime())
    return session
