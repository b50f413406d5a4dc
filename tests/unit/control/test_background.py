"""What spec.background comes to in the operator, and what people see of it."""

from typing import Any

import pytest

from tests.unit.control.stage import Stage
from tests.unit.control.test_replication import AWAY, KilledError, Source, after
from tests.unit.controller_logic.replicating import Cluster
from tidegate.control.replication import ReplicationResult
from tidegate.control.report.background import background_verdicts
from tidegate.errors import ForeignContent
from tidegate.kafka.throttle_record import record_of, record_to_bytes
from tidegate_logic.model import BackgroundKind
from tidegate_logic.replication.background import Tiering
from tidegate_logic.replication.replication_pass import BackgroundDecision, ReplicationDecision
from tidegate_logic.replication.throttles import BACKGROUND_KEYS, LEADER_RATE, broker_resource

COPY, FETCH, LOG_DIRS = BackgroundKind
COPY_KEY, DIRS_KEY = BACKGROUND_KEYS[COPY], BACKGROUND_KEYS[LOG_DIRS]
SPEC = {
    "remoteCopy": {"mode": "Fixed", "rate": {"max": "20M"}},
    "logDirs": {"mode": "Fixed", "rate": {"max": "30M"}},
}
TIERED = Tiering(is_on=True, kinds=frozenset({COPY, FETCH}))


@pytest.fixture
def source(stage: Stage) -> Source:
    """Four brokers on which nothing moves; 1 and 2 have tiered storage, and 1 a rate of people."""
    source = Source(Cluster.moving([]), stage, tiers={1: TIERED, 2: TIERED, 3: Tiering()})
    source.cluster.configs[broker_resource(1)] = {COPY_KEY: "777"}
    stage.replication = source
    stage.restart()
    return source


def rates(source: Source) -> dict[tuple[int, str], str]:
    return {
        (int(one.name), key): value
        for one, values in source.cluster.left().items()
        for key, value in values.items()
    }


SET = {
    (1, COPY_KEY): "20000000",
    (2, COPY_KEY): "20000000",
    **{(broker, DIRS_KEY): "30000000" for broker in (1, 2, 3)},
}


def test_rates_are_set_and_told_and_put_back_when_the_policy_goes(
    stage: Stage, source: Source
) -> None:
    policy = stage.policy(background=SPEC)
    stage.tier()
    assert stage.run() > 5  # rates that stay need no pass every five seconds
    assert rates(source) == SET
    assert stage.condition(policy, "BackgroundCurrent") == ("True", "BackgroundThrottled")
    status = stage.kubernetes.get(policy)["status"]
    assert status["background"]["rates"][0] == "broker 1 LogDirs: 30 MB/s"
    assert "replication" not in status
    assert not any(one["type"] == "ReplicationCurrent" for one in status["conditions"])
    written = len(source.altered)
    after(stage, 15)
    assert len(source.altered) == written
    stage.kubernetes.delete(policy)
    for _ in range(4):
        after(stage, 15)
    assert rates(source) == {(1, COPY_KEY): "777"}
    assert stage.store.throttle_record() is None
    assert stage.store.facts().claim is None


@pytest.mark.parametrize("killed_at", range(5))
def test_killed_between_any_two_changes_what_was_there_comes_back(
    stage: Stage, source: Source, killed_at: int
) -> None:
    policy = stage.policy(background=SPEC)
    source.killed_at = killed_at
    with pytest.raises(KilledError):
        stage.run()
    source.killed_at = None
    stage.restart()
    stage.kubernetes.edit(policy, lambda raw: raw["spec"].pop("background"))
    for _ in range(4):
        after(stage, 15)
    assert rates(source) == {(1, COPY_KEY): "777"}
    assert stage.store.throttle_record() is None


def test_off_puts_back_one_kind_and_leaves_the_other(stage: Stage, source: Source) -> None:
    policy = stage.policy(background=SPEC)
    stage.run()
    stage.kubernetes.edit(
        policy, lambda raw: raw["spec"]["background"].update(remoteCopy={"mode": "Off"})
    )
    after(stage, 15)
    assert rates(source)[1, COPY_KEY] == "777"
    assert (2, COPY_KEY) not in rates(source)
    assert rates(source)[1, DIRS_KEY] == "30000000"


def test_what_a_person_sets_stays_and_is_told(stage: Stage, source: Source) -> None:
    policy = stage.policy(background=SPEC)
    stage.run()
    source.cluster.configs[broker_resource(1)][COPY_KEY] = "999"
    after(stage, 15)
    stage.restart()
    after(stage, 15)
    assert rates(source)[1, COPY_KEY] == "999"
    assert stage.condition(policy, "BackgroundCurrent") == ("False", "BackgroundThrottledByOthers")
    assert stage.kubernetes.get(policy)["status"]["background"]["others"] == [
        f"broker 1 {COPY_KEY}=999"
    ]


def test_a_kafka_without_such_a_rate_is_refused_in_words(stage: Stage, source: Source) -> None:
    source.tiers = {1: Tiering(is_on=True)}
    policy = stage.policy(background={"remoteCopy": SPEC["remoteCopy"]})
    stage.run()
    assert rates(source) == {(1, COPY_KEY): "777"}
    assert stage.condition(policy, "BackgroundCurrent") == ("False", "BackgroundUnsupported")


def test_mode_observe_and_brokers_that_do_not_answer_change_nothing(
    stage: Stage, source: Source
) -> None:
    policy = stage.policy(background=SPEC)
    stage.kubernetes.edit(policy, lambda raw: raw["spec"].update(mode="Observe"))
    stage.run()
    assert rates(source) == {(1, COPY_KEY): "777"}
    assert stage.store.throttle_record() is None
    source.error = AWAY
    after(stage, 15)
    assert stage.condition(policy, "BackgroundCurrent") == ("False", "BrokersUnreachable")
    assert "replication" not in stage.kubernetes.get(policy)["status"]


def test_an_older_tidegate_refuses_a_record_with_what_was_there_before() -> None:
    ours = {broker_resource(1): {COPY_KEY: frozenset({"20000000", "before=777"})}}
    content = record_to_bytes(ours, "streaming/orders")
    assert content is not None
    assert b'"version":2' in content
    assert record_of(content) == ours
    of_replication = record_to_bytes(
        {broker_resource(1): {LEADER_RATE: frozenset({"1"})}}, "streaming/orders"
    )
    assert of_replication is not None
    assert b'"version":1' in of_replication
    with pytest.raises(ForeignContent):
        record_of(content.replace(b'"version":2', b'"version":3'))


@pytest.mark.parametrize(
    ("decided", "reason"),
    [
        (
            {"ineffective": ((1, COPY),), "in_force": {(1, COPY): 1}},
            "BackgroundThrottleIneffective",
        ),
        ({"left_alone": ((1, COPY),)}, "BackgroundThrottledByOthers"),
        ({"in_force": {(1, COPY): 1}}, "BackgroundThrottled"),
        ({}, "BackgroundIdle"),
    ],
)
def test_the_condition_says_what_matters_most(decided: dict[str, Any], reason: str) -> None:
    result = ReplicationResult(ReplicationDecision(background=BackgroundDecision(**decided)))
    (verdict,) = background_verdicts(result, wanted=True, previous={})
    assert verdict.reason.value == reason
