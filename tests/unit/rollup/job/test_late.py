"""A Job computes again the hours of the last day for which samples came late, and no others."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.unit.rollup.tables.bucket import Bucket, store_in
from tests.unit.rollup.tables.usage import DAY, put, usage_5m
from tidegate.rollup.engine import Span
from tidegate.rollup.ingest import Source
from tidegate.rollup.job_run import late_windows
from tidegate.rollup.schemas import HOUR_MS
from tidegate.rollup.tables.format import Manifest, Window
from tidegate.rollup.tables.store import UsageStore

NOW = DAY + 40 * HOUR_MS + 180_000
PUBLISHED = 1000  # samples of each hour


@dataclass
class Engine:
    """Prometheus' samples by hour; remembers what it was asked to publish."""

    samples: dict[int, int]
    asked: list[tuple[int, int]] = field(default_factory=list)
    published: list[Span] = field(default_factory=list)

    def source(self, start_ms: int, end_ms: int) -> Source:
        self.asked.append((start_ms, end_ms))
        return Source((1,), self.samples)

    def publish(self, span: Span) -> list[Manifest]:
        self.published.append(span)
        return [
            Manifest(
                table="usage_5m",
                window=Window(at, at + HOUR_MS),
                run_id="b",
                published_at_ms=NOW,
                files=(),
            )
            for at in range(span.start_ms, span.end_ms, HOUR_MS)
        ]


def store() -> UsageStore:
    found = store_in(Bucket())
    for hour in (10, 17, 18, 30, 36, 37):
        at_ms = DAY + hour * HOUR_MS
        rows = usage_5m(at_ms)
        put(found, "a", "usage_5m", rows, start_ms=at_ms, now_ms=NOW, source_samples=PUBLISHED)
    return found


def hour(number: int) -> int:
    return DAY + number * HOUR_MS


def test_hours_with_more_samples_than_when_they_were_published_are_computed_again() -> None:
    samples = {hour(number): PUBLISHED for number in (10, 17, 18, 30, 36, 37)}
    samples |= {hour(17): 1200, hour(18): 1300, hour(30): 900, hour(10): 5000, hour(37): 2000}
    engine, said = Engine(samples), list[str]()
    own = Span(hour(37), hour(40))  # which the Job computes anyhow
    windows = late_windows(engine, store(), own, now_ms=NOW, tell=said.append)
    assert engine.asked == [(hour(16), hour(37))]
    assert engine.published == [Span(hour(17), hour(19))]
    assert [(one.start_ms, one.end_ms) for one in windows] == [
        (hour(17), hour(18)),
        (hour(18), hour(19)),
    ]
    assert len(said) == 1
    assert "2026-11-21T17:00:00Z" in said[0]


def test_nothing_late_is_nothing_to_do() -> None:
    engine = Engine({hour(number): PUBLISHED for number in (17, 18, 30, 36)})
    assert late_windows(engine, store(), Span(hour(37), hour(40)), now_ms=NOW, tell=print) == []
    assert engine.published == []


def test_a_job_for_an_older_window_asks_for_nothing() -> None:
    engine = Engine({})
    assert late_windows(engine, store(), Span(hour(2), hour(5)), now_ms=NOW, tell=print) == []
    assert engine.asked == []
