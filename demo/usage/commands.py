"""The commands that the demo ends with, each as a user would type it in a clone, and one carried out. It judges nothing."""

import os
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from demo.declared import EXAMPLES
from demo.estate import AUDIT_TRAIL
from demo.tide.declared import RESOURCES
from demo.tide.script import SCRAPE_SECONDS
from lab import process
from lab.errors import LabError

TABLES, REPORT = "usage-tables", "usage"
_TIERS_OF_EXPERIMENT_1 = EXAMPLES / "10-tiers.yaml"
_LONGEST_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Done:
    """One command: its words, its exit code (None = it was still running after ten minutes), how long it took, what it said."""

    words: str
    exit_code: int | None
    seconds: float
    said: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UsageCommands:
    """Arguments after `tidegate`. `start_seconds` is before the first byte, `end_seconds` the end of the last window that is over.

    `has_cards`: each broker has a NIC of its own, with an exporter.
    """

    prometheus_url: str
    output: Path
    start_seconds: float
    end_seconds: float
    has_nics: bool

    @property
    def roll_up(self) -> list[str]:
        server = ["--prometheus", self.prometheus_url, "--preset", "NodeExporter" if self.has_nics else "JmxExporter"]
        scraped = ["--scrape-interval-seconds", str(SCRAPE_SECONDS)]
        tables = ["--out", str(self.output / TABLES)]
        return ["rollup", "run", *server, *scraped, "--from", time_words(self.start_seconds), "--running", *self._declared, *tables]

    @property
    def verify(self) -> list[str]:
        return ["rollup", "verify", "--store", str(self.output / TABLES)]

    @property
    def report(self) -> list[str]:
        """Reports are of whole hours, so this one is until the end of the hour under way."""
        until = time_words(self.end_seconds + -self.end_seconds % 3600)
        period = ["--from", time_words(self.start_seconds), "--to", until]
        return ["report", "--store", str(self.output / TABLES), *period, *self._declared, "--out", str(self.output / REPORT)]

    @property
    def _declared(self) -> list[str]:
        trail = ["--audit-file", str(self.output / AUDIT_TRAIL)]
        return [*trail, *(word for file in (_TIERS_OF_EXPERIMENT_1, RESOURCES) for word in ("-f", os.path.relpath(file)))]


def time_words(at_seconds: float) -> str:
    """`2026-11-21T11:00:00Z`."""
    return datetime.fromtimestamp(int(at_seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def words_of(arguments: Sequence[str]) -> str:
    """The command as it is typed."""
    return shlex.join(["tidegate", *arguments])


def carry_out(arguments: Sequence[str], directory: Path) -> Done:
    """Run one to its end with this interpreter; its log goes to `directory`. An interrupted one is ended."""
    started = time.monotonic()
    log = directory / f"{arguments[0]}-{arguments[1].strip('-')}.log"
    with process.start("tidegate", [sys.executable, "-m", "tidegate", *arguments], log_path=log) as running:
        try:
            code: int | None = running.wait(_LONGEST_SECONDS)
        except LabError:
            code = None
    said = tuple(log.read_text(encoding="utf-8", errors="replace").splitlines())
    return Done(words_of(arguments), code, time.monotonic() - started, said)
