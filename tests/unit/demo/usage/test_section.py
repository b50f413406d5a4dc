"""The report's part on usage leads to the usage report, says what is exact, and where a command failed says that."""

import json
import re
from dataclasses import replace

from demo.report import report_html, usage_html
from demo.summary import summary

from ..conftest import PlayedRun
from .conftest import RolledUp


def rows(section: str) -> list[list[str]]:
    return [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr>(<td>.*?)</tr>", section)]


def test_it_leads_to_the_usage_report_of_the_same_run(rolled_up: RolledUp) -> None:
    assert '<a href="usage/report.html">' in usage_html(rolled_up())


def test_every_user_has_a_line_with_its_tier_and_who_has_none_comes_last(rolled_up: RolledUp) -> None:
    found = rows(usage_html(rolled_up()))
    assert [line[:2] for line in found] == [
        ["accounting", "alice"],
        ["sales (L0)", "checkout"],
        ["logistics (L1)", "orders"],
        ["discovery (L2)", "search"],
        ["analytics (L3)", "reports"],
        ["none", "not authenticated"],
    ]
    assert found[4][4:] == ["3,420 MB", "140 s", "160 s"]
    assert (found[0][2:4], found[1][4]) == (["", "80 MB"], "0 MB")


def test_a_command_that_failed_is_shown_with_its_words_as_text(rolled_up: RolledUp) -> None:
    section = usage_html(rolled_up(code=1))
    assert "$ tidegate report --out &lt;here&gt;\nerror: nothing is published" in section
    assert "href" not in section


def test_page_and_summary_and_verdict_take_it_in(rolled_up: RolledUp, played: PlayedRun) -> None:
    outcome = replace(played(), usage=rolled_up())
    assert report_html(outcome).count('<td class="kept">') == len(outcome.checks())
    found = json.loads(json.dumps(summary(outcome)))["usage"]
    assert [one["exit_code"] for one in found["commands"]] == [0, 0, 0]
    assert found["tables"]["client_bytes_by_broker"] == found["witnesses"]["counted_by_brokers"]
    failed = replace(outcome, usage=rolled_up(code=1))
    assert outcome.passed
    assert not failed.passed
    assert json.loads(json.dumps(summary(failed)))["usage"]["tables"] is None
