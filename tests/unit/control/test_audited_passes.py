"""Whole passes of the operator in the audit trail: every quota write has its line, and a cluster at rest none."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from controller_logic.model import ClientRate, Direction, NicSpan, Readings
from controller_logic.reasons import Reason
from tests.unit.control.stage import Stage
from tests.unit.control.trails import ETL, Shelf
from tidegate.control.audit.sink import AuditQueue
from tidegate.control.audit.trail import AuditTrail
from tidegate.errors import Unreachable
from tidegate.kube.api import BUSINESS_TIERS, ObjectRef

METRICS = {"prometheus": {"url": "http://prometheus:9090"}}


@dataclass
class Audited:
    """A stage with its audit trail."""

    stage: Stage
    shelf: Shelf
    tier: ObjectRef

    def run(self, name: str = "orders") -> list[dict[str, Any]]:
        """The lines of one pass."""
        before = len(self.shelf.lines)
        self.stage.now += 15
        self.stage.run(name)
        return self.shelf.lines[before:]


@pytest.fixture
def audited() -> Audited:
    stage, shelf = Stage(), Shelf()
    stage.policy()
    tier = stage.tier()
    stage.world = replace(stage.world, audit=AuditTrail(AuditQueue(shelf, "-", count=lambda *_: None, beside=False)))
    return Audited(stage, shelf, tier)


def test_a_first_quota_is_one_line_and_the_pass_after_it_none(audited: Audited) -> None:
    (line,) = audited.run()
    assert line.items() >= {
        "kind": "write", "policy": "streaming/orders", "cluster": "memory-cluster", "entity": "user=alice", "key": "producer_byte_rate",
        "from": None, "to": 10_000_000, "reason": "FirstQuota", "level": "L0", "tier": "streaming/gold", "member": "alice",
        "contract": 10_000_000, "outcome": "applied", "round": None,
    }.items()  # fmt: skip
    assert audited.run() == []


def test_a_quota_that_follows_its_leaders_has_a_line_too(audited: Audited) -> None:
    audited.run()
    audited.stage.leaders.leaders = {"acc": {1: 2, 2: 1}}
    (line,) = audited.run()
    assert (line["from"], line["to"], line["reason"]) == (10_000_000, 20_000_000, "LeadersMoved")


def test_what_is_given_back_is_of_no_member(audited: Audited) -> None:
    audited.run()
    audited.stage.kubernetes.edit(audited.tier, lambda raw: raw["spec"]["members"][0].update(user="bob"))
    lines = {line["entity"]: line for line in (*audited.run(), *audited.run())}
    assert lines["user=alice"].items() >= {"writeKind": "GiveBack", "to": None, "contract": None}.items()
    assert "level" not in lines["user=alice"]
    assert lines["user=bob"]["member"] == "alice"


def test_brokers_that_are_away_are_a_hold_with_two_ends(audited: Audited) -> None:
    audited.run()
    audited.stage.leaders.error = Unreachable(Reason.BROKERS_UNREACHABLE, "No broker answers.")
    (begins,) = audited.run()
    assert (begins["kind"], begins["state"], begins["reason"]) == ("hold", "begins", "BrokersUnreachable")
    assert audited.run() == []
    audited.stage.leaders.error = None
    (ends,) = audited.run()
    assert (ends["state"], ends["seconds"]) == ("ends", 30)


def over(stage: Stage, rate_mb: float) -> None:
    """Broker 1 carries so much of its 50 MB/s, all of it etl's; the others carry nothing."""
    now = stage.now + 15
    nic = {
        (broker, way): tuple(
            NicSpan(now - 15 * back, 15.0, rate_mb * 1e6 if (broker, way) == (1, Direction.INGRESS) else 1e6) for back in (2, 1, 0)
        )
        for broker in (1, 2, 3)
        for way in Direction
    }
    rates = {(ETL, broker, Direction.INGRESS): ClientRate(now, rate_mb * 1e6 if broker == 1 else 0.0, 0.0) for broker in (1, 2, 3)}
    stage.readings = Readings(now, 15.0, nic, rates)


def test_a_cut_and_its_effect_name_the_same_round(audited: Audited) -> None:
    stage = audited.stage
    stage.policy("loaded", metrics=METRICS, brokers={"ingress": {"limit": "50M"}})
    member = {"name": "etl", "user": "etl", "topics": ["acc"], "contract": {"perBroker": {"produce": "80M"}}}
    spec = {"policyRef": {"name": "loaded"}, "level": "L3", "throttledRates": {"perBroker": {"produce": "1M"}}, "members": [member]}
    stage.kubernetes.create(BUSINESS_TIERS, {"metadata": {"name": "batch", "namespace": "streaming"}, "spec": spec})
    lines: list[dict[str, Any]] = []
    for rate_mb in (5, 75, 75, 75, 75, 75, 75):
        over(stage, rate_mb)
        lines += audited.run("loaded")
    cut = next(line for line in lines if line["kind"] == "round" and line["actions"])
    writes = [line for line in lines if line["kind"] == "write" and line["round"] == cut["id"]]
    effect = next(line for line in lines if line["kind"] == "effect")
    assert (cut["dir"], cut["brokers"][0]["id"], cut["actions"][0]["entity"]) == ("ingress", 1, "user=etl")
    assert [(line["from"], line["to"], line["contract"]) for line in writes] == [(80_000_000, cut["actions"][0]["to"], 80_000_000)]
    assert (effect["round"], effect["brokers"][0]["nicBefore"]) == (cut["id"], 75_000_000)
    sample = stage.telemetry.registry.get_sample_value
    labels = {
        "policy_namespace": "streaming",
        "policy": "loaded",
        "direction": "ingress",
        "level": "L3",
        "kind": "cut",
        "limited_by": "target",
    }
    assert sample("tidegate_throttle_decisions_total", labels) == 1


def test_the_ages_of_inputs_are_metrics(audited: Audited) -> None:
    audited.run()
    sample = audited.stage.telemetry.registry.get_sample_value
    labels = {"policy_namespace": "streaming", "policy": "orders", "input": "QuotaStore"}
    assert sample("tidegate_input_timestamp_seconds", labels) == audited.stage.now
