"""One broker's hour, from its samples to staged rows of 5 minutes and of the hour: one task."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tidegate.errors import InvalidResource
from tidegate.prometheus.exporters import CLIENTS, REPLICATION
from tidegate.prometheus.interfaces import interface_label, judged_directions, wired_of
from tidegate.prometheus.nics import NIC_LABELS
from tidegate.prometheus.queries import (
    broker_bytes,
    broker_matcher,
    broker_of,
    identity_of,
    is_equal,
    literally,
    matchers_of,
    queries_of,
    selector,
)
from tidegate.prometheus.settings import BrokerInstances, MetricsSettings
from tidegate.rollup.fold.broker import (
    BOUNDS,
    BrokerTerms,
    DirectionSamples,
    FactorBounds,
    broker_table,
    fold_broker,
    usage_table,
)
from tidegate.rollup.fold.counters import Contradiction
from tidegate.rollup.fold.hours import Places, broker_hour, usage_hour
from tidegate.rollup.fold.windows import Reading, Windows, reading_of
from tidegate.rollup.samples import ReadRequest, Selection, SeriesSamples, Transport, selection_of
from tidegate.rollup.schemas import HOUR_MS, Direction
from tidegate.rollup.tables.format import NOBODY, Owner
from tidegate.rollup.tables.publication import StagedFile, stage
from tidegate.rollup.tables.store import UsageStore
from tidegate.rollup.transport.exchange import HistorySettings
from tidegate.rollup.transport.readers import open_reader
from tidegate_logic.model import Direction as NicDirection

# Selections of a policy's metrics by direction and role. NICs, clients' rates and throttle times
# are selected exactly as the operator does (`prometheus.queries`), so that tables and decisions use
# the same series. Only tables need the brokers' own counters of clients' and replicas' bytes.


# Of the brokers' exporters: it tells a restart from a count that fell for another reason.
_PROCESS_START = "process_start_time_seconds"


@dataclass(frozen=True, slots=True)
class DirectionSelections:
    """Where to read one direction; None = the policy names no such series, and nothing is read."""

    nics: Selection | None
    client_bytes: Selection
    replication_bytes: Selection
    rates: Selection | None
    throttle_times: Selection | None
    starts: Selection


def catalogue(settings: MetricsSettings) -> Mapping[Direction, DirectionSelections]:
    """The selections for all brokers; raises InvalidResource unless queries are selectors."""
    queries = queries_of(settings)
    # the counters of the broker itself are narrowed as the queries of load are
    brokers = ",".join([broker_matcher(identity_of(settings)), *matchers_of(settings)])
    return {
        "produce": _direction(
            "in", brokers, queries.ingress, queries.produce_rate, queries.produce_throttle
        ),
        "fetch": _direction(
            "out", brokers, queries.egress, queries.fetch_rate, queries.fetch_throttle
        ),
    }


def _direction(
    way: str, brokers: str, nics: str | None, rates: str | None, throttle_times: str | None
) -> DirectionSelections:
    return DirectionSelections(
        nics=_selection(nics),
        client_bytes=selection_of(broker_bytes(way, CLIENTS, brokers=brokers)),
        replication_bytes=selection_of(broker_bytes(way, REPLICATION, brokers=brokers)),
        rates=_selection(rates),
        throttle_times=_selection(throttle_times),
        starts=selection_of(selector(is_equal("__name__", _PROCESS_START), brokers)),
    )


def _selection(query: str | None) -> Selection | None:
    return None if query is None else selection_of(query)


# Plain values that travel to workers: the run once, then one broker's windows at a time.


@dataclass(frozen=True, slots=True)
class IngestOrder:
    """One run, as every task gets it. `transport` names the reader that was chosen.

    `metrics` and `history` hold logins: an order is never logged, and its `repr` shows none of
    them.
    """

    run_id: str
    store_url: str
    transport: str
    metrics: MetricsSettings = field(repr=False)
    history: HistorySettings = field(repr=False)
    owner: Owner = NOBODY
    bounds: FactorBounds = BOUNDS


@dataclass(frozen=True, slots=True)
class WorkItem:
    """A task: one broker's windows of [start_ms, end_ms), of one hour, with its contracts and
    limits then, and the tiers and labels of all clients.

    `part` distinguishes tasks' files. Terms are not in the order: those of a day are megabytes,
    which every task would unpack.
    """

    broker: int
    start_ms: int
    end_ms: int
    part: int
    terms: BrokerTerms | None = field(default=None, repr=False)
    places: Places = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Source:
    """What Prometheus has of the brokers' own counters: the rising ids of all brokers with one,
    also if they died meanwhile, and how many samples by the start of each hour.

    Later there are more where an agent caught up, and fewer where a server let its oldest go.
    """

    brokers: tuple[int, ...]
    samples: Mapping[int, int]


def read_source(
    transport: Transport, settings: MetricsSettings, start_ms: int, end_ms: int
) -> Source:
    """Read the counters of [start, end). Raises tidegate.errors."""
    name = broker_of(identity_of(settings))
    selections = [
        one
        for each in catalogue(settings).values()
        for one in (each.client_bytes, each.nics)
        if one is not None
    ]
    brokers, samples = set[int](), Counter[int]()
    for selection in selections:
        for series in transport.read(selection, start_ms, end_ms):
            broker = name(series.labels)
            if broker is not None:
                brokers.add(broker)
                times = series.times_ms[(series.times_ms >= start_ms) & (series.times_ms < end_ms)]
                samples.update((times - times % HOUR_MS).tolist())
    return Source(tuple(sorted(brokers)), samples)


def read_broker(
    transport: Transport, settings: MetricsSettings, broker: int, reading: Reading
) -> Mapping[Direction, DirectionSamples]:
    """Read both directions together. Raises tidegate.errors and never returns a part."""
    own, selections = _OwnSeries(settings, broker), catalogue(settings)
    asked = {
        (direction, role): one
        for direction, each in selections.items()
        for role, one in own.asked(each, reading)
    }
    found = dict(zip(asked, transport.read_all(list(asked.values())), strict=True))
    samples = {
        direction: DirectionSamples(
            **{role: own.among(series) for (way, role), series in found.items() if way == direction}
        )
        for direction in selections
    }
    return {
        direction: replace(samples[direction], nics=nics)
        for direction, nics in cables_of(samples, settings).items()
    }


_WAYS: Mapping[Direction, NicDirection] = {
    "fetch": NicDirection.EGRESS,
    "produce": NicDirection.INGRESS,
}


def cables_of(
    samples: Mapping[Direction, DirectionSamples], settings: MetricsSettings
) -> Mapping[Direction, Sequence[SeriesSamples]]:
    """The NICs' series of interfaces with a cable, as the operator finds them (`wired_of`), from
    what each carried in this time; none of an exporter where that is not known.
    """
    label, ways = interface_label(settings), judged_directions(settings)
    nics = {direction: each.nics for direction, each in samples.items()}
    if label is None:
        return nics
    rates: dict[frozenset[tuple[str, str]], dict[str, float]] = {}
    judged = [direction for direction in nics if _WAYS[direction] in ways]
    for one in (one for direction in judged for one in nics[direction]):
        each, name = rates.setdefault(_exporter(one), {}), one.labels.get(label, "")
        each[name] = each.get(name, 0.0) + _rate_of(one)
    counted = {exporter: wired_of(each, settings).counted for exporter, each in rates.items()}
    return nics | {
        direction: [
            one for one in nics[direction] if one.labels.get(label, "") in counted[_exporter(one)]
        ]
        for direction in judged
    }


def _rate_of(series: SeriesSamples) -> float:
    """As `interfaces.rate_of`."""
    seconds = (int(series.times_ms[-1]) - int(series.times_ms[0])) / 1000
    grown = np.maximum(np.diff(series.values), 0).sum()
    return float(grown) / seconds if seconds else 0.0


def _exporter(series: SeriesSamples) -> frozenset[tuple[str, str]]:
    return frozenset(item for item in series.labels.items() if item[0] not in NIC_LABELS)


class _OwnSeries:
    """The series of one broker: a matcher narrows, then labels decide, as in the operator."""

    def __init__(self, settings: MetricsSettings, broker: int) -> None:
        self._broker = broker
        self._identity = identity_of(settings)
        self._broker_of = broker_of(self._identity)

    def asked(
        self, selections: DirectionSelections, reading: Reading
    ) -> Iterator[tuple[str, ReadRequest]]:
        """Yield what to read, each with its field of `DirectionSamples`."""
        # every broker has counters of clients' bytes: asked last, they show that a server that was
        # asked for all together went through all
        by_role = (
            ("starts", selections.starts, reading.counters),
            ("throttle_times", selections.throttle_times, reading.gauges),
            ("rates", selections.rates, reading.gauges),
            ("nics", selections.nics, reading.counters),
            ("replication_bytes", selections.replication_bytes, reading.counters),
            ("client_bytes", selections.client_bytes, reading.counters),
        )
        return (
            (role, ReadRequest(self._narrowed(selection), *times))
            for role, selection, times in by_role
            if selection is not None
        )

    def among(self, found: Iterable[SeriesSamples]) -> Sequence[SeriesSamples]:
        return [series for series in found if self._broker_of(series.labels) == self._broker]

    def _narrowed(self, selection: Selection) -> Selection:
        label, expression = self._spelling()
        if label in selection.equal:
            return selection
        others = {name: said for name, said in selection.matching.items() if name != label}
        return Selection(
            selection.metric,
            selection.equal,
            {**others, label: expression},
            _without(selection.excluding, label),
        )

    def _spelling(self) -> tuple[str, str]:
        """Return the brokers' label and a pattern for this one: id, Pod number, or instances."""
        if isinstance(self._identity, BrokerInstances):
            own = [
                instance
                for instance, number in self._identity.ids.items()
                if number == self._broker
            ]
            hosts = sorted({instance.rpartition(":")[0] or instance for instance in own})
            return "instance", "|".join(f"{literally(host)}(:[0-9]+)?" for host in hosts)
        return self._identity.name, f"(.+-)?0*{self._broker}"


def _without(matchers: Mapping[str, str], label: str) -> Mapping[str, str]:
    return {name: said for name, said in matchers.items() if name != label}


def ingest(order: IngestOrder, item: WorkItem) -> list[StagedFile]:
    """Read, fold and stage one item over its own connection; a record for each staged file.

    Raises tidegate.errors. Files that were staged until then belong to no publication.
    """
    transport = open_reader(order.transport, order.history)
    try:
        return ingest_by(transport, order, item)
    finally:
        transport.close()


def _two_brokers(broker: int, direction: Direction, found: Contradiction) -> InvalidResource:
    """Two counters of one broker that grow differently are of two brokers with the same id."""
    one, other = (
        "{" + ", ".join(f'{name}="{value}"' for name, value in sorted(labels.items())) + "}"
        for labels in found.labels
    )
    return InvalidResource(
        f"Two exporters count broker {broker} at the same time and differ ({direction}: "
        f"{found.counts[0]} bytes by {one}, {found.counts[1]} by {other}). They are of two Kafka "
        "clusters in one Prometheus, or one of them is stuck. Nothing is published for this "
        "period. Narrow the series to one cluster with metrics.matchers (--matcher on a laptop)."
    )


def ingest_by(transport: Transport, order: IngestOrder, item: WorkItem) -> list[StagedFile]:
    """Do the same through an open connection."""
    windows = Windows(item.start_ms, item.end_ms)
    interval_ms = order.metrics.scrape_interval_seconds * 1000
    samples = read_broker(transport, order.metrics, item.broker, reading_of(windows, interval_ms))
    fold = fold_broker(
        item.broker,
        samples,
        windows,
        terms=item.terms,
        interval_ms=interval_ms,
        bounds=order.bounds,
    )
    for direction, one in fold.directions.items():
        if one.contradiction is not None:
            raise _two_brokers(item.broker, direction, one.contradiction)
    store = UsageStore.at(order.store_url)
    usage, brokers = usage_table(fold), broker_table(fold)
    tables = {
        "usage_5m": usage,
        "broker_5m": brokers,
        "usage_1h": usage_hour(usage, item.places),
        "broker_1h": broker_hour(brokers),
    }
    return [
        file
        for table, rows in tables.items()
        for file in stage(store, order.run_id, table, rows, part=item.part, owner=order.owner)
    ]
