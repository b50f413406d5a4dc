"""What people declare of the brokers' network cards: limits above which tiers are throttled, and the cards' own speeds."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from controller_logic.readings import Direction


@dataclass(frozen=True, slots=True)
class BrokerLimit:
    """How much may go through one broker's card, and its own speed, in bytes/s. None = no limit that way; speed not known."""

    egress: int | None = None
    ingress: int | None = None
    egress_capacity: int | None = None
    ingress_capacity: int | None = None

    def limit(self, direction: Direction) -> int | None:
        return self.egress if direction is Direction.EGRESS else self.ingress

    def capacity(self, direction: Direction) -> int | None:
        return self.egress_capacity if direction is Direction.EGRESS else self.ingress_capacity


@dataclass(frozen=True, slots=True)
class BrokerLimits:
    """The limit of every broker, and of those that have one of their own; there, what is unset is as for the others already."""

    everywhere: BrokerLimit = BrokerLimit()
    exceptions: Mapping[int, BrokerLimit] = field(default_factory=dict)

    def of(self, broker: int) -> BrokerLimit:
        return self.exceptions.get(broker, self.everywhere)
