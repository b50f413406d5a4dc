"""The series of one direction's NICs -> spans for each broker, and what is wrong with the rest.

It tells problems that the samples themselves show; which brokers are missing is seen by the reader, who knows which there are.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise

from controller_logic.model import Direction, NicSpan
from controller_logic.reasons import Reason
from tidegate.prometheus.queries import BrokerOf
from tidegate.prometheus.series import Series, SeriesProblem, is_amount

# Counters of one broker's NICs -> the mean rate between each two neighbouring scrapes, in one
# direction.
#
# The rate is the plain difference over the time between the samples, summed over the broker's
# NICs; `rate()` would extrapolate and lag
# (control.md 3.2). A span that cannot be known is left out: a counter that fell (it began anew), a
# NIC that came or went between the two
# scrapes. What a span is worth, how old it may be and whether a NIC can be that fast, is not
# judged here.


# Labels that tell one NIC, or one of the counters that make up a NIC, from another of the same scrape.
NIC_LABELS = ("__name__", "device", "interface", "nic", "ifName", "ifname")

_Source = tuple[tuple[str, str], ...]
_Nic = tuple[str, ...]
_Scrape = dict[_Nic, float]


class Ambiguous(ValueError):
    """Two sources count for the same broker at the same time; the message says which labels tell them apart."""


def spans_of(series: Sequence[Series]) -> tuple[NicSpan, ...]:
    """The spans of one broker and direction, oldest first, from all its series. Samples that are no amounts are passed over.

    A source is whatever has the same labels but for the NIC's: one exporter. One may take over from another (a Pod that moved); raises
    Ambiguous when two overlap in time, since both may count the same bytes, or those of another broker.
    """
    sources = _sources(series)
    _refuse_overlap(sources)
    return tuple(sorted(chain.from_iterable(map(_source_spans, sources.values())), key=lambda span: span.at_seconds))


def _sources(series: Iterable[Series]) -> Mapping[_Source, list[Series]]:
    sources: dict[_Source, list[Series]] = {}
    for one in series:
        sources.setdefault(_without_nic(one.labels), []).append(one)
    return sources


def _without_nic(labels: Mapping[str, str]) -> _Source:
    return tuple(sorted((name, value) for name, value in labels.items() if name not in NIC_LABELS))


def _refuse_overlap(sources: Mapping[_Source, list[Series]]) -> None:
    times = sorted(
        (min(one.first_at_seconds for one in group), max(one.last_at_seconds for one in group), source) for source, group in sources.items()
    )
    for (_, last, source), (next_first, _, next_source) in pairwise(times):
        if next_first <= last:
            raise Ambiguous(_difference(source, next_source))


def _difference(one: _Source, other: _Source) -> str:
    """The labels in which they differ, in words that are the same whichever of the two was scraped first."""
    these, those = dict(one), dict(other)
    names = sorted(name for name in these.keys() | those.keys() if these.get(name) != those.get(name))
    values = {name: sorted((these.get(name, ""), those.get(name, ""))) for name in names}
    return "; ".join(f"{name} {first!r} and {second!r}" for name, (first, second) in values.items())


def _source_spans(series: Iterable[Series]) -> Iterator[NicSpan]:
    scrapes = _scrapes(series)
    for (before_at, before), (at, now) in pairwise(sorted(scrapes.items())):
        # a NIC in one of the two only: how much of the difference is its past, nobody knows
        if before.keys() != now.keys() or any(now[nic] < before[nic] for nic in now):
            continue
        seconds = at - before_at
        rate = sum(now[nic] - before[nic] for nic in now) / seconds
        if is_amount(rate):
            yield NicSpan(at, seconds, rate)


def _scrapes(series: Iterable[Series]) -> Mapping[float, _Scrape]:
    """Time of the scrape -> each NIC's counter; all NICs of one scrape have the same time."""
    scrapes: dict[float, _Scrape] = {}
    for one in series:
        nic = tuple(one.labels.get(name, "") for name in NIC_LABELS)
        for at, counter in one.samples:
            if is_amount(counter):
                scrapes.setdefault(at, {})[nic] = counter
    return scrapes


# Clocks of machines that keep time differ by less; a sample from further ahead would look fresh for as long as it is ahead.
FUTURE_SECONDS = 5.0

NicSpans = dict[int, tuple[NicSpan, ...]]


def nic_spans(
    series: Iterable[Series], direction: Direction, *, broker_of: BrokerOf, read_at_seconds: float
) -> tuple[NicSpans, list[SeriesProblem]]:
    """Spans by broker, oldest first; brokers whose series cannot be used are absent and told of."""
    by_broker, oddities = _by_broker(series, direction, broker_of)
    spans: NicSpans = {}
    for broker, nics in by_broker.items():
        oddities += _no_amounts(broker, direction, nics)
        if oddity := _from_the_future(broker, nics, read_at_seconds):
            oddities.append(oddity)
            continue
        try:
            spans[broker] = spans_of(nics)
        except Ambiguous as two:
            oddities.append(_two_sources(broker, direction, two))
    return spans, oddities


def _by_broker(
    series: Iterable[Series], direction: Direction, broker_of: BrokerOf
) -> tuple[Mapping[int, list[Series]], list[SeriesProblem]]:
    found: dict[int, list[Series]] = {}
    oddities: list[SeriesProblem] = []
    for one in series:
        broker = broker_of(one.labels)
        if broker is None:
            oddities.append(without_broker(one, f"{direction} of cards"))
        else:
            found.setdefault(broker, []).append(one)
    return found, oddities


def without_broker(series: Series, what: str) -> SeriesProblem:
    """A series that does not tell its broker."""
    hint = "Name the label or the instances in metrics.brokerIdentity, or narrow the query."
    return SeriesProblem(
        Reason.METRICS_AMBIGUOUS, f"The query for {what} gave a series that does not tell its broker", str(series), hint=hint
    )


def _no_amounts(broker: int, direction: Direction, nics: Iterable[Series]) -> Iterable[SeriesProblem]:
    for one in nics:
        for _, counter in one.samples:
            if not is_amount(counter):
                what = f"a sample of the {direction} counter is no number of bytes"
                yield SeriesProblem(Reason.METRICS_UNREADABLE, what, f"{counter} in {one}", broker, "Look at the exporter.")


def _from_the_future(broker: int, nics: Iterable[Series], read_at_seconds: float) -> SeriesProblem | None:
    newest = max(one.last_at_seconds for one in nics)
    if newest <= read_at_seconds + FUTURE_SECONDS:
        return None
    ahead = f"{newest - read_at_seconds:.0f} s"
    hint = "Set the clocks of Prometheus and of Tidegate's node; with clocks apart no reading's age can be told."
    return SeriesProblem(Reason.METRICS_STALE, "samples are ahead of Tidegate's clock", ahead, broker, hint)


def _two_sources(broker: int, direction: Direction, two: Ambiguous) -> SeriesProblem:
    what = f"more than one source counts its {direction} at the same time"
    hint = "Narrow the query to one of them, or record their sum."
    return SeriesProblem(Reason.METRICS_AMBIGUOUS, what, str(two), broker, hint)
