"""What was seen of each rate lately: values in force within a dwell, and the highest rates; from these follows what a window may hold."""

from controller_logic.flows import Flows
from controller_logic.throttle.input import ManagedRate, RateKey, Seen, ThrottleInput, ThrottleMemory

_NEVER = Seen()


def seen_of(given: ThrottleInput, flows: Flows, memory: ThrottleMemory) -> dict[RateKey, Seen]:
    """What was seen of every rate that may be throttled, this moment included."""
    watch = _Watch(given)
    return {rate.key: watch.seen(rate, flows, memory.seen.get(rate.key, _NEVER)) for rate in given.rates if rate.throttleable}


class _Watch:
    """Looks at one rate after the other, at one moment."""

    def __init__(self, given: ThrottleInput) -> None:
        self._now_seconds = given.now_seconds
        self._dwell_seconds = given.settings.dwell_seconds
        self._slot_seconds = self._dwell_seconds / 2  # so that peaks stay few whatever the interval of the rounds
        self._peak_seconds = given.settings.peak_seconds + self._slot_seconds

    def seen(self, rate: ManagedRate, flows: Flows, was: Seen) -> Seen:
        mine = flows.of(rate.key).values()
        highest = max([flow.bytes_per_second for flow in mine], default=0.0)
        rates = was.rates
        if mine:
            read_seconds = max([flow.at_seconds for flow in mine])
            if not rates or rates[-1][0] < read_seconds:
                rates = (*rates[-1:], (read_seconds, highest))
        since_seconds = self._now_seconds if was.since_seconds is None else was.since_seconds
        return Seen(self._caps(rate, was), self._peaks(was, highest), rates, since_seconds, self._now_seconds - since_seconds)

    def _caps(self, rate: ManagedRate, was: Seen) -> tuple[tuple[float, int], ...]:
        """Values in force within a dwell; also the one before our last write, which a new memory has not seen."""
        in_force, change = rate.in_force, rate.last_change
        caps = [(at, value) for at, value in was.caps if value != in_force and self._now_seconds - at < self._dwell_seconds]
        if change is not None and change.previous is not None and abs(self._now_seconds - change.at_seconds) < self._dwell_seconds:
            known = {in_force, *(value for _, value in caps)}
            caps += [(change.at_seconds, change.previous)] if change.previous not in known else []
        if in_force is not None:
            caps.append((self._now_seconds, in_force))
        return tuple(caps)

    def _peaks(self, was: Seen, highest: float) -> tuple[tuple[float, float], ...]:
        """The highest rates by slots, each with the moment at which it began."""
        kept = tuple([(begin, rate) for begin, rate in was.peaks if self._now_seconds - begin < self._peak_seconds])
        if kept and 0 <= self._now_seconds - kept[-1][0] < self._slot_seconds:
            begin, rate = kept[-1]
            return (*kept[:-1], (begin, max(rate, highest)))
        return (*kept, (self._now_seconds, highest))
