"""One policy as rollups see it: who is a member of which tier, what is promised to whom, and which limits brokers have.

It is what people declare now. What was in force at another time is told by the operator's metrics (`operator_samples`).
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

KEYS: Final[Mapping[Direction, QuotaKey]] = {"produce": QuotaKey.PRODUCER_BYTE_RATE, "fetch": QuotaKey.CONSUMER_BYTE_RATE}
WAYS: Final[Mapping[Direction, model.Direction]] = {"produce": model.Direction.INGRESS, "fetch": model.Direction.EGRESS}

Rates = Mapping[Direction, float]


@dataclass(frozen=True, slots=True)
class PolicyMember:
    """A member, and the name under which Kafka's series tell of it. Of members that overlap only the first is one."""

    tier: Tier
    member: Member
    client: Client


@dataclass(frozen=True)
class PolicyTerms:
    """`key` is the policy's namespace/name; `standing` has, by tier and member, what a status says that is promised on each broker."""

    key: str
    tiers: Sequence[Tier] = ()
    limits: BrokerLimits = field(default_factory=BrokerLimits)
    window: QuotaWindow = field(default_factory=QuotaWindow)
    standing: Mapping[tuple[str, str], Rates] = field(default_factory=dict)

    @classmethod
    def of(cls, policy: Policy, tiers: Sequence[Tier], statuses: Mapping[str, Mapping[str, Any]] | None = None) -> Self:
        """`statuses` are those of the BusinessTier objects, by tier."""
        standing = {(key, name): rates for key, status in (statuses or {}).items() for name, rates in _standing(status)}
        return cls(policy.key, tuple(tiers), policy.limits, policy.window, standing)

    @cached_property
    def members(self) -> Sequence[PolicyMember]:
        """Everybody that a tier names, the oldest tier first; Kafka's default entities are nobody's name."""
        found: dict[Client, PolicyMember] = {}
        for tier in self.tiers:
            for member in tier.members:
                if not member.entity.is_default:
                    client = _name(member.entity.user), _name(member.entity.client_id)
                    found.setdefault(client, PolicyMember(tier, member, client))
        return tuple(found.values())

    def limit(self, broker: int, direction: Direction) -> int | None:
        """The declared limit of a broker's NIC."""
        return self.limits.of(broker).limit(WAYS[direction])

    def promised(self, one: PolicyMember, *, brokers: int) -> Rates:
        """What is promised on each broker: by the status, else by the contract, as far as that can be said without leaders."""
        return self.standing.get((one.tier.key, one.member.name)) or contract_rates(one.member, brokers=brokers)


def contract_rates(member: Member, *, brokers: int) -> Rates:
    """Empty without a contract, and for one whose rate on each broker depends on leaders."""
    contract = member.contract
    if contract is None or contract.form is RateForm.PER_PARTITION or (contract.form is RateForm.TOTAL and member.topics):
        return {}
    scale = share_scale(brokers if contract.form is RateForm.TOTAL else 1)
    return {way: float(scale.of(rate)) for way in DIRECTIONS if (rate := rate_of(contract, way)) is not None}


def rate_of(contract: Contract, direction: Direction) -> int | None:
    """In the contract's own form."""
    return contract.produce_bytes_per_second if direction == "produce" else contract.fetch_bytes_per_second


def _name(part: object) -> str:
    return part if isinstance(part, str) else ""


def _standing(status: Mapping[str, Any]) -> Iterator[tuple[str, Rates]]:
    """While a member is throttled its status tells the throttle and not the contract."""
    for member in status.get("members") or ():
        rates = member.get("target") or member.get("quota") or {}
        if member.get("state") != "Throttled":
            yield member["name"], {way: float(rates[way]) for way in DIRECTIONS if rates.get(way) is not None}
