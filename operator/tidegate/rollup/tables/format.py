"""The contents of a store: names of runs and windows, files of rows, and manifests.

A file's rows are in the order of the table's key; zstd; one content for the same rows. A manifest
states which files are the rows of one window of one table: only those count.
"""

import hashlib
import json
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidegate.errors import InvalidResource, UserActionRequired
from tidegate.rollup.schemas import DAY_MS, HOUR_MS, OWNER, TABLES, TableKind
from tidegate_logic.reasons import Reason
from tidegate_logic.words import rfc3339_ms

# A run is one process that publishes; by its name in file names no two runs write the same file.


_FORM = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")


def new_run_id(now_ms: int) -> str:
    """`20261122T071500Z-9f86d081`: unique, also among attempts of the same Job.

    Never derive it from the window instead.
    """
    return f"{datetime.fromtimestamp(now_ms / 1000, tz=UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"


def require_run_id(run_id: str) -> str:
    """Raises InvalidResource for what cannot be part of a file's name everywhere."""
    if not _FORM.fullmatch(run_id):
        raise InvalidResource(
            f"{run_id!r} cannot name a run: up to 63 letters, digits and dashes, neither end a "
            f"dash."
        )
    return run_id


# A window is a whole hour or a whole day, UTC, that is published at once.


_DAY = "%Y-%m-%d"
_HOUR = "%Y-%m-%dT%H"


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """[start, end) in milliseconds since the epoch; an hour or a day, and nothing else."""

    start_ms: int
    end_ms: int

    def __post_init__(self) -> None:
        span_ms = self.end_ms - self.start_ms
        if span_ms not in (HOUR_MS, DAY_MS) or self.start_ms % span_ms:
            raise InvalidResource(
                f"{self.start_ms}..{self.end_ms} ms is not a whole hour or day: usage is published "
                "by those only."
            )

    @property
    def name(self) -> str:
        """`2026-11-22T07` or `2026-11-22`."""
        return _time(self.start_ms).strftime(
            _HOUR if self.end_ms - self.start_ms == HOUR_MS else _DAY
        )

    @property
    def day(self) -> "Window":
        """The day that it is in, or is."""
        start_ms = self.start_ms - self.start_ms % DAY_MS
        return Window(start_ms, start_ms + DAY_MS)

    def overlaps(self, start_ms: int | None, end_ms: int | None) -> bool:
        """Whether any of it lies in [start, end); None = no bound."""
        return (end_ms is None or self.start_ms < end_ms) and (
            start_ms is None or start_ms < self.end_ms
        )

    def folder(self, kind: TableKind) -> str:
        """`usage_5m/dt=2026-11-22/hour=07`; `hour=` only for windows of less than an hour."""
        day = f"{kind.name}/dt={_time(self.start_ms).strftime(_DAY)}"
        is_hour = self.end_ms - self.start_ms == HOUR_MS
        return (
            f"{day}/hour={_time(self.start_ms):%H}" if is_hour and kind.window_ms < HOUR_MS else day
        )


def window_named(name: str) -> Window:
    """The window of such a name. Raises ValueError for another text."""
    is_hour = "T" in name
    start_ms = (
        int(datetime.strptime(name, _HOUR if is_hour else _DAY).replace(tzinfo=UTC).timestamp())
        * 1000
    )
    return Window(start_ms, start_ms + (HOUR_MS if is_hour else DAY_MS))


def window_at(kind: TableKind, at_ms: int) -> Window:
    """The window that a row of this time is published in."""
    start_ms = at_ms - at_ms % kind.published_ms
    return Window(start_ms, start_ms + kind.published_ms)


def windows_between(kind: TableKind, start_ms: int, end_ms: int) -> Iterator[Window]:
    """Every window that has any of its time in [start, end), in order."""
    at_ms = start_ms - start_ms % kind.published_ms
    while at_ms < end_ms:
        yield Window(at_ms, at_ms + kind.published_ms)
        at_ms += kind.published_ms


def _time(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC)


# A store belongs to one policy of one Kafka cluster: two would replace each other's windows.


# on a policy: the uid of the policy whose usage tables it may go on with
TAKE_OVER_ANNOTATION = "tidegate.io/take-over-usage"


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose usage it is: the policy's uid and namespace/name, and Kafka's cluster id; "" = unknown.

    `former_uids` are of policies whose tables it may go on with, such as itself before it was
    deleted and created again.
    """

    policy_uid: str = ""
    policy: str = ""
    cluster: str = ""
    former_uids: tuple[str, ...] = ()

    def objection_to(self, found: "Owner") -> str | None:
        """Why tables of `found` are not ours to write, None if they are."""
        if _differ(self.cluster, found.cluster):
            return f"belong to Kafka cluster {found.cluster}, and this run is for {self.cluster}"
        if self.policy_uid and found.policy_uid:
            if found.policy_uid in (self.policy_uid, *self.former_uids):
                return None
            return (
                f"belong to policy {found.policy} of uid {found.policy_uid}, and this run is of "
                f"policy {self.policy} of uid {self.policy_uid}"
            )
        if found.policy and self.policy != found.policy:
            ours = f"of policy {self.policy}" if self.policy else "of no policy"
            return f"belong to policy {found.policy}, and this run is {ours}"
        return None


NOBODY = Owner()


class OtherOwner(InvalidResource):
    """The tables are another policy's, or of another Kafka cluster."""


def require_owner(owner: Owner, found: Owner, *, where: str) -> None:
    """Raises OtherOwner, which says what to do, unless these tables are the owner's to write."""
    objection = owner.objection_to(found)
    if objection is None:
        return
    problem = (
        f"The tables at {where} {objection}. Nothing is read or written, as each would replace the "
        f"other's hours. Give this one a storage.url (--out on a laptop) of its own."
    )
    if not owner.policy_uid or not found.policy_uid or _differ(owner.cluster, found.cluster):
        raise OtherOwner(problem)
    raise OtherOwner(
        f"{problem} If it is the same policy, created again, annotate it with "
        f"{TAKE_OVER_ANNOTATION}: {found.policy_uid}."
    )


def _differ(one: str, other: str) -> bool:
    """Whether both are known and not the same."""
    return bool(one and other and one != other)


def with_owner(rows: pa.Table, owner: Owner) -> pa.Table:
    """The rows with the columns of their owner instead of whatever they have there."""
    own = [name for name in rows.schema.names if name in OWNER.names]
    found = rows.drop_columns(own)
    for number, (field_, value) in enumerate(
        zip(OWNER, (owner.cluster, owner.policy), strict=True)
    ):
        found = found.add_column(number, field_, _repeated(value, rows.num_rows))
    return found


def _repeated(text: str, times: int) -> pa.Array:
    # from buffers, as `pyarrow.array` imports pandas in each worker (see fold/broker.py)
    encoded = text.encode()
    offsets = np.arange(times + 1, dtype=np.int32) * len(encoded)
    return pa.Array.from_buffers(
        pa.string(), times, [None, pa.py_buffer(offsets), pa.py_buffer(encoded * times)]
    )


# Rows as the content of one file, in the order of the table's key.


class UsageDamaged(UserActionRequired):
    """Rows or files of a usage table are not what they are said to be."""

    def __init__(self, message: str) -> None:
        super().__init__(Reason.USAGE_DAMAGED, message)


@dataclass(frozen=True, slots=True)
class Contents:
    """What is in some rows: how many, and the sum of each column that counts bytes."""

    rows: int
    sums: Mapping[str, int]


def conform(kind: TableKind, rows: pa.Table) -> pa.Table:
    """The table's columns in its order and types, without others.

    Raises UsageDamaged for missing columns, nulls, NaN and infinity.
    """
    missing = [name for name in kind.schema.names if name not in rows.schema.names]
    if missing:
        raise UsageDamaged(
            f"Rows for {kind.name} lack {', '.join(missing)}; nothing of them is kept."
        )
    try:
        found = rows.select(kind.schema.names).cast(kind.schema).combine_chunks()
    except (ValueError, pa.ArrowException) as error:
        raise UsageDamaged(
            f"Rows for {kind.name} do not fit its columns ({error}); nothing of them is kept."
        ) from error
    _refuse_what_is_no_number(kind, found)
    return found


def _refuse_what_is_no_number(kind: TableKind, rows: pa.Table) -> None:
    for column in kind.schema:
        if (
            pa.types.is_floating(column.type)
            and pc.all(pc.is_finite(rows[column.name])).as_py() is False
        ):
            raise UsageDamaged(
                f"Rows for {kind.name} have a {column.name} that is not a number; nothing of them "
                "is kept."
            )


def in_order(kind: TableKind, rows: pa.Table) -> pa.Table:
    """Sorted by the table's key. Raises UsageDamaged if two rows have the same key.

    Tasks stage rows in this order, and to see it takes a tenth of the time of sorting.
    """
    if _keys_rise(kind, rows):
        return rows.combine_chunks()
    found = rows.sort_by([(name, "ascending") for name in kind.key]).combine_chunks()
    twice = _first_repeated(kind, found)
    if twice is not None:
        key = ", ".join(f"{name} {value}" for name, value in twice.items())
        raise UsageDamaged(
            f"{kind.name} would have two rows for {key}: the same usage was handed in twice. "
            f"Nothing is published."
        )
    return found


def _keys_rise(kind: TableKind, rows: pa.Table) -> bool:
    """Whether the key of each row is above that of the row before it; not where one is missing."""
    if rows.num_rows < 2:
        return True
    above, below = rows.slice(0, rows.num_rows - 1), rows.slice(1)
    rise = pc.less(above[kind.key[-1]], below[kind.key[-1]])
    for name in reversed(kind.key[:-1]):
        same = pc.and_(pc.equal(above[name], below[name]), rise)
        rise = pc.or_(pc.less(above[name], below[name]), same)
    return pc.all(rise, skip_nulls=False).as_py() is True


def _first_repeated(kind: TableKind, rows: pa.Table) -> Mapping[str, object] | None:
    """The key of a row that has the same key as the one before it; rows are sorted."""
    if rows.num_rows < 2:
        return None
    above, below = rows.slice(0, rows.num_rows - 1), rows.slice(1)
    same = pc.equal(above[kind.key[0]], below[kind.key[0]])
    for name in kind.key[1:]:
        same = pc.and_(same, pc.equal(above[name], below[name]))
    place = pc.index(same, True).as_py()
    return None if place < 0 else {name: below[name][place].as_py() for name in kind.key}


def contents_of(kind: TableKind, rows: pa.Table) -> Contents:
    """Exact, whatever the order of the rows; no rows have sums of zero."""
    return Contents(
        rows.num_rows, {name: pc.sum(rows[name]).as_py() or 0 for name in summed_columns(kind)}
    )


def summed_columns(kind: TableKind) -> tuple[str, ...]:
    return tuple(name for name in kind.schema.names if name.endswith("bytes"))


# A broker's hour with 5000 clients is about one group: a reader of some brokers of a large file
# unpacks little more than their rows.
ROWS_OF_GROUP = 131_072


def encode(rows: pa.Table) -> bytes:
    """The content of a file with these rows, in their order."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd", version="2.6", row_group_size=ROWS_OF_GROUP)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def packed(rows: pa.Table) -> bytes:
    """Rows as Arrow has them, for what no other run reads: a fifth of the time of `encode`."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, rows.schema, options=options) as stream:
        stream.write_table(rows)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def unpacked(content: bytes) -> pa.Table:
    """What was `packed`."""
    return pa.ipc.open_stream(content).read_all()


@dataclass(frozen=True, slots=True)
class Some:
    """Rows with one of these values in a column."""

    column: str
    values: pa.Array


def decode(
    content: bytes,
    *,
    where: str,
    columns: Sequence[str] | None = None,
    some: Some | None = None,
) -> pa.Table:
    """The rows of a file; `where` names it for people. Raises UsageDamaged if it is no Parquet.

    With `some` only those rows, and only groups are unpacked that may have any of them.
    """
    wanted = None if columns is None else list(columns)
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        if some is None:
            return file.read(wanted)
        rows = file.read_row_groups(_groups_with(file, some), wanted)
        return rows.filter(pc.is_in(rows[some.column], value_set=some.values))
    except (pa.ArrowException, OSError, KeyError) as error:
        raise UsageDamaged(f"{where} is not a complete Parquet file ({error}).") from error


def _groups_with(file: pq.ParquetFile, some: Some) -> list[int]:
    """By the least and the greatest value of each group; a group that does not tell counts."""
    least, greatest = pc.min(some.values).as_py(), pc.max(some.values).as_py()
    parts = [file.schema.column(place).path for place in range(len(file.schema))]
    place, found = parts.index(some.column), []
    for number in range(file.metadata.num_row_groups):
        known = file.metadata.row_group(number).column(place).statistics
        if known is None or not known.has_min_max or (known.min <= greatest and least <= known.max):
            found.append(number)
    return found


def checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


# The version in every manifest covers columns, their meaning, the layout of files and the manifest
# itself. It rises only where an older program would misread the new tables.


VERSION = 2  # 2: every table has the columns of its owner, and every manifest names it


class OtherVersion(UserActionRequired):
    """The tables are of a version that is not read."""

    def __init__(self, message: str) -> None:
        super().__init__(Reason.USAGE_VERSION, message)


def require_version(version: int, *, where: str) -> None:
    """Raises OtherVersion, which says what to do, unless the version is the one that is written."""
    if version > VERSION:
        raise OtherVersion(
            f"{where} is of version {version}, written by a newer Tidegate; this one reads "
            f"version {VERSION} and leaves it alone."
            " Use the newer one."
        )
    if version < VERSION:
        raise OtherVersion(
            f"{where} is of version {version}; this Tidegate reads version {VERSION} and leaves "
            f"it alone."
            " Use the Tidegate that wrote it, or roll the time up again into an empty storage."
        )


# A manifest with a window that is longer than what its table publishes at once has the same rows
# again, put together into fewer files: it counts for those windows only whose publication it names
# (see `store.resolve`). One that is `retired` says that the window's time is over.


MANIFESTS = "_manifests"


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A Parquet file; `path` is relative to the store, `sums` are those of its byte columns."""

    path: str
    rows: int
    size_bytes: int
    sha256: str
    sums: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a run published for a window.

    `made_from` has the stamp of each window that the rows were made from, by its name; `source`
    says by which way samples came, "" for rows that were made from other tables, and
    `source_samples` how many there were of the brokers' own counters in the window; `coverage` is
    the mean of the rows' (0..1), None if the table has none or there are no rows.
    """

    table: str
    window: Window
    run_id: str
    published_at_ms: int
    files: tuple[PublishedFile, ...]
    owner: Owner = NOBODY
    source: str = ""
    source_samples: int | None = None
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
        """The run and a digest of the files: different for each publication of a window."""
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
        return Contents(
            sum(file.rows for file in self.files),
            {name: sum(file.sums.get(name, 0) for file in self.files) for name in names},
        )


def manifest_path(table: str, window: Window) -> str:
    return f"{MANIFESTS}/{table}/{window.name}.json"


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
        "windowStart": rfc3339_ms(manifest.window.start_ms),
        "windowEnd": rfc3339_ms(manifest.window.end_ms),
        "owner": {
            "policyUid": manifest.owner.policy_uid,
            "policy": manifest.owner.policy,
            "cluster": manifest.owner.cluster,
        },
        "runId": manifest.run_id,
        "publishedAt": rfc3339_ms(manifest.published_at_ms),
        "source": manifest.source,
        "sourceSamples": manifest.source_samples,
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
        owner=_owner(document["owner"]),
        source=document["source"],
        source_samples=document["sourceSamples"],
        coverage=document["coverage"],
        made_from=document["madeFrom"],
        retired=document["retired"],
    )


def _owner(document: Mapping[str, str]) -> Owner:
    return Owner(document["policyUid"], document["policy"], document["cluster"])


def _milliseconds(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) * 1000


def _damaged(where: str, error: Exception) -> UsageDamaged:
    why = (
        f"its field {error} is missing or unknown"
        if isinstance(error, KeyError)
        else "it is not JSON in the shape that Tidegate writes"
    )
    return UsageDamaged(
        f"{where} is not a usable manifest: {why}. Its window counts as not published until it "
        f"is rolled up again."
    )
