"""Audit lines are appended in order, and a disk that fails costs lines and nothing else."""

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest
import structlog.testing

from lab.process import patience, wait_until
from tidegate.commands.audit import line_words
from tidegate.control.audit.lines import Wanted, read_lines
from tidegate.control.audit.sink import AuditFile, AuditQueue, sink_at


class Counts(dict[str, int]):
    def __call__(self, result: str, lines: int) -> None:
        self[result] = self.get(result, 0) + lines


class Full:
    """A full disk, until the test makes room."""

    def __init__(self) -> None:
        self.has_room = False
        self.text = ""

    def append(self, text: str) -> None:
        if not self.has_room:
            raise OSError(28, "No space left on device")
        self.text += text

    def close(self) -> None:
        """Nothing to close: the text stays for the test."""


@pytest.fixture
def open_file() -> Iterator[Callable[[Path], AuditFile]]:
    """Opens audit files, and closes them after the test."""
    with ExitStack() as stack:
        yield lambda path: stack.enter_context(closing(AuditFile(str(path))))


def test_what_is_there_already_stays(
    tmp_path: Path, open_file: Callable[[Path], AuditFile]
) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_text("before\n")
    open_file(path).append("one\n")
    open_file(path).append("two\n")
    assert path.read_text() == "before\none\ntwo\n"


def test_after_a_line_that_was_torn_by_a_crash_a_new_one_begins(
    tmp_path: Path, open_file: Callable[[Path], AuditFile]
) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_text('{"kind":"wri')
    open_file(path).append("one\n")
    assert path.read_text() == '{"kind":"wri\none\n'


def test_a_file_that_was_rotated_away_is_opened_anew(
    tmp_path: Path, open_file: Callable[[Path], AuditFile]
) -> None:
    path = tmp_path / "audit.jsonl"
    sink = open_file(path)
    sink.append("one\n")
    path.rename(tmp_path / "audit.jsonl.1")
    sink.append("two\n")
    assert (path.read_text(), (tmp_path / "audit.jsonl.1").read_text()) == ("two\n", "one\n")


def test_a_file_that_was_copied_and_cut_short_begins_anew_without_a_hole(
    tmp_path: Path, open_file: Callable[[Path], AuditFile]
) -> None:
    path = tmp_path / "audit.jsonl"
    sink = open_file(path)
    sink.append("one\n")
    os.truncate(path, 0)
    sink.append("two\n")
    assert path.read_text() == "two\n"


def test_a_named_pipe_is_written_to_as_well(
    tmp_path: Path, open_file: Callable[[Path], AuditFile]
) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    sink = open_file(path)
    sink.append("one\n")
    sink.append("two\n")
    assert os.read(reader, 100) == b"one\ntwo\n"
    os.close(reader)


def test_no_other_user_of_the_machine_may_read_the_file(
    tmp_path: Path, open_file: Callable[[Path], AuditFile]
) -> None:
    path = tmp_path / "audit.jsonl"
    open_file(path).append("one\n")
    assert path.stat().st_mode & 0o007 == 0


def test_a_dash_is_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    sink_at("-").append("one\n")
    assert capfd.readouterr().out == "one\n"


def test_a_full_disk_costs_lines_is_logged_once_and_is_tried_again() -> None:
    disk, counts = Full(), Counts()
    desk = AuditQueue(disk, "/audit", count=counts, beside=False)
    with structlog.testing.capture_logs() as logged:
        desk.put(lambda: ["one", "two"])
        desk.put(lambda: ["three"])
        disk.has_room = True
        desk.put(lambda: ["four"])
        desk.put(lambda: ["five"])
    gap, *lines = disk.text.splitlines()
    assert lines == ["four", "five"]
    assert json.loads(gap).items() >= {"event": "Audit", "kind": "lost", "lines": 3}.items()
    assert counts == {"lost": 3, "written": 2}
    assert [entry["log_level"] for entry in logged] == ["warning", "info"]
    assert "No space left on device" in logged[0]["error"]


def test_each_gap_is_told_once_and_read_with_every_filter(tmp_path: Path) -> None:
    disk = Full()
    desk = AuditQueue(disk, "/audit", count=Counts(), beside=False)
    for lost in (2, 1):
        disk.has_room = False
        desk.put(lambda lost=lost: ["gone"] * lost)  # type: ignore[misc]
        disk.has_room = True
        desk.put(lambda: ["back"])
        desk.put(lambda: ["goes on"])
    texts = disk.text.splitlines(keepends=True)
    assert [json.loads(texts[place])["lines"] for place in (0, 3)] == [2, 1]
    assert len(texts) == 6
    for wanted in (Wanted(), Wanted(policy="a/b"), Wanted(entity="etl"), Wanted(pass_id="x")):
        found = read_lines(texts, wanted).lines
        assert [line["lines"] for line in found] == [2, 1]
        assert "2 lines are missing before this one" in line_words(found[0])
    assert read_lines(texts, Wanted(kinds=frozenset({"write"}))).lines == []
    assert len(read_lines(texts, Wanted(kinds=frozenset({"lost"}))).lines) == 2


def test_a_gap_at_the_end_is_told_by_closing_where_there_is_room() -> None:
    kept, counts = Full(), Counts()
    desk = AuditQueue(kept, "/audit", count=counts)
    desk.put(lambda: ["gone"])
    wait_until(lambda: counts.get("lost") == 1, "the loss", timeout_seconds=20)
    kept.has_room = True
    desk.close()
    assert json.loads(kept.text)["lines"] == 1


def test_a_folder_that_does_not_exist_costs_lines_and_nothing_else(tmp_path: Path) -> None:
    counts = Counts()
    AuditQueue(
        AuditFile(str(tmp_path / "nowhere" / "audit.jsonl")), "/audit", count=counts, beside=False
    ).put(lambda: ["one"])
    assert counts == {"lost": 1}


def test_closing_delivers_what_waits(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    desk = AuditQueue(AuditFile(str(path)), str(path), count=Counts())
    for place in range(100):
        desk.put(partial(list, [f"line {place}"]))
    desk.close()
    assert path.read_text().splitlines() == [f"line {place}" for place in range(100)]


class Stuck:
    """A disk that hangs until it is released."""

    def __init__(self) -> None:
        self.gate = threading.Event()

    def append(self, text: str) -> None:
        assert self.gate.wait(patience(30))

    def close(self) -> None:
        """Nothing is open."""


def test_a_disk_that_hangs_delays_no_pass() -> None:
    disk, counts = Stuck(), Counts()
    desk = AuditQueue(disk, "/audit", count=counts)
    for _ in range(200):
        desk.put(lambda: ["one"])
    assert counts["lost"] >= 99
    disk.gate.set()
    desk.close()
    assert counts["written"] + counts["lost"] == 200
