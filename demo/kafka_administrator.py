"""What a Kafka administrator does by hand in this experiment, with Kafka's own tools: the fixed quota, and the leader's way home."""

from confluent_kafka.admin import AdminClient

from demo.script import BROKERS, HEALTHY_LEADERS, TOPIC, USER
from demo.zookeeper_witness import QUOTA_KEY
from lab.java import start_java
from lab.kafka import KafkaLab
from lab.kafka_jars import kafka_jars
from lab.waiting import wait_until

_TOOL_TIMEOUT_SECONDS = 60.0
_CATCH_UP_TIMEOUT_SECONDS = 60.0
_ANSWER_TIMEOUT_SECONDS = 20.0
# Little is kept, so that a broker that comes back has little to catch up with.
_TOPIC_CONFIG = {"retention.bytes": str(64 << 20), "segment.bytes": str(16 << 20)}


def create_topic(kafka: KafkaLab, assignment: tuple[tuple[int, ...], ...]) -> None:
    """The experiment's topic with these replicas per partition, the preferred leader first."""
    kafka.create_topic(TOPIC, assignment, config=_TOPIC_CONFIG)


def set_fixed_quota(kafka: KafkaLab, bytes_per_second: int) -> None:
    """Kafka's own quota for the user, with Kafka's own command (kafka-configs)."""
    entity = ("--entity-type", "users", "--entity-name", USER)
    _run_tool(kafka, "kafka-configs", "kafka.admin.ConfigCommand", "--alter", *entity, "--add-config", f"{QUOTA_KEY}={bytes_per_second}")


def revive(kafka: KafkaLab, broker: int) -> None:
    """Start a killed broker, wait until it has caught up, and give every partition back to the broker that should lead it."""
    kafka.broker(broker).start()
    wait_until(lambda: _all_in_sync(kafka), f"broker {broker} to catch up", timeout_seconds=_CATCH_UP_TIMEOUT_SECONDS)
    election = ("--election-type", "preferred", "--all-topic-partitions")
    _run_tool(kafka, "kafka-leader-election", "org.apache.kafka.tools.LeaderElectionCommand", *election)
    kafka.wait_for_leaders(TOPIC, HEALTHY_LEADERS)


def _run_tool(kafka: KafkaLab, name: str, main_class: str, *arguments: str) -> None:
    with start_java(
        name,
        main_class,
        arguments=["--bootstrap-server", kafka.bootstrap_servers, *arguments],
        options=["-Xmx128m"],
        jars=kafka_jars(),
        directory=kafka.run.path / name,
        namespace=kafka.client_namespace.name if kafka.client_namespace else None,
    ) as tool:
        tool.expect_success(_TOOL_TIMEOUT_SECONDS)


def _all_in_sync(kafka: KafkaLab) -> bool:
    metadata = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0}).list_topics(
        TOPIC, timeout=_ANSWER_TIMEOUT_SECONDS
    )
    partitions = metadata.topics[TOPIC].partitions.values()
    return set(metadata.brokers) == set(BROKERS) and all(set(partition.isrs) == set(partition.replicas) for partition in partitions)
