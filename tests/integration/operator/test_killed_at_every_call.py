"""Killed before or after any call that a pass makes to ZooKeeper or Kubernetes, a new process ends in the same world.

ZooKeeper is real; one user has a SCRAM credential next to the quota, whose bytes must never change. Passes of every other kind are killed
in `tests/unit/control/test_killed_anywhere.py`, and whole processes in `test_killed_process.py`.
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


class Estate:
    """A laid-out Kafka tree in a chroot of its own, a Kubernetes, and one process at a time."""

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
        """A new process: nothing remembered, a session of its own."""
        for controller in self.stage.controllers.values():
            controller.close()
        self.stage.store = ZooKeeperQuotaStore(Mortal(ZooKeeperSession(ZooKeeperConnection(self.connect)), fate))
        self.stage.kubernetes = Mortal(self.kubernetes, fate)
        self.stage.restart()

    def world(self, client: KazooClient) -> dict[str, Any]:
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


def _estate(client: KazooClient, chroot: str, name: str) -> tuple[Estate, KazooClient]:
    for path, data in KAFKA.items():
        client.create(f"/{name}{path}", data, makepath=True)
    kazoo = KazooClient(f"{chroot}/{name}")
    kazoo.start()
    return Estate(f"{chroot}/{name}"), kazoo


def _ends(client: KazooClient, chroot: str, fate: Fate, name: str) -> tuple[dict[str, Any], bool]:
    """The world after a pass under this fate and, if it died, after a new process; and whether it died."""
    estate, kazoo = _estate(client, chroot, name)
    died = False
    try:
        estate.process(fate)
        try:
            estate.stage.run()
        except Killed:
            died = True
        estate.process(Fate())
        estate.stage.run()
        return estate.world(kazoo), died
    finally:
        estate.process(Fate())
        kazoo.stop()
        kazoo.close()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_any_call_a_new_process_ends_in_the_same_world(client: KazooClient, chroot: str, after: bool) -> None:
    expected, _ = _ends(client, chroot, Fate(), "whole")
    assert json.loads(expected["users"]["/config/users/alice"])["config"]["SCRAM-SHA-256"] == SCRAM
    assert json.loads(expected["users"]["/config/users/alice"])["config"]["producer_byte_rate"] == "30000000"
    assert len(expected["ours"]) == 4  # claim, ledger, and the records of alice and bob
    deaths = 0
    while True:
        world, died = _ends(client, chroot, Fate(deaths, after=after), f"at-{deaths}")
        assert world == expected, f"killed {'after' if after else 'before'} call {deaths}"
        if not died:
            break
        deaths += 1
    assert deaths > 15
