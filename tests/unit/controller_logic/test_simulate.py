"""`python -m tools.simulate.__main__`: what it prints, and what it says to a file that makes no
sense.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.goldens.golden import numbers
from tools.simulate.__main__ import lines_of, main
from tools.simulate.scenario import ScenarioError, scenario_of

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "scenarios"

SMALL = """
seconds = 60
[brokers.1]
egress = {limit = 100_000_000}
[[users]]
user = "a"
level = "L3"
contract = 200_000_000
throttledRate = 1_000_000
leaders = {1 = 1}
[[changes]]
at = 0
demand = {a = 150_000_000}
"""


def test_a_cut_is_reported_with_its_cause_and_its_bound() -> None:
    (cut,) = [line for line in lines_of(scenario_of(SMALL)) if line.split()[:2] == ["cut", "L3"]]
    assert numbers(cut) == {200.0, 97.0, 11, 53.0, 0.0}


def test_a_play_reads_like_this(golden: Callable[[str], None]) -> None:
    golden("\n".join(lines_of(scenario_of(SMALL))))


def test_the_example_of_a_lowered_limit_steps_in_order_and_returns_to_the_contracts() -> None:
    lines = list(lines_of(scenario_of((EXAMPLES / "limit-lowered-and-raised.toml").read_text())))
    cuts = [line.split()[1] for line in lines if line.strip().startswith("cut")]
    assert cuts[:2] == ["L3", "L2"]
    assert "L0" not in cuts
    assert [line for line in lines[-4:] if "(contract)" not in line] == []


def test_the_example_of_foreign_traffic_cuts_no_one_for_it_and_holds_while_the_nic_is_blind() -> (
    None
):
    lines = list(
        lines_of(scenario_of((EXAMPLES / "foreign-traffic-and-an-unreadable-nic.toml").read_text()))
    )
    helpless = next(number for number, line in enumerate(lines) if "QuotaCannotHelp" in line)
    first_cut = next(number for number, line in enumerate(lines) if line.strip().startswith("cut"))
    assert helpless < first_cut
    assert any(line.split()[:1] == ["StaleData:"] and numbers(line) >= {1} for line in lines)
    assert any(line.split()[:2] == ["release", "L3"] and "user=nightly" in line for line in lines)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("this is not", id="no TOML"),
        pytest.param(SMALL.replace("seconds = 60\n", ""), id="something missing"),
        pytest.param(SMALL.replace("seconds = 60", "seconds = -1"), id="out of bounds"),
        pytest.param(
            SMALL.replace("seconds = 60", "seconds = true"), id="a truth value is no number"
        ),
        pytest.param(
            SMALL.replace("seconds = 60", "seconds = 60\nscraepSeconds = 5"), id="a misspelt word"
        ),
        pytest.param(SMALL.replace('"L3"', '"L4"'), id="an unknown level"),
        pytest.param(SMALL.replace("demand = {a", "demand = {b"), id="an unknown user"),
        pytest.param(
            SMALL.replace("leaders = {1 = 1}", "leaders = {2 = 1}"), id="an unknown broker"
        ),
        pytest.param(SMALL.replace("throttledRate = 1_000_000\n", ""), id="no throttled rate"),
        pytest.param(
            SMALL.replace("throttledRate = 1_000_000", "throttledRate = 999_000_000"),
            id="throttled above it",
        ),
        pytest.param(SMALL.replace('user = "a"\n', ""), id="no user"),
        pytest.param(
            SMALL.replace("contract = 200_000_000", "contract = 200_000_000.5"), id="half a byte"
        ),
        pytest.param(
            SMALL.replace("[brokers.1]\negress = {limit = 100_000_000}", ""), id="no broker"
        ),
        pytest.param(SMALL + "nic = {1 = 'maybe'}", id="a NIC that says something odd"),
        pytest.param("brokers = 3\nseconds = 60", id="a number for a table"),
        pytest.param(
            SMALL + SMALL[SMALL.index("[[users]]") : SMALL.index("[[changes]]")],
            id="somebody twice",
        ),
    ],
)
def test_a_scenario_that_makes_no_sense_is_refused_with_what_is_wrong(
    text: str, golden: Callable[[str], None]
) -> None:
    with pytest.raises(ScenarioError) as refused:
        scenario_of(text)
    parsers_words = str(refused.value.__cause__ or "")  # another version of Python has others
    golden(str(refused.value).removesuffix(parsers_words))


def test_a_bad_file_gives_exit_code_2_and_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text("seconds = 'long'")
    assert main([str(bad)]) == 2
    assert str(bad) in capsys.readouterr().err


def test_a_file_that_does_not_exist_gives_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "none.toml")]) == 2
    assert str(tmp_path / "none.toml") in capsys.readouterr().err


def test_it_runs_as_a_program() -> None:
    example = EXAMPLES / "limit-lowered-and-raised.toml"
    played = subprocess.run(
        [sys.executable, "-m", "tools.simulate.__main__", str(example)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert played.stdout.splitlines() == list(lines_of(scenario_of(example.read_text())))
