"""One broker's samples, as far as its windows need them: the reads that one task makes, and nothing of other brokers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tidegate.prometheus.queries import broker_of, identity_of, literally
from tidegate.prometheus.settings import BrokerInstances, MetricsSettings
from tidegate.rollup.fold.broker import DirectionSamples
from tidegate.rollup.fold.windows import Reading
from tidegate.rollup.ingest.catalogue import DirectionSelections, catalogue
from tidegate.rollup.samples import Asked, Selection, SeriesSamples, Transport
from tidegate.rollup.schemas import Direction


def read_broker(transport: Transport, settings: MetricsSettings, broker: int, reading: Reading) -> Mapping[Direction, DirectionSamples]:
    """Both directions, asked for together. Raises tidegate.errors and never gives a part."""
    own, selections = _OwnSeries(settings, broker), catalogue(settings)
    asked = {(direction, role): one for direction, each in selections.items() for role, one in own.asked(each, reading)}
    found = dict(zip(asked, transport.read_all(list(asked.values())), strict=True))
    return {
        direction: DirectionSamples(**{role: own.among(series) for (way, role), series in found.items() if way == direction})
        for direction in selections
    }


class _OwnSeries:
    """The series of one broker. A matcher narrows what the server sends; the labels then decide, as they do in the control pass."""

    def __init__(self, settings: MetricsSettings, broker: int) -> None:
        self._broker = broker
        self._identity = identity_of(settings)
        self._broker_of = broker_of(self._identity)

    def asked(self, selections: DirectionSelections, reading: Reading) -> Iterator[tuple[str, Asked]]:
        """What to read, each with its place in `DirectionSamples`."""
        told = (
            ("cards", selections.cards, reading.counters),
            ("client_bytes", selections.client_bytes, reading.counters),
            ("replication_bytes", selections.replication_bytes, reading.counters),
            ("rates", selections.rates, reading.gauges),
            ("throttle_times", selections.throttle_times, reading.gauges),
        )
        return ((role, Asked(self._narrowed(selection), *times)) for role, selection, times in told if selection is not None)

    def among(self, found: Iterable[SeriesSamples]) -> Sequence[SeriesSamples]:
        return [series for series in found if self._broker_of(series.labels) == self._broker]

    def _narrowed(self, selection: Selection) -> Selection:
        label, expression = self._spelling()
        if label in selection.equal:
            return selection
        others = {name: said for name, said in selection.matching.items() if name != label}
        return Selection(selection.metric, selection.equal, {**others, label: expression}, _without(selection.excluding, label))

    def _spelling(self) -> tuple[str, str]:
        """The label that names brokers, and how this one may be spelled in it: by its id, as a Pod's number, or by its instances."""
        if isinstance(self._identity, BrokerInstances):
            own = [instance for instance, number in self._identity.ids.items() if number == self._broker]
            hosts = sorted({instance.rpartition(":")[0] or instance for instance in own})
            return "instance", "|".join(f"{literally(host)}(:[0-9]+)?" for host in hosts)
        return self._identity.name, f"(.+-)?0*{self._broker}"


def _without(matchers: Mapping[str, str], label: str) -> Mapping[str, str]:
    return {name: said for name, said in matchers.items() if name != label}
