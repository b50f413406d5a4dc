"""The audit trail in the form of the operator's metrics, for those whose Prometheus does not scrape the operator.

It has every write to the millisecond, and says nothing of members at rest. What it replaced first was in force since it began.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from controller_logic.decision import LevelState
from controller_logic.reasons import Reason
from tidegate.rollup.schemas import DIRECTIONS
from tidegate.rollup.terms.sources import STATES, MemberKey, OperatorSamples
from tidegate.rollup.trail import AuditLine, Written, read_trail

Whole = NDArray[np.int64]
Rates = NDArray[np.float64]
Flags = NDArray[np.bool_]
_CONTRACT, _THROTTLED, _RELAXING = (STATES.index(state.value) for state in (LevelState.CONTRACT, LevelState.THROTTLED, LevelState.RELAXING))
_BACK: Final = frozenset({Reason.RELAXING})
_HELD: Final = _BACK | {Reason.THROTTLED}
_FOR_EVER: Final = 2**62


class TrailAccount:
    """One policy's writes by member. A row's value at a time is what was in force until then, as a scrape tells of the time before it."""

    def __init__(self, lines: Iterable[AuditLine], policy_key: str, interval_ms: int) -> None:
        trail = read_trail(lines, policy_key, end_ms=_FOR_EVER)
        self._since_ms = trail.since_ms
        self._interval_ms = interval_ms
        self._writes: dict[MemberKey, list[Written]] = {}
        for direction in DIRECTIONS:
            for one in (each for each in trail.written if each.direction == direction and each.member):
                self._writes.setdefault((one.tier, one.member, direction), []).append(one)

    def samples(self, start_ms: int, end_ms: int) -> OperatorSamples:
        """What was in force in [start, end); no times before the trail begins, and none without a trail."""
        times = self._times(start_ms, end_ms)
        rows = {key: _Rows(writes, times) for key, writes in self._writes.items()}
        return OperatorSamples(
            times,
            {key: row.quotas for key, row in rows.items()},
            {key: row.contracts for key, row in rows.items()},
            _levels(rows.values(), len(times)),
            {},
            "trail",
        )

    def _times(self, start_ms: int, end_ms: int) -> Whole:
        """The usual scrapes, and the moments before and after each write."""
        if self._since_ms is None:
            return np.empty(0, np.int64)
        written = np.array([one.at_ms for writes in self._writes.values() for one in writes], np.int64)
        usual = np.arange(start_ms + -start_ms % self._interval_ms, end_ms, self._interval_ms, dtype=np.int64)
        times = np.unique(np.concatenate([usual, written, written + 1]))
        return times[(times >= max(start_ms, self._since_ms)) & (times < end_ms)]


class _Rows:
    """One member's direction over these times."""

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


def _rates(told: Sequence[int | None]) -> Rates:
    return np.array([np.nan if rate is None else rate for rate in told], np.float64)


def _levels(rows: Iterable[_Rows], times: int) -> dict[str, Whole]:
    """A level relaxes once all that are below their contracts do."""
    below: dict[str, Flags] = {}
    cut: dict[str, Flags] = {}
    for row in rows:
        below[row.level] = below.get(row.level, np.zeros(times, bool)) | row.below
        cut[row.level] = cut.get(row.level, np.zeros(times, bool)) | (row.below & ~row.relaxing)
    return {level: np.where(cut[level], _THROTTLED, np.where(below[level], _RELAXING, _CONTRACT)).astype(np.int64) for level in below}
