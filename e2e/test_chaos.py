"""Two hundred kills at random while promises change: afterwards every quota, ledger record and
status agrees, and nothing foreign was touched.

`CHAOS_SEED=<number>` plays the same kills again; the seed is printed with a failure.
`CHAOS_KILLS=<number>` plays fewer or more.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest

from e2e.cluster import Cluster
from e2e.conftest import USERS
from e2e.declared import MB, Document, policy, tier, watching
from e2e.kafka_side import KafkaSide
from e2e.release import Release
from e2e.scene import Scenario
from lab.errors import LabError
from lab.kafka import Broker, KafkaLab
from lab.process import wait_until
from lab.prometheus import PrometheusLab
from lab.quota_watch import ZooKeeperQuotaWatch

KILLS = int(os.environ.get("CHAOS_KILLS", "200"))
UNTOUCHED, *CHANGED = USERS
_UNTOUCHED_RATE = 30 * MB
_LONGEST_PAUSE_SECONDS = 4.0


@dataclass
class Chaos:
    """What is killed, and what changes meanwhile."""

    dice: random.Random
    scene: Scenario
    topic: str
    kafka: KafkaLab
    prometheus: PrometheusLab
    kubernetes: Cluster
    release: Release
    promised: dict[str, int]

    def victims(self) -> Mapping[str, Callable[[], None]]:
        return {
            "operator": self.kill_operator,
            "zookeeper": self.kill_zookeeper,
            "broker": self.kill_broker,
            "prometheus": self.kill_prometheus,
            "api server": self.kubernetes.restart_apiserver,
        }

    def change_a_promise(self) -> None:
        user = self.dice.choice(CHANGED)
        self.promised[user] = self.dice.randrange(5, 50) * MB
        self.scene.declare(self.tier())

    def tier(self) -> Document:
        return tier("changed", "L1", self.promised, topic=self.topic, throttled=MB)

    def kill_operator(self) -> None:
        """One of its Pods; all of them may be gone, and their controller may have to find the API
        server again before it makes new ones.
        """
        pods = wait_until(self.release.pods, "a Pod of the operator", timeout_seconds=120)
        self.release.kill(self.dice.choice(sorted(pods)))

    def kill_zookeeper(self) -> None:
        self.kafka.zookeeper.kill()
        self.pause()
        self.kafka.zookeeper.start()

    def kill_broker(self) -> None:
        broker = self.kafka.broker(self.dice.choice((1, 2, 3)))
        broker.kill()
        self.pause()
        _start_as_a_supervisor_would(broker)

    def kill_prometheus(self) -> None:
        self.prometheus.process.kill()
        self.pause()
        self.prometheus.restart()

    def pause(self) -> None:
        time.sleep(self.dice.uniform(0, _LONGEST_PAUSE_SECONDS))


def _start_as_a_supervisor_would(broker: Broker, *, attempts: int = 10) -> None:
    """Again and again: Kafka gives up while the node of its dead self stands, and a ZooKeeper that
    was killed too lets it stand longer.
    """
    for _ in range(attempts - 1):
        try:
            return broker.start()
        except LabError:
            time.sleep(1)
    return broker.start()


@pytest.mark.timeout(7200)
def test_after_all_kills_everything_agrees(
    scene: Scenario,
    topic: str,
    kafka: KafkaLab,
    prometheus: PrometheusLab,
    kubernetes: Cluster,
    release: Release,
    in_kafka: KafkaSide,
) -> None:
    seed = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(10**6))
    print(f"CHAOS_SEED={seed}")
    login = in_kafka.login_bytes("orders")
    chaos = Chaos(
        random.Random(seed),
        scene,
        topic,
        kafka,
        prometheus,
        kubernetes,
        release,
        dict.fromkeys(CHANGED, 10 * MB),
    )
    scene.declare(
        policy(kafka, **watching(prometheus, egress_limit=1000 * MB)),
        tier("untouched", "L0", {UNTOUCHED: _UNTOUCHED_RATE}, topic=topic, per="perBroker"),
        chaos.tier(),
    )
    in_kafka.wait_for_fetch_quota(UNTOUCHED, _UNTOUCHED_RATE)

    with ZooKeeperQuotaWatch(kafka.zookeeper_connect, [UNTOUCHED]) as quotas:
        for number in range(KILLS):
            name = chaos.dice.choice(sorted(chaos.victims()))
            print(f"{number}: {name}")
            chaos.victims()[name]()
            chaos.pause()
            chaos.change_a_promise()
        kafka.restore_preferred_leaders(topic)
        release.wait_until_ready()
        for user, rate in chaos.promised.items():
            in_kafka.wait_for_fetch_quota(user, rate, timeout_seconds=120)

    for name in ("bbp/orders", "bt/changed", "bt/untouched"):
        scene.waits_for(name, "Ready", timeout_seconds=120)
    in_status = {
        member["name"]: member["quota"]["fetch"]
        for member in scene.read("bt/changed")["status"]["members"]
    }
    assert in_status == chaos.promised
    assert in_kafka.fetch_quotas_in_ledger() == {**chaos.promised, UNTOUCHED: _UNTOUCHED_RATE}
    assert login
    assert in_kafka.login_bytes("orders") == login
    assert quotas.values(UNTOUCHED) == [_UNTOUCHED_RATE], "L0 was written"
    writes = release.audit_lines(kind="write", level="L0", policy=f"{scene.namespace}/orders")
    assert not [line for line in writes if line["from"] is not None], (
        "the audit trail has a later write to L0"
    )
    scene.delete("bbp/orders", timeout_seconds=120)
