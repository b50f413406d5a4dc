"""What differs between two pages is found, and making the one of the other by it gives the other."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from bench.large_console import large_measured, large_objects
from tests.doubles.simulated_console import stopped_at
from tidegate.console.now_page import now_page, overrides_of
from tidegate.console.parts import ROWS, Changes, Page, Part, changes_between, page_html
from tidegate.view.policy import OverrideNow

_names = st.lists(st.sampled_from("abcdef"), unique=True, max_size=5)
_texts = st.sampled_from(["<p>one</p>", "<p>two</p>", "<p title='x'>three</p>"])


@st.composite
def _parts(draw: st.DrawFn, *, with_rows: bool) -> tuple[Part, ...]:
    found = []
    for name in draw(_names):
        if with_rows and draw(st.booleans()):
            title = draw(st.sampled_from(["x", "y"]))
            shell = Markup("<div><h2>{}</h2><ul data-rows>{}</ul></div>").format(title, ROWS)
            found.append(Part(name, shell, draw(_parts(with_rows=False))))
        else:
            found.append(Part(name, Markup(draw(_texts))))
    return tuple(found)


def _changed(before: Page, changes: Changes | None) -> str:
    """As `live.js` does it, on texts instead of elements."""
    if changes is None:
        return page_html(before)
    kept = {}
    for part in before:
        rows = {row.name: str(row) for row in part.rows or ()}
        if part.name in changes:
            rows = {name: rows[name] if html is None else html for name, html in changes[part.name]}
        kept[part.name] = part.shell.replace(ROWS, "".join(rows.values()), 1)
    placed = changes.get("", [(part.name, None) for part in before])
    return "".join(kept[name] if html is None else html for name, html in placed)


@given(_parts(with_rows=True), _parts(with_rows=True))
def test_the_one_page_becomes_the_other(before: Page, after: Page) -> None:
    changes = changes_between(before, after)
    assert _changed(before, changes) == page_html(after)
    assert (changes is None) == (page_html(before) == page_html(after))


def test_a_part_is_one_element() -> None:
    with pytest.raises(ValueError, match="part x does not begin with an element"):
        str(Part("x", Markup("text")))
    assert str(Part('"><script>', Markup("<p>t</p>"))) == (
        '<p data-part="&#34;&gt;&lt;script&gt;">t</p>'
    )


def test_of_a_large_page_only_the_rows_that_differ_are_sent() -> None:
    console, source = stopped_at(10)
    now = source.now
    source.objects_now = large_objects(50, 1000, now)
    source.measured_now = large_measured(50, 1000, now)
    first = console.policy(source.objects(), "streaming/orders")
    assert first is not None
    before = now_page(first, console.history)
    assert changes_between(before, now_page(first, console.history)) is None

    # two seconds later: ages only
    later = now_page(replace(first, now_seconds=now + 2), console.history)
    aged = changes_between(before, later)
    assert aged is not None
    assert {name for name, html in aged[""] if html is not None} <= {"strip", "banner", "lanes"}
    tiles = [html for _, html in aged.get("heat", ()) if html is not None]
    assert all("hatched" in html for html in tiles), "only what is unknown has an age"
    assert "below" not in aged

    source.objects_now = large_objects(50, 1000, now, throttled=7)
    second = console.policy(source.objects(), "streaming/orders")
    assert second is not None
    after = now_page(second, console.history)
    changes = changes_between(before, after)
    assert changes is not None
    assert not any(html for _, html in changes.get("heat", ())), "no NIC has another value"
    assert len(changes["members"]) == 10
    sent = sum(len(html or "") for placed in changes.values() for _, html in placed)
    assert sent < len(page_html(after)) / 4


@pytest.mark.parametrize(
    ("starts", "until", "shown"),
    [
        (900.0, 2000.0, "begins in 15 min"),
        (None, 600.0, "10 min"),
        (None, -600.0, "ended 10 min ago"),
    ],
)
def test_an_override_shows_when_it_begins_or_ends(
    starts: float | None, until: float, shown: str
) -> None:
    one = OverrideNow("a/b", "user=x", "Exempt", "Scheduled", until, "agreed", starts)
    (part,) = overrides_of((one,), 0.0)
    assert shown in page_html((part,))
