"""A store's whole life in an object store: published, published again, killed, compacted, swept, read.

As a program it publishes hours into a store for ever, and prints each that is done: tests kill it.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue

import pyarrow as pa

from tests.unit.rollup.tables.usage import DAY, as_set, brokers_of, put, usage_5m
from tidegate.rollup.schemas import DAY_MS, HOUR_MS, TABLES
from tidegate.rollup.tables.format import window_at
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.tables.upkeep import Retention, compact_days, keep_up, sweep
from tidegate.rollup.tables.verify import verify

ROOT = Path(__file__).resolve().parents[3]
HOURS = 6
_HOURS_OF_A_ROUND = 3
NOW_MS = DAY + DAY_MS + 12 * HOUR_MS
_PATIENCE_SECONDS = 120


def rows_of(hour: int, seed: int) -> pa.Table:
    """What an hour has in its publication of this number."""
    return usage_5m(DAY + hour * HOUR_MS, seed=seed)


def publish_hour(store: UsageStore, run_id: str, hour: int, seed: int) -> None:
    """Clients' rows and those of their brokers."""
    rows, at_ms = rows_of(hour, seed), DAY + hour * HOUR_MS
    put(store, run_id, "usage_5m", rows, start_ms=at_ms, now_ms=NOW_MS)
    put(store, run_id, "broker_5m", brokers_of(rows), start_ms=at_ms, now_ms=NOW_MS)


def play(store: UsageStore) -> None:
    """All of it once; AssertionError where a row is lost, doubled or old."""
    for hour in range(HOURS):
        publish_hour(store, "first", hour, seed=0)
    for hour in (1, 3):
        publish_hour(store, "again", hour, seed=1)
    expected = [as_set(rows_of(hour, int(hour in (1, 3)))) for hour in range(HOURS)]

    def is_right() -> bool:
        verdict = verify(store)
        assert verdict.is_sound, verdict.broken
        return [hour_in(store, hour) for hour in range(HOURS)] == expected

    assert is_right()
    assert len(store.files("usage_5m")) == HOURS
    for table in ("usage_5m", "broker_5m"):
        assert len(compact_days(store, table, before_ms=NOW_MS, run_id="day", now_ms=NOW_MS)) == 1
    assert len(store.files("usage_5m")) == 1
    assert is_right()
    publish_hour(store, "late", 3, seed=2)  # after its day was put together
    expected[3] = as_set(rows_of(3, 2))
    assert is_right()
    keep_up(store, Retention(), run_id="night", now_ms=NOW_MS)
    # the store's own clock says when files were written, so the grace is over in two days from now
    later_ms = int(time.time() * 1000) + 2 * DAY_MS
    swept = sweep(store, now_ms=later_ms)
    # 2 x (6 + 2 + 1) of hours, and the first of two files of the day, which the second replaced
    assert swept.files == 2 * (HOURS + 3) + 2
    assert is_right()
    assert len(store.storage.files("usage_5m")) == 1
    assert store.storage.files("_staging") == []


def hour_in(store: UsageStore, hour: int) -> list[tuple[object, ...]]:
    """The rows of clients in this hour."""
    at_ms = DAY + hour * HOUR_MS
    return as_set(store.rows("usage_5m", at_ms, at_ms + HOUR_MS))


@dataclass
class Killed:
    """What kills of a publishing process met."""

    kills: int = 0
    publications: int = 0  # hours that it said to have published
    unsaid: int = 0  # hours that were published when it was killed before it said so
    between: int = 0  # hours of which one table was published again and the other was not
    in_staging: int = 0  # kills that left files which no manifest names
    swept: int = 0  # files that a sweep took away at the end

    def __str__(self) -> str:
        """For the output of a long run."""
        return (
            f"{self.kills} kills in {self.publications} publications of an hour. Hours published "
            f"and not said yet: {self.unsaid}; with one of two tables published: {self.between}. "
            f"Kills that left staged files: {self.in_staging}. Swept at the end: {self.swept} files"
        )


def play_kills(url: str, environment: Mapping[str, str], kills: int, *, seed: int) -> Killed:
    """Kill a publishing process so often, each time at another moment; what that met.

    The moments are spread over one and a half rounds of what it does, however fast this machine is.
    After each kill every hour is whole in each table, as it was said to be published last or newer,
    and `verify` names the hours that were killed between their two tables, and nothing else. One
    more round and a sweep leave what manifests name. AssertionError otherwise.
    """
    moments, store, newest, met = (
        random.Random(seed),
        UsageStore.at(url),
        dict[int, int](),
        Killed(),
    )
    staged_before, round_seconds = 0, _seconds_of_a_round(url, environment, newest)
    of_brokers: dict[int, int] = {}
    for kill in range(kills):
        first = max(newest.values()) + 1
        met.publications += _publish_until_killed(
            url, environment, first, newest, seconds=moments.uniform(0.0, 1.5 * round_seconds)
        )
        between = set()
        for hour, said in newest.items():
            oldest = min(said, of_brokers.get(hour, said))
            clients, brokers = _publications_in(store, hour, range(oldest, max(said, first) + 2))
            assert clients >= said, f"kill {kill}: hour {hour} is neither {said} nor newer, whole"
            assert brokers >= oldest, f"kill {kill}: brokers of hour {hour} are not {oldest} or on"
            of_brokers[hour] = brokers
            between |= {hour} if clients != brokers else set()
            met.unsaid += clients > said
            newest[hour] = clients  # published, though killed before it said so
        staged = len(store.storage.files("_staging"))
        met.kills, met.in_staging = kill + 1, met.in_staging + (staged > staged_before)
        met.between, staged_before = met.between + len(between), staged
        if between or kill % 10 == 9 or kill == kills - 1:
            assert {one.window for one in verify(store).broken} == {
                window_at(TABLES["usage_5m"], DAY + hour * HOUR_MS).name for hour in between
            }
    number = max(newest.values()) + 2
    for hour in range(_HOURS_OF_A_ROUND):
        publish_hour(store, "last", hour, seed=number)
    keep_up(store, Retention(), run_id="night", now_ms=NOW_MS)
    swept = sweep(store, now_ms=int(time.time() * 1000) + 2 * DAY_MS)
    met.swept = swept.files + swept.staged
    assert store.storage.files("_staging") == []
    for table in ("usage_5m", "broker_5m"):
        assert len(store.storage.files(table)) == len(store.files(table))
    for hour in range(_HOURS_OF_A_ROUND):
        assert _publications_in(store, hour, [number]) == (number, number)
    assert verify(store).is_whole
    return met


def _publications_in(store: UsageStore, hour: int, candidates: Iterable[int]) -> tuple[int, int]:
    """Which of them the rows of clients, and those of brokers, are; 0 = none, or parts of two."""
    at_ms, known = DAY + hour * HOUR_MS, {one: rows_of(hour, one) for one in candidates}
    clients = hour_in(store, hour)
    brokers = as_set(store.rows("broker_5m", at_ms, at_ms + HOUR_MS))
    return (
        max((one for one, rows in known.items() if as_set(rows) == clients), default=0),
        max((one for one, rows in known.items() if as_set(brokers_of(rows)) == brokers), default=0),
    )


def _seconds_of_a_round(url: str, environment: Mapping[str, str], newest: dict[int, int]) -> float:
    """From its first words until three hours are published and their day is put together.

    `newest` has its words: it is killed too, wherever it is then.
    """
    with _publishing(url, environment, 1) as said:
        said.get(timeout=_PATIENCE_SECONDS)
        began = time.monotonic()
        for _ in range(_HOURS_OF_A_ROUND + 1):  # the next round's first hour
            _hear(said.get(timeout=_PATIENCE_SECONDS), newest)
        return time.monotonic() - began


def _hear(line: str, newest: dict[int, int]) -> None:
    hour, number = map(int, line.split())
    newest[hour] = number


def _publish_until_killed(
    url: str,
    environment: Mapping[str, str],
    first: int,
    newest: dict[int, int],
    *,
    seconds: float,
) -> int:
    """Start it, wait for its first words and for `seconds` more, kill it; how often it published.

    `newest` has its words.
    """
    with _publishing(url, environment, first) as said:
        lines = [said.get(timeout=_PATIENCE_SECONDS)]
        time.sleep(seconds)
    lines += [said.get() for _ in range(said.qsize())]
    published = [line for line in lines if line.endswith("\n") and line != "ready\n"]
    for line in published:
        _hear(line, newest)
    return len(published)


@contextmanager
def _publishing(url: str, environment: Mapping[str, str], first: int) -> Iterator[Queue[str]]:
    """The lines that the program writes until the block ends, and with it the program, by SIGKILL."""
    command = [sys.executable, "-m", "tests.integration.rollup.store_life", url, str(first)]
    child = subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True
    )
    said: Queue[str] = Queue()
    reader = threading.Thread(target=lambda: [said.put(line) for line in child.stdout or ()])
    reader.start()
    try:
        yield said
    except Empty:
        raise AssertionError("the publishing process said nothing") from None
    finally:
        child.kill()
        child.wait()
        reader.join()
        assert child.stdout is not None
        child.stdout.close()


def _publish_for_ever(url: str, first: int) -> None:
    store = UsageStore.at(url)
    print("ready", flush=True)
    number = first
    while True:
        for hour in range(_HOURS_OF_A_ROUND):
            publish_hour(store, f"run-{number}", hour, seed=number)
            print(hour, number, flush=True)
        compact_days(store, "usage_5m", before_ms=NOW_MS, run_id=f"day-{number}", now_ms=NOW_MS)
        number += 1


if __name__ == "__main__":
    _publish_for_ever(sys.argv[1], int(sys.argv[2]))
