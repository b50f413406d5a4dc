"""What a first quota steps down from: what clients send, as far as brokers report it."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.controller_logic.worlds import (
    ALICE,
    BOB,
    DEFAULT_USER,
    FETCH,
    MB,
    PRODUCE,
    START_SECONDS,
    World,
    member,
    per_broker,
    policy,
    run_to_the_end,
    tier,
)
from tidegate_logic.decide import decide
from tidegate_logic.decision import Memory
from tidegate_logic.model import (
    BrokerLimit,
    BrokerLimits,
    ClientRate,
    Direction,
    Entity,
    Observation,
    ReadingProblem,
    Readings,
    WriteKind,
)
from tidegate_logic.quotas.mute import predicted_mute_seconds
from tidegate_logic.reasons import Reason

CAPACITY = 125 * MB
NIC = BrokerLimits(BrokerLimit(egress=100 * MB, egress_capacity=CAPACITY))
UNREAD = ReadingProblem(Reason.PROMETHEUS_UNREACHABLE, "no answer")
NOT_METERED = ReadingProblem(Reason.CLIENTS_NOT_METERED, "none")


@dataclass
class Measured(World):
    """A world with readings of fetching clients, in bytes/s by entity and broker; None = none."""

    fetches: dict[tuple[Entity, int], float] | None = field(default_factory=dict)
    problems: tuple[ReadingProblem, ...] = ()
    read_at: float | None = None

    def observation(self) -> Observation:
        if self.fetches is None:
            return super().observation()
        at = self.now_seconds if self.read_at is None else self.read_at
        clients = {
            (entity, broker, Direction.EGRESS): ClientRate(at, rate)
            for (entity, broker), rate in self.fetches.items()
        }
        return replace(
            super().observation(), readings=Readings(at, 15.0, {}, clients, self.problems)
        )


def measured(
    fetches: dict[tuple[Entity, int], float] | None,
    *problems: ReadingProblem,
    limits: BrokerLimits = NIC,
    **changes: object,
) -> Measured:
    asked = policy(measured=True, limits=limits, **changes)
    alice = tier(member(ALICE, per_broker(10 * MB)))
    return Measured((alice,), policy=asked, fetches=fetches, problems=problems)


def others(rate: float = 5 * MB) -> dict[tuple[Entity, int], float]:
    """Every broker reports somebody else."""
    return {(BOB, broker): rate for broker in (1, 2, 3)}


def test_a_client_above_its_contract_is_led_down_from_its_fastest_broker() -> None:
    world = measured({**others(), (ALICE, 1): 137.0 * MB, (ALICE, 2): 20.0 * MB})
    decision = world.decide()
    (write,) = decision.writes
    assert (write.kind, write.charged) == (WriteKind.FIRST, False)
    assert "next in 30 s" in write.message
    world.run()
    world.fetches = others()
    assert run_to_the_end(world)[-3:] == ["34250000", "17125000", "10000000"]


@pytest.mark.parametrize("sends", [0.0, 3.0 * MB, 19.9 * MB])
def test_a_client_near_its_contract_gets_it_at_once(sends: float) -> None:
    world = measured({**others(), (ALICE, 1): sends})
    world.run()
    assert world.text(ALICE) == "10000000"


def test_who_is_not_reported_beside_others_has_sent_nothing() -> None:
    world = measured(others(), UNREAD)
    world.run()
    assert world.text(ALICE) == "10000000"


def test_where_no_broker_reports_a_client_none_is_measured_and_none_is_muted() -> None:
    world = measured({}, NOT_METERED)
    world.run()
    assert world.text(ALICE) == "10000000"


@pytest.mark.parametrize("gap", ["all", "one broker", "old"])
def test_where_a_reading_has_a_gap_the_capacity_of_the_nic_is_assumed(gap: str) -> None:
    world = measured({(BOB, 1): 5.0 * MB, (BOB, 2): 5.0 * MB})
    if gap == "old":
        world.read_at = START_SECONDS - 300
    else:
        world.problems = (replace(UNREAD, broker=3 if gap == "one broker" else None),)
    world.run()
    assert world.text(ALICE) == str(CAPACITY // 2)
    assert run_to_the_end(world)[-1] == "10000000"


def test_a_gap_in_the_readings_of_nics_is_none_of_clients() -> None:
    world = measured({}, replace(UNREAD, directions=(Direction.EGRESS,)))
    world.run()
    assert world.text(ALICE) == "10000000"


@pytest.mark.parametrize(
    "limits",
    [BrokerLimits(), replace(NIC, exceptions={2: BrokerLimit(egress=100 * MB)})],
    ids=["no broker's", "not every broker's"],
)
def test_without_a_declared_capacity_a_gap_is_as_no_metrics(limits: BrokerLimits) -> None:
    world = measured({}, UNREAD, limits=limits)
    world.run()
    assert world.text(ALICE) == "10000000"


def test_before_the_first_reading_and_without_metrics_it_is_set_at_once() -> None:
    for is_measured in (True, False):
        world = measured(None)
        world.policy = replace(world.policy, measured=is_measured)
        world.run()
        assert world.text(ALICE) == "10000000"


def test_a_contract_that_gets_a_direction_steps_down_in_that_one_only() -> None:
    world = measured(None)
    world.tiers = (tier(member(ALICE, per_broker(None, 10 * MB))),)
    world.run()
    world.tiers = (tier(member(ALICE, per_broker(10 * MB, 10 * MB))),)
    world.fetches = {**others(), (ALICE, 1): 100.0 * MB}
    world.after(60)
    assert (world.text(ALICE, FETCH), world.text(ALICE, PRODUCE)) == ("50000000", "10000000")


def test_a_first_default_steps_down_from_the_fastest_client() -> None:
    world = measured({(ALICE, 1): 40.0 * MB, (BOB, 2): 100.0 * MB})
    world.tiers = ()
    world.policy = replace(world.policy, defaults={DEFAULT_USER: {FETCH: 10 * MB}})
    world.run()
    assert world.text(DEFAULT_USER) == "50000000"


def test_a_quota_that_somebody_removed_is_put_back_in_steps_where_the_rate_is_known() -> None:
    world = measured(others())
    world.run()
    world.someone_sets(ALICE, None)
    world.fetches = {**others(), (ALICE, 1): 80.0 * MB}
    decision = world.after(15)
    assert [write.reason for write in decision.writes] == [Reason.REPAIRED]
    assert world.text(ALICE) == "40000000"


def test_a_limit_that_limits_nothing_is_stepped_down_from_what_is_sent() -> None:
    world = measured({**others(), (ALICE, 1): 80.0 * MB})
    world.someone_sets(ALICE, "0")
    world.run()
    assert world.text(ALICE) == "40000000"


@given(
    sends=st.floats(0.0, 2e10),
    rate=st.integers(1024, 10**10),
    allowed_seconds=st.integers(2, 30),
)
def test_no_first_quota_mutes_for_longer_than_allowed_by_what_was_measured(
    sends: float, rate: int, allowed_seconds: int
) -> None:
    world = measured({**others(), (ALICE, 2): sends}, max_mute_seconds=allowed_seconds)
    world.tiers = (tier(member(ALICE, per_broker(rate))),)
    world.run()
    in_force = int(world.text(ALICE) or 0)
    assert in_force >= rate
    mute_seconds = predicted_mute_seconds(int(sends), in_force, world.policy.window)
    assert mute_seconds <= allowed_seconds + 0.001


def test_the_same_observation_gives_the_same_first_quota() -> None:
    world = measured({**others(), (ALICE, 1): 137.0 * MB})
    seen = world.observation()
    assert decide(seen, Memory())[0].writes == decide(seen, Memory())[0].writes
