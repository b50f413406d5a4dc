"""Whether brokers obey Kafka's quotas at all: one that sets `client.quota.callback.class` decides by a plugin of its own.

Asked seldom, and of brokers that have stayed for a while only: a pass in which leaders move must not wait for a broker that has just
come. Brokers that do not tell are not suspected.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate.control.kafka_cluster import TopologySource
from tidegate.errors import TidegateError

SETTLE_SECONDS = 60.0
REPEAT_SECONDS = 600.0


@dataclass(slots=True)
class QuotaPlugins:
    """What is known of one cluster. `settle_seconds` is how long the same brokers must have been seen before they are asked."""

    settle_seconds: float = SETTLE_SECONDS
    _brokers: frozenset[int] = frozenset()
    _next_at_seconds: float = 0.0
    _known: Mapping[int, str] = field(default_factory=dict)

    def seen(self, topology: TopologySource, brokers: frozenset[int], now_seconds: float) -> Mapping[int, str]:
        """Broker -> class name of its plugin, for those of `brokers` that are known to have one; asks when it is time to."""
        if brokers != self._brokers:
            self._brokers, self._next_at_seconds = brokers, now_seconds + self.settle_seconds
        if now_seconds >= self._next_at_seconds:
            self._next_at_seconds = now_seconds + REPEAT_SECONDS
            self._ask(topology)
        return {broker: name for broker, name in self._known.items() if broker in brokers}

    def _ask(self, topology: TopologySource) -> None:
        try:
            self._known = topology.quota_callbacks()
        except TidegateError:
            return  # what was known stays known; the next time comes


def plugin_words(plugins: Mapping[int, str]) -> str:
    """What people are told: which brokers, which plugin, and what it means for them."""
    by_class: dict[str, list[str]] = {}
    for broker, name in sorted(plugins.items()):
        by_class.setdefault(name, []).append(str(broker))
    who = "; ".join(f"{_they_set(brokers)} client.quota.callback.class to {name}" for name, brokers in by_class.items())
    return f"{who}: such a plugin decides by itself and may ignore every quota of users and client ids, so contracts may not hold there"


def _they_set(brokers: list[str]) -> str:
    return f"broker {brokers[0]} sets" if len(brokers) == 1 else f"brokers {', '.join(brokers)} set"
