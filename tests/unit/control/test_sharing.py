"""Replicas share the policies: who should hold what, and how it gets there, on a clock of the
test. `tests/integration/operator/test_sharing.py` has the same on a real API server.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles.kubernetes import InMemoryKubernetes
from tests.unit.hands import Hands
from tidegate.control.sharing import Sharing, group_of, next_to_hand_over, ranked
from tidegate.errors import Unauthorized, Unreachable
from tidegate.kube.lease import LeaseAddress, SharedLease
from tidegate_logic.reasons import Reason

POLICIES = tuple(f"streaming/p-{number:02}" for number in range(12))
KEYS = st.sets(st.from_regex(r"[a-z]{1,8}/[a-z]{1,8}", fullmatch=True), max_size=30)
ORDINALS = st.sets(st.integers(0, 9), min_size=1, max_size=6)
STEP_SECONDS = 0.5


# --- who should hold what -------------------------------------------------------------------------


@given(KEYS, ORDINALS)
def test_every_policy_has_one_order_of_all_ordinals(keys: set[str], ordinals: set[int]) -> None:
    for key in keys:
        assert sorted(ranked(key, ordinals)) == sorted(ordinals)
        assert ranked(key, sorted(ordinals, reverse=True)) == ranked(key, ordinals)


@given(KEYS, ORDINALS, st.data())
def test_an_ordinal_that_goes_moves_its_own_policies_to_the_next_in_order_and_no_other(
    keys: set[str], ordinals: set[int], data: st.DataObject
) -> None:
    gone = data.draw(st.sampled_from(sorted(ordinals)))
    for key in keys:
        before, after = ranked(key, ordinals), ranked(key, ordinals - {gone})
        assert after == [ordinal for ordinal in before if ordinal != gone]


@given(KEYS, ORDINALS, st.data())
def test_handing_over_ends_with_exactly_the_policies_of_the_ordinal(
    keys: set[str], ordinals: set[int], data: st.DataObject
) -> None:
    ordinal = data.draw(st.sampled_from(sorted(ordinals)))
    held = set(keys)
    while (key := next_to_hand_over(held, ordinal, ordinals)) is not None:
        held.remove(key)
    assert held == {key for key in keys if ranked(key, ordinals)[0] == ordinal}


def test_without_others_nothing_is_handed_over() -> None:
    assert next_to_hand_over(POLICIES, 0, {0}) is None
    assert next_to_hand_over(POLICIES, 0, ()) is None


def test_a_hundred_policies_are_about_even_on_two_ordinals_and_on_five() -> None:
    keys = [f"namespace-{number % 7}/policy-{number}" for number in range(100)]
    for ordinals in (2, 5):
        counts = [0] * ordinals
        for key in keys:
            counts[ranked(key, range(ordinals))[0]] += 1
        assert max(counts) <= 1.35 * 100 / ordinals
        assert min(counts) >= 0.65 * 100 / ordinals


def test_only_replicas_that_watch_the_same_share() -> None:
    assert group_of(("b", "a")) == group_of(("a", "b"))
    assert len({group_of(()), group_of(("a",)), group_of(("a", "b")), group_of(("all",))}) == 4


# --- how it gets there ----------------------------------------------------------------------------


class Replica:
    """The Leases of one process, attended to as the manager does it; a loop ends at once."""

    def __init__(self, kubernetes: InMemoryKubernetes, clock: Hands, identity: str) -> None:
        self.kubernetes, self.clock, self.identity = kubernetes, clock, identity
        self.sharing = Sharing(
            kubernetes, identity, namespace="tidegate", group="all", monotonic=clock
        )
        self.leases = {key: self._lease(key) for key in POLICIES}
        self.handed_over: list[tuple[float, str]] = []
        self.joined_at = clock.now

    def _lease(self, key: str) -> SharedLease:
        address = LeaseAddress.of_policy(key, operator_namespace="tidegate")
        acquire_delay = partial(self.sharing.acquire_delay_seconds, key)
        return SharedLease(
            self.kubernetes,
            self.identity,
            address,
            acquire_delay_seconds=acquire_delay,
            monotonic=self.clock,
        )

    @property
    def ordinal(self) -> int | None:
        return self.sharing._ordinal

    @property
    def held(self) -> set[str]:
        return {key for key, lease in self.leases.items() if lease.remaining_seconds() > 0}

    def step(self) -> None:
        with suppress(Unauthorized, Unreachable):
            self.sharing.attend()
        if self.ordinal is None:
            self.joined_at = self.clock.now
        for lease in self.leases.values():
            lease.attend()
        key = self.sharing.next_to_hand_over(self.held, lambda name: self.leases[name].holder)
        if key is not None:
            self.leases[key].release()
            self.leases[key] = self._lease(key)
            self.handed_over.append((self.clock.now, key))

    def stop(self) -> None:
        self.sharing.release()
        for lease in self.leases.values():
            lease.release()


class Replicas:
    """Those that are alive now."""

    def __init__(self, kubernetes: InMemoryKubernetes, clock: Hands) -> None:
        self.kubernetes, self.clock = kubernetes, clock
        self.alive: list[Replica] = []

    def start(self, identity: str) -> Replica:
        self.alive.append(Replica(self.kubernetes, self.clock, identity))
        return self.alive[-1]

    def run(self, seconds: float) -> None:
        ends_at = self.clock.now + seconds
        while self.clock.now < ends_at:
            for replica in self.alive:
                replica.step()
            owners = [key for replica in self.alive for key in replica.held]
            assert len(owners) == len(set(owners)), "two replicas hold one policy"
            self.clock.now += STEP_SECONDS

    def until(self, condition: Callable[[], bool], *, at_most_seconds: float) -> float:
        began = self.clock.now
        while not condition():
            assert self.clock.now - began <= at_most_seconds, self.holders()
            self.run(STEP_SECONDS)
        return self.clock.now - began

    def holders(self) -> dict[str, str]:
        return {key: replica.identity for replica in self.alive for key in replica.held}

    def all_are_held(self) -> bool:
        return len(self.holders()) == len(POLICIES)


@pytest.fixture
def kubernetes() -> InMemoryKubernetes:
    return InMemoryKubernetes()


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
def replicas(kubernetes: InMemoryKubernetes, clock: Hands) -> Replicas:
    return Replicas(kubernetes, clock)


@pytest.fixture
def three(replicas: Replicas) -> Replicas:
    """Three replicas, started together, that have shared the policies out."""
    for identity in ("a", "b", "c"):
        replicas.start(identity)
    replicas.run(60)
    assert replicas.all_are_held()
    return replicas


def test_after_a_minute_each_of_three_holds_what_it_should(three: Replicas) -> None:
    ordinals = {replica.ordinal for replica in three.alive}
    assert ordinals == {0, 1, 2}
    for replica in three.alive:
        own = {key for key in POLICIES if ranked(key, ordinals)[0] == replica.ordinal}  # type: ignore[arg-type]
        assert replica.held == own
        assert len(own) >= 2
        assert replica.sharing.alive() == {r.ordinal: r.identity for r in three.alive}


def test_policies_are_handed_over_one_by_one_and_not_before_things_are_calm(
    three: Replicas,
) -> None:
    handed = [each for replica in three.alive for each in replica.handed_over]
    assert len(handed) == len({key for _, key in handed})
    times = sorted(at for at, _ in handed)
    assert times[0] >= max(replica.joined_at for replica in three.alive) + 8
    assert min(later - earlier for earlier, later in pairwise(times)) >= 1


def test_a_replica_that_is_started_again_moves_its_own_policies_only_and_gets_them_back(
    three: Replicas,
) -> None:
    before = three.holders()
    gone = three.alive.pop(1)
    moved = gone.held
    gone.stop()
    assert three.until(three.all_are_held, at_most_seconds=3) <= 3
    assert {key: who for key, who in three.holders().items() if key not in moved} == {
        key: who for key, who in before.items() if key not in moved
    }
    back = three.start("b-again")
    three.run(60)
    assert back.held == moved
    assert {key: who for key, who in three.holders().items() if key not in moved} == {
        key: who for key, who in before.items() if key not in moved
    }


def test_a_killed_replicas_policies_are_held_again_within_15_seconds_by_those_next_in_order(
    three: Replicas,
) -> None:
    ordinals = {replica.ordinal for replica in three.alive}
    gone = three.alive.pop(2)
    moved = gone.held
    assert three.until(three.all_are_held, at_most_seconds=15) <= 15
    for replica in three.alive:
        left = ordinals - {gone.ordinal}
        assert {key for key in replica.held if key in moved} == {
            key
            for key in moved
            if ranked(key, left)[0] == replica.ordinal  # type: ignore[arg-type]
        }


def test_a_further_replica_has_an_ordinal_as_soon_as_the_others_were_seen_to_be_alive(
    three: Replicas,
) -> None:
    fourth = three.start("d")
    assert three.until(lambda: fourth.ordinal is not None, at_most_seconds=7) > 0
    assert fourth.ordinal == 3


def test_a_process_that_is_killed_and_started_at_once_waits_for_its_ordinal(
    three: Replicas,
) -> None:
    gone = three.alive.pop(0)
    again = three.start("a-again")
    three.run(60)
    assert again.ordinal == gone.ordinal
    assert {replica.ordinal for replica in three.alive} == {0, 1, 2}


def test_a_better_replica_that_takes_nothing_is_not_waited_for(
    three: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It renews its ordinal, but its Leases hang: others take what is free, and keep it a while."""
    hung, *others = three.alive
    for lease in hung.leases.values():
        monkeypatch.setattr(lease, "attend", lambda: False)
    three.until(lambda: not hung.held, at_most_seconds=15)
    already = sum(len(replica.handed_over) for replica in others)
    three.until(three.all_are_held, at_most_seconds=10)
    for _ in range(120):
        three.run(2)
        assert len(POLICIES) - len(three.holders()) <= 2  # one of each that tries
    assert three.all_are_held()
    assert sum(len(replica.handed_over) for replica in others) - already <= 2


def test_without_the_right_to_ordinals_each_takes_what_is_free_and_keeps_it(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise Unauthorized("no right to list Leases")

    monkeypatch.setattr(replicas.kubernetes, "list_leases", refuse)
    first = replicas.start("a")
    replicas.start("b")
    replicas.run(120)
    assert first.held == set(POLICIES)
    assert first.sharing.alive() is None
    first.stop()
    replicas.alive.remove(first)
    replicas.until(replicas.all_are_held, at_most_seconds=3)


def test_a_replica_that_could_not_look_for_a_while_hands_nothing_over_and_waits_for_no_other(
    three: Replicas,
) -> None:
    lonely = three.alive[0]
    three.kubernetes.fail_with(Unreachable(Reason.KUBERNETES_UNREACHABLE, "away"))
    three.run(7)
    assert lonely.sharing.alive() is None
    assert lonely.sharing.acquire_delay_seconds(POLICIES[0], "") == 0.0
    assert lonely.sharing.next_to_hand_over(POLICIES, lambda _: "") is None
    three.kubernetes.fail_with(None)
    three.run(4)
    assert lonely.sharing.alive() is not None


def test_a_clock_that_jumps_forwards_ends_no_others_ordinal(three: Replicas, clock: Hands) -> None:
    before = three.holders()
    clock.now += 600
    three.alive[0].step()
    alive = three.alive[0].sharing.alive()
    assert alive is None or len(alive) == 3
    three.run(90)
    assert three.holders() == before
