"""Beside Strimzi's User Operator: what a KafkaUser declares is never touched, and whose quotas it
removes is said with what to set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.doubles.user_operator import EVERY_SECONDS, UserOperator, kafka_user
from tests.unit.controller_logic.worlds import (
    ALICE,
    BOB,
    DEFAULT_USER,
    FETCH,
    MB,
    PRODUCE,
    World,
    member,
    per_broker,
    policy,
    report_of,
    stored,
    tier,
)
from tidegate.observe.strimzi import StrimziPlace, users_of
from tidegate_logic.contracts.desired import MemberState
from tidegate_logic.decide import decide
from tidegate_logic.decision import Decision
from tidegate_logic.model import (
    DeletionPolicy,
    Entity,
    Mode,
    Override,
    QuotaKey,
    StoredQuota,
    StrimziUsers,
)
from tidegate_logic.reasons import Reason

PLACE = StrimziPlace("kafka", "orders")
POLL_SECONDS = 15.0
RATES = {"consumerByteRate": 3 * MB, "producerByteRate": 2 * MB}
CN_ALICE = Entity("CN=alice")
PAIR = Entity("alice", "backfill")


class Beside:
    """A world, the KafkaUsers in it, and the User Operator's stand-in on the same quotas."""

    def __init__(self, *entities: Entity, ignored: str | None = None, **changes: object) -> None:
        members = [member(entity, per_broker(10 * MB)) for entity in entities or (ALICE, BOB)]
        self.world = World((tier(*members),), policy=policy(**changes))
        self.kafka_users: list[dict[str, Any]] = []
        self.theirs = UserOperator(
            self._quotas, self._write, lambda: self.kafka_users, ignored_users=ignored
        )

    def _quotas(self) -> dict[Entity, Mapping[QuotaKey, str]]:
        return {entity: one.values for entity, one in (self.world.quotas or {}).items()}

    def _write(self, entity: Entity, values: Mapping[QuotaKey, str | None]) -> None:
        for key, text in values.items():
            self.world.someone_sets(entity, text, key)

    def declare(self, *kafka_users: dict[str, Any]) -> None:
        """These are the KafkaUsers now; both operators know it at once."""
        self.kafka_users = list(kafka_users)
        self.world.strimzi = users_of(PLACE, kafka_users)

    def play(self, seconds: float) -> list[Decision]:
        """Passes of Tidegate every 15 s and reconciliations of theirs every 120 s."""
        decisions, elapsed = [], 0.0
        while elapsed < seconds:
            elapsed += POLL_SECONDS
            decisions.append(self.world.after(POLL_SECONDS))
            if elapsed % EVERY_SECONDS == 0:
                self.theirs.reconcile_all()
        return decisions


def test_a_user_whose_kafka_user_declares_quotas_is_never_written() -> None:
    beside = Beside()
    beside.declare(kafka_user("alice", quotas=RATES), kafka_user("carol"))
    beside.theirs.ignored_users = "bob"
    beside.theirs.reconcile_all()
    decisions = beside.play(3600)
    assert ALICE not in {write.entity for one in decisions for write in one.writes}
    assert beside.theirs.written == [ALICE], "the User Operator set it once, and never again"
    assert (beside.world.text(ALICE), beside.world.text(ALICE, PRODUCE)) == ("3000000", "2000000")
    assert beside.world.text(BOB) == "10000000"
    report = report_of(decisions[-1], ALICE)
    assert (report.state, report.reason) == (MemberState.OWNED_BY_STRIMZI, Reason.OWNED_BY_STRIMZI)
    assert "KafkaUser kafka/alice declares the quotas of user=alice" in report.message
    assert not report.counts
    assert [note.entity for note in decisions[-1].notes] == [ALICE]


@pytest.mark.parametrize(
    ("login", "quotas", "entity", "owned"),
    [
        ("scram-sha-512", RATES, ALICE, True),
        (None, RATES, ALICE, True),
        ("tls", RATES, CN_ALICE, True),
        ("tls-external", RATES, CN_ALICE, True),
        ("tls", RATES, ALICE, False),
        ("scram-sha-512", RATES, CN_ALICE, False),
        # an empty declaration has the User Operator remove everything
        ("scram-sha-512", {}, ALICE, True),
        ("scram-sha-512", None, ALICE, False),
        # it writes no pairs, and no user that only contains the name
        ("scram-sha-512", RATES, PAIR, False),
        ("tls", RATES, Entity("CN=alice,O=shop"), False),
    ],
)
def test_which_entity_a_kafka_user_declares(
    login: str | None, quotas: dict[str, int] | None, entity: Entity, *, owned: bool
) -> None:
    beside = Beside(entity)
    beside.declare(kafka_user("alice", login=login, quotas=quotas))
    decision = beside.world.run()
    assert (report_of(decision, entity).state is MemberState.OWNED_BY_STRIMZI) is owned
    assert bool(decision.writes) is not owned


def test_what_tidegate_wrote_before_is_forgotten_and_not_given_back() -> None:
    beside = Beside()
    beside.world.quotas = {ALICE: stored(ALICE, {FETCH: "7000000"})}
    beside.world.run()
    beside.declare(kafka_user("alice", quotas=RATES))
    before = beside.world.text(ALICE)
    decision = beside.world.after(60)
    (write,) = [write for write in decision.writes if write.entity == ALICE]
    assert (dict(write.values), write.ledger, write.reason) == ({}, None, Reason.OWNED_BY_STRIMZI)
    assert "no longer recorded as Tidegate's, because KafkaUser kafka/alice" in write.message
    assert not write.charged
    assert beside.world.text(ALICE) == before
    assert not beside.world.after(60).writes


def test_the_removal_guard_does_not_count_what_strimzi_took_over() -> None:
    users = [Entity(f"user-{number}") for number in range(10)]
    beside = Beside(*users)
    beside.world.run()
    beside.declare(*(kafka_user(str(one.user), quotas=RATES) for one in users))
    decision = beside.world.after(60)
    assert {write.reason for write in decision.writes} == {Reason.OWNED_BY_STRIMZI}
    assert Reason.REMOVAL_HELD not in {note.reason for note in decision.notes}
    assert not beside.world.after(60).writes


@pytest.mark.parametrize("deletion", list(DeletionPolicy))
def test_a_policy_that_is_deleted_leaves_what_strimzi_owns(deletion: DeletionPolicy) -> None:
    beside = Beside()
    beside.world.run()
    beside.declare(kafka_user("alice", quotas=RATES))
    beside.theirs.reconcile_all()
    beside.world.policy = replace(beside.world.policy, deleting=True, deletion_policy=deletion)
    beside.world.run()
    decision = beside.world.after(60)
    assert decision.finished_deleting
    assert (beside.world.text(ALICE), beside.world.text(ALICE, PRODUCE)) == ("3000000", "2000000")


def test_in_mode_observe_nothing_of_it_is_written_not_even_the_record() -> None:
    beside = Beside()
    beside.world.run()
    beside.declare(kafka_user("alice", quotas=RATES))
    beside.world.policy = replace(beside.world.policy, mode=Mode.OBSERVE)
    decision = beside.world.after(60)
    assert not decision.writes
    assert {write.reason for write in decision.would_write} == {Reason.OWNED_BY_STRIMZI}


def test_a_kafka_user_that_declares_none_any_more_gives_the_user_to_tidegate() -> None:
    beside = Beside(ALICE)
    beside.declare(kafka_user("alice", quotas=RATES))
    beside.theirs.reconcile_all()
    beside.world.run()
    beside.declare(kafka_user("alice", pause_reconciliation="true"))
    decisions = beside.play(600)
    assert beside.world.text(ALICE) == "10000000"
    assert not any(one.contended for one in decisions), "the KafkaUser is paused"
    assert report_of(decisions[-1], ALICE).counts


def contended_with(beside: Beside) -> Decision:
    """The first decision that leaves something alone."""
    return next(one for one in beside.play(1200) if one.contended)


def test_what_to_set_is_said_where_a_kafka_user_declares_no_quotas() -> None:
    beside = Beside(ALICE, ignored="alice")
    beside.declare(kafka_user("alice"))
    decision = contended_with(beside)
    message = report_of(decision, ALICE).message
    assert report_of(decision, ALICE).state is MemberState.CONTENDED
    for part in (
        "KafkaUser kafka/alice declares no quotas",
        "STRIMZI_IGNORED_USERS_PATTERN is only for users without a KafkaUser",
        "Declare the quota in the KafkaUser",
        "strimzi.io/pause-reconciliation=true",
        "When that is done: tidegate resync streaming/main --entity user=alice",
    ):
        assert part in message
    assert "Kafka does not record who" not in message


def test_what_to_set_is_said_where_a_user_has_no_kafka_user() -> None:
    beside = Beside(ALICE)
    beside.declare(kafka_user("carol"))
    decision = contended_with(beside)
    message = report_of(decision, ALICE).message
    assert "user=alice has no KafkaUser in Strimzi's cluster kafka/orders" in message
    assert (
        "Set STRIMZI_IGNORED_USERS_PATTERN in its environment to a pattern that fits the whole "
        "name alice"
    ) in message
    beside.theirs.ignored_users = "ali.*"
    assert not beside.play(1200)[-1].contended
    assert beside.world.text(ALICE) == "10000000"


def test_for_a_member_with_the_name_of_the_other_login_the_right_one_is_said() -> None:
    beside = Beside(ALICE)
    beside.declare(kafka_user("alice", login="tls"))
    message = report_of(contended_with(beside), ALICE).message
    assert "KafkaUser kafka/alice is CN=alice in Kafka" in message
    assert "Name CN=alice in the member" in message


def test_without_the_right_to_read_kafka_users_it_says_that_it_may_be_strimzi() -> None:
    beside = Beside(ALICE)
    beside.world.strimzi = StrimziUsers("kafka/orders")
    message = report_of(contended_with(beside), ALICE).message
    assert "This is Strimzi's cluster kafka/orders" in message
    assert "strimzi.enabled of the chart" in message


@pytest.mark.parametrize("theirs", ["5000000", None])
def test_a_value_that_somebody_sets_is_not_called_the_user_operators(theirs: str | None) -> None:
    beside = Beside(ALICE)
    beside.declare(kafka_user("alice"))
    beside.world.run()
    for _ in range(3):
        beside.world.someone_sets(ALICE, theirs)
        decision = beside.world.after(POLL_SECONDS)
    (one,) = decision.contended.values()
    assert bool(one.cause) is (theirs is None)


@pytest.mark.parametrize("theirs", ["2000000", None])
def test_the_default_user_is_the_cluster_operators(theirs: str | None) -> None:
    beside = Beside(ALICE, defaults={DEFAULT_USER: {FETCH: 5 * MB}})
    beside.declare(kafka_user("alice", quotas=RATES))
    beside.world.run()
    for _ in range(3):
        beside.world.someone_sets(DEFAULT_USER, theirs)
        decision = beside.world.after(POLL_SECONDS)
    (one,) = decision.contended.values()
    assert (
        "Cluster Operator gives Kafka's default user what spec.kafka.quotas of Kafka" in one.cause
    )


def test_pairs_are_left_in_peace_by_the_user_operator() -> None:
    beside = Beside(PAIR)
    beside.declare(kafka_user("alice"))
    decisions = beside.play(1200)
    assert not any(one.contended for one in decisions)
    assert beside.world.text(PAIR) == "10000000"


def test_an_override_for_such_a_user_says_why_it_changes_nothing() -> None:
    beside = Beside()
    beside.declare(kafka_user("alice", quotas=RATES))
    end_seconds = beside.world.now_seconds + 3600
    override = Override("n/more", end_seconds, "why", entity=ALICE, rates=per_broker(9 * MB))
    observation = replace(beside.world.observation(), overrides=(override,))
    decision, _ = decide(observation, beside.world.memory)
    (refused,) = decision.overridden.not_applicable["n/more"]
    assert refused.reason is Reason.OWNED_BY_STRIMZI


NAMES = ("alice", "bob", "carol")


@st.composite
def turns(draw: st.DrawFn) -> list[dict[str, Any]]:
    """KafkaUsers as somebody leaves them, now and then."""
    found = []
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True)):
        quotas = draw(st.sampled_from((None, {}, RATES)))
        login = draw(st.sampled_from(("scram-sha-512", "tls", None)))
        found.append(kafka_user(name, login=login, quotas=quotas))
    return found


@settings(max_examples=settings().max_examples * 3 // 5, deadline=None)
@given(st.lists(turns(), min_size=1, max_size=6))
def test_whatever_kafka_users_declare_tidegate_never_changes_a_quota_of_theirs(
    edits: list[list[dict[str, Any]]],
) -> None:
    entities = [Entity(text) for name in NAMES for text in (name, f"CN={name}")]
    beside = Beside(*entities)
    for kafka_users in edits:
        beside.declare(*kafka_users)
        owned = {
            Entity(one.kafka_name)
            for one in (beside.world.strimzi.users or {}).values()  # type: ignore[union-attr]
            if one.declares_quotas
        }
        beside.theirs.reconcile_all()
        for decision in beside.play(150):
            for write in decision.writes:
                assert write.entity not in owned or not write.values
            assert {
                report.entity
                for report in decision.members
                if report.state is MemberState.OWNED_BY_STRIMZI
            } == owned
        after: dict[Entity, StoredQuota] = beside.world.quotas or {}
        assert all(after[entity].ledger is None for entity in owned if entity in after)
