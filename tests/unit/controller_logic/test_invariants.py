"""What must hold in every world: random tiers, stores, leaders and clocks, played over many
passes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.controller_logic.worlds import DEFAULT_USER, World, policy, stored, tier, topology
from tidegate_logic.decide import decide
from tidegate_logic.decision import Decision, Memory
from tidegate_logic.model import (
    BYTE_RATE_KEYS,
    MAX_BYTE_RATE,
    MIN_BYTE_RATE,
    Contract,
    Entity,
    Member,
    QuotaKey,
    QuotaWindow,
    RateForm,
    ScalingMethod,
    StoredQuota,
    Tier,
    TopicLeaders,
    Topology,
)
from tidegate_logic.quota_values import enforced_rate
from tidegate_logic.quotas.mute import predicted_mute_seconds
from tidegate_logic.quotas.precedence import same_bucket_fallbacks

ENTITIES = (Entity("a"), Entity("b"), Entity("a", "c"), Entity(None, "c"), Entity("d"))
rates = st.one_of(st.none(), st.integers(MIN_BYTE_RATE, 4096), st.integers(10**6, 10**9))
topics = st.lists(st.sampled_from(["t1", "t2", "t*", "gone"]), max_size=2, unique=True).map(tuple)
contracts = st.builds(
    Contract,
    st.sampled_from(RateForm),
    rates,
    rates,
    st.one_of(st.none(), st.integers(1, 500)),
    st.one_of(st.none(), st.integers(1, 9)),
)
texts = st.one_of(st.sampled_from(["0", "4000", "-1"]), st.integers(MIN_BYTE_RATE, 10**9).map(str))
stored_values = st.dictionaries(st.sampled_from(QuotaKey), texts, max_size=3)
leaders = st.builds(
    TopicLeaders,
    st.dictionaries(st.integers(1, 4), st.integers(1, 9), max_size=4),
    st.sampled_from([0, 0, 0, 2]),
)
topologies = st.dictionaries(st.sampled_from(["t1", "t2", "t3"]), leaders).map(topology)


def member(entity: Entity, topics: tuple[str, ...], contract: Contract | None) -> Member:
    return Member(str(entity), entity, topics, contract)


members = st.lists(
    st.builds(member, st.sampled_from(ENTITIES), topics, st.none() | contracts), max_size=5
)
tiers = members.map(lambda given: (tier(*given),))
windows = st.sampled_from([QuotaWindow(), QuotaWindow(2, 1), QuotaWindow(11, 2)])
policies = st.builds(
    policy,
    scaling=st.sampled_from(ScalingMethod),
    window=windows,
    max_mute_seconds=st.integers(3, 30),
    max_removal_percent=st.just(100),
    minimum_change_percent=st.sampled_from([0, 10]),
    write_budget_changes=st.sampled_from([3, 300]),
    defaults=st.sampled_from([{}, {DEFAULT_USER: {QuotaKey.CONSUMER_BYTE_RATE: 5_000_000}}]),
)
stores = st.dictionaries(st.sampled_from((*ENTITIES, DEFAULT_USER)), stored_values).map(
    lambda values: {entity: stored(entity, kept) for entity, kept in values.items()}
)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    return World(draw(tiers), draw(policies), draw(topologies), draw(stores))


@dataclass(frozen=True)
class Turn:
    """What happens before one pass."""

    seconds: float
    tiers: tuple[Tier, ...] | None
    topology: Topology | None
    restart: bool


turns = st.lists(
    st.builds(
        Turn,
        st.sampled_from([1.0, 15.0, 30.0, 400.0]),
        st.none() | tiers,
        st.none() | topologies,
        st.booleans(),
    ),
    min_size=1,
    max_size=8,
)


def play(world: World, turn: Turn) -> tuple[Mapping[Entity, StoredQuota], Decision]:
    """One turn: the store before the pass, and what was decided and applied."""
    world.now_seconds += turn.seconds
    world.tiers = turn.tiers if turn.tiers is not None else world.tiers
    world.topology = turn.topology if turn.topology is not None else world.topology
    if turn.restart:
        world.memory = Memory()
    before = dict(world.observation().quotas or {})
    return before, world.run()


def rate_in_force(
    quotas: Mapping[Entity, StoredQuota], entity: Entity, key: QuotaKey
) -> int | None:
    """The byte rate that holds the entity's bucket: its own, or that of a default entity for the
    same bucket.
    """
    for candidate in (entity, *same_bucket_fallbacks(entity)):
        quota = quotas.get(candidate)
        if quota is not None and key in quota.values:
            return enforced_rate(quota.values[key])
    return None


@settings(deadline=None)
@given(worlds(), turns)
def test_no_lowering_may_mute_a_client_for_longer_than_allowed(
    world: World, story: list[Turn]
) -> None:
    window, bound_seconds = world.policy.window, world.policy.max_mute_seconds
    for turn in story:
        before, decision = play(world, turn)
        for write in decision.writes:
            for key in BYTE_RATE_KEYS & write.values.keys():
                earlier = rate_in_force(before, write.entity, key)
                now = rate_in_force(world.quotas or {}, write.entity, key)
                if earlier is not None and now is not None and now < earlier:
                    assert (
                        predicted_mute_seconds(earlier, now, window)
                        <= bound_seconds + 1e-6 * window.seconds
                    )


@settings(deadline=None)
@given(worlds(), turns)
def test_lowerings_of_one_key_are_a_step_distance_apart(world: World, story: list[Turn]) -> None:
    distance_seconds = world.policy.window.step_distance_seconds
    changed_at: dict[tuple[Entity, QuotaKey], float] = {}
    for turn in story:
        before, decision = play(world, turn)
        for write in decision.writes:
            for key in BYTE_RATE_KEYS & write.values.keys():
                place, text = (write.entity, key), write.values[key]
                earlier, now = (
                    enforced_rate(before[write.entity].values.get(key)),
                    enforced_rate(text),
                )
                if (
                    earlier is not None
                    and now is not None
                    and now < earlier
                    and place in changed_at
                ):
                    assert world.now_seconds - changed_at[place] >= distance_seconds
                changed_at[place] = world.now_seconds
            if write.ledger is None:
                changed_at = {
                    place: at for place, at in changed_at.items() if place[0] != write.entity
                }


@settings(deadline=None)
@given(worlds(), turns)
def test_deciding_again_changes_nothing_unless_a_step_or_room_is_due(
    world: World, story: list[Turn]
) -> None:
    for turn in story:
        play(world, turn)
    again = world.decide()
    assert again.writes == ()
    if (
        not again.deferred_writes
    ):  # what was restored in full leaves no trace by which a restart could know what it cost
        world.memory = Memory()
        assert world.decide().writes == ()


@settings(deadline=None)
@given(worlds(), turns)
def test_charged_writes_of_a_quarter_of_an_hour_stay_in_the_budget(
    world: World, story: list[Turn]
) -> None:
    charged: list[float] = []
    for turn in story:
        _, decision = play(world, replace(turn, restart=False))
        charged.extend(world.now_seconds for write in decision.writes if write.charged)
        recent = [at for at in charged if world.now_seconds - at < 900]
        assert len(recent) <= world.policy.write_budget_changes


@settings(deadline=None)
@given(worlds(), turns)
def test_letting_go_of_everything_returns_to_what_stood_there(
    world: World, story: list[Turn]
) -> None:
    at_first = {entity: dict(quota.values) for entity, quota in (world.quotas or {}).items()}
    for turn in story:
        play(world, turn)
    world.policy = replace(world.policy, deleting=True)
    for _ in range(400):
        world.now_seconds += 901
        if world.run().finished_deleting:
            break
    at_last = {
        entity: dict(quota.values) for entity, quota in (world.quotas or {}).items() if quota.values
    }
    assert at_last == {entity: values for entity, values in at_first.items() if values}


@settings(deadline=None)
@given(worlds(), turns)
def test_every_byte_rate_that_is_written_is_one_that_kafka_throttles_on_or_stood_there_before(
    world: World, story: list[Turn]
) -> None:
    for turn in story:
        before, decision = play(world, turn)
        for write in decision.writes:
            entries = ledger.entries if (ledger := before[write.entity].ledger) is not None else {}
            for key in BYTE_RATE_KEYS & write.values.keys():
                text = write.values[key]
                given_back = key in entries and text == entries[key].before
                assert given_back or MIN_BYTE_RATE <= (enforced_rate(text) or 0) <= MAX_BYTE_RATE


@settings(deadline=None)
@given(worlds(), turns, st.sampled_from(["tiers", "topology", "quotas"]))
def test_incomplete_input_changes_nothing(world: World, story: list[Turn], lacking: str) -> None:
    for turn in story:
        play(world, turn)
    world.now_seconds += 1000
    decision, _ = decide(replace(world.observation(), **{lacking: None}), world.memory)
    assert decision.writes == ()


@settings(deadline=None)
@given(worlds(), turns)
def test_the_same_observation_and_memory_give_the_same_decision(
    world: World, story: list[Turn]
) -> None:
    for turn in story[:-1]:
        play(world, turn)
    assert decide(world.observation(), world.memory) == decide(world.observation(), world.memory)
