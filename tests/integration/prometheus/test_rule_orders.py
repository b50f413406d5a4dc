"""Rules of the JMX exporter as people have them: a real broker, the real agent, a real Prometheus.

The exporter takes the first rule that matches, and reads its file again when it changes, so that
one broker shows what each order makes of the same clients.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import pytest
from confluent_kafka import Producer

from lab import kafka as lab_kafka
from lab.kafka_admin import login_settings
from lab.kraft import KraftLab
from lab.process import patience, wait_until
from lab.prometheus import PrometheusLab, ScrapeTarget
from tests.integration.connections import connection_of
from tidegate.kafka.adminapi.client import AdminClient
from tidegate.kafka.adminapi.quotas import alter
from tidegate.prometheus.reader import PrometheusReader
from tidegate.prometheus.settings import MetricsSettings, Preset, PrometheusServer
from tidegate_logic.model import Direction, Entity, QuotaKey, Readings
from tidegate_logic.reasons import Reason

pytestmark = pytest.mark.integration

ALICE, ODD, PLAIN, SOLO = (
    Entity("alice"),
    Entity("bob", "app, 1"),
    Entity("bob", "plain"),
    Entity(client_id="solo"),
)
EVERY = {ALICE, ODD, PLAIN, SOLO}

# an order of its own is all that distinguishes these from the exporter's example
_LABELS = {
    "both": "type=(.+), user=(.+), client-id=(.+)",
    "client": "type=(.+), client-id=(.+)",
    "user": "type=(.+), user=(.+)",
}
_NAMED = {
    "both": "resource: '$1', user: '$2', clientId: '$3'",
    "client": "resource: '$1', clientId: '$2'",
    "user": "resource: '$1', user: '$2'",
}
_BYTES = (
    "- {pattern: 'kafka.server<type=(.+), name=(.+)PerSec, (.+)=(.+)><>Count', "
    "name: 'kafka_server_$1_$2_total', labels: {'$3': '$4'}, type: COUNTER}\n"
    "- {pattern: 'kafka.server<type=(.+), name=(.+)PerSec><>Count', "
    "name: 'kafka_server_$1_$2_total', type: COUNTER}\n"
)
LOWER = "lowercaseOutputName: true\n"


def rules(*kinds: str, lower: bool = True) -> str:
    """Rules for these kinds of clients, in this order."""
    text = f"{LOWER if lower else ''}rules:\n{_BYTES}"
    for kind in kinds:
        attribute = 4 if kind == "both" else 3
        text += (
            f"- {{pattern: 'kafka.server<{_LABELS[kind]}><>([a-z-]+)', "
            f"name: 'kafka_server_quota_${attribute}', labels: {{{_NAMED[kind]}}}}}\n"
        )
    return text


_TYPE_ONLY = "- {pattern: 'kafka.server<type=(.+)><>([a-z-]+)', name: 'kafka_server_$1_$2'}\n"
_INTO_A_LABEL = (
    "- {pattern: 'kafka.server<type=(.+)><>(byte-rate|throttle-time)', "
    "name: 'kafka_server_quota_$2', labels: {resource: '$1'}}\n"
)
_TYPE_IN_THE_NAME = (
    "- {pattern: 'kafka.server<type=(.+), client-id=(.+)><>([a-z-]+)', "
    "name: 'kafka_server_$1_$3', labels: {client_id: '$2'}}\n"
    "- {pattern: 'kafka.server<type=(.+), user=(.+)><>([a-z-]+)', "
    "name: 'kafka_server_$1_$3', labels: {user: '$2'}}\n"
)

# rules -> the clients that the exporter still tells apart; of the others people must learn
SETS: dict[str, tuple[str, set[Entity]]] = {
    **{", ".join(order): (rules(*order), EVERY) for order in permutations(_LABELS)},
    "upper case": (rules("user", "client", "both", lower=False), EVERY),
    "one label for all": (f"{LOWER}rules:\n{_BYTES}{_INTO_A_LABEL}", EVERY),
    "no rules": ("startDelaySeconds: 0\n", EVERY),
    "no rules, lower case": (LOWER, EVERY),
    "no rules, snake case": ("attrNameSnakeCase: true\n", EVERY),
    # its rule for the quorum's metrics comes before those for quotas
    "the example for KRaft": (
        f"{LOWER}rules:\n{_TYPE_ONLY}{_BYTES}{rules('both', 'client', 'user').partition(_BYTES)[2]}",
        set(),
    ),
    "the type in the name": (f"{LOWER}rules:\n{_BYTES}{_TYPE_IN_THE_NAME}", {ALICE, SOLO}),
    "the same in upper case": (f"rules:\n{_BYTES}{_TYPE_IN_THE_NAME}", {ALICE, SOLO}),
}


@dataclass
class Metered:
    """A broker whose four clients produce, and the file of its exporter's rules."""

    file: Path
    prometheus: PrometheusLab

    def follow(self, text: str) -> None:
        """Have the exporter use these rules from its next scrape on."""
        before = self.file.stat().st_mtime
        self.file.write_text(text)
        os.utime(self.file, (before + 1, before + 1))

    def reader(self) -> PrometheusReader:
        """Of samples of the newest scrapes only, so that no older rules' series are left."""
        return PrometheusReader(
            MetricsSettings(
                PrometheusServer(self.prometheus.url),
                preset=Preset.JMX_EXPORTER,
                scrape_interval_seconds=1,
                stale_after_seconds=3,
            )
        )


@pytest.fixture(scope="module")
def metered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metered]:
    file = tmp_path_factory.mktemp("rules") / "rules.yml"
    file.write_text(rules("both"))
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setattr(lab_kafka, "JMX_RULES", file)
        kafka = stack.enter_context(KraftLab(users=("alice", "bob")))
        kafka.create_topic("orders", [[1]])
        client = AdminClient(connection_of(kafka.bootstrap_servers))
        stack.callback(client.close)
        quotas = {entity: {QuotaKey.PRODUCER_BYTE_RATE: "900000000"} for entity in EVERY}
        assert alter(client, quotas, "unused") == dict.fromkeys(quotas)
        ended = threading.Event()
        for entity in EVERY:
            producer = _producer(kafka, entity)
            thread = threading.Thread(target=_produce, args=(producer, ended), daemon=True)
            thread.start()
            stack.callback(thread.join)
        stack.callback(ended.set)
        target = ScrapeTarget("kafka", kafka.jmx_targets[1], 1)
        prometheus = stack.enter_context(PrometheusLab([target], scrape_interval_seconds=1))
        yield Metered(file, prometheus)


def _producer(kafka: KraftLab, entity: Entity) -> Producer:
    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    if entity.user is not None:
        user = str(entity.user)
        servers = login_settings(
            kafka.sasl_bootstrap_servers,
            user,
            password=kafka.password(user),
            mechanism="SCRAM-SHA-256",
        )
    return Producer({**servers, "client.id": str(entity.client_id or "any")})


def _produce(producer: Producer, ended: threading.Event) -> None:
    while not ended.wait(0.1):
        producer.produce("orders", bytes(10_000))
        producer.poll(0)
    producer.flush(patience(5))


@pytest.mark.parametrize("order", SETS)
def test_each_client_is_read_as_the_one_it_is_or_people_learn_that_it_is_not(
    metered: Metered, order: str
) -> None:
    text, known = SETS[order]
    metered.follow(text)
    reader = metered.reader()
    is_whole = known == EVERY

    def read() -> Readings | None:
        readings = reader.read({1})
        sent = {
            entity: rate
            for (entity, _, way), rate in readings.clients.items()
            if way is Direction.INGRESS
        }
        unnamed = [one for one in readings.problems if one.reason is Reason.CLIENTS_NOT_NAMED]
        is_so = set(sent) == known and bool(unnamed) is not is_whole
        return readings if is_so and readings.nic.get((1, Direction.INGRESS)) else None

    found = wait_until(read, f"{len(known)} clients", timeout_seconds=30, poll_seconds=0.5)
    reader.close()
    assert found is not None
    rates = [rate.bytes_per_second for rate in found.clients.values()]
    assert all(10_000 < rate < 1_000_000 for rate in rates)
    # without replicas the broker receives what they send
    assert found.nic[1, Direction.INGRESS][-1].bytes_per_second > 10_000
