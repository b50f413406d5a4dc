"""Fetch contracts of consumers that read from followers, in whole passes: which quota is written,
how consumers that move are followed, and what stays while something is not known.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from tests.unit.controller_logic.loaded_world import LoadedWorld, set_limit
from tests.unit.controller_logic.test_fetch_spread import EVEN, EVERYWHERE, cluster
from tests.unit.controller_logic.worlds import (
    ALICE,
    FETCH,
    MB,
    PRODUCE,
    World,
    member,
    per_partition,
    policy,
    tier,
    total,
)
from tidegate_logic.contracts.fetch_spread import FetchBasis, Reads
from tidegate_logic.contracts.leader_scaling import Leaders
from tidegate_logic.contracts.recommend import RateBasis, fetch_scaling_of, needed_rate
from tidegate_logic.contracts.targets import racks_edited
from tidegate_logic.decide import decide
from tidegate_logic.decision import Memory
from tidegate_logic.model import (
    BrokerLimit,
    BrokerLimits,
    ClientRate,
    Contract,
    Direction,
    DirectionUsage,
    InSync,
    Level,
    Observation,
    Override,
    QuotaWrite,
    RateForm,
    Readings,
    ReplicaSelection,
    ScalingMethod,
    Tier,
    WriteKind,
)
from tidegate_logic.reasons import Reason

OUT = Direction.EGRESS
PASS_SECONDS = 15.0
ONE_RACK = {1: 50.0}
THREE_RACKS = {1: 50.0, 2: 50.0, 3: 50.0}
PROMISED_MB = 6.0


@dataclass
class Reading(World):
    """Consumers that would read so much from each broker, in MB/s, and get at most the quota."""

    wants: Mapping[int, float] = field(default_factory=dict)

    def got(self) -> dict[int, float]:
        cap = float(self.text(ALICE) or "inf") / MB
        return {broker: min(self.wants.get(broker, 0.0), cap) for broker in self._live()}

    def observation(self) -> Observation:
        clients = {
            (ALICE, broker, OUT): ClientRate(
                self.now_seconds, rate * MB, 900.0 if rate < self.wants.get(broker, 0.0) else 0.0
            )
            for broker, rate in self.got().items()
        }
        return replace(
            super().observation(),
            readings=Readings(self.now_seconds, PASS_SECONDS, clients=clients),
        )

    def watch(self, passes: int) -> list[QuotaWrite]:
        return [write for _ in range(passes) for write in self.after(PASS_SECONDS).writes]

    def _live(self) -> frozenset[int]:
        assert self.topology is not None
        return self.topology.brokers


def reading(
    wants: Mapping[int, float],
    *racks: str,
    contract: Contract | None = None,
    **changes: object,
) -> Reading:
    """Alice is promised 2 MB/s of each of three partitions; consumers begin once it is in force."""
    one = replace(
        member(ALICE, contract or per_partition(2 * MB, 2 * MB), "acc"), racks=tuple(racks)
    )
    world = Reading(
        (tier(one),),
        policy=policy(measured=True, **changes),
        topology=cluster(EVEN, EVERYWHERE),
    )
    world.run()
    world.wants = wants
    return world


def fetch_mb(world: Reading) -> float:
    return int(world.text(ALICE) or 0) / MB


def total_mb(world: Reading) -> float:
    return sum(world.got().values())


# --- consumers that move


@pytest.mark.parametrize("racks", [(), ("a", "b", "c")])
@pytest.mark.parametrize("contract", [per_partition(2 * MB), total(6 * MB)])
@pytest.mark.parametrize("method", ScalingMethod)
def test_consumers_that_move_from_three_racks_to_one_and_back_keep_their_promise(
    racks: tuple[str, ...], contract: Contract, method: ScalingMethod
) -> None:
    world = reading(THREE_RACKS, *racks, contract=contract, scaling=method)
    world.watch(8)
    assert total_mb(world) <= 1.1 * PROMISED_MB
    world.wants = ONE_RACK
    world.watch(8)
    assert total_mb(world) >= 0.9 * PROMISED_MB
    world.wants = THREE_RACKS
    world.watch(16)
    assert 0.9 * PROMISED_MB <= total_mb(world) <= 1.1 * PROMISED_MB
    assert world.watch(20) == []


def test_a_move_is_seen_within_three_passes() -> None:
    world = reading(THREE_RACKS)
    world.watch(10)
    world.wants = ONE_RACK
    (write,) = world.watch(3)
    assert total_mb(world) >= 0.9 * PROMISED_MB
    assert (write.reason, write.kind) == (Reason.ADAPTED, WriteKind.RAISE)


def test_what_measured_reads_chose_survives_a_new_operator() -> None:
    world = reading(ONE_RACK)
    world.watch(10)
    assert fetch_mb(world) == PROMISED_MB
    assert world.topology is not None
    known, world.memory = world.topology, Memory()
    world.topology = replace(known, selection=None)  # brokers have not answered yet
    assert world.watch(6) == []
    world.topology = known
    assert world.watch(6) == []
    assert fetch_mb(world) == PROMISED_MB


def test_declared_racks_survive_a_new_operator() -> None:
    world = reading({}, "a")
    assert fetch_mb(world) == PROMISED_MB
    assert world.topology is not None
    world.topology, world.memory = replace(world.topology, selection=None), Memory()
    assert world.watch(3) == []


def edit_racks(world: Reading, *racks: str) -> list[QuotaWrite]:
    """The fetch quota's writes in the minutes after an edit of Alice's racks."""
    (before,) = world.tiers or ()
    world.tiers = (replace(before, members=(replace(before.members[0], racks=racks),)),)
    return world.watch(12)


def test_edited_racks_are_the_reason_of_a_quota_and_their_raise_is_free() -> None:
    world = reading({}, "a", "b", "c")
    assert fetch_mb(world) == 2.0
    (raised,) = edit_racks(world, "a")
    assert fetch_mb(world) == PROMISED_MB
    assert (raised.reason, raised.kind, raised.charged) == (
        Reason.RACKS_CHANGED,
        WriteKind.RECOVERY,
        False,
    )
    assert "the racks that it reads in were changed" in raised.message
    lowered = edit_racks(world, "a", "b")
    assert fetch_mb(world) == 3.0
    assert {(one.kind, one.charged) for one in lowered} == {(WriteKind.LOWERING, True)}


def test_a_basis_of_an_earlier_version_names_no_racks_and_shows_no_edit() -> None:
    world = reading({}, "a", "b", "c")
    assert world.quotas is not None
    stored = world.quotas[ALICE]
    assert stored.ledger is not None
    entry = stored.ledger.entries[FETCH]
    assert entry.basis.endswith(" @racks=a,b,c")
    before = replace(entry, basis=entry.basis.removesuffix("=a,b,c"))
    ledger = replace(stored.ledger, entries={**stored.ledger.entries, FETCH: before})
    world.quotas = {**world.quotas, ALICE: replace(stored, ledger=ledger)}
    assert [one.reason for one in edit_racks(world, "a")] == [Reason.LEADERS_MOVED]


def test_reordered_racks_are_no_edit_and_many_are_a_digest() -> None:
    def basis(*racks: str) -> str:
        world = reading({}, *racks)
        assert world.quotas is not None
        ledger = world.quotas[ALICE].ledger
        assert ledger is not None
        return ledger.entries[FETCH].basis

    assert not racks_edited(basis("a", "b"), basis("b", "a"))
    assert racks_edited(basis("a", "b"), basis("a"))
    many = tuple(f"rack-{number:03}" for number in range(64))
    assert len(basis(*many)) < 120
    assert racks_edited(basis(*many), basis(*many[1:]))


def test_a_selector_that_is_gone_brings_leaders_back() -> None:
    world = reading({}, "a")
    assert world.topology is not None
    world.topology = replace(world.topology, selection=ReplicaSelection())
    world.watch(6)
    assert fetch_mb(world) == 2.0


def test_idle_and_unmeasured_reads_stay_with_leaders() -> None:
    world = reading({})
    assert world.watch(10) == []
    assert fetch_mb(world) == 2.0


# --- a rack's broker dies


def test_a_dead_racks_consumers_get_their_promise_in_the_same_pass() -> None:
    world = reading(ONE_RACK, "a")
    left: dict[InSync, int] = {(2, 3): 2, (3, 2): 1}
    selection = replace(EVERYWHERE, racks={2: "b", 3: "c"})
    world.topology = cluster(left, selection)
    world.topology = replace(world.topology, brokers=frozenset({2, 3}))
    world.wants = {2: 4.0, 3: 2.0}
    world.after(PASS_SECONDS)
    assert total_mb(world) == PROMISED_MB
    world.topology = cluster(EVEN, EVERYWHERE)
    world.wants = ONE_RACK
    world.after(PASS_SECONDS)
    assert total_mb(world) == PROMISED_MB


# --- while a NIC is over its limit


def test_a_throttled_reader_keeps_its_floor_on_the_broker_that_serves_it() -> None:
    """Rack a has broker 1, which leads nothing: leaders say 2 and 3, and a floor of half as much."""
    groups: dict[InSync, int] = {(2, 1): 2, (3, 1): 2}
    reader = replace(member(ALICE, per_partition(10 * MB), "acc"), racks=("a",))
    promised = Tier("streaming/orders", Level.L3, (reader,), (per_partition(2 * MB),))
    limits = BrokerLimits(BrokerLimit(egress=100 * MB, egress_capacity=1250 * MB))
    world = LoadedWorld(
        (promised,),
        policy=policy(limits=limits, measured=True),
        topology=cluster(groups, EVERYWHERE),
    )
    world.run()
    assert world.text(ALICE) == str(40 * MB)
    world.wants = {ALICE: 40.0 * MB}
    world.minutes(2)
    set_limit(world, 5 * MB)
    world.minutes(8)
    assert world.text(ALICE) == str(8 * MB)
    set_limit(world, 100 * MB)
    world.minutes(5)
    assert world.text(ALICE) == str(40 * MB)


def test_a_member_without_contract_may_be_throttled_wherever_it_reads() -> None:
    groups: dict[InSync, int] = {(2, 1): 2, (3, 1): 2}
    reader = replace(member(ALICE, None, "acc"), racks=("a",))
    promised = Tier("streaming/orders", Level.L3, (reader,), (per_partition(2 * MB),))
    limits = BrokerLimits(BrokerLimit(egress=100 * MB, egress_capacity=1250 * MB))
    world = LoadedWorld(
        (promised,),
        policy=policy(limits=limits, measured=True),
        topology=cluster(groups, EVERYWHERE),
    )
    (report,) = world.run().members
    assert report.serving(OUT) == {1}
    assert report.serving(Direction.INGRESS) == {2, 3}


# --- overrides and recommendations


def test_an_override_is_laid_over_the_contract_on_the_same_reads() -> None:
    world = reading({}, "a")
    rates = per_partition(4 * MB)
    override = Override(
        "streaming/sale", world.now_seconds + 600, "a sale", entity=ALICE, rates=rates
    )
    observation = replace(world.observation(), overrides=(override,))
    decision, _ = decide(observation, world.memory)
    (write,) = decision.writes
    assert write.values[FETCH] == str(12 * MB)


@pytest.mark.parametrize("form", [RateForm.TOTAL, RateForm.PER_PARTITION])
def test_reads_that_moved_between_racks_are_not_recommended_three_times(form: RateForm) -> None:
    """6 MB/s, first all of it from one broker and then from the next."""
    usage = DirectionUsage(6.0 * MB, 6.0 * MB, 3, 1.0, 0.0)
    reads = Reads.of_topology(Leaders(cluster(EVEN, EVERYWHERE)))
    assert reads is not None
    spread = reads.of(member(ALICE, None, "acc"))
    assert spread is not None
    times = 1 if form is RateForm.TOTAL else 3
    basis = fetch_scaling_of(RateBasis(times), spread, form)
    assert needed_rate(usage, form, basis, headroom_percent=0) == 6 * MB // times


# --- what is said


def test_a_member_says_both_skews_and_which_is_used() -> None:
    world = reading({}, "a")
    (report,) = world.after(PASS_SECONDS).members
    assert report.fetch is not None
    assert (report.fetch.fetch_basis, report.fetch.skew) == (FetchBasis.RACKS, 1.0)
    assert report.leader_skew == 1.0
    assert report.permitted_total == {FETCH: 6 * MB, PRODUCE: 6 * MB}
    world = reading(ONE_RACK)
    world.watch(10)
    (report,) = world.after(PASS_SECONDS).members
    assert report.fetch is not None
    assert (report.fetch.fetch_basis, report.fetch.skew) == (FetchBasis.MEASURED, 3.0)


def test_a_rack_without_a_broker_is_said_and_changes_nothing_else() -> None:
    decision = reading({}, "a", "x").after(PASS_SECONDS)
    (note,) = [one for one in decision.notes if one.reason is Reason.RACK_UNKNOWN]
    assert note.entity == ALICE
    assert "x" in note.message


def test_a_policy_in_deletion_asks_nothing_of_reads() -> None:
    world = reading(ONE_RACK)
    world.watch(10)
    world.policy = replace(world.policy, deleting=True)
    world.watch(10)
    assert world.text(ALICE) is None
