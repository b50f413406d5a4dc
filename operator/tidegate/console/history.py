"""What the console remembers of the last day: NICs, levels and members over time.

It is in memory only. NICs and levels begin with what Prometheus has of the operator's own metrics,
members when the process begins. A gap in what is known stays a gap. What is older than an hour is
kept as the highest of each minute.
"""

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tidegate.view.policy import PolicyNow
from tidegate_logic.model import Direction, Level

NIC_SECONDS: Final = 24 * 3600.0
MEMBER_SECONDS: Final = 6 * 3600.0
LEVEL_SECONDS: Final = NIC_SECONDS
_FINE_SECONDS: Final = 3600.0  # so long each reading is kept
_COARSE_SECONDS: Final = 60.0
_MOST_POINTS: Final = 360  # of a line, however long its time
_GAP_STEP_SECONDS: Final = 5.0
_MEMBER_STEP_SECONDS: Final = 15.0
_LONGEST_GAP_SECONDS: Final = 180.0
_UNKNOWN: Final = float("nan")

NicPlace = tuple[int, Direction]
MemberWay = tuple[str, Direction]
Points = Sequence[tuple[float, float | None]]  # times and shares of the limit; None = not known


@dataclass(frozen=True, slots=True)
class Span:
    """One state of one level, from when to when (seconds since the epoch)."""

    state: str
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Past:
    """What was before the process began: shares of limits, and states of levels, oldest first."""

    nics: Mapping[NicPlace, Sequence[tuple[float, float]]] = field(default_factory=dict)
    levels: Mapping[Level, Sequence[tuple[float, str]]] = field(default_factory=dict)


@dataclass(slots=True)
class _Series:
    """Times with a rate and a quota each; NaN = not known, or none."""

    times: "array[float]" = field(default_factory=lambda: array("d"))
    rates: "array[float]" = field(default_factory=lambda: array("f"))
    quotas: "array[float]" = field(default_factory=lambda: array("f"))
    brokers: int = 1  # how many it used when that was known last

    def add(self, at: float, rate: float | None, quota: float | None) -> None:
        self.times.append(at)
        self.rates.append(_UNKNOWN if rate is None else rate)
        self.quotas.append(_UNKNOWN if quota is None else quota)
        gone = 0
        while self.times[gone] < at - MEMBER_SECONDS:
            gone += 1
        if gone > len(self.times) // 8:  # not one by one: an array is moved as a whole
            del self.times[:gone], self.rates[:gone], self.quotas[:gone]


@dataclass(slots=True)
class _Shares:
    """Times, and shares of the limit at them; NaN = not known."""

    # both in one, because other threads read while one notes
    kept: "tuple[array[float], array[float]]" = field(
        default_factory=lambda: (array("d"), array("f"))
    )
    _thinned: int = 0  # how many there were after the last time

    @property
    def newest_seconds(self) -> float | None:
        times, _ = self.kept
        return times[-1] if times else None

    def add(self, at: float, share: float | None) -> None:
        times, shares = self.kept
        shares.append(_UNKNOWN if share is None else share)
        times.append(at)
        if len(times) - self._thinned >= _MOST_POINTS:
            begin, fine = (bisect_left(times, at - ago) for ago in (NIC_SECONDS, _FINE_SECONDS))
            old = _merged(times[begin:fine], shares[begin:fine], _COARSE_SECONDS)
            self.kept = _arrays(old, (times[fine:], shares[fine:]))
            self._thinned = len(self.kept[0])

    def put_before(self, points: Sequence[tuple[float, float]]) -> None:
        """Put points in front; those that are not older than all of ours are left out."""
        first = self.kept[0][0] if self.kept[0] else float("inf")
        self.kept = _arrays([one for one in points if one[0] < first], self.kept)

    def points(self, seconds: float) -> Points:
        """Those of the last `seconds` before the newest: the highest of each step."""
        times, shares = self.kept
        if not times:
            return ()
        begin = bisect_left(times, times[-1] - seconds)
        step = seconds / _MOST_POINTS
        found: list[tuple[float, float | None]] = []
        for at, share in _merged(times[begin:], shares[begin:], step):
            if found and at - found[-1][0] > max(_LONGEST_GAP_SECONDS, 3 * step):
                found.append(((at + found[-1][0]) / 2, None))
            found.append((at, _known(share)))
        return found


def _arrays(
    old: Sequence[tuple[float, float]], new: "tuple[array[float], array[float]]"
) -> "tuple[array[float], array[float]]":
    return (
        array("d", [at for at, _ in old]) + new[0],
        array("f", [share for _, share in old]) + new[1],
    )


def _merged(
    times: Sequence[float], shares: Sequence[float], step_seconds: float
) -> list[tuple[float, float]]:
    """The newest time and the highest share of each step; NaN where none of its shares is known."""
    found: list[tuple[float, float]] = []
    last = None
    for at, share in zip(times, shares, strict=False):
        step = at // step_seconds
        if step == last:
            before = found[-1][1]
            found[-1] = at, share if before != before or share > before else before
        else:
            found.append((at, share))
        last = step
    return found


@dataclass(slots=True)
class _OfPolicy:
    nics: dict[NicPlace, _Shares] = field(default_factory=dict)
    levels: dict[Level, deque[Span]] = field(default_factory=dict)
    members: dict[MemberWay, _Series] = field(default_factory=dict)
    sampled: dict[NicPlace, float | None] = field(default_factory=dict)
    members_at: float = 0.0


class History:
    """The last hours of every policy. One thread notes; readers may be others."""

    def __init__(self) -> None:
        self._policies: dict[str, _OfPolicy] = {}

    def begin(self, policy_key: str, past: Past) -> None:
        """Put the past of a policy before what was noted of it since."""
        mine = self._policies.setdefault(policy_key, _OfPolicy())
        for place, shares in past.nics.items():
            mine.nics.setdefault(place, _Shares()).put_before(shares)
        for level, states in past.levels.items():
            spans = mine.levels.setdefault(level, deque())
            first = spans[0].begin if spans else float("inf")
            before = _spans([(at, state) for at, state in states if at < first])
            if before and spans and before[-1].state == spans[0].state:
                spans[0] = replace(spans[0], begin=before.pop().begin)
            spans.extendleft(reversed(before))

    def note(self, now: PolicyNow) -> None:
        """Add what is new of this moment: a NIC's point is of one reading, or of a time without."""
        mine = self._policies.setdefault(now.key, _OfPolicy())
        at = now.now_seconds
        for nic in now.nics:
            place = (nic.broker, nic.direction)
            points = mine.nics.setdefault(place, _Shares())
            newest = points.newest_seconds
            if nic.is_known:
                is_new = mine.sampled.get(place) != nic.at_seconds
            else:
                is_new = newest is None or at - newest >= _GAP_STEP_SECONDS
            if not is_new:
                continue
            mine.sampled[place] = nic.at_seconds if nic.is_known else None
            points.add(at, nic.share)
        for level in now.levels:
            self._note_level(mine, level.level, level.state, at)
        if at - mine.members_at >= _MEMBER_STEP_SECONDS:
            mine.members_at = at
            for one in now.members:
                series = mine.members.setdefault((one.key, one.direction), _Series())
                series.brokers = len(one.by_broker) or series.brokers
                # a quota is that of each broker, and the rate that of all
                quota = None if one.quota is None else one.quota * series.brokers
                series.add(at, one.sends, quota)
            here = {(one.key, one.direction) for one in now.members}
            for gone in mine.members.keys() - here:
                del mine.members[gone]

    def _note_level(self, mine: _OfPolicy, level: Level, state: str, at: float) -> None:
        spans = mine.levels.setdefault(level, deque())
        if spans:
            spans[-1] = replace(spans[-1], end=at)
        if not spans or spans[-1].state != state:
            spans.append(Span(state, at, at))
        while spans[0].end < at - LEVEL_SECONDS:
            spans.popleft()

    def nic(self, policy_key: str, place: NicPlace, seconds: float = 900.0) -> Points:
        """The last `seconds`, oldest first; of a long time the highest of each step."""
        mine = self._policies.get(policy_key)
        known = None if mine is None else mine.nics.get(place)
        return () if known is None else known.points(seconds)

    def newest_seconds(self, policy_key: str) -> float:
        """When any NIC was noted last; 0 = never."""
        mine = self._policies.get(policy_key)
        known = () if mine is None else tuple(mine.nics.values())
        return max((one.newest_seconds or 0.0 for one in known), default=0.0)

    def levels(self, policy_key: str) -> Mapping[Level, Sequence[Span]]:
        """The states of each level, oldest first."""
        mine = self._policies.get(policy_key)
        return {} if mine is None else {level: tuple(s) for level, s in mine.levels.items()}

    def member(
        self, policy_key: str, member: str, way: Direction
    ) -> Iterator[tuple[float, float | None, float | None]]:
        """Times, rates and quotas, over all brokers that it uses; None = not known, or none."""
        mine = self._policies.get(policy_key)
        series = None if mine is None else mine.members.get((member, way))
        if series is None:
            return
        # copied first: the noting thread may cut its beginning off meanwhile
        for at, rate, quota in zip(
            list(series.times), list(series.rates), list(series.quotas), strict=False
        ):
            yield at, _known(rate), _known(quota)


def _spans(states: Sequence[tuple[float, str]]) -> list[Span]:
    """Runs of the same state; one ends where nothing is known for minutes."""
    spans: list[Span] = []
    for at, state in states:
        last = spans[-1] if spans else None
        if last is not None and last.state == state and at - last.end <= _LONGEST_GAP_SECONDS:
            spans[-1] = replace(last, end=at)
        else:
            spans.append(Span(state, at, at))
    return spans


def _known(value: float) -> float | None:
    return None if value != value else value  # NaN is unlike itself
