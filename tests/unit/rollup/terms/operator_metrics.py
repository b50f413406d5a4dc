"""Made-up metrics of the operator: quotas, contracts, states and limits, read as through a
transport.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tidegate.rollup.samples import ReadRequest, Selection, SeriesSamples
from tidegate.rollup.schemas import HOUR_MS
from tidegate.rollup.terms.sources import STATES, PolicyTerms
from tidegate_logic.model import Contract, Entity, Level, Member, Policy, RateForm, Tier

START_MS = 1_780_002_000_000 // HOUR_MS * HOUR_MS
SCRAPE_MS = 15_000
CONTRACT = 2000
ETL = Member(
    "etl", Entity("etl"), contract=Contract(RateForm.PER_BROKER, fetch_bytes_per_second=CONTRACT)
)
BULK = Tier("ns/bulk", Level.L3, (ETL,))
POLICY = PolicyTerms.of(Policy("ns/shop", "uid"), [BULK])
LABELS = {"policy_namespace": "ns", "policy": "shop"}

Quotas = Mapping[float, float]  # by seconds after START_MS


def times(begin_s: float = -3600, until_s: float = 3690) -> list[float]:
    return [float(at) for at in np.arange(begin_s, until_s, SCRAPE_MS / 1000)]


def quotas(
    *cuts: tuple[float, float], rate: float = 400, begin_s: float = -3600, until_s: float = 3690
) -> dict[float, float]:
    """The contract, and `rate` from the first to the last scrape of each cut."""
    return {
        at: rate if any(first <= at <= last for first, last in cuts) else CONTRACT
        for at in times(begin_s, until_s)
    }


@dataclass
class OperatorMetrics:
    """A transport over series that tests put in. `reads` counts what was asked for."""

    series: list[tuple[str, Mapping[str, str], Mapping[float, float]]] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    name: str = "made up"
    exact: bool = True

    def member(
        self,
        quota: Quotas,
        *,
        target: Quotas | None = None,
        name: str = "etl",
        tier: str = BULK.key,
    ) -> OperatorMetrics:
        """A member's fetch quota, and its contract: `CONTRACT` unless given."""
        labels = {**LABELS, "tier": tier.rpartition("/")[2], "member": name, "direction": "fetch"}
        contract = dict.fromkeys(quota, float(CONTRACT)) if target is None else target
        self.series += [
            ("tidegate_member_quota_bytes_per_second", labels, quota),
            ("tidegate_member_target_bytes_per_second", labels, contract),
        ]
        return self

    def level(self, states: Mapping[float, str], level: str = "L3") -> OperatorMetrics:
        for state in STATES:
            labels = {**LABELS, "level": level, "state": state}
            self.series.append(
                (
                    "tidegate_tier_state",
                    labels,
                    {at: float(said == state) for at, said in states.items()},
                )
            )
        return self

    def cut(self, *cuts: tuple[float, float]) -> OperatorMetrics:
        """A member at `quotas` whose level is throttled meanwhile."""
        held = quotas(*cuts)
        return self.member(held).level(
            {at: "Throttled" if rate < CONTRACT else "Contract" for at, rate in held.items()}
        )

    def limit(self, rates: Mapping[float, float], broker: int = 1) -> OperatorMetrics:
        labels = {**LABELS, "broker": str(broker), "direction": "egress"}
        self.series.append(("tidegate_broker_limit_bytes_per_second", labels, rates))
        return self

    def sends(
        self, rates: Mapping[float, float], *, user: str = "etl", broker: int = 1
    ) -> OperatorMetrics:
        labels = {"broker": str(broker), "user": user, "resource": "Fetch"}
        self.series.append(("kafka_quota_byte_rate", labels, rates))
        return self

    def read(self, selection: Selection, start_ms: int, end_ms: int) -> list[SeriesSamples]:
        self.reads.append(selection.metric or selection.matching.get("__name__", ""))
        found = (
            self._within(labels, samples, start_ms, end_ms)
            for name, labels, samples in self.series
            if _fits(selection, name, labels)
        )
        return [one for one in found if len(one.times_ms)]

    def read_all(self, asked: Sequence[ReadRequest]) -> list[list[SeriesSamples]]:
        return [self.read(*one) for one in asked]

    def _within(
        self, labels: Mapping[str, str], samples: Mapping[float, float], start_ms: int, end_ms: int
    ) -> SeriesSamples:
        kept = [
            (START_MS + round(at * 1000), value)
            for at, value in sorted(samples.items())
            if start_ms <= START_MS + at * 1000 < end_ms
        ]
        return SeriesSamples(
            labels,
            np.array([at for at, _ in kept], np.int64),
            np.array([value for _, value in kept], np.float64),
        )

    def close(self) -> None:
        """Nothing is open."""


def _fits(selection: Selection, name: str, labels: Mapping[str, str]) -> bool:
    found = {**labels, "__name__": name}
    wanted = {**selection.equal, **({"__name__": selection.metric} if selection.metric else {})}
    equal = all(found.get(label, "") == value for label, value in wanted.items())
    return equal and all(
        re.fullmatch(pattern, found.get(label, "")) for label, pattern in selection.matching.items()
    )


def tier(*members: Member, key: str = BULK.key, level: Level = Level.L3) -> Tier:
    return Tier(key, level, members)


def policy(*tiers: Tier, statuses: Mapping[str, Mapping[str, object]] | None = None) -> PolicyTerms:
    return PolicyTerms.of(Policy("ns/shop", "uid"), list(tiers), statuses)


def seconds(values: Sequence[int]) -> list[float]:
    return [(value - START_MS) / 1000 for value in values]
