"""What is read of a policy again and again, and what only when it changed."""

import copy

import pytest

from tidegate.errors import InvalidResource
from tidegate.observe.declared import SpecReader

POLICY = {
    "apiVersion": "tidegate.io/v1alpha1",
    "kind": "BrokerBandwidthPolicy",
    "metadata": {"name": "orders", "namespace": "streaming"},
    "spec": {
        "mode": "Enforce",
        "kafka": {
            "bootstrapServers": "kafka:9092",
            "quotaStore": "ZooKeeper",
            "zookeeper": {"connect": "zookeeper:2181"},
        },
    },
}


def test_a_spec_is_validated_once_until_it_changes() -> None:
    reader, changed = SpecReader(), copy.deepcopy(POLICY)
    first = reader.policy(POLICY)
    again = {**copy.deepcopy(POLICY), "status": {"observedGeneration": 1}}
    assert reader.policy(again) is first
    changed["spec"]["mode"] = "Observe"  # type: ignore[index]
    assert (first.mode, reader.policy(changed).mode) == ("Enforce", "Observe")
    assert reader.policy(POLICY).mode == "Enforce"


def test_a_spec_that_is_invalid_is_refused_each_time_and_one_from_before_is_not_followed() -> None:
    reader, broken = SpecReader(), copy.deepcopy(POLICY)
    broken["spec"]["mode"] = "Sometimes"  # type: ignore[index]
    reader.policy(POLICY)
    for _ in range(2):
        with pytest.raises(InvalidResource, match="mode"):
            reader.policy(broken)
    assert reader.policy(POLICY).mode == "Enforce"
