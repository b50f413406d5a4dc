"""Byte rates as people write them (`50Mi`, `1250M`, `52428800`) and as the operator uses them: whole bytes per second.

Kafka's own bounds apply: a quota under 1024 B/s throttles nothing, and above 2^53-1 a number is no longer exact in JSON.
Multiplication is exact; there are no fractions, no exponents and no `/s`.
"""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from tidegate.resources.rules import Rule

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
