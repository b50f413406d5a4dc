"""Checks of a cluster before a pass may write: whose leaders these are, and whether brokers obey
quotas.
"""

from collections.abc import Callable, Collection
from threading import Event

import pytest

from lab.process import patience
from tests.goldens.golden import numbers
from tests.unit.control.stage import Leaders, Stage
from tidegate.observe.broker_settings import PLUGIN, SETTLE_SECONDS, BrokerSettings, Settings


def test_leaders_of_one_cluster_never_scale_quotas_of_another(stage: Stage) -> None:
    policy = stage.policy()
    stage.tier()
    stage.leaders.cluster_id = "cluster-of-the-brokers"
    stage.run()
    assert stage.produce() is None
    assert stage.condition(policy) == ("False", "WrongCluster")
    text = stage.message(policy)
    assert "cluster-of-the-brokers" in text
    assert "memory-cluster" in text
    assert "bootstrapServers" in text
    stage.leaders.cluster_id = "memory-cluster"
    stage.run()
    assert stage.produce() == "10000000"


def test_brokers_that_do_not_report_their_cluster_are_not_suspected(stage: Stage) -> None:
    stage.policy(), stage.tier()
    stage.leaders.cluster_id = None
    stage.run()
    assert stage.produce() == "10000000"


def test_what_is_ours_is_given_back_whatever_the_brokers_are(stage: Stage) -> None:
    policy = stage.policy()
    stage.tier()
    stage.run()
    stage.leaders.cluster_id = "another"
    stage.kubernetes.delete(policy)
    stage.run()
    assert stage.produce() is None


def test_a_quota_plugin_is_reported_once_its_brokers_have_stayed_for_a_while(
    stage: Stage, golden: Callable[[str], None]
) -> None:
    policy = stage.policy()
    stage.tier()
    stage.leaders.said = {2: {PLUGIN: "io.example.Quotas"}}
    stage.run()
    assert stage.condition(policy, "QuotasInSync") == ("True", "InSync")
    stage.now += SETTLE_SECONDS
    stage.run()
    answered(stage)
    stage.now += 15
    stage.run()
    assert stage.condition(policy, "QuotasInSync") == ("False", "QuotasIgnored")
    text = stage.message(policy)
    assert "io.example.Quotas" in text
    assert numbers(text) >= {2}
    assert stage.event_reasons().count("QuotasIgnored") == 1
    golden(text)


def answered(stage: Stage) -> None:
    """Return when the question that was asked beside the pass has its answers."""
    question = stage.controllers["streaming/orders"]._pass.observer._settings._question
    if question is not None:
        question.join(patience(10))


def test_no_pass_waits_for_a_broker_that_is_asked_for_its_plugin(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answer = Event(), Event()

    def slow(brokers: Collection[int], _: Collection[str]) -> dict[int, dict[str, str]]:
        asked.set()
        answer.wait(patience(10))
        return {broker: {PLUGIN: "io.example.Quotas"} for broker in brokers}

    monkeypatch.setattr(stage.leaders, "settings", slow)
    policy = stage.policy()
    stage.tier()
    stage.run()
    stage.now += SETTLE_SECONDS
    stage.run()
    assert asked.wait(patience(10))
    stage.run()
    assert stage.condition(policy, "QuotasInSync") == ("True", "InSync")
    answer.set()
    answered(stage)
    stage.run()
    assert stage.condition(policy, "QuotasInSync") == ("False", "QuotasIgnored")


def test_silent_brokers_and_those_that_refuse_are_asked_later_and_later_and_the_others_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[float, list[int]]] = []
    begun = stage.now

    def ask(brokers: Collection[int], _: Collection[str]) -> dict[int, dict[str, str]]:
        asked.append((stage.now - begun, sorted(brokers)))
        return {1: {"quota.window.num": "11"}, 3: {}}

    monkeypatch.setattr(stage.leaders, "settings", ask)
    stage.policy(), stage.tier()
    for _ in range(round(12 * 3600 / 60)):
        stage.run()
        answered(stage)
        stage.now += 60
    # a minute after they came, then 10 minutes later, 20, 40, ... and at last every 4 hours
    waits = [60, 600, 1200, 2400, 4800, 9600, 14400]
    assert asked == [
        (sum(waits[: turn + 1]), [1, 2, 3] if turn == 0 else [2, 3]) for turn in range(len(waits))
    ]


def test_a_broker_that_came_back_and_one_of_another_cluster_are_asked_again(stage: Stage) -> None:
    asked: list[list[int]] = []

    class Source(Leaders):
        def settings(self, brokers: Collection[int], names: Collection[str]) -> Settings:
            asked.append(sorted(brokers))
            return super().settings(brokers, names)

    first, second = Source(), Source()
    plugins = BrokerSettings(beside=False)
    for source, brokers, now in [
        (first, {1, 2, 3}, 0.0),
        (first, {1, 2, 3}, 60.0),
        (first, {1, 3}, 70.0),
        (first, {1, 2, 3}, 80.0),
        (first, {1, 2, 3}, 140.0),
        (second, {1, 2, 3}, 150.0),
        (second, {1, 2, 3}, 210.0),
    ]:
        plugins.seen(source, frozenset(brokers), now)
    assert asked == [[1, 2, 3], [2], [1, 2, 3]]


def test_the_mark_of_a_migration_warns_and_stops_nothing(stage: Stage) -> None:
    policy = stage.policy()
    stage.tier()
    stage.store.prepare_migration()
    stage.run()
    assert stage.produce() == "10000000"
    assert stage.condition(policy) == ("True", "InSync")
    assert stage.condition(policy, "ClusterReachable") == ("True", "MigrationPrepared")
    assert stage.event_reasons().count("MigrationPrepared") == 1
