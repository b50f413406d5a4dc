"""Small simulated clusters for the tests of the throttle: brokers with a limit, users with a level,
and readings made by hand.
"""

from collections.abc import Mapping
from dataclasses import replace

from controller_logic.model import (
    BrokerLimit,
    ClientRate,
    Direction,
    Entity,
    Level,
    NicSpan,
    Readings,
)
from controller_logic.throttle.decision import StepKind, ThrottleDecision, ThrottleStep
from controller_logic.throttle.input import (
    ClientFloors,
    ManagedRate,
    RateHistory,
    ThrottleInput,
    ThrottleMemory,
    ThrottleSettings,
)
from tools.simulate.model import SimulatedClient, SimulatedCluster

MB = 1_000_000
OUT = Direction.EGRESS
IN = Direction.INGRESS
BARE = ClientFloors(0, 0)  # so that a test's small floors are what it says
LEVELS = {level.value: level for level in Level}


def limit(egress_mb: float = 100, capacity_mb: float | None = None) -> BrokerLimit:
    """Egress limited; ingress without a limit, so that nothing of it disturbs a test."""
    return BrokerLimit(
        round(egress_mb * MB), None, None if capacity_mb is None else round(capacity_mb * MB)
    )


def actor(
    name: str,
    level: str,
    contract_mb: float,
    floor_mb: float | None = 1,
    leaders: Mapping[int, int] | None = None,
) -> SimulatedClient:
    floor = None if level == "L0" or floor_mb is None else round(floor_mb * MB)
    return SimulatedClient(
        Entity(name), OUT, LEVELS[level], round(contract_mb * MB), floor, leaders or {1: 1}
    )


def simulated_cluster(
    *actors: SimulatedClient,
    brokers: int = 1,
    limit_mb: float = 100,
    capacity_mb: float | None = None,
    **settings: object,
) -> SimulatedCluster:
    """Everybody at the contract and sending nothing, watched since long ago."""
    made = replace(ThrottleSettings(floors=BARE), **settings)  # type: ignore[arg-type]
    limits = {broker: limit(limit_mb, capacity_mb) for broker in range(1, brokers + 1)}
    played = SimulatedCluster(limits, list(actors), made, now_seconds=1000.0)
    for one in actors:
        played.in_force[one.key] = one.promised
    played.memory = ThrottleMemory(seen={one.key: RateHistory(since_seconds=0.0) for one in actors})
    return played


def want(played: SimulatedCluster, **wanted_mb: float) -> None:
    """What users want from now on, on each broker that leads for them."""
    for one in played.actors:
        if str(one.entity.user) in wanted_mb:
            played.wants |= {
                (one.key, broker): wanted_mb[str(one.entity.user)] * MB for broker in one.leaders
            }


def in_force_mb(played: SimulatedCluster) -> dict[str, float]:
    return {str(one.entity.user): played.in_force[one.key] / MB for one in played.actors}


def steps_of(decision: ThrottleDecision, kind: StepKind) -> dict[str, ThrottleStep]:
    return {str(step.entity.user): step for step in decision.steps.values() if step.kind is kind}


def spans(*rates_mb: float, seconds: float = 15.0, until: float = 1000.0) -> tuple[NicSpan, ...]:
    """One NIC's readings, oldest first; the last ends at `until`."""
    newest = len(rates_mb) - 1
    return tuple(
        NicSpan(until - (newest - place) * seconds, seconds, rate * MB)
        for place, rate in enumerate(rates_mb)
    )


def asked(
    nics: Mapping[int, tuple[NicSpan, ...]],
    rates: tuple[ManagedRate, ...] = (),
    clients_mb: Mapping[tuple[str, int], float] | None = None,
    scrape_seconds: float = 15.0,
    **settings: object,
) -> ThrottleInput:
    """What the throttle is asked at second 1000 about egress limits of 100 MB/s and NICs of 125
    MB/s.
    """
    clients = {
        (Entity(name), broker, OUT): ClientRate(1000.0, rate * MB, 0.0)
        for (name, broker), rate in (clients_mb or {}).items()
    }
    readings = Readings(
        1000.0, scrape_seconds, {(broker, OUT): said for broker, said in nics.items()}, clients
    )
    made = replace(ThrottleSettings(floors=BARE), **settings)  # type: ignore[arg-type]
    return ThrottleInput(
        1000.0, readings, {broker: limit(100, 125) for broker in nics}, frozenset(nics), rates, made
    )
