"""The report says everything a stranger needs, and needs nothing but itself."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from demo.report import report_html
from demo.script import QUICK
from demo.words import Mark, MarkKind

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
    assert re.findall(r'(?:src|href|url)\s*[=(]\s*"?(?!#)[^\s>"]*', page.replace('xlink:href="#', "")) == []
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
