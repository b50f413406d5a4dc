"""The nine clients of the quota window's benchmark, and what they read and write. Nothing but quotas limits them.

Consumers fetch as Java consumers do by default, 1 MiB of each partition: those of one partition ask for 1 MiB at a time, the wide ones,
of eight partitions, for 8 MiB.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from lab.kafka import KafkaLab
from lab.load import LoadClient, LoadPlan

_MB = 1_000_000
_QUOTAS = (1 * _MB, 5 * _MB, 10 * _MB)
_READ, _WRITTEN = "read", "written"
_BROKER = 1
_WIDE_PARTITIONS = 8
_FILLED_BYTES = _WIDE_PARTITIONS * 40 * _MB  # read round and round; it stays in the page cache
_FILL_SECONDS = 60
_LITTLE_RETENTION = {"retention.bytes": str(32 << 20), "segment.bytes": str(16 << 20)}
_LONGEST_RUN_SECONDS = 400  # a run ends its clients itself; this bounds them if it cannot
_WAITS_MUTES_OUT = ("socket.timeout.ms", "300000")  # librdkafka connects anew after a minute and escapes; Java clients wait
_CONSUMER = (
    _WAITS_MUTES_OUT,
    ("queued.max.messages.kbytes", "65536"),
    ("fetch.queue.backoff.ms", "20"),
    ("fetch.wait.max.ms", "50"),
    ("fetch.message.max.bytes", str(1 << 20)),
)


class Kind(StrEnum):
    """What a client does."""

    CONSUMER = "consumer"
    WIDE_CONSUMER = "wide consumer"
    PRODUCER = "producer"


@dataclass(frozen=True, slots=True)
class Client:
    """One user with one client that moves all it can; `quota` in bytes/s."""

    kind: Kind
    quota: int

    @property
    def name(self) -> str:
        """Its user, client and column: `wide-consumer-5` for one of 5 MB/s."""
        return f"{self.kind.replace(' ', '-')}-{self.quota // _MB}"

    @property
    def quota_key(self) -> str:
        """Kafka's name of the quota that holds it."""
        return "producer_byte_rate" if self.kind is Kind.PRODUCER else "consumer_byte_rate"

    @property
    def partitions(self) -> tuple[int, ...]:
        """Of the topic that it reads or writes."""
        return {
            Kind.CONSUMER: (0,),
            Kind.WIDE_CONSUMER: tuple(range(_WIDE_PARTITIONS)),
            Kind.PRODUCER: (_QUOTAS.index(self.quota),),
        }[self.kind]


CLIENTS = tuple(Client(kind, quota) for kind in Kind for quota in _QUOTAS)


def make_topics(kafka: KafkaLab) -> None:
    """One topic full of what consumers read, written without login, so under no quota; one that keeps little of what producers write."""
    kafka.create_topic(_READ, [[_BROKER]] * _WIDE_PARTITIONS)
    kafka.create_topic(_WRITTEN, [[_BROKER]] * len(_QUOTAS), config=_LITTLE_RETENTION)
    plan = LoadPlan(
        name="fill",
        mode="produce",
        bootstrap_servers=kafka.bootstrap_servers,
        topic=_READ,
        partitions=tuple(range(_WIDE_PARTITIONS)),
        duration_seconds=_FILL_SECONDS,
        max_bytes=_FILLED_BYTES,
    )
    with LoadClient(plan, kafka.run.path / "load", namespace=kafka.client_namespace) as filling:
        filling.wait()


def load_clients(kafka: KafkaLab) -> Iterator[tuple[Client, LoadClient]]:
    """Each client with its process, which is not started yet."""
    for client in CLIENTS:
        writes = client.kind is Kind.PRODUCER
        plan = LoadPlan(
            name=client.name,
            mode="produce" if writes else "consume",
            bootstrap_servers=kafka.sasl_bootstrap_servers,
            topic=_WRITTEN if writes else _READ,
            partitions=client.partitions,
            duration_seconds=_LONGEST_RUN_SECONDS,
            max_bytes=2 * client.quota * _LONGEST_RUN_SECONDS,
            user=client.name,
            password=kafka.password(client.name),
            client_id=client.name,
            settings=(_WAITS_MUTES_OUT,) if writes else _CONSUMER,
        )
        yield client, LoadClient(plan, kafka.run.path / "load", namespace=kafka.client_namespace)
