"""The commands as processes on a real Kafka and ZooKeeper: plan and explain change no znode,
restore leaves the former quotas.
"""

import json
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kazoo.client import KazooClient

from lab.kafka import KafkaLab
from lab.process import patience
from tests.goldens.golden import numbers
from tidegate.control.reconcile import apply_writes
from tidegate.kafka.quota_store import Claim
from tidegate.kafka.settings import ZooKeeperConnection
from tidegate.kafka.zookeeper.session import ZooKeeperSession
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore
from tidegate.observe.declared import declare
from tidegate.observe.observation import KafkaCluster, Observer
from tidegate_logic.decide import decide
from tidegate_logic.decision import Memory
from tidegate_logic.model import Entity, TopicLeaders, Topology

pytestmark = pytest.mark.integration


class EvenLeaders:
    """Leaders as the topic was created: one partition on each broker. The commands themselves ask
    the real brokers.
    """

    def read(self, patterns: Collection[str], *, with_in_sync: bool = False) -> Topology:
        topics = {pattern: TopicLeaders({1: 1, 2: 1, 3: 1}) for pattern in patterns}
        return Topology(0.0, frozenset({1, 2, 3}), topics)

    def settings(self, _: Collection[int], __: Collection[str]) -> dict[int, dict[str, str]]:
        return {}

    def close(self) -> None:
        """Nothing was opened."""


def tidegate(*arguments: str) -> tuple[int, str, str]:
    """Run the command and return its exit code, its output and its errors."""
    done = subprocess.run(
        [sys.executable, "-m", "tidegate", *arguments],
        capture_output=True,
        text=True,
        timeout=patience(90),
    )
    return done.returncode, done.stdout, done.stderr


class Installation:
    """One topic with three partitions, and a policy with one member for it. `znodes` reads every
    znode that could change.
    """

    def __init__(self, kafka: KafkaLab, name: str, folder: Path) -> None:
        self.kafka, self.name, self.user = kafka, name, f"{name}-user"
        self.is_operated = False
        connect = kafka.zookeeper_connect
        kafka_spec = {
            "bootstrapServers": kafka.bootstrap_servers,
            "quotaStore": "ZooKeeper",
            "zookeeper": {"connect": connect},
        }
        self.policy = self._object(
            "BrokerBandwidthPolicy", {"mode": "Enforce", "kafka": kafka_spec}
        )
        contract = {"perPartition": {"fetch": "10M"}}
        member = {"name": "shop", "user": self.user, "topics": [name], "contract": contract}
        self.tier = self._object(
            "BusinessTier", {"policyRef": {"name": name}, "level": "L0", "members": [member]}
        )
        self.file = str(folder / "all.yaml")
        Path(self.file).write_text(yaml.safe_dump_all([self.policy, self.tier], default_style='"'))

    def _object(self, kind: str, spec: Any) -> dict[str, Any]:
        return {
            "apiVersion": "tidegate.io/v1alpha1",
            "kind": kind,
            "metadata": {"name": self.name, "namespace": "n"},
            "spec": spec,
        }

    def operate(self) -> None:
        """Run one pass of the operator, with its claim."""
        self.is_operated = True
        declared = declare(self.policy, [self.tier])
        connect = self.kafka.zookeeper_connect
        cluster = KafkaCluster(
            connect,
            ZooKeeperQuotaStore(ZooKeeperSession(ZooKeeperConnection(connect))),
            EvenLeaders(),
        )
        try:
            cluster.store.claim(Claim(declared.policy.key, "uid"))
            facts = cluster.store.facts()
            observation = (
                Observer().observe(declared, cluster, now_seconds=1_700_000_000.0).observation
            )
            decision, _ = decide(observation, Memory())
            assert apply_writes(
                decision.writes,
                cluster.store,
                cluster_id=facts.cluster_id,
                may_write=lambda: True,
                decided_at_seconds=time.time(),
                now_seconds=time.time,
            ).complete
        finally:
            cluster.close()

    def znodes(self) -> dict[str, int]:
        """The last transaction of every node that a quota writer could touch."""
        client = KazooClient(self.kafka.zookeeper_connect)
        client.start()
        try:
            roots = [root for root in ("/config", "/tidegate") if client.exists(root)]
            return {
                path: client.get(path)[1].mzxid for root in roots for path in _walk(client, root)
            }
        finally:
            client.stop()
            client.close()


def _walk(client: KazooClient, path: str) -> Iterator[str]:
    yield path
    for child in client.get_children(path):
        yield from _walk(client, f"{path}/{child}")


@pytest.fixture
def installation(kafka: KafkaLab, unique_name: str, tmp_path: Path) -> Iterator[Installation]:
    kafka.create_topic(unique_name, assignment=[[1, 2], [2, 3], [3, 1]])
    installation = Installation(kafka, unique_name, tmp_path)
    yield installation
    if installation.is_operated:
        tidegate(
            "restore",
            "--zookeeper",
            kafka.zookeeper_connect,
            "--policy",
            f"n/{unique_name}",
            "--at-once",
            "--yes",
        )


def test_plan_on_a_real_cluster_names_the_change_and_writes_nothing(
    installation: Installation,
) -> None:
    before = installation.znodes()
    code, out, err = tidegate("plan", "-f", installation.file, "-o", "json")
    assert code == 2, err
    (change,) = json.loads(out)["changes"]
    assert (change["entity"], change["inForce"], change["next"]) == (
        {"user": installation.user},
        None,
        "10000000",
    )
    assert installation.znodes() == before


def test_after_the_operator_plan_is_empty_and_explain_names_who_set_it(
    installation: Installation,
) -> None:
    installation.operate()
    before = installation.znodes()
    assert tidegate("plan", "-f", installation.file)[0] == 0
    code, out, err = tidegate(
        "explain", "--user", installation.user, "--client-id", "any", "-f", installation.file
    )
    assert code == 0, err
    assert numbers(out) >= {10.0, 10000000, 3, 1.00, 30.0}
    for named in (f"n/{installation.name}", "L0", "shop"):
        assert named in out
    assert installation.znodes() == before


def test_restore_needs_nothing_but_zookeeper_and_leaves_no_trace(
    installation: Installation,
) -> None:
    installation.operate()
    connect = installation.kafka.zookeeper_connect
    assert tidegate("restore", "--zookeeper", connect, "--policy", f"n/{installation.name}")[0] == 2
    code, _, err = tidegate(
        "restore", "--zookeeper", connect, "--policy", f"n/{installation.name}", "--yes"
    )
    assert code == 0, err
    assert "/tidegate/claim" not in installation.znodes()
    assert not [
        path
        for path in installation.znodes()
        if installation.user in path and "/changes/" not in path
    ]
    assert str(Entity(user=installation.user)) not in tidegate("restore", "--zookeeper", connect)[1]


def test_a_zookeeper_that_does_not_answer_is_named_without_a_traceback() -> None:
    code, _, err = tidegate("restore", "--zookeeper", "127.0.0.1:1")
    assert code == 1
    assert "127.0.0.1:1" in err
    assert "Traceback" not in err
