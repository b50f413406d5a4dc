"""`tidegate explain` from end to end, on the in-memory twin: level, author, shadows, bucket,
totals, and what is unlimited.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.doubles.user_operator import kafka_user
from tests.goldens.golden import line_with, numbers
from tidegate.control.reconcile import apply_writes
from tidegate.errors import Unauthorized
from tidegate.kafka.zookeeper.nodes import ledger_path
from tidegate.kafka.zookeeper.tree import Create, SetData
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS, ObjectRef
from tidegate.observe.declared import declare
from tidegate.observe.observation import KafkaCluster, Observer
from tidegate.observe.strimzi import KAFKA_USERS
from tidegate_logic.decide import decide
from tidegate_logic.decision import Memory
from tidegate_logic.model import (
    Default,
    Entity,
    LedgerEntry,
    QuotaKey,
    QuotaWrite,
    ShareGroup,
    WriteKind,
)
from tidegate_logic.quota_values import KEY_WORDS
from tidegate_logic.reasons import Reason
from tidegate_logic.words import rfc3339

FETCH, PRODUCE = QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.PRODUCER_BYTE_RATE
ANY = Default.DEFAULT
ALICE = Entity(user="alice")
OVERRIDE: dict[str, Any] = {
    "apiVersion": "tidegate.io/v1alpha1",
    "kind": "QuotaOverride",
    "metadata": {"name": "backfill", "namespace": "streaming"},
    "spec": {
        "policyRef": {"name": "orders"},
        "target": {"user": "alice"},
        "action": "SetRates",
        "rates": {"perPartition": {"fetch": "20M"}},
        "expiresAt": "2026-11-30T06:00:00Z",
        "reason": "agreed",
    },
}


@pytest.fixture
def managed(world: Any, policy: Any, tier: Any) -> Any:
    """The world after one pass of the operator: alice has 20 MB/s of ours, because broker 1 leads
    two of three partitions.
    """
    world.leaders = {"acc": {1: 2, 2: 1}}
    cluster = KafkaCluster("zk-1:2181/kafka", world.store, world.topology())
    seen = Observer().observe(declare(policy, [tier]), cluster, now_seconds=world.now)
    decision, _ = decide(seen.observation, Memory())
    assert apply_writes(
        decision.writes,
        world.store,
        cluster_id="memory-cluster",
        may_write=lambda: True,
        decided_at_seconds=world.now,
        now_seconds=lambda: world.now,
    ).complete
    world.now += 60
    return world


def explained(world: Any, *arguments: str) -> str:
    answer = world.run("explain", "--user", "alice", "--client-id", "app", *arguments)
    assert answer.code == 0, answer.err
    return str(answer.out)


def test_a_quota_of_ours_is_explained_from_the_ledger_alone(
    managed: Any, golden: Callable[[str], None]
) -> None:
    text = explained(managed, "--zookeeper", "zk-1:2181/kafka")
    assert numbers(text) >= {20.0, 20000000, 3, 8, 60}
    for name in (
        "user=alice",
        "streaming/orders",
        *(KEY_WORDS[key] for key in QuotaKey if key is not FETCH),
    ):
        assert name in text
    golden(text)


def test_with_the_policy_the_answer_has_tier_skew_and_both_totals(
    managed: Any, policy: Any, tier: Any, golden: Callable[[str], None]
) -> None:
    text = explained(managed, "-f", managed.write_files(policy, tier))
    for name in ("streaming/core", "L0", "shop"):
        assert name in text
    assert numbers(text) >= {3, 2, 1.33, 30.0, 20.0, 40.0, 60.0}
    golden("\n".join(line_with(text, part) for part in ("streaming/core", "1.33", "60 MB/s")))


def test_a_stronger_level_shadows_ours_and_both_are_named(
    managed: Any, golden: Callable[[str], None]
) -> None:
    managed.store.put(Entity("alice", "app"), {FETCH: "5000000"})
    text = explained(managed, "--zookeeper", "zk-1:2181")
    fetch = json.loads(explained(managed, "--zookeeper", "zk-1:2181", "-o", "json"))["keys"][
        "consumer_byte_rate"
    ]
    assert (fetch["value"], fetch["setByTidegate"]) == ("5000000", False)
    assert fetch["shadows"] == [
        {"level": 3, "entity": {"user": "alice"}, "value": "20000000", "setByTidegate": True}
    ]
    assert numbers(text) >= {5.0, 5000000, 3, 20.0, 20000000}
    golden("\n".join(text.splitlines()[3:6]) + "\n" + line_with(text, "20000000"))


def test_each_key_is_decided_for_itself(managed: Any) -> None:
    managed.store.put(Entity("alice", "app"), {PRODUCE: "3000000"})
    keys = json.loads(explained(managed, "--zookeeper", "zk-1:2181", "-o", "json"))["keys"]
    assert (keys["producer_byte_rate"]["level"], keys["consumer_byte_rate"]["level"]) == (1, 3)


def test_a_value_changed_by_another_writer_is_not_called_ours(
    managed: Any, golden: Callable[[str], None]
) -> None:
    managed.store.put(ALICE, {FETCH: "7000000"})
    text = explained(managed, "--zookeeper", "zk-1:2181")
    fetch = json.loads(explained(managed, "--zookeeper", "zk-1:2181", "-o", "json"))["keys"][
        "consumer_byte_rate"
    ]
    assert (fetch["value"], fetch["setByTidegate"]) == ("7000000", False)
    line = line_with(text, "20000000")
    assert numbers(line) == {20.0, 20000000, 60}
    assert "streaming/orders" in line
    golden(line)


def test_a_value_that_limits_nothing_says_so(world: Any, golden: Callable[[str], None]) -> None:
    world.store.put(Entity(user=ANY), {FETCH: "0"})
    text = explained(world, "--zookeeper", "zk-1:2181")
    assert 0 in numbers(text) or "'0'" in text
    golden(text.splitlines()[-3])


@pytest.mark.parametrize("brokers", [0, 1, 3])
def test_the_total_is_over_the_brokers_that_are_registered(
    world: Any, brokers: int, golden: Callable[[str], None]
) -> None:
    world.store.put(ALICE, {FETCH: "20000000"})
    world.store.tree.commit(
        [Create(f"/brokers/ids/{broker}", b"{}", ()) for broker in range(brokers)]
    )
    text = explained(world, "--zookeeper", "zk-1:2181")
    document = json.loads(explained(world, "--zookeeper", "zk-1:2181", "-o", "json"))
    assert document["keys"]["consumer_byte_rate"]["totalOverBrokers"] == (
        20_000_000 * brokers or None
    )
    golden(line_with(text, "Every broker"))


def test_without_any_quota_a_warning_names_that_no_client_is_measured(
    world: Any, golden: Callable[[str], None]
) -> None:
    text = explained(world, "--zookeeper", "zk-1:2181")
    assert "/s" not in text
    golden(text)


def test_content_that_cannot_be_read_warns_that_the_answer_may_be_wrong(
    managed: Any, golden: Callable[[str], None]
) -> None:
    managed.store.put_raw(Entity("alice", "app"), b"{broken")
    text = explained(managed, "--zookeeper", "zk-1:2181")
    warning = line_with(text, "warning: ")
    assert "user=alice, client-id=app" in warning
    golden(warning)


def test_without_a_login_the_user_is_anonymous(world: Any) -> None:
    world.store.put(Entity(user="ANONYMOUS"), {FETCH: "1000000"})
    assert numbers(world.run("explain", "--zookeeper", "zk-1:2181").out) >= {1.0, 1000000}


def test_the_document_names_level_author_and_shadows(managed: Any) -> None:
    managed.store.put(Entity(user=ANY), {FETCH: "50000000"})
    document = json.loads(explained(managed, "--zookeeper", "zk-1:2181", "-o", "json"))
    fetch = document["keys"]["consumer_byte_rate"]
    assert (fetch["level"], fetch["entity"], fetch["value"], fetch["setByTidegate"]) == (
        3,
        {"user": "alice"},
        "20000000",
        True,
    )
    assert fetch["ledger"]["policy"] == "streaming/orders"
    assert fetch["shadows"] == [
        {
            "level": 6,
            "entity": {"user": "<default>", "defaults": ["user"]},
            "value": "50000000",
            "setByTidegate": False,
        }
    ]
    assert document["keys"]["producer_byte_rate"] == {"limited": False}


def test_an_override_that_applies_is_shown_with_its_end_and_its_reason(
    managed: Any, policy: Any, tier: Any, golden: Callable[[str], None]
) -> None:
    text = explained(managed, "-f", managed.write_files(policy, tier, OVERRIDE))
    line = line_with(text, "streaming/backfill")
    for name in ("user=alice", "2026-11-30T06:00:00Z", "agreed"):
        assert name in line
    assert "Held" not in text
    golden(line)


def test_an_override_in_the_document_says_what_it_does(
    managed: Any, policy: Any, tier: Any
) -> None:
    document = json.loads(
        explained(managed, "-f", managed.write_files(policy, tier, OVERRIDE), "-o", "json")
    )
    assert document["keys"]["consumer_byte_rate"]["override"] == {
        "name": "streaming/backfill",
        "target": "user=alice",
        "sets": True,
        "until": "2026-11-30T06:00:00Z",
        "reason": "agreed",
    }


def test_a_budget_that_limits_a_client_is_named_with_both_rates(
    managed: Any, policy: Any, tier: Any, golden: Callable[[str], None]
) -> None:
    budget = {
        "apiVersion": "tidegate.io/v1alpha1",
        "kind": "BandwidthBudget",
        "metadata": {"name": "search", "namespace": "streaming"},
        "spec": {
            "policyRef": {"name": "orders"},
            "total": {"fetch": "120M"},
            "members": {"tiers": [tier["metadata"]["name"]]},
        },
    }
    policy["spec"]["metrics"] = {"prometheus": {"url": "http://prometheus:9090"}}
    tier["spec"] |= {"level": "L2", "throttledRates": {"perPartition": {"fetch": "1M"}}}
    for member in tier["spec"]["members"]:
        member["contract"] = {"perPartition": {"fetch": "40M"}}
    files = managed.write_files(policy, tier, budget)
    line = line_with(explained(managed, "-f", files), "streaming/search")
    # 20 MB/s are in force on each broker, where one leads two of three partitions
    assert numbers(line) >= {30.0, 120.0}
    golden(line)
    assert (
        "budget streaming/search: fetch unknown of 120 MB/s" in managed.run("plan", "-f", files).out
    )


def test_an_override_that_is_over_or_for_somebody_else_is_not_shown(
    managed: Any, policy: Any, tier: Any
) -> None:
    managed.now = 1_000_000_000.0  # in September 2001
    over = {**OVERRIDE, "spec": {**OVERRIDE["spec"], "expiresAt": "2001-01-01T00:00:00Z"}}
    other = {
        **OVERRIDE,
        "metadata": {"name": "other", "namespace": "streaming"},
        "spec": {**OVERRIDE["spec"], "target": {"user": "bob"}},
    }
    assert "Override" not in explained(
        managed, "-f", managed.write_files(policy, tier, over, other)
    )


def test_explaining_changes_not_one_znode(managed: Any, policy: Any, tier: Any) -> None:
    before = managed.snapshot()
    explained(managed, "-f", managed.write_files(policy, tier))
    explained(managed, "--zookeeper", "zk-1:2181")
    assert managed.snapshot() == before


def test_brokers_that_ignore_quotas_are_named(
    managed: Any, policy: Any, tier: Any, golden: Callable[[str], None]
) -> None:
    managed.callbacks = {2: "io.example.Quotas"}
    text = explained(managed, "-f", managed.write_files(policy, tier))
    warning = line_with(text, "warning: ")
    assert "io.example.Quotas" in warning
    assert 2 in numbers(warning)
    golden(warning)


def test_reads_from_followers_are_noted_for_clients_with_a_fetch_contract(
    managed: Any, policy: Any, tier: Any, golden: Callable[[str], None]
) -> None:
    managed.read_from_followers()
    files = managed.write_files(policy, tier)
    warning = line_with(explained(managed, "-f", files), "warning: ")
    assert numbers(warning) >= {1, 2, 3, 33}
    golden(warning)
    assert "followers" not in managed.run("explain", "--user", "bob", "-f", files).out
    tier["spec"]["members"][0]["racks"] = ["a"]
    said = explained(managed, "-f", managed.write_files(policy, tier))
    assert "followers" not in said
    assert "declared racks, from 1 broker (skew 1.00)" in said


def test_a_member_that_is_not_allowed_is_named_for_its_own_client_only(
    world: Any, policy: Any, tier: Any
) -> None:
    policy["spec"]["allowedEntities"] = [{"users": ["orders-*"]}]
    files = world.write_files(policy, tier)
    assert "does not allow user=alice" in explained(world, "-f", files)
    answer = world.run("explain", "--user", "bob", "-f", files)
    assert "does not allow" not in answer.out


def of_strimzi(world: Any, policy: Any, **user: Any) -> None:
    """The policy's cluster is Strimzi's, with a KafkaUser alice."""
    policy["spec"]["kafka"]["strimzi"] = {"cluster": "orders", "namespace": "kafka"}
    world.kubernetes.create(KAFKA_USERS[0], kafka_user("alice", **user))


def test_a_quota_that_a_kafka_user_declares_is_strimzis(
    world: Any, policy: Any, tier: Any, golden: Callable[[str], None]
) -> None:
    of_strimzi(world, policy, quotas={"consumerByteRate": 3_000_000})
    world.store.put(ALICE, {FETCH: "3000000"})
    in_kubernetes(world, policy, tier)
    text = explained(world)
    assert "KafkaUser kafka/alice declares the quotas of user=alice" in text
    assert numbers(text) >= {3.0, 3000000}
    assert "declares" not in world.run("explain", "--user", "bob").out
    golden(line_with(text, "warning: "))


def test_a_quota_that_the_user_operator_removes_is_said_with_what_to_set(
    managed: Any, policy: Any, tier: Any
) -> None:
    of_strimzi(managed, policy)
    managed.store.put(ALICE, {FETCH: None})
    in_kubernetes(managed, policy, tier, "1970-01-12T13:49:13Z")
    text = explained(managed)
    assert "KafkaUser kafka/alice declares no quotas" in text
    assert "KafkaUser" not in managed.run("explain", "--user", "bob").out


def test_kafka_users_that_may_not_be_read_here_are_named(
    managed: Any, policy: Any, tier: Any
) -> None:
    of_strimzi(managed, policy)
    in_kubernetes(managed, policy, tier)
    answer = managed.kubernetes.list_all

    def refuse(kind: Any, namespaces: Any = ()) -> Any:
        if kind in KAFKA_USERS:
            raise Unauthorized("Kubernetes refused it.")
        return answer(kind, namespaces)

    managed.kubernetes.list_all = refuse
    assert "The KafkaUsers of Strimzi's cluster kafka/orders are not known here" in explained(
        managed
    )


@pytest.fixture
def throttled(managed: Any) -> Any:
    """The world under load: alice's 20 MB/s are throttled to 5."""
    stored = managed.store.read([ALICE])[ALICE]
    assert stored.ledger is not None
    entry = LedgerEntry(
        None, "5000000", "20000000", managed.now, Reason.THROTTLED, "", of_contract=20_000_000
    )
    ledger = replace(stored.ledger, entries={**stored.ledger.entries, FETCH: entry})
    write = QuotaWrite(
        ALICE,
        {FETCH: "5000000"},
        stored,
        ledger,
        WriteKind.LOWERING,
        Reason.THROTTLED,
        "down",
        charged=True,
    )
    assert apply_writes(
        [write],
        managed.store,
        cluster_id="memory-cluster",
        may_write=lambda: True,
        decided_at_seconds=managed.now,
        now_seconds=lambda: managed.now,
    ).complete
    return managed


def test_a_throttle_is_shown_with_its_contract_and_where_to_see_why(
    throttled: Any, golden: Callable[[str], None]
) -> None:
    text = explained(throttled, "--zookeeper", "zk-1:2181/kafka")
    assert numbers(text) >= {5.0, 5000000, 25, 20.0, 20000000}
    assert "Throttled" in text
    assert "tidegate top --policy streaming/orders" in text  # a command to paste
    golden("\n".join(line_with(text, part) for part in ("25 %", "tidegate top")))


def test_programs_learn_of_which_contract_it_is_a_throttle(throttled: Any) -> None:
    document = json.loads(explained(throttled, "--zookeeper", "zk-1:2181/kafka", "-o", "json"))
    assert '"throttleOfContract": 20000000' in json.dumps(document)


# --- what another writer changed or removed -------------------------------------------------------


def in_kubernetes(world: Any, policy: Any, tier: Any, until: str | None = None) -> None:
    """The policy and its tier, whose status says until when the member is left alone."""
    world.kubernetes.create(BROKER_BANDWIDTH_POLICIES, policy)
    made = world.kubernetes.create(BUSINESS_TIERS, tier)
    member = {"name": "shop", "state": "Contended", "contendedUntil": until}
    if until is not None:
        world.kubernetes.patch_status(
            ObjectRef.of(BUSINESS_TIERS, made),
            {"members": [member]},
            resource_version=made["metadata"]["resourceVersion"],
        )


@pytest.mark.parametrize("is_in_status", [True, False])
def test_a_quota_in_its_grace_says_in_how_many_seconds_it_is_restored(
    managed: Any, policy: Any, *, is_in_status: bool
) -> None:
    """As the policy's status has it; else as an operator that starts now would count."""
    policy["spec"]["removal"] = {"maxPercent": 100}
    made = managed.kubernetes.create(BROKER_BANDWIDTH_POLICIES, policy)
    seconds = 24 if is_in_status else 30
    if is_in_status:
        managed.kubernetes.patch_status(
            ObjectRef.of(BROKER_BANDWIDTH_POLICIES, made),
            {"leaving": [{"entity": "user=alice", "restoredAt": rfc3339(managed.now + 24)}]},
            resource_version=made["metadata"]["resourceVersion"],
        )
    assert f"that is restored in {seconds} s, unless a member names it again" in explained(managed)
    fetch = json.loads(explained(managed, "-o", "json"))["keys"]["consumer_byte_rate"]
    assert fetch["restoredAt"] == rfc3339(managed.now + seconds)


def test_a_quota_that_somebody_removed_is_not_called_unlimited_for_want_of_a_value(
    managed: Any, policy: Any, tier: Any, golden: Callable[[str], None]
) -> None:
    managed.store.put(ALICE, {FETCH: None})
    in_kubernetes(managed, policy, tier, "1970-01-12T13:49:13Z")
    text = explained(managed)
    (line,) = [line for line in text.splitlines() if line.startswith("Unlimited")]
    assert "fetch" not in line
    assert numbers(text) >= {20.0, 20000000, 60, 3}
    for part in (
        "streaming/core (L0), member shop",
        "1970-01-12T13:49:13Z",
        "tidegate resync streaming/orders --entity user=alice",
    ):
        assert part in text
    golden(text)


def test_programs_learn_what_is_missing_and_until_when_it_is_left_alone(
    managed: Any, policy: Any, tier: Any
) -> None:
    managed.store.put(ALICE, {FETCH: None})
    in_kubernetes(managed, policy, tier, "1970-01-12T13:49:13Z")
    fetch = json.loads(explained(managed, "-o", "json"))["keys"]["consumer_byte_rate"]
    assert fetch["limited"] is False
    (missing,) = fetch["missing"]
    assert (missing["level"], missing["entity"]) == (3, {"user": "alice"})
    assert missing["ledger"]["written"] == "20000000"
    assert missing["member"]["target"] == 20_000_000
    assert missing["leftAloneUntil"] == "1970-01-12T13:49:13Z"


@pytest.mark.parametrize(
    ("until", "expected"),
    [
        ("1970-01-12T13:49:13Z", "until 1970-01-12T13:49:13Z"),
        ("1970-01-12T13:40:00Z", "with its next pass."),
        (None, "with its next pass."),
    ],
)
def test_a_value_that_was_changed_has_its_contract_and_when_it_comes_back(
    managed: Any, policy: Any, tier: Any, until: str | None, expected: str
) -> None:
    managed.store.put(ALICE, {FETCH: "50000000"})
    in_kubernetes(managed, policy, tier, until)
    text = explained(managed)
    assert "Another writer changed it" in text
    assert "20000000" in line_with(text, "Its contract is")
    assert expected in line_with(text, "The operator")


@pytest.mark.parametrize("frozen", ["suspend", "observe"])
def test_an_operator_that_writes_nothing_now_is_not_promised_to(
    managed: Any, policy: Any, tier: Any, frozen: str
) -> None:
    managed.store.put(ALICE, {FETCH: None})
    policy["spec"] |= {"suspend": True} if frozen == "suspend" else {"mode": "Observe"}
    in_kubernetes(managed, policy, tier)
    line = line_with(explained(managed), "The operator does not write it now")
    assert ("spec.suspend" if frozen == "suspend" else "Observe") in line


def test_without_kubernetes_it_is_said_what_is_not_known(
    managed: Any, policy: Any, tier: Any
) -> None:
    managed.store.put(ALICE, {FETCH: None})
    files = managed.write_files(policy, tier)
    assert "unless it leaves it alone" in explained(managed, "-f", files)
    text = explained(managed, "--zookeeper", "zk-1:2181")
    assert "add --policy streaming/orders" in text
    assert "Someone removed" in text


def test_a_weaker_value_that_decides_in_place_of_a_removed_one_is_named(
    managed: Any, policy: Any, tier: Any
) -> None:
    managed.store.put(ALICE, {FETCH: None})
    managed.store.put(Entity(user=ANY), {FETCH: "90000000"})
    in_kubernetes(managed, policy, tier)
    text = explained(managed)
    assert "level 6" in line_with(text, "Decided at")
    assert "level 3" in line_with(text, "Someone removed")


def test_what_no_tier_names_any_more_is_not_promised_to_come_back(
    managed: Any, policy: Any, tier: Any
) -> None:
    managed.store.put(ALICE, {FETCH: None})
    tier["spec"]["members"][0]["user"] = "bob"
    in_kubernetes(managed, policy, tier)
    text = explained(managed)
    assert "Someone removed" in text
    assert "only forgets about it" in text
    assert "Its contract" not in text


def test_a_contract_that_was_never_written_is_no_unlimited_client(
    world: Any, policy: Any, tier: Any
) -> None:
    in_kubernetes(world, policy, tier)
    text = explained(world)
    assert "There is no quota at level 3" in text
    assert 10000000 in numbers(line_with(text, "Its contract is"))


def test_an_unreadable_ledger_record_is_not_to_be_repaired_with_kafka_configs(
    managed: Any, golden: Callable[[str], None]
) -> None:
    path = ledger_path(ALICE)
    (node,) = managed.store.tree.read([path])
    managed.store.tree.commit([SetData(path, b"{broken", node.version)])
    warning = line_with(explained(managed, "--zookeeper", "zk-1:2181"), "warning: ")
    assert "kafka-configs" not in warning
    assert path in warning
    golden(warning)


def test_a_quota_that_somebody_wrote_again_may_not_be_known_to_brokers(managed: Any) -> None:
    said = "Brokers may not know it"
    assert said not in explained(managed, "--zookeeper", "zk-1:2181")
    path = "/config/users/alice"
    (node,) = managed.store.tree.read([path])
    managed.store.tree.commit([SetData(path, node.data, node.version)])
    assert said in explained(managed, "--zookeeper", "zk-1:2181")


@pytest.mark.parametrize(
    ("reassignments", "said"),
    [
        ({"mode": "Follow"}, "Their rate follows what clients leave of the limit"),
        ({"mode": "Fixed", "rate": {"max": "2M"}}, "Their rate is fixed"),
        ({"mode": "Off"}, "Nothing of Tidegate throttles them"),
        (None, None),
    ],
)
def test_replication_beside_a_client_is_told_as_the_status_has_it(
    world: Any, policy: Any, tier: Any, reassignments: Any, said: str | None
) -> None:
    if reassignments is not None:
        policy["spec"] |= {
            "replication": {"reassignments": reassignments},
            "brokers": {"egress": {"limit": "100M"}},
            "metrics": {
                "prometheus": {"url": "http://prometheus:9090"},
                "brokerIdentity": {"label": "broker"},
            },
        }
    moving = {
        "partitions": 3,
        "bytesLeft": 90_000_000,
        "etaSeconds": 45,
        "bottleneck": "broker 1 egress",
    }
    made = world.kubernetes.create(BROKER_BANDWIDTH_POLICIES, policy)
    world.kubernetes.create(BUSINESS_TIERS, tier)
    world.kubernetes.patch_status(
        ObjectRef.of(BROKER_BANDWIDTH_POLICIES, made),
        {"replication": {"moving": moving}},
        resource_version=made["metadata"]["resourceVersion"],
    )
    answer = world.run("explain", "--policy", "streaming/orders", "-u", "alice")
    assert answer.code == 0, answer.err
    told = "partitions being reassigned: 3, 90 MB left, about 45 s by broker 1 egress."
    assert (told in answer.out.replace("\n", " ")) == (said is not None)
    assert said is None or said in answer.out.replace("\n", " ")


def test_a_policy_with_its_namespace_needs_no_right_beyond_that_namespace(
    world: Any, policy: Any, tier: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.kubernetes.create(BROKER_BANDWIDTH_POLICIES, policy)
    world.kubernetes.create(BUSINESS_TIERS, tier)
    list_all = world.kubernetes.list_all

    def list_in(kind: Any, namespaces: Sequence[str] = ()) -> Any:
        if tuple(namespaces) != ("streaming",):
            raise Unauthorized(f"cannot list {kind.plural} at the cluster scope")
        return list_all(kind, namespaces)

    monkeypatch.setattr(world.kubernetes, "list_all", list_in)
    assert "at the cluster scope" in world.run("explain", "-u", "alice").err
    answer = world.run("explain", "--policy", "streaming/orders", "-u", "alice")
    assert answer.code == 0, answer.err
    answer = world.run("explain", "--policy", "streaming/another", "-u", "alice")
    assert "in namespace streaming" in answer.err.replace("\n", " ")


def test_a_client_that_a_share_group_reads_with_is_explained(
    managed: Any, policy: Any, tier: Any
) -> None:
    managed.share_groups = (ShareGroup("orders"),)
    tier["spec"]["members"][0]["shareGroupNames"] = ["orders"]
    text = explained(managed, "-f", managed.write_files(policy, tier))
    assert "share group orders uses it" in text
    assert "10 MB/s perPartition is not written" in text
