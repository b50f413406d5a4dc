"""One Kafka cluster as a control pass holds it: where quotas live and where leaders come from, opened and closed together."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from controller_logic.model import Topology
from tidegate.kafka.quota_store import QuotaStore


class TopologySource(Protocol):
    """Brokers and leaders. Raises Unreachable when no broker answers, Incomplete when the answer is not whole."""

    def read(self, patterns: Collection[str]) -> Topology:
        """Live brokers, and the leaders of the topics that these names and prefixes (ending in `*`) match, read now."""
        ...

    def quota_callbacks(self) -> Mapping[int, str]:
        """Broker -> class name, for brokers that replaced Kafka's quotas by a plugin. One that does not answer is left out."""
        ...

    def close(self) -> None:
        """Give the connection back. Calling it twice is harmless."""
        ...


@dataclass(frozen=True, slots=True)
class KafkaCluster:
    """`address` is how people know the cluster; it appears in messages."""

    address: str
    store: QuotaStore
    topology: TopologySource

    def close(self) -> None:
        self.topology.close()
        self.store.close()
