"""The report says everything a stranger needs, and needs nothing but itself."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from demo.outcome import Mark, MarkKind
from demo.palette import Role
from demo.report import report_html
from demo.scale import FULL, QUICK, Windows

from .conftest import PlayedRun


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


@pytest.mark.parametrize("windows", [FULL, QUICK])
def test_every_tag_is_closed_where_it_was_opened(windows: Windows, played: PlayedRun) -> None:
    reader = OpenTags()
    reader.feed(report_html(played(windows)))
    assert (reader.open, reader.wrong) == ([], [])


def test_nothing_is_loaded_from_anywhere(played: PlayedRun) -> None:
    page = report_html(played())
    assert re.findall(r'(?:src|href|url)\s*[=(]\s*"?(?!#)[^\s>"]*', page.replace('xlink:href="#', "")) == []
    assert "<script" not in page


def test_every_bound_stands_in_the_report_with_its_verdict(played: PlayedRun) -> None:
    outcome = played()
    page = report_html(outcome)
    assert page.count('<td class="kept">') == len(outcome.checks())
    assert f"All {len(outcome.checks())} bounds kept" in page
    for check in outcome.checks():
        assert check.about.replace("'", "&#x27;") in page


def test_a_missed_bound_is_the_first_thing_that_is_read(played: PlayedRun) -> None:
    page = report_html(played(delivered_share=0.8))
    assert page.index("bounds missed") < page.index("<h2")
    assert '<td class="missed">' in page


def test_a_reaction_that_was_never_seen_is_said_and_missed(played: PlayedRun) -> None:
    page = report_html(played(seconds_after_election=None))
    assert "so no time can be given" in page
    assert "not seen" in page


def test_the_pictures_take_their_colours_from_the_page(played: PlayedRun) -> None:
    drawn = "".join(re.findall(r"<svg.*?</svg>", report_html(played()), flags=re.DOTALL))
    assert [role.name for role in Role if role.value in drawn] == []
    assert "var(--quota)" in drawn


def test_the_words_of_the_operator_are_text_and_never_markup(played: PlayedRun) -> None:
    outcome = played()
    hostile = Mark(outcome.results[0].begin_seconds, MarkKind.EVENT, "<script>x</script>")
    assert "<script" not in report_html(replace(outcome, marks=(hostile,)))
