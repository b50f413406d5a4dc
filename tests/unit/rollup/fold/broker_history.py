"""Made-up samples of a broker for the tests of the fold: regular ones by hand, random ones by
seed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.rollup.fold.broker import BrokerFold, DirectionSamples, fold_broker
from tidegate.rollup.fold.windows import WINDOW_MS, Windows, reading_of
from tidegate.rollup.samples import SeriesSamples
from tidegate.rollup.schemas import DIRECTIONS, Direction

START_MS = 1_780_000_200_000 // WINDOW_MS * WINDOW_MS
SCRAPE_MS = 15_000
COUNTER = {"job": "kafka", "broker": "1"}


def windows(count: int, first: int = 0) -> Windows:
    return Windows(START_MS + first * WINDOW_MS, START_MS + (first + count) * WINDOW_MS)


def series(labels: Mapping[str, str], samples: Mapping[float, float]) -> SeriesSamples:
    """Samples by seconds after START_MS."""
    times = np.array([START_MS + round(at * 1000) for at in samples], np.int64)
    return SeriesSamples(labels, times, np.array(list(samples.values()), np.float64))


def every(
    seconds: float, value: float, *, begin: float = 0, until: float = 300
) -> dict[float, float]:
    """The same value in each scrape after `begin`, up to and with `until`."""
    return {float(at): value for at in np.arange(begin + seconds, until + 0.001, seconds)}


def counter(
    bytes_per_second: float,
    *,
    begin: float = -60,
    until: float = 360,
    seconds: float = 15,
    first: float = 0,
) -> dict[float, float]:
    return {
        float(at): first + (at - begin) * bytes_per_second
        for at in np.arange(begin, until + 0.001, seconds)
    }


@dataclass(frozen=True)
class BrokerHistory:
    """A broker's random history: lost scrapes, restarts, and clients that come and go and are
    renamed.
    """

    samples: Mapping[Direction, DirectionSamples]
    hours: int

    @classmethod
    def wild(cls, number: int, *, hours: int = 2, clients: int = 5) -> "BrokerHistory":
        chance = np.random.default_rng(number)
        begin, end = START_MS - 7_200_000, START_MS + (hours + 2) * 3_600_000
        times = np.arange(begin + chance.integers(0, SCRAPE_MS), end, SCRAPE_MS) + chance.integers(
            0, 200
        )
        times = times[chance.random(len(times)) > chance.choice([0.0, 0.1])]
        for _ in range(chance.integers(0, 4)):  # times without a scrape
            away = chance.integers(begin, end)
            times = times[(times < away) | (times > away + chance.integers(20_000, 5_000_000))]
        return cls({way: _direction(chance, times, clients) for way in DIRECTIONS}, hours)

    def read(self, owned: Windows) -> Mapping[Direction, DirectionSamples]:
        """Return what a run that owns these windows must read, and no more."""
        reading = reading_of(owned, SCRAPE_MS)
        return {
            way: DirectionSamples(
                nics=_cut(each.nics, *reading.counters),
                client_bytes=_cut(each.client_bytes, *reading.counters),
                replication_bytes=_cut(each.replication_bytes, *reading.counters),
                rates=_cut(each.rates, *reading.gauges),
                throttle_times=_cut(each.throttle_times, *reading.gauges),
            )
            for way, each in self.samples.items()
        }

    def fold(self, owned: Windows) -> BrokerFold:
        return fold_broker(1, self.read(owned), owned, interval_ms=SCRAPE_MS)


def _cut(many: Sequence[SeriesSamples], start_ms: int, end_ms: int) -> list[SeriesSamples]:
    found = []
    for one in many:
        kept = (one.times_ms >= start_ms) & (one.times_ms < end_ms)
        if kept.any():
            found.append(SeriesSamples(one.labels, one.times_ms[kept], one.values[kept]))
    return found


def _direction(chance: np.random.Generator, times: np.ndarray, clients: int) -> DirectionSamples:
    gone = times[chance.integers(0, len(times))]  # one NIC's exporter moved, another's stayed
    return DirectionSamples(
        nics=[
            SeriesSamples(
                {"device": "eth0", "instance": "a"},
                times[times <= gone],
                _wild_counter(chance, times[times <= gone]),
            ),
            SeriesSamples(
                {"device": "eth0", "instance": "b"},
                times[times > gone] + 400,
                _wild_counter(chance, times[times > gone]),
            ),
        ],
        client_bytes=[SeriesSamples(COUNTER, times, _wild_counter(chance, times))],
        replication_bytes=[SeriesSamples(COUNTER, times, _wild_counter(chance, times))],
        rates=[_wild_gauge(chance, times, number, 3e6) for number in range(clients)],
        throttle_times=[_wild_gauge(chance, times, number, 150) for number in range(0, clients, 2)],
    )


def _wild_counter(chance: np.random.Generator, times: np.ndarray) -> np.ndarray:
    counts = chance.integers(0, 2**50) + np.cumsum(chance.integers(0, 200_000_000, len(times)))
    for restart in chance.integers(0, max(1, len(times)), chance.integers(0, 3)):
        counts[restart:] -= counts[restart : restart + 1].sum() - chance.integers(0, 10**6)
    return counts.astype(np.float64)


def _wild_gauge(
    chance: np.random.Generator, times: np.ndarray, number: int, most: float
) -> SeriesSamples:
    first, last = sorted(chance.integers(0, len(times) + 1, 2))
    own = times[first:last][chance.random(last - first) > 0.05]
    labels = {"user": f"user-{number % 3}", "client_id": f"client-{number}"}
    return SeriesSamples(labels, own, chance.random(len(own)) * most)
