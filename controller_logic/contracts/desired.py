"""What is declared, entity by entity: members on their contracts, and Kafka's default entities. Of two that overlap the first counts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from controller_logic.contracts.adaptive import Adaptations
from controller_logic.contracts.leaders import Leaders
from controller_logic.contracts.targets import (
    NOTHING,
    Promise,
    QuotaScalings,
    ThrottledTargets,
    default_promise,
    held_down,
    promise_of,
    throttled_rates,
)
from controller_logic.decision import MemberReport, Note
from controller_logic.model import (
    BYTE_RATE_KEYS,
    MAX_BYTE_RATE,
    Default,
    Entity,
    LedgerEntry,
    Observation,
    Policy,
    QuotaKey,
    StoredQuota,
    Tier,
)
from controller_logic.quotas.values import same_quota
from controller_logic.reasons import Reason
from controller_logic.reports import overlapping_report, promised_report

# Whether Kafka's default user gets a quota that never binds, so that brokers count every user's
# bytes (defaults.metering).
#
# Brokers meter only what has a quota, so without one nobody knows who fills a NIC. The quota is
# the largest number that survives every
# version's arithmetic, 2^53 - 1 bytes per second, and goes the way of all defaults: into the
# ledger, and back when it is no longer wanted.
#
# It must surprise nobody. A default user's quota replaces one that stands there already, and is
# stronger than any quota on a client id alone,
# which it would silently undo (kafka-quotas 3.1). Where there is either, nothing is written, and
# people are told why.


DEFAULT_USER = Entity(user=Default.DEFAULT)
NEVER_BINDS = MAX_BYTE_RATE
# why no quota is written for the default user
SOMEBODY_ELSES = "somebody else has set one, which stays, and meters in each direction that it names"
HIDES_DECLARED = "it would hide the quotas on client ids alone that the policy or its tiers declare"
HIDES_STORED = "it would hide quotas on client ids alone, which stand in Kafka. Move those to users, or do without"

_NO_ENTRIES: Mapping[QuotaKey, LedgerEntry] = {}
_WITHHELD = "defaults.metering: no quota is written for Kafka's default user, so users without a quota of their own stay unmetered"


@dataclass(frozen=True, slots=True)
class Metering:
    """The policy with the metering quota among its defaults where there is one, and what people must be told of it."""

    policy: Policy
    note: Note | None = None


def metering(observation: Observation) -> Metering:
    """What metering adds to the policy's defaults now. Where quotas are not known, what stands of it stays, and nothing new is written."""
    policy = observation.policy
    if not policy.metering_enabled or policy.deleting or DEFAULT_USER in policy.defaults:
        return Metering(policy)
    stored = (observation.quotas or {}).get(DEFAULT_USER)
    if stored is None:
        return Metering(policy)
    ours = _our_entries(stored, policy)
    if _is_somebody_elses(stored, ours):
        return Metering(policy, _note(SOMEBODY_ELSES))
    if _declares_client_ids(observation):
        return Metering(policy, _note(HIDES_DECLARED))
    if observation.client_quotas_exist is None:
        return _with(policy, ours.keys() & BYTE_RATE_KEYS)
    if observation.client_quotas_exist:
        return Metering(policy, _note(HIDES_STORED))
    return _with(policy, BYTE_RATE_KEYS)


def _with(policy: Policy, keys: frozenset[QuotaKey] | set[QuotaKey]) -> Metering:
    rates = {key: NEVER_BINDS for key in QuotaKey if key in keys}
    return Metering(replace(policy, defaults={**policy.defaults, DEFAULT_USER: rates}) if rates else policy)


def _our_entries(stored: StoredQuota, policy: Policy) -> Mapping[QuotaKey, LedgerEntry]:
    return stored.ledger.entries if stored.ledger is not None and stored.ledger.policy_key == policy.key else _NO_ENTRIES


def _is_somebody_elses(stored: StoredQuota, ours: Mapping[QuotaKey, LedgerEntry]) -> bool:
    """Whether a byte rate stands there that we did not write; one that we wrote and another changed is the other's."""
    return any(
        key in BYTE_RATE_KEYS and (key not in ours or not same_quota(ours[key].written, text)) for key, text in stored.values.items()
    )


def _declares_client_ids(observation: Observation) -> bool:
    named = (*observation.policy.defaults, *(member.entity for tier in observation.tiers or () for member in tier.members))
    return any(entity.user is None for entity in named)


def _note(why: str) -> Note:
    return Note(Reason.METERING_WITHHELD, f"{_WITHHELD}: {why}", DEFAULT_USER)


_NO_ADAPTATIONS: Adaptations = {}


@dataclass(frozen=True, slots=True)
class Desired:
    """Every member with the report that it gets if it ends as promised, in the order of the tiers; and the default entities.

    `owners` are the members that count, by entity; `held` are those of them that load holds below their contracts now. A member's promise
    is worked out when it is asked for: a pass looks at it once, and keeping thousands costs more than making one again.
    """

    members: tuple[MemberReport, ...] = ()
    owners: Mapping[Entity, MemberReport] = field(default_factory=dict)
    defaults: Mapping[Entity, Promise] = field(default_factory=dict)
    grounds: QuotaScalings | None = None
    held: ThrottledTargets = field(default_factory=dict)
    notes: tuple[Note, ...] = ()

    def __contains__(self, entity: Entity) -> bool:
        return entity in self.owners or entity in self.defaults

    def promise_of(self, entity: Entity) -> Promise | None:
        """What the entity should have now; None where nobody names it."""
        owner = self.owners.get(entity)
        return self.defaults.get(entity) if owner is None else self._now(entity, owner.promise)

    def floor_of(self, owner: MemberReport) -> Promise:
        """What the member may be throttled to, on the same leaders as its contract; nothing where it is never throttled."""
        rates = throttled_rates(owner.tier, owner.member)
        return NOTHING if rates is None or self.grounds is None else promise_of(rates, self.grounds.of(rates.form, owner.member))

    def promises(self) -> Iterator[tuple[Entity, Promise]]:
        """Every entity that is named with what it should have now, members first."""
        for entity, owner in self.owners.items():
            yield entity, self._now(entity, promise_of(owner.member.contract, owner.ground))
        yield from self.defaults.items()

    def _now(self, entity: Entity, promise: Promise) -> Promise:
        return held_down(promise, self.held[entity]) if entity in self.held else promise


def desired(policy: Policy, tiers: tuple[Tier, ...], leaders: Leaders | None, *, adaptations: Adaptations = _NO_ADAPTATIONS) -> Desired:
    """What the policy wants now. Unknown leaders (None) leave every key that depends on them without a target.

    A policy that is being deleted promises nothing to anybody.
    """
    grounds = None if policy.deleting else QuotaScalings(leaders, policy.scaling, adaptations)
    owners: dict[Entity, MemberReport] = {}
    members = []
    for tier in tiers:
        for member in tier.members:
            report = promised_report(tier, member, grounds.under(member) if grounds is not None else None)
            owner = owners.setdefault(member.entity, report)
            members.append(report if owner is report else overlapping_report(report, owner))
    defaults = {} if policy.deleting else {key: default_promise(rates) for key, rates in policy.defaults.items() if key not in owners}
    return Desired(tuple(members), owners, defaults, grounds)
