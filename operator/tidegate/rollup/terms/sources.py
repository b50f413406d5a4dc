"""Quotas, contracts, states and limits over a range of time, from the operator's own metrics or from the audit trail.

Only the replica that holds the policy's Lease exports these metrics. So series of several Pods follow each other and are read as one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from controller_logic.decision import LevelState
from controller_logic.reasons import Reason
from tidegate.rollup.fold.windows import StepFunction, scrape_times
from tidegate.rollup.samples import Selection, SeriesSamples, Transport
from tidegate.rollup.schemas import DIRECTIONS, Direction
from tidegate.rollup.terms.policy import WAYS
from tidegate.rollup.trail import AuditLine, Written, read_trail
from tidegate.throttle_metrics import POLICY_LABELS, policy_labels

Whole = NDArray[np.int64]
Rates = NDArray[np.float64]
MemberKey = tuple[str, str, Direction]  # tier, member
STATES: Final = tuple(state.value for state in LevelState)
_DIRECTIONS: Final[Mapping[str, Direction]] = {direction: direction for direction in DIRECTIONS}
_NIC_DIRECTIONS: Final[Mapping[str, Direction]] = {way.value: direction for direction, way in WAYS.items()}
_OTHER_RHYTHM: Final = 0.75  # of an interval: a pair of Prometheus servers scrapes at times of their own


@dataclass(frozen=True, slots=True, eq=False)
class OperatorSamples:
    """Rows are over `times_ms`; NaN = unknown then. `levels` are numbers of `STATES`, -1 = unknown. No times = no samples at all.

    A member without a contract has a quota only while it is throttled, and no target. A trail has no lines of members whose quota did not
    change.
    """

    times_ms: Whole
    quotas: Mapping[MemberKey, Rates]
    targets: Mapping[MemberKey, Rates]
    levels: Mapping[str, Whole]
    limits: Mapping[tuple[int, Direction], StepFunction]
    source: Literal["metrics", "trail"] = "metrics"

    def contract(self, key: MemberKey) -> StepFunction | None:
        """Return the member's contract as a quota on each broker; None where it is unknown."""
        row = self.targets.get(key)
        known = np.flatnonzero(np.isfinite(row)) if row is not None else ()
        return StepFunction.of(self.times_ms[known], row[known]) if row is not None and len(known) else None


def read_operator(transport: Transport, policy_key: str, start_ms: int, end_ms: int, *, interval_ms: int) -> OperatorSamples:
    """Read the operator's metrics in [start, end). Raises tidegate.errors."""

    namespace, name = policy_labels(policy_key)

    def read(metric: str) -> list[SeriesSamples]:
        return transport.read(Selection(metric, dict(zip(POLICY_LABELS, (namespace, name), strict=True))), start_ms, end_ms)

    quotas, targets = read("tidegate_member_quota_bytes_per_second"), read("tidegate_member_target_bytes_per_second")
    levels, limits = read("tidegate_tier_state"), read("tidegate_broker_limit_bytes_per_second")
    times = scrape_times(one.times_ms for one in (*quotas, *targets, *levels))
    most_ms = int(_OTHER_RHYTHM * interval_ms)
    return OperatorSamples(
        times,
        {key: carried(row, times, most_ms) for key, row in _members(quotas, times, namespace).items()},
        {key: carried(row, times, most_ms) for key, row in _members(targets, times, namespace).items()},
        {level: _filled(row) for level, row in _levels(levels, times).items()},
        _limits(limits),
    )


def carried(row: Rates, times_ms: Whole, most_ms: int) -> Rates:
    """Return the row with gaps of up to this length filled with the value before."""
    last = np.maximum.accumulate(np.where(np.isfinite(row), np.arange(len(row)), 0))
    return np.where(times_ms - times_ms[last] <= most_ms, row[last], np.nan) if len(row) else row


def _members(series: Iterable[SeriesSamples], times_ms: Whole, namespace: str) -> dict[MemberKey, Rates]:
    rows: dict[MemberKey, Rates] = {}
    for one in series:
        direction = _DIRECTIONS.get(one.labels.get("direction", ""))
        if direction is None:
            continue
        key = f"{namespace}/{one.labels.get('tier', '')}", one.labels.get("member", ""), direction
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
    """Fill gaps of a level with the state before."""
    return row[np.maximum.accumulate(np.where(row >= 0, np.arange(len(row)), 0))] if len(row) else row


def _limits(series: Iterable[SeriesSamples]) -> dict[tuple[int, Direction], StepFunction]:
    """Collect limits by broker and direction. The metric is 0 for a NIC without a limit."""
    by_nic: dict[tuple[int, Direction], list[SeriesSamples]] = {}
    for one in series:
        broker, way = one.labels.get("broker", ""), one.labels.get("direction", "")
        if broker.isdecimal() and way in _NIC_DIRECTIONS:
            by_nic.setdefault((int(broker), _NIC_DIRECTIONS[way]), []).append(one)
    return {key: _course(each) for key, each in by_nic.items()}


def _course(series: list[SeriesSamples]) -> StepFunction:
    times = np.concatenate([one.times_ms for one in series])
    values = np.concatenate([one.values for one in series])
    order = np.argsort(times, kind="stable")
    return StepFunction.of(times[order], np.where(values[order] > 0, values[order], np.inf))


# The audit trail serves where Prometheus does not scrape the operator. It has the time of every
# write to the millisecond, and no lines of members whose quota did not change. The rate that the
# first write replaced was in force since the trail began.


Flags = NDArray[np.bool_]
_CONTRACT, _THROTTLED, _RELAXING = (STATES.index(state.value) for state in (LevelState.CONTRACT, LevelState.THROTTLED, LevelState.RELAXING))
_BACK: Final = frozenset({Reason.RELAXING})
_HELD: Final = _BACK | {Reason.THROTTLED}
_FOR_EVER: Final = 2**62


class TrailAccount:
    """One policy's writes by member, as samples. A value is the one in force before its time, as a scrape covers the time before it."""

    def __init__(self, lines: Iterable[AuditLine], policy_key: str, interval_ms: int) -> None:
        trail = read_trail(lines, policy_key, end_ms=_FOR_EVER)
        self._since_ms = trail.since_ms
        self._interval_ms = interval_ms
        self._writes: dict[MemberKey, list[Written]] = {}
        for direction in DIRECTIONS:
            for one in (each for each in trail.written if each.direction == direction and each.member):
                self._writes.setdefault((one.tier, one.member, direction), []).append(one)

    def samples(self, start_ms: int, end_ms: int) -> OperatorSamples:
        """Return what was in force in [start, end). There are no times before the trail begins, and none without a trail."""
        times = self._times(start_ms, end_ms)
        rows = {key: _Rows(writes, times) for key, writes in self._writes.items()}
        return OperatorSamples(
            times,
            {key: row.quotas for key, row in rows.items()},
            {key: row.contracts for key, row in rows.items()},
            _level_rows(rows.values(), len(times)),
            {},
            "trail",
        )

    def _times(self, start_ms: int, end_ms: int) -> Whole:
        """Return the times of regular scrapes, and the times before and after each write."""
        if self._since_ms is None:
            return np.empty(0, np.int64)
        written = np.array([one.at_ms for writes in self._writes.values() for one in writes], np.int64)
        usual = np.arange(start_ms + -start_ms % self._interval_ms, end_ms, self._interval_ms, dtype=np.int64)
        times = np.unique(np.concatenate([usual, written, written + 1]))
        return times[(times >= max(start_ms, self._since_ms)) & (times < end_ms)]


class _Rows:
    """Quota, contract and state of one member and direction at these times."""

    def __init__(self, writes: Sequence[Written], times_ms: Whole) -> None:
        self.level = next((one.level for one in reversed(writes) if one.level), "")
        last = np.searchsorted(np.array([one.at_ms for one in writes], np.int64), times_ms, side="left")  # 0 = before the first
        self.quotas = _rates([writes[0].before, *(one.after for one in writes)])[last]
        at_first = writes[0].contract if writes[0].ends_hold or not writes[0].was_below else None
        self.contracts = _rates([at_first, *(one.contract for one in writes)])[last]
        relaxing, held = (np.array([False, *(one.reason in reasons for one in writes)])[last] for reasons in (_BACK, _HELD))
        without_contract = np.isnan(self.contracts) & np.isfinite(self.quotas) & held
        self.below: Flags = (self.quotas < self.contracts) | without_contract
        self.relaxing: Flags = self.below & relaxing


def _rates(rates: Sequence[int | None]) -> Rates:
    return np.array([np.nan if rate is None else rate for rate in rates], np.float64)


def _level_rows(rows: Iterable[_Rows], times: int) -> dict[str, Whole]:
    """Return the states of levels. A level relaxes once all of its members that are below their contracts do."""
    below: dict[str, Flags] = {}
    cut: dict[str, Flags] = {}
    for row in rows:
        below[row.level] = below.get(row.level, np.zeros(times, bool)) | row.below
        cut[row.level] = cut.get(row.level, np.zeros(times, bool)) | (row.below & ~row.relaxing)
    return {level: np.where(cut[level], _THROTTLED, np.where(below[level], _RELAXING, _CONTRACT)).astype(np.int64) for level in below}
