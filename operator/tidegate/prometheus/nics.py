"""The series of one direction's cards -> spans for each broker, and what is wrong with the rest.

It tells problems that the samples themselves show; which brokers are missing is seen by the reader, who knows which there are.
"""

from collections.abc import Iterable, Mapping

from controller_logic.model import Direction, NicSpan
from controller_logic.reasons import Reason
from tidegate.prometheus.broker_identity import BrokerOf
from tidegate.prometheus.nic_spans import Ambiguous, spans_of
from tidegate.prometheus.problems import Oddity
from tidegate.prometheus.series import Series, is_amount

# Clocks of machines that keep time differ by less; a sample from further ahead would look fresh for as long as it is ahead.
FUTURE_SECONDS = 5.0

NicSpans = dict[int, tuple[NicSpan, ...]]


def nic_spans(
    series: Iterable[Series], direction: Direction, *, broker_of: BrokerOf, read_at_seconds: float
) -> tuple[NicSpans, list[Oddity]]:
    """Spans by broker, oldest first; brokers whose series cannot be used are absent and told of."""
    by_broker, oddities = _by_broker(series, direction, broker_of)
    spans: NicSpans = {}
    for broker, cards in by_broker.items():
        oddities += _no_amounts(broker, direction, cards)
        if oddity := _from_the_future(broker, cards, read_at_seconds):
            oddities.append(oddity)
            continue
        try:
            spans[broker] = spans_of(cards)
        except Ambiguous as two:
            oddities.append(_two_sources(broker, direction, two))
    return spans, oddities


def _by_broker(series: Iterable[Series], direction: Direction, broker_of: BrokerOf) -> tuple[Mapping[int, list[Series]], list[Oddity]]:
    found: dict[int, list[Series]] = {}
    oddities: list[Oddity] = []
    for one in series:
        broker = broker_of(one.labels)
        if broker is None:
            oddities.append(without_broker(one, f"{direction} of cards"))
        else:
            found.setdefault(broker, []).append(one)
    return found, oddities


def without_broker(series: Series, what: str) -> Oddity:
    """A series that does not tell its broker."""
    hint = "Name the label or the instances in metrics.brokerIds, or narrow the query."
    return Oddity(Reason.METRICS_AMBIGUOUS, f"The query for {what} gave a series that does not tell its broker", str(series), hint=hint)


def _no_amounts(broker: int, direction: Direction, cards: Iterable[Series]) -> Iterable[Oddity]:
    for one in cards:
        for _, counter in one.samples:
            if not is_amount(counter):
                what = f"a sample of the {direction} counter is no number of bytes"
                yield Oddity(Reason.METRICS_UNREADABLE, what, f"{counter} in {one}", broker, "Look at the exporter.")


def _from_the_future(broker: int, cards: Iterable[Series], read_at_seconds: float) -> Oddity | None:
    newest = max(one.last_at_seconds for one in cards)
    if newest <= read_at_seconds + FUTURE_SECONDS:
        return None
    ahead = f"{newest - read_at_seconds:.0f} s"
    hint = "Set the clocks of Prometheus and of Tidegate's node; with clocks apart no reading's age can be told."
    return Oddity(Reason.METRICS_STALE, "samples are ahead of Tidegate's clock", ahead, broker, hint)


def _two_sources(broker: int, direction: Direction, two: Ambiguous) -> Oddity:
    what = f"more than one source counts its {direction} at the same time"
    hint = "Narrow the query to one of them, or record their sum."
    return Oddity(Reason.METRICS_AMBIGUOUS, what, str(two), broker, hint)
