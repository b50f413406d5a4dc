"""Results: figures and their bounds, which runs count, and what a part that is measured alone
leaves on the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from bench import __main__ as bench
from bench.results import Figure, Measured, Record, Records, median_of, page, percentile, quiet
from lab.load import ProcessorTimes
from tests.goldens.golden import line_with, numbers

CORES = (("decide", "2 cores"), ("cold", "64 cores"), ("rollup", "2 cores"))


@pytest.mark.parametrize(
    ("percent", "expected"), [(50, 5.0), (95, 10.0), (99, 10.0), (100, 10.0), (0, 1.0)]
)
def test_a_percentile_is_a_value_that_was_measured(percent: float, expected: float) -> None:
    assert percentile([float(value) for value in range(10, 0, -1)], percent) == expected


def test_a_percentile_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError):
        percentile([], 50)


@pytest.mark.parametrize(("value", "verdict"), [(3.0, "kept"), (3.01, "**missed**")])
def test_a_figure_is_kept_up_to_its_bound(value: float, verdict: str) -> None:
    figure = Figure("cold", value, "s", 3.0)
    assert (figure.kept, f"| {verdict} |" in figure.row()) == (verdict == "kept", True)


def test_several_measurements_are_shown_as_their_median_with_best_and_worst(
    golden: Callable[[str], None],
) -> None:
    shown = median_of([Figure("cold", value, "s", 3.0) for value in (4.0, 2.0, 2.5)])
    assert (shown.value, shown.kept, numbers(shown.note)) == (2.5, True, {2, 4})
    golden(shown.note)


def test_a_part_that_is_measured_again_replaces_its_figures_only(
    tmp_path: Path, golden: Callable[[str], None]
) -> None:
    records = Records(tmp_path)
    records.write(Record("decide", "2026-01-01", 0.5, [Figure("decide", 90.0, "ms", 100.0)]))
    records.write(Record("cold", "2026-01-01", 0.5, [Figure("cold", 9.0, "s", 3.0)]))
    records.write(Record("cold", "2026-01-02", 0.1, [Figure("cold", 2.0, "s", 3.0)]))
    shown = page(
        {"Quotas": [record for part in ("decide", "cold") if (record := records.read(part))]}
    )
    decide, cold = (
        line_with(shown, "| decide |", "2026-01-01"),
        line_with(shown, "| cold |", "2026-01-02"),
    )
    assert (numbers(decide), numbers(cold)) == ({90, 100, 0.5}, {2, 3, 0.1})
    assert records.read("rest") is None
    golden(f"{decide}\n{cold}")


def test_every_figure_names_its_machine_and_stands_in_its_section() -> None:
    parts = {
        part: Record(
            part, "2026-01-01", 0.5, [Figure(part, 1.0, "s", None)], machine={"Processor": cores}
        )
        for part, cores in CORES
    }
    shown = page(
        {
            "Quotas": [parts["decide"], parts["cold"]],
            "Not measured": [],
            "Rollups": [parts["rollup"]],
        }
    ).splitlines()
    assert "| machine | A | B |" in shown
    assert "| Processor | 2 cores | 64 cores |" in shown
    sections = [
        line.strip("#| ").replace(" ", "").split("|")
        for line in shown
        if line.startswith("## ") or "| 1 s |" in line
    ]
    assert [[words[0], words[-1]] for words in sections] == [
        ["Quotas", "Quotas"],
        ["decide", "A"],
        ["cold", "B"],
        ["Rollups", "Rollups"],
        ["rollup", "A"],
        ["Others", "Others"],
    ]


def test_a_part_that_was_measured_once_names_the_bench_that_can_measure_it() -> None:
    records = Records(bench.RECORDS)
    once = {name for parts in bench.SECTIONS.values() for name, part in parts.items() if not part}
    assert once
    assert not once & bench.PARTS.keys()
    for name in once:
        record = records.read(name)
        assert record is not None
        assert f"bench of {record.measured_by}" in page({"Once": [record]})
    again = [record for name in bench.PARTS if (record := records.read(name)) is not None]
    assert {record.measured_by for record in again} == {""}


# --- runs on a machine whose host took much -------------------------------------------------------
# A run from which the machine's host took much is made again, and said to be left out.


def of_shares(stolen_percents: Iterable[int]) -> list[ProcessorTimes]:
    """What is read before and after each run, of 100 ticks each."""
    moments = []
    for number, stolen in enumerate(stolen_percents):
        moments += [
            ProcessorTimes(100 * number, 0, 0),
            ProcessorTimes(100 * number + 100, 0, stolen),
        ]
    return moments


@pytest.mark.parametrize(
    ("stolen_percents", "value", "amounts"),
    [
        ([5], 1, {5}),
        ([40, 12, 0], 2, {12, 1}),
        ([40, 30, 20, 50, 0], 3, {20, 3}),
    ],
)
def test_the_first_quiet_run_counts_or_the_quietest_of_four(
    stolen_percents: list[int], value: int, amounts: set[float], golden: Callable[[str], None]
) -> None:
    runs, moments, kept = iter(range(1, 9)), iter(of_shares(stolen_percents)), list[int]()

    def measure() -> Measured:
        number = next(runs)
        return Measured(
            [Figure("silence", number, "s", None, "of one")], keep=lambda: kept.append(number)
        )

    figures = quiet(measure, times=lambda: next(moments))
    assert [(figure.value, numbers(figure.note)) for figure in figures] == [(value, amounts)]
    assert kept == [value]
    golden(figures[0].note)


# --- parts that are measured alone ----------------------------------------------------------------
# Measuring one part never costs the page the figures of the others, and a part that does not exist
# measures nothing.


@pytest.fixture
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "PAGE", tmp_path / "benchmarks.md")
    monkeypatch.setattr(bench, "RECORDS", tmp_path / "records")
    monkeypatch.setattr(bench, "tune_collector", lambda: None)
    parts = {
        "first": lambda: [Figure("one", 1.0, "s", 2.0)],
        "second": lambda: [Figure("two", 3.0, "s", 2.0)],
    }
    monkeypatch.setattr(bench, "PARTS", parts)
    monkeypatch.setattr(bench, "SECTIONS", {"All": parts})
    bench.PAGE.write_text("as committed", encoding="utf-8")


def measured(monkeypatch: pytest.MonkeyPatch, *parts: str) -> int:
    monkeypatch.setattr("sys.argv", ["bench", *parts])
    return bench.main()


@pytest.mark.usefixtures("_elsewhere")
def test_a_part_that_is_measured_alone_leaves_the_figures_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert measured(monkeypatch) == 1
    monkeypatch.setitem(bench.PARTS, "second", lambda: [Figure("two", 1.5, "s", 2.0)])  # type: ignore[arg-type]
    assert measured(monkeypatch, "second") == 0
    text = bench.PAGE.read_text(encoding="utf-8")
    assert "| one | 1 s |" in text
    assert {1.5, 2} <= numbers(line_with(text, "| two |", "| kept |"))


@pytest.mark.usefixtures("_elsewhere")
def test_a_missed_bound_is_an_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured(monkeypatch) == 1
    assert {3, 2} <= numbers(
        line_with(bench.PAGE.read_text(encoding="utf-8"), "| two |", "**missed**")
    )


@pytest.mark.usefixtures("_elsewhere")
def test_a_part_that_does_not_exist_measures_nothing(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    golden: Callable[[str], None],
) -> None:
    with pytest.raises(SystemExit) as ended:
        measured(monkeypatch, "first", "wrong")
    assert (ended.value.code, bench.RECORDS.exists()) == (2, False)
    said = capsys.readouterr().err.splitlines()[-1]
    assert "wrong" in said
    golden(said)
