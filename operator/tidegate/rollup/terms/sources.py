"""The operator's own metrics over a stretch of time, as rows over one row of scrape times: quotas, contracts, states, limits.

Only the replica that holds the policy's Lease tells them, so series of several Pods follow each other and are one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from controller_logic.decision import LevelState
from tidegate.rollup.fold.course import Course
from tidegate.rollup.fold.scrape_grid import scrape_times
from tidegate.rollup.samples import Selection, SeriesSamples, Transport
from tidegate.rollup.schemas import Direction
from tidegate.rollup.terms.policy import KEYS, WAYS

Whole = NDArray[np.int64]
Rates = NDArray[np.float64]
MemberKey = tuple[str, str, Direction]  # tier, member
STATES: Final = tuple(state.value for state in LevelState)
_DIRECTIONS: Final[Mapping[str, Direction]] = {key.value: direction for direction, key in KEYS.items()}
_CARDS: Final[Mapping[str, Direction]] = {way.value: direction for direction, way in WAYS.items()}
_OTHER_RHYTHM: Final = 0.75  # of an interval: a pair of Prometheus servers scrapes at times of their own


@dataclass(frozen=True, slots=True, eq=False)
class OperatorSamples:
    """Rows are over `times_ms`; NaN = not told then. `levels` are numbers of `STATES`, -1 = not told. No times = nobody told anything.

    A member without a contract has a quota only while it is throttled, and no target. `source` says who told it; a trail tells nothing of
    members at rest.
    """

    times_ms: Whole
    quotas: Mapping[MemberKey, Rates]
    targets: Mapping[MemberKey, Rates]
    levels: Mapping[str, Whole]
    limits: Mapping[tuple[int, Direction], Course]
    source: Literal["metrics", "trail"] = "metrics"

    def contract(self, key: MemberKey) -> Course | None:
        """The quota on each broker that the member was promised; None where nobody told of one."""
        row = self.targets.get(key)
        told = np.flatnonzero(np.isfinite(row)) if row is not None else ()
        return Course.of(self.times_ms[told], row[told]) if row is not None and len(told) else None


def read_operator(transport: Transport, policy_key: str, start_ms: int, end_ms: int, *, interval_ms: int) -> OperatorSamples:
    """All of it in [start, end). Raises tidegate.errors."""

    def read(metric: str, **matching: str) -> list[SeriesSamples]:
        return transport.read(Selection(metric, {"policy": policy_key}, matching), start_ms, end_ms)

    rates = "|".join(_DIRECTIONS)
    quotas, targets = read("tidegate_member_quota", key=rates), read("tidegate_member_target", key=rates)
    levels, limits = read("tidegate_tier_state"), read("tidegate_broker_limit_bytes_per_second")
    times = scrape_times(one.times_ms for one in (*quotas, *targets, *levels))
    most_ms = int(_OTHER_RHYTHM * interval_ms)
    return OperatorSamples(
        times,
        {key: carried(row, times, most_ms) for key, row in _members(quotas, times).items()},
        {key: carried(row, times, most_ms) for key, row in _members(targets, times).items()},
        {level: _filled(row) for level, row in _levels(levels, times).items()},
        _limits(limits),
    )


def carried(row: Rates, times_ms: Whole, most_ms: int) -> Rates:
    """The row with each value standing on for so long where nothing was told."""
    last = np.maximum.accumulate(np.where(np.isfinite(row), np.arange(len(row)), 0))
    return np.where(times_ms - times_ms[last] <= most_ms, row[last], np.nan) if len(row) else row


def _members(series: Iterable[SeriesSamples], times_ms: Whole) -> dict[MemberKey, Rates]:
    rows: dict[MemberKey, Rates] = {}
    for one in series:
        direction = _DIRECTIONS[one.labels["key"]]
        key = one.labels.get("tier", ""), one.labels.get("member", ""), direction
        row = rows.setdefault(key, np.full(len(times_ms), np.nan))
        row[np.searchsorted(times_ms, one.times_ms)] = one.values
    return rows


def _levels(series: Iterable[SeriesSamples], times_ms: Whole) -> dict[str, Whole]:
    rows: dict[str, Whole] = {}
    for one in series:
        if one.labels.get("state") in STATES:
            row = rows.setdefault(one.labels.get("level", ""), np.full(len(times_ms), -1, np.int64))
            row[np.searchsorted(times_ms, one.times_ms[one.values == 1])] = STATES.index(one.labels["state"])
    return rows


def _filled(row: Whole) -> Whole:
    """A level's state stands until another is told."""
    return row[np.maximum.accumulate(np.where(row >= 0, np.arange(len(row)), 0))] if len(row) else row


def _limits(series: Iterable[SeriesSamples]) -> dict[tuple[int, Direction], Course]:
    """The operator says 0 for a card without a limit."""
    told: dict[tuple[int, Direction], list[SeriesSamples]] = {}
    for one in series:
        broker, way = one.labels.get("broker", ""), one.labels.get("direction", "")
        if broker.isdecimal() and way in _CARDS:
            told.setdefault((int(broker), _CARDS[way]), []).append(one)
    return {key: _course(each) for key, each in told.items()}


def _course(series: list[SeriesSamples]) -> Course:
    times = np.concatenate([one.times_ms for one in series])
    values = np.concatenate([one.values for one in series])
    order = np.argsort(times, kind="stable")
    return Course.of(times[order], np.where(values[order] > 0, values[order], np.inf))
