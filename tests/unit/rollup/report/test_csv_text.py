"""CSV: every digit, and nothing that a spreadsheet would run."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.rollup.report.estate import estate_figures
from tests.unit.rollup.report.small_request import small_request
from tidegate.rollup.report.csv_text import csv_text, harmless
from tidegate.rollup.report.document import document_of
from tidegate.rollup.report.gathering import figures_of
from tidegate.rollup.report.sheets import sheets_of


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1", "=cmd|' /C calc'!A0"])
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
    figures = estate_figures()
    document = document_of(figures)
    for name, sheet in sheets_of(figures).items():
        rows = list(csv.DictReader(io.StringIO(csv_text(sheet))))
        assert len(rows) == len(sheet.rows)
        for row, (pointer, _) in zip(rows, sheet.rows, strict=True):
            assert {column: as_csv(value_at(document, pointer)[column]) for column in row} == row, name


def value_at(document: object, pointer: str) -> dict[str, object]:
    for name in pointer.split("/")[1:]:
        document = document[int(name)] if isinstance(document, list) else document[name]  # type: ignore[index]
    assert isinstance(document, dict)
    return document


def as_csv(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else harmless(value) if isinstance(value, str) else str(value)
