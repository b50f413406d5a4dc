"""When messages that may wait are held: which brokers have no room, and what forwarders hear.

A broker is crowded from when its egress is over its limit until its load has gone down and nobody
is throttled any more. One whose load is not known is not crowded. Where nothing is known of any
broker, nothing new is announced, and what was announced before ends by itself. Only egress counts:
to hold a message that was produced already takes nothing off the ingress.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tidegate_logic.model import BrokerLimits, Direction
from tidegate_logic.throttle.nic_status import Pressure, Watched

HOLD_SECONDS = 120.0
"""How long forwarders obey, counted from when the broker appended it: no word holds for longer."""
RENEW_SECONDS = 30.0
"""How often an announcement is repeated."""
_ROOM_BELOW = 0.85  # of the limit
_STILL_LATE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Shift:
    """What a queue allows: due messages may wait for `latest_seconds`, then leave at this rate."""

    latest_seconds: int
    bytes_per_second: int


@dataclass(frozen=True, slots=True)
class Pace:
    """What is announced to the forwarders of a queue.

    Due messages wait while one of the brokers in `over` leads a partition of a target, at most as
    long as `shift` says. While there are none, what is late leaves at the rate of `shift`.
    """

    shift: Shift
    over: frozenset[int] = frozenset()


def crowded_brokers(
    watched: Watched | None, *, is_throttling: bool, before: Iterable[int] | None
) -> frozenset[int] | None:
    """The brokers without room in this pass; `before` are those of the last one, None = not known.

    `watched` None = no load is known. `is_throttling` = some client is below its contract because
    of load.
    """
    if watched is None:
        return None
    known = {
        one.broker: nic
        for one in watched
        for way, nic in one.nics.items()
        if Direction.EGRESS in way.parts and nic.known
    }
    over = {broker for broker, nic in known.items() if nic.pressure is Pressure.OVER}
    still = {
        broker
        for broker in before or ()
        if broker in known and (is_throttling or known[broker].above(_ROOM_BELOW) > 0)
    }
    return frozenset(over | still)


def waiting_helps(limits: BrokerLimits) -> bool:
    """Whether a limit can be relieved by messages that wait: one that egress counts against."""
    return any(
        one.limit_of_rates(Direction.EGRESS) is not None
        for one in (limits.everywhere, *limits.exceptions.values())
    )


def next_pace(
    announced: Pace | None,
    shift: Shift | None,
    crowded: frozenset[int] | None,
    late_seconds: float | None,
) -> Pace | None:
    """What to announce to forwarders now; None = nothing, they send what is due.

    `announced` is what they heard last, `shift` None = the queue does not allow it. `late_seconds`
    is how late its oldest message is, None = not known.
    """
    if shift is None:
        return None
    if crowded is None:
        return announced
    if crowded:
        return Pace(shift, crowded)
    is_late = late_seconds is None or late_seconds > _STILL_LATE_SECONDS
    return Pace(shift) if announced is not None and is_late else None
