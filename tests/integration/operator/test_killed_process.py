"""The operator as a process, killed while it applies a change of fifty members and started again, ends where an undisturbed one ends.

Two operators live through the same changes: one is killed in each of them, the other never. The tree of the killed one is a real
Kafka's, on which a member logs in by SCRAM all the time. The Lease of a killed process is deleted to spare the wait for its end, which is
the matter of test_replicas.py.
"""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kubernetes.client import ApiClient

from lab.kafka import KafkaLab
from lab.kubernetes.api import KubeApi
from lab.process import wait_until
from tests.integration.operator.installation import MEMBERS_PER_TIER, TIERS, Estate, lay_out, one_leader_on_each_broker
from tests.integration.operator.operator_process import OperatorProcess

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

SEED = 3
FIRST_RATE = 1_000_000
RAISE = 100_000
PASSWORD = "scram-password"
# From when on the kill is due, and how long after it at most: the change is sent, a quota is written, a tier's status says so.
Moment = tuple[str, float]
MOMENTS: tuple[Moment, ...] = (("sent", 0.05), ("sent", 0.5), ("written", 0.02), ("written", 0.2), ("told", 0.1))


class Logins(threading.Thread):
    """One user who logs in again and again; `refused` tells how often that failed."""

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
    """Makes started clients of a ZooKeeper."""
    with ExitStack() as stack:

        def connect(address: str) -> KazooClient:
            client = KazooClient(address)
            client.start()
            stack.callback(client.close)
            stack.callback(client.stop)
            return client

        yield connect


@pytest.fixture
def estates(
    kafka: KafkaLab, crds: KubeApi, api_client: ApiClient, chroot: str, unique_name: str, connected: Callable[[str], KazooClient]
) -> Iterator[tuple[Estate, Estate]]:
    """The one whose operator is killed, on the tree of the real Kafka, and its twin on a tree laid out alike."""
    one_leader_on_each_broker(kafka, unique_name)
    users = tuple(f"{unique_name}-{number:02}" for number in range(TIERS * MEMBERS_PER_TIER))
    kafka.create_scram_user(users[0], PASSWORD)
    real, twin = connected(kafka.zookeeper_connect), connected(chroot)
    lay_out(twin, kafka.cluster_id)
    twin.create(f"/config/users/{users[0]}", real.get(f"/config/users/{users[0]}")[0])
    killed, whole = (
        Estate(api_client, f"{unique_name}-{name}", tree, address, kafka.bootstrap_servers, unique_name, users)
        for name, tree, address in (("killed", real, kafka.zookeeper_connect), ("whole", twin, chroot))
    )
    yield killed, whole
    for estate in (killed, whole):
        estate.abandon()


def _kill_at(moment: Moment, operator: OperatorProcess, estate: Estate, *, rate: int, chance: random.Random) -> bool:
    """Kill it then; returns whether the change was still unfinished."""
    stage, longest_seconds = moment
    reached = {"sent": lambda: True, "written": lambda: estate.has_any(rate), "told": lambda: estate.told(rate) > 0}[stage]
    wait_until(reached, f"stage {stage!r} of rate {rate}", timeout_seconds=30, poll_seconds=0.002)
    deadly = threading.Timer(chance.uniform(0, longest_seconds), operator.kill)
    deadly.start()
    deadly.join()
    return not estate.is_settled(rate)


def test_killed_at_any_moment_and_started_again_it_ends_where_an_undisturbed_operator_ends(
    kafka: KafkaLab, crds: KubeApi, estates: tuple[Estate, Estate], tmp_path: Path
) -> None:
    killed, whole = estates
    chance = random.Random(SEED)
    logins = Logins(kafka, killed.users[0])
    unfinished = 0
    with ExitStack() as stack:
        logins.start()
        stack.callback(logins.end)
        rate = FIRST_RATE
        for estate in estates:
            estate.install(rate)
        stack.enter_context(OperatorProcess(crds, whole.namespace, tmp_path, name="whole"))
        for number, moment in enumerate((*MOMENTS, None)):
            operator = stack.enter_context(OperatorProcess(crds, killed.namespace, tmp_path, name=f"killed-{number}"))
            operator.wait_for_a_pass()
            for estate in estates:
                estate.settle(rate)
            assert killed.world() ^ whole.world() == frozenset(), f"killed {MOMENTS[:number][-1:]}, seed {SEED}"
            if moment is None:
                break
            rate += RAISE
            for estate in (whole, killed):
                estate.promise(rate)
            unfinished += _kill_at(moment, operator, killed, rate=rate, chance=chance)
            killed.delete_lease()
    assert unfinished > 0, "no kill came while there was anything left to do"
    assert (logins.refused, logins.accepted > 10) == (0, True)
