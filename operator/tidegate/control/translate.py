"""Custom resources as the core understands them: names, units and documented defaults; nothing is looked up anywhere.

It takes objects that their models have accepted already. What is unset gets its documented default here and nowhere else.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from controller_logic.model import (
    STALE_AFTER_SECONDS,
    AdviceTerms,
    BrokerLimit,
    BrokerLimits,
    Contract,
    Default,
    DeletionPolicy,
    Entity,
    Level,
    Member,
    Mode,
    Policy,
    QuotaKey,
    QuotaWindow,
    RateForm,
    ScalingMethod,
    Speed,
    Tier,
)
from tidegate.resources.policy import BrokerLimits as DeclaredLimits
from tidegate.resources.policy import PolicySpec
from tidegate.resources.rates import ContractRates, DefaultQuota, DirectionRates, QuotaDefaults, ThrottledRates
from tidegate.resources.rollup import Recommend
from tidegate.resources.tiers import TierMember, TierSpec

PAUSED = "tidegate.io/paused"
CONFIRM_REMOVAL = "tidegate.io/confirm-removal"


def object_key(raw: Mapping[str, Any]) -> str:
    """`namespace/name`, as in every message, log line and ledger record."""
    metadata = raw["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}"


def age_key(raw: Mapping[str, Any]) -> tuple[str, str]:
    """Sorts objects oldest first, and equally old ones by key; RFC 3339 times in UTC sort as text."""
    return (str(raw["metadata"].get("creationTimestamp", "")), object_key(raw))


def policy_from(raw: Mapping[str, Any], spec: PolicySpec) -> Policy:
    """One policy with every unset field at its documented default."""
    metadata = raw["metadata"]
    annotations = metadata.get("annotations") or {}
    scaling = spec.leader_scaling_or_default
    window, escalation = spec.kafka.quota_window_or_default, spec.escalation_or_default
    return Policy(
        key=object_key(raw),
        uid=str(metadata.get("uid", "")),
        mode=Mode(spec.mode),
        # whoever wrote "yes", or nothing at all, wants peace: only a plain no lets it go on
        paused=annotations.get(PAUSED, "false").strip().lower() != "false",
        deleting=bool(metadata.get("deletionTimestamp")),
        deletion=DeletionPolicy(spec.deletion_or_default),
        scaling=ScalingMethod(scaling.method_or_default),
        minimum_change_percent=scaling.minimum_change_percent_or_default,
        window=QuotaWindow(samples=window.samples_or_default, sample_seconds=window.sample_seconds_or_default),
        max_mute_seconds=escalation.max_mute_seconds_or_default,
        notifications_per_quarter_hour=spec.write_budget_or_default.notifications_per_quarter_hour_or_default,
        max_removal_percent=spec.removal_or_default.max_percent_per_pass_or_default,
        confirmed_removals=_confirmed_removals(annotations),
        enable_metering=spec.metrics is not None and spec.metrics.enable_metering_or_default,
        defaults=_defaults(spec.defaults),
        limits=BrokerLimits() if spec.brokers is None else _limits(spec.brokers),
        measured=spec.metrics is not None,
        stale_after_seconds=STALE_AFTER_SECONDS if spec.metrics is None else float(spec.metrics.stale_after_seconds_or_default),
        aim_percent=escalation.aim_percent_or_default,
        raise_to_percent=escalation.raise_to_percent_or_default,
        hold_seconds=float(escalation.hold_seconds_or_default),
        speed=Speed(escalation.speed_or_default),
        advice=AdviceTerms() if spec.rollup is None else _advice_terms(spec.rollup.recommend_or_default),
    )


def _advice_terms(recommend: Recommend) -> AdviceTerms:
    is_applied = recommend.apply_or_default == "WithinPercent"
    return AdviceTerms(recommend.headroom_percent_or_default, recommend.max_change_percent if is_applied else None)


def _limits(declared: DeclaredLimits) -> BrokerLimits:
    everywhere = BrokerLimit(declared.egress_limit, declared.ingress_limit, declared.egress_capacity)
    named = {broker for override in declared.overrides or () for broker in override.ids}
    return BrokerLimits(
        everywhere,
        {
            broker: BrokerLimit(declared.egress_limit_of(broker), declared.ingress_limit_of(broker), declared.egress_capacity_of(broker))
            for broker in sorted(named)
        },
    )


def _confirmed_removals(annotations: Mapping[str, str]) -> int | None:
    text = annotations.get(CONFIRM_REMOVAL, "")
    return int(text) if text.isascii() and text.isdecimal() else None


def _defaults(defaults: QuotaDefaults | None) -> Mapping[Entity, Mapping[QuotaKey, int]]:
    if defaults is None:
        return {}
    anybody = Default.DEFAULT
    declared = (
        (Entity(user=anybody), defaults.user),
        (Entity(client_id=anybody), defaults.client_id),
        (Entity(user=anybody, client_id=anybody), defaults.user_and_client_id),
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
    throttled = () if spec.throttled is None else tuple(_rates(form, rates) for form, rates in _given(spec.throttled))
    return Tier(object_key(raw), Level(spec.level), tuple(_member(member) for member in spec.members), throttled)


def _member(member: TierMember) -> Member:
    return Member(
        name=member.name,
        entity=Entity(user=member.user, client_id=member.client_id),
        topics=tuple(member.topics or ()),
        contract=None if member.contract is None else _contract(member.contract),
    )


def _contract(contract: ContractRates) -> Contract:
    form, rates = next(_given(contract))
    return replace(
        _rates(form, rates),
        request_percentage=contract.request_percentage,
        controller_mutations_per_second=contract.controller_mutations_per_second,
    )


def _given(rates: ContractRates | ThrottledRates) -> Iterator[tuple[RateForm, DirectionRates]]:
    forms = {RateForm.PER_PARTITION: rates.per_partition, RateForm.PER_BROKER: rates.per_broker, RateForm.TOTAL: rates.total}
    return ((form, given) for form, given in forms.items() if given is not None)


def _rates(form: RateForm, rates: DirectionRates) -> Contract:
    return Contract(form, rates.fetch, rates.produce)
