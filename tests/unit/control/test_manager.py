"""A replica runs the policies that exist and whose Lease it holds, from the first tick to an orderly end."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from controller_logic.reasons import Reason
from lab.process import wait_until
from tests.unit.control.stage import Stage
from tidegate.control import manager as manager_module
from tidegate.control.manager import Manager
from tidegate.control.runtime import Clock
from tidegate.errors import Unreachable
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS, QUOTA_OVERRIDES, ObjectRef

KEY = "streaming/orders"
AWAY = Unreachable(Reason.KUBERNETES_UNREACHABLE, "Kubernetes did not answer.")


class HandLease:
    """A Lease that a test gives and takes. `running_at_release` are the loops that still ran when it was given up."""

    def __init__(self, held: bool) -> None:
        self.held = held
        self.attended = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()
        self.released = 0
        self.running_at_release: list[str] = []

    def attend(self) -> bool:
        self.attended.set()
        self.go_on.wait(10.0)
        return self.held

    def remaining_seconds(self) -> float:
        return 10.0 if self.held else 0.0

    def release(self) -> bool:
        self.released += 1
        self.running_at_release += policy_threads()
        return True


class Replica:
    """A manager on a stage."""

    def __init__(self, stage: Stage, *, held: bool = True) -> None:
        self.stage = stage
        self.held = held
        self.leases: dict[str, HandLease] = {}
        clock = Clock(wall=lambda: stage.now, monotonic=lambda: stage.now)
        stage.world = replace(stage.world, clock=clock)
        self.manager = Manager(stage.world, self._make_lease)

    def _make_lease(self, key: str) -> HandLease:
        self.leases[key] = HandLease(self.held)
        return self.leases[key]

    def start(self) -> None:
        self.manager.start()

    def give(self, held: bool, key: str = KEY) -> None:
        self.leases[key].held = held
        self.manager.wake()


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


def test_a_policy_whose_lease_another_replica_holds_is_left_alone_until_it_is_ours(stage: Stage, start: Start) -> None:
    stage.policy(), stage.tier()
    replica = start(held=False)
    eventually(lambda: KEY in replica.leases and replica.leases[KEY].attended.is_set(), "the Lease to be watched")
    assert (stage.produce(), policy_threads()) == (None, [])
    replica.give(True)
    eventually(lambda: stage.produce() == "10000000", "the quota")


def test_a_lost_lease_ends_the_loop_and_one_regained_starts_it_again(stage: Stage, start: Start) -> None:
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


def test_a_loop_that_died_is_started_again(stage: Stage, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.policy(), stage.tier()
    died = threading.Event()

    class Dying(manager_module.ControlLoop):
        def _run(self) -> None:
            if died.is_set():
                super()._run()
            died.set()

    monkeypatch.setattr(manager_module, "ControlLoop", Dying)
    replica = start()
    assert died.wait(10.0)
    replica.manager.wake()
    eventually(lambda: stage.produce() == "10000000", "the quota")


def test_a_policy_that_is_gone_gives_its_lease_up_after_its_loop_ended(stage: Stage, start: Start) -> None:
    policy = stage.policy(mode="Observe")
    replica = start()
    eventually(policy_threads, "the loop")
    lease = replica.leases[KEY]
    stage.cache.remove(BROKER_BANDWIDTH_POLICIES, policy.uid)
    eventually(lambda: _tick(replica) or lease.released, "the Lease to be given up")
    assert (lease.running_at_release, policy_threads()) == ([], [])


def test_a_list_that_fails_drops_no_policy(stage: Stage, start: Start) -> None:
    stage.policy(), stage.tier()
    replica = start()
    eventually(lambda: stage.produce() == "10000000", "the quota")
    stage.kubernetes.fail_with(AWAY)
    stage.now += stage.world.settings.relist_seconds + 1
    eventually(lambda: _tick(replica) or _failed_lists(stage), "the lists to fail")
    assert (len(policy_threads()), replica.leases[KEY].released) == (1, 0)
    stage.kubernetes.fail_with(None)


def test_nothing_is_started_before_the_policies_were_listed_in_full(stage: Stage, start: Start) -> None:
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
    made = stage.kubernetes.create(QUOTA_OVERRIDES, {"metadata": {"name": "calm", "namespace": "streaming"}, "spec": spec})
    override = ObjectRef.of(QUOTA_OVERRIDES, made)
    replica = start()
    eventually(lambda: stage.cache.snapshot(QUOTA_OVERRIDES), "the override to be seen")
    _tick(replica)
    stage.now += manager_module.ORPHAN_AFTER_SECONDS
    eventually(lambda: _tick(replica) or stage.kubernetes.get(override).get("status"), "the override's status")
    assert stage.condition(override) == ("False", "PolicyNotFound")
    assert stage.kubernetes.get(override)["status"]["state"] == "Pending"


def test_a_tier_without_its_policy_is_reported_and_becomes_ready_when_it_appears(stage: Stage, start: Start) -> None:
    tier = stage.tier()
    replica = start()
    eventually(lambda: stage.cache.snapshot(BUSINESS_TIERS), "the tier to be seen")
    assert "status" not in stage.kubernetes.get(tier)
    stage.now += manager_module.ORPHAN_AFTER_SECONDS
    eventually(lambda: _tick(replica) or stage.kubernetes.get(tier).get("status"), "the tier's status")
    assert stage.condition(tier) == ("False", "PolicyNotFound")
    stage.policy()
    stage.now += stage.world.settings.relist_seconds + 1
    eventually(lambda: _tick(replica) or stage.condition(tier) == ("True", "Contract"), "the tier to be ready")


def test_the_end_gives_leases_up_only_after_the_last_batch(stage: Stage, start: Start) -> None:
    stage.policy(), stage.tier()
    replica = start()
    eventually(lambda: stage.produce() == "10000000", "the quota")
    replica.manager.stop()
    assert (replica.leases[KEY].released, replica.leases[KEY].running_at_release) == (1, [])


def test_a_lease_is_kept_while_its_loop_may_still_be_writing(stage: Stage, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager_module, "_STOP_SECONDS", 0.0)
    stage.policy(), stage.tier()
    writing, go_on = threading.Event(), threading.Event()
    read = stage.store.read

    def slow(entities: object) -> object:
        writing.set()
        go_on.wait(10.0)
        return read(entities)

    monkeypatch.setattr(stage.store, "read", slow)
    replica = start()
    assert writing.wait(10.0)
    replica.manager.stop()
    released_while_writing = replica.leases[KEY].released
    go_on.set()
    eventually(lambda: not policy_threads(), "the loop to end")
    assert released_while_writing == 0


def test_a_loop_that_starts_while_the_end_begins_is_ended_too(stage: Stage, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.policy(), stage.tier()
    listing, go_on = threading.Event(), threading.Event()
    list_all = stage.kubernetes.list_all

    def slow(*arguments: object) -> object:
        listing.set()
        go_on.wait(10.0)
        return list_all(*arguments)

    monkeypatch.setattr(stage.kubernetes, "list_all", slow)
    replica = start()
    assert listing.wait(10.0)
    ending = threading.Thread(target=replica.manager.stop)
    ending.start()
    go_on.set()
    ending.join(10.0)
    assert (ending.is_alive(), policy_threads()) == (False, [])


@pytest.mark.parametrize("silent", ["leases", "manager"])
def test_a_thread_of_the_manager_that_is_stuck_is_missed(stage: Stage, start: Start, monkeypatch: pytest.MonkeyPatch, silent: str) -> None:
    stage.policy(mode="Observe")
    stuck, go_on = threading.Event(), threading.Event()

    def hang(*_: object) -> object:
        stuck.set()
        go_on.wait(10.0)
        raise AWAY

    if silent == "manager":
        monkeypatch.setattr(stage.kubernetes, "list_all", hang)
    else:
        monkeypatch.setattr(HandLease, "attend", hang)
    start(held=False)
    assert stuck.wait(10.0)
    stage.now += 121
    try:
        eventually(lambda: stage.world.vital_signs.silent_seconds() == {silent: 121}, "complaint")
    finally:
        go_on.set()


def _tick(replica: Replica) -> None:
    """Have the manager tick now instead of within a second."""
    replica.manager.wake()


def _failed_lists(stage: Stage) -> bool:
    kinds = ("BrokerBandwidthPolicy", "BusinessTier")
    return all(stage.telemetry.registry.get_sample_value("tidegate_lists_total", {"kind": kind, "result": "failed"}) for kind in kinds)
