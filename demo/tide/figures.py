"""The figures of one playing, out of what was recorded: how fast, how long silent, how near to the limit and to the promised rates.

Rates are bytes per second, times seconds. Nothing here judges a figure.
"""

from collections.abc import Iterator
from itertools import pairwise

from demo.episode import Episode, QuotaStep
from demo.tide.script import BUSINESSES, LIMIT, business_of
from lab.rates import SAWTOOTH_SECONDS, ByteSeries, steady_mean

# Two sawteeth: shorter means of a card swing with them.
CARD_MEAN_SECONDS = 24
LONG_MEAN_SECONDS = 36
LIMIT_SLACK = 0.05
FULL_SHARE = 0.97


def written(episode: Episode, level: str) -> list[QuotaStep]:
    """The quotas written for the level while the limit was low, in the order of time."""
    return [
        step for step in episode.quotas if step.level == level and episode.limited_at_seconds <= step.at_seconds < episode.raised_at_seconds
    ]


def first_write(episode: Episode) -> float | None:
    """When the first quota was written after the limit was lowered; None when none was."""
    times = [step.at_seconds for business in BUSINESSES for step in written(episode, business.level)]
    return min(times, default=None)


def seconds_to_first_write(episode: Episode) -> float | None:
    """From the lowered limit to the first quota written; None when none was."""
    first = first_write(episode)
    return None if first is None else first - episode.limited_at_seconds


def turns_out_of_order(episode: Episode) -> int:
    """How many levels were written before a less important one was; L3 comes first, then L2, then L1."""
    firsts = [
        steps[0].at_seconds if (steps := written(episode, business.level)) else float("inf")
        for business in reversed(BUSINESSES)
        if business.throttled is not None
    ]
    # Those of one transaction carry the same time to the millisecond.
    return sum(later < earlier for earlier, later in pairwise(firsts))


def silences(episode: Episode, level: str) -> list[tuple[float, int]]:
    """Every run of whole seconds without a byte from the first write to the end: when it begins, and how long it is."""
    first = first_write(episode)
    if first is None:
        return []
    begin = int(first)
    rates = episode.arrived[level].per_second(begin, int(episode.ended_seconds) - begin)
    runs: list[tuple[float, int]] = []
    for second, rate in enumerate(rates, start=begin):
        if rate > 0:
            continue
        began, length = runs[-1] if runs else (0.0, 0)
        if runs and began + length == second:
            runs[-1] = (began, length + 1)
        else:
            runs.append((float(second), 1))
    return runs


def longest_silence(episode: Episode, level: str) -> int:
    """The longest of them; 0 when there was none."""
    return max((seconds for _, seconds in silences(episode, level)), default=0)


def is_silent_at_end(episode: Episode, level: str) -> bool:
    """Whether nobody saw the end of the last silence."""
    last = silences(episode, level)[-1:]
    return any(begin + seconds >= int(episode.ended_seconds) for begin, seconds in last)


def seconds_until_within(episode: Episode) -> float | None:
    """From the first write until the card's 24-second mean is within the limit + 5 % and stays so for 12 s; None if it never is.

    All are silent for a moment after a cut: a mean that dips within the limit and comes out of it before a sawtooth is over does not count.
    """
    first = first_write(episode)
    if first is None:
        return None
    ends = range(int(first) + 1, int(episode.raised_at_seconds) + 1)
    within = 0
    for end in ends:
        mean = episode.card.mean(end - CARD_MEAN_SECONDS, CARD_MEAN_SECONDS)
        within = within + 1 if mean <= LIMIT * (1 + LIMIT_SLACK) else 0
        if within == SAWTOOTH_SECONDS:
            return end - SAWTOOTH_SECONDS + 1 - first
    return None


def rate_at_rest(episode: Episode, level: str) -> float:
    """What arrived while the tiers were measured, as the mean of all 12-second means."""
    return steady_mean(episode.arrived[level], episode.measured_from_seconds, episode.measured_seconds)


def quota_at_rest(episode: Episode, level: str) -> int | None:
    """The quota in force while the tiers were measured; None = no quota."""
    before = [step for step in episode.quotas if step.level == level and step.at_seconds <= episode.measured_from_seconds]
    return before[-1].after if before else None


def quota_at_end(episode: Episode, level: str) -> int | None:
    """The quota in force at the end; None = no quota."""
    steps = [step for step in episode.quotas if step.level == level]
    return steps[-1].after if steps else None


def lowest_share(episode: Episode, level: str) -> float:
    """The lowest mean of any 36 seconds from the lowered limit to the end, as a share of what the business wants."""
    first = int(episode.limited_at_seconds)
    starts = range(first, max(first, int(episode.ended_seconds) - LONG_MEAN_SECONDS) + 1)
    means = (episode.arrived[level].mean(start, LONG_MEAN_SECONDS) for start in starts)
    return min(means) / business_of(level).wanted


def seconds_until_full(episode: Episode, level: str) -> float | None:
    """From the raise until the level gets 97 % of what it wants, as the mean of the 12 s that follow; None if it never does."""
    for start in _seconds_after(episode.raised_at_seconds, episode.ended_seconds - SAWTOOTH_SECONDS):
        if episode.arrived[level].mean(start, SAWTOOTH_SECONDS) >= FULL_SHARE * business_of(level).wanted:
            return start - episode.raised_at_seconds
    return None


def seconds_until_all_full(episode: Episode) -> float | None:
    """From the raise until every level gets what it wants; None if one never does."""
    each = [seconds_until_full(episode, business.level) for business in BUSINESSES]
    return None if None in each else max(seconds for seconds in each if seconds is not None)


def highest_second(card: ByteSeries, start_seconds: float, seconds: int) -> float:
    """The highest rate of a single second in the span."""
    return max(card.per_second(start_seconds, seconds), default=0.0)


def _seconds_after(start: float, last: float) -> Iterator[float]:
    at = start
    while at <= last:
        yield at
        at += 1.0
