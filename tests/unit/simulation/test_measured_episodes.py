"""The model against real brokers: the four episodes with one connection each that docs/simulate.md
has figures of, played again.

There the limit is lowered under a load that runs. A play has one limit for all its time, so here
other traffic comes: as much as the limit is higher than theirs.
"""

from itertools import groupby

import pytest

from tests.unit.simulation.scenarios import IN, MB, OUT, USERS
from tidegate.simulation.cluster import Background, Demand
from tidegate.simulation.outcome import EventKind, outcome_of
from tidegate.simulation.play import Play, Scenario, play
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
    Speed,
    Tier,
    Topology,
)

BEGIN, END, MEAN_SECONDS = 120, 420, 24
THROTTLED_MB = {Level.L1: 5.0, Level.L2: 2.5, Level.L3: 1.0}
WANTED_MB = {Level.L0: 16, Level.L1: 12, Level.L2: 12, Level.L3: 12}
LIMIT_MB, OTHERS_MB = 25, 75


def episode(way: Direction, speed: Speed) -> Play:
    """As measured; producers play half of all rates."""
    share = 1.0 if way is OUT else 0.5
    limit = round(share * (LIMIT_MB + OTHERS_MB) * MB)
    policy = Policy(
        "streaming/orders",
        "uid",
        limits=BrokerLimits(BrokerLimit(limit, None) if way is OUT else BrokerLimit(None, limit)),
        measured=True,
        stale_after_seconds=15.0,
        # 97 and 95 % of the measured limit, as shares of this one
        cut_to_percent=99,
        raise_to_percent=98,
        speed=speed,
    )
    tiers = tuple(
        Tier(
            f"streaming/{level.value}",
            level,
            (Member(level.value, USERS[level], (), contract(60 * share, way)),),
            (contract(THROTTLED_MB[level] * share, way),) if level in THROTTLED_MB else (),
        )
        for level in Level
    )
    demands = tuple(
        Demand(USERS[level], way, 1, wanted * share * MB, 0, END)
        for level, wanted in WANTED_MB.items()
    )
    others = Background(1, way, share * OTHERS_MB * MB, BEGIN, END)
    topology = Topology(0.0, frozenset({1}), {})
    return play(
        Scenario(policy, tiers, topology, demands, (others,), scrape_seconds=1, seconds=END)
    )


def contract(rate_mb: float, way: Direction) -> Contract:
    rate = round(rate_mb * MB)
    return Contract(RateForm.PER_BROKER, rate if way is OUT else None, rate if way is IN else None)


def silence_seconds(played: Play, user: Entity, way: Direction) -> int:
    """The longest run of seconds in which the user moved nothing."""
    silent = [one.flows[(user, way), 1].moved < 1.0 for one in played.seconds]
    return max((len([*run]) for is_silent, run in groupby(silent) if is_silent), default=0)


@pytest.mark.parametrize(
    ("way", "speed", "measured_within", "measured_silence"),
    [
        pytest.param(OUT, Speed.LADDER, 80, 18, id="consume, ladder"),
        pytest.param(OUT, Speed.DRAIN, 46, 15, id="consume, Drain"),
        pytest.param(IN, Speed.LADDER, 80, 11, id="produce, ladder"),
        pytest.param(IN, Speed.DRAIN, 35, 15, id="produce, Drain"),
    ],
)
def test_a_measured_episode_is_played_about_as_it_was(
    way: Direction, speed: Speed, measured_within: int, measured_silence: int
) -> None:
    """Within the limit + 5 % after so many seconds, and silences as long, give and take a little:
    requests of real clients are of other sizes.
    """
    played = episode(way, speed)
    outcome = outcome_of(played)
    lowered = [one for one in outcome.events if one.kind is EventKind.LOWERED]
    first = round(lowered[0].at_seconds)
    assert first - BEGIN <= 7
    most = 1.05 * LIMIT_MB * MB * (1.0 if way is OUT else 0.5)
    clients = [one.carried[1, way] - one.background[1, way] for one in played.seconds]
    over = [
        at
        for at in range(first + MEAN_SECONDS, END)
        if sum(clients[at - MEAN_SECONDS + 1 : at + 1]) / MEAN_SECONDS > most
    ]
    within = (over[-1] + 1 if over else first + MEAN_SECONDS) - first
    assert within == pytest.approx(measured_within, abs=12)
    silences = [silence_seconds(played, user, way) for user in USERS.values()]
    assert max(silences) == pytest.approx(measured_silence, abs=4)
    assert silences[0] == 0
