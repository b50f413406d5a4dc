"""Mishaps and kills while partitions move: afterwards no throttle of Tidegate is left, and those of
others are as they were.

`make move-kills KILLS=100` plays kills of operator, broker, controller and the tool that moves, at
random times on a Kafka without ZooKeeper; `SEED=<number>` plays the same ones again.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from lab.errors import LabError
from lab.java import start_java
from lab.kafka import Broker, BrokersLab, KafkaLab
from lab.kraft import KraftLab
from lab.kubernetes.api import KubeApi
from lab.packages import kafka_jars
from lab.process import Process, started, wait_until
from tests.integration.kafka.test_replication import MIB, World
from tests.integration.operator.operator_process import OperatorProcess
from tidegate.errors import TidegateError
from tidegate_logic.replication.throttles import (
    FOLLOWER_RATE,
    LEADER_LIST,
    LEADER_RATE,
    ConfigChange,
    Configs,
    Operation,
    broker_resource,
    topic_resource,
)

KILLS = int(os.environ.get("MOVE_KILLS") or "0")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="brokers with slow NICs of their own need root"),
]
VICTIMS = ("operator", "broker", "controller", "tool")
POLICY = "orders"
# NICs are slow, or a move would be over before anybody can see it
SIZE, RATE, NIC = 32 * MIB, 2_000_000, 8_000_000
# a busy machine must not end sessions and elections that nobody killed
PATIENT_SESSIONS = {"zookeeper.session.timeout.ms": "12000"}
PATIENT_QUORUM = {
    "broker.session.timeout.ms": "12000",
    "controller.quorum.election.timeout.ms": "2000",
    "controller.quorum.fetch.timeout.ms": "4000",
    "controller.quorum.request.timeout.ms": "6000",
}
_CALM_SECONDS = 150.0  # a killed operator's Lease, a killed broker's session, and the move itself


@dataclass
class Moves:
    """Two topics whose one partition goes round the brokers, one of them with somebody's list.

    `foreign` is what others have set, and has to be there at the end.
    """

    world: World
    topics: tuple[str, str]
    folder: Path
    foreign: Configs
    dice: random.Random
    _tools: Iterator[int] = field(default_factory=lambda: count(1))

    @classmethod
    def on(cls, kafka: BrokersLab, name: str, folder: Path, dice: random.Random) -> Moves:
        world, topics = World(kafka), (f"{name}-1", f"{name}-2")
        for topic, replicas in zip(topics, ([1, 2], [2, 3]), strict=True):
            kafka.create_topic(topic, [replicas])
            world.fill(topic, SIZE)
        world.replication.read(with_recovery=False)
        foreign = {
            topic_resource(topics[0]): {LEADER_LIST: "7:1"},
            broker_resource(3): {LEADER_RATE: "999999999"},
        }
        changes = [
            ConfigChange(resource, key, Operation.SET, value)
            for resource, values in foreign.items()
            for key, value in values.items()
        ]
        wait_until(
            lambda: not world.replication.alter(changes) and world.left() == foreign,
            "the throttles of somebody else",
            timeout_seconds=60,
            poll_seconds=1,
        )
        return cls(world, topics, folder, foreign, dice)

    def begin(self) -> None:
        """Move both, each from its second replica to the broker that has none."""
        wait_until(self._begun, "the moves to begin", timeout_seconds=60, poll_seconds=1)

    def begin_throttled(self) -> None:
        """The same until throttles of ours are there; a move may have ended before it was seen."""
        for _ in range(4):
            self.begin()
            with suppress(LabError):
                wait_until(
                    lambda: self.is_throttled() or not self.is_moving(),
                    "throttles",
                    timeout_seconds=60,
                    poll_seconds=0.2,
                )
            if self.is_throttled() and self.is_moving():
                return
        raise AssertionError("no move was throttled")

    def targets(self) -> dict[tuple[str, int], list[int]]:
        admin = self.world.kafka.admin
        found = {}
        for topic in self.topics:
            (leader,) = admin.leaders(topic).values()
            now = set(admin.replicas(topic)[0])
            absent = sorted({1, 2, 3} - now) or [max(now - {leader})]
            found[topic, 0] = [leader, absent[0]]
        return found

    def _begun(self) -> bool:
        if self.is_moving():
            return True
        with suppress(Exception):  # a broker that has just started refuses for a moment
            self.world.kafka.admin.reassign(self.targets())
        return self.is_moving()

    def cancel(self) -> None:
        """Take both back; one that has ended has nothing to take back."""
        for topic in self.topics:
            with suppress(Exception):
                self.world.kafka.admin.reassign({(topic, 0): None})

    def is_moving(self) -> bool:
        """Whether a partition is reassigned; True as well while the brokers do not answer."""
        try:
            return bool(self.world.replication.read(with_recovery=False).partitions)
        except TidegateError:
            return True

    def _cancel_what_never_ends(self) -> None:
        """A tool that asks for other replicas in the middle can leave a reassignment that adds and
        removes the same one, which is in sync: Kafka 4.3.1 never looks at it again.
        """
        with suppress(TidegateError):
            partitions = self.world.replication.read(with_recovery=False).partitions
            for one in partitions:
                if one.adding & one.removing and set(one.replicas) <= one.in_sync:
                    print(f"    {one.topic}-{one.partition} never ends: cancelled", flush=True)
                    with suppress(Exception):
                        self.world.kafka.admin.reassign({(one.topic, one.partition): None})

    def is_throttled(self) -> bool:
        """Whether something of ours is set."""
        try:
            return len(self.world.left()) > len(self.foreign)
        except TidegateError:
            return False

    def tool(self) -> Process:
        """Kafka's own tool, on its way to move both topics."""
        folder = self.folder / f"tool-{next(self._tools)}"
        folder.mkdir()
        partitions = [
            {"topic": topic, "partition": number, "replicas": replicas}
            for (topic, number), replicas in self.targets().items()
        ]
        plan = folder / "plan.json"
        plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
        return start_java(
            folder.name,
            "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
            arguments=[
                *("--bootstrap-server", self.world.kafka.bootstrap_servers),
                *("--reassignment-json-file", str(plan), "--execute", "--additional"),
            ],
            options=["-Xmx96m"],
            jars=kafka_jars(),
            directory=folder,
        )

    def wait_for_calm(self, after: str) -> None:
        """Return once nothing moves and only what others set is there."""
        found: list[Configs] = []

        def calm() -> bool:
            if self.is_moving():
                self._cancel_what_never_ends()
                return False
            found[:] = [self.world.left()]
            return found[0] == self.foreign

        try:
            wait_until(calm, f"calm after {after}", timeout_seconds=_CALM_SECONDS, poll_seconds=0.5)
        except LabError as error:
            raise AssertionError(f"{error}\nmoving: {self.is_moving()}, set: {found}") from error


@dataclass
class Parts:
    """What is killed and started again."""

    moves: Moves
    start_operator: Callable[[str], OperatorProcess]
    operator: OperatorProcess
    _numbers: Iterator[int] = field(default_factory=lambda: count(2))

    @property
    def kafka(self) -> BrokersLab:
        return self.moves.world.kafka

    def kill(self, victim: str) -> Callable[[], None]:
        """Kill it; returns what starts it again."""
        if victim == "operator":
            self.operator.kill()
            return self._start_next_operator
        if victim == "tool":
            tool = self.moves.tool()
            time.sleep(self.moves.dice.uniform(0.3, 2.5))
            tool.kill()
            return lambda: None
        node = (
            self.moves.dice.choice(self.kafka.brokers)
            if victim == "broker"
            else self.kafka.broker(self.controller())
        )
        node.kill()
        return partial(start_patiently, node)

    def _start_next_operator(self) -> None:
        self.operator = self.start_operator(f"operator-{next(self._numbers)}")

    def controller(self) -> int:
        ask = (
            self.kafka.admin.quorum_leader
            if isinstance(self.kafka, KraftLab)
            else self.kafka.admin.controller
        )
        found = wait_until(ask, "an active controller", timeout_seconds=30)
        assert found is not None
        return found


def start_patiently(node: Broker) -> None:
    """Start it, again and again: ZooKeeper refuses a broker while its last session lives."""

    def has_started() -> bool:
        with suppress(LabError):
            node.start()
            return True
        return False

    wait_until(has_started, f"broker {node.broker_id} to start", timeout_seconds=120)


def declare(crds: KubeApi, namespace: str, kafka: BrokersLab, rate: int = RATE) -> None:
    """Create the namespace and the policy, or change its rate."""
    connection: dict[str, object] = {"bootstrapServers": kafka.bootstrap_servers}
    if isinstance(kafka, KafkaLab):
        connection |= {
            "quotaStore": "ZooKeeper",
            "zookeeper": {"connect": kafka.zookeeper_connect},
        }
    reassignments = {"mode": "Fixed", "rate": {"max": str(rate), "min": "100k"}}
    document = {
        "apiVersion": "tidegate.io/v1alpha1",
        "kind": "BrokerBandwidthPolicy",
        "metadata": {"name": POLICY, "namespace": namespace},
        "spec": {
            "mode": "Enforce",
            "kafka": connection,
            "deletionPolicy": "Restore",
            "replication": {"reassignments": reassignments},
        },
    }
    crds.kubectl("apply", "-f", "-", input=json.dumps(document))


@pytest.fixture
def parts(crds: KubeApi, unique_name: str, tmp_path: Path) -> Iterator[Callable[..., Parts]]:
    """Makes policy, moves and operator on a cluster; ends the operator afterwards."""
    made: list[Parts] = []

    def make(kafka: BrokersLab, seed: int) -> Parts:
        moves = Moves.on(kafka, unique_name, tmp_path, random.Random(seed))
        crds.kubectl("create", "namespace", unique_name)
        declare(crds, unique_name, kafka)

        def start_operator(name: str) -> OperatorProcess:
            return OperatorProcess(crds, unique_name, tmp_path, name=name)

        made.append(Parts(moves, start_operator, start_operator("operator-1")))
        wait_until(
            lambda: '"Ready","status":"True"' in _conditions(crds, unique_name),
            "the policy to be Ready",
            timeout_seconds=120,
            poll_seconds=1,
        )
        return made[0]

    yield make
    for one in made:
        one.operator.kill()
        for resource, values in one.moves.foreign.items():
            for key in values:
                with suppress(Exception):
                    one.moves.world.set(resource, key, Operation.DELETE)
        one.moves.world.replication.close()


def _conditions(crds: KubeApi, namespace: str) -> str:
    policy = json.loads(crds.kubectl("get", "bbp", POLICY, "-n", namespace, "-o", "json"))
    conditions = (policy.get("status") or {}).get("conditions") or ()
    return "".join(f'"{one["type"]}","status":"{one["status"]}"' for one in conditions)


def slowed(kafka: BrokersLab) -> BrokersLab:
    """The same brokers, whose NICs send no faster than `NIC`."""
    for broker in kafka.brokers:
        if broker.plan.namespace is not None:
            kafka.bridge.limit_egress(broker.plan.namespace, NIC)
    return kafka


def rounds_of(kills: int, dice: random.Random) -> Iterator[list[str]]:
    """One to three victims for each round of moves; over the whole, each as often as the others."""
    order: list[str] = []
    while len(order) < kills:
        order += dice.sample(VICTIMS, len(VICTIMS))
    order = order[:kills]
    while order:
        some = dice.randint(1, 3)
        yield order[:some]
        order = order[some:]


@pytest.mark.skipif(not KILLS, reason="played by make move-kills")
@pytest.mark.kraft
@pytest.mark.timeout(600 + 120 * KILLS)
def test_after_kills_during_moves_nothing_of_ours_is_left(
    parts: Callable[..., Parts], crds: KubeApi, unique_name: str
) -> None:
    seed = int(os.environ.get("MOVE_KILLS_SEED") or random.SystemRandom().randrange(10**6))
    print(f"MOVE_KILLS={KILLS} MOVE_KILLS_SEED={seed}")
    with started(
        lambda: KraftLab(brokers=3, namespaces=True, server_properties=PATIENT_QUORUM)
    ) as kafka:
        playing = parts(slowed(kafka), seed)
        moves, dice, number, throttled = playing.moves, playing.moves.dice, 0, 0
        slowest, began = 0.0, time.monotonic()
        for victims in rounds_of(KILLS, dice):
            moves.begin()
            for victim in victims:
                time.sleep(dice.uniform(0, 4))
                number += 1
                throttled += (is_throttled := moves.is_throttled())
                print(f"{number}: {victim}, {'throttled' if is_throttled else 'no throttle yet'}")
                start_again = playing.kill(victim)
                time.sleep(dice.uniform(0, 4))
                start_again()
            is_cancelled = dice.random() < 0.5
            if is_cancelled:
                moves.cancel()
            since = time.monotonic()
            moves.wait_for_calm(f"kill {number}, {victims}")
            slowest = max(slowest, time.monotonic() - since)
            end = "cancelled" if is_cancelled else "ended"
            print(f"    {end}, calm after {time.monotonic() - since:.1f} s", flush=True)
            assert playing.operator.is_running()
        print(
            f"{number} kills in {time.monotonic() - began:.0f} s, {throttled} while throttles of "
            f"ours were set; calm after {slowest:.1f} s at most"
        )
        assert throttled or len(VICTIMS) > KILLS
        delete_and_see_it_go(crds, unique_name, moves)


@pytest.mark.brokers
@pytest.mark.timeout(900)
def test_after_mishaps_of_a_move_nothing_of_ours_is_left(
    parts: Callable[..., Parts], crds: KubeApi, unique_name: str
) -> None:
    with started(
        lambda: KafkaLab(brokers=3, namespaces=True, server_properties=PATIENT_SESSIONS)
    ) as kafka:
        play_mishaps(parts(slowed(kafka), 1), crds, unique_name)


@pytest.mark.kraft
@pytest.mark.timeout(900)
def test_after_mishaps_without_zookeeper_nothing_of_ours_is_left(
    parts: Callable[..., Parts], crds: KubeApi, unique_name: str
) -> None:
    with started(
        lambda: KraftLab(brokers=3, namespaces=True, server_properties=PATIENT_QUORUM)
    ) as kafka:
        play_mishaps(parts(slowed(kafka), 1), crds, unique_name)


def play_mishaps(playing: Parts, crds: KubeApi, namespace: str) -> None:
    """Everything that may happen to a move, in two moves; the policy is deleted at the end."""
    kafka, moves, world = playing.kafka, playing.moves, playing.moves.world

    def rates() -> Mapping[str, str]:
        """The rates of brokers that are ours."""
        return {
            f"{resource.name} {key}": value
            for resource, values in world.left().items()
            for key, value in values.items()
            if key in (LEADER_RATE, FOLLOWER_RATE)
            and moves.foreign.get(resource, {}).get(key) != value
        }

    # the broker that a partition moves to dies and comes back
    moves.begin_throttled()
    controller = playing.controller()
    targets = {
        broker
        for one in world.replication.read(with_recovery=False).partitions
        for broker in one.adding
    }
    target = min(targets - {controller} or targets)
    kafka.broker(target).kill()

    def is_missed() -> bool:
        with suppress(TidegateError):  # whom the brokers name as the controller may be the dead one
            return target not in world.replication.read(with_recovery=False).brokers
        return False

    wait_until(is_missed, f"broker {target} to be missed", timeout_seconds=60, poll_seconds=0.5)
    start_patiently(kafka.broker(target))
    # the rate is edited while it moves
    declare(crds, namespace, kafka, 2 * RATE)
    wait_until(
        lambda: not moves.is_moving() or set(rates().values()) == {str(2 * RATE)},
        "the edited rate",
        timeout_seconds=60,
        poll_seconds=0.2,
    )
    moves.wait_for_calm("the death of the target and an edit")

    # another tool takes our rates away; the controller changes, and the operator dies meanwhile
    declare(crds, namespace, kafka, RATE)
    moves.begin_throttled()
    time.sleep(6)  # a pass has to have seen them
    for broker, key in [name.split() for name in rates()]:
        world.set(broker_resource(int(broker)), key, Operation.DELETE)
    wait_until(lambda: not moves.is_moving() or rates(), "rates to be back", timeout_seconds=60)
    active = kafka.broker(playing.controller())
    active.kill()
    start_again = playing.kill("operator")
    start_again()
    start_patiently(active)
    # and somebody cancels
    moves.cancel()
    moves.wait_for_calm("a tool, a cancel, and another controller")
    delete_and_see_it_go(crds, namespace, moves)


def delete_and_see_it_go(crds: KubeApi, namespace: str, moves: Moves) -> None:
    """The policy is deleted; others' throttles are still there."""
    crds.kubectl("delete", "bbp", POLICY, "-n", namespace, "--timeout=180s", timeout_seconds=190)
    assert moves.world.left() == moves.foreign
