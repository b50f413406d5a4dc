"""`tidegate restore` from end to end, on the in-memory twin: what Kafka holds afterwards, not how it got there."""

import json
from typing import Any

import pytest

from controller_logic.decide import decide
from controller_logic.decision import Memory
from controller_logic.model import Entity, QuotaKey
from controller_logic.reasons import Reason
from tests.doubles.quota_store import OPEN_ACL
from tidegate.control.declared import declare
from tidegate.control.observe import KafkaCluster, Observer
from tidegate.control.reconcile import apply_writes
from tidegate.errors import Unreachable
from tidegate.kafka.zookeeper.tree import Create

FETCH = QuotaKey.CONSUMER_BYTE_RATE
ALICE, BOB = Entity(user="alice"), Entity(user="bob")
ZOOKEEPER = ("--zookeeper", "zk-1:2181/kafka")
SCRAM = b'{"version":1,"config":{"SCRAM-SHA-256":"salt=abc,stored_key=d,server_key=e,iterations=4096","consumer_byte_rate":"1000000"}}'


def operate(world: Any, policy: Any, tier: Any) -> None:
    """Let the operator run until nothing is left to step, then go home without giving back."""
    world.store.claim("streaming/orders", "")
    declared = declare(policy, [tier])
    while True:
        cluster = KafkaCluster("zk-1:2181/kafka", world.store, world.topology())
        decision, _ = decide(Observer().observe(declared, cluster, now_seconds=world.now).observation, Memory())
        apply_writes(decision.writes, world.store, cluster_id="memory-cluster", may_write=lambda: True)
        world.now += 3600
        if not decision.writes:
            return


@pytest.fixture
def managed(world: Any, policy: Any, tier: Any) -> Any:
    """alice had 1 MB/s beside a SCRAM login and has 10 MB/s of ours; bob had nothing and has 10 MB/s."""
    world.store.put_raw(ALICE, SCRAM)
    member = tier["spec"]["members"][0]
    tier["spec"]["members"].append({**member, "name": "second", "user": "bob"})
    operate(world, policy, tier)
    assert value(world, ALICE) == value(world, BOB) == "10000000"
    return world


def value(world: Any, entity: Entity) -> str | None:
    text = world.store.read([entity])[entity].values.get(FETCH)
    return None if text is None else str(text)


def test_without_yes_it_only_shows_and_not_one_znode_changes(managed: Any) -> None:
    before = managed.snapshot()
    answer = managed.run("restore", *ZOOKEEPER)
    assert answer.code == 2, answer.err
    assert "Dry run: nothing was written." in answer.out
    assert "first of several safe steps" in answer.out
    assert managed.snapshot() == before


def test_yes_gives_back_the_exact_text_keeps_the_login_and_releases_the_claim(managed: Any) -> None:
    answer = managed.run("restore", *ZOOKEEPER, "--yes")
    assert answer.code == 0, answer.err
    assert managed.store.raw(ALICE) == SCRAM
    assert managed.store.raw(BOB) is None
    assert managed.store.ledger_entities() == frozenset()
    assert managed.store.facts().owner_policy_key is None
    assert managed.run("restore", *ZOOKEEPER).code == 0


def test_it_goes_down_in_safe_steps_and_waits_between_them(managed: Any) -> None:
    seen = []
    managed.during_wait = lambda: seen.append(int(value(managed, ALICE) or 0))
    answer = managed.run("restore", *ZOOKEEPER, "--yes")
    assert seen == [5_000_000, 2_500_000, 1_250_000]
    assert managed.waits == [30.0, 30.0, 30.0]
    assert "waiting 30 s" in answer.err


def test_at_once_goes_down_in_one_step_and_warns_of_the_mute(managed: Any) -> None:
    dry = managed.run("restore", *ZOOKEEPER, "--at-once")
    assert "muted for up to 100 s" in dry.out
    answer = managed.run("restore", *ZOOKEEPER, "--yes", "--at-once")
    assert (answer.code, managed.waits) == (0, [])
    assert value(managed, ALICE) == "1000000"


def test_a_value_that_another_writer_changed_stays(managed: Any) -> None:
    managed.store.put(BOB, {FETCH: "7000000"})
    assert "stays: another writer changed it from 10.0 MB/s" in managed.run("restore", *ZOOKEEPER).out
    assert managed.run("restore", *ZOOKEEPER, "--yes").code == 0
    assert value(managed, BOB) == "7000000"
    assert managed.store.ledger_entities() == frozenset()


@pytest.mark.parametrize(
    ("options", "left"),
    [(("--user", "bob"), {ALICE}), (("--policy", "orders"), set()), (("--policy", "streaming/other"), {ALICE, BOB})],
    ids=["one user", "the policy by name", "another policy"],
)
def test_only_what_is_asked_for_is_given_back(managed: Any, options: tuple[str, ...], left: set[Entity]) -> None:
    assert managed.run("restore", *ZOOKEEPER, *options, "--yes").code == 0
    assert managed.store.ledger_entities() == left
    assert (managed.store.facts().owner_policy_key is None) == (not left)


def test_content_that_cannot_be_read_is_left_and_is_an_error(managed: Any) -> None:
    managed.store.put_raw(BOB, b"{broken")
    answer = managed.run("restore", *ZOOKEEPER, "--yes")
    assert answer.code == 1
    assert managed.store.raw(BOB) == b"{broken"
    assert "user=bob: not touched" in answer.out
    assert managed.store.facts().owner_policy_key == "streaming/orders"


def test_a_node_that_nobody_can_name_is_told_because_the_claim_stays_with_it(managed: Any) -> None:
    managed.store.tree.commit([Create("/tidegate/ledger/somebody else", b"{}", OPEN_ACL)])
    answer = managed.run("restore", *ZOOKEEPER, "--yes")
    assert "warning: These nodes have names that neither Kafka nor Tidegate writes" in answer.err
    assert "/tidegate/ledger/somebody else" in answer.err
    assert managed.store.facts().owner_policy_key == "streaming/orders"


def test_another_cluster_is_refused(managed: Any) -> None:
    before = managed.snapshot()
    answer = managed.run("restore", *ZOOKEEPER, "--yes", "--cluster-id", "expected")
    assert answer.code == 1
    assert "has id memory-cluster, not expected" in answer.err
    assert managed.snapshot() == before


def test_a_claim_warns_that_a_running_operator_would_write_again(managed: Any) -> None:
    assert "Policy streaming/orders claims cluster memory-cluster (last write" in managed.run("restore", *ZOOKEEPER).out


def test_a_lost_connection_is_waited_out(managed: Any) -> None:
    managed.store.lose_connection_after_commit()
    assert managed.run("restore", *ZOOKEEPER, "--yes").code == 0
    assert managed.store.raw(ALICE) == SCRAM


def test_a_store_that_stays_away_ends_the_command_with_an_error(managed: Any) -> None:
    def fail() -> None:
        managed.store.fail_next(Unreachable(Reason.ZOOKEEPER_UNREACHABLE, "ZooKeeper zk-1:2181 did not answer."))

    managed.during_wait = fail
    answer = managed.run("restore", *ZOOKEEPER, "--yes")
    assert answer.code == 1
    assert "ZooKeeper zk-1:2181 did not answer." in answer.err
    assert "Traceback" not in answer.err


def test_no_address_is_an_error_that_says_what_to_give(world: Any) -> None:
    answer = world.run("restore")
    assert answer.code == 1
    assert "--zookeeper" in answer.err


def test_the_document_of_a_dry_run_has_what_stood_there_before(managed: Any) -> None:
    document = json.loads(managed.run("restore", *ZOOKEEPER, "-o", "json").out)
    assert [(row["entity"], row["inForce"], row["next"], row["before"]) for row in document["quotas"]] == [
        ({"user": "alice"}, "10000000", "5000000", "1000000"),
        ({"user": "bob"}, "10000000", None, None),
    ]
    assert (document["written"], document["complete"]) == (False, False)
