"""`tidegate resync` from end to end, on the in-memory API server: the annotation, once, and what
people read.
"""

import json
import shlex
from collections.abc import Callable
from typing import Any

import pytest

from tidegate.errors import Unauthorized
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS, ObjectRef
from tidegate_logic.quotas.contention import named_entity

RESYNC = "tidegate.io/resync"


@pytest.fixture
def stored(world: Any, policy: Any, tier: Any) -> ObjectRef:
    """A policy with a tier whose member is left alone; the operator has reported."""
    world.now = 1_795_417_805.25
    made = world.kubernetes.create(BROKER_BANDWIDTH_POLICIES, policy)
    ref = ObjectRef.of(BROKER_BANDWIDTH_POLICIES, made)
    ready = {"type": "Ready", "status": "False", "reason": "Contended", "message": "m"}
    world.kubernetes.patch_status(
        ref, {"conditions": [ready]}, resource_version=made["metadata"]["resourceVersion"]
    )
    made = world.kubernetes.create(BUSINESS_TIERS, tier)
    member = {"name": "shop", "state": "Contended", "contendedUntil": "2026-11-23T07:11:05Z"}
    world.kubernetes.patch_status(
        ObjectRef.of(BUSINESS_TIERS, made),
        {"members": [member]},
        resource_version=made["metadata"]["resourceVersion"],
    )
    return ref


def annotation(world: Any, ref: ObjectRef) -> str | None:
    value = (world.kubernetes.get(ref)["metadata"].get("annotations") or {}).get(RESYNC)
    return None if value is None else str(value)


def test_it_sets_the_annotation_with_a_new_value_each_time(
    world: Any, stored: ObjectRef, golden: Callable[[str], None]
) -> None:
    answer = world.run("resync", "streaming/orders")
    assert (answer.code, answer.err) == (0, "")
    assert annotation(world, stored) == "2026-11-23T07:10:05.250Z"
    assert "2026-11-23T07:11:05Z: streaming/core / shop" in answer.out
    world.now += 0.5
    assert world.run("resync").code == 0
    assert annotation(world, stored) == "2026-11-23T07:10:05.750Z"
    golden(answer.out)


def test_one_entity_is_named_in_the_value(world: Any, stored: ObjectRef) -> None:
    entity = "user=alice, client-id=app"
    assert world.run("resync", "orders", "--entity", entity).code == 0
    value = annotation(world, stored)
    assert value is not None
    assert named_entity(value) == entity


def test_an_entity_without_its_kind_asks_nothing(world: Any, stored: ObjectRef) -> None:
    answer = world.run("resync", "orders", "-e", "alice")
    assert answer.code == 1
    assert "user=NAME" in answer.err
    assert annotation(world, stored) is None


def test_a_dry_run_asks_nothing_and_shows_what_kubectl_would_do(
    world: Any, stored: ObjectRef, golden: Callable[[str], None]
) -> None:
    answer = world.run("resync", "orders", "-e", "user=o'hara", "--dry-run=client")
    assert answer.code == 2
    assert annotation(world, stored) is None
    (line,) = [line for line in answer.out.splitlines() if "kubectl annotate" in line]
    assert shlex.split(line)[6] == f"{RESYNC}=2026-11-23T07:10:05.250Z user=o'hara"
    golden(answer.out)


def test_programs_get_the_value_and_who_is_left_alone(world: Any, stored: ObjectRef) -> None:
    document = json.loads(world.run("resync", "--dry-run=client", "-o", "json").out)
    assert document == {
        "policy": "streaming/orders",
        "asked": False,
        "annotation": RESYNC,
        "value": "2026-11-23T07:10:05.250Z",
        "leftAlone": [
            {"tier": "streaming/core", "member": "shop", "until": "2026-11-23T07:11:05Z"}
        ],
        "warnings": [],
    }


def test_a_policy_that_is_paused_acts_later_and_that_is_said(
    world: Any, stored: ObjectRef, golden: Callable[[str], None]
) -> None:
    paused = {"type": "Ready", "status": "False", "reason": "Paused", "message": "Paused by a."}
    version = world.kubernetes.get(stored)["metadata"]["resourceVersion"]
    world.kubernetes.patch_status(stored, {"conditions": [paused]}, resource_version=version)
    (warning,) = [line for line in world.run("resync").out.splitlines() if "warning" in line]
    assert "Paused" in warning
    golden(warning)


def test_without_the_right_to_patch_the_message_is_about_the_persons_own_login(
    world: Any, stored: ObjectRef, monkeypatch: pytest.MonkeyPatch, golden: Callable[[str], None]
) -> None:
    def refuse(*_: object) -> None:
        raise Unauthorized("Tidegate could not annotate it: Kubernetes refused it (403).")

    monkeypatch.setattr(world.kubernetes, "annotate", refuse)
    answer = world.run("resync")
    assert answer.code == 1
    assert "Your own login" in answer.err
    assert "kubectl annotate bbp orders -n streaming" in answer.err
    golden(answer.err)
