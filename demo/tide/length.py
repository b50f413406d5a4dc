"""How long experiments 2 and 3 are played."""

from dataclasses import dataclass

from lab.rates import SAWTOOTH_SECONDS


@dataclass(frozen=True, slots=True)
class TideLength:
    """The times of one run, in seconds.

    `free`: before the limit is lowered. `longest_cut`: after that it is measured whatever the quotas are. `measure`: how long the tiers are
    measured at rest, after one sawtooth. `longest_return`: how long the full load is waited for after the raise.
    """

    free_seconds: int
    longest_cut_seconds: int
    measure_seconds: int
    longest_return_seconds: int
    plays_cliff: bool


SETTLE_SECONDS = SAWTOOTH_SECONDS
# No cut follows another sooner than after 30 s: after this long without one the tiers rest.
QUIET_SECONDS = 36
FULL_TIDE = TideLength(free_seconds=24, longest_cut_seconds=220, measure_seconds=36, longest_return_seconds=90, plays_cliff=True)
QUICK_TIDE = TideLength(free_seconds=10, longest_cut_seconds=160, measure_seconds=24, longest_return_seconds=75, plays_cliff=False)
# The published way: one level at a time, all the way at once.
CLIFF_SECONDS_BETWEEN_LEVELS = 30
CLIFF_WATCHED_SECONDS = 300
CLIFF_RAISED_AFTER_SECONDS = 120
