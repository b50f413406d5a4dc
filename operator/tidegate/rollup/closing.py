"""Close a month: keep its figures, so that later corrections are adjustments and no other bill.

Tables may change after a bill was sent: samples come late, or a time is computed again. A closed
month is one JSON file in the store, which nothing replaces, with what every client moved then, a
checksum, and the publications that it rests on. What the tables have now less what was closed are
the adjustments.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, time, tzinfo
from decimal import Decimal
from typing import Any, Final

from tidegate.controller_logic.reasons import Reason
from tidegate.errors import InvalidResource, NotFound
from tidegate.rollup.schemas import HOUR_MS, Direction
from tidegate.rollup.tables.format import UsageDamaged, time_words
from tidegate.rollup.tables.store import UsageStore, stamps
from tidegate.rollup.tables.verify import added_up

FOLDER: Final = "_closed"
VERSION: Final = 1
SETTLED_MS: Final = 2 * HOUR_MS  # samples usually come within it
_TABLES: Final = ("usage_1h", "broker_1h")
_KEY: Final = ("tier", "user", "client_id", "broker", "direction")
_GIB: Final = 2**30
_HUNDREDTH: Final = Decimal("0.01")


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
            raise InvalidResource(f"{name!r} is no month. Write it as 2026-10.") from error
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
    """What one broker counted of clients, and what of it was on nobody's account."""

    broker: int
    direction: Direction
    client_bytes: int
    unattributed_bytes: int


@dataclass(frozen=True, slots=True)
class Closed:
    """A closed month. `sources` are the publications by window, `per_gib` prices as texts."""

    month: Month
    closed_at: str
    policy: str
    cluster: str
    usage: tuple[Usage, ...]
    counted: tuple[Counted, ...]
    per_gib: Mapping[str, str]
    sources: Mapping[str, str]

    @property
    def sha256(self) -> str:
        """Of everything else, in one form."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    @property
    def path(self) -> str:
        return path_of(self.month.name)


@dataclass(frozen=True, slots=True)
class Adjustment:
    """One client's bytes on one broker since closing: what there is now, and what was closed.

    `amount` is the difference at the price that was closed with, None without one.
    """

    tier: str
    user: str
    client_id: str
    broker: int
    direction: Direction
    closed_bytes: int
    bytes_now: int
    amount: Decimal | None

    @property
    def difference(self) -> int:
        return self.bytes_now - self.closed_bytes


@dataclass(frozen=True, slots=True)
class Adjustments:
    """What became of a closed month; `changed` are the hours that were published again since."""

    closed: Closed
    changed: tuple[str, ...]
    rows: tuple[Adjustment, ...]

    def document(self) -> Mapping[str, object]:
        month = self.closed.month
        return {
            "month": month.name,
            "timezone": month.zone,
            "closedAt": self.closed.closed_at,
            "sha256": self.closed.sha256,
            "hoursPublishedAgain": list(self.changed),
            "adjustments": [
                {
                    **asdict(one),
                    "amount": None if one.amount is None else str(one.amount),
                    "difference": one.difference,
                }
                for one in self.rows
            ],
        }


def path_of(month: str) -> str:
    return f"{FOLDER}/{month}.json"


def close_month(
    store: UsageStore,
    month: Month,
    *,
    per_gib: Mapping[Direction, Decimal],
    now_ms: int,
    with_gaps: bool = False,
) -> Closed:
    """Keep the figures of a month that is over.

    Raises InvalidResource for one that is closed already or not over, or for hours that are not
    published unless `with_gaps`; and what reading the store raises.
    """
    if store.storage.read(path_of(month.name)) is not None:
        raise InvalidResource(
            f"{month.name} is closed already, and stays as it is. `tidegate report adjustments "
            f"{month.name}` has what changed since."
        )
    if now_ms < month.end_ms + SETTLED_MS:
        raise InvalidResource(
            f"{month.name} can be closed from {time_words(month.end_ms + SETTLED_MS)} on, two "
            f"hours after its end: until then samples may come."
        )
    _require_hours(store, month, with_gaps=with_gaps)
    owner = max(
        (one for one in store.manifests("usage_1h", month.start_ms, month.end_ms)),
        key=lambda one: one.published_at_ms,
    ).owner
    closed = Closed(
        month,
        time_words(now_ms),
        owner.policy,
        owner.cluster,
        tuple(_usage(store, month)),
        tuple(_counted(store, month)),
        {direction: str(price) for direction, price in sorted(per_gib.items())},
        dict(sorted(stamps(store, _TABLES, month.start_ms, month.end_ms).items())),
    )
    store.storage.write(closed.path, encoded(closed))
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


def _key(one: Usage) -> tuple[str, str, str, int, Direction]:
    return one.tier, one.user, one.client_id, one.broker, one.direction


def encoded(closed: Closed) -> bytes:
    document = {"version": VERSION, "sha256": closed.sha256, **asdict(closed)}
    return json.dumps(document, indent=1, sort_keys=True).encode()


def closed_months(store: UsageStore) -> list[str]:
    """The names of all closed months, oldest first."""
    names = (file.path.rpartition("/")[2] for file in store.storage.files(FOLDER))
    return sorted(name.removesuffix(".json") for name in names if name.endswith(".json"))


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
        closed = _decoded(document)
    except (ValueError, KeyError, TypeError) as error:
        raise UsageDamaged(f"{path_of(month)} is no closed month ({error!r}).") from error
    if closed.sha256 != document["sha256"]:
        raise UsageDamaged(
            f"{path_of(month)} does not hold what was closed: its checksum is another one. Put the "
            f"file of {closed.closed_at} back from a backup."
        )
    return closed


def _decoded(document: Mapping[str, Any]) -> Closed:
    if document["version"] != VERSION:
        raise ValueError(f"version {document['version']}")
    return Closed(
        Month(**document["month"]),
        document["closed_at"],
        document["policy"],
        document["cluster"],
        tuple(Usage(**row) for row in document["usage"]),
        tuple(Counted(**row) for row in document["counted"]),
        document["per_gib"],
        document["sources"],
    )


def adjustments(store: UsageStore, closed: Closed) -> Adjustments:
    """What the tables have now less what was closed, without clients that did not change.

    Raises NotFound where hours are out of retention, which is no correction.
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
    return Adjustments(
        closed,
        tuple(changed),
        tuple(
            Adjustment(
                *key,
                closed_bytes=before.get(key, 0),
                bytes_now=after.get(key, 0),
                amount=_amount(closed, key[4], after.get(key, 0) - before.get(key, 0)),
            )
            for key in sorted(before.keys() | after.keys())
            if before.get(key, 0) != after.get(key, 0)
        ),
    )


def _amount(closed: Closed, direction: Direction, count: int) -> Decimal | None:
    price = closed.per_gib.get(direction)
    return None if price is None else (Decimal(count) * Decimal(price) / _GIB).quantize(_HUNDREDTH)


def rows_for_people(rows: Sequence[Adjustment]) -> list[list[str]]:
    """Who, where, what was closed, what there is now."""
    return [
        [
            one.tier,
            " ".join(part for part in (one.user, one.client_id) if part) or "(no name)",
            str(one.broker),
            one.direction,
            f"{one.closed_bytes:,}",
            f"{one.bytes_now:,}",
            f"{one.difference:+,}",
            "" if one.amount is None else f"{one.amount:+}",
        ]
        for one in rows
    ]
