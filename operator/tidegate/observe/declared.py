"""Reads declared policies, tiers and overrides; a broken object must never look absent.

It reads raw objects and nothing else. The entities that a broken tier may manage are named, so that
a pass leaves them as they are.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tidegate.errors import InvalidResource
from tidegate.kafka.quota_store import REPLACE_CLAIM
from tidegate.observe.namespaces import NamespaceLabels, TierAdmission, unknown_labels
from tidegate.observe.strimzi import KafkaUsersOf, no_kafka_users, strimzi_place
from tidegate.resources.budget import MINIMUM_PERCENT, WEIGHT, BudgetSpec
from tidegate.resources.calendar import Calendar, Recurring
from tidegate.resources.fields import parse_moment
from tidegate.resources.kinds import parse_budget, parse_override, parse_policy, parse_tier
from tidegate.resources.policy import BrokerLimits as DeclaredLimits
from tidegate.resources.policy import MetricsSource, NicLimits, PolicySpec, ScheduledLimit
from tidegate.resources.rates import (
    ContractRates,
    DefaultQuota,
    DirectionRates,
    QuotaDefaults,
    ThrottledRates,
)
from tidegate.resources.rollup import Recommend
from tidegate.resources.tiers import (
    MAX_DAYS_AHEAD,
    MAX_RECURRING_DAYS,
    OverrideRates,
    OverrideSpec,
    TierMember,
    TierSpec,
)
from tidegate_logic.contracts.desired import DEFAULT_USER
from tidegate_logic.model import (
    STALE_AFTER_SECONDS,
    AdviceTerms,
    AllowedEntities,
    BrokerLimit,
    BrokerLimits,
    Budget,
    CalendarEntry,
    Contract,
    Default,
    DeletionPolicy,
    Entity,
    Level,
    LimitSchedule,
    Member,
    Mode,
    Override,
    Policy,
    QuotaKey,
    QuotaWindow,
    RateForm,
    ScalingMethod,
    ShareGroupRule,
    Speed,
    StrimziUsers,
    Tier,
)
from tidegate_logic.quotas.contention import RESYNC
from tidegate_logic.quotas.plan import CONFIRM_REMOVAL
from tidegate_logic.reasons import Reason
from tidegate_logic.recurrence import DAYS, Recurrence

# --- validated objects become values of the core; unset fields get their documented defaults ------


PAUSED = "tidegate.io/paused"
LOST_LEDGER = "tidegate.io/lost-ledger"  # a person's answer for a ledger that was lost


def object_key(raw: Mapping[str, Any]) -> str:
    """`namespace/name`, as in every message, log line and ledger record."""
    metadata = raw["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}"


def age_key(raw: Mapping[str, Any]) -> tuple[str, str]:
    """Sorts objects oldest first, then by key; RFC 3339 times in UTC sort as text."""
    return (str(raw["metadata"].get("creationTimestamp", "")), object_key(raw))


def policy_from(raw: Mapping[str, Any], spec: PolicySpec) -> Policy:
    """One policy with every unset field at its documented default."""
    metadata = raw["metadata"]
    annotations = metadata.get("annotations") or {}
    scaling = spec.leader_scaling
    window, escalation = spec.kafka.quota_window, spec.escalation
    return Policy(
        key=object_key(raw),
        uid=str(metadata.get("uid", "")),
        mode=Mode(spec.mode),
        paused_by=_paused_by(annotations, spec),
        deleting=bool(metadata.get("deletionTimestamp")),
        deletion_policy=DeletionPolicy(spec.deletion_policy),
        scaling=ScalingMethod(scaling.method),
        minimum_change_percent=scaling.minimum_change_percent,
        window=QuotaWindow(samples=window.samples, sample_seconds=window.sample_seconds),
        max_mute_seconds=escalation.max_mute_seconds,
        write_budget_changes=spec.write_budget.changes,
        write_budget_period_seconds=float(spec.write_budget.period_seconds),
        max_removal_percent=spec.removal.max_percent,
        confirmed_removal=annotations.get(CONFIRM_REMOVAL, "").strip(),
        resync=annotations.get(RESYNC, "").strip(),
        metering_enabled=spec.defaults is not None and spec.defaults.metering == "Enabled",
        defaults=_defaults(spec.defaults),
        limits=BrokerLimits() if spec.brokers is None else _limits(spec.brokers),
        schedules=() if spec.brokers is None else tuple(_schedules(spec.brokers)),
        measured=spec.metrics is not None,
        stale_after_seconds=STALE_AFTER_SECONDS
        if spec.metrics is None
        else float(spec.metrics.stale_after_seconds),
        release_after_seconds=_release_after_seconds(spec.metrics),
        cut_to_percent=escalation.cut_to_percent,
        raise_to_percent=escalation.raise_to_percent,
        hold_seconds=float(escalation.hold_seconds),
        speed=Speed(escalation.speed),
        calendar=_calendar(escalation.calendar),
        advice=AdviceTerms() if spec.rollup is None else _advice_terms(spec.rollup.recommend),
        allowed=None
        if spec.allowed_entities is None
        else tuple(
            AllowedEntities(one.users or (), one.client_ids or (), one.namespaces or ())
            for one in spec.allowed_entities
        ),
    )


def _calendar(declared: Calendar | None) -> tuple[CalendarEntry, ...]:
    return tuple(
        CalendarEntry(
            recurrence_of(entry),
            {Level(name): int(share.rstrip("%")) / 100 for name, share in entry.levels.items()},
        )
        for entry in (() if declared is None else declared.entries)
    )


def recurrence_of(declared: Recurring) -> Recurrence:
    """A time that comes back as the core has it."""
    days = frozenset(DAYS.index(day) for day in declared.days or DAYS)
    begin, end = (_minutes(clock) for clock in (declared.from_, declared.to))
    return Recurrence(days, begin, end, declared.time_zone)


def _minutes(clock: str) -> int:
    hours, _, minutes = clock.partition(":")
    return int(hours) * 60 + int(minutes)


def _release_after_seconds(metrics: MetricsSource | None) -> float | None:
    if metrics is None or metrics.when_stale.action == "Hold":
        return None
    return float(metrics.when_stale.after_seconds)


def _advice_terms(recommend: Recommend) -> AdviceTerms:
    is_applied = recommend.apply == "WithinPercent"
    return AdviceTerms(
        recommend.headroom_percent, recommend.max_change_percent if is_applied else None
    )


def _limits(declared: DeclaredLimits) -> BrokerLimits:
    everywhere = _limit(declared.egress, declared.ingress, declared.combined)
    named = {broker for override in declared.overrides or () for broker in override.ids}
    return BrokerLimits(
        everywhere,
        {
            broker: _limit(
                declared.egress_of(broker),
                declared.ingress_of(broker),
                declared.combined_of(broker),
            )
            for broker in sorted(named)
        },
    )


def _schedules(declared: DeclaredLimits) -> Iterator[LimitSchedule]:
    """What a schedule sets replaces the limits of all brokers but those that have their own."""
    for one in declared.schedules or ():
        everywhere = {
            way: _scheduled(getattr(declared, way), limit)
            for way in ("egress", "ingress", "combined")
            if (limit := getattr(one, way)) is not None
        }
        limits = _limits(declared.model_copy(update=everywhere))
        yield LimitSchedule(recurrence_of(one), limits, one.ready == "Before")


def _scheduled(everywhere: NicLimits | None, scheduled: ScheduledLimit) -> NicLimits:
    capacity = None if everywhere is None else everywhere.capacity
    return NicLimits.model_construct(limit=scheduled.limit, capacity=capacity)


def _limit(
    egress: NicLimits | None, ingress: NicLimits | None, combined: NicLimits | None
) -> BrokerLimit:
    return BrokerLimit(
        egress=None if egress is None else egress.limit,
        ingress=None if ingress is None else ingress.limit,
        egress_capacity=None if egress is None else egress.capacity,
        ingress_capacity=None if ingress is None else ingress.capacity,
        combined=None if combined is None else combined.limit,
        combined_capacity=None if combined is None else combined.capacity,
    )


def _paused_by(annotations: Mapping[str, str], spec: PolicySpec) -> tuple[str, ...]:
    # an annotation with "yes", or without a value, pauses too: only "false" does not
    is_annotated = annotations.get(PAUSED, "false").strip().lower() != "false"
    causes = {"spec.suspend": bool(spec.suspend), f"the annotation {PAUSED}": is_annotated}
    return tuple(words for words, pauses in causes.items() if pauses)


def _defaults(defaults: QuotaDefaults | None) -> Mapping[Entity, Mapping[QuotaKey, int]]:
    if defaults is None:
        return {}
    default = Default.DEFAULT
    declared = (
        (Entity(user=default), defaults.user),
        (Entity(client_id=default), defaults.client_id),
        (Entity(user=default, client_id=default), defaults.user_and_client_id),
    )
    return {entity: _default_rates(quota) for entity, quota in declared if quota is not None}


def _default_rates(quota: DefaultQuota) -> Mapping[QuotaKey, int]:
    rates = {
        QuotaKey.CONSUMER_BYTE_RATE: quota.fetch,
        QuotaKey.PRODUCER_BYTE_RATE: quota.produce,
        QuotaKey.REQUEST_PERCENTAGE: quota.request_percentage,
    }
    return {key: rate for key, rate in rates.items() if rate is not None}


def tier_from(raw: Mapping[str, Any], spec: TierSpec) -> Tier:
    """One BusinessTier with its members in the order in which the object has them."""
    throttled = (
        ()
        if spec.throttled_rates is None
        else tuple(_rates(form, rates) for form, rates in _given(spec.throttled_rates))
    )
    return Tier(
        object_key(raw),
        Level(spec.level),
        tuple(_member(member, spec.labels or {}) for member in spec.members),
        throttled,
    )


def _member(member: TierMember, tier_labels: Mapping[str, str]) -> Member:
    """A member's own label takes precedence over its tier's."""
    return Member(
        name=member.name,
        entity=Entity(user=member.user, client_id=member.client_id),
        topics=tuple(member.topics or ()),
        contract=None if member.contract is None else _contract(member.contract),
        labels=tuple(sorted({**tier_labels, **(member.labels or {})}.items())),
        share_groups=ShareGroupRule(member.share_groups or ShareGroupRule.PROTECT),
        share_group_names=member.share_group_names or (),
        racks=tuple(sorted(member.racks or ())),
    )


def _contract(contract: ContractRates) -> Contract:
    form, rates = next(_given(contract))
    return Contract(
        form,
        rates.fetch,
        rates.produce,
        request_percentage=contract.request_percentage,
        controller_mutations_per_second=contract.controller_mutations_per_second,
    )


def _given(rates: ContractRates | ThrottledRates) -> Iterator[tuple[RateForm, DirectionRates]]:
    forms = {
        RateForm.PER_PARTITION: rates.per_partition,
        RateForm.PER_BROKER: rates.per_broker,
        RateForm.TOTAL: rates.total,
    }
    return ((form, given) for form, given in forms.items() if given is not None)


def _rates(form: RateForm, rates: DirectionRates) -> Contract:
    return Contract(form, rates.fetch, rates.produce)


# --- overrides: whether one has expired depends on the time of the pass, so it is not decided here

_SECONDS_A_DAY = 86_400


@dataclass(frozen=True, slots=True)
class BrokenOverride:
    """An override that cannot be read, and why."""

    key: str
    message: str


def read_override(raw: Mapping[str, Any]) -> Override | BrokenOverride:
    """One override, or why it cannot be read."""
    try:
        return override_from(raw, parse_override(raw, strict=False).spec)
    except InvalidResource as error:
        return BrokenOverride(object_key(raw), error.message)


def read_overrides(
    overrides: Iterable[Mapping[str, Any]],
) -> tuple[tuple[Override, ...], tuple[BrokenOverride, ...]]:
    """Those that can be read, in the given order, and those that cannot."""
    read = [read_override(raw) for raw in overrides]
    return tuple(one for one in read if isinstance(one, Override)), tuple(
        one for one in read if isinstance(one, BrokenOverride)
    )


def override_from(raw: Mapping[str, Any], spec: OverrideSpec) -> Override:
    """One override. Raises InvalidResource when it ends later than an override may."""
    _refuse_a_late_end(raw, spec)
    target = spec.target
    return Override(
        key=object_key(raw),
        starts_at_seconds=0.0 if spec.starts_at is None else parse_moment(spec.starts_at),
        expires_at_seconds=parse_moment(spec.ends_at),
        recurrence=None if spec.recurrence is None else recurrence_of(spec.recurrence),
        reason=spec.reason,
        entity=None
        if target.level is not None
        else Entity(user=target.user, client_id=target.client_id),
        level=None if target.level is None else Level(target.level),
        rates=None if spec.rates is None else _override_rates(spec.rates),
    )


def _refuse_a_late_end(raw: Mapping[str, Any], spec: OverrideSpec) -> None:
    """Raise InvalidResource for an end too late.

    Both times are the object's, so no clock is needed; a file has no creation time yet.
    """
    made = raw["metadata"].get("creationTimestamp")
    field, days = "expiresAt", MAX_DAYS_AHEAD
    if spec.recurrence is not None:
        field, days = "recurrence.until", MAX_RECURRING_DAYS
    if made and parse_moment(spec.ends_at) > parse_moment(str(made)) + days * _SECONDS_A_DAY:
        raise InvalidResource(
            f"QuotaOverride {object_key(raw)}: spec.{field} {spec.ends_at} is more than "
            f"{days} days after the object was created ({made}), so it changes nothing "
            "until it names an earlier end. To go on for longer, create another override later"
        )


def _override_rates(rates: OverrideRates) -> Contract:
    forms = {
        RateForm.PER_PARTITION: rates.per_partition,
        RateForm.PER_BROKER: rates.per_broker,
        RateForm.TOTAL: rates.total,
    }
    form, pair = next((form, pair) for form, pair in forms.items() if pair is not None)
    return Contract(form, fetch_bytes_per_second=pair.fetch, produce_bytes_per_second=pair.produce)


def budget_from(raw: Mapping[str, Any], spec: BudgetSpec) -> Budget:
    """One budget with every unset field at its documented default."""
    namespace, members = raw["metadata"]["namespace"], spec.members
    totals = {
        QuotaKey.CONSUMER_BYTE_RATE: spec.total.fetch,
        QuotaKey.PRODUCER_BYTE_RATE: spec.total.produce,
    }
    selector = None if members is None else members.selector
    percent = None if spec.share is None else spec.share.minimum_percent
    weight = None if spec.share is None else spec.share.weight
    return Budget(
        key=object_key(raw),
        totals={key: total for key, total in totals.items() if total is not None},
        tiers=frozenset(
            f"{namespace}/{name}" for name in (() if members is None else members.tiers or ())
        ),
        labels=frozenset({} if selector is None else selector.match_labels.items()),
        parent=None if spec.parent is None else f"{namespace}/{spec.parent.name}",
        minimum_percent=MINIMUM_PERCENT if percent is None else percent,
        weight=weight or WEIGHT,
    )


@dataclass(frozen=True, slots=True)
class BrokenBudget:
    """A budget that cannot be read, and why."""

    key: str
    message: str


def _read_budget(raw: Mapping[str, Any]) -> Budget | BrokenBudget:
    try:
        return budget_from(raw, parse_budget(raw, strict=False).spec)
    except InvalidResource as error:
        return BrokenBudget(object_key(raw), error.message)


RawObject = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BrokenTier:
    """A tier that cannot be read, or of which it is not known whether it counts: why.

    With all users and client ids that can be found in it; it may name others if it does not
    `names_all`.
    """

    key: str
    message: str
    entities: frozenset[Entity]
    reason: Reason = Reason.INVALID_SPEC
    names_all: bool = False


@dataclass(frozen=True, slots=True)
class Declared:
    """A policy with its tiers, overrides and budgets, oldest first; None = a list is not complete.

    `not_let_in` are tiers of other namespaces that count as absent, each with the reason;
    `unlisted` says why tiers of other namespaces are not known, "" = they are. `strimzi` None = the
    Kafka cluster is not known as one of Strimzi's.
    """

    policy: Policy
    spec: PolicySpec
    tiers: tuple[Tier, ...] | None
    broken: tuple[BrokenTier, ...] = ()
    overrides: tuple[Override, ...] | None = ()
    broken_overrides: tuple[BrokenOverride, ...] = ()
    replaces_claim: str = ""  # the claim that the policy's annotation names: see Claim.name_for
    lost_ledger: str = ""  # a person's answer for a ledger that was lost: see LOST_LEDGER
    lease_namespace: str = ""  # the operator's, see Claim; "" = not for an operator
    not_let_in: Mapping[str, str] = field(default_factory=dict)
    unlisted: str = ""
    strimzi: StrimziUsers | None = None
    budgets: tuple[Budget, ...] | None = ()
    broken_budgets: tuple[BrokenBudget, ...] = ()
    unread_budgets: str = ""  # why Kubernetes lists none, "" = it does

    @property
    def entities(self) -> frozenset[Entity]:
        """Entities of readable tiers and defaults; for metering also Kafka's default user."""
        members = {member.entity for tier in self.tiers or () for member in tier.members}
        metered = {DEFAULT_USER} if self.policy.metering_enabled else set()
        return frozenset(members | set(self.policy.defaults) | metered)

    @property
    def topics(self) -> frozenset[str]:
        """Every topic name and prefix that a member names."""
        return frozenset(
            topic for tier in self.tiers or () for member in tier.members for topic in member.topics
        )


class SpecReader:
    """Reads a policy and its tiers, each spec once, until it changes. For one caller at a time."""

    def __init__(self) -> None:
        self._policy: tuple[object, PolicySpec] | None = None
        self._read: dict[str, tuple[object, Tier | BrokenTier]] = {}

    def policy(self, raw: RawObject) -> PolicySpec:
        """The policy's spec. Raises InvalidResource, each time, when it cannot be read."""
        spec, before = raw.get("spec"), self._policy
        if before is None or before[0] != spec:
            before = self._policy = (spec, parse_policy(raw, strict=False).spec)
        return before[1]

    def tiers(self, tiers: Iterable[RawObject]) -> list[Tier | BrokenTier]:
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
    reader: SpecReader | None = None,
    *,
    overrides: Iterable[RawObject] | None = (),
    budgets: Iterable[RawObject] | None = (),
    labels: NamespaceLabels = unknown_labels,
    lets_in: Callable[[str], bool] | None = None,
    lease_namespace: str = "",
    kafka_users: KafkaUsersOf = no_kafka_users,
    unread_budgets: str = "",
) -> Declared:
    """Read a policy and the tiers, overrides and budgets that refer to it.

    Those of other policies are skipped; one that is being deleted counts as absent. A `reader`
    keeps what it has read before; `labels` are asked for namespaces of tiers that only
    spec.allowedTiers may let in (or `lets_in`, for the answer itself), and `kafka_users` for those
    of Strimzi. Raises InvalidResource
    when the policy itself cannot be read.
    """
    reader = reader or SpecReader()
    spec = reader.policy(policy)
    translated = policy_from(policy, spec)
    admission = TierAdmission(translated.key, spec.allowed_tiers, labels, lets_in)
    read = None
    if tiers is not None:
        ours = [raw for raw in _of(policy, tiers) if not admission.keeps_out(raw)]
        read = [
            _unknown_tier(tier, admission.unknown[tier.key])
            if tier.key in admission.unknown
            else tier
            for tier in reader.tiers(ours)
        ]
    valid, broken_overrides = (
        (None, ())
        if overrides is None
        else read_overrides(raw for raw in _of(policy, overrides) if admission.is_at_home(raw))
    )
    shared = (
        None
        if budgets is None
        else [_read_budget(raw) for raw in _of(policy, budgets) if admission.is_at_home(raw)]
    )
    annotations = policy["metadata"].get("annotations") or {}
    return Declared(
        translated,
        spec,
        None if read is None else tuple(tier for tier in read if isinstance(tier, Tier)),
        tuple(tier for tier in read or () if isinstance(tier, BrokenTier)),
        valid,
        broken_overrides,
        str(annotations.get(REPLACE_CLAIM, "")).strip(),
        str(annotations.get(LOST_LEDGER, "")).strip(),
        lease_namespace,
        dict(admission.not_let_in),
        strimzi=kafka_users(strimzi_place(spec.kafka, translated.key.partition("/")[0])),
        budgets=None if shared is None else tuple(one for one in shared if isinstance(one, Budget)),
        broken_budgets=tuple(one for one in shared or () if isinstance(one, BrokenBudget)),
        unread_budgets=unread_budgets,
    )


def _of(policy: RawObject, objects: Iterable[RawObject]) -> list[RawObject]:
    """Those that refer to the policy and are not being deleted, oldest first."""
    return sorted(
        (
            raw
            for raw in objects
            if belongs_to(raw, policy) and not raw["metadata"].get("deletionTimestamp")
        ),
        key=age_key,
    )


def policy_name_of(raw: RawObject) -> str:
    """The policy that a tier or override refers to, `namespace/name`; empty if it is unreadable."""
    reference = (raw.get("spec") or {}).get("policyRef") or {}
    if not isinstance(reference, Mapping):
        return ""
    name, namespace = reference.get("name"), reference.get("namespace")
    if not isinstance(namespace, str) or not namespace:
        namespace = raw["metadata"]["namespace"]
    return f"{namespace}/{name}" if isinstance(name, str) and name else ""


def belongs_to(raw: RawObject, policy: RawObject) -> bool:
    """Whether it may be the policy's; an unreadable reference may be to any in its namespace."""
    named = policy_name_of(raw)
    return (
        named == object_key(policy)
        if named
        else bool(raw["metadata"]["namespace"] == policy["metadata"]["namespace"])
    )


def _read_tier(raw: RawObject) -> Tier | BrokenTier:
    try:
        return tier_from(raw, parse_tier(raw, strict=False).spec)
    except InvalidResource as error:
        return BrokenTier(object_key(raw), error.message, _entities_in(raw))


def _unknown_tier(tier: Tier | BrokenTier, why: str) -> BrokenTier:
    if isinstance(tier, BrokenTier):
        return replace(tier, message=why, reason=Reason.NAMESPACES_UNREAD)
    named = frozenset(member.entity for member in tier.members)
    return BrokenTier(tier.key, why, named, Reason.NAMESPACES_UNREAD, names_all=True)


def _entities_in(raw: RawObject) -> frozenset[Entity]:
    members = (raw.get("spec") or {}).get("members")
    listed = members if isinstance(members, list) else []
    return frozenset(
        entity
        for member in listed
        if isinstance(member, Mapping) and (entity := _entity_in(member)) is not None
    )


def _entity_in(member: Mapping[str, Any]) -> Entity | None:
    user, client_id = member.get("user"), member.get("clientId")
    named_user = user if isinstance(user, str) and user else None
    named_client = client_id if isinstance(client_id, str) and client_id else None
    return None if named_user is None and named_client is None else Entity(named_user, named_client)
