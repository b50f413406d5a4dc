"""The figures of throttle episodes. Rates are bytes per second on each broker, times UTC in ISO 8601; see `figures.py`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EpisodeSpan:
    """A quota that stood below its contract. `begin` and `end` are those of the period where the trail does not tell."""

    episode: int
    entity: str
    member: str
    tier: str
    level: str
    begin: str
    end: str
    quota: int
    contract: int
    fraction: float


@dataclass(frozen=True, slots=True)
class Episode:
    """The time in which at least one rate of a direction was below its contract, from the audit trail.

    `open_begin`, `open_end`: it was under way when the period began, or still is at its end. Mutes in seconds, None = not told.
    """

    number: int
    direction: str
    begin: str
    end: str
    seconds: float
    open_begin: bool
    open_end: bool
    levels: str
    members: int
    cuts: int
    raises: int
    lowest_fraction: float
    predicted_mute_seconds: float | None
    observed_mute_seconds: float | None
    brokers: str
    most_over_rate: float | None
    spans: tuple[EpisodeSpan, ...]
