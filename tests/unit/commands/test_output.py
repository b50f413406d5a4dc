"""The three output formats, and what a pipe gets."""

import io
import json

import pytest
import yaml

from tidegate.commands.output import Column, OutputFormat, Page, Sheet, publish

DOCUMENT = {"zeta": 1, "alpha": {"user": "é", "none": None}}


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("output", "read"), [(OutputFormat.JSON, json.loads), (OutputFormat.YAML, yaml.safe_load)], ids=["json", "yaml"])
def test_a_document_can_be_read_back_with_its_keys_in_order(output: OutputFormat, read: object) -> None:
    stream = io.StringIO()
    publish(stream, output, DOCUMENT, show=lambda page: page.say("for people"))
    assert read(stream.getvalue()) == DOCUMENT  # type: ignore[operator]
    assert stream.getvalue().index("zeta") < stream.getvalue().index("alpha")
    assert "for people" not in stream.getvalue()


def test_a_table_shows_only_what_is_for_people() -> None:
    stream = io.StringIO()
    publish(stream, OutputFormat.TABLE, DOCUMENT, show=lambda page: page.say("for people"))
    assert stream.getvalue() == "for people\n"


def test_a_pipe_gets_long_text_on_one_line_without_colours() -> None:
    stream = io.StringIO()
    Page(stream).warn("word " * 60)
    assert stream.getvalue() == "warning: " + "word " * 60 + "\n"


def test_a_terminal_gets_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    Page(stream).warn("mind")
    assert "\x1b[" in stream.getvalue()


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()], ids=["pipe", "terminal"])
def test_a_sheet_without_rows_leaves_no_trace(stream: io.StringIO) -> None:
    Page(stream).sheet(Sheet((Column("a"),), []))
    assert stream.getvalue() == ""


def test_a_terminal_too_narrow_for_the_table_gets_every_number_in_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    stream = Terminal()
    Page(stream).sheet(
        Sheet((Column("entity", fold=True), Column("now"), Column("next")), [("user=alice", "1234567.0 MB/s", "7654321.0 MB/s")])
    )
    assert stream.getvalue().split() == ["user=alice", "now", "1234567.0", "MB/s", "next", "7654321.0", "MB/s"]
