"""A rollup's bars: on a terminal they count to the end, below what is said; a pipe sees sentences and nothing else."""

import contextlib
import io

import pytest

from tidegate.commands.output import Page
from tidegate.commands.rollup_page import shown
from tidegate.rollup.samples import Count, Step


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
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


def test_a_terminal_sees_both_counts_come_to_their_end_and_the_sentences_too() -> None:
    lines = drawn(Terminal()).splitlines()
    for step, count in ((Step.INGESTED, "6/6"), (Step.PUBLISHED, "3/3")):
        assert count in [line for line in lines if step.value in line][-1]
    assert any("reading 6 hours of 3 brokers" in line for line in lines)


def test_a_pipe_gets_the_sentences_alone() -> None:
    assert drawn(io.StringIO()) == "reading 6 hours of 3 brokers\n"


def test_a_run_that_is_cut_short_leaves_how_far_it_came() -> None:
    stream = Terminal()
    with contextlib.suppress(KeyboardInterrupt), shown(Page(stream)) as progress:
        progress(Step.INGESTED, 2, 6)
        raise KeyboardInterrupt
    assert "2/6" in stream.getvalue()
