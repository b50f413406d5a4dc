"""A process that is killed, between any two calls or at any moment: the one after it reaches the
state of an undisturbed one.
"""

import json
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kubernetes.client import ApiClient

from lab.kafka import KafkaLab
from lab.kubernetes.api import KubeApi
from lab.process import wait_until
from tests.doubles.kubernetes import InMemoryKubernetes
from tests.integration.operator.installation import (
    MEMBERS_PER_TIER,
    TIERS,
    Installation,
    lay_out,
    one_leader_on_each_broker,
)
from tests.integration.operator.operator_process import OperatorProcess
from tests.unit.control.mortality import Fate, Killed, Mortal
from tests.unit.control.stage import Stage
from tidegate.kafka.settings import ZooKeeperConnection
from tidegate.kafka.zookeeper.session import ZooKeeperSession
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore
from tidegate.kube.api import ObjectRef

pytestmark = pytest.mark.integration

# --- whole processes ------------------------------------------------------------------------------
# An operator killed while it changes the quotas of fifty members, and started again, reaches the
# state of an undisturbed one.
#
# Two operators get the same changes. One is killed in each of them, the other never. The tree of
# the killed one is a real Kafka's, where a member logs in by SCRAM all the time. The Lease of a
# killed process is deleted, so that the test need not wait for its end; test_replicas.py tests that
# wait.


SEED = 3
FIRST_RATE = 1_000_000
RAISE = 100_000
PASSWORD = "scram-password"
# After which event the kill comes, and how many seconds later at most: the change is sent, a quota
# is written, a tier reports it.
Moment = tuple[str, float]
MOMENTS: tuple[Moment, ...] = (
    ("sent", 0.05),
    ("sent", 0.5),
    ("written", 0.02),
    ("written", 0.2),
    ("reported", 0.1),
)


class Logins(threading.Thread):
    """One user who logs in again and again. `accepted` and `refused` count the attempts."""

    def __init__(self, kafka: KafkaLab, user: str) -> None:
        super().__init__(name="logins", daemon=True)
        self._kafka = kafka
        self._user = user
        self._ended = threading.Event()
        self.accepted = self.refused = 0

    def run(self) -> None:
        while not self._ended.wait(0.5):
            if self._kafka.can_log_in(self._user, PASSWORD):
                self.accepted += 1
            else:
                self.refused += 1

    def end(self) -> None:
        self._ended.set()
        self.join()


@pytest.fixture
def connected() -> Iterator[Callable[[str], KazooClient]]:
    """A function that makes started clients of a ZooKeeper."""
    with ExitStack() as stack:

        def connect(address: str) -> KazooClient:
            client = KazooClient(address)
            client.start()
            stack.callback(client.close)
            stack.callback(client.stop)
            return client

        yield connect


@pytest.fixture
def installations(
    kafka: KafkaLab,
    crds: KubeApi,
    api_client: ApiClient,
    chroot: str,
    unique_name: str,
    connected: Callable[[str], KazooClient],
) -> Iterator[tuple[Installation, Installation]]:
    """Two installations: the one whose operator is killed, on the real Kafka's tree, and a twin on
    a copy of that tree.
    """
    one_leader_on_each_broker(kafka, unique_name)
    users = tuple(f"{unique_name}-{number:02}" for number in range(TIERS * MEMBERS_PER_TIER))
    kafka.create_scram_user(users[0], PASSWORD)
    real, twin = connected(kafka.zookeeper_connect), connected(chroot)
    lay_out(twin, kafka.cluster_id)
    twin.create(f"/config/users/{users[0]}", real.get(f"/config/users/{users[0]}")[0])
    killed, whole = (
        Installation(
            api_client,
            f"{unique_name}-{name}",
            tree,
            address,
            kafka.bootstrap_servers,
            unique_name,
            users,
        )
        for name, tree, address in (
            ("killed", real, kafka.zookeeper_connect),
            ("whole", twin, chroot),
        )
    )
    yield killed, whole
    for installation in (killed, whole):
        installation.abandon()


def _kill_at(
    moment: Moment,
    operator: OperatorProcess,
    installation: Installation,
    *,
    rate: int,
    chance: random.Random,
) -> bool:
    """Kill the operator at this moment and return whether the change was still unfinished."""
    stage, longest_seconds = moment
    reached = {
        "sent": lambda: True,
        "written": lambda: installation.has_any(rate),
        "reported": lambda: installation.tiers_reporting(rate) > 0,
    }[stage]
    wait_until(reached, f"stage {stage!r} of rate {rate}", timeout_seconds=30, poll_seconds=0.002)
    deadly = threading.Timer(chance.uniform(0, longest_seconds), operator.kill)
    deadly.start()
    deadly.join()
    return not installation.is_settled(rate)


@pytest.mark.long
def test_killed_at_any_moment_and_started_again_it_reaches_the_state_of_an_undisturbed_operator(
    kafka: KafkaLab, crds: KubeApi, installations: tuple[Installation, Installation], tmp_path: Path
) -> None:
    killed, whole = installations
    chance = random.Random(SEED)
    logins = Logins(kafka, killed.users[0])
    unfinished = 0
    with ExitStack() as stack:
        logins.start()
        stack.callback(logins.end)
        rate = FIRST_RATE
        for installation in installations:
            installation.install(rate)
        stack.enter_context(OperatorProcess(crds, whole.namespace, tmp_path, name="whole"))
        for number, moment in enumerate((*MOMENTS, None)):
            operator = stack.enter_context(
                OperatorProcess(crds, killed.namespace, tmp_path, name=f"killed-{number}")
            )
            operator.wait_for_a_pass()
            for installation in installations:
                installation.settle(rate)
            assert killed.state() ^ whole.state() == frozenset(), (
                f"killed {MOMENTS[:number][-1:]}, seed {SEED}"
            )
            if moment is None:
                break
            rate += RAISE
            for installation in (whole, killed):
                installation.change_contracts(rate)
            unfinished += _kill_at(moment, operator, killed, rate=rate, chance=chance)
            killed.delete_lease()
    assert unfinished > 0, "no kill came while there was anything left to do"
    assert (logins.refused, logins.accepted > 10) == (0, True)


# --- every call of a pass -------------------------------------------------------------------------
# A process killed before or after any call of a pass to ZooKeeper or Kubernetes: a new process
# reaches the same state.
#
# ZooKeeper is real; one user has a SCRAM credential next to the quota, whose bytes must never
# change. Passes of every other kind are killed in
# `tests/unit/control/test_killed_anywhere.py`.


SCRAM = "salt=c2FsdA==,stored_key=a2V5,server_key=a2V5,iterations=4096"
KAFKA = {
    **dict.fromkeys(
        (
            "/brokers/ids",
            "/brokers/topics/acc",
            "/config/brokers",
            "/config/changes",
            "/config/clients",
            "/config/topics",
        ),
        b"",
    ),
    "/controller": b'{"version":2,"brokerid":1,"timestamp":"0","kraftControllerEpoch":-1}',
    "/controller_epoch": b"1",
    "/cluster/id": b'{"version":"1","id":"memory-cluster"}',
    "/config/users/alice": json.dumps({"version": 1, "config": {"SCRAM-SHA-256": SCRAM}}).encode(),
}


class SimulatedCluster:
    """The nodes of a Kafka in a ZooKeeper chroot, a Kubernetes in memory, and one operator process
    at a time.
    """

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
        self.stage.store = ZooKeeperQuotaStore(
            Mortal(ZooKeeperSession(ZooKeeperConnection(self.connect)), fate)
        )
        self.stage.kubernetes = Mortal(self.kubernetes, fate)
        self.stage.restart()

    def run_past_the_grace(self) -> None:
        """The pass that finds what has changed, those that look, and that carol's quota goes in."""
        self.stage.run()
        self.stage.run_past_grace()

    def state(self, client: KazooClient) -> dict[str, Any]:
        refs: tuple[ObjectRef, ...] = (self.policy, self.alice, self.bob)
        statuses = {ref.name: self.kubernetes.get(ref).get("status") for ref in refs}
        users = {path: client.get(path)[0] for path in _below(client, "/config/users")}
        ours = {
            path: json.loads(client.get(path)[0] or b"{}") for path in _below(client, "/tidegate")
        }
        for record in ours.values():
            record.pop("policy_uid", None)
            for entry in record.get("entries", {}).values():
                entry.pop("written_at_seconds")  # later, where a process has died
        return {"statuses": statuses, "users": users, "ours": ours}


def _raise(raw: dict[str, Any]) -> None:
    raw["spec"]["members"][0]["contract"]["perPartition"]["produce"] = "30M"


def _below(client: KazooClient, path: str) -> Iterator[str]:
    for child in sorted(client.get_children(path)):
        yield f"{path}/{child}"
        yield from _below(client, f"{path}/{child}")


def _simulated_cluster(
    client: KazooClient, chroot: str, name: str
) -> tuple[SimulatedCluster, KazooClient]:
    for path, data in KAFKA.items():
        client.create(f"/{name}{path}", data, makepath=True)
    kazoo = KazooClient(f"{chroot}/{name}")
    kazoo.start()
    return SimulatedCluster(f"{chroot}/{name}"), kazoo


def _ends(client: KazooClient, chroot: str, fate: Fate, name: str) -> tuple[dict[str, Any], bool]:
    """The state after a pass under this fate and then a pass of a new process, and whether the
    first process was killed.
    """
    cluster, kazoo = _simulated_cluster(client, chroot, name)
    died = False
    try:
        cluster.process(fate)
        try:
            cluster.run_past_the_grace()
        except Killed:
            died = True
        cluster.process(Fate())
        cluster.run_past_the_grace()
        return cluster.state(kazoo), died
    finally:
        cluster.process(Fate())
        kazoo.stop()
        kazoo.close()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_any_call_a_new_process_reaches_the_same_state(
    chroot_client: KazooClient, chroot: str, after: bool
) -> None:
    expected, _ = _ends(chroot_client, chroot, Fate(), "whole")
    assert json.loads(expected["users"]["/config/users/alice"])["config"]["SCRAM-SHA-256"] == SCRAM
    assert (
        json.loads(expected["users"]["/config/users/alice"])["config"]["producer_byte_rate"]
        == "30000000"
    )
    assert "/config/users/carol" not in expected["users"]
    # claim, ledger, the records of alice and bob, and what is remembered of carol
    assert len(expected["ours"]) == 5
    deaths = 0
    while True:
        state, died = _ends(chroot_client, chroot, Fate(deaths, after=after), f"at-{deaths}")
        assert state == expected, f"killed {'after' if after else 'before'} call {deaths}"
        if not died:
            break
        deaths += 1
    assert deaths > 15
