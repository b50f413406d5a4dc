"""Which members the policy lets its tiers name (spec.allowedEntities); all others count as absent.

A member with a user, alone or with a client id, reaches that user's clients only: its user must be
allowed. A client id alone reaches clients of every user, so it must be allowed as such. Kafka's
default entities are no members: they are the policy's own (spec.defaults).

Members that are not allowed are left out before anything else is worked out, so no later step sees
their entities. Quotas that Kafka still has for them are restored like those of a removed member,
under the guard against mass removals.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tidegate_logic.contracts.desired import MemberReport, MemberState
from tidegate_logic.contracts.overrides import NotApplicable, Overridden
from tidegate_logic.model import AllowedEntities, Entity, Note, Override, Policy, Tier
from tidegate_logic.reasons import Reason


class _Patterns:
    """Names, and prefixes ending in `*`."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self.shown = tuple(dict.fromkeys(patterns))
        self._whole = frozenset(self.shown)
        self._prefixes = tuple(one[:-1] for one in self.shown if one.endswith("*"))

    def match(self, name: str) -> bool:
        return name in self._whole or name.startswith(self._prefixes)


@dataclass(frozen=True, slots=True)
class _Allowed:
    """What tiers of one namespace may name."""

    users: _Patterns
    client_ids: _Patterns

    def has(self, entity: Entity) -> bool:
        if isinstance(entity.user, str):
            return self.users.match(entity.user)
        return isinstance(entity.client_id, str) and self.client_ids.match(entity.client_id)


def _allowed_in(namespace: str, allowed: Iterable[AllowedEntities]) -> _Allowed:
    ours = [one for one in allowed if not one.namespaces or namespace in one.namespaces]
    return _Allowed(
        _Patterns(user for one in ours for user in one.users),
        _Patterns(client_id for one in ours for client_id in one.client_ids),
    )


def is_allowed(policy: Policy, tier_key: str, entity: Entity) -> bool:
    """Whether this tier may name the entity."""
    return policy.allowed is None or _allowed_in(_namespace(tier_key), policy.allowed).has(entity)


def allowed_tiers(policy: Policy, tiers: tuple[Tier, ...]) -> tuple[Tier, ...]:
    """The tiers with those members only that they may name."""
    return admit(policy, tiers).tiers or ()


@dataclass(frozen=True, slots=True)
class Admission:
    """The tiers with allowed members only (None = not known in full), and reports on the others."""

    tiers: tuple[Tier, ...] | None
    refused: tuple[MemberReport, ...] = ()

    def notes(self) -> Iterator[Note]:
        """One note for each member that was refused."""
        for report in self.refused:
            words = f"member {report.member_name}: {report.message}"
            yield Note(report.reason, words, report.entity, report.tier_key)

    def also_refused(
        self, overridden: Overridden, overrides: Iterable[Override], now_seconds: float
    ) -> Overridden:
        """Says of each override in time why it changes nothing for a member that was refused.

        A refused member beside one that counts is no concern of an override.
        """
        if not self.refused:
            return overridden
        named = {report.entity: report for report in self.refused}
        for tier in self.tiers or ():
            for member in tier.members:
                named.pop(member.entity, None)
        not_applicable: dict[str, tuple[NotApplicable, ...]] = dict(overridden.not_applicable)
        for override in overrides:
            report = named.get(override.entity) if override.entity is not None else None
            if report is not None and override.lasts(now_seconds):
                refused = NotApplicable(
                    report.tier_key, report.member_name, report.reason, report.message
                )
                not_applicable[override.key] = (*not_applicable.get(override.key, ()), refused)
        return replace(overridden, not_applicable=not_applicable)


def admit(policy: Policy, tiers: tuple[Tier, ...] | None) -> Admission:
    """Leave out the members that the policy does not allow, and report on each.

    A policy that is being deleted restores everything, so there is nothing to leave out.
    """
    if policy.allowed is None or tiers is None or policy.deleting:
        return Admission(tiers)
    known: dict[str, _Allowed] = {}
    kept: list[Tier] = []
    refused: list[MemberReport] = []
    for tier in tiers:
        namespace = _namespace(tier.key)
        allowed = known.setdefault(namespace, _allowed_in(namespace, policy.allowed))
        members = tuple(member for member in tier.members if allowed.has(member.entity))
        if len(members) == len(tier.members):
            kept.append(tier)
            continue
        kept.append(replace(tier, members=members))
        refused += [
            MemberReport(
                tier,
                member,
                None,
                MemberState.NOT_ALLOWED,
                Reason.ENTITY_NOT_ALLOWED,
                _refusal(policy, namespace, member.entity, allowed),
            )
            for member in tier.members
            if not allowed.has(member.entity)
        ]
    return Admission(tuple(kept), tuple(refused))


def _refusal(policy: Policy, namespace: str, entity: Entity, allowed: _Allowed) -> str:
    what, patterns = (
        ("users", allowed.users)
        if isinstance(entity.user, str)
        else ("client ids without a user", allowed.client_ids)
    )
    may = ", ".join(patterns.shown[:_SHOWN]) or "none"
    more = f" and {len(patterns.shown) - _SHOWN} more" if len(patterns.shown) > _SHOWN else ""
    return (
        f"spec.allowedEntities of policy {policy.key} does not allow {entity}: {what} that tiers "
        f"of namespace {namespace} may name are {may}{more}. This member changes nothing, and a "
        "quota that it had from Tidegate is that of a removed member: restored, or held until "
        "that is confirmed (removal.maxPercent)"
    )


_SHOWN = 5


def _namespace(tier_key: str) -> str:
    return tier_key.partition("/")[0]
