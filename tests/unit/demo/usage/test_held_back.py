"""What quotas held back from a business: the area between its rate before the first cut and the quotas that stood until the contract."""

import pytest

from demo.usage_outcome import held_back_by_quotas

from ..throttling.conftest import FIRST_WRITE, LADDER, RAISED, PlayedEpisode


@pytest.mark.parametrize(("level", "back_after"), [("L3", 5), ("L2", 5), ("L1", 20)])
def test_it_is_what_the_quotas_were_below_the_rate_before_them(level: str, back_after: int, played_episode: PlayedEpisode) -> None:
    rungs = LADDER[level]
    ends = [*(after for after, _ in rungs[1:]), RAISED + back_after - FIRST_WRITE]
    episode = played_episode(back_after_seconds=back_after)
    wanted = episode.business_of(level).demand
    expected = sum((wanted - quota) * (end - begin) for (begin, quota), end in zip(rungs, ends, strict=True))
    assert held_back_by_quotas(episode, level) == pytest.approx(expected)


def test_from_who_was_never_cut_nothing_is_held_back(played_episode: PlayedEpisode) -> None:
    assert held_back_by_quotas(played_episode(), "L0") == 0.0


def test_a_quota_above_the_rate_before_it_holds_nothing_back(played_episode: PlayedEpisode) -> None:
    assert held_back_by_quotas(played_episode(ladder={"L3": ((0, 26_000_000),)}), "L3") == 0.0


def test_what_a_client_did_not_want_is_not_held_back(played_episode: PlayedEpisode) -> None:
    """It wants half: a quota of 12 MB/s takes half a megabyte a second from it."""
    episode = played_episode(ladder={"L3": ((0, 12_000_000),)}, share={"L3": 0.5})
    assert held_back_by_quotas(episode, "L3") == pytest.approx(500_000 * (RAISED + 5 - FIRST_WRITE))
