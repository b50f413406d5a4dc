"""Metering in the operator: a default-user quota in ZooKeeper with its ledger record, and the reports where there is none."""

from typing import Any

from controller_logic.contracts.desired import DEFAULT_USER, NEVER_BINDS
from controller_logic.model import Direction, Entity, NicSpan, QuotaKey, Readings
from tests.unit.control.stage import Stage
from tidegate.kube.api import ObjectRef

FETCH, PRODUCE = QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.PRODUCER_BYTE_RATE
CEILING = str(NEVER_BINDS)
PROMETHEUS = {"prometheus": {"url": "http://prometheus:9090"}}
METERED: dict[str, Any] = {"metering": "Enabled"}
APP = Entity(client_id="app")


def default_user(stage: Stage) -> dict[QuotaKey, str]:
    return dict(stage.store.read([DEFAULT_USER])[DEFAULT_USER].values)


def idle_nics(stage: Stage) -> None:
    nics = {(broker, way): (NicSpan(stage.now, 15.0, 1.0),) for broker in (1, 2, 3) for way in Direction}
    stage.readings = Readings(stage.now, 15.0, nics)


def test_brokers_are_made_to_meter_every_user_and_the_ledger_has_it(stage: Stage) -> None:
    policy = stage.policy(defaults=METERED)
    stage.tier()
    stage.run()
    assert default_user(stage) == {FETCH: CEILING, PRODUCE: CEILING}
    assert DEFAULT_USER in stage.store.ledger_entities()
    assert stage.condition(policy) == ("True", "InSync")


def test_a_policy_that_does_not_ask_writes_none(stage: Stage) -> None:
    stage.policy(metrics=PROMETHEUS, defaults={"metering": "Disabled"}), stage.tier()
    stage.run()
    assert default_user(stage) == {}


def test_it_goes_when_no_policy_asks_for_it_any_more(stage: Stage) -> None:
    policy = stage.policy(defaults=METERED)
    stage.tier()
    stage.run()
    stage.kubernetes.edit(policy, lambda raw: raw["spec"].pop("defaults"))
    stage.run()
    assert default_user(stage) == {}
    assert DEFAULT_USER not in stage.store.ledger_entities()


def test_it_goes_with_the_policy(stage: Stage) -> None:
    policy = stage.policy(defaults=METERED)
    stage.tier()
    stage.run()
    stage.kubernetes.delete(policy)
    stage.run()
    assert default_user(stage) == {}
    assert not stage.store.ledger_entities()


def test_quotas_on_client_ids_are_not_hidden_and_a_condition_and_one_event_report_it(stage: Stage) -> None:
    policy = stage.policy(metrics=PROMETHEUS, defaults=METERED)
    stage.tier()
    stage.store.put(APP, {PRODUCE: "1048576"})
    idle_nics(stage)
    for _ in range(3):
        stage.run()
        stage.now += 15
        idle_nics(stage)
    assert default_user(stage) == {}
    assert stage.condition(policy, "MetricsFresh") == ("True", "MeteringWithheld")
    assert "hide" in message(stage, policy)
    assert stage.event_reasons().count("MeteringWithheld") == 1


def test_one_that_comes_later_takes_the_metering_away(stage: Stage) -> None:
    stage.policy(defaults=METERED), stage.tier()
    stage.run()
    stage.store.put(APP, {PRODUCE: "1048576"})
    stage.run()
    assert default_user(stage) == {}


def test_a_limit_of_another_owner_for_the_default_user_stays(stage: Stage) -> None:
    policy = stage.policy(defaults=METERED)
    stage.tier()
    stage.store.put(DEFAULT_USER, {FETCH: "50000000"})
    stage.run()
    assert "defaults.metering" in message(stage, policy)
    assert default_user(stage) == {FETCH: "50000000"}
    assert DEFAULT_USER not in stage.store.ledger_entities()


def message(stage: Stage, policy: ObjectRef) -> str:
    conditions = stage.kubernetes.get(policy)["status"]["conditions"]
    return str(next(entry["message"] for entry in conditions if entry["type"] == "MetricsFresh"))
