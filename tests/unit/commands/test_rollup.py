"""`tidegate rollup run`: which hours it is for, and what a terminal or a pipe sees of it."""

import contextlib
import io
from collections.abc import Callable

import pytest

from tests.goldens.golden import numbers
from tests.unit.commands.conftest import Terminal
from tidegate.commands.output import Page
from tidegate.commands.rollup import span_between, span_words
from tidegate.commands.rollup_page import shown
from tidegate.errors import InvalidResource
from tidegate.rollup.samples import Count, Step

# --- the hours ------------------------------------------------------------------------------------
# Which time `tidegate rollup run` is for: whole hours, and with --running no more of the hour under
# way than is over.


HOUR, MINUTE = 3_600_000, 60_000
NINE = 1_795_251_600_000  # 2026-11-21T09:00:00Z
NOW = NINE + 17 * MINUTE + 12_345
FROM = NINE - 2 * HOUR + 20 * MINUTE


@pytest.mark.parametrize(
    ("until_ms", "running", "end_ms"),
    [
        (NOW, False, NINE),
        (NOW, True, NINE + 15 * MINUTE),
        (NOW + 2 * HOUR, True, NINE + 15 * MINUTE),
        # an hour that is under way is published as far as it is over, and never taken back to an
        # earlier time
        (NINE + 7 * MINUTE, True, NINE + 15 * MINUTE),
        # and one that is over is never cut
        (NINE - 20 * MINUTE, True, NINE - HOUR),
        (NINE, True, NINE),
    ],
)
def test_only_the_hour_under_way_is_cut_and_only_where_it_is_now(
    until_ms: int, running: bool, end_ms: int
) -> None:
    assert span_between(FROM, until_ms, now_ms=NOW, running=running) == (NINE - 2 * HOUR, end_ms)


@pytest.mark.parametrize("running", [False, True])
def test_where_nothing_is_over_it_is_said_what_to_ask_for(
    running: bool, golden: Callable[[str], None]
) -> None:
    with pytest.raises(InvalidResource) as refused:
        span_between(NINE, NINE + 4 * MINUTE, now_ms=NINE + 4 * MINUTE, running=running)
    assert ("--running" in refused.value.message) is not running
    golden(refused.value.message)


@pytest.mark.parametrize(
    ("end_ms", "amounts"), [(NINE + 2 * HOUR, {2}), (NINE + HOUR + 25 * MINUTE, {1, 25})]
)
def test_what_is_published_is_counted_to_the_minute(
    end_ms: int, amounts: set[float], golden: Callable[[str], None]
) -> None:
    text = span_words(NINE, end_ms)
    assert numbers(text) == amounts
    golden(text)


# --- the page -------------------------------------------------------------------------------------
# A rollup's bars: on a terminal they count to the end, below what is said; a pipe sees sentences
# and nothing else.


@pytest.fixture
def a_plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


def drawn(stream: io.StringIO) -> str:
    page = Page(stream)
    with shown(page) as progress:
        page.say("reading 6 hours of 3 brokers")
        for done in range(7):
            progress(Step.INGESTED, done, 6)
        windows = Count(progress, Step.PUBLISHED, 5)
        windows.left_out(2)
        for _ in range(3):
            windows.done()
    return stream.getvalue()


@pytest.mark.usefixtures("a_plain_terminal")
def test_a_terminal_sees_both_counts_come_to_their_end_and_the_sentences_too() -> None:
    lines = drawn(Terminal()).splitlines()
    for step, count in ((Step.INGESTED, "6/6"), (Step.PUBLISHED, "3/3")):
        assert count in [line for line in lines if step.value in line][-1]
    assert any("reading 6 hours of 3 brokers" in line for line in lines)


@pytest.mark.usefixtures("a_plain_terminal")
def test_a_pipe_gets_the_sentences_alone() -> None:
    assert drawn(io.StringIO()) == "reading 6 hours of 3 brokers\n"


@pytest.mark.usefixtures("a_plain_terminal")
def test_a_run_that_is_cut_short_leaves_how_far_it_came() -> None:
    stream = Terminal()
    with contextlib.suppress(KeyboardInterrupt), shown(Page(stream)) as progress:
        progress(Step.INGESTED, 2, 6)
        raise KeyboardInterrupt
    assert "2/6" in stream.getvalue()
