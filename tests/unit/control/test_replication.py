"""What a policy's replication comes to in the operator: throttles that come and go, a record that
is written first, and what people see of it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.unit.control.stage import Stage
from tests.unit.controller_logic.replicating import MB, Cluster, apply
from tidegate.errors import Unreachable
from tidegate.kafka.quota_store import require_lease
from tidegate.kafka.throttle_record import record_of
from tidegate.kube.api import ObjectRef
from tidegate_logic.model import Direction, NicSpan, Readings
from tidegate_logic.reasons import Reason
from tidegate_logic.replication.background import Tiering
from tidegate_logic.replication.moves import ClusterReplication, egress_of
from tidegate_logic.replication.throttles import (
    FOLLOWER_LIST,
    FOLLOWER_RATE,
    LEADER_LIST,
    LEADER_RATE,
    ConfigChange,
    Configs,
    Resource,
    ResourceKind,
    before_of,
    broker_resource,
    topic_resource,
)

FIXED = {"reassignments": {"mode": "Fixed", "rate": {"max": "2M"}}}
FOLLOW = {"reassignments": {"mode": "Follow", "rate": {"min": "1M"}}}
AWAY = Unreachable(Reason.BROKERS_UNREACHABLE, "No broker answered.")
SET = {
    topic_resource("topic-0"): {LEADER_LIST: "0:1", FOLLOWER_LIST: "0:2"},
    broker_resource(1): {LEADER_RATE: "2000000"},
    broker_resource(2): {FOLLOWER_RATE: "2000000"},
}


class KilledError(Exception):
    """The process ends here."""


@dataclass
class Source:
    """A ReplicationSource on a made-up cluster. It is killed before the change of this number."""

    cluster: Cluster
    stage: Stage
    down: set[int] = field(default_factory=set)
    error: Exception | None = None
    lagging: dict[int, Configs | None] = field(default_factory=dict)  # what a broker still shows
    killed_at: int | None = None
    asked: int = 0
    altered: list[ConfigChange] = field(default_factory=list)
    tiers: dict[int, Tiering] = field(default_factory=dict)

    def read(self, *, with_recovery: bool) -> ClusterReplication:
        self.asked += 1
        if self.error is not None:
            raise self.error
        self.cluster.now_seconds = self.stage.now
        self.cluster.brokers = frozenset({1, 2, 3, 4}) - self.down
        return self.cluster.seen()

    def has_changed(self) -> bool:
        return False

    def configs(self, resources: Collection[Resource]) -> Configs:
        return {one: dict(self.cluster.configs.get(one, {})) for one in resources if self._up(one)}

    def tiering(self) -> Mapping[int, Tiering]:
        return {one: tiering for one, tiering in self.tiers.items() if one not in self.down}

    def everywhere(self, resources: Collection[Resource]) -> Mapping[int, Configs | None]:
        alive = {1, 2, 3, 4} - self.down
        return {one: self.lagging.get(one, self.configs(resources)) for one in alive}

    def scan(self) -> Configs:
        return {one: dict(values) for one, values in self.cluster.left().items() if self._up(one)}

    def alter(
        self, changes: Sequence[ConfigChange], may_write: Callable[[], bool] = lambda: True
    ) -> Mapping[Resource, str]:
        failed: dict[Resource, str] = {}
        for number, one in enumerate(changes):
            if number == self.killed_at:
                raise KilledError
            require_lease(may_write)
            record = record_of(self.stage.store.throttle_record())
            if one.value and one.operation.value != "Subtract":  # the record comes first
                items = record[one.resource][one.key]
                assert set(one.value.split(",")) <= items | {before_of(items)}
            if self._up(one.resource):
                apply(self.cluster.configs, [one])
                self.altered.append(one)
            else:
                failed[one.resource] = "it did not answer"
        return failed

    def close(self) -> None:
        pass

    def _up(self, one: Resource) -> bool:
        return one.kind is ResourceKind.TOPIC or int(one.name) not in self.down


@pytest.fixture
def cluster() -> Cluster:
    """A partition that moves from broker 1 to broker 2."""
    return Cluster.moving([(1, 2)], size=100.0 * MB)


@pytest.fixture
def source(stage: Stage, cluster: Cluster) -> Source:
    source = Source(cluster, stage)
    stage.replication = source
    stage.restart()
    return source


def after(stage: Stage, seconds: float) -> None:
    stage.now += seconds
    stage.run()


def ended(source: Source) -> None:
    source.cluster.partitions = {}


def status(stage: Stage, policy: ObjectRef) -> dict[str, Any]:
    return dict(stage.kubernetes.get(policy)["status"].get("replication") or {})


def test_a_policy_that_asks_for_nothing_asks_the_brokers_nothing(
    stage: Stage, source: Source
) -> None:
    policy = stage.policy()
    stage.run()
    after(stage, 15)
    assert source.asked == 0
    assert not source.cluster.left()
    assert "replication" not in stage.kubernetes.get(policy)["status"]


def test_a_fixed_rate_is_set_while_a_partition_moves_and_taken_away_after(
    stage: Stage, source: Source
) -> None:
    policy = stage.policy(replication=FIXED)
    assert stage.run() <= 5
    assert source.cluster.left() == SET
    assert stage.condition(policy, "ReplicationCurrent") == ("True", "ReplicationThrottled")
    assert status(stage, policy)["moving"] == {
        "partitions": 1,
        "bytesLeft": 100_000_000,
        "etaSeconds": 50,
        "bottleneck": "broker 1 egress",
    }
    written = len(source.altered)
    after(stage, 15)
    assert len(source.altered) == written
    ended(source)
    after(stage, 15)
    assert not source.cluster.left()
    after(stage, 15)
    after(stage, 15)
    assert stage.store.throttle_record() is None
    assert stage.condition(policy, "ReplicationCurrent") == ("True", "ReplicationIdle")
    assert [one for one in stage.event_reasons() if one.startswith("Replication")] == [
        "ReplicationThrottled",
        "ReplicationReleased",
    ]


@pytest.mark.parametrize("shown", [SET, None], ids=["still set", "no answer"])
def test_the_record_stays_until_every_live_broker_shows_that_ours_is_gone(
    stage: Stage, source: Source, shown: Configs | None
) -> None:
    policy = stage.policy(replication=FIXED)
    stage.tier()
    stage.run()
    held = record_of(stage.store.throttle_record())
    source.lagging[4] = shown
    stage.kubernetes.delete(policy)
    for _ in range(5):
        after(stage, 15)
    assert not source.cluster.left()
    assert record_of(stage.store.throttle_record()) == held
    assert stage.store.facts().claim is not None
    source.lagging.clear()
    for _ in range(3):
        after(stage, 15)
    assert stage.store.throttle_record() is None
    assert stage.store.facts().claim is None


def test_a_rate_that_another_tool_sets_while_the_record_is_kept_stays(
    stage: Stage, source: Source, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep, theirs = stage.store.keep_throttle_record, {LEADER_RATE: "7000000"}

    def slowly(*args: Any, **kwargs: Any) -> None:
        keep(*args, **kwargs)
        cluster.configs[broker_resource(1)] = dict(theirs)

    monkeypatch.setattr(stage.store, "keep_throttle_record", slowly)
    stage.policy(replication=FIXED)
    stage.run()
    assert cluster.configs[broker_resource(1)] == theirs
    assert broker_resource(2) in {one.resource for one in source.altered}


def test_a_clock_that_is_set_back_does_not_hold_up_what_is_taken_away(
    stage: Stage, source: Source
) -> None:
    """A policy that is deleted has some minutes for it: its waits are not the wall clock's."""
    policy = stage.policy(replication=FIXED)
    stage.run()
    ended(source)
    stage.kubernetes.delete(policy)
    stage.run()
    after(stage, 5)  # it is seen that they are gone
    stage.set_back_seconds = 600.0
    for _ in range(4):
        after(stage, 15)
    assert not source.cluster.left()
    assert stage.store.throttle_record() is None


def test_mode_observe_writes_nothing(stage: Stage, source: Source) -> None:
    policy = stage.policy(replication=FIXED)
    stage.kubernetes.edit(policy, lambda raw: raw["spec"].update(mode="Observe"))
    stage.run()
    assert not source.cluster.left()
    assert stage.store.throttle_record() is None
    assert status(stage, policy)["moving"]["partitions"] == 1


@pytest.mark.parametrize("killed_at", range(4))
def test_killed_between_any_two_changes_nothing_of_ours_is_left(
    stage: Stage, source: Source, killed_at: int
) -> None:
    theirs = {broker_resource(3): {LEADER_RATE: "777"}, topic_resource("a"): {LEADER_LIST: "*"}}
    source.cluster.configs.update({one: dict(values) for one, values in theirs.items()})
    stage.policy(replication=FIXED)
    source.killed_at = killed_at
    with pytest.raises(KilledError):
        stage.run()
    source.killed_at = None
    stage.restart()
    ended(source)
    stage.run()
    assert source.cluster.left() == theirs
    for _ in range(2):
        after(stage, 15)
    assert stage.store.throttle_record() is None


def test_an_edit_to_nothing_takes_everything_away_and_then_asks_no_more(
    stage: Stage, source: Source
) -> None:
    policy = stage.policy(replication=FIXED)
    stage.run()
    stage.kubernetes.edit(policy, lambda raw: raw["spec"].pop("replication"))
    after(stage, 15)
    assert not source.cluster.left()
    after(stage, 15)
    after(stage, 15)
    asked = source.asked
    after(stage, 15)
    assert source.asked == asked


def test_a_deleted_policy_goes_when_its_throttles_are_gone(stage: Stage, source: Source) -> None:
    policy = stage.policy(replication=FIXED)
    stage.tier()
    stage.run()
    stage.kubernetes.delete(policy)
    after(stage, 5)
    assert not source.cluster.left()
    after(stage, 15)
    after(stage, 15)
    assert stage.store.throttle_record() is None
    assert stage.store.facts().claim is None


def test_a_broker_that_is_down_keeps_its_rate_until_it_is_back(
    stage: Stage, source: Source
) -> None:
    policy = stage.policy(replication=FIXED)
    stage.run()
    source.down = {2}
    ended(source)
    after(stage, 15)
    after(stage, 30)
    assert source.cluster.left() == {broker_resource(2): {FOLLOWER_RATE: "2000000"}}
    assert status(stage, policy)["waitingFor"] == ["broker 2"]
    source.down = set()
    after(stage, 15)
    assert not source.cluster.left()


def test_brokers_that_do_not_answer_change_nothing_and_quotas_go_on(
    stage: Stage, source: Source
) -> None:
    policy = stage.policy(replication=FIXED)
    stage.tier()
    stage.run()
    source.error = AWAY
    ended(source)
    after(stage, 15)
    assert source.cluster.left() == SET
    assert stage.condition(policy) == ("True", "InSync")
    assert stage.condition(policy, "ReplicationCurrent") == ("False", "BrokersUnreachable")
    assert status(stage, policy)["problem"] == "No broker answered."


def test_a_stall_is_told_with_both_numbers(stage: Stage, source: Source) -> None:
    policy = stage.policy(replication=FIXED)
    for _ in range(8):
        after(stage, 5)
        source.cluster.sizes["topic-0", 0] += 5 * 4.0 * MB
    assert stage.condition(policy, "ReplicationCurrent") == ("False", "ReassignmentStalls")
    assert status(stage, policy)["stalls"][0] == (
        "broker 1 egress: the rate is 2 MB/s, and more than 4 MB/s is needed: the replicas "
        "being filled receive 4 MB/s of new data"
    )
    assert "ReassignmentStalls" in stage.event_reasons()


def test_what_a_tool_left_behind_is_shown_and_removed_where_asked(
    stage: Stage, source: Source
) -> None:
    ended(source)
    source.cluster.configs[broker_resource(3)] = {LEADER_RATE: "777"}
    policy = stage.policy(replication=FIXED)
    stage.run()
    assert status(stage, policy)["leftovers"] == [f"broker 3 {LEADER_RATE}=777"]
    assert stage.condition(policy, "ReplicationCurrent") == ("False", "ReplicationLeftover")
    source.error = AWAY  # what was shown stays beside why it is not looked at
    after(stage, 5)
    assert status(stage, policy)["leftovers"] == [f"broker 3 {LEADER_RATE}=777"]
    assert status(stage, policy)["problem"] == "No broker answered."
    source.error = None
    for _ in range(7):
        after(stage, 60)
    assert source.cluster.left()
    stage.kubernetes.edit(
        policy, lambda raw: raw["spec"]["replication"].update(cleanUpLeftovers=True)
    )
    after(stage, 60)
    assert not source.cluster.left()
    assert "LeftoverRemoved" in stage.event_reasons()
    after(stage, 60)
    assert stage.condition(policy, "ReplicationCurrent") == ("True", "ReplicationIdle")


def read(stage: Stage, egress: float) -> None:
    """Samples of every NIC: broker 1 sends so many MB/s, and everything else moves 1 MB/s."""
    nic = {
        (broker, way): tuple(
            NicSpan(
                stage.now - 1 - 15 * back,
                15.0,
                (egress if (broker, way) == (1, Direction.EGRESS) else 1) * MB,
            )
            for back in (2, 1, 0)
        )
        for broker in (1, 2, 3)
        for way in Direction.COMBINED.parts
    }
    stage.readings = Readings(stage.now, 15.0, nic)


def test_follow_sets_what_the_nic_has_left_and_knows_nothing_without_readings(
    stage: Stage, source: Source
) -> None:
    stage.policy(
        replication=FOLLOW,
        metrics={"prometheus": {"url": "http://prometheus:9090"}},
        brokers={"egress": {"limit": "100M"}, "ingress": {"limit": "100M"}},
    )
    stage.run()
    assert not source.cluster.left()
    read(stage, 60)
    after(stage, 15)
    assert source.cluster.rate_of(egress_of(1)) == 32 * MB
    read(stage, 120)
    after(stage, 15)
    assert source.cluster.rate_of(egress_of(1)) == MB


def test_quotas_know_of_a_move_at_once(stage: Stage, source: Source) -> None:
    """They are decided before replication is looked at, so the first pass is followed by another,
    and every later one by a pass of the usual distance.
    """
    stage.policy(
        replication={"reassignments": {"mode": "Follow", "priority": "L1"}},
        metrics={"prometheus": {"url": "http://prometheus:9090"}},
        brokers={"egress": {"limit": "100M"}, "ingress": {"limit": "100M"}},
    )
    moving = source.cluster.partitions
    ended(source)
    read(stage, 60)
    assert stage.run() > 5
    source.cluster.partitions = moving
    assert [stage.run(), stage.run(), stage.run()] == [0, 5, 5]
    ended(source)
    after(stage, 15)
    source.cluster.partitions = moving
    assert [stage.run(), stage.run()] == [0, 5]


@pytest.mark.parametrize(
    ("replication", "message"),
    [
        ({"reassignments": {"mode": "Fixed"}}, "rate.max is required with mode Fixed"),
        (
            {"reassignments": {"mode": "Fixed", "rate": {"min": "3M", "max": "2M"}}},
            "min must not be above max",
        ),
        (
            {"reassignments": {"mode": "Off", "priority": "L3"}},
            "priority is used with mode Follow only",
        ),
        (FOLLOW, "metrics and brokers are required with replication of mode Follow"),
        ({}, "must have at least one of reassignments, recovery and cleanUpLeftovers"),
    ],
)
def test_a_wrong_spec_is_refused_with_what_must_hold(
    stage: Stage, source: Source, replication: dict[str, Any], message: str
) -> None:
    policy = stage.policy(replication=replication)
    stage.run()
    assert stage.condition(policy)[0] == "False"
    assert message in stage.message(policy)
