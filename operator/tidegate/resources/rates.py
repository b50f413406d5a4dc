"""Rates of a contract or a throttle: one pair of directions, in one of three forms."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from tidegate.resources.schema import Rule, SchemaModel

# Byte rates as people write them (`50Mi`, `1250M`, `52428800`) and as the operator uses them:
# whole bytes per second.
#
# Kafka's own bounds apply: a quota under 1024 B/s throttles nothing, and above 2^53-1 a number is
# no longer exact in JSON.
# Multiplication is exact; there are no fractions, no exponents and no `/s`.


FLOOR_BYTES_PER_SECOND = 1024
CEILING_BYTES_PER_SECOND = 2**53 - 1

_FACTORS = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}
# sixteen digits hold the ceiling; a longer text cannot be in range whatever its suffix
PATTERN = r"^[1-9][0-9]{0,15}(k|M|G|T|Ki|Mi|Gi|Ti)?$"
_MAX_LENGTH = 18

MESSAGE = (
    f"must be a whole number of bytes per second from {FLOOR_BYTES_PER_SECOND} to {CEILING_BYTES_PER_SECOND}, "
    "such as 52428800, 50Mi or 1250M (suffixes k M G T are powers of 1000, Ki Mi Gi Ti of 1024)"
)


def parse_byte_rate(written: object) -> int:
    """Bytes per second of a rate as written in a resource: an int, or a text of digits and at most one suffix.

    Raises ValueError with a sentence that says what must hold, for anything else and outside the bounds. Zero is
    refused: in Kafka it means "no limit" in one place and "nothing at all" in another.
    """
    value = _exact(written)
    if value is None or not FLOOR_BYTES_PER_SECOND <= value <= CEILING_BYTES_PER_SECOND:
        raise ValueError(MESSAGE)
    return value


def _exact(written: object) -> int | None:
    if isinstance(written, bool):
        return None
    if isinstance(written, int):
        return written
    match = re.fullmatch(r"([1-9][0-9]{0,15})(k|M|G|T|Ki|Mi|Gi|Ti)?", written, re.ASCII) if isinstance(written, str) else None
    return None if match is None else int(match[1]) * _FACTORS[match[2] or ""]


def cel_quantity(rate: str) -> str:
    """CEL for the rate at path `rate` as a Quantity, so that `50Mi`, `50M` and 52428800 compare exactly.

    It fails on a text that is no quantity: guard it with `cel_comparable`.
    """
    return f"(type({rate}) == int ? quantity('0').add(int({rate})) : quantity({rate}))"


def cel_comparable(rate: str) -> str:
    """CEL for "the rate at path `rate` is not below the floor and can be compared"; else its own rule speaks already."""
    sound_text = f"isQuantity({rate}) && {cel_quantity(rate)}.compareTo(quantity('{FLOOR_BYTES_PER_SECOND}')) >= 0"
    return f"(type({rate}) == int ? {rate} >= {FLOOR_BYTES_PER_SECOND} : ({sound_text}))"


def cel_at_most(lower: str, upper: str) -> str:
    """CEL for "the rate at `lower` is not above the rate at `upper`"; true where one of them is no sound rate."""
    comparison = f"{cel_quantity(lower)}.compareTo({cel_quantity(upper)}) <= 0"
    return f"(!{cel_comparable(lower)} || !{cel_comparable(upper)} || {comparison})"


_RANGE = Rule(
    cel=(
        f"type(self) == int ? (self >= {FLOOR_BYTES_PER_SECOND} && self <= {CEILING_BYTES_PER_SECOND}) : "
        f"(self.matches(r'{PATTERN}') && quantity(self).compareTo(quantity('{FLOOR_BYTES_PER_SECOND}')) >= 0 "
        f"&& quantity(self).compareTo(quantity('{CEILING_BYTES_PER_SECOND}')) <= 0)"
    ),
    message=MESSAGE,
    message_cel=f"type(self) == string ? '{MESSAGE}; it is ' + self : '{MESSAGE}'",
    holds=lambda _: True,  # parse_byte_rate has refused already
)

_SCHEMA: dict[str, Any] = {
    "x-kubernetes-int-or-string": True,
    "pattern": PATTERN,
    "maxLength": _MAX_LENGTH,
    "minimum": FLOOR_BYTES_PER_SECOND,
    "maximum": CEILING_BYTES_PER_SECOND,
    "x-kubernetes-validations": [_RANGE.as_schema()],
}

ByteRate = Annotated[int, BeforeValidator(parse_byte_rate), WithJsonSchema(_SCHEMA)]
"""A byte rate of a spec: int or text outside, an int in bytes per second inside."""


def _capped(value: object) -> object:
    return min(value, CEILING_BYTES_PER_SECOND) if isinstance(value, int) else value


ExactRate = Annotated[int, Field(ge=0, le=CEILING_BYTES_PER_SECOND, json_schema_extra={"format": "int64"}), BeforeValidator(_capped)]
"""A byte rate of a status: the canonical integer in bytes per second.

A product above the ceiling (a huge contract times its partitions) is shown as the ceiling: a status that cannot be written helps nobody.
"""


# The part of a policy that sets Kafka's default entities: what applies to everybody who has no
# quota of their own.


RequestPercentage = Annotated[int, Field(ge=1, le=100_000)]
MutationsPerSecond = Annotated[int, Field(ge=1, le=1_000_000)]


class DefaultQuota(SchemaModel):
    """The quota of one default entity, on each broker."""

    fetch: ByteRate | None = Field(default=None, description="Bytes per second fetched from one broker. Unset means not managed.")
    produce: ByteRate | None = Field(default=None, description="Bytes per second produced to one broker. Unset means not managed.")
    request_percentage: RequestPercentage | None = Field(
        default=None, description="Share of one broker thread's time in percent; 200 means two threads. Unset means not managed."
    )

    rules = (
        Rule(
            cel="has(self.fetch) || has(self.produce) || has(self.requestPercentage)",
            message="must have at least one of fetch, produce and requestPercentage; leave the whole entry out to manage nothing",
            holds=lambda quota: not (quota.fetch is None and quota.produce is None and quota.request_percentage is None),
        ),
    )


class QuotaDefaults(SchemaModel):
    """Kafka's default entities. An entry that is left out is not managed."""

    user: DefaultQuota | None = Field(default=None, description="Every user without a quota of their own, each for themselves.")
    client_id: DefaultQuota | None = Field(default=None, description="Every client id without a quota of its own, each for itself.")
    user_and_client_id: DefaultQuota | None = Field(
        default=None, description="Every pair of user and client id without a quota of its own, each for itself."
    )

    rules = (
        Rule(
            cel="has(self.user) || has(self.clientId) || has(self.userAndClientId)",
            message="must have at least one of user, clientId and userAndClientId; leave defaults out to manage nothing",
            holds=lambda defaults: not (defaults.user is None and defaults.client_id is None and defaults.user_and_client_id is None),
        ),
    )


class DirectionRates(SchemaModel):
    """Bytes per second in each direction; a direction that is left out is not managed."""

    fetch: ByteRate | None = Field(default=None, description="Bytes per second that may be fetched, such as 10Mi. Unset means not managed.")
    produce: ByteRate | None = Field(
        default=None, description="Bytes per second that may be produced, such as 10Mi. Unset means not managed."
    )

    rules = (
        Rule(
            cel="has(self.fetch) || has(self.produce)",
            message="must have at least one of fetch and produce",
            holds=lambda rates: rates.fetch is not None or rates.produce is not None,
        ),
    )


PER_PARTITION = (
    "Rate for each partition of the topics; a broker allows it times the partitions it leads, so that the total survives a broker's death."
)
PER_BROKER = "Rate on each broker, written as it is."
TOTAL = "Rate over the whole cluster, divided over the brokers that lead the topics."

IN_ONE_FORM = Rule(
    cel="[has(self.perPartition), has(self.perBroker), has(self.total)].filter(given, given).size() == 1",
    message="must have exactly one of perPartition, perBroker and total",
    holds=lambda rates: [rates.per_partition, rates.per_broker, rates.total].count(None) == 2,
)


class ContractRates(SchemaModel):
    """What a member is promised, in exactly one form."""

    per_partition: DirectionRates | None = Field(default=None, description=f"{PER_PARTITION} The member needs topics.")
    per_broker: DirectionRates | None = Field(default=None, description=PER_BROKER)
    total: DirectionRates | None = Field(default=None, description=TOTAL)
    request_percentage: RequestPercentage | None = Field(
        default=None,
        description="Share of one broker thread's time in percent, on each broker; 200 means two threads. Unset means not managed.",
    )
    controller_mutations_per_second: MutationsPerSecond | None = Field(
        default=None, description="Partitions created, deleted or altered per second, on each broker. Unset means not managed."
    )

    rules = (IN_ONE_FORM,)


class ThrottledRates(SchemaModel):
    """What the members of a tier drop to, in each form that their contracts use."""

    per_partition: DirectionRates | None = Field(default=None, description=f"For members with a contract perPartition. {PER_PARTITION}")
    per_broker: DirectionRates | None = Field(default=None, description=f"For members with a contract perBroker. {PER_BROKER}")
    total: DirectionRates | None = Field(default=None, description=f"For members with a contract total. {TOTAL}")

    rules = (
        Rule(
            cel="has(self.perPartition) || has(self.perBroker) || has(self.total)",
            message="must have at least one of perPartition, perBroker and total",
            holds=lambda rates: [rates.per_partition, rates.per_broker, rates.total].count(None) < 3,
        ),
    )
