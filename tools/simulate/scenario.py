"""Read a scenario in TOML: brokers with limits, users with contracts, and what changes when.

title = "One broker, four users" seconds = 900                    # how long it plays scrapeSeconds
= 15               # how often there is a reading, and a decision [escalation]                     #
as in the policy; each may be left out maxMuteSeconds = 12 [quotaWindow] samples = 11 [brokers.1]
egress = {limit = 50_000_000}    # bytes per second; also capacity, and the same for ingress
[[users]] user = "reports"                 # and/or clientId level = "L3" direction = "egress"
contract = 60_000_000            # for each leader, bytes per second throttledRate = 1_000_000
# absent on L0 leaders = {1 = 1}                # on each broker [[changes]] at = 60 demand =
{reports = 25_000_000}  # on each broker that leads for it; by user, or by clientId where there is
no user other = {1 = 5_000_000}          # what else goes out through the broker's NIC (ingress:
otherIngress) limit = {1 = 900_000_000}        # a new egress limit nic = {1 = -1}
# the reading of the egress NIC from now on; "none" = no reading, "true" = the true rate again
silent = [1]                     # brokers that report no client rates from now on
"""

import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from controller_logic.model import (
    MAX_BYTE_RATE,
    MIN_BYTE_RATE,
    BrokerLimit,
    Direction,
    Entity,
    Level,
    QuotaWindow,
    Speed,
)
from controller_logic.throttle.input import RateHistory, ThrottleMemory, ThrottleSettings
from tools.simulate.model import SimulatedClient, SimulatedCluster

# Checked values of a parsed TOML table. Every mistake is reported with its place and what must
# hold.


class ScenarioError(Exception):
    """A scenario that cannot be played; the message has the place and what must hold."""


class Words:
    """One table of the file. `nothing_else` refuses the keys that were not read, so a typo is never
    ignored.
    """

    def __init__(self, table: dict[str, Any], where: str) -> None:
        self.where = where
        self._table = table
        self._unread = set(table)

    def nothing_else(self) -> None:
        if self._unread:
            raise ScenarioError(
                f"{self.where} has {', '.join(sorted(self._unread))}, which means nothing here"
            )

    def spoken(self, *without: str) -> str:
        """All keys and values of the table, for people."""
        return ", ".join(
            f"{key} {_spoken(value)}" for key, value in self._table.items() if key not in without
        )

    def text(self, key: str, default: str) -> str:
        return str(self._typed(key, str, "text", default))

    def number(self, key: str, least: float, most: float, default: float | None = None) -> float:
        value = self._take(key, default)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not least <= value <= most
        ):
            raise ScenarioError(
                f"{self.where}: {key} must be a number from {least:g} to {most:g}, not {value!r}"
            )
        return float(value)

    def integer(self, key: str, least: int, most: int, default: int | None = None) -> int:
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ScenarioError(
                f"{self.where}: {key} must be a whole number from {least} to {most}, not {value!r}"
            )
        return value

    def rate(self, key: str) -> int:
        return self.integer(key, MIN_BYTE_RATE, MAX_BYTE_RATE)

    def rate_or_none(self, key: str) -> int | None:
        return self.rate(key) if key in self._table else None

    def one_of(self, key: str, choices: type[StrEnum], default: StrEnum | None = None) -> str:
        value = self._take(key, default)
        if value not in list(choices):
            raise ScenarioError(
                f"{self.where}: {key} must be one of {', '.join(choices)}, not {value!r}"
            )
        return str(value)

    def table(self, key: str) -> "Words":
        return Words(
            self._typed(key, dict, "a table", {}),
            f"{self.where}, {key}" if self.where != "the scenario" else key,
        )

    def tables(self, key: str) -> Iterator["Words"]:
        for place, table in enumerate(self._typed(key, list, "a list of tables", []), 1):
            if not isinstance(table, dict):
                raise ScenarioError(f"entry {place} of {key} must be a table")
            yield Words(table, f"entry {place} of {key}")

    def brokers(self, key: str) -> Iterator[tuple[int, "Words"]]:
        found = self._typed(key, dict, "a table of brokers by id", {})
        if not found:
            raise ScenarioError(f"{self.where} needs at least one broker, [{key}.1]")
        for name, table in found.items():
            if not isinstance(table, dict):
                raise ScenarioError(f"{key}.{name} must be a table")
            yield self._broker_id(name, key), Words(table, f"{key}.{name}")

    def numbers_by_broker(self, key: str, known: Collection[int]) -> dict[int, float]:
        found = self._typed(key, dict, "a table of numbers by broker id", {})
        ids = {self._known_broker(name, key, known): value for name, value in found.items()}
        return {broker: self._not_negative(key, value) for broker, value in ids.items()}

    def numbers_by_name(self, key: str, known: Collection[str]) -> dict[str, float]:
        found = self._typed(key, dict, "a table of numbers by user", {})
        if unknown := found.keys() - set(known):
            raise ScenarioError(
                f"{self.where}: {key} names {', '.join(sorted(unknown))}, who is none of the users"
            )
        return {name: self._not_negative(key, value) for name, value in found.items()}

    def nics(self, key: str, known: Collection[int]) -> dict[int, float | bool | None]:
        """The reading of each NIC from now on: a number (also a false one), None for no reading,
        True for the true rate.
        """
        found = self._typed(key, dict, "a table by broker id", {})
        return {
            self._known_broker(name, key, known): self._nic(key, value)
            for name, value in found.items()
        }

    def broker_list(self, key: str, known: Collection[int]) -> frozenset[int] | None:
        if key not in self._table:
            return None
        return frozenset(
            self._known_broker(str(name), key, known)
            for name in self._typed(key, list, "a list of broker ids", [])
        )

    def _nic(self, key: str, value: Any) -> float | bool | None:
        if value == "none":
            return None
        if value == "true":
            return True
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ScenarioError(
                f'{self.where}: {key} must be a number, "none" or "true", not {value!r}'
            )
        return float(value)

    def _not_negative(self, key: str, value: Any) -> float:
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not 0 <= value <= MAX_BYTE_RATE
        ):
            raise ScenarioError(
                f"{self.where}: {key} must hold numbers from 0 to {MAX_BYTE_RATE}, not {value!r}"
            )
        return float(value)

    def _known_broker(self, name: str, key: str, known: Collection[int]) -> int:
        broker = self._broker_id(name, key)
        if broker not in known:
            raise ScenarioError(
                f"{self.where}: {key} names broker {broker}, which is none of the brokers"
            )
        return broker

    def _broker_id(self, name: str, key: str) -> int:
        if not name.isdecimal():
            raise ScenarioError(f"{self.where}: {key} must name brokers by id, not {name!r}")
        return int(name)

    def _typed(self, key: str, wanted: type, words: str, default: Any) -> Any:
        value = self._take(key, default)
        if not isinstance(value, wanted):
            raise ScenarioError(f"{self.where}: {key} must be {words}, not {value!r}")
        return value

    def _take(self, key: str, default: Any) -> Any:
        self._unread.discard(key)
        if key not in self._table and default is None:
            raise ScenarioError(f"{self.where} lacks {key}")
        return self._table.get(key, default)


def _spoken(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} = {_spoken(one)}" for name, one in value.items())
    return (
        ", ".join(map(_spoken, value))
        if isinstance(value, list)
        else f"{value:,}"
        if isinstance(value, int)
        else str(value)
    )


__all__ = ["Change", "Scenario", "ScenarioError", "scenario_of"]

_LONGEST_SECONDS = 7 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Change:
    """What happens at one moment; `words` is the entry as it was written."""

    at_seconds: float
    words: str
    demand: Mapping[str, float] = field(default_factory=dict)
    other: Mapping[tuple[int, Direction], float] = field(default_factory=dict)
    limit: Mapping[int, int] = field(default_factory=dict)
    nic: Mapping[int, float | bool | None] = field(default_factory=dict)
    silent: frozenset[int] | None = None

    def play(self, cluster: SimulatedCluster) -> None:
        """Apply the change to the cluster."""
        for actor in cluster.actors:
            if _name(actor.entity) in self.demand:
                wanted = self.demand[_name(actor.entity)]
                cluster.wants |= {(actor.key, broker): wanted for broker in actor.leaders}
        cluster.other |= self.other
        for broker, limit in self.limit.items():
            cluster.limits[broker] = replace(cluster.limits[broker], egress=limit)
        for broker, reading in self.nic.items():
            _set_reading(cluster, broker, reading)
        if self.silent is not None:
            cluster.silent = set(self.silent)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A checked scenario; `cluster()` makes a fresh simulated cluster to play it on."""

    title: str
    seconds: float
    interval_seconds: float
    settings: ThrottleSettings
    limits: Mapping[int, BrokerLimit]
    actors: tuple[SimulatedClient, ...]
    changes: tuple[Change, ...]

    def cluster(self) -> SimulatedCluster:
        """A cluster with every client at its contract, and with rates seen for long enough."""
        cluster = SimulatedCluster(
            dict(self.limits), list(self.actors), self.settings, self.interval_seconds
        )
        for actor in self.actors:
            cluster.in_force[actor.key] = actor.promised
        long_ago = RateHistory(since_seconds=-self.settings.peak_seconds)
        cluster.memory = ThrottleMemory(seen={actor.key: long_ago for actor in self.actors})
        return cluster

    def due(self, since_seconds: float, before_seconds: float) -> Iterator[Change]:
        """The changes of one interval, in the order in which they happen."""
        return (
            change for change in self.changes if since_seconds <= change.at_seconds < before_seconds
        )


def _name(entity: Entity) -> str:
    return str(entity.user if entity.user is not None else entity.client_id)


def _set_reading(cluster: SimulatedCluster, broker: int, reading: float | bool | None) -> None:
    place = (broker, Direction.EGRESS)
    if reading is True:
        cluster.lies.pop(place, None)
    else:
        cluster.lies[place] = reading


def scenario_of(text: str) -> Scenario:
    """Read a scenario. Raises ScenarioError with what is wrong and where."""
    try:
        whole = Words(tomllib.loads(text), "the scenario")
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"this is not TOML: {error}") from error
    title = whole.text("title", "a scenario")
    seconds, interval_seconds = (
        whole.number("seconds", 1, _LONGEST_SECONDS),
        whole.number("scrapeSeconds", 1, 3600, 15),
    )
    settings = _settings(whole)
    limits = {broker: _limit(words) for broker, words in whole.brokers("brokers")}
    actors = tuple(_actor(words, limits) for words in whole.tables("users"))
    changes = tuple(
        sorted(
            (_change(words, limits, actors) for words in whole.tables("changes")),
            key=lambda one: one.at_seconds,
        )
    )
    whole.nothing_else()
    if len({actor.key for actor in actors}) != len(actors):
        raise ScenarioError("two entries of users name the same entity and direction")
    return Scenario(title, seconds, interval_seconds, settings, limits, actors, changes)


def _settings(whole: Words) -> ThrottleSettings:
    window, words, own = whole.table("quotaWindow"), whole.table("escalation"), ThrottleSettings()
    made = ThrottleSettings(
        window=QuotaWindow(
            window.integer("samples", 1, 1000, 11), window.integer("sampleSeconds", 1, 3600, 1)
        ),
        max_mute_seconds=words.integer("maxMuteSeconds", 1, 300, own.max_mute_seconds),
        cut_to_percent=words.integer("cutToPercent", 1, 100, own.cut_to_percent),
        raise_to_percent=words.integer("raiseToPercent", 1, 100, own.raise_to_percent),
        hold_seconds=words.number("holdSeconds", 1, 3600, own.hold_seconds),
        stale_after_seconds=words.number("staleAfterSeconds", 1, 3600, own.stale_after_seconds),
        speed=Speed(words.one_of("speed", Speed, Speed.LADDER)),
    )
    window.nothing_else()
    words.nothing_else()
    return made


def _limit(words: Words) -> BrokerLimit:
    egress, ingress = words.table("egress"), words.table("ingress")
    made = BrokerLimit(
        *(way.rate_or_none(key) for key in ("limit", "capacity") for way in (egress, ingress))
    )
    for read in (egress, ingress, words):
        read.nothing_else()
    return made


def _actor(words: Words, limits: Mapping[int, BrokerLimit]) -> SimulatedClient:
    user, client_id = words.text("user", ""), words.text("clientId", "")
    if not user and not client_id:
        raise ScenarioError(f"{words.where} needs a user, a clientId, or both")
    level = Level(words.one_of("level", Level))
    throttled = words.rate_or_none("throttledRate")
    if (throttled is None) is not (level is Level.L0):
        raise ScenarioError(
            f"{words.where}: throttledRate is required on L1 to L3 and refused on L0"
        )
    direction = Direction(words.one_of("direction", Direction, Direction.EGRESS))
    leaders = {
        broker: round(count) for broker, count in words.numbers_by_broker("leaders", limits).items()
    }
    contract = words.rate("contract")
    if throttled is not None and throttled > contract:
        raise ScenarioError(f"{words.where}: throttledRate is above the contract")
    words.nothing_else()
    return SimulatedClient(
        Entity(user or None, client_id or None), direction, level, contract, throttled, leaders
    )


def _change(
    words: Words, limits: Mapping[int, BrokerLimit], actors: tuple[SimulatedClient, ...]
) -> Change:
    spoken = words.spoken("at")
    made = Change(
        at_seconds=words.number("at", 0, _LONGEST_SECONDS),
        words=spoken,
        demand=words.numbers_by_name("demand", {_name(actor.entity) for actor in actors}),
        other={
            (broker, direction): rate
            for key, direction in (("other", Direction.EGRESS), ("otherIngress", Direction.INGRESS))
            for broker, rate in words.numbers_by_broker(key, limits).items()
        },
        limit={
            broker: round(rate) for broker, rate in words.numbers_by_broker("limit", limits).items()
        },
        nic=words.nics("nic", limits),
        silent=words.broker_list("silent", limits),
    )
    words.nothing_else()
    return made
