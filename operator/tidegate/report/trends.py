"""What changed: labels and members against the period before, and days unlike others of their kind.

A day is compared with the same weekday of the weeks before it, because a Sunday is no Monday. It is
unusual where it is at least three standard deviations from their mean. Traffic that is nearly the
same each week would make every breath unusual, so a deviation counts as at least a tenth of the
mean.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from statistics import mean, pstdev
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.report.bill import Who, tolerance_of
from tidegate.report.figures import Charge, LabelFigures, UnusualDay
from tidegate.report.period import PeriodTables, by_keys, grouped, share_of
from tidegate.report.rate_card import HUNDREDTH, Budget, months_share
from tidegate.report.request import ClientKey, MemberDirectory, UsageBefore
from tidegate.rollup.labels import labels_of
from tidegate.rollup.schemas import DAY_MS
from tidegate_logic.words import rfc3339_ms

WEEKS_COMPARED: Final = 8
FEWEST_WEEKS: Final = 4
UNUSUAL_SCORE: Final = 3.0
_LEAST_DEVIATION = 0.1  # of the mean
_MOST_UNUSUAL_DAYS = 200
_LEAST_BYTES = 2**20  # a day's difference below a MiB is of no interest to anybody

Client = tuple[str, str]


def bytes_before(before: UsageBefore | None) -> Mapping[tuple[str, str, str], int]:
    """By user, client id and direction; empty unless all of the period before is published."""
    if before is None or not before.is_complete:
        return {}
    return by_keys(before.usage, ("user", "client_id", "direction"), "sum", "bytes")


def change_of(count: int, before: int | None) -> float | None:
    """The relative change; None if nothing was before, or it is unknown."""
    return None if not before else (count - before) / before


def label_figures(
    names: Sequence[str],
    tables: PeriodTables,
    charges: Sequence[Charge],
    before: UsageBefore | None,
    budgets: Sequence[Budget],
    zone: tzinfo,
    known: Mapping[Who, float],
) -> tuple[LabelFigures, ...]:
    """For each label a line for each of its values, most bytes first; "" = without the label."""
    return tuple(
        line
        for name in names
        for line in sorted(
            _of_label(name, tables, charges, before, budgets, zone, known),
            key=lambda one: (-one.bytes, one.value),
        )
    )


def _of_label(
    name: str,
    tables: PeriodTables,
    charges: Sequence[Charge],
    before: UsageBefore | None,
    budgets: Sequence[Budget],
    zone: tzinfo,
    known: Mapping[Who, float],
) -> Iterator[LabelFigures]:
    moved, members = _by_value(name, tables.usage)
    earlier: Mapping[tuple[str, str], int] = {}
    if before is not None and before.is_complete:
        earlier, _ = _by_value(name, before.usage)
    amounts: defaultdict[str, Decimal] = defaultdict(lambda: Decimal("0.00"))
    for one in charges:
        amounts[one.labels.get(name, "")] += one.amount
    months = months_share(tables.start_ms, tables.end_ms, zone)
    allowed = {
        one.value: (one.amount_per_month * months).quantize(HUNDREDTH)
        for one in budgets
        if one.label == name
    }
    total = sum(moved.values())
    for value in sorted({value for value, _ in moved} | amounts.keys() | allowed.keys()):
        fetched, produced = moved.get((value, "fetch"), 0), moved.get((value, "produce"), 0)
        known_before = [earlier.get((value, way), 0) for way in ("fetch", "produce")]
        budget, amount = allowed.get(value), amounts.get(value)
        if amount is None and charges:
            amount = Decimal("0.00")
        yield LabelFigures(
            label=name,
            value=value,
            members=len({who[:2] for who in members.get(value, ())}),
            fetch_bytes=fetched,
            produce_bytes=produced,
            bytes=fetched + produced,
            share=share_of(fetched + produced, total),
            change=change_of(fetched + produced, sum(known_before)),
            amount=amount,
            tolerance=tolerance_of(known, members.get(value, {}).items()),
            budget=budget,
            budget_share=None
            if budget is None or amount is None
            else share_of(float(amount), float(budget)),
        )


def _by_value(
    name: str, usage: pa.Table
) -> tuple[Mapping[tuple[str, str], int], Mapping[str, Mapping[Who, int]]]:
    """Bytes by the label's value and direction, and by value those of each client that has it."""
    moved: defaultdict[tuple[str, str], int] = defaultdict(int)
    clients: defaultdict[str, dict[Who, int]] = defaultdict(dict)
    for row in grouped(usage, ("user", "client_id", "labels", "direction"), sum=("bytes",)):
        value = labels_of(row["labels"]).get(name, "")
        moved[value, row["direction"]] += row["bytes"]
        who = row["user"], row["client_id"], row["direction"]
        clients[value][who] = clients[value].get(who, 0) + row["bytes"]
    return moved, clients


def unusual_days(
    days: pa.Table | None,
    published: frozenset[int],
    start_ms: int,
    end_ms: int,
    directory: MemberDirectory,
) -> tuple[UnusualDay, ...]:
    """Whole days of UTC in [start, end) that are unlike earlier ones; farthest first.

    `days` are rows of `usage_1d` of the period and of the weeks before it, `published` the days
    that the store has: on one of these a client without a row moved nothing.
    """
    if days is None or not days.num_rows:
        return ()
    starts = pc.cast(days["window_start"], pa.int64())
    keyed = days.set_column(days.schema.get_field_index("window_start"), "window_start", starts)
    moved: defaultdict[Client, dict[int, int]] = defaultdict(dict)
    tiers: dict[Client, tuple[int, str]] = {}
    for row in grouped(keyed, ("user", "client_id", "tier", "window_start"), sum=("bytes",)):
        client, day = (row["user"], row["client_id"]), row["window_start"]
        moved[client][day] = moved[client].get(day, 0) + row["bytes"]
        tiers[client] = max(tiers.get(client, (0, "")), (day, row["tier"]))
    found = [
        one
        for client, by_day in moved.items()
        for day in sorted(published)
        if start_ms <= day and day + DAY_MS <= end_ms
        for one in _unusual(client, tiers[client][1], by_day, day, published, directory)
    ]
    found.sort(key=lambda one: (-abs(one.score), one.day, one.member))
    return tuple(found[:_MOST_UNUSUAL_DAYS])


def _unusual(
    client: Client,
    tier: str,
    by_day: Mapping[int, int],
    day: int,
    published: frozenset[int],
    directory: MemberDirectory,
) -> Iterator[UnusualDay]:
    earlier = [
        by_day.get(at, 0)
        for at in (day - 7 * DAY_MS * week for week in range(1, WEEKS_COMPARED + 1))
        if at in published and at >= min(by_day)
    ]
    if len(earlier) < FEWEST_WEEKS:
        return
    usual, count = mean(earlier), by_day.get(day, 0)
    deviation = max(pstdev(earlier), _LEAST_DEVIATION * usual)
    if abs(count - usual) < max(_LEAST_BYTES, UNUSUAL_SCORE * deviation):
        return
    yield UnusualDay(
        day=rfc3339_ms(day),
        weekday=datetime.fromtimestamp(day / 1000, UTC).strftime("%A"),
        **directory.who(ClientKey(tier, *client)),
        bytes=count,
        usual_bytes=round(usual),
        score=(count - usual) / deviation if deviation else float(len(earlier)),
        weeks=len(earlier),
    )
