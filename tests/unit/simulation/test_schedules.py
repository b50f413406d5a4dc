"""Played: a lower limit at a time of day, made ready for or not, and back afterwards."""

from dataclasses import replace

import pytest

from tests.unit.simulation.scenarios import MB, OUT, USERS, scenario, want
from tidegate.simulation.outcome import EventKind, outcome_of
from tidegate.simulation.play import Play, play
from tidegate_logic.model import BrokerLimit, BrokerLimits, Level, LimitSchedule
from tidegate_logic.recurrence import Recurrence

EVERY_DAY = frozenset(range(7))
BEGINS, ENDS = 400, 700  # seconds of the play; 11:40 and 11:45 UTC
EPOCH = 11 * 3600 + 40 * 60 - BEGINS + 86_400 * 20_000


def played(*, before: bool) -> Play:
    """All want 20 MB/s of a broker of 100, which may carry 50 at some time."""
    at_night = BrokerLimit(50 * MB, 50 * MB, 125 * MB, 125 * MB)
    schedule = LimitSchedule(
        Recurrence(EVERY_DAY, 700, 705), BrokerLimits(at_night), is_ready_before=before
    )
    scene = scenario(
        *want(dict.fromkeys(Level, 20.0), 0, None),
        limit_mb=100,
        contract_mb=25,
        schedules=(schedule,),
        seconds=1300,
    )
    return play(replace(scene, epoch_seconds=float(EPOCH)))


def means(one: Play, begin: int, end: int) -> list[float]:
    """MB/s of broker 1, as means of twelve seconds."""
    return [
        sum(second.carried[1, OUT] for second in one.seconds[at - 12 : at]) / 12 / MB
        for at in range(begin, end)
    ]


@pytest.fixture(scope="module")
def ready() -> Play:
    return played(before=True)


def test_safe_steps_end_when_the_limit_begins(ready: Play) -> None:
    assert max(means(ready, 12, 200)) > 75
    assert max(means(ready, BEGINS, ENDS)) <= 1.05 * 50
    assert max(mute.seconds for one in ready.seconds for mute in one.mutes) <= 16
    # not earlier than the deepest cut takes
    assert min(means(ready, 12, BEGINS - 220)) > 75


def test_without_that_the_steps_begin_with_the_limit() -> None:
    late = played(before=False)
    assert max(means(late, 12, BEGINS)) > 75
    assert min(means(late, 12, BEGINS)) > 75
    assert max(means(late, BEGINS + 120, ENDS)) <= 1.05 * 50
    outcome = outcome_of(late)
    over = next(one for one in outcome.events if one.kind is EventKind.OVER)
    assert over.at_seconds == pytest.approx(BEGINS, abs=2)
    assert over.nics[0][2] == 50 * MB


def test_after_its_end_all_is_raised_again_and_seconds_over_go_by_the_limit_of_their_time(
    ready: Play,
) -> None:
    outcome = outcome_of(ready)
    assert outcome.below_at_end == ()
    (nic,) = [one for one in outcome.nics if one.direction is OUT]
    assert nic.limit == 50 * MB
    assert nic.over_seconds <= 5
    assert nic.highest > 75 * MB


def test_a_throttle_without_a_contract_is_not_rescaled_by_the_limit_of_the_hour() -> None:
    """Its share is of what any NIC may carry at any time, here that of a broker without load."""
    by_day, at_night = (BrokerLimit(mb * MB, mb * MB, 125 * MB, 125 * MB) for mb in (50, 100))
    schedule = LimitSchedule(Recurrence(EVERY_DAY, 700, 705), BrokerLimits(by_day, {2: at_night}))
    wants = want({Level.L0: 20.0, Level.L3: 60.0}, 0, None)
    scene = scenario(*wants, brokers=(1, 2), seconds=BEGINS + 30)
    tiers = tuple(
        replace(tier, members=tuple(replace(one, contract=None) for one in tier.members))
        if tier.level is Level.L3
        else tier
        for tier in scene.tiers
    )
    policy = replace(scene.policy, limits=BrokerLimits(by_day), schedules=(schedule,))
    found = play(replace(scene, policy=policy, tiers=tiers, epoch_seconds=float(EPOCH)))
    quotas = found.quotas[USERS[Level.L3], OUT]
    before = quotas[BEGINS - 1]
    assert before is not None
    assert before < 50 * MB
    assert quotas[BEGINS + 4] == pytest.approx(before, rel=0.1)
