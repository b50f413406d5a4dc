"""DelayQueues on a real Kafka, with ZooKeeper and without, and a real Kubernetes API.

There are no Pods: a test commits positions as forwarders do, and says which are available. Most
tests look once at a time, as the thread of a policy does; the last ones run the operator as a
process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import ApiClient, AppsV1Api, CoreV1Api, CustomObjectsApi

from lab.kafka import BrokersLab, KafkaLab
from lab.kubernetes.api import KubeApi
from lab.process import start, started, wait_until
from tests.integration.conftest import CHECKOUT
from tests.integration.connections import connection_of
from tests.integration.kafka.queue_clients import QueueClients
from tests.integration.operator.operator_process import OperatorProcess
from tidegate.control.queues.forwarders import ForwarderKeeper
from tidegate.control.queues.keeper import QueueKeeper
from tidegate.control.queues.report import (
    DRAIN_FINALIZER,
    QueueFinding,
    QueueTask,
    status_of,
    verdicts_of,
)
from tidegate.errors import LeaseLost
from tidegate.forwarder.zookeeper_members import ZooKeeperMembers
from tidegate.kafka.delay_queues import QueueTopics
from tidegate.kafka.settings import ZooKeeperConnection
from tidegate.kafka.zookeeper.session import ZooKeeperSession
from tidegate.kube.api import (
    BROKER_BANDWIDTH_POLICIES,
    DELAY_QUEUES,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    JsonObject,
)
from tidegate.kube.client import KubernetesClient
from tidegate.observe.declared import policy_from
from tidegate.observe.namespaces import labels_now
from tidegate.queues.names import QueueNames
from tidegate.queues.pace import PACE_KEY, parse_pace
from tidegate.queues.position import PositionNote
from tidegate.resources.kinds import parse_policy
from tidegate.settings import UNBOUNDED, ForwarderOffer
from tidegate_logic.queues.shift import Pace, Shift
from tidegate_logic.reasons import Reason

pytestmark = pytest.mark.integration
IMAGE = "tidegate-forwarder:0.1.0"
QUIET_SECONDS = 60.0


@dataclass
class World:
    """A namespace with queues of one policy, and clients of its Kafka. `now` is set by the test."""

    api_client: ApiClient
    namespace: str
    bootstrap_servers: str
    holds_lease: bool = True
    now: float = 1000.0
    policy: dict[str, Any] = field(default_factory=dict)
    keepers: list[QueueKeeper] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kubernetes = KubernetesClient(self.api_client, "test")
        self.clients = QueueClients(self.bootstrap_servers)
        self.policy = {
            "apiVersion": "tidegate.io/v1alpha1",
            "kind": "BrokerBandwidthPolicy",
            "metadata": {"name": "orders", "namespace": self.namespace, "uid": "policy"},
            "spec": {"mode": "Enforce", "kafka": {"bootstrapServers": self.bootstrap_servers}},
        }
        self.keeper = self.new_keeper()

    def new_keeper(self) -> QueueKeeper:
        """The keeper of another process, which remembers nothing."""
        offer = ForwarderOffer(image=IMAGE, pull_secrets=("registry",))
        forwarders = ForwarderKeeper(
            self.kubernetes,
            offer,
            bounds=UNBOUNDED,
            may_write=lambda: self.holds_lease,
            wall=lambda: self.now,
        )
        keeper = QueueKeeper(
            f"{self.namespace}/orders",
            kubernetes=self.kubernetes,
            forwarders=forwarders,
            labels=labels_now(self.kubernetes),
            may_write=lambda: self.holds_lease,
            monotonic=lambda: self.now,
            bounds=UNBOUNDED,
            changed=lambda _: None,
            quiet_seconds=QUIET_SECONDS,
        )
        self.keepers.append(keeper)
        return keeper

    # --- queues -----------------------------------------------------------------------------------

    def create(self, name: str = "unpaid", **spec: Any) -> QueueNames:
        """Create a queue, by default one with a topic of 5 s and one of 600 s."""
        namespace = spec.pop("namespace", self.namespace)
        wanted = {
            "policyRef": {"name": "orders", "namespace": self.namespace},
            "guarantee": "AtLeastOnce",
            "delays": [{"seconds": 5}, {"seconds": 600}],
            "target": {"allowed": ["orders.*"], "default": "orders.due"},
            "topics": {"replicationFactor": 1},
            **spec,
        }
        body = {
            "apiVersion": DELAY_QUEUES.api_version,
            "kind": DELAY_QUEUES.kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": wanted,
        }
        self.kubernetes.create(DELAY_QUEUES, body)
        return QueueNames(spec.get("topicPrefix", f"{namespace}.{name}"))

    def edit(self, name: str = "unpaid", **spec: Any) -> None:
        self._objects.patch_namespaced_custom_object(*self._address(name), {"spec": spec})

    def delete(self, name: str = "unpaid") -> None:
        self._objects.delete_namespaced_custom_object(*self._address(name))

    def raw(self, name: str = "unpaid") -> JsonObject | None:
        found = self.kubernetes.list_all(DELAY_QUEUES, [self.namespace])
        return next((one for one in found if one["metadata"]["name"] == name), None)

    def queues(self) -> tuple[JsonObject, ...]:
        """Every queue of this policy, wherever it lives."""
        reference = {"name": "orders", "namespace": self.namespace}
        listed = self.kubernetes.list_all(DELAY_QUEUES)
        return tuple(one for one in listed if one["spec"]["policyRef"] == reference)

    @property
    def _objects(self) -> CustomObjectsApi:
        return CustomObjectsApi(self.api_client)

    def _address(self, name: str) -> tuple[str, str, str, str, str]:
        return "tidegate.io", "v1alpha1", self.namespace, "delayqueues", name

    # --- looks ------------------------------------------------------------------------------------

    crowded: frozenset[int] | None = frozenset()

    def look(self, keeper: QueueKeeper | None = None) -> dict[str, QueueFinding]:
        """One look at all queues; what it found, by `namespace/name`."""
        spec = parse_policy(self.policy, strict=True).spec
        task = QueueTask(policy_from(self.policy, spec), spec, self.queues(), self.crowded)
        found = (keeper or self.keeper).look(task)
        return {_key(one.raw): one for one in found}

    def finding(self, name: str = "unpaid") -> QueueFinding:
        return self.look()[f"{self.namespace}/{name}"]

    def settle(self, name: str = "unpaid") -> QueueFinding:
        """Look until there is nothing to do; the last finding."""

        found = self.finding(name)

        def is_settled() -> bool:
            nonlocal found
            found = self.finding(name)
            decision = found.decision
            return decision is not None and not (
                decision.create or decision.corrections or decision.unknown
            )

        wait_until(is_settled, f"queue {name} to settle", timeout_seconds=60)
        return found

    def look_until_gone(self, name: str = "unpaid", *, every_seconds: float = 61.0) -> None:
        def is_gone() -> bool:
            self.now += every_seconds
            self.look()
            return self.raw(name) is None

        wait_until(is_gone, f"queue {name} to be gone", timeout_seconds=60)

    def announced(self, names: QueueNames) -> list[Pace | None]:
        """What was written for forwarders about waiting, oldest first."""
        values = self.clients.values(names.control_topic, PACE_KEY)
        return [parse_pace(value) for value in values]

    # --- Kafka and Pods ---------------------------------------------------------------------------

    def forward(self, names: QueueNames, topic: str, upto: int, **note: Any) -> None:
        """Commit a position as the forwarder pod-0 does."""
        fields: dict[str, Any] = {"owner": "pod-0", **note}
        self.clients.commit(names, topic, upto, PositionNote(**fields))

    def make_available(self, name: str = "unpaid", count: int = 2) -> None:
        """Say of its Pods that they are ready, as kubelets do."""
        core = CoreV1Api(self.api_client)
        selector = f"tidegate.io/queue={name}"

        def pods() -> list[Any]:
            return list(core.list_namespaced_pod(self.namespace, label_selector=selector).items)

        wait_until(lambda: len(pods()) == count, "the Deployment's Pods", timeout_seconds=60)
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        status = {"status": {"phase": "Running", "conditions": [ready]}}
        for pod in pods():
            core.patch_namespaced_pod_status(pod.metadata.name, self.namespace, status)
        wait_until(
            lambda: (
                ((self.deployment(name) or {}).get("status") or {}).get("availableReplicas")
                == count
            ),
            "the Deployment to be available",
            timeout_seconds=60,
        )

    def deployment(self, name: str = "unpaid") -> JsonObject | None:
        return self.kubernetes.read_managed(DEPLOYMENTS, self.namespace, f"{name}-forwarders")


def _key(raw: Mapping[str, Any]) -> str:
    return f"{raw['metadata']['namespace']}/{raw['metadata']['name']}"


def condition(finding: QueueFinding, kind: str = "Ready") -> tuple[str, Reason]:
    verdict = next(one for one in verdicts_of(finding) if one.type == kind)
    return verdict.status.value, verdict.reason


def message(finding: QueueFinding, kind: str = "Ready") -> str:
    return next(one.message for one in verdicts_of(finding) if one.type == kind)


class Queues:
    @pytest.fixture
    def brokers(self) -> BrokersLab:
        raise NotImplementedError

    @pytest.fixture
    def world(
        self, crds: KubeApi, api_client: ApiClient, namespace: str, brokers: BrokersLab
    ) -> Iterator[World]:
        world = World(api_client, namespace, brokers.bootstrap_servers)
        yield world
        for keeper in world.keepers:
            keeper.close()

    def test_a_queue_gets_topics_forwarders_and_a_status(self, world: World) -> None:
        names = world.create()
        found = world.settle()
        assert condition(found) == ("False", Reason.STARTING)
        topics = {f"{names.prefix}.{rest}" for rest in ("5.0", "600.0", "dead", "control")}
        assert world.clients.topics(names.prefix) == topics
        settings = world.clients.settings(f"{names.prefix}.600.0")
        assert settings["message.timestamp.type"] == "LogAppendTime"
        assert settings["retention.ms"] == "87000000"
        settings = world.clients.settings(names.control_topic)
        assert settings["message.timestamp.type"] == "LogAppendTime"
        raw, deployment = world.raw(), world.deployment()
        assert raw is not None
        assert deployment is not None
        assert raw["metadata"]["finalizers"] == [DRAIN_FINALIZER]
        assert deployment["metadata"]["ownerReferences"][0]["uid"] == raw["metadata"]["uid"]
        pod = deployment["spec"]["template"]["spec"]
        assert pod["containers"][0]["image"] == IMAGE
        assert f"--prefix={names.prefix}" in pod["containers"][0]["args"]
        assert pod["automountServiceAccountToken"] is False
        assert world.kubernetes.read_managed(
            DISRUPTION_BUDGETS, world.namespace, "unpaid-forwarders"
        )
        world.make_available()
        world.clients.produce(f"{names.prefix}.5.0", 3)
        world.forward(names, f"{names.prefix}.5.0", 1)
        found = world.finding()
        assert condition(found) == ("True", Reason.FORWARDING)
        status = status_of(found).as_document()
        assert status["topicPrefix"] == names.prefix
        assert [(one["seconds"], one["waiting"]) for one in status["delays"]] == [(5, 2), (600, 0)]
        assert status["forwarders"] == [{"name": "pod-0", "topics": 1}]
        assert (status["dead"], status["summary"]["waiting"]) == (0, 2)

    def test_cancellations_are_kept_as_long_as_the_messages(self, world: World) -> None:
        names = world.create(cancellable=True)
        world.settle()
        settings = world.clients.settings(names.cancelled_topic)
        assert settings["cleanup.policy"] in ("compact,delete", "delete,compact")
        assert settings["retention.ms"] == "87000000"
        world.edit(delays=[{"seconds": 5}, {"seconds": 7200}])
        world.settle()
        world.look(world.new_keeper())
        settings = world.clients.settings(names.cancelled_topic)
        assert settings["retention.ms"] == str((7200 + 86_400) * 1000)
        world.edit(deletionPolicy="Drain")
        world.delete()
        world.look_until_gone()
        assert world.clients.topics(names.prefix) == set()

    def test_forwarders_hear_to_wait_while_brokers_have_no_room(self, world: World) -> None:
        world.policy["spec"] |= {
            "metrics": {"prometheus": {"url": "http://prometheus:9090"}, "preset": "NodeExporter"},
            "brokers": {"egress": {"limit": "50M"}},
        }
        names = world.create(shift={"latestSeconds": 3600, "rate": "20M"})
        assert condition(world.settle(), "Held") == ("False", Reason.FORWARDING)
        assert world.announced(names) == []
        world.crowded = frozenset({3, 1})
        assert condition(world.finding(), "Held") == ("True", Reason.BROKERS_OVER_LIMIT)
        held = Pace(Shift(3600, 20_000_000), frozenset({1, 3}))
        assert world.announced(names) == [held]
        world.finding()
        world.look(world.new_keeper())  # it knows what was said, and not when
        assert world.announced(names) == [held, held]
        world.now += 30.0
        world.finding()
        assert world.announced(names) == [held, held, held]  # or forwarders would forget it
        world.crowded, world.now = None, world.now + 30.0
        world.finding()  # nothing is known: nothing new is said, and it is not said again
        world.holds_lease = False
        world.crowded = frozenset()
        with suppress(LeaseLost):
            world.finding()
        assert world.announced(names) == [held, held, held]
        world.holds_lease = True
        assert condition(world.finding(), "Held") == ("False", Reason.FORWARDING)
        assert world.announced(names) == [held, held, held, None]

    def test_a_policy_without_an_egress_limit_has_nobody_wait(self, world: World) -> None:
        names = world.create(shift={"latestSeconds": 3600, "rate": "20M"})
        world.crowded = frozenset({1})
        assert condition(world.settle(), "Held") == ("False", Reason.SHIFT_CANNOT_HELP)
        assert world.announced(names) == []

    def test_messages_a_second_are_counted_between_looks(self, world: World) -> None:
        names = world.create()
        topic = f"{names.prefix}.5.0"
        world.settle()
        world.clients.produce(topic, 30)
        world.forward(names, topic, 10)
        world.look()
        world.now += 10.0
        world.forward(names, topic, 30)
        delays = status_of(world.finding()).as_document()["delays"]
        assert [one.get("perSecond") for one in delays] == [2, None]

    def test_a_queue_that_grows_gets_topics_and_one_that_shrinks_drains_first(
        self, world: World
    ) -> None:
        names = world.create()
        world.settle()
        world.edit(delays=[{"seconds": 5, "topics": 2}, {"seconds": 60}])
        world.clients.produce(f"{names.prefix}.600.0", 2)
        found = world.settle()
        assert found.decision is not None
        assert len(found.decision.draining) == 1
        expected = {f"{names.prefix}.{rest}" for rest in ("5.0", "5.1", "60.0", "600.0")}
        assert expected <= world.clients.topics(names.prefix)
        world.now += 600.0
        world.look()
        assert f"{names.prefix}.600.0" in world.clients.topics(names.prefix)
        world.forward(names, f"{names.prefix}.600.0", 2)
        world.look()
        assert f"{names.prefix}.600.0" in world.clients.topics(names.prefix)
        world.now += QUIET_SECONDS
        world.look()
        wait_until(
            lambda: f"{names.prefix}.600.0" not in world.clients.topics(names.prefix),
            "the drained topic's end",
            timeout_seconds=30,
        )
        assert expected - {f"{names.prefix}.600.0"} <= world.clients.topics(names.prefix)

    def test_settings_are_corrected_and_a_shorter_retention_waits_for_what_waits(
        self, world: World
    ) -> None:
        names = world.create()
        topic = f"{names.prefix}.5.0"
        world.settle()
        world.clients.produce(topic, 1)
        world.clients.set(topic, "message.timestamp.type", "CreateTime")
        world.forward(names, topic, 0)
        world.settle()
        assert world.clients.settings(topic)["message.timestamp.type"] == "LogAppendTime"
        world.edit(topics={"graceSeconds": 60})
        found = world.finding()
        assert found.decision is not None
        assert [level.seconds for level in found.decision.corrections] == [600]
        world.forward(names, topic, 1)
        world.settle()
        assert world.clients.settings(topic)["retention.ms"] == "65000"

    def test_a_topic_of_somebody_else_is_left_alone_and_an_empty_one_is_adopted(
        self, world: World, brokers: BrokersLab
    ) -> None:
        names = QueueNames(f"{world.namespace}.unpaid")
        taken, empty = f"{names.prefix}.5.0", f"{names.prefix}.600.0"
        first = brokers.brokers[0].broker_id
        for topic in (taken, empty):
            brokers.create_topic(topic, assignment=[[first]])
        world.clients.produce(taken, 1)
        world.create()
        found = world.settle()
        assert condition(found) == ("False", Reason.TOPIC_TAKEN)
        assert taken in message(found)
        assert "message.timestamp.type" not in world.clients.settings(taken)
        assert world.clients.settings(empty)["message.timestamp.type"] == "LogAppendTime"

    def test_of_two_queues_on_one_prefix_the_older_works_and_the_other_says_so(
        self, world: World
    ) -> None:
        prefix = f"shop.{world.namespace}"
        names = world.create("older", topicPrefix=prefix)
        world.settle("older")
        world.create("younger", topicPrefix=prefix, delays=[{"seconds": 7}])
        found = world.finding("younger")
        assert condition(found) == ("False", Reason.PREFIX_TAKEN)
        assert f"{world.namespace}/older" in message(found)
        assert world.deployment("younger") is None
        assert f"{prefix}.7.0" not in world.clients.topics(prefix)
        world.delete("younger")
        world.look_until_gone("younger")
        assert world.finding("older").trouble is None
        world.create("younger", topicPrefix=prefix, delays=[{"seconds": 7}])
        world.look()
        world.delete("older")
        world.look_until_gone("older")
        world.settle("younger")
        wait_until(
            lambda: world.clients.topics(prefix) >= {f"{prefix}.7.0", names.control_topic},
            "the other queue's topic",
            timeout_seconds=30,
        )

    def test_queues_of_one_name_in_two_namespaces_do_not_meet(
        self, world: World, unique_name: str
    ) -> None:
        other = f"{unique_name}-other"
        CoreV1Api(world.api_client).create_namespace(
            {"metadata": {"name": other, "labels": {"team": world.namespace}}}
        )
        try:
            here, there = world.create(), world.create(namespace=other)
            found = world.look()[f"{other}/unpaid"]
            assert condition(found) == ("False", Reason.QUEUE_NOT_ALLOWED)
            assert world.clients.topics(there.prefix) == set()
            world.policy["spec"]["allowedTiers"] = {
                "namespaces": "Selector",
                "selector": {"matchLabels": {"team": world.namespace}},
            }
            world.keeper = world.new_keeper()
            world.settle()
            wait_until(
                lambda: (
                    world.look()[f"{other}/unpaid"].trouble is None
                    and f"{there.prefix}.5.0" in world.clients.topics(there.prefix)
                ),
                "the other namespace's queue",
                timeout_seconds=30,
            )
            assert f"{here.prefix}.5.0" in world.clients.topics(here.prefix)
        finally:
            CoreV1Api(world.api_client).delete_namespace(other)

    def test_the_deployments_command_line_starts_a_forwarder_that_drains_the_queue(
        self, world: World, brokers: BrokersLab, tmp_path: Path
    ) -> None:
        target, first = f"orders.{world.namespace}", brokers.brokers[0].broker_id
        brokers.create_topic(target, assignment=[[first]])
        names = world.create(
            delays=[{"seconds": 1, "topics": 2}],
            target={"allowed": ["orders.*"], "default": target},
        )
        world.settle()
        deployment = world.deployment()
        assert deployment is not None
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        arguments = [
            one.replace("$(POD_NAME)", "pod-0").replace("=8080", "=0") for one in container["args"]
        ]
        for number in range(2):
            world.clients.produce(f"{names.prefix}.1.{number}", 5)
        forwarder = start(
            "forwarder",
            [sys.executable, "-m", "tidegate", *arguments],
            log_path=tmp_path / "forwarder.log",
            niceness=0,
        )
        try:
            wait_until(
                lambda: world.finding().waiting == 0,
                "every message to be forwarded",
                timeout_seconds=90,
                processes=[forwarder],
            )
            status = status_of(world.finding())
            assert [one.topics for one in status.forwarders or ()] == [2]
            assert (status.forwarders or ())[0].name.startswith("pod-0")
            assert verdicts_of(world.finding())[1].status.value == "False"
            world.delete()
            world.look_until_gone()
            assert world.deployment() is None
        finally:
            forwarder.kill()
        with closing(plain_topics(brokers)) as topics:
            assert topics.count(target, topics.listing()) == 10

    def test_drain_waits_for_the_last_message_and_leaves_nothing(self, world: World) -> None:
        names = world.create()
        topic = f"{names.prefix}.5.0"
        world.settle()
        world.clients.produce(topic, 2)
        world.delete()
        world.now += 1000.0
        found = world.finding()
        assert condition(found) == ("False", Reason.DRAINING)
        assert world.deployment() is not None
        world.now += 1000.0
        world.look()
        assert world.raw() is not None
        assert topic in world.clients.topics(names.prefix)
        world.forward(names, topic, 2)
        world.look_until_gone()
        assert world.deployment() is None
        wait_until(
            lambda: world.clients.topics(names.prefix) == set(),
            "every topic's end",
            timeout_seconds=30,
        )

    def test_a_drain_by_a_process_that_was_restarted_ends_too(self, world: World) -> None:
        names = world.create()
        world.settle()
        world.delete()
        world.look()
        world.keeper = world.new_keeper()
        world.look_until_gone()
        wait_until(
            lambda: world.clients.topics(names.prefix) == set(),
            "every topic's end",
            timeout_seconds=30,
        )

    def test_dead_messages_outlive_a_drained_queue(self, world: World) -> None:
        names = world.create()
        world.settle()
        world.clients.produce(names.dead_topic, 3)
        found = world.finding()
        assert condition(found, "DeadLetters") == ("True", Reason.DEAD_LETTERS)
        assert "3 messages" in message(found, "DeadLetters")
        world.delete()
        world.look_until_gone()
        wait_until(
            lambda: world.clients.topics(names.prefix) == {names.dead_topic},
            "only the dead topic",
            timeout_seconds=30,
        )

    def test_keep_leaves_topics_and_messages_to_the_next_queue_of_the_prefix(
        self, world: World
    ) -> None:
        names = world.create(deletionPolicy="Keep")
        topic = f"{names.prefix}.5.0"
        world.settle()
        world.clients.produce(topic, 2)
        before = world.clients.topics(names.prefix)
        world.delete()
        world.look_until_gone(every_seconds=0.0)
        assert world.clients.topics(names.prefix) == before
        assert world.deployment() is None
        world.create()
        found = world.settle()
        assert found.trouble is None
        assert found.waiting == 2

    def test_lost_messages_wrong_clocks_and_errors_are_seen(self, world: World) -> None:
        names = world.create()
        topic = f"{names.prefix}.5.0"
        world.settle()
        world.make_available()
        world.clients.produce(topic, 5)
        world.forward(names, topic, 1, lost=2, clock_ms=-80)
        world.clients.delete_records(topic, 3)
        wait_until(
            lambda: "4 messages" in message(world.finding(), "RecordsLost"),
            "the lost messages",
            timeout_seconds=30,
        )
        found = world.finding()
        assert condition(found, "RecordsLost") == ("True", Reason.RECORDS_LOST)
        assert condition(found, "ClockWrong") == ("True", Reason.CLOCK_WRONG)
        assert condition(found) == ("True", Reason.FORWARDING)
        world.forward(names, topic, 3, error="the target refuses it")
        found = world.finding()
        assert condition(found) == ("False", Reason.FORWARDING_FAILS)
        assert "the target refuses it" in message(found)
        world.clients.commit(names, topic, 3, '{"v":2}')
        assert condition(world.finding()) == ("False", Reason.NEWER_VERSION)

    def test_a_queue_without_a_login_starts_nothing_where_the_policy_has_one(
        self, world: World, brokers: BrokersLab
    ) -> None:
        authentication = {
            "type": "scram-sha-512",
            "username": "operator",
            "passwordSecret": {"secretName": "operator", "password": "password"},
        }
        secret = {
            "metadata": {"name": "operator", "labels": {"tidegate.io/credentials": "true"}},
            "stringData": {"password": "secret"},
        }
        CoreV1Api(world.api_client).create_namespaced_secret(world.namespace, secret)
        kafka = world.policy["spec"]["kafka"]
        names = world.create()
        # the lab's plain listener wants no login, and takes none: only the rule is looked at
        kafka["authentication"] = authentication
        keeper = world.new_keeper()
        keeper._open_topics = lambda _: plain_topics(brokers)
        found = world.look(keeper)[f"{world.namespace}/unpaid"]
        assert condition(found) == ("False", Reason.LOGIN_MISSING)
        assert world.clients.topics(names.prefix) == set()
        assert world.deployment() is None
        world.edit(authentication={**authentication, "username": "forwarder"})
        found = world.look(keeper)[f"{world.namespace}/unpaid"]
        assert found.trouble is None
        deployment = world.deployment()
        assert deployment is not None
        pod = deployment["spec"]["template"]["spec"]
        assert "--client-username=forwarder" in pod["containers"][0]["args"]
        assert "secret" not in json.dumps(pod["containers"][0]["args"])
        (volume,) = (one for one in pod["volumes"] if one["name"] == "login")
        assert volume["projected"]["sources"] == [
            {
                "secret": {
                    "name": "operator",
                    "items": [{"key": "password", "path": "password"}],
                }
            }
        ]

    def test_nothing_is_made_on_another_cluster_than_the_policy_names(self, world: World) -> None:
        names = world.create()
        world.policy["spec"]["kafka"]["clusterId"] = "another"
        assert condition(world.finding()) == ("False", Reason.WRONG_CLUSTER)
        assert world.clients.topics(names.prefix) == set()

    def test_a_deployment_of_somebody_else_is_left_alone(self, world: World) -> None:
        labels = {"app": "other"}
        container = {"name": "other", "image": "other:1"}
        other = {
            "metadata": {"name": "unpaid-forwarders"},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        }
        AppsV1Api(world.api_client).create_namespaced_deployment(world.namespace, other)
        world.create()
        found = world.settle()
        assert condition(found) == ("False", Reason.DEPLOYMENT_TAKEN)
        deployment = world.deployment()
        assert deployment is not None
        assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "other:1"
        world.delete()
        world.look_until_gone()
        assert world.deployment() is not None

    def test_a_deployment_that_somebody_edits_or_deletes_is_made_again(self, world: World) -> None:
        world.create()
        world.settle()
        apps = AppsV1Api(world.api_client)
        apps.patch_namespaced_deployment(
            "unpaid-forwarders", world.namespace, {"spec": {"replicas": 7}}
        )
        world.look()
        deployment = world.deployment()
        assert deployment is not None
        assert deployment["spec"]["replicas"] == 2
        apps.delete_namespaced_deployment("unpaid-forwarders", world.namespace)
        wait_until(lambda: world.deployment() is None, "its end", timeout_seconds=30)
        world.look()
        assert world.deployment() is not None
        world.edit(forwarders={"replicas": 3})
        world.look()
        deployment = world.deployment()
        assert deployment is not None
        assert deployment["spec"]["replicas"] == 3

    def test_nothing_is_written_while_the_policy_observes_or_the_lease_is_lost(
        self, world: World
    ) -> None:
        names = world.create()
        world.policy["spec"]["mode"] = "Observe"
        found = world.finding()
        assert condition(found) == ("False", Reason.OBSERVING)
        assert world.clients.topics(names.prefix) == set()
        assert world.deployment() is None
        world.policy["spec"]["mode"] = "Enforce"
        world.settle()
        raw, deployment = world.raw(), world.deployment()
        topics = world.clients.topics(names.prefix)
        world.holds_lease = False
        world.edit(delays=[{"seconds": 7}], forwarders={"replicas": 5})
        world.delete()
        for _ in range(3):
            world.now += 1000.0
            with suppress(LeaseLost):
                world.look()
        assert world.clients.topics(names.prefix) == topics
        after = world.deployment()
        assert after is not None
        assert deployment is not None
        assert after["metadata"]["uid"] == deployment["metadata"]["uid"]
        assert after["spec"] == deployment["spec"]
        left = world.raw()
        assert left is not None
        assert raw is not None
        assert left["metadata"]["finalizers"] == raw["metadata"]["finalizers"]
        world.holds_lease = True
        world.look_until_gone()


def plain_topics(brokers: BrokersLab) -> QueueTopics:
    return QueueTopics(connection_of(brokers.bootstrap_servers))


class TestWithZooKeeper(Queues):
    @pytest.fixture
    def brokers(self, kafka: KafkaLab) -> KafkaLab:
        return kafka

    def test_what_forwarders_leave_in_zookeeper_goes_with_the_last_queue_of_the_prefix(
        self, world: World, kafka: KafkaLab
    ) -> None:
        world.policy["spec"]["kafka"] |= {
            "quotaStore": "ZooKeeper",
            "zookeeper": {"connect": kafka.zookeeper_connect},
        }
        names = world.create(deletionPolicy="Keep")
        world.settle()
        connection = ZooKeeperConnection(kafka.zookeeper_connect)
        with closing(ZooKeeperMembers(connection, names.prefix, "pod-0")) as member:
            member.topics([f"{names.prefix}.5.0"])
            wait_until(member.wanted, "its topic", timeout_seconds=30)
        with closing(ZooKeeperSession(connection)) as tree:
            assignment = f"{names.zookeeper_root}/assignment"
            assert tree.read([assignment]) != [None]
            # a queue that came too late for the prefix leaves the nodes to the one that has it
            world.create("late", topicPrefix=names.prefix)
            world.look()
            world.delete("late")
            world.look_until_gone("late", every_seconds=0.0)
            assert tree.read([assignment]) != [None]
            world.delete()
            world.look_until_gone(every_seconds=0.0)
            assert tree.read([names.zookeeper_root]) == [None]


class TestWithKraft(Queues):
    @pytest.fixture
    def brokers(self, kraft: BrokersLab) -> BrokersLab:
        return kraft


# --- the whole path -------------------------------------------------------------------------------


def test_a_process_that_is_killed_is_followed_by_one_that_goes_on(
    crds: KubeApi, api_client: ApiClient, namespace: str, kraft: BrokersLab, tmp_path: Path
) -> None:
    world = World(api_client, namespace, kraft.bootstrap_servers)
    policy = {**world.policy, "metadata": {"name": "orders", "namespace": namespace}}
    policy["spec"] = {
        "mode": "Enforce",
        "kafka": {
            "bootstrapServers": kraft.bootstrap_servers,
            "ledgerTopic": f"ledger-{namespace}",
        },
    }
    world.kubernetes.create(BROKER_BANDWIDTH_POLICIES, policy)
    names = world.create()

    def ready() -> tuple[str, str]:
        conditions = ((world.raw() or {}).get("status") or {}).get("conditions") or ()
        found: dict[str, str] = next((one for one in conditions if one["type"] == "Ready"), {})
        return found.get("status", ""), found.get("reason", "")

    def waiting() -> int | None:
        status = (world.raw() or {}).get("status") or {}
        count: int | None = (status.get("summary") or {}).get("waiting")
        return count

    options = ("--forwarder-image", IMAGE)
    with OperatorProcess(crds, namespace, tmp_path, name="first", options=options) as first:
        wait_until(lambda: ready()[1] == "Starting", "its status", timeout_seconds=90)
        world.make_available()
        wait_until(lambda: ready() == ("True", "Forwarding"), "it is ready", timeout_seconds=90)
        first.kill()
    world.clients.produce(f"{names.prefix}.5.0", 4)
    world.edit(delays=[{"seconds": 5}, {"seconds": 60}])
    with OperatorProcess(crds, namespace, tmp_path, name="second", options=options) as second:
        wait_until(lambda: waiting() == 4, "what waits now", timeout_seconds=90)
        wait_until(
            lambda: f"{names.prefix}.60.0" in world.clients.topics(names.prefix),
            "the new topic",
            timeout_seconds=60,
        )
        world.edit(deletionPolicy="Keep")
        world.delete()
        wait_until(lambda: world.raw() is None, "it is let go", timeout_seconds=60)
        assert f"{names.prefix}.5.0" in world.clients.topics(names.prefix)
        second.terminate()
        assert second.exit_code(60) == 0


@pytest.fixture
def own_api() -> Iterator[KubeApi]:
    """A Kubernetes API of this test alone: others want the CRDs."""
    with started(KubeApi) as api:
        api.install_crds(CHECKOUT / "crds")
        api.kubectl("create", "namespace", "streaming")
        yield api


def test_without_its_crd_the_operator_starts_and_with_it_gone_it_goes_on(
    own_api: KubeApi, tmp_path: Path
) -> None:
    crd = ("crd", "delayqueues.tidegate.io")
    options = ("--forwarder-image", IMAGE)
    with OperatorProcess(
        own_api, "streaming", tmp_path, name="served", options=options
    ) as operator:
        operator.wait_for("Operator started")
        assert operator.liveness() == 200
        own_api.kubectl("delete", "--wait", *crd)
        operator.wait_for(
            "DelayQueues cannot be listed. Install their CRD and grant the rights",
            timeout_seconds=120,
        )
        wait_until(lambda: operator.liveness() == 200, "it goes on", timeout_seconds=60)
        assert operator.is_running()
        operator.terminate()
        assert operator.exit_code(60) == 0
    with OperatorProcess(own_api, "streaming", tmp_path, name="absent", options=options) as again:
        again.wait_for("DelayQueues cannot be listed. Install their CRD and grant the rights")
        again.wait_for("Operator started")
        assert again.liveness() == 200
