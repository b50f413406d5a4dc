"""Rollups that are struck at random moments: what is published is whole after each blow, and right once a run completes.

`python -m bench.rollup.kills --seed 7 --blows 100`: a failing seed plans the same blows again; when exactly they fall is up to the machine.
Two brokers, three hours up to midnight, on a Prometheus of its own; rows are compared with those of a run that nobody disturbed.
"""

import argparse
import shutil
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from bench.kill_plan import Blow, Kind, plan
from bench.kill_targets import Targets
from bench.results import Figure
from bench.rollup.estate import Estate
from bench.rollup_prometheus import HistoryPrometheus
from bench.small_disk import SmallDisk, can_mount
from bench.spark_class_archive import java_options
from bench.store_comparison import Rows, differences, published
from lab import process
from lab.cache import RunDirectory
from lab.process import Process
from tidegate.rollup.schemas import DAY_MS, HOUR_MS
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.tables.verify import verify

SEED, BLOWS = 1, 100
_HOURS = 3
_MIDNIGHT_MS = 20_602 * DAY_MS
ESTATE = Estate(_MIDNIGHT_MS - _HOURS * HOUR_MS, hours=_HOURS, brokers=2, clients=20)
_RUN_TIMEOUT_SECONDS = 300.0
_LOOK_SECONDS = 0.02


@dataclass(slots=True)
class Outcome:
    """What came of all blows. `broken` and `wrong` name each blow after which something was, with what was found."""

    struck: dict[Kind, int] = field(default_factory=dict)
    completed: int = 0
    broken: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def hits(self) -> int:
        return sum(self.struck.values())


class Siege:
    """The parts that runs need, and what an undisturbed one makes of them."""

    def __init__(self, prometheus: HistoryPrometheus, folder: Path, disk: SmallDisk | None) -> None:
        self._prometheus = prometheus
        self._folder = folder
        self._disk = disk
        self._store = (disk.path if disk else folder) / "store"
        self._numbers = 0
        self._java = java_options(folder / "spark.jsa", self._argv(folder / "first"))
        self._early_seconds, self._late_seconds, self._expected = self._reference()

    def strike(self, blow: Blow, outcome: Outcome, *, afresh: bool) -> bool:
        """One run and its blow; adds what was found to the outcome. Whether the run completed all the same."""
        if afresh:
            shutil.rmtree(self._store, ignore_errors=True)
        with self._run(self._store) as run:
            targets = Targets(run, self._prometheus, self._disk)
            if self._moment_came(run, blow) and targets.strike(blow):
                outcome.struck[blow.kind] = outcome.struck.get(blow.kind, 0) + 1
            run.wait(_RUN_TIMEOUT_SECONDS)
            targets.recover()
            completed = run.exit_code == 0
        outcome.completed += completed
        self._judge(str(blow), outcome, completed=completed)
        return completed

    def finish(self, outcome: Outcome) -> None:
        """A last run that nobody disturbs, on what the others left."""
        with self._run(self._store) as run:
            run.expect_success(_RUN_TIMEOUT_SECONDS)
        self._judge("an undisturbed run after all of them", outcome, completed=True)

    def _judge(self, what: str, outcome: Outcome, *, completed: bool) -> None:
        store = UsageStore.at(f"file://{self._store}")
        verdict = verify(store)
        if not verdict.is_sound or (completed and not verdict.is_whole):
            outcome.broken.append(f"{what}: {[*verdict.broken, *verdict.gaps, *verdict.outdated][:3]}")
            return
        if found := differences(self._expected, published(store), whole=completed):
            outcome.wrong.append(f"{what}: {found[:3]}")

    def _moment_came(self, run: Process, blow: Blow) -> bool:
        """Wait for the blow's moment; False when the run ended before."""
        until = time.monotonic() + blow.moment * self._early_seconds
        if not blow.early:
            if not self._wrote(run, self._store):
                return False
            until = time.monotonic() + blow.moment * self._late_seconds
        while run.is_running() and time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)
        return run.is_running()

    @staticmethod
    def _wrote(run: Process, store: Path) -> bool:
        """Wait until the run stages its first file; False when it ended before."""
        before = set((store / "_staging").glob("*"))
        while run.is_running():
            if set((store / "_staging").glob("*")) - before:
                return True
            time.sleep(_LOOK_SECONDS)
        return False

    def _reference(self) -> tuple[float, float, Rows]:
        folder, started = self._folder / "reference", time.monotonic()
        with self._run(folder) as run:
            if not self._wrote(run, folder):
                raise RuntimeError(f"an undisturbed run wrote nothing\n{run.log_tail()}")
            early = time.monotonic() - started
            run.expect_success(_RUN_TIMEOUT_SECONDS)
        return early, time.monotonic() - started - early, published(UsageStore.at(f"file://{folder}"))

    def _run(self, folder: Path) -> Process:
        self._numbers += 1
        log_path = self._folder / "logs" / f"run-{self._numbers}.log"
        return process.start("rollup", self._argv(folder), log_path=log_path, environment=self._java, niceness=0)

    def _argv(self, folder: Path) -> list[str]:
        start, end = (datetime.fromtimestamp(at_ms / 1000, UTC).isoformat() for at_ms in (ESTATE.start_ms, ESTATE.end_ms))
        argv = [sys.executable, "-m", "tidegate", "rollup", "run", "--prometheus", self._prometheus.url]
        return [*argv, "--from", start, "--to", end, "--out", str(folder)]


def besieged(seed: int, blows: int) -> Outcome:
    """Strike as planned and say what came of it."""
    outcome, completed = Outcome(), True
    with ExitStack() as stack:
        run = stack.enter_context(RunDirectory())
        (run.path / "prometheus").mkdir()
        prometheus = stack.enter_context(HistoryPrometheus(run.path / "prometheus"))
        prometheus.write(ESTATE.series())
        disk = stack.enter_context(SmallDisk(run)) if can_mount() else None
        siege = Siege(prometheus, run.path, disk)
        for number, blow in enumerate(plan(seed, blows, _kinds(disk)), 1):
            completed = siege.strike(blow, outcome, afresh=completed and blow.afresh)
            print(f"{number} of {blows}: {blow}: {'completed' if completed else 'ended'}", file=sys.stderr, flush=True)
        siege.finish(outcome)
    return outcome


def _kinds(disk: SmallDisk | None) -> tuple[Kind, ...]:
    return tuple(kind for kind in Kind if disk is not None or kind is not Kind.STORAGE)


def kill_figures(seed: int = SEED, blows: int = BLOWS) -> list[Figure]:
    """How many stores were broken, and how many held something wrong: none, each."""
    outcome = besieged(seed, blows)
    for one in (*outcome.broken, *outcome.wrong):
        print(one, file=sys.stderr)
    struck = ", ".join(f"{count} x {kind}" for kind, count in sorted(outcome.struck.items()))
    what = f"{outcome.hits} rollups struck at random moments"
    note = f"seed {seed}; {struck}; {outcome.completed} runs completed all the same or in spite of it"
    return [
        Figure(f"{what}: stores that `rollup verify` finds broken afterwards", len(outcome.broken), "stores", 0, note),
        Figure(
            f"{what}: stores with a row that an undisturbed run does not have, or without one that it has", len(outcome.wrong), "stores", 0
        ),
    ]


def main() -> int:
    """Print the figures; 1 when a store was broken or wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench.rollup.kills")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--blows", type=int, default=BLOWS)
    asked = parser.parse_args()
    figures = kill_figures(asked.seed, asked.blows)
    for figure in figures:
        print(figure.row())
    return int(not all(figure.kept for figure in figures))


if __name__ == "__main__":
    raise SystemExit(main())
