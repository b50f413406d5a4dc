"""Rollups that are struck at random moments.

What is published is whole after each blow, and right once a run completes. `python -m
bench.rollup.kills --seed 7 --blows 100`: a failing seed plans the same blows again; when exactly
they fall, and which of them come too late, is up to the machine. Two brokers, three hours up to
midnight, on a Prometheus of its own; rows are compared with those of an undisturbed run.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Self

import numpy as np
import psutil
import pyarrow as pa

from bench.results import Figure
from bench.rollup.synthetic import HistoryPrometheus, SyntheticCluster
from lab import process
from lab.cache import RunDirectory
from lab.process import Process, wait_until
from tidegate.rollup.schemas import DAY_MS, HOUR_MS, TABLES
from tidegate.rollup.spark.session import WORKER_DAEMON
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.tables.verify import verify

_EARLY_SHARE = 0.3  # of all blows come before the first rows are written
_LONGEST_SECONDS = 4.0


class Kind(StrEnum):
    """Who is struck."""

    DRIVER = "the driver's process"
    ENGINE = "Spark's Java machine"
    WORKER = "a Python worker of Spark"
    STORAGE = "the storage, which is full"
    PROMETHEUS = "Prometheus"


@dataclass(frozen=True, slots=True)
class Blow:
    """What befalls one run, and when.

    `moment` is a share (0..1) of the time until the first rows are written (`early`), or of the
    time from then to the end. What can come back (storage, Prometheus) does after `lasts_seconds`;
    `pick` chooses among several of a kind.
    """

    kind: Kind
    early: bool
    moment: float
    lasts_seconds: float
    pick: float
    afresh: bool

    def __str__(self) -> str:
        when = "before the first rows" if self.early else "after the first rows"
        return f"{self.kind}, at {100 * self.moment:.0f} % of the time {when}"


def plan(seed: int, blows: int, kinds: tuple[Kind, ...] = tuple(Kind)) -> list[Blow]:
    """The blows of a seed; `afresh` = a run after a completed one begins with an empty store."""
    chance = random.Random(seed)
    return [
        Blow(
            kind=kinds[number % len(kinds)],
            early=chance.random() < _EARLY_SHARE,
            moment=chance.random(),
            lasts_seconds=chance.uniform(0.1, _LONGEST_SECONDS),
            pick=chance.random(),
            afresh=chance.random() < 0.5,
        )
        for number in range(blows)
    ]


# A disk of a few megabytes that can be filled to its last byte and emptied again: a tmpfs, which
# only root may mount.


_MEGABYTES = 64
_PIECE_BYTES = 65_536


def can_mount() -> bool:
    """Whether this user may make one."""
    return os.geteuid() == 0 and shutil.which("mount") is not None


class SmallDisk:
    """Mounted while it is entered, at `path`."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self.path = run.path / "disk"

    def __enter__(self) -> Self:
        self.path.mkdir()
        self._run.record_undo(["umount", "--lazy", str(self.path)])
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={_MEGABYTES}m", "tmpfs", str(self.path)],
            check=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "--lazy", str(self.path)], check=False)

    def fill(self) -> None:
        """Leave not a byte to others."""
        with self._ballast.open("wb", buffering=0) as ballast, suppress(OSError):
            while True:
                ballast.write(bytes(_PIECE_BYTES))

    def free(self) -> None:
        """Remove what `fill` wrote."""
        self._ballast.unlink(missing_ok=True)

    @property
    def _ballast(self) -> Path:
        return self.path / "ballast"


_LOOK_SECONDS = 0.02


class Targets:
    """What can be struck while this run is under way."""

    def __init__(self, run: Process, prometheus: HistoryPrometheus, disk: SmallDisk | None) -> None:
        self._run = run
        self._prometheus = prometheus
        self._disk = disk
        self._recovery: threading.Thread | None = None

    def strike(self, blow: Blow) -> bool:
        """False when the run ended before there was anything to strike."""
        match blow.kind:
            case Kind.DRIVER:
                return _killed(self._run.pid)
            case Kind.ENGINE | Kind.WORKER:
                return self._strike_process(blow)
            case Kind.STORAGE | Kind.PROMETHEUS:
                self._break(blow.kind)
                self._recovery = threading.Thread(target=self._recover, args=(blow,))
                self._recovery.start()
                return True

    def recover(self) -> None:
        """Return when what was away is back."""
        if self._recovery is not None:
            self._recovery.join()

    def _strike_process(self, blow: Blow) -> bool:
        while self._run.is_running():
            found = self._processes(blow.kind)
            if found:
                return _killed(found[int(blow.pick * len(found))])
            time.sleep(_LOOK_SECONDS)
        return False

    def _processes(self, kind: Kind) -> list[int]:
        found = []
        with suppress(psutil.NoSuchProcess):
            for one in psutil.Process(self._run.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    words = one.cmdline()
                    is_wanted = (
                        WORKER_DAEMON in words
                        if kind is Kind.WORKER
                        else words[:1] == ["java"] or "/java" in "".join(words[:1])
                    )
                    found += [one.pid] if is_wanted else []
        return sorted(found)

    def _break(self, kind: Kind) -> None:
        if kind is Kind.PROMETHEUS:
            self._prometheus.process.kill()
        elif self._disk is not None:
            self._disk.fill()

    def _recover(self, blow: Blow) -> None:
        time.sleep(blow.lasts_seconds)
        if blow.kind is Kind.PROMETHEUS:
            self._prometheus.restart()
        elif self._disk is not None:
            self._disk.free()


def _killed(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False


_QUICK = "-XX:TieredStopAtLevel=1 -Xshare:auto -Xlog:disable -Xlog:all=off"
_LEAST_BYTES = 10_000_000  # Spark's launcher is a Java machine, too, and writes a small one before
_TIMEOUT_SECONDS = 300


def java_options(archive: Path, argv: Sequence[str]) -> Mapping[str, str]:
    """The environment for whatever starts Spark from now on.

    `argv` starts it once, and its classes are written when it ends.
    """
    written = {"JAVA_TOOL_OPTIONS": f"-XX:ArchiveClassesAtExit={archive} {_QUICK}"}
    subprocess.run(
        argv,
        check=True,
        capture_output=True,
        timeout=_TIMEOUT_SECONDS,
        env={**os.environ, **written},
    )
    wait_until(
        lambda: archive.exists() and archive.stat().st_size > _LEAST_BYTES,
        "the class archive",
        timeout_seconds=60,
    )
    return {"JAVA_TOOL_OPTIONS": f"-XX:SharedArchiveFile={archive} {_QUICK}"}


Rows = Mapping[tuple[str, str], pa.Table]  # by table and window

_UNCOMPARED = (
    "sketch",
    # the percentiles beside it are of the same values
)
_CLOSE = 1e-12  # seconds and shares are added up in any order


def published(store: UsageStore) -> Rows:
    """Everything that is published, sorted."""
    return {
        (name, window.name): _sorted(store.rows(name, window.start_ms, window.end_ms), kind.key)
        for name, kind in TABLES.items()
        for window in store.windows(name)
    }


def differences(expected: Rows, found: Rows, *, whole: bool) -> list[str]:
    """What is wrong with `found`; without `whole` windows may be missing from it."""
    differences = [
        f"{table} {window} should not be there" for table, window in found.keys() - expected.keys()
    ]
    if whole:
        differences += [
            f"{table} {window} is missing" for table, window in expected.keys() - found.keys()
        ]
    for table, window in sorted(expected.keys() & found.keys()):
        columns = _different(expected[table, window], found[table, window])
        differences += [f"{table} {window} differs in {', '.join(columns)}"] if columns else []
    return differences


def _sorted(rows: pa.Table, key: tuple[str, ...]) -> pa.Table:
    kept = [name for name in rows.schema.names if name not in _UNCOMPARED]
    return rows.select(kept).sort_by([(name, "ascending") for name in key]).combine_chunks()


def _different(expected: pa.Table, found: pa.Table) -> list[str]:
    if expected.num_rows != found.num_rows:
        return [f"rows: {found.num_rows} where {expected.num_rows} belong"]
    return [
        field.name
        for field in expected.schema
        if not _are_equal(expected[field.name], found[field.name])
    ]


def _are_equal(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    if one.equals(other):
        return True
    if not pa.types.is_floating(one.type):
        return False
    return bool(np.allclose(one.to_numpy(), other.to_numpy(), rtol=_CLOSE, atol=0, equal_nan=True))


SEED, BLOWS = 1, 100
_HOURS = 3
_MIDNIGHT_MS = 20_602 * DAY_MS
CLUSTER = SyntheticCluster(_MIDNIGHT_MS - _HOURS * HOUR_MS, hours=_HOURS, brokers=2, clients=20)
_RUN_TIMEOUT_SECONDS = 300.0


@dataclass(slots=True)
class Outcome:
    """What came of all blows.

    `broken` and `wrong` name each blow after which something was, with what was found.
    """

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
        self._java = java_options(
            folder / "spark.jsa", CLUSTER.rollup_argv(prometheus.url, folder / "first")
        )
        self._early_seconds, self._late_seconds, self._expected = self._reference()

    def strike(self, blow: Blow, outcome: Outcome, *, afresh: bool) -> bool:
        """Strike one run, note what was found; return whether it completed all the same."""
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
        """A last, undisturbed run, on what the others left."""
        with self._run(self._store) as run:
            run.expect_success(_RUN_TIMEOUT_SECONDS)
        self._judge("an undisturbed run after all of them", outcome, completed=True)

    def _judge(self, what: str, outcome: Outcome, *, completed: bool) -> None:
        store = UsageStore.at(f"file://{self._store}")
        verdict = verify(store)
        if not verdict.is_sound or (completed and not verdict.is_whole):
            outcome.broken.append(
                f"{what}: {[*verdict.broken, *verdict.gaps, *verdict.outdated][:3]}"
            )
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
        return (
            early,
            time.monotonic() - started - early,
            published(UsageStore.at(f"file://{folder}")),
        )

    def _run(self, folder: Path) -> Process:
        self._numbers += 1
        log_path = self._folder / "logs" / f"run-{self._numbers}.log"
        argv = CLUSTER.rollup_argv(self._prometheus.url, folder)
        return process.start("rollup", argv, log_path=log_path, environment=self._java, niceness=0)


def besieged(seed: int, blows: int) -> Outcome:
    """Strike as planned until `blows` have fallen, and say what came of it.

    A run that goes on where another was struck may end before its blow; twice as many are planned.
    """
    outcome, completed = Outcome(), True
    with ExitStack() as stack:
        run = stack.enter_context(RunDirectory())
        (run.path / "prometheus").mkdir()
        prometheus = stack.enter_context(HistoryPrometheus(run.path / "prometheus"))
        prometheus.write(CLUSTER.series())
        disk = stack.enter_context(SmallDisk(run)) if can_mount() else None
        siege = Siege(prometheus, run.path, disk)
        for number, blow in enumerate(plan(seed, 2 * blows, _kinds(disk)), 1):
            if outcome.hits == blows:
                break
            completed = siege.strike(blow, outcome, afresh=completed and blow.afresh)
            end = "completed" if completed else "ended"
            print(
                f"run {number}, {outcome.hits} of {blows} struck: {blow}: {end}",
                file=sys.stderr,
                flush=True,
            )
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
    note = (
        f"seed {seed}; {struck}; {outcome.completed} runs completed all the same or in spite of it"
    )
    return [
        Figure(
            f"{what}: stores that `rollup verify` finds broken afterwards",
            len(outcome.broken),
            "stores",
            0,
            note,
        ),
        Figure(
            f"{what}: stores with a row that an undisturbed run does not have, or without one "
            f"that it has",
            len(outcome.wrong),
            "stores",
            0,
        ),
    ]
