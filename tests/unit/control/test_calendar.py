"""What a policy's calendar comes to in the operator: status, conditions, Events, metric and ledger.

A test begins on a Monday at 13:46:40 UTC; the entry is from 13:50 to 14:00 and gives L3 a fifth.
"""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.control.stage import ALICE, Stage
from tests.unit.control.test_load import LIMITS, METRICS, SCRAPE, read
from tidegate.kube.api import BUSINESS_TIERS, ObjectRef
from tidegate.resources.policy import PolicySpec
from tidegate_logic.model import ClientRate, Direction

ENTRY = {"days": ["Mon"], "from": "13:50", "to": "14:00", "levels": {"L3": "20%"}}
BEGINS = 1_000_000.0 + 200


@pytest.fixture
def policy(stage: Stage) -> ObjectRef:
    return staged(stage)


def staged(stage: Stage, **spec: Any) -> ObjectRef:
    policy = stage.policy(
        metrics=METRICS, brokers=LIMITS, escalation={"calendar": {"entries": [ENTRY]}}, **spec
    )
    member = {"name": "alice", "user": "alice", "contract": {"perBroker": {"produce": "10M"}}}
    tier = {
        "policyRef": {"name": "orders"},
        "level": "L3",
        "members": [member],
        "throttledRates": {"perBroker": {"produce": "1M"}},
    }
    metadata = {"name": "reports", "namespace": "streaming"}
    stage.kubernetes.create(BUSINESS_TIERS, {"metadata": metadata, "spec": tier})
    return policy


def pass_time(stage: Stage, until: float) -> None:
    while stage.now < until:
        stage.now += SCRAPE
        read(stage, broker_1=10)
        stage.run()


def status(stage: Stage, policy: ObjectRef) -> dict[str, Any]:
    return dict(stage.kubernetes.get(policy)["status"])


def level_3(stage: Stage, policy: ObjectRef) -> dict[str, Any]:
    return next(one for one in status(stage, policy)["levels"] if one["level"] == "L3")


def limited_by(stage: Stage) -> str | None:
    (raw,) = stage.kubernetes.list_all(BUSINESS_TIERS).items
    (member,) = raw["status"]["members"]
    return member.get("limitedBy")


def test_it_is_said_before_while_and_after_it_is_in_force(stage: Stage, policy: ObjectRef) -> None:
    pass_time(stage, BEGINS - 120)
    assert (stage.produce(), limited_by(stage)) == ("10000000", None)
    assert status(stage, policy)["calendar"] == [
        {
            "level": "L3",
            "percent": 100,
            "until": "1970-01-12T13:50:00Z",
            "nextPercent": 20,
        }
    ]
    pass_time(stage, BEGINS - 60)
    assert int(stage.produce() or 0) < 10_000_000
    assert level_3(stage, policy)["because"] == (
        "limited by calendar on its way down to 20 % of its contracts from 1970-01-12T13:50:00Z"
    )
    pass_time(stage, BEGINS)
    assert stage.produce() == "2000000"
    until = "limited by calendar to 20 % of its contracts until 1970-01-12T14:00:00Z"
    assert (level_3(stage, policy)["state"], level_3(stage, policy)["because"]) == (
        "Throttled",
        until,
    )
    assert status(stage, policy)["calendar"][0] | {"level": "L3"} == {
        "level": "L3",
        "percent": 20,
        "until": "1970-01-12T14:00:00Z",
        "nextPercent": 100,
    }
    assert stage.condition(policy, "Throttling") == ("True", "Calendar")
    assert until in stage.message(policy, "Throttling")
    (raw,) = stage.kubernetes.list_all(BUSINESS_TIERS).items
    tier = ObjectRef.of(BUSINESS_TIERS, raw)
    assert stage.condition(tier) == ("True", "Calendar")
    assert "throttled, as declared in the calendar" in stage.message(tier)
    assert "; limited by calendar" in stage.message(tier)
    assert limited_by(stage) == "Calendar"
    (event,) = [
        one
        for one in stage.kubernetes.events
        if one.reason == "Calendar" and one.regarding.name == "orders"
    ]
    assert (event.type, event.note) == (
        "Normal",
        "L3 is limited by calendar on its way down to 20 % of its contracts from "
        "1970-01-12T13:50:00Z",
    )
    assert "Throttled" not in stage.event_reasons()
    record = stage.store.read([ALICE])[ALICE].ledger
    assert record is not None
    (entry,) = record.entries.values()
    assert (entry.reason, entry.of_contract, entry.before) == ("Calendar", 10_000_000, None)
    share = stage.telemetry.registry.get_sample_value(
        "tidegate_calendar_share",
        {"policy_namespace": "streaming", "policy": "orders", "level": "L3"},
    )
    assert share == 0.2

    pass_time(stage, BEGINS + 600 + 240)
    assert stage.produce() == "10000000"
    assert level_3(stage, policy)["state"] == "Contract"
    assert "because" not in level_3(stage, policy)
    assert "Released" in stage.event_reasons()


def test_a_broker_over_its_limit_has_an_event_of_its_own(stage: Stage, policy: ObjectRef) -> None:
    pass_time(stage, BEGINS)
    stage.kubernetes.events.clear()
    pass_time(stage, BEGINS + 60)
    assert stage.event_reasons() == []
    hot = {(1, Direction.INGRESS), (3, Direction.INGRESS)}
    client = ClientRate(stage.now, 2_000_000.0, 1000.0)
    read(stage, broker_1=10)
    assert stage.readings is not None
    spans = {
        key: tuple(replace(one, bytes_per_second=21_000_000.0) for one in known)
        if key in hot
        else known
        for key, known in stage.readings.nic.items()
    }
    clients = {(ALICE, 3, Direction.INGRESS): client}
    stage.readings = replace(stage.readings, nic=spans, clients=clients)
    stage.run()
    (event,) = [
        one
        for one in stage.kubernetes.events
        if one.reason == "Throttled" and one.regarding.name == "orders"
    ]
    assert event.type == "Warning"
    assert event.note.startswith("L3 is throttled: broker 3 ingress 21 of 20 MB/s")
    assert stage.condition(policy, "Throttling") == ("True", "QuotaExhausted")
    assert "calendar" not in level_3(stage, policy)["because"]


def test_in_mode_observe_it_is_shown_and_not_written(stage: Stage) -> None:
    policy = staged(stage, mode="Observe")
    pass_time(stage, BEGINS + 60)
    assert stage.produce() is None
    assert status(stage, policy)["calendar"][0]["percent"] == 20


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"levels": {"L0": "20%"}}, "must name L1, L2 and L3 only: L0 is never throttled"),
        ({"levels": {"L3": "0%"}}, 'must be from "1%" to "99%" of the contracts'),
        ({"levels": {}}, "at least 1 item"),
        ({"timeZone": "Europe/Nowhere"}, "is not in the time zone database"),
        ({"timeZone": "../etc"}, "must be a name of the time zone database"),
        ({"from": "24:00"}, 'must be a time of day from "00:00" to "23:59"'),
        ({"days": ["Monday"]}, "Input should be 'Mon'"),
    ],
)
def test_a_wrong_entry_is_refused_with_what_is_wrong(changed: dict[str, Any], problem: str) -> None:
    spec = {
        "mode": "Observe",
        "kafka": {"bootstrapServers": "kafka:9092"},
        "metrics": METRICS,
        "escalation": {"calendar": {"entries": [{**ENTRY, **changed}]}},
    }
    with pytest.raises(ValueError, match="calendar") as raised:
        PolicySpec.model_validate_json(json.dumps(spec))
    assert problem in str(raised.value)


def test_a_calendar_needs_metrics() -> None:
    spec = {
        "mode": "Observe",
        "kafka": {"bootstrapServers": "kafka:9092"},
        "escalation": {"calendar": {"entries": [ENTRY]}},
    }
    with pytest.raises(ValueError, match=r"metrics is required with escalation\.calendar"):
        PolicySpec.model_validate_json(json.dumps(spec))
