"""Several processes close the same months at the same time: of each month one of them does.

As a program it closes the month in each store that it is given, each when a line comes in.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import IO

from lab.process import patience
from tests.unit.report.test_closing import HOURS, NOVEMBER, OVER, publish_hour
from tidegate.errors import TidegateError
from tidegate.report.closing import close_month, read_closed
from tidegate.report.rate_card import RateCard
from tidegate.rollup.tables.store import UsageStore

ROOT = Path(__file__).resolve().parents[3]
PROCESSES = 3


def play(urls: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Who won in each store; AssertionError where none did, several did, or a loser did not say so."""
    for url in urls:
        publish_hour(UsageStore.at(url), "a", HOURS[0])
    command = [sys.executable, "-m", "tests.integration.rollup.closing_race"]
    children = [
        subprocess.Popen(
            [*command, f"process {number}", *urls],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    try:
        for child in children:
            assert _stream(child.stdout).readline() == "ready\n"
        return [_winner(children, url) for url in urls]
    finally:
        for child in children:
            child.communicate(timeout=patience(60))


def _winner(children: Sequence[subprocess.Popen[str]], url: str) -> str:
    for child in children:
        _stream(child.stdin).write("close\n")
        _stream(child.stdin).flush()
    ended = [json.loads(_stream(child.stdout).readline()) for child in children]
    won = [one for one in ended if one["error"] is None]
    store = UsageStore.at(url)
    assert len(won) == 1, ended
    assert read_closed(store, "2026-11").closed_by == won[0]["who"]
    for one in ended:
        said = one["error"]
        assert said is None or "2026-11" in said
        assert said is None or "closed" in said or "nothing was written here" in said
    assert [one.path for one in store.storage.files("_closed")] == ["_closed/2026-11.json"]
    return str(won[0]["who"])


def _stream(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def _close_at_each_line(who: str, urls: Sequence[str]) -> None:
    card = RateCard.flat({"fetch": Decimal("0.02")}, "EUR")
    stores = [UsageStore.at(url) for url in urls]
    print("ready", flush=True)
    for store in stores:
        sys.stdin.readline()
        error = None
        try:
            close_month(store, NOVEMBER, card=card, now_ms=OVER, closed_by=who, with_gaps=True)
        except TidegateError as failed:
            error = failed.message
        print(json.dumps({"who": who, "error": error}), flush=True)


if __name__ == "__main__":
    _close_at_each_line(sys.argv[1], sys.argv[2:])
