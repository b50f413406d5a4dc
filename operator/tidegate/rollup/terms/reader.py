"""Reads the terms of each stretch of a run: contracts, limits and episodes by broker, and the states of tiers.

Terms come from the operator's own metrics, else from the audit trail. Where neither has any for a stretch, contracts and limits are the
declared ones of now, and episodes and states are unknown. Each stretch is read by itself, so no result depends on how a range was cut into
runs.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

import numpy as np

from tidegate.prometheus.queries import broker_of, identity_of
from tidegate.prometheus.settings import MetricsSettings
from tidegate.rollup.fold.broker import DirectionTerms, Episode
from tidegate.rollup.fold.clients import MOST_BYTES_PER_SECOND, Client, client_of
from tidegate.rollup.fold.windows import Rate, longest_hold_ms
from tidegate.rollup.ingest import catalogue
from tidegate.rollup.samples import SeriesSamples, Transport
from tidegate.rollup.schemas import DIRECTIONS, HOUR_MS, Direction
from tidegate.rollup.terms.policy import PolicyTerms
from tidegate.rollup.terms.sources import OperatorSamples, TrailAccount, read_operator
from tidegate.rollup.terms.states import LOOKED_BACK_MS, Account, Below, Stretch, TierStates, stretches_of, tier_states
from tidegate.rollup.trail import AuditLine

RatesThen = Mapping[Client, Mapping[int, float]]  # by broker, in bytes/s
_TOGETHER_MS: Final = 120_000  # times that are nearer to each other are read at once


class RatesBefore:
    """Reads the rates of clients just before they were cut, against which deferred bytes are counted. Each time is read once."""

    def __init__(self, transport: Transport, settings: MetricsSettings) -> None:
        self._transport = transport
        self._selections = {direction: one.rates for direction, one in catalogue(settings).items()}
        self._broker_of = broker_of(identity_of(settings))
        self._hold_ms = longest_hold_ms(settings.scrape_interval_seconds * 1000)
        self._known: dict[tuple[Direction, int], RatesThen] = {}

    def at(self, direction: Direction, moments_ms: Iterable[int]) -> Mapping[int, RatesThen]:
        """Return for each of these times every client's last rate that is no older than five scrapes. Raises tidegate.errors."""
        wanted = sorted(set(moments_ms))
        for group in _groups([moment for moment in wanted if (direction, moment) not in self._known]):
            self._read(direction, group)
        return {moment: self._known[direction, moment] for moment in wanted}

    def _read(self, direction: Direction, moments_ms: Sequence[int]) -> None:
        selection = self._selections[direction]
        found = self._transport.read(selection, moments_ms[0] - self._hold_ms, moments_ms[-1] + 1) if selection is not None else []
        of_clients = [
            (broker, client, one) for one in found if (broker := self._broker_of(one.labels)) is not None and (client := client_of(one))
        ]
        for moment in moments_ms:
            rates: dict[Client, dict[int, float]] = {}
            for broker, client, one in of_clients:
                rate = self._last(one, moment)
                if rate is not None:
                    own = rates.setdefault(client, {})
                    own[broker] = max(rate, own.get(broker, 0.0))
            self._known[direction, moment] = rates

    def _last(self, series: SeriesSamples, moment_ms: int) -> float | None:
        place = int(np.searchsorted(series.times_ms, moment_ms, side="right")) - 1
        if place < 0 or series.times_ms[place] < moment_ms - self._hold_ms:
            return None
        value = float(series.values[place])
        return value if 0 <= value <= MOST_BYTES_PER_SECOND else None


def _groups(moments_ms: Sequence[int]) -> Iterator[Sequence[int]]:
    if not moments_ms:
        return
    cuts = [number for number, (one, other) in enumerate(pairwise(moments_ms), 1) if other - one > _TOGETHER_MS]
    for first, past in zip([0, *cuts], [*cuts, len(moments_ms)], strict=True):
        yield moments_ms[first:past]


BrokerTerms = Mapping[Direction, DirectionTerms]
Episodes = Mapping[tuple[int, Direction], Sequence[Episode]]  # by broker
Source = Literal["metrics", "trail", "declared", "none"]
_WORDS: Mapping[Source, str] = {
    "metrics": "contracts and limits by the operator's metrics",
    "trail": "contracts by the audit trail, limits as declared at the time of the run",
    "declared": "contracts and limits as declared at the time of the run",
    "none": "contracts and limits not known",
}
_REMEMBERED = LOOKED_BACK_MS // HOUR_MS + 2


@dataclass(frozen=True, slots=True)
class StretchTerms:
    """The terms of one stretch of time. `source` is where contracts come from."""

    source: Source
    brokers: Mapping[int, BrokerTerms]
    tiers: Sequence[TierStates] = ()

    @property
    def words(self) -> str:
        """Where contracts and limits come from, in words."""
        return _WORDS[self.source]


class TermsReader:
    """Reads terms through one transport. Without a policy there are none. `trail` serves where the operator's metrics are missing."""

    def __init__(
        self, transport: Transport, settings: MetricsSettings, policy: PolicyTerms | None, trail: Iterable[AuditLine] = ()
    ) -> None:
        self._transport = transport
        self._policy = policy
        self._interval_ms = settings.scrape_interval_seconds * 1000
        self._trail = TrailAccount(trail, policy.key, self._interval_ms) if policy is not None else None
        self._rates = RatesBefore(transport, settings)
        self._levels = {tier.key: tier.level.value for tier in policy.tiers} if policy is not None else {}
        self._below: dict[tuple[int, int], Below] = {}

    def of(self, start_ms: int, end_ms: int, brokers: Sequence[int]) -> StretchTerms:
        """Read the terms of [start, end). Raises tidegate.errors."""
        policy = self._policy
        if policy is None:
            return StretchTerms("none", {})
        account = self._account(policy, start_ms, end_ms)
        if not len(account.samples.times_ms):
            return StretchTerms("declared", _as_declared(policy, brokers))
        stretches = list(stretches_of(account.below, lambda hours: self._hour_before(policy, start_ms, hours), end_ms=end_ms))
        episodes = self._episodes(policy, stretches, earliest_ms=start_ms - LOOKED_BACK_MS)
        states = tier_states(account, start_ms=start_ms, end_ms=end_ms, interval_ms=self._interval_ms)
        return StretchTerms(account.samples.source, _as_recorded(policy, account.samples, episodes, brokers), states)

    def _account(self, policy: PolicyTerms, start_ms: int, end_ms: int) -> Account:
        """Read the samples of [start, end) with the scrapes on both sides, which decide the time at its edges."""
        hold_ms = longest_hold_ms(self._interval_ms)
        samples = read_operator(self._transport, policy.key, start_ms - hold_ms, end_ms + hold_ms, interval_ms=self._interval_ms)
        if not len(samples.times_ms) and self._trail is not None:
            samples = self._trail.samples(start_ms - hold_ms, end_ms + hold_ms)
        account = Account.of(samples, self._levels)
        self._below[start_ms, end_ms] = account.below
        while len(self._below) > _REMEMBERED:
            del self._below[next(iter(self._below))]
        return account

    def _hour_before(self, policy: PolicyTerms, start_ms: int, hours: int) -> Below:
        begin_ms = start_ms - hours * HOUR_MS
        known = self._below.get((begin_ms, begin_ms + HOUR_MS))
        return known if known is not None else self._account(policy, begin_ms, begin_ms + HOUR_MS).below

    def _episodes(self, policy: PolicyTerms, stretches: Sequence[Stretch], *, earliest_ms: int) -> Episodes:
        """Return the episodes of members. Without a known beginning, or with one too long ago, they have no rate and are left out."""
        clients = {(one.tier.key, one.member.name): one.client for one in policy.members}
        found: dict[tuple[int, Direction], list[Episode]] = {}
        for direction in DIRECTIONS:
            own = [one for one in stretches if one.key[2] == direction and one.key[:2] in clients]
            begun = [(one.begin_ms, one) for one in own if one.begin_ms is not None and one.begin_ms >= earliest_ms]
            rates = self._rates.at(direction, [begin_ms for begin_ms, _ in begun])
            for begin_ms, one in begun:
                client = clients[one.key[:2]]
                for broker, rate in rates[begin_ms].get(client, {}).items():
                    found.setdefault((broker, direction), []).append(Episode(client, begin_ms, one.end_ms, rate))
        return found


def _as_recorded(policy: PolicyTerms, samples: OperatorSamples, episodes: Episodes, brokers: Sequence[int]) -> Mapping[int, BrokerTerms]:
    """Build terms from samples. Members missing in the metrics had no contract then. A trail lacks members without a change."""
    contracts = {direction: _contracts(policy, samples, direction, brokers=len(brokers)) for direction in DIRECTIONS}
    return {
        broker: {
            direction: DirectionTerms(
                limit=samples.limits.get((broker, direction), policy.limit(broker, direction)),
                contracts=contracts[direction],
                episodes=episodes.get((broker, direction), ()),
                quota_window=policy.window,
            )
            for direction in DIRECTIONS
        }
        for broker in brokers
    }


def _contracts(policy: PolicyTerms, samples: OperatorSamples, direction: Direction, *, brokers: int) -> Mapping[Client, Rate]:
    found: dict[Client, Rate] = {}
    for one in policy.members:
        key = (one.tier.key, one.member.name, direction)
        rate: Rate | None = samples.contract(key)
        if samples.source == "trail" and key not in samples.quotas:
            rate = policy.promised(one, brokers=brokers).get(direction)
        if rate is not None:
            found[one.client] = rate
    return found


def _as_declared(policy: PolicyTerms, brokers: Sequence[int]) -> Mapping[int, BrokerTerms]:
    """Build terms without a record of episodes: deferred bytes are then counted against contracts."""
    promised = {one.client: policy.promised(one, brokers=len(brokers)) for one in policy.members}
    contracts = {
        direction: {client: rates[direction] for client, rates in promised.items() if direction in rates} for direction in DIRECTIONS
    }
    return {
        broker: {way: DirectionTerms(policy.limit(broker, way), contracts[way], None, policy.window) for way in DIRECTIONS}
        for broker in brokers
    }
