"""Load that quotas already allow, or are about to allow, and that no reading of a NIC shows yet.

Headroom is what a reading leaves free, less this: else a raise would be made into room that an
earlier one was given. It takes no memory. What is written comes from the ledger, so a restarted
operator knows it too. Raises that load decided and that are not in force are counted in
`raises.py`, since they may still be withdrawn. All amounts are bytes per second.
"""

from collections.abc import Mapping
from math import inf

from tidegate_logic.model import Direction, RateKey
from tidegate_logic.readings import Flows, is_limited
from tidegate_logic.throttle.input import (
    FREE,
    ActiveThrottle,
    ManagedRate,
    ThrottleInput,
    ThrottleSettings,
)
from tidegate_logic.throttle.nic_status import NicStatus


def load_to_come(
    given: ThrottleInput,
    flows: Flows,
    direction: Direction,
    nics: Mapping[int, NicStatus],
    held: Mapping[RateKey, ActiveThrottle],
) -> dict[int, float]:
    """What each broker's NIC will carry beyond the highest of its readings; absent = nothing.

    Two parts: quotas raised so lately that the mean was partly measured before, and quotas that
    still have to be raised whatever the load is. A cap that does not bind adds nothing. NICs
    without a limit or a rate are left out.
    """
    views = {broker: _views(nic, given.settings) for broker, nic in nics.items()}
    owed: dict[int, float] = {}
    hidden: dict[int, list[float]] = {broker: [0.0] * len(each) for broker, each in views.items()}
    earliest_seconds = min([one[1] for each in views.values() for one in each], default=inf)
    parts = direction.parts
    for rate in given.rates:
        if rate.direction not in parts or rate.in_force is None:
            continue
        change = rate.last_change
        if (
            change is not None
            and earliest_seconds < change.at_seconds <= given.now_seconds
            and change.previous is not None
            and change.previous < rate.in_force
        ):
            more = rate.in_force - change.previous
            for broker in _binding(rate, flows, change.previous):
                for number, (_, began_seconds, ended_seconds) in enumerate(views.get(broker, ())):
                    hidden[broker][number] += more * _share_before(
                        change.at_seconds, began_seconds, ended_seconds
                    )
        more = _owed(rate, held.get(rate.key)) - rate.in_force
        if more > 0:
            for broker in _binding(rate, flows, rate.in_force):
                owed[broker] = owed.get(broker, 0.0) + more
    found: dict[int, float] = {}
    for broker, each in views.items():
        if each:
            highest = max(load for load, _, _ in each)
            shown = max(view[0] + more for view, more in zip(each, hidden[broker], strict=True))
            if coming := shown - highest + owed.get(broker, 0.0):
                found[broker] = coming
    return found


_View = tuple[float, float, float]  # bytes/s, and from when to when it was measured


def _views(nic: NicStatus, settings: ThrottleSettings) -> tuple[_View, ...]:
    """What headroom is judged by, longest first; see `headroom_of`."""
    if nic.limit is None or nic.bytes_per_second is None or nic.at_seconds is None:
        return ()
    ended_seconds, span_seconds = nic.at_seconds, nic.span_seconds or 0.0
    period_seconds = min(span_seconds, settings.sawtooth_period_seconds)
    return (
        (nic.bytes_per_second, ended_seconds - span_seconds, ended_seconds),
        (nic.newest_period_bytes_per_second, ended_seconds - period_seconds, ended_seconds),
        (nic.clients, ended_seconds - settings.window.seconds, ended_seconds),
    )


def _share_before(at_seconds: float, began_seconds: float, ended_seconds: float) -> float:
    """The part of a reading that was measured before this moment."""
    if ended_seconds <= began_seconds:
        return float(at_seconds > ended_seconds)
    return min(1.0, max(0.0, (at_seconds - began_seconds) / (ended_seconds - began_seconds)))


def _owed(rate: ManagedRate, held: ActiveThrottle | None) -> int:
    """What the quota will be raised to without a new decision on load; 0 = nothing.

    A throttle that was in force keeps its share of the contract, on other leaders too. One that
    was not is a decision that may be withdrawn.
    """
    if held is None:
        return rate.owed
    return min(rate.contract, held.of(rate.contract)) if held.applied else 0


def _binding(rate: ManagedRate, flows: Flows, cap: int) -> list[int]:
    """The brokers where this cap keeps the client from sending more, or may do so."""
    mine = flows.of(rate.key)
    return [
        broker
        for broker in sorted(rate.leads | mine.keys())
        if not flows.is_measured(broker, rate.direction)
        or (is_limited(mine[broker], cap) if broker in mine else not mine)
    ] or [broker for broker in sorted(mine) if FREE * mine[broker].bytes_per_second > cap]
