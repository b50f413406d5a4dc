"""A broker that comes back beside clients that fill the NIC: who gives way, how far, and for how
long. The throttle of clients and the rates of replication are decided together, second by second.
"""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.controller_logic.plant import (
    BARE,
    OUT,
    SimulatedClient,
    SimulatedCluster,
    actor,
    decided,
    want,
)
from tests.unit.controller_logic.replicating import MB, OFF, Cluster, apply
from tidegate.control.replication import nics_of
from tidegate.controller_logic.model import BrokerLimit, BrokerLimits, Level, ReplicationDemand
from tidegate.controller_logic.replication.moves import (
    MoveKind,
    PartitionState,
    ReplicaKey,
    egress_of,
    ingress_of,
)
from tidegate.controller_logic.replication.rates import (
    Flow,
    NicRoom,
    Priority,
    Rates,
    ReplicationMode,
    Terms,
    demand_of,
)
from tidegate.controller_logic.replication.replication_pass import (
    ReplicationDecision,
    decide_replication,
)
from tidegate.controller_logic.replication.throttles import ConfigChange
from tidegate.controller_logic.reports import cause_of
from tidegate.controller_logic.throttle.decision import ThrottleDecision
from tidegate.controller_logic.throttle.input import RateHistory, ThrottleMemory, ThrottleSettings

LIMIT = 100.0
AIM = 92.0  # percent: cutToPercent less replication's margin
PLAYED = settings(deadline=None, max_examples=15)  # each plays twelve minutes
KEY = ReplicaKey("behind", 0, 2)
SIDE = egress_of(1)


class SharedNic(SimulatedCluster):
    """Clients that get a share of what they want where the NIC is full."""

    share = 1.0

    def sends(self, actor: SimulatedClient, broker: int) -> float:
        return self.share * SimulatedCluster.sends(self, actor, broker)


class CatchingUp(Cluster):
    """A replica that is filled as fast as it is told."""

    arrives = 0.0

    def flow_rates(self) -> dict[ReplicaKey, float]:
        return {KEY: self.arrives} if self.filled[KEY] < self.sizes["behind", 0] else {}


@dataclass
class Beside:
    """Broker 2 fetches what it missed from broker 1, whose clients read.

    `able` is as fast as it can write, whatever the NIC has. With `bursts` it takes what is free of
    the NIC until its rate's window of 11 s is full, and then waits, as Kafka's replicas do.
    """

    clients: SharedNic
    replica: CatchingUp
    terms: Terms
    able: float
    capacity: float
    bursts: bool = False
    demand: ReplicationDemand = field(default_factory=dict)
    cuts: list[tuple[float, str, int]] = field(default_factory=list)
    rates: list[tuple[float, ConfigChange]] = field(default_factory=list)
    causes: list[str] = field(default_factory=list)
    arrived: list[float] = field(default_factory=list)
    served: list[dict[str, float]] = field(default_factory=list)

    def play(self, seconds: int) -> None:
        for second in range(seconds):
            self._share_nic()
            self.replica._second()
            self.clients.pass_time(1)
            self.served.append(
                {str(one.entity.user): self.clients.sends(one, 1) for one in self.clients.actors}
            )
            if second % 5 == 4:
                self._pass()

    def _share_nic(self) -> None:
        """The NIC gives each in proportion to what it asks for, when that is more than there is."""
        self.clients.share = 1.0
        sent = sum(self.clients.sends(one, 1) for one in self.clients.actors)
        rate = self.replica.rate_of(SIDE)
        asks = min(self.able, self.capacity if rate is None else float(rate))
        if self.bursts and rate is not None:
            is_full = sum(self.arrived[-10:]) >= 11 * rate
            asks = 0.0 if is_full else max(float(rate), self.capacity - sent)
        asks = asks if self.is_behind else 0.0
        self.clients.share = min(1.0, self.capacity / max(1.0, sent + asks))
        self.replica.arrives = asks * self.clients.share
        self.clients.other[1, OUT] = self.replica.arrives
        self.replica.others[SIDE] = sent * self.clients.share
        self.arrived.append(self.replica.arrives)

    def _pass(self) -> None:
        given = replace(self.clients.given(), replication_demand=self.demand)
        decision, self.clients.memory = decided(given, self.clients.memory)
        cause = cause_of(decision, Level.L3, now_seconds=self.clients.now_seconds)
        self.causes += [] if cause is None else [cause.words]
        for one in self.clients.actors:
            step = decision.steps.get(one.key)
            value = one.promised if step is None else step.value
            if value != self.clients.in_force[one.key]:
                self.cuts.append((self.clients.now_seconds, str(one.entity.user), value))
            self.clients.apply(one.key, value)
        self.demand = self._replicate(decision).demand

    def _replicate(self, decision: ThrottleDecision) -> ReplicationDecision:
        limits = BrokerLimits(self.clients.limits[1])
        observed = replace(
            self.replica.input(), nics=nics_of(decision, limits, self.replica.brokers)
        )
        self.replica.now_seconds = observed.now_seconds
        found, self.replica.memory = decide_replication(observed, self.replica.memory)
        self.replica.record = found.record
        apply(self.replica.configs, found.changes)
        self.rates += [(self.clients.now_seconds, one) for one in found.changes]
        return found

    @property
    def is_behind(self) -> bool:
        return self.replica.filled[KEY] < self.replica.sizes["behind", 0]

    def mean(self, seconds: int) -> float:
        """MB/s that arrived in the last seconds."""
        return sum(self.arrived[-seconds:]) / seconds / MB

    def had(self, name: str, seconds: int) -> float:
        """MB/s that this client had in the last seconds."""
        return sum(one[name] for one in self.served[-seconds:]) / seconds / MB

    def in_force(self, name: str) -> float:
        """Its quota, in MB/s."""
        (one,) = [one for one in self.clients.actors if str(one.entity.user) == name]
        return self.clients.in_force[one.key] / MB


def beside(
    *actors: SimulatedClient,
    behind_mb: float = 1e6,
    floor_mb: float = 1,
    priority: Priority = Priority.L1,
    able_mb: float = 1000,
    capacity_mb: float = LIMIT,
) -> Beside:
    limits = {1: BrokerLimit(round(LIMIT * MB), None, round(capacity_mb * MB))}
    clients = SharedNic(
        limits, list(actors), ThrottleSettings(floors=BARE), scrape_seconds=1.0, now_seconds=1000.0
    )
    for one in actors:
        clients.in_force[one.key] = one.promised
    clients.memory = ThrottleMemory(
        seen={one.key: RateHistory(since_seconds=0.0) for one in actors}
    )
    terms = Terms(ReplicationMode.FOLLOW, priority, round(floor_mb * MB))
    partition = PartitionState("behind", 0, 1, (1, 2), frozenset({1}))
    replica = CatchingUp(
        frozenset({1, 2}),
        {("behind", 0): partition},
        {("behind", 0): behind_mb * MB},
        {KEY: 0.0},
        terms={MoveKind.REASSIGNMENT: OFF, MoveKind.RECOVERY: terms},
    )
    return Beside(clients, replica, terms, able_mb * MB, capacity_mb * MB)


def checkout_orders_reports() -> tuple[SimulatedClient, ...]:
    return (
        actor("checkout", "L0", 80),
        actor("orders", "L1", 80, 20),
        actor("reports", "L3", 80, 5),
    )


@pytest.mark.parametrize("capacity_mb", [94.0, 100.0, 106.0])
def test_l3_that_fills_the_nic_gives_way_to_a_broker_that_comes_back(capacity_mb: float) -> None:
    """Also where the NIC can never be over its limit. Alone, a broker takes some three quarters of
    what the NIC can (*Lab*).
    """
    alone_seconds = 5000 / (0.75 * capacity_mb)
    played = beside(
        *checkout_orders_reports(), behind_mb=5000, floor_mb=50, capacity_mb=capacity_mb
    )
    want(played.clients, checkout=5, orders=5, reports=200)
    played.play(round(1.25 * alone_seconds))
    assert not played.is_behind
    assert played.in_force("orders") == 80
    assert played.in_force("reports") < 10
    assert any(one.startswith("room for ") for one in played.causes) or capacity_mb > LIMIT
    for name in ("checkout", "orders"):
        assert played.had(name, 40) == pytest.approx(5, rel=0.03)
    played.play(240)
    assert played.in_force("reports") == 80  # and nothing of it is left
    assert not played.replica.left()
    assert not played.demand


def test_who_gives_way_is_below_the_priority_of_what_is_moved() -> None:
    for priority, l2_mb, l3_mb in (
        (Priority.L1, 20, 5),
        (Priority.L2, 45, 5),
        (Priority.L3, 45, 45),
    ):
        played = beside(
            actor("billing", "L2", 45, 20), actor("reports", "L3", 45, 5), priority=priority
        )
        want(played.clients, billing=40, reports=40)
        played.play(240)
        assert played.in_force("billing") == pytest.approx(l2_mb), priority
        assert played.in_force("reports") == pytest.approx(l3_mb), priority


def test_a_slow_disk_takes_no_more_from_clients_than_twice_what_it_writes() -> None:
    played = beside(*checkout_orders_reports(), able_mb=15)
    want(played.clients, checkout=5, orders=5, reports=200)
    played.play(400)
    assert played.mean(60) == pytest.approx(15, rel=0.02)
    assert 45 < played.in_force("reports") < 60


shares = st.integers(0, 120)


@PLAYED
@given(shares, shares, shares, st.integers(1, 60), st.sampled_from([15, 40, 1000]))
def test_nobody_gives_more_than_is_wanted_and_steady_load_ends_all_changes(
    l1_mb: int, l2_mb: int, l3_mb: int, floor_mb: int, able_mb: int
) -> None:
    played = beside(
        actor("orders", "L1", 120, 20),
        actor("billing", "L2", 120, 10),
        actor("reports", "L3", 120, 5),
        floor_mb=floor_mb,
        able_mb=able_mb,
        capacity_mb=125,
    )
    want(played.clients, orders=l1_mb, billing=l2_mb, reports=l3_mb)
    played.play(400)
    changed, rated = len(played.cuts), len(played.rates)
    played.play(300)
    assert len(played.cuts) - changed <= 1, played.cuts[changed - 1 :]
    assert len(played.rates) - rated <= 1, played.rates[rated - 1 :]
    assert played.in_force("billing") >= 10
    assert played.in_force("reports") >= 5
    rate = played.replica.rate_of(SIDE)
    assert rate is not None
    had = [played.had(name, 60) for name in ("orders", "billing", "reports")]
    assert rate <= max(floor_mb, 1.11 * (AIM - had[0] - min(had[1], 10) - min(had[2], 5)) + 1) * MB
    if l1_mb + l2_mb + l3_mb + min(able_mb, 60) <= 30:
        assert played.in_force("reports") == 120


@pytest.mark.parametrize("kind", list(MoveKind))
def test_replicas_that_fetch_in_bursts_get_what_is_spare_and_no_more(kind: MoveKind) -> None:
    """Nobody is throttled, so the NIC is judged by its newest second, in which they may wait."""
    played = beside(actor("checkout", "L0", 100), priority=Priority.BELOW_L3)
    terms = replace(played.terms, minimum=5 * MB)
    played.bursts = True
    played.replica.terms = {one: terms if one is kind else OFF for one in MoveKind}
    if kind is MoveKind.REASSIGNMENT:
        (partition,) = played.replica.partitions.values()
        played.replica.partitions["behind", 0] = replace(partition, adding=frozenset({2}))
    want(played.clients, checkout=60)
    played.play(60)
    for _ in range(60):
        played.play(5)
        rate = played.replica.rate_of(SIDE)
        assert rate is not None
        assert 32 * 0.85 * MB <= rate <= 32 * 1.15 * MB
    assert played.had("checkout", 300) >= 0.97 * 60


def test_a_rate_of_somebody_else_bounds_what_clients_give() -> None:
    played = beside(*checkout_orders_reports(), floor_mb=50)
    want(played.clients, checkout=5, orders=5, reports=200)
    played.play(30)
    moves = played._replicate(decided(played.clients.given(), played.clients.memory)[0]).moves
    nics = {SIDE: NicRoom(100 * MB, 90.0 * MB, played.clients.now_seconds, 10.0)}
    rates = Rates(flows={Flow(1, 2, MoveKind.RECOVERY): 77.0 * MB})
    free = demand_of(moves, played.replica.terms, nics, rates, {})[1, OUT]
    held = demand_of(moves, played.replica.terms, nics, rates, {ingress_of(2): 20 * MB})[1, OUT]
    moved = moves[0].arrived(played.clients.now_seconds - 10, played.clients.now_seconds) / 10
    assert free == {Level.L3: pytest.approx(77 * MB - moved), Level.L2: free[Level.L3]}
    assert held[Level.L3] == max(0.0, 20 * MB - moved)
