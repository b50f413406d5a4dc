"""Which members get no fetch quota because a share group (KIP-932) uses them.

A broker that throttles a share fetch has locked the records already and sends none of them. They
stay locked until the lock runs out, and each such round uses up one of the few delivery attempts of
a record. So by default there is no fetch quota at all: neither the contract's nor a throttled one.

Kafka reports the client ids of a group's members and never their users. A member of a tier that has
a client id is recognised by it; one that is a user alone has to name its share groups.

What is not known changes nothing: quotas that stand are kept, and a first fetch quota that a share
group may forbid waits. The quota comes back once the group has been gone for a while, since a group
is without members at every restart of its clients.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tidegate_logic.model import (
    Contract,
    Entity,
    Member,
    Observation,
    QuotaKey,
    ShareGroup,
    ShareGroupRule,
    StoredQuota,
    Tier,
)
from tidegate_logic.reasons import Reason
from tidegate_logic.words import rate_words

DWELL_SECONDS = 600.0  # a group has to be gone for so long before the fetch quota returns
USUAL_LOCK_SECONDS = 30.0  # group.share.record.lock.duration.ms as brokers have it
_OF_THE_LOCK = 3  # a mute may last as long as this part of the record lock
_SHOWN = 3
_FETCH = QuotaKey.CONSUMER_BYTE_RATE

Uses = Mapping[Entity, "ShareUse"]


@dataclass(frozen=True, slots=True)
class ShareUse:
    """The share groups that use one entity, and the shortest of their record locks.

    `gone_since_seconds` is since when none of them is there any more; None = one is.
    """

    groups: tuple[str, ...]
    lock_seconds: float
    gone_since_seconds: float | None = None

    @property
    def words(self) -> str:
        """`share group orders uses it`."""
        more = f" and {len(self.groups) - _SHOWN} more" if len(self.groups) > _SHOWN else ""
        what = "share group" if len(self.groups) == 1 else "share groups"
        does = "uses it" if len(self.groups) == 1 else "use it"
        if self.gone_since_seconds is not None:
            does = f"used it until less than {DWELL_SECONDS / 60:.0f} minutes ago"
        return f"{what} {', '.join(self.groups[:_SHOWN])}{more} {does}"


@dataclass(frozen=True, slots=True)
class Protection:
    """The tiers, with what share groups mean for their members, and what to remember."""

    tiers: tuple[Tier, ...] | None
    uses: Uses = field(default_factory=dict)


def protect(observation: Observation, before: Uses) -> Protection:
    """Take away the fetch quotas of members that share groups use, or bound their mutes.

    `before` is what the last pass remembered. A policy that is being deleted protects no one.
    """
    tiers, groups = observation.tiers, observation.share_groups
    if tiers is None or observation.policy.deleting:
        return Protection(tiers, before)
    if groups is not None and not groups and not before:
        return Protection(tiers)
    uses = before if groups is None else _uses(tiers, groups, before, observation.now_seconds)
    quotas = (observation.quotas or {}) if groups is None else None
    return Protection(tuple([_tier(tier, uses, quotas) for tier in tiers]), uses)


def groups_of(member: Member, groups: Iterable[ShareGroup]) -> tuple[ShareGroup, ...]:
    """Those that use the member: by its client id, or because it names them."""
    names, client_id = member.share_group_names, member.entity.client_id
    prefixes = tuple(name[:-1] for name in names if name.endswith("*"))
    return tuple(
        group
        for group in groups
        if client_id in group.client_ids
        or group.name in names
        or (prefixes and group.name.startswith(prefixes))
    )


def _uses(
    tiers: Iterable[Tier], groups: tuple[ShareGroup, ...], before: Uses, now_seconds: float
) -> Uses:
    uses: dict[Entity, ShareUse] = {}
    client_ids = {client_id for group in groups for client_id in group.client_ids}
    named: set[Entity] = set()  # who names an entity later overlaps, and changes nothing
    for member in [member for tier in tiers for member in tier.members]:
        entity = member.entity
        may_match = entity.client_id in client_ids or member.share_group_names
        if may_match and entity not in named and (mine := groups_of(member, groups)):
            names = tuple(sorted(group.name for group in mine))
            lock_seconds = min(group.lock_seconds or USUAL_LOCK_SECONDS for group in mine)
            uses[entity] = ShareUse(names, lock_seconds)
        named.add(entity)
    for entity, use in before.items():
        since_seconds = use.gone_since_seconds
        since_seconds = now_seconds if since_seconds is None else min(since_seconds, now_seconds)
        if entity not in uses and now_seconds - since_seconds < DWELL_SECONDS:
            uses[entity] = replace(use, gone_since_seconds=since_seconds)
    return uses


def can_be_read_with(member: Member) -> bool:
    """Whether a share group could be recognised as the member's at all."""
    return isinstance(member.entity.client_id, str) or bool(member.share_group_names)


def _tier(tier: Tier, uses: Uses, unknown_for: Mapping[Entity, StoredQuota] | None) -> Tier:
    if unknown_for is None and uses.keys().isdisjoint([one.entity for one in tier.members]):
        return tier
    members = tuple([_member(member, uses, unknown_for) for member in tier.members])
    return tier if members == tier.members else replace(tier, members=members)


def _member(member: Member, uses: Uses, unknown_for: Mapping[Entity, StoredQuota] | None) -> Member:
    """`unknown_for` are the stored quotas while share groups are not known; None = they are."""
    use = uses.get(member.entity)
    is_unknown = use is None and unknown_for is not None and can_be_read_with(member)
    if member.share_groups is ShareGroupRule.THROTTLE:
        if use is None and not is_unknown:
            return member
        lock_seconds = USUAL_LOCK_SECONDS if use is None else use.lock_seconds
        return replace(member, longest_mute_seconds=int(lock_seconds / _OF_THE_LOCK))
    if use is not None:
        words = (
            f"{use.words}: it has no fetch quota from Tidegate{_unwritten(member.contract)} and "
            "is never throttled in what it reads (shareGroups: Throttle changes that)"
        )
    elif is_unknown and not _has_one_of_ours(member, unknown_for or {}):
        words = (
            "its first fetch quota waits until it is known whether a share group uses it "
            "(tidegate doctor shows why it is not)"
        )
    else:
        return member
    return replace(member, contract=_without_fetch(member.contract), protected=words)


def _has_one_of_ours(member: Member, quotas: Mapping[Entity, StoredQuota]) -> bool:
    """Whether the ledger has a fetch quota for it, and not on its way to what was there before."""
    stored = quotas.get(member.entity)
    entry = stored.ledger.entries.get(_FETCH) if stored is not None and stored.ledger else None
    return entry is not None and entry.reason is not Reason.GIVEN_BACK


def _unwritten(contract: Contract | None) -> str:
    if contract is None or contract.fetch_bytes_per_second is None:
        return ""
    rate = f"{rate_words(contract.fetch_bytes_per_second)} {contract.form.value}"
    return f" (the contract's {rate} is not written)"


def _without_fetch(contract: Contract | None) -> Contract | None:
    if contract is None:
        return None
    return replace(
        contract,
        fetch_bytes_per_second=None,
        override_only_keys=contract.override_only_keys - {_FETCH},
    )
