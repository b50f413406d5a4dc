"""spec.escalation.calendar: times of load that people know, and what levels may use then."""

from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import Field

from tidegate.resources.fields import matching, ruled
from tidegate.resources.schema import Rule, SchemaModel

Day = Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
MAX_ENTRIES = 32


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (KeyError, OSError, ValueError):  # no such name, a folder, no name at all
        return False
    return True


_clock_check, _clock_schema = ruled(
    matching(
        r"(?:[01][0-9]|2[0-3]):[0-5][0-9]",
        'must be a time of day from "00:00" to "23:59", in quotation marks',
    )
)
ClockTime = Annotated[str, Field(min_length=5, max_length=5), _clock_check, _clock_schema]
"""A time of day, such as `22:00`."""

_zone_check, _zone_schema = ruled(
    matching(
        r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*",
        "must be a name of the time zone database, such as Europe/Berlin or UTC",
    ),
    Rule(
        cel="",  # which names there are, only the operator's database says
        message="is not in the time zone database; a name there is Europe/Berlin or UTC",
        holds=_is_zone,
    ),
)
TimeZone = Annotated[str, Field(min_length=1, max_length=64), _zone_check, _zone_schema]
"""A name of the time zone database, such as `Europe/Berlin`."""

_share_check, _share_schema = ruled(
    matching(r"[1-9][0-9]?%", 'must be from "1%" to "99%" of the contracts')
)
Share = Annotated[str, Field(min_length=2, max_length=3), _share_check, _share_schema]
"""A share of contracts, such as `20%`."""

_levels_check, _levels_schema = ruled(
    Rule(
        cel="self.all(level, level in ['L1', 'L2', 'L3'])",
        message="must name L1, L2 and L3 only: L0 is never throttled",
        holds=lambda levels: levels.keys() <= {"L1", "L2", "L3"},
    )
)


class Recurring(SchemaModel):
    """A time that comes back every week, by the clock of a time zone."""

    days: (
        Annotated[
            tuple[Day, ...],
            Field(min_length=1, max_length=7, json_schema_extra={"x-kubernetes-list-type": "set"}),
        ]
        | None
    ) = Field(default=None, description="Days on which it begins. Unset means every day.")
    from_: ClockTime = Field(
        alias="from", description="Time of day at which it begins, such as 22:00."
    )
    to: ClockTime = Field(
        description="Time of day at which it ends; on the next day if it is not after from."
    )
    time_zone: TimeZone = Field(
        default="UTC",
        description="Time zone of from and to, such as Europe/Berlin. Where clocks skip a time, "
        "it is the moment of the change; where a time comes twice, from is the first and to the "
        "second. Unset means UTC.",
    )


class CalendarEntry(Recurring):
    """A time at which levels may use less than their contracts."""

    levels: Annotated[
        dict[str, Share], Field(min_length=1, max_length=3), _levels_check, _levels_schema
    ] = Field(
        description="Share of their contracts that members of L1, L2 or L3 may use then, such as "
        "20%; never less than a tier's throttled rates. Where entries overlap, the lower one "
        "counts."
    )


class Calendar(SchemaModel):
    """Load that is known before any reading shows it."""

    entries: tuple[CalendarEntry, ...] = Field(
        min_length=1,
        max_length=MAX_ENTRIES,
        description="When levels may use less than their contracts. Quotas step down before an "
        "entry begins, so that they are in force then, and are raised after its end as brokers "
        "have room.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
