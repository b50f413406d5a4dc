"""Entities whose quotas stay as they are, because an input about them alone is unknown.

- A tier that cannot be read, or that the policy may or may not admit, may be the one that applies
  to an entity.
- A contract may be a recommended one whose source has not been read yet.
- One of Strimzi's KafkaUsers may declare a user's quotas while KafkaUsers cannot be read.
- A first quota waits for the first reading of what its clients send.

Such entities are taken out of the observation, so that the core leaves them alone and continues
with all others. When a policy is being deleted, everything is restored, known or not.
"""

from collections.abc import Iterator, Mapping

from tidegate.observe.declared import Declared
from tidegate_logic.contracts.allowed import is_allowed
from tidegate_logic.model import BYTE_RATE_KEYS, Entity, Note, StoredQuota
from tidegate_logic.quotas.strimzi import is_within_reach, unread_words
from tidegate_logic.reasons import Reason

# why the quota of an entity stays as it is, as in `Observation.frozen`
Frozen = dict[Entity, tuple[Reason, str]]

_IN_DOUBT = {
    Reason.INVALID_SPEC: "cannot be read",
    Reason.NAMESPACES_UNREAD: "Tidegate cannot tell whether the policy admits it",
}
_USAGE_AWAITED = (
    Reason.KUBERNETES_UNREACHABLE,
    "the rollup Jobs' result, which recommended contracts come from, has not been read yet; the "
    "quota stays as it is until then",
)


_RATES_AWAITED = (
    Reason.CLIENT_RATES_AWAITED,
    "its first quota waits up to 30 s for the first reading of its clients' rates, so that they "
    "are not throttled for longer than necessary",
)


def take_out_doubtful(
    declared: Declared,
    quotas: dict[Entity, StoredQuota],
    *,
    usage_awaited: bool,
    rates_awaited: bool,
) -> Frozen:
    """Remove from `quotas` what must stay as it is; why, for the entities that a tier names.

    `usage_awaited`: usage may come, and contracts with it, so members that have a quota keep it.
    `rates_awaited`: what clients send will be known soon, so first byte rates wait for it.
    """
    if declared.policy.deleting:
        return {}
    ownerless = _ownerless(declared, quotas)
    frozen = _named_by_broken(declared)
    if usage_awaited:
        members = {member.entity for tier in declared.tiers or () for member in tier.members}
        ours = {entity for entity in members & quotas.keys() if quotas[entity].ledger is not None}
        frozen |= dict.fromkeys(ours, _USAGE_AWAITED)
    if rates_awaited:
        frozen |= dict.fromkeys(_without_byte_rate(declared, quotas), _RATES_AWAITED)
    if declared.strimzi is not None and declared.strimzi.unread:
        unread = Reason.KAFKA_USERS_UNREAD, unread_words(declared.strimzi)
        named = {entity for entity in quotas if is_within_reach(entity)}
        frozen |= dict.fromkeys(named - frozen.keys(), unread)
    for entity in (*frozen, *ownerless):
        quotas.pop(entity, None)
    return frozen


def _without_byte_rate(
    declared: Declared, quotas: Mapping[Entity, StoredQuota]
) -> Iterator[Entity]:
    """The entities with a byte rate in their contract, or as a default, that Kafka has none for."""
    members = (member for tier in declared.tiers or () for member in tier.members)
    wanted = [
        (member.entity, {key for key in BYTE_RATE_KEYS if member.contract.gives(key)})
        for member in members
        if member.contract is not None
    ]
    wanted += [
        (entity, rates.keys() & BYTE_RATE_KEYS)
        for entity, rates in declared.policy.defaults.items()
    ]
    for entity, keys in wanted:
        if entity in quotas and not keys <= quotas[entity].values.keys():
            yield entity


def unknown_tiers(declared: Declared) -> Iterator[Note]:
    """The warning that it is not known of some tiers whether the policy lets them in."""
    namespaces = {
        tier.key.partition("/")[0]
        for tier in declared.broken
        if tier.reason is Reason.NAMESPACES_UNREAD
    }
    if namespaces and not declared.policy.deleting:
        yield Note(
            Reason.NAMESPACES_UNREAD,
            f"labels of namespace {', '.join(sorted(namespaces))} cannot be read, so Tidegate "
            "cannot tell whether spec.allowedTiers admits the BusinessTiers there (their "
            "condition Ready says why); the quotas that they declare stay as they are until it "
            "can",
        )


def _named_by_broken(declared: Declared) -> Frozen:
    """The entities that a broken tier names, and may name."""
    return {
        entity: (
            tier.reason,
            f"BusinessTier {tier.key} may be the one that applies to it, and "
            f"{_IN_DOUBT[tier.reason]} (its condition Ready says why); the quota stays as it is "
            "until that is known",
        )
        for tier in declared.broken
        for entity in tier.entities
        if is_allowed(declared.policy, tier.key, entity)
    }


def _ownerless(declared: Declared, quotas: Mapping[Entity, StoredQuota]) -> frozenset[Entity]:
    """The entities in the ledger that no readable tier names, but a broken one may.

    None if all that broken tiers name is known; what they may not name is not theirs.
    """
    guessed = [tier.key for tier in declared.broken if not tier.names_all]
    if not guessed:
        return frozenset()
    return (
        frozenset(
            entity
            for entity, quota in quotas.items()
            if quota.ledger is not None
            and any(is_allowed(declared.policy, key, entity) for key in guessed)
        )
        - declared.entities
    )
