"""Clients of a scenario: readers that want a known rate from the topic's first partition, and so from broker 1's NIC."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from lab.kafka import KafkaLab
from lab.load import LoadClient, LoadPlan, RateStep

_LONGEST_RUN_SECONDS = 600
_FILLED_BYTES = 160_000_000
# A muted client of librdkafka connects anew after a minute and gets away with it; a Java client waits it out, and so do these.
_AS_JAVA = (("socket.timeout.ms", "300000"), ("fetch.message.max.bytes", "524288"), ("queued.max.messages.kbytes", "2048"))


@contextmanager
def readers(kafka: KafkaLab, topic: str, wanted: Mapping[str, int]) -> Iterator[None]:
    """User -> bytes per second that it reads while the context is open. The topic is filled first, under no quota."""
    _fill(kafka, topic)
    with ExitStack() as stack:
        for user, rate in wanted.items():
            stack.enter_context(_client(kafka, _reader(kafka, topic, user, rate)))
        yield


def _fill(kafka: KafkaLab, topic: str) -> None:
    plan = LoadPlan(
        name=f"fill-{topic}",
        mode="produce",
        bootstrap_servers=kafka.bootstrap_servers,
        topic=topic,
        partitions=(0,),
        duration_seconds=60,
        max_bytes=_FILLED_BYTES,
    )
    with _client(kafka, plan) as client:
        client.wait()


def _reader(kafka: KafkaLab, topic: str, user: str, rate: int) -> LoadPlan:
    return LoadPlan(
        name=f"{topic}-{user}",
        mode="consume",
        bootstrap_servers=kafka.sasl_bootstrap_servers,
        topic=topic,
        partitions=(0,),
        duration_seconds=_LONGEST_RUN_SECONDS,
        max_bytes=rate * _LONGEST_RUN_SECONDS,
        user=user,
        password=kafka.password(user),
        client_id=f"e2e-{user}",
        steps=(RateStep(0, rate // 2), RateStep(5, rate)),
        settings=_AS_JAVA,
    )


def _client(kafka: KafkaLab, plan: LoadPlan) -> LoadClient:
    return LoadClient(plan, kafka.run.path / "load", namespace=kafka.client_namespace)
