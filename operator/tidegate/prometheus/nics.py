"""The rates of each broker's NICs in one direction, from the series of their counters.

Series that cannot be used become problems. The problems are those that the samples show. The reader
adds the brokers without samples, because it has the list of brokers.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from tidegate.prometheus.interfaces import (
    Wired,
    came_or_went,
    interface_label,
    judged_directions,
    rate_of,
    wired_of,
)
from tidegate.prometheus.queries import BrokerOf
from tidegate.prometheus.series import Series, SeriesProblem, is_amount
from tidegate.prometheus.settings import MetricsSettings
from tidegate_logic.model import Direction, Exporter, Interface, NicSpan
from tidegate_logic.reasons import Reason

# Spans: the mean rate of one broker between each two neighbouring scrapes, in one direction.
#
# The rate is the plain difference over the time between the samples, summed over the broker's NICs;
# `rate()` would extrapolate and lag. A span is left out where a counter fell (it was reset), or
# where a NIC came or went between the two scrapes. Its age, and whether a NIC can be that fast, are
# judged by the core.


# Labels that distinguish the NICs of one scrape, or the counters that make up a NIC.
NIC_LABELS = ("__name__", "device", "interface", "nic", "ifName", "ifname")

_Source = tuple[tuple[str, str], ...]
_Nic = tuple[str, ...]
_Scrape = dict[_Nic, float]


class Ambiguous(ValueError):
    """Two sources count for the same broker at the same time; the message names how they differ."""


def spans_of(series: Sequence[Series]) -> tuple[NicSpan, ...]:
    """The spans of one broker and direction, oldest first, from all its series.

    Samples that are not amounts are skipped.

    A source is all series with the same labels but for the NIC's: one exporter. One may follow
    another (a Pod that moved). Raises Ambiguous when two overlap in time, because both may count
    the same bytes, or those of another broker.
    """
    sources = _sources(series)
    _refuse_overlap(sources)
    return tuple(
        sorted(
            chain.from_iterable(map(_source_spans, sources.values())),
            key=lambda span: span.at_seconds,
        )
    )


def _sources(series: Iterable[Series]) -> Mapping[_Source, list[Series]]:
    sources: dict[_Source, list[Series]] = {}
    for one in series:
        sources.setdefault(_without_nic(one.labels), []).append(one)
    return sources


def _without_nic(labels: Mapping[str, str]) -> _Source:
    return tuple(sorted((name, value) for name, value in labels.items() if name not in NIC_LABELS))


def _refuse_overlap(sources: Mapping[_Source, list[Series]]) -> None:
    times = sorted(
        (
            min(one.first_at_seconds for one in group),
            max(one.last_at_seconds for one in group),
            source,
        )
        for source, group in sources.items()
    )
    for (_, last, source), (next_first, _, next_source) in pairwise(times):
        if next_first <= last:
            raise Ambiguous(_difference(source, next_source))


def _difference(one: _Source, other: _Source) -> str:
    """The labels in which they differ, in the same words whichever was scraped first."""
    these, those = dict(one), dict(other)
    names = sorted(
        name for name in these.keys() | those.keys() if these.get(name) != those.get(name)
    )
    values = {name: sorted((these.get(name, ""), those.get(name, ""))) for name in names}
    return "; ".join(f"{name} {first!r} and {second!r}" for name, (first, second) in values.items())


def _source_spans(series: Iterable[Series]) -> Iterator[NicSpan]:
    scrapes = _scrapes(series)
    for (before_at, before), (at, now) in pairwise(sorted(scrapes.items())):
        # a NIC in one of the two only: the part of the difference before the first scrape is
        # unknown
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


# Interfaces: those with a cable, of each exporter of each broker. One that comes or goes while we
# watch would change the total from one scrape to the next, so the broker is not known until all its
# scrapes have the same ones.


@dataclass(frozen=True, slots=True)
class Cables:
    """The series of interfaces that are added up, those interfaces by broker, and what is unclear.

    A broker of `problems` has no series any more in the directions that a preset's names select.
    """

    series: Mapping[Direction, list[Series]]
    interfaces: Mapping[int, tuple[Interface, ...]]
    problems: list[SeriesProblem]


def only_cables(
    nics: Mapping[Direction, list[Series]], settings: MetricsSettings, *, broker_of: BrokerOf
) -> Cables:
    """Leave out what is no cable, and brokers of which that is not known."""
    label, ways = interface_label(settings), judged_directions(settings)
    if label is None or not ways:
        return Cables(nics, {}, [])
    kept = {way: list[Series]() if way in ways else series for way, series in nics.items()}
    by_broker: dict[int, dict[_Source, dict[Direction, list[Series]]]] = {}
    for way in (way for way in ways if way in nics):
        for one in nics[way]:
            broker = broker_of(one.labels)
            if broker is None:
                kept[way].append(one)
                continue
            sources = by_broker.setdefault(broker, {})
            sources.setdefault(_without_nic(one.labels), {}).setdefault(way, []).append(one)
    interfaces: dict[int, tuple[Interface, ...]] = {}
    problems: list[SeriesProblem] = []
    for broker, found in by_broker.items():
        newest = -math.inf
        counted: dict[Direction, list[Series]] = {}
        for source in found.values():
            rates = _rates(source, label)
            wired = wired_of({name: sum(each.values()) for name, each in rates.items()}, settings)
            mine = {
                way: [one for one in series if one.labels.get(label, "") in wired.counted]
                for way, series in source.items()
            }
            if problem := _unclear(broker, wired, mine, label):
                problems.append(problem)
                interfaces.pop(broker, None)
                break
            for way, series in mine.items():
                counted.setdefault(way, []).extend(series)
            last = max(one.last_at_seconds for series in source.values() for one in series)
            if last > newest:
                newest = last
                interfaces[broker] = tuple(
                    Interface(
                        name,
                        rates[name].get(Direction.EGRESS, 0.0),
                        rates[name].get(Direction.INGRESS, 0.0),
                    )
                    for name in sorted(wired.counted)
                )
        else:
            for way, series in counted.items():
                kept[way] += series
    return Cables(kept, interfaces, problems)


def _rates(
    source: Mapping[Direction, Sequence[Series]], label: str
) -> Mapping[str, dict[Direction, float]]:
    rates: dict[str, dict[Direction, float]] = {}
    for way, series in source.items():
        for one in series:
            rates.setdefault(one.labels.get(label, ""), {})[way] = rate_of(one)
    return rates


def _unclear(
    broker: int, wired: Wired, counted: Mapping[Direction, Sequence[Series]], label: str
) -> SeriesProblem | None:
    if wired.unclear:
        return SeriesProblem(
            Reason.INTERFACES_UNCLEAR,
            "which of its interfaces have a cable is not known",
            ", ".join(sorted(wired.unclear)),
            broker,
            "Name those that have one in metrics.interfaces; a bond once, itself or its members.",
        )
    changed = sorted({name for one in counted.values() for name in came_or_went(one, label)})
    if not changed:
        return None
    return SeriesProblem(
        Reason.INTERFACES_UNCLEAR,
        "interfaces that count came or went",
        ", ".join(changed),
        broker,
        "Its load is known again after about a minute. Name those that have a cable in "
        "metrics.interfaces if others come and go.",
    )


def exporters_of(cables: Cables, *, broker_of: BrokerOf) -> Mapping[int, Exporter]:
    """Where the newest samples of each broker's NIC came from; absent where they have no name."""
    newest: dict[int, float] = {}
    mine: dict[int, list[tuple[Direction, Series]]] = {}
    for way, series in cables.series.items():
        for one in series:
            broker = broker_of(one.labels)
            if broker is None or not one.labels.get("instance"):
                continue
            if one.last_at_seconds > newest.get(broker, -math.inf):
                newest[broker] = one.last_at_seconds
            mine.setdefault(broker, []).append((way, one))
    found: dict[int, Exporter] = {}
    for broker, at_seconds in newest.items():
        last = [of for of in mine[broker] if of[1].last_at_seconds == at_seconds]
        counters: dict[Direction, dict[str, float]] = {}
        for way, one in last:
            counters.setdefault(way, {})[one.labels.get("device", "")] = one.samples[-1][1]
        instances = {one.labels["instance"] for _, one in last}
        if len(instances) == 1:
            found[broker] = Exporter(instances.pop(), at_seconds, counters)
    return found


# Clocks of machines that keep time differ by less. A sample from further ahead would look fresh for
# as long as it is ahead.
FUTURE_SECONDS = 5.0
SET_CLOCKS = (
    "Set the clocks of Prometheus and of Tidegate's node; with clocks apart the age of a reading "
    "is not known."
)

NicSpans = dict[int, tuple[NicSpan, ...]]


def nic_spans(
    series: Iterable[Series], direction: Direction, *, broker_of: BrokerOf, read_at_seconds: float
) -> tuple[NicSpans, list[SeriesProblem]]:
    """Spans by broker, oldest first; a broker whose series cannot be used has a problem instead."""
    by_broker, problems = _by_broker(series, direction, broker_of)
    spans: NicSpans = {}
    for broker, nics in by_broker.items():
        problems += _no_amounts(broker, direction, nics)
        if ahead := _from_the_future(broker, direction, nics, read_at_seconds):
            problems.append(ahead)
            continue
        try:
            spans[broker] = spans_of(nics)
        except Ambiguous as two:
            problems.append(_two_sources(broker, direction, two))
    return spans, problems


def _by_broker(
    series: Iterable[Series], direction: Direction, broker_of: BrokerOf
) -> tuple[Mapping[int, list[Series]], list[SeriesProblem]]:
    found: dict[int, list[Series]] = {}
    problems: list[SeriesProblem] = []
    for one in series:
        broker = broker_of(one.labels)
        if broker is None:
            problems.append(without_broker(one, f"{direction} of NICs"))
        else:
            found.setdefault(broker, []).append(one)
    return found, problems


def without_broker(series: Series, what: str) -> SeriesProblem:
    """The problem of a series that does not name its broker."""
    hint = "Name the label or the instances in metrics.brokerIdentity, or narrow the query."
    return SeriesProblem(
        Reason.METRICS_AMBIGUOUS,
        f"The query for {what} returned a series that does not name its broker",
        str(series),
        hint=hint,
    )


def _no_amounts(
    broker: int, direction: Direction, nics: Iterable[Series]
) -> Iterable[SeriesProblem]:
    for one in nics:
        for _, counter in one.samples:
            if not is_amount(counter):
                what = f"a sample of the {direction} counter is not a number of bytes"
                yield SeriesProblem(
                    Reason.METRICS_UNREADABLE,
                    what,
                    f"{counter} in {one}",
                    broker,
                    "Look at the exporter.",
                )


def _from_the_future(
    broker: int, direction: Direction, nics: Iterable[Series], read_at_seconds: float
) -> SeriesProblem | None:
    newest = max(one.last_at_seconds for one in nics)
    if newest <= read_at_seconds + FUTURE_SECONDS:
        return None
    behind = f"{newest - read_at_seconds:.0f} s"
    what = f"Tidegate's clock is at least {behind} behind that of its samples"
    return SeriesProblem(Reason.METRICS_STALE, what, f"{direction}", broker, SET_CLOCKS)


def _two_sources(broker: int, direction: Direction, two: Ambiguous) -> SeriesProblem:
    what = f"more than one source counts its {direction} at the same time"
    hint = "Narrow the query to one of them, or record their sum."
    return SeriesProblem(Reason.METRICS_AMBIGUOUS, what, str(two), broker, hint)
