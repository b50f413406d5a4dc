"""Who plays in a measured episode, what each wants and is promised, and the card's limit. Nothing here starts or measures anything.

Half the rates of the demo's experiment 2, so that two processor cores also carry producers and many connections. Rates are bytes per
second on the one broker.
"""

from dataclasses import dataclass
from enum import Enum

MB = 1_000_000
LIMIT = 25 * MB
HIGH_LIMIT = 1000 * MB
CAPACITY = 1250 * MB
CONTRACT = 30 * MB


class Operation(Enum):
    """What the clients do, and therefore which direction of the card they fill."""

    CONSUME = "consume"
    PRODUCE = "produce"

    @property
    def limit_field(self) -> str:
        """The policy's field that holds the limit of that direction."""
        return "egressLimit" if self is Operation.CONSUME else "ingressLimit"

    @property
    def znode_key(self) -> str:
        """The quota as Kafka names it."""
        return "consumer_byte_rate" if self is Operation.CONSUME else "producer_byte_rate"

    @property
    def card_counter(self) -> str:
        """node_exporter's counter of that direction."""
        return f"node_network_{'transmit' if self is Operation.CONSUME else 'receive'}_bytes_total"


@dataclass(frozen=True, slots=True)
class Business:
    """One Kafka user; `wanted` is the sum over its connections (None = flat out), `throttled` None = never throttled."""

    level: str
    user: str
    wanted: int | None
    throttled: int | None
    connections: int = 1
    contract: int = CONTRACT


def four_businesses(connections: int, run: str) -> tuple[Business, ...]:
    """One of each level; those that can be throttled have that many connections.

    Every run has users of its own: Kafka tells a client's throttle time for a minute after its last mute.
    """
    return (
        Business("L0", f"checkout-{run}", 16 * MB, None),
        Business("L1", f"orders-{run}", 12 * MB, 5 * MB, connections),
        Business("L2", f"search-{run}", 12 * MB, 5 * MB // 2, connections),
        Business("L3", f"reports-{run}", 12 * MB, 1 * MB, connections),
    )
