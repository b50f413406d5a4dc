"""A Kubernetes API that is away stops what needs it, by its own name, and nothing else; all of it goes on when it is back."""

from typing import Any

import pytest

from controller_logic.reasons import Reason
from tests.unit.control.stage import Stage
from tidegate.errors import NotFound, Unreachable

AWAY = Unreachable(Reason.KUBERNETES_UNREACHABLE, "Kubernetes did not answer.")


class Outage:
    """Single calls of Kubernetes that fail until `end`; `refused` counts them."""

    def __init__(self, stage: Stage, *calls: str) -> None:
        self._stage = stage
        self._calls = calls
        self.refused = 0
        for call in calls:
            setattr(stage.kubernetes, call, self._refuse)

    def _refuse(self, *_: Any, **__: Any) -> Any:
        self.refused += 1
        raise AWAY

    def end(self) -> None:
        for call in self._calls:
            delattr(self._stage.kubernetes, call)


def test_without_the_finalizer_that_gives_back_nothing_is_written(stage: Stage) -> None:
    policy, _ = stage.policy(), stage.tier()
    outage = Outage(stage, "add_finalizer")
    stage.run()
    assert (stage.produce(), stage.condition(policy)) == (None, ("False", "KubernetesUnreachable"))
    outage.end()
    stage.run()
    assert (stage.produce(), stage.condition(policy)) == ("10000000", ("True", "InSync"))


def test_a_secret_that_cannot_be_read_for_now_is_not_called_missing(stage: Stage) -> None:
    login = {"type": "digest", "username": "tidegate", "passwordSecret": {"secretName": "login", "password": "password"}}
    zookeeper = {"connect": "zk:2181", "authentication": login}
    policy = stage.policy(kafka={"bootstrapServers": "kafka:9092", "quotaStore": "ZooKeeper", "zookeeper": zookeeper})
    stage.tier()
    stage.kubernetes.put_secret("streaming", "login", {"password": b"ebb"})
    outage = Outage(stage, "read_secret")
    stage.run()
    assert (stage.produce(), stage.condition(policy)) == (None, ("False", "KubernetesUnreachable"))
    assert stage.condition(policy, "ClusterReachable")[0] == "Unknown"
    outage.end()
    stage.run()
    assert (stage.produce(), stage.condition(policy)) == ("10000000", ("True", "InSync"))


def test_quotas_do_not_wait_for_a_status_that_cannot_be_written(stage: Stage) -> None:
    policy, tier = stage.policy(), stage.tier()
    outage = Outage(stage, "patch_status", "create_event")
    stage.run()
    assert stage.produce() == "10000000"
    outage.end()
    stage.now += 15
    stage.run()
    assert (stage.condition(policy), stage.condition(tier)) == (("True", "InSync"), ("True", "Contract"))


def test_an_outage_costs_a_pass_one_time_limit_and_not_one_for_every_status(stage: Stage) -> None:
    stage.policy()
    tiers = [stage.tier(f"tier-{number}", user=f"user-{number}") for number in range(20)]
    stage.run()
    for tier in tiers:
        stage.kubernetes.edit(tier, lambda raw: raw["spec"]["members"][0]["contract"]["perPartition"].update(produce="20M"))
    outage = Outage(stage, "patch_status")
    stage.run()
    assert outage.refused == 1
    outage.end()
    stage.now += 15
    stage.run()
    assert {stage.kubernetes.get(tier)["status"]["members"][0]["quota"]["produce"] for tier in tiers} == {20_000_000}


def test_a_finalizer_that_could_not_be_taken_off_is_taken_off_later(stage: Stage) -> None:
    policy, _ = stage.policy(), stage.tier()
    stage.run()
    stage.kubernetes.delete(policy)
    outage = Outage(stage, "remove_finalizer")
    stage.run()
    assert stage.produce() is None
    outage.end()
    stage.now += 15
    stage.run()
    with pytest.raises(NotFound):
        stage.kubernetes.get(policy)
