"""What `tidegate doctor` finds about delay queues on real brokers: the forwarders' login and rights,
the queue's topics, and Kafka's internal topics while a broker is down. Kubernetes is the double.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient as Topics
from confluent_kafka.admin import ResourceType

from lab.kafka import BrokersLab, KafkaLab
from lab.kraft import KraftLab
from lab.process import patience, started, wait_until
from tests.doubles.kubernetes import InMemoryKubernetes
from tests.integration.commands.conftest import allowed
from tests.integration.connections import connection_of
from tests.integration.kafka.queue_clients import QueueClients
from tidegate.commands.context import CommandContext
from tidegate.commands.doctor_queues import examine_queues
from tidegate.commands.findings import Finding, State
from tidegate.commands.inputs import find_policy
from tidegate.commands.options import AccessOptions, PolicyOptions
from tidegate.kafka.delay_queues import QueueTopics
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, DELAY_QUEUES, JsonObject, ObjectRef
from tidegate.queues.names import QueueNames
from tidegate_logic.queues.levels import Level, WantedLevels
from tidegate_logic.reasons import Reason

pytestmark = pytest.mark.integration

NAMESPACE, OPERATOR, FORWARDER = "streaming", "bob", "alice"
GRACE_SECONDS = 3600


class QueueOnBrokers:
    """A policy and a queue with the topics that the operator would have made."""

    def __init__(self, brokers: BrokersLab, names: QueueNames, kafka: dict[str, Any]) -> None:
        self.brokers = brokers
        self.names = names
        self.target = f"{names.prefix}-target"
        self.kubernetes = InMemoryKubernetes()
        self.kubernetes.create(
            BROKER_BANDWIDTH_POLICIES,
            {
                "apiVersion": "tidegate.io/v1alpha1",
                "kind": "BrokerBandwidthPolicy",
                "metadata": {"name": "orders", "namespace": NAMESPACE},
                "spec": {"mode": "Enforce", "kafka": kafka},
            },
        )
        self.level = names.level_topic(5, 0).name
        connection = connection_of(brokers.bootstrap_servers)
        self.topics = QueueTopics(connection)

    def make_topics(self) -> None:
        """Everything of the queue, and its target; Kafka's internal topics as well."""
        clients = QueueClients(self.brokers.bootstrap_servers)
        settings = WantedLevels({}, GRACE_SECONDS).settings(Level(5, 0))
        wanted = {self.level: settings, self.names.dead_topic: {"cleanup.policy": "delete"}}
        listing = self.topics.listing()
        self.topics.keep_control_topic(self.names, listing, replication_factor=1)
        self.topics.create(self.names, wanted, replication_factor=1)
        self.brokers.create_topic(self.target, [[1]])
        clients.produce_in_transaction(self.target, 1)
        clients.commit(self.names, self.level, 0)

    def apply(self, login: dict[str, Any] | None = None, **spec: Any) -> JsonObject:
        return self.kubernetes.create(
            DELAY_QUEUES,
            {
                "metadata": {"name": "unpaid", "namespace": NAMESPACE},
                "spec": {
                    "policyRef": {"name": "orders"},
                    "topicPrefix": self.names.prefix,
                    "guarantee": "ExactlyOnce",
                    "delays": [{"seconds": 5}],
                    "target": {"allowed": [self.target], "default": self.target},
                    "topics": {"graceSeconds": GRACE_SECONDS},
                    **({} if login is None else {"authentication": login}),
                    **spec,
                },
            },
        )

    def report(self, raw: JsonObject, *forwarders: str) -> None:
        """The status that the operator would have written."""
        ready = {"type": "Ready", "status": "True", "reason": "Forwarding", "message": "fine"}
        self.kubernetes.patch_status(
            ObjectRef.of(DELAY_QUEUES, raw),
            {
                "conditions": [ready],
                "forwarders": [{"name": one, "topics": 1} for one in forwarders],
            },
            resource_version=raw["metadata"]["resourceVersion"],
        )

    def findings(self, brokers: Collection[int] = (1,)) -> list[Finding]:
        around = CommandContext(open_kubernetes=lambda *_: self.kubernetes)
        source = find_policy(around, PolicyOptions())
        return list(examine_queues(around, source, AccessOptions(), brokers))

    def wrong(self, brokers: Collection[int] = (1,)) -> dict[Reason | None, str]:
        """What is wrong, by its reason."""
        return {
            one.reason: one.what
            for one in self.findings(brokers)
            if one.state in (State.PROBLEM, State.WARNING)
        }

    def lacks(self, right: str) -> bool:
        """Whether this right, and no other, is said to be missing."""
        return f"lacks {right}." in self.wrong().get(Reason.NOT_AUTHORIZED, "")


@pytest.fixture
def names(unique_name: str) -> QueueNames:
    return QueueNames(f"shop.{unique_name}")


# --- logins and rights ----------------------------------------------------------------------------


def login(user: str, secret: str) -> dict[str, Any]:
    return {
        "type": "scram-sha-256",
        "username": user,
        "passwordSecret": {"secretName": secret, "password": "password"},
    }


@pytest.fixture
def queue(kraft: KraftLab, names: QueueNames) -> Iterator[QueueOnBrokers]:
    """On a broker that wants a login; the policy's may do everything with topics."""
    authentication = login(OPERATOR, "operator")
    kafka = {"bootstrapServers": kraft.sasl_bootstrap_servers, "authentication": authentication}
    made = QueueOnBrokers(kraft, names, kafka)
    for user, secret in ((OPERATOR, "operator"), (FORWARDER, "forwarder")):
        password = kraft.password(user).encode()
        made.kubernetes.put_secret(NAMESPACE, secret, {"password": password})
    made.make_topics()
    with allowed(kraft, OPERATOR, [(ResourceType.TOPIC, "*", "ALL")]):
        yield made
    made.topics.close()


def rights(queue: QueueOnBrokers, member: str) -> list[tuple[ResourceType, str, str]]:
    """Those that forwarders need, each on exactly what it is for."""
    names = queue.names
    return [
        (ResourceType.TOPIC, queue.level, "READ"),
        (ResourceType.TOPIC, names.dead_topic, "WRITE"),
        (ResourceType.TOPIC, names.control_topic, "READ"),
        (ResourceType.TOPIC, names.control_topic, "WRITE"),
        (ResourceType.TOPIC, queue.target, "WRITE"),
        (ResourceType.GROUP, names.group, "READ"),
        (ResourceType.GROUP, names.members_group, "READ"),
        (ResourceType.TRANSACTIONAL_ID, names.transactional_id(member), "WRITE"),
    ]


def test_a_sound_queue_has_no_problem_and_nothing_is_made(
    queue: QueueOnBrokers, kraft: KraftLab
) -> None:
    queue.report(queue.apply(login(FORWARDER, "forwarder")), "pod-0-abc")
    before = set(queue.topics.listing().topics)
    with allowed(kraft, FORWARDER, rights(queue, "pod-0-abc")):
        wait_until(lambda: queue.wrong() == {}, "the rights to be granted", timeout_seconds=60)
        found = queue.findings()
    assert [one.state for one in found] == [State.OK] * 2
    topics, forwarders = found
    assert "all 3 topics" in topics.what
    assert f"as {FORWARDER}" in forwarders.what
    assert set(queue.topics.listing().topics) == before


def test_each_right_that_is_missing_is_named(queue: QueueOnBrokers, kraft: KraftLab) -> None:
    queue.report(queue.apply(login(FORWARDER, "forwarder")), "pod-0-abc")
    missing = wait_until(
        lambda: queue.wrong().get(Reason.NOT_AUTHORIZED), "the rights", timeout_seconds=60
    )
    assert missing is not None
    assert f"Read on topic {queue.level}" in missing
    wanted = rights(queue, "pod-0-abc")
    for left_out in wanted:
        with allowed(kraft, FORWARDER, [one for one in wanted if one != left_out]):
            kind, name, operation = left_out
            word = {
                ResourceType.TOPIC: "topic",
                ResourceType.GROUP: "group",
                ResourceType.TRANSACTIONAL_ID: "transactional id",
            }[kind]
            # the right to see a transactional id comes with that to write
            verb = "Describe" if kind is ResourceType.TRANSACTIONAL_ID else operation.capitalize()
            expected = f"{verb} on {word} {name}"
            wait_until(partial(queue.lacks, expected), expected, timeout_seconds=60)


def test_any_due_time_needs_the_right_to_write_to_levels(
    queue: QueueOnBrokers, kraft: KraftLab
) -> None:
    queue.report(queue.apply(login(FORWARDER, "forwarder"), arbitraryDelays=True), "pod-0-abc")
    with allowed(kraft, FORWARDER, rights(queue, "pod-0-abc")):
        right = f"Write on topic {queue.level}"
        wait_until(partial(queue.lacks, right), right, timeout_seconds=60)


def test_a_login_that_is_missing_wrong_or_the_policys_is_a_problem(queue: QueueOnBrokers) -> None:
    wanted = queue.apply()
    assert Reason.LOGIN_MISSING in queue.wrong()
    ref = ObjectRef.of(DELAY_QUEUES, wanted)

    def use(user: str, secret: str) -> None:
        authentication = login(user, secret)
        queue.kubernetes.edit(ref, lambda raw: raw["spec"].update(authentication=authentication))

    use(FORWARDER, "absent")
    assert Reason.SECRET_UNREADABLE in queue.wrong()
    queue.kubernetes.put_secret(NAMESPACE, "forwarder", {"password": b"wrong"})
    use(FORWARDER, "forwarder")
    refused = [one for one in queue.findings() if one.reason is Reason.NOT_AUTHORIZED]
    assert [one.state for one in refused] == [State.PROBLEM]
    assert "lacks" not in refused[0].what
    use(OPERATOR, "operator")
    shared = queue.wrong()[Reason.LOGIN_MISSING]
    assert "as the policy does" in shared


# --- topics ---------------------------------------------------------------------------------------


@pytest.fixture
def plain(kraft: KraftLab, names: QueueNames) -> Iterator[QueueOnBrokers]:
    """On the same broker, where everybody without a login may do everything."""
    made = QueueOnBrokers(kraft, names, {"bootstrapServers": kraft.bootstrap_servers})
    made.make_topics()
    yield made
    made.topics.close()


def test_topics_that_are_missing_or_set_otherwise_are_named(plain: QueueOnBrokers) -> None:
    plain.report(plain.apply(), "pod-0-abc")
    assert plain.wrong() == {}
    clients = QueueClients(plain.brokers.bootstrap_servers)
    clients.set(plain.level, "retention.ms", "60000")
    clients.set(plain.names.control_topic, "cleanup.policy", "delete")
    clients.set(plain.names.dead_topic, "cleanup.policy", "compact")
    wrong = wait_until(
        lambda: (
            found if "dead has" in (found := plain.wrong().get(Reason.QUEUE_AT_RISK, "")) else ""
        ),
        "the new settings",
        timeout_seconds=30,
    )
    assert f"{plain.level} has retention.ms=60000, not 3605000" in wrong
    assert f"{plain.names.control_topic} has cleanup.policy=delete, not compact" in wrong
    topics = Topics({"bootstrap.servers": plain.brokers.bootstrap_servers})
    for done in topics.delete_topics([plain.names.dead_topic, plain.target]).values():
        done.result(patience(30))

    def absent() -> dict[str, State] | None:
        found = {
            one.what: one.state for one in plain.findings() if one.reason is Reason.TOPIC_NOT_FOUND
        }
        return found if len(found) == 2 else None

    found = wait_until(absent, "the topics to be gone", timeout_seconds=30)
    assert found is not None
    (own, own_state), (target, target_state) = found.items()
    assert (own_state, target_state) == (State.PROBLEM, State.WARNING)
    assert plain.names.dead_topic in own
    assert plain.target in target


def test_a_queue_with_cancellations_needs_their_topic(plain: QueueOnBrokers) -> None:
    plain.report(plain.apply(cancellable=True), "pod-0-abc")
    topic = plain.names.cancelled_topic
    assert topic in plain.wrong()[Reason.TOPIC_NOT_FOUND]
    settings = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
    plain.topics.create(plain.names, {topic: settings}, replication_factor=1)
    risk = wait_until(
        lambda: plain.wrong().get(Reason.QUEUE_AT_RISK), "the topic", timeout_seconds=30
    )
    assert risk is not None
    assert f"{topic} has cleanup.policy=compact, not compact,delete" in risk
    plain.topics.correct(plain.names, {topic: {"cleanup.policy": "compact,delete"}})
    wait_until(lambda: plain.wrong() == {}, "the corrected topic", timeout_seconds=30)


# --- brokers that die -----------------------------------------------------------------------------


def test_one_replica_is_a_risk_and_a_problem_while_its_broker_is_down(names: QueueNames) -> None:
    with started(lambda: KafkaLab(brokers=2)) as kafka:
        made = QueueOnBrokers(
            kafka,
            names,
            {
                "bootstrapServers": kafka.bootstrap_servers,
                "zookeeper": {"connect": kafka.zookeeper_connect},
            },
        )
        made.make_topics()
        made.report(made.apply(), "pod-0-abc")
        risk = made.wrong((1, 2))
        assert set(risk) == {Reason.QUEUE_AT_RISK}
        for topic in ("__consumer_offsets", "__transaction_state", made.level):
            assert topic in risk[Reason.QUEUE_AT_RISK]
        # one broker has nobody to copy to
        assert made.wrong((1,)) == {}
        # members with coordinators on both brokers, whichever of Kafka's partitions is whose
        (raw,) = made.kubernetes.list_all(DELAY_QUEUES)
        made.report(raw, *(f"pod-{number}" for number in range(12)))
        kafka.broker(2).kill()

        def problems() -> str:
            return " ".join(one.what for one in made.findings((1,)) if one.state is State.PROBLEM)

        wait_until(
            lambda: "partitions of __consumer_offsets; __transaction_state" in problems(),
            "partitions without a leader",
            timeout_seconds=90,
        )
        assert "The coordinator of shop." in problems()
        made.topics.close()
