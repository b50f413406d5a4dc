"""What is declared, entity by entity: members on their contracts, and Kafka's default entities. Of two that overlap the first counts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from controller_logic.adaptive_input import Adaptations
from controller_logic.contracts.leaders import Leaders
from controller_logic.contracts.targets import NOTHING, Promise, default_promise, promise_of
from controller_logic.decision import MemberReport, Note
from controller_logic.model import Entity, Policy, Tier
from controller_logic.promise_ground import Grounds
from controller_logic.reports import overlapping_report, promised_report
from controller_logic.throttled import HeldDown, held_down, throttled_rates

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
    grounds: Grounds | None = None
    held: HeldDown = field(default_factory=dict)
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
    grounds = None if policy.deleting else Grounds(leaders, policy.scaling, adaptations)
    owners: dict[Entity, MemberReport] = {}
    members = []
    for tier in tiers:
        for member in tier.members:
            report = promised_report(tier, member, grounds.under(member) if grounds is not None else None)
            owner = owners.setdefault(member.entity, report)
            members.append(report if owner is report else overlapping_report(report, owner))
    defaults = {} if policy.deleting else {key: default_promise(rates) for key, rates in policy.defaults.items() if key not in owners}
    return Desired(tuple(members), owners, defaults, grounds)
