"""The demo's clients: one producer a partition, all of one user, and what they delivered. Limits come from Kafka alone."""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from demo.script import HEALTHY_LEADERS, TOPIC, USER
from lab.kafka import KafkaLab
from lab.load import LoadClient, LoadPlan, RateStep
from lab.rates import ByteSeries, Sample

TRIAL_BYTES_PER_SECOND = 30_000_000
# Cold brokers carry a tenth of what they carry once their code is compiled; a machine that is strong enough shows it sooner.
_TRIAL_SECONDS = 30
_TRIAL_SECONDS_COUNTED = 4
# A run ends its clients itself; this bounds them if it cannot.
_LONGEST_RUN_SECONDS = 1800


class Producers:
    """The running producers. Rates are bytes per second that brokers acknowledged."""

    def __init__(self, clients: Mapping[int, LoadClient]) -> None:
        self._clients = clients

    def series(self) -> dict[int, ByteSeries]:
        """Partition -> everything delivered so far."""
        return {
            partition: ByteSeries(Sample(row.unix_seconds + 1, row.moved_bytes) for row in client.rows())
            for partition, client in self._clients.items()
        }

    def history(self, seconds: int) -> dict[int, tuple[float, ...]]:
        """Partition -> the rates of the last whole seconds, newest last."""
        return {partition: tuple(float(row.moved_bytes) for row in client.rows()[-seconds:]) for partition, client in self._clients.items()}


@contextmanager
def producers(kafka: KafkaLab, offered_bytes_per_second: int, *, seconds: float = _LONGEST_RUN_SECONDS) -> Iterator[Producers]:
    """One producer for each partition, each offering this rate, while the context is open."""
    with ExitStack() as stack:
        clients = {
            partition: stack.enter_context(_client(kafka, partition, offered=offered_bytes_per_second, seconds=seconds))
            for partition in HEALTHY_LEADERS
        }
        yield Producers(clients)


def carried_without_quota(kafka: KafkaLab, enough_bytes_per_second: float) -> float:
    """The most that all producers together delivered within four seconds when each offered 30 MB/s and nothing limited them, in bytes per
    second. It ends as soon as that is enough, or after half a minute.
    """
    most = 0.0
    with producers(kafka, TRIAL_BYTES_PER_SECOND, seconds=_TRIAL_SECONDS) as trial:
        ends = time.monotonic() + _TRIAL_SECONDS
        while most < enough_bytes_per_second and time.monotonic() < ends:
            time.sleep(1.0)
            newest = trial.history(_TRIAL_SECONDS_COUNTED).values()
            most = max(most, sum(sum(rates) / _TRIAL_SECONDS_COUNTED for rates in newest))
    return most


def _client(kafka: KafkaLab, partition: int, *, offered: int, seconds: float) -> LoadClient:
    plan = LoadPlan(
        name=f"partition-{partition}-{offered}",
        mode="produce",
        bootstrap_servers=kafka.sasl_bootstrap_servers,
        topic=TOPIC,
        partitions=(partition,),
        duration_seconds=seconds,
        max_bytes=int(offered * seconds),
        user=USER,
        password=kafka.password(USER),
        client_id=f"demo-{partition}",
        steps=(RateStep(0, offered),),
    )
    return LoadClient(plan, kafka.run.path / "load", namespace=kafka.client_namespace)
