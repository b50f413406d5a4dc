"""`python -m tools.simulate.__main__`: what it prints, and what it says to a file that makes no sense."""

import subprocess
import sys
from pathlib import Path

import pytest

from tools.simulate.__main__ import lines_of, main
from tools.simulate.scenario import ScenarioError, scenario_of

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "scenarios"

SMALL = """
seconds = 60
[brokers.1]
egressLimit = 100_000_000
[[users]]
user = "a"
level = "L3"
contract = 200_000_000
throttled = 1_000_000
leaders = {1 = 1}
[[changes]]
at = 0
demand = {a = 150_000_000}
"""


def test_a_cut_is_told_with_its_cause_and_its_bound() -> None:
    lines = "\n".join(lines_of(scenario_of(SMALL)))
    assert "broker 1 150.00 of 100.00 MB/s over" in lines
    assert "cut      L3 user=a: 200.00 -> 97.00 MB/s, ends at 97.00, limited by target; mute at most 11 s" in lines


def test_the_example_of_a_lowered_limit_steps_in_order_and_returns_to_the_contracts() -> None:
    lines = list(lines_of(scenario_of((EXAMPLES / "limit-lowered-and-raised.toml").read_text())))
    cuts = [line.split()[1] for line in lines if line.strip().startswith("cut")]
    assert cuts[:2] == ["L3", "L2"]
    assert "L0" not in cuts
    assert [line for line in lines[-4:] if "(contract)" not in line] == []


def test_the_example_of_foreign_traffic_cuts_nobody_for_it_and_holds_while_the_card_is_blind() -> None:
    lines = list(lines_of(scenario_of((EXAMPLES / "foreign-traffic-and-a-blind-card.toml").read_text())))
    helpless = next(number for number, line in enumerate(lines) if "QuotaCannotHelp" in line)
    first_cut = next(number for number, line in enumerate(lines) if line.strip().startswith("cut"))
    assert helpless < first_cut
    assert "        StaleData: broker 1" in "\n".join(lines)
    assert "release  L3 user=nightly" in "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("this is not", "not TOML", id="no TOML"),
        pytest.param(SMALL.replace("seconds = 60\n", ""), "lacks seconds", id="something missing"),
        pytest.param(SMALL.replace("seconds = 60", "seconds = -1"), "seconds must be a number from 1", id="out of bounds"),
        pytest.param(SMALL.replace("seconds = 60", "seconds = true"), "seconds must be a number", id="a truth value is no number"),
        pytest.param(SMALL.replace("seconds = 60", "seconds = 60\nscraepSeconds = 5"), "scraepSeconds", id="a misspelt word"),
        pytest.param(SMALL.replace('"L3"', '"L4"'), "level must be one of L0, L1, L2, L3", id="an unknown level"),
        pytest.param(SMALL.replace("demand = {a", "demand = {b"), "b, who is none of the users", id="an unknown user"),
        pytest.param(SMALL.replace("leaders = {1 = 1}", "leaders = {2 = 1}"), "broker 2", id="an unknown broker"),
        pytest.param(SMALL.replace("throttled = 1_000_000\n", ""), "throttled is required", id="no throttled rate"),
        pytest.param(SMALL.replace("throttled = 1_000_000", "throttled = 999_000_000"), "above the contract", id="throttled above it"),
        pytest.param(SMALL.replace('user = "a"\n', ""), "needs a user", id="nobody"),
        pytest.param(SMALL.replace("contract = 200_000_000", "contract = 200_000_000.5"), "whole number", id="half a byte"),
        pytest.param(SMALL.replace("[brokers.1]\negressLimit = 100_000_000", ""), "at least one broker", id="no broker"),
        pytest.param(SMALL + "card = {1 = 'maybe'}", '"none" or "true"', id="a card that says something odd"),
        pytest.param("brokers = 3\nseconds = 60", "a table of brokers", id="a number for a table"),
        pytest.param(SMALL + SMALL[SMALL.index("[[users]]") : SMALL.index("[[changes]]")], "same entity", id="somebody twice"),
    ],
)
def test_a_scenario_that_makes_no_sense_is_refused_with_what_is_wrong(text: str, said: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        scenario_of(text)
    assert said in str(refused.value)


def test_a_bad_file_gives_exit_code_2_and_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text("seconds = 'long'")
    assert main([str(bad)]) == 2
    assert str(bad) in capsys.readouterr().err


def test_a_file_that_does_not_exist_gives_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none.toml")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_it_runs_as_a_program() -> None:
    example = EXAMPLES / "limit-lowered-and-raised.toml"
    played = subprocess.run([sys.executable, "-m", "tools.simulate.__main__", str(example)], capture_output=True, text=True, check=True)
    assert "in force at the end" in played.stdout
