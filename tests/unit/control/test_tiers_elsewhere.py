"""Tiers in other namespaces than their policy's: let in by label, and held while labels are not
known.
"""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest

from lab.process import patience, wait_until
from tests.unit.control.stage import ALICE, Stage
from tidegate.commands.context import CommandContext
from tidegate.commands.inputs import PolicyOptions, find_policy
from tidegate.errors import Unauthorized, Unreachable
from tidegate.kube.api import QUOTA_OVERRIDES, ObjectRef
from tidegate.observe.namespaces import KnownLabels
from tidegate.resources.access import AllowedTiers, LabelSelector
from tidegate_logic.model import Entity
from tidegate_logic.reasons import Reason

BOB = Entity(user="bob")
CAROL = Entity(user="carol")
SELECTOR = {"namespaces": "Selector", "selector": {"matchLabels": {"kafka": "orders"}}}
AWAY = Unreachable(Reason.KUBERNETES_UNREACHABLE, "Kubernetes did not answer.")


@pytest.fixture
def stage() -> Stage:
    made = Stage()
    made.kubernetes.put_namespace("team-b", {"kafka": "orders"})
    return made


def test_by_default_a_tier_of_another_namespace_is_no_part_of_the_policy(stage: Stage) -> None:
    stage.policy()
    own, strange = stage.tier(), stage.tier("theirs", user="bob", namespace="team-b")
    stage.run()
    assert (stage.produce(), stage.produce(BOB)) == ("10000000", None)
    assert stage.condition(own) == ("True", "Contract")
    assert stage.condition(strange) == ("False", "TierNotAllowed")
    assert stage.message(strange).startswith(
        "Policy streaming/orders does not admit BusinessTiers from namespace team-b "
        "(spec.allowedTiers); this object has no effect"
    )


def test_a_tier_is_let_in_by_the_labels_of_its_namespace_and_leaves_with_them(stage: Stage) -> None:
    stage.policy(allowedTiers=SELECTOR, removal={"maxPercent": 100})
    stage.tier()
    theirs = stage.tier("theirs", user="bob", namespace="team-b")
    stage.run()
    assert stage.produce(BOB) == "10000000"
    assert stage.condition(theirs) == ("True", "Contract")

    stage.kubernetes.put_namespace("team-b", {})
    stage.now += 14
    stage.run()
    assert stage.produce(BOB) == "10000000", "labels are read again after 15 s"
    stage.now += 2
    stage.run()
    assert stage.produce(BOB) == "10000000", "it may be let in again within the grace"
    stage.run_past_grace()
    assert (stage.produce(), stage.produce(BOB)) == ("10000000", None)
    assert stage.condition(theirs) == ("False", "TierNotAllowed")


def test_a_namespace_that_is_gone_is_not_let_in(stage: Stage) -> None:
    stage.policy(allowedTiers={**SELECTOR, "selector": {}})
    strange = stage.tier("theirs", user="bob", namespace="never-made")
    stage.run()
    assert stage.condition(strange) == ("False", "TierNotAllowed")


def _raise_to_20m(raw: dict[str, Any]) -> None:
    raw["spec"]["members"][0]["contract"]["perPartition"]["produce"] = "20M"


@pytest.mark.parametrize(
    "error", [AWAY, Unauthorized("Kubernetes refused to read namespace team-b.")]
)
def test_while_labels_are_not_known_what_those_tiers_name_stays(
    stage: Stage, error: Exception
) -> None:
    policy = stage.policy(allowedTiers=SELECTOR, removal={"maxPercent": 100})
    other = stage.tier("other", user="carol")
    own = stage.tier("gone", user="alice")
    strange = stage.tier("theirs", user="bob", namespace="team-b")
    stage.run()
    stage.restart()  # nothing is remembered of the labels
    stage.kubernetes.delete(own)
    for edited in (other, strange):
        stage.kubernetes.edit(edited, _raise_to_20m)

    def refuse(_: str) -> dict[str, str]:
        raise error

    stage.kubernetes.namespace_labels = refuse
    stage.now += 60
    stage.run()
    stage.run_past_grace()
    quotas = stage.produce(ALICE), stage.produce(BOB), stage.produce(CAROL)
    assert quotas == (None, "10000000", "20000000")
    assert stage.condition(strange) == ("False", "NamespacesUnread")
    assert "so Tidegate cannot tell whether spec.allowedTiers admits" in stage.message(strange)
    assert stage.condition(policy)[0] == "True"
    assert "but labels of namespace team-b cannot be read" in stage.message(policy)
    del stage.kubernetes.namespace_labels
    stage.now += 15
    stage.run()
    assert stage.produce(BOB) == "20000000"
    assert stage.condition(policy) == ("True", "InSync")


def test_labels_of_one_namespace_that_cannot_be_read_do_not_keep_others_from_being_read(
    stage: Stage,
) -> None:
    stage.policy(allowedTiers=SELECTOR)
    stage.kubernetes.put_namespace("team-c", {"kafka": "orders"})
    read = stage.kubernetes.namespace_labels

    def refuse_one(name: str) -> Mapping[str, str]:
        if name == "team-b":
            raise Unauthorized("Kubernetes refused to read namespace team-b.")
        return read(name)

    stage.kubernetes.namespace_labels = refuse_one
    strange = stage.tier("theirs", user="bob", namespace="team-b")
    other = stage.tier("others", user="carol", namespace="team-c")
    stage.run()
    assert (stage.produce(BOB), stage.produce(CAROL)) == (None, "10000000")
    assert stage.condition(strange) == ("False", "NamespacesUnread")
    assert stage.condition(other) == ("True", "Contract")


@pytest.mark.parametrize("broken", [True, False])
def test_a_member_that_a_tier_in_doubt_names_too_says_so(stage: Stage, *, broken: bool) -> None:
    stage.policy(allowedTiers=SELECTOR)
    own = stage.tier()
    if broken:
        suspect = stage.tier("suspect", user="alice")
        stage.kubernetes.edit(suspect, lambda raw: raw["spec"].update(level="Unheard"))
        reason, why = "InvalidSpec", "BusinessTier streaming/suspect may be the one that applies"
    else:
        stage.tier("suspect", user="alice", namespace="team-b")
        stage.kubernetes.namespace_labels = lambda _: (_ for _ in ()).throw(AWAY)
        reason, why = "NamespacesUnread", "BusinessTier team-b/suspect may be the one that applies"
    stage.run()
    (member,) = stage.kubernetes.get(own)["status"]["members"]
    assert member["state"] == "Held"
    assert member["message"].startswith(why)
    assert stage.condition(own) == ("False", reason)


def test_a_tier_that_is_unreadable_in_an_unread_namespace_holds_what_has_no_owner(
    stage: Stage,
) -> None:
    stage.policy(allowedTiers=SELECTOR, removal={"maxPercent": 100})
    own = stage.tier()
    strange = stage.tier("theirs", user="bob", namespace="team-b")
    stage.run()
    stage.restart()
    stage.kubernetes.delete(own)
    stage.kubernetes.edit(strange, lambda raw: raw["spec"].update(level="Unheard"))
    stage.kubernetes.namespace_labels = lambda _: (_ for _ in ()).throw(AWAY)
    stage.run()
    assert (stage.produce(), stage.produce(BOB)) == ("10000000", "10000000")


def test_labels_read_before_count_for_a_while_when_kubernetes_is_away(stage: Stage) -> None:
    stage.policy(allowedTiers=SELECTOR)
    strange = stage.tier("theirs", user="bob", namespace="team-b")
    stage.run()

    def refuse(_: str) -> dict[str, str]:
        raise AWAY

    stage.kubernetes.namespace_labels = refuse
    stage.now += stage.world.settings.list_stale_after_seconds - 1
    stage.run()
    assert stage.condition(strange) == ("True", "Contract")
    stage.now += 2
    stage.run()
    assert stage.condition(strange) == ("False", "NamespacesUnread")


def test_namespaces_are_not_read_where_no_tier_needs_it(stage: Stage) -> None:
    policy = stage.policy(allowedTiers=SELECTOR)
    stage.tier()

    def refuse(_: str) -> dict[str, str]:
        raise AssertionError("no tier needs it")

    stage.kubernetes.namespace_labels = refuse
    stage.run()
    assert stage.condition(policy) == ("True", "InSync")


def test_deleting_a_policy_does_not_wait_for_labels(stage: Stage) -> None:
    policy = stage.policy(allowedTiers=SELECTOR)
    stage.tier("theirs", user="bob", namespace="team-b")
    stage.run()
    stage.restart()

    def refuse(_: str) -> dict[str, str]:
        raise AWAY

    stage.kubernetes.namespace_labels = refuse
    stage.kubernetes.delete(policy)
    stage.run()
    stage.run()
    assert stage.produce(BOB) is None


def test_an_override_of_another_namespace_is_none_of_the_policys(stage: Stage) -> None:
    stage.policy(allowedTiers=SELECTOR)
    stage.tier()
    spec = {
        "policyRef": {"name": "orders", "namespace": "streaming"},
        "target": {"user": "alice"},
        "action": "SetRates",
        "rates": {"perBroker": {"produce": "1k", "fetch": "1k"}},
        "expiresAt": "2026-01-20T00:00:00Z",
        "reason": "mischief",
    }
    stage.kubernetes.create(
        QUOTA_OVERRIDES, {"metadata": {"name": "theirs", "namespace": "team-b"}, "spec": spec}
    )
    stage.run()
    assert stage.produce() == "10000000"


def test_entities_may_be_allowed_to_one_namespace_only(stage: Stage) -> None:
    stage.policy(
        allowedTiers=SELECTOR,
        allowedEntities=[
            {"users": ["alice"], "namespaces": ["streaming"]},
            {"users": ["bob*"], "namespaces": ["team-b"]},
        ],
    )
    squatter = stage.tier("a-squatter", user="alice", rate="2k", namespace="team-b")
    stage.tier()
    stage.tier("theirs", user="bob", namespace="team-b")
    stage.run()
    assert (stage.produce(ALICE), stage.produce(BOB)) == ("10000000", "10000000")
    assert stage.condition(squatter) == ("False", "EntityNotAllowed")
    (event,) = [one for one in stage.kubernetes.events if one.reason == "EntityNotAllowed"]
    assert event.regarding.namespace == "team-b"
    assert "users that tiers of namespace team-b may name are bob*" in event.note


def _found(stage: Stage, namespace: str | None) -> tuple[set[str], str]:
    around = CommandContext(
        out=io.StringIO(), err=io.StringIO(), open_kubernetes=lambda *_: stage.kubernetes
    )
    declared = find_policy(around, PolicyOptions(namespace=namespace)).declared
    return {tier.key for tier in declared.tiers or ()}, declared.unlisted


@pytest.mark.parametrize("namespace", [None, "streaming"])
def test_commands_find_tiers_of_other_namespaces_too(stage: Stage, namespace: str | None) -> None:
    stage.policy(allowedTiers=SELECTOR)
    stage.tier(), stage.tier("theirs", user="bob", namespace="team-b")
    assert _found(stage, namespace) == ({"streaming/gold", "team-b/theirs"}, "")


def test_what_is_wrong_in_a_policy_is_not_said_to_other_namespaces(stage: Stage) -> None:
    policy: ObjectRef = stage.policy(mode="Whatever")
    strange = stage.tier("theirs", user="bob", namespace="team-b")
    stage.run()
    assert stage.condition(policy) == ("False", "InvalidSpec")
    assert "status" not in stage.kubernetes.get(strange)


@pytest.mark.parametrize(
    ("expression", "labels", "expected"),
    [
        ({"key": "a", "operator": "In", "values": ["1", "2"]}, {"a": "2"}, True),
        ({"key": "a", "operator": "In", "values": ["1"]}, {}, False),
        ({"key": "a", "operator": "NotIn", "values": ["1"]}, {}, True),
        ({"key": "a", "operator": "NotIn", "values": ["1"]}, {"a": "1"}, False),
        ({"key": "a", "operator": "Exists"}, {"a": ""}, True),
        ({"key": "a", "operator": "DoesNotExist"}, {"a": ""}, False),
    ],
)
def test_label_expressions_mean_what_they_mean_in_kubernetes(
    expression: dict[str, object], labels: dict[str, str], *, expected: bool
) -> None:
    selector = LabelSelector.model_validate_json(json.dumps({"matchExpressions": [expression]}))
    assert AllowedTiers(namespaces="Selector", selector=selector).lets_in(labels) is expected


def test_a_kubernetes_that_hangs_delays_no_pass_once_labels_are_known() -> None:
    class Slow:
        def __init__(self) -> None:
            self.answers, self.asked = threading.Event(), 0

        def namespace_labels(self, _: str) -> dict[str, str]:
            self.asked += 1
            assert self.answers.wait(patience(10))
            return {"asked": str(self.asked)}

    kubernetes, now = Slow(), [0.0]
    labels = KnownLabels(kubernetes, lambda: now[0], keep_seconds=900)  # type: ignore[arg-type]  # all that is asked
    kubernetes.answers.set()
    assert labels("team-b") == {"asked": "1"}
    kubernetes.answers.clear()
    now[0] = 20.0
    began = time.monotonic()
    assert labels("team-b") == labels("team-b") == {"asked": "1"}
    assert time.monotonic() - began < patience(1.0)
    kubernetes.answers.set()
    wait_until(lambda: labels("team-b") == {"asked": "2"}, "the new labels", timeout_seconds=10)
    for number in range(3, 8):
        labels(f"team-{number}")
    now[0] = 40.0
    for number in range(3, 8):
        labels(f"team-{number}")
    wait_until(lambda: kubernetes.asked == 12, "all five to be read again", timeout_seconds=10)


def test_after_a_failure_kubernetes_is_left_alone_for_a_while(stage: Stage) -> None:
    stage.policy(allowedTiers=SELECTOR)
    asked: list[str] = []

    def refuse(name: str) -> dict[str, str]:
        asked.append(name)
        raise AWAY

    for number in range(5):
        stage.tier("theirs", user=f"u{number}", namespace=f"team-{number}")
    stage.kubernetes.namespace_labels = refuse
    for _ in range(3):
        stage.run()
    assert len(asked) == 1
