"""A process killed before or after any call of a pass to ZooKeeper or Kubernetes: a new process reaches the same state.

ZooKeeper is real; one user has a SCRAM credential next to the quota, whose bytes must never change. Passes of every other kind are killed
in `tests/unit/control/test_killed_anywhere.py`, and whole processes in `test_killed.py`.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.doubles.kubernetes import InMemoryKubernetes
from tests.unit.control.mortality import Fate, Killed, Mortal
from tests.unit.control.stage import Stage
from tidegate.kafka.settings import ZooKeeperConnection
from tidegate.kafka.zookeeper.session import ZooKeeperSession
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore
from tidegate.kube.api import ObjectRef

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

SCRAM = "salt=c2FsdA==,stored_key=a2V5,server_key=a2V5,iterations=4096"
KAFKA = {
    **dict.fromkeys(
        ("/brokers/ids", "/brokers/topics/acc", "/config/brokers", "/config/changes", "/config/clients", "/config/topics"), b""
    ),
    "/controller": b'{"version":2,"brokerid":1,"timestamp":"0","kraftControllerEpoch":-1}',
    "/controller_epoch": b"1",
    "/cluster/id": b'{"version":"1","id":"memory-cluster"}',
    "/config/users/alice": json.dumps({"version": 1, "config": {"SCRAM-SHA-256": SCRAM}}).encode(),
}


class SimulatedCluster:
    """The nodes of a Kafka in a ZooKeeper chroot, a Kubernetes in memory, and one operator process at a time."""

    def __init__(self, connect: str) -> None:
        self.connect = connect
        self.kubernetes = InMemoryKubernetes()
        self.stage = Stage(self.kubernetes)
        self.process(Fate())
        self.policy = self.stage.policy(removal={"maxPercent": 100})
        self.alice = self.stage.tier("gold", user="alice", rate="10M")
        self.carol = self.stage.tier("silver", user="carol", rate="2M")
        self.stage.run()
        self.stage.now += 60
        self.kubernetes.edit(self.alice, _raise)
        self.kubernetes.delete(self.carol)
        self.bob = self.stage.tier("bronze", user="bob", rate="3M")

    def process(self, fate: Fate) -> None:
        """Start a new process: no memory of an earlier one, and a session of its own."""
        for controller in self.stage.controllers.values():
            controller.close()
        self.stage.store = ZooKeeperQuotaStore(Mortal(ZooKeeperSession(ZooKeeperConnection(self.connect)), fate))
        self.stage.kubernetes = Mortal(self.kubernetes, fate)
        self.stage.restart()

    def state(self, client: KazooClient) -> dict[str, Any]:
        refs: tuple[ObjectRef, ...] = (self.policy, self.alice, self.bob)
        statuses = {ref.name: self.kubernetes.get(ref).get("status") for ref in refs}
        users = {path: client.get(path)[0] for path in _below(client, "/config/users")}
        ours = {path: json.loads(client.get(path)[0] or b"{}") for path in _below(client, "/tidegate")}
        for record in ours.values():
            record.pop("policy_uid", None)
        return {"statuses": statuses, "users": users, "ours": ours}


def _raise(raw: dict[str, Any]) -> None:
    raw["spec"]["members"][0]["contract"]["perPartition"]["produce"] = "30M"


def _below(client: KazooClient, path: str) -> Iterator[str]:
    for child in sorted(client.get_children(path)):
        yield f"{path}/{child}"
        yield from _below(client, f"{path}/{child}")


@pytest.fixture
def client(chroot: str) -> Iterator[KazooClient]:
    kazoo = KazooClient(chroot)
    kazoo.start()
    yield kazoo
    kazoo.stop()
    kazoo.close()


def _simulated_cluster(client: KazooClient, chroot: str, name: str) -> tuple[SimulatedCluster, KazooClient]:
    for path, data in KAFKA.items():
        client.create(f"/{name}{path}", data, makepath=True)
    kazoo = KazooClient(f"{chroot}/{name}")
    kazoo.start()
    return SimulatedCluster(f"{chroot}/{name}"), kazoo


def _ends(client: KazooClient, chroot: str, fate: Fate, name: str) -> tuple[dict[str, Any], bool]:
    """The state after a pass under this fate and then a pass of a new process, and whether the first process was killed."""
    cluster, kazoo = _simulated_cluster(client, chroot, name)
    died = False
    try:
        cluster.process(fate)
        try:
            cluster.stage.run()
        except Killed:
            died = True
        cluster.process(Fate())
        cluster.stage.run()
        return cluster.state(kazoo), died
    finally:
        cluster.process(Fate())
        kazoo.stop()
        kazoo.close()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_any_call_a_new_process_reaches_the_same_state(client: KazooClient, chroot: str, after: bool) -> None:
    expected, _ = _ends(client, chroot, Fate(), "whole")
    assert json.loads(expected["users"]["/config/users/alice"])["config"]["SCRAM-SHA-256"] == SCRAM
    assert json.loads(expected["users"]["/config/users/alice"])["config"]["producer_byte_rate"] == "30000000"
    assert len(expected["ours"]) == 4  # claim, ledger, and the records of alice and bob
    deaths = 0
    while True:
        state, died = _ends(client, chroot, Fate(deaths, after=after), f"at-{deaths}")
        assert state == expected, f"killed {'after' if after else 'before'} call {deaths}"
        if not died:
            break
        deaths += 1
    assert deaths > 15
