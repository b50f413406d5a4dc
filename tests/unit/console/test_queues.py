"""Delay queues on the page Now: which is the worst, what is said of it, and who sees it."""

from dataclasses import replace
from typing import Any

import pytest

from tests.doubles import simulated_console as simulated
from tests.doubles.simulated_console import KEY, condition, queue, stopped_at
from tests.unit.console.test_states import page, text_of
from tidegate.console.now_page import now_page
from tidegate.console.parts import Kept, Part
from tidegate.kube.api import DELAY_QUEUES, QUOTA_OVERRIDES, ResourceKind
from tidegate.view.policy import PolicyNow
from tidegate.view.queues import QueueNow, Severity, queues_now

POLICY = {"metadata": {"namespace": "streaming", "name": "orders"}}
READY = condition("Ready", "True", "Forwarding", "Messages are sent on when they are due.")


def now_with(*queues: Any) -> QueueNow:
    (found,) = queues_now(queues, POLICY)
    return found


def seen(*queues: Any) -> PolicyNow:
    console, source = stopped_at(200.0)
    source.objects_now = replace(source.objects_now, queues=queues)
    now = console.policy(source.objects(), KEY)
    assert now is not None
    return now


def test_without_queues_the_page_has_no_word_of_them() -> None:
    assert "queue" not in text_of(page(200.0, lambda _: None)).casefold()


def test_the_worst_is_first() -> None:
    late = {"waiting": 1, "oldestLateSeconds": 61}
    later = {"waiting": 1, "oldestLateSeconds": 62}
    queues = (
        queue("calm"),
        queue("many", summary={"waiting": 5000, "oldestLateSeconds": 0}),
        queue("dead", READY, condition("DeadLetters", "True", "DeadLetters", "3 messages")),
        queue("unknown", condition("Ready", "Unknown", "BrokersUnreachable", "no answer")),
        queue("late", summary=late),
        queue("later", summary=later),
        queue("lost", READY, condition("RecordsLost", "True", "RecordsLost", "40 messages")),
        queue("drained", condition("Ready", "False", "Draining", "The queue is being deleted")),
    )
    found = [one.key.partition("/")[2] for one in queues_now(queues, POLICY)]
    assert found == ["later", "late", "lost", "unknown", "dead", "drained", "many", "calm"]


def test_queues_of_other_policies_are_not_shown() -> None:
    other = queue("other")
    other["spec"]["policyRef"] = {"name": "orders"}
    other["metadata"]["namespace"] = "elsewhere"
    assert queues_now((other,), POLICY) == ()


def test_a_queue_is_late_above_sixty_seconds_also_while_it_is_ready() -> None:
    at_the_bound = now_with(queue("a", summary={"waiting": 1, "oldestLateSeconds": 60}))
    assert (at_the_bound.severity, at_the_bound.troubles) == (Severity.FINE, ())
    late = now_with(queue("a", summary={"waiting": 1, "oldestLateSeconds": 61}))
    assert late.severity is Severity.BAD
    assert [trouble.reason for trouble in late.troubles] == ["Late"]


def test_a_queue_that_waits_for_brokers_is_not_late() -> None:
    held = condition("Held", "True", "BrokersOverLimit", "There is no room on broker 1")
    found = now_with(queue("a", READY, held, summary={"waiting": 1, "oldestLateSeconds": 600}))
    assert [(one.severity, one.reason) for one in found.troubles] == [
        (Severity.WATCH, "BrokersOverLimit")
    ]


def test_every_trouble_is_said_once_and_the_worst_first() -> None:
    ready = condition("Ready", "False", "ForwardersMissing", "none")
    found = now_with(
        queue(
            "a",
            condition("ClockWrong", "True", "ClockWrong", "by 80 ms"),
            ready,
            ready | {"type": "Stalled", "status": "True"},
            condition("RecordsLost", "False", "Forwarding", "none was lost"),
            summary={"waiting": 1, "oldestLateSeconds": 900},
        )
    )
    assert [trouble.reason for trouble in found.troubles] == ["ForwardersMissing", "ClockWrong"]


@pytest.mark.parametrize(
    ("status", "there"),
    [("ForwardersMissing", 0), ("Forwarding", 2)],
)
def test_forwarders_that_are_gone_are_not_counted(status: str, there: int) -> None:
    said = queue("a", condition("Ready", "False", status, "said"))
    assert now_with(said).forwarders == there
    assert now_with(said).wanted == 2


def test_what_the_operator_did_not_report_is_unknown_and_never_zero() -> None:
    new = queue("new")
    del new["status"]
    found = now_with(new)
    assert (found.waiting, found.late_seconds, found.per_second) == (None, None, None)
    assert (found.forwarders, found.dead, found.severity) == (None, None, Severity.UNKNOWN)
    partly = [{"seconds": 1, "topics": 1, "perSecond": 5}, {"seconds": 2, "topics": 1}]
    assert now_with(queue("a", delays=partly)).per_second is None
    console, source = stopped_at(200.0)
    source.objects_now = replace(source.objects_now, queues=(new,))
    now = console.policy(source.objects(), KEY)
    assert now is not None
    (shown,) = (part for part in now_page(now, console.history) if part.name == "queues")
    row = text_of(str(shown)).partition("streaming/new")[2]
    assert row.count("unknown") == 5
    assert "NotReported" in row


def test_a_queue_that_changes_is_made_again_and_no_other() -> None:
    console, _ = stopped_at(200.0)
    kept = Kept()

    def rows(now: PolicyNow) -> tuple[Part, ...]:
        found = {part.name: part.rows for part in now_page(now, console.history, kept)}
        return found["queues"] or ()

    first = rows(seen(queue("a"), queue("b")))
    names = ["streaming/a", "streaming/a delays", "streaming/b", "streaming/b delays"]
    assert [row.name for row in first] == names
    second = rows(seen(queue("a"), queue("b", dead=1)))
    assert [before is after for before, after in zip(first, second, strict=True)] == [
        True,
        True,
        False,
        False,
    ]


def test_what_time_alone_does_not_change_is_taken_over_with_its_queues() -> None:
    console, source = stopped_at(200.0)
    before = console.policy(source.objects(), KEY)
    simulated.with_queues(source)
    after = console.policy(source.objects(), KEY, before)
    assert before is not None
    assert after is not None
    assert after.members is before.members
    assert [len(before.queues), len(after.queues)] == [0, 3]


def test_a_viewer_sees_the_queues_of_namespaces_in_which_they_may_list_them() -> None:
    console, source = stopped_at(200.0)
    queues = (queue("mine"), queue("theirs", namespace="other"))
    source.objects_now = replace(source.objects_now, queues=queues)

    def may(kind: ResourceKind, namespace: str) -> bool:
        return kind is not DELAY_QUEUES or namespace == "streaming"

    names = [raw["metadata"]["name"] for raw in source.objects().only(may).queues]
    assert names == ["mine"]
    assert source.objects().only(lambda kind, _: kind is QUOTA_OVERRIDES).queues == ()
    # and every such namespace is one that viewers' rights are asked about
    assert {(DELAY_QUEUES, "streaming"), (DELAY_QUEUES, "other")} <= console._places()


def test_a_name_is_text() -> None:
    hostile = simulated.HOSTILE[0]
    said = queue("a", condition("Ready", "False", hostile, hostile))
    said["metadata"]["name"] = said["spec"]["guarantee"] = hostile
    console, _ = stopped_at(200.0)
    (part,) = (part for part in now_page(seen(said), console.history) if part.name == "queues")
    assert "<img" not in str(part)
    assert 'onerror="' not in str(part)
    assert text_of(str(part)).count("<img") == 4
