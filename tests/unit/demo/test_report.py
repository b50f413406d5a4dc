"""The report of all experiments: it has everything a stranger needs, and needs nothing but
itself.
"""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from demo.outcome import Outcome
from demo.report import report_html, throttling_html, usage_html
from demo.script import QUICK, QUICK_THROTTLING
from demo.summary import earlier_runs, keep_run, summary
from demo.words import Mark, MarkKind
from tests.unit.demo.conftest import PlayedRun, PlayedThrottling, RolledUp

# --- the page -------------------------------------------------------------------------------------
# The report says everything a stranger needs, and needs nothing but itself.


class OpenTags(HTMLParser):
    """Counts tags that are opened and never closed, and closed ones that were never opened."""

    _WITHOUT_END = frozenset({"meta"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in self._WITHOUT_END:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.open[-1:] != [tag]:
            self.wrong.append(tag)
        else:
            self.open.pop()


@pytest.fixture(scope="module")
def page(played: PlayedRun) -> str:
    """The report of a run that kept every bound."""
    return report_html(played())


@pytest.fixture(scope="module")
def missed_page(played: PlayedRun) -> str:
    """The report of a quick run with missed rates, in which the corrected quota never came."""
    return report_html(played(QUICK, delivered_share=0.8, seconds_after_election=None))


@pytest.mark.parametrize("name", ["page", "missed_page"])
def test_every_tag_is_closed_where_it_was_opened(name: str, request: pytest.FixtureRequest) -> None:
    reader = OpenTags()
    reader.feed(request.getfixturevalue(name))
    assert (reader.open, reader.wrong) == ([], [])


def test_nothing_is_loaded_from_anywhere(page: str) -> None:
    assert (
        re.findall(r'(?:src|href|url)\s*[=(]\s*"?(?!#)[^\s>"]*', page.replace('xlink:href="#', ""))
        == []
    )
    assert "<script" not in page


def test_every_bound_stands_in_the_report_with_its_verdict(page: str, played: PlayedRun) -> None:
    outcome = played()
    assert page.count('<td class="kept">') == len(outcome.checks())
    assert f"All {len(outcome.checks())} bounds kept" in page
    for check in outcome.checks():
        assert check.about.replace("'", "&#39;") in page


def test_a_missed_bound_is_the_first_thing_that_is_read(missed_page: str) -> None:
    assert missed_page.index("bounds missed") < missed_page.index("<h2")
    assert '<td class="missed">' in missed_page


def test_a_reaction_that_was_never_seen_is_said_and_missed(missed_page: str) -> None:
    assert "so no time can be given" in missed_page
    assert "not seen" in missed_page


def test_the_pictures_take_their_colours_from_the_page(page: str) -> None:
    drawn = "".join(re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL))
    assert not re.search(r"#[0-9a-fA-F]{6}|style=", drawn)
    assert 'class="line quota dotted"' in drawn


def test_the_words_of_the_operator_are_text_and_never_markup(played: PlayedRun) -> None:
    outcome = played()
    hostile = Mark(outcome.results[0].begin_seconds, MarkKind.EVENT, "<script>x</script>")
    assert "<script" not in report_html(replace(outcome, marks=(hostile,)))


# --- beside an earlier run on another Kafka -------------------------------------------------------


def on_kafka(outcome: Outcome, words: str) -> Outcome:
    return replace(outcome, surroundings={**outcome.surroundings, "Kafka": words})


def test_a_report_shows_the_last_run_on_each_other_kafka_beside_its_bounds(
    played: PlayedRun, tmp_path: Path
) -> None:
    three, four = "3.9.2 with ZooKeeper, window", "4.3.1 without ZooKeeper (KRaft), window"
    keep_run(tmp_path, "3.9-zookeeper", on_kafka(played(delivered_share=0.8), three))
    keep_run(tmp_path, "4.3-kraft", on_kafka(played(), four))
    (earlier,) = earlier_runs(tmp_path, "4.3-kraft")
    assert (earlier.kafka, earlier.day) == ("3.9.2 with ZooKeeper", "2023-11-14")
    outcome = on_kafka(played(), four)
    page = report_html(outcome, [earlier])
    assert "on Kafka 3.9.2 with ZooKeeper" in page
    assert page.count(" MB/s, missed</td>") == sum(
        not check.kept and check.unit == "MB/s" for check in played(delivered_share=0.8).checks()
    )
    assert "No run on another Kafka" not in page
    assert "No run on another Kafka" in report_html(outcome)


def test_of_a_run_with_other_bounds_it_is_said_that_they_were_not_played(
    played: PlayedRun, tmp_path: Path
) -> None:
    keep_run(tmp_path, "3.9-zookeeper", on_kafka(played(QUICK), "3.9.2"))
    (tmp_path / "summary-broken.json").write_text('{"day": 1}')
    (earlier,) = earlier_runs(tmp_path, "4.3-kraft")
    words = {earlier.figure(check) for check in played().checks()}
    assert "not played" in words
    assert len(words) > 1


# --- experiments 2 and 3 --------------------------------------------------------------------------
# The report's part on experiments 2 and 3 says what was played and what was not, and summary.json
# has the same figures.


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


def test_there_are_two_pictures_of_each_way_in_the_colours_of_the_page(section: str) -> None:
    assert section.count("<svg") == 4
    assert not re.search(r"#[0-9a-fA-F]{6}|style=", section)
    assert section.count("<polyline points=") == 2 * 6  # four quotas, and the NIC twice


def test_the_quick_demo_says_what_it_left_out(played_throttling: PlayedThrottling) -> None:
    section = throttling_html(played_throttling(QUICK_THROTTLING))
    assert section.count("<svg") == 2
    assert cells(section, "longest silence of L3")[1] == "not played"


def test_the_bounds_of_all_experiments_decide_together(
    played: PlayedRun, played_throttling: PlayedThrottling
) -> None:
    first = played()
    assert replace(first, throttling=played_throttling()).passed
    missed = replace(first, throttling=played_throttling(silence={"L3": 40}))
    assert not missed.passed
    assert list(missed.processors_of_missed()) == ["experiments 2 and 3"]


def test_the_whole_page_and_the_summary_hold_them(
    played: PlayedRun, played_throttling: PlayedThrottling
) -> None:
    outcome = replace(played(), throttling=played_throttling())
    assert report_html(outcome).count('<td class="kept">') == len(outcome.checks())
    found = json.loads(json.dumps(summary(outcome)))
    silences = {one["name"]: one["measured"] for one in found["published_way"]}
    assert silences["longest silence of L3"] == 250
    writes = found["throttling"]["tidegate"]["writes"]
    of_l2 = [write["after"] for write in writes if write["user"] == "search"]
    assert of_l2 == [60_000_000, 12_000_000, 5_000_000, 60_000_000]


# --- usage ----------------------------------------------------------------------------------------
# The report's part on usage leads to the usage report, says what is exact, and where a command
# failed says that.


def test_it_leads_to_the_usage_report_of_the_same_run(rolled_up: RolledUp) -> None:
    assert '<a href="usage/report.html">' in usage_html(rolled_up())


def test_a_command_that_failed_is_shown_with_its_words_as_text(rolled_up: RolledUp) -> None:
    section = usage_html(rolled_up(code=1))
    assert "$ tidegate report --out &lt;here&gt;\nerror: nothing is published" in section
    assert "href" not in section


def test_page_and_summary_and_verdict_take_it_in(rolled_up: RolledUp, played: PlayedRun) -> None:
    outcome = replace(played(), usage=rolled_up())
    assert report_html(outcome).count('<td class="kept">') == len(outcome.checks())
    found = json.loads(json.dumps(summary(outcome)))["usage"]
    assert [one["exit_code"] for one in found["commands"]] == [0, 0, 0]
    assert found["stored"]["by_broker"] == found["witnesses"]["counted"]
    failed = replace(outcome, usage=rolled_up(code=1))
    assert outcome.passed
    assert not failed.passed
    assert json.loads(json.dumps(summary(failed)))["usage"]["stored"] is None
