"""Statuses are written where they differ and nowhere else; conditions keep the moment of their last
transition.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.doubles.kubernetes import InMemoryKubernetes
from tidegate.kube.api import BUSINESS_TIERS, JsonObject, ObjectRef
from tidegate.kube.status import StatusWriter, apply, difference, merge

NOON, LATER = "2026-01-01T12:00:00Z", "2026-01-01T12:00:10Z"
NOON_SECONDS = 1767268800.0


def condition(status: str = "True", message: str = "well", kind: str = "Ready") -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": "InSync",
        "message": message,
        "observedGeneration": 1,
    }


@pytest.mark.parametrize(
    ("current", "desired", "patch"),
    [
        ({}, {"a": 1}, {"a": 1}),
        ({"a": 1, "theirs": 2}, {"a": 1}, {}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"x": 1, "y": 3}}, {"a": {"y": 3}}),
        ({"a": 1}, {"a": None}, {"a": None}),
        ({}, {"a": None}, {}),
        ({"a": [1, 2]}, {"a": [2]}, {"a": [2]}),
        ({"a": 1}, {"a": True}, {"a": True}),
    ],
)
def test_the_patch_is_the_smallest_that_leads_there(
    current: JsonObject, desired: JsonObject, patch: JsonObject
) -> None:
    assert difference(current, desired) == patch
    assert difference(apply(patch, current), desired) == {}


@pytest.mark.parametrize(
    ("status", "moved_at"), [("True", NOON), ("False", LATER)], ids=["same-status", "other-status"]
)
def test_last_transition_time_moves_only_with_the_status(status: str, moved_at: str) -> None:
    present = [{**condition(), "lastTransitionTime": NOON}]
    assert merge(present, [condition(status, "new words")], now=LATER) == [
        {**condition(status, "new words"), "lastTransitionTime": moved_at}
    ]


def test_conditions_of_others_stay_where_they_are() -> None:
    theirs = {**condition(kind="Audited"), "lastTransitionTime": NOON}
    assert merge([theirs], [condition()], now=LATER) == [
        theirs,
        {**condition(), "lastTransitionTime": LATER},
    ]


@pytest.fixture
def tier(kubernetes: InMemoryKubernetes) -> JsonObject:
    return kubernetes.create(
        BUSINESS_TIERS,
        {"metadata": {"name": "a", "namespace": "streaming"}, "spec": {"level": "L0"}},
    )


def test_the_same_status_is_not_sent_twice_while_the_cache_lags(
    kubernetes: InMemoryKubernetes, tier: JsonObject
) -> None:
    writer = StatusWriter(kubernetes, wall=lambda: NOON_SECONDS)
    first = writer.write(BUSINESS_TIERS, tier, {"conditions": [condition()]})
    again = writer.write(BUSINESS_TIERS, tier, {"conditions": [condition()]})
    assert (first.written, again.written) == (True, False)
    assert kubernetes.get(ObjectRef.of(BUSINESS_TIERS, tier)) == again.object
    assert first.object is not None
    assert first.object["status"]["conditions"][0]["lastTransitionTime"] == NOON


def test_a_status_changed_meanwhile_is_merged_not_overwritten(
    kubernetes: InMemoryKubernetes, tier: JsonObject
) -> None:
    ref = ObjectRef.of(BUSINESS_TIERS, tier)
    theirs = {**condition(kind="Audited"), "lastTransitionTime": NOON}
    kubernetes.patch_status(
        ref, {"conditions": [theirs]}, resource_version=tier["metadata"]["resourceVersion"]
    )
    StatusWriter(kubernetes).write(BUSINESS_TIERS, tier, {"conditions": [condition()]})
    assert [entry["type"] for entry in kubernetes.get(ref)["status"]["conditions"]] == [
        "Audited",
        "Ready",
    ]


def test_an_object_that_is_gone_needs_no_status(
    kubernetes: InMemoryKubernetes, tier: JsonObject
) -> None:
    kubernetes.delete(ObjectRef.of(BUSINESS_TIERS, tier))
    done = StatusWriter(kubernetes).write(BUSINESS_TIERS, tier, {"observedGeneration": 1})
    assert (done.object, done.written) == (None, False)


class Pruning(InMemoryKubernetes):
    """A server whose CRDs do not know the field `summary`."""

    def patch_status(self, ref: ObjectRef, patch: Any, *, resource_version: str) -> JsonObject:
        return super().patch_status(
            ref,
            {key: value for key, value in patch.items() if key != "summary"},
            resource_version=resource_version,
        )


def test_a_field_the_server_drops_is_not_written_at_every_pass() -> None:
    server = Pruning()
    tier = server.create(BUSINESS_TIERS, {"metadata": {"name": "a", "namespace": "streaming"}})
    writer = StatusWriter(server)
    desired = {"observedGeneration": 1, "summary": {"members": 3}}
    assert [writer.write(BUSINESS_TIERS, tier, desired).written for _ in range(3)] == [
        True,
        False,
        False,
    ]
