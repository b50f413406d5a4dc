"""From the URL in a policy or on the command line to a place to store in. The URL may carry options of pyarrow; people are shown none of
it."""

from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow.fs import FileSystem

from tidegate.errors import InvalidResource
from tidegate.rollup.tables.storage import Storage

SCHEMES = ("file", "s3", "gs", "abfs")


def open_storage(url: str, *, parallel: int = 8) -> Storage:
    """The place of `file:///path`, `s3://bucket/prefix`, `gs://…`, `abfs://container@account.dfs.core.windows.net/…`, or of a plain path.

    Nothing is asked of it yet. Raises InvalidResource for another scheme, or a URL without a path.
    """
    if "://" not in url:
        return open_storage(Path(url).absolute().as_uri(), parallel=parallel) if url else _refuse(url)
    shown = _shown(url)
    if urlsplit(url).scheme not in SCHEMES:
        _refuse(shown)
    try:
        filesystem, root = FileSystem.from_uri(url)
    except (ValueError, OSError, pa.ArrowException) as error:
        raise InvalidResource(f"{shown} cannot be opened as a storage ({_plain(error)}). {_FORMS}") from error
    if not root.strip("/"):
        _refuse(shown)
    return Storage(filesystem, root, shown=shown, parallel=parallel)


_FORMS = "Give file:///path, s3://bucket/prefix, gs://bucket/prefix or abfs://container@account.dfs.core.windows.net/prefix."


def _refuse(shown: str) -> Storage:
    raise InvalidResource(f"{shown or 'An empty address'} is no storage for usage tables. {_FORMS}")


def _shown(url: str) -> str:
    """Without options, and without a key and secret before the host; a container's name stays."""
    parts = urlsplit(url)
    name, _, host = parts.netloc.rpartition("@")
    is_container = parts.scheme == "abfs" and name and ":" not in name
    return f"{parts.scheme}://{parts.netloc if is_container else host}{parts.path.rstrip('/')}"


def _plain(error: Exception) -> str:
    """The kind of the error alone: pyarrow's messages repeat the URL, and with it what may be secret."""
    return type(error).__name__
