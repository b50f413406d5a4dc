"""A load over time, as `tidegate simulate` reads it from a file; it never goes to a cluster.

The spec is written like those of the custom resources. It has a group of its own, so that commands
that read policies and tiers from the same file skip it.
"""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from tidegate.resources.fields import KafkaName, Moment, TopicName
from tidegate.resources.policy import BrokerId
from tidegate.resources.rates import ByteRate
from tidegate.resources.schema import Rule, SchemaModel

SIMULATION_KIND = "Simulation"
SIMULATION_GROUP = "simulation.tidegate.io"
SIMULATION_API_VERSION = f"{SIMULATION_GROUP}/v1alpha1"

LONGEST_SECONDS = 24 * 3600
MAX_BROKERS, MAX_TOPICS, MAX_ENTRIES = 200, 1000, 5000

_SPAN = re.compile(r"(?:(\d{1,5})h)?(?:(\d{1,5})m)?(?:(\d{1,5})s)?")
_SPAN_MESSAGE = (
    "must be a time from the start of the play as a text, such as 90s, 12m or 1h30m, and at most "
    "24h"
)


def parse_span(written: object) -> int:
    """Whole seconds of `1h30m`. Raises ValueError with a sentence that says what must hold."""
    found = _SPAN.fullmatch(written) if isinstance(written, str) else None
    if found is None or not written:
        raise ValueError(_SPAN_MESSAGE)
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    total = 3600 * hours + 60 * minutes + seconds
    if total > LONGEST_SECONDS:
        raise ValueError(_SPAN_MESSAGE)
    return total


Span = Annotated[int, BeforeValidator(parse_span)]
"""A time from the start of the play: a text outside, whole seconds inside."""

_ENDS_LATER = Rule(
    cel="",
    message="must be later than `from`, which is 0s where it is left out",
    field_path=".to",
    holds=lambda entry: entry.end is None or entry.begin < entry.end,
)


def _has_one_of(*fields: str) -> Rule:
    attributes = fields
    return Rule(
        cel="",
        message=f"must have at least one of {' and '.join(fields)}",
        holds=lambda entry: any(getattr(entry, name) is not None for name in attributes),
    )


def _once(what: str, field: str) -> Rule:
    def holds(entry: Any) -> bool:
        listed = getattr(entry, field) or ()
        return len(set(listed)) == len(listed)

    return Rule(cel="", message=f"every {what} may appear once only", holds=holds)


class SimulatedLoad(SchemaModel):
    """What one member of a tier wants to move, from when to when."""

    user: KafkaName | None = Field(
        default=None, description="User of the member, exactly as in its tier."
    )
    client_id: KafkaName | None = Field(
        default=None, description="Client id of the member, exactly as in its tier."
    )
    fetch: ByteRate | None = Field(
        default=None,
        description="Bytes per second that it wants to fetch, in total over its brokers.",
    )
    produce: ByteRate | None = Field(
        default=None,
        description="Bytes per second that it wants to produce, in total over its brokers.",
    )
    catch_up: ByteRate | None = Field(
        default=None,
        description="Rate at which it catches up, in total over its brokers, while a backlog "
        "is left that it could not transfer in time; with several entries of a "
        "member, the largest counts. Unset means that it never catches up.",
    )
    brokers: tuple[BrokerId, ...] | None = Field(
        default=None,
        min_length=1,
        description="Only through these brokers. Unset means all brokers that lead partitions "
        "of its topics, in proportion to their number, or all brokers evenly if "
        "the member has no topics.",
    )
    begin: Span = Field(
        default=0, alias="from", description="When it starts, such as 2m. Unset means 0s."
    )
    end: Span | None = Field(
        default=None,
        alias="to",
        description="When it ends. Unset means at the end of the simulation.",
    )

    rules = (
        Rule(
            cel="",
            message="must have the user, the clientId or both of a member",
            holds=lambda load: load.user is not None or load.client_id is not None,
        ),
        _has_one_of("fetch", "produce"),
        Rule(
            cel="",
            message="must not be below fetch or produce: it is how fast the member goes while it "
            "catches up",
            field_path=".catchUp",
            holds=lambda load: (
                load.catch_up is None or load.catch_up >= max(load.fetch or 0, load.produce or 0)
            ),
        ),
        _once("broker", "brokers"),
        _ENDS_LATER,
    )


class BackgroundTraffic(SchemaModel):
    """What else goes through brokers' NICs: replication, clients that no tier names."""

    egress: ByteRate | None = Field(
        default=None, description="Bytes per second sent by each of the brokers."
    )
    ingress: ByteRate | None = Field(
        default=None, description="Bytes per second received by each of the brokers."
    )
    brokers: tuple[BrokerId, ...] | None = Field(
        default=None, min_length=1, description="Only on these brokers. Unset means all."
    )
    begin: Span = Field(
        default=0, alias="from", description="When it starts, such as 2m. Unset means 0s."
    )
    end: Span | None = Field(
        default=None,
        alias="to",
        description="When it ends. Unset means at the end of the simulation.",
    )

    rules = (_has_one_of("egress", "ingress"), _once("broker", "brokers"), _ENDS_LATER)


class SimulationSpec(SchemaModel):
    """The cluster, as far as a policy does not say it, and the load on it."""

    brokers: tuple[BrokerId, ...] = Field(
        min_length=1, max_length=MAX_BROKERS, description="Ids of all live brokers."
    )
    topics: dict[TopicName, dict[BrokerId, Annotated[int, Field(ge=0, le=100_000)]]] = Field(
        default_factory=dict,
        max_length=MAX_TOPICS,
        description="For each topic that a member names, how many of its partitions each "
        "broker leads, such as {1: 2, 2: 1}.",
    )
    load: tuple[SimulatedLoad, ...] = Field(
        min_length=1,
        max_length=MAX_ENTRIES,
        description="What members want. Entries of one member at the same time add up.",
    )
    background: tuple[BackgroundTraffic, ...] = Field(
        default=(),
        max_length=MAX_ENTRIES,
        description="Other traffic through the brokers' NICs. Entries at the same time add up.",
    )
    duration: Span | None = Field(
        default=None,
        description="How long to simulate. Unset means until every contract is in force again "
        "after the last change of the load, for at most an hour.",
    )
    starts_at: Moment | None = Field(
        default=None,
        description="Wall-clock time at 0s, such as 2026-11-30T22:00:00Z, which decides when "
        "overrides, calendar and schedules are in force. Unset means that these are ignored.",
    )

    rules = (
        _once("broker", "brokers"),
        Rule(
            cel="",
            message="must be longer than 0s",
            field_path=".duration",
            holds=lambda spec: spec.duration is None or spec.duration > 0,
        ),
    )
