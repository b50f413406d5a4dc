"""Measuring one part never costs the page the figures of the others, and a part that does not exist measures nothing."""

from pathlib import Path

import pytest

from bench import __main__ as bench
from bench.figure import Figure


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "PAGE", tmp_path / "benchmarks.md")
    monkeypatch.setattr(bench, "RECORDS", tmp_path / "records")
    monkeypatch.setattr(bench, "tune_collector", lambda: None)
    parts = {"first": lambda: [Figure("one", 1.0, "s", 2.0)], "second": lambda: [Figure("two", 3.0, "s", 2.0)]}
    monkeypatch.setattr(bench, "PARTS", parts)
    bench.PAGE.write_text("as committed", encoding="utf-8")


def measured(monkeypatch: pytest.MonkeyPatch, *parts: str) -> int:
    monkeypatch.setattr("sys.argv", ["bench", *parts])
    return bench.main()


def test_the_page_stays_until_every_part_was_measured_here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert measured(monkeypatch, "first") == 0
    assert bench.PAGE.read_text(encoding="utf-8") == "as committed"
    assert "not measured here yet: second" in capsys.readouterr().out


def test_the_page_has_every_part_and_a_missed_bound_is_an_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured(monkeypatch) == 1
    assert "| one | 1 s |" in (text := bench.PAGE.read_text(encoding="utf-8"))
    assert "| two | 3 s | at most 2 s | **missed** |" in text


def test_a_part_that_does_not_exist_measures_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        measured(monkeypatch, "first", "wrong")
    assert (ended.value.code, bench.RECORDS.exists()) == (2, False)
    assert "there is no part wrong" in capsys.readouterr().err
