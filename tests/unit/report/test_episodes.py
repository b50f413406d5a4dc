"""Episodes as the audit trail has them."""

import pytest

from tests.unit.report.sample_report import sample_figures
from tests.unit.report.small_request import END_MS, START_MS, write_line
from tidegate.report.figures import Episode
from tidegate.report.period import episodes_of
from tidegate.rollup.terms.sources import AuditLine, read_trail


def episodes(*lines: AuditLine) -> tuple[Episode, ...]:
    return episodes_of(read_trail(lines, "streaming/main", end_ms=END_MS), START_MS, END_MS)


def edges(episode: Episode) -> tuple[str, str, bool, bool]:
    return episode.begin[11:19], episode.end[11:19], episode.open_begin, episode.open_end


def test_an_episode_lasts_from_the_first_quota_below_its_contract_to_the_last_ones_return() -> None:
    (found,) = episodes(
        write_line(10, "a", 100, 50),
        write_line(12, "b", 100, 80),
        write_line(20, "a", 50, 100),
        write_line(30, "b", 80, 100),
    )
    assert edges(found) == ("00:10:00", "00:30:00", False, False)
    assert (found.members, found.cuts, found.raises, found.lowest_fraction, found.seconds) == (
        2,
        2,
        2,
        0.5,
        1200.0,
    )


def test_quotas_that_are_apart_in_time_are_two_episodes() -> None:
    found = episodes(
        *(
            write_line(at, "a", before, after)
            for at, before, after in ((1, 100, 50), (2, 50, 100), (9, 100, 50), (11, 50, 100))
        )
    )
    assert [one.number for one in found] == [1, 2]
    assert [one.seconds for one in found] == [60.0, 120.0]


def test_each_quota_on_the_way_is_a_span_of_its_own() -> None:
    (found,) = episodes(
        write_line(1, "a", 100, 50), write_line(2, "a", 50, 20), write_line(4, "a", 20, 100)
    )
    assert [(span.quota, span.fraction) for span in found.spans] == [(50, 0.5), (20, 0.2)]


def test_a_quota_that_was_lowered_before_the_period_is_below_from_its_start() -> None:
    assert edges(*episodes(write_line(-30, "a", 100, 50), write_line(30, "a", 50, 100))) == (
        "00:00:00",
        "00:30:00",
        True,
        False,
    )


def test_a_trail_that_begins_with_a_release_still_covers_the_time_before() -> None:
    assert edges(*episodes(write_line(30, "a", 50, 100))) == ("00:00:00", "00:30:00", True, False)


@pytest.mark.parametrize("reason", ["Adopted", "LeadersMoved", "ContractChanged"])
def test_a_low_quota_that_tidegate_found_or_wrote_for_fewer_leaders_was_no_throttle(
    reason: str,
) -> None:
    assert episodes(write_line(30, "a", 50, 100, reason=reason)) == ()


def test_a_quota_that_is_still_low_at_the_end_is_open() -> None:
    assert edges(*episodes(write_line(90, "a", 100, 50))) == ("01:30:00", "02:00:00", False, True)


def test_what_happens_after_the_period_does_not_reach_into_it() -> None:
    assert edges(*episodes(write_line(90, "a", 100, 50), write_line(121, "a", 50, 100))) == (
        "01:30:00",
        "02:00:00",
        False,
        True,
    )


@pytest.mark.parametrize(
    "line",
    [
        write_line(1, "a", 100, 50, outcome="refused"),
        write_line(1, "a", 100, 50, outcome="wouldWrite"),
        write_line(1, "a", 100, 50, policy="streaming/other"),
        write_line(1, "a", 100, 50, key="request_percentage"),
        write_line(1, "a", 100, 50, contract=None),
        write_line(1, "a", 100, 100),
        write_line(1, "a", 50, None),
        {
            "event": "Audit",
            "kind": "aLaterKind",
            "t": "2026-11-20T00:01:00Z",
            "policy": "streaming/main",
        },
    ],
    ids=[
        "refused",
        "only would have",
        "another policy",
        "no byte rate",
        "nothing promised",
        "at its contract",
        "unlimited",
        "unknown kind",
    ],
)
def test_what_lowered_nothing_is_no_cut(line: AuditLine) -> None:
    assert [one.cuts for one in episodes(line)] in ([], [0])


def test_the_two_directions_have_episodes_of_their_own() -> None:
    found = episodes(
        write_line(1, "a", 100, 50), write_line(1, "a", 100, 50, key="producer_byte_rate")
    )
    assert [one.direction for one in found] == ["fetch", "produce"]


def test_the_trails_of_two_replicas_can_be_given_one_after_the_other() -> None:
    lines = write_line(1, "a", 100, 50), write_line(5, "a", 50, 100)
    assert episodes(*lines) == episodes(*reversed(lines))


def test_the_samples_episode_has_its_broker_its_levels_and_its_mutes() -> None:
    (found,) = sample_figures().episodes
    assert (found.levels, found.brokers, found.members, found.lowest_fraction) == (
        "L1, L2, L3",
        "4",
        4,
        0.2,
    )
    assert (found.predicted_mute_seconds, found.observed_mute_seconds, found.most_over_rate) == (
        12.0,
        8.851,
        41_500_000.0,
    )


def test_a_round_for_both_directions_is_the_cause_of_a_throttle_in_either() -> None:
    cut = write_line(10, "a", 100, 50)
    nic = {"id": 2, "need": 25.0, "nic": 120.0, "threshold": 100}
    round_line = {**cut, "kind": "round", "dir": "combined", "brokers": [nic]}
    effect = {**cut, "kind": "effect", "dir": "combined", "entities": [{"observedMute_s": 9.0}]}
    produce = {**cut, "key": "producer_byte_rate"}
    found = episodes(round_line, cut, produce, effect)
    assert {one.direction for one in found} == {"fetch", "produce"}
    assert {(one.brokers, one.most_over_rate, one.observed_mute_seconds) for one in found} == {
        ("2", 20.0, 9.0)
    }
