"""What the status of a BrokerBandwidthPolicy says after a pass: the cluster, its brokers, the levels, the quotas.

Every number comes from the decision or, for limits of brokers, from the policy. Where a pass does not know (the brokers, while
none answers), what the status said before stays. Rates are metrics, not status.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from controller_logic.decision import Decision, LevelReport, LevelState
from controller_logic.model import BrokerLimit
from controller_logic.reasons import Reason
from controller_logic.throttle.pressure import Pressure
from tidegate.control.reconcile import PassResult
from tidegate.control.report.conditions import policy_verdicts
from tidegate.control.rollups_condition import rollup_status, rollups_current
from tidegate.control.rollups_look import RollupSight
from tidegate.control.status_tier import skew_text
from tidegate.control.verdict import Truth, Verdict, ready, shortened
from tidegate.resources.policy import PolicySpec
from tidegate.resources.schema import SchemaModel
from tidegate.resources.status import BrokerStatus, PolicyStatus, PolicySummary, QuotaCounts, TierSummary

MAX_BROKERS = 1000
Part = TypeVar("Part", bound=SchemaModel)
_BELOW_CONTRACT = frozenset({LevelState.THROTTLED.value, LevelState.RELAXING.value})
CONDITION_TYPES = ("Ready", "ClusterReachable", "MetricsFresh", "QuotasInSync", "Throttling")


@dataclass(frozen=True, slots=True)
class PolicyVerdict:
    """The whole status of a policy: everything but conditions, and the conditions still without their times."""

    status: PolicyStatus
    verdicts: tuple[Verdict, ...]


def policy_verdict(
    result: PassResult, spec: PolicySpec, *, previous: Mapping[str, Any], rollups: RollupSight | None = None
) -> PolicyVerdict:
    """The status after a pass. `previous` is the status as it stands, for what this pass does not know."""
    decision = result.decision
    brokers = _brokers(result, previous)
    known = result.seen.observation.quotas is not None
    status = PolicyStatus(
        cluster_id=result.seen.facts.cluster_id if result.seen.facts is not None else previous.get("clusterId"),
        brokers=brokers,
        tiers=_levels(result, previous),
        quotas=_counts(decision) if known else _previous_counts(previous),
        rollup=rollup_status(rollups, wanted=spec.rollup is not None, previous=previous),
        summary=PolicySummary(
            brokers=None if brokers is None else len(brokers),
            over=_over(result),
            throttled=_throttled(result, previous),
            quotas=f"{decision.in_sync}/{decision.managed}" if known else (previous.get("summary") or {}).get("quotas"),
        ),
    )
    now_seconds = result.seen.observation.now_seconds
    current = rollups_current(rollups, wanted=spec.rollup is not None, previous=previous, now_seconds=now_seconds)
    return PolicyVerdict(status, (*policy_verdicts(result, measured=spec.metrics is not None), *current))


def unread_policy(reason: Reason, message: str) -> PolicyVerdict:
    """The status of a policy whose spec cannot be acted on; nothing is said about its cluster."""
    return PolicyVerdict(PolicyStatus(), (ready(Truth.FALSE, reason, message), *_not_looked_at(reason)))


def starting_policy() -> PolicyVerdict:
    """The status on first sight, before any pass has ended."""
    message = "Seen; the first pass has not ended yet"
    return PolicyVerdict(PolicyStatus(), (ready(Truth.UNKNOWN, Reason.STARTING, message), *_not_looked_at(Reason.STARTING)))


def _not_looked_at(reason: Reason) -> tuple[Verdict, ...]:
    return tuple(Verdict(kind, Truth.UNKNOWN, reason, "Not looked at: see the condition Ready") for kind in CONDITION_TYPES[1:])


def _brokers(result: PassResult, previous: Mapping[str, Any]) -> tuple[BrokerStatus, ...] | None:
    topology = result.seen.observation.topology
    if topology is None:
        return _parsed(previous, "brokers", BrokerStatus)
    limits = result.seen.observation.policy.limits
    said = {one.broker: one.pressure for one in result.decision.watched or ()}
    now = rfc3339(result.seen.observation.now_seconds) if said else None
    since = {(entry.get("id"), entry.get("pressure")): entry.get("since") for entry in previous.get("brokers") or ()}
    return tuple(
        _broker(broker, limits.of(broker), pressure := said.get(broker, Pressure.UNKNOWN), since.get((broker, pressure.value)) or now)
        for broker in sorted(topology.brokers)[:MAX_BROKERS]
    )


def _broker(broker: int, limit: BrokerLimit, pressure: Pressure, since: str | None) -> BrokerStatus:
    document = {"id": broker, "egressLimit": limit.egress, "ingressLimit": limit.ingress, "pressure": pressure.value, "since": since}
    return BrokerStatus.model_validate({name: value for name, value in document.items() if value is not None})


def _over(result: PassResult) -> int | None:
    watched = result.decision.watched
    return None if watched is None else sum(one.pressure is Pressure.OVER for one in watched)


def _levels(result: PassResult, previous: Mapping[str, Any]) -> tuple[TierSummary, ...] | None:
    """The levels as decided; what a held pass does not know stays as it was said."""
    if result.decision.holds:
        return _parsed(previous, "tiers", TierSummary)
    now = rfc3339(result.seen.observation.now_seconds)
    stood = {tier.get("level"): tier for tier in previous.get("tiers") or ()}
    return tuple(_level(one, stood.get(one.level.value) or {}, now) for one in result.decision.levels)


def _level(one: LevelReport, before: Mapping[str, Any], now: str) -> TierSummary:
    """What began an episode is kept over a restart too: then only the status remembers it."""
    same = before.get("state") == one.state.value
    because = (before.get("because") if before.get("state") in _BELOW_CONTRACT else None) or one.because
    document = {"level": one.level.value, "state": one.state.value, "since": before.get("since") if same else now}
    return TierSummary.model_validate(document | ({"because": shortened(because)} if one.below_contract and because else {}))


def _throttled(result: PassResult, previous: Mapping[str, Any]) -> str | None:
    if result.decision.holds:
        told: str | None = (previous.get("summary") or {}).get("throttled")
        return told
    return ",".join(one.level.value for one in result.decision.levels if one.below_contract) or "none"


def _counts(decision: Decision) -> QuotaCounts:
    return QuotaCounts(
        managed=decision.managed,
        in_sync=decision.in_sync,
        contended=decision.contended,
        largest_leader_skew=skew_text(decision.largest_leader_skew),
    )


def _previous_counts(previous: Mapping[str, Any]) -> QuotaCounts | None:
    counts = previous.get("quotas")
    return None if not counts else QuotaCounts.model_validate(counts)


def _parsed(previous: Mapping[str, Any], field: str, model: type[Part]) -> tuple[Part, ...] | None:
    entries = previous.get(field)
    return None if entries is None else tuple(model.model_validate(entry) for entry in entries)


def rfc3339(seconds: float) -> str:
    """A time as Kubernetes writes it, in UTC and whole seconds."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
