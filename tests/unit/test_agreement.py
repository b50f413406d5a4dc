"""The comparison that the kills on a Kafka without ZooKeeper end with: it finds what is wrong."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.contract.quota_store_contract import FETCH, PRODUCE
from tests.integration.operator.agreement import Look, Promise, Texts, disagreements
from tests.integration.operator.test_kraft_kills import VICTIMS, Changes, order_of_kills, tier_spec
from tests.unit.control.stage import Stage
from tidegate.kube.api import BUSINESS_TIERS, ObjectRef
from tidegate_logic.model import Entity, LedgerEntry, LedgerRecord, StoredQuota
from tidegate_logic.reasons import Reason

ALICE, BOB, STRANGER = Entity("alice"), Entity("bob"), Entity("mallory")
BEFORE: dict[str, Texts] = {"bob": {PRODUCE: "7"}, "mallory": {FETCH: "5"}}


def both(rate: str) -> Texts:
    return {PRODUCE: rate, FETCH: rate}


def stored(entity: Entity, rate: str, before: Texts, uid: str = "uid-1") -> StoredQuota:
    entries = {
        key: LedgerEntry(before.get(key), text, None, 0.0, Reason.CONTRACT_CHANGED)
        for key, text in both(rate).items()
    }
    record = LedgerRecord(entity, "n/orders", uid, entries)
    return StoredQuota(entity, both(rate), ledger=record)


def ready(kind: str, name: str, **status: Any) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "True", "observedGeneration": 3}]
    metadata = {"name": name, "generation": 3}
    return {"kind": kind, "metadata": metadata, "status": {"conditions": conditions, **status}}


def tier(**rates: int) -> dict[str, Any]:
    members = [
        {"name": user, "quota": {"produce": rate, "fetch": rate}} for user, rate in rates.items()
    ]
    return ready("BusinessTier", "changing", members=members)


# alice has 10 for each of two leaders, bob 30 on each broker
QUOTAS = {ALICE: both("20"), BOB: both("30"), STRANGER: {FETCH: "5"}}
AGREED = Look(
    promise=Promise({"alice": 10}, {"bob": 30}),
    before=BEFORE,
    partitions=3,
    leaders={0: 1, 1: 1, 2: 2},
    brokers={1: QUOTAS, 2: QUOTAS},
    ledger={ALICE: stored(ALICE, "20", {}), BOB: stored(BOB, "30", BEFORE["bob"])},
    unreadable=(),
    policy_uid="uid-1",
    policy=ready("BrokerBandwidthPolicy", "orders", quotas={"inSync": 2, "managed": 2}),
    tiers=(tier(alice=20, bob=30),),
)


def test_where_all_agrees_nothing_is_found() -> None:
    assert disagreements(AGREED) == []


def without(quotas: dict[Entity, Any], entity: Entity) -> dict[Entity, Any]:
    return {one: has for one, has in quotas.items() if one != entity}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"leaders": {0: 1, 1: 2}}, "only partitions [0, 1] of 3 have a leader"),
        (
            {"brokers": {1: QUOTAS, 2: {**QUOTAS, ALICE: both("10")}}},
            "broker 2 has {'consumer_byte_rate': '10', 'producer_byte_rate': '10'} for user=alice, "
            "not {'consumer_byte_rate': '20', 'producer_byte_rate': '20'}",
        ),
        (
            {"brokers": {1: {**QUOTAS, Entity("eve"): {FETCH: "1"}}}},
            "broker 1 has {'consumer_byte_rate': '1'} for user=eve, not {}",
        ),
        (
            {"brokers": {1: without(QUOTAS, STRANGER)}},
            "broker 1 has {} for user=mallory, not {'consumer_byte_rate': '5'}",
        ),
        (
            {"ledger": without(dict(AGREED.ledger), ALICE)},
            "the ledger has no record of user=alice, which has a quota of ours",
        ),
        (
            {"ledger": {**AGREED.ledger, STRANGER: stored(STRANGER, "1", {})}},
            "the ledger has a record of user=mallory, which no tier names",
        ),
        (
            {"ledger": {**AGREED.ledger, ALICE: stored(ALICE, "10", {})}},
            "the ledger says {'consumer_byte_rate': '10', 'producer_byte_rate': '10'} of "
            "user=alice, not {'consumer_byte_rate': '20', 'producer_byte_rate': '20'}",
        ),
        (
            {"ledger": {**AGREED.ledger, BOB: stored(BOB, "30", both("30"))}},
            "the ledger says {'consumer_byte_rate': '30', 'producer_byte_rate': '30'} was there "
            "before user=bob's quota",
        ),
        (
            {"ledger": {**AGREED.ledger, ALICE: stored(ALICE, "20", {}, uid="uid-0")}},
            "the record of user=alice is of the policy with uid uid-0",
        ),
        (
            {"ledger": {**AGREED.ledger, ALICE: StoredQuota(ALICE, {}, problem="it is broken.")}},
            "user=alice: it is broken.",
        ),
        ({"unreadable": ("t: b'x'",)}, "the ledger has t: b'x', which cannot be read"),
        (
            {"tiers": (tier(alice=10, bob=30),)},
            "the status says {'produce': 10, 'fetch': 10} of alice, not "
            "{'produce': 20, 'fetch': 20}",
        ),
        (
            {"tiers": (tier(alice=20, bob=30, eve=1),)},
            "the status says {'produce': 1, 'fetch': 1} of eve, not None",
        ),
        (
            {"tiers": (tier(alice=20),)},
            "the status says None of bob, not {'produce': 30, 'fetch': 30}",
        ),
        (
            {"policy": ready("B", "orders", quotas={"inSync": 1, "managed": 2})},
            "the policy counts 1 of 2 quotas in sync, not 2",
        ),
    ],
)
def test_whatever_differs_is_found_and_named(change: dict[str, Any], found: str) -> None:
    assert disagreements(replace(AGREED, **change)) == [found]


@pytest.mark.parametrize(
    "edit",
    [
        lambda obj: obj["metadata"].update(generation=4),  # an older one was reported
        lambda obj: obj["status"]["conditions"][0].update(status="False"),
        lambda obj: obj["status"].update(conditions=[]),
    ],
)
def test_a_status_that_is_not_ready_is_found(edit: Callable[[Any], None]) -> None:
    changed = tier(alice=20, bob=30)
    edit(changed)
    (found,) = disagreements(replace(AGREED, tiers=(changed,)))
    assert found.startswith("BusinessTier changing is not Ready: ")


def test_what_passes_leave_behind_after_each_change_agrees() -> None:
    """The statuses and records that are compared are those of the operator itself."""
    stage = Stage()
    for entity, texts in {BOB: BEFORE["bob"], STRANGER: BEFORE["mallory"]}.items():
        node = {"version": 1, "config": {key.value: text for key, text in texts.items()}}
        stage.store.put_raw(entity, json.dumps(node).encode())
    policy = stage.policy(removal={"maxPercent": 100})
    changes = Changes(random.Random(3), lambda _: None, "acc")
    specs = {
        "changing": changes.tier_spec(),
        "steady": tier_spec({"frank": 9_000_000}, "acc", per="perBroker"),
    }
    tiers = {
        name: ObjectRef.of(
            BUSINESS_TIERS,
            stage.kubernetes.create(
                BUSINESS_TIERS,
                {"metadata": {"name": name, "namespace": "streaming"}, "spec": spec},
            ),
        )
        for name, spec in specs.items()
    }

    def found() -> list[str]:
        stored = stage.store.read_everything()
        of_policy = stage.kubernetes.get(policy)
        return disagreements(
            Look(
                promise=changes.promise,
                before=BEFORE,
                partitions=3,
                leaders={0: 1, 1: 2, 2: 3},
                brokers={1: {entity: one.values for entity, one in stored.items()}},
                ledger=stored,
                unreadable=tuple(stage.store.unreadable_nodes()),
                policy_uid=of_policy["metadata"]["uid"],
                policy={**of_policy, "kind": "BrokerBandwidthPolicy"},
                tiers=tuple(
                    {**stage.kubernetes.get(tier), "kind": "BusinessTier"}
                    for tier in tiers.values()
                ),
            )
        )

    def settles() -> bool:
        for _ in range(60):
            stage.run()
            if not found():
                return True
            stage.now += 10
        return False

    assert settles(), found()
    for _ in range(8):
        changes.change_one()
        stage.kubernetes.edit(tiers["changing"], lambda raw: raw.update(spec=changes.tier_spec()))
        assert found()
        assert settles(), found()


@pytest.mark.parametrize("kills", [0, 1, 6, 50])
def test_every_victim_is_killed_as_often_as_the_others(kills: int) -> None:
    order = order_of_kills(random.Random(7), kills)
    assert len(order) == kills
    times = [order.count(victim) for victim in VICTIMS]
    assert max(times) - min(times) <= 1
    assert order == order_of_kills(random.Random(7), kills)


def test_contracts_change_while_they_go_on_and_not_afterwards() -> None:
    sent: list[dict[str, Any]] = []
    changes = Changes(random.Random(1), sent.append, "topic")
    with changes.going_on():
        changes.wait_for_next()
    count = changes.sent
    assert count == len(sent) >= 1
    for _ in range(200):
        changes.change_one()
        members = sent[-1]["spec"]["members"]
        assert {one["user"]: one["contract"]["perPartition"]["fetch"] for one in members} == {
            user: str(rate) for user, rate in changes.promise.per_partition.items()
        }
        assert len(members) >= 2
    assert {len(one["spec"]["members"]) for one in sent} >= {3, 4, 5}


def test_a_change_that_cannot_be_sent_fails_the_run() -> None:
    failed = ConnectionError("refused")

    def refuse(body: dict[str, Any]) -> None:
        raise failed

    changes = Changes(random.Random(1), refuse, "topic")
    with pytest.raises(ConnectionError, match="refused"), changes.going_on():
        changes.wait_for_next()
