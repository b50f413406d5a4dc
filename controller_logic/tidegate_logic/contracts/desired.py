"""What is declared, by entity: contracts of members, and Kafka's default entities.

Of two that overlap the first counts.
"""

from collections.abc import Container, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum

from tidegate_logic.contracts.adaptive import Adaptations
from tidegate_logic.contracts.fetch_spread import Reads
from tidegate_logic.contracts.leader_scaling import Leaders, LeaderSpread
from tidegate_logic.contracts.targets import (
    NOTHING,
    Promise,
    QuotaScaling,
    QuotaScalings,
    ThrottledTargets,
    default_promise,
    held_down,
    promise_of,
    throttled_rates,
)
from tidegate_logic.model import (
    BYTE_RATE_KEYS,
    MAX_BYTE_RATE,
    Default,
    Direction,
    Entity,
    LedgerEntry,
    Level,
    Member,
    Note,
    Observation,
    Policy,
    QuotaKey,
    StoredQuota,
    Tier,
)
from tidegate_logic.quota_values import same_quota
from tidegate_logic.reasons import Reason
from tidegate_logic.value import value


class MemberState(StrEnum):
    """The state of a member in its status."""

    __hash__ = str.__hash__

    CONTRACT = "Contract"
    THROTTLED = "Throttled"
    STEPPING = "Stepping"
    UNLIMITED = "Unlimited"
    HELD = "Held"
    TOPIC_NOT_FOUND = "TopicNotFound"
    FOREIGN_CONTENT = "ForeignContent"
    CONTENDED = "Contended"
    OVERLAPPING = "Overlapping"
    NOT_ALLOWED = "NotAllowed"
    OWNED_BY_STRIMZI = "OwnedByStrimzi"


# it has the quota of its contract, or none, because the contract asks for none
AT_CONTRACT = frozenset({MemberState.CONTRACT, MemberState.UNLIMITED})
_NOT_COUNTED = frozenset(
    {MemberState.OVERLAPPING, MemberState.NOT_ALLOWED, MemberState.OWNED_BY_STRIMZI}
)


@value(frozen=True, slots=True)
class MemberReport:
    """One member after the pass. Rates are bytes per second.

    `scaling` is what scales its contract, None if nothing is promised. `wording` is what
    `message` says, None = what is promised. `in_force` is what stands per broker once the pass's
    writes are applied, None = what is promised.
    """

    tier: Tier
    member: Member
    scaling: QuotaScaling | None
    state: MemberState
    reason: Reason
    wording: str | None = None
    in_force: Mapping[QuotaKey, int] | None = None

    @property
    def counts(self) -> bool:
        """Whether the entity's quota follows this member."""
        return self.state not in _NOT_COUNTED

    @property
    def tier_key(self) -> str:
        return self.tier.key

    @property
    def level(self) -> Level:
        return self.tier.level

    @property
    def member_name(self) -> str:
        return self.member.name

    @property
    def entity(self) -> Entity:
        return self.member.entity

    @property
    def message(self) -> str:
        """Why the member is in this state, with its numbers, for people."""
        return str(self.promise) if self.wording is None else self.wording

    @property
    def promise(self) -> Promise:
        """The contract on its basis, worked out when it is asked for."""
        return promise_of(self.member.contract, self.scaling)

    @property
    def spread(self) -> LeaderSpread | None:
        """How the leaders of its topics lie; None if it has none or the leaders are unknown."""
        return self.scaling.spread if self.scaling is not None else None

    @property
    def leaders(self) -> int | None:
        """Leaders of its topics; None as above."""
        return self.spread.leaders if self.spread is not None else None

    @property
    def leading_brokers(self) -> int | None:
        """Brokers that lead any of them; None as above."""
        return self.spread.brokers if self.spread is not None else None

    @property
    def leader_skew(self) -> float | None:
        """How unevenly they lie; None as above, and where no broker leads."""
        return self.spread.skew if self.spread is not None else None

    @property
    def fetch(self) -> QuotaScaling | None:
        """What scales its fetch contract where consumers read from followers; else None."""
        scaling, contract = self.scaling, self.member.contract
        fetches = contract is not None and contract.fetch_bytes_per_second is not None
        return scaling.fetch if scaling is not None and fetches else None

    def serving(self, direction: Direction) -> Set[int] | None:
        """The brokers that may have to serve its topics that way; None = any."""
        if direction is Direction.EGRESS and self.scaling is not None and self.scaling.fetch:
            return self.scaling.fetch.serving
        return None if self.spread is None else self.spread.leading

    @property
    def quota(self) -> Mapping[QuotaKey, int]:
        """What is in force per broker once the pass's writes are applied."""
        return self.promise.values if self.in_force is None else self.in_force

    @property
    def target(self) -> Mapping[QuotaKey, int]:
        """What `quota` should end at: equal but while stepping or held."""
        return self.promise.values

    @property
    def contract_total(self) -> Mapping[QuotaKey, int]:
        """What was promised over all brokers; empty where that is not known."""
        return self.promise.contract_total

    @property
    def permitted_total(self) -> Mapping[QuotaKey, int]:
        """What the target allows: target x brokers that lead; empty as above."""
        return self.promise.permitted_total


# an enum's member costs ten times as much to look up as a name of this module
_CONTRACT, _AS_PROMISED = MemberState.CONTRACT, Reason.CONTRACT


def promised_report(tier: Tier, member: Member, scaling: QuotaScaling | None) -> MemberReport:
    """The report of a member that ends as promised; without a basis the policy is being deleted."""
    report = _promised_report(tier, member, scaling)
    if not member.protected or report.state not in AT_CONTRACT:
        return report
    words = f"{report.message}; {member.protected}" if report.promise.targets else member.protected
    return replace(report, reason=Reason.SHARE_GROUP, wording=words)


def _promised_report(tier: Tier, member: Member, scaling: QuotaScaling | None) -> MemberReport:
    if scaling is None:
        words = "the policy is being deleted: the quota is what it was before Tidegate"
        return MemberReport(tier, member, None, MemberState.UNLIMITED, Reason.GIVEN_BACK, words)
    spread, contract = scaling.spread, member.contract
    if spread is not None and spread.missing:
        words = _missing_words(promise_of(contract, scaling), spread)
        return MemberReport(
            tier, member, scaling, MemberState.TOPIC_NOT_FOUND, Reason.TOPIC_NOT_FOUND, words
        )
    if contract is None or contract.is_empty:
        words = (
            "no contract: not limited by "
            f"Tidegate{' and never throttled' if tier.level is Level.L0 else ''}"
        )
        return MemberReport(tier, member, scaling, MemberState.UNLIMITED, Reason.IN_SYNC, words)
    if tier.throttled and not member.exempt and throttled_rates(tier, member) is None:
        words = (
            f"{promise_of(contract, scaling)}; never throttled: its tier has no throttled rate "
            f"{contract.form.value}"
        )
        return MemberReport(tier, member, scaling, _CONTRACT, Reason.NO_THROTTLED_RATE, words)
    return MemberReport(tier, member, scaling, _CONTRACT, _AS_PROMISED)


def overlapping_report(report: MemberReport, owner: MemberReport) -> MemberReport:
    """What is said of a member whose entity another one named first."""
    words = (
        f"{report.entity} is already managed by {owner.tier_key}, member {owner.member_name}; this "
        "member changes nothing"
    )
    return MemberReport(
        report.tier, report.member, None, MemberState.OVERLAPPING, Reason.OVERLAPPING, words
    )


def _missing_words(promise: Promise, spread: LeaderSpread) -> str:
    names = ", ".join(spread.missing[:3]) + (
        f" and {len(spread.missing) - 3} more" if len(spread.missing) > 3 else ""
    )
    if not promise.targets:
        return f"topic {names} does not exist; the member's quota stays as it is until it does"
    return (
        f"topic {names} does not exist; until it does the quota may be raised, never lowered, "
        f"towards {promise}"
    )


_NO_ADAPTATIONS: Adaptations = {}
_PROTECTED = frozenset({QuotaKey.CONSUMER_BYTE_RATE})


@dataclass(frozen=True, slots=True)
class Desired:
    """Every member's report if it ends as promised, in tier order, and the default entities.

    `owners` are the members that count, by entity; `held` are those of them that load holds below
    their contracts now. A member's promise is worked out when it is asked for: a pass looks at it
    once, and keeping thousands costs more than making one again.
    """

    members: tuple[MemberReport, ...] = ()
    owners: Mapping[Entity, MemberReport] = field(default_factory=dict)
    defaults: Mapping[Entity, Promise] = field(default_factory=dict)
    scalings: QuotaScalings | None = None
    held: ThrottledTargets = field(default_factory=dict)
    notes: tuple[Note, ...] = ()

    def __contains__(self, entity: Entity) -> bool:
        return entity in self.owners or entity in self.defaults

    def promise_of(self, entity: Entity) -> Promise | None:
        """What the entity should have now; None if it is not named."""
        owner = self.owners.get(entity)
        return self.defaults.get(entity) if owner is None else self._now(entity, owner.promise)

    def keys_of(self, entity: Entity) -> Set[QuotaKey]:
        """The keys that the entity keeps under this policy."""
        promise = self.promise_of(entity)
        return NOTHING.keys if promise is None else promise.keys

    def protected_keys(self, entity: Entity) -> Set[QuotaKey]:
        """The keys that have no quota because of a share group: they end at once, and uncounted."""
        owner = self.owners.get(entity)
        return _PROTECTED if owner is not None and owner.member.protected else NOTHING.keys

    def longest_mute_seconds(self, entity: Entity) -> int | None:
        """What a share group allows one lowering to mute; None = as long as the policy does."""
        owner = self.owners.get(entity)
        return None if owner is None else owner.member.longest_mute_seconds

    def floor_of(self, owner: MemberReport) -> Promise:
        """What the member may be throttled to, on its contract's leaders; nothing = never."""
        rates = throttled_rates(owner.tier, owner.member)
        return (
            NOTHING
            if rates is None or self.scalings is None
            else promise_of(rates, self.scalings.of(rates.form, owner.member))
        )

    def promises(self, without: Container[Entity] = ()) -> Iterator[tuple[Entity, Promise]]:
        """Every named entity but `without`, with what it should have now; members first."""
        held = self.held
        for entity, owner in self.owners.items():
            if entity in without:
                continue
            promise = promise_of(owner.member.contract, owner.scaling)
            yield entity, held_down(promise, held[entity]) if held and entity in held else promise
        yield from self.defaults.items()

    def _now(self, entity: Entity, promise: Promise) -> Promise:
        return held_down(promise, self.held[entity]) if entity in self.held else promise


def desired(
    policy: Policy,
    tiers: tuple[Tier, ...],
    leaders: Leaders | None,
    *,
    adaptations: Adaptations = _NO_ADAPTATIONS,
    reads: Reads | None = None,
    measured: Adaptations = _NO_ADAPTATIONS,
) -> Desired:
    """What the policy wants now; nothing while it is being deleted.

    Unknown leaders (None) leave every key that depends on them without a target. `reads` and their
    shares `measured` are for consumers that read from followers.
    """
    scalings = (
        None
        if policy.deleting
        else QuotaScalings(leaders, policy.scaling, adaptations, reads=reads, measured=measured)
    )
    owners: dict[Entity, MemberReport] = {}
    members = []
    for tier in tiers:
        for member in tier.members:
            report = promised_report(
                tier, member, None if scalings is None else scalings.under(member)
            )
            owner = owners.setdefault(member.entity, report)
            members.append(report if owner is report else overlapping_report(report, owner))
    defaults = (
        {}
        if policy.deleting
        else {
            key: default_promise(rates)
            for key, rates in policy.defaults.items()
            if key not in owners
        }
    )
    return Desired(tuple(members), owners, defaults, scalings)


# What was wanted in the last pass, while what it follows from stays as it is.
#
# A member's report depends on contracts and leaders, not on the moment, and most passes change
# neither. It is no more than a copy of what would be made again: a lost memory costs time only.


@dataclass(frozen=True, slots=True)
class Standing:
    """What is wanted, and all that it follows from."""

    basis: tuple[object, ...]
    wanted: Desired


def standing_of(
    policy: Policy,
    tiers: tuple[Tier, ...],
    leaders: Leaders | None,
    reads: Reads | None,
    last: Standing | None,
) -> Standing:
    """`desired` where no share is measured; the `last` one if nothing changed since."""
    topology = None if leaders is None else leaders.topology
    basis = (
        policy.deleting,
        policy.scaling,
        policy.defaults,
        tiers,
        *(() if topology is None else (topology.brokers, topology.topics, topology.selection)),
    )
    if last is not None and last.basis == basis:
        return last
    return Standing(basis, desired(policy, tiers, leaders, reads=reads))


# defaults.metering: a quota for Kafka's default user that never binds, so that bytes are counted.
#
# Brokers meter only what has a quota, so without one it is not known who fills a NIC. The quota is
# the largest number that survives every version's arithmetic, 2^53 - 1 bytes per second, and goes
# the way of all defaults: into the ledger, and back when it is no longer wanted.
#
# It must not surprise. A default user's quota replaces one that stands there already, and is
# stronger than any quota on a client id alone, which it would silently undo (kafka-quotas 3.1).
# Where there is either, nothing is written, and a note gives the reason.


DEFAULT_USER = Entity(user=Default.DEFAULT)
NEVER_BINDS = MAX_BYTE_RATE
# why no quota is written for the default user
SOMEBODY_ELSES = (
    "another writer has set one, which stays, and meters in each direction that it names"
)
HIDES_DECLARED = "it would hide the quotas on client ids alone that the policy or its tiers declare"
HIDES_STORED = (
    "it would hide quotas on client ids alone, which exist in Kafka. Move those to users, or "
    "leave metering off"
)

_WITHHELD = (
    "defaults.metering: no quota is written for Kafka's default user, so users without a "
    "quota of their own stay unmetered"
)


@dataclass(frozen=True, slots=True)
class Metering:
    """The policy, with the metering quota in its defaults where it applies, and a note about it."""

    policy: Policy
    note: Note | None = None


def metering(observation: Observation) -> Metering:
    """What metering adds to the policy's defaults now.

    Where quotas are not known, what stands of it stays, and nothing new is written.
    """
    policy = observation.policy
    if not policy.metering_enabled or policy.deleting or DEFAULT_USER in policy.defaults:
        return Metering(policy)
    stored = (observation.quotas or {}).get(DEFAULT_USER)
    if stored is None:
        return Metering(policy)
    ours = stored.entries_of(policy)
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
    return Metering(
        replace(policy, defaults={**policy.defaults, DEFAULT_USER: rates}) if rates else policy
    )


def _is_somebody_elses(stored: StoredQuota, ours: Mapping[QuotaKey, LedgerEntry]) -> bool:
    """Whether a byte rate stands there that we did not write, or that another writer changed."""
    return any(
        key in BYTE_RATE_KEYS and (key not in ours or not same_quota(ours[key].written, text))
        for key, text in stored.values.items()
    )


def _declares_client_ids(observation: Observation) -> bool:
    named = (
        *observation.policy.defaults,
        *(member.entity for tier in observation.tiers or () for member in tier.members),
    )
    return any(entity.user is None for entity in named)


def _note(why: str) -> Note:
    return Note(Reason.METERING_WITHHELD, f"{_WITHHELD}: {why}", DEFAULT_USER)
