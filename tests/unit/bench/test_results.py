"""Figures say whether they kept their bound, and the page shows the newest ones of every part."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bench.results import Figure, Record, Records, median_of, page, percentile
from tests.goldens.golden import line_with, numbers

CORES = (("decide", "2 cores"), ("cold", "64 cores"), ("rollup", "2 cores"))


@pytest.mark.parametrize(("percent", "expected"), [(50, 5.0), (95, 10.0), (99, 10.0), (100, 10.0), (0, 1.0)])
def test_a_percentile_is_a_value_that_was_measured(percent: float, expected: float) -> None:
    assert percentile([float(value) for value in range(10, 0, -1)], percent) == expected


def test_a_percentile_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError):
        percentile([], 50)


@pytest.mark.parametrize(("value", "verdict"), [(3.0, "kept"), (3.01, "**missed**")])
def test_a_figure_is_kept_up_to_its_bound(value: float, verdict: str) -> None:
    figure = Figure("cold", value, "s", 3.0)
    assert (figure.kept, f"| {verdict} |" in figure.row()) == (verdict == "kept", True)


def test_several_measurements_are_shown_as_their_median_with_best_and_worst(golden: Callable[[str], None]) -> None:
    shown = median_of([Figure("cold", value, "s", 3.0) for value in (4.0, 2.0, 2.5)])
    assert (shown.value, shown.kept, numbers(shown.note)) == (2.5, True, {2, 4})
    golden(shown.note)


def test_a_part_that_is_measured_again_replaces_its_figures_only(tmp_path: Path, golden: Callable[[str], None]) -> None:
    records = Records(tmp_path)
    records.write(Record("decide", "2026-01-01", 0.5, [Figure("decide", 90.0, "ms", 100.0)]))
    records.write(Record("cold", "2026-01-01", 0.5, [Figure("cold", 9.0, "s", 3.0)]))
    records.write(Record("cold", "2026-01-02", 0.1, [Figure("cold", 2.0, "s", 3.0)]))
    shown = page({"Quotas": [record for part in ("decide", "cold") if (record := records.read(part))]})
    decide, cold = line_with(shown, "| decide |", "2026-01-01"), line_with(shown, "| cold |", "2026-01-02")
    assert (numbers(decide), numbers(cold)) == ({90, 100, 0.5}, {2, 3, 0.1})
    assert records.read("rest") is None
    golden(f"{decide}\n{cold}")


def test_every_figure_names_its_machine_and_stands_in_its_section() -> None:
    parts = {part: Record(part, "2026-01-01", 0.5, [Figure(part, 1.0, "s", None)], machine={"Processor": cores}) for part, cores in CORES}
    shown = page({"Quotas": [parts["decide"], parts["cold"]], "Not measured": [], "Rollups": [parts["rollup"]]}).splitlines()
    assert "| machine | A | B |" in shown
    assert "| Processor | 2 cores | 64 cores |" in shown
    sections = [line.strip("#| ").replace(" ", "").split("|") for line in shown if line.startswith("## ") or "| 1 s |" in line]
    assert [[words[0], words[-1]] for words in sections] == [
        ["Quotas", "Quotas"],
        ["decide", "A"],
        ["cold", "B"],
        ["Rollups", "Rollups"],
        ["rollup", "A"],
        ["Others", "Others"],
    ]
