"""In which windows each tier was held below its contract, by the tier tables: for those who have no audit trail."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.rollup.report.figures import ThrottledWindow
from tidegate.rollup.report.registry import Registry
from tidegate.rollup.report.request import moment

_HELD: Final = ("seconds_throttled", "seconds_relaxing")
_STATES: Final = ("seconds_contract", "seconds_stepping", *_HELD)


def are_states_known(tiers: pa.Table) -> bool:
    """Whether anybody kept an account: at every moment a tier is in some state."""
    return any((pc.sum(tiers[name]).as_py() or 0.0) > 0 for name in _STATES)


def throttled_windows(tiers: pa.Table, registry: Registry, *, grain_ms: int) -> tuple[ThrottledWindow, ...]:
    """A line for each window, tier and direction with any time below the contract, in order of time."""
    held = tiers.filter(pc.greater(pc.add(*(tiers[name] for name in _HELD)), 0.0))
    rows = held.sort_by([("window_start", "ascending"), ("tier", "ascending"), ("direction", "ascending")]).to_pylist()
    return tuple(
        ThrottledWindow(
            start=moment(row["window_start"]),
            seconds=grain_ms / 1000,
            level=registry.level(row["tier"]),
            **{name: row[name] for name in ("tier", "direction", "throttle_episodes", *_HELD)},
        )
        for row in rows
    )
