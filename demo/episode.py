"""What one playing of experiments 2 and 3 leaves behind, and the bounds that it has to keep.

It is played by Tidegate or by the published cliff.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from demo.script import BUSINESSES, CONTRACT, LOWERED, ThrottlingLength
from demo.words import Check, MarkKind, at_least, at_most, exact_check, within
from lab.episodes import (
    FULL_SHARE,
    LIMIT_SLACK,
    LONG_MEAN_SECONDS,
    NIC_MEAN_SECONDS,
    Business,
    Episode,
)
from lab.load import ProcessorShare

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TierStep:
    """From `at_seconds` on the policy's status had this state for a level; seen within a second."""

    at_seconds: float
    level: str
    state: str
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Playing(Episode):
    """One playing: also the tiers' states in the policy's status, and the whole machine's load."""

    began_seconds: float
    tiers: tuple[TierStep, ...]
    processor: ProcessorShare


LIMIT_LOWERED = "Experiment 2: the limit drops to 50 MB/s"
LIMIT_RAISED = "Experiment 3: the limit goes back to 1000 MB/s"
# Rates are held this exactly over whole sawteeth, measured on Kafka 3.9.2.
REST_BELOW_PERCENT = 10
REST_ABOVE_PERCENT = 6
FIRST_WRITE_SECONDS = 12
WITHIN_SECONDS = 100
SILENCE_SECONDS = 22
FULL_SECONDS = 60


def throttling_checks(episode: Playing) -> list[Check]:
    """Every bound, in the order in which it was played."""
    return [*_lowered(episode), *_raised(episode)]


def _lowered(episode: Playing) -> Iterator[Check]:
    about = LIMIT_LOWERED
    yield at_most(
        about,
        "limit lowered to first quota written",
        episode.seconds_to_first_write(),
        most=FIRST_WRITE_SECONDS,
    )
    yield exact_check(
        about,
        "levels written before their turn",
        unit="",
        expected=0,
        measured=episode.turns_out_of_order(),
    )
    yield exact_check(
        about,
        "quotas written for L0",
        unit="",
        expected=0,
        measured=len(episode.written(BUSINESSES[0].level)),
    )
    slack = f"{LIMIT_SLACK:.0%}".replace("%", " %")
    name = f"first write until the NIC is within the limit + {slack} ({NIC_MEAN_SECONDS} s mean)"
    yield at_most(about, name, episode.seconds_until_within(), most=WITHIN_SECONDS)
    for business in BUSINESSES:
        name = f"longest silence of {business.level}"
        yield at_most(about, name, episode.longest_silence(business.level), most=SILENCE_SECONDS)
    for business in LOWERED:
        yield _rest_check(episode, business)
    name = f"L0 in its worst {LONG_MEAN_SECONDS} s, of what it wants"
    share = episode.lowest_share(BUSINESSES[0].level)
    yield at_least(about, name, 100 * share, least=100 * FULL_SHARE)


def _raised(episode: Playing) -> Iterator[Check]:
    yield at_most(
        LIMIT_RAISED,
        "limit raised to full load of all",
        episode.seconds_until_all_full(),
        most=FULL_SECONDS,
    )
    for business in LOWERED:
        quota = episode.quota_at_end(business.level)
        measured = None if quota is None else quota / 1e6
        yield exact_check(
            LIMIT_RAISED,
            f"quota of {business.level}, the contract",
            unit="MB/s",
            expected=CONTRACT / 1e6,
            measured=measured,
        )


def _rest_check(episode: Playing, business: Business) -> Check:
    """A tier at rest gets its quota.

    That is the throttled rate, or a higher one where the broker was within its limit before.
    """
    name = (
        f"{business.level} at rest for {episode.measured_seconds} s, against its quota "
        f"(may drop to {(business.throttled or 0) / 1e6:g} MB/s)"
    )
    return within(
        LIMIT_LOWERED,
        name,
        "MB/s",
        expected=episode.expected_at_rest(business.level) / 1e6,
        measured=episode.rate_at_rest(business.level) / 1e6,
        below=REST_BELOW_PERCENT,
        above=REST_ABOVE_PERCENT,
    )


@dataclass(frozen=True, slots=True)
class ThrottlingOutcome:
    """One run of experiments 2 and 3, for report and summary.

    `cliff` is None where the published way was not played; `nic_source` is where the NIC's bytes
    come from, in words. `left_out` is an earlier playing that missed a bound while the machine's
    host took its processors.
    """

    length: ThrottlingLength
    tidegate: Playing
    cliff: Playing | None
    nic_source: str
    left_out: Playing | None = None

    def checks(self) -> list[Check]:
        """Every bound of both experiments."""
        return throttling_checks(self.tidegate)

    @property
    def passed(self) -> bool:
        return all(check.kept for check in self.checks())


# The benchmarks measure again from the same share on. One connection feels a stolen tenth, and L0
# may lack three hundredths.
_STOLEN_PERCENT = 12.0


def played(
    play: Callable[[str], tuple[Playing, T]], *, mark: Callable[[float, MarkKind, str], None]
) -> tuple[tuple[Playing, T], Playing | None]:
    """The playing that counts with what was played beside it, and one that was left out.

    One is left out that missed a bound while the machine's host gave its processors to others.
    `play` gets a name for the files of each playing; a second one always counts.
    """
    first, beside = play("tidegate")
    if first.processor.stolen_percent <= _STOLEN_PERCENT or all(
        check.kept for check in throttling_checks(first)
    ):
        return (first, beside), None
    mark(
        time.time(),
        MarkKind.EVENT,
        f"{left_out_words(first)}: both experiments are played once more",
    )
    return play("tidegate-again"), first


def left_out_words(episode: Playing) -> str:
    """Why an episode does not count."""
    missed = sum(not check.kept for check in throttling_checks(episode))
    taken = f"{episode.processor.stolen_percent:.0f} % of the processors"
    return (
        f"An earlier playing of experiments 2 and 3 missed {missed} of its bounds while the "
        f"machine's host took {taken}"
    )
