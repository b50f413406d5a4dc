"""The parts of a request that come from a store and from a policy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.report.sample_report import (
    END_MS,
    START_MS,
    sample_figures,
    sample_request,
    sample_tables,
)
from tidegate.report import request as module
from tidegate.report.compute import figures_of
from tidegate.report.page import page_html
from tidegate.report.request import (
    ClientKey,
    MemberTerms,
    ReportRequest,
    member_terms,
    recommendations,
    stored_provenance,
    stored_tables,
)
from tidegate.rollup.schemas import HOUR_MS
from tidegate.rollup.tables.publication import Publication, publish, stage
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.terms.sources import PolicyTerms
from tidegate_logic.model import (
    BrokerLimit,
    BrokerLimits,
    Contract,
    DirectionUsage,
    Entity,
    Level,
    Member,
    Policy,
    QuotaKey,
    RateForm,
    Tier,
    Usage,
)

FROM_MS, UNTIL_MS = START_MS + 2 * HOUR_MS, START_MS + 5 * HOUR_MS


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> UsageStore:
    """Three hours of the sample tables, with its throttle episode."""
    store, tables = UsageStore.at(str(tmp_path_factory.mktemp("usage"))), sample_tables()
    named = {"usage_1h": tables.usage, "broker_1h": tables.brokers, "tier_1h": tables.tiers}
    for name, table in {
        **named,
        "usage_5m": tables.usage_5m,
        "broker_5m": tables.broker_5m,
    }.items():
        staged = [
            file
            for file in stage(store, "run-1", name, table, part=0)
            if FROM_MS <= file.window_start_ms < UNTIL_MS
        ]
        for file in staged:
            source = "remote read, chunks" if name == "usage_5m" else ""
            publication = Publication(
                table=name,
                window_start_ms=file.window_start_ms,
                run_id="run-1",
                staged=[file],
                source=source,
            )
            publish(store, publication, now_ms=END_MS)
    return store


def report_of(
    store: UsageStore, start_ms: int, end_ms: int, *, stored: bool = True
) -> ReportRequest:
    given = sample_request()
    tables = stored_tables(store, start_ms, end_ms, grain_ms=HOUR_MS) if stored else given.tables
    return ReportRequest(
        policy=given.policy,
        start_ms=start_ms,
        end_ms=end_ms,
        made_at_ms=given.made_at_ms,
        tables=tables,
        members=given.members,
        rate_card=given.rate_card,
        by_labels=given.by_labels,
        trail=given.trail,
        provenance=given.provenance,
    )


def test_a_report_from_a_store_has_the_figures_of_the_rows_that_were_published(
    store: UsageStore,
) -> None:
    figures = figures_of(report_of(store, FROM_MS, UNTIL_MS))
    assert figures == figures_of(report_of(store, FROM_MS, UNTIL_MS, stored=False))
    assert figures.five_minutes
    assert 0 < figures.total_bytes < sample_figures().total_bytes


def test_hours_that_were_not_published_are_counted(store: UsageStore) -> None:
    figures = figures_of(report_of(store, FROM_MS - HOUR_MS, UNTIL_MS + HOUR_MS))
    assert (figures.period.windows, figures.period.published_windows) == (5, 3)
    assert "2 of 5 windows of one hour are not in the tables" in page_html(figures)


def test_more_rows_than_fit_are_left_out_and_said(
    store: UsageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_ROWS", 10)
    figures = figures_of(report_of(store, FROM_MS, UNTIL_MS))
    assert not figures.five_minutes
    assert all(use.p95_is_bound for use in figures.contract_use)


def test_provenance_names_runs_and_transports(store: UsageStore) -> None:
    provenance = stored_provenance(store, FROM_MS, UNTIL_MS, grain_ms=HOUR_MS)
    assert (provenance.run_ids, provenance.transports) == (["run-1"], ["remote read, chunks"])


def test_an_empty_store_makes_a_report_that_says_so(tmp_path: Path) -> None:
    figures = figures_of(report_of(UsageStore.at(str(tmp_path)), FROM_MS, UNTIL_MS))
    assert (figures.total_bytes, figures.period.published_windows) == (0, 0)
    assert "This report is incomplete: 3 of 3" in page_html(figures)


ETL = Member(
    "nightly loads",
    Entity("etl"),
    contract=Contract(RateForm.PER_BROKER, fetch_bytes_per_second=10_000_000),
)
APP = Member(
    "orders",
    Entity("app", "web"),
    ("orders",),
    Contract(RateForm.PER_PARTITION, fetch_bytes_per_second=1_000_000),
)
POLICY = Policy("ns/shop", "uid", limits=BrokerLimits(BrokerLimit(egress=100_000_000)))
TERMS = PolicyTerms.of(POLICY, [Tier("ns/bulk", Level.L3, (ETL, APP))])


def usage(p99: float, *, throttled_share: float = 0.0) -> Usage:
    figures = DirectionUsage(p99 * 2, p99, 2, coverage=1.0, throttled_share=throttled_share)
    return Usage(
        1,
        86_400.0,
        {(member.entity, QuotaKey.CONSUMER_BYTE_RATE): figures for member in (ETL, APP)},
    )


def test_members_go_by_their_names_with_the_contracts_that_are_known_without_leaders() -> None:
    assert member_terms(TERMS, brokers=2) == [
        MemberTerms(
            client=ClientKey("ns/bulk", "etl", ""),
            name="nightly loads",
            level="L3",
            contracts={"fetch": 10_000_000},
        ),
        MemberTerms(
            client=ClientKey("ns/bulk", "app", "web"), name="orders", level="L3", contracts={}
        ),
    ]


def test_a_contract_is_recommended_from_p99_and_headroom_in_its_own_form() -> None:
    etl, app = recommendations(POLICY, TERMS, usage(20_000_000), (1, 2))
    assert (etl.user, etl.form, etl.contract) == ("etl", "on each broker", 10_000_000)
    assert (etl.recommended, etl.change, etl.p99_rate) == (26_000_000, 1.6, 20_000_000.0)
    assert (app.client_id, app.form, app.recommended, app.reason) == (
        "web",
        "a partition",
        None,
        "TopologyIncomplete",
    )


def test_whoever_was_throttled_most_of_the_time_is_recommended_nothing() -> None:
    etl, _ = recommendations(POLICY, TERMS, usage(20_000_000, throttled_share=0.6), (1, 2))
    assert (etl.recommended, etl.reason) == (None, "UsageThrottled")


def test_a_member_that_no_table_names_has_the_reason() -> None:
    etl, _ = recommendations(POLICY, TERMS, Usage(1, 86_400.0), (1, 2))
    assert (etl.recommended, etl.reason, etl.p99_rate) == (None, "UsageUnknown", None)
