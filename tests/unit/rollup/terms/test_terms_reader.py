"""Contracts, limits and episodes as they were, by the operator's own metrics."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.unit.rollup.terms.operator_metrics import (
    BULK,
    CONTRACT,
    POLICY,
    START_MS,
    OperatorMetrics,
    quotas,
    seconds,
    times,
)
from tidegate.prometheus.settings import MetricsSettings, PrometheusServer
from tidegate.rollup.fold.broker import DirectionTerms
from tidegate.rollup.fold.windows import StepFunction
from tidegate.rollup.schemas import HOUR_MS
from tidegate.rollup.terms.reader import StretchTerms, TermsReader
from tidegate.rollup.terms.sources import PolicyTerms
from tidegate_logic.model import BrokerLimit, BrokerLimits, Policy

SETTINGS = MetricsSettings(PrometheusServer("http://prometheus:9090"))
ETL = ("etl", "")


def terms_of(
    metrics: OperatorMetrics,
    *,
    policy: PolicyTerms | None = POLICY,
    start_ms: int = START_MS,
    brokers: Sequence[int] = (1,),
) -> StretchTerms:
    return TermsReader(metrics, SETTINGS, policy).of(start_ms, start_ms + HOUR_MS, brokers)


def fetch(metrics: OperatorMetrics, **asked: object) -> DirectionTerms:
    return terms_of(metrics, **asked).brokers[1]["fetch"]  # type: ignore[arg-type]


def test_a_contract_is_read_as_it_changed() -> None:
    target = {at: 1000.0 if at < 600 else 800.0 for at in times()}
    course = fetch(
        OperatorMetrics().member(target, target=target).level(dict.fromkeys(times(), "Contract"))
    ).contracts[ETL]
    assert isinstance(course, StepFunction)
    assert (seconds(course.from_ms)[1:], course.rates) == ([600.0], (1000.0, 800.0))


def test_a_limit_is_read_as_it_changed_and_0_is_none() -> None:
    metrics = OperatorMetrics().cut().limit({at: 0.0 if at < 900 else 50e6 for at in times()})
    course = fetch(metrics).limit
    assert isinstance(course, StepFunction)
    assert (seconds(course.from_ms)[1:], course.rates) == ([900.0], (float("inf"), 50e6))


def test_without_metrics_everything_is_as_declared_and_there_is_no_record_of_episodes() -> None:
    policy = PolicyTerms.of(
        Policy("ns/shop", "uid", limits=BrokerLimits(BrokerLimit(egress=77))), [BULK]
    )
    terms = terms_of(OperatorMetrics(), policy=policy)
    assert terms.source == "declared"
    assert terms.brokers[1]["fetch"] == DirectionTerms(77, {ETL: float(CONTRACT)}, None)
    assert terms.brokers[1]["produce"] == DirectionTerms(None, {}, None)
    assert terms.tiers == ()


def test_without_a_policy_nothing_is_known() -> None:
    assert terms_of(OperatorMetrics().cut((600, 900)), policy=None) == StretchTerms("none", {})


def test_an_episode_has_the_rate_just_before_the_first_cut() -> None:
    sent = {at: 950.0 if at <= 585 else 400.0 for at in times()}
    [episode] = (
        fetch(
            OperatorMetrics()
            .cut((600, 900))
            .sends(sent)
            .sends(dict.fromkeys(times(), 5.0), user="other")
        ).episodes
        or ()
    )
    assert (
        episode.client,
        seconds([episode.start_ms, episode.end_ms]),
        episode.wanted_bytes_per_second,
    ) == (ETL, [585.0, 915.0], 950.0)


def test_an_episode_under_way_began_in_an_hour_before() -> None:
    sent = {at: 950.0 if at < -1200 else 400.0 for at in times()}
    [episode] = fetch(OperatorMetrics().cut((-1200, 300)).sends(sent)).episodes or ()
    assert (seconds([episode.start_ms, episode.end_ms]), episode.wanted_bytes_per_second) == (
        [-1215.0, 315.0],
        950.0,
    )


def test_of_an_episode_without_a_known_beginning_no_rate_is_known() -> None:
    assert (
        fetch(OperatorMetrics().cut((-3600, 300)).sends(dict.fromkeys(times(), 400.0))).episodes
        == ()
    )


def test_each_cut_after_a_return_to_the_contract_is_an_episode() -> None:
    metrics = OperatorMetrics().cut((600, 900), (1500, 1800)).sends(dict.fromkeys(times(), 800.0))
    assert [seconds([one.start_ms]) for one in fetch(metrics).episodes or ()] == [[585.0], [1485.0]]
    assert [one.throttle_episodes for one in terms_of(metrics).tiers] == [2]


def test_a_rise_to_a_new_contract_is_no_throttle() -> None:
    stepping = {at: "Stepping" if 600 <= at <= 900 else "Contract" for at in times()}
    terms = terms_of(
        OperatorMetrics()
        .member(quotas((600, 900)))
        .level(stepping)
        .sends(dict.fromkeys(times(), 900.0))
    )
    assert terms.brokers[1]["fetch"].episodes == ()
    [states] = terms.tiers
    assert (states.seconds_contract, states.seconds_stepping, states.seconds_throttled) == (
        3285.0,
        315.0,
        0.0,
    )


def test_who_has_no_contract_is_throttled_while_it_has_a_quota() -> None:
    held = {at: 400.0 for at in times() if 600 <= at <= 900}
    metrics = (
        OperatorMetrics()
        .member(held, target={})
        .level({at: "Throttled" if at in held else "Contract" for at in times()})
    )
    [episode] = fetch(metrics.sends(dict.fromkeys(times(), 900.0))).episodes or ()
    assert seconds([episode.start_ms, episode.end_ms]) == [585.0, 915.0]


@pytest.mark.parametrize(
    ("first", "hour", "began"),
    [(0, 0, 1), (0, -1, 0), (-15, 0, 0), (-15, -1, 1), (3585, 0, 1), (3600, 0, 0)],
)
def test_an_episode_counts_in_the_hour_in_which_it_begins(
    first: float, hour: int, began: int
) -> None:
    """The scrape at an edge covers the time before it."""
    terms = terms_of(
        OperatorMetrics().cut((first + 15, first + 300)), start_ms=START_MS + hour * HOUR_MS
    )
    assert [one.throttle_episodes for one in terms.tiers] == [began]


def test_states_fill_an_hour_and_relaxing_is_distinguished() -> None:
    states = {
        at: "Throttled" if 600 <= at <= 900 else "Relaxing" if 900 < at <= 1200 else "Contract"
        for at in times()
    }
    [tier] = terms_of(OperatorMetrics().member(quotas((600, 1200))).level(states)).tiers
    assert (
        tier.seconds_contract,
        tier.seconds_stepping,
        tier.seconds_throttled,
        tier.seconds_relaxing,
    ) == (2985.0, 0.0, 315.0, 300.0)


def test_time_in_which_the_operator_was_away_is_in_no_state() -> None:
    known = {at: rate for at, rate in quotas().items() if not 600 < at < 1800}
    [tier] = terms_of(OperatorMetrics().member(known).level(dict.fromkeys(known, "Contract"))).tiers
    assert tier.seconds_contract == 3600 - 1200 + 15


def test_hours_one_after_the_other_give_what_a_run_over_both_gives() -> None:
    metrics = OperatorMetrics().cut((-600, 600)).sends(dict.fromkeys(times(), 900.0))
    together = TermsReader(metrics, SETTINGS, POLICY)
    for start_ms in (START_MS - HOUR_MS, START_MS):
        assert together.of(start_ms, start_ms + HOUR_MS, (1,)) == terms_of(
            metrics, start_ms=start_ms
        )
