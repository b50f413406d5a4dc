"""The clients of a measured episode, each a process of its own: every connection of every business, and what it moved."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from bench.control.world import TOPIC
from bench.tide.script import Business, Operation
from lab.kafka import KafkaLab
from lab.load import LoadClient, LoadPlan, RateStep
from lab.rates import ByteSeries, Sample

_LONGEST_RUN_SECONDS = 1800
# What L0 did not get while the machine was busy elsewhere, it gets later, as any client of Kafka.
_L0_CATCHES_UP_SECONDS = 10.0
_FLAT_OUT_BYTES_PER_SECOND = 200_000_000
_FILLED_BYTES = 160_000_000
_FILL_SECONDS = 60
_LEAST_READ_AHEAD_KILOBYTES, _MOST_READ_AHEAD_KILOBYTES = 1024, 4096
_CONSUMER = (
    # A muted client of librdkafka connects anew after a minute and gets away with it; a Java client waits it out, and so do these.
    ("socket.timeout.ms", "300000"),
    ("fetch.queue.backoff.ms", "20"),
    ("fetch.wait.max.ms", "50"),
    ("fetch.message.max.bytes", "524288"),
)
# Larger requests than Java's 16 kB, for the machine carries twenty producers beside the broker; but when a mute ends, each connection is
# granted one request, and six of 128 kB would be an eighth of what L3 has for a whole window.
_PRODUCER = (("socket.timeout.ms", "300000"), ("linger.ms", "100"), ("batch.size", "50000"))
# What they want later than this they do not want any more: the way back is measured without a backlog.
_PRODUCERS_QUEUE_SECONDS = 2
_PRODUCED_MESSAGE_BYTES = 25_000


class Crowd:
    """Running clients, by business and connection. Bytes are payload, per whole second."""

    def __init__(self, clients: Mapping[Business, Sequence[LoadClient]]) -> None:
        self._clients = clients

    def each(self) -> dict[str, ByteSeries]:
        """Client -> what it moved so far; a client is named by its level, user and connection."""
        return {client.plan.name: _series(client) for clients in self._clients.values() for client in clients}

    def together(self) -> ByteSeries:
        """What all of them moved so far."""
        return _together([client for clients in self._clients.values() for client in clients])

    def by_business(self) -> dict[Business, ByteSeries]:
        """Business -> what all its connections moved so far."""
        return {business: _together(clients) for business, clients in self._clients.items()}


def fill(kafka: KafkaLab) -> None:
    """Something to read, round and round from the page cache; written without login, so under no quota."""
    plan = LoadPlan(
        name="fill",
        mode="produce",
        bootstrap_servers=kafka.bootstrap_servers,
        topic=TOPIC,
        partitions=(0,),
        duration_seconds=_FILL_SECONDS,
        max_bytes=_FILLED_BYTES,
    )
    with LoadClient(plan, kafka.run.path / "load", namespace=kafka.client_namespace) as client:
        client.wait()


@contextmanager
def crowd(
    kafka: KafkaLab, businesses: Sequence[Business], operation: Operation, *, run: str, catch_up_seconds: float = 2.0
) -> Iterator[Crowd]:
    """Every connection of every business while the context is open; they come up within 8 s, without a burst. `run` tells files apart."""
    with ExitStack() as stack:
        clients = {
            business: [
                stack.enter_context(_client(kafka, business, operation, name=f"{run}-{number}", catch_up_seconds=catch_up_seconds))
                for number in range(business.connections)
            ]
            for business in businesses
        }
        yield Crowd(clients)


def _client(kafka: KafkaLab, business: Business, operation: Operation, *, name: str, catch_up_seconds: float) -> LoadClient:
    wanted = None if business.wanted is None else business.wanted // business.connections
    plan = LoadPlan(
        name=f"{business.level}-{business.user}-{name}",
        mode="consume" if operation is Operation.CONSUME else "produce",
        bootstrap_servers=kafka.sasl_bootstrap_servers,
        topic=TOPIC,
        # what is written goes where nobody reads
        partitions=(0,) if operation is Operation.CONSUME else (1,),
        duration_seconds=_LONGEST_RUN_SECONDS,
        max_bytes=(wanted or _FLAT_OUT_BYTES_PER_SECOND) * _LONGEST_RUN_SECONDS,
        user=business.user,
        password=kafka.password(business.user),
        client_id=f"bench-{business.user}",
        steps=_ramp(wanted),
        catch_up_seconds=catch_up_seconds if business.throttled is not None else max(catch_up_seconds, _L0_CATCHES_UP_SECONDS),
        message_bytes=_PRODUCED_MESSAGE_BYTES,
        settings=(*_CONSUMER, _read_ahead(wanted)) if operation is Operation.CONSUME else (*_PRODUCER, _queue(wanted)),
    )
    return LoadClient(plan, kafka.run.path / "load", namespace=kafka.client_namespace)


def _read_ahead(wanted: int | None) -> tuple[str, str]:
    """A sixth of a second of what it wants; at least what a Java client fetches of a partition at once."""
    kilobytes = _MOST_READ_AHEAD_KILOBYTES if wanted is None else min(_MOST_READ_AHEAD_KILOBYTES, wanted // 6000)
    return "queued.max.messages.kbytes", str(max(_LEAST_READ_AHEAD_KILOBYTES, kilobytes))


def _queue(wanted: int | None) -> tuple[str, str]:
    return "queue.buffering.max.kbytes", str((wanted or _FLAT_OUT_BYTES_PER_SECOND) * _PRODUCERS_QUEUE_SECONDS // 1000)


def _ramp(wanted: int | None) -> tuple[RateStep, ...]:
    if wanted is None:
        return (RateStep(0, None),)
    return RateStep(0, wanted // 4), RateStep(4, wanted // 2), RateStep(8, wanted)


def _series(client: LoadClient) -> ByteSeries:
    return ByteSeries(Sample(row.unix_seconds + 1, row.moved_bytes) for row in client.rows())


def _together(clients: Sequence[LoadClient]) -> ByteSeries:
    moved: Counter[int] = Counter()
    for client in clients:
        moved.update({row.unix_seconds + 1: row.moved_bytes for row in client.rows()})
    return ByteSeries(Sample(at, count) for at, count in moved.items())
