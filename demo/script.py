"""The experiments as data: order, times, rates, and what the arithmetic expects.

Experiment 1: broker 3 is killed. A native Kafka quota is one number that every broker applies to
its own traffic. So a broker lets through `min(quota, offered rate x partitions it leads)`, and that
is all the arithmetic there is.

Experiments 2 and 3: four businesses read from one partition of one broker, whose limit is lowered
and raised. Together they want twice the limit, so that L3 and L2 at their throttled rates do not
suffice: L1 has to give something too.

Experiment 5: two partitions are moved off a broker while L0 reads half of what its NIC can send,
once as Kafka does it by itself and once with Tidegate. Nothing here starts or measures anything.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from lab.episodes import Business
from lab.rates import SAWTOOTH_SECONDS

# Experiment 1


TOPIC = "acc"
USER = "alice"
REPLICAS = ((1, 2), (2, 3), (3, 1))
BROKERS = (1, 2, 3)
VICTIM = 3
HEALTHY_LEADERS: Mapping[int, int] = {0: 1, 1: 2, 2: 3}
LEADERS_AFTER_KILL: Mapping[int, int] = {0: 1, 1: 2, 2: 1}
ORPHAN = 2  # the partition that loses its leader with the victim


class Step(StrEnum):
    """What happens before a phase is measured."""

    SET_FIXED_QUOTA = "an administrator sets Kafka's own quota"
    START_PRODUCERS = "three producers start, one for each partition"
    KILL_BROKER = "broker 3 is killed (SIGKILL)"
    REVIVE_BROKER = "broker 3 is started again and gets its leader back"
    APPLY_RESOURCES = "kubectl apply -f examples/, in mode Enforce: Tidegate takes over, method Max"
    PATCH_TO_MEAN = "kubectl patch: leaderScaling.method becomes Mean"


class Regime(StrEnum):
    """Who decides the quota in a phase."""

    FIXED = "Kafka's fixed quota"
    MAX = "Tidegate, Max"
    MEAN = "Tidegate, Mean"


@dataclass(frozen=True, slots=True)
class Phase:
    """One stretch of the experiment.

    `preparation` still happens under the regime before, `steps` begin this one's.
    `quota_in_contracts` is the native quota expected in it, as a multiple of the contract.
    """

    key: str
    regime: Regime
    steps: tuple[Step, ...]
    leaders: Mapping[int, int]
    quota_in_contracts: float
    preparation: tuple[Step, ...] = ()

    @property
    def after_kill(self) -> bool:
        """Whether broker 3 is dead in this phase."""
        return VICTIM not in self.leaders.values()

    @property
    def title(self) -> str:
        """The phase's name for people."""
        return f"{self.regime.value}, {'broker 3 killed' if self.after_kill else 'three brokers'}"


FIXED_BEFORE = Phase(
    "fixed-before",
    Regime.FIXED,
    (Step.SET_FIXED_QUOTA, Step.START_PRODUCERS),
    HEALTHY_LEADERS,
    quota_in_contracts=1,
)
FIXED_KILLED = Phase(
    "fixed-killed", Regime.FIXED, (Step.KILL_BROKER,), LEADERS_AFTER_KILL, quota_in_contracts=1
)
MAX_BEFORE = Phase(
    "max-before",
    Regime.MAX,
    (Step.APPLY_RESOURCES,),
    HEALTHY_LEADERS,
    quota_in_contracts=1,
    preparation=(Step.REVIVE_BROKER,),
)
MAX_KILLED = Phase(
    "max-killed", Regime.MAX, (Step.KILL_BROKER,), LEADERS_AFTER_KILL, quota_in_contracts=2
)
MEAN_KILLED = Phase(
    "mean-killed", Regime.MEAN, (Step.PATCH_TO_MEAN,), LEADERS_AFTER_KILL, quota_in_contracts=1.5
)
PHASES = (FIXED_BEFORE, FIXED_KILLED, MAX_BEFORE, MAX_KILLED, MEAN_KILLED)


def played_phases(*, with_second_before: bool) -> tuple[Phase, ...]:
    """The phases in order.

    Without the second look at three brokers, its steps are taken and the broker is killed at once.
    """
    if with_second_before:
        return PHASES
    killed_at_once = replace(
        MAX_KILLED, steps=(*MAX_BEFORE.steps, *MAX_KILLED.steps), preparation=MAX_BEFORE.preparation
    )
    return (FIXED_BEFORE, FIXED_KILLED, killed_at_once, MEAN_KILLED)


def quota_of(phase: Phase, contract_bytes_per_second: int) -> int:
    """The native quota expected in the phase, in bytes per second on every broker."""
    return round(phase.quota_in_contracts * contract_bytes_per_second)


def expected_by_broker(
    leaders: Mapping[int, int], quota_bytes_per_second: int, *, offered_bytes_per_second: int
) -> dict[int, int]:
    """What every leading broker should let through, in bytes per second.

    That is its quota, or what is offered to it if that is less. `leaders` maps partitions to
    brokers; a broker that leads nothing is absent from the answer.
    """
    partitions = Counter(leaders.values())
    return {
        broker: min(quota_bytes_per_second, count * offered_bytes_per_second)
        for broker, count in sorted(partitions.items())
    }


# Experiments 2 and 3


@dataclass(frozen=True, slots=True)
class ThrottlingLength:
    """The times of one run, in seconds.

    `free`: before the limit is lowered. `longest_cut`: after that it is measured whatever the
    quotas are. `measure`: how long the tiers are measured at rest, after one sawtooth.
    `longest_return`: how long the full load is waited for after the raise.
    """

    free_seconds: int
    longest_cut_seconds: int
    measure_seconds: int
    longest_return_seconds: int
    plays_cliff: bool


SETTLE_SECONDS = SAWTOOTH_SECONDS
FULL_THROTTLING = ThrottlingLength(
    free_seconds=24,
    longest_cut_seconds=220,
    measure_seconds=36,
    longest_return_seconds=90,
    plays_cliff=True,
)
QUICK_THROTTLING = ThrottlingLength(
    free_seconds=10,
    longest_cut_seconds=160,
    measure_seconds=24,
    longest_return_seconds=75,
    plays_cliff=False,
)
# The published way: one level at a time, all the way at once.
CLIFF_SECONDS_BETWEEN_LEVELS = 30
CLIFF_WATCHED_SECONDS = 300
CLIFF_RAISED_AFTER_SECONDS = 120


FEED_TOPIC = "feed"
BROKER = 2
CONTRACT = 60_000_000
LIMIT = 50_000_000
HIGH_LIMIT = 1_000_000_000
SCRAPE_SECONDS = 1


BUSINESSES = (
    Business("L0", "checkout", 33_000_000, None, CONTRACT),
    Business("L1", "orders", 25_000_000, 10_000_000, CONTRACT),
    Business("L2", "search", 25_000_000, 5_000_000, CONTRACT),
    Business("L3", "reports", 25_000_000, 1_000_000, CONTRACT),
)
USERS = tuple(business.user for business in BUSINESSES)
LEVELS = tuple(business.level for business in BUSINESSES)
LOWERED = tuple(business for business in reversed(BUSINESSES) if business.throttled is not None)
WANTED = sum(business.demand for business in BUSINESSES)


def cliff_mute_seconds(business: Business) -> float:
    """How long Kafka mutes it when its quota drops to the throttled rate in one write.

    Window x (rate / quota - 1), with the window of 11 s; 0 for a business that is never throttled.
    """
    return 0.0 if business.throttled is None else 11 * (business.demand / business.throttled - 1)


# Experiment 5: partitions are moved off the broker from which L0 reads


NIC = 30_000_000
NIC_LIMIT = 27_000_000
READER = Business("L0", BUSINESSES[0].user, 15_000_000, None, 20_000_000)
# Equal topics, led by the broker alone: one is moved by Kafka alone, the other under Tidegate.
UNTHROTTLED_TOPIC, FOLLOWED_TOPIC = "archive-1", "archive-2"
# Partition -> the broker that it is moved to.
MOVED_TO: Mapping[int, int] = {0: 1, 1: 3}
# Somebody else's throttles, which no move of the experiment needs: they have to stay.
FOREIGN_RATE_BROKER, FOREIGN_RATE = 1, 900_000_000
FOREIGN_LIST = "0:1"


@dataclass(frozen=True, slots=True)
class MoveLength:
    """The size and the times of experiment 5, in bytes and seconds.

    `before`: how long the NIC is measured before each move. `longest_move`: after that a move
    counts as not ended.
    """

    moved_bytes: int
    before_seconds: int
    longest_move_seconds: int


FULL_MOVE = MoveLength(moved_bytes=600_000_000, before_seconds=15, longest_move_seconds=180)
QUICK_MOVE = MoveLength(moved_bytes=240_000_000, before_seconds=8, longest_move_seconds=100)


# How large and how long everything is played


FULL_CONTRACT = 10_000_000
SMALL_CONTRACT = 3_000_000
# At its largest the experiment delivers four contracts a second; the rest is margin.
NEEDED_BYTES_PER_SECOND = 5 * FULL_CONTRACT
_OFFERED_IN_CONTRACTS = 2.5


@dataclass(frozen=True, slots=True)
class Windows:
    """How long a phase settles, and is then measured, in whole sawteeth of the throttle."""

    settle_seconds: int
    measure_seconds: int
    measures_before_second_kill: bool


@dataclass(frozen=True, slots=True)
class Length:
    """One of the two lengths of the demo: the times of its experiments.

    `tries_machine`: the machine is tried for the contract it can carry.
    """

    windows: Windows
    throttling: ThrottlingLength
    move: MoveLength
    tries_machine: bool


QUICK = Windows(
    settle_seconds=SAWTOOTH_SECONDS,
    measure_seconds=2 * SAWTOOTH_SECONDS,
    measures_before_second_kill=False,
)
FULL = Windows(
    settle_seconds=18, measure_seconds=3 * SAWTOOTH_SECONDS, measures_before_second_kill=True
)
# What the environment variable DEMO may say.
LENGTHS = {
    "full": Length(FULL, FULL_THROTTLING, FULL_MOVE, tries_machine=True),
    "quick": Length(QUICK, QUICK_THROTTLING, QUICK_MOVE, tries_machine=False),
}


@dataclass(frozen=True, slots=True)
class Scale:
    """The contract per partition in bytes per second, with the reason for the choice."""

    contract_bytes_per_second: int
    reason: str

    @property
    def offered_bytes_per_second(self) -> int:
        """Two and a half contracts: more than any broker's quota per partition in any phase."""
        return round(_OFFERED_IN_CONTRACTS * self.contract_bytes_per_second)


QUICK_SCALE = Scale(
    SMALL_CONTRACT,
    "3 MB/s, because the quick demo does not try what the machine carries; the full one does",
)


def scale_for(
    carried_bytes_per_second: float, *, tried_bytes_per_second: float, cores: int
) -> Scale:
    """The full contract where the machine carried enough without any quota, else the small one."""
    carried = (
        f"without any quota this machine ({cores} cores) carried "
        f"{carried_bytes_per_second / 1e6:.0f} of {tried_bytes_per_second / 1e6:.0f} MB/s"
    )
    needed = f"the {NEEDED_BYTES_PER_SECOND / 1e6:.0f} MB/s that a contract of 10 MB/s needs"
    if carried_bytes_per_second >= NEEDED_BYTES_PER_SECOND:
        return Scale(FULL_CONTRACT, f"10 MB/s, because {carried}, at least {needed}")
    return Scale(
        SMALL_CONTRACT,
        f"3 MB/s, because the machine is too weak or too busy: {carried}, less than {needed}",
    )
