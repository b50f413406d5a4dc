"""Rates of tiered storage and log directories: what they are, whose they are, what is put back."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.controller_logic.replicating import MB, OFF, apply
from tidegate_logic.model import BackgroundKind, Direction, Level, NicSpan
from tidegate_logic.replication.background import (
    INEFFECTIVE_AFTER_SECONDS,
    Background,
    Tiering,
    background_rates,
    mean_of,
)
from tidegate_logic.replication.moves import ClusterReplication, MoveKind, egress_of
from tidegate_logic.replication.rates import NicRoom, Priority, ReplicationMode, Terms
from tidegate_logic.replication.replication_pass import (
    LEAST_DISTANCE_SECONDS,
    ReplicationDecision,
    ReplicationInput,
    ReplicationMemory,
    decide_replication,
    resources_of,
)
from tidegate_logic.replication.throttles import (
    BACKGROUND_KEYS,
    Items,
    Operation,
    Resource,
    broker_resource,
)

COPY, FETCH, LOG_DIRS = BackgroundKind
COPY_KEY = BACKGROUND_KEYS[COPY]
TIERED = Tiering(is_on=True, kinds=frozenset({COPY, FETCH}))
FIXED = Terms(ReplicationMode.FIXED, maximum=5 * MB)
FOLLOW = Terms(ReplicationMode.FOLLOW, minimum=MB)
BROKER = broker_resource(1)


@dataclass
class World:
    """Broker 1 with tiered storage, what its NIC carries, and what it copies of that."""

    terms: dict[BackgroundKind, Terms] = field(default_factory=lambda: {COPY: FIXED})
    tiering: dict[int, Tiering] = field(default_factory=lambda: {1: TIERED})
    configs: dict[Resource, dict[str, str]] = field(default_factory=lambda: {BROKER: {}})
    record: Items = field(default_factory=dict)
    nic: NicRoom = field(default_factory=lambda: NicRoom(100 * MB, 40.0 * MB, 1000.0, 30.0))
    copied: float | None = 0.0
    memory: ReplicationMemory = field(default_factory=ReplicationMemory)
    now_seconds: float = 1000.0
    is_down: bool = False

    def decide(self) -> ReplicationDecision:
        """A pass, with nothing of it applied."""
        spans = {}
        if self.copied is not None:
            spans[1, COPY] = (NicSpan(self.nic.at_seconds, 60.0, self.copied),)
        seen = ClusterReplication(self.now_seconds, frozenset() if self.is_down else frozenset({1}))
        background = Background(self.terms, {} if self.is_down else self.tiering, spans)
        wanted = resources_of(seen, self.record, seen.brokers)
        decision, self.memory = decide_replication(
            ReplicationInput(
                self.now_seconds,
                dict.fromkeys(MoveKind, OFF),
                97,
                seen,
                {egress_of(1): self.nic},
                {} if self.is_down else {one: dict(self.configs.get(one, {})) for one in wanted},
                self.record,
                clean_up_leftovers=True,
                scanned={} if self.is_down else self.configs,
                background=background,
            ),
            self.memory,
        )
        return decision

    def go(self, seconds: float = 20.0) -> ReplicationDecision:
        """A pass: the record first, then the changes; then some time."""
        decision = self.decide()
        for change in decision.changes:
            if change.operation is Operation.SET:
                kept = decision.record.get(change.resource, {}).get(change.key, frozenset())
                assert change.value in kept or f"before={change.value}" in kept
        self.record = decision.record
        apply(self.configs, decision.changes)
        self.now_seconds += seconds
        self.nic = replace(self.nic, at_seconds=self.nic.at_seconds + seconds)
        return decision

    @property
    def rate(self) -> str | None:
        return self.configs[BROKER].get(COPY_KEY)


@pytest.mark.parametrize("before", [None, "777"])
def test_a_fixed_rate_replaces_what_was_there_and_puts_it_back(before: str | None) -> None:
    world = World()
    if before is not None:
        world.configs[BROKER][COPY_KEY] = before
    world.go()
    assert world.rate == str(5 * MB)
    assert not world.go().changes
    world.terms = {COPY: replace(FIXED, maximum=6 * MB)}
    world.go()
    assert world.rate == str(6 * MB)
    world.terms = {}
    world.go()
    assert world.rate == before
    world.go()
    assert world.go().is_finished
    assert not world.record


def test_a_rate_that_somebody_changes_stays_and_is_told_until_they_take_it_away() -> None:
    world = World()
    world.configs[BROKER][COPY_KEY] = "777"
    world.go()
    world.configs[BROKER][COPY_KEY] = "999"
    for _ in range(3):
        decision = world.go()
        assert [one.value for one in decision.background.others] == ["999"]
        assert not decision.changes
        assert not decision.others  # it is none of replication's
    world.memory = ReplicationMemory()  # a restart knows it by the record
    assert world.go().background.others
    del world.configs[BROKER][COPY_KEY]
    world.go()
    assert world.rate == str(5 * MB)
    world.configs[BROKER][COPY_KEY] = "999"
    world.terms = {}
    world.go()
    assert world.rate == "999"


def test_who_keeps_resetting_it_is_left_alone_after_the_second_time() -> None:
    world = World()
    for _ in range(5):
        world.go(LEAST_DISTANCE_SECONDS)
        world.go()
        world.configs[BROKER].pop(COPY_KEY, None)
    decision = world.go()
    assert decision.background.left_alone == ((1, COPY),)
    assert world.rate is None


def test_brokers_without_tiered_storage_and_those_too_old_for_a_rate_are_left_alone() -> None:
    kinds = {COPY: FIXED, FETCH: FIXED, LOG_DIRS: FIXED}
    world = World(kinds, {1: Tiering(), 2: Tiering(is_on=True)})
    decision = world.go()
    assert {one.key for one in decision.changes} == {BACKGROUND_KEYS[LOG_DIRS]}
    assert decision.background.lacking == ((2, COPY), (2, FETCH))


def test_a_broker_that_is_down_keeps_its_rate_until_it_is_back() -> None:
    world = World()
    world.configs[BROKER][COPY_KEY] = "777"
    world.go()
    world.terms, world.is_down = {}, True
    assert world.go().unknown == (BROKER,)
    assert world.rate == str(5 * MB)
    world.is_down = False
    world.go()
    assert world.rate == "777"


def test_a_broker_that_does_not_say_whether_it_has_tiered_storage_keeps_its_rate() -> None:
    world = World()
    world.go()
    held = world.record
    world.tiering = {}
    assert not world.go().changes
    assert world.record == held


@pytest.mark.parametrize(
    ("priority", "throttled", "rate_mb"),
    [
        (Priority.BELOW_L3, frozenset(), 62),  # 92 of 100, less the 40 less the 10 that are its own
        (Priority.BELOW_L3, frozenset({Level.L3}), 1),
        (Priority.L2, frozenset({Level.L3}), 62),
        (Priority.L2, frozenset({Level.L1}), 1),
    ],
)
def test_a_rate_that_follows_is_what_is_left_by_its_place_among_the_levels(
    priority: Priority, throttled: frozenset[Level], rate_mb: int
) -> None:
    world = World({COPY: replace(FOLLOW, priority=priority)}, copied=10.0 * MB)
    world.nic = replace(world.nic, throttled=throttled)
    world.go()
    assert world.rate == str(rate_mb * MB)


@pytest.mark.parametrize("unknown", ["nic", "bytes"])
def test_what_is_not_known_changes_no_rate_that_follows(unknown: str) -> None:
    world = World({COPY: FOLLOW}, copied=10.0 * MB)
    world.go()
    before = world.rate
    world.nic = replace(world.nic, bytes_per_second=90.0 * MB)
    if unknown == "nic":
        world.nic = replace(world.nic, bytes_per_second=None)
    else:
        world.copied = None
    decision = world.go()
    assert not decision.changes
    assert decision.background.unmeasured == ((1, COPY),)
    assert world.rate == before


def test_a_rate_that_nobody_uses_is_lowered_but_not_raised_for_noise() -> None:
    world = World({COPY: FOLLOW})
    world.go()
    assert world.rate == str(52 * MB)
    world.nic = replace(world.nic, bytes_per_second=60.0 * MB)
    world.go()
    assert world.rate == str(32 * MB)
    world.nic = replace(world.nic, bytes_per_second=40.0 * MB)
    assert not world.go().changes
    world.nic, world.copied = replace(world.nic, bytes_per_second=70.0 * MB), 30.0 * MB
    world.go()
    assert world.rate == str(52 * MB)


def test_replication_comes_first_and_levels_below_make_room_for_the_rest() -> None:
    terms = {COPY: replace(FOLLOW, priority=Priority.L2)}
    nic = NicRoom(100 * MB, 90.0 * MB, 1000.0, 30.0, reducible={Level.L3: 60.0 * MB})
    behind = Background(terms, {1: TIERED}, {(1, COPY): (NicSpan(1000.0, 30.0, 10.0 * MB),)})
    alone = background_rates(behind, {egress_of(1): nic}, {}, {}, 97)
    beside = background_rates(behind, {egress_of(1): nic}, {}, {egress_of(1): 50.0 * MB}, 97)
    assert alone[1, COPY].rate == 72 * MB
    assert beside[1, COPY].rate == 22 * MB
    world = World(terms, nic=nic, copied=10.0 * MB)
    leaves = world.go().beside[1, Direction.EGRESS].leaves
    # of 92 it may use 20, twice what it does; the rest is L3's, over what others send
    assert leaves == {Level.L3: pytest.approx((92 - 90 + 60 - 10) * MB)}


def test_below_l3_it_gives_all_but_its_floor_before_any_level_is_throttled() -> None:
    world = World({COPY: FOLLOW}, copied=30.0 * MB)
    world.go()
    assert world.go().beside[1, Direction.EGRESS].gives == pytest.approx(29 * MB)


def test_a_rate_that_does_not_hold_for_two_minutes_is_told_and_one_that_holds_is_not() -> None:
    world = World(copied=4.9 * MB)
    for _ in range(int(INEFFECTIVE_AFTER_SECONDS / 20) + 3):
        assert not world.go().background.ineffective
    world.copied = 9.0 * MB
    told = [bool(world.go().background.ineffective) for _ in range(9)]
    assert told == [False] * 6 + [True] * 3
    world.copied = 4.9 * MB
    assert not world.go().background.ineffective


def test_clients_are_not_spared_for_bytes_that_a_rate_does_not_hold_back() -> None:
    world = World({COPY: FOLLOW}, copied=30.0 * MB)
    world.nic = replace(world.nic, bytes_per_second=98.0 * MB, throttled=frozenset({Level.L3}))
    world.go()
    assert world.rate == str(MB)
    assert world.go().beside[1, Direction.EGRESS].gives == pytest.approx(29 * MB)
    for _ in range(int(INEFFECTIVE_AFTER_SECONDS / 20) + 1):
        decision = world.go()
    assert decision.background.ineffective
    assert not decision.beside


def test_a_mean_counts_only_the_seconds_that_it_is_of() -> None:
    spans = (NicSpan(10.0, 10.0, 100.0), NicSpan(20.0, 10.0, 300.0))
    assert mean_of(spans, 5.0, 20.0) == pytest.approx((5 * 100 + 10 * 300) / 15)
    assert mean_of(spans, 20.0, 30.0) is None


def test_leftovers_are_never_taken_for_what_is_set_for_good() -> None:
    world = World({})
    world.configs[BROKER].update(dict.fromkeys(BACKGROUND_KEYS.values(), "9"))
    for _ in range(30):
        assert not world.go().changes
    assert len(world.configs[BROKER]) == 3


@given(
    before=st.sampled_from([None, "777"]),
    acts=st.lists(
        st.sampled_from(["pass", "killed", "restart", "person", "removed", "down", "fixed", "off"]),
        max_size=12,
    ),
)
def test_whoever_is_killed_anywhere_leaves_what_was_there_or_what_a_person_set(
    before: str | None, acts: list[str]
) -> None:
    world = World()
    if before is not None:
        world.configs[BROKER][COPY_KEY] = before
    expected: set[str | None] = {before}
    for act in acts:
        match act:
            case "pass":
                world.go()
            case "killed":  # between the record and the change
                world.record = world.decide().record
                world.memory = ReplicationMemory()
            case "restart":
                world.memory = ReplicationMemory()
            case "person":
                world.configs[BROKER][COPY_KEY] = "999"
                expected = {"999"}
            case "removed":  # of whom it was, they may not know
                world.configs[BROKER].pop(COPY_KEY, None)
                expected |= {None, before}
            case "down":
                world.is_down = not world.is_down
            case _:
                world.terms = {COPY: FIXED} if act == "fixed" else {}
    world.terms, world.is_down = {}, False
    for _ in range(4):
        decision = world.go()
    assert decision.is_finished
    assert world.rate in expected
    assert not decision.beside


@pytest.mark.parametrize(("clients_mb", "swings_mb"), [(40, 0), (60, 0), (50, 10)])
def test_an_upload_storm_takes_nothing_from_clients_and_most_of_what_they_leave(
    clients_mb: int, swings_mb: int
) -> None:
    """2 GB that could go at 100 MB/s, beside clients on a NIC of 100 MB/s, in a model of Kafka.

    Passes are 15 s apart, and see the mean of the last 24 s.
    """
    line_rate, left = 100.0 * MB, 2000.0 * MB
    world = World({COPY: FOLLOW}, copied=0.0)
    carried: list[tuple[float, float]] = []
    lost = wanted_in_all = seconds = spare = 0.0
    for second in range(900):
        wants = (clients_mb + (swings_mb if second // 40 % 2 else 0)) * MB
        allowed = float(world.rate) if world.rate is not None else line_rate
        copies = min(allowed, line_rate, left) if second >= 60 else 0.0
        share = min(1.0, line_rate / (wants + copies))  # a full NIC lets all give alike
        carried.append((wants * share, copies * share))
        left -= copies * share
        if second >= 60:
            lost, wanted_in_all = lost + wants * (1 - share), wanted_in_all + wants
            spare, seconds = spare + 92 * MB - wants, seconds + 1
        if left <= 1:
            break
        if second % 15 == 14:
            window = carried[-24:]
            sent, moved = (sum(one[part] for one in window) / len(window) for part in (0, 1))
            at_seconds = 1000.0 + second
            world.now_seconds, world.copied = at_seconds, moved
            world.nic = NicRoom(100 * MB, sent + moved, at_seconds, 24.0)
            world.go(0.0)
    assert left <= 1
    assert lost <= 0.03 * wanted_in_all
    alone_seconds = 2000 * MB / (spare / seconds)
    assert seconds <= 1.2 * alone_seconds
