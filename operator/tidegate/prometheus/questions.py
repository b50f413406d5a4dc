"""The questions of one reading: for all brokers at once, or for one group of brokers after another.

A broker may meter thousands of clients, so their rates are asked for by groups of brokers, small
enough that each answer is small and what goes wrong with one concerns its brokers only. Failures
are kept as problems.
"""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from tidegate.errors import NotFound, TidegateError, Unauthorized, Unreachable
from tidegate.prometheus.client import MEANWHILE, PrometheusClient
from tidegate.prometheus.http import TooLarge, TooSlow
from tidegate.prometheus.queries import narrowed, over_last, these_brokers
from tidegate.prometheus.series import Series
from tidegate.prometheus.settings import BrokerInstances, BrokerLabel
from tidegate_logic.model import ReadingProblem
from tidegate_logic.reasons import Reason

Item = TypeVar("Item")

_SERIES_OF_A_QUESTION = 20_000  # 5 MB; read in a tenth of a second
_LIKELY_CLIENTS = 5_000  # of a broker, until the first answer shows how many there are
_SHARE_OF_THE_TIME_LEFT = 0.25  # that one of several groups may take
_LEAST_SECONDS = 1.0  # that a question for all brokers has, also after the time of the reading
_SHOWN_BROKERS = 10


class Group:
    """Brokers that are asked for together, and how many series an answer for them had at most.

    No matcher = whatever the query matches.
    """

    def __init__(self, brokers: Sequence[int], matcher: str = "") -> None:
        self.brokers = tuple(brokers)
        self.matcher = matcher
        self.largest_answer = 0  # in series

    @property
    def is_part(self) -> bool:
        """Whether other groups are asked for as well."""
        return bool(self.matcher)


class Groups:
    """Divides the brokers by how many clients their answers have had."""

    def __init__(self, identity: BrokerLabel | BrokerInstances) -> None:
        self._identity = identity
        self._clients = 0  # the most of one broker so far

    def of(self, brokers: Sequence[int]) -> Iterator[Group]:
        """The groups, in the order of the brokers."""
        size = max(1, _SERIES_OF_A_QUESTION // (self._clients or _LIKELY_CLIENTS))
        if len(brokers) <= size:
            yield Group(brokers)
            return
        rest = iter(brokers)
        while members := tuple(islice(rest, size)):
            yield Group(members, these_brokers(self._identity, members))

    def learn(self, group: Group) -> None:
        """Make the groups smaller where its answers were larger than those before."""
        self._clients = max(self._clients, -(-group.largest_answer // max(1, len(group.brokers))))


# After a server did not answer or refused the login, it gets no further question.
_WHOLE_SERVER = (Unreachable, Unauthorized, NotFound)


class Asking:
    """Asks the questions of one reading, which lasts `reading_seconds` at most.

    Each has `question_seconds`, repeats included; one of several groups has a quarter of the time
    that is left, so that the others are asked, too.
    """

    def __init__(
        self,
        client: PrometheusClient,
        *,
        question_seconds: float,
        reading_seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._question_seconds = question_seconds
        self._reading_seconds = reading_seconds
        self._monotonic = monotonic
        self._until = monotonic() + reading_seconds
        self._given_up = False
        # each kind of failure once, with the brokers that it concerns; none = all
        self._problems: dict[tuple[Reason, str], set[int]] = {}

    @property
    def problems(self) -> tuple[ReadingProblem, ...]:
        """The failures, each kind once."""
        return tuple(
            _problem(reason, message, brokers)
            for (reason, message), brokers in self._problems.items()
        )

    @property
    def given_up(self) -> bool:
        """Whether the server did not answer, and is asked nothing more."""
        return self._given_up

    def ask(self, query: str | None, *, what: str, seconds: float) -> list[Series] | None:
        """The series with a sample in the last `seconds`, for a small answer of all brokers.

        None = not asked, or no usable answer. `what` names the query in problems.
        """

        def read(promql: str, until: float) -> list[Series]:
            return self._client.query(promql, until_monotonic_seconds=until)

        return self._ask(query, read, what=what, seconds=seconds, group=None)

    def ask_group(
        self,
        query: str | None,
        each: Callable[[Series], Item],
        *,
        what: str,
        seconds: float,
        group: Group,
    ) -> list[Item] | None:
        """What `each` makes of every series of a group, which may be many; else as `ask`."""

        def read(promql: str, until: float) -> list[Item]:
            return self._client.stream(promql, each, until_monotonic_seconds=until)

        return self._ask(query, read, what=what, seconds=seconds, group=group)

    def _ask(
        self,
        query: str | None,
        read: Callable[[str, float], list[Item]],
        *,
        what: str,
        seconds: float,
        group: Group | None,
    ) -> list[Item] | None:
        if query is None or self._given_up:
            return None
        part = group if group is not None and group.is_part else None
        now = self._monotonic()
        left_seconds = self._until - now
        if part is not None and left_seconds <= 0:
            self._note(Reason.METRICS_INCOMPLETE, self._no_time_left(), part)
            return None
        asked = query
        if part is not None:
            asked = narrowed(query, [part.matcher])
            left_seconds *= _SHARE_OF_THE_TIME_LEFT
        elif group is None:  # a small answer, which says what the large ones are worth
            left_seconds = max(left_seconds, _LEAST_SECONDS)
        until = now + min(self._question_seconds, left_seconds)
        try:
            answer = read(over_last(asked, seconds), until)
        except TidegateError as error:
            goes_on = part is not None and isinstance(error, TooSlow)
            self._given_up = isinstance(error, _WHOLE_SERVER) and not goes_on
            self._note(error.reason, _message(error, what, query), None if self._given_up else part)
            if group is not None and isinstance(error, TooLarge):
                group.largest_answer = _SERIES_OF_A_QUESTION * len(group.brokers)
            return None
        if group is not None:
            group.largest_answer = max(group.largest_answer, len(answer))
        return answer

    def _no_time_left(self) -> str:
        return (
            f"A reading may last {self._reading_seconds:g} s, and no time was left for them. "
            f"{MEANWHILE} Check Prometheus's load."
        )

    def _note(self, reason: Reason, message: str, part: Group | None) -> None:
        brokers = self._problems.setdefault((reason, message), set())
        brokers.update(part.brokers if part is not None else ())


def _problem(reason: Reason, message: str, brokers: Collection[int]) -> ReadingProblem:
    if not brokers:
        return ReadingProblem(reason, message)
    shown = [str(broker) for broker in sorted(brokers)[:_SHOWN_BROKERS]]
    more = len(brokers) - len(shown)
    names = f"broker{'s' if len(brokers) > 1 else ''} {', '.join(shown)}"
    names += f" and {more} more" if more else ""
    only = next(iter(brokers)) if len(brokers) == 1 else None
    text = f"What clients send on {names} was not read. {message}"
    return ReadingProblem(reason, text, only)


def _message(error: TidegateError, what: str, query: str) -> str:
    if error.reason is not Reason.METRICS_QUERY_REFUSED:
        return error.message
    advice = (
        "A query must be a plain selector, without function, range or aggregation, so that "
        "samples keep their times."
    )
    return f"{error.message} The query for {what} is {query}. {advice}"
