"""Turns usage into charges: the lines of the bill, by a rate card.

Each line is rounded to hundredths, and every total of a report is a sum of lines, so that a
calculator agrees. What is shared among members adds up to the shared amount to the hundredth.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import InvalidResource
from tidegate.report.figures import Charge
from tidegate.report.period import PeriodTables, by_keys, client_of, grouped
from tidegate.report.rate_card import (
    HUNDREDTH,
    RateCard,
    Rates,
    amount_of,
    months_share,
    shared,
)
from tidegate.report.request import GRAINS, ClientKey, MemberDirectory
from tidegate.rollup.labels import NO_LABELS, labels_of
from tidegate.rollup.schemas import Direction
from tidegate_logic.words import rfc3339_ms

_DIRECTIONS: Final[tuple[Direction, ...]] = ("fetch", "produce")
# every byte that is replicated leaves one broker and enters another: it is counted once
_REPLICATED: Final[Direction] = "produce"


@dataclass(frozen=True, slots=True)
class _Used:
    """A client with the labels that it had, in one direction, within one span of rates."""

    client: ClientKey
    labels: str
    direction: Direction
    bytes: int
    peak_rate: float


@dataclass(frozen=True, slots=True)
class _Span:
    start_ms: int
    end_ms: int
    rates: Rates
    used: Sequence[_Used]
    unattributed: Mapping[Direction, int]
    replicated_bytes: int


def charges_of(
    tables: PeriodTables, directory: MemberDirectory, card: RateCard, zone: tzinfo
) -> tuple[Charge, ...]:
    """The lines of the bill in order of time, kind, tier and member; none without prices."""
    for start_ms, _, _ in card.spans(tables.start_ms, tables.end_ms, zone):
        if start_ms % tables.grain_ms:
            raise InvalidResource(
                f"Rates change at {rfc3339_ms(start_ms)}, within a {GRAINS[tables.grain_ms]} of "
                "the tables, which have no parts of one."
            )
    lines = [
        line
        for start_ms, end_ms, rates in card.spans(tables.start_ms, tables.end_ms, zone)
        for line in _charged(_span(tables, start_ms, end_ms, rates), directory, zone)
    ]
    return tuple(sorted(lines, key=_place))


def _place(one: Charge) -> tuple[str | bool, ...]:
    who = (one.tier, one.user, one.client_id, one.direction)
    return (one.start, one.kind != "Usage", one.kind, *who)


def unattributed_amounts(
    tables: PeriodTables, card: RateCard, zone: tzinfo
) -> Mapping[Direction, Decimal]:
    """What unattributed bytes would cost at their direction's prices, no matter who pays."""
    found: dict[Direction, Decimal] = {}
    for start_ms, end_ms, rates in card.spans(tables.start_ms, tables.end_ms, zone):
        counted = _span(tables, start_ms, end_ms, rates).unattributed
        for direction in _DIRECTIONS:
            amount = amount_of(counted.get(direction, 0), rates.price(direction))
            if amount is not None:
                found[direction] = found.get(direction, Decimal("0.00")) + amount
    return found


def _span(tables: PeriodTables, start_ms: int, end_ms: int, rates: Rates) -> _Span:
    usage, brokers = (
        table.filter(
            pc.and_(
                pc.greater_equal(table["window_start"], start_ms),
                pc.less(table["window_start"], end_ms),
            )
        )
        for table in (tables.usage, tables.brokers)
    )
    rows = grouped(
        usage,
        ("tier", "user", "client_id", "labels", "direction"),
        sum=("bytes",),
        max=("peak_rate",),
    )
    used = [
        _Used(client_of(row), row["labels"], row["direction"], row["bytes"], row["peak_rate"])
        for row in rows
    ]
    return _Span(
        start_ms,
        end_ms,
        rates,
        sorted(used, key=lambda one: (one.client.tier, one.client.text, one.labels, one.direction)),
        _by_direction(brokers, "unattributed_bytes"),
        _by_direction(brokers, "replication_bytes").get(_REPLICATED, 0),
    )


def _by_direction(brokers: pa.Table, column: str) -> Mapping[Direction, int]:
    return {way: count for (way,), count in by_keys(brokers, ("direction",), "sum", column).items()}


def _charged(span: _Span, directory: MemberDirectory, zone: tzinfo) -> Iterator[Charge]:
    if span.rates.cost_per_month is not None:
        yield from _shares_of_cost(span, directory, zone)
        return
    for one in span.used:
        price = span.rates.price(one.direction, directory.level(one.client.tier))
        amount = amount_of(one.bytes, price)
        if amount is not None:
            yield _line(
                span, "Usage", one.direction, one.bytes, price, amount, _payer(one, directory)
            )
    for direction in _DIRECTIONS:
        yield from _beside(
            span,
            directory,
            "Unattributed",
            span.rates.unattributed,
            direction,
            span.unattributed.get(direction, 0),
            span.rates.price(direction),
        )
    yield from _beside(
        span,
        directory,
        "Replication",
        span.rates.replication,
        _REPLICATED,
        span.replicated_bytes,
        span.rates.replication_per_gib,
    )


def _beside(
    span: _Span,
    directory: MemberDirectory,
    kind: str,
    treatment: str,
    direction: Direction,
    count_bytes: int,
    price: Decimal | None,
) -> Iterator[Charge]:
    """Bytes that no member moved: on a line of their own, or shared by bytes in that direction."""
    amount = None if treatment == "NotCharged" else amount_of(count_bytes, price)
    if amount is None or not count_bytes:
        return
    payers = [one for one in span.used if one.direction == direction and one.bytes]
    if treatment == "OwnLine" or not payers:
        yield _line(span, kind, direction, count_bytes, price, amount, _NOBODY)
        return
    moved = sum(one.bytes for one in payers)
    parts = shared(amount, [one.bytes for one in payers])
    counts = _whole_parts(count_bytes, [one.bytes for one in payers], moved)
    for one, part, count in zip(payers, parts, counts, strict=True):
        if part:
            yield _line(span, kind, direction, count, price, part, _payer(one, directory))


def _whole_parts(total: int, weights: Sequence[int], of: int) -> Iterator[int]:
    """Whole bytes by weight that add up to the total."""
    running = before = 0
    for weight in weights:
        running += weight
        until = total * running // of
        yield until - before
        before = until


def _shares_of_cost(span: _Span, directory: MemberDirectory, zone: tzinfo) -> Iterator[Charge]:
    """The cost of the span, shared by weight. Where nobody has any weight it is a line by itself.

    Unattributed bytes have a share by bytes where they have a line of their own: members then pay
    for what they moved and not for the rest.
    """
    rates = span.rates
    cost = (rates.cost_per_month or Decimal(0)) * months_share(span.start_ms, span.end_ms, zone)
    amount = cost.quantize(HUNDREDTH, ROUND_HALF_UP)
    used = _with_idle_members(span, directory) if rates.share_by == "Contract" else span.used
    weights: list[int | float] = [_weight(one, rates, directory) for one in used]
    own: list[tuple[Direction, int]] = []
    if rates.share_by == "Bytes" and rates.unattributed == "OwnLine":
        own = [(way, span.unattributed.get(way, 0)) for way in _DIRECTIONS]
    parts = shared(amount, [*weights, *(count for _, count in own)])
    if not any(parts):
        if amount:
            yield _line(span, "Unshared", "", 0, None, amount, _NOBODY)
        return
    for one, part in zip(used, parts, strict=False):
        if part or one.bytes:
            yield _line(span, "Usage", one.direction, one.bytes, None, part, _payer(one, directory))
    for (direction, count), part in zip(own, parts[len(used) :], strict=True):
        if part:
            yield _line(span, "Unattributed", direction, count, None, part, _NOBODY)


def _weight(one: _Used, rates: Rates, directory: MemberDirectory) -> int | float:
    if rates.share_by == "Bytes":
        return one.bytes
    if rates.share_by == "Peak":
        return one.peak_rate
    return directory.contract(one.client, one.direction) or 0


def _with_idle_members(span: _Span, directory: MemberDirectory) -> Sequence[_Used]:
    """Every member with a contract pays for it, idle or not; once, where labels changed since."""
    latest: dict[tuple[ClientKey, Direction], _Used] = {}
    for one in span.used:
        key = one.client, one.direction
        known = latest.get(key)
        latest[key] = (
            one
            if known is None
            else _Used(
                one.client,
                max(known, one, key=lambda each: each.bytes).labels,
                one.direction,
                known.bytes + one.bytes,
                max(known.peak_rate, one.peak_rate),
            )
        )
    for terms in directory.members:
        for direction in _DIRECTIONS:
            if terms.contracts.get(direction):
                latest.setdefault(
                    (terms.client, direction),
                    _Used(terms.client, terms.labels, direction, 0, 0.0),
                )
    return list(latest.values())


def _line(
    span: _Span,
    kind: str,
    direction: str,
    count_bytes: int,
    price: Decimal | None,
    amount: Decimal,
    payer: Mapping[str, Any],
) -> Charge:
    return Charge(
        start=rfc3339_ms(span.start_ms),
        end=rfc3339_ms(span.end_ms),
        kind=kind,
        **payer,
        direction=direction,
        bytes=count_bytes,
        per_gib=price,
        amount=amount,
    )


def _payer(one: _Used, directory: MemberDirectory) -> Mapping[str, Any]:
    return {
        **directory.who(one.client),
        "level": directory.level(one.client.tier),
        "labels": labels_of(one.labels),
    }


_NOBODY: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("member", "tier", "level", "user", "client_id"), ""),
    "labels": labels_of(NO_LABELS),
}


def amounts_by(
    charges: Iterable[Charge],
) -> Mapping[tuple[str, str, str, str], Decimal]:
    """What each client pays, by tier, user, client id and direction."""
    found: defaultdict[tuple[str, str, str, str], Decimal] = defaultdict(lambda: Decimal("0.00"))
    for one in charges:
        if one.member:
            found[one.tier, one.user, one.client_id, one.direction] += one.amount
    return found
