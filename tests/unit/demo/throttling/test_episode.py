"""An episode of experiments 2 and 3: its figures, its bounds, and when it is played once more."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from demo.episode import Episode, left_out_words, played, throttling_checks
from demo.report import throttling_html
from demo.words import MarkKind
from lab.load import ProcessorShare
from tests.goldens.golden import numbers
from tests.unit.demo.conftest import LADDER, PlayedEpisode, PlayedThrottling

# --- figures --------------------------------------------------------------------------------------
# The figures of an episode: what was recorded, in numbers that can be checked by hand.


def test_times_count_from_the_patch_and_from_the_first_write(played_episode: PlayedEpisode) -> None:
    episode = played_episode()
    assert episode.seconds_to_first_write() == 6
    # From 60 s on 51 MB/s are sent, before that 56: a mean over 24 s is 52.5 when 17 s of it are of
    # the lower rate.
    assert episode.seconds_until_within() == pytest.approx(77, abs=1)
    assert episode.seconds_until_all_full() == pytest.approx(5, abs=1)


def test_a_limit_that_is_not_answered_leaves_every_time_unknown(
    played_episode: PlayedEpisode,
) -> None:
    episode = played_episode(ladder={})
    assert episode.seconds_to_first_write() is None
    assert episode.seconds_until_within() is None
    assert episode.longest_silence("L3") == 0


def test_a_nic_that_never_comes_within_its_limit_has_no_time(played_episode: PlayedEpisode) -> None:
    assert played_episode(ladder={"L3": LADDER["L3"]}).seconds_until_within() is None


@pytest.mark.parametrize("silent", [0, 1, 17])
def test_a_silence_is_as_long_as_the_seconds_without_a_byte(
    silent: int, played_episode: PlayedEpisode
) -> None:
    episode = played_episode(silence={"L3": silent})
    assert episode.longest_silence("L3") == silent
    assert episode.longest_silence("L2") == 0


def test_at_rest_a_tier_gets_its_quota(played_episode: PlayedEpisode) -> None:
    episode = played_episode()
    assert [episode.quota_at_rest(level) for level in ("L1", "L2", "L3")] == [
        10_000_000,
        5_000_000,
        1_000_000,
    ]
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


def test_a_load_that_does_not_come_back_has_no_time(played_episode: PlayedEpisode) -> None:
    assert played_episode(back_after_seconds=95).seconds_until_all_full() is None


# --- bounds ---------------------------------------------------------------------------------------
# The bounds of experiments 2 and 3: a clean ladder keeps all of them, each way of failing misses
# its own.


def missed(played_episode: PlayedEpisode, **spoilt: Any) -> list[str]:
    return [check.name for check in throttling_checks(played_episode(**spoilt)) if not check.kept]


def test_a_clean_ladder_keeps_every_bound(played_episode: PlayedEpisode) -> None:
    assert missed(played_episode) == []


@pytest.mark.parametrize(
    ("spoilt", "name"),
    [
        ({"silence": {"L3": 23}}, "longest silence of L3"),
        ({"share": {"L0": 0.96}}, "L0 in its worst 36 s, of what it wants"),
        ({"share": {"L2": 0.89}}, "L2 at rest for 36 s, against its quota (may drop to 5 MB/s)"),
        ({"share": {"L1": 1.07}}, "L1 at rest for 36 s, against its quota (may drop to 10 MB/s)"),
        ({"back_after_seconds": 61}, "limit raised to full load of all"),
        ({"ladder": {**LADDER, "L0": ((0, 59_000_000),)}}, "quotas written for L0"),
        (
            {"ladder": {**LADDER, "L3": ((15, 6_000_000), (45, 1_000_000))}},
            "levels written before their turn",
        ),
    ],
)
def test_what_goes_wrong_misses_its_bound(
    spoilt: dict[str, Any], name: str, played_episode: PlayedEpisode
) -> None:
    assert name in missed(played_episode, **spoilt)


def test_an_operator_that_does_nothing_misses_the_times_and_no_rate_of_a_client(
    played_episode: PlayedEpisode,
) -> None:
    names = missed(played_episode, ladder={})
    assert "limit lowered to first quota written" in names
    assert "first write until the NIC is within the limit + 5 % (24 s mean)" in names
    assert not any("at rest" in name for name in names)


def test_a_quota_that_rests_above_the_throttled_rate_is_what_the_tier_must_get(
    played_episode: PlayedEpisode,
) -> None:
    rests_at_two = {**LADDER, "L3": ((0, 8_000_000), (30, 4_000_000), (60, 2_000_000))}
    assert not any(
        name.startswith("L3 at rest") for name in missed(played_episode, ladder=rests_at_two)
    )


# --- a second playing -----------------------------------------------------------------------------
# An episode is played once more only when a bound was missed while the host took processors, and at
# most once.


MISSES: dict[str, Any] = {"share": {"L0": 0.9}}


def of_host(episode: Episode, *, took_percent: float) -> Episode:
    return replace(episode, processor=ProcessorShare(60.0, took_percent))


@pytest.mark.parametrize(("spoilt", "took_percent"), [({}, 40.0), (MISSES, 12.0)])
def test_what_kept_its_bounds_or_had_the_machine_counts(
    spoilt: dict[str, Any], took_percent: float, played_episode: PlayedEpisode
) -> None:
    only = of_host(played_episode(**spoilt), took_percent=took_percent)
    assert played(lambda _: (only, 6), mark=_never) == ((only, 6), None)


def test_the_second_playing_counts_whatever_it_shows(
    played_episode: PlayedEpisode, golden: Callable[[str], None]
) -> None:
    marks: list[str] = []
    first, second = (
        of_host(played_episode(**MISSES), took_percent=taken) for taken in (21.0, 40.0)
    )
    episodes = {"tidegate": first, "tidegate-again": second}
    counted = played(
        lambda run: (episodes[run], run), mark=lambda _at, _kind, text: marks.append(text)
    )
    assert counted == ((second, "tidegate-again"), first)
    (said,) = marks
    assert left_out_words(first) in said
    assert numbers(said) >= {2, 21}
    golden(said)


def test_the_report_names_what_is_left_out(
    played_episode: PlayedEpisode, played_throttling: PlayedThrottling
) -> None:
    throttling = played_throttling()
    left_out = of_host(played_episode(**MISSES), took_percent=21.0)
    words = left_out_words(left_out).replace("'", "&#39;")
    assert words not in throttling_html(throttling)
    assert words in throttling_html(replace(throttling, left_out=left_out))


def _never(_at: float, _kind: MarkKind, text: str) -> None:
    raise AssertionError(text)
