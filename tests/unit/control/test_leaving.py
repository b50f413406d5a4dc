"""Tiers that are replaced, renamed, moved and made again: what Kafka has, and what is said of it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.control.stage import ALICE, Stage
from tidegate.kube.api import BUSINESS_TIERS, ObjectRef
from tidegate_logic.model import ClientRate, Direction, Entity, QuotaWindow, Readings
from tidegate_logic.quotas.mute import predicted_mute_seconds
from tidegate_logic.reasons import Reason

BOB, CAROL = Entity(user="bob"), Entity(user="carol")
METRICS = {"prometheus": {"url": "http://prometheus:9090"}}
MB = 1_000_000
MUTE_SECONDS = 12.0
WINDOW = QuotaWindow()


def three_tiers(**spec: Any) -> tuple[Stage, ObjectRef, dict[str, ObjectRef]]:
    """A tier each for alice, bob and carol."""
    stage = Stage()
    policy = stage.policy(**spec)
    tiers = {user: stage.tier(user, user=user, rate="10M") for user in ("alice", "bob", "carol")}
    stage.run()
    return stage, policy, tiers


def spec_of(stage: Stage, tier: ObjectRef) -> dict[str, Any]:
    spec: dict[str, Any] = copy.deepcopy(stage.kubernetes.get(tier)["spec"])
    return spec


def make(stage: Stage, name: str, spec: dict[str, Any]) -> None:
    stage.kubernetes.create(
        BUSINESS_TIERS, {"metadata": {"name": name, "namespace": "streaming"}, "spec": spec}
    )


def same_process(stage: Stage) -> Stage:
    return stage


def new_process(stage: Stage) -> Stage:
    stage.restart()
    return stage


def another_replica(stage: Stage) -> Stage:
    """The Lease changed hands: another process with the same store and API server."""
    stage.may_write = False
    return Stage(
        kubernetes=stage.kubernetes,
        store=stage.store,
        leaders=stage.leaders,
        now=stage.now,
        readings=stage.readings,
    )


HANDS = [same_process, new_process, another_replica]
Hands = Callable[[Stage], Stage]


@pytest.mark.parametrize("hands", HANDS)
@pytest.mark.parametrize("name", ["alice", "renamed"])
def test_a_tier_that_is_replaced_or_renamed_leaves_quota_and_record_as_they_are(
    hands: Hands, name: str
) -> None:
    stage, policy, tiers = three_tiers()
    spec, before = spec_of(stage, tiers["alice"]), stage.store.read([ALICE])
    writes = stage.store.transactions
    stage.kubernetes.delete(tiers["alice"])
    stage.now += 2
    stage.run()
    assert stage.produce() == "10000000"
    stage = hands(stage)
    stage.now += 3
    stage.run()
    make(stage, name, spec)
    for seconds in (1, 15, 30):
        stage.now += seconds
        stage.run()
        assert stage.produce() == "10000000"
    assert stage.store.read([ALICE]) == before
    assert stage.store.transactions == writes
    assert stage.condition(policy) == ("True", "InSync")


@pytest.mark.parametrize("hands", HANDS)
@pytest.mark.parametrize("target_first", [True, False])
def test_a_member_that_moves_between_tiers_keeps_its_quota(
    hands: Hands, target_first: bool
) -> None:
    stage, _, tiers = three_tiers()
    moving = spec_of(stage, tiers["alice"])["members"][0]

    def add(raw: dict[str, Any]) -> None:
        raw["spec"]["members"].append(moving)

    if target_first:
        stage.kubernetes.edit(tiers["bob"], add)
        stage.run()
    stage.kubernetes.delete(tiers["alice"])
    stage.now += 5
    stage.run()
    stage = hands(stage)
    stage.now += 5
    stage.run()
    if not target_first:
        stage.kubernetes.edit(tiers["bob"], add)
    for seconds in (1, 40):
        stage.now += seconds
        stage.run()
        assert stage.produce() == "10000000"


@pytest.mark.parametrize("hands", HANDS)
def test_a_tier_that_comes_back_after_the_grace_is_limited_in_safe_steps(hands: Hands) -> None:
    stage, _, tiers = three_tiers()
    spec = spec_of(stage, tiers["alice"])
    stage.kubernetes.delete(tiers["alice"])
    stage.run()
    stage.run_past_grace()
    assert stage.produce() is None
    stage = hands(stage)
    stage.now += 60
    make(stage, "alice", spec)
    high = 12_500 * MB
    while stage.produce() != "10000000":
        stage.run()
        low = int(stage.produce() or 0)
        assert predicted_mute_seconds(high, low, WINDOW) <= MUTE_SECONDS
        high = low
        stage.now += 15


def test_a_deleted_policy_leaves_no_record_and_no_memory() -> None:
    stage, policy, tiers = three_tiers()
    stage.kubernetes.delete(tiers["alice"])
    stage.run()
    stage.run_past_grace()
    assert stage.produce() is None
    assert ALICE in stage.store.ledger_entities()
    stage.kubernetes.delete(policy)
    stage.run()
    assert stage.store.ledger_entities() == frozenset()
    assert stage.produce(BOB) is None


def rates_of(stage: Stage, sends: float) -> Readings:
    clients = {
        (ALICE, broker, Direction.INGRESS): ClientRate(stage.now, sends) for broker in (1, 2, 3)
    }
    return Readings(stage.now, 15.0, clients=clients)


@pytest.mark.parametrize("hands", HANDS)
def test_a_policy_made_again_steps_down_from_what_clients_send(hands: Hands) -> None:
    """The reading comes some seconds after the policy, and a first quota waits for it."""
    stage = Stage()
    policy = stage.policy(metrics=METRICS)
    stage.tier()
    stage.readings = Readings(stage.now, 15.0)
    stage.run()
    assert stage.produce() == "10000000"
    stage.kubernetes.delete(policy)
    stage.run()
    assert stage.produce() is None
    stage = hands(stage)
    stage.may_write = True
    stage.now += 60
    stage.policy(metrics=METRICS)
    stage.readings = None
    stage.controllers.clear()
    stage.run()
    assert stage.produce() is None, "nothing is known yet of what its clients send"
    seen: list[str | None] = []
    while stage.produce() != "10000000":
        stage.now += 5
        quota = float(stage.produce() or "inf")
        stage.readings = rates_of(stage, min(quota, 137.0 * MB))
        stage.run()
        if stage.produce() not in seen:
            seen.append(stage.produce())
    assert seen == ["68500000", "34250000", "17125000", "10000000"]


def test_a_first_quota_waits_half_a_minute_at_most_for_a_reading() -> None:
    stage = Stage()
    stage.policy(metrics=METRICS)
    tier = stage.tier()
    stage.run()
    assert stage.produce() is None
    (member,) = stage.kubernetes.get(tier)["status"]["members"]
    assert member["state"] == "Held"
    assert stage.condition(tier) == ("False", "ClientRatesAwaited")
    stage.now += 30
    stage.run()
    assert stage.produce() == "10000000"


def test_a_member_whose_quota_stands_waits_for_no_reading() -> None:
    stage = Stage()
    stage.policy(metrics=METRICS)
    stage.tier()
    stage.readings = Readings(stage.now, 15.0)
    stage.run()
    stage.restart()
    stage.readings = None
    stage.leaders.leaders = {"acc": {1: 2, 2: 1}}
    stage.run()
    assert stage.produce() == "20000000"


# --- what is said ---------------------------------------------------------------------------------


def test_a_quota_in_its_grace_is_in_the_status_of_policy_and_tier_and_in_one_event(
    golden: Callable[[str], None],
) -> None:
    stage = Stage()
    policy, tier = stage.policy(), stage.tier()
    more = dict(spec_of(stage, tier)["members"][0], name="bob", user="bob")
    stage.kubernetes.edit(tier, lambda raw: raw["spec"]["members"].append(more))
    stage.run()
    stage.kubernetes.edit(tier, lambda raw: raw["spec"]["members"].pop())
    stage.now += 5
    stage.run()
    status = stage.kubernetes.get(policy)["status"]
    assert status["leaving"] == [{"entity": "user=bob", "restoredAt": "1970-01-12T13:47:15Z"}]
    assert stage.condition(policy) == ("True", "InSync")
    assert stage.condition(tier)[0] == "True"
    assert "13:47:15 UTC" in stage.message(tier)
    golden(stage.message(policy))
    written = stage.kubernetes.get(policy)["metadata"]["resourceVersion"]
    stage.now += 15
    stage.run()
    assert stage.kubernetes.get(policy)["metadata"]["resourceVersion"] == written
    assert stage.event_reasons().count(Reason.RESTORE_WAITS.value) == 1
    stage.now += 15
    stage.run()
    assert stage.produce(BOB) is None
    assert not stage.kubernetes.get(policy)["status"].get("leaving")
    assert "UTC" not in stage.message(tier)


def test_what_is_held_by_the_guard_is_said_to_be_held_and_not_to_wait() -> None:
    stage, policy, tiers = three_tiers()
    for user in ("alice", "bob"):
        stage.kubernetes.delete(tiers[user])
    stage.now += 2
    stage.run()
    assert stage.condition(policy) == ("False", "RemovalHeld")
    assert "leaving" not in stage.kubernetes.get(policy)["status"]
