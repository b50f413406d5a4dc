"""What has to stand before the first write: the finalizer that lets a deletion give quotas back, and the claim on the cluster.

Neither is taken by a policy that writes nothing (Observe, paused, held or being deleted).
"""

from controller_logic.model import Mode
from controller_logic.reasons import Reason
from tidegate.control.observe import Seen
from tidegate.errors import RetryLater
from tidegate.kafka.quota_store import QuotaStore
from tidegate.kube.api import JsonObject, Kubernetes, ObjectRef

RESTORE_FINALIZER = "tidegate.io/restore"


def has_finalizer(raw: JsonObject) -> bool:
    return RESTORE_FINALIZER in (raw["metadata"].get("finalizers") or ())


def take_ownership(seen: Seen, raw: JsonObject, *, ref: ObjectRef, kubernetes: Kubernetes, store: QuotaStore) -> JsonObject | None:
    """Put the finalizer on and claim the cluster, each only where it is missing. Returns the object if it was changed.

    Raises RetryLater when the object is found to be on its way out, WriteRefused when another policy was faster.
    """
    policy, facts = seen.observation.policy, seen.facts
    if facts is None or seen.observation.holds or policy.mode is Mode.OBSERVE or policy.paused or policy.deleting:
        return None
    changed: JsonObject | None = None
    if not has_finalizer(raw):
        changed = kubernetes.add_finalizer(ref, RESTORE_FINALIZER)
        if changed["metadata"].get("deletionTimestamp"):
            raise RetryLater(Reason.CONFLICT, f"{ref} is being deleted; nothing is written for it any more")
    if (facts.owner_policy_key, facts.owner_policy_uid) != (policy.key, policy.uid):
        store.claim(policy.key, policy.uid)
    return changed
