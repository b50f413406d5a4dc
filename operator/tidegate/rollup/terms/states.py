"""Throttle episodes of members, and the time of tiers in each state.

A quota below its contract is a throttle only while the member's level is Throttled or Relaxing. Otherwise it is a contract that rises step
by step.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from controller_logic.decision import LevelState
from tidegate.rollup.fold.windows import BRIDGED_MS, longest_hold_ms
from tidegate.rollup.schemas import HOUR_MS, Direction
from tidegate.rollup.terms.sources import STATES, MemberKey, OperatorSamples

Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]
_HELD: Final = [STATES.index(state.value) for state in (LevelState.THROTTLED, LevelState.RELAXING)]
LOOKED_BACK_MS: Final = 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class Stretch:
    """[begin_ms, end_ms) in which a member was below its contract. `begin_ms` None = before the earliest sample that was read."""

    key: MemberKey
    begin_ms: int | None
    end_ms: int


@dataclass(frozen=True, slots=True, eq=False)
class Below:
    """By member whether it was below its contract at each of the times; members that never were are left out."""

    times_ms: Whole
    rows: Mapping[MemberKey, Flags]


@dataclass(frozen=True, slots=True, eq=False)
class Account:
    """The operator's samples over a range of time, and the members below their contracts in it. `levels` are those of tiers."""

    samples: OperatorSamples
    below: Below
    levels: Mapping[str, str]

    @classmethod
    def of(cls, samples: OperatorSamples, levels: Mapping[str, str]) -> "Account":
        return cls(samples, below_of(samples, levels), levels)


def below_of(samples: OperatorSamples, level_of: Mapping[str, str]) -> Below:
    """Find the members below their contracts. `level_of` has the levels of tiers."""
    held = {level: np.isin(states, _HELD) for level, states in samples.levels.items()}
    anywhere: Flags = np.logical_or.reduce([*held.values(), np.zeros(len(samples.times_ms), bool)], axis=0)
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
    """Yield all stretches of `here`, cut to `end_ms`. `before` reads earlier hours, numbered backwards from 1."""
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


_CONTRACT, _STEPPING, _THROTTLED, _RELAXING = (
    STATES.index(state.value) for state in (LevelState.CONTRACT, LevelState.STEPPING, LevelState.THROTTLED, LevelState.RELAXING)
)


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


def tier_states(account: Account, *, start_ms: int, end_ms: int, interval_ms: int) -> Sequence[TierStates]:
    """Return the states of tiers over [start, end), without directions in which no member has a quota, and tiers without samples."""
    times = account.samples.times_ms
    held = held_within(times, start_ms, end_ms, interval_ms=interval_ms)
    keys: dict[tuple[str, Direction], list[MemberKey]] = {}
    for key in sorted(account.samples.quotas.keys() | account.samples.targets.keys()):
        keys.setdefault((key[0], key[2]), []).append(key)
    found = []
    for (tier, direction), own in keys.items():
        states, below = _states(account, tier, own)
        if held[states >= 0].any():
            seconds = {f"seconds_{name.lower()}": float(held[states == number].sum()) / 1000 for number, name in enumerate(STATES)}
            found.append(TierStates(tier, direction, _begun(times, below, start_ms, end_ms), **seconds))
    return found


def held_within(times_ms: Whole, start_ms: int, end_ms: int, *, interval_ms: int) -> Whole:
    """Return how much of [start, end) each scrape covers: the time since the one before, and one interval after a gap."""
    gaps = np.diff(times_ms, prepend=times_ms[:1] - interval_ms)
    begins = times_ms - np.where(gaps <= longest_hold_ms(interval_ms), gaps, interval_ms)
    within: Whole = np.minimum(times_ms, end_ms) - np.maximum(begins, start_ms)
    return within.clip(min=0)


def _states(account: Account, tier: str, keys: Sequence[MemberKey]) -> tuple[Whole, Flags]:
    """Return at each time the number of the state, -1 = unknown, and whether any member was below its contract."""
    samples, nothing = account.samples, np.full(len(account.samples.times_ms), np.nan)
    states, below = np.full(len(nothing), -1, np.int64), np.zeros(len(nothing), bool)
    for key in keys:
        quotas, targets = samples.quotas.get(key, nothing), samples.targets.get(key, nothing)
        known, on_its_way = np.isfinite(quotas) | np.isfinite(targets), np.isfinite(quotas) & np.isfinite(targets) & (quotas != targets)
        states = np.maximum(states, np.where(known, np.where(on_its_way, _STEPPING, _CONTRACT), -1))
        below |= account.below.rows.get(key, below)
    level = samples.levels.get(account.levels.get(tier, ""), np.full(len(nothing), _THROTTLED, np.int64))
    return np.where(below, np.where(level == _RELAXING, _RELAXING, _THROTTLED), states), below


def _begun(times_ms: Whole, below: Flags, start_ms: int, end_ms: int) -> int:
    """Count the episodes that begin in [start, end). After a gap too long to bridge the beginning is unknown and does not count."""
    begins, gaps = times_ms[:-1], np.diff(times_ms)
    within = (begins >= start_ms) & (begins < end_ms) & (gaps <= BRIDGED_MS)
    return int((below[1:] & ~below[:-1] & within).sum())
