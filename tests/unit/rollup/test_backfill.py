"""Which hours a backfill computes: the missing ones, or with `again` all that it can do better."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.unit.rollup.tables.usage import DAY, put, usage_5m
from tidegate.errors import Unreachable
from tidegate.rollup.backfill import Backfill
from tidegate.rollup.engine import Span
from tidegate.rollup.ingest import Source
from tidegate.rollup.schemas import HOUR_MS, TABLES
from tidegate.rollup.tables.store import UsageStore
from tidegate_logic.reasons import Reason

NOW = DAY + 99 * HOUR_MS
PUBLISHED = 1000


def hour(number: int) -> int:
    return DAY + number * HOUR_MS


@dataclass
class Around:
    """A store with hours 0 to 3, and what a backfill of hours 0 to 4 says and publishes."""

    folder: Path
    samples: Mapping[int, int] | None
    said: list[str] = field(default_factory=list)
    published: list[Span] = field(default_factory=list)

    def __post_init__(self) -> None:
        store = UsageStore.at(f"file://{self.folder}")
        for at_ms in range(hour(0), hour(4), HOUR_MS):
            for table in (name for name, kind in TABLES.items() if kind.published_ms == HOUR_MS):
                rows = TABLES[table].schema.empty_table()
                rows = usage_5m(at_ms) if table == "usage_5m" else rows
                more = {"source_samples": PUBLISHED} if table.endswith("5m") else {}
                put(store, "a", table, rows, start_ms=at_ms, now_ms=NOW, **more)

    def source(self, start_ms: int, end_ms: int) -> Source:
        if self.samples is None:
            raise Unreachable(Reason.PROMETHEUS_UNREACHABLE, "Prometheus does not answer.")
        return Source((1,), {at: n for at, n in self.samples.items() if start_ms <= at < end_ms})

    def fill(self, *, again: bool = False, dry_run: bool = False) -> str:
        filling = Backfill(
            hour(0),
            hour(4),
            dry_run=dry_run,
            clock_ms=lambda: NOW,
            tell=self.said.append,
            warn=self.said.append,
            again=again,
        )
        filling.fill(f"file://{self.folder}", self, self.published.append)
        return "\n".join(self.said)


SAMPLES = {hour(0): PUBLISHED, hour(1): 1200, hour(2): PUBLISHED, hour(3): 400}


def test_hours_that_changed_are_named_and_not_computed(tmp_path: Path) -> None:
    around = Around(tmp_path, SAMPLES)
    said = around.fill()
    assert around.published == []
    assert "2026-11-21T01 Prometheus has more samples now" in said
    assert "--again" in said
    assert "2026-11-21T03 Prometheus has fewer samples now" in said
    assert "None of 4 hours is missing." in said


def test_again_computes_all_but_hours_of_which_there_is_less_now(tmp_path: Path) -> None:
    around = Around(tmp_path, SAMPLES)
    said = around.fill(again=True)
    assert around.published == [Span(hour(0), hour(3))]
    assert "3 of 4 hours are computed again" in said
    assert "2026-11-21T03 Prometheus has fewer samples now" in said


def test_a_dry_run_lists_what_would_be_computed_again(tmp_path: Path) -> None:
    around = Around(tmp_path, SAMPLES)
    said = around.fill(again=True, dry_run=True)
    assert around.published == []
    assert "2026-11-21T00:00:00Z to 2026-11-21T03:00:00Z (3 h)" in said


def test_a_dry_run_without_prometheus_lists_what_is_missing(tmp_path: Path) -> None:
    around = Around(tmp_path, None)
    assert "is not known: Prometheus does not answer." in around.fill(dry_run=True)


def test_without_prometheus_nothing_is_computed(tmp_path: Path) -> None:
    around = Around(tmp_path, None)
    with pytest.raises(Unreachable):
        around.fill(again=True)
    assert around.published == []
