"""A report's period: rows of the usage tables, their sums, and the trail's throttle episodes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import InvalidResource
from tidegate.report.figures import Episode, EpisodeSpan
from tidegate.report.request import GRAINS, ClientKey, ReportRequest
from tidegate.rollup.schemas import FIVE_MINUTES_MS, HOUR_MS
from tidegate.rollup.terms.sources import Muted, NicOver, Trail, Written
from tidegate_logic.words import rfc3339_ms

Row = dict[str, Any]
CLIENT: Final = ("tier", "user", "client_id")
NIC: Final = ("broker", "direction")

_SHORT_MS = 6 * HOUR_MS  # 72 windows of 5 minutes: bars that are still wide enough to point at
_WINDOW = "window_start"


@dataclass(frozen=True, slots=True)
class PeriodTables:
    """The tables with `window_start` in whole milliseconds, all within the period.

    The 5-minute tables are None unless they cover the whole period; `known_5m` are rows of usage
    that may cover a part of it.
    """

    start_ms: int
    end_ms: int
    grain_ms: int
    usage: pa.Table
    brokers: pa.Table
    tiers: pa.Table
    usage_5m: pa.Table | None
    broker_5m: pa.Table | None
    known_5m: pa.Table | None

    @property
    def is_short(self) -> bool:
        """Whether the period is short enough to be drawn by windows of 5 minutes."""
        return self.end_ms - self.start_ms <= _SHORT_MS

    @property
    def drawn_usage(self) -> tuple[pa.Table, int]:
        """Usage with tiers for plots over time, and its window in ms; the sum is the same."""
        if self.is_short and self.usage_5m is not None:
            finer = _with_tiers_of_hours(self.usage_5m, self.usage, start_ms=self.start_ms)
            if finer is not None:
                return finer, FIVE_MINUTES_MS
        return self.usage, self.grain_ms

    @property
    def finest_brokers(self) -> tuple[pa.Table, int]:
        """The broker table with the shortest windows, and their length in ms."""
        return (
            (self.brokers, self.grain_ms)
            if self.broker_5m is None
            else (self.broker_5m, FIVE_MINUTES_MS)
        )

    @property
    def windows_with_rows(self) -> int:
        return len(_windows(self.usage, self.grain_ms, origin_ms=self.start_ms))


def period_tables(request: ReportRequest) -> PeriodTables:
    """Cut the request's tables to its period.

    Raises InvalidResource if the period is empty or cuts a window in two: the tables hold no parts
    of one.
    """
    _check_period(request)
    start_ms, end_ms, tables = request.start_ms, request.end_ms, request.tables
    usage, brokers, tiers = (
        _within(table, start_ms, end_ms) for table in (tables.usage, tables.brokers, tables.tiers)
    )
    usage = _with_terms_of_today(usage, request)
    usage_5m, broker_5m = (
        None if table is None else _within(table, start_ms, end_ms)
        for table in (tables.usage_5m, tables.broker_5m)
    )
    return PeriodTables(
        *(start_ms, end_ms, tables.grain_ms, usage, brokers, tiers),
        usage_5m=_if_complete(usage_5m, usage, request),
        broker_5m=_if_complete(broker_5m, brokers, request),
        known_5m=usage_5m,
    )


def _check_period(request: ReportRequest) -> None:
    start_ms, end_ms, grain_ms = request.start_ms, request.end_ms, request.tables.grain_ms
    if start_ms >= end_ms:
        raise InvalidResource(
            f"The report's period is empty: it ends at {rfc3339_ms(end_ms)} and begins at "
            f"{rfc3339_ms(start_ms)}."
        )
    if start_ms % grain_ms or end_ms % grain_ms:
        raise InvalidResource(
            f"The report's period {rfc3339_ms(start_ms)} to {rfc3339_ms(end_ms)} must begin and "
            f"end with a whole {GRAINS[grain_ms]} of UTC, because the tables hold no parts of one."
        )


def _within(table: pa.Table, start_ms: int, end_ms: int) -> pa.Table:
    """The rows of [start, end) without their sketches, `window_start` as whole milliseconds."""
    table = table.select([name for name in table.column_names if name != "sketch"])
    table = _with_window(table, pc.cast(table[_WINDOW], pa.int64()))
    return table.filter(
        pc.and_(pc.greater_equal(table[_WINDOW], start_ms), pc.less(table[_WINDOW], end_ms))
    )


def _with_terms_of_today(usage: pa.Table, request: ReportRequest) -> pa.Table:
    """The rows with tiers and labels of the given policy where the rollup had none.

    Elsewhere a client without a tier was in none at that time.
    """
    names = pa.schema([(name, pa.string()) for name in ("user", "client_id", "own", "own_labels")])
    tierless = pa.array(sorted(request.provenance.tierless), pa.int64())
    if not (usage.num_rows and request.members and (len(tierless) or request.labels_of_today)):
        return usage
    rows = [
        {
            "user": one.client.user,
            "client_id": one.client.client_id,
            "own": one.client.tier,
            "own_labels": one.labels,
        }
        for one in request.members
    ]
    found = usage.join(pa.Table.from_pylist(rows, names), keys=["user", "client_id"])
    unknown = pc.and_(pc.equal(found["tier"], ""), pc.is_in(found[_WINDOW], value_set=tierless))
    known = pc.is_valid(found["own"])
    relabelled = pc.and_(known, pc.or_(unknown, request.labels_of_today))
    return _replaced(
        found,
        tier=pc.if_else(pc.and_(known, unknown), found["own"], found["tier"]),
        labels=pc.if_else(relabelled, found["own_labels"], found["labels"]),
    ).select(usage.column_names)


def _replaced(table: pa.Table, **columns: pa.ChunkedArray) -> pa.Table:
    for name, values in columns.items():
        table = table.set_column(table.schema.get_field_index(name), name, values)
    return table


def _if_complete(
    finer: pa.Table | None, table: pa.Table, request: ReportRequest
) -> pa.Table | None:
    """The finer table, if it has rows in every window in which the coarser one has some."""
    if finer is None:
        return None
    grain_ms, start_ms = request.tables.grain_ms, request.start_ms
    missing = _windows(table, grain_ms, origin_ms=start_ms) - _windows(
        finer, grain_ms, origin_ms=start_ms
    )
    return None if missing else finer


def _with_tiers_of_hours(usage_5m: pa.Table, hours: pa.Table, *, start_ms: int) -> pa.Table | None:
    """The 5-minute rows with their client's tier in that hour; `start_ms` is a whole hour.

    None if the bytes by tier and direction differ from those of the hours, as they do while a run
    publishes one table after the other: a plot must not show another sum than the tables next to
    it.
    """
    client = ["hour", "user", "client_id"]
    hours = hours.append_column("hour", hours[_WINDOW])
    tiers = hours.group_by([*client, "tier"]).aggregate([])
    starts = floored(usage_5m, HOUR_MS, origin_ms=start_ms)[_WINDOW]
    usage_5m = usage_5m.select([_WINDOW, "user", "client_id", "direction", "bytes"]).append_column(
        "hour", starts
    )
    joined = usage_5m.join(tiers, keys=client, join_type="inner")
    return joined if _bytes_by_tier(joined) == _bytes_by_tier(hours) else None


def _bytes_by_tier(usage: pa.Table) -> Mapping[tuple[Any, ...], int]:
    """By hour, tier and direction, without those of zero bytes."""
    moved = by_keys(usage, ("hour", "tier", "direction"), "sum", "bytes")
    return {key: count for key, count in moved.items() if count}


def client_of(row: Row) -> ClientKey:
    """The client that a row is of."""
    return ClientKey(row["tier"], row["user"], row["client_id"])


def nic_of(row: Row) -> tuple[Any, ...]:
    """The broker and the direction that a row is of."""
    return row["broker"], row["direction"]


def share_of(part: float, whole: float | None) -> float | None:
    """The fraction; None of zero or of an unknown whole."""
    return part / whole if whole else None


def grouped(table: pa.Table, keys: Sequence[str], **columns: Sequence[str]) -> Iterator[Row]:
    """A row for each group, in no order: its keys, and aggregates under their columns' names.

    Keywords are Arrow's functions: `sum=("bytes",), max=("peak_rate",)`. A function of nothing but
    nulls is None.
    """
    aggregates = [(column, function) for function, names in columns.items() for column in names]
    for row in table.group_by(list(keys)).aggregate(aggregates).to_pylist():
        yield {key: row[key] for key in keys} | {
            column: row[f"{column}_{function}"] for column, function in aggregates
        }


def by_keys(
    table: pa.Table, keys: Sequence[str], function: str, column: str
) -> dict[tuple[Any, ...], Any]:
    """The one aggregate of each group, by the group's keys."""
    return {
        tuple(row[key] for key in keys): row[column]
        for row in grouped(table, keys, **{function: (column,)})
    }


def at_highest(table: pa.Table, keys: Sequence[str], column: str) -> dict[tuple[Any, ...], Row]:
    """Of each group the row where the column is highest, the earliest of several.

    Groups of nothing but nulls have none.
    """
    narrow = table.select([*keys, *dict.fromkeys((_WINDOW, column))])
    top = narrow.group_by(list(keys)).aggregate([(column, "max")])
    joined = narrow.join(top, keys=list(keys))
    rows = (
        joined.filter(pc.equal(joined[column], joined[f"{column}_max"]))
        .sort_by(_WINDOW)
        .to_pylist()
    )
    return {tuple(row[key] for key in keys): row for row in reversed(rows)}


def floored(table: pa.Table, step_ms: int, *, origin_ms: int) -> pa.Table:
    """The table with windows as starts of steps since `origin_ms`, which is not after any."""
    steps = pc.divide(pc.subtract(table[_WINDOW], origin_ms), step_ms)
    return _with_window(table, pc.add(pc.multiply(steps, step_ms), origin_ms))


def _windows(table: pa.Table, step_ms: int, *, origin_ms: int) -> set[int]:
    """The starts of the steps in which the table has a row."""
    return set(pc.unique(floored(table, step_ms, origin_ms=origin_ms)[_WINDOW]).to_pylist())


def _with_window(table: pa.Table, starts: pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.schema.get_field_index(_WINDOW), _WINDOW, starts)


# Throttle episodes of the audit trail: from the first quota below its contract to the return of the
# last one. A span is one rate of one client at one quota; an episode is a stretch of time in which
# a direction always has a span. Kafka's own mutes are not in it: the tables have those.


_BEFORE_MS = 60_000  # a pass is older than its writes, and its metrics are older still
_Seen = TypeVar("_Seen", Written, NicOver, Muted)


@dataclass(frozen=True, slots=True)
class _Span:
    """A write and when its quota was replaced; `open_end` = not within the period."""

    write: Written
    quota: int
    begin_ms: int
    end_ms: int
    open_end: bool


def episodes_of(trail: Trail, start_ms: int, end_ms: int) -> tuple[Episode, ...]:
    """Episodes that touch [start, end), cut to it, in order of time."""
    spans = sorted(_spans(trail.written, start_ms, end_ms), key=lambda span: span.begin_ms)
    stretches = [
        stretch
        for direction in ("fetch", "produce")
        for stretch in _stretches([one for one in spans if one.write.direction == direction])
    ]
    stretches.sort(key=lambda stretch: (stretch[0].begin_ms, stretch[0].write.direction))
    return tuple(
        _episode(number, stretch, trail, start_ms=start_ms)
        for number, stretch in enumerate(stretches, start=1)
    )


def _spans(writes: Sequence[Written], start_ms: int, end_ms: int) -> Iterator[_Span]:
    """Each rate's quotas below its contract.

    A throttle that the first write replaced was in force since the period began, at least.
    """
    for history in _by_rate(writes).values():
        first = history[0]
        if first.ends_hold and first.before is not None and first.at_ms > start_ms:
            yield _Span(first, first.before, start_ms, first.at_ms, open_end=False)
        replaced = [*(later.at_ms for later in history[1:]), end_ms]
        for write, until_ms in zip(history, replaced, strict=True):
            if write.is_below and write.after is not None and until_ms > start_ms:
                yield _Span(
                    write,
                    write.after,
                    max(write.at_ms, start_ms),
                    until_ms,
                    open_end=until_ms == end_ms,
                )


def _by_rate(writes: Sequence[Written]) -> Mapping[tuple[str, str, str], Sequence[Written]]:
    found: dict[tuple[str, str, str], list[Written]] = {}
    for write in writes:
        found.setdefault((write.policy, write.entity, write.direction), []).append(write)
    return found


def _stretches(spans: Sequence[_Span]) -> Iterator[Sequence[_Span]]:
    """Spans of one direction that overlap or touch, in order of time."""
    stretch: list[_Span] = []
    end_ms = 0
    for span in spans:
        if stretch and span.begin_ms > end_ms:
            yield stretch
            stretch = []
        stretch.append(span)
        end_ms = max(end_ms, span.end_ms)
    if stretch:
        yield stretch


def _episode(number: int, spans: Sequence[_Span], trail: Trail, *, start_ms: int) -> Episode:
    begin_ms, end_ms, direction = (
        spans[0].begin_ms,
        max(span.end_ms for span in spans),
        spans[0].write.direction,
    )
    writes = [
        one
        for one in _during(trail.written, direction, begin_ms, end_ms)
        if one.is_below or one.was_below
    ]
    over = _during(trail.over, direction, begin_ms - _BEFORE_MS, end_ms)
    muted = [one.seconds for one in _during(trail.muted, direction, begin_ms, end_ms + _BEFORE_MS)]
    cuts = [write for write in writes if write.is_cut]
    return Episode(
        number=number,
        direction=direction,
        begin=rfc3339_ms(begin_ms),
        end=rfc3339_ms(end_ms),
        seconds=(end_ms - begin_ms) / 1000,
        open_begin=begin_ms == start_ms,
        open_end=any(span.open_end for span in spans),
        levels=", ".join(sorted({span.write.level for span in spans})),
        members=len({(span.write.policy, span.write.entity) for span in spans}),
        cuts=len(cuts),
        raises=len(writes) - len(cuts),
        lowest_fraction=min(_fraction(span) for span in spans),
        predicted_mute_seconds=max(
            (one.predicted_mute_seconds for one in cuts if one.predicted_mute_seconds is not None),
            default=None,
        ),
        observed_mute_seconds=max(muted, default=None),
        brokers=", ".join(str(broker) for broker in sorted({one.broker for one in over})),
        most_over_rate=max(
            (one.over_rate for one in over if one.over_rate is not None), default=None
        ),
        spans=tuple(_span_figures(number, span) for span in sorted(spans, key=_sort_key)),
    )


def _during(ones: Iterable[_Seen], direction: str, since_ms: int, until_ms: int) -> list[_Seen]:
    return [one for one in ones if one.direction == direction and since_ms <= one.at_ms <= until_ms]


def _fraction(span: _Span) -> float:
    return span.quota / span.write.contract if span.write.contract else 0.0


def _sort_key(span: _Span) -> tuple[str, str, int]:
    return span.write.level, span.write.entity, span.begin_ms


def _span_figures(number: int, span: _Span) -> EpisodeSpan:
    write = span.write
    return EpisodeSpan(
        episode=number,
        entity=write.entity,
        member=write.member or write.entity,
        tier=write.tier,
        level=write.level,
        begin=rfc3339_ms(span.begin_ms),
        end=rfc3339_ms(span.end_ms),
        quota=span.quota,
        contract=write.contract or 0,
        fraction=_fraction(span),
    )
