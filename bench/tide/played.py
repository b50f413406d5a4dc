"""What one measured episode leaves behind, and the figures out of it: silences, how soon within the limit, rates at rest. It plays nothing.

Times are seconds since the epoch, rates bytes per second.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.tide.script import Business
from bench.tide.znodes import QuotaWrite
from lab.rates import SAWTOOTH_SECONDS, ByteSeries, steady_mean

# Two sawteeth: shorter means of a card swing with them.
CARD_MEAN_SECONDS = 24
LONG_MEAN_SECONDS = 36
_LIMIT_SLACK = 0.05
_FULL_SHARE = 0.97


@dataclass(frozen=True, slots=True)
class Played:
    """The limit is lowered, tiers go down and rest from `rests_at_seconds` on, the limit is raised, all return."""

    limit_bytes_per_second: float
    limited_at_seconds: float
    rests_at_seconds: float
    raised_at_seconds: float
    ended_seconds: float
    clients: Mapping[str, ByteSeries]
    businesses: Mapping[Business, ByteSeries]
    card: ByteSeries
    writes: Sequence[QuotaWrite]

    def first_write_seconds(self) -> float:
        """When the first quota was lowered; ValueError when none was."""
        return min(write.at_seconds for write in self.writes if write.at_seconds >= self.limited_at_seconds)

    def longest_silence(self, level: str) -> int:
        """The longest run of whole seconds in which nobody of the level moved anything, from the first write to the end.

        That is what a step may cause: when a mute is over, Kafka serves the user again, whichever of its connections asks first.
        """
        begin = int(self.first_write_seconds())
        of_level = next(series for business, series in self.businesses.items() if business.level == level)
        return longest_run_of_nothing(of_level.per_second(begin, int(self.ended_seconds) - begin))

    def longest_of_connections(self, level: str, begin_seconds: float, end_seconds: float) -> int:
        """The longest such run of any single connection of the level in that span; its siblings may have taken what the user had."""
        of_level = (series for name, series in self.clients.items() if name.startswith(level))
        seconds = int(end_seconds) - int(begin_seconds)
        return max(longest_run_of_nothing(series.per_second(int(begin_seconds), seconds)) for series in of_level)

    def seconds_until_within(self) -> float | None:
        """From the first write until the card's 24-second mean is within the limit + 5 % and stays so for a sawtooth; None if never."""
        first = self.first_write_seconds()
        within = 0
        for end in range(int(first) + 1, int(self.raised_at_seconds) + 1):
            mean = self.card.mean(end - CARD_MEAN_SECONDS, CARD_MEAN_SECONDS)
            within = within + 1 if mean <= self.limit_bytes_per_second * (1 + _LIMIT_SLACK) else 0
            if within == SAWTOOTH_SECONDS:
                return end - SAWTOOTH_SECONDS + 1 - first
        return None

    def rest_percent(self, business: Business) -> float:
        """What it moved in the 36 s at rest, against its quota then (or what it wants where that is less), in percent off."""
        quotas = [write.after for write in self.writes if write.user == business.user and write.at_seconds <= self.rests_at_seconds]
        expected = min(rate for rate in (quotas[-1] if quotas else None, business.wanted) if rate is not None)
        return 100 * (steady_mean(self.businesses[business], self.rests_at_seconds, LONG_MEAN_SECONDS) / expected - 1)

    def lowest_share(self, business: Business) -> float:
        """The lowest mean of any 36 seconds from the lowered limit to the end, as a share of what the business wants."""
        first, last = int(self.limited_at_seconds), int(self.ended_seconds) - LONG_MEAN_SECONDS
        means = (self.businesses[business].mean(start, LONG_MEAN_SECONDS) for start in range(first, max(first, last) + 1))
        return min(means) / (business.wanted or 1)

    def seconds_until_full(self) -> float | None:
        """From the raise until every business gets 97 % of what it wants, as a mean of 12 s; None if one never does."""
        each = [self._seconds_until_full(business) for business in self.businesses if business.wanted]
        return None if None in each else max(seconds for seconds in each if seconds is not None)

    def _seconds_until_full(self, business: Business) -> float | None:
        starts = range(int(self.ended_seconds - SAWTOOTH_SECONDS - self.raised_at_seconds) + 1)
        enough = _FULL_SHARE * (business.wanted or 0)
        series = self.businesses[business]
        return next((float(s) for s in starts if series.mean(self.raised_at_seconds + s, SAWTOOTH_SECONDS) >= enough), None)


def longest_run_of_nothing(rates: Sequence[float]) -> int:
    """The longest run of seconds without a byte."""
    longest = run = 0
    for rate in rates:
        run = 0 if rate > 0 else run + 1
        longest = max(longest, run)
    return longest
