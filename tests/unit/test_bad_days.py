"""The whole operator in virtual time: days full of faults, of which none may leave a trace.

In a process of its own, because virtual time takes the place of the real one in the operator's
modules, and the order of sets has to be the same in each run.
"""

import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.timeout(600)
def test_two_hundred_bad_days_end_well() -> None:
    run = simulate("--seeds", "200", "--jobs", "2")
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    assert run.stdout.startswith("200 days, 0 failed")


def test_a_seed_repeats_a_day_step_by_step() -> None:
    first, second = simulate("--seed", "7"), simulate("--seed", "7")
    assert first.stdout == second.stdout
    assert len(first.stdout.splitlines()) > 50
    assert "seed 7: all is well" in first.stdout


def test_a_day_among_others_is_the_day_that_it_is_alone() -> None:
    alone = simulate("--seed", "7").stdout.split()[-1]
    among = simulate("--seed", "5", "--seeds", "4", "--digests").stdout
    assert f"seed 7: digest {alone}" in among.splitlines()


def test_a_defect_is_found_and_its_day_is_made_smaller() -> None:
    run = simulate("--seeds", "100", "--without", "A4")
    assert run.returncode == 1
    assert "between two renewals, though each of its calls was answered" in run.stdout
    assert "acts are enough, with which:" in run.stdout
