"""Adaptive scaling's part of a pass: what it has to know of every contract per partition, taken from what the pass observed.

While anything holds the pass, shares stay as they are. Of two members with the same entity the first counts, as everywhere.
"""

from collections.abc import Iterable, Iterator, Mapping

from controller_logic.adaptive_input import Adaptations, AdaptiveInput, AdaptiveRate
from controller_logic.contracts.adaptive import adapt
from controller_logic.contracts.leaders import Leaders
from controller_logic.entity import Entity
from controller_logic.model import LedgerEntry, Member, Observation, Policy, RateForm, ScalingMethod, StoredQuota
from controller_logic.quotas.values import enforced_rate
from controller_logic.readings import KEY_OF, Direction, Readings

_USUAL_SCRAPE_SECONDS = 15.0


def adaptations(observation: Observation, leaders: Leaders | None, memory: Adaptations, *, held: bool) -> Adaptations:
    """The shares of this pass. With another method there are none, so that switching to Adaptive begins with what is in force then."""
    policy = observation.policy
    if policy.scaling is not ScalingMethod.ADAPTIVE or policy.deleting:
        return {}
    if held or leaders is None or observation.quotas is None:
        return memory
    now_seconds = observation.now_seconds
    given = AdaptiveInput(
        now_seconds,
        observation.readings or Readings(now_seconds, _USUAL_SCRAPE_SECONDS),
        tuple(_rates(_members(observation), leaders, observation.quotas, policy=policy)),
        policy.window,
        policy.minimum_change_percent,
        policy.stale_after_seconds,
    )
    return adapt(given, memory)


def _members(observation: Observation) -> Iterable[Member]:
    owners: dict[Entity, Member] = {}
    for tier in observation.tiers or ():
        for member in tier.members:
            owners.setdefault(member.entity, member)
    return owners.values()


def _rates(members: Iterable[Member], leaders: Leaders, quotas: Mapping[Entity, StoredQuota], *, policy: Policy) -> Iterator[AdaptiveRate]:
    for member in members:
        contract, stored = member.contract, quotas.get(member.entity)
        if contract is None or contract.form is not RateForm.PER_PARTITION or stored is None:
            continue
        promised = {Direction.EGRESS: contract.fetch_bytes_per_second, Direction.INGRESS: contract.produce_bytes_per_second}
        spread = leaders.spread(member.topics)
        for direction, rate in promised.items():
            if rate is not None:
                in_force, throttled = _standing(stored, direction, policy)
                yield AdaptiveRate(member.entity, direction, rate, spread, spread.leading, in_force, throttled)


def _standing(stored: StoredQuota, direction: Direction, policy: Policy) -> tuple[int | None, bool]:
    """The contract in force, and whether it is throttled now."""
    key = KEY_OF[direction]
    entry = _our_entry(stored, direction, policy)
    if entry is not None and entry.of_contract:
        return entry.of_contract, True
    return enforced_rate(stored.values.get(key)), False


def _our_entry(stored: StoredQuota, direction: Direction, policy: Policy) -> LedgerEntry | None:
    ledger = stored.ledger
    return ledger.entries.get(KEY_OF[direction]) if ledger is not None and ledger.policy_key == policy.key else None
