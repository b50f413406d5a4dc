"""Tells people and machines how a pass ended: statuses, Events, metrics and log lines, all from the same decision.

A status is sent only when it differs from what stands there, and an Event only with such a change, so a pass that changes
nothing is silent everywhere but in the metrics. A report that cannot be delivered never fails the pass: the next one sends it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from controller_logic.decision import MemberReport
from controller_logic.model import QuotaWrite
from controller_logic.reasons import Reason
from tidegate.control.control_pass import PassResult
from tidegate.control.declared import Declared
from tidegate.control.events import NORMAL, WARNING, Telling, condition_events, member_events, write_events, writes_by_tier
from tidegate.control.status_policy import PolicyVerdict, policy_verdict, starting_policy, unread_policy
from tidegate.control.status_tier import TierVerdict, starting_tier, tier_verdict, unread_tier
from tidegate.control.translate import object_key
from tidegate.control.verdict import Verdict
from tidegate.errors import InvalidResource
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS, JsonObject, ResourceKind
from tidegate.resources.schema_model import SchemaModel

log = structlog.get_logger(__name__)


class Publisher(Protocol):
    """Where reports go; `publication.py` is the real one. No call raises for a world that is away."""

    def status(self, kind: ResourceKind, raw: JsonObject, status: SchemaModel, verdicts: Sequence[Verdict]) -> None:
        """Make the object's status say this, unless it does already."""
        ...

    def tell(self, kind: ResourceKind, raw: JsonObject, telling: Telling) -> None:
        """Send one Event about the object."""
        ...


@dataclass(frozen=True, slots=True)
class Reporter:
    """Reports for one policy and the tiers that refer to it."""

    publisher: Publisher

    def first_sight(self, policy: JsonObject, tiers: Iterable[JsonObject]) -> None:
        """Say `Unknown` of objects that nothing was said of yet, so that nobody takes silence for readiness."""
        if not _conditions(policy):
            self._policy(policy, starting_policy(), ())
        for tier in tiers:
            if not _conditions(tier):
                self._tier(tier, starting_tier(), ())

    def passed(self, result: PassResult, declared: Declared, *, policy: JsonObject, tiers: Sequence[JsonObject]) -> None:
        """Report a pass. `tiers` are the raw objects of the policy's tiers, broken ones included."""
        written = [write for done in result.applied for write in done.done]
        by_tier = writes_by_tier(written, result.decision.members)
        reports: dict[str, list[MemberReport]] = defaultdict(list)
        for member in result.decision.members:
            reports[member.tier_key].append(member)
        broken = {tier.key: tier.message for tier in declared.broken}
        for raw in tiers:
            key = object_key(raw)
            if key in broken:
                self._tier(raw, unread_tier(Reason.INVALID_SPEC, broken[key]), ())
            elif key in reports:
                self._tier(raw, tier_verdict(reports[key], result.decision, declared.policy.mode), by_tier.get(key, ()), reports[key])
        ownerless = [write for key, writes in by_tier.items() if key not in reports for write in writes]
        self._policy(policy, policy_verdict(result, declared.spec, previous=_status(policy)), ownerless)
        _log_writes(declared.policy.key, written)

    def unread(self, policy: JsonObject, error: InvalidResource, tiers: Iterable[JsonObject]) -> None:
        """Report a policy that does not read, and its tiers, of which nothing can be said because of it."""
        self._policy(policy, unread_policy(error.reason, error.message), ())
        told = f"Policy {object_key(policy)} is not valid, so nothing is changed for this tier until it is mended: {error.message}"
        for tier in tiers:
            self._tier(tier, unread_tier(error.reason, told), ())

    def broke(self, policy: JsonObject, error: Exception) -> None:
        """Report a bug: the pass was abandoned."""
        told = f"A bug in Tidegate, {type(error).__name__}: {error}. The pass was abandoned, quotas stay as they are, it is tried again"
        self._policy(policy, unread_policy(Reason.INTERNAL_ERROR, told), ())

    def without_policy(self, tier: JsonObject, policy_key: str) -> None:
        """Report a tier whose policy does not exist."""
        told = f"BrokerBandwidthPolicy {policy_key} does not exist; this tier changes nothing and becomes Ready by itself when it appears"
        self._tier(tier, unread_tier(Reason.POLICY_NOT_FOUND, told), ())

    def left_behind(self, policy: JsonObject, message: str) -> None:
        """Tell that a policy is let go although quotas of it stay in Kafka."""
        self.publisher.tell(BROKER_BANDWIDTH_POLICIES, policy, Telling(WARNING, Reason.RESTORE_INCOMPLETE, message))

    def gone(self, policy: JsonObject) -> None:
        """Tell that everything was given back."""
        told = "Nothing of this policy is left in Kafka; it may go"
        self.publisher.tell(BROKER_BANDWIDTH_POLICIES, policy, Telling(NORMAL, Reason.GIVEN_BACK, told))

    def _policy(self, raw: JsonObject, verdict: PolicyVerdict, written: Sequence[QuotaWrite]) -> None:
        tellings = (*condition_events(_status(raw), verdict.verdicts), *write_events(written))
        self._publish(BROKER_BANDWIDTH_POLICIES, raw, verdict.status, verdicts=verdict.verdicts, tellings=tellings)

    def _tier(self, raw: JsonObject, verdict: TierVerdict, written: Sequence[QuotaWrite], members: Sequence[MemberReport] = ()) -> None:
        changed = condition_events(_status(raw), verdict.verdicts)
        said = {telling.reason for telling in changed}
        troubles = [telling for telling in member_events(_status(raw), members) if telling.reason not in said]
        tellings = (*write_events(written), *changed, *troubles)
        self._publish(BUSINESS_TIERS, raw, verdict.status, verdicts=verdict.verdicts, tellings=tellings)

    def _publish(
        self, kind: ResourceKind, raw: JsonObject, status: SchemaModel, *, verdicts: Sequence[Verdict], tellings: Iterable[Telling]
    ) -> None:
        self.publisher.status(kind, raw, status, verdicts)
        for telling in tellings:
            self.publisher.tell(kind, raw, telling)


def _status(raw: JsonObject) -> Mapping[str, Any]:
    return raw.get("status") or {}


def _conditions(raw: JsonObject) -> Sequence[Any]:
    return _status(raw).get("conditions") or ()


def _log_writes(policy_key: str, written: Sequence[QuotaWrite]) -> None:
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for write in written:
        counts[(write.kind.value, write.reason.value)] += 1
        log.debug("Quota written", policy=policy_key, entity=str(write.entity), reason=write.reason.value, change=write.message)
    for (kind, reason), count in counts.items():
        log.info("Quotas written", policy=policy_key, kind=kind, reason=reason, count=count)
