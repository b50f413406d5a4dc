"""The audit trail gives the same terms where the operator's metrics were not scraped."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.unit.rollup.terms.operator_metrics import (
    CONTRACT,
    POLICY,
    SCRAPE_MS,
    START_MS,
    OperatorMetrics,
    seconds,
    times,
)
from tidegate.control.audit.trail import utc
from tidegate.prometheus.settings import MetricsSettings, PrometheusServer
from tidegate.rollup.fold.windows import StepFunction
from tidegate.rollup.schemas import HOUR_MS
from tidegate.rollup.terms.reader import StretchTerms, TermsReader
from tidegate.rollup.terms.sources import AuditLine

SETTINGS = MetricsSettings(PrometheusServer("http://prometheus:9090"))
ETL = ("etl", "")
Quota = int | None


def line(
    at_s: float, before: Quota, after: Quota, reason: str = "Throttled", **more: object
) -> AuditLine:
    common: Mapping[str, object] = {
        "event": "Audit",
        "kind": "write",
        "policy": POLICY.key,
        "entity": "user=etl",
        "key": "consumer_byte_rate",
    }
    known = {
        "level": "L3",
        "tier": "ns/bulk",
        "member": "etl",
        "contract": CONTRACT,
        "reason": reason,
        "outcome": "applied",
    }
    return {
        **common,
        **known,
        "t": utc(START_MS / 1000 + at_s),
        "from": before,
        "to": after,
        **more,
    }


def terms_of(*lines: AuditLine, metrics: OperatorMetrics | None = None) -> StretchTerms:
    transport = metrics or OperatorMetrics().sends(
        {at: 950.0 if at <= 600 else 400.0 for at in times()}
    )
    return TermsReader(transport, SETTINGS, POLICY, lines).of(START_MS, START_MS + HOUR_MS, (1,))


FIRST = line(-1800, None, CONTRACT, "FirstQuota")
CUT, RELAXED, RELEASED = (
    line(607.5, CONTRACT, 400),
    line(900, 400, 800, "Relaxing"),
    line(1200, 800, CONTRACT, "Released"),
)


def test_an_episode_lasts_from_the_write_that_cut_to_the_one_that_gave_back() -> None:
    terms = terms_of(FIRST, CUT, RELAXED, RELEASED)
    assert terms.source == "trail"
    [episode] = terms.brokers[1]["fetch"].episodes or ()
    assert (
        episode.client,
        seconds([episode.start_ms, episode.end_ms]),
        episode.wanted_bytes_per_second,
    ) == (ETL, [607.5, 1200.001], 950.0)


def test_states_are_exact_to_the_write() -> None:
    [tier] = terms_of(FIRST, CUT, RELAXED, RELEASED).tiers
    assert (tier.tier, tier.throttle_episodes) == ("ns/bulk", 1)
    assert (tier.seconds_contract, tier.seconds_throttled, tier.seconds_relaxing) == (
        3600 - 592.5,
        292.5,
        300.0,
    )


@pytest.mark.parametrize(
    ("reason", "throttled_s"), [("Adopted", 0.0), ("LeadersMoved", 0.0), ("Released", 600.0)]
)
def test_a_low_quota_that_a_write_replaced_was_a_throttle_only_by_the_reason_of_the_write(
    reason: str, throttled_s: float
) -> None:
    tiers = terms_of(
        line(-10, None, CONTRACT, "FirstQuota", key="producer_byte_rate"),
        line(600, 400, CONTRACT, reason),
    ).tiers
    assert [tier.seconds_throttled for tier in tiers if tier.direction == "fetch"] == [
        pytest.approx(throttled_s, abs=0.01)
    ]


def test_a_contract_that_was_edited_is_read_as_it_changed() -> None:
    course = (
        terms_of(FIRST, line(600, CONTRACT, 500, "ContractChanged", contract=500))
        .brokers[1]["fetch"]
        .contracts[ETL]
    )
    assert isinstance(course, StepFunction)
    assert course.rates == (CONTRACT, 500.0)
    assert seconds(course.from_ms)[1:] == [600.001]


def test_who_was_not_written_to_has_the_contract_that_is_declared() -> None:
    other = line(10, None, 5, member="another")
    assert terms_of(other).brokers[1]["fetch"].contracts == {ETL: float(CONTRACT)}


def test_what_was_refused_or_is_of_another_policy_changed_nothing() -> None:
    terms = terms_of(FIRST, {**CUT, "outcome": "refused"}, {**CUT, "policy": "ns/other"})
    assert terms.brokers[1]["fetch"].episodes == ()


def test_before_the_trail_begins_no_state_is_known() -> None:
    [tier] = terms_of(line(1800, None, CONTRACT, "FirstQuota")).tiers
    assert tier.seconds_contract == 1800 + SCRAPE_MS / 1000


def test_where_the_operator_was_scraped_its_metrics_count() -> None:
    assert terms_of(CUT, metrics=OperatorMetrics().cut()).source == "metrics"
