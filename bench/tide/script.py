"""Who plays in a measured episode, what each wants and is promised, and the NIC's limit. Nothing here starts or measures anything.

Half the rates of the demo's experiment 2 for consumers and a quarter for producers, so that two processor cores carry nineteen of them:
a producer costs a core about twice what a consumer costs. Rates are bytes per second on the one broker.
"""

from dataclasses import dataclass
from enum import Enum

MB = 1_000_000
HIGH_LIMIT = 1000 * MB
CAPACITY = 1250 * MB


class Operation(Enum):
    """What the clients do, and therefore which direction of the NIC they fill."""

    CONSUME = "consume"
    PRODUCE = "produce"

    @property
    def limit(self) -> int:
        """The NIC's limit in an episode; every other rate is a part of it or a multiple."""
        return 25 * MB if self is Operation.CONSUME else 25 * MB // 2

    @property
    def way(self) -> str:
        """That direction of the NIC, as the policy names it."""
        return "egress" if self is Operation.CONSUME else "ingress"

    @property
    def znode_key(self) -> str:
        """The quota as Kafka names it."""
        return "consumer_byte_rate" if self is Operation.CONSUME else "producer_byte_rate"

    @property
    def nic_counter(self) -> str:
        """node_exporter's counter of that direction."""
        return f"node_network_{'transmit' if self is Operation.CONSUME else 'receive'}_bytes_total"


@dataclass(frozen=True, slots=True)
class Business:
    """One Kafka user; `wanted` is the sum over its connections (None = flat out), `throttled` None = never throttled."""

    level: str
    user: str
    wanted: int | None
    throttled: int | None
    contract: int
    connections: int = 1


def four_businesses(operation: Operation, connections: int, run: str) -> tuple[Business, ...]:
    """One of each level; those that can be throttled have that many connections.

    Every run has users of its own: Kafka tells a client's throttle time for a minute after its last mute.
    """
    part = operation.limit // 50
    contract = 60 * part
    return (
        Business("L0", f"checkout-{run}", 32 * part, None, contract),
        Business("L1", f"orders-{run}", 24 * part, 10 * part, contract, connections),
        Business("L2", f"search-{run}", 24 * part, 5 * part, contract, connections),
        Business("L3", f"reports-{run}", 24 * part, 2 * part, contract, connections),
    )
