"""How fast replication may go: max-min fair rates under both sides' caps, floors first, and ETAs.

A move leaves one NIC and enters another. Each side of a NIC has room for replication: its limit
less everything else that is measured there. Classes (reassignments, recovery) get theirs in the
order of their priority; within one, the flows share fairly: no flow could get more without taking
it from one that has no more. What replicas in sync have of a rate comes on top of it (see
`in_sync`): the NIC carries that anyway, and Kafka counts it first. All rates are bytes/s.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import NamedTuple

from tidegate_logic.model import Level
from tidegate_logic.replication.moves import (
    Move,
    MoveKind,
    Side,
    by_side,
    egress_of,
    ingress_of,
)
from tidegate_logic.replication.throttles import Items, is_listed

DEFAULT_MINIMUM = 1024 * 1024
# of the limit: replication stays so far below cutToPercent. At a full NIC clients get less than
# they want, which would look like room; and Kafka lets a throttled replica have a tenth more
MARGIN_PERCENT = 5
# A follower that has reached its rate waits for a second (replica.fetch.backoff.ms). With the same
# rate at both ends replicas got 85 % of it (*Lab*: 16 MB/s), so the end that has room lets more by.
_SPARE_TIMES = 1.5
_GROWTH = 2.0  # replication is believed to want so many times what it moves, its floor at least


class ReplicationMode(StrEnum):
    """What is done about one kind of replication."""

    OFF = "Off"
    FIXED = "Fixed"
    FOLLOW = "Follow"


class Priority(StrEnum):
    """Which clients take precedence over replication: this level and above, or all of them."""

    BELOW_L3 = "BelowL3"
    L3 = "L3"
    L2 = "L2"
    L1 = "L1"

    @property
    def rank(self) -> int:
        return _RANKS[self.value]


_RANKS = {"BelowL3": 0, "L3": 1, "L2": 2, "L1": 3, "L0": 4}


def rank_of(level: Level) -> int:
    """The rank of a level beside that of a priority; higher is more important."""
    return _RANKS[level.value]


@dataclass(frozen=True, slots=True)
class Terms:
    """What a policy wants of one kind of replication, per broker and direction."""

    mode: ReplicationMode = ReplicationMode.OFF
    priority: Priority = Priority.BELOW_L3
    minimum: int = DEFAULT_MINIMUM
    maximum: int | None = None


@dataclass(frozen=True, slots=True)
class NicRoom:
    """One side of a NIC as load shows it.

    `bytes_per_second` is the mean over the `span_seconds` before `at_seconds`; None = it is not
    known now, and nothing that depends on it changes. `limit` None = this side has none.
    `throttled` are the levels held below their contracts that send there, `reducible` what each
    level sends there above its throttled rates. `promised` is what clients may use beyond the mean
    soon, by raises that it does not show yet. `is_shared` = the NIC is metered in both directions
    as one, so all of this is of both sides.
    """

    limit: int | None = None
    bytes_per_second: float | None = None
    at_seconds: float = 0.0
    span_seconds: float = 0.0
    throttled: frozenset[Level] = frozenset()
    reducible: Mapping[Level, float] = field(default_factory=dict)
    promised: float = 0.0
    is_shared: bool = False


@dataclass(frozen=True, slots=True)
class Flow:
    """All moves of one kind from one broker to another."""

    source: int
    destination: int
    kind: MoveKind


@dataclass(frozen=True, slots=True)
class SideRate:
    """What replication may use of one side: `rate` None = it is not throttled there.

    `room` is what the NIC has for it (None = not known, or no limit), `flows` the sum of the flows
    that pass. A rate is never below `floor`, the sum of the smallest rates of the kinds that pass;
    where there is room it is above `flows`, since the other end limits them already. `in_sync` is
    the part of it that replicas in sync have; None = not measured yet, so it is not in the rate.
    `held` = the NIC is not known, so whatever is in force stays.
    """

    rate: int | None
    room: float | None = None
    flows: float = 0.0
    floor: int = 0
    held: bool = False
    in_sync: float | None = 0.0


@dataclass(frozen=True, slots=True)
class Rates:
    """The rate of each side that replication passes, and of each flow."""

    sides: Mapping[Side, SideRate] = field(default_factory=dict)
    flows: Mapping[Flow, float] = field(default_factory=dict)

    def through(
        self, kind: MoveKind, others: Mapping[Side, int] | None = None
    ) -> dict[Side, float]:
        """The sum of one kind's flows through each side, each within the rates of someone else."""
        found: dict[Side, float] = {}
        for flow, rate in self.flows.items():
            if flow.kind is kind:
                ends = (egress_of(flow.source), ingress_of(flow.destination))
                most = min(rate, *((others or {}).get(end, inf) for end in ends))
                for side in ends:
                    found[side] = found.get(side, 0.0) + most
        return found


def room_for(nic: NicRoom, moved: float, terms: Terms, cut_to_percent: int) -> float | None:
    """What this side has for replication of these terms; infinite without limit, None = unknown.

    Everything else is what the NIC carried less what replication `moved` in the same time (bytes/s,
    see `moved_by`), and what clients were promised.
    Replication leaves MARGIN_PERCENT of the limit free below what cuts of clients aim at. What
    lower levels send above their throttled rates counts as room, and they make it: see `leaves_of`.
    While a more important level is throttled there is none.
    """
    if nic.limit is None:
        return inf
    if nic.bytes_per_second is None:
        return None
    rank = terms.priority.rank
    if any(rank_of(level) > rank for level in nic.throttled):
        return 0.0
    most = nic.limit * (cut_to_percent - MARGIN_PERCENT) / 100
    others = nic.bytes_per_second - moved + nic.promised
    given = sum(amount for level, amount in nic.reducible.items() if rank_of(level) < rank)
    # where clients have no series they count by their quotas, which may be more than there is
    room = max(0.0, most - others) + min(given, others)
    if not nic.is_shared:
        return room
    # the other side sees the same free bytes: each takes half of what is new
    return max(0.0, moved + (room - moved) / 2)


def moved_by(nic: NicRoom, moves: Sequence[Move]) -> float:
    """Bytes/s that these moves had of what the NIC carried."""
    if nic.span_seconds <= 0 or nic.bytes_per_second is None:
        return 0.0
    arrived = sum(move.arrived(nic.at_seconds - nic.span_seconds, nic.at_seconds) for move in moves)
    return min(nic.bytes_per_second, arrived / nic.span_seconds)


class Taking(NamedTuple):
    """What one kind of traffic will take on a side beyond what it moved; less than 0 = it gives."""

    side: Side
    terms: Terms
    bytes_per_second: float


def likely(terms: Terms, may: float, speeds: Iterable[float | None]) -> float:
    """What traffic that `may` have so much will use, by its speeds: twice, or the floor if more.

    What a disk or a rate of someone else holds back cannot use room.
    """
    wants = sum(inf if speed is None else _GROWTH * speed for speed in speeds)
    return min(may, max(terms.minimum, wants))


def takings_of(
    moves: Sequence[Move],
    terms: Mapping[MoveKind, Terms],
    nics: Mapping[Side, NicRoom],
    rates: Rates,
    others: Mapping[Side, int],
    over: Sequence[Move] = (),
) -> Iterator[Taking]:
    """What replication will take where NICs are known, with `others` the rates of someone else.

    What moves that are `over` brought in the time of a NIC's mean is replication's, too.
    """
    for kind, one in terms.items():
        if one.mode is ReplicationMode.OFF:
            continue
        through = rates.through(kind, others)
        ended = by_side([move for move in over if move.kind is kind])
        for side, here in by_side([move for move in moves if move.kind is kind]).items():
            nic = nics.get(side)
            if nic is None or nic.limit is None or nic.bytes_per_second is None:
                continue
            uses = likely(one, through[side], (move.newest_speed() for move in here))
            yield Taking(side, one, uses - moved_by(nic, [*here, *ended.get(side, ())]))


def leaves_of(
    takings: Iterable[Taking], nics: Mapping[Side, NicRoom], cut_to_percent: int
) -> dict[Side, dict[Level, float]]:
    """What is left on each side to the levels below those takings, above their throttled rates.

    Each level's amount is what it and those below it may send there together. All of it is a mean
    over the same seconds, so it does not change because lower levels give way. A level is there as
    long as something more important passes that follows the load.
    """
    found: dict[Side, dict[Level, float]] = {}
    for side, terms, takes in takings:
        nic = nics.get(side, NicRoom())
        below = [level for level in Level if rank_of(level) < terms.priority.rank]
        if terms.mode is not ReplicationMode.FOLLOW or not below or nic.limit is None:
            continue
        leaves = found.setdefault(side, {})
        for level in below:
            if level not in leaves:
                lower = [given for low, given in nic.reducible.items() if low >= level]
                aim = nic.limit * (cut_to_percent - MARGIN_PERCENT) / 100
                leaves[level] = aim - (nic.bytes_per_second or 0.0) + sum(lower)
            leaves[level] -= takes
    return found


def fair_rates(
    moves: Sequence[Move],
    terms: Mapping[MoveKind, Terms],
    room: Callable[[Side, Sequence[Move], Terms], float | None],
    in_force: Mapping[Side, int],
    in_sync: Mapping[Side, float | None],
) -> Rates:
    """The rates of all sides that throttled moves pass.

    `room` gives what a side has for a kind (see `room_for`); where it is not known, the rate that
    is in force is the cap, and stays. The more important kind is served first; what it takes is
    not there for the other, except the other's floor. `in_sync` is what replicas in sync have of
    each side's rate; it is added wherever a kind follows the load.
    """
    passing = by_side([move for move in moves if terms[move.kind].mode is not ReplicationMode.OFF])
    taken: dict[Side, float] = {}
    flows: dict[Flow, float] = {}
    floors: dict[Side, int] = {}
    rooms: dict[Side, float | None] = {}
    held: set[Side] = set()
    for kind in sorted(MoveKind, key=lambda one: -terms[one].priority.rank):
        one = terms[kind]
        if one.mode is ReplicationMode.OFF:
            continue
        mine = {
            side: here
            for side, all_here in passing.items()
            if (here := [move for move in all_here if move.kind is kind])
        }
        caps: dict[Side, float] = {}
        for side in mine:
            found = inf if one.mode is ReplicationMode.FIXED else room(side, passing[side], one)
            if found is None:
                held.add(side)
                known = float(in_force.get(side, 0)) - (in_sync.get(side) or 0.0)
                caps[side] = max(known - taken.get(side, 0.0), one.minimum)
            else:
                maximum = inf if one.maximum is None else float(one.maximum)
                left = found - taken.get(side, 0.0)
                caps[side] = max(float(min(one.minimum, maximum)), min(left, maximum))
            floors[side] = floors.get(side, 0) + _floor(one)
            rooms[side] = _smallest(rooms.get(side), found)
        ends = [(egress_of(flow.source), ingress_of(flow.destination)) for flow in _flows(mine)]
        shares = max_min(ends, caps)
        for (source, destination), rate in shares.items():
            flows[Flow(source.broker, destination.broker, kind)] = rate
            for side in (source, destination):
                taken[side] = taken.get(side, 0.0) + rate
    fixed = _fixed_rates(passing, terms)
    # where both kinds pass somewhere, the rates of all sides are what keeps them apart
    kinds = {move.kind for here in passing.values() for move in here}
    most = _most_of(terms[kinds.pop()]) if len(kinds) == 1 else 0.0
    following = {
        side
        for side, here in passing.items()
        if any(terms[move.kind].mode is ReplicationMode.FOLLOW for move in here)
    }
    return Rates(
        {
            side: _side_rate(
                taken.get(side, 0.0),
                floors.get(side, 0),
                rooms.get(side),
                held=side in held,
                fixed=fixed.get(side, 0),
                most=most,
                # a fixed rate is what it says
                in_sync=in_sync.get(side, 0.0) if side in following else 0.0,
            )
            for side in passing
        },
        flows,
    )


def _flows(passing: Mapping[Side, Sequence[Move]]) -> Iterable[Flow]:
    """The flows of these moves, each once."""
    return dict.fromkeys(
        Flow(move.source, move.destination, move.kind)
        for here in passing.values()
        for move in here
        if move.source is not None
    )


def _floor(terms: Terms) -> int:
    maximum = terms.maximum
    return terms.minimum if maximum is None else min(terms.minimum, maximum)


def _most_of(terms: Terms) -> float:
    """What a side with room may let by beyond its flows; a fixed rate is what it says."""
    if terms.mode is ReplicationMode.FIXED:
        return 0.0
    return inf if terms.maximum is None else float(terms.maximum)


def _smallest(known: float | None, found: float | None) -> float | None:
    if known is None or found is None:
        return found if known is None else known
    return min(known, found)


def _fixed_rates(
    passing: Mapping[Side, Sequence[Move]], terms: Mapping[MoveKind, Terms]
) -> dict[Side, int]:
    """Rates that are to be in force whatever the flows make of them."""
    fixed: dict[Side, int] = {}
    for side, here in passing.items():
        for kind in {move.kind for move in here}:
            one = terms[kind]
            if one.mode is ReplicationMode.FIXED and one.maximum is not None:
                fixed[side] = fixed.get(side, 0) + one.maximum
    return fixed


def _side_rate(
    taken: float,
    floor: int,
    room: float | None,
    *,
    held: bool,
    fixed: int,
    most: float,
    in_sync: float | None,
) -> SideRate:
    finite_room = None if room in (None, inf) else room
    if taken == inf:
        return SideRate(None, finite_room, inf, floor, held, in_sync)
    spare = min(_SPARE_TIMES * taken, most, taken if room is None else room)
    rate = max(floor, fixed, int(max(taken, spare))) + int(in_sync or 0.0)
    return SideRate(rate, finite_room, taken, floor, held, in_sync)


def max_min(
    flows: Iterable[tuple[Side, Side]], caps: Mapping[Side, float]
) -> dict[tuple[Side, Side], float]:
    """Max-min fair rates of flows that each pass two sides with caps.

    All grow together; where a side is full, the flows that pass it stop. A flow may be given more
    than once, and counts once.
    """
    growing = dict.fromkeys(flows)
    rates: dict[tuple[Side, Side], float] = {}
    left = dict(caps)
    through: dict[Side, set[tuple[Side, Side]]] = {}
    for flow in growing:
        for side in flow:
            through.setdefault(side, set()).add(flow)
    while growing:
        side = min(
            (one for one in through if through[one]),
            key=lambda one: left.get(one, inf) / len(through[one]),
        )
        share = max(0.0, left.get(side, inf) / len(through[side]))
        for flow in list(through[side]):
            rates[flow] = share
            growing.pop(flow)
            for end in flow:
                through[end].discard(flow)
                if end in left and share != inf:
                    left[end] -= share
    return rates


# --- how long it takes ---


@dataclass(frozen=True, slots=True)
class Stall:
    """A side where what is being filled never catches up.

    `inflow` is what the replicas that are being filled have to receive beyond, `in_sync` what
    replicas in sync have of the rate. `arrives` is what came in the last minute, where that is how
    it is known: by rate and inflow alone there would be enough.
    """

    side: Side
    rate: int
    inflow: float
    in_sync: float = 0.0
    arrives: float | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """How long moves still take, and which side decides it.

    `seconds` None = not known: a size is missing, a broker is down, or a side stalls.
    """

    seconds: float | None
    bottleneck: Side | None
    stalls: tuple[Stall, ...] = ()


@dataclass(frozen=True, slots=True)
class Throttled:
    """The throttles in force: the rate of each side, the lists, what replicas in sync have."""

    rates: Mapping[Side, int] = field(default_factory=dict)
    lists: Items = field(default_factory=dict)
    in_sync: Mapping[Side, float] = field(default_factory=dict)

    def holds(self, side: Side, move: Move) -> bool:
        """Whether this side holds that move to its rate."""
        return side in self.rates and is_listed(self.lists, side, move.partition)


_MEASURED_SHARES = (0.5, 1.1)  # of a rate: what is measured is believed within these


def estimate(kind: MoveKind, moves: Sequence[Move], throttled: Throttled) -> Estimate:
    """When the moves of this kind end: for each side what is left, by what it moves beyond what
    comes in.

    The slowest side decides. A side's speed is its rate less what replicas in sync have of it,
    corrected by what was measured in the last minute; where a move has no rate on either side, it
    is what was measured. `moves` are those of both kinds: they share a side's one rate.
    """
    mine = [move for move in moves if move.kind is kind]
    if not mine:
        return Estimate(0.0, None)
    passing = by_side(moves)
    stalls: list[Stall] = []
    slowest: tuple[float, Side] | None = None
    is_known = all(move.goes_on and move.bytes_left is not None for move in mine)
    for side, here in sorted(by_side(mine).items()):
        held = [move for move in passing[side] if throttled.holds(side, move)]
        rate: float | None = None
        if any(move.kind is kind for move in held):
            if (stall := _stall(side, held, throttled)) is not None:
                stalls.append(stall)
            rate = max(0.0, throttled.rates[side] - throttled.in_sync.get(side, 0.0))
        elif all(any(throttled.holds(end, move) for end in move.sides) for move in here):
            continue
        left = sum(move.bytes_left or 0 for move in here)
        inflow = sum(move.inflow() or 0.0 for move in here)
        speed = _speed(here, rate)
        if speed is None or (left and speed <= inflow):
            is_known = False
            continue
        seconds = left / (speed - inflow) if left else 0.0
        if slowest is None or seconds > slowest[0]:
            slowest = (seconds, side)
    bottleneck = None if slowest is None else slowest[1]
    if stalls or not is_known or slowest is None:
        return Estimate(None, bottleneck, tuple(stalls))
    return Estimate(slowest[0], bottleneck)


def _stall(side: Side, held: Sequence[Move], throttled: Throttled) -> Stall | None:
    """Whether the moves that this side holds never catch up, by its rate or as it was measured."""
    if not any(move.bytes_left for move in held):
        return None
    rate, in_sync = throttled.rates[side], throttled.in_sync.get(side, 0.0)
    inflow = sum(move.inflow() or 0.0 for move in held)
    if rate <= inflow + in_sync:
        return Stall(side, rate, inflow, in_sync)
    if all(move.falls_behind for move in held):
        return Stall(side, rate, inflow, in_sync, sum(move.speed() or 0.0 for move in held))
    return None


def _speed(moves: Sequence[Move], rate: float | None) -> float | None:
    """Bytes/s of these moves through one side; None = there is no rate, and nothing measured."""
    speeds = [speed for move in moves if (speed := move.speed()) is not None]
    measured = sum(speeds) if len(speeds) == len(moves) else None
    if rate is None or measured is None:
        return measured if rate is None else rate
    least, most = _MEASURED_SHARES
    return min(max(measured, least * rate), most * rate)
