"""What every managed entity should end at: contracts on the leaders as they are now, and Kafka's default entities.

Answers "where to", never "how fast" or "may it be written": see `mute_guard.py` and `key_step.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256

from controller_logic.leader_scaling import Leaders, LeaderSpread, per_broker_rate, share_of_total
from controller_logic.model import Contract, Entity, Member, Policy, QuotaKey, RateForm, ScalingMethod, Tier

_LONGEST_BASIS_TOPICS = 120  # characters; a basis is stored with every quota in the ledger


@dataclass(frozen=True, slots=True)
class Target:
    """Where one quota key should end: the number, and the exact text that Kafka's store should hold.

    `basis` names the promise it was computed for (form, rate, method, topics) but not the leaders, so that an edited
    promise and a moved leader can be told apart. `certain` is false while leaders or topics are not known in full.
    """

    value: int
    text: str
    basis: str
    certain: bool = True


@dataclass(frozen=True, slots=True)
class Promise:
    """What a contract means on the leaders of a moment.

    `keys` are managed; those without a target are left as they are, because their target cannot be known (no topic of the
    member exists, or leaders are unknown). Totals over all brokers are in bytes per second, for byte rates only.
    """

    keys: frozenset[QuotaKey]
    targets: Mapping[QuotaKey, Target]
    spread: LeaderSpread | None = None
    contract_total: Mapping[QuotaKey, int] = field(default_factory=dict)
    permitted_total: Mapping[QuotaKey, int] = field(default_factory=dict)
    values: Mapping[QuotaKey, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wanted:
    """One entity that a tier or a default names. `taken_by` is the tier that named it first: then it is left alone here."""

    entity: Entity
    promise: Promise
    tier: Tier | None = None
    member: Member | None = None
    taken_by: str | None = None


NOTHING = Promise(frozenset(), {})


def desired(policy: Policy, tiers: tuple[Tier, ...], leaders: Leaders | None) -> tuple[Wanted, ...]:
    """Every entity that is named, in the order of the tiers, then of the defaults; of two that overlap the first counts.

    Unknown leaders (None) leave every key that depends on them without a target.
    """
    promises = _Promises(policy.scaling, leaders)
    owners: dict[Entity, str] = {}
    wanted = [_wanted(tier, member, owners, promises=promises) for tier in tiers for member in tier.members]
    for entity, values in policy.defaults.items():
        if entity not in owners:
            wanted.append(Wanted(entity, _default_promise(values)))
    return tuple(wanted)


def _wanted(tier: Tier, member: Member, owners: dict[Entity, str], *, promises: "_Promises") -> Wanted:
    owner = owners.get(member.entity)
    if owner is not None:
        return Wanted(member.entity, NOTHING, tier, member, owner)
    owners[member.entity] = f"{tier.key}, member {member.name}"
    return Wanted(member.entity, promises.of(member), tier, member)


def _default_promise(values: Mapping[QuotaKey, int]) -> Promise:
    targets = {key: Target(value, str(value), f"default {value}") for key, value in values.items()}
    return Promise(frozenset(targets), targets, values=dict(values))


class _Promises:
    """Contracts turned into promises on the leaders of this pass."""

    def __init__(self, method: ScalingMethod, leaders: Leaders | None) -> None:
        self._method = method
        self._leaders = leaders

    def of(self, member: Member) -> Promise:
        leaders = self._leaders
        spread = leaders.spread(member.topics) if member.topics and leaders is not None else None
        if member.contract is None:
            return Promise(frozenset(), {}, spread)
        live_brokers = leaders.live_brokers if leaders is not None else None
        return _promise(member.contract, _Footing(member.topics, spread, self._method, live_brokers))


@dataclass(frozen=True, slots=True)
class _Footing:
    """What a contract stands on: topics and how their leaders lie (None = no topics, or unknown), and how it is scaled.

    `live_brokers` None = brokers and leaders are unknown.
    """

    topics: tuple[str, ...]
    spread: LeaderSpread | None
    method: ScalingMethod
    live_brokers: int | None

    @property
    def brokers(self) -> int:
        """Over how many brokers traffic goes; partitions without a leader are expected to spread over those that live."""
        live_brokers = self.live_brokers or 0
        if self.spread is None:
            return live_brokers
        return self.spread.brokers or min(self.spread.leaderless, live_brokers)


@lru_cache(maxsize=65536)
def _promise(contract: Contract, footing: _Footing) -> Promise:
    """A pure function of its arguments, kept from pass to pass: most promises do not change between two of them."""
    promised, fixed = _byte_rates(contract), _fixed_targets(contract)
    keys = frozenset(promised) | frozenset(fixed)
    spread = footing.spread
    unknown = footing.live_brokers is None or (spread is not None and spread.missing and not spread.topics)
    if unknown and contract.form is not RateForm.PER_BROKER:
        return Promise(keys, {}, spread)
    targets = fixed | {key: _target(contract.form, rate, footing) for key, rate in promised.items()}
    values = {key: target.value for key, target in targets.items()}
    contract_total, permitted_total = _totals(contract.form, promised, values, footing=footing)
    return Promise(keys, targets, spread, contract_total, permitted_total, values)


def _target(form: RateForm, rate: int, footing: _Footing) -> Target:
    if form is RateForm.PER_BROKER:
        return Target(rate, str(rate), f"perBroker {rate}")
    spread = footing.spread
    certain = spread is None or spread.complete
    if form is RateForm.TOTAL:
        value = share_of_total(rate, footing.brokers)
        return Target(value, str(value), f"total {rate}{_topics_in_basis(footing.topics)}", certain)
    value = per_broker_rate(rate, spread or LeaderSpread(), method=footing.method)
    return Target(value, str(value), f"perPartition {rate} {footing.method.value}{_topics_in_basis(footing.topics)}", certain)


def _totals(
    form: RateForm, promised: Mapping[QuotaKey, int], values: Mapping[QuotaKey, int], *, footing: _Footing
) -> tuple[Mapping[QuotaKey, int], Mapping[QuotaKey, int]]:
    """Promised and permitted over all brokers; empty where the topics have no leader or nobody knows the brokers."""
    spread = footing.spread
    brokers = (footing.live_brokers or 0) if spread is None else spread.brokers
    if not brokers or (spread is None and form is not RateForm.TOTAL):
        return {}, {}
    times = {RateForm.TOTAL: 1, RateForm.PER_BROKER: brokers, RateForm.PER_PARTITION: spread.partitions if spread else 1}[form]
    return (
        {key: rate * times for key, rate in promised.items()},
        {key: values[key] * brokers for key in promised},
    )


def _byte_rates(contract: Contract) -> dict[QuotaKey, int]:
    rates = {
        QuotaKey.CONSUMER_BYTE_RATE: contract.fetch_bytes_per_second,
        QuotaKey.PRODUCER_BYTE_RATE: contract.produce_bytes_per_second,
    }
    return {key: rate for key, rate in rates.items() if rate is not None}


def _fixed_targets(contract: Contract) -> dict[QuotaKey, Target]:
    """The quotas that are the same number on every broker wherever the leaders are."""
    values = {
        QuotaKey.REQUEST_PERCENTAGE: contract.request_percentage,
        QuotaKey.CONTROLLER_MUTATION_RATE: contract.controller_mutations_per_second,
    }
    return {key: Target(value, str(value), f"perBroker {value}") for key, value in values.items() if value is not None}


def _topics_in_basis(topics: tuple[str, ...]) -> str:
    """The topics in an order of their own, so that reordering them is no new promise; a long list becomes its digest."""
    if not topics:
        return ""
    names = ",".join(sorted(set(topics)))
    return f" {names}" if len(names) <= _LONGEST_BASIS_TOPICS else f" sha256:{sha256(names.encode()).hexdigest()[:16]}"
