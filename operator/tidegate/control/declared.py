"""What people declared for one policy, told apart from what cannot be read: a broken object must never look like an absent one.

It reads raw objects and asks nobody. Whatever a broken tier may manage is named, so that observe can keep hands off it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from controller_logic.contracts.desired import DEFAULT_USER
from controller_logic.model import Entity, Override, Policy, Tier
from tidegate.control.declared_overrides import BrokenOverride, read_overrides
from tidegate.control.translate import age_key, object_key, policy_from, tier_from
from tidegate.errors import InvalidResource
from tidegate.resources.kinds import parse_policy, parse_tier
from tidegate.resources.policy import PolicySpec

RawObject = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BrokenTier:
    """A tier that does not read: why, and every user and client id that can still be made out in it."""

    key: str
    message: str
    entities: frozenset[Entity]


@dataclass(frozen=True, slots=True)
class Declared:
    """One policy with its tiers and overrides, oldest first. `tiers` or `overrides` None = their list is not complete."""

    policy: Policy
    spec: PolicySpec
    tiers: tuple[Tier, ...] | None
    broken: tuple[BrokenTier, ...] = ()
    overrides: tuple[Override, ...] | None = ()
    broken_overrides: tuple[BrokenOverride, ...] = ()

    @property
    def entities(self) -> frozenset[Entity]:
        """Every entity that a readable tier or a default names; for metering also Kafka's default user."""
        members = {member.entity for tier in self.tiers or () for member in tier.members}
        metered = {DEFAULT_USER} if self.policy.enable_metering else set()
        return frozenset(members | set(self.policy.defaults) | metered)

    @property
    def topics(self) -> frozenset[str]:
        """Every topic name and prefix that a member names."""
        return frozenset(topic for tier in self.tiers or () for member in tier.members for topic in member.topics)


class TierReader:
    """Reads tiers, each spec once: what was read stays as long as the spec says the same. For one caller at a time."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[object, Tier | BrokenTier]] = {}

    def read(self, tiers: Iterable[RawObject]) -> list[Tier | BrokenTier]:
        """One answer for each of `tiers`; those that are not among them are forgotten."""
        self._read = {object_key(raw): self._again(raw) for raw in tiers}
        return [answer for _, answer in self._read.values()]

    def _again(self, raw: RawObject) -> tuple[object, Tier | BrokenTier]:
        before = self._read.get(object_key(raw))
        spec = raw.get("spec")
        return before if before is not None and before[0] == spec else (spec, _read_tier(raw))


def declare(
    policy: RawObject,
    tiers: Iterable[RawObject] | None,
    reader: TierReader | None = None,
    *,
    overrides: Iterable[RawObject] | None = (),
) -> Declared:
    """Read a policy and the tiers and overrides that refer to it. Raises InvalidResource when the policy itself does not read.

    Those of other policies are passed over; one that is being deleted counts as absent. A `reader` spares what it has read before.
    """
    spec = parse_policy(policy, strict=False).spec
    translated = policy_from(policy, spec)
    read = None if tiers is None else (reader or TierReader()).read(_of(policy, tiers))
    said, unsaid = (None, ()) if overrides is None else read_overrides(_of(policy, overrides))
    return Declared(
        translated,
        spec,
        None if read is None else tuple(tier for tier in read if isinstance(tier, Tier)),
        tuple(tier for tier in read or () if isinstance(tier, BrokenTier)),
        said,
        unsaid,
    )


def _of(policy: RawObject, objects: Iterable[RawObject]) -> list[RawObject]:
    """Those that refer to the policy and are to stay, oldest first."""
    return sorted((raw for raw in objects if belongs_to(raw, policy) and not raw["metadata"].get("deletionTimestamp")), key=age_key)


def policy_name_of(raw: RawObject) -> str:
    """The policy that a tier or an override refers to, `namespace/name`; the empty text where it cannot be made out."""
    reference = (raw.get("spec") or {}).get("policyRef") or {}
    name = reference.get("name") if isinstance(reference, Mapping) else None
    return f"{raw['metadata']['namespace']}/{name}" if isinstance(name, str) and name else ""


def belongs_to(raw: RawObject, policy: RawObject) -> bool:
    """Whether the object may be the policy's. One whose reference cannot be made out may be of any policy in its namespace."""
    named = policy_name_of(raw)
    return named == object_key(policy) if named else bool(raw["metadata"]["namespace"] == policy["metadata"]["namespace"])


def _read_tier(raw: RawObject) -> Tier | BrokenTier:
    try:
        return tier_from(raw, parse_tier(raw, strict=False).spec)
    except InvalidResource as error:
        return BrokenTier(object_key(raw), error.message, _entities_in(raw))


def _entities_in(raw: RawObject) -> frozenset[Entity]:
    members = (raw.get("spec") or {}).get("members")
    listed = members if isinstance(members, list) else []
    return frozenset(entity for member in listed if isinstance(member, Mapping) and (entity := _entity_in(member)) is not None)


def _entity_in(member: Mapping[str, Any]) -> Entity | None:
    user, client_id = member.get("user"), member.get("clientId")
    named_user = user if isinstance(user, str) and user else None
    named_client = client_id if isinstance(client_id, str) and client_id else None
    return None if named_user is None and named_client is None else Entity(named_user, named_client)
