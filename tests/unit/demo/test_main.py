"""What `python -m demo` returns to its caller: only a run that kept every bound is a success."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import demo.__main__ as program
from demo.outcome import Outcome
from lab.errors import LabError
from tests.goldens.golden import numbers
from tests.unit.demo.conftest import PlayedRun


@pytest.fixture(autouse=True)
def in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs go nowhere else, no earlier DEMO is in force, and this process keeps its signal
    handlers.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DEMO", raising=False)
    monkeypatch.delenv("KAFKA", raising=False)
    monkeypatch.setattr(program.sys, "argv", ["demo"])
    monkeypatch.setattr(program, "Interruption", lambda say: None)
    monkeypatch.setattr(program, "report_html", lambda outcome, earlier: "the report")


def ends_with(monkeypatch: pytest.MonkeyPatch, run: Callable[[], Outcome]) -> int:
    """The exit code when the experiment itself ends as `run` does."""

    def played(*_: Any, **__: Any) -> Outcome:
        program.OUTPUT.mkdir(parents=True)
        return run()

    monkeypatch.setattr(program, "run", played)
    return program.main()


@pytest.mark.parametrize(("share", "code"), [(1.0, 0), (0.8, 1), (1.2, 1)])
def test_a_missed_bound_is_exit_code_1(
    share: float, code: int, played: PlayedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ends_with(monkeypatch, lambda: played(delivered_share=share)) == code
    assert json.loads((program.OUTPUT / "summary.json").read_text())["passed"] is (code == 0)


@pytest.mark.parametrize(("share", "lines"), [(1.0, 0), (0.8, 5)])
def test_of_each_phase_with_a_missed_bound_it_is_said_what_the_machine_did(
    share: float,
    lines: int,
    played: PlayedRun,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ends_with(monkeypatch, lambda: played(delivered_share=share))
    said = [line for line in capsys.readouterr().out.splitlines() if {60, 7} <= numbers(line)]
    assert len(said) == lines


def test_a_quota_that_came_too_late_is_exit_code_1(
    played: PlayedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ends_with(monkeypatch, lambda: played(seconds_after_election=5.1)) == 1


def test_the_report_of_a_missed_bound_is_written_all_the_same(
    played: PlayedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends_with(monkeypatch, lambda: played(delivered_share=0.8))
    assert (program.OUTPUT / "report.html").read_text() == "the report"


def rolls_up() -> None:
    """What the end of a run leaves beside its report."""
    for folder in ("usage", "usage-tables"):
        (program.OUTPUT / folder).mkdir()
        (program.OUTPUT / folder / "rows").write_text("of this run")


def fails() -> Outcome:
    rolls_up()
    raise LabError("broker-1 ended with code 1")


def is_interrupted() -> Outcome:
    rolls_up()
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("end", "code", "said"), [(fails, 1, "broker-1 ended with code 1"), (is_interrupted, 130, "")]
)
def test_without_a_result_nothing_is_reported(
    end: Callable[[], Outcome],
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ends_with(monkeypatch, end) == code
    assert said in capsys.readouterr().out
    assert list(program.OUTPUT.iterdir()) == []


def test_what_an_earlier_run_left_is_not_taken_for_this_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program.OUTPUT.mkdir(parents=True)
    rolls_up()
    for name in ("report.html", "summary.json", "audit.jsonl", "operator.log"):
        (program.OUTPUT / name).write_text("of an earlier run")

    def never(*_: Any, **__: Any) -> None:
        assert list(program.OUTPUT.iterdir()) == []
        raise LabError("nothing is started here")

    monkeypatch.setattr(program, "running_parts", never)
    assert program.main() == 1


def test_an_unknown_demo_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DEMO", "fast")
    assert ends_with(monkeypatch, fails) == 2
    said = " ".join(capsys.readouterr().out.split())
    assert said == (
        "There is no demo named 'fast' here, so nothing was started. Use DEMO=full or DEMO=quick; "
        "without DEMO it is full."
    )
    assert not program.OUTPUT.exists()


def test_an_unknown_kafka_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KAFKA", "2.8")
    assert ends_with(monkeypatch, fails) == 2
    said = " ".join(capsys.readouterr().out.split())
    assert said == (
        "There is no Kafka named '2.8' here, so nothing was started. Use KAFKA=3.9-zookeeper or "
        "KAFKA=3.9-kraft or KAFKA=4.3-kraft or KAFKA=4.4-kraft; without KAFKA it is 3.9-zookeeper."
    )
    assert not program.OUTPUT.exists()


def test_help_says_what_it_does_and_starts_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program.sys, "argv", ["demo", "--help"])
    assert ends_with(monkeypatch, fails) == 0
    assert "DEMO=quick" in capsys.readouterr().out
