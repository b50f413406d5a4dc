"""Measuring one part never costs the page the figures of the others, and a part that does not exist measures nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bench import __main__ as bench
from bench.results import Figure
from tests.goldens.golden import line_with, numbers


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "PAGE", tmp_path / "benchmarks.md")
    monkeypatch.setattr(bench, "RECORDS", tmp_path / "records")
    monkeypatch.setattr(bench, "tune_collector", lambda: None)
    parts = {"first": lambda: [Figure("one", 1.0, "s", 2.0)], "second": lambda: [Figure("two", 3.0, "s", 2.0)]}
    monkeypatch.setattr(bench, "PARTS", parts)
    monkeypatch.setattr(bench, "SECTIONS", {"All": parts})
    bench.PAGE.write_text("as committed", encoding="utf-8")


def measured(monkeypatch: pytest.MonkeyPatch, *parts: str) -> int:
    monkeypatch.setattr("sys.argv", ["bench", *parts])
    return bench.main()


def test_a_part_that_is_measured_alone_leaves_the_figures_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured(monkeypatch) == 1
    monkeypatch.setitem(bench.PARTS, "second", lambda: [Figure("two", 1.5, "s", 2.0)])  # type: ignore[arg-type]
    assert measured(monkeypatch, "second") == 0
    text = bench.PAGE.read_text(encoding="utf-8")
    assert "| one | 1 s |" in text
    assert {1.5, 2} <= numbers(line_with(text, "| two |", "| kept |"))


def test_a_missed_bound_is_an_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured(monkeypatch) == 1
    assert {3, 2} <= numbers(line_with(bench.PAGE.read_text(encoding="utf-8"), "| two |", "**missed**"))


def test_a_part_that_does_not_exist_measures_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], golden: Callable[[str], None]
) -> None:
    with pytest.raises(SystemExit) as ended:
        measured(monkeypatch, "first", "wrong")
    assert (ended.value.code, bench.RECORDS.exists()) == (2, False)
    said = capsys.readouterr().err.splitlines()[-1]
    assert "wrong" in said
    golden(said)
