"""The brokers' limits by the clock: which are in force, and what comes next.

A policy's schedules replace its limits at times that come back; of several at one time the first
counts. There is no memory: the limits in force follow from the time alone, so a pause, a restart or
a new leader at a boundary needs nothing of its own.

A lower limit ahead that is to be ready before its time counts so early that the deepest cut of any
member could be done by then; load decides which cuts are made. Times are seconds since the epoch.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tidegate_logic.model import (
    BrokerLimit,
    BrokerLimits,
    Contract,
    Direction,
    Level,
    LimitSchedule,
    Policy,
    Tier,
)
from tidegate_logic.recurrence import Window
from tidegate_logic.throttle.calendar import lead_seconds
from tidegate_logic.throttle.input import ThrottleSettings

_LOOKS_AHEAD_SECONDS: Final = 8 * 86_400.0  # every schedule comes back within a week


@dataclass(frozen=True, slots=True)
class LimitsNow:
    """What the schedules of a policy say at one time.

    `schedule` is the index of the one that counts, None = none does. `until_seconds` is when that
    changes, to `next_schedule` with `next_limits`; None = it does not within a week. `limits` are
    in force: those of `schedule`, or lower ones that are made ready for. `due_seconds` is when
    `limits` change.
    """

    limits: BrokerLimits
    schedule: int | None
    until_seconds: float | None = None
    next_schedule: int | None = None
    next_limits: BrokerLimits | None = None
    due_seconds: float | None = None


def limits_now(policy: Policy, tiers: Iterable[Tier], now_seconds: float) -> LimitsNow | None:
    """The limits in force; None = the policy has no schedules. Tiers say how deep cuts may be."""
    if not policy.schedules:
        return None
    leads = _leads(policy, tiers)
    turns = _turns(policy.schedules, now_seconds)
    _, active = next(turns)
    found = LimitsNow(policy.limits_at(active), active)
    before = active
    for at_seconds, after in turns:
        limits = policy.limits_at(after)
        if found.due_seconds is None:
            found = replace(
                found, until_seconds=at_seconds, next_schedule=after, next_limits=limits
            )
        elif at_seconds - max(leads.values()) > found.due_seconds:
            break
        # where none follows, the one that ends says how
        begins_seconds = at_seconds - leads[before if after is None else after]
        if begins_seconds <= now_seconds:
            found = replace(found, limits=_lower(found.limits, limits))
            begins_seconds = at_seconds
        due_seconds = min(begins_seconds, found.due_seconds or begins_seconds)
        found = replace(found, due_seconds=due_seconds)
        before = after
    return found


def in_force(policy: Policy, tiers: Iterable[Tier] | None, now_seconds: float) -> Policy:
    """The policy with the limits in force at this time, whichever it had before."""
    now = limits_now(policy, tiers or (), now_seconds)
    return policy if now is None else policy.with_limits(now.limits)


def _turns(
    schedules: Sequence[LimitSchedule], now_seconds: float
) -> Iterator[tuple[float, int | None]]:
    """Which one counts now, then each change of that within a week, with its time."""
    ahead_seconds = now_seconds + _LOOKS_AHEAD_SECONDS
    windows = [tuple(one.recurrence.windows(now_seconds, ahead_seconds)) for one in schedules]
    moments = {
        at_seconds
        for found in windows
        for one in found
        for at_seconds in (one.begin_seconds, one.end_seconds)
        if now_seconds < at_seconds < ahead_seconds
    }
    active = _active(windows, now_seconds)
    yield now_seconds, active
    for at_seconds in sorted(moments):
        following = _active(windows, at_seconds)
        if following != active:
            yield at_seconds, following
        active = following


def _active(windows: Iterable[Sequence[Window]], at_seconds: float) -> int | None:
    found = (any(one.has(at_seconds) for one in of_schedule) for of_schedule in windows)
    return next((index for index, has in enumerate(found) if has), None)


def _lower(one: BrokerLimits, other: BrokerLimits) -> BrokerLimits:
    brokers = one.exceptions.keys() | other.exceptions.keys()
    return BrokerLimits(
        _lower_limit(one.everywhere, other.everywhere),
        {broker: _lower_limit(one.of(broker), other.of(broker)) for broker in sorted(brokers)},
    )


def _lower_limit(one: BrokerLimit, other: BrokerLimit) -> BrokerLimit:
    lower = {}
    for way in Direction:
        limits = [limit for limit in (one.limit(way), other.limit(way)) if limit is not None]
        lower[way.value] = min(limits, default=None)
    return replace(one, **lower)


def _leads(policy: Policy, tiers: Iterable[Tier]) -> dict[int | None, float]:
    """How long before its time each schedule counts, where it is lower."""
    leads: dict[int | None, float] = dict.fromkeys((None, *range(len(policy.schedules))), 0.0)
    early = [place for place, one in enumerate(policy.schedules) if one.is_ready_before]
    if early:
        settings = ThrottleSettings.of(policy)
        lead = lead_seconds(_deepest_share(tiers), policy.max_mute_seconds, settings)
        leads |= dict.fromkeys(early, lead)
    return leads


def _deepest_share(tiers: Iterable[Tier]) -> float:
    """The lowest share of its contract that any member may be throttled to."""
    return min(
        [
            throttled / promised
            for tier in tiers
            if tier.level is not Level.L0
            for member in tier.members
            if member.contract is not None
            for promised, throttled in _pairs(member.contract, tier.throttled)
            if throttled < promised
        ],
        default=1.0,
    )


def _pairs(contract: Contract, floors: Iterable[Contract]) -> Iterator[tuple[int, int]]:
    """The contract's rates, each with what it may be throttled to, in the same form."""
    for floor in floors:
        if floor.form is contract.form:
            for promised, throttled in (
                (contract.fetch_bytes_per_second, floor.fetch_bytes_per_second),
                (contract.produce_bytes_per_second, floor.produce_bytes_per_second),
            ):
                if promised and throttled:
                    yield promised, throttled
