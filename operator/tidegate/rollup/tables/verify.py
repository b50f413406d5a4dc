"""Verify that finer and coarser windows, users and brokers, members and tiers agree, to the byte.

Only windows that both sides have are compared: one may be expired or not made yet.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.rollup.schemas import DAY_MS, HOUR_MS, TABLES, TableKind
from tidegate.rollup.tables.format import (
    Contents,
    Manifest,
    Owner,
    PublishedFile,
    UsageDamaged,
    Window,
    checksum,
    contents_of,
    decode,
    in_order,
    summed_columns,
    windows_between,
)
from tidegate.rollup.tables.publication import published_starts_ms
from tidegate.rollup.tables.store import (
    Part,
    UsageStore,
    is_current,
    outdated,
    outdated_among,
    resolve,
    valid_rows,
)

# Files are read once, without trust in their manifests; a fault is a finding and never an error.


PUBLISHED = "published_ms"  # the column of sums that says in which window rows were published


@dataclass(frozen=True, slots=True)
class Finding:
    """What is broken, where: a window's name, or "" for the table as a whole."""

    table: str
    window: str
    message: str


@dataclass(slots=True)
class Inspection:
    """A day of a table; `sums` are its byte columns by published window and key without time."""

    kind: TableKind
    windows: tuple[Window, ...]
    sums: pa.Table
    files: int = 0
    rows: int = 0
    size_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_readable(self) -> bool:
        """Whether its sums are worth comparing."""
        return not self.findings


def inspect_day(store: UsageStore, kind: TableKind, manifests: Sequence[Manifest]) -> Inspection:
    """Every file, row and sum of a day, of which these are all manifests."""
    own = {one.window: one for one in manifests if not one.combines}
    parts = resolve(manifests)
    found = Inspection(
        kind, tuple(sorted(window for part in parts for window in part.windows)), _no_sums(kind)
    )
    sums = [_inspect_part(store, found, part, own) for part in parts]
    found.sums = pa.concat_tables([found.sums, *sums])
    return found


def _inspect_part(
    store: UsageStore, found: Inspection, part: Part, own: Mapping[Window, Manifest]
) -> pa.Table:
    """The sums of one part; what is wrong with it goes to `found`."""
    name = part.manifest.window.name
    tables: list[pa.Table] = []
    for file in part.files:
        found.files, found.size_bytes = found.files + 1, found.size_bytes + file.size_bytes
        try:
            tables.append(_inspect_file(found.kind, file, store.storage.read(file.path)))
        except UsageDamaged as error:
            found.findings.append(Finding(found.kind.name, name, error.message))
    if len(tables) < len(part.files) or not tables:
        return _no_sums(found.kind)
    rows = pa.concat_tables(tables)
    valid = rows.filter(valid_rows(rows, found.kind, part))
    found.rows += valid.num_rows
    sums = _sums(found.kind, valid)
    found.findings += [
        Finding(found.kind.name, name, message) for message in _wrong_rows(found.kind, rows, part)
    ]
    wrong = _wrong_sums(found.kind, valid, sums, [own[each] for each in part.windows])
    found.findings += [Finding(found.kind.name, window, message) for window, message in wrong]
    return sums


def _inspect_file(kind: TableKind, file: PublishedFile, content: bytes | None) -> pa.Table:
    """The key and byte columns of a file; raises UsageDamaged if it is not what was published."""
    if content is None:
        raise UsageDamaged(f"{file.path} is gone.")
    if checksum(content) != file.sha256:
        raise UsageDamaged(f"{file.path} does not hold what was published (checksum).")
    rows = decode(content, where=file.path)
    if not rows.schema.remove_metadata().equals(kind.schema):
        raise UsageDamaged(f"{file.path} has other columns than {kind.name}.")
    contents = contents_of(kind, rows)
    if contents != Contents(file.rows, file.sums):
        raise UsageDamaged(
            f"{file.path} holds {contents}, its manifest has {file.rows} rows and {file.sums}."
        )
    return rows.select([*kind.key, *summed_columns(kind)])


def _wrong_rows(kind: TableKind, rows: pa.Table, part: Part) -> Iterator[str]:
    """Rows that come twice, or whose time is none of the table's or of the manifest's."""
    try:
        in_order(kind, rows)
    except UsageDamaged as error:
        yield error.message
    at_ms = rows["window_start"].cast(pa.int64()).to_numpy()
    window = part.manifest.window
    outside = int(
        ((at_ms < window.start_ms) | (at_ms >= window.end_ms) | (at_ms % kind.window_ms != 0)).sum()
    )
    if outside:
        yield f"{outside} rows have a time outside of {window.name} or between its windows."


def _wrong_sums(
    kind: TableKind, valid: pa.Table, sums: pa.Table, own: Sequence[Manifest]
) -> Iterator[tuple[str, str]]:
    """Windows whose rows add up to something else than their own manifest has."""
    counted = (
        pa.table({PUBLISHED: published_starts_ms(kind, valid)})
        .group_by(PUBLISHED)
        .aggregate([([], "count_all")])
    )
    rows = dict(zip(counted[PUBLISHED].to_pylist(), counted["count_all"].to_pylist(), strict=True))
    for manifest in own:
        mine = sums.filter(pc.equal(sums[PUBLISHED], manifest.window.start_ms))
        found = Contents(
            rows.get(manifest.window.start_ms, 0),
            {name: pc.sum(mine[name]).as_py() or 0 for name in summed_columns(kind)},
        )
        expected = Contents(
            manifest.contents.rows,
            {name: manifest.contents.sums.get(name, 0) for name in summed_columns(kind)},
        )
        if found != expected:
            yield manifest.window.name, f"holds {found}, its manifest has {expected}."


def _sums(kind: TableKind, rows: pa.Table) -> pa.Table:
    names, keys = list(summed_columns(kind)), [PUBLISHED, *kind.key[:-1]]
    timed = rows.append_column(PUBLISHED, pa.array(published_starts_ms(kind, rows)))
    return added_up(timed, keys, names).cast(_no_sums(kind).schema)


def added_up(
    rows: pa.Table, keys: Sequence[str], names: Sequence[str], *, highest: Collection[str] = ()
) -> pa.Table:
    """The columns `names` summed for each value of `keys`, under their own names.

    Of `highest` among them the highest is taken.
    """
    functions = [(name, "max" if name in highest else "sum") for name in names]
    grouped = rows.group_by(list(keys), use_threads=False).aggregate(functions)
    return grouped.select(
        [*keys, *(f"{name}_{function}" for name, function in functions)]
    ).rename_columns([*keys, *names])


def _no_sums(kind: TableKind) -> pa.Table:
    keys = [
        pa.field(PUBLISHED, pa.int64()),
        *(kind.schema.field(name).with_nullable(True) for name in kind.key[:-1]),
    ]
    return pa.schema(
        [*keys, *(pa.field(name, pa.int64()) for name in summed_columns(kind))]
    ).empty_table()


_CLIENT = ("broker", "user", "client_id", "direction")
_BROKER = ("broker", "direction")
_BROKER_BYTES = ("nic_bytes", "client_bytes", "replication_bytes", "unattributed_bytes")
_USED = ("bytes", "deferred_bytes")


@dataclass(frozen=True, slots=True)
class Rule:
    """Rows of `finer`, summed over `keys`, must be the rows of `coarser` in these columns."""

    finer: str
    coarser: str
    keys: tuple[str, ...]
    columns: tuple[str, ...]

    @property
    def words(self) -> str:
        return f"{self.coarser} is not the sum of {self.finer}"


RULES = (
    Rule("usage_5m", "usage_1h", _CLIENT, _USED),
    Rule("usage_1h", "usage_1d", _CLIENT, _USED),
    Rule("broker_5m", "broker_1h", _BROKER, _BROKER_BYTES),
    Rule("broker_1h", "broker_1d", _BROKER, _BROKER_BYTES),
    Rule("tier_1h", "tier_1d", ("tier", "direction"), _USED),
    Rule("usage_1h", "tier_1h", ("tier", "direction"), _USED),
    Rule("usage_1d", "tier_1d", ("tier", "direction"), _USED),
)
GRAINS = ("5m", "1h", "1d")


def disagreements(day: Mapping[str, Inspection]) -> Iterator[Finding]:
    """Contradictions between the tables of a day; tables with own findings are left out."""
    sound = {name: inspection for name, inspection in day.items() if inspection.is_readable}
    for rule in RULES:
        if rule.finer in sound and rule.coarser in sound:
            yield from _of_grains(rule, sound[rule.finer], sound[rule.coarser])
    for grain in GRAINS:
        if f"usage_{grain}" in sound and f"broker_{grain}" in sound:
            yield from _of_users_and_brokers(sound[f"usage_{grain}"], sound[f"broker_{grain}"])


def _of_grains(rule: Rule, finer: Inspection, coarser: Inspection) -> Iterator[Finding]:
    keys = [PUBLISHED, *rule.keys]
    windows = [window for window in coarser.windows if _is_covered(window, finer.windows)]
    left = _signed(
        _in_coarser_windows(finer.sums, coarser.kind.published_ms),
        keys,
        {name: (1, name) for name in rule.columns},
    )
    right = _signed(coarser.sums, keys, {name: (-1, name) for name in rule.columns})
    if rule.finer.startswith("usage") and rule.coarser.startswith("tier"):
        left = left.filter(pc.not_equal(left["tier"], ""))  # clients of no tier
        right = right.filter(pc.not_equal(right["tier"], ""))
    yield from _differences(
        rule.coarser, windows, pa.concat_tables([left, right]), keys, words=rule.words
    )


def _of_users_and_brokers(usage: Inspection, broker: Inspection) -> Iterator[Finding]:
    keys = [PUBLISHED, *_BROKER]
    windows = sorted(set(usage.windows) & set(broker.windows))
    terms = [(usage, 1, "bytes"), (broker, 1, "unattributed_bytes"), (broker, -1, "client_bytes")]
    sides = [_signed(side.sums, keys, {"bytes": (sign, column)}) for side, sign, column in terms]
    words = (
        f"the users' bytes and the unattributed ones are not the clients' bytes of "
        f"{broker.kind.name}"
    )
    yield from _differences(usage.kind.name, windows, pa.concat_tables(sides), keys, words=words)


def _is_covered(window: Window, finer: Sequence[Window]) -> bool:
    return any(window.start_ms <= one.start_ms < window.end_ms for one in finer)


def _in_coarser_windows(sums: pa.Table, published_ms: int) -> pa.Table:
    at_ms = sums[PUBLISHED].to_numpy()
    return sums.set_column(
        sums.schema.get_field_index(PUBLISHED), PUBLISHED, pa.array(at_ms - at_ms % published_ms)
    )


def _signed(
    sums: pa.Table, keys: Sequence[str], columns: Mapping[str, tuple[int, str]]
) -> pa.Table:
    """The keys and, by the name they get, columns that count for (1) or against (-1)."""
    signed = {
        name: pc.multiply(sums[column], pa.scalar(sign, pa.int64()))
        for name, (sign, column) in columns.items()
    }
    return pa.table({**{key: sums[key] for key in keys}, **signed})


def _differences(
    table: str, windows: Sequence[Window], rows: pa.Table, keys: Sequence[str], *, words: str
) -> Iterator[Finding]:
    """A finding for each window in which the rows, summed by key, do not cancel out."""
    names = [name for name in rows.schema.names if name not in keys]
    left = added_up(rows, keys, names)
    wrong = left.filter(pc.not_equal(left[names[0]], 0))
    for name in names[1:]:
        wrong = pa.concat_tables(
            [wrong, left.filter(pc.and_(pc.equal(left[names[0]], 0), pc.not_equal(left[name], 0)))]
        )
    for window in windows:
        mine = wrong.filter(pc.equal(wrong[PUBLISHED], window.start_ms)).to_pylist()
        if mine:
            yield Finding(
                table,
                window.name,
                f"{words}: {_first(mine[0], keys, names)}{_others(len(mine) - 1)}.",
            )


def _first(row: Mapping[str, object], keys: Sequence[str], names: Sequence[str]) -> str:
    whose = ", ".join(f"{key} {row[key]!r}" for key in keys if key != PUBLISHED)
    return f"{whose} differs by " + ", ".join(
        f"{row[name]:+} {name}" for name in names if row[name]
    )


def _others(count: int) -> str:
    return f", and {count} more" if count else ""


# Broken: tables contradict each other or themselves. Gap: never published, between windows that
# are. Outdated: made from older rows. The next runs repair gaps and outdated tables. Unattributed:
# a day with unattributed bytes, which is right and worth knowing.


WORTH_TELLING = 0.01  # of the clients' bytes; clients that come and go leave less over
_MOST_GAPS = 10_000  # of windows that are looked for between the first and the last


@dataclass(slots=True)
class Tally:
    """What was read of one table."""

    windows: int = 0
    files: int = 0
    rows: int = 0
    size_bytes: int = 0

    def add(self, inspection: Inspection) -> None:
        self.windows += len(inspection.windows)
        self.files += inspection.files
        self.rows += inspection.rows
        self.size_bytes += inspection.size_bytes


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was read, and what is wrong with it."""

    tables: Mapping[str, Tally]
    broken: list[Finding] = field(default_factory=list)
    gaps: list[Finding] = field(default_factory=list)
    outdated: list[Finding] = field(default_factory=list)
    unattributed: list[Finding] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether every row that is published can be believed."""
        return not self.broken

    @property
    def is_whole(self) -> bool:
        """Whether, beyond that, no time is missing and nothing waits to be made again."""
        return not (self.broken or self.gaps or self.outdated)

    def document(self) -> Mapping[str, object]:
        return {
            "sound": self.is_sound,
            "whole": self.is_whole,
            "tables": {name: _document_of(tally) for name, tally in self.tables.items()},
            **{name: [asdict(one) for one in found] for name, found in self.findings().items()},
        }

    def findings(self) -> Mapping[str, list[Finding]]:
        """By how bad they are, the worst first."""
        return {
            "broken": self.broken,
            "gaps": self.gaps,
            "outdated": self.outdated,
            "unattributed": self.unattributed,
        }


def _two_owners(manifests: Sequence[Manifest]) -> Iterator[Finding]:
    """A finding for each window of another policy or Kafka cluster than the newest one's."""
    if not manifests:
        return
    newest = max(manifests, key=lambda one: one.published_at_ms).owner
    for one in manifests:
        clusters, policies = {newest.cluster, one.owner.cluster}, {newest.policy, one.owner.policy}
        if len(clusters - {""}) > 1 or len(policies - {""}) > 1:
            yield Finding(
                one.table,
                one.window.name,
                f"is of {_owner_words(one.owner)}, newer windows are of {_owner_words(newest)}: "
                f"two policies wrote to one storage, and each replaced hours of the other.",
            )


def _owner_words(owner: Owner) -> str:
    cluster = f"Kafka cluster {owner.cluster}" if owner.cluster else "a Kafka cluster unknown"
    return f"{cluster} and policy {owner.policy}" if owner.policy else cluster


def verify(store: UsageStore, *, progress: Callable[[str], None] | None = None) -> Verdict:
    """Read everything. `progress` gets each day before it is read.

    Raises OtherVersion for tables of another version, RetryLater if the storage does not answer.
    """
    verdict = Verdict({name: Tally() for name in TABLES})
    manifests = {
        name: found for name in TABLES if (found := _manifests(store, name, verdict)) is not None
    }
    verdict.broken.extend(_two_owners([one for found in manifests.values() for one in found]))
    by_day = {name: _by_day(found) for name, found in manifests.items()}
    for day in sorted({day for days in by_day.values() for day in days}):
        if progress is not None:
            progress(day.name)
        _verify_day(store, verdict, {name: days.get(day, []) for name, days in by_day.items()})
    for name, found in manifests.items():
        verdict.gaps.extend(
            _gaps(TABLES[name], sorted(one.window for one in found if is_current(one)))
        )
        finer = sorted({rule.finer for rule in RULES if rule.coarser == name} & manifests.keys())
        verdict.outdated.extend(
            _outdated(
                name, found, finer, sources=[one for source in finer for one in manifests[source]]
            )
        )
    return verdict


def _verify_day(
    store: UsageStore, verdict: Verdict, manifests: Mapping[str, Sequence[Manifest]]
) -> None:
    inspections = {
        name: inspect_day(store, TABLES[name], found) for name, found in manifests.items()
    }
    for name, inspection in inspections.items():
        verdict.tables[name].add(inspection)
        verdict.broken.extend(inspection.findings)
    verdict.broken.extend(disagreements(inspections))
    verdict.unattributed.extend(_unattributed(inspections))


def _unattributed(day: Mapping[str, Inspection]) -> Iterator[Finding]:
    """The bytes of a day that brokers counted and no client was given, if they are worth it."""
    for name in ("broker_1d", "broker_1h", "broker_5m"):
        one = day.get(name)
        if one is None or not one.windows:
            continue
        rest, total = (
            pc.sum(one.sums[column]).as_py() or 0
            for column in ("unattributed_bytes", "client_bytes")
        )
        if rest > WORTH_TELLING * total:
            yield Finding(
                name,
                one.windows[0].day.name,
                f"{rest / total:.1%} of the clients' bytes, {rest} of {total}, are unattributed.",
            )
        return


def _manifests(store: UsageStore, table: str, verdict: Verdict) -> list[Manifest] | None:
    """None, and a finding, where a manifest of the table cannot be read."""
    try:
        return store.manifests(table)
    except UsageDamaged as error:
        verdict.broken.append(Finding(table, "", error.message))
        return None


def _by_day(manifests: Iterable[Manifest]) -> dict[Window, list[Manifest]]:
    days: dict[Window, list[Manifest]] = {}
    for one in manifests:
        days.setdefault(one.window.day, []).append(one)
    return days


def _gaps(kind: TableKind, found: Sequence[Window]) -> list[Finding]:
    """Return the windows that are not published between the first and the last published one."""
    if not found:
        return []
    between = list(windows_between(kind, found[0].start_ms, found[-1].end_ms))[-_MOST_GAPS:]
    return [
        Finding(kind.name, window.name, "was never published.")
        for window in sorted(set(between) - set(found))
    ]


def _outdated(
    table: str, targets: Sequence[Manifest], finer: Sequence[str], *, sources: Sequence[Manifest]
) -> list[Finding]:
    """What was made from rows that were published again since."""
    message = f"was made before {' or '.join(finer)} was published as it is now."
    return [Finding(table, window.name, message) for window in outdated_among(targets, sources)]


def _document_of(tally: Tally) -> Mapping[str, object]:
    return {
        "windows": tally.windows,
        "files": tally.files,
        "rows": tally.rows,
        "sizeBytes": tally.size_bytes,
    }


# An hour is missing when it is not published, was published before it was over, or lacks the tables
# that are made of it. A window that expired (retention) is not missing. Only manifests are read.


_BY_HOUR = tuple(kind.name for kind in TABLES.values() if kind.published_ms == HOUR_MS)
_BY_DAY = tuple(kind.name for kind in TABLES.values() if kind.published_ms == DAY_MS)


def missing_hours(store: UsageStore, start_ms: int, end_ms: int) -> list[int]:
    """Starts of whole hours in [start_ms, end_ms) that a run should compute, oldest first.

    Where only a day's own tables are missing, that is its last hour. Raises as `store.manifests`.
    """
    hours = range(start_ms - start_ms % HOUR_MS, end_ms - end_ms % HOUR_MS, HOUR_MS)
    missing = {hour for table in _BY_HOUR for hour in _lacking(store, table, hours)}
    whole_days = range(hours.start - hours.start % DAY_MS, hours.stop - hours.stop % DAY_MS, DAY_MS)
    days = {day for table in _BY_DAY for day in _lacking(store, table, whole_days)}
    last_hours = {day + DAY_MS - HOUR_MS for day in days} & set(hours)
    return sorted(missing | last_hours)


@dataclass(frozen=True, slots=True)
class ChangedHour:
    """A published hour of which Prometheus has another number of samples than it had then."""

    start_ms: int
    then: int
    now: int

    @property
    def is_more(self) -> bool:
        """Samples came late. Otherwise the server let some go, and the tables know more."""
        return self.now > self.then


def changed_hours(
    store: UsageStore, samples: Mapping[int, int], start_ms: int, end_ms: int
) -> list[ChangedHour]:
    """The published hours of [start_ms, end_ms) whose source is another one now, oldest first.

    `samples` are those that there are, by the start of the hour.
    """
    return [
        ChangedHour(hour_ms, one.source_samples, samples.get(hour_ms, 0))
        for one in sorted(
            filter(is_current, store.manifests("usage_5m", start_ms, end_ms)),
            key=lambda one: one.window,
        )
        if one.source_samples is not None
        and start_ms <= (hour_ms := one.window.start_ms)
        and one.window.end_ms <= end_ms
        and samples.get(hour_ms, 0) != one.source_samples
    ]


def in_runs(
    starts: Sequence[int], step_ms: int = HOUR_MS, within_ms: int | None = DAY_MS
) -> Iterator[tuple[int, int]]:
    """Spans of neighbours; of hours within a day: a run that is killed loses a day at most."""
    begin = None
    for start in starts:
        begin = start if begin is None else begin
        end = start + step_ms
        if end not in starts or (within_ms and end % within_ms == 0):
            yield begin, end
            begin = None


def _lacking(store: UsageStore, table: str, starts: range) -> set[int]:
    manifests = [
        one for one in store.manifests(table, starts.start, starts.stop) if not one.combines
    ]
    whole = {
        one.window.start_ms
        for one in manifests
        if one.retired or one.published_at_ms >= one.window.end_ms
    }
    finer = sorted({rule.finer for rule in RULES if rule.coarser == table})
    whole -= {
        window.start_ms for window in outdated(store, table, finer, starts.start, starts.stop)
    }
    return {start_ms for start_ms in starts if start_ms not in whole}
