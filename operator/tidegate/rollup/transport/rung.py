"""What the four ways of reading have in common: from the samples that came to the rows that all of them give alike."""

from abc import ABC, abstractmethod

from tidegate.rollup.samples import Selection, SeriesSamples
from tidegate.rollup.transport.exchange import Exchange
from tidegate.rollup.transport.replicas import identified
from tidegate.rollup.transport.settings import HistorySettings
from tidegate.rollup.transport.stored_series import StoredSeries, in_range


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
        if end_ms <= start_ms:
            return []
        stored = self._stored(selection, start_ms, end_ms=end_ms, until=self._exchange.deadline())
        return identified(in_range(stored, start_ms, end_ms), selection, settings=self._settings)

    def close(self) -> None:
        """Hang up; the next read connects anew."""
        self._exchange.close()

    @abstractmethod
    def _stored(self, selection: Selection, start_ms: int, *, end_ms: int, until: float) -> StoredSeries:
        """At least the samples in [start_ms, end_ms)."""
