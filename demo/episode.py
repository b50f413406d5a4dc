"""What one playing of experiments 2 and 3 leaves behind, by Tidegate or by the published cliff. It computes nothing.

Times are seconds since the epoch, rates bytes per second, and everything is told by level (L0 to L3).
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from demo.script import BUSINESSES, CONTRACT, LIMIT, LOWERED, Business, ThrottlingLength, business_of
from demo.words import Check, MarkKind, at_most, exact_check
from lab.load import ProcessorShare
from lab.rates import SAWTOOTH_SECONDS, ByteSeries, steady_mean


@dataclass(frozen=True, slots=True)
class QuotaStep:
    """One quota written in ZooKeeper, at ZooKeeper's own time; None = no quota."""

    at_seconds: float
    level: str
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class TierStep:
    """From `at_seconds` on the policy's status said this of a level; seen within a second."""

    at_seconds: float
    level: str
    state: str
    because: str


@dataclass(frozen=True, slots=True)
class Episode:
    """One playing: the limit is lowered, tiers go down, they are measured at rest, the limit is raised, all return.

    `arrived` holds what each level's consumer got, `card` what the broker's card sent.
    """

    began_seconds: float
    limited_at_seconds: float
    measured_from_seconds: float
    measured_seconds: int
    raised_at_seconds: float
    ended_seconds: float
    arrived: Mapping[str, ByteSeries]
    card: ByteSeries
    quotas: tuple[QuotaStep, ...]
    tiers: tuple[TierStep, ...]
    processor: ProcessorShare


# The figures of one playing, out of what was recorded: how fast, how long silent, how near to the
# limit and to the promised rates.
#
# Rates are bytes per second, times seconds. Nothing here judges a figure.


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


# The bounds of experiments 2 and 3 under Tidegate, each as one row with its verdict. The published
# way is shown beside it, not judged.


LIMIT_LOWERED = "Experiment 2: the limit drops to 50 MB/s"
LIMIT_RAISED = "Experiment 3: the limit goes back to 1000 MB/s"
# Rates are held this exactly over whole sawteeth, measured on Kafka 3.9.2.
REST_BELOW_PERCENT = 10
REST_ABOVE_PERCENT = 6
FIRST_WRITE_SECONDS = 12
WITHIN_SECONDS = 100
SILENCE_SECONDS = 22
FULL_SECONDS = 60


def throttling_checks(episode: Episode) -> list[Check]:
    """Every bound, in the order in which it was played."""
    return [*_lowered(episode), *_raised(episode)]


def _lowered(episode: Episode) -> Iterator[Check]:
    about = LIMIT_LOWERED
    yield at_most(about, "limit lowered to first quota written", seconds_to_first_write(episode), most=FIRST_WRITE_SECONDS)
    yield exact_check(about, "levels written before their turn", unit="", expected=0, measured=turns_out_of_order(episode))
    yield exact_check(about, "quotas written for L0", unit="", expected=0, measured=len(written(episode, BUSINESSES[0].level)))
    slack = f"{LIMIT_SLACK:.0%}".replace("%", " %")
    name = f"first write until the card is within the limit + {slack} ({CARD_MEAN_SECONDS} s mean)"
    yield at_most(about, name, seconds_until_within(episode), most=WITHIN_SECONDS)
    for business in BUSINESSES:
        name = f"longest silence of {business.level}"
        yield at_most(about, name, longest_silence(episode, business.level), most=SILENCE_SECONDS)
    for business in LOWERED:
        yield _rest_check(episode, business)
    name = f"L0 in its worst {LONG_MEAN_SECONDS} s, of what it wants"
    yield _share_check(about, name, lowest_share(episode, BUSINESSES[0].level))


def _raised(episode: Episode) -> Iterator[Check]:
    yield at_most(LIMIT_RAISED, "limit raised to everybody's full load", seconds_until_all_full(episode), most=FULL_SECONDS)
    for business in LOWERED:
        quota = quota_at_end(episode, business.level)
        measured = None if quota is None else quota / 1e6
        yield exact_check(LIMIT_RAISED, f"quota of {business.level}, the contract", unit="MB/s", expected=CONTRACT / 1e6, measured=measured)


def _rest_check(episode: Episode, business: Business) -> Check:
    """A tier at rest gets its quota: the throttled rate, or a higher one where the broker was within its limit before that was reached."""
    quota = quota_at_rest(episode, business.level)
    expected = (business.wanted if quota is None else min(quota, business.wanted)) / 1e6
    throttled = (business.throttled or 0) / 1e6
    return Check(
        about=LIMIT_LOWERED,
        name=f"{business.level} at rest for {episode.measured_seconds} s, against its quota (may drop to {throttled:g} MB/s)",
        unit="MB/s",
        expected=expected,
        measured=rate_at_rest(episode, business.level) / 1e6,
        lowest=expected * (1 - REST_BELOW_PERCENT / 100),
        highest=expected * (1 + REST_ABOVE_PERCENT / 100),
        tolerance=f"-{REST_BELOW_PERCENT} % / +{REST_ABOVE_PERCENT} %",
    )


def _share_check(about: str, name: str, share: float) -> Check:
    lowest = 100 * FULL_SHARE
    return Check(about, name, "%", 100.0, 100 * share, lowest=lowest, highest=float("inf"), tolerance=f"at least {lowest:g} %")


# What experiments 2 and 3 of a run leave behind: Tidegate's episode and that of the published way.
# Report and summary read only this.


@dataclass(frozen=True, slots=True)
class ThrottlingOutcome:
    """One run of experiments 2 and 3. `cliff` is None where the published way was not played; `card_source` says where the card's bytes
    come from. `left_out` is an earlier playing that missed a bound while the machine's host took its processors.
    """

    length: ThrottlingLength
    gate: Episode
    cliff: Episode | None
    card_source: str
    left_out: Episode | None = None

    def checks(self) -> list[Check]:
        """Every bound of both experiments."""
        return throttling_checks(self.gate)

    @property
    def passed(self) -> bool:
        return all(check.kept for check in self.checks())


# Playing an episode once more, when it missed a bound while the machine's host gave its processors
# to others: that tells of the host.


# The same share from which the benchmarks measure again. One connection feels a stolen tenth, and L0 may lack three hundredths.
_STOLEN_PERCENT = 12.0


def played(play: Callable[[str], Episode], *, tell: Callable[[float, MarkKind, str], None]) -> tuple[Episode, Episode | None]:
    """The episode that counts, and one that was left out. `play` gets a name for the files of each playing; a second one always counts."""
    first = play("tidegate")
    if first.processor.stolen_percent <= _STOLEN_PERCENT or all(check.kept for check in throttling_checks(first)):
        return first, None
    tell(time.time(), MarkKind.EVENT, f"{left_out_words(first)}: both experiments are played once more")
    return play("tidegate-again"), first


def left_out_words(episode: Episode) -> str:
    """Why an episode does not count."""
    missed = sum(not check.kept for check in throttling_checks(episode))
    taken = f"{episode.processor.stolen_percent:.0f} % of the processors"
    return f"An earlier playing of experiments 2 and 3 missed {missed} of its bounds while the machine's host took {taken}"
