"""Which exporter a broker's readings come from, and when another may take its place.

Broker ids are 1, 2, 3 in every Kafka cluster. On a Prometheus that several clusters share, another
cluster's exporter looks like the broker's own once that is silent. So a source may follow another
only where the counter goes on, or where the old one is no target of Prometheus any more. What one
reading showed is remembered for the next one.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from tidegate.prometheus.nics import NIC_LABELS
from tidegate.prometheus.queries import POD_LABELS, BrokerOf, literally, matches, selector
from tidegate.prometheus.series import Series, SeriesProblem, is_amount
from tidegate.prometheus.settings import BrokerInstances, BrokerLabel
from tidegate_logic.reasons import Reason

Source = tuple[str, ...]  # the values of the labels that name it
Target = tuple[str, str]  # job and instance, as in `up`
Key = tuple[int, str]  # the broker, and what is read of it

_SILENT_SCRAPES = 2.5  # so much later than all others: it was not scraped, or gave nothing
_LONGEST_SECONDS = 2 * 3600.0  # how far back `up` is asked for
_IDLE_BYTES_PER_SECOND = 1000.0
_NO_TARGET: Target = ("", "")


def source_labels(identity: BrokerLabel | BrokerInstances) -> tuple[str, ...]:
    """The labels that name a source.

    A Pod keeps its name and its namespace when it moves to another node, whose kubelet reports it.
    """
    if isinstance(identity, BrokerLabel) and identity.name in POD_LABELS:
        return ("cluster", "job", "namespace", identity.name)
    return ("cluster", "instance", "job")


@dataclass(slots=True)
class SourceSamples:
    """What a reading shows of one source; `counters` are its series, where they are counters."""

    target: Target
    first_at_seconds: float
    last_at_seconds: float
    counters: list[Series] = field(default_factory=list)


Found = dict[Key, dict[Source, SourceSamples]]


class SourceOf:
    """Notes the source of each series as it arrives, by broker and by what is read."""

    def __init__(self, labels: tuple[str, ...], broker_of: BrokerOf) -> None:
        self._labels = labels
        self._broker_of = broker_of
        self.found: Found = {}

    def note(self, series: Series, what: str, *, counts: bool) -> None:
        """`counts` = its values are those of a counter."""
        # written for speed: the clients of a broker are thousands of series of one source
        get, broker = series.labels.get, self._broker_of(series.labels)
        if broker is None:
            return
        samples = series.samples
        first_at_seconds, last_at_seconds = samples[0][0], samples[-1][0]
        source = tuple([get(name, "") for name in self._labels])
        try:
            seen = self.found[broker, what][source]
        except KeyError:
            target = (get("job", ""), get("instance", ""))
            seen = SourceSamples(target, first_at_seconds, last_at_seconds)
            self.found.setdefault((broker, what), {})[source] = seen
        if first_at_seconds < seen.first_at_seconds:
            seen.first_at_seconds = first_at_seconds
        if last_at_seconds > seen.last_at_seconds:
            seen.last_at_seconds = last_at_seconds
            seen.target = (get("job", ""), get("instance", ""))
        if counts:
            seen.counters.append(series)


@dataclass(frozen=True, slots=True)
class _Change:
    key: Key
    before: Source
    now: Source
    target: Target  # of the source before


# The last samples of `up` of these instances over so many seconds: target -> the newest one's time;
# None = not known.
AskUp = Callable[[str, float], Mapping[Target, float] | None]


class Sources:
    """Remembers the sources of one policy's brokers from one reading to the next."""

    def __init__(self, labels: tuple[str, ...], scrape_seconds: float) -> None:
        self._labels = labels
        self._silent_seconds = _SILENT_SCRAPES * scrape_seconds
        self._known: dict[Key, dict[Source, SourceSamples]] = {}
        self._targets: set[Target] = set()  # those that `up` has named

    def changed(self, found: Found, ask_up: AskUp) -> dict[Key, SeriesProblem]:
        """A problem for everything whose source changed without a sign that it is the same broker.

        `ask_up` is asked at most once, and only where a source fell silent and another speaks.
        """
        changes: list[_Change] = []
        newest = max(
            (seen.last_at_seconds for each in found.values() for seen in each.values()), default=0.0
        )
        for key, seen in found.items():
            changes += self._changes(key, seen)
        gone = self._gone(changes, newest, ask_up)
        problems: dict[Key, SeriesProblem] = {}
        for change in changes:
            if change.target not in gone:
                problems.setdefault(change.key, _problem(change, self._labels))
        for key, seen in found.items():
            if key not in problems:
                self._accept(key, seen)
        return problems

    def _changes(self, key: Key, seen: dict[Source, SourceSamples]) -> list[_Change]:
        """The sources of before that are silent and whose counters do not go on elsewhere; and the
        strangers that spoke meanwhile.
        """
        known = self._known.setdefault(key, dict(seen))
        known.update({source: seen[source] for source in known if source in seen})
        current = self._current(seen)
        speaks = max(current, key=lambda source: current[source].last_at_seconds)
        own = max(known, key=lambda source: known[source].last_at_seconds)
        # what a stranger gave while the own source was silent is still among the samples
        passed = [
            _Change(key, own, source, _NO_TARGET)
            for source in seen
            if source not in known and source not in current
        ]
        return passed + [
            _Change(key, source, speaks, before.target)
            for source, before in known.items()
            if source not in current
            and not any(
                _goes_on(before, after, within_seconds=self._silent_seconds)
                for after in current.values()
            )
        ]

    def _current(self, seen: Mapping[Source, SourceSamples]) -> dict[Source, SourceSamples]:
        """The sources that speak: neither silent for some scrapes nor followed by another."""
        newest = max(seen.values(), key=lambda one: one.last_at_seconds)
        return {
            source: one
            for source, one in seen.items()
            if one.last_at_seconds >= newest.first_at_seconds
            and one.last_at_seconds > newest.last_at_seconds - self._silent_seconds
        }

    def _accept(self, key: Key, seen: dict[Source, SourceSamples]) -> None:
        """Keep those that speak; a stranger beside one that is known stays a stranger."""
        current, known = self._current(seen), self._known[key]
        same = {source: one for source, one in current.items() if source in known}
        self._known[key] = same or current

    def _gone(self, changes: list[_Change], newest: float, ask_up: AskUp) -> set[Target]:
        """The silent sources' targets that `up` named once and does not name any more."""
        wanted = {change.target for change in changes} - {_NO_TARGET}
        if not wanted:
            return set()
        since = min(self._known[one.key][one.before].last_at_seconds for one in changes)
        seconds = min(newest - since + 4 * self._silent_seconds, _LONGEST_SECONDS)
        instances = sorted({literally(instance) for _, instance in wanted})
        query = selector('__name__="up"', matches("instance", *instances))
        ups = ask_up(query, seconds)
        if ups is None:
            return set()
        self._targets |= wanted & ups.keys()
        return {
            target
            for target in wanted & self._targets
            if ups.get(target, 0.0) < newest - self._silent_seconds
        }


def _goes_on(before: SourceSamples, after: SourceSamples, *, within_seconds: float) -> bool:
    """Whether the counters of `after` go on where those of `before` end, at a rate like theirs.

    After a longer time the counters of any other NIC might fit as well.
    """
    end = before.last_at_seconds
    ends = {_nic(one): _amounts(one)[-1:] for one in before.counters}
    begins = {
        _nic(one): [sample for sample in _amounts(one) if end < sample[0] <= end + within_seconds]
        for one in after.counters
    }
    if not ends or ends.keys() != begins.keys():
        return False
    if not (all(ends.values()) and all(begins.values())):
        return False
    fastest = max(_fastest(before.counters), _fastest(after.counters), _IDLE_BYTES_PER_SECOND)
    return all(
        0 <= begins[nic][0][1] - ends[nic][0][1] <= 2 * fastest * (begins[nic][0][0] - end)
        for nic in ends
    )


def _nic(series: Series) -> tuple[str, ...]:
    return tuple(series.labels.get(name, "") for name in NIC_LABELS)


def _amounts(series: Series) -> list[tuple[float, float]]:
    return [sample for sample in series.samples if is_amount(sample[1])]


def _fastest(counters: Iterable[Series]) -> float:
    """The fastest of the counters, in bytes/s."""
    return max(
        (
            (later[1] - earlier[1]) / (later[0] - earlier[0])
            for one in counters
            for earlier, later in pairwise(_amounts(one))
        ),
        default=0.0,
    )


def _problem(change: _Change, labels: tuple[str, ...]) -> SeriesProblem:
    differ = [
        (name, before, now)
        for name, before, now in zip(labels, change.before, change.now, strict=True)
        if before != now
    ]
    before = ", ".join(f"{name} {value!r}" for name, value, _ in differ)
    now = ", ".join(f"{name} {value!r}" for name, _, value in differ)
    hint = (
        "The previous source is still a target of Prometheus, so the new one may belong to "
        "another Kafka cluster. Set metrics.matchers to labels that only this cluster's series "
        "have."
    )
    return SeriesProblem(
        Reason.SOURCE_CHANGED,
        "the source of its readings changed",
        f"from {before} to {now}",
        change.key[0],
        hint,
    )
