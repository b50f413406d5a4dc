"""What a play came to, against the seconds that it is taken from."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.simulation.scenarios import MB, OUT, USERS, scenario, want
from tidegate.simulation.cluster import Background
from tidegate.simulation.outcome import (
    EventKind,
    Outcome,
    moved_by_level,
    moving_means,
    nic_rates,
    outcome_of,
)
from tidegate.simulation.play import Play, play
from tidegate_logic.model import Contract, Level, Override, RateForm
from tidegate_logic.reasons import Reason

EPISODE = scenario(
    *want(dict.fromkeys(Level, 25.0), 30, 240), background=[Background(1, OUT, 5.0 * MB, 0, 240)]
)


@pytest.fixture(scope="module")
def played() -> Play:
    return play(EPISODE)


@pytest.fixture(scope="module")
def outcome(played: Play) -> Outcome:
    return outcome_of(played)


def test_events_are_in_order_and_each_change_begins_where_the_last_one_ended(
    outcome: Outcome,
) -> None:
    times = [one.at_seconds for one in outcome.events]
    assert times == sorted(times)
    for user in USERS.values():
        changes = [one for one in outcome.events if one.member and one.member.key == (user, OUT)]
        values = [60 * MB, *(one.after for one in changes)]
        assert all(one.is_below_contract == (one.after != 60 * MB) for one in changes)
        assert [one.before for one in changes] == values[:-1]
        assert values[-1] == 60 * MB


def test_a_lowering_has_its_broker_and_the_longest_mute_until_the_next_change(
    played: Play, outcome: Outcome
) -> None:
    lowered = [one for one in outcome.events if one.kind is EventKind.LOWERED]
    assert {one.brokers for one in lowered} == {(1,)}
    mutes = [mute for second in played.seconds for mute in second.mutes]
    for member in outcome.members:
        mine = [one for one in lowered if one.member == member.member]
        assert max([one.longest_mute_seconds for one in mine], default=0.0) <= (
            member.longest_mute_seconds
        )
        of_member = [mute.seconds for mute in mutes if mute.entity == member.member.report.entity]
        assert member.longest_mute_seconds == max(of_member, default=0.0)
    assert all(one.longest_mute_seconds <= one.predicted_mute_seconds + 2 for one in lowered)


def test_levels_are_the_sums_of_their_members(outcome: Outcome) -> None:
    for level in outcome.levels:
        mine = [one for one in outcome.members if one.level is level.level]
        assert level.amounts.moved == pytest.approx(sum(one.amounts.moved for one in mine))
        assert level.amounts.held_by_throttle == pytest.approx(
            sum(one.amounts.held_by_throttle for one in mine)
        )
        assert level.lowered == sum(one.lowered_at is not None for one in mine)
        assert level.back_at == max(
            (one.back_at for one in mine if one.back_at is not None), default=None
        )


def test_what_levels_and_others_move_is_what_a_nic_carries(played: Play) -> None:
    place = (1, OUT)
    levels = moved_by_level(played, place, 1)
    for at, carried in enumerate(nic_rates(played, place, 1)):
        parts = sum(moved[at] for moved in levels.values()) + played.seconds[at].background[place]
        assert carried == pytest.approx(parts, abs=1.0)


def test_a_finding_is_said_once_while_it_lasts() -> None:
    helpless = outcome_of(
        play(
            scenario(
                *want({Level.L0: 40.0, Level.L3: 4.0}, 0, 200),
                background=[Background(1, OUT, 60.0 * MB, 30, 200)],
            )
        )
    )
    said = [one.reason for one in helpless.events if one.kind is EventKind.FINDING]
    assert said.count(Reason.QUOTA_CANNOT_HELP) == 1


def test_a_member_that_an_override_exempts_is_lowered_when_it_ends() -> None:
    exempt = Override("s/spare", EPISODE.epoch_seconds + 120, "a test", USERS[Level.L3])
    outcome = outcome_of(play(replace(EPISODE, overrides=(exempt,))))
    times = {one.level: one.lowered_at for one in outcome.levels}
    assert times[Level.L3] is None or times[Level.L3] >= 120
    assert times[Level.L2] is not None
    assert times[Level.L2] < 120
    assert outcome.below_at_end == ()


def test_a_quota_that_an_override_sets_is_a_change_and_not_a_throttle() -> None:
    more = Override(
        "s/more",
        EPISODE.epoch_seconds + 20,
        "a test",
        USERS[Level.L0],
        rates=Contract(RateForm.PER_BROKER, 70 * MB, None),
    )
    outcome = outcome_of(play(replace(EPISODE, overrides=(more,))))
    changes = [one for one in outcome.events if one.kind is EventKind.CHANGED]
    assert [(one.before, one.after) for one in changes][-1][1] == 60 * MB
    assert {one.member.report.level for one in changes if one.member} == {Level.L0}
    assert outcome.levels[0].lowered == 0


@given(st.lists(st.floats(0, 1e9), max_size=40), st.integers(1, 12))
def test_moving_means_are_of_the_last_seconds(values: list[float], seconds: int) -> None:
    expected = [
        sum(part) / len(part)
        for end in range(1, len(values) + 1)
        if (part := values[max(0, end - seconds) : end])
    ]
    assert moving_means(values, seconds) == pytest.approx(expected, abs=1e-3)


def test_who_is_throttled_under_another_contract_is_not_back_when_that_ends() -> None:
    """The throttle goes along with the contract; only a quota that is no throttle is back."""
    half = Override(
        "s/half",
        EPISODE.epoch_seconds + 120,
        "a test",
        USERS[Level.L3],
        rates=Contract(RateForm.PER_BROKER, 30 * MB, None),
    )
    played = play(replace(EPISODE, overrides=(half,), seconds=200))
    below = {one.report.level for one in outcome_of(played).below_at_end}
    in_force = played.quotas[USERS[Level.L3], OUT][-1]
    assert (Level.L3 in below) == (in_force != 60 * MB)
    assert Level.L2 in below
