"""The policy with one limited direction and a tier for each level, as a user would declare them. It applies nothing."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from bench.control.world import GROUP, NAMESPACE, POLICY, TOPIC, VERSION, policy
from bench.tide.script import CAPACITY, HIGH_LIMIT, Business, Operation
from lab.kafka import KafkaLab
from lab.prometheus import PrometheusLab

_RATE_FIELD = {Operation.CONSUME: "fetch", Operation.PRODUCE: "produce"}


def declared_policy(kafka: KafkaLab, prometheus: PrometheusLab, operation: Operation, *, speed: str) -> dict[str, Any]:
    """In mode Enforce, with the limit far away; readings every second. Deleting it restores what was there before."""
    declared = policy(kafka)
    capacity_field = operation.limit_field.replace("Limit", "Capacity")
    declared["spec"] |= {
        "deletion": "Restore",
        "metrics": {
            "prometheus": {"url": prometheus.url},
            "preset": "JmxExporter" if kafka.network is None else "NodeExporter",
            "brokerIds": {"label": "broker"},
            "scrapeIntervalSeconds": 1,
            "staleAfterSeconds": 15,
        },
        "brokers": {operation.limit_field: HIGH_LIMIT, capacity_field: CAPACITY},
        "escalation": {"speed": speed},
    }
    return declared


def declared_tiers(businesses: Sequence[Business], operation: Operation) -> list[dict[str, Any]]:
    """One tier a level, named by it."""
    by_level = groupby(sorted(businesses, key=lambda business: business.level), key=lambda business: business.level)
    return [_tier(level, list(members), operation) for level, members in by_level]


def _tier(level: str, businesses: Sequence[Business], operation: Operation) -> dict[str, Any]:
    members = [_member(business, operation) for business in businesses]
    spec: dict[str, Any] = {"policyRef": {"name": POLICY}, "level": level, "members": members}
    throttled = businesses[0].throttled
    if throttled is not None:
        spec["throttled"] = _rates(throttled, operation)
    metadata = {"name": level.lower(), "namespace": NAMESPACE}
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": "BusinessTier", "metadata": metadata, "spec": spec}


def _member(business: Business, operation: Operation) -> dict[str, Any]:
    return {"name": business.user, "user": business.user, "topics": [TOPIC], "contract": _rates(business.contract, operation)}


def _rates(bytes_per_second: int, operation: Operation) -> Mapping[str, Mapping[str, int]]:
    return {"perBroker": {_RATE_FIELD[operation]: bytes_per_second}}
