"""An operator killed while it changes the quotas of fifty members, and started again, reaches the state of an undisturbed one.

Two operators get the same changes. One is killed in each of them, the other never. The tree of the killed one is a real Kafka's, where
a member logs in by SCRAM all the time. The Lease of a killed process is deleted, so that the test need not wait for its end;
test_replicas.py tests that wait.
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
from tests.integration.operator.installation import MEMBERS_PER_TIER, TIERS, Installation, lay_out, one_leader_on_each_broker
from tests.integration.operator.operator_process import OperatorProcess

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

SEED = 3
FIRST_RATE = 1_000_000
RAISE = 100_000
PASSWORD = "scram-password"
# After which event the kill comes, and how many seconds later at most: the change is sent, a quota is written, a tier reports it.
Moment = tuple[str, float]
MOMENTS: tuple[Moment, ...] = (("sent", 0.05), ("sent", 0.5), ("written", 0.02), ("written", 0.2), ("reported", 0.1))


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
    kafka: KafkaLab, crds: KubeApi, api_client: ApiClient, chroot: str, unique_name: str, connected: Callable[[str], KazooClient]
) -> Iterator[tuple[Installation, Installation]]:
    """Two installations: the one whose operator is killed, on the real Kafka's tree, and a twin on a copy of that tree."""
    one_leader_on_each_broker(kafka, unique_name)
    users = tuple(f"{unique_name}-{number:02}" for number in range(TIERS * MEMBERS_PER_TIER))
    kafka.create_scram_user(users[0], PASSWORD)
    real, twin = connected(kafka.zookeeper_connect), connected(chroot)
    lay_out(twin, kafka.cluster_id)
    twin.create(f"/config/users/{users[0]}", real.get(f"/config/users/{users[0]}")[0])
    killed, whole = (
        Installation(api_client, f"{unique_name}-{name}", tree, address, kafka.bootstrap_servers, unique_name, users)
        for name, tree, address in (("killed", real, kafka.zookeeper_connect), ("whole", twin, chroot))
    )
    yield killed, whole
    for installation in (killed, whole):
        installation.abandon()


def _kill_at(moment: Moment, operator: OperatorProcess, installation: Installation, *, rate: int, chance: random.Random) -> bool:
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
            operator = stack.enter_context(OperatorProcess(crds, killed.namespace, tmp_path, name=f"killed-{number}"))
            operator.wait_for_a_pass()
            for installation in installations:
                installation.settle(rate)
            assert killed.state() ^ whole.state() == frozenset(), f"killed {MOMENTS[:number][-1:]}, seed {SEED}"
            if moment is None:
                break
            rate += RAISE
            for installation in (whole, killed):
                installation.change_contracts(rate)
            unfinished += _kill_at(moment, operator, killed, rate=rate, chance=chance)
            killed.delete_lease()
    assert unfinished > 0, "no kill came while there was anything left to do"
    assert (logins.refused, logins.accepted > 10) == (0, True)
