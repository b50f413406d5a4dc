"""One policy from resources to znodes and status, level-triggered, on in-memory doubles."""

import json
import threading
from collections.abc import Callable, Collection
from typing import Any

import pytest

from lab.process import patience, wait_until
from tests.doubles.quota_store import MemoryQuotaStore
from tests.goldens.golden import numbers
from tests.unit.control.stage import ALICE, AWAY, Leaders, Stage
from tidegate.control import controller as controller_module
from tidegate.control.controller import report_pending_if_slow
from tidegate.control.ownership import RESTORE_FINALIZER, take_over_words
from tidegate.errors import NotFound, ServerFault, Unreachable
from tidegate.kafka.quota_store import REPLACE_CLAIM, Claim
from tidegate.kafka.zookeeper.tree import SetData
from tidegate.kube.api import ObjectRef
from tidegate_logic.model import Entity, QuotaKey, QuotaWrite, Topology, WriteKind
from tidegate_logic.reasons import Reason

BOB, CLUSTER = Entity(user="bob"), "memory-cluster"


def test_a_contract_is_in_zookeeper_and_in_status_after_one_pass(stage: Stage) -> None:
    policy, tier = stage.policy(), stage.tier()
    stage.run()
    assert stage.produce() == "10000000"
    assert stage.condition(policy) == ("True", "InSync")
    assert stage.condition(tier) == ("True", "Contract")
    assert stage.kubernetes.get(tier)["status"]["members"][0]["quota"] == {"produce": 10_000_000}


def test_a_pass_that_changes_nothing_writes_nothing_anywhere(stage: Stage) -> None:
    policy, tier = stage.policy(), stage.tier()
    stage.run()
    before = (
        stage.store.transactions,
        stage.kubernetes.get(policy),
        stage.kubernetes.get(tier),
        len(stage.kubernetes.events),
    )
    stage.now += 15
    stage.run()
    assert (
        stage.store.transactions,
        stage.kubernetes.get(policy),
        stage.kubernetes.get(tier),
        len(stage.kubernetes.events),
    ) == before


def test_a_restarted_operator_that_finds_all_well_reports_nothing(stage: Stage) -> None:
    stage.policy(), stage.tier()
    stage.run()
    before = (stage.store.transactions, len(stage.kubernetes.events))
    stage.restart()
    stage.run()
    assert (stage.store.transactions, len(stage.kubernetes.events)) == before


def test_quotas_follow_the_leaders_when_a_broker_dies(stage: Stage) -> None:
    stage.policy(), stage.tier()
    stage.run()
    stage.leaders.leaders, stage.leaders.brokers = {"acc": {1: 2, 2: 1}}, frozenset({1, 2})
    assert stage.controllers["streaming/orders"].leaders_moved()
    stage.run()
    assert stage.produce() == "20000000"
    assert "LeadersMoved" in stage.event_reasons()


@pytest.mark.parametrize("which", ["zookeeper", "brokers"])
def test_an_input_that_is_away_holds_every_quota_with_a_reason(stage: Stage, which: str) -> None:
    policy, tier = stage.policy(), stage.tier()
    stage.run()
    stage.kubernetes.delete(tier)
    reason = Reason.ZOOKEEPER_UNREACHABLE if which == "zookeeper" else Reason.BROKERS_UNREACHABLE
    error = Unreachable(reason, "10.0.0.1 does not answer.")
    if which == "zookeeper":
        stage.store.faults.fail_next(error)
    else:
        stage.leaders.error = error
    next_in_seconds = stage.run()
    assert stage.produce() == "10000000"
    assert stage.condition(policy) == ("False", reason.value)
    assert stage.condition(policy, "ClusterReachable") == ("False", reason.value)
    assert next_in_seconds <= 15.0


def test_an_incomplete_list_of_tiers_gives_nothing_back(stage: Stage) -> None:
    policy, tier = stage.policy(), stage.tier()
    stage.run()
    stage.kubernetes.delete(tier)
    stage.cache.remove(tier.kind, tier.uid)
    stage.now += stage.world.settings.list_stale_after_seconds + 1
    stage.run(relisted=False)
    assert stage.produce() == "10000000"
    assert stage.condition(policy) == ("False", "ListIncomplete")


def _break(raw: dict[str, Any]) -> None:
    raw["spec"]["level"] = "L9"


@pytest.mark.parametrize("restarted", [False, True])
def test_a_tier_that_does_not_read_is_held_and_never_taken_for_absent(
    stage: Stage, restarted: bool
) -> None:
    policy, gold, silver = stage.policy(), stage.tier(), stage.tier("silver", user="bob", rate="5M")
    stage.run()
    stage.kubernetes.edit(gold, _break)
    if restarted:
        stage.restart()
    stage.run()
    assert stage.produce() == "10000000"
    assert stage.condition(gold) == ("False", "InvalidSpec")
    assert stage.condition(silver) == ("True", "Contract")
    assert stage.condition(policy) == ("True", "InSync")


def test_a_deleted_tier_is_given_back_exactly(stage: Stage) -> None:
    stage.policy(removal={"maxPercent": 100})
    stage.store.put(ALICE, {QuotaKey.PRODUCER_BYTE_RATE: "70000000"})
    tier = stage.tier(rate="90M")
    stage.run()
    assert stage.produce() == "90000000"
    stage.kubernetes.delete(tier)
    stage.run()
    stage.run_past_grace()
    stage.now += 40
    stage.run()
    assert stage.produce() == "70000000"


def test_too_many_removals_wait_for_a_person_who_confirms_them_once(stage: Stage) -> None:
    policy, tier = stage.policy(annotations={"tidegate.io/confirm-removal": "1"}), stage.tier()
    stage.run()
    stage.kubernetes.delete(tier)
    stage.run()
    assert (stage.produce(), stage.condition(policy)) == ("10000000", ("False", "RemovalHeld"))
    assert "its value now, 1, does not confirm" in stage.message(policy)
    value = stage.message(policy).partition("confirm-removal=")[2].partition(" ")[0]
    stage.kubernetes.edit(
        policy,
        lambda raw: raw["metadata"]["annotations"].update({"tidegate.io/confirm-removal": value}),
    )
    stage.run()
    assert stage.produce() == "10000000", "the grace of 30 s is not over"
    stage.run_past_grace()
    assert stage.produce() is None
    tier = stage.tier()
    stage.now += 1000
    stage.run()
    stage.kubernetes.delete(tier)
    stage.restart()
    stage.run()
    assert (stage.produce(), stage.condition(policy)) == ("10000000", ("False", "RemovalHeld"))


def test_observe_writes_nothing_to_kafka_and_takes_no_finalizer(stage: Stage) -> None:
    policy, tier = stage.policy(mode="Observe"), stage.tier()
    before = stage.store.transactions
    stage.run()
    assert stage.store.transactions == before
    assert stage.condition(policy) == ("True", "Observing")
    assert stage.condition(tier) == ("True", "Observing")
    assert "finalizers" not in stage.kubernetes.get(policy)["metadata"]


@pytest.mark.parametrize("value", ["true", "", "yes", "True"])
def test_paused_freezes_everything_and_is_reported(stage: Stage, value: str) -> None:
    policy = stage.policy(annotations={"tidegate.io/paused": value})
    stage.tier()
    stage.run()
    assert (stage.produce(), stage.condition(policy)) == (None, ("False", "Paused"))


def test_suspend_pauses_like_the_annotation_and_ready_names_which_of_them_it_is(
    stage: Stage,
) -> None:
    policy = stage.policy(suspend=True)
    stage.tier()
    stage.run()
    assert (stage.produce(), stage.condition(policy)) == (None, ("False", "Paused"))
    assert (
        stage.message(policy)
        == "Paused by spec.suspend; every quota stays as it is until that ends"
    )
    stage.kubernetes.edit(
        policy, lambda raw: raw["metadata"].update(annotations={"tidegate.io/paused": "true"})
    )
    stage.run()
    assert stage.message(policy).startswith(
        "Paused by spec.suspend and the annotation tidegate.io/paused;"
    )
    stage.kubernetes.edit(policy, lambda raw: raw["spec"].update(suspend=False))
    stage.run()
    assert stage.message(policy).startswith("Paused by the annotation tidegate.io/paused;")
    stage.kubernetes.edit(policy, lambda raw: raw["metadata"].update(annotations={}))
    stage.run()
    assert (stage.produce(), stage.condition(policy)) == ("10000000", ("True", "InSync"))


def test_a_plain_no_does_not_pause(stage: Stage) -> None:
    policy = stage.policy(annotations={"tidegate.io/paused": "False"})
    stage.tier()
    stage.run()
    assert stage.condition(policy) == ("True", "InSync")


def test_without_its_lease_a_replica_writes_no_quota(stage: Stage) -> None:
    policy = stage.policy()
    stage.tier()
    stage.may_write = False
    stage.run()
    assert stage.produce() is None
    raw = stage.kubernetes.get(policy)
    # the replica that has the Lease reports, and puts its finalizer on
    assert ("status" in raw, "finalizers" in raw["metadata"]) == (False, False)
    assert stage.event_reasons() == []


@pytest.mark.parametrize(("deletion_policy", "left"), [("Restore", None), ("Retain", "10000000")])
def test_a_deleted_policy_goes_and_leaves_what_its_deletion_policy_says(
    stage: Stage, deletion_policy: str, left: str | None
) -> None:
    policy = stage.policy(deletionPolicy=deletion_policy)
    stage.tier()
    stage.run()
    assert RESTORE_FINALIZER in stage.kubernetes.get(policy)["metadata"]["finalizers"]
    stage.kubernetes.delete(policy)
    stage.run()
    with pytest.raises(NotFound):
        stage.kubernetes.get(policy)
    assert stage.produce() == left
    assert stage.store.facts().owner_policy_key is None
    assert not stage.store.ledger_entities()


def test_a_policy_that_was_made_again_under_its_name_has_all_the_time_that_its_steps_need(
    stage: Stage,
) -> None:
    first, tier = stage.policy(), stage.tier()
    stage.run()
    stage.kubernetes.delete(first)
    stage.run()
    stage.kubernetes.delete(tier)
    stage.store.put(ALICE, {QuotaKey.PRODUCER_BYTE_RATE: "20000"})
    policy = stage.policy()
    stage.tier(rate="1000M")
    stage.run()
    stage.now += 2 * stage.world.settings.restore_deadline_seconds
    stage.run()
    stage.kubernetes.delete(policy)
    _seconds_until_gone(stage, policy)
    assert stage.produce() == "20000"
    assert "RestoreIncomplete" not in stage.event_reasons()


def test_members_that_the_policy_does_not_allow_are_nothing_that_its_deletion_leaves_behind(
    stage: Stage,
) -> None:
    policy = stage.policy(allowedEntities=[{"users": ["bob"]}])
    stage.tier()
    stage.run()
    stage.kubernetes.delete(policy)
    stage.run()
    assert "RestoreIncomplete" not in stage.event_reasons()
    assert stage.store.facts().owner_policy_key is None


def test_a_user_that_two_tiers_name_is_nothing_that_a_deletion_leaves_behind(stage: Stage) -> None:
    policy = stage.policy()
    stage.tier(), stage.tier("silver")
    stage.run()
    stage.kubernetes.delete(policy)
    stage.run()
    assert stage.produce() is None
    assert "RestoreIncomplete" not in stage.event_reasons()
    assert stage.store.facts().owner_policy_key is None


def test_a_deadline_that_is_over_lets_no_policy_go_that_another_replica_may_hold(
    stage: Stage,
) -> None:
    policy = stage.policy()
    stage.tier()
    stage.run()
    stage.kubernetes.delete(policy)
    stage.may_write = False
    for _ in range(2):
        stage.run()
        stage.now += stage.world.settings.restore_deadline_seconds + 1
    assert RESTORE_FINALIZER in stage.kubernetes.get(policy)["metadata"]["finalizers"]
    stage.may_write = True
    stage.run()
    assert stage.produce() is None
    assert "RestoreIncomplete" not in stage.event_reasons()


def test_deletion_ends_after_the_deadline_although_zookeeper_is_away(stage: Stage) -> None:
    policy = stage.policy()
    stage.tier()
    stage.run()
    stage.kubernetes.delete(policy)
    for wait_seconds in (0, stage.world.settings.restore_deadline_seconds + 1):
        stage.now += wait_seconds
        stage.store.faults.fail_next(
            Unreachable(Reason.ZOOKEEPER_UNREACHABLE, "zk:2181 does not answer.")
        )
        stage.run()
    with pytest.raises(NotFound):
        stage.kubernetes.get(policy)
    assert "RestoreIncomplete" in stage.event_reasons()
    assert stage.store.facts().owner_policy_key == "streaming/orders"


def test_a_deletion_that_goes_on_takes_the_time_that_its_steps_need(stage: Stage) -> None:
    stage.store.put(ALICE, {QuotaKey.PRODUCER_BYTE_RATE: "20000"})
    policy = stage.policy()
    stage.tier(rate="1000M")
    stage.run()
    stage.kubernetes.delete(policy)
    took_seconds = _seconds_until_gone(stage, policy)
    assert took_seconds > stage.world.settings.restore_deadline_seconds
    assert stage.produce() == "20000"
    assert "RestoreIncomplete" not in stage.event_reasons()
    assert stage.store.facts().owner_policy_key is None


def test_a_deletion_that_another_writer_undoes_again_and_again_ends(
    stage: Stage, golden: Callable[[str], None]
) -> None:
    """Bob's quota cannot be read, and Alice's record comes back after every pass."""
    policy = stage.policy()
    stage.tier()
    stage.tier("silver", user="bob")
    stage.run()
    ledger = stage.store.read([ALICE])[ALICE].ledger
    stage.store.put_raw(BOB, b"no JSON")
    stage.kubernetes.delete(policy)

    def undo() -> None:
        seen = stage.store.read([ALICE])[ALICE]
        values = {QuotaKey.PRODUCER_BYTE_RATE: "10000000"}
        first = WriteKind.FIRST, Reason.FIRST_QUOTA, ""
        stage.store.write([QuotaWrite(ALICE, values, seen, ledger, *first, charged=False)], CLUSTER)

    deadline_seconds = stage.world.settings.restore_deadline_seconds
    assert _seconds_until_gone(stage, policy, undo) < deadline_seconds + 60
    (note,) = {
        event.note for event in stage.kubernetes.events if event.reason == "RestoreIncomplete"
    }
    assert numbers(note) >= {1, deadline_seconds}
    assert "user=bob" in note
    golden(note)


def _seconds_until_gone(
    stage: Stage, policy: ObjectRef, between: Callable[[], None] = lambda: None
) -> float:
    began = stage.now
    while stage.now - began < 3600:
        due_seconds = stage.run()
        try:
            stage.kubernetes.get(policy)
        except NotFound:
            return stage.now - began
        between()
        stage.now += max(due_seconds, 1.0)
    raise AssertionError("the policy is still there after an hour")


def test_the_younger_of_two_policies_on_one_cluster_changes_nothing(stage: Stage) -> None:
    older = stage.policy()
    younger = stage.policy("late", created="2026-02-01T00:00:00Z")
    stage.tier()
    stage.tier("other", user="bob", policy="late")
    for name in ("orders", "late"):
        stage.run(name)
    assert stage.condition(older) == ("True", "InSync")
    assert stage.condition(younger) == ("False", "ClusterAlreadyManaged")


# --- two Kubernetes clusters, a policy of the same name in both, one Kafka ------------------------


def _twin(stage: Stage, **policy: Any) -> tuple[Stage, ObjectRef]:
    """An operator in another Kubernetes cluster, whose tier names one user more."""
    twin = Stage(store=stage.store, identity="operator-2")
    ref = twin.policy(**policy)
    twin.tier()
    twin.tier("silver", user="bob", rate="5M")
    return twin, ref


def _events(stage: Stage, ref: ObjectRef) -> list[str]:
    return [event.reason for event in stage.kubernetes.events if event.regarding == ref]


def _replaces(stage: Stage, ref: ObjectRef, named: str) -> None:
    stage.kubernetes.edit(
        ref, lambda raw: raw["metadata"].update(annotations={REPLACE_CLAIM: named})
    )


def test_a_policy_of_the_same_name_elsewhere_writes_nothing_and_says_who_has_the_claim(
    stage: Stage,
) -> None:
    policy, _ = stage.policy(), stage.tier()
    stage.run()
    before = (stage.store.transactions, stage.store.facts())
    twin, theirs = _twin(stage, removal={"maxPercent": 100})
    for _ in range(10):
        for operator in (twin, stage):
            operator.now += 15
            operator.run()
    assert (stage.store.transactions, stage.store.facts()) == before
    assert stage.condition(policy) == ("True", "InSync")
    assert twin.condition(theirs) == ("False", "ClaimedElsewhere")
    assert twin.condition(theirs, "Stalled") == ("True", "ClaimedElsewhere")
    assert _events(twin, theirs).count("ClaimedElsewhere") == 1
    for word in ("streaming/orders", policy.uid, "operator operator since 1970-01-12T13:46:40Z"):
        assert word in twin.message(theirs)
    assert "finalizers" not in twin.kubernetes.get(theirs)["metadata"]


def test_a_take_over_is_an_event_on_both_sides_and_the_old_owner_writes_no_more(
    stage: Stage,
) -> None:
    policy, _ = stage.policy(), stage.tier()
    stage.run()
    twin, theirs = _twin(stage)
    _replaces(twin, theirs, policy.uid)
    twin.run()
    assert twin.condition(theirs) == ("True", "InSync")
    assert _events(twin, theirs).count("ClaimTakenOver") == 1
    claim = stage.store.facts().claim
    assert (claim.policy_uid, claim.holder, claim.epoch) == (theirs.uid, "operator-2", 2)
    assert twin.produce(Entity("bob")) == "5000000"

    _replaces(stage, policy, theirs.uid)  # as Git may still have it from an earlier take-over
    before = stage.store.transactions
    for _ in range(10):
        for operator in (twin, stage):
            operator.now += 15
            operator.run()
    assert stage.store.transactions == before
    assert stage.condition(policy) == ("False", "ClaimedElsewhere")
    assert _events(stage, policy).count("ClaimedElsewhere") == 1
    assert f"{REPLACE_CLAIM}={theirs.uid}@2 " in stage.message(policy)


def test_an_owner_whose_claim_goes_during_its_pass_ends_it_without_a_write(stage: Stage) -> None:
    policy, _ = stage.policy(), stage.tier()
    stage.run()
    stage.tier("silver", user="carol", rate="5M")
    twin, theirs = _twin(stage)
    _replaces(twin, theirs, policy.uid)
    read = stage.leaders.read

    def taken_over_meanwhile(patterns: Any, *, with_in_sync: bool = False) -> Any:
        stage.leaders.read = read  # type: ignore[method-assign]
        twin.run()
        return read(patterns, with_in_sync=with_in_sync)

    stage.leaders.read = taken_over_meanwhile  # type: ignore[method-assign]
    stage.run()
    assert stage.condition(policy) == ("False", "ClaimedElsewhere")
    assert stage.produce(Entity("carol")) is None


def test_a_take_over_reads_like_this(golden: Callable[[str], None]) -> None:
    ours = Claim("streaming/orders", "uid-2", "tidegate-9_1_cd", 3)
    golden(
        "\n".join(
            (
                take_over_words(Claim("streaming/orders", "uid-1", "tidegate-0_1_ab", 2), ours),
                take_over_words(Claim("streaming/orders", "uid-1"), ours),
            )
        )
    )


@pytest.mark.parametrize("replaces", [False, True])
def test_deleting_a_policy_whose_claim_is_elsewhere_gives_nothing_back(
    stage: Stage, replaces: bool
) -> None:
    policy, _ = stage.policy(), stage.tier()
    stage.run()
    twin, theirs = _twin(stage)
    _replaces(twin, theirs, policy.uid)
    twin.run()
    claim = stage.store.facts().claim
    if replaces:
        _replaces(stage, policy, f"{theirs.uid}@2")
    stage.kubernetes.delete(policy)
    stage.run()
    with pytest.raises(NotFound):
        stage.kubernetes.get(policy)
    assert (stage.produce(), stage.store.facts().claim) == ("10000000", claim)
    assert stage.event_reasons()[-1] == "ClaimedElsewhere"


def test_a_claim_that_was_released_needs_no_annotation(stage: Stage) -> None:
    policy, _ = stage.policy(), stage.tier()
    stage.run()
    stage.kubernetes.delete(policy)
    stage.run()
    twin, theirs = _twin(stage)
    twin.run()
    assert twin.condition(theirs) == ("True", "InSync")
    assert "ClaimTakenOver" not in twin.event_reasons()


def test_a_replica_that_has_not_seen_the_deletion_writes_nothing_for_a_policy_that_is_gone(
    stage: Stage,
) -> None:
    policy, _ = stage.policy(), stage.tier()
    stage.run()
    late = Stage(stage.kubernetes, stage.store, identity="late")
    late.run()
    stage.kubernetes.delete(policy)
    stage.run()
    left = stage.store.transactions
    late.run(relisted=False)  # with the policy as it was, finalizer and all
    assert (stage.store.transactions, stage.store.facts().claim) == (left, None)
    assert stage.produce() is None


def test_a_restarted_operator_raises_its_claims_epoch_once_and_adopts_that_of_version_0_1(
    stage: Stage,
) -> None:
    policy, _ = stage.policy(), stage.tier()
    stage.run()
    version_0_1 = {"version": 1, "policy_key": "streaming/orders", "policy_uid": policy.uid}
    (node,) = stage.store.tree.read(["/tidegate/claim"])
    content = json.dumps(version_0_1).encode()
    stage.store.tree.commit([SetData("/tidegate/claim", content, node.version)])
    events = stage.event_reasons()
    stage.identity = "after"
    stage.restart()
    stage.run()
    claim = stage.store.facts().claim
    assert (claim.policy_uid, claim.holder, claim.epoch) == (policy.uid, "after", 1)
    stage.identity = "later"
    stage.restart()
    for _ in range(2):
        stage.run()
        now = stage.store.facts().claim
        assert (now.policy_uid, now.holder, now.epoch) == (policy.uid, "later", 2)
    assert stage.event_reasons() == events


@pytest.mark.parametrize("is_deleted", [False, True])
def test_nothing_that_a_replica_decided_is_written_once_another_one_has_taken_over(
    stage: Stage, is_deleted: bool
) -> None:
    """The first one stands still with a decided batch in hand, and is wrong about its Lease."""
    policy, _ = stage.policy(), stage.tier()
    stage.run()
    another = Stage(stage.kubernetes, stage.store, identity="another")
    if is_deleted:
        stage.kubernetes.delete(policy)
    else:
        stage.tier("silver", user="bob")
    left: list[int] = []

    def take_over() -> None:
        another.run()
        left.append(stage.store.transactions)

    stage.store.faults.before_next_commit(take_over)
    stage.run()
    assert left == [stage.store.transactions]
    claim = stage.store.facts().claim
    if is_deleted:
        assert (claim, stage.store.ledger_entities()) == (None, frozenset())
    else:
        assert (claim.holder, claim.epoch) == ("another", 2)
        assert stage.produce(Entity("bob")) is not None


@pytest.mark.parametrize(
    "spec",
    [{"kafka": {"bootstrapServers": "kafka:9092", "quotaStore": "ZooKeeper"}}, {"mode": "Maybe"}],
)
def test_a_policy_that_cannot_be_acted_on_is_reported_and_changes_nothing(
    stage: Stage, spec: dict[str, Any]
) -> None:
    policy, tier = stage.policy(**spec), stage.tier()
    stage.run()
    assert (stage.produce(), stage.condition(policy), stage.condition(tier)) == (
        None,
        ("False", "InvalidSpec"),
        ("False", "InvalidSpec"),
    )


def lower_a_contract(stage: Stage) -> ObjectRef:
    """From 50 to 1 MB/s, a minute after the first pass; returns the tier."""
    stage.policy()
    tier = stage.tier(rate="50M")
    stage.run()
    stage.now += 60

    def lower(raw: dict[str, Any]) -> None:
        raw["spec"]["members"][0]["contract"]["perPartition"]["produce"] = "1M"

    stage.kubernetes.edit(tier, lower)
    return tier


def test_a_lowering_goes_down_in_steps_that_status_shows(stage: Stage) -> None:
    tier = lower_a_contract(stage)
    next_in_seconds = stage.run()
    assert stage.produce() == "25000000"
    assert stage.condition(tier) == ("False", "Stepping")
    assert 0 < next_in_seconds <= 15.0
    for _ in range(8):
        stage.now += 31
        stage.run()
    assert (stage.produce(), stage.condition(tier)) == ("1000000", ("True", "Contract"))


def test_a_process_that_was_stopped_before_it_wrote_counts_the_step_from_its_writing(
    stage: Stage,
) -> None:
    """Counted from the decision, the next step would come while the window still holds the burst."""

    class Stopped(Leaders):
        """Reading takes as long as the process was stopped."""

        stops_seconds = 0.0

        def read(self, patterns: Collection[str], *, with_in_sync: bool = False) -> Topology:
            stage.now += self.stops_seconds
            return super().read(patterns, with_in_sync=with_in_sync)

    stage.leaders = leaders = Stopped()
    lower_a_contract(stage)
    leaders.stops_seconds = 22.0
    stage.run()
    assert stage.produce() == "25000000"
    leaders.stops_seconds = 0.0
    stage.now += 10  # 32 s after the decision, which is a step distance
    stage.run()
    assert stage.produce() == "25000000"
    stage.now += 21
    stage.run()
    assert stage.produce() == "12500000"


def test_a_write_that_was_answered_late_counts_the_step_from_its_answer(stage: Stage) -> None:
    """A process that stands still between dating a write and the store cannot know it then."""

    class Late(MemoryQuotaStore):
        takes_seconds = 0.0

        def write(self, *args: Any, **kwargs: Any) -> Any:
            stage.now, self.takes_seconds = stage.now + self.takes_seconds, 0.0
            return super().write(*args, **kwargs)

    stage.store = store = Late(topics=["acc"])
    lower_a_contract(stage)
    store.takes_seconds = 35.0
    stage.run()
    assert stage.produce() == "25000000"
    (entry,) = store.read([ALICE])[ALICE].ledger.entries.values()  # type: ignore[union-attr]
    assert entry.written_at_seconds == stage.now
    stage.now += 20
    stage.run()
    assert stage.produce() == "25000000"
    stage.now += 11
    stage.run()
    assert stage.produce() == "12500000"


# --- an unreachable Kubernetes API ----------------------------------------------------------------
# An unreachable Kubernetes API stops what needs it, by its own name, and nothing else; all of it
# goes on when it is back.


class Outage:
    """Single calls of Kubernetes that fail until `end`; `refused` counts them."""

    def __init__(self, stage: Stage, *calls: str) -> None:
        self._stage = stage
        self._calls = calls
        self.refused = 0
        for call in calls:
            setattr(stage.kubernetes, call, self._refuse)

    def _refuse(self, *_: Any, **__: Any) -> Any:
        self.refused += 1
        raise AWAY

    def end(self) -> None:
        for call in self._calls:
            delattr(self._stage.kubernetes, call)


def test_without_the_finalizer_that_gives_back_nothing_is_written(stage: Stage) -> None:
    policy, _ = stage.policy(), stage.tier()
    outage = Outage(stage, "add_finalizer")
    stage.run()
    assert (stage.produce(), stage.condition(policy)) == (None, ("False", "KubernetesUnreachable"))
    outage.end()
    stage.run()
    assert (stage.produce(), stage.condition(policy)) == ("10000000", ("True", "InSync"))


def test_a_secret_that_cannot_be_read_for_now_is_not_called_missing(stage: Stage) -> None:
    login = {
        "type": "digest",
        "username": "tidegate",
        "passwordSecret": {"secretName": "login", "password": "password"},
    }
    zookeeper = {"connect": "zk:2181", "authentication": login}
    policy = stage.policy(
        kafka={"bootstrapServers": "kafka:9092", "quotaStore": "ZooKeeper", "zookeeper": zookeeper}
    )
    stage.tier()
    stage.kubernetes.put_secret("streaming", "login", {"password": b"ebb"})
    outage = Outage(stage, "read_secret")
    stage.run()
    assert (stage.produce(), stage.condition(policy)) == (None, ("False", "KubernetesUnreachable"))
    assert stage.condition(policy, "ClusterReachable")[0] == "Unknown"
    outage.end()
    stage.run()
    assert (stage.produce(), stage.condition(policy)) == ("10000000", ("True", "InSync"))


def test_quotas_do_not_wait_for_a_status_that_cannot_be_written(stage: Stage) -> None:
    policy, tier = stage.policy(), stage.tier()
    outage = Outage(stage, "patch_status", "create_event")
    stage.run()
    assert stage.produce() == "10000000"
    outage.end()
    stage.now += 15
    stage.run()
    assert (stage.condition(policy), stage.condition(tier)) == (
        ("True", "InSync"),
        ("True", "Contract"),
    )


def test_an_outage_costs_a_pass_one_time_limit_and_not_one_for_every_status(stage: Stage) -> None:
    stage.policy()
    tiers = [stage.tier(f"tier-{number}", user=f"user-{number}") for number in range(20)]
    stage.run()
    for tier in tiers:
        stage.kubernetes.edit(
            tier,
            lambda raw: raw["spec"]["members"][0]["contract"]["perPartition"].update(produce="20M"),
        )
    outage = Outage(stage, "patch_status")
    stage.run()
    assert outage.refused == 1
    outage.end()
    stage.now += 15
    stage.run()
    assert {
        stage.kubernetes.get(tier)["status"]["members"][0]["quota"]["produce"] for tier in tiers
    } == {20_000_000}


def test_objects_that_the_server_fails_at_keep_no_other_status_waiting(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in the same report while they are few, and in the next one however many they are."""

    def failing_at(*names: str) -> Callable[..., Any]:
        def patch_status(ref: ObjectRef, *arguments: Any, **more: Any) -> Any:
            asked.append(ref.name)
            if ref.name in names:
                raise ServerFault("etcdserver: request is too large")
            return before(ref, *arguments, **more)

        return patch_status

    asked: list[str] = []
    before = stage.kubernetes.patch_status
    stage.policy(writeBudget={"changes": 1000})
    tiers = {name: stage.tier(name, user=name) for name in "abcdefgh"}

    def reported() -> set[str]:
        return {name for name, tier in tiers.items() if "status" in stage.kubernetes.get(tier)}

    monkeypatch.setattr(stage.kubernetes, "patch_status", failing_at("a", "b"))
    stage.run()
    assert reported() == set("cdefgh")
    monkeypatch.setattr(stage.kubernetes, "patch_status", before)
    stage.now += 15
    stage.run()
    assert reported() == set("abcdefgh")

    for tier in tiers.values():
        stage.kubernetes.edit(
            tier,
            lambda raw: raw["spec"]["members"][0]["contract"]["perPartition"].update(produce="20M"),
        )
    monkeypatch.setattr(stage.kubernetes, "patch_status", failing_at("a", "b", "c", "d"))
    asked.clear()
    stage.run()
    assert asked[-3:] == ["a", "b", "c"], "three in a row: Kubernetes is unreachable"
    asked.clear()
    stage.now += 15
    stage.run()
    assert [name for name in asked if name in tiers] == list("defghabc")


def test_a_finalizer_that_could_not_be_taken_off_is_taken_off_later(stage: Stage) -> None:
    policy, _ = stage.policy(), stage.tier()
    stage.run()
    stage.kubernetes.delete(policy)
    outage = Outage(stage, "remove_finalizer")
    stage.run()
    assert stage.produce() is None
    outage.end()
    stage.now += 15
    stage.run()
    with pytest.raises(NotFound):
        stage.kubernetes.get(policy)


# --- objects that wait for the first pass ---------------------------------------------------------
# Objects are reported before the first pass ends only when that takes long, and the report of the
# pass comes last.


def test_a_pass_that_ends_in_time_has_no_report_before() -> None:
    reported: list[str] = []
    with report_pending_if_slow(lambda: reported.append("seen"), 60.0):
        pass
    assert reported == []


def test_a_report_that_was_begun_is_finished_before_the_next() -> None:
    reported: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def report() -> None:
        begun.set()
        go_on.wait(patience(10))
        reported.append("seen")

    with report_pending_if_slow(report, 0.0):
        assert begun.wait(patience(10))
        threading.Timer(0.05, go_on.set).start()
    reported.append("done")
    assert reported == ["seen", "done"]


def test_once_it_is_not_needed_there_is_no_report_however_long_the_rest_takes() -> None:
    reported: list[str] = []
    with report_pending_if_slow(lambda: reported.append("seen"), 60.0) as unneeded:
        unneeded()
        assert not waiting_to_speak()
    assert reported == []


def waiting_to_speak() -> bool:
    return any(isinstance(thread, threading.Timer) for thread in threading.enumerate())


def test_a_pass_that_only_has_much_to_write_is_not_reported_before_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage()
    policy, _ = stage.policy(), stage.tier()
    facts, write = stage.store.facts, stage.store.write
    waiting: list[bool] = []

    def asked() -> Any:
        waiting.append(waiting_to_speak())
        return facts()

    def writing(*args: Any) -> Any:
        waiting.append(waiting_to_speak())
        return write(*args)

    monkeypatch.setattr(stage.store, "facts", asked)
    monkeypatch.setattr(stage.store, "write", writing)
    stage.run()
    assert waiting == [True, False]
    assert stage.condition(policy) == ("True", "InSync")


def test_while_a_cluster_keeps_the_first_pass_waiting_its_objects_are_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(controller_module, "PENDING_AFTER_SECONDS", 0.0)
    stage = Stage()
    policy, tier = stage.policy(), stage.tier()
    seen: list[tuple[str, str]] = []

    def slow() -> object:
        wait_until(
            lambda: "status" in stage.kubernetes.get(tier),
            "a first word",
            timeout_seconds=10,
            poll_seconds=0.005,
        )
        seen.extend([stage.condition(policy), stage.condition(tier)])
        return facts()

    facts = stage.store.facts
    monkeypatch.setattr(stage.store, "facts", slow)
    stage.run()
    assert seen == [("Unknown", "Starting"), ("Unknown", "Starting")]
    assert (stage.condition(policy), stage.condition(tier)) == (
        ("True", "InSync"),
        ("True", "Contract"),
    )
