"""Is a broker over its limit: which NIC readings are believed, over which window, how many agree.

A NIC whose newest reading cannot be used is unknown, never cool: nothing is raised on it and it
justifies no cut. Who makes a broker hot and what to do about it is not decided here.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import takewhile
from math import inf, isfinite

from tidegate_logic.model import (
    KEY_OF,
    BrokerLimit,
    Direction,
    NicSpan,
    Observation,
    Readings,
    metered,
)
from tidegate_logic.readings import Flows
from tidegate_logic.throttle.input import (
    DIRECT_LONGEST_SECONDS,
    DIRECT_STALE_SECONDS,
    LYING,
    OF_SAMPLES,
    OVER_SAMPLES,
    PLAUSIBLE,
    SEVERE,
    ThrottleInput,
    ThrottleSettings,
)
from tidegate_logic.words import rate_words

NicKey = tuple[int, Direction]
_NEVER_LIED: Mapping[NicKey, float] = {}
_NO_SAWTEETH: Mapping[int, float] = {}
_SAME_MOMENT_SECONDS = 0.001  # of two neighbouring spans, one ends where the next begins


class Pressure(StrEnum):
    """What a broker's NIC says of one direction."""

    OVER = "Over"
    WITHIN = "Within"
    # blind: no usable reading, although it is alive or leads managed partitions
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class NicStatus:
    """One broker's NIC in one direction, in bytes/s.

    `bytes_per_second`, `at_seconds` and `span_seconds` are None if it is unknown or has no
    limit. `limit` None = it has none in this direction. `hot_samples` of the newest `samples` are
    above it. `why` says for people why it is unknown; `lies` = because it contradicts `clients`,
    which is what Kafka says it moves for clients there. `newest_period_bytes_per_second` is the
    mean of the newest sawtooth period, which shows a jump of load sooner than the mean of two.
    `is_direct` = Prometheus does not show it yet: two readings of the broker's own exporter do.
    `steady_bytes_per_second` over `steady_seconds` is a mean of whole periods also where the newest
    reading judges, for replicas fetch in bursts of some seconds; the shorter one above the aim.
    """

    broker: int
    pressure: Pressure
    limit: int | None = None
    capacity: int | None = None
    bytes_per_second: float | None = None
    at_seconds: float | None = None
    span_seconds: float | None = None
    hot_samples: int = 0
    samples: int = 0
    clients: float = 0.0
    why: str = ""
    lies: bool = False
    newest_period_bytes_per_second: float = 0.0
    steady_bytes_per_second: float = 0.0
    steady_seconds: float = 0.0
    is_direct: bool = False
    known: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "known", self.pressure is not Pressure.UNKNOWN)

    def above(self, share: float) -> float:
        """Bytes/s above this share of the limit, negative below it.

        Minus infinity without a limit or a rate.
        """
        if self.bytes_per_second is None or self.limit is None:
            return float("-inf")
        return self.bytes_per_second - share * self.limit

    @property
    def is_full(self) -> bool:
        """Whether it carries more than its limit now, whatever the cause."""
        return self.above(1.0) > 0


def nic_statuses(
    given: ThrottleInput,
    flows: Flows,
    direction: Direction,
    *,
    throttled: bool,
    sawteeth: Mapping[int, float] = _NO_SAWTEETH,
    distrusted_until: Mapping[NicKey, float] = _NEVER_LIED,
) -> dict[int, NicStatus]:
    """Every broker that counts in this direction.

    `throttled` = something is throttled in it now, which chooses the window. `sawteeth` is the sum
    of the caps that bind on each broker, in bytes/s. `distrusted_until` is the time of the newest
    sample that contradicted Kafka: samples up to it are not used later either. A dead broker that
    leads nothing is left out: its load reappears on others.
    """
    parts = direction.parts
    led = {
        broker
        for rate in given.rates
        if rate.direction in parts and rate.throttleable
        for broker in rate.leads
    }
    judge = _Judge(given, flows, direction, throttled, sawteeth, distrusted_until)
    return {
        broker: nic
        for broker in sorted(led | given.live)
        if (nic := judge.nic(broker, led)) is not None
    }


class _Judge:
    """Judges one NIC after the other by the rules of one moment."""

    def __init__(
        self,
        given: ThrottleInput,
        flows: Flows,
        direction: Direction,
        throttled: bool,
        sawteeth: Mapping[int, float],
        distrusted_until: Mapping[NicKey, float],
    ) -> None:
        self._given = given
        self._sawteeth = sawteeth
        self._lied = distrusted_until
        self._flows = flows
        self._direction = direction
        self._throttled = throttled
        self._mean_seconds = (
            _mean_seconds(given.settings, given.readings.scrape_seconds) if throttled else 0.0
        )

    def nic(self, broker: int, led: set[int]) -> NicStatus | None:
        if broker not in self._given.live and broker not in led:
            return None
        limits = self._given.brokers.get(broker)
        if limits is None:
            return NicStatus(
                broker, Pressure.UNKNOWN, why="it has no entry among the policy's brokers"
            )
        return self._judged(broker, limits)

    def _judged(self, broker: int, limits: BrokerLimit) -> NicStatus:
        limit, capacity = limits.limit(self._direction), limits.capacity(self._direction)
        clients = self._flows.total(broker, self._direction)
        if limit is None:
            return NicStatus(
                broker,
                Pressure.WITHIN,
                None,
                capacity,
                clients=clients,
                why="it has no limit in this direction",
            )
        spans = self._believed(broker)
        why = self._refusal(spans, capacity)
        lie = "" if why else self._lie(spans, capacity, clients)
        if why or lie:
            return NicStatus(
                broker,
                Pressure.UNKNOWN,
                limit,
                capacity,
                clients=clients,
                why=why or lie,
                lies=bool(lie),
            )
        usable = [span for span in spans if not _implausible(span, capacity)]
        if (
            self._mean_seconds
            and _seconds(_newest(usable, self._mean_seconds))
            < self._given.settings.sawtooth_period_seconds
        ):
            why = "its readings do not cover one throttled client's whole rhythm yet"
            return NicStatus(broker, Pressure.UNKNOWN, limit, capacity, clients=clients, why=why)
        measured = self._measured(
            NicStatus(broker, Pressure.WITHIN, limit, capacity, clients=clients), limit, usable
        )
        return measured if self._throttled else self._sooner(measured, limit)

    def _sooner(self, nic: NicStatus, limit: int) -> NicStatus:
        """Over its limit where two direct readings agree on it, and by no more than both show.

        They only make a broker hotter than Prometheus says, and only until something is throttled:
        then samples of two seconds show the rhythm of throttled clients, not the load.
        """
        if nic.pressure is not Pressure.WITHIN:
            return nic
        newest = self._agreeing(nic)
        if not newest or (rate := min(span.bytes_per_second for span in newest)) <= limit:
            return nic
        return replace(
            nic,
            pressure=Pressure.OVER,
            bytes_per_second=rate,
            at_seconds=newest[-1].at_seconds,
            span_seconds=_seconds(newest),
            hot_samples=len(newest),
            samples=len(newest),
            newest_period_bytes_per_second=max(nic.newest_period_bytes_per_second, rate),
            is_direct=True,
        )

    def _agreeing(self, nic: NicStatus) -> Sequence[NicSpan]:
        """The newest two direct readings, one right after the other; none where one is unusable."""
        if (nic.broker, self._direction) in self._lied:
            return ()
        newest = newest_direct(self._given.readings, nic.broker, self._direction)
        is_fresh = newest and (
            abs(self._given.now_seconds - newest[-1].at_seconds) <= DIRECT_STALE_SECONDS
        )
        if not is_fresh or any(_implausible(span, nic.capacity) for span in newest):
            return ()
        return newest

    def _believed(self, broker: int) -> Sequence[NicSpan]:
        """All spans that neither begin nor end with a lie: a stuck counter may jump afterwards."""
        key = (broker, self._direction)
        spans = self._given.readings.spans(broker, self._direction)
        if key not in self._lied:
            return spans
        return [
            span
            for span in spans
            if span.at_seconds - span.seconds > self._lied[key] + _SAME_MOMENT_SECONDS
        ]

    def _refusal(self, spans: Sequence[NicSpan], capacity: int | None) -> str:
        """Why the newest reading cannot be used, for people; empty = it can."""
        if not spans:
            return "no reading of its NIC"
        newest, settings = spans[-1], self._given.settings
        age_seconds = self._given.now_seconds - newest.at_seconds
        if not abs(age_seconds) <= settings.stale_after_seconds:
            return (
                f"its newest reading is {age_seconds:.0f} s old, more than "
                f"{settings.stale_after_seconds:.0f} s"
            )
        return _implausible(newest, capacity) or _too_long(newest, settings)

    def _lie(self, spans: Sequence[NicSpan], capacity: int | None, clients: float) -> str:
        """What the newest readings contradict, for people; empty = nothing."""
        usable = [span for span in spans if not _implausible(span, capacity)]
        carried = _mean(_newest(usable, self._given.settings.window.seconds))
        if carried >= LYING * clients:
            return ""
        return (
            f"its NIC reports {rate_words(carried)}, Kafka moves {rate_words(clients)} "
            f"for clients there"
        )

    def _measured(self, nic: NicStatus, limit: int, usable: Sequence[NicSpan]) -> NicStatus:
        window = _newest(usable, self._mean_seconds) if self._mean_seconds else usable[-1:]
        rate = _mean(window)
        settings = self._given.settings
        period = _newest(usable, settings.sawtooth_period_seconds)
        newest_period = _mean(period) if self._mean_seconds else rate
        is_above_aim = _mean(period) * 100 > settings.cut_to_percent * limit
        steady = period if is_above_aim else _newest(usable, settings.nic_mean_seconds)
        if self._mean_seconds:
            surely = self._without_sawteeth(nic.broker, usable[-1])
            if surely > max(rate, SEVERE * limit):
                # a step load, of which the mean does not show all yet
                rate, window = surely, usable[-1:]
        last = usable[-OF_SAMPLES:]
        hot = sum(span.bytes_per_second > limit for span in last)
        agreed = bool(self._mean_seconds) or hot >= OVER_SAMPLES
        over = rate > SEVERE * limit or (rate > limit and agreed)
        pressure = Pressure.OVER if over else Pressure.WITHIN
        return NicStatus(
            nic.broker,
            pressure,
            limit,
            nic.capacity,
            rate,
            usable[-1].at_seconds,
            _seconds(window),
            hot,
            len(last),
            nic.clients,
            newest_period_bytes_per_second=newest_period,
            steady_bytes_per_second=_mean(steady),
            steady_seconds=_seconds(steady),
        )

    def _without_sawteeth(self, broker: int, newest: NicSpan) -> float:
        """What the broker's load is at the least, whatever throttled clients did in this span.

        One that waited sends its whole window at once, so in a span that is shorter more than its
        quota goes through.
        """
        window_seconds = self._given.settings.window.seconds
        more = max(0.0, window_seconds / newest.seconds - 1)
        return newest.bytes_per_second - more * self._sawteeth.get(broker, 0.0)


def newest_direct(readings: Readings, broker: int, direction: Direction) -> Sequence[NicSpan]:
    """The newest two direct readings where nothing is missing between them, else none.

    They are newer than Prometheus' newest, which says the same otherwise.
    """
    direct, scraped = readings.direct.get(broker), readings.spans(broker, direction)
    if direct is None or not scraped:
        return ()
    newest = direct.spans(direction)[-2:]
    if len(newest) < 2 or newest[1].at_seconds <= scraped[-1].at_seconds:
        return ()
    gap_seconds = newest[1].at_seconds - newest[1].seconds - newest[0].at_seconds
    are_short = all(0 < span.seconds <= DIRECT_LONGEST_SECONDS for span in newest)
    return newest if are_short and abs(gap_seconds) <= _SAME_MOMENT_SECONDS else ()


def grown_unseen(readings: Readings) -> Mapping[NicKey, float]:
    """By how many bytes/s each NIC grew since Prometheus' newest sample, where direct ones show it.

    Any client there may have grown by so much, although its own rate is of before.
    """
    grown: dict[NicKey, float] = {}
    for broker in readings.direct:
        for way in KEY_OF:
            if newest := newest_direct(readings, broker, way):
                most = max(span.bytes_per_second for span in newest)
                more = most - readings.nic[broker, way][-1].bytes_per_second
                if 0 < more < inf:
                    grown[broker, way] = more
    return grown


def _mean_seconds(settings: ThrottleSettings, scrape_seconds: float) -> float:
    """Two whole sawtooth periods where several readings fall into one; else 0.

    A scrape as long as one period averages by itself.
    """
    return (
        float(settings.nic_mean_seconds)
        if scrape_seconds < settings.sawtooth_period_seconds
        else 0.0
    )


def _implausible(span: NicSpan, capacity: int | None) -> str:
    rate = span.bytes_per_second
    if not isfinite(rate) or rate < 0 or not span.seconds > 0:
        return f"its NIC reports {rate:g} B/s over {span.seconds:g} s"
    if capacity is not None and rate > PLAUSIBLE * capacity:
        return (
            f"its NIC reports {rate_words(rate)}, more than {PLAUSIBLE:g} of its capacity "
            f"{rate_words(capacity)}"
        )
    return ""


def _too_long(span: NicSpan, settings: ThrottleSettings) -> str:
    """A span over a gap is a mean of long ago."""
    return (
        f"its newest reading spans {span.seconds:.0f} s"
        if span.seconds > settings.stale_after_seconds
        else ""
    )


def _newest(spans: Sequence[NicSpan], seconds: float) -> list[NicSpan]:
    """The newest spans that cover so many seconds, newest first; at least one.

    None of them ends before those seconds.
    """
    begin = spans[-1].at_seconds - seconds
    covered = 0.0
    chosen: list[NicSpan] = []
    for span in takewhile(lambda one: one.at_seconds > begin, reversed(spans)):
        if covered >= seconds:
            break
        chosen.append(span)
        covered += span.seconds
    return chosen


def _mean(spans: Iterable[NicSpan]) -> float:
    taken = list(spans)
    return sum(span.bytes_per_second * span.seconds for span in taken) / _seconds(taken)


def _seconds(spans: Iterable[NicSpan]) -> float:
    return sum(span.seconds for span in spans)


# Every live broker against its limits, for people and for delay queues that wait for brokers;
# steadier than what cuts go by.
#
# A broker counts as over its limit from the moment that is established until no sample of two whole
# rhythms of a throttled client, three scrapes at least, is above it: so a load that swings around
# the limit is one episode, however often it is scraped. While anything is throttled in a direction,
# samples go up and down with the throttled clients, so means over a whole rhythm count instead.


@dataclass(frozen=True, slots=True)
class WatchedBroker:
    """One live broker. `nics` has the directions in which it has a limit."""

    broker: int
    pressure: Pressure
    nics: Mapping[Direction, NicStatus]


Watched = tuple[WatchedBroker, ...]
JudgedNics = Mapping[Direction, Mapping[int, NicStatus]]
_NONE_JUDGED: JudgedNics = {}


def watch(
    observation: Observation,
    flows: Flows,
    before: Mapping[int, Pressure],
    throttled: Set[Direction] = frozenset(),
    judged: JudgedNics = _NONE_JUDGED,
) -> Watched | None:
    """Every live broker by id; None if load or brokers are not known at all.

    `before` is its state in the last pass. `flows` are the usable client rates of the readings.
    `throttled` are the directions in which something is throttled; `judged` are the NICs as the
    throttle judged them in this pass.
    """
    topology, readings = observation.topology, observation.readings
    if topology is None or readings is None:
        return None
    limits = {broker: observation.policy.limits.of(broker) for broker in topology.brokers}
    settings = ThrottleSettings(
        observation.policy.window, stale_after_seconds=observation.policy.stale_after_seconds
    )
    given = ThrottleInput(observation.now_seconds, readings, limits, topology.brokers, (), settings)
    nics = {
        way: (way not in throttled and judged.get(way))
        or nic_statuses(given, flows, way, throttled=False)
        for way in metered(limits.values())
    }
    calm_after_seconds = max(settings.nic_mean_seconds, OF_SAMPLES * readings.scrape_seconds)
    watched = []
    for broker in sorted(topology.brokers):
        limited, was_hot = dict[Direction, NicStatus](), False
        for way, found in nics.items():
            nic, spans = found[broker], readings.spans(broker, way)
            limit = nic.limit
            if limit is None:
                continue
            by_throttle = judged.get(way, {}).get(broker)
            is_over = by_throttle is not None and by_throttle.pressure is Pressure.OVER
            # a step load, of which the mean does not show all yet
            is_still_over = before.get(broker) is Pressure.OVER and nic.is_full
            if is_over or (way in throttled and nic.known and is_still_over):
                nic = replace(nic, pressure=Pressure.OVER)
            elif way in throttled and nic.known:
                nic = replace(nic, pressure=_pressure_of_mean(nic, spans, settings))
            period_seconds = settings.sawtooth_period_seconds if way in throttled else 0
            was_hot |= _was_above(nic, spans, calm_after_seconds, period_seconds)
            if nic.known:
                was_hot |= any(
                    span.bytes_per_second > limit for span in newest_direct(readings, broker, way)
                )
            limited[way] = nic
        swings = was_hot and before.get(broker) is Pressure.OVER
        watched.append(WatchedBroker(broker, _pressure(limited, swings=swings), limited))
    return tuple(watched)


def _pressure_of_mean(
    nic: NicStatus, spans: Sequence[NicSpan], settings: ThrottleSettings
) -> Pressure:
    """By whole rhythms of throttled clients; by the newest reading until one is covered."""
    newest = _newest(spans, settings.nic_mean_seconds)
    if nic.limit is None or _seconds(newest) < settings.sawtooth_period_seconds:
        return nic.pressure
    return Pressure.OVER if _mean(newest) > nic.limit else Pressure.WITHIN


def _was_above(
    nic: NicStatus, spans: Sequence[NicSpan], seconds: float, period_seconds: float
) -> bool:
    """Whether any mean of so long a period was above the limit in so many seconds until now.

    A period of 0 = whether any sample was.
    """
    return nic.limit is not None and any(
        _mean(_newest(spans[: place + 1], period_seconds) or [span]) > nic.limit
        for place, span in enumerate(spans)
        if spans[-1].at_seconds - span.at_seconds < seconds
    )


def _pressure(nics: Mapping[Direction, NicStatus], *, swings: bool) -> Pressure:
    said = {nic.pressure for nic in nics.values()}
    if Pressure.OVER in said:
        return Pressure.OVER
    if Pressure.UNKNOWN in said:
        return Pressure.UNKNOWN
    return Pressure.OVER if swings else Pressure.WITHIN


def over_count_words(watched: Watched | None) -> str:
    """How many brokers are over their limit: `1`; `1?` or `?` while the load of others is not
    known.
    """
    over = sum(one.pressure is Pressure.OVER for one in watched or ())
    if watched is not None and not any(one.pressure is Pressure.UNKNOWN for one in watched):
        return str(over)
    return f"{over or ''}?"


# When to read again: soon after the next sample is due, so that nothing waits a whole scrape.


_STORED_AFTER_SECONDS = 1.0  # from a scrape until its samples can be asked for


def seconds_until_next_reading(
    readings: Readings, *, shortest_seconds: float, now_seconds: float
) -> float:
    """Between `shortest_seconds` and one scrape interval (or the shortest, if that is longer).

    The scrapes of several brokers differ in phase: the next one counts. A NIC that is a whole
    scrape overdue is not waited for.
    """
    scrape_seconds = readings.scrape_seconds
    longest_seconds = max(shortest_seconds, scrape_seconds)
    due = [
        spans[-1].at_seconds + scrape_seconds + _STORED_AFTER_SECONDS - now_seconds
        for spans in readings.nic.values()
        if spans
    ]
    soonest = min(
        [seconds for seconds in due if seconds > -scrape_seconds], default=longest_seconds
    )
    return min(max(soonest, shortest_seconds), longest_seconds)
