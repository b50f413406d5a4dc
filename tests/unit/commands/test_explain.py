"""`tidegate explain` from end to end, on the in-memory twin: level, author, shadows, bucket, totals, and what is unlimited."""

import json
from dataclasses import replace
from typing import Any

import pytest

from controller_logic.decide import decide
from controller_logic.decision import Memory
from controller_logic.model import Default, Entity, LedgerEntry, QuotaKey, QuotaWrite, WriteKind
from controller_logic.reasons import Reason
from tidegate.control.declared import declare
from tidegate.control.observe import KafkaCluster, Observer
from tidegate.control.reconcile import apply_writes

FETCH, PRODUCE = QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.PRODUCER_BYTE_RATE
ANY = Default.DEFAULT
ALICE = Entity(user="alice")
OVERRIDE: dict[str, Any] = {
    "apiVersion": "tidegate.io/v1alpha1",
    "kind": "QuotaOverride",
    "metadata": {"name": "backfill", "namespace": "streaming"},
    "spec": {
        "policyRef": {"name": "orders"},
        "user": "alice",
        "set": {"perPartition": {"fetch": "20M"}},
        "expiresAt": "2026-11-30T06:00:00Z",
        "reason": "agreed",
    },
}


@pytest.fixture
def managed(world: Any, policy: Any, tier: Any) -> Any:
    """The world after one pass of the operator: alice has 20 MB/s of ours, because broker 1 leads two of three partitions."""
    world.leaders = {"acc": {1: 2, 2: 1}}
    cluster = KafkaCluster("zk-1:2181/kafka", world.store, world.topology())
    seen = Observer().observe(declare(policy, [tier]), cluster, now_seconds=world.now)
    decision, _ = decide(seen.observation, Memory())
    assert apply_writes(decision.writes, world.store, cluster_id="memory-cluster", may_write=lambda: True).complete
    world.now += 60
    return world


def explained(world: Any, *arguments: str) -> str:
    answer = world.run("explain", "--user", "alice", "--client-id", "app", *arguments)
    assert answer.code == 0, answer.err
    return str(answer.out)


def test_a_quota_of_ours_is_explained_from_the_ledger_alone(managed: Any) -> None:
    text = explained(managed, "--zookeeper", "zk-1:2181/kafka")
    for sentence in (
        "fetch: 20.0 MB/s (20000000 B/s) on each broker",
        "Decided at level 3 of 8, this user (user=alice).",
        "All connections of user alice to one broker share it, whatever their client id.",
        "Set by Tidegate 60 s ago: policy streaming/orders.",
        "Before Tidegate it was unlimited.",
        "Unlimited, because none of Kafka's eight levels has a value: produce, request time, controller mutations.",
    ):
        assert sentence in text


def test_with_the_policy_the_answer_has_tier_skew_and_both_totals(managed: Any, policy: Any, tier: Any) -> None:
    text = explained(managed, "-f", managed.write_files(policy, tier))
    assert "tier streaming/core (L0), member shop" in text
    assert "Its topics have 3 leaders on 2 brokers (leader skew 1.33); 30.0 MB/s are promised over all of them, " in text
    assert "and the target of 20.0 MB/s each permits 40.0 MB/s." in text
    assert "up to 60.0 MB/s over all 3 brokers" in text


def test_a_stronger_level_shadows_ours_and_both_are_named(managed: Any) -> None:
    managed.store.put(Entity("alice", "app"), {FETCH: "5000000"})
    text = explained(managed, "--zookeeper", "zk-1:2181")
    assert "fetch: 5.0 MB/s (5000000 B/s)" in text
    assert "Not set by Tidegate: the ledger has no record of it." in text
    assert "Shadows level 3, this user (user=alice): 20.0 MB/s (20000000 B/s), set by Tidegate, without effect for this client." in text


def test_each_key_is_decided_for_itself(managed: Any) -> None:
    managed.store.put(Entity("alice", "app"), {PRODUCE: "3000000"})
    text = explained(managed, "--zookeeper", "zk-1:2181")
    assert "Decided at level 1 of 8" in text
    assert "Decided at level 3 of 8" in text


def test_a_value_changed_by_another_writer_is_not_called_ours(managed: Any) -> None:
    managed.store.put(ALICE, {FETCH: "7000000"})
    text = explained(managed, "--zookeeper", "zk-1:2181")
    assert "Another writer changed it: Tidegate wrote 20.0 MB/s (20000000 B/s) 60 s ago for policy streaming/orders." in text
    assert "Set by Tidegate" not in text


def test_a_value_that_limits_nothing_says_so(world: Any) -> None:
    world.store.put(Entity(user=ANY), {FETCH: "0"})
    assert "Kafka accepts this value, but it limits nothing." in explained(world, "--zookeeper", "zk-1:2181")


def test_without_any_quota_a_person_is_told_that_nobody_is_measured(world: Any) -> None:
    text = explained(world, "--zookeeper", "zk-1:2181")
    assert "its brokers measure nobody" in text


def test_content_that_cannot_be_read_warns_that_the_answer_may_be_wrong(managed: Any) -> None:
    managed.store.put_raw(Entity("alice", "app"), b"{broken")
    text = explained(managed, "--zookeeper", "zk-1:2181")
    assert "warning: The znode of user=alice, client-id=app cannot be read safely" in text


def test_without_a_login_the_user_is_anonymous(world: Any) -> None:
    world.store.put(Entity(user="ANONYMOUS"), {FETCH: "1000000"})
    assert "fetch: 1.0 MB/s" in world.run("explain", "--zookeeper", "zk-1:2181").out


def test_the_document_names_level_author_and_shadows(managed: Any) -> None:
    managed.store.put(Entity(user=ANY), {FETCH: "50000000"})
    document = json.loads(explained(managed, "--zookeeper", "zk-1:2181", "-o", "json"))
    fetch = document["keys"]["consumer_byte_rate"]
    assert (fetch["level"], fetch["entity"], fetch["value"], fetch["setByTidegate"]) == (3, {"user": "alice"}, "20000000", True)
    assert fetch["ledger"]["policy"] == "streaming/orders"
    assert fetch["shadows"] == [
        {"level": 6, "entity": {"user": "<default>", "defaults": ["user"]}, "value": "50000000", "setByTidegate": False}
    ]
    assert document["keys"]["producer_byte_rate"] == {"limited": False}


def test_an_override_that_applies_is_shown_with_its_end_and_its_reason(managed: Any, policy: Any, tier: Any) -> None:
    text = explained(managed, "-f", managed.write_files(policy, tier, OVERRIDE))
    told = (
        "Override streaming/backfill, for user=alice, stands in place of the contract and forbids throttling until 2026-11-30T06:00:00Z: "
    )
    assert f"{told}agreed" in text
    assert "Now Held" not in text


def test_an_override_in_the_document_says_what_it_does(managed: Any, policy: Any, tier: Any) -> None:
    document = json.loads(explained(managed, "-f", managed.write_files(policy, tier, OVERRIDE), "-o", "json"))
    assert document["keys"]["consumer_byte_rate"]["override"] == {
        "name": "streaming/backfill",
        "target": "user=alice",
        "sets": True,
        "until": "2026-11-30T06:00:00Z",
        "reason": "agreed",
    }


def test_an_override_that_is_over_or_for_somebody_else_is_not_shown(managed: Any, policy: Any, tier: Any) -> None:
    managed.now = 1_000_000_000.0  # in September 2001
    over = {**OVERRIDE, "spec": {**OVERRIDE["spec"], "expiresAt": "2001-01-01T00:00:00Z"}}
    other = {**OVERRIDE, "metadata": {"name": "other", "namespace": "streaming"}, "spec": {**OVERRIDE["spec"], "user": "bob"}}
    assert "Override" not in explained(managed, "-f", managed.write_files(policy, tier, over, other))


def test_explaining_changes_not_one_znode(managed: Any, policy: Any, tier: Any) -> None:
    before = managed.snapshot()
    explained(managed, "-f", managed.write_files(policy, tier))
    explained(managed, "--zookeeper", "zk-1:2181")
    assert managed.snapshot() == before


def test_brokers_that_ignore_quotas_are_named(managed: Any, policy: Any, tier: Any) -> None:
    managed.callbacks = {2: "io.example.Quotas"}
    text = explained(managed, "-f", managed.write_files(policy, tier))
    assert "warning: broker 2 sets client.quota.callback.class to io.example.Quotas" in text


@pytest.fixture
def throttled(managed: Any) -> Any:
    """The world after the tide: alice's 20 MB/s are held at 5."""
    stored = managed.store.read([ALICE])[ALICE]
    assert stored.ledger is not None
    entry = LedgerEntry(None, "5000000", "20000000", managed.now, Reason.THROTTLED, "", of_contract=20_000_000)
    ledger = replace(stored.ledger, entries={**stored.ledger.entries, FETCH: entry})
    write = QuotaWrite(ALICE, {FETCH: "5000000"}, stored, ledger, WriteKind.LOWERING, Reason.THROTTLED, "down", charged=True)
    assert apply_writes([write], managed.store, cluster_id="memory-cluster", may_write=lambda: True).complete
    return managed


def test_a_throttle_is_told_with_its_contract_and_where_to_see_why(throttled: Any) -> None:
    text = explained(throttled, "--zookeeper", "zk-1:2181/kafka")
    for sentence in (
        "fetch: 5.0 MB/s (5000000 B/s) on each broker",
        "Why: Throttled.",
        "It is throttled to 25 % of its contract, 20.0 MB/s (20000000 B/s) on each broker.",
        "`tidegate top --policy streaming/orders`",
    ):
        assert sentence in text


def test_programs_learn_of_which_contract_it_is_a_throttle(throttled: Any) -> None:
    document = json.loads(explained(throttled, "--zookeeper", "zk-1:2181/kafka", "-o", "json"))
    assert '"throttleOfContract": 20000000' in json.dumps(document)
