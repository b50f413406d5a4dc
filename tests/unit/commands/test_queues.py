"""`tidegate queues` on the in-memory API server: the table, one queue in detail, and what is said
where there is nothing to show.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml

from tests.doubles.kubernetes import InMemoryKubernetes
from tidegate.errors import NotFound, Unauthorized
from tidegate.kube.api import DELAY_QUEUES, DEPLOYMENTS, JsonObject, ObjectRef, ResourceKind
from tidegate.kube.forwarders import ForwarderPods, deployment_body, forwarders_name
from tidegate.resources.delay_queue import (
    DelayQueueStatus,
    DelayStatus,
    ForwarderStatus,
    QueueSummary,
)
from tidegate.resources.status import Condition
from tidegate.settings import ForwarderOffer
from tidegate_logic.reasons import Reason

EXAMPLE = Path(__file__).parents[3] / "examples" / "delay-queues" / "unpaid.yaml"
Truth = Literal["True", "False", "Unknown"]
FINE: tuple[tuple[str, Truth, Reason], ...] = (
    ("Ready", "True", Reason.FORWARDING),
    ("Stalled", "False", Reason.FORWARDING),
    ("RecordsLost", "False", Reason.FORWARDING),
    ("DeadLetters", "False", Reason.FORWARDING),
)
BUSY = DelayQueueStatus(
    topic_prefix="shop.unpaid",
    delays=(
        DelayStatus(seconds=10, topics=1, waiting=3, oldest_late_seconds=0, per_second=7),
        DelayStatus(seconds=600, topics=4, waiting=1200, oldest_late_seconds=75, per_second=2),
    ),
    forwarders=(
        ForwarderStatus(name="unpaid-forwarders-a", topics=3),
        ForwarderStatus(name="unpaid-forwarders-b", topics=2),
    ),
    dead=0,
    summary=QueueSummary(waiting=1203, oldest_late_seconds=75),
)


class Cluster:
    """An API server with queues, of which the operator has reported."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.kubernetes: InMemoryKubernetes = world.kubernetes

    def queue(
        self,
        name: str = "unpaid",
        *,
        namespace: str = "streaming",
        available: int = 2,
        **spec: Any,
    ) -> JsonObject:
        raw = yaml.safe_load(EXAMPLE.read_text())
        raw["metadata"] = {"name": name, "namespace": namespace}
        raw["spec"] |= spec
        made = self.kubernetes.create(DELAY_QUEUES, raw)
        pods = ForwarderPods(ForwarderOffer(image="registry/forwarder:1"), 2, ())
        self.kubernetes.apply_managed(DEPLOYMENTS, deployment_body(made, pods))
        self.kubernetes.edit_managed(
            DEPLOYMENTS,
            namespace,
            forwarders_name(name),
            lambda found: found.update(status={"availableReplicas": available}),
        )
        return made

    def reported(
        self,
        raw: JsonObject,
        status: DelayQueueStatus,
        conditions: Sequence[tuple[str, Truth, Reason]] = FINE,
    ) -> None:
        found = [
            Condition(
                type=kind,
                status=truth,
                reason=reason,
                message=f"What {kind} says.",
                last_transition_time="2026-11-23T07:10:06Z",
                observed_generation=1,
            )
            for kind, truth, reason in conditions
        ]
        ref = ObjectRef.of(DELAY_QUEUES, raw)
        self.kubernetes.patch_status(
            ref,
            status.model_copy(update={"conditions": tuple(found)}).as_document(),
            resource_version=self.kubernetes.get(ref)["metadata"]["resourceVersion"],
        )

    def shown(self, *arguments: str) -> Mapping[str, Any]:
        answer = self.world.run("queues", *arguments, "-o", "json")
        assert (answer.code, answer.err) == (0, "")
        found: Mapping[str, Any] = json.loads(answer.out)
        return found


@pytest.fixture
def cluster(world: Any) -> Cluster:
    return Cluster(world)


def test_the_queues_of_a_cluster_are_a_table(
    cluster: Cluster, golden: Callable[[str], None]
) -> None:
    cluster.reported(cluster.queue(), BUSY)
    cluster.reported(
        cluster.queue(
            "retries",
            namespace="billing",
            available=0,
            guarantee="ExactlyOnce",
            policyRef={"name": "orders", "namespace": "streaming"},
            forwarders={"replicas": 3},
        ),
        DelayQueueStatus(dead=4, summary=QueueSummary(waiting=12, oldest_late_seconds=7300)),
        (("Ready", "False", Reason.FORWARDERS_MISSING),),
    )
    cluster.queue("young", available=0)
    answer = cluster.world.run("queues")
    assert (answer.code, answer.err) == (0, "")
    golden(answer.out)


def test_a_namespace_that_is_given_is_not_a_column_and_leaves_out_others(cluster: Cluster) -> None:
    cluster.reported(cluster.queue(), BUSY)
    cluster.queue("retries", namespace="billing")
    out = cluster.world.run("queues", "-n", "streaming").out
    assert [line.split()[0] for line in out.splitlines()] == ["NAME", "unpaid"]
    both = cluster.world.run("queues", "-A").out
    assert [line.split()[:2] for line in both.splitlines()] == [
        ["NAMESPACE", "NAME"],
        ["billing", "retries"],
        ["streaming", "unpaid"],
    ]
    assert cluster.world.run("queues", "-A", "-n", "streaming").code == 1


def test_one_queue_is_shown_with_what_to_do(
    cluster: Cluster, golden: Callable[[str], None]
) -> None:
    status = BUSY.model_copy(update={"dead": 4})
    cluster.reported(
        cluster.queue(available=1),
        status,
        (
            ("Ready", "False", Reason.FORWARDING_FAILS),
            ("Stalled", "False", Reason.FORWARDING_FAILS),
            ("RecordsLost", "False", Reason.FORWARDING),
            ("ClockWrong", "True", Reason.CLOCK_WRONG),
            ("DeadLetters", "True", Reason.DEAD_LETTERS),
            ("Held", "False", Reason.SHIFT_CANNOT_HELP),
        ),
    )
    answer = cluster.world.run("queues", "unpaid")
    assert (answer.code, answer.err) == (0, "")
    golden(answer.out)


def test_a_queue_that_is_fine_has_no_warnings(cluster: Cluster) -> None:
    cluster.reported(cluster.queue(), BUSY)
    out = cluster.world.run("queues", "streaming/unpaid").out
    assert "warning" not in out
    assert "Fix:" not in out


def test_a_queue_that_nobody_has_reported_on_says_so(
    cluster: Cluster, golden: Callable[[str], None]
) -> None:
    cluster.queue()
    (shown,) = cluster.shown()["queues"]
    assert (shown["status"], shown["waiting"], shown["perSecond"]) == ("NotReported", None, None)
    golden(cluster.world.run("queues", "unpaid").out)


def test_numbers_for_programs_are_plain_and_unknown_ones_null(cluster: Cluster) -> None:
    status = BUSY.model_copy(
        update={
            "summary": QueueSummary(),
            "dead": None,
            "delays": (DelayStatus(seconds=10, topics=1), *(BUSY.delays or ())[1:]),
        }
    )
    cluster.reported(cluster.queue(), status)
    (shown,) = cluster.shown("unpaid")["queues"]
    assert shown["forwarders"] == {
        "available": 2,
        "wanted": 2,
        "members": [
            {"name": "unpaid-forwarders-a", "topics": 3},
            {"name": "unpaid-forwarders-b", "topics": 2},
        ],
    }
    unknown = ("waiting", "oldestLateSeconds", "perSecond", "dead")
    assert [shown[name] for name in unknown] == [None] * 4
    assert shown["topicPrefix"] == "shop.unpaid"
    assert {one["type"] for one in shown["conditions"]} == {kind for kind, _, _ in FINE}


def test_a_deployment_of_somebody_else_has_no_forwarders_of_the_queue(cluster: Cluster) -> None:
    cluster.queue()
    cluster.kubernetes.edit_managed(
        DEPLOYMENTS,
        "streaming",
        "unpaid-forwarders",
        lambda found: found["metadata"].pop("ownerReferences"),
    )
    (shown,) = cluster.shown()["queues"]
    assert shown["forwarders"]["available"] == 0


def test_without_the_right_to_read_deployments_their_number_is_unknown(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def refuse(kind: ResourceKind, namespace: str, name: str) -> None:
        asked.append(name)
        raise Unauthorized("Kubernetes refused it (403).")

    cluster.queue()
    cluster.queue("retries")
    monkeypatch.setattr(cluster.kubernetes, "read_managed", refuse)
    found = cluster.shown()["queues"]
    assert [one["forwarders"]["available"] for one in found] == [None, None]
    assert len(asked) == 1
    assert "?/2" in cluster.world.run("queues").out


def test_no_queue_is_a_sentence_and_no_error(cluster: Cluster) -> None:
    answer = cluster.world.run("queues")
    assert (answer.code, answer.out) == (0, "There are no DelayQueues in this cluster.\n")
    assert "in namespace streaming" in cluster.world.run("queues", "-n", "streaming").out
    assert cluster.shown() == {"queues": []}


def test_a_name_must_mean_one_queue(cluster: Cluster) -> None:
    missing = cluster.world.run("queues", "unpaid")
    assert (missing.code, missing.out) == (1, "")
    cluster.queue()
    cluster.queue(namespace="billing")
    several = cluster.world.run("queues", "unpaid")
    assert several.code == 1
    assert "billing/unpaid, streaming/unpaid" in several.err
    assert [one["namespace"] for one in cluster.shown("billing/unpaid")["queues"]] == ["billing"]


def test_a_cluster_without_the_crd_is_told_how_to_turn_queues_on(
    cluster: Cluster, golden: Callable[[str], None]
) -> None:
    cluster.kubernetes.fail_with(NotFound(Reason.LIST_INCOMPLETE, "could not list: 404"))
    answer = cluster.world.run("queues")
    assert (answer.code, answer.out) == (1, "")
    golden(answer.err)


def test_a_login_that_may_not_list_queues_is_told_which_right_it_needs(cluster: Cluster) -> None:
    cluster.kubernetes.fail_with(Unauthorized("Kubernetes refused it (403)."))
    answer = cluster.world.run("queues")
    assert answer.code == 1
    assert "list delayqueues" in answer.err


def test_watching_prints_a_line_for_programs_with_each_update(cluster: Cluster) -> None:
    raw = cluster.queue()
    world = cluster.world

    def next_update() -> None:
        if len(world.waits) == 2:
            raise KeyboardInterrupt
        cluster.reported(raw, BUSY)

    world.during_wait = next_update
    answer = world.run("queues", "--watch", "--interval", "7", "-o", "json")
    assert answer.code == 0
    lines = [json.loads(line) for line in answer.out.splitlines()]
    assert [line["queues"][0]["waiting"] for line in lines] == [None, 1203]
    assert world.waits == [7, 7]
