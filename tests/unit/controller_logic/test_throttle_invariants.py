"""What must hold of every throttle: random clusters, demand, lying NICs, silent brokers, lost
memory and refused writes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf, nan

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.controller_logic.plant import MB, OUT, SimulatedClient, SimulatedCluster
from tidegate_logic.model import (
    BrokerLimit,
    Direction,
    Entity,
    Level,
    QuotaWindow,
    RateKey,
)
from tidegate_logic.quotas.mute import predicted_mute_seconds
from tidegate_logic.throttle.attribution import CUT_ORDER
from tidegate_logic.throttle.buckets import floor_of
from tidegate_logic.throttle.decision import StepKind, ThrottleDecision
from tidegate_logic.throttle.input import (
    RELEASED,
    ClientFloors,
    ManagedRate,
    ThrottleMemory,
    ThrottleSettings,
)

BROKERS = (1, 2, 3)
megabytes = st.integers(0, 200).map(lambda number: number * MB)
SEARCH = settings(
    deadline=None, max_examples=settings().max_examples * 3 // 5
)  # each plays about twelve rounds; all together more than 10,000
leaders = st.dictionaries(st.sampled_from(BROKERS), st.integers(1, 3), min_size=1)
brokers = st.sets(st.sampled_from(BROKERS))


@dataclass(frozen=True)
class Turn:
    """What happens, and how many rounds follow."""

    rounds: int
    seconds: float
    wants: dict[tuple[int, int], float]
    other: dict[int, float]
    lies: dict[int, float | None]
    silent: set[int]
    moved: tuple[int, dict[int, int]] | None
    restart: bool
    refused: bool


@st.composite
def actors(draw: st.DrawFn, number: int) -> SimulatedClient:
    level, contract = draw(st.sampled_from(Level)), draw(st.integers(5, 150)) * MB
    floor = None if level is Level.L0 else draw(st.integers(1000, contract))
    return SimulatedClient(
        Entity(f"user-{number}"),
        draw(st.sampled_from([OUT, OUT, Direction.INGRESS])),
        level,
        contract,
        floor,
        draw(leaders),
    )


@st.composite
def simulated_clusters(
    draw: st.DrawFn, *, release_after_seconds: float | None = None
) -> SimulatedCluster:
    chosen = ThrottleSettings(
        release_after_seconds=release_after_seconds,
        window=draw(st.sampled_from([QuotaWindow(), QuotaWindow(2, 1), QuotaWindow(11, 2)])),
        max_mute_seconds=draw(st.sampled_from([6, 12, 20])),
        floors=draw(st.sampled_from([ClientFloors(), ClientFloors(0, 0)])),
    )
    is_combined = draw(st.sampled_from([False, False, True]))
    capacities = st.sampled_from([None, 250 * MB])
    limits = {
        broker: BrokerLimit(combined=150 * MB, combined_capacity=draw(capacities))
        if is_combined
        else BrokerLimit(100 * MB, 100 * MB, draw(capacities))
        for broker in BROKERS
    }
    made = SimulatedCluster(
        limits,
        [draw(actors(number)) for number in range(draw(st.integers(1, 6)))],
        chosen,
        draw(st.sampled_from([1.0, 5.0, 15.0])),
    )
    made.now_seconds = 1000.0
    for one in made.actors:
        made.in_force[one.key] = one.promised
        made.wants |= {(one.key, broker): draw(megabytes) for broker in one.leaders}
    return made


def stories(
    *, honest: bool = False, moves: bool = True, restarts: bool = True, refusals: bool = True
) -> st.SearchStrategy[list[Turn]]:
    said = st.sampled_from([None, nan, inf, -1.0, 0.0, 5.0 * MB, 900.0 * MB])
    turn = st.builds(
        Turn,
        st.integers(1, 5),
        st.sampled_from([1.0, 5.0, 15.0, 15.0, 30.0, 60.0]),
        st.dictionaries(
            st.tuples(st.integers(0, 5), st.sampled_from(BROKERS)), megabytes, max_size=3
        ),
        st.dictionaries(st.sampled_from(BROKERS), megabytes, max_size=1),
        st.just({}) if honest else st.dictionaries(st.sampled_from(BROKERS), said, max_size=3),
        st.just(set()) if honest else st.one_of(st.just(set()), brokers),
        st.none() | st.tuples(st.integers(0, 5), leaders) if moves else st.none(),
        st.sampled_from([False, False, True]) if restarts else st.just(False),
        st.sampled_from([False, False, True]) if refusals else st.just(False),
    )
    return st.lists(turn, min_size=2, max_size=8)


@dataclass(frozen=True)
class Frame:
    """One round: what stood before it, what was asked, what was decided, what is remembered
    then.
    """

    turn: Turn
    before: dict[RateKey, int]
    rates: dict[RateKey, ManagedRate]
    decision: ThrottleDecision
    memory: ThrottleMemory

    def value(self, key: RateKey) -> int:
        """What is wanted of a rate: its step's value, or the contract."""
        step = self.decision.steps.get(key)
        return self.rates[key].contract if step is None else step.value

    @property
    def fresh(self) -> set[RateKey]:
        """The rates for which something new was decided in this round."""
        at_seconds = self.decision.rounds[0].at_seconds
        return {
            key
            for key, held in self.memory.held.items()
            if held.decided_at_seconds == at_seconds and not held.applied
        }


def played(made: SimulatedCluster, story: list[Turn]) -> Iterator[Frame]:
    """Turn after turn, as the cluster goes through them."""
    for turn in story:
        _happen(made, turn)
        for _ in range(turn.rounds):
            before = dict(made.in_force)
            decision = made.run(turn.seconds, admits=lambda _, turn=turn: not turn.refused)
            yield Frame(
                turn, before, {rate.key: rate for rate in made.given().rates}, decision, made.memory
            )


def _happen(made: SimulatedCluster, turn: Turn) -> None:
    for (number, broker), rate in turn.wants.items():
        if number < len(made.actors):
            made.wants[made.actors[number].key, broker] = rate
    made.other |= {
        (broker, direction): rate for broker, rate in turn.other.items() for direction in Direction
    }
    made.lies = {
        (broker, direction): said for broker, said in turn.lies.items() for direction in Direction
    }
    made.silent = set(turn.silent)
    if turn.moved is not None and turn.moved[0] < len(made.actors):
        made.actors[turn.moved[0]] = replace(made.actors[turn.moved[0]], leaders=turn.moved[1])
    if turn.restart:
        made.memory = ThrottleMemory()


@SEARCH
@given(simulated_clusters(), stories())
def test_l0_is_never_throttled_and_every_value_lies_between_floor_and_contract(
    made: SimulatedCluster, story: list[Turn]
) -> None:
    for frame in played(made, story):
        for key, step in frame.decision.steps.items():
            rate, stood = frame.rates[key], frame.before[key]
            assert rate.level is not Level.L0
            assert (
                min(stood, floor_of(rate, made.settings.floors).value)
                <= step.value
                <= max(stood, rate.contract)
            )
            assert step.kind is not StepKind.RELEASE or step.value == rate.contract


@SEARCH
@given(simulated_clusters(), stories(moves=False))
def test_where_every_nic_lies_nothing_changes_and_no_one_who_leads_on_a_lying_one_is_raised(
    made: SimulatedCluster, story: list[Turn]
) -> None:
    for frame in played(made, story):
        lying = {
            broker
            for broker, said in frame.turn.lies.items()
            if said is not None and not 0 <= said < inf
        }
        for key, rate in frame.rates.items():
            if rate.leads & lying:
                assert frame.value(key) <= frame.before[key]
            if lying == set(BROKERS):
                assert frame.value(key) == frame.before[key]


@SEARCH
@given(simulated_clusters(release_after_seconds=60.0), stories(moves=False))
def test_load_that_is_unknown_for_long_lowers_no_one(
    made: SimulatedCluster, story: list[Turn]
) -> None:
    """Where every NIC lies, values in force only go up, whatever was decided before and however
    long it lasts.
    """
    for frame in played(made, story):
        lying = {
            broker
            for broker, said in frame.turn.lies.items()
            if said is not None and not 0 <= said < inf
        }
        if lying == set(BROKERS):
            assert all(frame.value(key) >= frame.before[key] for key in frame.rates)


@SEARCH
@given(simulated_clusters(release_after_seconds=60.0), stories())
def test_without_any_reading_everybody_is_back_at_the_contract_in_the_end(
    made: SimulatedCluster, story: list[Turn]
) -> None:
    for _ in played(made, story):
        pass
    made.lies = {(broker, direction): nan for broker in BROKERS for direction in Direction}
    made.silent = set(BROKERS)
    for _ in range(40):
        made.run(60)
    assert {one.key: made.in_force[one.key] for one in made.actors} == {
        one.key: one.promised for one in made.actors
    }


@SEARCH
@given(simulated_clusters(), stories(restarts=False))
def test_no_lowering_mutes_anybody_for_longer_than_allowed(
    made: SimulatedCluster, story: list[Turn]
) -> None:
    """Neither by what the step itself predicts nor by the highest rate that was read of the entity
    within the last window.
    """
    window, bound_seconds = made.settings.window, made.settings.max_mute_seconds
    read: list[tuple[float, RateKey, float]] = []
    for frame in played(made, story):
        now_seconds = frame.decision.rounds[0].at_seconds
        clients = made.given().readings.clients
        read += [
            (rate.at_seconds, (entity, direction), rate.bytes_per_second)
            for (entity, _, direction), rate in clients.items()
        ]
        read = [one for one in read if now_seconds - one[0] <= window.seconds]
        for key, step in frame.decision.steps.items():
            if step.value < frame.before[key]:
                sent = max((rate for _, sender, rate in read if sender == key), default=0.0)
                tolerance = 1e-6 * window.seconds
                assert step.predicted_mute_seconds <= bound_seconds + tolerance
                assert (
                    predicted_mute_seconds(round(min(sent, frame.before[key])), step.value, window)
                    <= bound_seconds + tolerance
                )


@SEARCH
@given(simulated_clusters(), stories(restarts=False))
def test_two_cuts_of_one_rate_are_a_dwell_apart_or_a_stride_to_a_known_target(
    made: SimulatedCluster, story: list[Turn]
) -> None:
    """A cut lowers the share of the contract. A rate that falls because leaders moved away, at the
    same share, is none.
    """
    lowered: dict[RateKey, float] = {}
    contracts = {one.key: one.promised for one in made.actors}
    for frame in played(made, story):
        now_seconds = frame.decision.rounds[0].at_seconds
        for key, step in frame.decision.steps.items():
            share = frame.rates[key].contract / contracts[key]  # below 1: leaders moved away
            same_share = frame.before[key] if share >= 1 else frame.before[key] * share - 1
            if step.value < same_share and not frame.turn.refused:
                held = frame.memory.held[key]
                apart = (
                    made.settings.stride_seconds if held.in_stride else made.settings.dwell_seconds
                )
                assert now_seconds - lowered.get(key, -inf) >= apart
                lowered[key] = now_seconds
        contracts = {key: rate.contract for key, rate in frame.rates.items()}


@SEARCH
@given(simulated_clusters(), stories())
def test_a_tier_is_cut_only_where_the_lower_ones_cannot_give_enough(
    made: SimulatedCluster, story: list[Turn]
) -> None:
    for frame in played(made, story):
        for one in frame.decision.rounds:
            goals = frame.memory.directions[one.direction].goals
            for step in (step for step in one.steps if step.kind is StepKind.CUT):
                if step.in_stride:  # what a round decided, for which this held
                    assert step.level is not Level.L1
                    assert step.value >= goals[step.key].of(step.contract)
                    continue
                lower = CUT_ORDER[: CUT_ORDER.index(step.level)]
                needy = [view for view in one.brokers if view.need > 0]
                assert any(
                    sum(view.cuttable[level] for level in lower) <= view.need + 1 for view in needy
                )


@SEARCH
@given(simulated_clusters(), stories())
def test_a_tier_is_raised_only_once_no_higher_one_is_throttled(
    made: SimulatedCluster, story: list[Turn]
) -> None:
    for frame in played(made, story):
        for key in frame.fresh:
            step = frame.decision.steps[key]
            if step.kind in (StepKind.RAISE, StepKind.RELEASE):
                higher = [
                    other
                    for other in frame.memory.held
                    if other[1] is key[1] and frame.rates[other].level < step.level
                ]
                assert all(
                    frame.memory.held[other].value == frame.memory.held[other].contract
                    for other in higher
                )


@SEARCH
@given(simulated_clusters(), stories(honest=True, moves=False, restarts=False, refusals=False))
def test_raises_fit_into_the_headroom_of_every_broker_on_which_they_bind(
    made: SimulatedCluster, story: list[Turn]
) -> None:
    for frame in played(made, story):
        for broker in BROKERS:
            for direction in Direction:
                limit = made.limits[broker].limit(direction) or inf
                bound = [
                    key
                    for key, rate in frame.rates.items()
                    if key[1] in direction.parts and broker in rate.leads
                ]
                added = sum(
                    max(
                        0.0,
                        min(made.wants.get((key, broker), 0.0), frame.value(key))
                        - min(made.wants.get((key, broker), 0.0), frame.before[key]),
                    )
                    for key in bound
                )
                after = sum(
                    min(made.wants.get((key, broker), 0.0), frame.value(key)) for key in bound
                )
                other = sum(made.other.get((broker, part), 0.0) for part in direction.parts)
                carried = after + other
                assert added == 0 or carried <= limit


@SEARCH
@given(simulated_clusters(), stories(refusals=False))
def test_losing_the_memory_writes_nothing_by_itself(
    made: SimulatedCluster, story: list[Turn]
) -> None:
    for frame in played(made, story):
        made.memory = ThrottleMemory()
        again = made.decide()
        made.memory = frame.memory
        if frame.memory.distrusted_until:
            # which NIC lied up to which sample goes with the memory: it is believed a sample sooner
            continue
        for key, rate in frame.rates.items():
            held, step = frame.memory.held.get(key), again.steps.get(key)
            on_its_way = made.in_force[key] > rate.contract or (
                held is not None and held.of(rate.contract) != made.in_force[key]
            )
            wanted = rate.contract if step is None else step.value
            as_good_as_released = (
                made.in_force[key] >= RELEASED * rate.contract and wanted == rate.contract
            )
            assert on_its_way or as_good_as_released or wanted == made.in_force[key]


@SEARCH
@given(simulated_clusters(), stories())
def test_the_same_input_and_memory_give_the_same_decision(
    made: SimulatedCluster, story: list[Turn]
) -> None:
    for frame in played(made, story):
        first, memory = made.decide(), made.memory
        made.memory = frame.memory
        assert made.decide() == first
        assert made.memory == memory
        made.memory = frame.memory


@settings(deadline=None, max_examples=settings().max_examples * 3 // 10)
@given(simulated_clusters())
def test_constant_demand_comes_to_rest(made: SimulatedCluster) -> None:
    made.settings = ThrottleSettings()
    for _ in range(100):
        made.run(30)
    before = dict(made.in_force)
    for _ in range(20):
        made.run(30)
    assert made.in_force == before


@SEARCH
@given(simulated_clusters(), stories())
def test_when_the_load_is_gone_everybody_is_back_at_exactly_the_contract(
    made: SimulatedCluster, story: list[Turn]
) -> None:
    for _ in played(made, story):
        pass
    made.wants, made.other, made.lies, made.silent = {}, {}, {}, set()
    for _ in range(110):
        made.run(40)
        if all(made.in_force[one.key] == one.promised for one in made.actors):
            return
    raise AssertionError(f"still held: {made.in_force}")
