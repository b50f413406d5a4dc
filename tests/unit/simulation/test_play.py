"""Plays by the operator's own decisions: who is lowered in which order, and that all comes back."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.simulation.scenarios import IN, MB, OUT, USERS, scenario, want
from tidegate.simulation.cluster import Background
from tidegate.simulation.outcome import EventKind, Outcome, outcome_of
from tidegate.simulation.play import LONGEST_AFTERWARDS_SECONDS, Play, play
from tidegate_logic.model import Direction, Level, Mode

ALL_25 = dict.fromkeys(Level, 25.0)
STEP = want(ALL_25, 30, 300)


def lowered(outcome: Outcome) -> dict[Level, float]:
    """When each level was lowered first."""
    return {one.level: one.lowered_at for one in outcome.levels if one.lowered_at is not None}


@pytest.fixture(scope="module")
def episode() -> Play:
    return play(scenario(*STEP))


def test_a_load_below_the_limit_changes_nothing() -> None:
    played = play(scenario(*want(dict.fromkeys(Level, 15.0), 0, 120)))
    assert outcome_of(played).events == ()
    assert {quota for quotas in played.quotas.values() for quota in quotas} == {60 * MB}


def test_an_episode_lowers_l3_then_l2_never_l0_and_gives_all_back(episode: Play) -> None:
    outcome = outcome_of(episode)
    times = lowered(outcome)
    assert list(times) == [Level.L2, Level.L3]
    assert times[Level.L3] < times[Level.L2]
    assert outcome.below_at_end == ()
    assert all(quotas[-1] == 60 * MB for quotas in episode.quotas.values())
    assert [one.kind for one in outcome.events][-1] is EventKind.ALL_BACK


def test_it_is_within_the_limit_soon_and_until_the_end(episode: Play) -> None:
    means = [
        sum(one.carried[1, OUT] for one in episode.seconds[at : at + 24]) / 24
        for at in range(150, 276)
    ]
    assert max(means) <= 1.02 * 80 * MB
    assert min(means) >= 0.7 * 80 * MB


def test_no_mute_is_longer_than_the_policy_allows_by_much(episode: Play) -> None:
    """12 s by the policy; a client that grew since the reading adds some."""
    assert 5 <= max(mute.seconds for one in episode.seconds for mute in one.mutes) <= 16


def test_a_level_whose_first_cut_waited_for_its_turn_names_the_load_it_was_decided_on(
    episode: Play,
) -> None:
    """L3 and L2 are lowered in one round, one write after the other: the second has a cause, too."""
    first: dict[Level, str] = {}
    for one in episode.passes:
        for report in one.decision.levels:
            if report.below_contract:
                first.setdefault(report.level, report.because)
    assert {Level.L3, Level.L2} <= first.keys()
    assert all(cause.startswith("broker ") for cause in first.values()), first


def test_the_same_scenario_plays_the_same() -> None:
    one = scenario(*STEP, seconds=120)
    assert play(one) == play(one)


def test_a_policy_that_only_observes_or_is_paused_is_played_as_if_it_enforced(
    episode: Play,
) -> None:
    scene = scenario(*STEP)
    observing = replace(scene.policy, mode=Mode.OBSERVE, paused_by=("spec.suspend",))
    assert play(replace(scene, policy=observing)).quotas == episode.quotas


def test_background_alone_lowers_no_one() -> None:
    outcome = outcome_of(
        play(
            scenario(
                *want(dict.fromkeys(Level, 2.0), 0, 120),
                background=[Background(1, OUT, 90.0 * MB, 30, 120)],
            )
        )
    )
    assert lowered(outcome) == {}
    assert any(one.reason is not None for one in outcome.events)


def test_a_play_with_a_set_end_ends_there_and_says_who_is_still_below() -> None:
    outcome = outcome_of(play(scenario(*STEP, seconds=200)))
    assert outcome.seconds == 200
    assert {one.report.level for one in outcome.below_at_end} == {Level.L2, Level.L3}


def test_without_an_end_it_is_over_when_all_is_calm_or_after_an_hour() -> None:
    assert 330 <= len(play(scenario(*STEP)).seconds) < 900
    forever = scenario(*want(ALL_25, 0, None), scrape_seconds=15)
    assert len(play(forever).seconds) == LONGEST_AFTERWARDS_SECONDS


@pytest.mark.parametrize("scrape_seconds", [1, 15, 30])
def test_any_scrape_interval_is_played(scrape_seconds: int) -> None:
    outcome = outcome_of(play(scenario(*STEP, scrape_seconds=scrape_seconds)))
    assert Level.L3 in lowered(outcome)
    assert outcome.below_at_end == ()


LEVELS = (Level.L1, Level.L2, Level.L3)
# together below the limit of 80 MB/s
WITHIN = st.fixed_dictionaries(
    {level: st.integers(15, 22).map(float) for level in LEVELS}
    | {Level.L0: st.integers(0, 13).map(float)}
)
ANY = st.fixed_dictionaries(
    {level: st.integers(0, 45).map(float) for level in LEVELS}
    | {Level.L0: st.integers(0, 60).map(float)}
)
BEGINS, LASTS = st.integers(20, 60), st.integers(60, 240)
SCRAPES, WAYS = st.sampled_from([1, 5, 15]), st.sampled_from([OUT, IN])


def l0_stays_all_comes_back_and_no_byte_is_lost(played: Play, way: Direction) -> Outcome:
    """What holds whatever is wanted, from when to when."""
    outcome = outcome_of(played)
    assert Level.L0 not in lowered(outcome)
    assert {*played.quotas[USERS[Level.L0], way]} == {60 * MB}
    assert outcome.below_at_end == ()
    assert all(quotas[-1] == 60 * MB for quotas in played.quotas.values())
    for one in outcome.members:
        assert one.amounts.moved <= one.amounts.wanted + 1
        assert one.amounts.wanted + one.amounts.caught_up == pytest.approx(
            one.amounts.moved + one.amounts.held_back, abs=len(played.seconds)
        )
    return outcome


@settings(max_examples=settings().max_examples // 5)
@given(ANY, BEGINS, LASTS, SCRAPES, WAYS, st.integers(0, 40))
def test_whatever_is_wanted_l0_is_never_lowered_and_all_comes_back(
    wanted: dict[Level, float],
    begin: int,
    long: int,
    scrape_seconds: int,
    way: Direction,
    background_mb: int,
) -> None:
    played = play(
        scenario(
            *want(wanted, begin, begin + long, way),
            scrape_seconds=scrape_seconds,
            background=[Background(1, way, background_mb * MB, begin, begin + long)],
        )
    )
    l0_stays_all_comes_back_and_no_byte_is_lost(played, way)


@settings(max_examples=settings().max_examples // 5)
@given(WITHIN, BEGINS, LASTS, SCRAPES, WAYS, st.integers(10, 40))
def test_l3_goes_before_l2_and_l2_before_l1(
    wanted: dict[Level, float],
    begin: int,
    long: int,
    scrape_seconds: int,
    way: Direction,
    background_mb: int,
) -> None:
    """All move what they want, and brokers' own rates show it, when the background is too much.

    Where clients begin with the load, these rates show a part of them for eleven seconds, and a
    level whose part is no more than its throttled rate is passed over until they show the rest.
    """
    shown = begin + 12 + 2 * scrape_seconds
    played = play(
        scenario(
            *want(wanted, begin, shown + long, way),
            scrape_seconds=scrape_seconds,
            background=[Background(1, way, background_mb * MB, shown, shown + long)],
        )
    )
    times = lowered(l0_stays_all_comes_back_and_no_byte_is_lost(played, way))
    order = [times.get(level, float("inf")) for level in (Level.L3, Level.L2, Level.L1)]
    assert order == sorted(order)
