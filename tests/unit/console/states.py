"""The states in which the page Now has to read right: when to stop, what is bent, what it says."""

from collections.abc import Callable
from typing import Final

from tests.doubles import simulated_console as simulated
from tests.doubles.simulated_console import SimulatedSource

Bend = Callable[[SimulatedSource], None]
THROTTLED_AT: Final = 640.0  # seconds: L3 and L2 are throttled for brokers 1 to 3
JUST_OVER_AT: Final = 306.0  # the first pass that sees broker 1 over its limit

# of the banner: its tone, its word, which is in the title too, and what to do next
TONES: Final[dict[str, tuple[str, str, str]]] = {
    "Prometheus away": ("watch", "unknown", "Check Prometheus and its targets"),
    "Kafka away": ("watch", "held", "tidegate doctor streaming/orders says what it lacks."),
    "API server away": ("watch", "unknown", "Check the API server"),
    "Observe": ("over", "over", "Check what Enforce would change, below; then set spec.mode"),
    "paused": ("watch", "paused", "To go on: set spec.suspend to false."),
    "contended": (
        "watch",
        "contended",
        "Stop that writer, then: tidegate resync streaming/orders.",
    ),
    "exhausted": (
        "spent",
        "nothing left",
        "Add capacity, move leaders away or lower an L0 contract. Try it on What if",
    ),
    "delay queues": ("watch", "throttling", "Nothing to do: contracts return step by step when"),
}

STATES: Final[dict[str, tuple[float, Bend, tuple[str, ...]]]] = {
    "Prometheus away": (
        THROTTLED_AT,
        simulated.without_prometheus,
        (
            "Prometheus does not answer, last known 5 min ago",
            "the load of 3 of 3 NICs is unknown",
            "L3 throttled: backfill, since 08:09:11 (6 min).",
            "Whether it is enough is unknown",
            "last 5 min ago",
            "now unknown, no broker has a reading",
        ),
    ),
    "Kafka away": (
        THROTTLED_AT,
        simulated.without_kafka,
        (
            "held: nothing changes",
            "Kafka does not answer, last known 60 s ago",
            "It is unknown which members are at their contracted rates. Last known: L3 throttled "
            "since 08:09:11 (2 min), L2 throttled since 08:09:12 (2 min).",
            "Quotas stay as they are: No broker of kafka-1:9092 answered",
            "Levels as of 60 s ago",
            "unknown of 1",
            "Not judged now: it is unknown which brokers are live",
            "Unknown for every member. No broker of kafka-1:9092 answered",
        ),
    ),
    "API server away": (
        THROTTLED_AT,
        simulated.without_kubernetes,
        (
            "Kubernetes does not answer, last known 2 min ago",
            "Lease unknown",
            "1 of 4 inputs ok",
            "Kubernetes does not answer: levels, quotas and Events are as of 2 min ago.",
            "L3 throttled: backfill, 12.1 of 180 MB/s",
            "Levels as of 2 min ago",
            "Not at the contracted rate as of 2 min ago",
            "What the operator says as of 2 min ago",
        ),
    ),
    "no policy": (
        THROTTLED_AT,
        simulated.no_policy,
        (
            "There is no BrokerBandwidthPolicy here",
            "A policy appears here as soon as there is one.",
        ),
    ),
    "Observe": (
        JUST_OVER_AT,
        simulated.observing,
        (
            "mode Observe",
            "Broker 1 egress is over its limit: 98 MB/s",
            "Enforce would change the quota of backfill, indexer.",
            "Tidegate is only observing: no quota changes.",
            "What Enforce would change",
            "mode is Observe, nothing is written; Enforce would throttle it",
        ),
    ),
    "paused": (
        THROTTLED_AT,
        simulated.paused,
        (
            "paused by spec.suspend",
            "L3 throttled: backfill, 11.8 of 180 MB/s",
            "since 08:09:11 (85 s).",
            "Tidegate is paused: no quota changes.",
            "every quota stays as it is until that ends",
        ),
    ),
    "contended": (
        THROTTLED_AT,
        simulated.contended,
        (
            "L2 throttled: indexer",
            "Not at the contracted rate for other reasons: backfill (Contended: another writer "
            "keeps changing its quota).",
            "fetch is 50 MB/s (50000000 B/s), Tidegate's is 4.32 MB/s",
            "To end it at once: tidegate resync streaming/orders",
        ),
    ),
    "exhausted": (
        THROTTLED_AT,
        simulated.exhausted,
        (
            "Broker 1 egress is over its limit: 69.2 MB/s of 60 MB/s, since 08:07:11 (3 min).",
            "It is not enough, and quotas cannot help: every tier below L0 is throttled as far as "
            "allowed. Excess: broker 1 egress 9.2 MB/s",
            "What no quota can help with",
        ),
    ),
    "delay queues": (
        THROTTLED_AT,
        simulated.with_queues,
        (
            "Delay queues",
            "streaming/retries",
            "ForwardersMissing No forwarder is available: 0 of 2; 1200 messages wait.",
            "RecordsLost Kafka deleted 40 messages before they were sent on",
            "DeadLetters 3 messages could not be sent to their target",
            "on time",
        ),
    ),
}
