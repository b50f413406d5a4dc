"""The queries of one reading: they share one time limit, and a server that is away or wants a login is not asked a second one.

It keeps what failed as problems and gives no answer for it; what an answer means is not known here.
"""

from collections.abc import Callable
from typing import TypeVar

from controller_logic.model import ReadingProblem
from controller_logic.reasons import Reason
from tidegate.errors import NotFound, TidegateError, Unauthorized, Unreachable
from tidegate.prometheus.client import PrometheusClient
from tidegate.prometheus.selectors import over_last
from tidegate.prometheus.series import Series

Item = TypeVar("Item")

_WHOLE_SERVER = (Unreachable, Unauthorized, NotFound)


class Asking:
    """Asks until `until_monotonic_seconds`."""

    def __init__(self, client: PrometheusClient, *, until_monotonic_seconds: float) -> None:
        self._client = client
        self._until = until_monotonic_seconds
        self._given_up = False
        self._problems: list[ReadingProblem] = []

    @property
    def problems(self) -> tuple[ReadingProblem, ...]:
        """What failed, each way of failing once."""
        return tuple(dict.fromkeys(self._problems))

    def ask(self, query: str | None, each: Callable[[Series], Item], *, what: str, seconds: float) -> list[Item] | None:
        """What `each` makes of every series with a sample in the last `seconds`; None = not asked, or no answer that can be used.

        `what` names the query in problems.
        """
        if query is None or self._given_up:
            return None
        try:
            return self._client.query(over_last(query, seconds), each, until_monotonic_seconds=self._until)
        except TidegateError as error:
            self._given_up = isinstance(error, _WHOLE_SERVER)
            self._problems.append(ReadingProblem(error.reason, _told(error, what, query)))
            return None


def _told(error: TidegateError, what: str, query: str) -> str:
    if error.reason is not Reason.METRICS_QUERY_REFUSED:
        return error.message
    advice = "A query must be a plain selector, without function, range or aggregation, so that samples keep their times."
    return f"{error.message} The query for {what} is {query}. {advice}"
