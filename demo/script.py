"""The experiment as data: which phases are played, what happens before each, and what the arithmetic expects of it.

A native Kafka quota is one number that every broker applies to its own traffic. So a broker lets through
`min(quota, offered rate x partitions it leads)`, and that is all the arithmetic there is. Nothing here starts or measures anything.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

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
    APPLY_RESOURCES = "kubectl apply -f examples/: Tidegate takes over, method Max"
    PATCH_TO_MEAN = "kubectl patch: leaderScaling.method becomes Mean"


class Regime(StrEnum):
    """Who decides the quota in a phase."""

    FIXED = "Kafka's fixed quota"
    MAX = "Tidegate, Max"
    MEAN = "Tidegate, Mean"


@dataclass(frozen=True, slots=True)
class Phase:
    """One stretch of the experiment: `preparation` still happens under the regime before, `steps` begin this one's.

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


FIXED_BEFORE = Phase("fixed-before", Regime.FIXED, (Step.SET_FIXED_QUOTA, Step.START_PRODUCERS), HEALTHY_LEADERS, quota_in_contracts=1)
FIXED_KILLED = Phase("fixed-killed", Regime.FIXED, (Step.KILL_BROKER,), LEADERS_AFTER_KILL, quota_in_contracts=1)
MAX_BEFORE = Phase(
    "max-before", Regime.MAX, (Step.APPLY_RESOURCES,), HEALTHY_LEADERS, quota_in_contracts=1, preparation=(Step.REVIVE_BROKER,)
)
MAX_KILLED = Phase("max-killed", Regime.MAX, (Step.KILL_BROKER,), LEADERS_AFTER_KILL, quota_in_contracts=2)
MEAN_KILLED = Phase("mean-killed", Regime.MEAN, (Step.PATCH_TO_MEAN,), LEADERS_AFTER_KILL, quota_in_contracts=1.5)
PHASES = (FIXED_BEFORE, FIXED_KILLED, MAX_BEFORE, MAX_KILLED, MEAN_KILLED)


def played_phases(*, with_second_before: bool) -> tuple[Phase, ...]:
    """The phases in order. Without the second look at three brokers, its steps are taken and the broker is killed at once."""
    if with_second_before:
        return PHASES
    killed_at_once = replace(MAX_KILLED, steps=(*MAX_BEFORE.steps, *MAX_KILLED.steps), preparation=MAX_BEFORE.preparation)
    return (FIXED_BEFORE, FIXED_KILLED, killed_at_once, MEAN_KILLED)


def quota_of(phase: Phase, contract_bytes_per_second: int) -> int:
    """The native quota that should be in force in the phase, in bytes per second on every broker."""
    return round(phase.quota_in_contracts * contract_bytes_per_second)


def expected_by_broker(leaders: Mapping[int, int], quota_bytes_per_second: int, *, offered_bytes_per_second: int) -> dict[int, int]:
    """What every leading broker should let through, in bytes per second: its quota, or what is offered to it if that is less.

    `leaders` maps partitions to brokers; a broker that leads nothing is absent from the answer.
    """
    partitions = Counter(leaders.values())
    return {broker: min(quota_bytes_per_second, count * offered_bytes_per_second) for broker, count in sorted(partitions.items())}
