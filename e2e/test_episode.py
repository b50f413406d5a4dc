"""A broker's NIC is over its limit: tiers go down from L3 on and come back, with real readers, and
a replica that dies changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise

import pytest

from e2e.conftest import USERS
from e2e.declared import MB, policy, tier, watching
from e2e.kafka_side import KafkaSide
from e2e.release import Release
from e2e.scene import Scenario
from lab.episodes import Business, fill_topic, running_clients
from lab.kafka import KafkaLab
from lab.process import wait_until
from lab.prometheus import PrometheusLab
from lab.quota_watch import QuotaWatch, ZooKeeperQuotaWatch

CONTRACT, WANTED = 30 * MB, 10 * MB
LIMIT, FAR_AWAY = 20 * MB, 1000 * MB
THROTTLED = {"orders": 5 * MB, "search": 5 * MB // 2, "reports": 1 * MB}
LEVELS = dict(zip(USERS, ("L0", "L1", "L2", "L3"), strict=True))


@pytest.fixture
def episode(
    scene: Scenario, topic: str, kafka: KafkaLab, prometheus: PrometheusLab, in_kafka: KafkaSide
) -> Iterator[QuotaWatch]:
    """Four businesses that read 10 MB/s each from broker 1, and a limit that no one reaches."""
    tiers = [
        tier(level.lower(), level, {user: CONTRACT}, topic=topic, throttled=THROTTLED.get(user))
        for user, level in LEVELS.items()
    ]
    scene.declare(policy(kafka, **watching(prometheus, egress_limit=FAR_AWAY)), *tiers)
    scene.waits_for("bbp/orders", "Ready")
    for user in USERS:
        in_kafka.wait_for_fetch_quota(user, CONTRACT)
    businesses = [
        Business(level, user, WANTED, THROTTLED.get(user), CONTRACT)
        for user, level in LEVELS.items()
    ]
    fill_topic(kafka, topic)
    with (
        ZooKeeperQuotaWatch(kafka.zookeeper_connect, USERS) as quotas,
        running_clients(kafka, businesses, topic=topic, run=topic, prefix="e2e"),
    ):
        time.sleep(30)  # until Kafka's own byte rates show what they read
        yield quotas
    scene.delete("bbp/orders")


def limit(scene: Scenario, bytes_per_second: int) -> float:
    before = time.time()
    scene.edit("bbp/orders", {"brokers": {"egress": {"limit": str(bytes_per_second)}}})
    return before


def is_lowered(quotas: QuotaWatch, user: str) -> bool:
    return min(value or 0 for value in quotas.values(user)) < CONTRACT


def test_tiers_go_down_from_l3_on_and_all_come_back(
    scene: Scenario, episode: QuotaWatch, in_kafka: KafkaSide, release: Release
) -> None:
    began = limit(scene, LIMIT)
    wait_until(
        lambda: in_kafka.fetch_quota("reports") == THROTTLED["reports"],
        "L3 at its throttled rate",
        timeout_seconds=150,
    )
    throttling = scene.waits_for("bbp/orders", "Throttling")
    assert "L3" in throttling["message"]
    wait_until(lambda: is_lowered(episode, "search"), "L2 to be lowered", timeout_seconds=90)

    limit(scene, FAR_AWAY)
    for user in USERS:
        in_kafka.wait_for_fetch_quota(user, CONTRACT, timeout_seconds=120)

    assert episode.values("checkout", since=began) == [CONTRACT]
    writes = release.audit_lines(kind="write")
    assert not [line for line in writes if '"L0"' in str(line) and "Throttled" in str(line)]


def test_a_replica_killed_in_the_middle_of_a_step_is_replaced_and_nothing_is_done_twice(
    scene: Scenario, episode: QuotaWatch, release: Release
) -> None:
    began = limit(scene, LIMIT)
    wait_until(
        lambda: is_lowered(episode, "reports"),
        "the first step of L3",
        timeout_seconds=90,
        poll_seconds=0.05,
    )
    holder = release.holder(scene.namespace)
    killed = time.monotonic()
    release.kill(holder)
    successor = release.wait_for_another_holder(holder, scene.namespace, timeout_seconds=30)
    took_over_seconds = time.monotonic() - killed
    wait_until(
        lambda: episode.quotas()["reports"] == THROTTLED["reports"],
        "L3 at its end",
        timeout_seconds=150,
    )

    assert took_over_seconds <= 15, f"{successor} took over after {took_over_seconds:.1f} s"
    for user in ("orders", "search", "reports"):
        values = [value or 0 for value in episode.values(user, since=began)]
        assert all(later < earlier for earlier, later in pairwise(values)), f"{user}: {values}"
    release.wait_until_ready()
