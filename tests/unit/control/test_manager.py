"""A replica runs the policies that exist and whose Lease it holds, from the first tick to an
orderly end.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from prometheus_client import generate_latest
from structlog.testing import capture_logs

from lab.process import patience, wait_until
from tests.unit.control.stage import AWAY, Stage
from tidegate.control import manager as manager_module
from tidegate.control.controller import Controller
from tidegate.control.manager import ControlLoop, Manager
from tidegate.control.orphans import ORPHAN_AFTER_SECONDS
from tidegate.control.queues.report import DRAIN_FINALIZER
from tidegate.control.runtime import Cause, Clock, OptionalKind, Wakeup
from tidegate.errors import NotFound, TidegateError, Unauthorized
from tidegate.kube.api import (
    BROKER_BANDWIDTH_POLICIES,
    BUSINESS_TIERS,
    DELAY_QUEUES,
    QUOTA_OVERRIDES,
    Listing,
    ObjectRef,
    ResourceKind,
)
from tidegate.kube.cache import Change
from tidegate_logic.reasons import Reason

KEY = "streaming/orders"


class HandLease:
    """A Lease that a test gives and takes. `running_at_release` are the loops that still ran when
    it was given up.
    """

    def __init__(self, held: bool) -> None:
        self.held = held
        self.is_silent = False
        self.holder = ""
        self.attended = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()
        self.released = 0
        self.obsolete = False
        self.running_at_release: list[str] = []

    def attend(self) -> bool:
        self.attended.set()
        self.go_on.wait(patience(10))
        return self.held

    def remaining_seconds(self) -> float:
        return 10.0 if self.held else 0.0

    def is_soon_ours(self) -> bool:
        return self.is_silent

    def seconds_until_due(self) -> float:
        return 0.0

    def release(self, *, is_obsolete: bool = False) -> bool:
        self.released += 1
        self.obsolete = is_obsolete
        self.running_at_release += policy_threads()
        return True


class HandShare:
    """A Share that asks for one policy to be handed over when a test says so."""

    def __init__(self) -> None:
        self.wanted: str | None = None
        self.is_first = True
        self.attended = threading.Event()
        self.released = 0

    def attend(self) -> None:
        self.attended.set()

    def seconds_until_due(self) -> float:
        return 0.0

    def alive(self) -> dict[int, str]:
        return {0: "this", 1: "other"}

    def ranks_first(self, _: str) -> bool:
        return self.is_first

    def next_to_hand_over(self, held: Collection[str], _: Callable[[str], str]) -> str | None:
        wanted, self.wanted = self.wanted, None
        return wanted if wanted in held else None

    def release(self) -> None:
        self.released += 1


class Replica:
    """A manager on a stage."""

    def __init__(self, stage: Stage, *, held: bool = True) -> None:
        self.share = HandShare()
        self.stage = stage
        self.held = held
        self.leases: dict[str, HandLease] = {}
        clock = Clock(wall=lambda: stage.now, monotonic=lambda: stage.now)
        stage.world = replace(stage.world, clock=clock)
        self.manager = Manager(stage.world, self._make_lease, share=self.share)
        stage.cache._changed = self.manager.changed

    def _make_lease(self, key: str) -> HandLease:
        self.leases[key] = HandLease(self.held)
        return self.leases[key]

    def start(self) -> None:
        self.manager.start()

    def give(self, held: bool, key: str = KEY) -> None:
        self.leases[key].held = held
        self.manager.look_now()


def policy_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("policy ")]


def eventually(condition: Callable[[], object], what: str) -> None:
    wait_until(condition, what, timeout_seconds=10, poll_seconds=0.005)


@pytest.fixture
def start(stage: Stage) -> Iterator[Callable[..., Replica]]:
    """Starts a manager, which is stopped at the end."""
    started: list[Replica] = []

    def start(*, held: bool = True) -> Replica:
        started.append(Replica(stage, held=held))
        started[-1].start()
        return started[-1]

    yield start
    for replica in started:
        for lease in replica.leases.values():
            lease.go_on.set()
        replica.manager.stop()
    assert policy_threads() == []


Start = Callable[..., Replica]


def test_a_policy_whose_lease_is_held_is_worked_for(stage: Stage, start: Start) -> None:
    stage.policy(), stage.tier()
    start()
    eventually(lambda: stage.produce() == "10000000", "the quota")
    assert policy_threads() == [f"policy {KEY}"]


def test_a_policy_whose_lease_another_replica_holds_is_left_alone_until_it_is_ours(
    stage: Stage, start: Start
) -> None:
    stage.policy(), stage.tier()
    replica = start(held=False)
    eventually(
        lambda: KEY in replica.leases and replica.leases[KEY].attended.is_set(),
        "the Lease to be watched",
    )
    assert (stage.produce(), policy_threads()) == (None, [])
    replica.give(True)
    eventually(lambda: stage.produce() == "10000000", "the quota")


def test_a_policy_whose_holder_seems_dead_is_read_ahead_and_nothing_else(
    stage: Stage, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, tier = stage.policy(), stage.tier()
    ahead, passed = list[Controller](), list[Controller]()
    prepare, pass_once = Controller.prepare, Controller.pass_once
    monkeypatch.setattr(Controller, "prepare", lambda one: (prepare(one), ahead.append(one)))
    monkeypatch.setattr(
        Controller, "pass_once", lambda one: (passed.append(one), pass_once(one))[1]
    )
    replica = start(held=False)
    eventually(lambda: KEY in replica.leases, "the Lease to be watched")
    replica.leases[KEY].is_silent = True
    eventually(lambda: _tick(replica) or ahead, "the policy to be read ahead")
    _tick(replica)
    assert len(ahead) == 1
    assert (stage.produce(), policy_threads(), passed) == (None, [], [])
    assert all("status" not in stage.kubernetes.get(ref) for ref in (policy, tier))
    replica.give(True)
    eventually(lambda: stage.produce() == "10000000", "the quota")
    assert passed[0] is ahead[0]


def test_what_was_read_ahead_for_a_holder_that_came_back_is_closed(
    stage: Stage, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.policy(), stage.tier()
    closed = list[Controller]()
    close = Controller.close
    monkeypatch.setattr(Controller, "close", lambda one: (closed.append(one), close(one)))
    replica = start(held=False)
    eventually(lambda: KEY in replica.leases, "the Lease to be watched")
    replica.leases[KEY].is_silent = True
    eventually(lambda: _tick(replica) or replica.manager._prepared, "the policy to be read ahead")
    replica.leases[KEY].is_silent = False
    _tick(replica)
    assert closed == []
    stage.now += 30.0
    eventually(lambda: _tick(replica) or closed, "the end of what was read")
    assert replica.manager._prepared == {}


def test_what_was_read_ahead_for_a_policy_that_was_made_again_is_not_used(
    stage: Stage, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.policy(), stage.tier()
    replica = start(held=False)
    eventually(lambda: KEY in replica.leases, "the Lease to be watched")
    old = replica.leases[KEY]
    old.is_silent = True
    eventually(lambda: _tick(replica) or replica.manager._prepared, "the policy to be read ahead")
    ahead = replica.manager._prepared[KEY].controller
    used = list[Controller]()
    pass_once = Controller.pass_once
    monkeypatch.setattr(Controller, "pass_once", lambda one: (used.append(one), pass_once(one))[1])
    replica.manager._leases[KEY] = HandLease(True)  # as of a policy with the same name
    eventually(lambda: _tick(replica) or used, "its first pass")
    assert ahead not in used


def test_a_cluster_that_does_not_answer_who_reads_ahead_is_met_by_the_first_pass(
    stage: Stage, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = stage.policy()
    stage.tier()
    begun, answers = threading.Event(), threading.Event()

    def prepare(_: Controller) -> None:
        begun.set()
        answers.wait(patience(20))
        raise ValueError("a bug")

    monkeypatch.setattr(Controller, "prepare", prepare)
    replica = start(held=False)
    eventually(lambda: KEY in replica.leases, "the Lease to be watched")
    replica.leases[KEY].is_silent = True
    eventually(lambda: _tick(replica) or begun.is_set(), "the policy to be read ahead")
    replica.give(True)
    _tick(replica)
    assert policy_threads() == []  # a pass would wait for the same answer
    answers.set()
    eventually(lambda: stage.produce() == "10000000", "the quota")
    eventually(lambda: stage.kubernetes.get(policy).get("status"), "its status")


def test_a_lost_lease_ends_the_loop_and_one_regained_starts_it_again(
    stage: Stage, start: Start
) -> None:
    stage.policy(), stage.tier()
    replica = start()
    eventually(policy_threads, "the loop")
    replica.give(False)
    eventually(lambda: not policy_threads(), "the loop to end")
    replica.give(True)
    eventually(policy_threads, "the loop to come back")
    assert policy_threads() == [f"policy {KEY}"]


def test_every_policy_has_a_lease_and_a_loop_of_its_own(stage: Stage, start: Start) -> None:
    stage.policy(), stage.policy("payments")
    replica = start()
    eventually(lambda: len(policy_threads()) == 2, "two loops")
    assert sorted(replica.leases) == [KEY, "streaming/payments"]


def test_a_loop_that_died_is_started_again(
    stage: Stage, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.policy(), stage.tier()
    died = threading.Event()

    class Dying(manager_module.ControlLoop):
        def _run(self) -> None:
            if died.is_set():
                super()._run()
            died.set()

    monkeypatch.setattr(manager_module, "ControlLoop", Dying)
    replica = start()
    assert died.wait(patience(10))
    replica.manager.look_now()
    eventually(lambda: stage.produce() == "10000000", "the quota")


def test_a_policy_that_is_gone_gives_its_lease_up_after_its_loop_ended(
    stage: Stage, start: Start
) -> None:
    policy = stage.policy(mode="Observe")
    replica = start()
    eventually(policy_threads, "the loop")
    lease = replica.leases[KEY]
    stage.cache.remove(BROKER_BANDWIDTH_POLICIES, policy.uid)
    eventually(lambda: _tick(replica) or lease.released, "the Lease to be given up")
    assert lease.obsolete
    assert (lease.running_at_release, policy_threads()) == ([], [])


def test_a_policy_is_handed_over_when_its_loop_has_ended_and_its_lease_is_then_watched(
    stage: Stage, start: Start
) -> None:
    stage.policy(mode="Observe"), stage.policy("payments", mode="Observe")
    replica = start()
    eventually(lambda: len(policy_threads()) == 2, "two loops")
    given = replica.leases[KEY]
    assert replica.share.attended.wait(patience(10))
    replica.held, replica.share.wanted = False, KEY
    with capture_logs() as lines:
        eventually(lambda: _tick(replica) or given.released, "the Lease to be given up")
        assert f"policy {KEY}" not in given.running_at_release
        assert not given.obsolete
        eventually(lambda: _tick(replica) or replica.leases[KEY] is not given, "a new look")
        assert replica.leases[KEY].attended.wait(patience(10))
    said = [line["event"] for line in lines if line["event"] != "Event"]
    assert said == ["Policy handed over"]
    assert policy_threads() == ["policy streaming/payments"]
    replica.manager.stop()
    assert (given.released, replica.share.released) == (1, 1)
    page = generate_latest(stage.telemetry.registry).decode()
    assert "tidegate_replicas_alive 2.0" in page


def test_a_list_that_fails_drops_no_policy(stage: Stage, start: Start) -> None:
    stage.policy(), stage.tier()
    replica = start()
    eventually(lambda: stage.produce() == "10000000", "the quota")
    stage.kubernetes.fail_with(AWAY)
    stage.now += stage.world.settings.relist_seconds + 1
    eventually(lambda: _tick(replica) or _failed_lists(stage), "the lists to fail")
    assert (len(policy_threads()), replica.leases[KEY].released) == (1, 0)
    stage.kubernetes.fail_with(None)


def test_nothing_is_started_before_the_policies_were_listed_in_full(
    stage: Stage, start: Start
) -> None:
    stage.policy(), stage.tier()
    stage.kubernetes.fail_with(AWAY)
    replica = start()
    assert (replica.leases, policy_threads()) == ({}, [])
    stage.kubernetes.fail_with(None)
    stage.now += 60
    eventually(lambda: _tick(replica) or stage.produce() == "10000000", "the quota")


def test_an_override_without_its_policy_is_reported(stage: Stage, start: Start) -> None:
    spec = {"policyRef": {"name": "orders"}, "target": {"user": "alice"}, "action": "Exempt"}
    spec |= {"expiresAt": "2026-01-30T00:00:00Z", "reason": "agreed"}
    made = stage.kubernetes.create(
        QUOTA_OVERRIDES, {"metadata": {"name": "calm", "namespace": "streaming"}, "spec": spec}
    )
    override = ObjectRef.of(QUOTA_OVERRIDES, made)
    replica = start()
    eventually(lambda: stage.cache.snapshot(QUOTA_OVERRIDES), "the override to be seen")
    _orphaned_for_long(stage, replica)
    eventually(
        lambda: _tick(replica) or stage.kubernetes.get(override).get("status"),
        "the override's status",
    )
    assert stage.condition(override) == ("False", "PolicyNotFound")
    assert stage.kubernetes.get(override)["status"]["state"] == "Pending"


def test_many_policies_that_go_at_a_slow_api_server_leave_the_manager_alive(
    stage: Stage, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    refs = [stage.policy(f"p{number}") for number in range(5)]
    replica = start(held=False)
    eventually(lambda: len(replica.leases) == 5, "the Leases to be watched")
    silent: list[object] = []

    def slow(_: HandLease, **__: bool) -> bool:
        silent.append(stage.world.vital_signs.failure_text())
        stage.now += 100
        return True

    monkeypatch.setattr(HandLease, "release", slow)
    for ref in refs:
        stage.kubernetes.delete(ref)
    stage.now += stage.world.settings.relist_seconds
    eventually(lambda: _tick(replica) or len(silent) == 5, "the Leases to be given up")
    assert not any("manager" in str(one) for one in silent), silent


def test_of_a_policy_in_a_namespace_that_is_not_watched_nothing_is_said(
    stage: Stage, start: Start
) -> None:
    elsewhere = {"policyRef": {"name": "orders", "namespace": "kafka"}, "level": "L0"}
    metadata = {"name": "theirs", "namespace": "streaming"}
    stage.kubernetes.create(
        BUSINESS_TIERS, {"metadata": metadata, "spec": {**elsewhere, "members": []}}
    )
    ours = stage.tier()
    settings = replace(stage.world.settings, namespaces=("streaming",))
    stage.world = replace(stage.world, settings=settings)
    replica = start()
    eventually(lambda: len(stage.cache.snapshot(BUSINESS_TIERS)) == 2, "the tiers to be seen")
    _orphaned_for_long(stage, replica)
    eventually(
        lambda: _tick(replica) or stage.kubernetes.get(ours).get("status"), "our tier's status"
    )
    assert stage.condition(ours) == ("False", "PolicyNotFound")
    (theirs,) = (
        raw
        for raw in stage.kubernetes.list_all(BUSINESS_TIERS).items
        if raw["metadata"]["name"] == "theirs"
    )
    assert "status" not in theirs


def _queue(stage: Stage) -> ObjectRef:
    """A queue that was drained once, by a policy that is not there any more."""
    stage.world.optional_kinds[DELAY_QUEUES] = OptionalKind()
    metadata = {"name": "unpaid", "namespace": "streaming", "finalizers": [DRAIN_FINALIZER]}
    spec = {"policyRef": {"name": "orders"}}
    made = stage.kubernetes.create(DELAY_QUEUES, {"metadata": metadata, "spec": spec})
    return ObjectRef.of(DELAY_QUEUES, made)


def test_a_queue_without_its_policy_is_reported(stage: Stage, start: Start) -> None:
    queue = _queue(stage)
    replica = start()
    eventually(lambda: stage.cache.snapshot(DELAY_QUEUES), "the queue to be seen")
    _orphaned_for_long(stage, replica)
    eventually(
        lambda: _tick(replica) or stage.kubernetes.get(queue).get("status"), "the queue's status"
    )
    assert stage.condition(queue) == ("False", "PolicyNotFound")


def test_a_deleted_queue_without_its_policy_is_let_go(stage: Stage, start: Start) -> None:
    queue = _queue(stage)
    stage.kubernetes.delete(queue)
    replica = start()
    eventually(lambda: stage.cache.snapshot(DELAY_QUEUES), "the queue to be seen")
    _orphaned_for_long(stage, replica)
    eventually(
        lambda: _tick(replica) or not stage.kubernetes.list_all(DELAY_QUEUES), "the queue's end"
    )


@pytest.mark.parametrize(
    "why",
    [
        NotFound(Reason.LIST_INCOMPLETE, "Kubernetes does not serve it."),
        Unauthorized("Kubernetes refused it (403)."),
    ],
)
def test_an_optional_kind_is_looked_for_every_minute_and_the_others_are_not_listed_more_often(
    stage: Stage, start: Start, monkeypatch: pytest.MonkeyPatch, why: TidegateError
) -> None:
    stage.world.optional_kinds[DELAY_QUEUES] = OptionalKind()
    listed: list[ResourceKind] = []
    list_all = stage.kubernetes.list_all

    def count(kind: ResourceKind, namespaces: Sequence[str] = ()) -> Listing:
        listed.append(kind)
        return cast(Listing, list_all(kind, namespaces))

    monkeypatch.setattr(stage.kubernetes, "list_all", count)
    stage.kubernetes.refuse_lists(DELAY_QUEUES, why)
    replica = start()
    eventually(lambda: DELAY_QUEUES in listed, "the lists")
    assert DELAY_QUEUES not in stage.world.kinds
    for _ in range(3):
        stage.now += 61
        for _ in range(5):
            replica.manager._tick()
    assert listed.count(BROKER_BANDWIDTH_POLICIES) == 1
    assert listed.count(DELAY_QUEUES) >= 4
    stage.kubernetes.refuse_lists(DELAY_QUEUES, None)
    stage.now += 61
    replica.manager._tick()
    assert DELAY_QUEUES in stage.world.kinds
    assert listed.count(BROKER_BANDWIDTH_POLICIES) == 1


def test_a_tier_without_its_policy_is_reported_and_becomes_ready_when_it_appears(
    stage: Stage, start: Start
) -> None:
    tier = stage.tier()
    replica = start()
    eventually(lambda: stage.cache.snapshot(BUSINESS_TIERS), "the tier to be seen")
    assert "status" not in stage.kubernetes.get(tier)
    _orphaned_for_long(stage, replica)
    eventually(
        lambda: _tick(replica) or stage.kubernetes.get(tier).get("status"), "the tier's status"
    )
    assert stage.condition(tier) == ("False", "PolicyNotFound")
    stage.policy()
    stage.now += stage.world.settings.relist_seconds + 1
    eventually(
        lambda: _tick(replica) or stage.condition(tier) == ("True", "Contract"),
        "the tier to be ready",
    )


def test_many_tiers_without_their_policy_do_not_hold_up_the_start_of_a_loop(
    stage: Stage, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier, answers = stage.tier(), threading.Event()
    put = stage.kubernetes.patch_status
    monkeypatch.setattr(
        stage.kubernetes,
        "patch_status",
        lambda *what, **version: answers.wait(patience(20)) and put(*what, **version),
    )
    replica = start()
    eventually(lambda: stage.cache.snapshot(BUSINESS_TIERS), "the tier to be seen")
    _orphaned_for_long(stage, replica)
    _tick(replica)
    policy = stage.policy(name="payments")
    stage.now += stage.world.settings.relist_seconds + 1
    eventually(lambda: _tick(replica) or "policy streaming/payments" in policy_threads(), "a loop")
    assert "status" not in stage.kubernetes.get(tier)
    answers.set()
    eventually(lambda: stage.kubernetes.get(tier).get("status"), "the tier's status")
    eventually(lambda: stage.kubernetes.get(policy).get("status"), "the policy's status")


def test_four_policies_at_once_begin_their_first_pass_and_one_that_hangs_keeps_no_other_back(
    stage: Stage, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(10):
        stage.policy(name=f"p{number}")
    hangs, first = threading.Event(), list[str]()

    def pass_once(controller: Controller) -> float:
        first.append(controller._key)
        hangs.wait(patience(20))
        return 30.0

    monkeypatch.setattr(Controller, "pass_once", pass_once)
    replica = start()
    eventually(lambda: _tick(replica) or len(first) == 4, "four first passes")
    time.sleep(0.1)
    _tick(replica)
    assert len(first) == 4
    stage.now += 2.0
    eventually(lambda: _tick(replica) or len(first) == 8, "four more, beside those that hang")
    hangs.set()
    eventually(lambda: len(first) == 10, "all")


def test_one_replica_reports_a_tier_without_its_policy(stage: Stage, start: Start) -> None:
    tier = stage.tier()
    replica = start()
    replica.share.is_first = False
    eventually(lambda: stage.cache.snapshot(BUSINESS_TIERS), "the tier to be seen")
    _orphaned_for_long(stage, replica)
    for _ in range(3):
        _tick(replica)
    time.sleep(0.1)
    assert "status" not in stage.kubernetes.get(tier)
    replica.share.is_first = True
    eventually(
        lambda: _tick(replica) or stage.kubernetes.get(tier).get("status"), "the tier's status"
    )


def test_the_end_gives_leases_up_only_after_the_last_batch(stage: Stage, start: Start) -> None:
    stage.policy(), stage.tier()
    replica = start()
    eventually(lambda: stage.produce() == "10000000", "the quota")
    replica.manager.stop()
    assert (replica.leases[KEY].released, replica.leases[KEY].running_at_release) == (1, [])


def test_a_lease_is_kept_while_its_loop_may_still_be_writing(
    stage: Stage, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager_module, "_STOP_SECONDS", 0.0)
    stage.policy(), stage.tier()
    writing, go_on = threading.Event(), threading.Event()
    read = stage.store.read

    def slow(entities: object) -> object:
        writing.set()
        go_on.wait(patience(10))
        return read(entities)

    monkeypatch.setattr(stage.store, "read", slow)
    replica = start()
    assert writing.wait(patience(10))
    replica.manager.stop()
    released_while_writing = replica.leases[KEY].released
    go_on.set()
    eventually(lambda: not policy_threads(), "the loop to end")
    assert released_while_writing == 0


def test_a_loop_that_starts_while_the_end_begins_is_ended_too(
    stage: Stage, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.policy(), stage.tier()
    listing, go_on = threading.Event(), threading.Event()
    list_all = stage.kubernetes.list_all

    def slow(*arguments: object) -> object:
        listing.set()
        go_on.wait(patience(10))
        return list_all(*arguments)

    monkeypatch.setattr(stage.kubernetes, "list_all", slow)
    replica = start()
    assert listing.wait(patience(10))
    ending = threading.Thread(target=replica.manager.stop)
    ending.start()
    go_on.set()
    ending.join(patience(10))
    assert (ending.is_alive(), policy_threads()) == (False, [])


@pytest.mark.parametrize("silent", [f"Lease of {KEY}", "manager"])
def test_a_thread_of_the_manager_that_is_stuck_is_missed(
    stage: Stage, start: Start, monkeypatch: pytest.MonkeyPatch, silent: str
) -> None:
    stage.policy(mode="Observe")
    stuck, go_on = threading.Event(), threading.Event()

    def hang(*_: object) -> object:
        stuck.set()
        go_on.wait(patience(10))
        raise AWAY

    if silent == "manager":
        monkeypatch.setattr(stage.kubernetes, "list_all", hang)
    else:
        monkeypatch.setattr(HandLease, "attend", hang)
    start(held=False)
    assert stuck.wait(patience(10))
    stage.now += 121
    try:
        eventually(lambda: stage.world.vital_signs.silent_seconds() == {silent: 121}, "complaint")
    finally:
        go_on.set()


def _orphaned_for_long(stage: Stage, replica: Replica) -> None:
    """Let the manager see what lacks its policy, and the time go by until it may say so."""
    eventually(lambda: _tick(replica) or replica.manager._orphans._since_seconds, "the orphans")
    stage.now += ORPHAN_AFTER_SECONDS


def _tick(replica: Replica) -> None:
    """Have the manager tick now instead of within a second."""
    replica.manager.look_now()


def _failed_lists(stage: Stage) -> bool:
    kinds = ("BrokerBandwidthPolicy", "BusinessTier")
    return all(
        stage.telemetry.registry.get_sample_value(
            "tidegate_lists_total", {"kind": kind, "result": "failed"}
        )
        for kind in kinds
    )


# --- whom an event wakes ------------------------------------------------------------------------


POLICIES = ("orders", "payments", "search")


def tier_of(policy: object, version: str, *, namespace: str = "streaming") -> dict[str, Any]:
    metadata = {"namespace": namespace, "name": "gold", "uid": "1", "resourceVersion": version}
    return {"metadata": metadata, "spec": {"policyRef": policy, "level": f"L{version}"}}


def poked(stage: Stage) -> list[str]:
    return [
        name
        for name in POLICIES
        if stage.telemetry.registry.get_sample_value(
            "tidegate_wakes_total",
            {"policy_namespace": "streaming", "policy": name, "cause": "objects"},
        )
    ]


@pytest.mark.parametrize(
    ("before", "after", "woken"),
    [
        ({"name": "orders"}, {"name": "orders"}, ["orders"]),
        ({"name": "orders"}, {"name": "search"}, ["orders", "search"]),
        ({"name": "orders"}, None, ["orders"]),
        (None, {"name": "search"}, ["search"]),
        ({"name": "orders"}, {"name": 7}, ["orders", "payments", "search"]),
        ({"name": "unheard-of"}, {"name": "unheard-of"}, []),
    ],
    ids=["its-own", "moved", "deleted", "created", "unreadable", "no-policy"],
)
def test_a_tier_wakes_the_policies_that_it_belongs_to_and_belonged_to_and_no_other(
    stage: Stage, start: Start, before: object, after: object, woken: list[str]
) -> None:
    for name in POLICIES:
        stage.policy(name, mode="Observe")
    replica = start()
    eventually(lambda: len(policy_threads()) == 3, "three loops")
    versions = [
        None if policy is None else tier_of(policy, str(number))
        for number, policy in enumerate((before, after))
    ]
    elsewhere = tier_of({"name": "payments"}, "1", namespace="elsewhere")
    replica.manager.changed(
        [Change(BUSINESS_TIERS, *versions), Change(BUSINESS_TIERS, None, elsewhere)]
    )
    eventually(lambda: poked(stage) == woken, f"{woken} to be woken")
    threading.Event().wait(0.1)
    assert poked(stage) == woken


def test_an_edit_of_a_policy_wakes_it_alone(stage: Stage, start: Start) -> None:
    refs = [stage.policy(name, mode="Observe") for name in POLICIES]
    start()
    eventually(lambda: len(policy_threads()) == 3, "three loops")
    edited = stage.kubernetes.edit(refs[1], lambda raw: raw["spec"].update(suspend=True))
    stage.cache.put(BROKER_BANDWIDTH_POLICIES, edited or stage.kubernetes.get(refs[1]))
    eventually(lambda: poked(stage) == ["payments"], "payments to be woken")
    threading.Event().wait(0.1)
    assert poked(stage) == ["payments"]


# --- the loop of one policy -----------------------------------------------------------------------
# A policy's thread goes on whatever a pass raises, and passes when brokers or leaders move, without
# a second event.


FAR_SECONDS = 600.0
NAMESPACE, NAME = KEY.split("/")


class Passes:
    """A controller that counts its passes. `errors` are raised by the next ones, `next_in_seconds`
    is what each returns.
    """

    def __init__(self) -> None:
        self.count = 0
        self.broken: list[Exception] = []
        self.errors: list[Exception] = []
        self.next_in_seconds = FAR_SECONDS
        self.closed = False
        self.looked = threading.Event()
        self.moved = False
        self.follows_moves = False
        self.reassigned = False

    def pass_once(self) -> float:
        self.count += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.next_in_seconds

    def broke(self, error: Exception) -> float:
        self.broken.append(error)
        return 0.0

    def leaders_moved(self) -> bool:
        self.looked.set()
        return self.moved

    def reassignments_changed(self) -> bool:
        self.looked.set()
        was, self.reassigned = self.reassigned, False
        return was

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def passes() -> Passes:
    return Passes()


@pytest.fixture
def loop(stage: Stage, passes: Passes) -> Iterator[ControlLoop]:
    controller: Any = passes
    loop = ControlLoop(KEY, stage.world, controller, Wakeup(quiet_seconds=0.0))
    yield loop
    loop.ask_to_stop()
    assert loop.wait(patience(10))


def passed(passes: Passes, times: int) -> None:
    wait_until(
        lambda: passes.count >= times, f"pass {times}", timeout_seconds=10, poll_seconds=0.005
    )


def wakes(stage: Stage, cause: Cause) -> float:
    return (
        stage.telemetry.registry.get_sample_value(
            "tidegate_wakes_total",
            {"policy_namespace": NAMESPACE, "policy": NAME, "cause": cause.value},
        )
        or 0.0
    )


def test_the_first_pass_waits_for_nothing(loop: ControlLoop, passes: Passes) -> None:
    loop.start()
    passed(passes, 1)
    assert passes.count == 1


@pytest.mark.parametrize("cause", [Cause.OBJECTS, Cause.BROKERS])
def test_an_event_brings_a_pass_long_before_it_is_due(
    stage: Stage, loop: ControlLoop, passes: Passes, cause: Cause
) -> None:
    loop.start()
    passed(passes, 1)
    loop.wake(cause)
    passed(passes, 2)
    assert wakes(stage, cause) == 1


@pytest.mark.parametrize("follows", [True, False])
def test_a_reassignment_brings_a_pass_where_the_policy_follows_them(
    stage: Stage, passes: Passes, follows: bool
) -> None:
    passes.follows_moves, passes.reassigned = follows, True
    loop = loop_that_may_pass(stage, passes, at_once=3, distance_seconds=0.5)
    loop.start()
    passed(passes, 1)
    if follows:
        passed(passes, 2)
    else:
        assert not passes.looked.wait(1.5)
    loop.ask_to_stop()
    assert loop.wait(patience(10))
    assert wakes(stage, Cause.REASSIGNMENTS) == (1 if follows else 0)


def loop_that_may_pass(
    stage: Stage, passes: Passes, *, at_once: int, distance_seconds: float
) -> ControlLoop:
    """A loop on real time."""
    settings = replace(
        stage.world.settings,
        passes_at_once=at_once,
        least_pass_distance_seconds=distance_seconds,
    )
    controller: Any = passes
    world = replace(stage.world, settings=settings, clock=Clock())
    return ControlLoop(KEY, world, controller, Wakeup(quiet_seconds=0.0))


def test_a_flood_of_changes_brings_one_pass_a_distance_and_the_last_change_is_served(
    stage: Stage, passes: Passes
) -> None:
    loop = loop_that_may_pass(stage, passes, at_once=3, distance_seconds=0.5)
    loop.start()
    passed(passes, 1)
    begun = time.monotonic()
    eventually(lambda: loop.wake(Cause.OBJECTS) or passes.count >= 1 + 3 + 2, "two at a distance")
    during, distances = passes.count, (time.monotonic() - begun) / 0.5
    passed(passes, during + 1)
    loop.ask_to_stop()
    assert loop.wait(patience(10))
    # the first, three at once, and one each half a second from then on
    assert during <= 1 + 3 + 1 + distances
    assert wakes(stage, Cause.OBJECTS) == passes.count - 1
    assert wakes(stage, Cause.TIMER) == 0


@pytest.mark.parametrize("cause", [Cause.BROKERS, Cause.METRICS])
def test_nothing_but_edits_waits_for_the_distance(
    stage: Stage, passes: Passes, cause: Cause
) -> None:
    loop = loop_that_may_pass(stage, passes, at_once=1, distance_seconds=600.0)
    loop.start()
    passed(passes, 1)
    loop.wake(Cause.OBJECTS)
    passed(passes, 2)
    loop.wake(Cause.OBJECTS)
    threading.Event().wait(0.1)
    assert passes.count == 2, "the second edit waits"
    loop.wake(cause)
    passed(passes, 3)
    assert (wakes(stage, cause), wakes(stage, Cause.OBJECTS)) == (1, 2), "it brings the edit along"
    loop.ask_to_stop()
    assert loop.wait(patience(10))


def test_a_loop_that_waits_for_the_distance_ends_at_once(stage: Stage, passes: Passes) -> None:
    loop = loop_that_may_pass(stage, passes, at_once=1, distance_seconds=600.0)
    loop.start()
    passed(passes, 1)
    loop.wake(Cause.OBJECTS)
    passed(passes, 2)
    loop.wake(Cause.OBJECTS)
    threading.Event().wait(0.1)
    loop.ask_to_stop()
    assert loop.wait(patience(10))
    assert passes.count == 2


def test_a_pass_that_is_due_comes_by_itself(
    stage: Stage, loop: ControlLoop, passes: Passes
) -> None:
    passes.next_in_seconds = 0.0
    loop.start()
    passed(passes, 3)
    assert wakes(stage, Cause.TIMER) >= 2


def test_whatever_a_pass_raises_is_reported_and_the_next_one_comes(
    loop: ControlLoop, passes: Passes
) -> None:
    passes.errors = [ValueError("a bug"), KeyError("another")]
    loop.start()
    passed(passes, 3)
    assert [type(error) for error in passes.broken] == [ValueError, KeyError]


def test_leaders_that_move_after_a_broker_event_bring_a_pass_without_a_further_event(
    loop: ControlLoop, passes: Passes
) -> None:
    loop.start()
    passed(passes, 1)
    loop.wake(Cause.BROKERS)
    passed(passes, 2)
    assert passes.looked.wait(patience(10))
    assert passes.count == 2, "nothing had moved yet"
    passes.moved = True
    passed(passes, 3)


def test_leaders_are_not_asked_for_where_no_broker_came_or_went(
    loop: ControlLoop, passes: Passes
) -> None:
    passes.moved = True
    loop.start()
    passed(passes, 1)
    loop.wake(Cause.OBJECTS)
    passed(passes, 2)
    assert not passes.looked.is_set()


def test_a_loop_that_has_to_stop_closes_its_connection_and_is_not_missed(
    stage: Stage, loop: ControlLoop, passes: Passes
) -> None:
    loop.start()
    passed(passes, 1)
    loop.ask_to_stop()
    assert loop.wait(patience(10))
    stage.now += 10_000
    assert (passes.closed, stage.world.vital_signs.failure_text()) == (True, None)


def test_a_loop_that_is_stuck_in_a_pass_is_missed(stage: Stage, passes: Passes) -> None:
    stuck, go_on = threading.Event(), threading.Event()

    class Stuck(Passes):
        def pass_once(self) -> float:
            stuck.set()
            go_on.wait(patience(10))
            return FAR_SECONDS

    controller: Any = Stuck()
    loop = ControlLoop(KEY, stage.world, controller, Wakeup())
    loop.start()
    assert stuck.wait(patience(10))
    stage.now += 121
    silent = stage.world.vital_signs.silent_seconds()
    loop.ask_to_stop()
    go_on.set()
    assert loop.wait(patience(10))
    assert silent == {f"policy {KEY}": 121}
