"""What a worker is told: everything about the run once, and one broker's range of windows at a time. Plain values that travel."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate.prometheus.settings import MetricsSettings
from tidegate.rollup.fold.broker import DirectionTerms
from tidegate.rollup.schemas import Direction
from tidegate.rollup.transport.settings import HistorySettings

Terms = Mapping[tuple[int, int], Mapping[Direction, DirectionTerms]]  # by the start of a work item, in ms, and its broker


@dataclass(frozen=True, slots=True)
class IngestOrder:
    """One run. `transport` names the rung of the ladder that was chosen; `terms` tells what was promised and limited.

    `metrics` and `history` hold logins: an order is never logged, and its `repr` shows none of them.
    """

    run_id: str
    store_url: str
    transport: str
    metrics: MetricsSettings = field(repr=False)
    history: HistorySettings = field(repr=False)
    terms: Terms = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class WorkItem:
    """One task: the windows of [start_ms, end_ms) of one broker. `part` tells the files of tasks apart."""

    broker: int
    start_ms: int
    end_ms: int
    part: int
