"""Beside Strimzi: whose quotas its User Operator owns, and whose it removes.

For each KafkaUser the User Operator keeps the quotas of two Kafka users as it wants them, at every
change of the KafkaUser and every two minutes: what the KafkaUser declares for the name that its
login gives, `alice` or `CN=alice`, and none for the other. It also removes the quotas of users
without a KafkaUser, unless its STRIMZI_IGNORED_USERS_PATTERN names them, together with their ACLs,
their SCRAM credentials and the Secret of that name. It writes users only: no client ids, no pairs
of user and client id, and not Kafka's default entities. The quotas of Kafka's default user are
those of Strimzi's Cluster Operator: what spec.kafka.quotas of the Kafka declares, or none.

What a KafkaUser declares is therefore never Tidegate's. A member of that user is left out before
anything else is worked out. What Tidegate wrote for it before is no longer recorded, and stands
until the User Operator changes it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tidegate_logic.contracts.allowed import Admission
from tidegate_logic.contracts.desired import DEFAULT_USER, MemberReport, MemberState
from tidegate_logic.model import Entity, KafkaUser, QuotaWrite, StrimziUsers
from tidegate_logic.quota_values import same_quota
from tidegate_logic.quotas.contention import Contention
from tidegate_logic.reasons import Reason

IGNORED_USERS = "STRIMZI_IGNORED_USERS_PATTERN"  # in the environment of the User Operator
PAUSED = "strimzi.io/pause-reconciliation"  # an annotation of KafkaUsers
CERTIFICATE_PREFIX = "CN="
_PAGE = "docs/strimzi.md"


def is_within_reach(entity: Entity) -> bool:
    """Whether the User Operator would write the quota of this entity at all."""
    return isinstance(entity.user, str) and entity.client_id is None


def declaring(strimzi: StrimziUsers | None, entity: Entity) -> KafkaUser | None:
    """The KafkaUser that declares the entity's quotas; None = none does, or it is not known."""
    found = kafka_user_of(strimzi, entity)
    if found is None or not found.declares_quotas or found.kafka_name != entity.user:
        return None
    return found


def kafka_user_of(strimzi: StrimziUsers | None, entity: Entity) -> KafkaUser | None:
    """The KafkaUser whose User Operator writes the entity's quota; None = none, or not known."""
    if strimzi is None or strimzi.users is None or not is_within_reach(entity):
        return None
    return strimzi.users.get(str(entity.user).removeprefix(CERTIFICATE_PREFIX))


def leave_to_strimzi(admission: Admission, strimzi: StrimziUsers | None) -> Admission:
    """Leave out the members whose quotas a KafkaUser declares, and report on each."""
    if strimzi is None or not strimzi.users or admission.tiers is None:
        return admission
    kept, owned = [], []
    for tier in admission.tiers:
        left_out = {
            id(member): user
            for member in tier.members
            if (user := declaring(strimzi, member.entity)) is not None
        }
        if not left_out:
            kept.append(tier)
            continue
        kept.append(
            replace(tier, members=tuple(one for one in tier.members if id(one) not in left_out))
        )
        owned += [
            MemberReport(
                tier,
                member,
                None,
                MemberState.OWNED_BY_STRIMZI,
                Reason.OWNED_BY_STRIMZI,
                _owned_words(member.entity, left_out[id(member)]),
            )
            for member in tier.members
            if id(member) in left_out
        ]
    return Admission(tuple(kept), (*admission.refused, *owned))


def _owned_words(entity: Entity, user: KafkaUser) -> str:
    return (
        f"KafkaUser {user.key} declares the quotas of {entity}, so they are Strimzi's. This member "
        "changes nothing, and its quota is what the KafkaUser says. Take the member out of the "
        f"tier, or spec.quotas out of the KafkaUser; {_PAGE} has what the latter needs besides"
    )


def forgotten(ours: Iterable[Entity], strimzi: StrimziUsers | None) -> Mapping[Entity, str]:
    """Those of our entities whose record goes, because a KafkaUser declares them, with the words.

    The quota itself is left as it is.
    """
    if strimzi is None or not strimzi.users:
        return {}
    return {
        entity: (
            f"{entity}: the quota stays as it is and is no longer recorded as Tidegate's, because "
            f"KafkaUser {user.key} declares it now"
        )
        for entity in ours
        if (user := declaring(strimzi, entity)) is not None
    }


def unread_words(strimzi: StrimziUsers) -> str:
    """Why the quota of a user stays as it is while its KafkaUser is not known."""
    return (
        f"the KafkaUsers of Strimzi's cluster {strimzi.cluster} could not be read, and one may "
        f"declare this quota ({strimzi.unread.rstrip('.')}); it stays as it is until they are read"
    )


def writes_over_others(writes: Iterable[QuotaWrite], strimzi: StrimziUsers | None) -> bool:
    """Whether a write changes a user's quota that someone else changed since Tidegate wrote it.

    That may have been the User Operator, after an edit of a KafkaUser that is not known yet. Never
    where the KafkaUsers are not known at all.
    """
    if strimzi is None or strimzi.users is None:
        return False
    return any(is_within_reach(write.entity) and _is_over_another(write) for write in writes)


def _is_over_another(write: QuotaWrite) -> bool:
    ledger = write.seen.ledger
    entries = {} if ledger is None else ledger.entries
    return any(
        not same_quota(entries[key].written if key in entries else None, write.seen.values.get(key))
        for key in write.values
    )


def with_causes(
    contended: Mapping[Entity, Contention], strimzi: StrimziUsers | None
) -> Mapping[Entity, Contention]:
    """The same, each with what it is that Strimzi's User Operator does to it, where that fits.

    It removes and never sets what no KafkaUser declares, and it removes all keys at once.
    """
    if strimzi is None or not contended:
        return contended
    return {
        entity: replace(one, cause=removal_words(strimzi, entity))
        if entity == DEFAULT_USER or all(theirs is None for _, theirs, _ in one.values)
        else one
        for entity, one in contended.items()
    }


def removal_words(strimzi: StrimziUsers, entity: Entity) -> str:
    """Why one of Strimzi's operators removes such a quota, and what to set; "" = none does."""
    if entity == DEFAULT_USER:
        return (
            "Strimzi's Cluster Operator gives Kafka's default user what spec.kafka.quotas of Kafka "
            f"{strimzi.cluster} says, and removes anything else. Declare it there (type kafka) and "
            f"take it out of spec.defaults ({_PAGE})"
        )
    if not is_within_reach(entity) or declaring(strimzi, entity) is not None:
        return ""
    if strimzi.users is None:
        return (
            f"This is Strimzi's cluster {strimzi.cluster}, whose User Operator removes what no "
            "KafkaUser declares. Which users have one is not known, since the operator may not "
            f"read KafkaUsers (strimzi.enabled of the chart); {_PAGE} has what to set"
        )
    user = kafka_user_of(strimzi, entity)
    if user is None:
        return (
            f"{entity} has no KafkaUser in Strimzi's cluster {strimzi.cluster}, and its User "
            "Operator removes what such users have every two minutes: quotas, ACLs, SCRAM "
            f"credentials. Set {IGNORED_USERS} in its environment to a pattern that fits the whole "
            f"name {entity.user} ({_PAGE})"
        )
    if user.is_paused:
        return ""
    if user.kafka_name != entity.user:
        return (
            f"KafkaUser {user.key} is {user.kafka_name} in Kafka, and Strimzi's User Operator "
            f"removes quotas of {entity.user} every two minutes. Name {user.kafka_name} in the "
            "member"
        )
    return (
        f"KafkaUser {user.key} declares no quotas, so Strimzi's User Operator removes any every "
        f"two minutes; {IGNORED_USERS} is only for users without a KafkaUser. Declare the quota "
        "in the KafkaUser and take the member out of the tier, name a client id in the member as "
        f"well, or pause the KafkaUser with the annotation {PAUSED}=true ({_PAGE})"
    )
