"""Adaptive scaling in whole passes: what is written, why, and what a new operator makes of it."""

from dataclasses import dataclass, field, replace

import pytest

from tests.unit.controller_logic.worlds import (
    ALICE,
    FETCH,
    MB,
    PRODUCE,
    START_SECONDS,
    World,
    member,
    policy,
    tier,
    topology,
)
from tidegate_logic.decision import Memory
from tidegate_logic.model import (
    ClientRate,
    Contract,
    Direction,
    Mode,
    Observation,
    QuotaWrite,
    RateForm,
    Readings,
    ScalingMethod,
    WriteKind,
)
from tidegate_logic.reasons import Reason

OUT, IN = Direction.EGRESS, Direction.INGRESS
UNEVEN = topology({"orders": {1: 2, 2: 1}}, brokers=(1, 2))


@dataclass
class Measured(World):
    """A world whose clients are read afresh for each pass; `wants` is what they would send, in
    MB/s.
    """

    wants: dict[tuple[int, Direction], float] = field(default_factory=dict)

    def observation(self) -> Observation:
        clients = {}
        for (broker, way), wanted in self.wants.items():
            cap = float(self.text(ALICE, FETCH if way is OUT else PRODUCE) or "inf")
            rate = min(wanted * MB, cap)
            clients[ALICE, broker, way] = ClientRate(
                self.now_seconds, rate, 900.0 if rate < wanted * MB else 0.0
            )
        return replace(
            super().observation(), readings=Readings(self.now_seconds, 15.0, clients=clients)
        )

    def watch(self, seconds: float) -> list[QuotaWrite]:
        """Pass after pass for so long; everything that was written."""
        written: list[QuotaWrite] = []
        for _ in range(int(seconds / 15)):
            written += self.after(15).writes
        return written


def measured(
    wants: dict[tuple[int, Direction], float], contract: Contract | None = None, **changes: object
) -> Measured:
    """Alice is promised 10 MB/s for each of three partitions, two of which broker 1 leads and one
    broker 2.
    """
    promised = tier(member(ALICE, contract or Contract(RateForm.PER_PARTITION, 10 * MB), "orders"))
    asked = {"scaling": ScalingMethod.ADAPTIVE, "measured": True, **changes}
    return Measured(
        (promised,), policy=policy(**asked), topology=UNEVEN, now_seconds=START_SECONDS, wants=wants
    )


def under_contract(
    wants: dict[tuple[int, Direction], float], contract: Contract | None = None
) -> Measured:
    """The same with the contract in force, and clients that begin to send after that."""
    world = measured({}, contract)
    world.run()
    world.wants = wants
    return world


GREEDY = {(1, OUT): 50.0, (2, OUT): 25.0}
EVEN = {(1, OUT): 20.0, (2, OUT): 10.0}


def test_a_first_quota_is_max() -> None:
    world = measured(EVEN)
    world.run()
    assert world.text(ALICE) == str(20 * MB)


def test_greedy_clients_are_lowered_to_the_contracts_total_in_one_safe_step_and_reported_why() -> (
    None
):
    world = under_contract(GREEDY)
    (write,) = world.watch(120)
    assert world.text(ALICE) == str(15 * MB)
    assert (write.reason, write.kind) == (Reason.ADAPTED, WriteKind.LOWERING)
    assert 0 < write.predicted_mute_seconds <= 12
    assert write.charged
    assert "measured" in write.message


def test_even_demand_that_comes_back_is_given_its_contract() -> None:
    world = measured(GREEDY)
    world.run()
    world.watch(120)
    world.wants = EVEN
    (write,) = world.watch(240)
    assert world.text(ALICE) == str(20 * MB)
    assert (write.reason, write.kind) == (Reason.ADAPTED, WriteKind.RAISE)


def test_directions_adapt_apart() -> None:
    both = Contract(RateForm.PER_PARTITION, 10 * MB, 10 * MB)
    world = measured({**GREEDY, (1, IN): 20.0, (2, IN): 10.0}, both)
    world.run()
    world.watch(120)
    assert world.text(ALICE, FETCH) == str(15 * MB)
    assert world.text(ALICE, PRODUCE) == str(20 * MB)


def test_a_new_operator_repeats_nothing() -> None:
    world = measured(GREEDY)
    world.run()
    world.watch(120)
    world.memory = Memory()
    assert world.watch(300) == []
    assert world.text(ALICE) == str(15 * MB)


def test_leaders_that_move_are_followed_at_once_and_free_of_charge() -> None:
    """A share of the way from Mean to Max means the same whatever the leaders are."""
    world = measured({})
    world.topology = topology({"orders": {1: 1, 2: 1, 3: 1}})
    world.run()
    world.wants = GREEDY
    assert world.text(ALICE) == str(10 * MB)
    world.topology = UNEVEN
    (write,) = world.after(15).writes
    assert world.text(ALICE) == str(20 * MB)
    assert (write.reason, write.kind, write.charged) == (
        Reason.LEADERS_MOVED,
        WriteKind.RECOVERY,
        False,
    )


@pytest.mark.parametrize("form", [RateForm.PER_BROKER, RateForm.TOTAL])
def test_other_forms_of_contract_do_not_depend_on_the_method(form: RateForm) -> None:
    world = under_contract(GREEDY, Contract(form, 30 * MB))
    before = world.text(ALICE)
    assert world.watch(300) == []
    assert world.text(ALICE) == before


def test_without_readings_the_quota_stays_at_max() -> None:
    world = measured({})
    world.run()
    assert world.watch(600) == []
    assert world.text(ALICE) == str(20 * MB)


@pytest.mark.parametrize(
    ("method", "megabytes"), [(ScalingMethod.MEAN, 15), (ScalingMethod.MAX, 20)]
)
def test_switching_to_adaptive_begins_with_what_is_in_force(
    method: ScalingMethod, megabytes: int
) -> None:
    world = measured({})
    adaptive = world.policy
    world.policy = replace(adaptive, scaling=method)
    world.run()
    world.policy = adaptive
    assert world.watch(300) == []
    assert world.text(ALICE) == str(megabytes * MB)


def test_in_mode_observe_only_the_contract_at_max_is_proposed() -> None:
    world = measured(EVEN, mode=Mode.OBSERVE)
    decision = world.after(300)
    assert [write.values for write in decision.would_write] == [{FETCH: str(20 * MB)}]
