"""What the console remembers of the last hours: NICs, levels and members over time.

It is in memory only. NICs and levels begin with what Prometheus has of the operator's own metrics,
members when the process begins. A gap in what is known stays a gap.
"""

from array import array
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tidegate.view.policy import PolicyNow
from tidegate_logic.model import Direction, Level

NIC_SECONDS: Final = 900.0
MEMBER_SECONDS: Final = 6 * 3600.0
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
class _OfPolicy:
    nics: dict[NicPlace, deque[tuple[float, float | None]]] = field(default_factory=dict)
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
            noted = mine.nics.setdefault(place, deque())
            first = noted[0][0] if noted else float("inf")
            noted.extendleft(reversed([(at, share) for at, share in shares if at < first]))
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
            points = mine.nics.setdefault(place, deque())
            if nic.is_known:
                is_new = mine.sampled.get(place) != nic.at_seconds
            else:
                is_new = not points or at - points[-1][0] >= _GAP_STEP_SECONDS
            if not is_new:
                continue
            mine.sampled[place] = nic.at_seconds if nic.is_known else None
            points.append((at, nic.share))
            while points[0][0] < at - NIC_SECONDS:
                points.popleft()
        for level in now.levels:
            self._note_level(mine, level.level, level.state, at)
        if at - mine.members_at >= _MEMBER_STEP_SECONDS:
            mine.members_at = at
            for one in now.members:
                series = mine.members.setdefault((one.key, one.direction), _Series())
                # a quota is that of each broker, and the rate that of all
                quota = None if one.quota is None else one.quota * max(1, len(one.by_broker))
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
        while spans[0].end < at - MEMBER_SECONDS:
            spans.popleft()

    def nic(self, policy_key: str, place: NicPlace) -> Points:
        """The last quarter of an hour, oldest first."""
        mine = self._policies.get(policy_key)
        return () if mine is None else tuple(mine.nics.get(place, ()))

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
