"""A sheet can be read by people on a terminal and cut by awk in a pipe."""

import io

from rich.console import Console

from tidegate.commands.output import Column, Sheet

SHEET = Sheet((Column("entity", fold=True), Column("now", right=True)), [("user=[red]alice", "1.00 MB/s"), ("user=b", "")])


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
