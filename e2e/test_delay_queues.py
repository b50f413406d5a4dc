"""Delay queues of both guarantees, with forwarders in Pods: nothing is lost or early, whether
forwarders are killed, delays come and go, or the queue itself does.

Both queues go through it at the same time, since a topic is deleted only after a quiet minute.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from e2e.cluster import Cluster
from e2e.declared import delay_queue, levels, policy
from e2e.delay_queues import Traffic
from e2e.login import Login
from e2e.release import Release
from e2e.rights import asked, calls_of_operator, granted, was_refused
from e2e.scene import Scenario
from image import FORWARDER, build
from lab.kafka import BrokersLab, KafkaLab
from lab.kubernetes.kind import KindLab
from lab.process import wait_until
from tests.integration.kafka.queue_clients import QueueClients

LEVELS = ("5.0", "5.1", "10.0")
USER, SECRET = "forwarder", "forwarder"
# what the API server writes down otherwise: an apply that creates is a patch to it, and a watch is
# written down when it ends
NOT_SEEN = {
    ("apps", "deployments", "create"),
    ("policy", "poddisruptionbudgets", "create"),
    ("tidegate.io", "delayqueues", "watch"),
}
OF_LEVELS = {
    "message.timestamp.type": "LogAppendTime",
    "retention.bytes": "-1",
    "cleanup.policy": "delete",
}
GRACE_SECONDS = 86_400
LOOK_SECONDS = 60.0  # until the operator has looked and made what is missing
QUIET_SECONDS = 150.0  # until a drained topic is deleted: after a minute, and some looks


@dataclass
class Queue:
    """One queue of the scenario: its object, and what producers and readers see of it."""

    scene: Scenario
    kafka: BrokersLab
    name: str
    guarantee: str
    traffic: Traffic = field(init=False)

    def __post_init__(self) -> None:
        self.prefix = f"{self.scene.namespace}.{self.name}"
        self.traffic = Traffic(self.kafka, self.prefix)
        self._clients = QueueClients(self.kafka.bootstrap_servers)

    def declare(self, *, with_login: bool = True) -> None:
        """Two topics that wait 5 s and one that waits 10 s, forwarded by two small Pods."""
        login = {
            "type": "scram-sha-512",
            "username": USER,
            "passwordSecret": {"secretName": SECRET, "password": "password"},
        }
        resources = {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}
        self.scene.declare(
            delay_queue(
                self.name,
                self.guarantee,
                {5: 2, 10: 1},
                prefix=self.prefix,
                target=self.traffic.target,
                forwarders={"replicas": 2, "resources": resources},
                **({"authentication": login} if with_login else {}),
            )
        )

    def waits_for(self, condition: str, status: str, reason: str) -> str:
        """The message of the condition, once it is so."""
        found = self.scene.waits_for(
            f"dq/{self.name}", condition, status, reason=reason, timeout_seconds=120
        )
        return found["message"]

    def status(self) -> dict[str, Any]:
        return dict(self.scene.read(f"dq/{self.name}").get("status") or {})

    def shared(self) -> dict[str, int]:
        """Pods that forward -> the number of their topics, by the status."""
        names, found = self.pods(), self.status().get("forwarders") or ()
        return {
            next((name for name in names if one["name"].startswith(name)), one["name"]): one[
                "topics"
            ]
            for one in found
        }

    def pods(self) -> list[str]:
        return self._names("pods", "-l", f"tidegate.io/queue={self.name}")

    def objects(self) -> list[str]:
        """What the operator made for it in Kubernetes, and what came of that."""
        kinds = "deployments,replicasets,pods,poddisruptionbudgets"
        return self._names(kinds, "-l", f"tidegate.io/queue={self.name}")

    def topics(self) -> set[str]:
        """Its topics, without the prefix."""
        return {name.removeprefix(f"{self.prefix}.") for name in self._clients.topics(self.prefix)}

    def settings(self, topic: str) -> dict[str, str]:
        return self._clients.settings(f"{self.prefix}.{topic}")

    def is_gone(self) -> bool:
        return not self._names("dq", "--field-selector", f"metadata.name={self.name}")

    def _names(self, *what: str) -> list[str]:
        items = json.loads(self.scene.kubectl("get", *what, "-o", "json"))["items"]
        return [one["metadata"]["name"] for one in items]


@pytest.fixture(scope="module")
def image(kubernetes: Cluster) -> str:
    """The forwarders' image, on the node."""
    built = build(edition=FORWARDER)
    kubernetes.load_image(built.archive)
    return built.name


@pytest.fixture(scope="module")
def login(kafka: KafkaLab) -> Login:
    """The forwarders' own login, in Kafka."""
    made = Login()
    kafka.create_scram_user(USER, made.password, mechanism="SCRAM-SHA-512")
    return made


@pytest.fixture
def served(
    scene: Scenario, release: Release, image: str, login: Login, kafka: KafkaLab
) -> Iterator[None]:
    """The operator serves delay queues of the scenario's namespace, whose policy has a login."""
    offered = {"enabled": "true", "image": image, "namespaces": f"{{{scene.namespace}}}"}
    values: dict[str, Any] = {f"delayQueues.{name}": value for name, value in offered.items()}
    release.upgrade(**values)
    scene.credentials(SECRET, login.literals())
    scene.credentials("orders", {"password": kafka.password("orders")})
    declared = policy(kafka)
    declared["spec"]["kafka"] |= {
        "bootstrapServers": kafka.sasl_bootstrap_servers,
        "authentication": {
            "type": "plain",
            "username": "orders",
            "passwordSecret": {"secretName": "orders", "password": "password"},
        },
    }
    scene.declare(declared)
    yield
    # where the scenario failed, nothing may hold its namespace
    for left in scene.kubectl("get", "dq", "-o", "name").split():
        scene.kubectl("patch", left, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        scene.delete(left)
    scene.delete("bbp/orders")
    release.upgrade()


@pytest.fixture
def loose(served: None, scene: Scenario, kafka: KafkaLab) -> Iterator[Queue]:
    yield from opened(Queue(scene, kafka, "loose", "AtLeastOnce"))


@pytest.fixture
def strict(served: None, scene: Scenario, kafka: KafkaLab) -> Iterator[Queue]:
    yield from opened(Queue(scene, kafka, "strict", "ExactlyOnce"))


def opened(queue: Queue) -> Iterator[Queue]:
    """The queue; its topics are deleted in the end."""
    yield queue
    for topic in queue.topics():
        queue.kafka.admin.delete_topic(f"{queue.prefix}.{topic}")
    queue.kafka.admin.delete_topic(queue.traffic.target)


@pytest.mark.timeout(1200)
def test_messages_arrive_when_due_whatever_happens_to_forwarders_delays_and_queues(
    loose: Queue, strict: Queue, kubernetes: Cluster, release: Release, login: Login
) -> None:
    starts_with_a_login_of_its_own(loose, strict)
    survives_the_death_of_a_forwarder(loose, strict)

    refuses_a_target(strict)
    for level in LEVELS:
        strict.traffic.write(f"{strict.prefix}.{level}", 20)
    strict.scene.kubectl("delete", f"dq/{strict.name}", "--wait=false")
    changes_its_delays(loose)
    is_drained_and_gone(strict)
    has_lost_the_delay(loose)
    logs = release.logs() + loose.scene.kubectl(
        "logs", "-l", f"tidegate.io/queue={loose.name}", "--tail=-1"
    )
    is_kept_and_gone(loose)

    assert not login.lines_that_tell(logs)
    if isinstance(kubernetes, KindLab):
        uses_every_right(kubernetes, loose.scene.namespace)


def starts_with_a_login_of_its_own(*queues: Queue) -> None:
    """A queue without a login is refused on this cluster; with one it gets topics and Pods."""
    queues[0].declare(with_login=False)
    queues[0].waits_for("Stalled", "True", "LoginMissing")
    assert queues[0].topics() == set()
    assert queues[0].objects() == []
    for queue in queues:
        queue.declare()
    for queue in queues:
        queue.waits_for("Ready", "True", "Forwarding")
        queue.waits_for("Stalled", "False", "Forwarding")
        assert queue.topics() == {*LEVELS, "dead", "control"}
        for level in LEVELS:
            kept_ms = (int(level.split(".")[0]) + GRACE_SECONDS) * 1000
            assert queue.settings(level) == {**OF_LEVELS, "retention.ms": str(kept_ms)}
        assert queue.settings("control")["cleanup.policy"] == "compact"
        deployment = queue.scene.read(f"deployment/{queue.name}-forwarders")
        assert deployment["spec"]["replicas"] == 2
        budget = queue.scene.read(f"pdb/{queue.name}-forwarders")
        assert budget["spec"]["maxUnavailable"] == 1


def survives_the_death_of_a_forwarder(*queues: Queue) -> None:
    """Every level topic of a killed Pod gets another forwarder while records flow."""
    with ExitStack() as flows:
        for queue in queues:
            topics = [f"{queue.prefix}.{level}" for level in LEVELS]
            flows.enter_context(queue.traffic.flowing(topics))
        for queue in queues:
            wait_until(
                partial(is_shared, queue),
                f"two forwarders of {queue.name}",
                timeout_seconds=LOOK_SECONDS,
                poll_seconds=1.0,
            )
        for queue in queues:
            queue.traffic.wait_for_all(timeout_seconds=60)
        killed = {queue.name: kill_one(queue) for queue in queues}
        for queue in queues:
            wait_until(
                partial(others_forward, queue, killed[queue.name]),
                f"other forwarders than {killed[queue.name]}",
                timeout_seconds=90,
                poll_seconds=1.0,
            )
    for queue in queues:
        queue.traffic.wait_for_all(timeout_seconds=90)
        queue.traffic.judge(exactly_once=queue.guarantee == "ExactlyOnce")
        queue.waits_for("Ready", "True", "Forwarding")
        queue.waits_for("RecordsLost", "False", "Forwarding")


def is_shared(queue: Queue) -> bool:
    return sorted(queue.shared().values()) == [1, 2]


def kill_one(queue: Queue) -> str:
    """The Pod that was killed: the one that had more topics."""
    shared = queue.shared()
    pod = max(shared, key=lambda name: shared[name])
    assert pod in queue.pods()
    queue.scene.kubectl("delete", "pod", pod, "--grace-period=0", "--force")
    return pod


def others_forward(queue: Queue, killed: str) -> bool:
    """Whether all three topics are forwarded, none of them by the killed Pod."""
    found = queue.status().get("forwarders") or ()
    return sum(one["topics"] for one in found) == 3 and not any(
        one["name"].startswith(killed) for one in found
    )


def refuses_a_target(queue: Queue) -> None:
    queue.waits_for("DeadLetters", "False", "Forwarding")
    queue.traffic.write_elsewhere(queue.traffic.level(5), "somebody-elses")
    message = queue.waits_for("DeadLetters", "True", "DeadLetters")
    assert message.startswith("At most 2 messages")  # the end of its transaction counts as well


def changes_its_delays(queue: Queue) -> None:
    """A delay goes while messages wait in it, and another one comes."""
    leaving = queue.traffic.level(10)
    queue.traffic.write(leaving, 20)
    queue.scene.edit(f"dq/{queue.name}", {"delays": levels({5: 2, 2: 1})})
    wait_until(lambda: "2.0" in queue.topics(), "the new topic", timeout_seconds=LOOK_SECONDS)
    assert "10.0" in queue.topics()
    for seconds in (2, 5):
        queue.traffic.write(queue.traffic.level(seconds), 20)
    message = queue.waits_for("Ready", "True", "Forwarding")
    assert "1 topic of removed delays" in message
    queue.traffic.wait_for_all(timeout_seconds=90)


def has_lost_the_delay(queue: Queue) -> None:
    wait_until(
        lambda: queue.topics() == {"5.0", "5.1", "2.0", "dead", "control"},
        "the topic of the delay that was taken away to go",
        timeout_seconds=QUIET_SECONDS,
    )
    queue.traffic.judge(exactly_once=False)
    wait_until(
        lambda: [one["seconds"] for one in queue.status()["delays"]] == [2, 5],
        "the delays in the status",
        timeout_seconds=LOOK_SECONDS,
    )


def is_drained_and_gone(queue: Queue) -> None:
    """The object goes after its last message; only what was refused is left."""
    assert "drained first" in queue.waits_for("Ready", "False", "Draining")
    wait_until(queue.is_gone, f"{queue.name} to be let go", timeout_seconds=QUIET_SECONDS)
    queue.traffic.judge(exactly_once=True)
    assert queue.objects() == []
    wait_until(
        lambda: queue.topics() == {"dead"}, "only what was refused", timeout_seconds=LOOK_SECONDS
    )


def is_kept_and_gone(queue: Queue) -> None:
    """With Keep, the queue goes without its topics."""
    queue.scene.edit(f"dq/{queue.name}", {"deletionPolicy": "Keep"})
    queue.scene.delete(f"dq/{queue.name}")
    assert queue.objects() == []
    assert queue.topics() == {"5.0", "5.1", "2.0", "dead", "control"}


def uses_every_right(kind: KindLab, namespace: str) -> None:
    """What the chart grants for delay queues is enough, and none of it is too much."""
    roles = [
        json.loads(kind.kubectl("get", *role, "-o", "json"))
        for role in (
            ("clusterrole", "tidegate-delay-queues"),
            ("role", "tidegate-forwarders", f"--namespace={namespace}"),
        )
    ]
    for_queues = {right for role in roles for right in granted(role)}
    resources = {resource for _, resource, _ in for_queues}
    calls = [call for call in calls_of_operator(kind) if asked(call)[1] in resources]
    assert [asked(call) for call in calls if was_refused(call)] == []
    assert for_queues - {asked(call) for call in calls} - NOT_SEEN == set()
