"""What was measured of brokers and clients, as immutable values: network cards, and bytes and throttling by client.

Rates are bytes per second as floats, because they are measurements; times are seconds since the epoch and belong to the sample, not to
the moment somebody asked. Nothing here judges whether a reading may be used: that is `pressure.py`'s.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from controller_logic.entity import Entity
from controller_logic.names import QuotaKey
from controller_logic.reasons import Reason


class Direction(StrEnum):
    """Which way bytes go through a broker's card; consumers fill egress, producers ingress."""

    __hash__ = str.__hash__

    EGRESS = "egress"
    INGRESS = "ingress"


@dataclass(frozen=True, slots=True)
class NicSpan:
    """Mean rate of one broker's card between two neighbouring samples of its counter; `at_seconds` is the later sample's time."""

    at_seconds: float
    seconds: float
    bytes_per_second: float


@dataclass(frozen=True, slots=True)
class ClientRate:
    """What Kafka says of one quota entity on one broker, in one direction.

    `entity` is the one whose quota meters the client, by the tags of the broker's metric. `throttle_milliseconds` is Kafka's own mean
    throttle time; None = that series is missing, which is not the same as zero.
    """

    at_seconds: float
    bytes_per_second: float
    throttle_milliseconds: float | None = None


@dataclass(frozen=True, slots=True)
class ReadingProblem:
    """A reading that is missing or cannot be trusted, for people; `broker` None = all of them.

    `directions` are those of cards that it concerns; empty = it is of no card, or of both directions.
    """

    reason: Reason
    message: str
    broker: int | None = None
    directions: tuple[Direction, ...] = ()


@dataclass(frozen=True, slots=True)
class Readings:
    """Everything measured that one pass knows. What is absent is unknown, never zero.

    `nic` holds the spans of about the last minute, oldest first, for each broker and direction. `clients` holds the newest rate of each
    entity on each broker. `scrape_seconds` is how often a new sample is to be expected; `problems` tell what is missing and why.
    """

    read_at_seconds: float
    scrape_seconds: float
    nic: Mapping[tuple[int, Direction], tuple[NicSpan, ...]] = field(default_factory=dict)
    clients: Mapping[tuple[Entity, int, Direction], ClientRate] = field(default_factory=dict)
    problems: tuple[ReadingProblem, ...] = ()


KEY_OF = {Direction.EGRESS: QuotaKey.CONSUMER_BYTE_RATE, Direction.INGRESS: QuotaKey.PRODUCER_BYTE_RATE}
