"""A JVM starts from the class archive of its own program, jars and Java, or from none."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lab import java

PROGRAM = "kafka.Kafka"


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    directory = tmp_path / "jars"
    directory.mkdir()
    for name in ("kafka.jar", "agent.jar", "zookeeper.jar"):
        (directory / name).write_text(name)
    return directory


@pytest.fixture
def recorded(jars: Path) -> Path:
    """The jars for which PROGRAM was recorded."""
    java.entry(
        jars, record=lambda content: java.place(PROGRAM, content).write_text("classes") and None
    )
    return jars


def prints_version(java: Path, version: str) -> None:
    java.parent.mkdir(exist_ok=True)
    java.write_text(f"#!/bin/sh\necho '{version}' >&2\n")
    java.chmod(0o755)


def test_the_class_path_has_all_jars_in_one_order(jars: Path) -> None:
    (jars / "notes.txt").write_text("not a jar")
    assert java.class_path(jars) == f"{jars}/agent.jar:{jars}/kafka.jar:{jars}/zookeeper.jar"


def test_where_nothing_was_recorded_a_start_has_no_option_more(jars: Path) -> None:
    assert java.sharing_options(PROGRAM, jars) == []


def test_a_recorded_program_starts_from_its_archive(recorded: Path) -> None:
    archive = java.find(PROGRAM, recorded)
    assert archive is not None
    assert archive.read_text() == "classes"
    assert f"-XX:SharedArchiveFile={archive}" in java.sharing_options(PROGRAM, recorded)


def test_a_program_that_was_not_recorded_starts_as_everywhere(recorded: Path) -> None:
    assert java.sharing_options("kafka.admin.ConfigCommand", recorded) == []


def is_touched(jars: Path) -> None:
    os.utime(jars / "kafka.jar", (1, 1))


def grows(jars: Path) -> None:
    stat = (jars / "kafka.jar").stat()
    (jars / "kafka.jar").write_text("more than before")
    os.utime(jars / "kafka.jar", ns=(stat.st_atime_ns, stat.st_mtime_ns))


def gets_company(jars: Path) -> None:
    (jars / "further.jar").touch()


@pytest.mark.parametrize("changes", [is_touched, grows, gets_company])
def test_an_archive_of_other_jars_is_not_offered(
    recorded: Path, changes: Callable[[Path], None]
) -> None:
    changes(recorded)
    assert java.find(PROGRAM, recorded) is None


def test_an_archive_of_another_java_is_not_offered(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prints_version(tmp_path / "other" / "java", 'openjdk version "99"')
    monkeypatch.setenv("PATH", f"{tmp_path / 'other'}:{os.environ['PATH']}")
    assert java.find(PROGRAM, recorded) is None


def test_no_java_is_no_archive_and_no_error(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    assert java.find(PROGRAM, recorded) is None
