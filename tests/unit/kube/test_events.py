"""Events are posted once for a while, fit the server, and never cost the control pass an exception
or a wait per object.
"""

from __future__ import annotations

import pytest

from tests.doubles.kubernetes import InMemoryKubernetes
from tests.unit.hands import Hands
from tidegate.errors import Unreachable
from tidegate.kube.api import BUSINESS_TIERS, ObjectRef
from tidegate.kube.events import EventRecorder
from tidegate_logic.reasons import Reason

TIER = ObjectRef(BUSINESS_TIERS, "streaming", "reporting", "uid-1")


@pytest.fixture
def recorder(kubernetes: InMemoryKubernetes, clock: Hands) -> EventRecorder:
    return EventRecorder(kubernetes, monotonic=clock)


def record(recorder: EventRecorder, message: str = "leaders moved") -> bool:
    return recorder.record(TIER, "Normal", reason=Reason.LEADERS_MOVED, message=message)


@pytest.mark.parametrize(("after_seconds", "posted"), [(599.0, 1), (600.0, 2)])
def test_the_same_event_is_posted_again_only_after_a_while(
    kubernetes: InMemoryKubernetes,
    recorder: EventRecorder,
    clock: Hands,
    after_seconds: float,
    posted: int,
) -> None:
    record(recorder)
    clock.now += after_seconds
    record(recorder)
    assert len(kubernetes.events) == posted


@pytest.mark.parametrize("message", ["x" * 2000, "ä" * 2000])
def test_a_long_message_is_cut_to_what_the_server_takes(
    kubernetes: InMemoryKubernetes, recorder: EventRecorder, message: str
) -> None:
    assert record(recorder, message)
    note = kubernetes.events[0].note
    assert 1000 < len(note.encode()) <= 1024
    assert note.endswith("…")


def test_an_outage_drops_events_and_tries_none_for_a_while(
    kubernetes: InMemoryKubernetes, recorder: EventRecorder, clock: Hands
) -> None:
    kubernetes.fail_with(Unreachable(Reason.KUBERNETES_UNREACHABLE, "Kubernetes did not answer."))
    assert not record(recorder)
    kubernetes.fail_with(None)
    assert not record(recorder)
    clock.now += 30
    assert record(recorder)
    assert len(kubernetes.events) == 1
