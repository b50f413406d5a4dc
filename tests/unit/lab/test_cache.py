"""The lab's cache: an entry is whole or it is not there, and a run leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from lab import cache
from lab.cache import RunDirectory
from lab.errors import LabError
from lab.process import ProcessIdentity

# --- entries --------------------------------------------------------------------------------------
# A cache entry is whole or it is not there.


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def writes(text: str) -> Callable[[Path], None]:
    return lambda content: (content / "file").write_text(text) and None


def refuses_to_build(_: Path) -> None:
    raise AssertionError("it was there already")


def test_an_entry_is_built_once_and_found_again() -> None:
    first = cache.entry("jars", ["pom"], build=writes("one"))
    assert cache.entry("jars", ["pom"], build=refuses_to_build) == first
    assert (first / "file").read_text() == "one"


@pytest.mark.parametrize("other", [["pom2"], ["po", "m"], ["pom", ""], []])
def test_another_key_is_another_entry(other: list[str]) -> None:
    cache.entry("jars", ["pom"], build=writes("one"))
    assert (cache.entry("jars", other, build=writes("other")) / "file").read_text() == "other"


def test_a_failed_build_leaves_nothing_and_is_tried_again() -> None:
    def fails(content: Path) -> None:
        (content / "file").write_text("half")
        raise OSError("the network went away")

    with pytest.raises(OSError, match="the network went away"):
        cache.entry("jars", ["pom"], build=fails)
    assert cache.find("jars", ["pom"]) is None
    assert (cache.entry("jars", ["pom"], build=writes("whole")) / "file").read_text() == "whole"


def test_a_build_without_files_is_refused(golden: Callable[[str], None]) -> None:
    with pytest.raises(LabError) as refused:
        cache.entry("jars", ["pom"], build=lambda _: None)
    golden(str(refused.value))


def truncates(content: Path) -> None:
    (content / "file").write_text("")


def loses_a_file(content: Path) -> None:
    (content / "file").unlink()


def gains_a_file(content: Path) -> None:
    (content / "stray").write_text("x")


def loses_its_mark(content: Path) -> None:
    (content.parent / "complete.json").unlink()


def has_a_torn_mark(content: Path) -> None:
    (content.parent / "complete.json").write_text('{"name": "ja')


@pytest.mark.parametrize(
    "breaks", [truncates, loses_a_file, gains_a_file, loses_its_mark, has_a_torn_mark]
)
def test_a_broken_entry_is_never_used_but_built_again(breaks: Callable[[Path], None]) -> None:
    breaks(cache.entry("jars", ["pom"], build=writes("one")))
    assert cache.find("jars", ["pom"]) is None
    rebuilt = cache.entry("jars", ["pom"], build=writes("two"))
    assert [path.name for path in rebuilt.iterdir()] == ["file"]
    assert (rebuilt / "file").read_text() == "two"


def test_two_builders_at_once_build_once() -> None:
    built = []
    both_want_it = threading.Barrier(2)

    def builds(content: Path) -> None:
        built.append(content)
        (content / "file").write_text("one")

    def wants_it() -> None:
        both_want_it.wait()
        cache.entry("jars", ["pom"], build=builds)

    threads = [threading.Thread(target=wants_it) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1


def test_the_list_shows_what_is_whole_and_how_large() -> None:
    cache.entry("jars", ["pom"], build=writes("12345"))
    loses_its_mark(cache.entry("broken", ["pom"], build=writes("1")))
    assert [(entry.name, entry.files, entry.total_bytes) for entry in cache.entries()] == [
        ("jars", 1, 5)
    ]


# --- directories of runs --------------------------------------------------------------------------
# A run leaves nothing behind. The next run removes what a killed one left, and never touches a
# running one.


def interrupted_run(undo: list[list[str]]) -> Path:
    """A run whose owner had this process's pid but started at another time, so that the pid was
    reused since.
    """
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


def test_two_runs_never_share_an_id(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter(["aaaa", "aaaa", "bbbb", "cccc"])
    monkeypatch.setattr(cache.secrets, "token_hex", lambda _: next(drawn))
    with RunDirectory() as one, RunDirectory() as other:
        (cache.runs_root() / ".cccc").mkdir()  # one that begins at this moment
        assert (one.lab_id, other.lab_id) == ("aaaa", "bbbb")
        drawn = iter(["cccc", "dddd"])
        with RunDirectory() as third:
            assert third.lab_id == "dddd"
        assert (one.path / "owner.json").exists()


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
