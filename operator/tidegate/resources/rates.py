"""Rates of a contract or a throttle: one pair of directions, in one of three forms."""

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from tidegate.resources.schema import Rule, SchemaModel

# Byte rates: texts in a spec (`"50Mi"`, `"1.5Gi"`, `"52428800"`), whole bytes per second in the
# operator.
#
# A field that takes numbers as well would need Kubernetes 1.34, which estimates the cost of its CEL
# rules correctly; a text with a `maxLength` works everywhere. A quota under 1024 B/s throttles
# nothing in Kafka, and above 2^53-1 a number is no longer exact in JSON. A decimal fraction has to
# come out as whole bytes.


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
_MAX_DECIMALS = 6
# Sixteen digits hold the ceiling; a longer text cannot be in range whatever its suffix. Three
# decimals of k and six of M are whole bytes.
_WHOLE = "[1-9][0-9]{0,15}(k|M|G|T|Ki|Mi|Gi|Ti)?"
_DECIMAL = f"(0|[1-9][0-9]{{0,8}})[.]([0-9]{{1,3}}k|[0-9]{{1,{_MAX_DECIMALS}}}(M|G|T|Ki|Mi|Gi|Ti))"
PATTERN = f"^({_WHOLE}|{_DECIMAL})$"
_IS_RATE = re.compile(PATTERN, re.ASCII).fullmatch
_MAX_LENGTH = 18

MESSAGE = (
    f"must be a whole number of bytes per second from {FLOOR_BYTES_PER_SECOND} to "
    f"{CEILING_BYTES_PER_SECOND} as a text, such as 50Mi, 1250M, 1.5Gi or, in quotes, 52428800 "
    "(suffixes k M G T are powers of 1000, Ki Mi Gi Ti of 1024)"
)
NUMBER_MESSAGE = (
    'must be a text: write the rate in quotes, such as "52428800", or with a suffix, such as 50Mi'
)


def parse_byte_rate(written: object) -> int:
    """Bytes per second of a rate as written in a resource: digits, and at most one suffix.

    The digits may have a decimal fraction. Raises ValueError with a sentence that says what must
    hold, for anything else and outside the bounds. Zero is refused: in Kafka it means "no limit" in
    one place and "nothing at all" in another.
    """
    if isinstance(written, int | float):
        raise ValueError(NUMBER_MESSAGE)
    value = _exact(written) if isinstance(written, str) else None
    if value is None or not _is_within_bounds(value):
        raise ValueError(MESSAGE)
    return value


_OTHER_UNIT = re.compile(
    "([0-9]+(?:[.][0-9]+)?) ?([kmgtKMGT]?)(i?)((?:[Bb](?:yte|it)s?|[Bb]ps|[Bb])?)(?:/s|ps)?",
    re.ASCII,
)


def rate_hint(written: str) -> str:
    """How a rate in another spelling, or in bits, is written here; empty where that is not sure."""
    found = _OTHER_UNIT.fullmatch(written.strip())
    if found is None:
        return ""
    number, prefix, binary, unit = found.groups()
    in_bytes = (
        number + (prefix.lower() if prefix in "kK" and not binary else prefix.upper()) + binary
    )
    value = _exact(in_bytes)
    if value is None or in_bytes == written.strip() or not _is_within_bounds(value):
        return ""
    in_bits = _shortest(value // 8) if value % 8 == 0 and _is_within_bounds(value // 8) else ""
    if unit.lower().startswith("bit") or unit == "bps":
        return f"{written} = {in_bits}" if in_bits else ""
    if unit == "b" and in_bits and not binary:
        return f"{written}: write {in_bytes} for bytes per second, {in_bits} for bits"
    return f"{written}: write {in_bytes} (bytes per second)"


def _shortest(value: int) -> str:
    """The rate with the largest suffix of a power of 1000 that leaves it whole."""
    suffixes = [suffix for suffix in ("T", "G", "M", "k") if value % _FACTORS[suffix] == 0]
    return f"{value // _FACTORS[suffixes[0]]}{suffixes[0]}" if suffixes else str(value)


def _is_within_bounds(value: int) -> bool:
    return FLOOR_BYTES_PER_SECOND <= value <= CEILING_BYTES_PER_SECOND


def _exact(written: str) -> int | None:
    if _IS_RATE(written) is None or written.endswith("\n"):
        return None
    number = written.rstrip("kKMGTi")
    whole, _, decimals = number.partition(".")
    value, rest = divmod(
        int(whole + decimals) * _FACTORS[written[len(number) :]], 10 ** len(decimals)
    )
    return None if rest else value


def cel_comparable(rate: str) -> str:
    """CEL for "the rate at path `rate` can be compared and is not below the floor".

    Where it is false, the rate's own rule has a message already.
    """
    return (
        f"(isQuantity({rate}) && "
        f"quantity({rate}).compareTo(quantity('{FLOOR_BYTES_PER_SECOND}')) >= 0)"
    )


def cel_at_most(lower: str, upper: str) -> str:
    """CEL for "the rate at `lower` is not above the rate at `upper`".

    True where one of them is no sound rate.
    """
    return (
        f"(!{cel_comparable(lower)} || !{cel_comparable(upper)} || "
        f"quantity({lower}).compareTo(quantity({upper})) <= 0)"
    )


# A fraction n/10^d of a power of two is whole where 5^d divides n. (Kubernetes' own isInteger is
# false for every fraction of Ki to Ti.)
_POWERS_OF_FIVE = [5**decimals for decimals in range(1, _MAX_DECIMALS + 1)]
_DECIMALS = "self.find('[.][0-9]+')"
_IS_WHOLE = (
    f"!self.matches('[.].+i$') || int({_DECIMALS}.substring(1)) % "
    f"{_POWERS_OF_FIVE}[{_DECIMALS}.size() - 2] == 0"
)
_RANGE = Rule(
    cel=(
        f"self.matches('{PATTERN}') && "
        f"quantity(self).compareTo(quantity('{FLOOR_BYTES_PER_SECOND}')) >= 0 && "
        f"quantity(self).compareTo(quantity('{CEILING_BYTES_PER_SECOND}')) <= 0 && ({_IS_WHOLE})"
    ),
    message=MESSAGE,
    message_cel=f"'{MESSAGE}; it is ' + self",
    holds=lambda _: True,  # parse_byte_rate has refused already
)

_SCHEMA: dict[str, Any] = {
    "type": "string",
    "pattern": PATTERN,
    "minLength": 2,
    "maxLength": _MAX_LENGTH,
    "x-kubernetes-validations": [_RANGE.as_schema()],
}

ByteRate = Annotated[int, BeforeValidator(parse_byte_rate), WithJsonSchema(_SCHEMA)]
"""A byte rate of a spec: a text outside, an int in bytes per second inside."""


def _capped(value: object) -> object:
    return min(value, CEILING_BYTES_PER_SECOND) if isinstance(value, int) else value


ExactRate = Annotated[
    int,
    Field(ge=0, le=CEILING_BYTES_PER_SECOND, json_schema_extra={"format": "int64"}),
    BeforeValidator(_capped),
]
"""A byte rate of a status: the canonical integer in bytes per second.

A product above the ceiling (a huge contract times its partitions) is shown as the ceiling, because
a status with it could not be written.
"""


# spec.defaults: Kafka's default entities, which apply to everybody without a quota of their own.


RequestPercentage = Annotated[int, Field(ge=1, le=100_000)]
MutationsPerSecond = Annotated[int, Field(ge=1, le=1_000_000)]


class DefaultQuota(SchemaModel):
    """The quota of one default entity, on each broker."""

    fetch: ByteRate | None = Field(
        default=None,
        description="Bytes per second fetched from one broker. Unset means not managed.",
    )
    produce: ByteRate | None = Field(
        default=None,
        description="Bytes per second produced to one broker. Unset means not managed.",
    )
    request_percentage: RequestPercentage | None = Field(
        default=None,
        description="Share of one broker thread's time in percent; 200 means two threads. Unset "
        "means not managed.",
    )

    rules = (
        Rule(
            cel="has(self.fetch) || has(self.produce) || has(self.requestPercentage)",
            message="must have at least one of fetch, produce and requestPercentage; leave the "
            "whole entry out to manage nothing",
            holds=lambda quota: (
                not (
                    quota.fetch is None
                    and quota.produce is None
                    and quota.request_percentage is None
                )
            ),
        ),
    )


Metering = Literal["Enabled", "Disabled"]


class QuotaDefaults(SchemaModel):
    """Kafka's default entities. An entry that is left out is not managed."""

    user: DefaultQuota | None = Field(
        default=None, description="Applies to every user without their own quota, each separately."
    )
    client_id: DefaultQuota | None = Field(
        default=None,
        description="Applies to every client id without its own quota, each separately.",
    )
    user_and_client_id: DefaultQuota | None = Field(
        default=None,
        description="Applies to every pair of user and client id without its own quota, each "
        "separately.",
    )
    metering: Metering = Field(
        default="Disabled",
        description="Enabled: write a quota for Kafka's default user that never limits anyone "
        "(2^53-1 B/s), so that brokers meter every user. The ledger records it, "
        "and Disabled removes it. Nothing is written if user is declared, if "
        "another writer has set a default-user quota, or if client ids without a "
        "user have byte rates, which it would hide (MeteringWithheld). Unset means "
        "Disabled.",
    )

    rules = (
        Rule(
            cel="has(self.user) || has(self.clientId) || has(self.userAndClientId) || "
            "has(self.metering)",
            message="must have at least one of user, clientId, userAndClientId and metering; "
            "leave defaults out to manage nothing",
            holds=lambda defaults: bool(defaults.model_fields_set),
        ),
    )


class DirectionRates(SchemaModel):
    """Bytes per second in each direction; a direction that is left out is not managed."""

    fetch: ByteRate | None = Field(
        default=None,
        description="Bytes per second that may be fetched, such as 10M. Unset means not managed.",
    )
    produce: ByteRate | None = Field(
        default=None,
        description="Bytes per second that may be produced, such as 10M. Unset means not managed.",
    )

    rules = (
        Rule(
            cel="has(self.fetch) || has(self.produce)",
            message="must have at least one of fetch and produce",
            holds=lambda rates: rates.fetch is not None or rates.produce is not None,
        ),
    )


PER_PARTITION = (
    "Rate for each partition of the topics; a broker allows it times the partitions "
    "it leads, so that the total survives a broker's death."
)
PER_BROKER = "Rate on each broker, written as it is."
TOTAL = "Rate over the whole cluster, divided over the brokers that lead the topics."

IN_ONE_FORM = Rule(
    cel="[has(self.perPartition), has(self.perBroker), has(self.total)].filter(given, "
    "given).size() == 1",
    message="must have exactly one of perPartition, perBroker and total",
    holds=lambda rates: [rates.per_partition, rates.per_broker, rates.total].count(None) == 2,
)


class ContractRates(SchemaModel):
    """The contract of a member, in exactly one form."""

    per_partition: DirectionRates | None = Field(
        default=None, description=f"{PER_PARTITION} The member needs topics."
    )
    per_broker: DirectionRates | None = Field(default=None, description=PER_BROKER)
    total: DirectionRates | None = Field(default=None, description=TOTAL)
    request_percentage: RequestPercentage | None = Field(
        default=None,
        description="Share of one broker thread's time in percent, per broker; 200 means two "
        "threads. Unset means not managed.",
    )
    controller_mutations_per_second: MutationsPerSecond | None = Field(
        default=None,
        description="Partitions created, deleted or altered per second, per broker. Unset "
        "means not managed.",
    )

    rules = (IN_ONE_FORM,)


class ThrottledRates(SchemaModel):
    """The rates that the members of a tier drop to, in each form that their contracts use."""

    per_partition: DirectionRates | None = Field(
        default=None, description=f"For members with a contract perPartition. {PER_PARTITION}"
    )
    per_broker: DirectionRates | None = Field(
        default=None, description=f"For members with a contract perBroker. {PER_BROKER}"
    )
    total: DirectionRates | None = Field(
        default=None, description=f"For members with a contract total. {TOTAL}"
    )

    rules = (
        Rule(
            cel="has(self.perPartition) || has(self.perBroker) || has(self.total)",
            message="must have at least one of perPartition, perBroker and total",
            holds=lambda rates: (
                [rates.per_partition, rates.per_broker, rates.total].count(None) < 3
            ),
        ),
    )
