"""A Kafka without ZooKeeper, beside the other one: a promise follows the leaders, quotas are
restored, tiers go down and come back, a namespace goes.

What is in force is what the first broker logs that it took over.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from e2e.conftest import USERS
from e2e.declared import MB, policy, tier, watching
from e2e.scene import Scenario
from lab.episodes import Business, fill_topic, running_clients
from lab.kafka import KafkaLab, QuotaChange
from lab.kraft import KraftLab
from lab.prometheus import PrometheusLab, monitoring
from lab.quota_watch import QuotaWatch, watched_quotas

LEDGER_TOPIC = "__tidegate_ledger"
CONTRACT, WANTED = 30 * MB, 10 * MB
LIMIT, FAR_AWAY = 11 * MB, 1000 * MB  # what L0 wants and L3 keeps, and no more
L3_THROTTLED = 1 * MB


@pytest.fixture(scope="module")
def kraft(kafka: KafkaLab) -> Iterator[KraftLab]:
    """Three brokers that are their own controllers, on the network of the others."""
    with KraftLab(brokers=3, beside=kafka.bridge, users=USERS) as lab:
        yield lab


@pytest.fixture(scope="module")
def nics(kraft: KraftLab) -> Iterator[PrometheusLab]:
    """It scrapes their NICs and clients every second."""
    with monitoring(kraft) as lab:
        yield lab


@pytest.fixture
def feed(kraft: KraftLab) -> str:
    """A topic of three partitions, each led by another broker."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    kraft.create_topic(name, assignment=[[1, 2], [2, 3], [3, 1]])
    return name


@pytest.fixture
def quotas(kraft: KraftLab) -> Iterator[QuotaWatch]:
    """The users' fetch quotas; none of them, and nothing of ours, is left afterwards."""
    with watched_quotas(kraft, USERS) as watch:
        yield watch
        assert watch.quotas() == dict.fromkeys(USERS)
    # nothing but a note of the epoch that the released claim had
    left = ledger(kraft)
    assert left.keys() <= {b"moved"}
    assert all(b'"released"' in note for note in left.values())
    for user in USERS:
        assert kraft.can_log_in(user, kraft.password(user))


def ledger(kraft: KraftLab) -> dict[bytes, bytes]:
    """What the topic has, as any consumer reads it."""
    consumer = Consumer(
        {
            "bootstrap.servers": kraft.bootstrap_servers,
            "group.id": "e2e",
            "isolation.level": "read_committed",
        }
    )
    partition = TopicPartition(LEDGER_TOPIC, 0, 0)
    _, end = consumer.get_watermark_offsets(partition, timeout=20)
    consumer.assign([partition])
    found: dict[bytes, bytes] = {}
    deadline = time.monotonic() + 20
    # the last offset is that of a transaction's end, which no consumer is given
    while consumer.position([partition])[0].offset < end - 1 and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found[message.key()] = message.value()
    consumer.close()
    return {key: value for key, value in found.items() if value is not None}


def wait_for(
    kraft: KraftLab,
    quotas: QuotaWatch,
    user: str,
    rate: int | None,
    *,
    timeout_seconds: float = 60.0,
) -> None:
    """Return once every running broker says that it applies this quota."""
    assert quotas.wait_for(user, rate, timeout_seconds=timeout_seconds), (
        f"fetch quota {rate} of {user}, now {quotas.quotas()[user]}"
    )
    kraft.wait_for_quota_applied(QuotaChange("FETCH", user, None, rate))


def test_a_promise_follows_the_leaders_and_is_given_back(
    scene: Scenario, kraft: KraftLab, feed: str, quotas: QuotaWatch
) -> None:
    with_login = policy(kraft)
    with_login["spec"]["kafka"] |= {
        "bootstrapServers": kraft.sasl_bootstrap_servers,
        "authentication": {
            "type": "scram-sha-256",
            "username": "orders",
            "passwordSecret": {"secretName": "orders", "password": "password"},
        },
    }
    literal = f"--from-literal=password={kraft.password('orders')}"
    scene.kubectl("create", "secret", "generic", "orders", literal)
    scene.kubectl("label", "secret", "orders", "tidegate.io/credentials=true")
    scene.declare(with_login, tier("gold", "L0", {"checkout": 10 * MB}, topic=feed))
    scene.waits_for("bbp/orders", "Ready")
    scene.waits_for("bt/gold", "Ready")
    wait_for(kraft, quotas, "checkout", 10 * MB)
    assert set(ledger(kraft)) == {b"claim", b"users/checkout"}

    kraft.broker(3).kill()
    try:
        wait_for(kraft, quotas, "checkout", 20 * MB)
    finally:
        kraft.broker(3).start()
        kraft.restore_preferred_leaders(feed)
    wait_for(kraft, quotas, "checkout", 10 * MB, timeout_seconds=120)

    scene.delete("bt/gold", "bbp/orders")
    wait_for(kraft, quotas, "checkout", None)


def test_tiers_go_down_and_come_back(
    scene: Scenario, kraft: KraftLab, nics: PrometheusLab, feed: str, quotas: QuotaWatch
) -> None:
    businesses = (
        Business("L0", "checkout", WANTED, None, CONTRACT),
        Business("L3", "reports", WANTED, L3_THROTTLED, CONTRACT),
    )
    tiers = [
        tier(
            one.level.lower(),
            one.level,
            {one.user: one.contract},
            topic=feed,
            throttled=one.throttled,
        )
        for one in businesses
    ]
    scene.declare(policy(kraft, **watching(nics, egress_limit=FAR_AWAY)), *tiers)
    scene.waits_for("bbp/orders", "Ready")
    for one in businesses:
        wait_for(kraft, quotas, one.user, CONTRACT)
    fill_topic(kraft, feed)
    with running_clients(kraft, businesses, topic=feed, run=feed, prefix="e2e"):
        time.sleep(30)  # until Kafka's own byte rates show what they read
        began = time.time()
        limit = {"egress": {"limit": str(LIMIT)}}
        scene.edit("bbp/orders", {"brokers": limit})
        wait_for(kraft, quotas, "reports", L3_THROTTLED, timeout_seconds=150)
        assert "L3" in scene.waits_for("bbp/orders", "Throttling")["message"]

        scene.edit("bbp/orders", {"brokers": {"egress": {"limit": str(FAR_AWAY)}}})
        wait_for(kraft, quotas, "reports", CONTRACT, timeout_seconds=120)
    assert quotas.values("checkout", since=began) == [CONTRACT]
    scene.delete("bbp/orders")


def test_a_namespace_goes_with_everything_in_it(
    scene: Scenario, kraft: KraftLab, feed: str, quotas: QuotaWatch
) -> None:
    scene.declare(policy(kraft), tier("gold", "L0", {"checkout": 10 * MB}, topic=feed))
    wait_for(kraft, quotas, "checkout", 10 * MB)
    scene.delete_namespace(timeout_seconds=60)
    wait_for(kraft, quotas, "checkout", None)
