"""`tidegate reassignments` from end to end, on a made-up cluster: what moves, what is left, the
rates in force, and what never ends.
"""

import json
from collections.abc import Collection
from typing import Any

import pytest

from tests.unit.controller_logic.replicating import FIXED, MB, Cluster
from tidegate.errors import Incomplete
from tidegate.kafka.throttle_record import record_to_bytes
from tidegate_logic.reasons import Reason
from tidegate_logic.replication.moves import ClusterReplication
from tidegate_logic.replication.throttles import Configs, Resource, broker_resource


class Source:
    """A ReplicationSource that only shows."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def read(self, *, with_recovery: bool) -> ClusterReplication:
        return self.cluster.seen()

    def configs(self, resources: Collection[Resource]) -> Configs:
        return {one: dict(self.cluster.configs.get(one, {})) for one in resources}

    def everywhere(self, resources: Collection[Resource]) -> dict[int, Configs | None]:
        return {1: self.configs(resources)}

    def scan(self) -> Configs:
        return self.cluster.left()

    def close(self) -> None:
        pass


@pytest.fixture
def moving(world: Any) -> Cluster:
    """A partition of 100 MB on its way from broker 1 to 2, at 2 MB/s, for ten seconds."""
    cluster = Cluster.moving([(1, 2)], size=100.0 * MB, terms=FIXED)
    cluster.play(10)
    world.replication = Source(cluster)
    return cluster


def test_each_replica_is_shown_with_what_is_left_and_the_rates_in_force(
    world: Any, policy: Any, moving: Cluster
) -> None:
    answer = world.run("reassignments", "-f", world.write_files(policy))
    assert answer.code == 0, answer.err
    assert "Reassignments: 1 replicas, 80 MB left, about 40 s by broker 1 egress" in answer.out
    row = next(line for line in answer.out.splitlines() if line.startswith("topic-0"))
    assert row.split()[:8] == ["topic-0", "0", "1", "2", "80", "MB", "100", "MB"]
    assert "2 MB/s" in answer.out


def test_a_program_gets_one_line_for_each_look(world: Any, policy: Any, moving: Cluster) -> None:
    looks = 0

    def second_look() -> None:
        nonlocal looks
        looks += 1
        moving.play(20)
        moving.sizes["topic-0", 0] += 20 * 4.0 * MB
        if looks == 2:
            raise KeyboardInterrupt

    world.during_wait = second_look
    answer = world.run("reassignments", "-f", world.write_files(policy), "--watch", "-o", "json")
    assert answer.code == 0, answer.err
    first, second = map(json.loads, answer.out.splitlines())
    assert first["kinds"][0]["bytesLeft"] == 80 * MB
    assert first["replicas"][0]["bytesPerSecond"] is None
    assert second["replicas"][0]["bytesPerSecond"] == 2 * MB
    assert second["kinds"][0]["etaSeconds"] is None
    assert second["stalls"][0].startswith("broker 1 egress: the rate is 2 MB/s, and more")


def test_nothing_that_moves_and_what_was_left_behind_is_said(world: Any, policy: Any) -> None:
    cluster = Cluster(frozenset({1, 2}), {}, {})
    cluster.configs[broker_resource(1)] = {"leader.replication.throttled.rate": "7"}
    world.replication = Source(cluster)
    answer = world.run("reassignments", "-f", world.write_files(policy))
    assert "No replica is being filled." in answer.out
    assert "left behind while nothing is reassigned: broker 1 leader" in answer.out


# --- in a plan ---


def test_a_plan_shows_which_throttles_would_be_set_and_ends_with_code_2(
    world: Any, policy: Any
) -> None:
    world.replication = Source(Cluster.moving([(1, 2)], size=100.0 * MB))
    policy["spec"]["replication"] = {"reassignments": {"mode": "Fixed", "rate": {"max": "2M"}}}
    answer = world.plan(policy, options=("-o", "json"))
    assert answer.code == 2, answer.err
    planned = json.loads(answer.out)["replication"]
    assert {(one["name"], one["key"], one["value"]) for one in planned["changes"]} == {
        ("1", "leader.replication.throttled.rate", "2000000"),
        ("2", "follower.replication.throttled.rate", "2000000"),
        ("topic-0", "leader.replication.throttled.replicas", "0:1"),
        ("topic-0", "follower.replication.throttled.replicas", "0:2"),
    }
    shown = world.plan(policy).out
    assert "would set: broker 1 leader.replication.throttled.rate\n  2000000" in shown


def test_a_plan_of_a_policy_without_replication_asks_the_brokers_nothing(
    world: Any, policy: Any
) -> None:
    answer = world.plan(policy, options=("-o", "json"))  # there is no source that could be asked
    assert "replication" not in json.loads(answer.out)


def test_a_plan_shows_what_would_be_taken_away_where_replication_was_taken_out(
    world: Any, policy: Any
) -> None:
    cluster = Cluster(frozenset({1, 2}), {}, {})
    cluster.configs[broker_resource(1)] = {"leader.replication.throttled.rate": "7"}
    world.replication = Source(cluster)
    record = {broker_resource(1): {"leader.replication.throttled.rate": frozenset({"7"})}}
    world.store.keep_throttle_record(
        record_to_bytes(record, "streaming/orders"), "memory-cluster", seen=None
    )
    answer = world.plan(policy)
    assert answer.code == 2, answer.err
    assert "would delete: broker 1 leader.replication.throttled.rate" in answer.out


def test_a_plan_says_that_replication_is_not_known_where_brokers_are_silent(
    world: Any, policy: Any
) -> None:
    class Silent(Source):
        def read(self, *, with_recovery: bool) -> ClusterReplication:
            raise Incomplete(Reason.BROKERS_UNREACHABLE, "The controller did not answer.")

    world.replication = Silent(Cluster(frozenset({1}), {}, {}))
    policy["spec"]["replication"] = {"cleanUpLeftovers": True}
    answer = world.plan(policy)
    assert answer.code == 1
    assert "The controller did not answer." in answer.out
