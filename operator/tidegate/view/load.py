"""What a policy's brokers and clients carry at one moment, judged as the operator judges it.

Pure. Rates are bytes per second; None is unknown, never zero.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tidegate_logic.decision import LevelState
from tidegate_logic.model import Direction, Level, Observation, RateKey, Tier
from tidegate_logic.readings import flows_of
from tidegate_logic.throttle.nic_status import NicStatus, Pressure, WatchedBroker, watch

RawObject = Mapping[str, Any]
_LEVELS: Final = {level.value: level for level in Level}
_PRESSURES: Final = {one.value: one for one in Pressure}
_BELOW_CONTRACT: Final = frozenset({LevelState.THROTTLED.value, LevelState.RELAXING.value})
_NEVER_SEEN: Final[Mapping[int, Pressure]] = {}


RELAXING: Final = "Relaxing"  # the code in a status, and of a quota's reason


def state_words(code: str) -> str:
    """A state or reason as people read it: every page and table says it with the same word."""
    return "Recovering" if code == RELAXING else code


@dataclass(frozen=True, slots=True)
class NicNow:
    """One broker's NIC one way, in bytes/s; without `limit` it is a broker that has none.

    `why` is what its pressure rests on, or why it is unknown. `at_seconds` is of its newest sample,
    however old; `since` is from the policy's status, as is whether it is read directly from its
    exporter. What it carries is split into members by
    level, `foreign` clients that no tier names, and the rest, which is replication for the most
    part; None if clients are not measured.
    """

    broker: int
    direction: Direction
    pressure: Pressure
    limit: int | None = None
    capacity: int | None = None
    bytes_per_second: float | None = None
    at_seconds: float | None = None
    why: str = ""
    since: str = ""
    is_direct: bool = False
    clients: float | None = None
    foreign: float | None = None
    by_level: Mapping[Level, float] = field(default_factory=dict)

    @property
    def share(self) -> float | None:
        """Of the limit."""
        if not self.is_known or self.bytes_per_second is None or not self.limit:
            return None
        return self.bytes_per_second / self.limit

    @property
    def is_known(self) -> bool:
        return self.pressure is not Pressure.UNKNOWN and self.bytes_per_second is not None

    @property
    def rest(self) -> float | None:
        """What is neither a member's nor another client's; None = not known."""
        if self.foreign is None or self.bytes_per_second is None:
            return None
        return max(0.0, self.bytes_per_second - self.foreign - sum(self.by_level.values()))


class ClientNow(NamedTuple):
    """What one client sends one way: over all brokers, and on each of them.

    `delayed_seconds` is the longest throttle time that any broker reports.
    """

    sends: float | None
    delayed_seconds: float | None
    by_broker: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class LevelWords:
    """One level in the policy's status: its state, since when (RFC 3339) and why."""

    state: str
    since: str
    because: str


def level_words(status: RawObject) -> dict[Level, LevelWords]:
    """The levels that the status has, in its order."""
    return {
        _LEVELS[one["level"]]: LevelWords(
            *(str(one.get(name) or "") for name in ("state", "since", "because"))
        )
        for one in status.get("levels") or ()
        if one.get("level") in _LEVELS
    }


class Load:
    """The readings of an observation. `status` is the policy's, "" where nothing is said there.

    `before` is each broker's pressure when it was looked at last, by default as the status has it:
    so a load around its limit does not flicker. A broker that the status has as over was over,
    since the operator knows which way something is throttled. `watched` None = load or brokers are
    not known.
    """

    def __init__(
        self,
        observation: Observation,
        status: RawObject,
        before: Mapping[int, Pressure] = _NEVER_SEEN,
    ) -> None:
        self._observation = observation
        self._stale_seconds = observation.policy.stale_after_seconds
        self._said = {one["id"]: one for one in status.get("brokers") or ()}
        self.flows = flows_of(
            observation.readings,
            now_seconds=observation.now_seconds,
            stale_after_seconds=self._stale_seconds,
        )
        self._measured_ways = {way for _, way in self.flows.totals}
        said = {
            broker: _PRESSURES[one["pressure"]]
            for broker, one in self._said.items()
            if one.get("pressure") in _PRESSURES
        }
        throttled = any(one.state in _BELOW_CONTRACT for one in level_words(status).values())
        ways = frozenset(Direction) if throttled else frozenset[Direction]()
        over = {broker: one for broker, one in said.items() if one is Pressure.OVER}
        self.watched = watch(observation, self.flows, {**(before or said), **over}, ways)

    def client(self, key: RateKey) -> ClientNow:
        """A client without series sends nothing if brokers report others, else is unknown."""
        flows = self.flows.of(key)
        if not flows:
            return ClientNow(0.0 if key[1] in self._measured_ways else None, None, {})
        delays = [
            one.throttle_milliseconds
            for one in flows.values()
            if one.throttle_milliseconds is not None
        ]
        return ClientNow(
            sum(one.bytes_per_second for one in flows.values()),
            max(delays) / 1000 if delays else None,
            {broker: one.bytes_per_second for broker, one in sorted(flows.items())},
        )

    def nics(self, tiers: Sequence[Tier], problem: str = "") -> Iterator[NicNow]:
        """Every limited NIC of every live broker. `problem` says why nothing was read."""
        sums = self._sums(tiers)
        for one in self._unread() if self.watched is None else self.watched:
            over = _over_ways(one)
            said = self._said.get(one.broker, {})
            for way, nic in one.nics.items():
                of_levels = self._of_levels(sums, one.broker, way)
                is_measured = all(self.flows.is_measured(one.broker, part) for part in way.parts)
                pressure = Pressure.OVER if way in over else nic.pressure
                yield NicNow(
                    one.broker,
                    way,
                    pressure,
                    nic.limit,
                    nic.capacity,
                    nic.bytes_per_second,
                    nic.at_seconds or self._sampled_at((one.broker, way)),
                    _rests_on(nic, pressure) if nic.known else nic.why or problem,
                    str(said.get("since") or "") if pressure == said.get("pressure") else "",
                    bool(said.get("directSince")),
                    self.flows.total(one.broker, way) if is_measured else None,
                    of_levels.get(None, 0.0) if is_measured else None,
                    {level: rate for level, rate in of_levels.items() if level is not None},
                )

    @staticmethod
    def _of_levels(
        sums: Mapping[object, Mapping[Level | None, float]], broker: int, way: Direction
    ) -> Mapping[Level | None, float]:
        found: dict[Level | None, float] = {}
        for part in way.parts:
            for level, rate in sums.get((broker, part), {}).items():
                found[level] = found.get(level, 0.0) + rate
        return found

    def _sums(self, tiers: Sequence[Tier]) -> Mapping[object, Mapping[Level | None, float]]:
        """What clients send through each NIC, by level; None = clients that no tier names."""
        level_of = {
            member.entity: tier.level for tier in reversed(tiers) for member in tier.members
        }
        found: dict[object, dict[Level | None, float]] = defaultdict(dict)
        for (entity, way), at in self.flows.by_key.items():
            level = level_of.get(entity)
            for broker, rate in at.items():
                sums = found[broker, way]
                sums[level] = sums.get(level, 0.0) + rate.bytes_per_second
        return found

    def _unread(self) -> Iterator[WatchedBroker]:
        topology = self._observation.topology
        for broker in sorted(topology.brokers if topology is not None else ()):
            limits = self._observation.policy.limits.of(broker)
            nics = {
                way: NicStatus(broker, Pressure.UNKNOWN, limits.limit(way), limits.capacity(way))
                for way in Direction
                if limits.limit(way) is not None
            }
            yield WatchedBroker(broker, Pressure.UNKNOWN, nics)

    def _sampled_at(self, place: tuple[int, Direction]) -> float | None:
        readings = self._observation.readings
        spans = readings.spans(*place) if readings is not None else None
        return spans[-1].at_seconds if spans else None

    @property
    def newest_seconds(self) -> float | None:
        """When the newest sample of any NIC was."""
        return max(self._nic_times(), default=None)

    def _nic_times(self) -> set[float]:
        readings = self._observation.readings
        nics = {} if readings is None else readings.nic
        return {spans[-1].at_seconds for spans in nics.values() if spans}

    @property
    def judged_until_seconds(self) -> float:
        """When the first reading is too old to be judged by, or new enough at last.

        A NIC whose newest reading is of another time has its age in words, so it is judged again
        each time.
        """
        readings, now = self._observation.readings, self._observation.now_seconds
        if readings is None:
            return float("inf")
        stale, nics = self._stale_seconds, self._nic_times()
        if any(abs(now - at) > stale for at in nics):
            return now
        times = nics | {rate.at_seconds for rate in readings.clients.values()}
        turns = (turn for at in times for turn in (at - stale, at + stale) if turn >= now)
        return min(turns, default=float("inf"))


def _over_ways(one: WatchedBroker) -> Collection[Direction]:
    """The ways that are over; of a broker whose load swings around its limit, the fullest one."""
    over = [way for way, nic in one.nics.items() if nic.pressure is Pressure.OVER]
    if over or one.pressure is not Pressure.OVER:
        return over
    return [max(one.nics, key=lambda way: one.nics[way].above(1.0))]


def _rests_on(nic: NicStatus, pressure: Pressure) -> str:
    if nic.hot_samples:
        return f"{nic.hot_samples} of {nic.samples} samples above"
    return "was above a moment ago" if pressure is not nic.pressure else ""
