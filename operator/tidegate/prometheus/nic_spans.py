"""Counters of one broker's cards -> the mean rate between each two neighbouring scrapes, in one direction.

The rate is the plain difference over the time between the samples, summed over the broker's cards; `rate()` would extrapolate and lag
(control.md 3.2). A span that cannot be known is left out: a counter that fell (it began anew), a card that came or went between the two
scrapes. What a span is worth, how old it may be and whether a card can be that fast, is not judged here.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise

from controller_logic.model import NicSpan
from tidegate.prometheus.series import Series, is_amount

# Labels that tell one card, or one of the counters that make up a card, from another of the same scrape.
CARD_LABELS = ("__name__", "device", "interface", "nic", "ifName", "ifname")

_Source = tuple[tuple[str, str], ...]
_Card = tuple[str, ...]
_Scrape = dict[_Card, float]


class Ambiguous(ValueError):
    """Two sources count for the same broker at the same time; the message says which labels tell them apart."""


def spans_of(series: Sequence[Series]) -> tuple[NicSpan, ...]:
    """The spans of one broker and direction, oldest first, from all its series. Samples that are no amounts are passed over.

    A source is whatever has the same labels but for the card's: one exporter. One may take over from another (a Pod that moved); raises
    Ambiguous when two overlap in time, since both may count the same bytes, or those of another broker.
    """
    sources = _sources(series)
    _refuse_overlap(sources)
    return tuple(sorted(chain.from_iterable(map(_source_spans, sources.values())), key=lambda span: span.at_seconds))


def _sources(series: Iterable[Series]) -> Mapping[_Source, list[Series]]:
    sources: dict[_Source, list[Series]] = {}
    for one in series:
        sources.setdefault(_without_card(one.labels), []).append(one)
    return sources


def _without_card(labels: Mapping[str, str]) -> _Source:
    return tuple(sorted((name, value) for name, value in labels.items() if name not in CARD_LABELS))


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
        # a card in one of the two only: how much of the difference is its past, nobody knows
        if before.keys() != now.keys() or any(now[card] < before[card] for card in now):
            continue
        seconds = at - before_at
        rate = sum(now[card] - before[card] for card in now) / seconds
        if is_amount(rate):
            yield NicSpan(at, seconds, rate)


def _scrapes(series: Iterable[Series]) -> Mapping[float, _Scrape]:
    """Time of the scrape -> each card's counter; all cards of one scrape have the same time."""
    scrapes: dict[float, _Scrape] = {}
    for one in series:
        card = tuple(one.labels.get(name, "") for name in CARD_LABELS)
        for at, counter in one.samples:
            if is_amount(counter):
                scrapes.setdefault(at, {})[card] = counter
    return scrapes
