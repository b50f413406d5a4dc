"""The way in and the way out: a policy's claim on a Kafka cluster, its finalizer, its deletion.

Before the first write a policy takes both. It may go when everything is restored, or when the time
for that is over.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from decimal import Decimal

import structlog

from tidegate.control.ledger_watch import remembered_of
from tidegate.control.reconcile import PassResult
from tidegate.control.report.conditions import listed
from tidegate.errors import NotFound, RetryLater
from tidegate.kafka.quota_store import (
    REPLACE_CLAIM,
    Claim,
    ClusterFacts,
    QuotaStore,
    require_lease,
)
from tidegate.kube.api import (
    BROKER_BANDWIDTH_POLICIES,
    JsonObject,
    Kubernetes,
    ObjectRef,
)
from tidegate.observe.declared import age_key, object_key
from tidegate.observe.observation import LedgerLoss, ObservationResult
from tidegate_logic.model import Mode, StoredQuota
from tidegate_logic.quota_values import number_of
from tidegate_logic.reasons import Reason
from tidegate_logic.words import counted

log = structlog.get_logger(__name__)


# --- before the first write: the finalizer and the claim on the cluster ---------------------------
#
# With the finalizer a deletion gives quotas back. A policy that writes nothing (Observe, paused,
# held or being deleted) takes neither.

RESTORE_FINALIZER = "tidegate.io/restore"


def has_finalizer(raw: JsonObject) -> bool:
    return RESTORE_FINALIZER in (raw["metadata"].get("finalizers") or ())


@dataclass(frozen=True, slots=True)
class Ownership:
    """The claim that the writes of a pass are sent under; epoch 0 = none was taken for them.

    `changed` is the policy if it got its finalizer now, `replaced` the claim that was taken over.
    """

    claim: Claim
    changed: JsonObject | None = None
    replaced: Claim | None = None


def take_ownership(
    seen: ObservationResult,
    raw: JsonObject,
    *,
    operator: str,
    lease_namespace: str,
    replaces: str,
    may_write: Callable[[], bool],
    kubernetes: Kubernetes,
    store: QuotaStore,
    least_epoch: int = 0,
) -> Ownership:
    """Put the finalizer on and claim the cluster for this `operator` where missing.

    A claim where there is none gets an epoch above `least_epoch`, which the policy had before. The
    claim of another replica gets the next epoch, so that nothing of what that one has decided is
    written any more; also while the policy is being deleted. Raises LeaseLost if `may_write`
    says so, RetryLater when the object is being deleted, WriteRefused when another policy was
    faster.
    """
    policy, facts = seen.observation.policy, seen.facts
    found = None if facts is None else facts.claim
    ours = found if found is not None and found.is_of(policy.key, policy.uid) else None
    wanted = Claim(
        policy.key,
        policy.uid,
        operator,
        since_seconds=float(int(seen.observation.now_seconds)),
        lease_namespace=lease_namespace,
    )
    if facts is None or seen.observation.missing or policy.mode is Mode.OBSERVE or policy.paused:
        return Ownership(ours or wanted)
    is_kept = ours is not None and ours.epoch > 0 and ours.lease_namespace == lease_namespace
    is_anothers = ours is not None and ours.holder != operator
    if policy.deleting:
        renews = is_kept and is_anothers
        return Ownership(store.claim(wanted, renews=True) if renews else ours or wanted)
    changed: JsonObject | None = None
    if ours is None or not has_finalizer(raw):
        require_lease(may_write)
        # also where the cache shows it: the cache may be late, and another replica may have
        # restored everything and let the policy go; then no one would restore what is written now
        changed = _held_by_finalizer(ObjectRef.of(BROKER_BANDWIDTH_POLICIES, raw), kubernetes)
    if ours is not None and is_kept and not is_anothers:
        return Ownership(ours, changed)
    claim = store.claim(replace(wanted, epoch=least_epoch), replaces)
    is_replaced = found is not None and (
        ours is None or found.is_of_another_operator(policy.uid, lease_namespace)
    )
    return Ownership(claim, changed, found if is_replaced else None)


def may_move_ledger(seen: ObservationResult) -> bool:
    """Whether the ledger of a cluster that moves to KRaft is this policy's to take along.

    ZooKeeper shows a controller of KRaft then, or none once it was cleaned up.
    """
    policy, facts = seen.observation.policy, seen.facts
    return (
        facts is not None
        and seen.ledger_loss is None
        and (facts.migration_running or facts.controller_version is None)
        and (facts.claim is None or facts.claim.is_of(policy.key, policy.uid))
        and policy.mode is Mode.ENFORCE
        and not policy.paused
    )


def _held_by_finalizer(ref: ObjectRef, kubernetes: Kubernetes) -> JsonObject:
    """The policy as it is now, with our finalizer. Raises RetryLater when it is going, or gone."""
    try:
        found = kubernetes.add_finalizer(ref, RESTORE_FINALIZER)
    except NotFound:
        found = None
    if found is None or found["metadata"].get("deletionTimestamp"):
        what = "does not exist any more" if found is None else "is being deleted"
        raise RetryLater(Reason.CONFLICT, f"{ref} {what}; nothing is written for it")
    return found


def take_over_words(replaced: Claim, claim: Claim) -> str:
    """The message of a policy whose claim was another's before."""
    by = f" (operator {replaced.holder})" if replaced.holder else ""
    return (
        f"The claim on the Kafka cluster was that of policy {replaced.policy_key} with uid "
        f"{replaced.policy_uid}{by}, which the annotation {REPLACE_CLAIM} names; now it is this "
        f"one's (epoch {claim.epoch}). The annotation is no longer needed and can be removed"
    )


# The older of two policies has the right to a Kafka cluster. The claim in ZooKeeper decides in the
# end, also between replicas; this keeps a younger policy from claiming first.


def competing_policy(
    policy: JsonObject, facts: ClusterFacts, policies: Iterable[JsonObject]
) -> str | None:
    """Names an older policy with the same cluster id in its status; None when ours is first.

    Where there is no claim, a policy that had the cluster's ledger takes precedence over older
    ones, until its own message is answered: what it wrote is not what was there before.
    """
    if facts.owner_policy_key == object_key(policy):
        return None
    for other in sorted(policies, key=age_key):
        if facts.claim is None and _lost_ledger(other, policy, facts):
            return (
                f"Policy {object_key(other)} had the ledger of cluster {facts.cluster_id}, and "
                "lost it. This policy changes nothing until you answer for that one, or delete it"
            )
        if age_key(other) >= age_key(policy):
            continue
        same_cluster = (other.get("status") or {}).get("clusterId") == facts.cluster_id
        if same_cluster and not other["metadata"].get("deletionTimestamp"):
            return (
                f"Policy {object_key(other)} is older and is for cluster {facts.cluster_id} too; "
                "this policy changes nothing. Delete one of the two, or point one at another "
                "cluster"
            )
    return None


def _lost_ledger(other: JsonObject, policy: JsonObject, facts: ClusterFacts) -> bool:
    """Whether another policy remembers a ledger of this cluster that it has not restored."""
    theirs, ours = (remembered_of(one.get("status") or {}) for one in (other, policy))
    return (
        theirs is not None
        and object_key(other) != object_key(policy)
        and not other["metadata"].get("deletionTimestamp")
        and theirs.cluster_id == facts.cluster_id
        and theirs.epoch > facts.ledger.released_epoch
        and (ours is None or ours.cluster_id != facts.cluster_id)
    )


# --- deletion: the policy may go when everything is restored, or the time for it is over ----------
#
# The finalizer never blocks for ever: the deadline counts from the last progress that this process
# saw, whether ZooKeeper answers or not. Quotas that are left then stay in the ledger, and the claim
# stays with them, until `tidegate restore`.


@dataclass(frozen=True, slots=True)
class DeletionOutcome:
    """The policy may go. `incomplete` names what is left behind, None when nothing is."""

    incomplete: str | None
    reason: Reason = Reason.RESTORE_INCOMPLETE

    @property
    def may_release_claim(self) -> bool:
        """Whether no record should be left: all was restored, or the rest of them is lost."""
        return self.incomplete is None or self.reason is Reason.LEDGER_LOST


class Deletion:
    """Decides when the finalizer of one policy comes off."""

    def __init__(self, deadline_seconds: float) -> None:
        self._deadline_seconds = deadline_seconds
        self._ends_at_seconds: float | None = None
        self._least: tuple[int, Decimal] | None = None

    def conclude(
        self, result: PassResult | None, *, policy_key: str, address: str, now_seconds: float
    ) -> DeletionOutcome | None:
        """The outcome; None while there are quotas left and time. `result` None = a broken spec."""
        progress = result is not None and self._goes_on(result, policy_key)
        if self._ends_at_seconds is None or progress:
            due_seconds = (result.decision.next_pass_in_seconds or 0.0) if result else 0.0
            self._ends_at_seconds = now_seconds + due_seconds + self._deadline_seconds
        loss = None if result is None else result.seen.ledger_loss
        if loss is not None and not loss.is_confirmed:
            return None  # it is looked for again
        if (
            result is not None
            and result.decision.finished_deleting
            and result.error is None
            and (result.replication.is_finished or not _may_be_changed(result))
        ):
            # others are of declarations, such as two tiers that name one user
            notes = [
                note.message
                for note in result.decision.notes
                if note.reason is Reason.RESTORE_INCOMPLETE
            ]
            if loss is not None:
                return DeletionOutcome(_lost_words(loss), Reason.LEDGER_LOST)
            return DeletionOutcome(listed(notes) if notes else None)
        elsewhere = [] if result is None else _claimed_elsewhere(result)
        if elsewhere:
            return DeletionOutcome(elsewhere[0], Reason.CLAIMED_ELSEWHERE)
        if now_seconds < self._ends_at_seconds:
            return None
        return DeletionOutcome(self._left_behind(result, policy_key=policy_key, address=address))

    def _goes_on(self, result: PassResult, policy_key: str) -> bool:
        """Whether less is left than ever before: fewer quotas, or as many at lower rates.

        Not whether anything was written: another writer of the same ledger could undo that for
        ever, and the policy would never go.
        """
        ours = _ours(result, policy_key)
        if ours is None:
            return False
        left = (len(ours), sum(map(_rates_of_ours, ours), Decimal(0)))
        if self._least is not None and left >= self._least:
            return False
        self._least = left
        return True

    def _left_behind(self, result: PassResult | None, *, policy_key: str, address: str) -> str:
        left = None if result is None else _ours(result, policy_key)
        what = (
            "It is not known how many quotas"
            if left is None
            else f"{counted(len(left), 'quota')} ({listed(_names(left))})"
        )
        throttles = _throttles_left(result)
        if left == [] and throttles:
            return (
                f"Every quota was restored.{throttles} There was no progress for "
                f"{self._deadline_seconds:.0f} s, so the policy is released and they stay. When "
                "the brokers are back, create a policy of this name again and delete it"
            )
        why = (
            ""
            if result is None or not result.decision.holds
            else f" because {result.decision.holds[0].message}."
        )
        return (
            f"{what} could not be restored: there was no progress for "
            f"{self._deadline_seconds:.0f} s. The policy is released and they stay as they are."
            f"{why}{throttles} The ledger still has the quotas from before: "
            f"`tidegate restore {address}` restores them"
        )


def _lost_words(loss: LedgerLoss) -> str:
    return (
        f"{loss.message}. The policy is released before anyone answered for that, so some of its "
        "quotas may be left in Kafka. The operator's log, and Events of this policy, name each "
        "one with the command that removes it"
    )


def _throttles_left(result: PassResult | None) -> str:
    """The replication throttles that are left, with why."""
    decision = None if result is None else result.replication.decision
    if decision is None or result is None or result.replication.is_finished:
        return ""
    where = listed([str(resource) for resource in sorted(decision.record)])
    return f" Replication throttles are left on {where}."


def _may_be_changed(result: PassResult) -> bool:
    """Whether the policy may change anything in Kafka: it is neither paused nor only observing."""
    policy = result.seen.observation.policy
    return policy.mode is not Mode.OBSERVE and not policy.paused


def _claimed_elsewhere(result: PassResult) -> list[str]:
    """Why this policy has nothing to restore: another one has the claim, and the quotas."""
    return [
        f"The policy is released, and every quota stays as it is: {hold.message}"
        for hold in result.decision.holds
        if hold.reason is Reason.CLAIMED_ELSEWHERE
    ]


def _ours(result: PassResult, policy_key: str) -> list[StoredQuota] | None:
    quotas = result.seen.observation.quotas
    if quotas is None:
        return None
    return [
        quota
        for quota in quotas.values()
        if quota.ledger is not None and quota.ledger.policy_key == policy_key
    ]


def _names(quotas: Iterable[StoredQuota]) -> list[str]:
    return sorted(str(quota.entity) for quota in quotas)


def _rates_of_ours(quota: StoredQuota) -> Decimal:
    """The sum of the rates that the ledger shows as ours; each step of giving back lowers it."""
    entries = quota.ledger.entries if quota.ledger is not None else {}
    return sum((number_of(quota.values.get(key)) or Decimal(0) for key in entries), Decimal(0))
