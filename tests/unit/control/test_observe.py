"""Checks of a cluster before a pass may write: whose leaders these are, and whether brokers obey
quotas.
"""

from collections.abc import Callable

import pytest

from tests.goldens.golden import numbers
from tests.unit.control.stage import Stage
from tidegate.control.observe import REPEAT_SECONDS, SETTLE_SECONDS


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
    stage.leaders.plugins = {2: "io.example.Quotas"}
    stage.run()
    assert stage.condition(policy, "QuotasInSync") == ("True", "InSync")
    stage.now += SETTLE_SECONDS
    stage.run()
    stage.now += 15
    stage.run()
    assert stage.condition(policy, "QuotasInSync") == ("False", "QuotasIgnored")
    text = stage.message(policy)
    assert "io.example.Quotas" in text
    assert numbers(text) >= {2}
    assert stage.event_reasons().count("QuotasIgnored") == 1
    golden(text)


def test_brokers_are_asked_for_their_plugin_seldom(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    monkeypatch.setattr(stage.leaders, "quota_callbacks", lambda: asked.append(stage.now) or {})
    stage.policy(), stage.tier()
    for _ in range(round(2 * REPEAT_SECONDS / 15)):
        stage.run()
        stage.now += 15
    assert len(asked) == 2


def test_the_mark_of_a_migration_warns_and_stops_nothing(stage: Stage) -> None:
    policy = stage.policy()
    stage.tier()
    stage.store.prepare_migration()
    stage.run()
    assert stage.produce() == "10000000"
    assert stage.condition(policy) == ("True", "InSync")
    assert stage.condition(policy, "ClusterReachable") == ("True", "MigrationPrepared")
    assert stage.event_reasons().count("MigrationPrepared") == 1
