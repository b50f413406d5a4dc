"""The raw samples through the query API, `metric{...}[d]`: exact like remote read, and every server has it, at five times the work."""

from tidegate.rollup.samples import Selection
from tidegate.rollup.transport.http_query import question, read_matrix, seconds, stored
from tidegate.rollup.transport.rung import Rung
from tidegate.rollup.transport.selection_text import promql
from tidegate.rollup.transport.series import StoredSeries


class RangeSelector(Rung):
    """An instant query with a range selector. No limit of points, but one of samples (50 million by default).

    Prometheus 2 takes both ends of a range, Prometheus 3 not the left one. Asked one millisecond before our end for the whole length,
    the first gives one millisecond too much in front, which is cut off, and the second gives the range exactly.
    """

    name = "range-selector"

    def _stored(self, selection: Selection, start_ms: int, *, end_ms: int, until: float) -> StoredSeries:
        parameters = {"query": f"{promql(selection)}[{end_ms - start_ms}ms]", "time": seconds(end_ms - 1)}
        asked = question("/api/v1/query", parameters, timeout_seconds=self._settings.request_timeout_seconds)
        return stored(self._exchange.ask(asked, read_matrix, until=until))
