"""The lab's JVMs start from recorded classes wherever Java can do that, and start anyway where it cannot."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from lab import cache, zookeeper
from lab.kafka import MAIN_CLASS as BROKER_MAIN_CLASS
from lab.kafka import KafkaLab, record_archives
from lab.packages import kafka_jars
from lab.process import Process

pytestmark = pytest.mark.integration


def java_can_share_classes() -> bool:
    """Whether this machine's Java has an archive of its own classes, on which every other one builds."""
    return subprocess.run(["java", "-Xshare:on", "-version"], capture_output=True, check=False).returncode == 0


def has_mapped_its_archive(process: Process, main_class: str) -> bool:
    """Whether the JVM uses the archive: one that refuses it does not keep it mapped."""
    return f"/{main_class}.jsa" in Path(f"/proc/{process.pid}/maps").read_text()


def test_zookeeper_and_every_broker_start_from_what_was_recorded(kafka: KafkaLab) -> None:
    parts = {zookeeper.MAIN_CLASS: [kafka.zookeeper.process], BROKER_MAIN_CLASS: [each.process for each in kafka.brokers]}
    mapped = [has_mapped_its_archive(process, main_class) for main_class, processes in parts.items() for process in processes]
    assert mapped == [java_can_share_classes()] * 4, "`python -m lab prepare` records the archives"


def test_a_java_that_cannot_record_costs_a_line_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    jars = kafka_jars()
    java = tmp_path / "java"
    java.write_text("""#!/bin/sh\ntest "$1" = -version && echo 'openjdk version "17" (broken)' >&2\n""")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    before = cache.entries()
    record_archives(jars)
    assert "class-archive: " in capsys.readouterr().err
    assert cache.entries() == before
