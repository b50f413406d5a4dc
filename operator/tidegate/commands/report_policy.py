"""What a policy adds to a report: names of members, contracts and which would fit, prices, and the series that its tables are made of.

Nobody is asked; of Secrets nothing is read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import pyarrow.compute as pc

from tidegate.commands.inputs import PolicySource
from tidegate.commands.rollup_policy import terms_of
from tidegate.control.connections import metrics_settings
from tidegate.prometheus.settings import MetricsSettings, PrometheusServer
from tidegate.rollup.member_usage import member_usage
from tidegate.rollup.report.declared_members import member_terms, recommendations
from tidegate.rollup.report.request import MemberTerms, RecommendedContract, SourceSeries, UsageTables
from tidegate.rollup.report.source_series import source_series
from tidegate.rollup.schemas import Direction
from tidegate.rollup.tables.store import UsageStore


@dataclass(frozen=True, slots=True)
class PolicyParts:
    """Without a policy there are only the series of the usual exporters."""

    key: str = ""
    members: Sequence[MemberTerms] = ()
    recommendations: Sequence[RecommendedContract] = ()
    per_gib: Mapping[Direction, Decimal] = field(default_factory=dict)
    series: Sequence[SourceSeries] = ()


def policy_parts(source: PolicySource | None, store: UsageStore, tables: UsageTables, start_ms: int, end_ms: int) -> PolicyParts:
    """Recommendations rest on the period [start, end). Raises what reading the store does."""
    terms = terms_of(source)
    if source is None or terms is None:
        return PolicyParts(series=tuple(source_series(MetricsSettings(PrometheusServer("")))))
    brokers = frozenset(pc.unique(tables.brokers["broker"]).to_pylist())
    usage = member_usage(store, terms.tiers, start_ms, end_ms)
    return PolicyParts(
        terms.key,
        member_terms(terms, brokers=len(brokers)),
        recommendations(source.declared.policy, terms, usage, brokers),
        _prices(source),
        tuple(source_series(_settings(source))),
    )


def _prices(source: PolicySource) -> Mapping[Direction, Decimal]:
    rollup = source.declared.spec.rollup
    price = rollup.price_per_gib if rollup is not None else None
    declared: Mapping[Direction, str | None] = {} if price is None else {"fetch": price.fetch, "produce": price.produce}
    return {direction: Decimal(amount) for direction, amount in declared.items() if amount is not None}


def _settings(source: PolicySource) -> MetricsSettings:
    """Which series, whatever it takes to be let in."""
    spec = source.declared.spec.metrics
    if spec is None:
        return MetricsSettings(PrometheusServer(""))
    without_secrets = spec.prometheus.model_copy(update={"credentials_secret_ref": None, "ca_secret_ref": None})
    return metrics_settings(spec.model_copy(update={"prometheus": without_secrets}), login={}, authority={}, folder=Path())
