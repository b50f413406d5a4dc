"""The declared terms of one policy: the members of its tiers, their contracts, and the limits of brokers.

These are the terms of now. Terms that were in force at another time come from the operator's metrics (`sources`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Self

from controller_logic import model
from controller_logic.contracts.leaders import share_scale
from controller_logic.model import BrokerLimits, Contract, Member, Policy, QuotaKey, QuotaWindow, RateForm, Tier
from tidegate.rollup.fold.gauges import Client
from tidegate.rollup.schemas import DIRECTIONS, Direction

KEYS: Final[Mapping[Direction, QuotaKey]] = {direction: model.BYTE_RATE_OF[direction] for direction in DIRECTIONS}
WAYS: Final[Mapping[Direction, model.Direction]] = {direction: model.DIRECTION_OF[key] for direction, key in KEYS.items()}

Rates = Mapping[Direction, float]


@dataclass(frozen=True, slots=True)
class PolicyMember:
    """A member, and its user and client id in Kafka's series. Of members that overlap only the first counts."""

    tier: Tier
    member: Member
    client: Client


@dataclass(frozen=True)
class PolicyTerms:
    """`key` is the policy's namespace/name. `from_status` has the rates on each broker in the tiers' status, by tier and member."""

    key: str
    tiers: Sequence[Tier] = ()
    limits: BrokerLimits = field(default_factory=BrokerLimits)
    window: QuotaWindow = field(default_factory=QuotaWindow)
    from_status: Mapping[tuple[str, str], Rates] = field(default_factory=dict)

    @classmethod
    def of(cls, policy: Policy, tiers: Sequence[Tier], statuses: Mapping[str, Mapping[str, Any]] | None = None) -> Self:
        """`statuses` are those of the BusinessTier objects, by tier."""
        from_status = {(key, name): rates for key, status in (statuses or {}).items() for name, rates in _from_status(status)}
        return cls(policy.key, tuple(tiers), policy.limits, policy.window, from_status)

    @cached_property
    def members(self) -> Sequence[PolicyMember]:
        """All members of tiers, the oldest tier first, without Kafka's default entities."""
        found: dict[Client, PolicyMember] = {}
        for tier in self.tiers:
            for member in tier.members:
                if not member.entity.is_default:
                    client = _name(member.entity.user), _name(member.entity.client_id)
                    found.setdefault(client, PolicyMember(tier, member, client))
        return tuple(found.values())

    def limit(self, broker: int, direction: Direction) -> int | None:
        """Return the declared limit of a broker's NIC."""
        return self.limits.of(broker).limit(WAYS[direction])

    def promised(self, one: PolicyMember, *, brokers: int) -> Rates:
        """Return the rates on each broker: from the status, else from the contract, where that does not depend on leaders."""
        return self.from_status.get((one.tier.key, one.member.name)) or contract_rates(one.member, brokers=brokers)


def contract_rates(member: Member, *, brokers: int) -> Rates:
    """Return the rates on each broker; empty without a contract, and for one whose rates depend on leaders."""
    contract = member.contract
    if contract is None or contract.form is RateForm.PER_PARTITION or (contract.form is RateForm.TOTAL and member.topics):
        return {}
    scale = share_scale(brokers if contract.form is RateForm.TOTAL else 1)
    return {way: float(scale.of(rate)) for way in DIRECTIONS if (rate := rate_of(contract, way)) is not None}


def rate_of(contract: Contract, direction: Direction) -> int | None:
    """Return the rate in the contract's own form."""
    return contract.produce_bytes_per_second if direction == "produce" else contract.fetch_bytes_per_second


def _name(part: object) -> str:
    return part if isinstance(part, str) else ""


def _from_status(status: Mapping[str, Any]) -> Iterator[tuple[str, Rates]]:
    """Yield the contracts in a status. While a member is throttled, its status has the throttled rate and not the contract."""
    for member in status.get("members") or ():
        rates = member.get("target") or member.get("quota") or {}
        if member.get("state") != "Throttled":
            yield member["name"], {way: float(rates[way]) for way in DIRECTIONS if rates.get(way) is not None}
