"""Close a month: keep its bill, so that later corrections are lines of a later bill.

Tables may change after a bill was sent: samples come late, or a time is recomputed. A closed
month is one JSON file in the store, which nothing replaces: the lines of its bill, the rates and
members that they were made with, what every client moved, who closed it, a checksum, and the
publications that it rests on. Its corrections are what the same rates make of the tables as they
are now, less what was billed. They belong to the first month after it that is not closed, and are
kept with that month when it is closed in its turn: so each correction is billed once.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, time, tzinfo
from decimal import Decimal
from time import sleep
from typing import Any, Final
from zoneinfo import ZoneInfo

from pydantic import TypeAdapter, ValidationError

from tidegate.errors import InvalidResource, NotFound
from tidegate.report.charges import charges_of
from tidegate.report.figures import Charge, ClosedMonth, Correction
from tidegate.report.period import period_tables
from tidegate.report.rate_card import RateCard
from tidegate.report.request import (
    MemberDirectory,
    MemberTerms,
    ReportRequest,
    UsageTables,
    stored_provenance,
    total_of,
)
from tidegate.rollup.schemas import HOUR_MS, TIER, Direction
from tidegate.rollup.tables.format import UsageDamaged
from tidegate.rollup.tables.store import UsageStore, stamps
from tidegate.rollup.tables.verify import added_up
from tidegate_logic.reasons import Reason
from tidegate_logic.words import rfc3339, rfc3339_ms

FOLDER: Final = "_closed"
VERSION: Final = 3  # 3: who closed it, and rows of its FOCUS file are named by Kafka's cluster id
_VERSIONS: Final = (2, VERSION)
SETTLED_MS: Final = 2 * HOUR_MS  # samples usually come within it
_TABLES: Final = ("usage_1h", "broker_1h")
_KEY: Final = ("tier", "user", "client_id", "broker", "direction")
_CHARGED: Final = (
    *("window_start", "user", "client_id", "tier", "labels", "direction"),
    *("bytes", "peak_rate"),
)
_SAME_LINE: Final = (
    *("start", "end", "kind", "tier", "user", "client_id", "labels", "direction", "per_gib"),
)


@dataclass(frozen=True, slots=True)
class Month:
    """`2026-10` of a time zone, as [start_ms, end_ms)."""

    name: str
    zone: str
    start_ms: int
    end_ms: int

    @classmethod
    def named(cls, name: str, zone: tzinfo = UTC) -> "Month":
        """Raises InvalidResource for no month, or a zone whose hours are not those of UTC."""
        try:
            first = date.fromisoformat(f"{name}-01")
        except ValueError as error:
            raise InvalidResource(f"{name!r} is not a month. Write it as 2026-10.") from error
        begin, end = (
            int(datetime.combine(day, time(), zone).timestamp()) * 1000
            for day in (first, date(first.year + first.month // 12, first.month % 12 + 1, 1))
        )
        if begin % HOUR_MS or end % HOUR_MS:
            raise InvalidResource(
                f"Months of {zone} do not begin with a whole hour of UTC, and the tables hold no "
                f"parts of one."
            )
        return cls(name, str(zone), begin, end)

    def after(self) -> "Month":
        """The month that begins where this one ends."""
        zone = ZoneInfo(self.zone)
        return Month.named(f"{datetime.fromtimestamp(self.end_ms / 1000, zone):%Y-%m}", zone)


@dataclass(frozen=True, slots=True)
class Usage:
    """What one client moved on one broker in one direction; "" as in the tables."""

    tier: str
    user: str
    client_id: str
    broker: int
    direction: Direction
    bytes: int


@dataclass(frozen=True, slots=True)
class Counted:
    """What one broker counted of clients, and how much of it is unattributed."""

    broker: int
    direction: Direction
    client_bytes: int
    unattributed_bytes: int


@dataclass(frozen=True, slots=True)
class Closed:
    """A closed month: its bill (`charges`, made with `card` and `members`) and its usage.

    `corrections` are the lines of earlier months that its bill carried, `sources` the publications
    by window. `version` is the file's, which decides how its FOCUS rows are named.
    """

    month: Month
    closed_at: str
    policy: str
    cluster: str
    usage: Sequence[Usage]
    counted: Sequence[Counted]
    card: RateCard
    members: Sequence[MemberTerms]
    charges: Sequence[Charge]
    corrections: Sequence[Correction]
    sources: Mapping[str, str]
    closed_by: str = ""
    version: int = VERSION

    @property
    def content(self) -> Mapping[str, Any]:
        """All that the checksum covers; version 2 had neither of the newer fields."""
        plain: dict[str, Any] = _FORM.dump_python(self, mode="json")
        if self.version < VERSION:
            del plain["closed_by"], plain["version"]
        return plain

    @property
    def sha256(self) -> str:
        """Of everything else, in one form."""
        return hashlib.sha256(json.dumps(self.content, sort_keys=True).encode()).hexdigest()

    @property
    def invoice_id(self) -> str:
        """What its bill is named by; "" without prices, or closed before bills had a name."""
        is_bill = self.card.rates and self.version >= VERSION
        return f"{self.month.name}-{self.sha256[:16]}" if is_bill else ""

    @property
    def path(self) -> str:
        return path_of(self.month.name)


_FORM: Final = TypeAdapter(Closed)


@dataclass(frozen=True, slots=True)
class Adjustment:
    """One client's bytes on one broker since closing: what there is now, and what was closed."""

    tier: str
    user: str
    client_id: str
    broker: int
    direction: Direction
    closed_bytes: int
    bytes_now: int

    @property
    def difference(self) -> int:
        return self.bytes_now - self.closed_bytes


@dataclass(frozen=True, slots=True)
class Adjustments:
    """What became of a closed month; `changed` are the hours that were published again since.

    `billed` are the corrections that a later closed bill carried, by its name; `open` those that
    none did, for the bill of `next_bill`.
    """

    closed: Closed
    changed: Sequence[str]
    rows: Sequence[Adjustment]
    billed: Sequence[tuple[str, Correction]]
    open: Sequence[Correction]
    next_bill: str

    def document(self) -> Mapping[str, object]:
        month = self.closed.month
        return {
            "month": month.name,
            "timezone": month.zone,
            "closedAt": self.closed.closed_at,
            "closedBy": self.closed.closed_by,
            "kafkaClusterId": self.closed.cluster,
            "policy": self.closed.policy,
            "sha256": self.closed.sha256,
            "hoursPublishedAgain": list(self.changed),
            "adjustments": [
                {
                    **{one.name: getattr(row, one.name) for one in fields(row)},
                    "difference": row.difference,
                }
                for row in self.rows
            ],
            "corrections": [
                *(_line_document(one, bill) for bill, one in self.billed),
                *(_line_document(one, self.next_bill) for one in self.open),
            ],
        }


def _line_document(one: Correction, bill: str) -> Mapping[str, object]:
    return {
        "bill": bill,
        "kind": one.kind,
        "member": one.member,
        "tier": one.tier,
        "user": one.user,
        "client_id": one.client_id,
        "labels": dict(one.labels),
        "direction": one.direction,
        "bytes": one.bytes,
        "amount": str(one.amount),
        "currency": one.currency,
    }


def path_of(month: str) -> str:
    return f"{FOLDER}/{month}.json"


# Closing.


def close_month(
    store: UsageStore,
    month: Month,
    *,
    card: RateCard,
    members: Sequence[MemberTerms] = (),
    now_ms: int,
    closed_by: str = "",
    with_gaps: bool = False,
    wait: Callable[[float], None] = sleep,
) -> Closed:
    """Keep the bill of a month that is over. Of several processes exactly one does.

    Raises InvalidResource for one that is closed already, not over, or of another time zone than
    those before, and for hours that are not published unless `with_gaps`; Conflict while another
    process closes it; and what reading the store raises.
    """
    if store.storage.read(path_of(month.name)) is not None:
        raise InvalidResource(
            f"{month.name} is closed already, and stays as it is. `tidegate report adjustments "
            f"{month.name}` has what changed since."
        )
    if now_ms < month.end_ms + SETTLED_MS:
        raise InvalidResource(
            f"{month.name} can be closed from {rfc3339_ms(month.end_ms + SETTLED_MS)} on, two "
            f"hours after its end: until then samples may come."
        )
    before = _all_closed(store)
    zones = {one.month.zone for one in before} - {month.zone}
    if zones:
        raise InvalidResource(
            f"Months of this store are closed in {', '.join(sorted(zones))}, and {month.name} in "
            f"{month.zone} would have hours twice or not at all. Close it with --timezone "
            f"{min(zones)}."
        )
    _require_hours(store, month, with_gaps=with_gaps)
    owner = max(
        (one for one in store.manifests("usage_1h", month.start_ms, month.end_ms)),
        key=lambda one: one.published_at_ms,
    ).owner
    sources = dict(sorted(stamps(store, _TABLES, month.start_ms, month.end_ms).items()))
    closed = Closed(
        month,
        rfc3339(now_ms // 1000),
        owner.policy,
        owner.cluster,
        tuple(_usage(store, month)),
        tuple(_counted(store, month)),
        card,
        tuple(members),
        _bill(store, month, card, members),
        tuple(_corrections_for(store, month, before)),
        sources,
        closed_by,
    )
    if not store.storage.create(closed.path, encoded(closed), wait=wait):
        first = read_closed(store, month.name)
        raise InvalidResource(
            f"{month.name} was closed by another process while this one read the tables, at "
            f"{first.closed_at}{f' by {first.closed_by}' if first.closed_by else ''} with SHA-256 "
            f"{first.sha256}. That bill stands, and this process changed nothing."
        )
    return closed


def _require_hours(store: UsageStore, month: Month, *, with_gaps: bool) -> None:
    published = len(store.windows("usage_1h", month.start_ms, month.end_ms))
    hours = (month.end_ms - month.start_ms) // HOUR_MS
    if not published:
        raise NotFound(
            Reason.USAGE_UNKNOWN,
            f"Nothing of {month.name} is published at {store.storage.shown}, so there is nothing "
            f"to close.",
        )
    if published < hours and not with_gaps:
        raise InvalidResource(
            f"{hours - published} of {hours} hours of {month.name} are not published, and a closed "
            f"month stays as it is. `tidegate rollup backfill` fills what Prometheus still has; "
            f"--with-gaps closes it nevertheless."
        )


def _usage(store: UsageStore, month: Month) -> Iterable[Usage]:
    rows = store.rows("usage_1h", month.start_ms, month.end_ms, columns=[*_KEY, "bytes"])
    found = [Usage(**row) for row in added_up(rows, _KEY, ["bytes"]).to_pylist()]
    return sorted(found, key=_key)


def _counted(store: UsageStore, month: Month) -> Iterable[Counted]:
    keys, names = ["broker", "direction"], ["client_bytes", "unattributed_bytes"]
    rows = store.rows("broker_1h", month.start_ms, month.end_ms, columns=[*keys, *names])
    found = [Counted(**row) for row in added_up(rows, keys, names).to_pylist()]
    return sorted(found, key=lambda one: (one.broker, one.direction))


def brokers_of(store: UsageStore, month: Month) -> frozenset[int]:
    """The brokers of which the month's tables have anything."""
    rows = store.rows("broker_1h", month.start_ms, month.end_ms, columns=["broker"])
    return frozenset(rows["broker"].unique().to_pylist())


def _key(one: Usage) -> tuple[str, str, str, int, Direction]:
    return one.tier, one.user, one.client_id, one.broker, one.direction


def _bill(
    store: UsageStore, month: Month, card: RateCard, members: Sequence[MemberTerms]
) -> tuple[Charge, ...]:
    """The lines that a report of the month has, of the hours as they are now.

    Hours, because a day's row may be made later than its hours.
    """
    if not card.rates:
        return ()
    zone = ZoneInfo(month.zone)
    span = month.start_ms, month.end_ms
    usage = store.rows("usage_1h", *span, columns=_CHARGED)
    brokers = store.rows("broker_1h", *span)
    request = ReportRequest(
        policy="",
        start_ms=month.start_ms,
        end_ms=month.end_ms,
        made_at_ms=month.end_ms,
        tables=UsageTables(
            grain_ms=HOUR_MS, usage=usage, brokers=brokers, tiers=TIER.empty_table()
        ),
        members=members,
        rate_card=card,
        zone=zone,
        provenance=stored_provenance(store, *span, grain_ms=HOUR_MS),
    )
    return charges_of(period_tables(request), MemberDirectory(members), card, zone)


# The file.


def encoded(closed: Closed) -> bytes:
    document = {"version": closed.version, "sha256": closed.sha256, **closed.content}
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False).encode()


def closed_months(store: UsageStore) -> list[str]:
    """The names of all closed months, oldest first."""
    names = (file.path.rpartition("/")[2] for file in store.storage.files(FOLDER))
    return sorted(name.removesuffix(".json") for name in names if name.endswith(".json"))


def _all_closed(store: UsageStore) -> list[Closed]:
    return [read_closed(store, name) for name in closed_months(store)]


def read_closed(store: UsageStore, month: str) -> Closed:
    """Raises NotFound for a month that is not closed, UsageDamaged for one that was changed."""
    content = store.storage.read(path_of(month))
    if content is None:
        known = ", ".join(closed_months(store)) or "none"
        raise NotFound(
            Reason.USAGE_UNKNOWN,
            f"{month} is not closed at {store.storage.shown} (closed: {known}). `tidegate report "
            f"close {month}` closes it.",
        )
    try:
        document = json.loads(content)
        if document["version"] not in _VERSIONS:
            raise ValueError(f"it is not of version {' or '.join(map(str, _VERSIONS))}")
        checksum = document.pop("sha256")
        closed = _decoded(document)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageDamaged(f"{path_of(month)} is not a closed month ({error!r}).") from error
    if closed.sha256 != checksum:
        raise UsageDamaged(
            f"{path_of(month)} does not hold what was closed: its checksum differs. Restore the "
            f"file of {closed.closed_at} from a backup."
        )
    return closed


def require_digests(store: UsageStore, expected: Mapping[str, str]) -> None:
    """Compare closed months with SHA-256 digests that were kept elsewhere, by month.

    Raises UsageDamaged if one differs: the checksum inside the file only finds accidents, as
    anyone who can write the file can compute it. Raises NotFound for a month that is not closed.
    """
    for month, digest in expected.items():
        closed = read_closed(store, month)
        if closed.sha256 != digest:
            raise UsageDamaged(
                f"{closed.path} at {store.storage.shown} has SHA-256 {closed.sha256}, and "
                f"{digest} was expected, so nothing was reported. Someone replaced the file, or "
                f"the digest is of another bill. Put the file back from a backup or an older "
                f"version of the object."
            )


def _decoded(document: Mapping[str, Any]) -> Closed:
    try:
        return _FORM.validate_python(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{where}: {first['msg']}") from None


# Corrections.


def corrections(store: UsageStore, month: Month) -> tuple[Correction, ...]:
    """The lines of earlier months on this month's bill: as closed, or as of now while it is open.

    A month of another time zone than the closed ones carries none.
    """
    before = _all_closed(store)
    own = next((one for one in before if one.month == month), None)
    return (
        tuple(own.corrections) if own is not None else tuple(_corrections_for(store, month, before))
    )


def _corrections_for(
    store: UsageStore, month: Month, before: Sequence[Closed]
) -> Iterator[Correction]:
    for one in before:
        if next_bill_of(one.month, before) == month:
            yield from _open_corrections(store, one, before)


def next_bill_of(month: Month, closed: Sequence[Closed]) -> Month:
    """The first month after a closed one that is not closed itself."""
    known, after = {one.month for one in closed}, month.after()
    while after in known:
        after = after.after()
    return after


def _open_corrections(
    store: UsageStore, closed: Closed, all_closed: Sequence[Closed]
) -> Iterator[Correction]:
    """What the bill would be now, less what was billed: by it, and as corrections since.

    Nothing if its hours are out of retention: what was billed stands.
    """
    now = stamps(store, _TABLES, closed.month.start_ms, closed.month.end_ms)
    if closed.sources.keys() - now.keys() or now == closed.sources:
        return
    billed = [*closed.charges, *(one for _, one in _billed(closed.month, all_closed))]
    lines: dict[tuple[str, ...], Charge] = {}
    sums: dict[tuple[str, ...], tuple[int, Decimal]] = {}
    current = _bill(store, closed.month, closed.card, closed.members)
    for sign, ones in ((1, current), (-1, billed)):
        for one in ones:
            key = tuple(_key_text(getattr(one, name)) for name in _SAME_LINE)
            count, amount = sums.get(key, (0, Decimal("0.00")))
            sums[key] = count + sign * one.bytes, amount + sign * one.amount
            lines.setdefault(key, one)
    for key in sorted(sums):
        count, amount = sums[key]
        if count or amount:
            named = {one.name: getattr(lines[key], one.name) for one in fields(Charge)}
            line = Charge(**{**named, "bytes": count, "amount": amount})
            yield correction_of(line, closed.month.name, closed.card.currency)


def _key_text(value: object) -> str:
    return json.dumps(dict(value), sort_keys=True) if isinstance(value, Mapping) else str(value)


def correction_of(line: Charge, month: str, currency: str) -> Correction:
    """A line on the bill of another month."""
    named = {one.name: getattr(line, one.name) for one in fields(Charge)}
    return Correction(**named, corrected_month=month, currency=currency)


def _billed(month: Month, all_closed: Sequence[Closed]) -> Iterator[tuple[str, Correction]]:
    """The corrections of a month that closed bills carried, with the names of these."""
    for one in all_closed:
        for line in one.corrections:
            if line.corrected_month == month.name:
                yield one.month.name, line


def adjustments(store: UsageStore, closed: Closed) -> Adjustments:
    """What the tables have now less what was closed, without clients that did not change.

    Raises NotFound if hours are out of retention, which is no correction.
    """
    month = closed.month
    now = stamps(store, _TABLES, month.start_ms, month.end_ms)
    gone = sorted(closed.sources.keys() - now.keys())
    if gone:
        raise NotFound(
            Reason.USAGE_UNKNOWN,
            f"{len(gone)} of the windows that {month.name} was closed with are out of retention, "
            f"{gone[0]} the first: what was closed stands, and cannot be compared any more.",
        )
    changed = sorted(
        {name.partition("/")[2] for name, stamp in now.items() if closed.sources.get(name) != stamp}
    )
    before = {_key(one): one.bytes for one in closed.usage}
    after = {_key(one): one.bytes for one in _usage(store, month)} if changed else before
    all_closed = _all_closed(store)
    return Adjustments(
        closed,
        tuple(changed),
        tuple(
            Adjustment(*key, closed_bytes=before.get(key, 0), bytes_now=after.get(key, 0))
            for key in sorted(before.keys() | after.keys())
            if before.get(key, 0) != after.get(key, 0)
        ),
        tuple(_billed(month, all_closed)),
        tuple(_open_corrections(store, closed, all_closed)),
        next_bill_of(month, all_closed).name,
    )


# What a report needs of closed months.


def closed_bill(store: UsageStore, month: Month) -> Closed | None:
    """The month as it was closed; None while it is open, or closed in another time zone."""
    if month.name not in closed_months(store):
        return None
    closed = read_closed(store, month.name)
    return closed if closed.month == month else None


def closed_figures(store: UsageStore, closed: Closed, *, account: str) -> ClosedMonth:
    """The closed month in a report's figures, with what its tables have more or less by now.

    `account` is the policy by which the rows of earlier versions are named.
    """
    all_closed = _all_closed(store)
    since = tuple(_open_corrections(store, closed, all_closed))
    return ClosedMonth(
        month=closed.month.name,
        closed_at=closed.closed_at,
        sha256=closed.sha256,
        bytes=sum(one.bytes for one in closed.usage),
        bytes_now=sum(one.bytes for one in _usage(store, closed.month)),
        next_bill=next_bill_of(closed.month, all_closed).name,
        amount_since=total_of(one.amount for one in since),
        closed_by=closed.closed_by,
        invoice_id=closed.invoice_id,
        former_account="" if closed.version >= VERSION else account,
    )


def closed_months_words(store: UsageStore, start_ms: int, end_ms: int) -> Iterator[str]:
    """A sentence for each closed month in the period, whose bill is no longer the tables'."""
    for closed in _all_closed(store):
        name = closed.month.name
        if closed.month.start_ms < end_ms and start_ms < closed.month.end_ms:
            yield (
                f"{name} was closed at {closed.closed_at}: its bill is that of then, and "
                f"`tidegate report adjustments {name}` has what the tables have more or less."
            )


def usage_rows(rows: Sequence[Adjustment]) -> list[list[str]]:
    """For people: who, where, what was closed, what there is now."""
    return [
        [
            one.tier,
            _who(one.user, one.client_id),
            str(one.broker),
            one.direction,
            f"{one.closed_bytes:,}",
            f"{one.bytes_now:,}",
            f"{one.difference:+,}",
        ]
        for one in rows
    ]


def correction_rows(made: Adjustments) -> list[list[str]]:
    """For people: on which bill, for whom, bytes and amount."""
    lines = [*made.billed, *((made.next_bill, one) for one in made.open)]
    return [
        [
            bill,
            one.tier,
            one.member or one.kind,
            one.direction,
            f"{one.bytes:+,}",
            f"{one.amount:+} {one.currency}".rstrip(),
        ]
        for bill, one in lines
    ]


def _who(user: str, client_id: str) -> str:
    return " ".join(part for part in (user, client_id) if part) or "(no name)"
