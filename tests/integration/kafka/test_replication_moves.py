"""A move at a fixed rate on real brokers, with the process killed in its middle, and one that is
cancelled: how long it takes, what was foretold, and what is left.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.kafka import BrokersLab, KafkaLab
from lab.kraft import KraftLab
from lab.process import wait_until
from tests.integration.kafka.test_replication import MIB, World, around
from tidegate_logic.replication.throttles import (
    LEADER_LIST,
    LEADER_RATE,
    Operation,
    broker_resource,
    topic_resource,
)

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(400)]
CHECKOUT = Path(__file__).parents[3]
# Until the first pass has seen a move it is as fast as the brokers, so there has to be a rest. One
# batch an answer keeps them to some tens of MB/s, whatever the machine.
ONE_BATCH = {"replica.fetch.max.bytes": "1", "replica.fetch.response.max.bytes": "1"}
SIZE, RATE = 120 * MIB, 4 * MIB
LONGEST_SECONDS = SIZE / RATE
KAFKAS_WINDOW_SECONDS = 11  # what a side of a broker may move at once, in seconds of its rate


class Keeper:
    """The process that looks after replication, and what it printed."""

    def __init__(self, policy: Path, out: Path) -> None:
        self._out = out
        self._file = out.open("w")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.kafka.replication_keeper", str(policy)],
            cwd=CHECKOUT,
            stdout=self._file,
        )

    def lines(self) -> list[dict[str, Any]]:
        whole = self._out.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def kill(self) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._file.close()


def policy_of(kafka: BrokersLab, path: Path) -> Path:
    spec: dict[str, Any] = {"bootstrapServers": kafka.bootstrap_servers}
    if isinstance(kafka, KafkaLab):
        spec |= {"quotaStore": "ZooKeeper", "zookeeper": {"connect": kafka.zookeeper_connect}}
    rate = {"max": str(RATE), "min": "100k"}
    path.write_text(
        json.dumps(
            {
                "apiVersion": "tidegate.io/v1alpha1",
                "kind": "BrokerBandwidthPolicy",
                "metadata": {"name": "orders", "namespace": "streaming", "uid": "uid-1"},
                "spec": {
                    "mode": "Enforce",
                    "kafka": spec,
                    "replication": {"reassignments": {"mode": "Fixed", "rate": rate}},
                },
            }
        )
    )
    return path


class EveryCluster:
    """What holds on both."""

    def test_a_fixed_rate_holds_and_nothing_of_ours_is_left_whoever_dies(
        self, world: World, unique_name: str, tmp_path: Path
    ) -> None:
        one, two, theirs = f"{unique_name}-1", f"{unique_name}-2", f"{unique_name}-3"
        for topic, replicas in ((one, [1]), (two, [2]), (theirs, [3])):
            world.kafka.create_topic(topic, [replicas])
        world.fill(one, SIZE)
        world.fill(two, SIZE)
        world.set(topic_resource(theirs), LEADER_LIST, Operation.SET, "0:3")
        world.set(broker_resource(3), LEADER_RATE, Operation.SET, "999999999")
        foreign = {
            topic_resource(theirs): {LEADER_LIST: "0:3"},
            broker_resource(3): {LEADER_RATE: "999999999"},
        }
        policy = policy_of(world.kafka, tmp_path / "policy.json")
        keeper = Keeper(policy, tmp_path / "first.jsonl")
        try:
            wait_until(keeper.lines, "the first pass", timeout_seconds=30)
            began = time.time()
            world.kafka.admin.reassign({(one, 0): [2], (two, 0): [3]})
            wait_until(
                lambda: any(line.get("moves") and not line["changes"] for line in keeper.lines()),
                "a pass that finds its throttles as they are",
                timeout_seconds=30,
            )
            first = keeper.lines()
            keeper.kill()
            assert first[-1]["moves"], "over before the process could be killed"
            assert len(world.left()) > len(foreign)
            keeper = Keeper(policy, tmp_path / "second.jsonl")
            wait_until(
                lambda: not world.replication.read(with_recovery=False).partitions,
                "the moves to end",
                timeout_seconds=LONGEST_SECONDS * 3,
            )
            took = time.time() - began
            wait_until(lambda: world.left() == foreign, "our throttles to go", timeout_seconds=20)
            wait_until(lambda: keeper.lines()[-1].get("finished"), "the end", timeout_seconds=30)
            throttled = [
                line
                for line in [*first, *keeper.lines()]
                if line.get("moves") == 2 and line["seconds"] is not None and not line["changes"]
            ]
            print(f"took {took:.1f} s; {throttled[::8]}")
            begin, end = throttled[0], throttled[-1]
            moved, lasted = begin["left"] - end["left"], end["at"] - begin["at"]
            assert lasted > 10
            assert moved <= 1.1 * 2 * RATE * (lasted + KAFKAS_WINDOW_SECONDS)
            # on a busy machine brokers fetch less than they may
            assert moved >= 0.5 * 2 * RATE * lasted
            off = sorted(
                abs(line["at"] + line["seconds"] - began - took) / took
                for line in throttled
                if began + took - line["at"] > 4
            )
            # alone on a machine nine of ten are within 15 %
            assert off[len(off) // 2] <= 0.3, off

            # one that is cancelled
            world.kafka.admin.reassign({(one, 0): [1]})
            wait_until(lambda: world.left() != foreign, "throttles", timeout_seconds=20)
            world.kafka.admin.reassign({(one, 0): None})
            wait_until(lambda: world.left() == foreign, "our throttles to go", timeout_seconds=20)
        finally:
            keeper.kill()
            for resource, values in foreign.items():
                for key in values:
                    world.set(resource, key, Operation.DELETE)


class TestWithZooKeeper(EveryCluster):
    @pytest.fixture
    def world(self) -> Iterator[World]:
        with KafkaLab(brokers=3, server_properties=ONE_BATCH) as cluster:
            yield from around(cluster)


@pytest.mark.kraft
class TestWithKraft(EveryCluster):
    @pytest.fixture
    def world(self) -> Iterator[World]:
        with KraftLab(brokers=3, server_properties=ONE_BATCH) as cluster:
            yield from around(cluster)
