"""Experiment 5: its figures, its bounds, what is declared in it, and its part of the report."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest
import yaml

from demo.move_outcome import LEADER_RATE, MOVE, MoveOutcome
from demo.parts import REPLICATION_RESOURCES
from demo.report import move_html, report_html
from demo.script import (
    BROKER,
    BROKERS,
    FEED_TOPIC,
    MOVED_TO,
    NIC,
    NIC_LIMIT,
    READER,
)
from demo.summary import summary
from demo.witnesses import foretold_by_metrics
from tests.unit.demo.conftest import FOREIGN, PlayedMove, PlayedRun
from tidegate.resources.kinds import parse_policy, parse_tier

# --- figures --------------------------------------------------------------------------------------


def test_l0_is_measured_in_the_move_alone(played_move: PlayedMove) -> None:
    outcome = played_move(share=0.9)
    assert outcome.read_percent(outcome.unthrottled) == pytest.approx(200 / 3, abs=0.1)
    assert outcome.read_percent(outcome.followed) == pytest.approx(90, abs=0.1)


def test_l0_comes_a_third_of_each_second_behind(played_move: PlayedMove) -> None:
    outcome = played_move()
    assert outcome.longest_lag_seconds(outcome.unthrottled) == pytest.approx(4.0, abs=0.01)
    assert outcome.longest_lag_seconds(outcome.followed) == pytest.approx(0.0, abs=0.01)


def test_what_is_spare_is_of_the_limit_before_the_move(played_move: PlayedMove) -> None:
    outcome = played_move()
    spare = 0.97 * NIC_LIMIT - READER.demand
    assert outcome.spare(outcome.followed) == pytest.approx(spare)
    assert outcome.seconds_by_spare(outcome.followed) == pytest.approx(240e6 / spare)


def test_the_highest_mean_of_a_nic_is_of_the_time_of_the_move(played_move: PlayedMove) -> None:
    outcome = played_move()
    assert outcome.highest_mean(outcome.followed, 24) == pytest.approx(24.6e6)
    assert outcome.highest_mean(outcome.unthrottled, 12) == pytest.approx(30e6)


def test_throttles_of_somebody_else_are_not_ours(played_move: PlayedMove) -> None:
    outcome = played_move()
    assert outcome.seconds_to_first_throttle() == pytest.approx(1.0)
    assert outcome.seconds_to_clean() == pytest.approx(2.0)
    assert (outcome.left(), outcome.foreign_changed()) == (0, 0)
    assert [rate for _, rate in outcome.rate_steps(2, "leader.replication.throttled.rate")] == [
        9_600_000,
        None,
    ]


class Scraped:
    """A Prometheus with these values of the two metrics, one a second from 100 s on."""

    def __init__(self, seconds: list[float], left: list[int]) -> None:
        self._values = {"eta_seconds": seconds, "bytes_left": left}

    def query_range(self, metric: str, *_: object, **__: object) -> list[dict[str, Any]]:
        values = next(found for name, found in self._values.items() if name in metric)
        return [{"values": [[100 + at, str(value)] for at, value in enumerate(values)]}]


def test_an_estimate_counts_from_its_first_scrape_and_none_of_a_move_that_is_over() -> None:
    scraped = Scraped([20, 20, 20, 16, 0], [200, 200, 200, 150, 0])
    found = foretold_by_metrics(scraped, 100, 105)  # type: ignore[arg-type]  # asked for a range only
    assert [(one.at_seconds, one.seconds, one.bytes_left) for one in found] == [
        (100, 20, 200),
        (103, 16, 150),
    ]
    assert found[1].end_seconds == 119


# --- bounds ---------------------------------------------------------------------------------------


def missed(outcome: MoveOutcome) -> list[str]:
    return [check.name for check in outcome.checks() if not check.kept]


def test_a_move_that_follows_keeps_every_bound(played_move: PlayedMove) -> None:
    outcome = played_move()
    assert missed(outcome) == []
    assert {check.about for check in outcome.checks()} == {MOVE}
    assert len(outcome.checks()) == 8


@pytest.mark.parametrize(
    ("spoilt", "names"),
    [
        ({"share": 0.96}, ["L0 during the move"]),
        ({"throttled_after": 6.0}, ["request to the first throttle"]),
        # nothing was set, so nothing is left, and it is clean at once
        ({"throttled_after": None}, ["request to the first throttle"]),
        ({"moves": 15_000_000}, ["NIC of broker 2"]),
        ({"moves": 5_000_000}, ["the move: 1.25 x"]),
        ({"foretold_longer_by": 4.0}, ["end foretold"]),
        ({"clean_after": None}, ["end of the move until", "rates and lists left"]),
        ({"foreign": (FOREIGN, {}, FOREIGN)}, ["rates and lists of somebody else"]),
        ({"foreign": (FOREIGN, FOREIGN, {})}, ["rates and lists of somebody else"]),
        ({"foreign": ({}, {}, {})}, ["rates and lists of somebody else"]),
        (
            {"ends": False, "clean_after": None},
            ["the move: 1.25 x", "end foretold", "end of the move until", "rates and lists left"],
        ),
    ],
    ids=str,
)
def test_what_goes_wrong_misses_its_bound(
    spoilt: dict[str, object], names: list[str], played_move: PlayedMove
) -> None:
    found = missed(played_move(**spoilt))
    assert [name for name, begin in zip(found, names, strict=True) if name.startswith(begin)] == (
        found
    )


# --- what is declared -----------------------------------------------------------------------------


def test_the_resources_are_what_the_script_says() -> None:
    policy, tier = yaml.safe_load_all(REPLICATION_RESOURCES.read_text(encoding="utf-8"))
    brokers = parse_policy(policy, strict=True).spec.brokers
    assert brokers is not None
    for side in (brokers.egress, brokers.ingress):
        assert side is not None
        assert (side.limit, side.capacity) == (NIC_LIMIT, NIC)
    spec = parse_tier(tier, strict=True).spec
    (member,) = spec.members
    assert (spec.level, member.user, member.topics) == ("L0", READER.user, (FEED_TOPIC,))
    assert member.contract is not None
    assert member.contract.per_partition is not None
    assert member.contract.per_partition.fetch == READER.contract


def test_l0_fits_the_limit_and_does_not_fit_beside_two_followers() -> None:
    assert READER.demand < READER.contract < NIC_LIMIT < NIC
    assert READER.demand > NIC / (1 + len(MOVED_TO))
    assert set(MOVED_TO.values()) == set(BROKERS) - {BROKER}


# --- report, summary ------------------------------------------------------------------------------


def test_both_moves_stand_side_by_side(played_move: PlayedMove) -> None:
    section = move_html(played_move())
    rows = {
        name: re.findall(r"<td>(.*?)</td>", row)
        for name, row in re.findall(r"<tr><td>(.*?)</td>(.*?)</tr>", section)
    }
    assert rows["L0 during the move, of what it wants"] == ["66.7 %", "100.0 %"]
    assert rows["request to the end"] == ["12.0 s", "25.0 s"]
    assert section.count("<svg") == 1
    assert not re.search(r"#[0-9a-fA-F]{6}|style=", section)


def test_a_move_that_did_not_end_is_said(played_move: PlayedMove) -> None:
    section = move_html(played_move(ends=False, clean_after=None))
    assert "not ended" in section
    assert "did not end" in section


def test_a_report_without_it_says_why(played: PlayedRun) -> None:
    assert "that needs root" in report_html(played())


def test_page_and_summary_and_verdict_take_it_in(
    played: PlayedRun, played_move: PlayedMove
) -> None:
    outcome = replace(played(), move=played_move())
    assert report_html(outcome).count('<td class="kept">') == len(outcome.checks())
    assert outcome.passed
    found = json.loads(json.dumps(summary(outcome)))["move"]
    rates = [step["throttles"].get(f"broker 2, {LEADER_RATE}") for step in found["steps"]]
    assert "9600000" in rates
    assert found["followed"]["moved_bytes"] == played_move().followed.moved_bytes
    spoilt = replace(outcome, move=played_move(share=0.9))
    assert not spoilt.passed
    assert list(spoilt.processors_of_missed()) == ["experiment 5"]
