"""A ledger that is gone, as the operator in memory reports it: what is transient, what is released,
what a status that cannot be written changes, and what people read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.unit.control.stage import ALICE, AWAY, Stage
from tidegate.control.ledger_watch import Answer, LedgerWatch, Mending, remembered_of
from tidegate.control.leftovers import Suspect, suspects_of, suspects_words
from tidegate.errors import RetryLater
from tidegate.kafka.quota_store import Claim, ClusterFacts, LedgerFacts
from tidegate.kafka.zookeeper.tree import Delete, ZnodeTree
from tidegate.kube.api import BUSINESS_TIERS, JsonObject, ObjectRef
from tidegate.observe.declared import LOST_LEDGER
from tidegate_logic.model import (
    Default,
    Entity,
    KafkaUser,
    LedgerEntry,
    LedgerRecord,
    Policy,
    QuotaKey,
    QuotaWrite,
    StoredQuota,
    StrimziUsers,
    WriteKind,
)
from tidegate_logic.reasons import Reason

LOST = ("False", "LedgerLost")
STATUS = {
    "ledger": {"clusterId": "c", "topic": "t", "epoch": 3, "records": 2, "managed": 2},
    "quotas": {"managed": 2},
}
POLICY = Policy("streaming/orders", "uid-1")
OURS = Claim("streaming/orders", "uid-1", epoch=3)
SOUND = ClusterFacts("c", 0, migration_running=False, claim=OURS, ledger=LedgerFacts("t"))


def remove(tree: ZnodeTree, path: str) -> None:
    """The node with all below it."""
    (names,) = tree.children([path])
    for name in names or ():
        remove(tree, f"{path}/{name}")
    (node,) = tree.read([path])
    if node is not None:
        tree.commit([Delete(path, node.version)])


@pytest.fixture
def policy(stage: Stage) -> ObjectRef:
    policy, _ = stage.policy(), stage.tier()
    run(stage)
    assert stage.condition(policy) == ("True", "InSync")
    return policy


def run(stage: Stage, passes: int = 1) -> None:
    for _ in range(passes):
        stage.run()
        stage.now += 15


# --- the judgement --------------------------------------------------------------------------------


class Ledger:
    """What a watch with this status says, look by look; `seconds` is its clock."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.watch = LedgerWatch("streaming/orders", monotonic=lambda: self.seconds)
        self.watch.begin(STATUS)

    def look(self, facts: ClusterFacts, records: int = 2) -> str | None:
        quotas = {entity: stored(entity) for entity in entities(records)}
        loss = self.watch.look(facts, quotas, None, policy=POLICY)  # type: ignore[arg-type]
        return None if loss is None else loss.reason.value


def entities(count: int) -> list[Entity]:
    return [Entity(f"user-{number}") for number in range(count)]


def stored(entity: Entity) -> StoredQuota:
    record = LedgerRecord(entity, POLICY.key, POLICY.uid, {})
    return StoredQuota(entity, {}, ledger=record)


@pytest.mark.parametrize(
    ("facts", "records", "is_lost"),
    [
        (SOUND, 2, False),
        (SOUND, 3, False),
        (replace(SOUND, claim=replace(OURS, epoch=9)), 2, False),  # taken over since
        (SOUND, 1, True),
        (replace(SOUND, claim=None), 2, True),
        (replace(SOUND, claim=None), 0, True),
        (replace(SOUND, claim=replace(OURS, epoch=2)), 2, True),
        (replace(SOUND, ledger=LedgerFacts()), 2, True),  # ZooKeeper has what is out of date
        (replace(SOUND, claim=replace(OURS, policy_uid="uid-2")), 0, False),  # another's
        (replace(SOUND, claim=None, ledger=LedgerFacts("t", released_epoch=3)), 0, False),
        (replace(SOUND, claim=None, ledger=LedgerFacts("t", released_epoch=3)), 1, True),
        (replace(SOUND, claim=None, ledger=LedgerFacts("t", released_epoch=2)), 0, True),
        (replace(SOUND, claim=None, ledger=LedgerFacts("t", released_epoch=4)), 0, False),
    ],
)
def test_what_counts_as_lost(facts: ClusterFacts, records: int, is_lost: bool) -> None:
    ledger = Ledger()
    assert ledger.look(facts, records) == ("LedgerNotFound" if is_lost else None)
    ledger.seconds = 10.0
    assert ledger.look(facts, records) == ("LedgerLost" if is_lost else None)


def test_a_ledger_that_is_found_again_was_not_lost() -> None:
    ledger = Ledger()
    assert ledger.look(replace(SOUND, claim=None), 0) == "LedgerNotFound"
    ledger.seconds = 9.0
    assert ledger.look(SOUND) is None
    ledger.seconds = 12.0
    assert ledger.look(replace(SOUND, claim=None), 0) == "LedgerNotFound"


def test_what_is_behind_an_open_transaction_is_never_counted_as_lost() -> None:
    ledger = Ledger()
    hidden = replace(SOUND, claim=None, ledger=LedgerFacts("t", is_whole=False))
    for ledger.seconds in (0.0, 60.0, 900.0):
        assert ledger.look(hidden, 0) == "LedgerNotFound"


def test_a_count_of_before_another_version_reported_is_not_used() -> None:
    status = {**STATUS, "quotas": {"managed": 1}}
    remembered = remembered_of(status)
    assert remembered is not None
    assert (remembered.epoch, remembered.records) == (3, 0)
    assert remembered_of({}) is None


# --- the operator ---------------------------------------------------------------------------------


def test_a_policy_that_writes_nothing_remembers_no_ledger(stage: Stage) -> None:
    policy, _ = stage.policy(mode="Observe"), stage.tier()
    run(stage, 3)
    assert "ledger" not in stage.kubernetes.get(policy)["status"]
    assert stage.condition(policy) == ("True", "Observing")


def test_a_lost_ledger_and_its_answers_read_like_this(
    stage: Stage, policy: ObjectRef, golden: Callable[[str], None]
) -> None:
    remove(stage.store.tree, "/tidegate")
    run(stage)
    told = [stage.message(policy)]
    run(stage)
    assert stage.condition(policy) == LOST
    told.append(stage.message(policy))
    stage.restart()
    run(stage, 2)
    told.append(stage.message(policy))
    stage.kubernetes.annotate(policy, LOST_LEDGER, "accept@1")
    run(stage, 2)
    assert stage.condition(policy) == ("True", "InSync")
    told += [one.note for one in stage.kubernetes.events if one.reason == "LedgerRebuilt"]
    remove(stage.store.tree, "/tidegate")
    run(stage, 2)
    stage.kubernetes.delete(policy)
    events = len(stage.kubernetes.events)
    run(stage)
    told += [one.note for one in stage.kubernetes.events[events:] if one.reason == "LedgerLost"]
    golden("\n\n".join(told))


def test_an_older_policy_does_not_take_over_what_another_one_lost(
    stage: Stage, policy: ObjectRef
) -> None:
    other = stage.policy("older", created="2020-01-01T00:00:00Z")
    stage.tier("other", user="bob", policy="older")
    stage.run("older")
    assert stage.condition(other) == ("False", "ClusterAlreadyManaged")
    remove(stage.store.tree, "/tidegate")
    for _ in range(3):
        stage.run("older")
        run(stage)
    assert stage.store.facts().claim is None
    assert stage.condition(other) == ("False", "ClusterAlreadyManaged")
    assert "streaming/orders had the ledger" in stage.message(other)
    stage.kubernetes.delete(policy)
    run(stage)
    stage.run("older")
    assert stage.condition(other) == ("True", "InSync")


def test_an_answer_counts_for_the_loss_that_it_names(stage: Stage, policy: ObjectRef) -> None:
    stage.kubernetes.annotate(policy, LOST_LEDGER, "rebuild@1")
    remove(stage.store.tree, "/tidegate")
    run(stage, 3)
    assert stage.condition(policy) == ("True", "InSync")
    assert stage.store.facts().claim.epoch == 2
    remove(stage.store.tree, "/tidegate")
    run(stage, 3)
    assert stage.condition(policy) == LOST


@pytest.mark.parametrize("hindrance", ["spec.suspend", "no Lease"])
def test_no_answer_is_carried_out_while_nothing_may_be_written(
    stage: Stage, policy: ObjectRef, hindrance: str
) -> None:
    remove(stage.store.tree, "/tidegate")
    run(stage, 2)
    if hindrance == "no Lease":
        stage.may_write = False
    else:
        stage.kubernetes.edit(policy, lambda raw: raw["spec"].update(suspend=True))
    stage.kubernetes.annotate(policy, LOST_LEDGER, "rebuild@1")
    run(stage, 2)
    assert stage.store.facts().claim is None


def test_a_deleted_policy_restores_what_is_left_of_its_ledger(
    stage: Stage, policy: ObjectRef
) -> None:
    stage.tier("silver", user="bob")
    run(stage)
    (names,) = stage.store.tree.children(["/tidegate/ledger"])
    (alices,) = [one for one in names if "alice" in one]
    remove(stage.store.tree, f"/tidegate/ledger/{alices}")
    run(stage, 2)
    assert stage.condition(policy) == LOST
    stage.kubernetes.delete(policy)
    run(stage, 3)
    assert stage.produce() == "10000000"
    assert stage.produce(Entity("bob")) is None
    assert stage.store.facts().claim is None
    named = [one.note for one in stage.kubernetes.events if "--entity-name" in one.note]
    assert len(named) == 1
    assert "alice" in named[0]


def test_no_record_is_removed_while_the_status_cannot_be_written(
    stage: Stage, policy: ObjectRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.kubernetes.edit(policy, lambda raw: raw["spec"].update(removal={"maxPercent": 100}))
    silver = stage.tier("silver", user="bob")
    run(stage)
    stage.kubernetes.delete(silver)
    put = stage.kubernetes.patch_status

    def away(*_: object, **__: object) -> None:
        raise AWAY

    monkeypatch.setattr(stage.kubernetes, "patch_status", away)
    run(stage, 80)  # the ledger remembers for a quarter of an hour what was restored
    assert Entity("bob") in stage.store.ledger_entities()
    monkeypatch.setattr(stage.kubernetes, "patch_status", put)
    run(stage, 3)
    assert Entity("bob") not in stage.store.ledger_entities()
    assert stage.condition(policy) == ("True", "InSync")


def _accepted_without_a_direction(stage: Stage, policy: ObjectRef) -> list[str]:
    """The notes of an accepted loss; alice's contract has lost its fetch since it was written."""
    tier = next(one for one in stage.kubernetes.list_all(BUSINESS_TIERS))
    contract = {"perPartition": {"produce": "10M", "fetch": "20M"}}
    edit(stage, tier, contract)
    run(stage)
    remove(stage.store.tree, "/tidegate")
    stage.restart()
    run(stage, 2)
    assert stage.condition(policy) == LOST
    edit(stage, tier, {"perPartition": {"produce": "10M"}})
    stage.kubernetes.annotate(policy, LOST_LEDGER, "accept@1")
    run(stage, 2)
    return left(stage)


def left(stage: Stage) -> list[str]:
    events = stage.kubernetes.events
    return [one.note for one in events if one.note.startswith("May be Tidegate's")]


def edit(stage: Stage, tier: JsonObject, contract: JsonObject) -> None:
    stage.kubernetes.edit(
        ObjectRef.of(BUSINESS_TIERS, tier),
        lambda raw: raw["spec"]["members"][0].update(contract=contract),
    )


def test_a_key_that_the_contract_has_dropped_is_named_with_its_command_and_stays(
    stage: Stage, policy: ObjectRef
) -> None:
    notes = _accepted_without_a_direction(stage, policy)
    command = "--entity-type users --entity-name alice --delete-config consumer_byte_rate"
    assert [note for note in notes if command in note]
    assert not [note for note in notes if "producer_byte_rate" in note]  # that one is ours
    stage.kubernetes.delete(policy)
    run(stage, 3)
    assert stage.store.read([ALICE])[ALICE].values == {QuotaKey.CONSUMER_BYTE_RATE: "20000000"}
    assert stage.store.facts().claim is None


def test_an_entity_that_no_tier_names_is_named_with_its_command(
    stage: Stage, policy: ObjectRef
) -> None:
    silver = stage.tier("silver", user="bob")
    run(stage)
    remove(stage.store.tree, "/tidegate")
    stage.restart()
    run(stage, 2)
    stage.kubernetes.delete(silver)
    stage.kubernetes.annotate(policy, LOST_LEDGER, "accept@1")
    run(stage, 2)
    notes = left(stage)
    assert [note for note in notes if "--entity-name bob --delete-config producer" in note]
    assert not [note for note in notes if "--entity-name alice" in note]
    assert stage.produce(Entity("bob")) is not None


def test_no_loss_is_accepted_while_what_may_be_left_cannot_be_read(
    stage: Stage, policy: ObjectRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = stage.store.read_everything

    def away() -> None:
        raise AWAY

    monkeypatch.setattr(stage.store, "read_everything", away)
    assert _accepted_without_a_direction(stage, policy) == []
    assert stage.condition(policy) == LOST
    assert f"could not be carried out yet: {AWAY.message.rstrip('.')}" in stage.message(policy)
    monkeypatch.setattr(stage.store, "read_everything", read)
    run(stage, 2)
    assert stage.condition(policy) == ("True", "InSync")


def test_what_may_be_left_is_named_before_anything_is_done(
    stage: Stage, policy: ObjectRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that ends between the two could name them to nobody."""

    def away(*_: object, **__: object) -> None:
        raise AWAY

    monkeypatch.setattr(stage.store, "mend_ledger", away)
    notes = _accepted_without_a_direction(stage, policy)
    assert len([note for note in notes if "consumer_byte_rate" in note]) == 1  # in two passes
    assert stage.condition(policy) == LOST


# --- what may be left -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entity", "options"),
    [
        (ALICE, "--entity-type users --entity-name alice"),
        (Entity("it's"), "--entity-type users --entity-name 'it'\"'\"'s'"),
        (Entity(user=Default.DEFAULT), "--entity-type users --entity-default"),
        (
            Entity("alice", "app"),
            "--entity-type users --entity-name alice --entity-type clients --entity-name app",
        ),
    ],
)
def test_the_command_names_the_entity_as_kafkas_tool_does(entity: Entity, options: str) -> None:
    suspect = Suspect(entity, QuotaKey.PRODUCER_BYTE_RATE, "1", None, is_declared=True)
    assert suspect.command("b:1") == (
        f"kafka-configs.sh --bootstrap-server b:1 --alter {options} "
        "--delete-config producer_byte_rate"
    )


def test_many_suspects_are_a_bounded_number_of_events() -> None:
    many = [
        Suspect(Entity(f"user-{number}"), QuotaKey.PRODUCER_BYTE_RATE, "1", None, False)
        for number in range(500)
    ]
    messages = suspects_words(many, "kafka:9092")
    assert len(messages) == 21
    assert all(len(one.encode()) <= 1024 for one in messages)
    named = sum(one.count("--entity-name") for one in messages)
    assert messages[-1].startswith(f"{500 - named} more quotas")
    assert suspects_words([], "kafka:9092") == []


FETCH, PRODUCE = QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.PRODUCER_BYTE_RATE
BOTH = {
    PRODUCE: "1",
    FETCH: "2",
    QuotaKey.REQUEST_PERCENTAGE: "50",  # Tidegate never writes it
}


def entry(written: str | None, before: str | None = None) -> LedgerEntry:
    return LedgerEntry(before, written, None, 0.0, Reason.CONTRACT)


def record_of(entity: Entity, *keys: QuotaKey) -> LedgerRecord:
    return LedgerRecord(entity, POLICY.key, POLICY.uid, {key: entry(BOTH[key]) for key in keys})


@pytest.mark.parametrize("records", ["accepted", "in the ledger"])
@pytest.mark.parametrize("keys", [(), (PRODUCE,), (FETCH,), (PRODUCE, FETCH)])
def test_each_key_without_a_record_is_a_suspect_by_itself(
    records: str, keys: tuple[QuotaKey, ...]
) -> None:
    """A record in the ledger says all that is ours of its entity, unless the ledger is older."""
    has_record = bool(keys)
    record = record_of(ALICE, *keys) if has_record else None
    is_there = records == "in the ledger"
    everything = {ALICE: StoredQuota(ALICE, BOTH, ledger=record if is_there else None)}
    accepted = {} if record is None or is_there else {ALICE: record}
    rest = [key for key in (FETCH, PRODUCE) if key not in keys]
    for is_older in (False, True):
        found = suspects_of(
            everything, (), known=None, strimzi=None, is_older=is_older, accepted=accepted
        )
        is_trusted = is_there and has_record and not is_older
        assert [one.key for one in found] == ([] if is_trusted else rest)


def test_who_remembers_names_the_keys_that_it_set_and_that_are_as_it_set_them() -> None:
    known = {ALICE: {PRODUCE: entry("1", before="7"), FETCH: entry("9", before="2")}}
    everything = {one: StoredQuota(one, BOTH) for one in (ALICE, Entity("bob"))}
    found = suspects_of(everything, {ALICE}, known=known, strimzi=None)
    assert found == [Suspect(ALICE, PRODUCE, "1", "7", is_declared=True)]  # FETCH is as before
    assert found[0].command("b:1").endswith("--add-config producer_byte_rate=7")


def test_a_quota_that_cannot_be_read_is_named_without_a_command() -> None:
    everything = {ALICE: StoredQuota(ALICE, {}, problem="no JSON")}
    (message,) = suspects_words(suspects_of(everything, (), known=None, strimzi=None), "b:1")
    assert "user=alice (its quotas cannot be read: no JSON): inspect its node" in message


@pytest.mark.parametrize("declares", [False, True])
def test_what_a_kafkauser_declares_is_no_suspect(declares: bool) -> None:
    users = {"alice": KafkaUser("kafka/alice", "alice", declares_quotas=declares)}
    found = suspects_of(
        {ALICE: StoredQuota(ALICE, BOTH)}, (), known=None, strimzi=StrimziUsers("kafka/c", users)
    )
    assert bool(found) is not declares


def prepared(stage: Stage, strimzi: StrimziUsers) -> Mending | None:
    watch = LedgerWatch(POLICY.key, monotonic=lambda: 0.0)
    watch.begin(STATUS)
    return watch.prepare(
        Answer.ACCEPT,
        OURS,
        facts=replace(SOUND, claim=None),
        quotas={},
        members=(),
        policy=POLICY,
        strimzi=strimzi,
        store=stage.store,
        now_seconds=0.0,
    )


def test_no_loss_is_accepted_while_the_kafkausers_cannot_be_read(stage: Stage) -> None:
    stage.store.put(ALICE, {PRODUCE: "1"})
    mending = prepared(stage, StrimziUsers("kafka/c", {}))
    assert mending is not None
    assert [one.key for one in mending.left] == [PRODUCE]
    with pytest.raises(RetryLater, match="which quotas are Strimzi's is not known"):
        prepared(stage, StrimziUsers("kafka/c", {}, unread="no answer"))


def test_a_rebuilt_record_has_each_key_that_was_sent_although_another_was_changed_since(
    stage: Stage,
) -> None:
    watch = LedgerWatch(POLICY.key, monotonic=lambda: 0.0)
    watch.begin(STATUS)
    watch.after_pass(OURS, SOUND, {}, None)
    write = QuotaWrite(
        ALICE,
        {PRODUCE: "1", FETCH: "2"},
        StoredQuota(ALICE, {}),
        record_of(ALICE, PRODUCE, FETCH),
        WriteKind.FIRST,
        Reason.CONTRACT,
        "",
        charged=False,
    )
    watch.before_writes([write], OURS, SOUND, {}, note=lambda _: None)
    stage.store.put(ALICE, {PRODUCE: "1", FETCH: "9"})  # which somebody changed after that
    assert watch._as_sent(stage.store)[ALICE].entries.keys() == {PRODUCE}
