"""The bounds of experiments 2 and 3: a clean ladder keeps all of them, each way of failing misses its own."""

from typing import Any

import pytest

from demo.episode import throttling_checks

from .conftest import LADDER, PlayedEpisode


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
        ({"ladder": {**LADDER, "L3": ((15, 6_000_000), (45, 1_000_000))}}, "levels written before their turn"),
    ],
)
def test_what_goes_wrong_misses_its_bound(spoilt: dict[str, Any], name: str, played_episode: PlayedEpisode) -> None:
    assert name in missed(played_episode, **spoilt)


def test_an_operator_that_does_nothing_misses_the_times_and_no_rate_of_a_client(played_episode: PlayedEpisode) -> None:
    names = missed(played_episode, ladder={})
    assert "limit lowered to first quota written" in names
    assert "first write until the NIC is within the limit + 5 % (24 s mean)" in names
    assert not any("at rest" in name for name in names)


def test_a_quota_that_rests_above_the_throttled_rate_is_what_the_tier_must_get(played_episode: PlayedEpisode) -> None:
    rests_at_two = {**LADDER, "L3": ((0, 8_000_000), (30, 4_000_000), (60, 2_000_000))}
    assert not any(name.startswith("L3 at rest") for name in missed(played_episode, ladder=rests_at_two))
