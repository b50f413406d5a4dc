"""The objects that a user applies, as short as they can be said in a scenario. Rates are bytes per
second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from e2e.login import Login
from lab.kafka import BrokersLab, KafkaLab
from lab.prometheus import PrometheusLab

Document = dict[str, Any]
MB = 1_000_000
_API = "tidegate.io/v1alpha1"


def policy(kafka: BrokersLab, *, name: str = "orders", **spec: Any) -> Document:
    """Enforces on `kafka` and gives everything back when it is deleted; `spec` adds to it or
    replaces parts.
    """
    connection: Document = {"bootstrapServers": kafka.bootstrap_servers}
    if isinstance(kafka, KafkaLab):
        connection |= {
            "quotaStore": "ZooKeeper",
            "zookeeper": {"connect": kafka.zookeeper_connect},
        }
    return _object(
        "BrokerBandwidthPolicy",
        name,
        {"mode": "Enforce", "deletionPolicy": "Restore", "kafka": connection, **spec},
    )


def watching(prometheus: PrometheusLab, *, egress_limit: int) -> Document:
    """What a policy needs beside that to hold brokers under a limit: readings every second."""
    return {
        "metrics": {
            "prometheus": {
                "url": prometheus.url,
                "authentication": Login.authentication(),
                "insecure": True,  # the lab's Prometheus has no certificate
            },
            "preset": "NodeExporter",
            "brokerIdentity": {"label": "broker"},
            "scrapeIntervalSeconds": 1,
            "staleAfterSeconds": 15,
        },
        "brokers": {"egress": {"limit": str(egress_limit), "capacity": "1250M"}},
    }


def tier(
    name: str,
    level: str,
    fetch: Mapping[str, int],
    *,
    topic: str,
    throttled: int | None = None,
    policy: str = "orders",
    per: str = "perPartition",
) -> Document:
    """Members are named by their user: `tier("gold", "L0", {"alice": 10 * MB}, topic="acc")`
    promises alice 10 MB/s for each partition.
    """
    members = [
        {"name": user, "user": user, "topics": [topic], "contract": {per: {"fetch": str(rate)}}}
        for user, rate in fetch.items()
    ]
    spec: Document = {"policyRef": {"name": policy}, "level": level, "members": members}
    if throttled is not None:
        spec["throttledRates"] = {per: {"fetch": str(throttled)}}
    return _object("BusinessTier", name, spec)


def override(
    name: str, *, user: str, fetch_per_partition: int, seconds: float, policy: str = "orders"
) -> Document:
    """A person's decision for one user that ends by itself."""
    ends = (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    decided = {
        "target": {"user": user},
        "action": "SetRates",
        "rates": {"perPartition": {"fetch": str(fetch_per_partition)}},
    }
    return _object(
        "QuotaOverride",
        name,
        {"policyRef": {"name": policy}, **decided, "expiresAt": ends, "reason": "a scenario"},
    )


def budget(name: str, fetch: int, *, tiers: Sequence[str], **spec: Any) -> Document:
    """One fetch total of the members of these tiers; `spec` adds to it."""
    return _object(
        "BandwidthBudget",
        name,
        {
            "policyRef": {"name": "orders"},
            "total": {"fetch": str(fetch)},
            "members": {"tiers": list(tiers)},
            **spec,
        },
    )


def delay_queue(
    name: str, guarantee: str, delays: Mapping[int, int], *, prefix: str, target: str, **spec: Any
) -> Document:
    """`delays` has seconds -> topics. Records go to `target` alone; `spec` adds to it."""
    return _object(
        "DelayQueue",
        name,
        {
            "policyRef": {"name": "orders"},
            "topicPrefix": prefix,
            "guarantee": guarantee,
            "delays": levels(delays),
            "target": {"allowed": [target], "default": target},
            **spec,
        },
    )


def levels(delays: Mapping[int, int]) -> list[Document]:
    """Seconds -> topics as a DelayQueue has them."""
    return [{"seconds": seconds, "topics": topics} for seconds, topics in delays.items()]


def _object(kind: str, name: str, spec: Document) -> Document:
    return {"apiVersion": _API, "kind": kind, "metadata": {"name": name}, "spec": spec}
