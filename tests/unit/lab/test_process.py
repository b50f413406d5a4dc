"""Processes of the lab: their ends and errors, and waiting for what they do."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab import process
from lab.errors import LabError
from lab.process import ProcessIdentity, wait_until
from tests.goldens.golden import numbers
from tests.unit.hands import Hands


@pytest.fixture(autouse=True)
def busy(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Says how many times as long work takes; once, until a test says otherwise."""

    def run(times: float) -> None:
        monkeypatch.setattr(process, "slowness", lambda: times)

    run(1.0)
    return run


# --- ends -----------------------------------------------------------------------------------------
# Processes of the lab end when they are asked to, take their children along, and never outlive the
# lab.


def lines_of(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def await_lines(path: Path, count: int) -> list[str]:
    wait_until(
        lambda: len(lines_of(path)) >= count, f"{count} lines in {path.name}", timeout_seconds=10
    )
    return lines_of(path)


def test_stopping_a_process_ends_its_children_too(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with process.start("parent", ["sh", "-c", "sleep 600 & echo $!; wait"], log_path=log) as parent:
        child = ProcessIdentity.of(int(await_lines(log, 1)[0]))
        assert child is not None
    assert not parent.is_running()
    wait_until(lambda: not child.is_alive(), "the child to end", timeout_seconds=5)


def test_a_child_that_outlived_its_parent_ends_with_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with process.start("parent", ["sh", "-c", "sleep 600 & echo $!"], log_path=log) as parent:
        child = ProcessIdentity.of(int(await_lines(log, 1)[0]))
        assert parent.wait(5) == 0
    assert child is not None
    wait_until(lambda: not child.is_alive(), "the child to end", timeout_seconds=5)


def test_a_process_deaf_to_sigterm_is_killed_after_its_grace(tmp_path: Path) -> None:
    log = tmp_path / "log"
    deaf = process.start(
        "deaf", ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"], log_path=log
    )
    await_lines(log, 1)
    deaf.stop(grace_seconds=0.1)
    assert deaf.exit_code == -signal.SIGKILL


def test_a_failure_shows_the_end_of_the_log(tmp_path: Path, golden: Callable[[str], None]) -> None:
    with (
        process.start(
            "broken", ["sh", "-c", "echo out of cheese; exit 2"], log_path=tmp_path / "log"
        ) as broken,
        pytest.raises(LabError) as failed,
    ):
        broken.expect_success(5)
    assert 2 in numbers(str(failed.value))
    for named in ("broken", "out of cheese"):
        assert named in str(failed.value)
    golden(str(failed.value).replace(str(tmp_path), "FOLDER"))


def test_a_process_that_takes_too_long_is_an_error(
    tmp_path: Path, golden: Callable[[str], None]
) -> None:
    with (
        process.start("slow", ["sleep", "600"], log_path=tmp_path / "log") as slow,
        pytest.raises(LabError) as failed,
    ):
        slow.wait(0.05)
    golden(re.sub(r"pid \d+", "pid 1", str(failed.value).replace(str(tmp_path), "FOLDER")))


def test_a_program_that_is_not_there_names_the_doctor(
    tmp_path: Path, golden: Callable[[str], None]
) -> None:
    with pytest.raises(LabError) as failed:
        process.start("ghost", ["no-such-program"], log_path=tmp_path / "log")
    assert "no-such-program" in str(failed.value)
    golden(str(failed.value))


# started from a thread that ends at once, because the kernel ties a child to the thread that made
# it
STARTS_A_SLEEPER = """
import sys, threading, pathlib, signal
from lab import process
def start():
    sleeper = process.start("sleeper", ["sleep", "600"], log_path=pathlib.Path(sys.argv[1]))
    print(sleeper.pid, flush=True)
thread = threading.Thread(target=start); thread.start(); thread.join()
signal.pause()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_an_interpreter_that_was_killed(
    how: signal.Signals, tmp_path: Path
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTS_A_SLEEPER, str(tmp_path / "log")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as lab:
        assert lab.stdout is not None
        sleeper = ProcessIdentity.of(int(lab.stdout.readline()))
        assert sleeper is not None
        assert sleeper.is_alive()
        os.kill(lab.pid, how)
    wait_until(lambda: not sleeper.is_alive(), "the sleeper to end", timeout_seconds=5)


# --- parts ----------------------------------------------------------------------------------------
# A part is started once more, and not a third time.


class Part:
    """Starts when it has failed so many times."""

    def __init__(self, failures: list[str]) -> None:
        self._failures, self.is_running = failures, False

    def __enter__(self) -> Part:
        if self._failures:
            raise LabError(self._failures.pop())
        self.is_running = True
        return self

    def __exit__(self, *_: object) -> None:
        self.is_running = False


def test_a_part_whose_first_start_fails_is_made_and_started_once_more(
    capsys: pytest.CaptureFixture[str],
) -> None:
    failures = ["its port was taken"]
    with process.started(lambda: Part(failures)) as part:
        assert part.is_running
    assert not part.is_running
    assert "its port was taken" in capsys.readouterr().err


def test_a_part_that_does_not_start_twice_is_an_error() -> None:
    failures = ["third", "second", "first"]
    with pytest.raises(LabError, match="second"), process.started(lambda: Part(failures)):
        pass
    assert failures == ["third"]


# --- waiting --------------------------------------------------------------------------------------
# Waiting is bounded, and its error shows why.


def test_a_condition_that_never_comes_is_an_error_that_names_it(
    golden: Callable[[str], None],
) -> None:
    with pytest.raises(LabError) as failed:
        wait_until(lambda: False, "the moon", timeout_seconds=0.01, poll_seconds=0)
    assert 0.01 in numbers(str(failed.value))
    assert "the moon" in str(failed.value)
    golden(str(failed.value))


def test_a_busy_machine_is_waited_for_as_much_longer_and_named_in_the_error(
    busy: Callable[[float], None], golden: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = Hands(0.0)

    def sleep(seconds: float) -> None:
        now.now += seconds

    monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=now, sleep=sleep))
    busy(20.0)
    assert wait_until(lambda: now.now >= 190.0, "it", timeout_seconds=10, poll_seconds=1)
    now.now = 0.0
    with pytest.raises(LabError) as failed:
        wait_until(lambda: False, "the moon", timeout_seconds=10, poll_seconds=1)
    assert now.now == 200.0
    assert numbers(str(failed.value)) >= {200, 20}
    golden(str(failed.value))


def test_patience_ends_after_ten_minutes_but_never_before_what_a_quiet_machine_needs(
    busy: Callable[[float], None],
) -> None:
    busy(20.0)
    assert [process.patience(seconds) for seconds in (0, 10, 60, 900)] == [0, 200, 600, 900]


def test_a_machine_is_never_faster_than_a_quiet_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert process.slowness() >= 1


def test_a_process_that_ended_is_reported_at_once_with_its_log(
    tmp_path: Path, golden: Callable[[str], None]
) -> None:
    with process.start(
        "broker", ["sh", "-c", "echo no port left; exit 1"], log_path=tmp_path / "log"
    ) as broker:
        broker.wait(5)
        with pytest.raises(LabError) as failed:
            wait_until(lambda: False, "its port", timeout_seconds=60, processes=[broker])
    assert 1 in numbers(str(failed.value))
    for named in ("broker", "its port", "no port left"):
        assert named in str(failed.value)
    golden(str(failed.value).replace(str(tmp_path), "FOLDER"))
