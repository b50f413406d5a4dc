"""The condition MetricsFresh: whether the load of every live broker is known, and if not, why. It holds no rates: those are metrics."""

from controller_logic.model import Direction, ReadingProblem
from controller_logic.reasons import Reason
from controller_logic.throttle.pressure import Card, Pressure
from tidegate.control.reconcile import PassResult
from tidegate.control.verdict import Truth, Verdict, listed, sentence, shortened

_TYPE = "MetricsFresh"
_ALL_KNOWN = "The load of every live broker is known"
# what clients send is not needed to say whether a broker is over its limit
_OF_CLIENTS = frozenset({Reason.CLIENTS_NOT_METERED})


def metrics_fresh(result: PassResult, *, measured: bool) -> Verdict:
    """True while every card with a limit can be judged, although something else may be missing; that is told then."""
    readings = result.seen.observation.readings
    if not measured:
        return Verdict(_TYPE, Truth.UNKNOWN, Reason.METRICS_NOT_WATCHED, "The policy names no metrics, so no broker's load is read")
    if readings is None or result.decision.watched is None:
        return Verdict(_TYPE, Truth.UNKNOWN, Reason.STARTING, "No reading of the brokers' load has come yet")
    unknown = [card for one in result.decision.watched for card in one.cards.values() if card.pressure is Pressure.UNKNOWN]
    limited = {way for one in result.decision.watched for way in one.cards}
    problems = [problem for problem in readings.problems if problem.reason not in _OF_CLIENTS and _matters(problem, limited)]
    if unknown:
        return _not_fresh(problems, unknown)
    if problems:
        return Verdict(_TYPE, Truth.TRUE, problems[0].reason, _told("The load of every broker with a limit is known.", problems))
    withheld = [note.message for note in result.decision.notes if note.reason is Reason.METERING_WITHHELD]
    if withheld:
        return Verdict(_TYPE, Truth.TRUE, Reason.METERING_WITHHELD, shortened(sentence(f"{_ALL_KNOWN}; but {listed(withheld)}")))
    return Verdict(_TYPE, Truth.TRUE, Reason.METRICS_FRESH, _ALL_KNOWN)


def _matters(problem: ReadingProblem, limited: set[Direction]) -> bool:
    """A card is not missed in a direction in which nobody set a limit."""
    return not problem.directions or bool(limited & set(problem.directions))


def _not_fresh(problems: list[ReadingProblem], unknown: list[Card]) -> Verdict:
    brokers = ", ".join(str(broker) for broker in sorted({card.broker for card in unknown}))
    if problems:
        return Verdict(_TYPE, Truth.FALSE, problems[0].reason, _told(f"Not known of broker {brokers}.", problems))
    lie = any(card.lies for card in unknown)
    why = "its card says less than half of what Kafka moves for clients there" if lie else "its card tells nothing usable"
    return Verdict(_TYPE, Truth.FALSE, Reason.STALE_DATA, f"Not known of broker {brokers}: {why}")


def _told(beginning: str, problems: list[ReadingProblem]) -> str:
    return shortened(sentence(f"{beginning} {listed([problem.message for problem in problems])}"))
