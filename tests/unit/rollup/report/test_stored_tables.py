"""A report of what a store holds: all of it, without what nobody published."""

from pathlib import Path

import pytest

from tests.unit.rollup.report.estate import END_MS, START_MS, estate_figures, estate_request, estate_tables
from tidegate.rollup.report import stored_tables as module
from tidegate.rollup.report.gathering import figures_of
from tidegate.rollup.report.page import page_html
from tidegate.rollup.report.request import ReportRequest
from tidegate.rollup.report.stored_tables import stored_provenance, stored_tables
from tidegate.rollup.schemas import HOUR_MS
from tidegate.rollup.tables.publication import Publication, publish, stage
from tidegate.rollup.tables.store import UsageStore

FROM_MS, UNTIL_MS = START_MS + 2 * HOUR_MS, START_MS + 5 * HOUR_MS


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> UsageStore:
    """Three hours of the estate, with its throttle episode."""
    store, tables = UsageStore.at(str(tmp_path_factory.mktemp("usage"))), estate_tables()
    named = {"usage_1h": tables.usage, "broker_1h": tables.brokers, "tier_1h": tables.tiers}
    for name, table in {**named, "usage_5m": tables.usage_5m, "broker_5m": tables.broker_5m}.items():
        staged = [file for file in stage(store, "run-1", name, table, part=0) if FROM_MS <= file.window_start_ms < UNTIL_MS]
        for file in staged:
            source = "remote read, chunks" if name == "usage_5m" else ""
            publication = Publication(table=name, window_start_ms=file.window_start_ms, run_id="run-1", staged=[file], source=source)
            publish(store, publication, now_ms=END_MS)
    return store


def report_of(store: UsageStore, start_ms: int, end_ms: int, *, stored: bool = True) -> ReportRequest:
    given = estate_request()
    tables = stored_tables(store, start_ms, end_ms, grain_ms=HOUR_MS) if stored else given.tables
    return ReportRequest(
        policy=given.policy,
        start_ms=start_ms,
        end_ms=end_ms,
        made_at_ms=given.made_at_ms,
        tables=tables,
        members=given.members,
        prices=given.prices,
        trail=given.trail,
        provenance=given.provenance,
    )


def test_a_report_from_a_store_has_the_figures_of_the_rows_that_were_published(store: UsageStore) -> None:
    figures = figures_of(report_of(store, FROM_MS, UNTIL_MS))
    assert figures == figures_of(report_of(store, FROM_MS, UNTIL_MS, stored=False))
    assert figures.five_minutes
    assert 0 < figures.total_bytes < estate_figures().total_bytes


def test_hours_that_nobody_published_are_told(store: UsageStore) -> None:
    figures = figures_of(report_of(store, FROM_MS - HOUR_MS, UNTIL_MS + HOUR_MS))
    assert (figures.period.windows, figures.period.published_windows) == (5, 3)
    assert "2 of 5 windows of one hour are not in the tables" in page_html(figures)


def test_more_rows_than_fit_are_left_out_and_said(store: UsageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ROWS", 10)
    figures = figures_of(report_of(store, FROM_MS, UNTIL_MS))
    assert not figures.five_minutes
    assert all(use.p95_is_bound for use in figures.contract_use)


def test_it_is_told_which_runs_and_ways_the_tables_come_from(store: UsageStore) -> None:
    provenance = stored_provenance(store, FROM_MS, UNTIL_MS)
    assert (provenance.run_ids, provenance.transports) == (["run-1"], ["remote read, chunks"])


def test_an_empty_store_makes_a_report_that_says_so(tmp_path: Path) -> None:
    figures = figures_of(report_of(UsageStore.at(str(tmp_path)), FROM_MS, UNTIL_MS))
    assert (figures.total_bytes, figures.period.published_windows) == (0, 0)
    assert "This report is not whole: 3 of 3" in page_html(figures)
