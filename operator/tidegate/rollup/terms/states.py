"""Who was held below its contract, and when: stretches of the operator's own account, each with the moment at which it began.

A quota below its contract is a throttle only while the operator says that the member's level is throttled or comes back from it; else it is
a contract that rises step by step.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from controller_logic.decision import LevelState
from tidegate.rollup.fold.windows import BRIDGED_MS
from tidegate.rollup.schemas import HOUR_MS
from tidegate.rollup.terms.sources import STATES, MemberKey, OperatorSamples

Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]
_HELD: Final = [STATES.index(state.value) for state in (LevelState.THROTTLED, LevelState.RELAXING)]
LOOKED_BACK_MS: Final = 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class Stretch:
    """[begin_ms, end_ms) in which a member was below its contract. `begin_ms` None = longer than anybody looked back."""

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
    """What the operator said over a stretch of time, and who was below its contract in it. `levels` are those of tiers."""

    samples: OperatorSamples
    below: Below
    levels: Mapping[str, str]

    @classmethod
    def of(cls, samples: OperatorSamples, levels: Mapping[str, str]) -> "Account":
        return cls(samples, below_of(samples, levels), levels)


def below_of(samples: OperatorSamples, level_of: Mapping[str, str]) -> Below:
    """`level_of` has the levels of tiers."""
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
    """All of `here`, cut to `end_ms`. `before` gives what came right before it: the first hour, the second one, and so on back."""
    begun = _begun_before(here, before)
    for key, row in here.rows.items():
        edges = np.flatnonzero(np.diff(row.astype(np.int8), prepend=0, append=0))
        for first, past in edges.reshape(-1, 2).tolist():
            begin = begun.get(key) if first == 0 else _after(here.times_ms, first)
            yield Stretch(key, begin, int(here.times_ms[past]) if past < len(row) else end_ms)


def _after(times_ms: Whole, place: int) -> int | None:
    """The last time at which it was not so yet; None after a gap in which anything may have been."""
    earlier, now = int(times_ms[place - 1]), int(times_ms[place])
    return earlier if now - earlier <= BRIDGED_MS else None


def _begun_before(here: Below, before: Callable[[int], Below]) -> Mapping[MemberKey, int]:
    """When those who are below their contract in the first sample began to be."""
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
