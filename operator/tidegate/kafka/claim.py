"""The claim on a cluster: its text, who may take it, and whether it lets a batch be written."""

import contextlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields, replace

from tidegate.errors import Conflict, ForeignContent, RetryLater, WriteRefused
from tidegate.kafka.ledger import compact, mapping, seconds, text
from tidegate.kafka.quota_node import json_problem
from tidegate.kafka.quota_store import REPLACE_CLAIM, Claim, ClusterFacts
from tidegate_logic.reasons import Reason
from tidegate_logic.words import rfc3339

_FIRST_CLAIM_FORMAT = 1  # version 0.1's, with the key and the uid only
_CLAIM_FORMAT_WITHOUT_LEASES = 2
_CLAIM_FORMAT = 3
_RELEASE_FORMAT = 1
_FORMER_KEPT = 20  # uids in a claim


def claim_to_bytes(claim: Claim) -> bytes:
    """The claim as compact JSON."""
    return compact({"version": _CLAIM_FORMAT, **asdict(claim)})


def parse_claim(data: bytes | None, place: str) -> Claim:
    """Read the claim. Raises ForeignContent, naming the `place`, when it is not one of ours."""
    try:
        root = mapping(json.loads((data or b"").decode("utf-8")))
        if root.get("version") == _FIRST_CLAIM_FORMAT:
            _require_fields(root, {"version", "policy_key", "policy_uid"})
            return Claim(text(root["policy_key"]), text(root["policy_uid"]))
        names = {"version", *(field.name for field in fields(Claim))}
        if root.get("version") == _CLAIM_FORMAT_WITHOUT_LEASES:
            names.remove("lease_namespace")
        else:
            _require_format(root, _CLAIM_FORMAT)
        _require_fields(root, names)
        return Claim(
            text(root["policy_key"]),
            text(root["policy_uid"]),
            text(root["holder"]),
            _count(root["epoch"]),
            seconds(root["since_seconds"]),
            tuple(map(text, _list(root["former"]))),
            text(root.get("lease_namespace", "")),
        )
    except (ValueError, RecursionError) as error:
        raise ForeignContent(
            f"{place} cannot be read ({json_problem(error)}), so it is not known which policy "
            "manages this cluster and nothing is written. If a newer Tidegate wrote it, use that "
            "version; otherwise inspect it and delete it. `tidegate ledger accept` then goes on "
            "with the records that are there."
        ) from error


def release_to_bytes(claim: Claim) -> bytes:
    """The note that this claim was released, when nothing was left under it."""
    released = {"policy_uid": claim.policy_uid, "epoch": claim.epoch}
    return compact({"version": _RELEASE_FORMAT, "released": released})


def parse_release(data: bytes | None) -> int:
    """The epoch of the claim that was released last; 0 where nothing that is known says so."""
    with contextlib.suppress(ValueError, RecursionError):
        root = mapping(json.loads((data or b"").decode("utf-8")))
        if root.get("version") == _RELEASE_FORMAT:
            return _count(mapping(root.get("released")).get("epoch"))
    return 0


def _require_format(root: Mapping[str, object], known: int) -> None:
    if root.get("version") != known:
        raise ValueError(f"its format is {root.get('version')!r}, only {known} is known")


def _require_fields(root: Mapping[str, object], names: set[str]) -> None:
    if set(root) != names:
        raise ValueError(f"its fields are {sorted(root)}")


def _list(content: object) -> list[object]:
    if not isinstance(content, list):
        raise ValueError("a list was expected")
    return content


def _count(content: object) -> int:
    if isinstance(content, bool) or not isinstance(content, int) or content < 1:
        raise ValueError(f"a count was expected, not {content!r}")
    return content


def next_claim(
    current: Claim | None,
    wanted: Claim,
    replaces: str,
    *,
    renews: bool = False,
    released_epoch: int = 0,
) -> Claim:
    """The claim that `wanted` leaves behind; raises WriteRefused where it stays another's.

    One that only `renews` raises Conflict where there is no claim: the policy was let go.
    """
    if current is None and renews:
        raise Conflict(
            f"The claim of policy {wanted.policy_key} on this Kafka cluster was released since "
            "this pass began; nothing is written before the next one."
        )
    if current is None:
        return replace(wanted, epoch=max(wanted.epoch, released_epoch) + 1, former=())
    if current.is_of(wanted.policy_key, wanted.policy_uid):
        if (
            current.lease_namespace == wanted.lease_namespace
            and current.holder == wanted.holder
            and current.epoch
        ):
            return current
        if current.is_of_another_operator(
            wanted.policy_uid, wanted.lease_namespace
        ) and not current.may_be_replaced(wanted.policy_uid, replaces):
            raise refused_to(wanted, current)
        # what another holder has decided is of an earlier epoch, so it is not written any more; an
        # operator of before cannot even read this claim
        return replace(wanted, epoch=current.epoch + 1, former=current.former)
    if current.policy_key == wanted.policy_key and current.may_be_replaced(
        wanted.policy_uid, replaces
    ):
        former = (*current.former, current.policy_uid)[-_FORMER_KEPT:]
        return replace(wanted, epoch=current.epoch + 1, former=former)
    raise refused_to(wanted, current)


def require_writable(
    address: str,
    facts: ClusterFacts,
    expected_cluster_id: str,
    policy_keys: Iterable[str],
    owner: Claim | None,
) -> None:
    """Raise unless this is the right cluster, not in a migration, with a controller.

    If the cluster is claimed, only the policy of the claim may be in `policy_keys`, and be the
    `owner`: see QuotaStore.write.
    """
    if facts.cluster_id != expected_cluster_id:
        raise WriteRefused(
            Reason.WRONG_CLUSTER,
            f"{wrong_cluster(address, facts.cluster_id, expected_cluster_id)}. Nothing is written.",
            advice="Correct the address, or the policy's clusterId if the cluster was rebuilt on "
            "purpose.",
        )
    if facts.migration_running:
        raise WriteRefused(
            Reason.MIGRATION_RUNNING,
            f"{migration_running(address)}. Nothing is written. Finish the migration: with "
            "quotaStore Auto the ledger then moves to a topic by itself.",
        )
    if facts.controller_version is None:
        raise RetryLater(
            Reason.CONTROLLER_ABSENT,
            f"{no_controller(address)}. Nothing is written.",
            consequence="the next pass tries again.",
        )
    if facts.claim is not None:
        others = sorted(set(policy_keys) - {facts.claim.policy_key})
        if others:
            raise already_managed(facts.claim, others[0])
    if owner is not None:
        _require_claim_of(owner, facts.claim)


def _require_claim_of(owner: Claim, now: Claim | None) -> None:
    if now is not None and not now.is_of(owner.policy_key, owner.policy_uid):
        raise refused_to(owner, now)
    if owner.epoch and (now is None or now.epoch != owner.epoch):
        raise Conflict(
            f"The claim of policy {owner.policy_key} on this Kafka cluster was released, or taken "
            "again, since this pass began; nothing is written before the next one."
        )


def refused_to(policy: Claim, claim: Claim) -> WriteRefused:
    """The refusal for the policy of a claim that is not in force, but `claim` is."""
    if claim.policy_key != policy.policy_key:
        return already_managed(claim, policy.policy_key)
    return WriteRefused(Reason.CLAIMED_ELSEWHERE, f"{claimed_elsewhere(claim, policy.policy_uid)}.")


def already_managed(claim: Claim, policy_key: str) -> WriteRefused:
    """The refusal for a policy when another one has claimed the cluster."""
    return WriteRefused(
        Reason.CLUSTER_ALREADY_MANAGED,
        f"Policy {claim.policy_key} (uid {claim.policy_uid}) manages this Kafka cluster already, "
        f"so nothing is written for {policy_key}. "
        f"{two_policies_advice(claim.policy_key)}.",
    )


def claimed_elsewhere(claim: Claim, policy_uid: str) -> str:
    """The message for the policy of `policy_uid`, whose name is that of the claim's.

    With the same uid it is another operator's: see Claim.is_of_another_operator.
    """
    namespace, _, name = claim.policy_key.rpartition("/")
    since = rfc3339(claim.since_seconds)
    who = (
        f"by operator {claim.holder} since {since} (epoch {claim.epoch})"
        if claim.epoch
        else "by an operator of version 0.1, which did not say since when"
    )
    how = "was taken over" if policy_uid in claim.former else "is held"
    whose = (
        f"for this policy {who}, with its Leases in namespace {claim.lease_namespace}; this "
        "operator has its own elsewhere and changes nothing. Let only one of the two watch this "
        "policy"
        if policy_uid == claim.policy_uid
        else f"for another policy {claim.policy_key}, with uid {claim.policy_uid}, {who}; this one "
        f"has uid {policy_uid} and changes nothing. Let only one of the two name this cluster"
    )
    return (
        f"The claim on this Kafka cluster {how} {whose}; if the other is gone for good, replace "
        f"it: kubectl annotate bbp {name} -n {namespace} "
        f"{REPLACE_CLAIM}={claim.name_for(policy_uid)} --overwrite"
    )


def wrong_cluster(address: str, found: str, expected: str) -> str:
    """The message that another cluster answers than was expected."""
    return f"The cluster at {address} has id {found}, not {expected}"


def migration_running(address: str) -> str:
    """The message that a migration runs, whose controller would overwrite our writes."""
    return (
        f"The cluster at {address} is being migrated to KRaft, so its ZooKeeper nodes must not "
        f"be written"
    )


def no_controller(address: str) -> str:
    """The message that no controller is elected."""
    return f"The cluster at {address} has no controller at the moment"


def two_policies_advice(owner_policy_key: str) -> str:
    """The advice for two policies that name one cluster."""
    return (
        f"Delete one of the two; if {owner_policy_key} is gone for good, `tidegate restore` "
        "restores its quotas and releases its claim"
    )
