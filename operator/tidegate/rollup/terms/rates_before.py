"""What clients sent on each broker just before they were cut: the rate against which deferred bytes are counted."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from tidegate.prometheus.queries import broker_of, identity_of
from tidegate.prometheus.settings import MetricsSettings
from tidegate.rollup.fold.gauges import MOST_BYTES_PER_SECOND, Client, client_of
from tidegate.rollup.fold.windows import longest_hold_ms
from tidegate.rollup.ingest.catalogue import catalogue
from tidegate.rollup.samples import SeriesSamples, Transport
from tidegate.rollup.schemas import Direction

RatesThen = Mapping[Client, Mapping[int, float]]  # by broker, in bytes/s
_TOGETHER_MS: Final = 120_000  # moments that are nearer to each other are read at once


class RatesBefore:
    """Reads what is asked for, each moment once."""

    def __init__(self, transport: Transport, settings: MetricsSettings) -> None:
        self._transport = transport
        self._selections = {direction: one.rates for direction, one in catalogue(settings).items()}
        self._broker_of = broker_of(identity_of(settings))
        self._hold_ms = longest_hold_ms(settings.scrape_interval_seconds * 1000)
        self._known: dict[tuple[Direction, int], RatesThen] = {}

    def at(self, direction: Direction, moments_ms: Iterable[int]) -> Mapping[int, RatesThen]:
        """For each of these moments every client's last rate, where it is no older than five scrapes. Raises tidegate.errors."""
        wanted = sorted(set(moments_ms))
        for group in _groups([moment for moment in wanted if (direction, moment) not in self._known]):
            self._read(direction, group)
        return {moment: self._known[direction, moment] for moment in wanted}

    def _read(self, direction: Direction, moments_ms: Sequence[int]) -> None:
        selection = self._selections[direction]
        found = self._transport.read(selection, moments_ms[0] - self._hold_ms, moments_ms[-1] + 1) if selection is not None else []
        told = [
            (broker, client, one) for one in found if (broker := self._broker_of(one.labels)) is not None and (client := client_of(one))
        ]
        for moment in moments_ms:
            rates: dict[Client, dict[int, float]] = {}
            for broker, client, one in told:
                rate = self._last(one, moment)
                if rate is not None:
                    own = rates.setdefault(client, {})
                    own[broker] = max(rate, own.get(broker, 0.0))
            self._known[direction, moment] = rates

    def _last(self, series: SeriesSamples, moment_ms: int) -> float | None:
        place = int(np.searchsorted(series.times_ms, moment_ms, side="right")) - 1
        if place < 0 or series.times_ms[place] < moment_ms - self._hold_ms:
            return None
        value = float(series.values[place])
        return value if 0 <= value <= MOST_BYTES_PER_SECOND else None


def _groups(moments_ms: Sequence[int]) -> Iterator[Sequence[int]]:
    if not moments_ms:
        return
    cuts = [number for number, (one, other) in enumerate(pairwise(moments_ms), 1) if other - one > _TOGETHER_MS]
    for first, past in zip([0, *cuts], [*cuts, len(moments_ms)], strict=True):
        yield moments_ms[first:past]
