"""What a throttled client would have sent, as far as anybody can say: the rate against which deferred bytes are counted.

With an account of throttle episodes (the audit trail's) it is what the operator's own metric `tidegate_deferred_bytes_total` takes: the
client's rate just before the first cut, for as long as the episode lasts, and nothing outside of episodes. Without one it is the
contract: bytes that were promised and that Kafka held back. Both are estimates; demand itself is not visible.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidegate.rollup.fold.gauges import Gauges
from tidegate.rollup.fold.scrape_grid import ScrapeGrid

Rates = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Wanted:
    """One throttle episode of a client on this broker, [start_ms, end_ms), and its rate just before the first cut. `client` by number."""

    client: int
    start_ms: int
    end_ms: int
    bytes_per_second: float


def wanted_rates(throttled: Gauges, grid: ScrapeGrid, promised: Rates, episodes: Sequence[Wanted] | None) -> Rates:
    """For each of these samples, whose contracts are `promised`, the rate in bytes/s that was wanted then; 0 where nothing tells of one."""
    if episodes is None:
        return np.where(np.isfinite(promised), promised, 0.0)
    wanted, times = np.zeros(len(throttled.values)), grid.times_ms[throttled.scrape]
    for episode in episodes:
        own = slice(*np.searchsorted(throttled.client, [episode.client, episode.client + 1]))  # samples are in the order of clients
        during = (times[own] >= episode.start_ms) & (times[own] < episode.end_ms)
        wanted[own] = np.where(during, np.maximum(wanted[own], episode.bytes_per_second), wanted[own])
    return wanted
