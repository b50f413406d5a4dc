"""What is known of one policy since its last pass, as the metrics read it out when somebody scrapes them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from controller_logic.decision import Decision
from controller_logic.model import Observation, Readings
from controller_logic.rollup_schedule import Due

QUOTA_STORE, LEADERS, METRICS = "QuotaStore", "Leaders", "Metrics"


@dataclass(frozen=True, slots=True)
class PolicyReading:
    """Times are seconds since the epoch. `inputs` has when each input was read last; `readings` None = load is not known,
    `rollups` None = usage rollups are not wanted, or were not looked at."""

    decision: Decision
    finished_at_seconds: float
    charged_writes: int
    write_budget: int
    readings: Readings | None = None
    inputs: Mapping[str, float] = field(default_factory=dict)
    rollups: Due | None = None

    def after(self, earlier: "PolicyReading | None") -> "PolicyReading":
        """This reading, with the times of inputs that it lacks and the earlier one had."""
        return self if earlier is None else replace(self, inputs={**earlier.inputs, **self.inputs})


def inputs_of(observation: Observation) -> Mapping[str, float]:
    """When what one pass knew was read; an input that did not answer is absent."""
    times = {
        QUOTA_STORE: None if observation.quotas is None else observation.now_seconds,
        LEADERS: None if observation.topology is None else observation.topology.read_at_seconds,
        METRICS: None if observation.readings is None else observation.readings.read_at_seconds,
    }
    return {name: at_seconds for name, at_seconds in times.items() if at_seconds is not None}
