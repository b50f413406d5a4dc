"""The operator beside Strimzi, in memory: which cluster it is, what is known of its KafkaUsers, and
that what is not known moves no quota.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.process import patience, wait_until
from tests.doubles.user_operator import UserOperator, kafka_user
from tests.unit.control.stage import ALICE, Stage
from tidegate.errors import NotFound, TidegateError, Unauthorized, Unreachable
from tidegate.kube.api import Listing, ObjectRef, ResourceKind
from tidegate.observe.strimzi import (
    KAFKA_USERS,
    KAFKA_USERS_AGE_SECONDS,
    REFUSED_AGE_SECONDS,
    KnownKafkaUsers,
    StrimziPlace,
    kafka_users_now,
    read_kafka_user,
    strimzi_place,
)
from tidegate.resources.kinds import parse_policy
from tidegate.resources.policy import KafkaCluster
from tidegate_logic.model import Entity, KafkaUser, QuotaKey, StrimziUsers
from tidegate_logic.reasons import Reason

BOB = Entity("bob")
AWAY = Unreachable(Reason.KUBERNETES_UNREACHABLE, "Kubernetes did not answer.")
REFUSED = Unauthorized("Kubernetes refused to list kafkausers.kafka.strimzi.io.")
NOT_SERVED = NotFound(Reason.LIST_INCOMPLETE, "Kubernetes does not serve kafkausers.")
QUOTAS = {"producerByteRate": 3_000_000}
PLACE = StrimziPlace("kafka", "orders")
KEEP_SECONDS = 900.0
NEWEST = KAFKA_USERS[0]


# --- which cluster it is --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ("orders-kafka-bootstrap:9092", ("streaming", "orders")),
        ("orders-kafka-bootstrap.kafka:9092", ("kafka", "orders")),
        ("orders-kafka-bootstrap.kafka.svc:9093", ("kafka", "orders")),
        ("orders-kafka-bootstrap.kafka.svc.cluster.local:9093", ("kafka", "orders")),
        ("my-kafka-kafka-bootstrap.kafka.svc:9093", ("kafka", "my-kafka")),
        ("orders-pool-0.orders-kafka-brokers.kafka.svc:9092", ("kafka", "orders")),
        ("10.0.0.1:9092,orders-kafka-bootstrap.kafka.svc:9092", ("kafka", "orders")),
        ("orders-kafka-external-bootstrap.kafka.svc:9094", None),
        ("kafka-bootstrap.kafka.svc:9092", None),
        ("kafka-1.example:9092", None),
        ("[::1]:9092", None),
    ],
)
def test_a_bootstrap_host_has_the_cluster_and_its_namespace(
    servers: str, expected: tuple[str, str] | None
) -> None:
    kafka = KafkaCluster.model_validate({"bootstrapServers": servers})
    assert strimzi_place(kafka, "streaming") == (expected and StrimziPlace(*expected))


def test_what_the_policy_names_wins_over_its_bootstrap_host() -> None:
    kafka = KafkaCluster.model_validate(
        {
            "bootstrapServers": "orders-kafka-bootstrap.kafka.svc:9092",
            "strimzi": {"cluster": "other"},
        }
    )
    assert strimzi_place(kafka, "streaming") == StrimziPlace("streaming", "other")
    named = {"strimzi": {"cluster": "other", "namespace": "users"}}
    kafka = KafkaCluster.model_validate({"bootstrapServers": "kafka.example:9094", **named})
    assert strimzi_place(kafka, "streaming") == StrimziPlace("users", "other")


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (kafka_user("a"), KafkaUser("kafka/a", "a")),
        (kafka_user("a", login=None, quotas={}), KafkaUser("kafka/a", "a", declares_quotas=True)),
        (
            kafka_user("a", login="tls", quotas=QUOTAS),
            KafkaUser("kafka/a", "CN=a", declares_quotas=True),
        ),
        (kafka_user("a", login="tls-external"), KafkaUser("kafka/a", "CN=a")),
        (
            kafka_user("a", pause_reconciliation="True"),
            KafkaUser("kafka/a", "a", is_paused=True),
        ),
        (kafka_user("a", pause_reconciliation="no"), KafkaUser("kafka/a", "a")),
        ({"metadata": {"name": "a", "namespace": "kafka"}}, KafkaUser("kafka/a", "a")),
    ],
)
def test_a_kafka_user_is_read_as_the_user_operator_reads_it(
    raw: Mapping[str, Any], expected: KafkaUser
) -> None:
    assert read_kafka_user(raw) == expected


def test_the_example_of_a_policy_is_of_the_cluster_that_its_comment_says() -> None:
    example = Path(__file__).parents[3] / "examples" / "strimzi" / "policy.yaml"
    policy = yaml.safe_load(example.read_text(encoding="utf-8"))
    spec = parse_policy(policy, strict=True).spec
    assert strimzi_place(spec.kafka, policy["metadata"]["namespace"]) == PLACE


# --- what is known of the KafkaUsers --------------------------------------------------------------


class Lists:
    """Answers lists of KafkaUsers, by version, with what a test says, and counts the calls."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.calls: list[str] = []
        self.users: list[dict[str, Any]] = []
        self.errors: dict[str, TidegateError] = {}
        self.takes_seconds = 0.0

    def list_all(self, kind: ResourceKind, namespaces: tuple[str, ...]) -> Listing:
        assert namespaces == ("kafka",)
        self.calls.append(kind.version)
        self.now += self.takes_seconds
        if kind.version in self.errors:
            raise self.errors[kind.version]
        return Listing(tuple(self.users), "1")

    def fail(self, error: TidegateError | None) -> None:
        self.errors = {} if error is None else {kind.version: error for kind in KAFKA_USERS}

    def known(self, *, beside: bool = False) -> KnownKafkaUsers:
        return KnownKafkaUsers(
            self,  # type: ignore[arg-type]  # all that is asked
            lambda: self.now,
            keep_seconds=KEEP_SECONDS,
            beside=beside,
        )


@pytest.fixture
def lists() -> Lists:
    return Lists()


def names(known: StrimziUsers | None) -> set[str]:
    assert known is not None
    assert not known.unread
    return set(known.users or {})


def test_kafka_users_of_the_cluster_are_read_again_after_12_s(lists: Lists) -> None:
    lists.users = [kafka_user("alice"), kafka_user("carol", cluster="other")]
    known = lists.known()
    assert names(known(PLACE)) == {"alice"}
    lists.users.append(kafka_user("bob"))
    lists.now += KAFKA_USERS_AGE_SECONDS - 1
    assert names(known(PLACE)) == {"alice"}
    lists.now += 1
    assert names(known(PLACE)) == {"alice", "bob"}
    assert known(None) is None
    assert len(lists.calls) == 2


def test_the_version_before_0_49_is_read_where_the_newest_is_not_served(lists: Lists) -> None:
    lists.users = [kafka_user("alice")]
    lists.errors = {"v1": NOT_SERVED}
    assert names(lists.known()(PLACE)) == {"alice"}
    assert lists.calls == ["v1", "v1beta2"]


def test_a_long_list_is_read_less_often(lists: Lists) -> None:
    lists.takes_seconds = 4.0
    known = lists.known()
    known(PLACE)
    lists.now += 59
    known(PLACE)
    assert len(lists.calls) == 1
    lists.now += 1
    known(PLACE)
    assert len(lists.calls) == 2


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (NOT_SERVED, None),
        (REFUSED, StrimziUsers("kafka/orders")),
        (AWAY, StrimziUsers("kafka/orders", unread=AWAY.message)),
    ],
)
def test_without_kinds_or_right_nothing_waits_and_without_an_answer_everything_does(
    lists: Lists, error: TidegateError, expected: StrimziUsers | None
) -> None:
    lists.fail(error)
    known = lists.known()
    assert known(PLACE) == expected
    calls = len(lists.calls)
    lists.now += KAFKA_USERS_AGE_SECONDS - 1
    assert known(PLACE) == expected
    assert len(lists.calls) == calls
    lists.fail(None)
    lists.now += 1 if error is AWAY else REFUSED_AGE_SECONDS
    assert names(known(PLACE)) == set()
    lists.fail(error)
    assert kafka_users_now(lists)(PLACE) == expected  # type: ignore[arg-type]  # as above


@pytest.mark.parametrize("error", [NOT_SERVED, REFUSED, AWAY])
def test_what_was_read_counts_for_a_quarter_of_an_hour_whatever_fails_then(
    lists: Lists, error: TidegateError
) -> None:
    lists.users = [kafka_user("alice", quotas=QUOTAS)]
    known = lists.known()
    known(PLACE)
    lists.fail(error)
    for _ in range(14):
        lists.now += 60
        assert names(known(PLACE)) == {"alice"}
    lists.now += 60
    after = known(PLACE)
    assert after is None or after.users is None
    assert bool(after is not None and after.unread) is (error is AWAY)


def test_what_is_asked_for_now_is_read_now(lists: Lists) -> None:
    known = lists.known()
    assert known.fresh() is None, "no cluster is known yet"
    known(PLACE)
    lists.users = [kafka_user("alice", quotas=QUOTAS)]
    assert names(known.fresh()) == {"alice"}
    assert names(known(PLACE)) == {"alice"}


def test_without_an_answer_now_what_is_known_counts_as_old_and_is_not_asked_again_at_once(
    lists: Lists,
) -> None:
    lists.users = [kafka_user("alice", quotas=QUOTAS)]
    known = lists.known()
    known(PLACE)
    lists.fail(AWAY)
    lists.takes_seconds = 10.0
    now = known.fresh()
    assert now is not None
    assert (set(now.users or {}), now.unread) == ({"alice"}, AWAY.message)
    calls = len(lists.calls)
    assert known.fresh() == now
    lists.now += 39
    assert known.fresh() == now
    assert len(lists.calls) == calls
    lists.fail(None)
    lists.now += 1
    assert names(known.fresh()) == {"alice"}


@pytest.mark.parametrize("error", [NOT_SERVED, REFUSED])
def test_a_refusal_now_leaves_what_is_known(lists: Lists, error: TidegateError) -> None:
    lists.users = [kafka_user("alice", quotas=QUOTAS)]
    known = lists.known()
    known(PLACE)
    lists.fail(error)
    assert names(known.fresh()) == {"alice"}


def test_a_slow_reading_does_not_replace_a_later_one(lists: Lists) -> None:
    known = lists.known(beside=True)
    known(PLACE)
    gate, answer = threading.Event(), lists.list_all

    def slowly(kind: ResourceKind, namespaces: tuple[str, ...]) -> Listing:
        before = Listing(tuple(lists.users), "1")
        gate.wait(patience(10))
        return before

    lists.list_all = slowly  # type: ignore[method-assign]
    lists.now += KAFKA_USERS_AGE_SECONDS
    known(PLACE)
    slow = next(one for one in threading.enumerate() if one.name == "KafkaUsers")
    lists.list_all = answer  # type: ignore[method-assign]
    lists.users = [kafka_user("alice")]
    lists.now += 1
    assert names(known.fresh()) == {"alice"}
    gate.set()
    slow.join(patience(10))
    assert names(known(PLACE)) == {"alice"}


def test_another_cluster_is_read_again(lists: Lists) -> None:
    lists.users = [kafka_user("alice"), kafka_user("bob", cluster="other")]
    known = lists.known()
    assert names(known(PLACE)) == {"alice"}
    assert names(known(StrimziPlace("kafka", "other"))) == {"bob"}
    assert names(known(PLACE)) == {"alice"}


def test_a_pass_waits_for_the_first_reading_only(lists: Lists) -> None:
    known = lists.known(beside=True)
    lists.users = [kafka_user("alice")]
    assert names(known(PLACE)) == {"alice"}
    gate = threading.Event()
    answer = lists.list_all

    def slowly(kind: ResourceKind, namespaces: tuple[str, ...]) -> Listing:
        gate.wait(patience(10))
        return answer(kind, namespaces)

    lists.list_all = slowly  # type: ignore[method-assign]
    lists.users.append(kafka_user("bob"))
    lists.now += KAFKA_USERS_AGE_SECONDS
    assert names(known(PLACE)) == {"alice"}
    gate.set()
    wait_until(lambda: names(known(PLACE)) == {"alice", "bob"}, "the reading", timeout_seconds=10)


def test_in_a_quiet_cluster_a_change_is_known_with_the_second_pass_after_it(lists: Lists) -> None:
    known = lists.known(beside=True)
    lists.users, lists.takes_seconds = [kafka_user("alice")], 0.2
    assert names(known(PLACE)) == {"alice"}
    lists.users.append(kafka_user("bob"))  # just after a list
    lists.now += 15 - 0.2
    known(PLACE)  # a pass, which begins a list beside it
    wait_until(lambda: not known._is_reading(), "the reading", timeout_seconds=10)
    gate = threading.Event()

    def late(kind: ResourceKind, namespaces: tuple[str, ...]) -> Listing:
        gate.wait(patience(10))
        return Listing((), "1")

    lists.list_all = late  # type: ignore[method-assign]
    lists.now += 15 - 0.2
    assert names(known(PLACE)) == {"alice", "bob"}
    gate.set()
    wait_until(lambda: not known._is_reading(), "the last reading", timeout_seconds=10)


# --- the operator ---------------------------------------------------------------------------------


class Cluster:
    """An operator whose policy is of Strimzi's cluster kafka/orders, with the User Operator."""

    def __init__(self) -> None:
        self.stage = Stage()
        self.policy = self.stage.policy()
        self.stage.kubernetes.edit(self.policy, self._name_the_cluster)
        self.tier = self.stage.tier()
        self.theirs = UserOperator(
            lambda: {e: q.values for e, q in self.stage.store.read([ALICE, BOB]).items()},
            self._write,
            lambda: self.stage.kubernetes.list_all(NEWEST, ("kafka",)),
        )

    @staticmethod
    def _name_the_cluster(raw: dict[str, Any]) -> None:
        raw["spec"]["kafka"]["bootstrapServers"] = "orders-kafka-bootstrap.kafka.svc:9092"

    def _write(self, entity: Entity, values: Mapping[QuotaKey, str | None]) -> None:
        kept = {key: text for key, text in values.items() if text is not None}
        self.stage.store.put(entity, {key: kept.get(key) for key in values})

    def kafka_user(self, name: str, **fields: Any) -> ObjectRef:
        made = self.stage.kubernetes.create(NEWEST, kafka_user(name, **fields))
        return ObjectRef.of(NEWEST, made)

    def run(self, after_seconds: float = 15.0) -> None:
        self.stage.now += after_seconds
        self.stage.run()


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def failing(error: TidegateError, answer: Callable[..., Listing]) -> Callable[..., Listing]:
    def list_all(kind: ResourceKind, namespaces: tuple[str, ...] = ()) -> Listing:
        if kind.group == NEWEST.group:
            raise error
        return answer(kind, namespaces)

    return list_all


def test_the_tier_says_that_a_quota_is_strimzis(cluster: Cluster) -> None:
    cluster.kafka_user("alice", quotas=QUOTAS)
    cluster.theirs.reconcile_all()
    other = cluster.stage.tier("other", user="bob")
    for _ in range(4):
        cluster.run()
    stage = cluster.stage
    assert (stage.produce(), stage.produce(BOB)) == ("3000000", "10000000")
    assert stage.condition(cluster.tier) == ("False", "OwnedByStrimzi")
    assert stage.condition(cluster.tier, "Stalled") == ("True", "OwnedByStrimzi")
    assert "KafkaUser kafka/alice declares the quotas of user=alice" in stage.message(cluster.tier)
    (member,) = stage.kubernetes.get(cluster.tier)["status"]["members"]
    assert member["state"] == "OwnedByStrimzi"
    assert stage.condition(other) == ("True", "Contract")
    assert stage.condition(cluster.policy)[0] == "True"
    assert [one.reason for one in stage.kubernetes.events].count("OwnedByStrimzi") == 1


def test_quotas_that_leave_the_kafka_user_become_tidegates_once_it_is_paused(
    cluster: Cluster,
) -> None:
    ref = cluster.kafka_user("alice", quotas=QUOTAS)
    cluster.theirs.reconcile_all()
    cluster.run()
    assert cluster.stage.produce() == "3000000"

    def hand_over(raw: dict[str, Any]) -> None:
        del raw["spec"]["quotas"]
        raw["metadata"]["annotations"] = {"strimzi.io/pause-reconciliation": "true"}

    cluster.stage.kubernetes.edit(ref, hand_over)
    for _ in range(40):
        cluster.run()
        cluster.theirs.reconcile_all()
    assert cluster.stage.produce() == "10000000"
    assert cluster.stage.condition(cluster.tier) == ("True", "Contract")


def test_policy_and_tier_say_what_to_set_against_the_user_operator(cluster: Cluster) -> None:
    cluster.kafka_user("alice")
    cluster.run()
    for _ in range(3):
        cluster.theirs.reconcile_all()
        cluster.run()
    stage = cluster.stage
    assert stage.condition(cluster.policy) == ("False", "Contended")
    assert "Strimzi's operators remove these, which no KafkaUser and no Kafka" in stage.message(
        cluster.policy
    )
    assert "Kafka does not record who" not in stage.message(cluster.policy)
    assert stage.condition(cluster.tier) == ("False", "Contended")
    assert "KafkaUser kafka/alice declares no quotas" in stage.message(cluster.tier)


def test_not_even_once_is_a_new_declaration_of_a_kafka_user_written_over(cluster: Cluster) -> None:
    """It comes between two readings of the KafkaUsers, and its quota between two passes."""
    ref = cluster.kafka_user("alice", pause_reconciliation="true")
    cluster.run()
    assert cluster.stage.produce() == "10000000"

    def declare(raw: dict[str, Any]) -> None:
        raw["metadata"]["annotations"] = {}
        raw["spec"]["quotas"] = QUOTAS

    cluster.stage.kubernetes.edit(ref, declare)
    cluster.theirs.reconcile_all()
    cluster.run(after_seconds=1)
    assert cluster.stage.produce() == "3000000"
    assert cluster.stage.condition(cluster.tier) == ("False", "OwnedByStrimzi")
    assert "Repaired" not in cluster.stage.event_reasons()


def test_a_foreign_value_stays_while_it_cannot_be_asked_whether_a_kafka_user_declares_it(
    cluster: Cluster,
) -> None:
    stage = cluster.stage
    ref = cluster.kafka_user("alice", pause_reconciliation="true")
    carol = stage.tier("third", user="carol")
    cluster.run()
    stage.kubernetes.edit(ref, lambda raw: raw["spec"].update(quotas=QUOTAS))
    stage.kubernetes.edit(ref, lambda raw: raw["metadata"].update(annotations={}))
    cluster.theirs.ignored_users = "carol"
    cluster.theirs.reconcile_all()
    read = stage.kubernetes.list_all
    stage.kubernetes.list_all = failing(AWAY, read)
    for _ in range(5):
        cluster.run()
        assert stage.produce() == "3000000"
    assert stage.condition(cluster.tier) == ("False", "KafkaUsersUnread")
    stage.kubernetes.list_all = read
    for _ in range(3):
        cluster.run()
    assert stage.produce() == "3000000"
    assert stage.condition(cluster.tier) == ("False", "OwnedByStrimzi")
    assert stage.condition(carol) == ("True", "Contract")


def test_a_resync_is_reported_once_where_kafka_users_changed_in_the_same_pass(
    cluster: Cluster,
) -> None:
    stage = cluster.stage
    ref = cluster.kafka_user("alice", pause_reconciliation="true")
    cluster.run()
    stage.kubernetes.edit(ref, lambda raw: raw["spec"].update(quotas=QUOTAS))
    stage.kubernetes.edit(ref, lambda raw: raw["metadata"].update(annotations={}))
    cluster.theirs.reconcile_all()
    stage.kubernetes.edit(
        cluster.policy,
        lambda raw: raw["metadata"]["annotations"].update({"tidegate.io/resync": "1"}),
    )
    cluster.run(after_seconds=1)
    assert stage.event_reasons().count("Resynced") == 1
    assert stage.produce() == "3000000"


def test_where_somebody_else_changes_a_quota_too_the_policy_says_how_many_are_strimzis(
    cluster: Cluster,
) -> None:
    stage = cluster.stage
    cluster.kafka_user("alice")
    stage.tier("other", user="bob")
    cluster.theirs.ignored_users = "bob"
    cluster.run()
    for _ in range(3):
        cluster.theirs.reconcile_all()
        stage.store.put(BOB, {QuotaKey.PRODUCER_BYTE_RATE: "5000000"})
        cluster.run()
    assert stage.condition(cluster.policy) == ("False", "Contended")
    assert "Strimzi's operators remove 1 of them, which" in stage.message(cluster.policy)


@pytest.mark.parametrize("error", [NOT_SERVED, REFUSED, AWAY])
def test_kafka_users_that_cannot_be_read_for_a_while_move_no_quota(
    cluster: Cluster, error: TidegateError
) -> None:
    stage = cluster.stage
    cluster.kafka_user("alice", quotas=QUOTAS)
    cluster.theirs.reconcile_all()
    cluster.run()
    read = stage.kubernetes.list_all
    stage.kubernetes.list_all = failing(error, read)
    for _ in range(50):
        cluster.run()
        assert stage.produce() == "3000000"
        assert stage.condition(cluster.tier) == ("False", "OwnedByStrimzi")


def test_a_new_process_that_cannot_read_them_moves_no_quota_of_a_user(cluster: Cluster) -> None:
    stage = cluster.stage
    carol = stage.tier("third", user="carol")
    cluster.run()
    assert stage.produce() == "10000000"
    cluster.kafka_user("alice", quotas=QUOTAS)
    cluster.theirs.ignored_users = "carol"
    cluster.theirs.reconcile_all()
    stage.restart()
    read = stage.kubernetes.list_all
    stage.kubernetes.list_all = failing(AWAY, read)
    stage.kubernetes.edit(
        carol,
        lambda raw: raw["spec"]["members"][0]["contract"]["perPartition"].update(produce="20M"),
    )
    for _ in range(80):
        cluster.run()
        assert stage.produce() == "3000000"
        assert stage.produce(Entity("carol")) == "10000000"
    assert stage.condition(cluster.tier) == ("False", "KafkaUsersUnread")
    assert "KafkaUsers of Strimzi's cluster kafka/orders could not be read" in stage.message(
        cluster.tier
    )
    stage.kubernetes.list_all = read
    for _ in range(3):
        cluster.run()
    assert (stage.produce(), stage.produce(Entity("carol"))) == ("3000000", "20000000")
    assert stage.condition(cluster.tier) == ("False", "OwnedByStrimzi")


@pytest.mark.parametrize("error", [NOT_SERVED, REFUSED])
def test_without_strimzis_kinds_or_the_right_quotas_are_as_without_strimzi(
    cluster: Cluster, error: TidegateError
) -> None:
    cluster.stage.kubernetes.list_all = failing(error, cluster.stage.kubernetes.list_all)
    cluster.run()
    assert cluster.stage.produce() == "10000000"
    assert cluster.stage.condition(cluster.tier) == ("True", "Contract")
    assert cluster.stage.condition(cluster.policy) == ("True", "InSync")
