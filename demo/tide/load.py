"""The clients of experiments 2 and 3: one consumer a business, each a user of its own, and what each was sent. Only quotas limit them."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from demo.tide.script import BROKER, BUSINESSES, PARTITION, TOPIC, Business
from lab.kafka import KafkaLab
from lab.load import LoadClient, LoadPlan, RateStep
from lab.rates import ByteSeries, Sample

# What the consumers read round and round; it stays in the page cache.
_FILLED_BYTES = 160_000_000
_FILL_SECONDS = 60
_PATIENT_SECONDS = 6.0
_CATCH_UP_SECONDS = 2.0
# A run ends its clients itself; this bounds them if it cannot.
_LONGEST_RUN_SECONDS = 1200
_CONSUMER = (
    # A muted client of librdkafka connects anew after a minute and gets away with it; a Java client waits it out, and so do these.
    ("socket.timeout.ms", "300000"),
    # Little is fetched ahead, so that what a client is sent is what it wanted in that second.
    ("queued.max.messages.kbytes", "4096"),
    ("fetch.queue.backoff.ms", "20"),
    ("fetch.wait.max.ms", "50"),
    # Half of what 1 MB/s allows in a second: a fetch as large as that second leaves a tenth of such a quota unused.
    ("fetch.message.max.bytes", "524288"),
)


class Consumers:
    """The running consumers. Rates are bytes per second of payload that arrived."""

    def __init__(self, clients: Mapping[str, LoadClient]) -> None:
        self._clients = clients

    def series(self) -> dict[str, ByteSeries]:
        """Level -> everything that arrived so far."""
        return {
            level: ByteSeries(Sample(row.unix_seconds + 1, row.moved_bytes) for row in client.rows())
            for level, client in self._clients.items()
        }

    def together(self) -> ByteSeries:
        """Everything that arrived at any of them."""
        arrived: Counter[int] = Counter()
        for client in self._clients.values():
            arrived.update({row.unix_seconds + 1: row.moved_bytes for row in client.rows()})
        return ByteSeries(Sample(at, moved) for at, moved in arrived.items())

    def history(self, seconds: int) -> dict[str, tuple[float, ...]]:
        """Level -> the rates of the last whole seconds, newest last."""
        return {level: tuple(float(row.moved_bytes) for row in client.rows()[-seconds:]) for level, client in self._clients.items()}


def make_topic(kafka: KafkaLab) -> None:
    """The topic, one partition on one broker, and something to read in it; written without login, so under no quota."""
    kafka.create_topic(TOPIC, ((BROKER,),))
    plan = LoadPlan(
        name="fill",
        mode="produce",
        bootstrap_servers=kafka.bootstrap_servers,
        topic=TOPIC,
        partitions=(PARTITION,),
        duration_seconds=_FILL_SECONDS,
        max_bytes=_FILLED_BYTES,
    )
    with LoadClient(plan, kafka.run.path / "load", namespace=kafka.client_namespace) as client:
        client.wait()


@contextmanager
def consumers(kafka: KafkaLab, run: str) -> Iterator[Consumers]:
    """A fresh consumer for each business while the context is open, which comes up within 8 s and without a burst.

    `run` tells its files from those of another run.
    """
    with ExitStack() as stack:
        yield Consumers({business.level: stack.enter_context(_client(kafka, business, run=run)) for business in BUSINESSES})


def _client(kafka: KafkaLab, business: Business, *, run: str) -> LoadClient:
    plan = LoadPlan(
        name=f"{run}-{business.user}",
        mode="consume",
        bootstrap_servers=kafka.sasl_bootstrap_servers,
        topic=TOPIC,
        partitions=(PARTITION,),
        duration_seconds=_LONGEST_RUN_SECONDS,
        max_bytes=business.wanted * _LONGEST_RUN_SECONDS,
        user=business.user,
        password=kafka.password(business.user),
        client_id=f"demo-{business.user}",
        steps=(RateStep(0, business.wanted // 4), RateStep(4, business.wanted // 2), RateStep(8, business.wanted)),
        # What L0 did not get while the machine was busy elsewhere, it gets later, as any reader of Kafka; the others ask for little of it,
        # because a flood after the raise is not what is shown here.
        catch_up_seconds=_PATIENT_SECONDS if business.throttled is None else _CATCH_UP_SECONDS,
        settings=_CONSUMER,
    )
    return LoadClient(plan, kafka.run.path / "load", namespace=kafka.client_namespace)
