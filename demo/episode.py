"""What one playing of experiments 2 and 3 leaves behind, by Tidegate or by the published cliff. It computes nothing.

Times are seconds since the epoch, rates bytes per second, and everything is told by level (L0 to L3).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from lab.load import ProcessorShare
from lab.rates import ByteSeries


@dataclass(frozen=True, slots=True)
class QuotaStep:
    """One quota written in ZooKeeper, at ZooKeeper's own time; None = no quota."""

    at_seconds: float
    level: str
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class TierStep:
    """From `at_seconds` on the policy's status said this of a level; seen within a second."""

    at_seconds: float
    level: str
    state: str
    because: str


@dataclass(frozen=True, slots=True)
class Episode:
    """One playing: the limit is lowered, tiers go down, they are measured at rest, the limit is raised, all return.

    `arrived` holds what each level's consumer got, `card` what the broker's card sent.
    """

    began_seconds: float
    limited_at_seconds: float
    measured_from_seconds: float
    measured_seconds: int
    raised_at_seconds: float
    ended_seconds: float
    arrived: Mapping[str, ByteSeries]
    card: ByteSeries
    quotas: tuple[QuotaStep, ...]
    tiers: tuple[TierStep, ...]
    processor: ProcessorShare
