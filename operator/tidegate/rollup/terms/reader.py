"""Read the terms of each hour of a run: contracts, limits, episodes by broker, and tiers' states.

Terms come from the operator's own metrics, else from the audit trail. Where neither has any for a
stretch, contracts and limits are the declared ones of now, and episodes and states are unknown.
Each stretch is read by itself, so no result depends on how a range was cut into runs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from tidegate.prometheus.queries import broker_of, identity_of
from tidegate.prometheus.settings import MetricsSettings
from tidegate.rollup.fold.broker import BrokerTerms, DirectionTerms, Episode
from tidegate.rollup.fold.clients import MOST_BYTES_PER_SECOND, Client, client_of
from tidegate.rollup.fold.windows import BRIDGED_MS, Rate, longest_hold_ms
from tidegate.rollup.ingest import catalogue
from tidegate.rollup.samples import SeriesSamples, Transport
from tidegate.rollup.schemas import DIRECTIONS, HOUR_MS, Direction
from tidegate.rollup.terms.sources import (
    CONTRACT,
    RELAXING,
    STATES,
    STEPPING,
    THROTTLED,
    AuditLine,
    MemberKey,
    OperatorSamples,
    PolicyMember,
    PolicyTerms,
    TrailAccount,
    read_operator,
)

Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]
LOOKED_BACK_MS: Final = 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class Stretch:
    """[begin_ms, end_ms) of a member below its contract; `begin_ms` None = unknown."""

    key: MemberKey
    begin_ms: int | None
    end_ms: int


@dataclass(frozen=True, slots=True, eq=False)
class Below:
    """By member whether it was below its contract at each time; without those that never were."""

    times_ms: Whole
    rows: Mapping[MemberKey, Flags]


@dataclass(frozen=True, slots=True, eq=False)
class Account:
    """The operator's samples over a range, and the members below contract; `levels` by tier."""

    samples: OperatorSamples
    below: Below
    levels: Mapping[str, str]

    @classmethod
    def of(cls, samples: OperatorSamples, levels: Mapping[str, str]) -> "Account":
        return cls(samples, below_of(samples, levels), levels)


@dataclass(frozen=True, slots=True)
class TierStates:
    """One tier and direction over a range of time. An episode counts where it begins."""

    tier: str
    direction: Direction
    throttle_episodes: int
    seconds_contract: float
    seconds_stepping: float
    seconds_throttled: float
    seconds_relaxing: float


Episodes = Mapping[tuple[int, Direction], Sequence[Episode]]  # by broker
Source = Literal["metrics", "trail", "declared", "none"]
WITHOUT_POLICY: Final = "contracts and limits not known"
_WORDS: Mapping[Source, str] = {
    "metrics": "contracts and limits by the operator's metrics",
    "trail": "contracts by the audit trail, limits as declared at the time of the run",
    "declared": "contracts and limits as declared at the time of the run",
    "none": WITHOUT_POLICY,
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
    """Terms read through one transport; without a policy there are none.

    `trail` serves where the operator's metrics are missing.
    """

    def __init__(
        self,
        transport: Transport,
        settings: MetricsSettings,
        policy: PolicyTerms | None,
        trail: Iterable[AuditLine] = (),
    ) -> None:
        self._transport = transport
        self._policy = policy
        self._interval_ms = settings.scrape_interval_seconds * 1000
        self._trail = (
            TrailAccount(trail, policy.key, self._interval_ms) if policy is not None else None
        )
        self._rates = RatesBefore(transport, settings)
        self._levels = (
            {tier.key: tier.level.value for tier in policy.tiers} if policy is not None else {}
        )
        self._below: dict[tuple[int, int], Below] = {}

    def of(
        self,
        start_ms: int,
        end_ms: int,
        brokers: Sequence[int],
        members: Sequence[PolicyMember] | None = None,
    ) -> StretchTerms:
        """Read the terms of [start, end), of other `members` than now. Raises tidegate.errors."""
        policy = self._policy
        if policy is not None and members is not None:
            policy = replace(policy, past_members=members)
        if policy is None:
            return StretchTerms("none", {})
        account = self._account(policy, start_ms, end_ms)
        if not len(account.samples.times_ms):
            return StretchTerms("declared", _as_declared(policy, brokers))
        stretches = list(
            stretches_of(
                account.below,
                lambda hours: self._hour_before(policy, start_ms, hours),
                end_ms=end_ms,
            )
        )
        episodes = self._episodes(policy, stretches, earliest_ms=start_ms - LOOKED_BACK_MS)
        states = tier_states(
            account, start_ms=start_ms, end_ms=end_ms, interval_ms=self._interval_ms
        )
        return StretchTerms(
            account.samples.source, _as_recorded(policy, account.samples, episodes, brokers), states
        )

    def _account(self, policy: PolicyTerms, start_ms: int, end_ms: int) -> Account:
        """Read [start, end) with the scrapes on both sides, which decide the time at its edges."""
        hold_ms = longest_hold_ms(self._interval_ms)
        samples = read_operator(
            self._transport,
            policy.key,
            start_ms - hold_ms,
            end_ms + hold_ms,
            interval_ms=self._interval_ms,
        )
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
        return (
            known
            if known is not None
            else self._account(policy, begin_ms, begin_ms + HOUR_MS).below
        )

    def _episodes(
        self, policy: PolicyTerms, stretches: Sequence[Stretch], *, earliest_ms: int
    ) -> Episodes:
        """Return members' episodes that begin at a known time since `earliest_ms`.

        Others have no rate to count deferred bytes against.
        """
        clients = {(one.tier.key, one.member.name): one.client for one in policy.members}
        found: dict[tuple[int, Direction], list[Episode]] = {}
        for direction in DIRECTIONS:
            own = [one for one in stretches if one.key[2] == direction and one.key[:2] in clients]
            begun = [
                (one.begin_ms, one)
                for one in own
                if one.begin_ms is not None and one.begin_ms >= earliest_ms
            ]
            rates = self._rates.at(direction, [begin_ms for begin_ms, _ in begun])
            for begin_ms, one in begun:
                client = clients[one.key[:2]]
                for broker, rate in rates[begin_ms].get(client, {}).items():
                    found.setdefault((broker, direction), []).append(
                        Episode(client, begin_ms, one.end_ms, rate)
                    )
        return found


def _as_recorded(
    policy: PolicyTerms, samples: OperatorSamples, episodes: Episodes, brokers: Sequence[int]
) -> Mapping[int, BrokerTerms]:
    """Build terms from samples. Members missing in the metrics had no contract then.

    A trail lacks members without a change: theirs are the declared ones.
    """
    contracts = {
        direction: _contracts(policy, samples, direction, brokers=len(brokers))
        for direction in DIRECTIONS
    }
    return _terms(policy, brokers, contracts, samples.limits, episodes)


def _contracts(
    policy: PolicyTerms, samples: OperatorSamples, direction: Direction, *, brokers: int
) -> Mapping[Client, Rate]:
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
    """Build terms without a record of episodes: deferred bytes then count against contracts."""
    promised = {one.client: policy.promised(one, brokers=len(brokers)) for one in policy.members}
    contracts = {
        direction: {
            client: rates[direction] for client, rates in promised.items() if direction in rates
        }
        for direction in DIRECTIONS
    }
    return _terms(policy, brokers, contracts, {}, None)


def _terms(
    policy: PolicyTerms,
    brokers: Sequence[int],
    contracts: Mapping[Direction, Mapping[Client, Rate]],
    limits: Mapping[tuple[int, Direction], Rate],
    episodes: Episodes | None,
) -> Mapping[int, BrokerTerms]:
    return {
        broker: {
            way: DirectionTerms(
                limits.get((broker, way), policy.limit(broker, way)),
                contracts[way],
                None if episodes is None else episodes.get((broker, way), ()),
                policy.window,
                policy.most_bytes_per_second(broker, way),
            )
            for way in DIRECTIONS
        }
        for broker in brokers
    }


# Times of members below their contracts. A quota below its contract is a throttle only while the
# member's level is Throttled or Relaxing. Otherwise it is a contract that rises step by step.


_HELD: Final = [THROTTLED, RELAXING]


def below_of(samples: OperatorSamples, level_of: Mapping[str, str]) -> Below:
    """Find the members below their contracts. `level_of` has the levels of tiers."""
    held = {level: np.isin(states, _HELD) for level, states in samples.levels.items()}
    anywhere: Flags = np.logical_or.reduce(
        [*held.values(), np.zeros(len(samples.times_ms), bool)], axis=0
    )
    nothing = np.full(len(samples.times_ms), np.nan)
    rows = {}
    for key, quotas in samples.quotas.items():
        targets = samples.targets.get(key, nothing)
        lower = quotas < targets if np.isfinite(targets).any() else np.isfinite(quotas)
        row: Flags = lower & held.get(level_of.get(key[0], ""), anywhere)
        if row.any():
            rows[key] = row
    return Below(samples.times_ms, rows)


def stretches_of(here: Below, before: Callable[[int], Below], *, end_ms: int) -> Iterator[Stretch]:
    """Yield all stretches of `here`, cut to `end_ms`; `before` reads the n-th hour before."""
    begun = _begun_before(here, before)
    for key, row in here.rows.items():
        edges = np.flatnonzero(np.diff(row.astype(np.int8), prepend=0, append=0))
        for first, past in edges.reshape(-1, 2).tolist():
            begin = begun.get(key) if first == 0 else _after(here.times_ms, first)
            yield Stretch(key, begin, int(here.times_ms[past]) if past < len(row) else end_ms)


def _after(times_ms: Whole, place: int) -> int | None:
    """Return the last time before the stretch; None after a gap too long to bridge."""
    earlier, now = int(times_ms[place - 1]), int(times_ms[place])
    return earlier if now - earlier <= BRIDGED_MS else None


def _begun_before(here: Below, before: Callable[[int], Below]) -> Mapping[MemberKey, int]:
    """Find when the members that are below their contract in the first sample went below it."""
    open_keys = {key for key, row in here.rows.items() if row[0]}
    begun: dict[MemberKey, int] = {}
    since_ms = int(here.times_ms[0]) if open_keys else 0
    for hours in range(1, LOOKED_BACK_MS // HOUR_MS + 1):
        if not open_keys:
            break
        earlier = before(hours)
        places = np.flatnonzero(earlier.times_ms < since_ms)
        if not len(places) or since_ms - int(earlier.times_ms[places[-1]]) > BRIDGED_MS:
            break
        for key in sorted(open_keys):
            row = earlier.rows.get(key)
            high = places if row is None else places[~row[places]]
            if len(high):
                begun[key] = int(earlier.times_ms[high[-1]])
                open_keys.discard(key)
        since_ms = int(earlier.times_ms[0])
    return begun


# Rows of the tier tables. A tier's direction is throttled while any of its members is below its
# contract there, relaxing once all members of its level rise again, stepping while a quota moves to
# another contract, and otherwise at its contract. A scrape covers the time since the one before.


def tier_states(
    account: Account, *, start_ms: int, end_ms: int, interval_ms: int
) -> Sequence[TierStates]:
    """Return the states of tiers over [start, end), for directions with a quota or contract.

    Tiers without samples are left out.
    """
    times = account.samples.times_ms
    held = held_within(times, start_ms, end_ms, interval_ms=interval_ms)
    keys: dict[tuple[str, Direction], list[MemberKey]] = {}
    for key in sorted(account.samples.quotas.keys() | account.samples.targets.keys()):
        keys.setdefault((key[0], key[2]), []).append(key)
    found = []
    for (tier, direction), own in keys.items():
        states, below = _states(account, tier, own)
        if held[states >= 0].any():
            seconds = {
                f"seconds_{name.lower()}": float(held[states == number].sum()) / 1000
                for number, name in enumerate(STATES)
            }
            found.append(
                TierStates(tier, direction, _begun(times, below, start_ms, end_ms), **seconds)
            )
    return found


def held_within(times_ms: Whole, start_ms: int, end_ms: int, *, interval_ms: int) -> Whole:
    """Return the ms of [start, end) since the scrape before each; one interval after a gap."""
    gaps = np.diff(times_ms, prepend=times_ms[:1] - interval_ms)
    begins = times_ms - np.where(gaps <= longest_hold_ms(interval_ms), gaps, interval_ms)
    within: Whole = np.minimum(times_ms, end_ms) - np.maximum(begins, start_ms)
    return within.clip(min=0)


def _states(account: Account, tier: str, keys: Sequence[MemberKey]) -> tuple[Whole, Flags]:
    """Return the state's number at each time, -1 = unknown, and whether any member was below."""
    samples, nothing = account.samples, np.full(len(account.samples.times_ms), np.nan)
    states, below = np.full(len(nothing), -1, np.int64), np.zeros(len(nothing), bool)
    for key in keys:
        quotas, targets = samples.quotas.get(key, nothing), samples.targets.get(key, nothing)
        known, on_its_way = (
            np.isfinite(quotas) | np.isfinite(targets),
            np.isfinite(quotas) & np.isfinite(targets) & (quotas != targets),
        )
        states = np.maximum(states, np.where(known, np.where(on_its_way, STEPPING, CONTRACT), -1))
        below |= account.below.rows.get(key, below)
    level = samples.levels.get(
        account.levels.get(tier, ""), np.full(len(nothing), THROTTLED, np.int64)
    )
    return np.where(below, np.where(level == RELAXING, RELAXING, THROTTLED), states), below


def _begun(times_ms: Whole, below: Flags, start_ms: int, end_ms: int) -> int:
    """Count episodes that begin in [start, end), not those after a gap too long to bridge."""
    begins, gaps = times_ms[:-1], np.diff(times_ms)
    within = (begins >= start_ms) & (begins < end_ms) & (gaps <= BRIDGED_MS)
    return int((below[1:] & ~below[:-1] & within).sum())


# The rates of clients just before they were cut.


RatesThen = Mapping[Client, Mapping[int, float]]  # by broker, in bytes/s
_TOGETHER_MS: Final = 120_000  # times that are nearer to each other are read at once


class RatesBefore:
    """Clients' rates just before they were cut, for deferred bytes; each time is read once."""

    def __init__(self, transport: Transport, settings: MetricsSettings) -> None:
        self._transport = transport
        self._selections = {direction: one.rates for direction, one in catalogue(settings).items()}
        self._broker_of = broker_of(identity_of(settings))
        self._hold_ms = longest_hold_ms(settings.scrape_interval_seconds * 1000)
        self._known: dict[tuple[Direction, int], RatesThen] = {}

    def at(self, direction: Direction, moments_ms: Iterable[int]) -> Mapping[int, RatesThen]:
        """Return each client's last rate within five scrapes, by time. Raises tidegate.errors."""
        wanted = sorted(set(moments_ms))
        for group in _groups(
            [moment for moment in wanted if (direction, moment) not in self._known]
        ):
            self._read(direction, group)
        return {moment: self._known[direction, moment] for moment in wanted}

    def _read(self, direction: Direction, moments_ms: Sequence[int]) -> None:
        selection = self._selections[direction]
        found = (
            self._transport.read(selection, moments_ms[0] - self._hold_ms, moments_ms[-1] + 1)
            if selection is not None
            else []
        )
        of_clients = [
            (broker, client, one)
            for one in found
            if (broker := self._broker_of(one.labels)) is not None and (client := client_of(one))
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
    cuts = [
        number
        for number, (one, other) in enumerate(pairwise(moments_ms), 1)
        if other - one > _TOGETHER_MS
    ]
    for first, past in zip([0, *cuts], [*cuts, len(moments_ms)], strict=True):
        yield moments_ms[first:past]
