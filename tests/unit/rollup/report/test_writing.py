"""Files of a report: all of them, whole, and the old ones where the new ones cannot be written."""

import json
from pathlib import Path

import pytest

from tests.unit.rollup.report.estate import estate_figures
from tidegate.rollup.report import writing
from tidegate.rollup.report.document import document_of
from tidegate.rollup.report.sheets import sheets_of
from tidegate.rollup.report.writing import write_report


def test_a_report_is_a_page_a_json_file_and_a_csv_file_for_each_table(tmp_path: Path) -> None:
    page = write_report(estate_figures(), tmp_path / "new" / "folder")
    names = {path.name for path in page.parent.iterdir()}
    assert names == {"report.html", "report.json", *(f"{name}.csv" for name in sheets_of(estate_figures()))}
    assert json.loads((page.parent / "report.json").read_text()) == document_of(estate_figures())


def test_a_report_can_be_written_again(tmp_path: Path) -> None:
    write_report(estate_figures(), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    write_report(estate_figures(), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "report.html").write_text("old")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing.os, "replace", refuse)
    with pytest.raises(OSError, match="No space"):
        write_report(estate_figures(), tmp_path)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("report.html", "old")]
