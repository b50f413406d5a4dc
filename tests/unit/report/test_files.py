"""The files of a report: all of them, complete, and CSV without anything that a spreadsheet would
run.
"""

import csv
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.report.sample_report import sample_figures
from tests.unit.report.small_request import small_request
from tidegate.report import page as writing
from tidegate.report.columns import harmless, labels_words
from tidegate.report.compute import figures_of
from tidegate.report.page import csv_text, write_report
from tidegate.report.sheets import document_of, sheets_of


def test_a_report_is_a_page_a_json_file_and_a_csv_file_for_each_table(tmp_path: Path) -> None:
    page = write_report(sample_figures(), tmp_path / "new" / "folder")
    names = {path.name for path in page.parent.iterdir()}
    assert names == {
        "report.html",
        "report.json",
        *(f"{name}.csv" for name in sheets_of(sample_figures())),
    }
    assert json.loads((page.parent / "report.json").read_text()) == document_of(sample_figures())


def test_a_report_can_be_written_again(tmp_path: Path) -> None:
    write_report(sample_figures(), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    write_report(sample_figures(), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "report.html").write_text("old")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing.os, "replace", refuse)
    with pytest.raises(OSError, match="No space"):
        write_report(sample_figures(), tmp_path)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [
        ("report.html", "old")
    ]


@pytest.mark.parametrize(
    "name", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1", "=cmd|' /C calc'!A0"]
)
def test_no_name_can_be_a_formula(name: str) -> None:
    (row,) = rows_of(name)
    assert row["user"] == "'" + name
    assert row["member"] == harmless(f"user={name}") == f"user={name}"


@given(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"), min_size=1))
def test_every_name_is_read_back_as_it_was(name: str) -> None:
    (row,) = rows_of(name)
    assert row["user"] == harmless(name)
    assert row["bytes"] == "7"


def rows_of(user: str) -> list[dict[str, str]]:
    sheets = sheets_of(figures_of(small_request([{"user": user, "bytes": 7}])))
    return list(csv.DictReader(io.StringIO(csv_text(sheets["members"]), newline="")))


def test_every_table_has_the_numbers_of_the_json() -> None:
    figures = sample_figures()
    document = document_of(figures)
    for name, sheet in sheets_of(figures).items():
        rows = list(csv.DictReader(io.StringIO(csv_text(sheet))))
        assert len(rows) == len(sheet.rows)
        for row, (pointer, _) in zip(rows, sheet.rows, strict=True):
            found = value_at(document, pointer)
            assert {column: as_csv(found[column], column) for column in row} == row, name


def value_at(document: object, pointer: str) -> dict[str, object]:
    for name in pointer.split("/")[1:]:
        document = document[int(name)] if isinstance(document, list) else document[name]  # type: ignore[index]
    assert isinstance(document, dict)
    return document


def as_csv(value: object, column: str) -> str:
    if value is None:
        return ""
    if column == "amount" and isinstance(value, str):
        return value  # a number below zero is no formula
    if isinstance(value, dict):
        return harmless(labels_words(value))
    return (
        str(value).lower()
        if isinstance(value, bool)
        else harmless(value)
        if isinstance(value, str)
        else str(value)
    )
