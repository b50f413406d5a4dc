"""What usage tables say of the members of tiers, and how contracts may follow from it, as values.

The figures are made by a rollup Job from tables of five minutes; nothing here computes them, and nobody here asks whether they are still
good: who puts usage into an observation has made sure of that.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from controller_logic.entity import Entity
from controller_logic.names import QuotaKey
from controller_logic.reasons import Reason
from controller_logic.value import value


@dataclass(frozen=True, slots=True)
class DirectionUsage:
    """What one entity moved one way over the whole window that was asked for. Rates are bytes per second, means of five minutes each.

    `p99_total` is what 99 % of all five minutes stayed under, on all brokers together; `p99_busiest` the same on the broker where it is
    highest; `brokers` how many brokers the entity moved bytes on. `coverage` is the share of the window that samples tell of, and
    `throttled_share` the share of it in which the entity was held below its contract (both 0 to 1).
    """

    p99_total: float
    p99_busiest: float
    brokers: int
    coverage: float
    throttled_share: float


@dataclass(frozen=True, slots=True)
class Usage:
    """The figures of every entity that a member names, by entity and byte rate; an entity without any is not in it.

    `days` is how long the window was, `until_seconds` when it ended.
    """

    days: int
    until_seconds: float
    figures: Mapping[tuple[Entity, QuotaKey], DirectionUsage] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AdviceTerms:
    """What a policy says of recommendations. `max_change_percent` None = they are shown and never applied."""

    headroom_percent: int = 30
    max_change_percent: int | None = None


@value(frozen=True, slots=True)
class Advice:
    """What usage says of one byte rate of one member's contract, in the contract's own form and bytes per second.

    `recommended` None = nothing, for `reason`. `applied` is what stands in place of `declared`; None = the declared rate stands.
    """

    tier_key: str
    member_name: str
    key: QuotaKey
    declared: int
    reason: Reason
    message: str
    recommended: int | None = None
    applied: int | None = None
