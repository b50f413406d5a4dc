"""What a policy adds to a report: names, contracts, and what usage recommends by the operator's own rule."""

from __future__ import annotations

from controller_logic.model import (
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
from tidegate.rollup.report.declared_members import member_terms, recommendations
from tidegate.rollup.report.request import ClientKey, MemberTerms
from tidegate.rollup.terms.policy import PolicyTerms

ETL = Member("nightly loads", Entity("etl"), contract=Contract(RateForm.PER_BROKER, fetch_bytes_per_second=10_000_000))
APP = Member("orders", Entity("app", "web"), ("orders",), Contract(RateForm.PER_PARTITION, fetch_bytes_per_second=1_000_000))
POLICY = Policy("ns/shop", "uid", limits=BrokerLimits(BrokerLimit(egress=100_000_000)))
TERMS = PolicyTerms.of(POLICY, [Tier("ns/bulk", Level.L3, (ETL, APP))])


def usage(p99: float, *, throttled_share: float = 0.0) -> Usage:
    figures = DirectionUsage(p99 * 2, p99, 2, coverage=1.0, throttled_share=throttled_share)
    return Usage(1, 86_400.0, {(member.entity, QuotaKey.CONSUMER_BYTE_RATE): figures for member in (ETL, APP)})


def test_members_go_by_their_names_with_the_contracts_that_are_known_without_leaders() -> None:
    assert member_terms(TERMS, brokers=2) == [
        MemberTerms(client=ClientKey("ns/bulk", "etl", ""), name="nightly loads", level="L3", contracts={"fetch": 10_000_000}),
        MemberTerms(client=ClientKey("ns/bulk", "app", "web"), name="orders", level="L3", contracts={}),
    ]


def test_a_contract_is_recommended_from_p99_and_headroom_in_its_own_form() -> None:
    etl, app = recommendations(POLICY, TERMS, usage(20_000_000), (1, 2))
    assert (etl.client.user, etl.form, etl.contract) == ("etl", "on each broker", 10_000_000)
    assert (etl.recommended, etl.p99_rate) == (26_000_000, 20_000_000.0)
    assert (app.client.client_id, app.form, app.recommended, app.reason) == ("web", "a partition", None, "TopologyIncomplete")


def test_whoever_was_throttled_most_of_the_time_is_recommended_nothing() -> None:
    etl, _ = recommendations(POLICY, TERMS, usage(20_000_000, throttled_share=0.6), (1, 2))
    assert (etl.recommended, etl.reason) == (None, "UsageThrottled")


def test_a_member_that_no_table_names_is_told_with_the_reason() -> None:
    etl, _ = recommendations(POLICY, TERMS, Usage(1, 86_400.0), (1, 2))
    assert (etl.recommended, etl.reason, etl.p99_rate) == (None, "UsageUnknown", None)
