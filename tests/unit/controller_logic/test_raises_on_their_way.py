"""Whatever keeps a raise from being in force, its share of the headroom is taken: what is decided
and not in force never sums up to more than readings leave free.
"""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.controller_logic.loaded_world import LEADER, LoadedWorld
from tests.unit.controller_logic.plant import (
    MB,
    OUT,
    SimulatedCluster,
    actor,
    simulated_cluster,
    steps_of,
    want,
)
from tests.unit.controller_logic.worlds import FETCH, member, per_broker, policy, tier, topology
from tidegate.control.replication import nics_of
from tidegate_logic.decision import Decision, Memory
from tidegate_logic.model import (
    BrokerLimit,
    BrokerLimits,
    ClientRate,
    Entity,
    LedgerEntry,
    LedgerRecord,
    Level,
    NicSpan,
    RateKey,
    Readings,
    StoredQuota,
)
from tidegate_logic.readings import flows_of
from tidegate_logic.reasons import Reason
from tidegate_logic.replication.moves import Side
from tidegate_logic.replication.rates import NicRoom, ReplicationMode, Terms, room_for
from tidegate_logic.throttle.coming import load_to_come
from tidegate_logic.throttle.decision import StepKind, ThrottleStep
from tidegate_logic.throttle.input import (
    ActiveThrottle,
    LastChange,
    ManagedRate,
    ThrottleInput,
    ThrottleMemory,
)
from tidegate_logic.throttle.nic_status import nic_statuses

LIMIT_MB = 100


@dataclass(frozen=True)
class Turn:
    """So many rounds in which these clients' writes fail; what else the NIC carries, in MB/s."""

    rounds: int
    refused: frozenset[int]
    other_mb: int
    restart: bool


clients = st.lists(
    st.tuples(st.sampled_from(["L1", "L2", "L3", "L3"]), st.integers(1, 3), st.integers(2, 20)),
    min_size=4,
    max_size=24,
)
turns = st.lists(
    st.builds(
        Turn,
        st.integers(1, 12),
        st.one_of(st.just(frozenset(range(24))), st.frozensets(st.integers(0, 23))),
        st.integers(20, 90),
        st.sampled_from([False, False, True]),
    ),
    min_size=2,
    max_size=6,
)


def throttled_clients(chosen: list[tuple[str, int, int]]) -> SimulatedCluster:
    """Each is held at a share of its contract, and wants all of it."""
    actors = [actor(f"u{number}", level, high) for number, (level, _, high) in enumerate(chosen)]
    played = simulated_cluster(*actors)
    played.settings = replace(played.settings, hold_seconds=30.0)
    held: dict[RateKey, ActiveThrottle] = {}
    for one, (_, low, high) in zip(played.actors, chosen, strict=True):
        played.in_force[one.key] = min(low, high) * MB
        held[one.key] = ActiveThrottle(min(low, high) * MB, one.promised, 0.0, applied=True)
    played.memory = ThrottleMemory(held=held)
    want(played, **{f"u{number}": high for number, (_, _, high) in enumerate(chosen)})
    return played


@settings(deadline=None, max_examples=settings().max_examples * 3 // 2)
@given(clients, turns, st.sampled_from([5.0, 15.0]))
def test_whatever_is_refused_for_however_long_what_is_written_then_fits(
    chosen: list[tuple[str, int, int]], story: list[Turn], scrape_seconds: float
) -> None:
    """Judged by what the NIC would carry if all were written in this moment."""
    played = throttled_clients(chosen)
    played.scrape_seconds = scrape_seconds
    for turn in story:
        played.other[1, OUT] = turn.other_mb * MB
        jumped_at_seconds = played.now_seconds
        if turn.restart:
            played.memory = ThrottleMemory()
        refused = frozenset(one.key for n, one in enumerate(played.actors) if n in turn.refused)

        def admits(step: ThrottleStep, refused: frozenset[RateKey] = refused) -> bool:
            return step.key not in refused

        for _ in range(turn.rounds):
            before = dict(played.in_force)
            decision = played.run(scrape_seconds, admits)
            if played.now_seconds - jumped_at_seconds < 2 * 24:
                continue  # readings do not show the load of now, so no one can know it
            carried, is_more = played.other[1, OUT], False
            for one in played.actors:
                step = decision.steps.get(one.key)
                value = one.promised if step is None else step.value
                carried += min(value, played.wants[one.key, 1])
                is_more = is_more or value > before[one.key]
            assert not is_more or carried <= LIMIT_MB * MB


# --- the write budget, in whole passes ---


@dataclass
class Unreliable(LoadedWorld):
    """A world whose store refuses every write while it is `refusing`."""

    refusing: bool = False

    def run(self) -> Decision:
        return self.decide() if self.refusing else super().run()


def many_throttled(count: int) -> Unreliable:
    """So many clients of L3 who are held at 1 of 4 MB/s and want it all, and a spent budget.

    The limit is 400 MB/s and the NIC carries 340: raises may use 40 MB/s.
    """
    users = [Entity(f"u{number:03d}") for number in range(count)]
    level = replace(
        tier(*[member(one, per_broker(4 * MB), "orders") for one in users], level=Level.L3),
        throttled=(per_broker(MB),),
    )
    limits = BrokerLimits(BrokerLimit(egress=400 * MB, egress_capacity=500 * MB))
    world = Unreliable(
        (level,),
        policy=policy(limits=limits, measured=True),
        topology=topology({"orders": {LEADER: 40}}, brokers=(LEADER,)),
        scrape_seconds=15.0,
        other=(340 - count) * MB,
    )
    world.run()
    now_seconds = world.now_seconds = world.now_seconds + 5000.0
    assert world.quotas is not None
    for one in users:
        stood = world.quotas[one]
        assert stood.ledger is not None
        first = stood.ledger.entries[FETCH]
        entry = LedgerEntry(
            first.before,
            str(MB),
            str(2 * MB),
            now_seconds - 1000,
            Reason.THROTTLED,
            first.basis,
            4 * MB,
        )
        record = LedgerRecord(one, stood.ledger.policy_key, stood.ledger.policy_uid, {FETCH: entry})
        world.quotas[one] = StoredQuota(one, {FETCH: str(MB)}, 2, record, 2)
    world.wants = dict.fromkeys(users, 4.0 * MB)
    world.memory = Memory(charged=((now_seconds - 60, world.policy.write_budget_changes),))
    return world


@pytest.mark.parametrize(("count", "restarts"), [(300, False), (60, True)])
def test_raises_that_wait_for_the_write_budget_fit_into_the_headroom_once_it_is_free(
    count: int, restarts: bool
) -> None:
    world = many_throttled(count)
    deferred = []
    for number in range(76):
        if restarts and number in (30, 58):
            world.memory = Memory(charged=world.memory.charged)
        deferred.append(world.scrape().deferred_writes)
        assert world.carried <= 400 * MB, world.now_seconds
    assert max(deferred[:50]) > 0
    assert world.carried > 370 * MB  # and the headroom was used in the end


def test_raises_that_no_store_took_for_ten_minutes_fit_into_the_headroom_when_it_does() -> None:
    world = many_throttled(60)
    world.memory = Memory()
    world.refusing = True
    for _ in range(40):
        world.scrape()
    world.refusing = False
    for _ in range(20):
        world.scrape()
        assert world.carried <= 400 * MB, world.now_seconds
    assert world.carried > 370 * MB


# --- what readings do not show yet ---


def test_headroom_that_a_contract_still_needs_is_not_given_to_others() -> None:
    """A contract of L0 was raised by 30 MB/s, and its write waits; the room is 40 MB/s."""
    played = simulated_cluster(actor("l0", "L0", 50), actor("a", "L3", 50))
    l0, a = played.actors
    played.in_force |= {l0.key: 20 * MB, a.key: 10 * MB}
    played.memory = ThrottleMemory(
        held={a.key: ActiveThrottle(10 * MB, a.promised, 0.0, applied=True)}
    )
    want(played, l0=50, a=50)
    played.other[1, OUT] = 25 * MB
    for _ in range(4):
        played.pass_time(15)
        decision = played.decide()
    raised = steps_of(decision, StepKind.RAISE)["a"]
    assert raised.value == pytest.approx(20 * MB, rel=1e-4)


def raised_lately(rate: ManagedRate, sent_mb: float, *, until: float) -> float:
    """What comes to the NIC of broker 1 by its mean of 24 s up to this moment, in MB/s."""
    spans = tuple(NicSpan(until - 6.0 * place, 6.0, 50.0 * MB) for place in range(9, -1, -1))
    clients = {(rate.entity, 1, OUT): ClientRate(until, sent_mb * MB, 0.0)}
    given_ = ThrottleInput(
        1000.0,
        Readings(1000.0, 5.0, {(1, OUT): spans}, clients),
        {1: BrokerLimit(egress=100 * MB)},
        frozenset({1}),
        (rate,),
    )
    flows = flows_of(given_.readings, now_seconds=1000.0, stale_after_seconds=45.0)
    nics = nic_statuses(given_, flows, OUT, throttled=True)
    return load_to_come(given_, flows, OUT, nics, {}).get(1, 0.0) / MB


@pytest.mark.parametrize(
    ("at_seconds", "sent_mb", "comes_mb"),
    [
        (998.0, 20, 30),  # after all readings
        (984.0, 30, 15),  # in the middle of the longer mean; the other shows it all
        (970.0, 50, 0),  # before all readings
        (984.0, 2, 0),  # the cap it had did not keep it from sending more
        (1500.0, 20, 0),  # by a clock that is wrong
    ],
)
def test_a_raise_is_taken_off_the_headroom_until_readings_show_it(
    at_seconds: float, sent_mb: float, comes_mb: float
) -> None:
    rate = ManagedRate(
        *(Entity("a"), OUT, Level.L3, 100 * MB, MB, 50 * MB, frozenset({1})),
        last_change=LastChange(at_seconds, 20 * MB),
    )
    assert raised_lately(rate, sent_mb, until=996.0) == pytest.approx(comes_mb)


@pytest.mark.parametrize(("previous", "comes_mb"), [(None, 0), (60 * MB, 0), (49 * MB, 1)])
def test_only_what_was_raised_comes(previous: int | None, comes_mb: float) -> None:
    rate = ManagedRate(
        *(Entity("a"), OUT, Level.L3, 100 * MB, MB, 50 * MB, frozenset({1})),
        last_change=LastChange(999.0, previous),
    )
    assert raised_lately(rate, 50, until=996.0) == pytest.approx(comes_mb)


# --- replication, which uses the same headroom ---


def test_replication_leaves_what_clients_were_promised() -> None:
    """Five clients are released; none of it is in force, then all, and readings show it."""
    world = many_throttled(5)
    world.memory = Memory()
    world.refusing = True
    side = Side(LEADER, OUT)
    for _ in range(5):
        throttle = world.scrape().throttle
    nic = nics_of(throttle, world.policy.limits, {LEADER})[side]
    assert nic.throttled == {Level.L3}
    assert nic.promised == pytest.approx(15 * MB)
    world.refusing = False
    for _ in range(4):
        throttle = world.scrape().throttle
    nic = nics_of(throttle, world.policy.limits, {LEADER})[side]
    assert (nic.throttled, nic.promised) == (frozenset(), 0.0)


def test_room_for_replication_is_less_by_what_clients_were_promised() -> None:
    nic = NicRoom(100 * MB, 50.0 * MB, 0.0, 10.0)
    follow = Terms(ReplicationMode.FOLLOW)
    promised = replace(nic, promised=20.0 * MB)
    assert room_for(nic, 0.0, follow, 97) == pytest.approx(42 * MB)
    assert room_for(promised, 0.0, follow, 97) == pytest.approx(22 * MB)
