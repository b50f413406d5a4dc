"""A run leaves nothing behind. The next run removes what a killed one left, and never touches a running one."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from lab import cache
from lab.cache import RunDirectory
from lab.process import ProcessIdentity


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def interrupted_run(undo: list[list[str]]) -> Path:
    """A run whose owner had this process's pid but started at another time, so that the pid was reused since."""
    path = cache.runs_root() / "dead"
    path.mkdir(parents=True)
    stranger = replace(ProcessIdentity.own(), start_ticks=1)
    (path / "owner.json").write_text(json.dumps(asdict(stranger)))
    (path / "undo.jsonl").write_text("".join(json.dumps(command) + "\n" for command in undo))
    return path


def test_a_run_undoes_what_it_made_last_thing_first(tmp_path: Path) -> None:
    log = tmp_path / "undone"
    with RunDirectory() as run:
        run.record_undo(["sh", "-c", f"echo bridge >> {log}"])
        run.record_undo(["sh", "-c", f"echo machine >> {log}"])
    assert log.read_text().split() == ["machine", "bridge"]
    assert not run.path.exists()


def test_a_failed_run_leaves_nothing() -> None:
    with contextlib.suppress(RuntimeError), RunDirectory() as run:
        (run.path / "data").mkdir()
        raise RuntimeError("no luck")
    assert list(cache.runs_root().iterdir()) == []


def test_the_next_run_clears_what_an_interrupted_one_left(tmp_path: Path) -> None:
    path = interrupted_run([["sh", "-c", "exit 1"], ["touch", str(tmp_path / "undone")]])
    with RunDirectory():
        assert not path.exists()
        assert (tmp_path / "undone").exists()


def test_a_living_run_is_not_touched() -> None:
    with RunDirectory() as run:
        cache.sweep()
        assert run.path.exists()


@pytest.mark.parametrize("owner", ["", "{", "{}", '{"pid": 1}'])
def test_a_run_whose_owner_cannot_be_read_is_cleared(owner: str) -> None:
    path = interrupted_run([])
    (path / "owner.json").write_text(owner)
    cache.sweep()
    assert not path.exists()
