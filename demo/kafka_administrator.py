"""What a Kafka administrator does by hand in this experiment: the topic, the fixed quota, and the leader's way home."""

from demo.script import TOPIC
from lab.java import start_java
from lab.kafka import KafkaLab
from lab.packages import kafka_jars

_TOOL_TIMEOUT_SECONDS = 60.0
# Little is kept, so that a broker that comes back has little to catch up with.
_TOPIC_CONFIG = {"retention.bytes": str(64 << 20), "segment.bytes": str(16 << 20)}


def create_topic(kafka: KafkaLab, assignment: tuple[tuple[int, ...], ...]) -> None:
    """The experiment's topic with these replicas per partition, the preferred leader first."""
    kafka.create_topic(TOPIC, assignment, config=_TOPIC_CONFIG)


def set_fixed_quota(kafka: KafkaLab, user: str, *, key: str, bytes_per_second: int) -> None:
    """Kafka's own quota for the user (`key` as Kafka names it), with Kafka's own command (kafka-configs)."""
    entity = ("--entity-type", "users", "--entity-name", user)
    with start_java(
        "kafka-configs",
        "kafka.admin.ConfigCommand",
        arguments=["--bootstrap-server", kafka.bootstrap_servers, "--alter", *entity, "--add-config", f"{key}={bytes_per_second}"],
        options=["-Xmx128m"],
        jars=kafka_jars(),
        directory=kafka.run.path / "kafka-configs",
        namespace=kafka.client_namespace.name if kafka.client_namespace else None,
    ) as tool:
        tool.expect_success(_TOOL_TIMEOUT_SECONDS)


def revive(kafka: KafkaLab, broker: int) -> None:
    """Start a killed broker, and give every partition back to the broker that should lead it as soon as that one has caught up."""
    kafka.broker(broker).start()
    kafka.restore_preferred_leaders(TOPIC)
