"""The store on the admin protocol fulfils the contract on a real broker, whose ledger survives lost
connections, killed writers and other writers.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from lab.kafka import BrokersLab, KafkaLab, QuotaChange
from lab.kraft import KraftLab
from lab.process import patience, started, wait_until
from tests.contract.quota_store_contract import (
    ALICE,
    BOB,
    FETCH,
    POLICY,
    PRODUCE,
    EveryStoreContract,
    first,
    give_back,
    record,
)
from tests.integration.connections import connection_of
from tests.integration.kafka.admin_world import AdminWorld, around, lose
from tidegate.errors import (
    Conflict,
    ForeignContent,
    LeaseLost,
    OutcomeUnknown,
    RetryLater,
    Unauthorized,
    Unreachable,
    UserActionRequired,
)
from tidegate.kafka.adminapi.client import rights_needed
from tidegate.kafka.adminapi.ledger import LATE_SECONDS
from tidegate.kafka.adminapi.quotas import alter
from tidegate.kafka.adminapi.store import AdminQuotaStore
from tidegate.kafka.ledger import record_to_bytes
from tidegate.kafka.quota_store import Claim
from tidegate.kafka.settings import SaslLogin, SaslMechanism
from tidegate_logic.model import Entity
from tidegate_logic.reasons import Reason

pytestmark = pytest.mark.integration

CAROL = Entity("carol")


@pytest.fixture
def world(kraft: KraftLab, unique_name: str) -> Iterator[AdminWorld]:
    yield from around(kraft, unique_name)


@pytest.fixture
def store(world: AdminWorld) -> Iterator[AdminQuotaStore]:
    opened = world.store()
    yield opened
    opened.close()


class TestAdminStore(EveryStoreContract):
    """All of the contract."""


class TestAdminStoreInZooKeeperMode(EveryStoreContract):
    """The same where brokers keep their quotas in a ZooKeeper that no client can reach."""

    @pytest.fixture
    def world(self, kafka: KafkaLab, unique_name: str) -> Iterator[AdminWorld]:
        yield from around(kafka, unique_name)

    def test_the_brokers_are_known_to_have_no_quorum(self, store: AdminQuotaStore) -> None:
        assert not store.is_kraft()


# --- a ledger that comes from elsewhere -----------------------------------------------------------


def nothing() -> None:
    return None


CLAIM = Claim("streaming/orders", "uid-1", "operator-1", 4, 1000.0)


def in_zookeeper() -> dict[Entity, bytes]:
    """Records as a ledger in ZooKeeper has them, one with what only a newer version knows."""
    newer = json.loads(record_to_bytes(record(BOB, {PRODUCE: "2048"})))
    newer |= {"written_by": "9.9", "colour": "blue"}
    return {
        ALICE: record_to_bytes(record(ALICE, {PRODUCE: "1024"})),
        BOB: json.dumps(newer).encode(),
    }


def once_visible(world: AdminWorld) -> AdminQuotaStore:
    """Another process, which reads a transaction a moment after it was committed."""
    other = world.another_store()
    wait_until(lambda: other.facts().claim == CLAIM, "the claim", timeout_seconds=10)
    return other


def test_a_ledger_from_elsewhere_is_taken_whole(world: AdminWorld, store: AdminQuotaStore) -> None:
    changes = world.changes()
    store.begin_ledger(CLAIM, in_zookeeper(), only_if=nothing)
    other = once_visible(world)
    assert other.ledger_entities() == {ALICE, BOB}
    assert other.read([ALICE])[ALICE].ledger == record(ALICE, {PRODUCE: "1024"})
    assert world.changes() == changes
    # what a newer version put there is still there after a write of this one
    assert other.read([BOB])[BOB].problem is None
    written = other.write([first(other.read([BOB])[BOB], {PRODUCE: "4096"})], world.cluster_id)
    assert written[0].applied
    assert b'"colour":"blue"' in (world.record(BOB) or b"")


@pytest.mark.parametrize("is_after", [False, True])
def test_a_lost_answer_leaves_the_ledger_whole(
    world: AdminWorld, store: AdminQuotaStore, is_after: bool
) -> None:
    (world.client.after if is_after else world.client.before)("EndTxn", lose)
    store.begin_ledger(CLAIM, in_zookeeper(), only_if=nothing)
    assert once_visible(world).ledger_entities() == {ALICE, BOB}


def test_what_is_found_at_the_last_moment_keeps_the_topic_empty(
    world: AdminWorld, store: AdminQuotaStore
) -> None:
    def still_there() -> None:
        raise Unreachable(Reason.BROKERS_UNREACHABLE, "not yet")

    with pytest.raises(Unreachable, match="not yet"):
        store.begin_ledger(CLAIM, in_zookeeper(), only_if=still_there)
    assert world.another_store().facts().claim is None
    assert world.another_store().ledger_entities() == frozenset()


def test_a_topic_with_a_ledger_gets_no_other_one(world: AdminWorld, store: AdminQuotaStore) -> None:
    store.claim(CLAIM)
    with pytest.raises(ForeignContent) as refused:
        store.begin_ledger(CLAIM, in_zookeeper(), only_if=nothing)
    assert refused.value.message == (
        f"The topic {world.topic} has a ledger already, so no other one is put there. `tidegate "
        "explain --bootstrap-servers` shows whose it is, and `tidegate restore "
        "--bootstrap-servers` restores the quotas that it keeps."
    )
    assert world.another_store().ledger_entities() == frozenset()


# --- crashes and lost answers ---------------------------------------------------------------------


class Killed(BaseException):
    """The process ends here."""


def kill() -> None:
    raise Killed


# what a first write sends, once the topic is there: the intent, the change and its outcome
REQUESTS = (
    *("InitProducerId", "AddPartitionsToTxn", "Produce", "EndTxn", "AlterClientQuotas"),
    *("AddPartitionsToTxn", "Produce", "EndTxn"),
)
MOMENTS = [(number, is_after) for number in range(len(REQUESTS)) for is_after in (False, True)]


def at(world: AdminWorld, moment: tuple[int, bool], action: Callable[[], None]) -> None:
    """Play the action at this request of the next write."""
    number, is_after = moment
    kind = REQUESTS[number]
    order = world.client.after if is_after else world.client.before
    for _ in range(REQUESTS[:number].count(kind)):
        order(kind, nothing)
    order(kind, action)


@pytest.mark.parametrize("moment", MOMENTS, ids=str)
def test_a_writer_that_is_killed_leaves_a_quota_with_its_record_or_neither(
    world: AdminWorld, store: AdminQuotaStore, moment: tuple[int, bool]
) -> None:
    store.claim(Claim(POLICY, "uid-1"))
    store._ledger.give_up()
    world.put(ALICE, {PRODUCE: "1500"})
    world.put(BOB, {PRODUCE: "7000", FETCH: "8000"})
    self_written = record(BOB, {PRODUCE: "7000"})
    seen = store.read([ALICE, BOB])
    at(world, moment, kill)
    ledger = record(ALICE, {PRODUCE: "2048"}, before="1500")
    with pytest.raises(Killed):
        store.write(
            [
                replace(first(seen[ALICE], {PRODUCE: "2048"}), ledger=ledger),
                first(seen[BOB], {PRODUCE: "7000"}),
            ],
            world.cluster_id,
        )
    is_made = moment >= (4, True)
    expected = {PRODUCE: "2048" if is_made else "1500"}
    wait_until(  # a broker may show a change some moments after the controller took it
        lambda: world.quotas(ALICE) == expected, "the quota", timeout_seconds=10
    )
    after = world.another_store()
    wait_until(  # a reader may see a transaction some moments after it was committed
        lambda: (after.read([BOB])[BOB].ledger is not None) == (moment >= (3, True)),
        "what was committed",
        timeout_seconds=10,
    )
    for _ in range(2):  # as a reader sees it, and after a writer has settled it
        now = after.read([ALICE, BOB])
        assert now[ALICE].ledger == (ledger if is_made else None)
        assert now[BOB].ledger in (None, self_written)
        assert (now[BOB].ledger is not None) == (moment >= (3, True))
        world.expect(BOB, {PRODUCE: "7000", FETCH: "8000"})
        carol = after.read([CAROL])[CAROL]
        after.write([first(carol, {PRODUCE: "3000"}, at=5.0)], world.cluster_id)
    world.expect(ALICE, expected)


@pytest.mark.parametrize("moment", MOMENTS, ids=str)
def test_a_lost_request_or_answer_changes_nothing_about_the_outcome(
    world: AdminWorld, store: AdminQuotaStore, moment: tuple[int, bool]
) -> None:
    store.claim(Claim(POLICY, "uid-1"))
    store._ledger.give_up()
    at(world, moment, lose)
    seen = store.read([ALICE, BOB])
    outcomes = store.write(
        [first(quota, {PRODUCE: "2048"}) for quota in seen.values()], world.cluster_id
    )
    assert [one.applied for one in outcomes] == [True, True]
    for entity in (ALICE, BOB):
        world.expect(entity, {PRODUCE: "2048"})
        assert store.read([entity])[entity].ledger == record(entity, {PRODUCE: "2048"})


def test_the_outcome_is_unknown_only_when_reading_back_fails_too(
    world: AdminWorld, store: AdminQuotaStore
) -> None:
    seen = store.read([ALICE])[ALICE]
    world.client.after("AlterClientQuotas", lambda: (world.client.close(), lose()))
    with pytest.raises(OutcomeUnknown):
        store.write([first(seen, {PRODUCE: "2048"})], world.cluster_id)
    assert world.another_store().read([ALICE])[ALICE].ledger == record(ALICE, {PRODUCE: "2048"})


def test_a_change_under_way_that_somebody_overwrote_keeps_the_value_from_before_us(
    world: AdminWorld, store: AdminQuotaStore
) -> None:
    world.put(ALICE, {PRODUCE: "1500"})
    seen = store.read([ALICE])[ALICE]
    ledger = record(ALICE, {PRODUCE: "2048"}, before="1500")
    world.client.after("AlterClientQuotas", kill)
    with pytest.raises(Killed):
        store.write([replace(first(seen, {PRODUCE: "2048"}), ledger=ledger)], world.cluster_id)
    world.put(ALICE, {PRODUCE: "9999"})
    assert world.another_store().read([ALICE])[ALICE].ledger == ledger


# --- two writers ----------------------------------------------------------------------------------


# the same moments for a writer that has written before, which has no InitProducerId to send; after
# the last one the batch is done
PAUSES = [(number, is_after) for number, is_after in MOMENTS[:-1] if number]
FIRST_HOLDER = Claim(POLICY, "uid-1", "operator-1")
NEXT_HOLDER = Claim(POLICY, "uid-1", "operator-2")
BEFORE = "1500"  # bob had this before Tidegate came, and it was restored


def restored_by(
    world: AdminWorld, other: AdminQuotaStore, claim: Claim, entities: tuple[Entity, ...]
) -> None:
    """What the next holder does about members who were removed: restore what it finds of them."""
    seen = other.read(entities)
    writes = [
        give_back(one, {PRODUCE: one.ledger.entries[PRODUCE].before})
        for one in seen.values()
        if one.ledger is not None
    ]
    assert all(one.applied for one in other.write(writes, world.cluster_id, claim))


def as_restored(world: AdminWorld) -> bool:
    return (world.quotas(ALICE), world.quotas(BOB)) == ({}, {PRODUCE: BEFORE})


@pytest.mark.parametrize("has_paused_lease", [False, True])
@pytest.mark.parametrize("moment", PAUSES, ids=str)
def test_a_writer_that_stands_still_while_another_takes_over_and_restores_changes_nothing(
    world: AdminWorld, moment: tuple[int, bool], has_paused_lease: bool
) -> None:
    """It stands still at this request of its batch, and goes on when the next holder is done.

    The paused one finds its Lease to be lost, or its clock stood still, too, and it believes to
    have it. What was on its way then arrives late, known as Tidegate's, and is restored.
    """
    store = world.store()
    held = [True]
    store.only_while(lambda: held[0])
    ours = store.claim(FIRST_HOLDER)
    world.put(BOB, {PRODUCE: BEFORE})
    seen = store.read([ALICE, BOB])
    other = world.another_store()
    claims: list[Claim] = []

    def take_over() -> None:
        claims.append(other.claim(NEXT_HOLDER))
        restored_by(world, other, claims[0], (ALICE, BOB))
        assert as_restored(world)
        held[0] = has_paused_lease
        world.client.sent.clear()

    at(world, moment, take_over)
    writes = [
        replace(
            first(seen[entity], {PRODUCE: "2048"}),
            ledger=record(entity, {PRODUCE: "2048"}, before=before),
        )
        for entity, before in ((ALICE, None), (BOB, BEFORE))
    ]
    try:
        reasons = {one.reason for one in store.write(writes, world.cluster_id, ours)}
    except RetryLater as refused:
        reasons = {refused.reason}
    assert reasons <= {Reason.CONFLICT, Reason.NOT_LEADER}
    # only this one is out of hand, and only where no clock tells that the Lease is lost
    late = has_paused_lease and moment == (REQUESTS.index("AlterClientQuotas"), False)
    assert ("AlterClientQuotas" in world.client.sent) == late
    assert "InitProducerId" not in world.client.sent  # the next holder is not fenced
    if late:
        wait_until(
            lambda: world.quotas(ALICE) == {PRODUCE: "2048"}, "the late change", timeout_seconds=10
        )
        for reader in (other, world.another_store()):
            for entity, before in ((ALICE, None), (BOB, BEFORE)):
                known = record(entity, {PRODUCE: "2048"}, before=before)
                assert reader.read([entity])[entity].ledger == known
        restored_by(world, other, claims[0], (ALICE, BOB))
    assert as_restored(world)
    for reader in (other, world.another_store()):
        assert all(one.ledger is None for one in reader.read([ALICE, BOB]).values())
    # nothing of the paused one is tried again either
    with pytest.raises(RetryLater):
        store.write(writes, world.cluster_id, ours)
    assert as_restored(world)


def test_a_batch_whose_lease_is_lost_on_the_way_sends_no_change(world: AdminWorld) -> None:
    """Asked right before the change: the intents are written, and the next writer settles them."""
    store = world.store()
    held = [True]
    store.only_while(lambda: held[0])
    ours = store.claim(FIRST_HOLDER)
    seen = store.read([ALICE])[ALICE]
    world.client.sent.clear()
    world.client.after("EndTxn", lambda: held.__setitem__(0, False))
    with pytest.raises(LeaseLost):
        store.write([first(seen, {PRODUCE: "2048"})], world.cluster_id, ours)
    assert "AlterClientQuotas" not in world.client.sent
    assert world.client.sent.count("EndTxn") == 1
    world.expect(ALICE, {})


def test_a_change_that_arrives_late_is_known_for_a_minute_and_holds_the_claim_until_then(
    world: AdminWorld,
) -> None:
    """Afterwards what has the same value is somebody else's."""
    now = [0.0]
    store, other = world.store(), world.another_store()
    ours = store.claim(FIRST_HOLDER)
    seen = store.read([ALICE])[ALICE]
    world.client.before("AlterClientQuotas", kill)
    with pytest.raises(Killed):
        store.write([first(seen, {PRODUCE: "2048"})], world.cluster_id, ours)
    other._ledger._monotonic = lambda: now[0]
    claim = other.claim(NEXT_HOLDER)
    assert (claim.epoch, other.read([ALICE])[ALICE].ledger) == (2, None)
    with pytest.raises(Conflict, match="may still arrive, for 60 s"):
        other.release_claim(POLICY)

    world.put(ALICE, {PRODUCE: "2048"})  # late, no matter who sends it
    assert other.read([ALICE])[ALICE].ledger == record(ALICE, {PRODUCE: "2048"})
    restored_by(world, other, claim, (ALICE,))
    with pytest.raises(Conflict):
        other.release_claim(POLICY)

    now[0] = LATE_SECONDS
    other.facts()
    assert other.ledger_entities() == frozenset()
    world.put(ALICE, {PRODUCE: "2048"})
    for reader in (other, world.another_store()):
        assert reader.read([ALICE])[ALICE].ledger is None
    other.release_claim(POLICY)
    assert world.another_store().facts().claim is None


def test_a_change_that_the_next_holder_made_itself_is_its_own_at_once(world: AdminWorld) -> None:
    store, other = world.store(), world.another_store()
    ours = store.claim(FIRST_HOLDER)
    seen = store.read([ALICE])[ALICE]
    world.client.before("AlterClientQuotas", kill)
    with pytest.raises(Killed):
        store.write([first(seen, {PRODUCE: "2048"})], world.cluster_id, ours)
    claim = other.claim(NEXT_HOLDER)
    for value, at_seconds in (("2048", 5.0), ("4096", 6.0)):
        write = first(other.read([ALICE])[ALICE], {PRODUCE: value}, at=at_seconds)
        assert other.write([write], world.cluster_id, claim)[0].applied
        expected = record(ALICE, {PRODUCE: value}, at=at_seconds)
        for reader in (other, world.another_store()):
            assert reader.read([ALICE])[ALICE].ledger == expected


def test_what_somebody_changes_while_the_intent_is_written_stays_as_it_is(
    world: AdminWorld, store: AdminQuotaStore
) -> None:
    seen = store.read([ALICE, BOB])
    world.before_next_commit(lambda: world.put(ALICE, {PRODUCE: "9999"}))
    outcomes = store.write(
        [first(quota, {PRODUCE: "2048"}) for quota in seen.values()], world.cluster_id
    )
    assert [one.reason for one in outcomes] == [Reason.CONFLICT, None]
    world.expect(ALICE, {PRODUCE: "9999"})
    assert store.read([ALICE])[ALICE].ledger is None


def test_a_key_that_somebody_sets_at_the_same_moment_is_kept(
    world: AdminWorld, store: AdminQuotaStore, kraft: KraftLab, unique_name: str
) -> None:
    user = Entity(unique_name)
    kraft.create_scram_user(unique_name, "right")
    seen = store.read([user])[user]
    world.client.before("AlterClientQuotas", lambda: world.put(user, {FETCH: "5555"}))
    (outcome,) = store.write([first(seen, {PRODUCE: "2048"})], world.cluster_id)
    assert outcome.applied
    world.expect(user, {PRODUCE: "2048", FETCH: "5555"})
    assert kraft.can_log_in(unique_name, "right")


def test_each_broker_is_asked_whether_it_shows_a_quota(
    world: AdminWorld, store: AdminQuotaStore
) -> None:
    store.write([first(store.read([ALICE])[ALICE], {PRODUCE: "2048"})], world.cluster_id)
    wanted = {ALICE: {PRODUCE: "2048"}, BOB: {PRODUCE: None}}
    wait_until(lambda: not store.brokers_without(wanted), "the quota", timeout_seconds=10)
    for entity, text in ((ALICE, "4096"), (ALICE, None), (BOB, "2048")):
        assert store.brokers_without({**wanted, entity: {PRODUCE: text}}) == {"1": (entity,)}
    assert store.brokers_without({}) == {}


# --- what brokers refuse --------------------------------------------------------------------------


def test_a_value_that_brokers_refuse_stops_only_its_own_write(
    world: AdminWorld, store: AdminQuotaStore
) -> None:
    seen = store.read([ALICE, BOB, CAROL])
    before = record(ALICE, {PRODUCE: "2048"}, before="0")  # as ZooKeeper may have had it
    store.write([replace(first(seen[ALICE], {PRODUCE: "2048"}), ledger=before)], world.cluster_id)
    seen = store.read([ALICE, BOB, CAROL])
    outcomes = store.write(
        [
            first(seen[BOB], {PRODUCE: "2048"}),
            give_back(seen[ALICE], {PRODUCE: "0"}),
            first(seen[CAROL], {PRODUCE: "2048"}),
        ],
        world.cluster_id,
    )
    assert [one.applied for one in outcomes] == [True, False, True]
    assert outcomes[1].reason is Reason.FOREIGN_CONTENT
    assert store.read([ALICE])[ALICE].ledger == before
    world.expect(ALICE, {PRODUCE: "2048"})


def test_every_entry_of_a_refused_batch_is_looked_at(world: AdminWorld) -> None:
    changes = {
        ALICE: {PRODUCE: "2048.5"},
        BOB: {PRODUCE: "2048"},
        CAROL: {PRODUCE: "4096"},
    }
    refused = alter(world.others, changes, world.topic)
    assert refused[ALICE]
    assert (refused[BOB], refused[CAROL]) == (None, None)
    world.expect(BOB, {PRODUCE: "2048"})


# --- rights, and topics that cannot hold a ledger -------------------------------------------------


def grant(kraft: KraftLab, user: str, topic: str) -> None:
    """Give the user what `rights_needed` says."""
    operations = AclOperation
    wanted = [
        *(
            (ResourceType.BROKER, "kafka-cluster", one)
            for one in ("ALTER_CONFIGS", "DESCRIBE_CONFIGS")
        ),
        *(
            (ResourceType.TOPIC, topic, one)
            for one in ("CREATE", "DESCRIBE", "DESCRIBE_CONFIGS", "READ", "WRITE")
        ),
        *((ResourceType.TRANSACTIONAL_ID, topic, one) for one in ("DESCRIBE", "WRITE")),
    ]
    bindings = [
        AclBinding(
            kind,
            name,
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            operations[operation],
            AclPermissionType.ALLOW,
        )
        for kind, name, operation in wanted
    ]
    client = AdminClient({"bootstrap.servers": kraft.bootstrap_servers})
    for done in client.create_acls(bindings).values():
        done.result(patience(20))


def test_a_user_without_rights_is_named_them_and_with_exactly_those_it_works(
    kraft: KraftLab, world: AdminWorld, unique_name: str
) -> None:
    kraft.create_scram_user(unique_name, "right")
    wait_until(partial(kraft.can_log_in, unique_name, "right"), "the new login", timeout_seconds=10)
    login = SaslLogin(SaslMechanism.SCRAM_SHA_256, unique_name, "right")
    settings = connection_of(kraft.sasl_bootstrap_servers, login)
    store = AdminQuotaStore(settings, world.topic)
    with pytest.raises(Unauthorized) as refused:
        store.claim(Claim(POLICY, "uid-1"))
    assert rights_needed(world.topic) in refused.value.message
    with pytest.raises(Unauthorized):
        store.read([ALICE])
    grant(kraft, unique_name, world.topic)

    def has_claimed() -> bool:  # a new ACL takes a moment
        try:
            return store.claim(Claim(POLICY, "uid-1")).epoch == 1
        except Unauthorized:
            return False

    wait_until(has_claimed, "the rights to be granted", timeout_seconds=10)
    (outcome,) = store.write(
        [first(store.read([ALICE])[ALICE], {PRODUCE: "2048"})], world.cluster_id
    )
    assert outcome.applied
    store.close()


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        ({"num_partitions": 1, "config": {"cleanup.policy": "delete"}}, "cleanup.policy=compact"),
        ({"num_partitions": 2, "config": {"cleanup.policy": "compact"}}, "2 partitions"),
    ],
)
def test_a_topic_that_cannot_hold_a_ledger_is_refused(
    kraft: KraftLab, world: AdminWorld, store: AdminQuotaStore, topic: dict, words: str
) -> None:
    client = AdminClient({"bootstrap.servers": kraft.bootstrap_servers})
    client.create_topics([NewTopic(world.topic, replication_factor=1, **topic)])[
        world.topic
    ].result(patience(20))
    wait_until(lambda: world.topic in store.topic_names(), "the topic", timeout_seconds=10)
    with pytest.raises(UserActionRequired, match=words):
        store.claim(Claim(POLICY, "uid-1"))


# --- the ledger's topic ---------------------------------------------------------------------------


def test_a_ledger_of_a_thousand_is_read_anew_by_another_process(
    world: AdminWorld, store: AdminQuotaStore
) -> None:
    entities = [Entity(f"user-{number}") for number in range(1000)]
    seen = store.read(entities)
    outcomes = store.write(
        [first(seen[one], {PRODUCE: "2048"}) for one in entities], world.cluster_id
    )
    assert all(one.applied for one in outcomes)
    assert world.client.sent.count("AlterClientQuotas") == 1
    other = world.another_store()
    everything = other.read_everything()
    assert set(everything) == set(entities) == other.ledger_entities()
    outcomes = other.write(
        [give_back(quota, {PRODUCE: None}) for quota in everything.values()], world.cluster_id
    )
    assert all(one.applied for one in outcomes)
    assert (store.read_everything(), store.ledger_entities()) == ({}, frozenset())


def test_a_topic_that_was_made_anew_is_an_empty_ledger(
    kraft: KraftLab, world: AdminWorld, store: AdminQuotaStore
) -> None:
    store.claim(Claim(POLICY, "uid-1"))
    client = AdminClient({"bootstrap.servers": kraft.bootstrap_servers})
    client.delete_topics([world.topic])[world.topic].result(patience(20))
    wait_until(lambda: store.facts().claim is None, "the claim to be gone", timeout_seconds=10)
    assert store.claim(Claim(POLICY, "uid-2")).epoch == 1


def test_a_key_of_no_entity_is_reported_and_keeps_the_claim(
    world: AdminWorld, store: AdminQuotaStore
) -> None:
    store.claim(Claim(POLICY, "uid-1"))
    world.append(b"users/a b", b"{}")
    assert store.unreadable_nodes() == (f"{world.topic}: b'users/a b'",)
    store.release_claim(POLICY)
    assert store.facts().owner_policy_key == POLICY
    world.append(b"users/a b", None)
    store.release_claim(POLICY)
    assert store.facts().claim is None


def test_topics_are_named(kraft: KraftLab, store: AdminQuotaStore, unique_name: str) -> None:
    kraft.create_topic(unique_name, [[1]])
    assert unique_name in store.topic_names()


def test_brokers_apply_what_is_written(
    kraft: BrokersLab, world: AdminWorld, store: AdminQuotaStore, unique_name: str
) -> None:
    user = Entity(unique_name)
    store.write([first(store.read([user])[user], {PRODUCE: "2048"})], world.cluster_id)
    kraft.wait_for_quota_applied(QuotaChange("PRODUCE", unique_name, None, 2048.0))


@pytest.mark.kraft
def test_brokers_that_come_and_go_wake_the_watcher_and_the_ledger_follows_its_leader() -> None:
    with started(lambda: KraftLab(brokers=3)) as kafka:
        settings = connection_of(kafka.bootstrap_servers)
        store = AdminQuotaStore(settings)
        woken = threading.Event()
        store.claim(Claim(POLICY, "uid-1"))
        before = store.read_everything()
        assert store.has_controller()
        assert store.read_everything() == before
        store.watch(woken.set)
        seen = store.read([ALICE])[ALICE]
        store.write([first(seen, {PRODUCE: "2048"})], kafka.cluster_id)
        leader = kafka.leaders("__tidegate_ledger")[0]
        kafka.broker(leader).kill()
        assert woken.wait(patience(30))
        seen = store.read([ALICE])[ALICE]
        assert seen.ledger == record(ALICE, {PRODUCE: "2048"})
        (outcome,) = store.write([first(seen, {PRODUCE: "4096"}, at=2.0)], kafka.cluster_id)
        assert outcome.applied
        assert store.read([ALICE])[ALICE].values == {PRODUCE: "4096"}
        assert store.has_controller()
        # one of three controllers is no quorum; where it was the active one, it resigns only when
        # the others have not fetched from it for controller.quorum.fetch.timeout.ms
        kafka.broker(leader % 3 + 1).kill()
        wait_until(lambda: not store.has_controller(), "no controller", timeout_seconds=30)
        store.close()


def test_the_controllers_of_the_quorum_are_known(kraft: KraftLab, store: AdminQuotaStore) -> None:
    assert store.controllers() == {node.broker_id for node in kraft.controllers}
