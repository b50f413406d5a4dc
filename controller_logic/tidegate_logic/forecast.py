"""When brokers will be over their limits, by the hours of earlier weeks, and a calendar for it.

An hour of the week is foretold where the median of that hour in earlier weeks is over the limit:
more often than not it was so. One exceptional week moves no median, and what never came back cannot
be foretold. The proof is in the tests: eight weeks of made-up load, foretold a day ahead. Rates are
bytes per second, times seconds since the epoch; hours are those of a time zone, because people's
are.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from statistics import median
from typing import Final
from zoneinfo import ZoneInfo

from tidegate_logic.model import CalendarEntry, Direction, Entity, Level
from tidegate_logic.recurrence import Recurrence

HOUR_SECONDS: Final = 3600
HOURS_OF_WEEK: Final = 7 * 24
LEAST_WEEKS: Final = 3  # fewer values have no median worth the name
_STEP_PERCENT: Final = 5  # of a proposed share
_LEAST_PERCENT: Final = 5
_GIVING: Final = (Level.L3, Level.L2, Level.L1)

Nic = tuple[int, Direction]


@dataclass(frozen=True, slots=True)
class HourOfNic:
    """The highest rate of one hour that begins `at_seconds`; `limit` None = the NIC has none."""

    at_seconds: float
    bytes_per_second: float
    limit: int | None


@dataclass(frozen=True, slots=True)
class Sender:
    """One member on one broker in one direction: its contract there, and its floor.

    `rates` are what it sent by hour of the week, each the median of the weeks.
    """

    entity: Entity
    level: Level
    contract: float
    floor: float
    rates: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Peak:
    """A time in which a NIC will be over its limit, and the members who would be throttled for it.

    `usual` and `high` are the median and the 95th percentile of its worst hour, `weeks` how many
    values these rest on.
    """

    broker: int
    direction: Direction
    begin_seconds: float
    end_seconds: float
    usual: float
    high: float
    limit: int
    weeks: int
    throttled: tuple[Entity, ...] = ()


def hour_of_week(at_seconds: float, zone: ZoneInfo) -> int:
    """0 = Monday from 0:00 to 1:00, by a clock on the wall there."""
    wall = datetime.fromtimestamp(at_seconds, zone)
    return 24 * wall.weekday() + wall.hour


@dataclass(frozen=True, slots=True)
class _Usual:
    median: float
    high: float
    limit: int
    weeks: int

    @property
    def is_over(self) -> bool:
        return self.median > self.limit


class Forecast:
    """What earlier weeks say of each NIC. `senders` are the members that L1 to L3 name there."""

    def __init__(
        self,
        history: Mapping[Nic, Sequence[HourOfNic]],
        senders: Mapping[Nic, Sequence[Sender]],
        zone: str = "UTC",
        *,
        cut_to_percent: int = 97,
    ) -> None:
        self._zone_name, self._zone = zone, ZoneInfo(zone)
        self._senders = senders
        self._cut_to = cut_to_percent / 100
        self._usual = {nic: self._by_hour(hours) for nic, hours in history.items()}

    def _by_hour(self, hours: Iterable[HourOfNic]) -> dict[int, _Usual]:
        """Hours of the week with enough values; the newest limit counts."""
        values: dict[int, list[float]] = defaultdict(list)
        limit: tuple[float, int] | None = None
        for one in hours:
            values[hour_of_week(one.at_seconds, self._zone)].append(one.bytes_per_second)
            if one.limit is not None:
                limit = max(limit or (one.at_seconds, one.limit), (one.at_seconds, one.limit))
        if limit is None:
            return {}
        return {
            hour: _Usual(median(rates), _percentile(rates, 95), limit[1], len(rates))
            for hour, rates in values.items()
            if len(rates) >= LEAST_WEEKS
        }

    def is_told(self, nic: Nic, at_seconds: float) -> bool:
        """Whether the NIC is expected over its limit in the hour that begins then."""
        usual = self._usual.get(nic, {}).get(hour_of_week(at_seconds, self._zone))
        return usual is not None and usual.is_over

    def peaks(self, after_seconds: float, hours: int) -> tuple[Peak, ...]:
        """Those that begin within so many hours, from the next whole hour on; soonest first."""
        first = ceil(after_seconds / HOUR_SECONDS) * HOUR_SECONDS
        found: list[Peak] = []
        for nic in self._usual:
            begin: float | None = None
            for at_seconds in (first + n * HOUR_SECONDS for n in range(hours + 1)):
                ends = at_seconds >= first + hours * HOUR_SECONDS
                if not ends and self.is_told(nic, at_seconds):
                    begin = at_seconds if begin is None else begin
                elif begin is not None:
                    found.append(self._peak(nic, begin, at_seconds))
                    begin = None
        return tuple(sorted(found, key=lambda one: (one.begin_seconds, one.broker, one.direction)))

    def _peak(self, nic: Nic, begin_seconds: float, end_seconds: float) -> Peak:
        hours = [
            hour_of_week(begin_seconds + n * HOUR_SECONDS, self._zone)
            for n in range(round((end_seconds - begin_seconds) / HOUR_SECONDS))
        ]
        worst = max(hours, key=lambda hour: self._usual[nic][hour].median)
        usual = self._usual[nic][worst]
        return Peak(
            *nic, begin_seconds, end_seconds, usual.median, usual.high, usual.limit, usual.weeks,
            self._throttled(nic, worst),
        )  # fmt: skip

    def _throttled(self, nic: Nic, hour: int) -> tuple[Entity, ...]:
        """Who would give what is too much: L3 first, in each level those who send most."""
        usual = self._usual[nic][hour]
        need = usual.median - self._cut_to * usual.limit
        found: list[Entity] = []
        for level in _GIVING:
            mine = [one for one in self._senders.get(nic, ()) if one.level is level]
            for one in sorted(mine, key=lambda sender: -sender.rates.get(hour, 0.0)):
                gives = one.rates.get(hour, 0.0) - one.floor
                if need <= 0 or gives <= 0:
                    break
                found.append(one.entity)
                need -= gives
        return tuple(found)

    def calendar(self) -> tuple[CalendarEntry, ...]:
        """Entries for the hours of the week that are foretold, if the levels can free anything."""
        percents = [self._percents(hour) for hour in range(HOURS_OF_WEEK)]
        runs: dict[tuple[int, int, tuple[tuple[Level, int], ...]], set[int]] = defaultdict(set)
        for first, length, shares in _runs(percents):
            begin = first % 24
            end = (begin + length) % 24
            runs[begin, end, tuple(shares.items())].add(first // 24)
        return tuple(
            CalendarEntry(
                Recurrence(frozenset(days), 60 * begin, 60 * end, self._zone_name),
                {level: percent / 100 for level, percent in shares},
            )
            for (begin, end, shares), days in sorted(
                runs.items(), key=lambda one: (min(one[1]), one[0][0])
            )
        )

    def _percents(self, hour: int) -> dict[Level, int]:
        """The share of each level in one hour of the week, on the NIC that needs most; L3 first."""
        found: dict[Level, int] = {}
        for nic, by_hour in self._usual.items():
            usual = by_hour.get(hour)
            if usual is None or not usual.is_over:
                continue
            need = usual.median - self._cut_to * usual.limit
            for level in _GIVING:
                mine = [one for one in self._senders.get(nic, ()) if one.level is level]
                percent, freed = _share(mine, hour, need)
                need -= freed
                if freed > 0:
                    found[level] = min(percent, found.get(level, percent))
                if need <= 0:
                    break
        return {level: found[level] for level in sorted(found)}


def _share(senders: Sequence[Sender], hour: int, need: float) -> tuple[int, float]:
    """The largest share in percent that frees the need, or the least one; and what it frees."""
    freed = 0.0
    for percent in range(100 - _STEP_PERCENT, _LEAST_PERCENT - 1, -_STEP_PERCENT):
        freed = sum(
            max(0.0, one.rates.get(hour, 0.0) - max(one.floor, one.contract * percent / 100))
            for one in senders
        )
        if freed >= need:
            return percent, freed
    return _LEAST_PERCENT, freed


def _runs(percents: Sequence[Mapping[Level, int]]) -> Iterable[tuple[int, int, dict[Level, int]]]:
    """Hours after each other, at most 24, as first hour, length and the lowest shares in them.

    The week is a ring: a run over Sunday's midnight begins on Sunday.
    """
    hours = len(percents)
    start = next((hour for hour in range(hours) if percents[hour] and not percents[hour - 1]), None)
    if start is None:  # every hour or none
        start = 0
    place = 0
    while place < hours:
        length = 0
        shares: dict[Level, int] = {}
        while place + length < hours and length < 24:
            one = percents[(start + place + length) % hours]
            if not one:
                break
            for level, percent in one.items():
                shares[level] = min(percent, shares.get(level, percent))
            length += 1
        if length:
            yield (start + place) % hours, length, dict(sorted(shares.items()))
        place += length or 1


def _percentile(values: Sequence[float], percent: int) -> float:
    """By nearest rank."""
    return sorted(values)[max(0, ceil(len(values) * percent / 100) - 1)]
