"""Finished runs of the demo made by arithmetic, and what tables and witnesses have of them; a test
may spoil any of it.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pytest

from demo.episode import Playing, ThrottlingOutcome, TierStep
from demo.move_outcome import (
    FOLLOWER_RATE,
    LEADER_RATE,
    Foretold,
    Move,
    MoveOutcome,
    Throttles,
    ThrottleStep,
)
from demo.outcome import Outcome, PhaseResult, Reaction
from demo.script import (
    BUSINESSES,
    CONTRACT,
    FOLLOWED_TOPIC,
    FULL,
    FULL_THROTTLING,
    HEALTHY_LEADERS,
    LEVELS,
    LIMIT,
    ORPHAN,
    QUICK_MOVE,
    READER,
    UNTHROTTLED_TOPIC,
    VICTIM,
    Phase,
    Scale,
    Step,
    ThrottlingLength,
    Windows,
    played_phases,
    quota_of,
)
from demo.shift_outcome import MESSAGES_PER_SECOND, Arrival, ShiftOutcome
from demo.usage_outcome import (
    Done,
    StoredUsage,
    UsageOutcome,
    UserUsage,
    Witnesses,
    held_back_by_quotas,
)
from demo.words import Mark, MarkKind
from lab.episodes import Business
from lab.load import ProcessorShare
from lab.quota_watch import QuotaWrite
from lab.rates import ByteSeries, Sample

# --- experiment 1 ---------------------------------------------------------------------------------
# A finished run of the demo made by arithmetic: every broker holds its quota exactly, or misses it
# where a test says so.


START = 1_700_000_000.0
STEPS_SECONDS = 10
PER_PARTITION = 10_000_000

PlayedRun = Callable[..., Outcome]


@pytest.fixture(scope="session")
def played() -> PlayedRun:
    """A run at 10 MB/s per partition, played in `windows`, in which everything delivers
    `delivered_share` of what it should.
    """
    return _played


def _played(
    windows: Windows = FULL,
    *,
    delivered_share: float = 1.0,
    seconds_after_election: float | None = 0.5,
) -> Outcome:
    scale = Scale(PER_PARTITION, "without any quota this machine (2 cores) carried 80 of 90 MB/s")
    phases = played_phases(with_second_before=windows.measures_before_second_kill)
    length = STEPS_SECONDS + windows.settle_seconds + windows.measure_seconds
    begins = [START + number * length for number in range(len(phases))]
    results = tuple(
        _result(phase, begin, windows=windows, share=delivered_share)
        for phase, begin in zip(phases, begins, strict=True)
    )
    killed = next(
        result.begin_seconds
        for result in reversed(results)
        if Step.KILL_BROKER in result.phase.steps
    )
    committed = None if seconds_after_election is None else killed + 6 + seconds_after_election
    return Outcome(
        scale=scale,
        windows=windows,
        results=results,
        reaction=Reaction(killed, killed + 6, committed),
        series={
            partition: _series_of_partition(results, partition, length=length)
            for partition in HEALTHY_LEADERS
        },
        marks=tuple(mark for result in results for mark in _marks(result)),
        surroundings={"Processor": "2 cores, a processor", "Network": "three brokers on loopback"},
        setup_seconds={"ZooKeeper and three brokers": 10.8},
    )


def _result(phase: Phase, begin: float, *, windows: Windows, share: float) -> PhaseResult:
    rates = _rates(phase, share)
    return PhaseResult(
        phase=phase,
        begin_seconds=begin,
        measured_from_seconds=begin + STEPS_SECONDS + windows.settle_seconds,
        measured_seconds=windows.measure_seconds,
        leaders=phase.leaders,
        by_partition=rates,
        quota=quota_of(phase, PER_PARTITION),
        counted_by_brokers=sum(rates.values()),
        processor=ProcessorShare(busy_percent=60.0, stolen_percent=7.0),
    )


def _rates(phase: Phase, share: float) -> Mapping[int, float]:
    crowd = Counter(phase.leaders.values())
    return {
        partition: share * quota_of(phase, PER_PARTITION) / crowd[broker]
        for partition, broker in phase.leaders.items()
    }


def _series_of_partition(
    results: tuple[PhaseResult, ...], partition: int, *, length: int
) -> ByteSeries:
    seconds = [(result, second) for result in results for second in range(1, length + 1)]
    return ByteSeries(
        Sample(result.begin_seconds + second, round(result.by_partition[partition]))
        for result, second in seconds
    )


def _marks(result: PhaseResult) -> list[Mark]:
    after = result.begin_seconds + STEPS_SECONDS
    written = Mark(after, MarkKind.QUOTA, f"quota {(result.quota or 0) / 1e6:g} MB/s")
    made = {
        Step.SET_FIXED_QUOTA: [written],
        Step.KILL_BROKER: [
            Mark(result.begin_seconds, MarkKind.KILL, "broker 3 is killed (SIGKILL)")
        ],
        Step.REVIVE_BROKER: [
            Mark(
                result.begin_seconds + 3,
                MarkKind.RETURN,
                f"broker {VICTIM} leads partition {ORPHAN} again",
            )
        ],
        Step.PATCH_TO_MEAN: [written],
    }
    marks = [
        mark
        for step in (*result.phase.preparation, *result.phase.steps)
        for mark in made.get(step, [])
    ]
    return [*marks, written] if result.phase.key == "max-killed" else marks


# --- experiments 2 and 3 --------------------------------------------------------------------------
# An episode of experiments 2 and 3 made by arithmetic: everybody gets the smaller of what they want
# and their quota.


BEGAN = 1_700_000_000.0
LIMITED, FIRST_WRITE, MEASURED, RAISED, ENDED = (
    BEGAN + seconds for seconds in (24, 30, 150, 190, 290)
)
# Level -> (seconds after the first write, quota); the last value is the throttled rate.
LADDER: Mapping[str, tuple[tuple[int, int], ...]] = {
    "L3": ((0, 12_000_000), (30, 6_000_000), (60, 3_000_000), (90, 1_000_000)),
    "L2": ((0, 12_000_000), (30, 5_000_000)),
    "L1": ((30, 12_000_000), (60, 10_000_000)),
}

PlayedEpisode = Callable[..., Playing]
PlayedThrottling = Callable[..., ThrottlingOutcome]
PlayedShift = Callable[..., ShiftOutcome]


@pytest.fixture(scope="session")
def played_episode() -> PlayedEpisode:
    """An episode of the ladder above; see `_episode` for what can be spoilt in it."""
    return _episode


@pytest.fixture(scope="session")
def played_throttling() -> PlayedThrottling:
    """Both ways, the published one with L3 silent for 250 s."""

    def throttling(
        length: ThrottlingLength = FULL_THROTTLING, **spoilt: object
    ) -> ThrottlingOutcome:
        cliff = _episode(silence={"L3": 250}, states=False) if length.plays_cliff else None
        return ThrottlingOutcome(
            length, _episode(**spoilt), cliff, "the NIC of the broker's own namespace"
        )  # type: ignore[arg-type]

    return throttling


@pytest.fixture(scope="session")
def played_shift() -> PlayedShift:
    """Messages of which those due since the first quota wait until ten seconds after the raise."""
    return _shift


def _shift(
    *,
    lost: Sequence[int] = (),
    twice: Sequence[int] = (),
    waits: bool = True,
    late_seconds: float = 0.02,
    per_second: int = 500,
) -> ShiftOutcome:
    """`lost` and `twice` are numbers of messages, `per_second` how many leave after the wait."""
    produced = tuple(
        BEGAN + number / MESSAGES_PER_SECOND
        for number in range(int((ENDED - BEGAN) * MESSAGES_PER_SECOND))
    )
    arrivals: list[Arrival] = []
    free_from = RAISED + 10
    for number, at in enumerate(produced):
        due = at + 5
        if number in lost or due > ENDED:
            continue
        arrived = due + late_seconds
        if waits and due >= FIRST_WRITE + 1:
            free_from = max(free_from + 1 / per_second, arrived)
            arrived = free_from
        arrivals += [Arrival(number, due, arrived)] * (2 if number in twice else 1)
    return ShiftOutcome.of(_episode(), produced, tuple(arrivals))


def _episode(
    *,
    ladder: Mapping[str, tuple[tuple[int, int], ...]] = LADDER,
    silence: Mapping[str, int] | None = None,
    share: Mapping[str, float] | None = None,
    back_after_seconds: int = 5,
    states: bool = True,
) -> Playing:
    """`silence` is level -> seconds without a byte from the first write on, `share` level -> of
    what it should get.
    """
    quotas = tuple(
        step for business in BUSINESSES for step in _steps(business, ladder, back_after_seconds)
    )
    gets = {
        business.user: _series(
            business,
            quotas,
            (silence or {}).get(business.level, 0),
            (share or {}).get(business.level, 1.0),
        )
        for business in BUSINESSES
    }
    seconds = range(1, int(ENDED - BEGAN) + 3)
    nic = ByteSeries(
        Sample(BEGAN + at, round(sum(one.mean(BEGAN + at - 1, 1) for one in gets.values())))
        for at in seconds
    )
    return Playing(
        limit=LIMIT,
        businesses=BUSINESSES,
        began_seconds=BEGAN,
        limited_at_seconds=LIMITED,
        measured_from_seconds=MEASURED,
        measured_seconds=36,
        raised_at_seconds=RAISED,
        ended_seconds=ENDED,
        moved=gets,
        nic=nic,
        writes=quotas,
        tiers=tuple(TierStep(BEGAN, level, "Contract", "") for level in LEVELS) if states else (),
        processor=ProcessorShare(busy_percent=70.0, stolen_percent=3.0),
    )


def _steps(
    business: Business, ladder: Mapping[str, tuple[tuple[int, int], ...]], back_after_seconds: int
) -> list[QuotaWrite]:
    written = [
        (BEGAN - 5, CONTRACT),
        *((FIRST_WRITE + after, quota) for after, quota in ladder.get(business.level, ())),
    ]
    if business.level in ladder:
        written.append((RAISED + back_after_seconds, CONTRACT))
    befores = [None, *(quota for _, quota in written)]
    return [
        QuotaWrite(at, business.user, before, after)
        for before, (at, after) in zip(befores, written, strict=False)
    ]


def _series(
    business: Business, quotas: tuple[QuotaWrite, ...], silent_seconds: int, share: float
) -> ByteSeries:
    steps = [step for step in quotas if step.user == business.user]

    def rate(at: float) -> int:
        if FIRST_WRITE <= at < FIRST_WRITE + silent_seconds:
            return 0
        quota = [step.after for step in steps if step.at_seconds <= at][-1]
        return round(share * min(business.demand, quota or business.demand))

    seconds = range(int(ENDED - BEGAN) + 3)
    return ByteSeries(
        [
            Sample(BEGAN, 0),
            *(Sample(BEGAN + second + 1, rate(BEGAN + second)) for second in seconds),
        ]
    )


# --- usage ----------------------------------------------------------------------------------------
# What tables and witnesses say of the episode made by arithmetic: the same, unless a test spoils
# one of them.


END_MS = 300_000 * (int(BEGAN) // 300 + 1)
TIERS = {"checkout": "sales", "orders": "logistics", "search": "discovery", "reports": "analytics"}
FILLED = 160_000_000
RolledUp = Callable[..., UsageOutcome]


@pytest.fixture(scope="session")
def rolled_up(played_throttling: PlayedThrottling) -> RolledUp:
    """`moved` and `held` are user -> of what it should be, `miscounted` bytes that the tables have
    too many, `code` the report's.
    """

    def usage(
        *,
        moved: Mapping[str, float] | None = None,
        held: Mapping[str, float] | None = None,
        miscounted: int = 0,
        code: int | None = 0,
    ) -> UsageOutcome:
        done = tuple(
            Done(f"tidegate {words}", 0, 2.0, ("done",))
            for words in ("rollup run --running", "rollup verify")
        )
        last = Done(
            "tidegate report --out <here>",
            code,
            3.0,
            ("error: nothing is published",) if code else ("The report is there",),
        )
        if code != 0:
            return UsageOutcome((*done, last))
        seen = _seen(played_throttling())
        users = (
            *(_user(one.user, one.level, seen, moved or {}, held or {}) for one in BUSINESSES),
            _written("alice", "accounting"),
        )
        stored = StoredUsage(
            END_MS,
            {way: count + miscounted for way, count in seen.counted.items()},
            (*users, _written("", "")),
        )
        return UsageOutcome((*done, last), stored, seen)

    return usage


def _seen(throttling: ThrottlingOutcome) -> Witnesses:
    arrived = {
        one.user: throttling.tidegate.moved_by(one.level).delivered_until(END_MS / 1000)
        for one in BUSINESSES
    }
    held = {one.level: held_back_by_quotas(throttling.tidegate, one.level) for one in BUSINESSES}
    return Witnesses(
        {(2, "fetch"): round(1.016 * sum(arrived.values())), (2, "produce"): FILLED}, arrived, held
    )


def _user(
    user: str, level: str, seen: Witnesses, moved: Mapping[str, float], held: Mapping[str, float]
) -> UserUsage:
    held_back = (
        held.get(user, 1.0) * (seen.held_back[level] or 1.0)
        if user in held or seen.held_back[level]
        else 0.0
    )
    sent = round(1.016 * moved.get(user, 1.0) * seen.arrived[user])
    return UserUsage(f"streaming/{TIERS[user]}", user, "fetch", sent, round(held_back))


def _written(user: str, tier: str) -> UserUsage:
    return UserUsage(f"streaming/{tier}" if tier else "", user, "produce", FILLED // 2, 0)


# --- experiment 5 ---------------------------------------------------------------------------------
# Two moves made by arithmetic: alone at 20 MB/s, which leaves L0 two thirds of what it wants; then
# under Tidegate at 9.6 MB/s from the second second on, beside an L0 that gets everything.


PlayedMove = Callable[..., MoveOutcome]
REQUESTED_ALONE, REQUESTED = BEGAN + 20, BEGAN + 60
MOVED = 240_000_000
FOREIGN: Throttles = {("broker 1", LEADER_RATE): "900000000"}
OURS: Throttles = {
    ("broker 2", LEADER_RATE): "9600000",
    ("broker 3", FOLLOWER_RATE): "4800000",
    ("topic archive-2", "leader.replication.throttled.replicas"): "0:2,1:2",
}


@pytest.fixture(scope="session")
def played_move() -> PlayedMove:
    """Both moves; see `_played_move` for what can be spoilt in the second one."""
    return _played_move


def _played_move(
    *,
    share: float = 1.0,
    moves: int = 9_600_000,
    ends: bool = True,
    throttled_after: float | None = 1.0,
    clean_after: float | None = 2.0,
    foretold_longer_by: float = 0.0,
    foreign: Sequence[Throttles] = (FOREIGN, FOREIGN, FOREIGN),
) -> MoveOutcome:
    """`share` is what L0 gets of what it wants, `moves` the bytes that are moved in a second,
    `foreign` what somebody else has set before, during and after the move.
    """
    seconds = MOVED / moves
    alone = Move(UNTHROTTLED_TOPIC, MOVED, 8, REQUESTED_ALONE, REQUESTED_ALONE + 12, BEGAN + 32)
    given_up = REQUESTED + seconds
    ours = Move(FOLLOWED_TOPIC, MOVED, 8, REQUESTED, given_up if ends else None, given_up)
    ended = given_up + 5

    def rates(at: float) -> tuple[float, float]:
        """What L0 gets, and what is moved."""
        if alone.requested_seconds <= at < alone.requested_seconds + 12:
            return READER.demand * 2 / 3, 20e6
        if REQUESTED <= at < given_up:
            return READER.demand * share, moves
        return READER.demand, 0.0

    times = [BEGAN + second for second in range(int(ended - BEGAN) + 3)]
    steps = [ThrottleStep(BEGAN, foreign[0])]
    if throttled_after is not None:
        steps.append(ThrottleStep(REQUESTED + throttled_after, {**foreign[1], **OURS}))
        if clean_after is not None:
            steps.append(ThrottleStep(given_up + clean_after, foreign[2]))
    return MoveOutcome(
        length=QUICK_MOVE,
        began_seconds=BEGAN,
        ended_seconds=ended,
        unthrottled=alone,
        followed=ours,
        read=ByteSeries([Sample(BEGAN, 0), *(Sample(at + 1, round(rates(at)[0])) for at in times)]),
        nic=ByteSeries(
            [Sample(BEGAN, 0), *(Sample(at + 1, round(sum(rates(at)))) for at in times)]
        ),
        steps=steps,
        foretold=[
            Foretold(
                REQUESTED + after,
                seconds - after + foretold_longer_by,
                round(MOVED - after * moves),
            )
            for after in range(2, int(seconds), 5)
        ],
        foreign=foreign[0],
        processor=ProcessorShare(busy_percent=50.0, stolen_percent=1.0),
    )
