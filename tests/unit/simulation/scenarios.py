"""Small scenarios: one user of each level who fetches from broker 1, as much as a test says."""

from collections.abc import Mapping, Sequence

from tidegate.simulation.cluster import Background, Demand
from tidegate.simulation.play import Scenario
from tidegate_logic.model import (
    BrokerLimit,
    BrokerLimits,
    Contract,
    Direction,
    Entity,
    Level,
    Member,
    Policy,
    RateForm,
    Tier,
    Topology,
)

MB = 1_000_000
OUT, IN = Direction.EGRESS, Direction.INGRESS
USERS = {level: Entity(level.value.lower()) for level in Level}
THROTTLED = {Level.L1: 10, Level.L2: 5, Level.L3: 1}


def scenario(
    *demands: Demand,
    limit_mb: int = 80,
    capacity_mb: int = 125,
    contract_mb: int = 60,
    background: Sequence[Background] = (),
    brokers: Sequence[int] = (1,),
    scrape_seconds: int = 5,
    seconds: int | None = None,
    **changes: object,
) -> Scenario:
    """Contracts and throttled rates are per broker, of both ways."""
    one = BrokerLimit(limit_mb * MB, limit_mb * MB, capacity_mb * MB, capacity_mb * MB)
    policy = Policy(
        "streaming/orders",
        "uid",
        limits=BrokerLimits(one),
        measured=True,
        stale_after_seconds=3.0 * scrape_seconds,
        **changes,  # type: ignore[arg-type]
    )
    tiers = tuple(
        Tier(
            f"streaming/{level.value.lower()}",
            level,
            (Member(level.value.lower(), USERS[level], (), both(contract_mb)),),
            (both(THROTTLED[level]),) if level in THROTTLED else (),
        )
        for level in Level
    )
    topology = Topology(0.0, frozenset(brokers), {})
    return Scenario(
        policy,
        tiers,
        topology,
        demands,
        tuple(background),
        scrape_seconds=scrape_seconds,
        seconds=seconds,
    )


def both(rate_mb: int) -> Contract:
    return Contract(RateForm.PER_BROKER, rate_mb * MB, rate_mb * MB)


def want(
    wanted_mb: Mapping[Level, float], begin: int, end: int | None, way: Direction = OUT
) -> tuple[Demand, ...]:
    """What the user of each level wants of broker 1."""
    return tuple(
        Demand(USERS[level], way, 1, rate * MB, begin, end) for level, rate in wanted_mb.items()
    )
