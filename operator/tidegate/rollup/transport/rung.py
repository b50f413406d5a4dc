"""What the four ways of reading have in common: from the samples that came to the rows that all of them give alike."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from tidegate.rollup.samples import Asked, Selection, SeriesSamples
from tidegate.rollup.transport.exchange import Exchange
from tidegate.rollup.transport.replicas import identified
from tidegate.rollup.transport.series import StoredSeries, in_range
from tidegate.rollup.transport.settings import HistorySettings


class Rung(ABC):
    """One way of reading a server's history; a `tidegate.rollup.samples.Transport`. One thread at a time may use it."""

    name: str
    exact = True

    def __init__(self, settings: HistorySettings, *, exchange: Exchange | None = None) -> None:
        self._settings = settings
        self._exchange = exchange or Exchange(settings)

    def read(self, selection: Selection, start_ms: int, end_ms: int) -> list[SeriesSamples]:
        """All samples in [start_ms, end_ms) of the series selected, sorted by labels; nothing is asked for an empty range.

        Raises Unreachable when the server does not answer in time; Incomplete when an answer is damaged, partial, too large or of another
        kind; Unauthorized, NotFound or InvalidResource when the server says so, or when two series cannot be told apart.
        """
        return self.read_all([Asked(selection, start_ms, end_ms)])[0]

    def read_all(self, asked: Sequence[Asked]) -> list[list[SeriesSamples]]:
        """The same for each of these, in their order. Each is a request of its own, with its own deadline and bound on the answer."""
        stored = self._stored_all([one for one in asked if one.start_ms < one.end_ms])
        return [self._rows(next(stored), one) if one.start_ms < one.end_ms else [] for one in asked]

    def close(self) -> None:
        """Hang up; the next read connects anew."""
        self._exchange.close()

    def _rows(self, stored: StoredSeries, asked: Asked) -> list[SeriesSamples]:
        return identified(in_range(stored, asked.start_ms, asked.end_ms), asked.selection, settings=self._settings)

    def _stored_all(self, asked: Sequence[Asked]) -> Iterator[StoredSeries]:
        """`_stored` of each of these, in their order."""
        for one in asked:
            yield self._stored(one.selection, one.start_ms, end_ms=one.end_ms, until=self._exchange.deadline())

    @abstractmethod
    def _stored(self, selection: Selection, start_ms: int, *, end_ms: int, until: float) -> StoredSeries:
        """At least the samples in [start_ms, end_ms)."""
