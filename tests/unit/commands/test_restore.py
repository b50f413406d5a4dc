"""`tidegate restore` from end to end, on the in-memory twin: what Kafka holds afterwards, not how
it got there.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pytest

from tests.doubles.quota_store import OPEN_ACL
from tests.goldens.golden import line_with, numbers
from tests.unit.controller_logic.replicating import apply
from tidegate.control.reconcile import apply_writes
from tidegate.errors import Conflict, Unreachable
from tidegate.kafka.quota_store import Claim
from tidegate.kafka.throttle_record import record_to_bytes
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore
from tidegate.kafka.zookeeper.tree import Create
from tidegate.observe.declared import declare
from tidegate.observe.observation import KafkaCluster, Observer
from tidegate_logic.decide import decide
from tidegate_logic.decision import Memory
from tidegate_logic.model import (
    Entity,
    LedgerEntry,
    LedgerRecord,
    QuotaKey,
    QuotaWrite,
    WriteKind,
)
from tidegate_logic.reasons import Reason
from tidegate_logic.replication.background import Tiering
from tidegate_logic.replication.moves import ClusterReplication
from tidegate_logic.replication.throttles import (
    LEADER_LIST,
    LEADER_RATE,
    ConfigChange,
    Configs,
    Resource,
    ResourceKind,
    broker_resource,
    topic_resource,
)

FETCH = QuotaKey.CONSUMER_BYTE_RATE
ALICE, BOB = Entity(user="alice"), Entity(user="bob")
ZOOKEEPER = ("--zookeeper", "zk-1:2181/kafka")
SCRAM = b'{"version":1,"config":{"SCRAM-SHA-256":"salt=abc,stored_key=d,server_key=e,iterations=4096","consumer_byte_rate":"1000000"}}'


def operate(world: Any, policy: Any, tier: Any) -> None:
    """Let the operator run until nothing is left to step, then go home without giving back."""
    world.store.claim(Claim("streaming/orders", ""))
    declared = declare(policy, [tier])
    while True:
        cluster = KafkaCluster("zk-1:2181/kafka", world.store, world.topology())
        decision, _ = decide(
            Observer().observe(declared, cluster, now_seconds=world.now).observation, Memory()
        )
        apply_writes(
            decision.writes,
            world.store,
            cluster_id="memory-cluster",
            may_write=lambda: True,
            decided_at_seconds=world.now,
            now_seconds=lambda: world.now,
        )
        world.now += 3600
        if not decision.writes:
            return


@pytest.fixture
def managed(world: Any, policy: Any, tier: Any) -> Any:
    """alice had 1 MB/s beside a SCRAM login and has 10 MB/s of ours; bob had nothing and has 10
    MB/s.
    """
    world.store.put_raw(ALICE, SCRAM)
    member = tier["spec"]["members"][0]
    tier["spec"]["members"].append({**member, "name": "second", "user": "bob"})
    operate(world, policy, tier)
    assert value(world, ALICE) == value(world, BOB) == "10000000"
    return world


def value(world: Any, entity: Entity) -> str | None:
    text = world.store.read([entity])[entity].values.get(FETCH)
    return None if text is None else str(text)


def test_without_yes_it_only_shows_and_not_one_znode_changes(
    managed: Any, golden: Callable[[str], None]
) -> None:
    before = managed.snapshot()
    answer = managed.run("restore", *ZOOKEEPER)
    assert answer.code == 2, answer.err
    assert managed.snapshot() == before
    golden("\n".join(line for line in answer.out.splitlines() if not line.startswith("warning: ")))


def test_yes_gives_back_the_exact_text_keeps_the_login_and_releases_the_claim(managed: Any) -> None:
    answer = managed.run("restore", *ZOOKEEPER, "--yes")
    assert answer.code == 0, answer.err
    assert managed.store.raw(ALICE) == SCRAM
    assert managed.store.raw(BOB) is None
    assert managed.store.ledger_entities() == frozenset()
    assert managed.store.facts().owner_policy_key is None
    assert managed.run("restore", *ZOOKEEPER).code == 0


def test_it_goes_down_in_safe_steps_and_waits_between_them(
    managed: Any, golden: Callable[[str], None]
) -> None:
    seen = []
    managed.during_wait = lambda: seen.append(int(value(managed, ALICE) or 0))
    answer = managed.run("restore", *ZOOKEEPER, "--yes")
    assert seen == [5_000_000, 2_500_000, 1_250_000]
    assert managed.waits == [30.0, 30.0, 30.0]
    assert 30 in numbers(answer.err)
    golden("\n".join(answer.err.splitlines()[1:3]))


def test_at_once_goes_down_in_one_step_and_warns_of_the_mute(
    managed: Any, golden: Callable[[str], None]
) -> None:
    dry = managed.run("restore", *ZOOKEEPER, "--at-once")
    assert 100 in numbers(dry.out)
    answer = managed.run("restore", *ZOOKEEPER, "--yes", "--at-once")
    assert (answer.code, managed.waits) == (0, [])
    assert value(managed, ALICE) == "1000000"
    golden(line_with(dry.out, "100 s"))


def test_a_value_that_another_writer_changed_stays(
    managed: Any, golden: Callable[[str], None]
) -> None:
    managed.store.put(BOB, {FETCH: "7000000"})
    line = line_with(managed.run("restore", *ZOOKEEPER).out, "user=bob")
    assert numbers(line) >= {7.0, 10.0}
    assert managed.run("restore", *ZOOKEEPER, "--yes").code == 0
    assert value(managed, BOB) == "7000000"
    assert managed.store.ledger_entities() == frozenset()
    golden(line)


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (("--user", "bob"), {ALICE}),
        (("--policy", "orders"), set()),
        (("--policy", "streaming/other"), {ALICE, BOB}),
    ],
    ids=["one user", "the policy by name", "another policy"],
)
def test_only_what_is_asked_for_is_given_back(
    managed: Any, options: tuple[str, ...], left: set[Entity]
) -> None:
    assert managed.run("restore", *ZOOKEEPER, *options, "--yes").code == 0
    assert managed.store.ledger_entities() == left
    assert (managed.store.facts().owner_policy_key is None) == (not left)


def test_content_that_cannot_be_read_is_left_and_is_an_error(
    managed: Any, golden: Callable[[str], None]
) -> None:
    managed.store.put_raw(BOB, b"{broken")
    answer = managed.run("restore", *ZOOKEEPER, "--yes")
    assert answer.code == 1
    assert managed.store.raw(BOB) == b"{broken"
    line = line_with(answer.out, "user=bob")
    assert managed.store.facts().owner_policy_key == "streaming/orders"
    golden(line)


def test_a_node_without_an_entity_is_named_because_the_claim_stays_with_it(
    managed: Any, golden: Callable[[str], None]
) -> None:
    managed.store.tree.commit([Create("/tidegate/ledger/somebody else", b"{}", OPEN_ACL)])
    answer = managed.run("restore", *ZOOKEEPER, "--yes")
    warning = line_with(answer.err, "warning: ", "/tidegate/ledger/somebody else")
    assert managed.store.facts().owner_policy_key == "streaming/orders"
    golden(warning)


def test_another_cluster_is_refused(managed: Any, golden: Callable[[str], None]) -> None:
    before = managed.snapshot()
    answer = managed.run("restore", *ZOOKEEPER, "--yes", "--cluster-id", "expected")
    assert answer.code == 1
    assert "memory-cluster" in answer.err
    assert managed.snapshot() == before
    golden(answer.err)


def test_a_claim_warns_that_a_running_operator_would_write_again(
    managed: Any, golden: Callable[[str], None]
) -> None:
    line = line_with(managed.run("restore", *ZOOKEEPER).out, "streaming/orders", "memory-cluster")
    golden(line)


def test_a_lost_connection_is_waited_out(managed: Any) -> None:
    managed.store.lose_connection_after_commit()
    assert managed.run("restore", *ZOOKEEPER, "--yes").code == 0
    assert managed.store.raw(ALICE) == SCRAM


def test_a_store_that_stays_away_ends_the_command_with_an_error(managed: Any) -> None:
    away = Unreachable(Reason.ZOOKEEPER_UNREACHABLE, "ZooKeeper zk-1:2181 did not answer.")

    def fail() -> None:
        managed.store.fail_next(away)

    managed.during_wait = fail
    answer = managed.run("restore", *ZOOKEEPER, "--yes")
    assert answer.code == 1
    assert away.message in answer.err
    assert "Traceback" not in answer.err


def test_no_address_is_an_error_that_says_what_to_give(world: Any) -> None:
    answer = world.run("restore")
    assert answer.code == 1
    assert "--zookeeper" in answer.err


def test_the_document_of_a_dry_run_has_what_stood_there_before(managed: Any) -> None:
    document = json.loads(managed.run("restore", *ZOOKEEPER, "-o", "json").out)
    assert [
        (row["entity"], row["inForce"], row["next"], row["before"]) for row in document["quotas"]
    ] == [
        ({"user": "alice"}, "10000000", "5000000", "1000000"),
        ({"user": "bob"}, "10000000", None, None),
    ]
    assert (document["written"], document["complete"]) == (False, False)


# --- replication throttles ---


class Throttles:
    """A ReplicationSource with configurations; brokers that are `down` answer nothing."""

    def __init__(self, configs: dict[Resource, dict[str, str]]) -> None:
        self.set = configs
        self.down: set[str] = set()
        self.silent: set[str] = set()
        self.lagging: dict[int, Configs] = {}  # what a broker still shows

    def read(self, *, with_recovery: bool) -> ClusterReplication:
        return ClusterReplication(0.0, frozenset({1, 2}) - {int(one) for one in self.down})

    def configs(self, resources: Collection[Resource]) -> Configs:
        return {one: dict(self.set.get(one, {})) for one in resources if self.answers(one)}

    def alter(
        self, changes: Sequence[ConfigChange], may_write: Callable[[], bool] = lambda: True
    ) -> Mapping[Resource, str]:
        apply(self.set, [one for one in changes if self.answers(one.resource)])
        return {one.resource: "silent" for one in changes if not self.answers(one.resource)}

    def tiering(self) -> Mapping[int, Tiering]:
        return {}

    def everywhere(self, resources: Collection[Resource]) -> Mapping[int, Configs | None]:
        def shown(broker: int) -> Configs:
            theirs = [one for one in resources if one in (broker_resource(broker),)]
            topics = [one for one in resources if one.kind is ResourceKind.TOPIC]
            lagging = self.lagging.get(broker, {})
            return {one: lagging.get(one, self.set.get(one, {})) for one in (*theirs, *topics)}

        return {one: None if str(one) in self.silent else shown(one) for one in (1, 2)}

    def answers(self, one: Resource) -> bool:
        return one.kind is ResourceKind.TOPIC or one.name not in self.down

    def close(self) -> None:
        pass


BROKERS = ("--bootstrap-servers", "kafka-1:9092")
OURS = {
    broker_resource(1): {LEADER_RATE: frozenset({"2000000"})},
    topic_resource("acc"): {LEADER_LIST: frozenset({"0:1", "0:2"})},
}


@pytest.fixture
def throttled(managed: Any) -> Any:
    """What the record has: a rate, and two items of a list in which somebody else has one."""
    managed.replication = Throttles(
        {
            broker_resource(1): {LEADER_RATE: "2000000"},
            broker_resource(2): {LEADER_RATE: "7"},
            topic_resource("acc"): {LEADER_LIST: "0:1,0:2,5:1"},
        }
    )
    managed.store.keep_throttle_record(
        record_to_bytes(OURS, "streaming/orders"), "memory-cluster", seen=None
    )
    return managed


def test_throttles_of_the_record_go_and_others_stay(throttled: Any) -> None:
    before = throttled.snapshot()
    dry = throttled.run("restore", *ZOOKEEPER, *BROKERS, "-o", "json")
    assert dry.code == 2, dry.err
    assert throttled.snapshot() == before
    assert throttled.replication.set[broker_resource(1)] == {LEADER_RATE: "2000000"}
    shown = json.loads(dry.out)
    assert not shown["complete"]
    assert {(row["name"], row["inForce"]) for row in shown["throttles"]} == {
        ("1", "2000000"),
        ("acc", "0:1,0:2,5:1"),
    }
    answer = throttled.run("restore", *ZOOKEEPER, *BROKERS, "--yes")
    assert answer.code == 0, answer.err
    assert "Removed 2 replication throttles." in answer.out
    assert throttled.replication.set == {
        broker_resource(1): {},
        broker_resource(2): {LEADER_RATE: "7"},
        topic_resource("acc"): {LEADER_LIST: "5:1"},
    }
    assert throttled.store.throttle_record() is None
    assert throttled.store.facts().owner_policy_key is None


def test_without_brokers_throttles_stay_with_the_claim_and_that_is_said(throttled: Any) -> None:
    assert "Give --bootstrap-servers beside --zookeeper" in throttled.run("restore", *ZOOKEEPER).out
    answer = throttled.run("restore", *ZOOKEEPER, "--yes")
    assert answer.code == 1
    assert value(throttled, ALICE) == "1000000", "quotas are restored all the same"
    assert throttled.store.throttle_record() is not None
    assert throttled.store.facts().owner_policy_key == "streaming/orders"


def test_a_broker_that_is_down_keeps_its_rate_and_the_next_run_takes_it_away(
    throttled: Any,
) -> None:
    throttled.replication.down = {"1"}
    answer = throttled.run("restore", *ZOOKEEPER, *BROKERS, "--yes")
    assert answer.code == 1
    assert "broker 1 leader.replication.throttled.rate: not known" in answer.out
    assert throttled.replication.set[topic_resource("acc")] == {LEADER_LIST: "5:1"}
    assert throttled.replication.set[broker_resource(1)] == {LEADER_RATE: "2000000"}
    throttled.replication.down = set()
    assert throttled.run("restore", *ZOOKEEPER, *BROKERS, "--yes").code == 0
    assert throttled.replication.set[broker_resource(1)] == {}
    assert throttled.store.throttle_record() is None


def test_a_broker_that_still_shows_a_throttle_is_waited_for(throttled: Any) -> None:
    """Without ZooKeeper each broker has its own copy of what the controller decided."""
    throttled.replication.lagging = {2: {topic_resource("acc"): {LEADER_LIST: "0:1,5:1"}}}
    records: list[bool] = []

    def catch_up() -> None:
        records.append(throttled.store.throttle_record() is not None)
        if len(throttled.waits) == 12:
            throttled.replication.lagging = {}

    throttled.during_wait = catch_up
    answer = throttled.run("restore", *ZOOKEEPER, *BROKERS, "--yes")
    assert answer.code == 0, answer.out
    assert all(records), "the record stays until every broker agrees"
    assert len(records) >= 12
    assert throttled.store.throttle_record() is None
    assert "Not confirmed" not in answer.out


@pytest.mark.parametrize("is_silent", [False, True])
def test_what_a_broker_does_not_show_as_restored_is_not_said_to_be_done(
    throttled: Any, golden: Callable[[str], None], is_silent: bool
) -> None:
    throttled.replication.lagging = {2: {topic_resource("acc"): {LEADER_LIST: "0:1,5:1"}}}
    if is_silent:
        throttled.replication.silent = {"2"}
    answer = throttled.run("restore", *ZOOKEEPER, *BROKERS, "--yes")
    assert answer.code == 1
    assert "Removed 0 replication throttles." in answer.out
    golden("\n".join(line for line in answer.out.splitlines() if "warning" in line))
    assert throttled.store.facts().owner_policy_key == "streaming/orders"
    throttled.replication.lagging, throttled.replication.silent = {}, set()
    assert throttled.run("restore", *ZOOKEEPER, *BROKERS, "--yes").code == 0
    assert throttled.store.throttle_record() is None


def test_programs_get_what_is_not_confirmed(throttled: Any) -> None:
    throttled.replication.lagging = {2: {topic_resource("acc"): {LEADER_LIST: "0:1,5:1"}}}
    document = json.loads(throttled.run("restore", *ZOOKEEPER, *BROKERS, "--yes", "-o", "json").out)
    assert (document["complete"], len(document["unconfirmed"])) == (False, 1)


def test_quotas_that_a_broker_does_not_show_as_restored_are_named(
    managed: Any, golden: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    restored: list[object] = []

    def lagging(_: object, values: object) -> dict[str, tuple[Entity, ...]]:
        restored.append(values)
        return {"2": (ALICE, BOB)}

    monkeypatch.setattr(ZooKeeperQuotaStore, "brokers_without", lagging)
    answer = managed.run("restore", *ZOOKEEPER, "--yes")
    assert restored[0] == {ALICE: {FETCH: "1000000"}, BOB: {FETCH: None}}
    assert answer.code == 1
    golden(line_with(answer.out, "Not confirmed"))


def test_a_claim_that_waits_for_a_late_change_is_released_after_it(
    managed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What arrives meanwhile is restored with the rest."""
    release = ZooKeeperQuotaStore.release_claim
    arrived: list[bool] = []

    def late(*given: Any) -> None:
        if not arrived:
            arrived.append(True)
            seen = managed.store.read([BOB])[BOB]
            assert seen.values == {}
            entry = LedgerEntry(None, "9000000", None, managed.now, Reason.CONTRACT, "basis")
            record = LedgerRecord(BOB, "streaming/orders", "", {FETCH: entry})
            write = QuotaWrite(
                BOB, {FETCH: "9000000"}, seen, record, WriteKind.FIRST, Reason.CONTRACT, "",
                charged=False,
            )  # fmt: skip
            assert managed.store.write([write], "memory-cluster")[0].applied
            raise Conflict("It may still arrive.")
        release(*given)

    monkeypatch.setattr(ZooKeeperQuotaStore, "release_claim", late)
    answer = managed.run("restore", *ZOOKEEPER, "--yes")
    assert (arrived, answer.code, value(managed, BOB)) == ([True], 0, None)
    assert managed.store.facts().owner_policy_key is None


@pytest.mark.parametrize("asked", [("--user", "bob"), ("--policy", "another")])
def test_who_asks_for_less_leaves_throttles_alone(throttled: Any, asked: tuple[str, ...]) -> None:
    assert throttled.run("restore", *ZOOKEEPER, *BROKERS, *asked, "--yes").code == 0
    assert throttled.replication.set[broker_resource(1)] == {LEADER_RATE: "2000000"}
    assert throttled.store.throttle_record() is not None


def test_quotas_are_given_back_while_no_broker_answers(throttled: Any) -> None:
    class Silent(Throttles):
        def read(self, *, with_recovery: bool) -> ClusterReplication:
            raise Unreachable(Reason.BROKERS_UNREACHABLE, "No broker answered.")

    throttled.replication = Silent({})
    assert "No broker answered." in throttled.run("restore", *ZOOKEEPER, *BROKERS).out
    answer = throttled.run("restore", *ZOOKEEPER, *BROKERS, "--yes")
    assert answer.code == 1
    assert value(throttled, ALICE) == "1000000"
    assert throttled.store.throttle_record() is not None
    assert sum(throttled.waits[-12:]) >= 55, "it tried for a minute"
