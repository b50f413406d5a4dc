"""The bounds of experiments 2 and 3 under Tidegate, each as one row with its verdict. The published way is shown beside it, not judged."""

from collections.abc import Iterator

from demo.episode import Episode
from demo.tide.figures import (
    CARD_MEAN_SECONDS,
    FULL_SHARE,
    LIMIT_SLACK,
    LONG_MEAN_SECONDS,
    longest_silence,
    lowest_share,
    quota_at_end,
    quota_at_rest,
    rate_at_rest,
    seconds_to_first_write,
    seconds_until_all_full,
    seconds_until_within,
    turns_out_of_order,
    written,
)
from demo.tide.script import BUSINESSES, CONTRACT, LOWERED, Business
from demo.verdict import Check, at_most, exact_check

LIMIT_LOWERED = "Experiment 2: the limit drops to 50 MB/s"
LIMIT_RAISED = "Experiment 3: the limit goes back to 1000 MB/s"
# Rates are held this exactly over whole sawteeth, measured on Kafka 3.9.2.
REST_BELOW_PERCENT = 10
REST_ABOVE_PERCENT = 6
FIRST_WRITE_SECONDS = 12
WITHIN_SECONDS = 100
SILENCE_SECONDS = 22
FULL_SECONDS = 60


def tide_checks(episode: Episode) -> list[Check]:
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
