"""The status of a tier is kept right: neither an outage nor another writer of the status leaves something else in it."""

import pytest

from controller_logic.model import QuotaKey
from controller_logic.reasons import Reason
from tests.unit.control.stage import ALICE, Stage
from tidegate.errors import Unreachable
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS
from tidegate.kube.cache import relist

AWAY = Unreachable(Reason.KUBERNETES_UNREACHABLE, "Kubernetes did not answer.")


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_report_that_could_not_be_delivered_is_delivered_by_the_next_pass(stage: Stage) -> None:
    policy, tier = stage.policy(), stage.tier()
    for kind in (BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS):
        relist(stage.cache, stage.kubernetes, kind)
    stage.run()
    stage.kubernetes.edit(tier, lambda raw: raw["spec"]["members"][0]["contract"]["perPartition"].update(produce="20M"))
    relist(stage.cache, stage.kubernetes, BUSINESS_TIERS)
    stage.kubernetes.fail_with(AWAY)
    for _ in range(3):
        stage.run(relisted=False)
    stage.kubernetes.fail_with(None)
    stage.run(relisted=False)
    assert stage.kubernetes.get(tier)["status"]["members"][0]["quota"]["produce"] == 20_000_000
    assert stage.condition(policy) == ("True", "InSync")


def test_a_status_that_another_writer_changed_is_put_right_although_the_report_is_the_same(stage: Stage) -> None:
    stage.policy()
    tier = stage.tier()
    for _ in range(3):
        stage.run()
    stage.kubernetes.edit(tier, lambda raw: raw["status"]["members"][0]["quota"].update(produce=1))
    stage.run()
    assert stage.kubernetes.get(tier)["status"]["members"][0]["quota"]["produce"] == 10_000_000


def test_a_repair_has_an_event_although_the_report_is_the_same(stage: Stage) -> None:
    stage.policy()
    stage.tier()
    for _ in range(3):
        stage.run()
    count = len(stage.event_reasons())
    stage.store.put(ALICE, {QuotaKey.PRODUCER_BYTE_RATE: "5000000"})
    stage.run()
    assert stage.event_reasons()[count:] == [Reason.REPAIRED.value]
