"""A Lease has one writer at a time, whatever the clocks, the network and people do."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles.kubernetes import InMemoryKubernetes
from tests.unit.hands import Hands
from tidegate.errors import OutcomeUnknown, TidegateError, Unauthorized, Unreachable
from tidegate.kube.api import LeaseRecord
from tidegate.kube.lease import LeaseAddress, LeaseList, LeftLeases, SharedLease
from tidegate_logic.reasons import Reason

_LABELS = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
_NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?", fullmatch=True)
AWAY = Unreachable(Reason.KUBERNETES_UNREACHABLE, "Kubernetes did not answer.")


def replica(
    kubernetes: InMemoryKubernetes, clock: Hands, identity: str, wall: float = 0.0
) -> SharedLease:
    return SharedLease(
        kubernetes,
        identity,
        LeaseAddress.of_policy("streaming/orders", operator_namespace="tidegate"),
        monotonic=clock,
        wall=lambda: wall + clock.now,
    )


def test_the_first_replica_holds_it_for_the_duration_less_the_margin(
    kubernetes: InMemoryKubernetes, clock: Hands
) -> None:
    first = replica(kubernetes, clock, "a")
    assert first.attend()
    assert first.remaining_seconds() == 8.0
    clock.now += 8.0
    assert first.remaining_seconds() == 0.0


def test_a_renewing_holder_is_never_replaced(kubernetes: InMemoryKubernetes, clock: Hands) -> None:
    first, second = replica(kubernetes, clock, "a"), replica(kubernetes, clock, "b")
    for _ in range(40):
        assert (first.attend(), second.attend()) == (True, False)
        clock.now += 2.5


@pytest.mark.parametrize("lived_ticks", range(24))
def test_a_silent_holder_is_replaced_within_12_seconds(
    kubernetes: InMemoryKubernetes, clock: Hands, lived_ticks: int
) -> None:
    first, second = replica(kubernetes, clock, "a"), replica(kubernetes, clock, "b")
    first.attend()
    for _ in range(lived_ticks):
        second.attend()
        first.attend()
        clock.now += 0.5
    died_at = clock.now
    while not second.attend():
        clock.now += 0.5
    assert clock.now - died_at <= 12
    assert (first.remaining_seconds(), second.holder) == (0.0, "b")


def test_the_next_look_comes_when_the_silent_holders_turn_ends(
    kubernetes: InMemoryKubernetes, clock: Hands
) -> None:
    first, second = replica(kubernetes, clock, "a"), replica(kubernetes, clock, "b")
    first.attend()
    second.attend()
    clock.now += 9
    assert not second.attend()
    assert second.seconds_until_due() == 1.0


@pytest.mark.parametrize("wall", [-1e6, 1e6])
def test_the_remote_clock_does_not_matter(
    kubernetes: InMemoryKubernetes, clock: Hands, wall: float
) -> None:
    replica(kubernetes, clock, "a", wall=wall).attend()
    assert not replica(kubernetes, clock, "b").attend()


def test_a_lost_holder_may_not_write_when_it_wakes_up(
    kubernetes: InMemoryKubernetes, clock: Hands
) -> None:
    first, second = replica(kubernetes, clock, "a"), replica(kubernetes, clock, "b")
    first.attend()
    second.attend()
    clock.now += 30
    assert (second.attend(), first.attend()) == (True, False)
    assert first.holder == "b"


@pytest.mark.parametrize("error", [AWAY, OutcomeUnknown("The connection broke.")])
def test_an_outage_lets_the_turn_run_out_and_then_come_back(
    kubernetes: InMemoryKubernetes, clock: Hands, error: TidegateError
) -> None:
    first = replica(kubernetes, clock, "a")
    first.attend()
    kubernetes.fail_with(error)
    clock.now += 6
    assert first.attend()
    clock.now += 6
    assert not first.attend()
    kubernetes.fail_with(None)
    clock.now += 5
    assert first.attend()


def test_a_renewal_that_failed_is_tried_again_before_the_next_is_due(
    kubernetes: InMemoryKubernetes, clock: Hands
) -> None:
    first = replica(kubernetes, clock, "a")
    first.attend()
    kubernetes.fail_with(AWAY)
    clock.now += 4
    first.attend()
    kubernetes.fail_with(None)
    clock.now += first.seconds_until_due()
    assert (first.attend(), first.remaining_seconds()) == (True, 8.0)
    assert clock.now == 1005.2


def test_a_process_started_again_waits_for_its_predecessors_turn_to_end(
    kubernetes: InMemoryKubernetes, clock: Hands
) -> None:
    replica(kubernetes, clock, "pod-0_7_aaaa").attend()
    again = replica(kubernetes, clock, "pod-0_7_bbbb")
    assert not again.attend()
    clock.now += 9.9
    assert not again.attend()
    clock.now += 0.1
    assert again.attend()


def test_a_process_started_again_after_a_clean_end_begins_at_once(
    kubernetes: InMemoryKubernetes, clock: Hands
) -> None:
    predecessor = replica(kubernetes, clock, "pod-0_7_aaaa")
    predecessor.attend()
    predecessor.release()
    assert replica(kubernetes, clock, "pod-0_7_bbbb").attend()


def test_a_missing_right_is_raised(kubernetes: InMemoryKubernetes, clock: Hands) -> None:
    kubernetes.fail_with(Unauthorized("no rights on leases"))
    with pytest.raises(Unauthorized):
        replica(kubernetes, clock, "a").attend()


def test_a_lease_given_back_is_taken_at_the_next_look(
    kubernetes: InMemoryKubernetes, clock: Hands
) -> None:
    first, second = replica(kubernetes, clock, "a"), replica(kubernetes, clock, "b")
    first.attend()
    assert first.release()
    assert (first.remaining_seconds(), second.attend()) == (0.0, True)
    assert not first.release()


def test_a_lease_that_a_person_deleted_is_not_taken_while_its_holder_may_write(
    kubernetes: InMemoryKubernetes, clock: Hands
) -> None:
    first, second = replica(kubernetes, clock, "a"), replica(kubernetes, clock, "b")
    first.attend()
    second.attend()
    kubernetes._leases.clear()
    clock.now += 6
    assert not second.attend()
    clock.now += 10
    assert (second.attend(), first.remaining_seconds()) == (True, 0.0)


class Calls:
    """The calls for Leases, by name."""

    def __init__(self, kubernetes: InMemoryKubernetes, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[str] = []
        for name in ("read_lease", "create_lease", "replace_lease"):
            monkeypatch.setattr(kubernetes, name, self._counted(name, getattr(kubernetes, name)))

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            self.made.append(name)
            return call(*arguments)

        return counted


@pytest.fixture
def calls(kubernetes: InMemoryKubernetes, monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(kubernetes, monkeypatch)


def test_a_renewal_and_the_release_after_it_are_one_call_each(
    kubernetes: InMemoryKubernetes, clock: Hands, calls: Calls
) -> None:
    first = replica(kubernetes, clock, "a")
    first.attend()
    calls.made.clear()
    for _ in range(3):
        clock.now += 4
        assert first.attend()
    assert first.release()
    assert calls.made == ["replace_lease"] * 4


def test_a_lease_that_a_person_labelled_is_read_and_renewed_at_once(
    kubernetes: InMemoryKubernetes, clock: Hands, calls: Calls
) -> None:
    first = replica(kubernetes, clock, "a")
    first.attend()
    _touch(kubernetes)
    clock.now += 4
    assert (first.attend(), first.remaining_seconds()) == (True, 8.0)
    assert calls.made[-3:] == ["replace_lease", "read_lease", "replace_lease"]
    _touch(kubernetes)
    assert first.release()


def test_a_renewal_whose_outcome_is_unknown_is_read_back_before_the_next(
    kubernetes: InMemoryKubernetes, clock: Hands, calls: Calls
) -> None:
    first = replica(kubernetes, clock, "a")
    first.attend()
    kubernetes.fail_with(OutcomeUnknown("The connection broke."))
    clock.now += 4
    first.attend()
    kubernetes.fail_with(None)
    clock.now += first.seconds_until_due()
    assert (first.attend(), first.remaining_seconds()) == (True, 8.0)
    assert calls.made[-3:] == ["replace_lease", "read_lease", "replace_lease"]


def test_a_released_lease_is_not_taken_again_by_a_renewal_that_came_late(
    kubernetes: InMemoryKubernetes, clock: Hands
) -> None:
    first, second = replica(kubernetes, clock, "a"), replica(kubernetes, clock, "b")
    first.attend()
    first.release()
    clock.now += 4
    assert (first.attend(), second.attend()) == (False, True)


def _touch(kubernetes: InMemoryKubernetes) -> None:
    present = kubernetes.read_lease("tidegate", "tidegate.streaming.orders")
    assert present is not None
    kubernetes.replace_lease(replace(present, transitions=present.transitions + 1))


# --- one list instead of many reads ---------------------------------------------------------------


class Watcher:
    """A replica that watches with a list, which is made when it is due, as the manager does."""

    def __init__(
        self, kubernetes: InMemoryKubernetes, clock: Hands, *, acquire_delay_seconds: float = 0.0
    ) -> None:
        self.list = LeaseList(kubernetes, "tidegate", monotonic=clock)
        self.lease = SharedLease(
            kubernetes,
            "b",
            LeaseAddress.of_policy("streaming/orders", operator_namespace="tidegate"),
            listed=self.list,
            acquire_delay_seconds=lambda _: acquire_delay_seconds,
            monotonic=clock,
            wall=lambda: clock.now,
        )

    def attend(self) -> bool:
        if self.list.seconds_until_due() == 0.0:
            with suppress(TidegateError):
                self.list.attend()
        return self.lease.attend()


@pytest.fixture
def reads(kubernetes: InMemoryKubernetes, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of Leases that were read by themselves."""
    names, read = list[str](), kubernetes.read_lease

    def counted(namespace: str, name: str) -> LeaseRecord | None:
        names.append(name)
        return read(namespace, name)

    monkeypatch.setattr(kubernetes, "read_lease", counted)
    return names


def test_who_watches_many_leases_reads_none_while_the_list_shows_renewals(
    kubernetes: InMemoryKubernetes, clock: Hands, reads: list[str]
) -> None:
    holder, watcher = replica(kubernetes, clock, "a"), Watcher(kubernetes, clock)
    holder.attend()
    for _ in range(200):
        assert (holder.attend(), watcher.attend()) == (True, False)
        clock.now += 0.5
    assert reads == ["tidegate.streaming.orders"] * 2  # each when it began
    assert not watcher.lease.is_soon_ours()


@pytest.mark.parametrize("lived_ticks", range(24))
def test_a_silent_holder_is_replaced_as_soon_by_who_looks_at_lists(
    kubernetes: InMemoryKubernetes, clock: Hands, lived_ticks: int
) -> None:
    holder, watcher = replica(kubernetes, clock, "a"), Watcher(kubernetes, clock)
    holder.attend()
    for _ in range(lived_ticks):
        watcher.attend()
        holder.attend()
        clock.now += 0.5
    died_at, soon_at = clock.now, float("inf")
    while not watcher.attend():
        assert holder.remaining_seconds() > 0 or clock.now >= died_at + 5
        if watcher.lease.is_soon_ours():
            soon_at = min(soon_at, clock.now)
        clock.now += 0.5
    assert clock.now - died_at <= 12
    assert soon_at - died_at <= 7.5
    assert holder.remaining_seconds() == 0.0


def test_a_lease_that_was_given_up_or_is_gone_is_read_before_it_is_taken(
    kubernetes: InMemoryKubernetes, clock: Hands, reads: list[str]
) -> None:
    holder, watcher = replica(kubernetes, clock, "a"), Watcher(kubernetes, clock)
    holder.attend()
    for _ in range(8):
        watcher.attend()
        clock.now += 0.5
    reads.clear()
    holder.release()
    clock.now += 1.2
    assert watcher.attend()
    assert reads == ["tidegate.streaming.orders"]


def test_a_lease_without_our_labels_is_read_by_itself(
    kubernetes: InMemoryKubernetes, clock: Hands
) -> None:
    holder, watcher = replica(kubernetes, clock, "a"), Watcher(kubernetes, clock)
    holder.attend()
    watcher.attend()
    kubernetes.replace_lease(replace(lease_of_orders(kubernetes), labels={}))
    for _ in range(100):
        assert (holder.attend(), watcher.attend()) == (True, False)
        clock.now += 0.5


def test_while_leases_cannot_be_listed_each_is_read(
    kubernetes: InMemoryKubernetes,
    clock: Hands,
    reads: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(namespace: str, *, selector: str) -> list[LeaseRecord]:
        raise Unauthorized(Reason.KUBERNETES_UNREACHABLE, "No right to list Leases.")

    monkeypatch.setattr(kubernetes, "list_leases", refused)
    holder, watcher = replica(kubernetes, clock, "a"), Watcher(kubernetes, clock)
    holder.attend()
    for _ in range(100):
        assert (holder.attend(), watcher.attend()) == (True, False)
        clock.now += 0.5
    assert 10 <= len(reads) <= 20
    died_at = clock.now
    while not watcher.attend():
        clock.now += 0.5
    assert clock.now - died_at <= 12


@pytest.mark.parametrize("listed_before_seconds", [0.1, 0.5, 0.9, 1.1])
def test_each_free_lease_is_left_anew_to_those_of_a_better_rank(
    kubernetes: InMemoryKubernetes, clock: Hands, listed_before_seconds: float
) -> None:
    first, second = replica(kubernetes, clock, "a"), replica(kubernetes, clock, "c")
    watcher = Watcher(kubernetes, clock, acquire_delay_seconds=3.0)

    def watch(seconds: float) -> bool:
        for _ in range(round(seconds / 0.5)):
            clock.now += 0.5
            if watcher.attend():
                return True
        return False

    watcher.list.since(0.0, "any")
    watcher.list.attend()
    clock.now += listed_before_seconds  # the times of lists and of looks at this Lease differ
    first.attend()
    watcher.attend()
    first.release()
    assert not watch(2)  # it is left to others for three seconds, and one takes it
    second.attend()
    assert not watch(5)
    second.release()
    assert not watch(2.5)
    assert watch(3)


def test_a_list_that_is_refused_is_tried_again_after_a_minute(
    kubernetes: InMemoryKubernetes, clock: Hands
) -> None:
    leases = LeaseList(kubernetes, "tidegate", monotonic=clock)
    leases.since(0.0, "one")
    kubernetes.fail_with(Unauthorized("no rights on leases"))
    with pytest.raises(Unauthorized):
        leases.attend()
    leases.since(0.0, "one")
    assert leases.seconds_until_due() == 60.0


# --- where Leases are, and when they go -----------------------------------------------------------


@given(st.lists(st.tuples(_LABELS, _NAMES), min_size=2, max_size=2, unique=True))
def test_no_two_policies_share_a_lease(policies: list[tuple[str, str]]) -> None:
    names = [
        LeaseAddress.of_policy("/".join(policy), operator_namespace="tidegate").name
        for policy in policies
    ]
    assert names[0] != names[1]
    assert all(len(name) <= 253 for name in names)


def test_a_lease_names_its_policy_and_keeps_the_labels_of_people(
    kubernetes: InMemoryKubernetes, clock: Hands
) -> None:
    first, second = replica(kubernetes, clock, "a"), replica(kubernetes, clock, "b")
    first.attend()
    made = lease_of_orders(kubernetes)
    ours = {
        "app.kubernetes.io/managed-by": "tidegate",
        "tidegate.io/policy-namespace": "streaming",
        "tidegate.io/policy": "orders",
    }
    assert made.labels == ours
    kubernetes.replace_lease(replace(made, labels={"team": "x"}))
    clock.now += 4
    first.attend()
    assert lease_of_orders(kubernetes).labels == {"team": "x"}
    first.release()
    second.attend()
    assert lease_of_orders(kubernetes).labels == {"team": "x", **ours}


def test_the_lease_of_a_policy_that_is_gone_is_deleted_by_its_holder_only(
    kubernetes: InMemoryKubernetes, clock: Hands
) -> None:
    first, second = replica(kubernetes, clock, "a"), replica(kubernetes, clock, "b")
    first.attend()
    second.attend()
    assert not second.release(is_obsolete=True)
    assert lease_of_orders(kubernetes).holder == "a"
    assert first.release(is_obsolete=True)
    assert kubernetes.read_lease("tidegate", "tidegate.streaming.orders") is None
    assert first.remaining_seconds() == 0.0


def test_a_lease_of_no_use_that_is_not_renewed_for_a_minute_is_deleted(
    kubernetes: InMemoryKubernetes, clock: Hands
) -> None:
    holder, other = replica(kubernetes, clock, "a"), LeaseAddress("tidegate", "theirs")
    holder.attend()
    SharedLease(kubernetes, "x", other, monotonic=clock).attend()
    left = LeftLeases(kubernetes, "tidegate", monotonic=clock)
    for _ in range(3):  # it is renewed, though this process does not know the policy
        clock.now += 59
        holder.attend()
        left.delete([])
    left.delete(["streaming/orders"])
    clock.now += 100
    left.delete(["streaming/orders"])
    left.delete([])
    clock.now += 59
    left.delete([])
    assert lease_of_orders(kubernetes).holder == "a"
    clock.now += 1
    left.delete([])
    assert kubernetes.read_lease("tidegate", "tidegate.streaming.orders") is None
    assert kubernetes.read_lease("tidegate", "theirs") is not None


def lease_of_orders(kubernetes: InMemoryKubernetes) -> LeaseRecord:
    present = kubernetes.read_lease("tidegate", "tidegate.streaming.orders")
    assert present is not None
    return present
