"""`tidegate pause`, `resume` and `confirm-removal` on the in-memory API server: one annotation
each, and what is printed instead of it.
"""

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tidegate.errors import Unauthorized
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS, ObjectRef
from tidegate.observe.declared import PAUSED, declare
from tidegate.resources.kinds import parse_object
from tidegate_logic.quotas import plan
from tidegate_logic.quotas.plan import CONFIRM_REMOVAL, IF_INTENDED

HELD = (
    "40 of 100 managed quotas would be restored, more than removal.maxPercent (20 %) allows. "
    f"These 40 stay as they are; all others follow their contracts. {IF_INTENDED}, confirm these 40, "
    f"once: kubectl annotate bbp orders -n streaming {CONFIRM_REMOVAL}=40-1f2e3d --overwrite (its "
    "value now, 3-aaaa, does not confirm this removal)"
)


@pytest.fixture
def stored(world: Any, policy: Any, tier: Any) -> ObjectRef:
    policy["metadata"]["annotations"] = {"example.com/team": "a"}
    made = world.kubernetes.create(BROKER_BANDWIDTH_POLICIES, policy)
    world.kubernetes.create(BUSINESS_TIERS, tier)
    return ObjectRef.of(BROKER_BANDWIDTH_POLICIES, made)


def annotations(world: Any, ref: ObjectRef) -> dict[str, str]:
    return dict(world.kubernetes.get(ref)["metadata"].get("annotations") or {})


def is_paused(world: Any, ref: ObjectRef) -> bool:
    """As the operator reads it."""
    return bool(declare(world.kubernetes.get(ref), []).policy.paused)


def test_a_pause_is_begun_and_ended_and_leaves_nothing(
    world: Any, stored: ObjectRef, golden: Callable[..., None]
) -> None:
    paused = world.run("pause", "orders")
    assert (paused.code, paused.err) == (0, "")
    assert is_paused(world, stored)
    assert "tidegate resume streaming/orders" in paused.out
    resumed = world.run("resume", "streaming/orders")
    assert (resumed.code, resumed.err) == (0, "")
    assert not is_paused(world, stored)
    assert annotations(world, stored) == {"example.com/team": "a"}
    golden(paused.out + resumed.out)


def test_a_dry_run_sends_nothing_and_prints_what_can_be_applied(
    world: Any, stored: ObjectRef
) -> None:
    before = world.kubernetes.get(stored)
    answer = world.run("pause", "--dry-run=client", "-o", "yaml")
    assert answer.code == 2
    assert world.kubernetes.get(stored) == before
    printed = yaml.safe_load(answer.out)
    assert printed["metadata"] == {
        "name": "orders",
        "namespace": "streaming",
        "annotations": {"example.com/team": "a", PAUSED: "true"},
    }
    parse_object(printed, strict=True)
    assert declare(printed, []).policy.paused
    words = world.run("pause", "--dry-run=client").out
    assert f"kubectl annotate bbp orders -n streaming {PAUSED}=true --overwrite" in words
    assert f"{PAUSED}-" in world.run("resume", "--dry-run", "client").out


def test_a_policy_that_its_spec_suspends_is_not_said_to_be_awake(
    world: Any, stored: ObjectRef
) -> None:
    world.kubernetes.edit(stored, lambda obj: obj["spec"].update(suspend=True))
    answer = world.run("resume")
    assert answer.code == 1
    assert "spec.suspend" in answer.err


def test_without_the_right_the_message_has_the_command_for_somebody_else(
    world: Any, stored: ObjectRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise Unauthorized("Kubernetes refused it (403): no.")

    monkeypatch.setattr(world.kubernetes, "annotate", refuse)
    answer = world.run("pause")
    assert answer.code == 1
    assert f"kubectl annotate bbp orders -n streaming {PAUSED}=true" in answer.err


def hold(world: Any, ref: ObjectRef, message: str) -> None:
    found = world.kubernetes.get(ref)
    condition = {"type": "Ready", "status": "False", "reason": "RemovalHeld", "message": message}
    world.kubernetes.patch_status(
        ref,
        {"conditions": [condition]},
        resource_version=found["metadata"]["resourceVersion"],
    )


def test_a_removal_is_shown_first_and_confirmed_with_the_operators_own_value(
    world: Any, stored: ObjectRef, golden: Callable[..., None]
) -> None:
    hold(world, stored, HELD)
    shown = world.run("confirm-removal")
    assert shown.code == 2
    assert CONFIRM_REMOVAL not in annotations(world, stored)
    confirmed = world.run("confirm-removal", "--yes")
    assert confirmed.code == 0
    assert annotations(world, stored)[CONFIRM_REMOVAL] == "40-1f2e3d"
    golden(shown.out + confirmed.out)


def test_the_value_is_found_in_the_message_that_the_core_writes(
    world: Any, stored: ObjectRef
) -> None:
    policy = declare(world.kubernetes.get(stored), []).policy
    note = plan._held_note(policy, "7-abcdef012345", 7, lately=0, most=10)
    hold(world, stored, note.message)
    assert world.run("confirm-removal", "--yes").code == 0
    assert annotations(world, stored)[CONFIRM_REMOVAL] == "7-abcdef012345"


def test_where_nothing_is_held_there_is_nothing_to_confirm(world: Any, stored: ObjectRef) -> None:
    answer = world.run("confirm-removal", "--yes")
    assert answer.code == 1
    assert CONFIRM_REMOVAL not in annotations(world, stored)
