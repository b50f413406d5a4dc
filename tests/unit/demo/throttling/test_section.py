"""The report's part on experiments 2 and 3 says what was played and what was not, and summary.json has the same figures."""

import json
import re
from dataclasses import replace

import pytest

from demo.report import report_html, throttling_html
from demo.script import QUICK_THROTTLING
from demo.summary import summary

from ..conftest import PlayedRun
from .conftest import PlayedThrottling


@pytest.fixture(scope="module")
def section(played_throttling: PlayedThrottling) -> str:
    """Both ways played."""
    return throttling_html(played_throttling())


def cells(section: str, name: str) -> list[str]:
    row = re.search(rf"<tr><td>{re.escape(name)}</td>(.*?)</tr>", section)
    assert row is not None, name
    return re.findall(r"<td>(.*?)</td>", row[1])


def test_both_ways_stand_side_by_side_with_the_bound(section: str) -> None:
    assert cells(section, "longest silence of L3") == ["0 s", "250 s", "at most 22 s"]
    assert cells(section, "quotas written until the raise") == ["8", "8", ""]


def test_every_write_is_listed(section: str) -> None:
    assert section.count("L3: 12.00 MB/s -&gt; 6.00 MB/s") == 2
    assert "L1: 10.00 MB/s -&gt; 60.00 MB/s" in section


def test_there_is_a_picture_of_each_way_in_the_colours_of_the_page(section: str) -> None:
    assert section.count("<svg") == 2
    assert not re.search(r"#[0-9a-fA-F]{6}|style=", section)
    assert section.count("<polyline points=") == 2 * 6  # four quotas, and the NIC twice


def test_the_quick_demo_says_what_it_left_out(played_throttling: PlayedThrottling) -> None:
    section = throttling_html(played_throttling(QUICK_THROTTLING))
    assert section.count("<svg") == 1
    assert cells(section, "longest silence of L3")[1] == "not played"


def test_the_bounds_of_all_experiments_decide_together(played: PlayedRun, played_throttling: PlayedThrottling) -> None:
    first = played()
    assert replace(first, throttling=played_throttling()).passed
    missed = replace(first, throttling=played_throttling(silence={"L3": 40}))
    assert not missed.passed
    assert list(missed.processors_of_missed()) == ["experiments 2 and 3"]


def test_the_whole_page_and_the_summary_hold_them(played: PlayedRun, played_throttling: PlayedThrottling) -> None:
    outcome = replace(played(), throttling=played_throttling())
    assert report_html(outcome).count('<td class="kept">') == len(outcome.checks())
    throttling = json.loads(json.dumps(summary(outcome)))["throttling"]
    assert throttling["published_way"]["levels"]["L3"]["longest_silence_seconds"] == 250
    assert throttling["tidegate"]["levels"]["L0"]["quota_at_end"] == 60_000_000
    assert [step["to"] for step in throttling["tidegate"]["quota_steps"] if step["level"] == "L2"] == [
        60_000_000,
        12_000_000,
        5_000_000,
        60_000_000,
    ]
