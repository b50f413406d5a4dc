"""A quota does not wait for Kubernetes to take the report of the pass before, and a late report is still right."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from controller_logic.reasons import Reason
from tests.unit.control.stage import ALICE, Stage
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS, JsonObject, ObjectRef


class Slow:
    """A call of Kubernetes that waits at a gate; `entered` = one is waiting, `open` lets all through."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        self.entered, self._gate = threading.Event(), threading.Event()

    def __call__(self, *args: Any, **named: Any) -> Any:
        self.entered.set()
        assert self._gate.wait(10.0)
        return self._call(*args, **named)

    def open(self) -> None:
        self._gate.set()


@pytest.fixture
def stage() -> Iterator[Stage]:
    """A policy and its tier gold, for which a whole pass was reported."""
    stage = Stage(report_beside=True)
    stage.policy()
    stage.tier("gold", rate="10M")
    stage.run()
    finish(stage)
    yield stage
    for controller in stage.controllers.values():
        controller.close()


def finish(stage: Stage) -> None:
    """Let every report go out."""
    for controller in stage.controllers.values():
        controller._reports.catch_up()


def gold(stage: Stage) -> JsonObject:
    return next(iter(stage.kubernetes.list_all(BUSINESS_TIERS).items))


def contract(stage: Stage, rate: str) -> None:
    ref = ObjectRef.of(BUSINESS_TIERS, gold(stage))
    stage.kubernetes.edit(ref, lambda raw: raw["spec"]["members"][0]["contract"]["perPartition"].update(produce=rate))


def reported_quota(stage: Stage) -> int:
    """The produce quota in the status."""
    return int(gold(stage)["status"]["members"][0]["quota"]["produce"])


def test_changes_are_written_while_a_report_is_under_way_and_all_are_reported_at_the_end(stage: Stage) -> None:
    stage.kubernetes.patch_status = slow = Slow(stage.kubernetes.patch_status)
    before = len(stage.kubernetes.events)
    for rate in (20, 30, 40):
        contract(stage, f"{rate}M")
        stage.run()
        assert stage.produce() == f"{rate}000000"
        assert slow.entered.wait(10.0)
    assert reported_quota(stage) == 10_000_000
    slow.open()
    finish(stage)
    assert reported_quota(stage) == 40_000_000
    assert gold(stage)["status"]["observedGeneration"] == gold(stage)["metadata"]["generation"]
    changes = [event.note for event in stage.kubernetes.events[before:] if event.reason == Reason.CONTRACT_CHANGED.value]
    assert [message.partition(" ")[0] for message in changes] == ["1", "2"], changes  # the second report has two writes


def test_a_trouble_that_is_seen_again_before_its_report_is_reported_once(stage: Stage) -> None:
    stage.store.put_raw(ALICE, b"not json")
    stage.kubernetes.patch_status = slow = Slow(stage.kubernetes.patch_status)
    before = len(stage.event_reasons())
    for _ in range(3):
        stage.run(relisted=False)
        assert slow.entered.wait(10.0)
    slow.open()
    finish(stage)
    assert stage.event_reasons()[before:].count(Reason.FOREIGN_CONTENT.value) == 2  # of the tier, and of the policy


def test_a_bug_in_a_report_is_reported_and_the_next_report_goes_out(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    contract(stage, "20M")
    with monkeypatch.context() as patched:
        patched.setattr(stage.world.reporter, "passed", Slow(lambda: None))  # takes no report: a TypeError
        stage.world.reporter.passed.open()
        stage.run()
        finish(stage)
    policy = next(iter(stage.kubernetes.list_all(BROKER_BANDWIDTH_POLICIES).items))
    assert stage.condition(ObjectRef.of(BROKER_BANDWIDTH_POLICIES, policy)) == ("False", Reason.INTERNAL_ERROR.value)
    stage.run()
    finish(stage)
    assert reported_quota(stage) == 20_000_000
    assert stage.condition(ObjectRef.of(BROKER_BANDWIDTH_POLICIES, policy)) == ("True", "InSync")


def test_a_report_that_hangs_is_seen_by_the_probe(stage: Stage) -> None:
    stage.kubernetes.patch_status = slow = Slow(stage.kubernetes.patch_status)
    contract(stage, "20M")
    stage.run()
    assert slow.entered.wait(10.0)
    stage.now += 600
    assert stage.world.vital_signs.silent_seconds()["reports of streaming/orders"] == 600
    slow.open()
    finish(stage)
    assert stage.world.vital_signs.failure_text() is None


def test_a_deleted_policy_goes_after_its_last_report(stage: Stage) -> None:
    stage.kubernetes.patch_status = slow = Slow(stage.kubernetes.patch_status)
    contract(stage, "20M")
    stage.run()
    assert slow.entered.wait(10.0)
    policy = next(iter(stage.kubernetes.list_all(BROKER_BANDWIDTH_POLICIES).items))
    stage.kubernetes.delete(ObjectRef.of(BROKER_BANDWIDTH_POLICIES, policy))
    threading.Timer(0.2, slow.open).start()
    stage.run()
    assert not stage.kubernetes.list_all(BROKER_BANDWIDTH_POLICIES).items
    assert stage.event_reasons()[-1] == Reason.GIVEN_BACK.value
    assert stage.produce() is None
