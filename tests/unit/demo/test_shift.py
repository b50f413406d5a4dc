"""Experiment 6: its figures, its bounds, what is declared in it, and its part of the report."""

import json
from dataclasses import replace
from typing import Any

import pytest
import yaml

from demo.report import report_html
from demo.script import BROKER
from demo.shift import LEVEL_TOPIC, QUEUE, SHIFT_RESOURCES, TARGET
from demo.shift_outcome import DELAY_SECONDS, LATEST_SECONDS, RATE
from demo.summary import summary
from tests.unit.demo.conftest import RAISED, PlayedRun, PlayedShift, PlayedThrottling
from tidegate.resources.kinds import parse_queue


def missed(played_shift: PlayedShift, **spoilt: Any) -> list[str]:
    return [check.name for check in played_shift(**spoilt).checks() if not check.kept]


def test_messages_that_wait_keep_every_bound(played_shift: PlayedShift) -> None:
    outcome = played_shift()
    assert missed(played_shift) == []
    assert outcome.released_seconds() == pytest.approx(RAISED + 10, abs=0.1)
    assert outcome.latest_seconds() == pytest.approx(RAISED + 10 - 1_700_000_031.0, abs=0.1)
    assert (outcome.highest_rate() or 0) == pytest.approx(500 * 2000, rel=0.1)


@pytest.mark.parametrize(
    ("spoilt", "name"),
    [
        ({"late_seconds": 1.5}, "before the limit drops: how late half of the messages are"),
        ({"waits": False}, "messages sent from 5 s after the first quota until the raise"),
        ({"lost": [7]}, "messages lost"),
        ({"twice": [7]}, "messages out of order, or sent twice"),
        ({"per_second": 1200}, "rate of what has waited, highest mean of 3 s"),
    ],
)
def test_what_goes_wrong_misses_its_bound(
    spoilt: dict[str, Any], name: str, played_shift: PlayedShift
) -> None:
    names = missed(played_shift, **spoilt)
    assert any(one.startswith(name) for one in names), names


def test_messages_that_are_sent_later_than_allowed_miss_it(played_shift: PlayedShift) -> None:
    outcome = played_shift()
    late = replace(outcome.arrivals[-1], at_seconds=outcome.arrivals[-1].due_seconds + 901)
    checks = replace(outcome, arrivals=(*outcome.arrivals[:-1], late)).checks()
    assert "how late the latest message is" in [one.name for one in checks if not one.kept]


def test_without_a_message_nothing_counts_as_kept(played_shift: PlayedShift) -> None:
    checks = replace(played_shift(), arrivals=()).checks()
    assert {check.name for check in checks if check.kept} == {
        "messages sent from 5 s after the first quota until the raise",
        "messages out of order, or sent twice",
    }


def test_the_queue_that_is_declared_is_the_one_that_is_judged() -> None:
    queue = parse_queue(yaml.safe_load(SHIFT_RESOURCES.read_text()), strict=True)
    assert (queue.metadata.name, LEVEL_TOPIC) == (QUEUE, f"streaming.digests.{DELAY_SECONDS}.0")
    assert [one.seconds for one in queue.spec.delays] == [DELAY_SECONDS]
    assert queue.spec.target.allowed == (TARGET,)
    shift = queue.spec.shift
    assert shift is not None
    assert (shift.latest_seconds, shift.rate) == (LATEST_SECONDS, RATE)


def test_page_and_summary_and_verdict_take_it_in(
    played: PlayedRun, played_throttling: PlayedThrottling, played_shift: PlayedShift
) -> None:
    outcome = replace(played(), throttling=played_throttling(), shift=played_shift())
    page = report_html(outcome)
    assert page.count('<td class="kept">') == len(outcome.checks())
    assert f"topic that <b>broker {BROKER}</b> leads" in " ".join(page.split())
    found = json.loads(json.dumps(summary(outcome)))["shift"]
    assert len(found["arrivals"]) == len(played_shift().arrivals)
    assert outcome.passed
    assert not replace(outcome, shift=played_shift(lost=[1])).passed
