"""What earlier weeks say of the next ones, and the calendar that is proposed for it."""

from collections.abc import Iterator
from datetime import UTC, datetime
from math import exp, pi, sin
from random import Random
from zoneinfo import ZoneInfo

from tidegate_logic.forecast import Forecast, HourOfNic, Nic, Sender
from tidegate_logic.model import Direction, Entity, Level

MB = 1_000_000
HOUR, DAY, WEEK = 3600, 86_400, 7 * 86_400
MONDAY = datetime(2026, 9, 7, tzinfo=UTC).timestamp()
NIC = (1, Direction.EGRESS)
LIMIT = 100 * MB


def loads(seed: int, weeks: int) -> Iterator[HourOfNic]:
    """Business hours, a backfill on weekday nights that now and then does not run, a sale on
    Saturdays, bursts that no one could know, and noise.
    """
    random = Random(f"weekly load {seed}")
    begins = random.choice((20, 21, 22))
    for number in range(weeks * 7 * 24):
        day, hour = divmod(number, 24)
        weekday = day % 7
        rate = 45 + 20 * max(0.0, sin(pi * (hour - 7) / 12)) * (1 if weekday < 5 else 0.4)
        night = Random(f"{seed} night {day}").random() >= 0.05
        if weekday < 5 and begins <= hour < begins + 3 and night:
            rate += 70
        if weekday == 5 and 10 <= hour < 14:
            rate += 85
        if random.random() < 0.004:
            rate += 80
        noise = exp(random.gauss(0.0, 0.08))
        yield HourOfNic(MONDAY + number * HOUR, rate * noise * MB, LIMIT)


def score(seed: int, *, by_last_week: bool = False) -> tuple[int, int, int]:
    """Of eight weeks, the last four are foretold: hits, false alarms, misses."""
    hours = list(loads(seed, 8))
    week_before = {one.at_seconds + WEEK: one.bytes_per_second > LIMIT for one in hours}
    hits = alarms = misses = 0
    for number, one in enumerate(hours):
        if one.at_seconds < MONDAY + 4 * WEEK:
            continue
        if number % 24 == 0:  # one forecast of each day, made when the day before begins
            forecast = Forecast({NIC: hours[: number - 24]}, {})
        is_told = (
            week_before[one.at_seconds] if by_last_week else forecast.is_told(NIC, one.at_seconds)
        )
        is_over = one.bytes_per_second > LIMIT
        hits += is_told and is_over
        alarms += is_told and not is_over
        misses += is_over and not is_told
    return hits, alarms, misses


def rates(*, by_last_week: bool = False) -> tuple[float, float]:
    totals = [score(seed, by_last_week=by_last_week) for seed in range(6)]
    hits, alarms, misses = (sum(column) for column in zip(*totals, strict=True))
    return hits / (hits + misses), hits / (hits + alarms)


def test_peaks_of_eight_weeks_are_told_a_day_ahead() -> None:
    recall, precision = rates()
    assert recall >= 0.9
    assert precision >= 0.8
    assert sum(rates(by_last_week=True)) < recall + precision


# --- peaks and calendars --------------------------------------------------------------------------


def weeks(over: set[int], count: int = 4, *, rate: float = 140) -> list[HourOfNic]:
    """The hours of some weeks, of which these hours of the week are over the limit."""
    return [
        HourOfNic(MONDAY + n * HOUR, (rate if n % (7 * 24) in over else 50) * MB, LIMIT)
        for n in range(count * 7 * 24)
    ]


def sender(user: str, level: Level, contract: int, sends: int, floor: int = 1) -> Sender:
    rates = dict.fromkeys(range(7 * 24), float(sends * MB))
    return Sender(Entity(user), level, float(contract * MB), float(floor * MB), rates)


def entries(forecast: Forecast) -> list[tuple[list[int], int, int, dict[str, int]]]:
    return [
        (
            sorted(one.recurrence.days),
            one.recurrence.begin_minutes // 60,
            one.recurrence.end_minutes // 60,
            {level.value: round(100 * share) for level, share in one.shares.items()},
        )
        for one in forecast.calendar()
    ]


def test_hours_after_each_other_are_one_peak_with_whom_it_would_cost() -> None:
    senders: dict[Nic, list[Sender]] = {
        NIC: [
            sender("small", Level.L3, 20, 10),
            sender("large", Level.L3, 60, 30),
            sender("shop", Level.L2, 50, 40),
            sender("pay", Level.L1, 50, 50),
        ]
    }
    forecast = Forecast({NIC: weeks({22, 23, 24})}, senders)
    (peak,) = forecast.peaks(MONDAY + 4 * WEEK, 7 * 24)
    begins = MONDAY + 4 * WEEK + 22 * HOUR
    assert (peak.begin_seconds, peak.end_seconds) == (begins, begins + 3 * HOUR)
    assert (peak.usual, peak.high, peak.limit, peak.weeks) == (140 * MB, 140 * MB, LIMIT, 4)
    # 43 MB/s: 29 and 9 of L3, then 5 of L2
    assert [one.user for one in peak.throttled] == ["large", "small", "shop"]
    assert entries(forecast) == [([0], 22, 1, {"L2": 65, "L3": 5})]
    assert forecast.peaks(begins + 3 * HOUR, 24) == ()


def test_days_with_the_same_hours_are_one_entry_and_a_week_is_a_ring() -> None:
    senders: dict[Nic, list[Sender]] = {NIC: [sender("etl", Level.L3, 100, 90)]}
    nights = {24 * day + hour for day in range(5) for hour in (22, 23)}
    forecast = Forecast({NIC: weeks(nights)}, senders)
    assert entries(forecast) == [([0, 1, 2, 3, 4], 22, 0, {"L3": 45})]
    over_sunday = Forecast({NIC: weeks({6 * 24 + 23, 0, 1})}, senders)
    assert entries(over_sunday) == [([6], 23, 2, {"L3": 45})]
    always = Forecast({NIC: weeks(set(range(7 * 24)))}, senders)
    assert entries(always) == [([0, 1, 2, 3, 4, 5, 6], 0, 0, {"L3": 45})]


def test_what_was_over_once_or_is_known_for_two_weeks_is_not_told() -> None:
    once = weeks(set())
    once[22] = HourOfNic(once[22].at_seconds, 500.0 * MB, LIMIT)
    assert Forecast({NIC: once}, {}).peaks(MONDAY + 4 * WEEK, 7 * 24) == ()
    young = Forecast({NIC: weeks({22}, count=2)}, {})
    assert young.peaks(MONDAY + 2 * WEEK, 7 * 24) == ()
    unlimited = [HourOfNic(one.at_seconds, one.bytes_per_second, None) for one in weeks({22})]
    assert Forecast({NIC: unlimited}, {}).peaks(MONDAY + 4 * WEEK, 7 * 24) == ()


def test_hours_are_those_of_the_time_zone_on_both_sides_of_a_change_of_clocks() -> None:
    """A job at 22:00 in Berlin begins at 20:00 UTC until 2026-10-25, and then at 21:00."""
    zone = ZoneInfo("Europe/Berlin")
    history = []
    for number in range(6 * 7 * 24):  # 2026-09-28 to 2026-11-08
        at_seconds = MONDAY + (3 * 7 * 24 + number) * HOUR
        is_job = datetime.fromtimestamp(at_seconds, zone).hour == 22
        history.append(HourOfNic(at_seconds, (140 if is_job else 50) * MB, LIMIT))
    peaks = Forecast({NIC: history}, {}, "Europe/Berlin").peaks(MONDAY + 9 * WEEK, 24)
    assert [datetime.fromtimestamp(one.begin_seconds, UTC).hour for one in peaks] == [21]


def test_the_share_is_never_below_what_the_tier_declares() -> None:
    senders: dict[Nic, list[Sender]] = {NIC: [sender("etl", Level.L3, 100, 30, floor=25)]}
    forecast = Forecast({NIC: weeks({22})}, senders)
    assert entries(forecast) == [([0], 22, 23, {"L3": 5})]
