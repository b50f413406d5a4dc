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
from collections.abc import Mapping
from pathlib import Path
from queue import Empty, Queue

import pyarrow as pa

from tests.unit.rollup.tables.usage import DAY, as_set, brokers_of, put, usage_5m
from tidegate.rollup.schemas import DAY_MS, HOUR_MS
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.tables.upkeep import Retention, compact_days, keep_up, sweep
from tidegate.rollup.tables.verify import verify

ROOT = Path(__file__).resolve().parents[3]
HOURS = 6
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


def play_kills(url: str, environment: Mapping[str, str], kills: int, *, seed: int) -> int:
    """Kill a publishing process so often, each time at another moment; how often rows were new.

    After each kill every hour is whole: as it was said to be published last, or one newer.
    AssertionError otherwise.
    """
    moments, store, newest, moved = random.Random(seed), UsageStore.at(url), dict[int, int](), 0
    for kill in range(kills):
        first = max(newest.values(), default=0) + 1
        _publish_until_killed(url, environment, first, newest, seconds=moments.uniform(0.0, 1.2))
        for hour, said in newest.items():
            found = hour_in(store, hour)
            candidates = [said, *range(first, max(said, first) + 2)]
            whole = [one for one in candidates if as_set(rows_of(hour, one)) == found]
            assert whole, f"kill {kill}: hour {hour} is neither publication {said} nor a newer one"
            assert max(whole) >= said
            moved += max(whole) > said
            newest[hour] = max(whole)  # published, though killed before it said so
        if kill % 10 == 9 or kill == kills - 1:
            verdict = verify(store)
            assert verdict.is_sound, verdict.broken
    return moved


def _publish_until_killed(
    url: str,
    environment: Mapping[str, str],
    first: int,
    newest: dict[int, int],
    *,
    seconds: float,
) -> None:
    """Start it, wait for its first words and for `seconds` more, kill it; `newest` has its words."""
    command = [sys.executable, "-m", "tests.integration.rollup.store_life", url, str(first)]
    child = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    said: Queue[str] = Queue()
    assert child.stdout is not None
    reader = threading.Thread(target=lambda: [said.put(line) for line in child.stdout or ()])
    reader.start()
    try:
        said_first = said.get(timeout=_PATIENCE_SECONDS)
        time.sleep(seconds)
    except Empty:
        raise AssertionError("the publishing process said nothing") from None
    finally:
        child.kill()
        child.wait()
        reader.join()
    lines = [said_first] + [said.get() for _ in range(said.qsize())]
    child.stdout.close()
    assert child.stderr is not None
    child.stderr.close()
    for line in lines:
        if line.endswith("\n") and line != "ready\n":
            hour, number = map(int, line.split())
            newest[hour] = number


def _publish_for_ever(url: str, first: int) -> None:
    store = UsageStore.at(url)
    print("ready", flush=True)
    number = first
    while True:
        for hour in range(3):
            publish_hour(store, f"run-{number}", hour, seed=number)
            print(hour, number, flush=True)
        compact_days(store, "usage_5m", before_ms=NOW_MS, run_id=f"day-{number}", now_ms=NOW_MS)
        number += 1


if __name__ == "__main__":
    _publish_for_ever(sys.argv[1], int(sys.argv[2]))
