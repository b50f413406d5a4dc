"""The published tables as Iceberg tables, for engines that know nothing of the store's manifests.

The store stays the truth. An Iceberg table names the store's own files; no row is written again.
`update` makes the days that changed equal to the store in one snapshot of each table, so a reader
sees an hour as it was or as it is now. Whatever was left out, by a catalog that was away or a run
that was killed, is found by the next update: a table remembers how new the manifests were that it
was made from.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from tidegate.errors import InvalidResource, TidegateError, Unreachable
from tidegate.rollup.schemas import DAY_MS, HOUR_MS, TABLES, TableKind
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.tables.verify import in_runs
from tidegate_logic.reasons import Reason
from tidegate_logic.words import rfc3339

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

CatalogType = Literal["rest", "sql"]

# of the login at the catalog: the names that the Secret of the storage may have beside AWS' own;
# scope and server are of the OAuth exchange of a credential for a token
LOGIN_VARIABLES: Mapping[str, str] = {
    "ICEBERG_TOKEN": "token",
    "ICEBERG_CREDENTIAL": "credential",
    "ICEBERG_SCOPE": "scope",
    "ICEBERG_OAUTH2_SERVER_URI": "oauth2-server-uri",
}

FOLDER = "_iceberg"  # Iceberg's own files, beside the tables
_STORE_URL = "tidegate.store-url"  # not _STORE: a table's own property would hide it
_STORE = "tidegate.store"
_SEEN = "tidegate.manifests-until-ms"
_MARGIN_MS = 600_000  # clocks differ, and a manifest may be on its way while others are listed
_KEPT_MS = DAY_MS - HOUR_MS  # a snapshot, after it was replaced; its files are kept for a day
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class CatalogSettings:
    """Where the Iceberg tables are known: a REST service, or a database by SQLAlchemy.

    `warehouse` is which of a service's catalogs it is, for those that have several.
    """

    type: CatalogType
    uri: str
    namespace: str = "tidegate"
    warehouse: str | None = None


def update(store: UsageStore, settings: CatalogSettings, *, now_ms: int) -> list[str]:
    """Make the Iceberg tables equal to the store, and let old snapshots go; the tables changed.

    Raises Unreachable or InvalidResource where the catalog cannot be written. Tables that were
    committed until then stay, and the rest is left to the next update.
    """
    try:
        catalog = open_catalog(settings, store)
        catalog.create_namespace_if_not_exists(settings.namespace)
        return [
            kind.name
            for kind in TABLES.values()
            if _update_table(catalog, store, kind, settings.namespace, now_ms=now_ms)
        ]
    except TidegateError:
        raise
    except Exception as error:  # of the catalog's client, SQL, HTTP or the file system
        raise Unreachable(
            Reason.STORAGE_UNREACHABLE,
            f"The Iceberg catalog of type {settings.type} could not be updated "
            f"({type(error).__name__}: {_without_login(str(error))[:300]}). The tables of the "
            "store are published; the next run brings the catalog up to them.",
        ) from error


def open_catalog(settings: CatalogSettings, store: UsageStore) -> Catalog:
    """The catalog, for readers as well; its tables are `<namespace>.<table>`."""
    from pyiceberg.catalog import load_catalog

    login = {name: value for variable, name in LOGIN_VARIABLES.items() if (value := _env(variable))}
    if settings.type == "rest" and login:
        # where pyiceberg looks by itself, which it means to end
        login.setdefault("oauth2-server-uri", f"{settings.uri.rstrip('/')}/v1/oauth/tokens")
    own = "tidegate.rollup.tables.iceberg_files"
    kind = {"py-catalog-impl": f"{own}.PatientRestCatalog"}
    return load_catalog(
        "tidegate",
        uri=settings.uri,
        **(kind if settings.type == "rest" else {"type": settings.type}),
        **({} if settings.warehouse is None else {"warehouse": settings.warehouse}),
        **login,
        **{"py-io-impl": f"{own}.StoreFiles", _STORE_URL: store.storage.url},
    )


def _update_table(
    catalog: Catalog, store: UsageStore, kind: TableKind, namespace: str, *, now_ms: int
) -> bool:
    """Whether the table has a new snapshot."""
    from pyiceberg.exceptions import CommitFailedException, ValidationException

    for attempt in range(1, _ATTEMPTS + 1):
        table = _table(catalog, store, kind, namespace)
        try:
            changed = _commit_changes(table, store, kind, now_ms=now_ms)
            _expire(table, before_ms=now_ms - _KEPT_MS)
        # another run was faster, which pyiceberg may find out when it tries again; what is missing?
        except (CommitFailedException, ValidationException):
            if attempt == _ATTEMPTS:
                raise
        else:
            return changed
    raise AssertionError("unreachable")


def _table(catalog: Catalog, store: UsageStore, kind: TableKind, namespace: str) -> Table:
    """The table, made or given new columns first where need be.

    Raises InvalidResource if it is of another store.
    """
    from pyiceberg.exceptions import NoSuchTableError
    from pyiceberg.transforms import DayTransform

    name = f"{namespace}.{kind.name}"
    try:
        table = catalog.load_table(name)
    except NoSuchTableError:
        with catalog.create_table_transaction(
            name,
            kind.schema,
            location=_uri(store, f"{FOLDER}/{namespace}/{kind.name}"),
            properties={
                _STORE: store.storage.shown,
                "write.metadata.delete-after-commit.enabled": "true",
                "write.metadata.previous-versions-max": "24",
            },
        ) as first:
            first.update_spec().add_field("window_start", DayTransform(), "day").commit()
            # the files have no numbers of columns, only names
            mapping = first.table_metadata.schema().name_mapping.model_dump_json()
            first.set_properties({"schema.name-mapping.default": mapping})
        table = catalog.load_table(name)
    owner = table.properties.get(_STORE)
    if owner != store.storage.shown:
        raise InvalidResource(
            f"Iceberg table {name} is of {owner or 'somebody else'}, not of the tables at "
            f"{store.storage.shown}; nothing of it is changed. Give another namespace."
        )
    known = {column.name for column in table.schema().columns}
    added = [column.with_nullable(True) for column in kind.schema if column.name not in known]
    if added:
        with table.update_schema() as change:
            change.union_by_name(pa.schema(added))
    return table


def _commit_changes(table: Table, store: UsageStore, kind: TableKind, *, now_ms: int) -> bool:
    """One snapshot in which the changed days are as the store has them."""
    listed = store.listed(kind.name)
    if not listed:
        return False  # never published, or not the place that it was: what is known stays
    seen_ms = int(table.properties.get(_SEEN, 0))
    changed = sorted(
        {one.day.start_ms for one, file in listed if file.modified_ms >= seen_ms - _MARGIN_MS}
    )
    wanted: dict[str, None] = {}
    named: dict[str, DataFile] = {}
    left_ms: list[int] = []
    # before the oldest window there is nothing: it was dropped while no catalog was updated
    for start_ms, end_ms in [(0, listed[0][0].day.start_ms), *in_runs(changed, DAY_MS, None)]:
        parts = store.parts(kind.name, start_ms, end_ms)
        # such a file has rows that count no more; the day is put together again, then it is taken
        stale = {part.windows[0].day for part in parts if part.superseded}
        left_ms += [file.modified_ms for one, file in listed if one.day in stale]
        for part in parts:
            if part.windows[0].day not in stale:
                wanted |= dict.fromkeys(_uri(store, file.path) for file in part.files)
        for path, file in _files_between(table, start_ms, end_ms):
            if _day_of(path) not in {day.name for day in stale}:
                named[path] = file
    gone, new = [named[path] for path in named if path not in wanted], [*wanted.keys() - named]
    newest_ms = max(file.modified_ms for _, file in listed)
    until_ms = min([newest_ms, *left_ms])
    if not gone and not new and until_ms == seen_ms:
        return False
    _commit(table, gone, sorted(new), until_ms=until_ms, now_ms=now_ms)
    return bool(gone or new)


def _commit(
    table: Table, gone: Iterable[DataFile], new: Sequence[str], *, until_ms: int, now_ms: int
) -> None:
    from pyiceberg.io.pyarrow import parquet_files_to_data_files

    gone = list(gone)
    with table.transaction() as transaction:
        transaction.set_properties({_SEEN: str(until_ms)})
        if gone or new:
            at = {"tidegate.published-at": rfc3339(now_ms // 1000)}
            with transaction.update_snapshot(snapshot_properties=at).overwrite() as snapshot:
                for file in gone:
                    snapshot.delete_data_file(file)
                files = parquet_files_to_data_files(table.io, transaction.table_metadata, iter(new))
                for file in files:
                    snapshot.append_data_file(file)


def _files_between(table: Table, start_ms: int, end_ms: int) -> Iterator[tuple[str, DataFile]]:
    """The files of these days that the current snapshot names."""
    within = f"window_start >= '{_time(start_ms)}' and window_start < '{_time(end_ms)}'"
    for task in table.scan(row_filter=within).plan_files():
        yield task.file.file_path, task.file


def _expire(table: Table, *, before_ms: int) -> None:
    """Let snapshots go that were replaced by then, with the files that only they name."""
    snapshots = sorted(table.metadata.snapshots, key=lambda one: one.timestamp_ms)
    named = {ref.snapshot_id for ref in table.metadata.refs.values()}  # tags are others' wish
    old = [
        one
        for one, following in pairwise(snapshots)
        if following.timestamp_ms < before_ms and one.snapshot_id not in named
    ]
    if not old:
        return
    lists = {one.manifest_list for one in old}
    manifests = {file.manifest_path for one in old for file in one.manifests(table.io)}
    with table.maintenance.expire_snapshots() as expiry:
        expiry.by_ids([one.snapshot_id for one in old])
    table.refresh()
    kept = {
        file.manifest_path for one in table.metadata.snapshots for file in one.manifests(table.io)
    }
    for path in sorted((lists | manifests) - kept):
        table.io.delete(path)


def _uri(store: UsageStore, path: str) -> str:
    """The address of a file as Iceberg's readers need it, a file's URL on a disk."""
    address = store.storage.address(path)
    return f"file://{address}" if address.startswith("/") else address


def _day_of(path: str) -> str:
    return path.rpartition("/dt=")[2][: len("2026-11-22")]


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()


def _env(name: str) -> str:
    return os.environ.get(name, "")


def _without_login(text: str) -> str:
    """The text without token, credential, and the secret after the credential's name."""
    for variable in ("ICEBERG_TOKEN", "ICEBERG_CREDENTIAL"):
        for secret in (_env(variable), _env(variable).partition(":")[2]):
            text = text.replace(secret, "...") if secret else text
    return text
