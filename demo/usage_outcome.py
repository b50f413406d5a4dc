"""What the demo's usage came to: commands, tables, witnesses, and the bounds between them."""

import os
import shlex
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from demo.episode import Playing, ThrottlingOutcome
from demo.parts import AUDIT_TRAIL, EXAMPLES, RESOURCES
from demo.script import BUSINESSES, LOWERED, SCRAPE_SECONDS
from demo.words import Check, exact_check, within
from lab import process
from lab.errors import LabError
from lab.prometheus import PrometheusLab
from lab.rates import SAWTOOTH_SECONDS

# What an episode held back from a business, by the quotas that stood in Kafka and what its
# client got before the first of them.
#
# The tables count against the rate just before the first cut, too: what was promised beyond it was
# not wanted.


def held_back_by_quotas(episode: Playing, level: str) -> float:
    """Bytes by which the quotas in force were below the rate before the first of them.

    0 for a business that was never cut.
    """
    cuts = episode.written(level)
    if not cuts:
        return 0.0
    before = rate_before(episode, level)
    steps = [step for step in episode.writes_of(level) if step.at_seconds >= cuts[0].at_seconds]
    ends = [*(step.at_seconds for step in steps[1:]), episode.ended_seconds]
    return sum(
        max(0.0, before - (step.after or before)) * (end - step.at_seconds)
        for step, end in zip(steps, ends, strict=True)
    )


def rate_before(episode: Playing, level: str) -> float:
    """What arrived, in bytes per second, in the twelve seconds before the first cut."""
    first = episode.written(level)[0].at_seconds
    return episode.moved_by(level).mean(first - SAWTOOTH_SECONDS, SAWTOOTH_SECONDS)


TABLES, REPORT = "usage-tables", "usage"
_TIERS_OF_EXPERIMENT_1 = EXAMPLES / "10-tiers.yaml"
_LONGEST_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Done:
    """One command: its words, its exit code, how long it took, what it said.

    `exit_code` None = it was still running after ten minutes.
    """

    words: str
    exit_code: int | None
    seconds: float
    said: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UsageCommands:
    """Arguments after `tidegate`.

    `start_seconds` is before the first byte, `end_seconds` the end of the last window that is over.
    `has_nics`: each broker has a NIC of its own, with an exporter.
    """

    prometheus_url: str
    output: Path
    start_seconds: float
    end_seconds: float
    has_nics: bool

    @property
    def roll_up(self) -> list[str]:
        preset = "NodeExporter" if self.has_nics else "JmxExporter"
        return shlex.split(
            f"rollup run --prometheus {self.prometheus_url} --preset {preset} "
            f"--scrape-interval-seconds {SCRAPE_SECONDS} --from {time_words(self.start_seconds)} "
            f"--running {self._declared} --out {self.output / TABLES}"
        )

    @property
    def verify(self) -> list[str]:
        return shlex.split(f"rollup verify --store {self.output / TABLES}")

    @property
    def report(self) -> list[str]:
        """Reports are of whole hours, so this one is until the end of the hour under way."""
        until = time_words(self.end_seconds + -self.end_seconds % 3600)
        return shlex.split(
            f"report --store {self.output / TABLES} --from {time_words(self.start_seconds)} "
            f"--to {until} {self._declared} --out {self.output / REPORT}"
        )

    @property
    def _declared(self) -> str:
        files = [os.path.relpath(file) for file in (_TIERS_OF_EXPERIMENT_1, RESOURCES)]
        return shlex.join(
            ["--audit-file", f"{self.output / AUDIT_TRAIL}", "-f", files[0], "-f", files[1]]
        )


def time_words(at_seconds: float) -> str:
    """`2026-11-21T11:00:00Z`."""
    return datetime.fromtimestamp(int(at_seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def words_of(arguments: Sequence[str]) -> str:
    """The command as it is typed."""
    return shlex.join(["tidegate", *arguments])


def carry_out(arguments: Sequence[str], directory: Path) -> Done:
    """Run one command to its end with this interpreter; its log goes to `directory`.

    An interrupted one is ended.
    """
    started = time.monotonic()
    log = directory / f"{arguments[0]}-{arguments[1].strip('-')}.log"
    with process.start(
        "tidegate", [sys.executable, "-m", "tidegate", *arguments], log_path=log
    ) as running:
        try:
            code: int | None = running.wait(_LONGEST_SECONDS)
        except LabError:
            code = None
    said = tuple(log.read_text(encoding="utf-8", errors="replace").splitlines())
    return Done(words_of(arguments), code, time.monotonic() - started, said)


Way = tuple[int, str]  # broker, direction


@dataclass(frozen=True, slots=True)
class UserUsage:
    """One user in one direction over all brokers; `tier` is namespace/name, "" = in none."""

    tier: str
    user: str
    direction: str
    moved_bytes: int
    held_back_bytes: int


@dataclass(frozen=True, slots=True)
class StoredUsage:
    """Everything in the store, until `end_ms`, in milliseconds since the epoch.

    `by_broker` are bytes of all clients.
    """

    end_ms: int
    by_broker: Mapping[Way, int]
    users: tuple[UserUsage, ...]

    def user(self, user: str, direction: str) -> UserUsage | None:
        """None for who is not in the tables."""
        return next(
            (one for one in self.users if (one.user, one.direction) == (user, direction)), None
        )


# The brokers' own counters, sample by sample: the witness against which tables are held to the
# byte.
#
# It shares no code with the rollups. A byte between two samples belongs to the time between them;
# at the end of the last window it is shared out by time, in whole bytes. The run's brokers are as
# old as the run, so what a first sample shows was moved in it: producers may be faster than the
# first scrape. Without the time at which a broker's process started nobody can know that, and then
# the tables count from the first sample on.


# As Kafka sees it: a client that writes sends bytes in.
COUNTERS = {"produce": "kafka_broker_bytesin_total", "fetch": "kafka_broker_bytesout_total"}
Reading = tuple[int, int]  # when, in milliseconds since the epoch, and the count


def counted_by_brokers(
    prometheus: PrometheusLab, *, until_ms: int, longest_seconds: int
) -> dict[Way, int]:
    """Bytes of clients by broker and direction, from the broker's start to `until_ms`.

    From the first sample where no start was scraped. Of samples later than the end the first is
    needed.
    """
    started = {
        int(series["metric"]["broker"])
        for series in prometheus.query(
            f"process_start_time_seconds{{job='kafka'}}[{longest_seconds}s]"
        )
        if "broker" in series["metric"]
    }
    counted: dict[Way, int] = {}
    for direction, counter in COUNTERS.items():
        for series in prometheus.query(f"{counter}[{longest_seconds}s]"):
            readings = [
                (round(float(at) * 1000), int(float(count))) for at, count in series["values"]
            ]
            broker = int(series["metric"]["broker"])
            if broker in started:
                readings.insert(0, (readings[0][0] - 1, 0))
            way = (broker, direction)
            counted[way] = counted.get(way, 0) + grown_until(readings, until_ms)
    return counted


def grown_until(readings: Iterable[Reading], until_ms: int) -> int:
    """By how much a counter grew until `until_ms`.

    One that fell has restarted (its broker was killed): it grew by what it shows.
    """
    total = 0
    for (before_ms, before), (at_ms, count) in pairwise(readings):
        grown = count - before if count >= before else count
        if at_ms <= until_ms:
            total += grown
        elif before_ms < until_ms:
            total += grown * (until_ms - before_ms) // (at_ms - before_ms)
    return total


@dataclass(frozen=True, slots=True)
class Witnesses:
    """All until the tables' end, in bytes.

    `counted` are the brokers' own counters by broker and direction, `arrived` what each user's
    consumer got, and `held_back`, by level, what the quotas in Kafka kept from it in experiment
    2.
    """

    counted: Mapping[Way, int]
    arrived: Mapping[str, float]
    held_back: Mapping[str, float]


def witnesses(
    prometheus: PrometheusLab, throttling: ThrottlingOutcome, *, until_ms: int, longest_seconds: int
) -> Witnesses:
    """What others than the tables saw; `longest_seconds` reach back to before the first byte.

    Episodes that were left out, and the published way, moved bytes as well.
    """
    playings = [
        one
        for one in (throttling.left_out, throttling.tidegate, throttling.cliff)
        if one is not None
    ]
    by_tidegate = [one for one in (throttling.left_out, throttling.tidegate) if one is not None]
    return Witnesses(
        counted=counted_by_brokers(prometheus, until_ms=until_ms, longest_seconds=longest_seconds),
        arrived={
            one.user: sum(
                each.moved_by(one.level).delivered_until(until_ms / 1000) for each in playings
            )
            for one in BUSINESSES
        },
        held_back={
            one.level: sum(held_back_by_quotas(each, one.level) for each in by_tidegate)
            for one in BUSINESSES
        },
    )


USAGE = "Usage: the demo's own traffic, rolled up"
# How far a throttled client is off in five minutes at the worst, as docs/usage.md states it.
SHARE_PERCENT = 6
# The rate before the cut is one reading of a gauge, a throttled client's mean is up to 4 % too high
# (docs/usage.md), and Kafka's delay some seconds too late and too long: together less than a tenth
# of what is held back.
HELD_BACK_PERCENT = 10


def usage_checks(
    failed: Done | None, stored: StoredUsage | None, seen: Witnesses | None
) -> list[Check]:
    """Every bound, exact ones first. `failed` is the command that ended the rest."""
    return [
        exact_check(
            USAGE,
            "rollup run, verify and report: exit code",
            unit="",
            expected=0,
            measured=failed.exit_code if failed else 0,
        ),
        exact_check(
            USAGE,
            "bytes in which tables and brokers' counters differ",
            unit="",
            expected=0,
            measured=_apart(stored, seen),
        ),
        *_share_checks(stored, seen),
        *_held_back_checks(stored, seen),
    ]


def _apart(stored: StoredUsage | None, seen: Witnesses | None) -> int | None:
    """Over all brokers and directions, so that nothing makes up for anything."""
    if stored is None or seen is None:
        return None
    ways = stored.by_broker.keys() | seen.counted.keys()
    return sum(abs(stored.by_broker.get(way, 0) - seen.counted.get(way, 0)) for way in ways)


def _share_checks(stored: StoredUsage | None, seen: Witnesses | None) -> Iterator[Check]:
    """Checks of shares, because brokers send consumers more than these hand on.

    It was 1.6 % of all reads when this was first played.
    """
    arrived = {} if seen is None else seen.arrived
    used_by = {
        one.user: used.moved_bytes
        for one in BUSINESSES
        if stored is not None and (used := stored.user(one.user, "fetch"))
    }
    for business in BUSINESSES:
        name = f"{business.user} ({business.level}), its share of all reads"
        expected = 100 * arrived.get(business.user, 0.0) / (sum(arrived.values()) or 1.0)
        measured = (
            100 * used_by[business.user] / sum(used_by.values())
            if business.user in used_by and seen is not None
            else None
        )
        yield _within(name, unit="%", expected=expected, measured=measured, percent=SHARE_PERCENT)


def _held_back_checks(stored: StoredUsage | None, seen: Witnesses | None) -> Iterator[Check]:
    """Against the quotas that stood in Kafka; and L0, which no quota held, has nothing."""
    for business in (*LOWERED, BUSINESSES[0]):
        used = None if stored is None else stored.user(business.user, "fetch")
        measured = None if used is None or seen is None else used.held_back_bytes / 1e6
        expected = 0.0 if seen is None else seen.held_back[business.level] / 1e6
        name = f"held back from {business.level} in experiment 2"
        if business in LOWERED:
            yield _within(
                name, unit="MB", expected=expected, measured=measured, percent=HELD_BACK_PERCENT
            )
        else:
            yield exact_check(USAGE, name, unit="MB", expected=0, measured=measured)


def _within(
    name: str, *, unit: str, expected: float, measured: float | None, percent: int
) -> Check:
    expected = round(expected, 2)
    return within(
        USAGE, name, unit, expected=expected, measured=measured, below=percent, above=percent
    )


@dataclass(frozen=True, slots=True)
class UsageOutcome:
    """The end of the demo; `stored` and `witnesses` are None where a command failed.

    Then nothing is known of usage, and every bound of it is missed.
    """

    commands: tuple[Done, ...]
    stored: StoredUsage | None = None
    witnesses: Witnesses | None = None

    @property
    def failed(self) -> Done | None:
        """The command that ended the rest."""
        return next((done for done in self.commands if done.exit_code != 0), None)

    def checks(self) -> list[Check]:
        """Every bound of usage."""
        return usage_checks(self.failed, self.stored, self.witnesses)
