"""The figures of an episode: what was recorded, in numbers that can be checked by hand."""

import pytest

from demo.script import BUSINESSES, CONTRACT

from .conftest import LADDER, PlayedEpisode


def test_times_count_from_the_patch_and_from_the_first_write(played_episode: PlayedEpisode) -> None:
    episode = played_episode()
    assert episode.seconds_to_first_write() == 6
    # From 60 s on 51 MB/s are sent, before that 56: a mean over 24 s is 52.5 when 17 s of it are of the lower rate.
    assert episode.seconds_until_within() == pytest.approx(77, abs=1)
    assert episode.seconds_until_all_full() == pytest.approx(5, abs=1)


def test_a_limit_that_is_not_answered_leaves_every_time_unknown(played_episode: PlayedEpisode) -> None:
    episode = played_episode(ladder={})
    assert episode.seconds_to_first_write() is None
    assert episode.seconds_until_within() is None
    assert episode.longest_silence("L3") == 0


def test_a_nic_that_never_comes_within_its_limit_has_no_time(played_episode: PlayedEpisode) -> None:
    assert played_episode(ladder={"L3": LADDER["L3"]}).seconds_until_within() is None


@pytest.mark.parametrize("silent", [0, 1, 17])
def test_a_silence_is_as_long_as_the_seconds_without_a_byte(silent: int, played_episode: PlayedEpisode) -> None:
    episode = played_episode(silence={"L3": silent})
    assert episode.longest_silence("L3") == silent
    assert episode.longest_silence("L2") == 0


def test_silences_are_kept_apart(played_episode: PlayedEpisode) -> None:
    episode = played_episode(silence={"L1": 3})
    assert [seconds for _, seconds in episode.silences("L1")] == [3]


def test_at_rest_a_tier_gets_its_quota(played_episode: PlayedEpisode) -> None:
    episode = played_episode()
    assert [episode.quota_at_rest(level) for level in ("L1", "L2", "L3")] == [10_000_000, 5_000_000, 1_000_000]
    assert episode.rate_at_rest("L3") == pytest.approx(1e6)


def test_the_lowest_share_is_of_what_the_business_wants(played_episode: PlayedEpisode) -> None:
    episode = played_episode(share={"L0": 0.95})
    assert episode.lowest_share("L0") == pytest.approx(0.95)
    assert episode.lowest_share("L3") == pytest.approx(0.95 * 1 / 25, rel=0.06)


@pytest.mark.parametrize(
    ("ladder", "wrong"),
    [
        ({"L3": ((0, 1),), "L2": ((0, 1),), "L1": ((30, 1),)}, 0),
        ({"L3": ((0, 1),)}, 0),
        ({"L3": ((30, 1),), "L2": ((0, 1),), "L1": ((60, 1),)}, 1),
        ({"L1": ((0, 1),)}, 1),
    ],
)
def test_a_level_is_out_of_order_when_a_less_important_one_comes_later(
    ladder: dict[str, tuple[tuple[int, int], ...]], wrong: int, played_episode: PlayedEpisode
) -> None:
    assert played_episode(ladder=ladder).turns_out_of_order() == wrong


def test_writes_before_the_limit_and_after_the_raise_do_not_count(played_episode: PlayedEpisode) -> None:
    episode = played_episode()
    assert {business.level: len(episode.written(business.level)) for business in BUSINESSES} == {
        "L0": 0,
        "L1": 2,
        "L2": 2,
        "L3": 4,
    }
    assert episode.quota_at_end("L3") == CONTRACT


def test_a_load_that_does_not_come_back_has_no_time(played_episode: PlayedEpisode) -> None:
    assert played_episode(back_after_seconds=95).seconds_until_all_full() is None
