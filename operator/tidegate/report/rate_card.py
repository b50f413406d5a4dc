"""Rate cards: what a period costs, from which day on, and what becomes of bytes of no member.

A card is a YAML file, or the `pricePerGiB` of a policy. Its rates follow each other by day; a day
begins at midnight of the report's time zone. An entry has either prices of a GiB, or a cost of the
month that members share.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, tzinfo
from decimal import ROUND_HALF_UP, Decimal, localcontext
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from tidegate.causes import file_problem
from tidegate.errors import InvalidResource
from tidegate.rollup.schemas import Direction

GIB: Final = 2**30
HUNDREDTH: Final = Decimal("0.01")
_DIGITS = 60  # 2^63 bytes times any price are exact before they are rounded
_MOST_CHARACTERS = 1_000_000

ShareBy = Literal["Bytes", "Contract", "Peak"]
Treatment = Literal["NotCharged", "OwnLine", "Members"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What is charged from `since` on; None = since ever.

    With `cost_per_month` members share that cost by `share_by`; else bytes have prices, those of a
    level before those of its direction. A direction without a price is not charged.
    """

    since: date | None = None
    per_gib: Mapping[Direction, Decimal] = field(default_factory=dict)
    of_level: Mapping[str, Mapping[Direction, Decimal]] = field(default_factory=dict)
    replication_per_gib: Decimal | None = None
    cost_per_month: Decimal | None = None
    share_by: ShareBy = "Bytes"
    unattributed: Treatment = "NotCharged"
    replication: Treatment = "NotCharged"

    def price(self, direction: Direction, level: str = "") -> Decimal | None:
        """The price of a GiB of a level's members."""
        return self.of_level.get(level, {}).get(direction, self.per_gib.get(direction))


@dataclass(frozen=True, slots=True)
class Budget:
    """What members with this label may cost in a month."""

    label: str
    value: str
    amount_per_month: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class RateCard:
    """Rates in order of their days, and budgets. `currency` is only shown.

    `issuer` is who provides the cluster and sends the bill.
    """

    rates: Sequence[Rates] = ()
    currency: str = ""
    issuer: str = "Kafka platform"
    budgets: Sequence[Budget] = ()

    @classmethod
    def flat(cls, per_gib: Mapping[Direction, Decimal], currency: str = "") -> "RateCard":
        """Prices of a GiB by direction, the same on every day."""
        return cls(rates=(Rates(per_gib=per_gib),) if per_gib else (), currency=currency)

    def spans(self, start_ms: int, end_ms: int, zone: tzinfo) -> Iterator[tuple[int, int, Rates]]:
        """[start, end) cut where rates change. What lies before the first rates has none."""
        begins = [
            (start_ms if one.since is None else midnight_ms(one.since, zone), one)
            for one in self.rates
        ]
        ends = [*(begin for begin, _ in begins[1:]), end_ms]
        for (begin, one), until in zip(begins, ends, strict=False):
            first, last = max(begin, start_ms), min(until, end_ms)
            if first < last:
                yield first, last, one


def midnight_ms(day: date, zone: tzinfo) -> int:
    """The begin of a day in a time zone."""
    return round(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp() * 1000)


def months_share(start_ms: int, end_ms: int, zone: tzinfo) -> Decimal:
    """How many months [start, end) is: each hour is that part of the month in which it lies."""
    share, at = Decimal(0), start_ms
    while at < end_ms:
        day = datetime.fromtimestamp(at / 1000, zone).date().replace(day=1)
        after = (day + timedelta(days=31)).replace(day=1)
        begin, end = midnight_ms(day, zone), midnight_ms(after, zone)
        share += Decimal(min(end, end_ms) - at) / (end - begin)
        at = end
    return share


def amount_of(count_bytes: int, price: Decimal | None) -> Decimal | None:
    """The price of bytes, rounded half up to hundredths; None without a price."""
    if price is None:
        return None
    with localcontext() as context:
        context.prec = _DIGITS
        return (Decimal(count_bytes) * price / GIB).quantize(HUNDREDTH, ROUND_HALF_UP)


def shared(amount: Decimal, weights: Sequence[Decimal | int | float]) -> list[Decimal]:
    """An amount of whole hundredths in parts by weight, which add up to it to the hundredth.

    Parts are rounded down, and the largest remainders get what is left. Without a weight above
    zero there are no parts: every one is zero.
    """
    exact = [Decimal(weight) for weight in weights]
    total = sum(exact, Decimal(0))
    if total <= 0:
        return [Decimal("0.00")] * len(exact)
    with localcontext() as context:
        context.prec = _DIGITS
        cents = int(amount / HUNDREDTH)
        ideal = [cents * weight / total for weight in exact]
        parts = [int(one) for one in ideal]
        by_remainder = sorted(range(len(exact)), key=lambda at: (parts[at] - ideal[at], at))
        for at in by_remainder[: cents - sum(parts)]:
            parts[at] += 1
        return [part * HUNDREDTH for part in parts]


# The file.


def read_rate_card(path: Path) -> RateCard:
    """The card in a YAML file. Raises InvalidResource, which names the field."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = file_problem(error)
        raise InvalidResource(f"The rate card {path} cannot be read: {why}.") from None
    if len(text) > _MOST_CHARACTERS:
        raise InvalidResource(f"The rate card {path} is larger than a megabyte.")
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        raise InvalidResource(f"The rate card {path} is not YAML: {error}") from None
    try:
        return _CardFile.model_validate(document).card()
    except ValidationError as error:
        first = error.errors()[0]
        where = "".join(
            f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]
        )
        raise InvalidResource(
            f"The rate card {path}{f', {where[1:]}' if where else ''}: "
            f"{first['msg'].removeprefix('Value error, ')}. Nothing was charged."
        ) from None


def _amount(text: str) -> str:
    amount = Decimal(text)
    if not amount.is_finite() or amount < 0:
        raise ValueError("must not be below 0")
    return text


_Amount = Annotated[
    str,
    Field(max_length=24, pattern=r"^[0-9]{1,12}(\.[0-9]{1,8})?$"),
    AfterValidator(_amount),
]


class _Part(BaseModel):
    """A part of the file. A field that is not known is refused: it would charge nothing."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True
    )


class _Prices(_Part):
    fetch: _Amount | None = None
    produce: _Amount | None = None

    def by_direction(self) -> Iterator[tuple[Direction, Decimal]]:
        if self.fetch is not None:
            yield "fetch", Decimal(self.fetch)
        if self.produce is not None:
            yield "produce", Decimal(self.produce)


class _AllPrices(_Prices):
    replication: _Amount | None = None


class _Entry(_Part):
    since: date | None = Field(default=None, alias="from")
    per_gib: _AllPrices | None = Field(default=None, alias="perGiB")
    levels: dict[Literal["L0", "L1", "L2", "L3"], _Prices] = Field(default_factory=dict)
    cost_per_month: _Amount | None = None
    share_by: ShareBy | None = None
    unattributed: Treatment = "NotCharged"
    replication: Treatment = "NotCharged"

    @model_validator(mode="after")
    def _is_one_model(self) -> "_Entry":
        if (self.per_gib is None) == (self.cost_per_month is None):
            raise ValueError("must have either perGiB or costPerMonth")
        if self.per_gib is None:
            if self.levels:
                raise ValueError("levels are prices of a GiB: they go with perGiB")
            if self.share_by is None:
                raise ValueError("shareBy is required with costPerMonth: Bytes, Contract or Peak")
            if self.replication != "NotCharged":
                raise ValueError("replication is in costPerMonth already: leave it out")
        elif self.share_by is not None:
            raise ValueError("shareBy goes with costPerMonth")
        elif (self.replication == "NotCharged") != (self.per_gib.replication is None):
            raise ValueError(
                "replication OwnLine or Members and perGiB.replication go together: one says who "
                "pays, the other how much"
            )
        return self

    def rates(self) -> Rates:
        prices: Any = self.per_gib or _AllPrices()
        return Rates(
            since=self.since,
            per_gib=dict(prices.by_direction()),
            of_level={level: dict(one.by_direction()) for level, one in self.levels.items()},
            replication_per_gib=None if prices.replication is None else Decimal(prices.replication),
            cost_per_month=None if self.cost_per_month is None else Decimal(self.cost_per_month),
            share_by=self.share_by or "Bytes",
            unattributed=self.unattributed,
            replication=self.replication,
        )


class _Budget(_Part):
    label: Annotated[str, Field(min_length=1, max_length=63)]
    value: Annotated[str, Field(min_length=1, max_length=63)]
    amount_per_month: _Amount


class _CardFile(_Part):
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")]
    issuer: Annotated[str, Field(min_length=1, max_length=120)] = "Kafka platform"
    rates: Annotated[tuple[_Entry, ...], Field(min_length=1, max_length=1000)]
    budgets: Annotated[tuple[_Budget, ...], Field(max_length=1000)] = ()

    @model_validator(mode="after")
    def _is_in_order(self) -> "_CardFile":
        days = [one.since for one in self.rates]
        if any(day is None for day in days[1:]):
            raise ValueError("from is required from the second entry of rates on")
        known = [day for day in days if day is not None]
        if sorted(set(known)) != known:
            raise ValueError("rates must be in the order of their days, each day once")
        named = [(one.label, one.value) for one in self.budgets]
        if len(set(named)) < len(named):
            raise ValueError("budgets must have each label and value once")
        return self

    def card(self) -> RateCard:
        return RateCard(
            rates=tuple(one.rates() for one in self.rates),
            currency=self.currency,
            issuer=self.issuer,
            budgets=tuple(
                Budget(one.label, one.value, Decimal(one.amount_per_month)) for one in self.budgets
            ),
        )
