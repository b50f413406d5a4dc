"""The end of the demo waits for the last window, runs the commands in turn, and gives up the rest where one fails."""

import io
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

import demo.usage_run as module
from demo.usage_outcome import Done, UsageOutcome
from tests.goldens.golden import numbers

from ..throttling.conftest import ENDED, PlayedThrottling

OVER = 300 * (int(ENDED) // 300 + 1)


class Clock:
    def __init__(self) -> None:
        self.now = ENDED + 3.0

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    strftime = staticmethod(module.time.strftime)
    localtime = staticmethod(module.time.localtime)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def ended(
    monkeypatch: pytest.MonkeyPatch, played_throttling: PlayedThrottling, tmp_path: Path, *, codes: Sequence[int]
) -> tuple[UsageOutcome, list[str], str]:
    run: list[str] = []

    def carry_out(arguments: list[str], _: Path) -> Done:
        run.append(" ".join(arguments[:2]))
        return Done(" ".join(arguments), codes[len(run) - 1], 1.0, ("[bold]said[/bold]",))

    stored = SimpleNamespace(end_ms=OVER * 1000)
    monkeypatch.setattr(module, "carry_out", carry_out)
    monkeypatch.setattr("demo.usage_run.stored_usage", lambda folder: stored)
    monkeypatch.setattr(module, "witnesses", lambda *_, until_ms, longest_seconds: (until_ms, longest_seconds))
    parts: Any = SimpleNamespace(
        prometheus=SimpleNamespace(ready=lambda: SimpleNamespace(url="http://127.0.0.1:9090")),
        kafka=SimpleNamespace(network=None, run=SimpleNamespace(path=tmp_path)),
    )
    interruption: Any = SimpleNamespace(reported=lambda: Console().status(""))
    out = io.StringIO()
    usage = module.run_usage(
        Console(file=out, width=200), parts, played_throttling(), began_seconds=ENDED - 500, output=tmp_path, interruption=interruption
    )
    return usage, run, out.getvalue()


def test_all_three_run_after_the_last_window_is_over(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, played_throttling: PlayedThrottling, tmp_path: Path
) -> None:
    usage, run, said = ended(monkeypatch, played_throttling, tmp_path, codes=[0, 0, 0])
    assert run == ["rollup run", "rollup verify", "report --store"]
    assert OVER < clock.now < OVER + 10
    assert usage.failed is None
    assert usage.witnesses == (OVER * 1000, int(clock.now - ENDED + 500) + 60)
    assert "$ tidegate rollup run --prometheus http://127.0.0.1:9090 --preset JmxExporter" in said
    assert "[bold]said[/bold]" in said


def test_what_comes_after_a_command_that_failed_is_not_run(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, played_throttling: PlayedThrottling, tmp_path: Path
) -> None:
    usage, run, said = ended(monkeypatch, played_throttling, tmp_path, codes=[0, 1])
    assert run == ["rollup run", "rollup verify"]
    assert usage.failed == usage.commands[1]
    assert (usage.stored, usage.witnesses) == (None, None)
    assert 1 in numbers(said)


@pytest.mark.parametrize(("later", "waited"), [(400.0, 0.0), (301.0, 3.0)])
def test_a_window_that_is_over_already_is_waited_for_only_until_its_end_was_scraped(
    later: float, waited: float, clock: Clock, monkeypatch: pytest.MonkeyPatch, played_throttling: PlayedThrottling, tmp_path: Path
) -> None:
    clock.now = OVER + later
    ended(monkeypatch, played_throttling, tmp_path, codes=[0, 0, 0])
    assert clock.now == OVER + later + waited
