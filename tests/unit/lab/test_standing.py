"""A lab that stays up: its keeper is ended and no other process, and its tools work in any
shell.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lab import standing
from lab.errors import LabError
from lab.process import ProcessIdentity, patience
from lab.standing import StandingLab, Tool, Wanted, exports, write_tools

# --- keepers --------------------------------------------------------------------------------------
# Stopping a lab that stays up never signals a process that merely got the pid of its keeper.


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture
def bystander() -> Iterator[ProcessIdentity]:
    with subprocess.Popen(["sleep", "600"]) as sleeper:
        identity = ProcessIdentity.of(sleeper.pid)
        assert identity is not None
        yield identity
        sleeper.kill()


def recorded(keeper: ProcessIdentity) -> StandingLab:
    lab = StandingLab(
        "orders",
        keeper,
        Wanted(parts=("kafka",), users=("alice",)),
        addresses={"kafka": {"jmx": "here"}},
    )
    standing.directory_of("orders").mkdir(parents=True)
    lab.write()
    return lab


def test_a_record_reads_back_as_it_was_written(bystander: ProcessIdentity) -> None:
    assert standing.find("orders") is None
    assert standing.find(recorded(bystander).name) == recorded_again(bystander)


def recorded_again(keeper: ProcessIdentity) -> StandingLab:
    return StandingLab(
        "orders",
        keeper,
        Wanted(parts=("kafka",), users=("alice",)),
        addresses={"kafka": {"jmx": "here"}},
    )


def test_a_keeper_that_lives_is_ended(bystander: ProcessIdentity) -> None:
    standing.take_down(recorded(bystander))
    assert not bystander.is_alive()
    assert standing.everything() == []


def test_a_stranger_with_the_keepers_pid_is_left_alone(bystander: ProcessIdentity) -> None:
    standing.take_down(recorded(replace(bystander, start_ticks=bystander.start_ticks - 1)))
    assert bystander.is_alive()
    assert standing.everything() == []


def test_a_name_in_use_is_refused(
    bystander: ProcessIdentity, golden: Callable[[str], None]
) -> None:
    recorded(bystander)
    with pytest.raises(LabError) as refused:
        standing.bring_up("orders", Wanted(parts=("kafka",)))
    assert "'orders'" in str(refused.value)
    golden(str(refused.value))


# --- tools ----------------------------------------------------------------------------------------
# The output of `lab env` works in any shell, whatever characters the paths have.


def test_a_shell_that_evaluates_it_finds_commands_and_addresses(tmp_path: Path) -> None:
    tools = tmp_path / "a b's bin"
    write_tools(
        tools,
        {
            "hail": Tool(("/bin/echo", "hello $USER"), {"UNUSED": "it's"}),
            "greet": Tool(("/bin/echo",)),
        },
    )
    script = f'eval "$1"; hail "to you"; greet "$KAFKA"; echo "$PATH" | grep -c ":{tmp_path}/rest$"'
    done = subprocess.run(
        ["sh", "-c", script, "sh", exports({"KAFKA": "a 'quoted' $address"}, tools)],
        env={"PATH": f"/usr/bin:/bin:{tmp_path}/rest"},
        capture_output=True,
        text=True,
        timeout=patience(30),
    )
    assert done.stdout.splitlines() == ["hello $USER to you", "a 'quoted' $address", "1"]
