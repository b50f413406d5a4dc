"""Every way to lose a ledger: the policy is held within a minute, nothing from before is replaced,
and a person's answer leaves no quota of ours behind. On real brokers and a real ZooKeeper.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
)
from kazoo.client import KazooClient

from lab.java import start_java
from lab.kraft import KraftLab
from lab.kubernetes.api import KubeApi
from lab.packages import kafka_jars
from lab.process import wait_until
from tests.contract.quota_store_contract import (
    ALICE,
    BOB,
    CLUSTER,
    FETCH,
    PRODUCE,
    give_back,
    lay_out_kafka,
)
from tests.integration.kafka.admin_world import AdminWorld, around
from tests.integration.kafka.test_zookeeper_store import KazooWriter
from tests.integration.operator.operator_process import OperatorProcess
from tests.integration.operator.test_operator import tier
from tests.unit.control.stage import Leaders, Stage
from tests.unit.control.test_load import ETL, hot, throttled_etl
from tidegate.errors import NotFound
from tidegate.kafka.adminapi import log as ledger_log
from tidegate.kafka.adminapi.store import AdminQuotaStore
from tidegate.kafka.settings import ZooKeeperConnection
from tidegate.kafka.zookeeper.session import ZooKeeperSession
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore
from tidegate.kube.api import ObjectRef
from tidegate.observe.declared import LOST_LEDGER, PAUSED
from tidegate_logic.model import Entity

pytestmark = pytest.mark.integration

_PASS_SECONDS = 15.0
_FORGOTTEN_SECONDS = 1200.0  # the ledger remembers for a quarter of an hour what was restored
LOST = ("False", "LedgerLost")
CAROL = Entity("carol")


def passes(
    stage: Stage, within_seconds: float = 60.0, *, every_seconds: float = _PASS_SECONDS
) -> None:
    """As many passes as the operator makes in this time, or fewer that are further apart."""
    for _ in range(int(within_seconds / every_seconds)):
        stage.now += every_seconds
        stage.run()


def annotate(stage: Stage, policy: ObjectRef, word: str) -> None:
    """What `tidegate ledger` does."""
    epoch = stage.kubernetes.get(policy)["status"]["ledger"]["epoch"]
    stage.kubernetes.annotate(policy, LOST_LEDGER, f"{word}@{epoch}")


def answer(stage: Stage, policy: ObjectRef, word: str) -> None:
    annotate(stage, policy, word)
    assert stage.run() == 0.0  # the next pass follows at once
    stage.run()


def set_status(stage: Stage, policy: ObjectRef, patch: dict[str, Any]) -> None:
    version = stage.kubernetes.get(policy)["metadata"]["resourceVersion"]
    stage.kubernetes.patch_status(policy, patch, resource_version=version)


def is_gone(stage: Stage, policy: ObjectRef) -> bool:
    try:
        stage.kubernetes.get(policy)
    except NotFound:
        return True
    return False


def delete(stage: Stage, policy: ObjectRef) -> None:
    stage.kubernetes.delete(policy)
    passes(stage)
    assert is_gone(stage, policy)


def notes(stage: Stage, reason: str) -> list[str]:
    return [event.note for event in stage.kubernetes.events if event.reason == reason]


# --- a ledger in a topic --------------------------------------------------------------------------


@pytest.fixture
def world(
    kraft: KraftLab, unique_name: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[AdminWorld]:
    monkeypatch.setattr(ledger_log, "LOOK_SECONDS", 0.0)  # each pass is 15 s of the stage's clock
    yield from around(kraft, unique_name)


@pytest.fixture
def admin(kraft: KraftLab) -> AdminClient:
    return AdminClient({"bootstrap.servers": kraft.bootstrap_servers})


@pytest.fixture
def stage(world: AdminWorld) -> Stage:
    return Stage(store=world.store(), leaders=Leaders(cluster_id=world.cluster_id))


@pytest.fixture
def silver(stage: Stage) -> ObjectRef:
    return stage.tier("silver", user="bob")


@pytest.fixture
def policy(world: AdminWorld, stage: Stage, silver: ObjectRef) -> ObjectRef:
    """Two members at their contracts; the first one had quotas before."""
    world.put(ALICE, {PRODUCE: "12000000", FETCH: "5000000"})
    policy = stage.policy(kafka=kafka_spec(world, world.topic))
    stage.tier()
    stage.run()
    stage.now += _PASS_SECONDS
    stage.run()
    assert stage.condition(policy) == ("True", "InSync")
    assert stage.kubernetes.get(policy)["status"]["ledger"] == {
        "clusterId": world.cluster_id,
        "topic": world.topic,
        "epoch": 1,
        "records": 2,
        "managed": 2,
    }
    return policy


def kafka_spec(world: AdminWorld, topic: str) -> dict[str, Any]:
    return {"bootstrapServers": world.settings.bootstrap_servers[0], "ledgerTopic": topic}


def another_process(world: AdminWorld, stage: Stage) -> Stage:
    """A process that never saw the ledger."""
    twin = Stage(stage.kubernetes, world.another_store(), stage.leaders, identity="operator-2")
    twin.now = stage.now + 60
    return twin


def delete_topic(admin: AdminClient, world: AdminWorld) -> None:
    admin.delete_topics([world.topic])[world.topic].result(20)
    wait_until(
        lambda: world.topic not in admin.list_topics(timeout=10).topics,
        "the end of the topic",
        timeout_seconds=20,
    )


def set_topic(admin: AdminClient, topic: str, **settings: str) -> None:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    for name, value in settings.items():
        resource.add_incremental_config(
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        )
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(20)


def retention(admin: AdminClient, world: AdminWorld) -> None:
    """What retention does to a topic, now."""
    end = TopicPartition(world.topic, 0, -1)
    for done in admin.delete_records([end]).values():
        done.result(20)


def assert_held(world: AdminWorld, stage: Stage, policy: ObjectRef) -> None:
    """Lost, reported, and neither a quota nor a value from before is replaced."""
    assert stage.condition(policy) == LOST
    assert stage.condition(policy, "Stalled") == ("True", "LedgerLost")
    assert (world.quotas(ALICE), world.quotas(BOB)) == (
        {PRODUCE: "10000000", FETCH: "5000000"},
        {PRODUCE: "10000000"},
    )
    assert "name another" not in stage.message(policy).replace("Do not name another", "")


def test_a_topic_that_is_deleted_under_a_running_operator_is_written_back(
    world: AdminWorld, stage: Stage, policy: ObjectRef, admin: AdminClient
) -> None:
    delete_topic(admin, world)
    passes(stage)
    assert_held(world, stage, policy)
    assert "tidegate ledger rebuild streaming/orders" in stage.message(policy)
    assert stage.store.ledger_entities() == frozenset()
    answer(stage, policy, "rebuild")
    assert stage.condition(policy) == ("True", "InSync")
    delete(stage, policy)
    assert world.quotas(ALICE) == {PRODUCE: "12000000", FETCH: "5000000"}
    assert world.quotas(BOB) == {}


def give(stage: Stage, tier: ObjectRef, **rates: str) -> None:
    stage.kubernetes.edit(
        tier,
        lambda raw: raw["spec"]["members"][0].update(contract={"perPartition": rates}),
    )


def run_named(stage: Stage, kraft: KraftLab, end: str) -> None:
    """Run the one command of the Events that ends like this, with Kafka's own tool."""
    said = "; ".join(notes(stage, "LedgerLost"))
    (command,) = [one for one in said.split("; ") if one.endswith(end)]
    _, *arguments = shlex.split(command[command.index("kafka-configs.sh") :])
    with start_java(
        "kafka-configs",
        "kafka.admin.ConfigCommand",
        arguments=arguments,
        options=["-Xmx128m"],
        jars=kafka_jars(),
        directory=kraft.run.path / f"kafka-configs-{time.monotonic_ns()}",
    ) as started:
        started.expect_success(60.0)


def test_a_topic_that_is_deleted_while_no_operator_runs_waits_for_an_answer(
    world: AdminWorld,
    stage: Stage,
    policy: ObjectRef,
    silver: ObjectRef,
    admin: AdminClient,
    kraft: KraftLab,
) -> None:
    give(stage, silver, produce="10M", fetch="20M")
    passes(stage, 30)
    assert world.quotas(BOB) == {PRODUCE: "10000000", FETCH: "20000000"}
    delete_topic(admin, world)
    give(stage, silver, produce="10M")  # nothing names the other direction any more
    twin = another_process(world, stage)
    passes(twin)
    assert twin.condition(policy) == LOST
    assert "tidegate ledger accept streaming/orders" in twin.message(policy)
    annotate(twin, policy, "rebuild")  # it cannot
    passes(twin, 30)
    assert twin.condition(policy) == LOST
    assert world.quotas(ALICE) == {PRODUCE: "10000000", FETCH: "5000000"}
    assert world.quotas(BOB) == {PRODUCE: "10000000", FETCH: "20000000"}
    answer(twin, policy, "accept")
    assert twin.condition(policy) == ("True", "InSync")
    run_named(twin, kraft, "--entity-name bob --delete-config consumer_byte_rate")
    assert world.quotas(BOB) == {PRODUCE: "10000000"}
    delete(twin, policy)
    # what was there before is not known, and what was never ours stays
    assert (world.quotas(ALICE), world.quotas(BOB)) == ({FETCH: "5000000"}, {})


@pytest.mark.parametrize("is_same_process", [True, False])
def test_a_ledger_that_retention_deleted_is_lost_and_its_topic_at_risk_before(
    world: AdminWorld, stage: Stage, policy: ObjectRef, admin: AdminClient, is_same_process: bool
) -> None:
    set_topic(admin, world.topic, cleanup_policy="delete")
    wait_until(
        lambda: (stage.run(), stage.condition(policy))[1] == ("False", "LedgerAtRisk"),
        "the setting to be seen",
        timeout_seconds=20,
    )
    assert "cleanup.policy=compact" in stage.message(policy)
    retention(admin, world)
    set_topic(admin, world.topic, cleanup_policy="compact")
    observer = stage if is_same_process else another_process(world, stage)
    passes(observer)
    assert_held(world, observer, policy)
    answer(observer, policy, "rebuild" if is_same_process else "accept")
    assert observer.condition(policy) == ("True", "InSync")
    delete(observer, policy)
    before = {PRODUCE: "12000000", FETCH: "5000000"} if is_same_process else {FETCH: "5000000"}
    assert (world.quotas(ALICE), world.quotas(BOB)) == (before, {})


def test_a_policy_deleted_before_an_answer_goes_and_names_what_may_be_left(
    world: AdminWorld, stage: Stage, policy: ObjectRef, admin: AdminClient
) -> None:
    delete_topic(admin, world)
    twin = another_process(world, stage)
    passes(twin)
    delete(twin, policy)
    assert world.quotas(ALICE)[PRODUCE] == "10000000"
    said = " ".join(notes(twin, "LedgerLost"))
    server = world.settings.bootstrap_servers[0]
    for entity, key in (
        ("alice", "consumer_byte_rate"),
        ("alice", "producer_byte_rate"),
        ("bob", "producer_byte_rate"),
    ):
        assert (
            f"kafka-configs.sh --bootstrap-server {server} --alter --entity-type users "
            f"--entity-name {entity} --delete-config {key}"
        ) in said


def test_who_remembers_names_what_was_there_before(
    world: AdminWorld, stage: Stage, policy: ObjectRef, admin: AdminClient
) -> None:
    delete_topic(admin, world)
    passes(stage)
    delete(stage, policy)
    said = " ".join(notes(stage, "LedgerLost"))
    assert "--entity-name alice --add-config producer_byte_rate=12000000" in said
    assert "--entity-name bob --delete-config producer_byte_rate" in said


@pytest.mark.parametrize("is_same_process", [True, False])
def test_a_claim_without_its_records_is_a_loss(
    world: AdminWorld, stage: Stage, policy: ObjectRef, is_same_process: bool
) -> None:
    world.append(b"users/alice", None)
    observer = stage if is_same_process else another_process(world, stage)
    passes(observer)
    assert_held(world, observer, policy)
    answer(observer, policy, "rebuild" if is_same_process else "accept")
    delete(observer, policy)
    before = {PRODUCE: "12000000", FETCH: "5000000"} if is_same_process else {FETCH: "5000000"}
    assert (world.quotas(ALICE), world.quotas(BOB)) == (before, {})


def test_records_without_their_claim_are_a_loss_and_are_kept(
    world: AdminWorld, stage: Stage, policy: ObjectRef
) -> None:
    world.append(b"claim", None)
    twin = another_process(world, stage)
    passes(twin)
    assert_held(world, twin, policy)
    answer(twin, policy, "accept")
    assert twin.condition(policy) == ("True", "InSync")
    delete(twin, policy)
    assert (world.quotas(ALICE), world.quotas(BOB)) == (
        {PRODUCE: "12000000", FETCH: "5000000"},
        {},
    )


def test_an_older_ledger_in_its_place_is_a_loss(
    world: AdminWorld, stage: Stage, policy: ObjectRef, admin: AdminClient
) -> None:
    older = world.claim()
    delete_topic(admin, world)
    passes(stage)
    answer(stage, policy, "rebuild")
    world.append(b"claim", older)
    twin = another_process(world, stage)
    passes(twin)
    assert_held(world, twin, policy)


def test_with_more_partitions_the_ledger_is_read_on(
    world: AdminWorld, stage: Stage, policy: ObjectRef, admin: AdminClient
) -> None:
    admin.create_partitions([NewPartitions(world.topic, 2)])[world.topic].result(20)
    wait_until(
        lambda: len(admin.list_topics(timeout=10).topics[world.topic].partitions) == 2,
        "the second partition",
        timeout_seconds=20,
    )
    for process in (stage, another_process(world, stage)):
        passes(process, 30)
        assert process.condition(policy) == ("True", "InSync")
        assert "2 partitions" in process.message(policy)
        assert "Do not name another topic" in process.message(policy)
    delete(process, policy)
    assert world.quotas(ALICE) == {PRODUCE: "12000000", FETCH: "5000000"}


def test_another_topic_in_the_policy_is_not_a_new_cluster(
    world: AdminWorld, stage: Stage, policy: ObjectRef, admin: AdminClient
) -> None:
    stage.kubernetes.edit(
        policy, lambda raw: raw["spec"]["kafka"].update(ledgerTopic=f"{world.topic}-2")
    )
    twin = Stage(
        stage.kubernetes, AdminQuotaStore(world.settings, f"{world.topic}-2"), stage.leaders
    )
    twin.now = stage.now
    passes(twin)
    assert_held(world, twin, policy)
    assert f"set spec.kafka.ledgerTopic to {world.topic} again" in twin.message(policy)
    stage.kubernetes.edit(policy, lambda raw: raw["spec"]["kafka"].update(ledgerTopic=world.topic))
    passes(stage)
    assert stage.condition(policy) == ("True", "InSync")
    twin.store.close()


def test_a_new_kafka_under_an_old_policy_waits_for_an_answer(
    world: AdminWorld, stage: Stage, policy: ObjectRef, admin: AdminClient
) -> None:
    """The status was restored from a backup, with another cluster's id; quotas here are others'."""
    delete_topic(admin, world)
    set_status(stage, policy, {"ledger": {"clusterId": "a-cluster-of-before"}})
    world.put(ALICE, {PRODUCE: "12000000"})
    twin = another_process(world, stage)
    passes(twin)
    assert twin.condition(policy) == LOST
    assert "a-cluster-of-before" in twin.message(policy)
    assert world.quotas(ALICE)[PRODUCE] == "12000000"
    answer(twin, policy, "accept")
    passes(twin, 30)
    assert twin.condition(policy) == ("True", "InSync")
    delete(twin, policy)
    assert world.quotas(ALICE) == {PRODUCE: "12000000", FETCH: "5000000"}


def test_a_policy_without_its_status_is_taken_as_it_is_once(
    world: AdminWorld, stage: Stage, policy: ObjectRef
) -> None:
    """One of an earlier version, or restored without its status."""
    set_status(stage, policy, dict.fromkeys(stage.kubernetes.get(policy)["status"]))
    assert "ledger" not in stage.kubernetes.get(policy)["status"]
    twin = another_process(world, stage)
    passes(twin, 30)
    assert twin.condition(policy) == ("True", "InSync")
    assert twin.kubernetes.get(policy)["status"]["ledger"]["records"] == 2


def test_what_an_earlier_version_removed_meanwhile_is_no_loss(
    world: AdminWorld, stage: Stage, policy: ObjectRef, silver: ObjectRef
) -> None:
    known = stage.kubernetes.get(policy)["status"]["ledger"]
    stage.kubernetes.delete(silver)
    passes(stage, _FORGOTTEN_SECONDS, every_seconds=60)
    assert world.quotas(BOB) == {}
    assert stage.kubernetes.get(policy)["status"]["ledger"]["records"] == 1
    set_status(stage, policy, {"ledger": known})  # which it knows nothing of
    twin = another_process(world, stage)
    passes(twin)
    assert twin.condition(policy) == ("True", "InSync")


def test_a_record_is_not_removed_before_the_status_says_so(
    world: AdminWorld, stage: Stage, policy: ObjectRef, silver: ObjectRef
) -> None:
    """A process that dies right after it removed one leaves a status that fits."""
    stage.kubernetes.delete(silver)
    told: list[int] = []

    def die() -> None:
        told.append(stage.kubernetes.get(policy)["status"]["ledger"]["records"])
        raise SystemExit

    passes(stage)
    assert world.quotas(BOB) == {}
    world.client.after("Produce", die)  # what drops the record
    with pytest.raises(SystemExit):
        passes(stage, _FORGOTTEN_SECONDS, every_seconds=60)
    assert told == [1]
    twin = another_process(world, stage)
    passes(twin)
    assert twin.condition(policy) == ("True", "InSync")
    assert world.quotas(BOB) == {}


def test_a_topic_deleted_in_the_middle_of_a_batch_is_written_back_with_what_was_sent(
    world: AdminWorld, stage: Stage, policy: ObjectRef, admin: AdminClient
) -> None:
    stage.tier("bronze", user="carol")
    world.client.after("AlterClientQuotas", lambda: delete_topic(admin, world))
    passes(stage)
    assert stage.condition(policy) == LOST
    assert world.quotas(CAROL) == {PRODUCE: "10000000"}
    answer(stage, policy, "rebuild")
    assert stage.condition(policy) == ("True", "InSync")
    delete(stage, policy)
    assert world.quotas(ALICE) == {PRODUCE: "12000000", FETCH: "5000000"}
    assert (world.quotas(BOB), world.quotas(CAROL)) == ({}, {})


def test_what_tidegate_restore_released_is_no_loss_and_its_epochs_go_on(
    world: AdminWorld, stage: Stage, policy: ObjectRef
) -> None:
    stage.kubernetes.annotate(policy, PAUSED, "true")
    passes(stage, 30)
    restore(world)
    passes(stage)
    assert stage.condition(policy) == ("False", "Paused")
    stage.kubernetes.annotate(policy, PAUSED, None)
    twin = another_process(world, stage)
    passes(twin, 30)
    assert twin.condition(policy) == ("True", "InSync")
    assert twin.store.facts().claim.epoch == 2
    assert world.quotas(ALICE)[PRODUCE] == "10000000"
    delete(twin, policy)
    assert world.quotas(ALICE) == {PRODUCE: "12000000", FETCH: "5000000"}


def restore(world: AdminWorld) -> None:
    """What `tidegate restore --yes` does at once."""
    store = world.another_store()
    stored = store.read_everything().values()
    writes = [
        give_back(one, {key: entry.before for key, entry in one.ledger.entries.items()})
        for one in stored
        if one.ledger is not None
    ]
    assert all(one.applied for one in store.write(writes, world.cluster_id))
    store.release_claim("streaming/orders")
    assert store.facts().claim is None


@pytest.mark.parametrize("word", ["rebuild", "accept"])
def test_a_ledger_lost_in_an_episode_leaves_no_throttled_quota_behind(
    world: AdminWorld, stage: Stage, admin: AdminClient, word: str
) -> None:
    policy = throttled_etl(stage)
    throttled = world.quotas(ETL)
    delete_topic(admin, world)
    for _ in range(4):
        stage.now += _PASS_SECONDS
        hot(stage, 5)  # the load goes
        stage.run()
    assert stage.condition(policy) == LOST
    assert world.quotas(ETL) == throttled
    answer(stage, policy, word)
    delete(stage, policy)
    assert world.quotas(ETL) == {}


# --- the same in ZooKeeper ------------------------------------------------------------------------


@pytest.fixture
def zookeeper_stage(chroot: str, chroot_client: KazooClient) -> Iterator[Stage]:
    writer = KazooWriter(chroot_client)
    lay_out_kafka(writer)
    writer.put("/config/users/alice", b'{"version":1,"config":{"producer_byte_rate":"12000000"}}')
    session = ZooKeeperSession(ZooKeeperConnection(chroot))
    yield Stage(store=ZooKeeperQuotaStore(session), leaders=Leaders(cluster_id=CLUSTER))
    session.close()


@pytest.mark.parametrize("path", ["/tidegate", "/tidegate/ledger", "/tidegate/claim"])
@pytest.mark.parametrize("is_same_process", [True, False])
def test_what_is_deleted_below_tidegate_is_a_lost_ledger(
    zookeeper_stage: Stage, chroot_client: KazooClient, path: str, is_same_process: bool
) -> None:
    stage = zookeeper_stage
    policy = stage.policy()
    stage.tier()
    stage.run()
    passes(stage, 30)
    assert stage.condition(policy) == ("True", "InSync")
    writer = KazooWriter(chroot_client)
    writer.put("/config/users/dan", b'{"version":1,"config":{"consumer_byte_rate":"7"}}')
    chroot_client.delete(path, recursive=True)
    if not is_same_process:
        stage.restart()
    passes(stage)
    assert stage.condition(policy) == LOST
    assert stage.produce() == "10000000"
    answer(stage, policy, "rebuild" if is_same_process else "accept")
    assert stage.condition(policy) == ("True", "InSync")
    said = "".join(notes(stage, "LedgerLost"))
    command = "--entity-type users --entity-name dan --delete-config consumer_byte_rate"
    assert (command in said) is not is_same_process  # who remembers knows that it is not ours
    delete(stage, policy)
    has_before = is_same_process or path == "/tidegate/claim"
    assert stage.produce() == ("12000000" if has_before else None)
    assert chroot_client.get_children("/tidegate/ledger") == []
    assert not chroot_client.exists("/tidegate/claim")


# --- the whole path -------------------------------------------------------------------------------


@pytest.mark.timeout(300)
def test_operators_report_a_lost_ledger_within_a_minute_and_do_what_the_command_says(
    kraft: KraftLab, crds: KubeApi, unique_name: str, tmp_path: Path, admin: AdminClient
) -> None:
    namespace, topic = unique_name, f"acc-{unique_name}"
    kraft.create_topic(topic, assignment=[[1]])
    for world in around(kraft, unique_name):
        world.put(ALICE, {PRODUCE: "1500000"})  # one step above the contract
        spec = {"mode": "Enforce", "kafka": kafka_spec(world, world.topic)}
        policy = {
            "apiVersion": "tidegate.io/v1alpha1",
            "kind": "BrokerBandwidthPolicy",
            "metadata": {"name": "orders", "namespace": namespace},
            "spec": spec,
        }

        def waits_for(condition: str, seconds: int) -> None:
            crds.kubectl(
                *("wait", f"--for=jsonpath={{.status.conditions[0].reason}}={condition}"),
                *("bbp/orders", "-n", namespace, f"--timeout={seconds}s"),
            )

        def answers(word: str) -> None:
            command = [sys.executable, "-m", "tidegate", "ledger", word, f"{namespace}/orders"]
            environment = {**os.environ, "KUBECONFIG": str(crds.kubeconfig)}
            subprocess.run(command, env=environment, check=True, capture_output=True, timeout=60)
            waits_for("InSync", 60)

        crds.kubectl("create", "namespace", namespace)
        crds.kubectl("apply", "-f", "-", input=json.dumps(policy))
        crds.kubectl("apply", "-f", "-", input=json.dumps(tier(namespace, "alice", topic)))
        with OperatorProcess(crds, namespace, tmp_path, name="first") as first:
            waits_for("InSync", 90)
            contract = world.quotas(ALICE)
            assert contract[PRODUCE] == "1000000"
            delete_topic(admin, world)
            waits_for("LedgerLost", 60)
            answers("rebuild")
            assert b"1500000" in (world.record(ALICE) or b"")
            first.kill()
            delete_topic(admin, world)
        with OperatorProcess(crds, namespace, tmp_path, name="second"):
            waits_for("LedgerLost", 90)
            assert world.quotas(ALICE) == contract
            answers("accept")
            crds.kubectl("delete", "bbp", "orders", "-n", namespace, "--timeout=90s")
        assert world.quotas(ALICE) == {}
