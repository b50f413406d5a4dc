"""The statement of which files are the rows of one window of one table, as it is stored.

A manifest with a window that is longer than what its table publishes at once has the same rows again, put together into fewer files:
it counts for those windows only whose publication it names (see `resolution`). One that is `retired` says that the window's time is over.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from controller_logic.reasons import Reason
from tidegate.errors import UserActionRequired
from tidegate.rollup.schemas import TABLES, TableKind
from tidegate.rollup.tables.format import Contents, UsageDamaged, Window, time_words, window_named

# The version is in every manifest. It covers columns, their meaning, the layout of files and the
# manifest itself, and rises only where an older program would misread the new tables.


VERSION = 1


class OtherVersion(UserActionRequired):
    """The tables are of a version that is not read."""

    def __init__(self, message: str) -> None:
        super().__init__(Reason.USAGE_VERSION, message)


def require_version(version: int, *, where: str) -> None:
    """Raises OtherVersion, which says what to do, unless the version is the one that is written."""
    if version > VERSION:
        raise OtherVersion(
            f"{where} is of version {version}, written by a newer Tidegate; this one reads version {VERSION} and leaves it alone."
            " Use the newer one."
        )
    if version < VERSION:
        raise OtherVersion(
            f"{where} is of version {version}; this Tidegate reads version {VERSION} and leaves it alone."
            " Use the Tidegate that wrote it, or roll the time up again into an empty storage."
        )


FOLDER = "_manifests"


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """One Parquet file; `path` is relative to the store, `sums` has each column that counts bytes."""

    path: str
    rows: int
    size_bytes: int
    sha256: str
    sums: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a run published for a window.

    `made_from` has the stamp of each window that the rows were made from, by its name; `source` says by which way samples came, ""
    for rows that were made from other tables; `coverage` is the mean of the rows' (0..1), None where the table has none or there are no
    rows.
    """

    table: str
    window: Window
    run_id: str
    published_at_ms: int
    files: tuple[PublishedFile, ...]
    source: str = ""
    coverage: float | None = None
    made_from: Mapping[str, str] = field(default_factory=dict)
    retired: bool = False

    @property
    def kind(self) -> TableKind:
        return TABLES[self.table]

    @property
    def path(self) -> str:
        return manifest_path(self.table, self.window)

    @property
    def name(self) -> str:
        """`usage_5m/2026-11-22T07`, as `made_from` of others names it."""
        return f"{self.table}/{self.window.name}"

    @property
    def stamp(self) -> str:
        """Distinguishes this publication from every other of the same window: its run and a digest of its files."""
        digest = hashlib.sha256("".join(file.sha256 for file in self.files).encode()).hexdigest()
        return f"{self.run_id}/{digest[:12]}"

    @property
    def combines(self) -> bool:
        """Whether it covers windows that have manifests of their own."""
        return self.window.end_ms - self.window.start_ms > self.kind.published_ms

    @property
    def contents(self) -> Contents:
        """Rows and sums over all files."""
        names = sorted({name for file in self.files for name in file.sums})
        return Contents(sum(file.rows for file in self.files), {name: sum(file.sums.get(name, 0) for file in self.files) for name in names})


def manifest_path(table: str, window: Window) -> str:
    return f"{FOLDER}/{table}/{window.name}.json"


def window_of_path(path: str) -> Window | None:
    """The window that a manifest's path names; None for a file that is no manifest."""
    name = path.rpartition("/")[2]
    try:
        return window_named(name.removesuffix(".json")) if name.endswith(".json") else None
    except ValueError:
        return None


def encode_manifest(manifest: Manifest) -> bytes:
    contents = manifest.contents
    document = {
        "schemaVersion": VERSION,
        "table": manifest.table,
        "windowStart": time_words(manifest.window.start_ms),
        "windowEnd": time_words(manifest.window.end_ms),
        "runId": manifest.run_id,
        "publishedAt": time_words(manifest.published_at_ms),
        "source": manifest.source,
        "coverage": manifest.coverage,
        "rows": contents.rows,
        "sums": contents.sums,
        "retired": manifest.retired,
        "madeFrom": dict(manifest.made_from),
        "files": [asdict(file) for file in manifest.files],
    }
    return json.dumps(document, indent=1).encode()


def decode_manifest(content: bytes, *, where: str) -> Manifest:
    """Raises UsageDamaged for what is no manifest, OtherVersion for one of another version."""
    try:
        document = json.loads(content)
        version = int(document["schemaVersion"])
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(where, error) from error
    require_version(version, where=where)
    try:
        return _manifest(document)
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(where, error) from error


def _manifest(document: Mapping[str, Any]) -> Manifest:
    return Manifest(
        table=TABLES[document["table"]].name,
        window=Window(_milliseconds(document["windowStart"]), _milliseconds(document["windowEnd"])),
        run_id=document["runId"],
        published_at_ms=_milliseconds(document["publishedAt"]),
        files=tuple(PublishedFile(**file) for file in document["files"]),
        source=document["source"],
        coverage=document["coverage"],
        made_from=document["madeFrom"],
        retired=document["retired"],
    )


def _milliseconds(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) * 1000


def _damaged(where: str, error: Exception) -> UsageDamaged:
    why = f"its field {error} is missing or unknown" if isinstance(error, KeyError) else "it is not JSON in the shape that Tidegate writes"
    return UsageDamaged(f"{where} is not a usable manifest: {why}. Its window counts as not published until it is rolled up again.")
