"""The three output formats, what a pipe gets, tables, and the words for quotas and ages."""

import io
import json
from collections.abc import Callable

import pytest
import yaml
from rich.console import Console

from tests.goldens.golden import numbers
from tests.unit.commands.conftest import Terminal
from tidegate.commands.output import Column, OutputFormat, Page, Sheet, publish
from tidegate.errors import InvalidResource
from tidegate_logic.model import QuotaKey
from tidegate_logic.quota_values import KEY_WORDS, short_words
from tidegate_logic.words import ago_words

DOCUMENT = {"zeta": 1, "alpha": {"user": "é", "none": None}}


@pytest.mark.parametrize(
    ("output", "read"),
    [(OutputFormat.JSON, json.loads), (OutputFormat.YAML, yaml.safe_load)],
    ids=["json", "yaml"],
)
def test_a_document_can_be_read_back_with_its_keys_in_order(
    output: OutputFormat, read: object
) -> None:
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


def test_a_terminal_too_narrow_for_the_table_gets_every_number_in_a_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    stream = Terminal()
    Page(stream).sheet(
        Sheet(
            (Column("entity", fold=True), Column("now"), Column("next")),
            [("user=alice", "1234567.0 MB/s", "7654321.0 MB/s")],
        )
    )
    assert stream.getvalue().split() == [
        "user=alice",
        "now",
        "1234567.0",
        "MB/s",
        "next",
        "7654321.0",
        "MB/s",
    ]


# --- tables ---------------------------------------------------------------------------------------
# A sheet can be read by people on a terminal and cut by awk in a pipe.


SHEET = Sheet(
    (Column("entity", fold=True), Column("now", right=True)),
    [("user=[red]alice", "1.00 MB/s"), ("user=b", "")],
)


def test_plain_lines_align_numbers_right_and_texts_left() -> None:
    assert SHEET.plain_lines() == (
        "ENTITY                 NOW",
        "user=[red]alice  1.00 MB/s",
        "user=b                   -",
    )


def test_every_plain_line_has_as_many_fields_as_titles() -> None:
    sheet = Sheet((Column("a"), Column("b c"), Column("d")), [("1", "", "3"), ("", "", "")])
    assert {len(line.split()) for line in sheet.plain_lines()} == {3}


def test_a_name_with_brackets_is_drawn_literally() -> None:
    stream = io.StringIO()
    Console(file=stream, width=80).print(SHEET.drawn())
    assert "user=[red]alice" in stream.getvalue()


def test_a_narrow_terminal_folds_names_and_never_cuts_numbers() -> None:
    stream = io.StringIO()
    Console(file=stream, width=20).print(SHEET.drawn())
    assert "1.00 MB/s" in stream.getvalue()
    assert "…" not in stream.getvalue()


# --- quotas and ages in words ---------------------------------------------------------------------
# How quota values are worded in tables: a unit always, and what limits nothing is called so.


FETCH = QuotaKey.CONSUMER_BYTE_RATE


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (FETCH, None, "unlimited"),
        (FETCH, "20000000", "20 MB/s"),
        (FETCH, 1024, "1.02 kB/s"),
        (FETCH, "0", "unlimited"),
        (FETCH, "-5", "unlimited"),
        (FETCH, "nonsense", "unlimited"),
        (QuotaKey.REQUEST_PERCENTAGE, "12.5", "12.5 %"),
        (QuotaKey.CONTROLLER_MUTATION_RATE, 5, "5 mutations/s"),
        (QuotaKey.REQUEST_PERCENTAGE, None, "unlimited"),
    ],
)
def test_quota_values_have_a_unit(key: QuotaKey, value: int | str | None, words: str) -> None:
    assert short_words(key, value) == words


def test_every_quota_key_has_a_word_of_its_own() -> None:
    assert set(KEY_WORDS) == set(QuotaKey)
    assert len(set(KEY_WORDS.values())) == len(KEY_WORDS)


@pytest.mark.parametrize(
    ("seconds", "amount"),
    [(-9.0, set()), (40.0, {40}), (720.0, {12}), (10_800.0, {3}), (432_000.0, {5})],
)
def test_ages_have_one_unit(seconds: float, amount: set[float]) -> None:
    assert numbers(ago_words(seconds)) == amount


def test_ages_read_like_this(golden: Callable[[str], None]) -> None:
    golden("\n".join(ago_words(seconds) for seconds in (-9.0, 40.0, 720.0, 10_800.0, 432_000.0)))


VALUES: dict[str, object] = {
    "summary": {"managed": 3, "ok": True, "words": None},
    "members": [{"name": "shop", "quota": {"a": 1}}, {"name": "etl", "quota": {}}],
    "labels": {"tidegate.io/x": "y"},
}


@pytest.mark.parametrize(
    ("template", "shown"),
    [
        ("{.summary.managed}", "3"),
        (".summary.managed", "3"),
        ("{$.summary.ok} and {@.summary.words}", "true and null"),
        ("{.members[*].name}", "shop etl"),
        ("{.members[0].quota}", '{"a":1}'),
        ("{.members[?(@.name=='etl')].name}", "etl"),
        ("{.labels['tidegate.io/x']}", "y"),
        ('{.summary.managed}{"\\t"}{.members[1].name}{"\\n"}', "3\tetl\n"),
        ("managed={.summary.managed};", "managed=3;"),
        ("{.nowhere}", ""),
    ],
)
def test_a_jsonpath_template_takes_parts_as_kubectl_prints_them(template: str, shown: str) -> None:
    stream = io.StringIO()
    publish(stream, OutputFormat.of(f"jsonpath={template}"), VALUES, show=lambda page: None)
    assert stream.getvalue() == shown


@pytest.mark.parametrize(
    ("output", "named"),
    [
        ("xml", "jsonpath="),
        ("jsonpath={.a[}", "JSONPath"),
        ("jsonpath={.a", "brace"),
        ("jsonpath=a}{.b}", "brace"),
        ("jsonpath={range .members[*]}{.name}{end}", "jq"),
    ],
)
def test_a_wrong_format_is_refused_before_the_command_does_anything(
    output: str, named: str
) -> None:
    with pytest.raises(InvalidResource, match=named):
        OutputFormat.of(output)
