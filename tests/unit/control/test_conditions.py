"""Conditions and Events agree with the numbers: a quota that is not in sync has its reason, and only a warning is a Warning."""

from collections.abc import Callable
from typing import Any

from controller_logic.model import Default, Entity, QuotaKey
from controller_logic.reasons import Reason
from tests.goldens.golden import numbers
from tests.unit.control.stage import ALICE, Stage
from tidegate.control.report.conditions import Truth, Verdict
from tidegate.control.report.events import WARNING, EventDraft, condition_events
from tidegate.errors import Unauthorized, Unreachable
from tidegate.kube.api import ObjectRef

PRODUCE = QuotaKey.PRODUCER_BYTE_RATE


def condition(stage: Stage, ref: object, kind: str = "Ready") -> dict[str, Any]:
    return next(entry for entry in stage.kubernetes.get(ref)["status"]["conditions"] if entry["type"] == kind)


def test_a_tier_at_its_contract_names_its_rate_and_the_number_of_leaders(stage: Stage, golden: Callable[[str], None]) -> None:
    stage.policy()
    tier = stage.tier()
    stage.run()
    ready = condition(stage, tier)
    assert (ready["reason"], numbers(ready["message"])) == ("Contract", {1, 10.0, 3})
    golden(ready["message"])


def test_a_ready_policy_whose_quotas_still_step_counts_them(stage: Stage, golden: Callable[[str], None]) -> None:
    policy = stage.policy()
    stage.tier()
    stage.store.put(ALICE, {PRODUCE: "80000000"})
    stage.run()
    ready = condition(stage, policy)
    assert (ready["status"], ready["reason"]) == ("True", "Stepping")
    assert numbers(ready["message"]) >= {0, 1}
    golden(ready["message"])


def test_a_default_on_its_way_down_is_stepping_and_no_conflict(stage: Stage) -> None:
    policy = stage.policy(defaults={"user": {"produce": "10M"}})
    stage.store.put(Entity(user=Default.DEFAULT), {PRODUCE: "80000000"})
    stage.run()
    assert stage.condition(policy, "QuotasInSync") == ("False", "Stepping")


def test_a_pause_is_no_warning(stage: Stage) -> None:
    policy = stage.policy()
    stage.tier()
    stage.run()
    stage.kubernetes.edit(policy, lambda raw: raw["metadata"].update(annotations={"tidegate.io/paused": "true"}))
    stage.run()
    assert {event.type for event in stage.kubernetes.events if event.reason == "Paused"} == {"Normal"}


def test_a_warning_is_not_hidden_by_what_is_normal_for_the_same_reason() -> None:
    verdicts = [
        Verdict("Ready", Truth.TRUE, Reason.TOPIC_NOT_FOUND, "1 of 2 quotas at the contract"),
        Verdict("QuotasInSync", Truth.FALSE, Reason.TOPIC_NOT_FOUND, "1 of 2 quotas: topic x does not exist"),
    ]
    assert condition_events({}, verdicts) == (EventDraft(WARNING, Reason.TOPIC_NOT_FOUND, "1 of 2 quotas: topic x does not exist"),)


def stalled(stage: Stage, ref: ObjectRef) -> tuple[str, str]:
    return stage.condition(ref, "Stalled")


def test_nothing_is_stalled_while_all_is_well_or_only_waits(stage: Stage) -> None:
    refs = stage.policy(), stage.tier()
    stage.run()
    assert [stalled(stage, ref)[0] for ref in refs] == ["False", "False"]
    stage.leaders.error = Unreachable(Reason.BROKERS_UNREACHABLE, "No broker answers.")
    stage.run()
    assert [stage.condition(ref)[0] for ref in refs] == ["False", "Unknown"]
    assert [stalled(stage, ref)[0] for ref in refs] == ["False", "False"]


def test_a_policy_that_a_person_must_correct_is_stalled_until_it_is(stage: Stage) -> None:
    policy, tier = stage.policy(), stage.tier()
    stage.run()
    stage.leaders.error = Unauthorized("The brokers refuse this login.")
    stage.run()
    assert (stage.condition(policy), stalled(stage, policy)) == (("False", "NotAuthorized"), ("True", "NotAuthorized"))
    assert stalled(stage, tier)[0] == "False"
    events = [event.reason for event in stage.kubernetes.events].count("NotAuthorized")
    stage.run()
    assert [event.reason for event in stage.kubernetes.events].count("NotAuthorized") == events
    stage.leaders.error = None
    stage.run()
    assert stalled(stage, policy) == ("False", "InSync")


def test_a_removal_that_waits_for_confirmation_is_stalled(stage: Stage) -> None:
    policy, tier = stage.policy(), stage.tier()
    stage.run()
    stage.kubernetes.delete(tier)
    stage.run()
    assert (stage.condition(policy), stalled(stage, policy)) == (("False", "RemovalHeld"), ("True", "RemovalHeld"))


def test_a_tier_in_conflict_is_stalled_and_one_whose_topic_is_not_there_yet_is_not(stage: Stage) -> None:
    stage.policy()
    first, second = stage.tier(), stage.tier("silver")
    stage.run()
    assert [stalled(stage, ref)[0] for ref in (first, second)] == ["False", "True"]
    stage.leaders.leaders.clear()
    stage.run()
    assert (stage.condition(first), stalled(stage, first)[0]) == (("False", "TopicNotFound"), "False")


def test_an_object_that_does_not_read_is_stalled(stage: Stage) -> None:
    policy, tier = stage.policy(mode="Loud"), stage.tier()
    stage.run()
    assert [stalled(stage, ref) for ref in (policy, tier)] == [("True", "InvalidSpec")] * 2
