"""How long each tier was in which state, and how many throttle episodes began: rows for the tier tables.

A tier's direction is throttled while any of its members is held below its contract there, relaxing once all that its level holds come back,
stepping while a quota is on its way to another contract, and else at its contract. A scrape stands for the time since the one before.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller_logic.decision import LevelState
from tidegate.rollup.fold.windows import BRIDGED_MS, longest_hold_ms
from tidegate.rollup.schemas import Direction
from tidegate.rollup.terms.sources import STATES, MemberKey
from tidegate.rollup.terms.states import Account

Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]
_CONTRACT, _STEPPING, _THROTTLED, _RELAXING = (
    STATES.index(state.value) for state in (LevelState.CONTRACT, LevelState.STEPPING, LevelState.THROTTLED, LevelState.RELAXING)
)


@dataclass(frozen=True, slots=True)
class TierStates:
    """One tier and direction over a run's stretch of time. An episode counts where it begins."""

    tier: str
    direction: Direction
    throttle_episodes: int
    seconds_contract: float
    seconds_stepping: float
    seconds_throttled: float
    seconds_relaxing: float


def tier_states(account: Account, *, start_ms: int, end_ms: int, interval_ms: int) -> Sequence[TierStates]:
    """Over [start, end). A direction in which no member has a quota is left out, and so is a tier of which nothing was told."""
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
    """For how much of [start, end) each scrape stands: the time since the one before, and one interval after a gap."""
    gaps = np.diff(times_ms, prepend=times_ms[:1] - interval_ms)
    begins = times_ms - np.where(gaps <= longest_hold_ms(interval_ms), gaps, interval_ms)
    within: Whole = np.minimum(times_ms, end_ms) - np.maximum(begins, start_ms)
    return within.clip(min=0)


def _states(account: Account, tier: str, keys: Sequence[MemberKey]) -> tuple[Whole, Flags]:
    """At each time the number of the state, -1 = not told, and whether any member was below its contract."""
    samples, nothing = account.samples, np.full(len(account.samples.times_ms), np.nan)
    states, below = np.full(len(nothing), -1, np.int64), np.zeros(len(nothing), bool)
    for key in keys:
        quotas, targets = samples.quotas.get(key, nothing), samples.targets.get(key, nothing)
        told, on_its_way = np.isfinite(quotas) | np.isfinite(targets), np.isfinite(quotas) & np.isfinite(targets) & (quotas != targets)
        states = np.maximum(states, np.where(told, np.where(on_its_way, _STEPPING, _CONTRACT), -1))
        below |= account.below.rows.get(key, below)
    level = samples.levels.get(account.levels.get(tier, ""), np.full(len(nothing), _THROTTLED, np.int64))
    return np.where(below, np.where(level == _RELAXING, _RELAXING, _THROTTLED), states), below


def _begun(times_ms: Whole, below: Flags, start_ms: int, end_ms: int) -> int:
    """Where the first sample is below already, the episode began in what lies before; after a long gap nobody knows."""
    begins, gaps = times_ms[:-1], np.diff(times_ms)
    within = (begins >= start_ms) & (begins < end_ms) & (gaps <= BRIDGED_MS)
    return int((below[1:] & ~below[:-1] & within).sum())
