"""What is measured as rest: whole seconds in which no quota is written."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from demo.script import SETTLE_SECONDS, ThrottlingLength
from demo.throttling import Times, measure_at_rest
from lab.quota_watch import QuotaWrite

LENGTH = ThrottlingLength(10, 100, 36, 100, plays_cliff=False)


@dataclass
class Stage:
    """Time passes while it waits, and then the quotas that were to be written are."""

    now: float = 1000.0
    coming: list[float] = field(default_factory=list)
    times: Times = field(default_factory=lambda: Times(limited=950.0))

    @property
    def quotas(self) -> Stage:
        return self

    def writes(self) -> list[QuotaWrite]:
        return [QuotaWrite(at, "reports", 2, 1) for at in self.coming if at <= self.now]

    def wait(self, activity: str, seconds: float) -> None:
        self.now += seconds


def measured(monkeypatch: pytest.MonkeyPatch, *writes: float) -> Any:
    stage = Stage(coming=list(writes))
    monkeypatch.setattr(time, "time", lambda: stage.now)
    measure_at_rest(stage, LENGTH)  # type: ignore[arg-type]
    return stage


def test_rest_begins_a_sawtooth_after_the_last_write(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = measured(monkeypatch, 960.0, 990.0)
    assert stage.times.measured_from == 990 + SETTLE_SECONDS
    assert stage.now == 990 + SETTLE_SECONDS + 36 + 1


def test_time_that_was_already_at_rest_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = measured(monkeypatch, 951.0)
    assert stage.times.measured_from == 951 + SETTLE_SECONDS
    assert stage.now == 1000


def test_a_write_meanwhile_begins_it_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = measured(monkeypatch, 990.0, 1035.5)
    assert stage.times.measured_from == int(1035.5 + SETTLE_SECONDS)
    assert stage.now == int(1035.5 + SETTLE_SECONDS) + 36 + 1


def test_tiers_that_never_rest_are_measured_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = measured(monkeypatch, *(1000.0 + 40 * number for number in range(10)))
    assert stage.times.measured_from == 1080 + SETTLE_SECONDS
