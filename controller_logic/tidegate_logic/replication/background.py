"""What tiered storage and moves between log directories may use beside clients and replication.

A broker sends what it copies to remote storage through its NIC, and receives what it fetches from
there. What moves between its log directories passes no NIC, so that rate is fixed or none. A rate
that follows the load is the room of its side less what replication will take of it: replication
comes first. All rates are bytes/s.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tidegate_logic.model import BackgroundKind, BackgroundSpans, Direction, NicSpan
from tidegate_logic.replication.moves import Side
from tidegate_logic.replication.rates import (
    NicRoom,
    Priority,
    ReplicationMode,
    SideRate,
    Taking,
    Terms,
    likely,
    room_for,
)

TIERED_STORAGE = "remote.log.storage.system.enable"  # the setting of brokers that have it
DIRECTIONS = {
    BackgroundKind.REMOTE_COPY: Direction.EGRESS,
    BackgroundKind.REMOTE_FETCH: Direction.INGRESS,
}
# A segment counts at once, so bytes come in bursts; and readings go back further than a new rate.
INEFFECTIVE_AFTER_SECONDS = 120.0
_INEFFECTIVE_PERCENT = 110
_IN_USE = 0.5  # of its rate: traffic that uses less does not need more

# one kind of traffic of one broker
Flow = tuple[int, BackgroundKind]


@dataclass(frozen=True, slots=True)
class Tiering:
    """What a broker says of its tiered storage: whether it is on, and the rates that it knows."""

    is_on: bool = False
    kinds: frozenset[BackgroundKind] = frozenset()


@dataclass(frozen=True, slots=True)
class Background:
    """What a pass knows of background traffic.

    `terms` lack a kind that is Off. `brokers` are those that answered, `spans` their bytes in the
    last minute or so. A broker without tiered storage has no rate for it.
    """

    terms: Mapping[BackgroundKind, Terms] = field(default_factory=dict)
    brokers: Mapping[int, Tiering] = field(default_factory=dict)
    spans: BackgroundSpans = field(default_factory=dict)

    @property
    def flows(self) -> tuple[Flow, ...]:
        """Everything that gets a rate."""
        return tuple(
            (broker, kind)
            for broker, tiering in sorted(self.brokers.items())
            for kind in self.terms
            if kind not in DIRECTIONS or (tiering.is_on and kind in tiering.kinds)
        )

    @property
    def lacking(self) -> tuple[Flow, ...]:
        """Tiered storage whose Kafka is too old to have a rate for it (before 3.9)."""
        return tuple(
            (broker, kind)
            for broker, tiering in sorted(self.brokers.items())
            for kind in self.terms
            if kind in DIRECTIONS and tiering.is_on and kind not in tiering.kinds
        )

    def moved(self, flow: Flow, nic: NicRoom) -> float | None:
        """Bytes/s of this in the time of the NIC's mean; None = it is not known."""
        if nic.span_seconds <= 0:
            return None
        spans = self.spans.get(flow, ())
        return mean_of(spans, nic.at_seconds - nic.span_seconds, nic.at_seconds)


def mean_of(
    spans: Sequence[NicSpan], from_seconds: float = 0.0, until_seconds: float = float("inf")
) -> float | None:
    """The mean of what these spans say of that time; None = nothing."""
    parts = [
        (min(one.at_seconds, until_seconds) - max(one.at_seconds - one.seconds, from_seconds), one)
        for one in spans
    ]
    inside = [(seconds, one) for seconds, one in parts if seconds > 0]
    if not inside:
        return None
    return sum(seconds * one.bytes_per_second for seconds, one in inside) / sum(
        seconds for seconds, _ in inside
    )


def background_rates(
    given: Background,
    nics: Mapping[Side, NicRoom],
    in_force: Mapping[Flow, int],
    replication: Mapping[Side, float],
    cut_to_percent: int,
) -> dict[Flow, SideRate]:
    """The rate of everything that gets one.

    `in_force` are those of ours, `replication` what that will take on each side beyond what it has.
    """
    found: dict[Flow, SideRate] = {}
    for flow in given.flows:
        broker, kind = flow
        terms = given.terms[kind]
        if terms.mode is ReplicationMode.FIXED:
            found[flow] = SideRate(terms.maximum)
            continue
        side = Side(broker, DIRECTIONS[kind])
        nic = nics.get(side, NicRoom())
        if nic.limit is None:
            found[flow] = SideRate(None)
            continue
        moved = given.moved(flow, nic)
        room = None if moved is None else room_for(nic, moved, terms, cut_to_percent)
        floor = terms.minimum
        if moved is None or room is None:
            found[flow] = SideRate(None, floor=floor, held=True)
            continue
        room = max(0.0, room - max(0.0, replication.get(side, 0.0)))
        rate = max(floor, int(room if terms.maximum is None else min(room, terms.maximum)))
        before = in_force.get(flow, 0)
        if moved < _IN_USE * before < before < rate < 2 * before:
            rate = before  # nobody needs the difference
        found[flow] = SideRate(rate, room, moved, floor)
    return found


def takings(given: Background, rates: Mapping[Flow, SideRate]) -> Iterator[Taking]:
    """What background traffic that follows the load will take on each side."""
    for flow, rate in rates.items():
        broker, kind = flow
        if kind in DIRECTIONS and rate.rate is not None and not rate.held:
            side, terms = Side(broker, DIRECTIONS[kind]), given.terms[kind]
            newest = given.spans[flow][-1].bytes_per_second if given.spans.get(flow) else None
            yield Taking(side, terms, likely(terms, rate.rate, [newest]) - rate.flows)


def gives(
    given: Background,
    rates: Mapping[Flow, SideRate],
    in_force: Mapping[Flow, int],
) -> dict[Side, float]:
    """How much of it is slowed down on each side: below L3 all but its floor, as replication."""
    found: dict[Side, float] = {}
    for flow, rate in rates.items():
        broker, kind = flow
        terms = given.terms[kind]
        if terms.mode is not ReplicationMode.FOLLOW or rate.rate is None or flow not in in_force:
            continue
        keeps = terms.minimum if terms.priority is Priority.BELOW_L3 else rate.rate
        if rate.flows > keeps:
            side = Side(broker, DIRECTIONS[kind])
            found[side] = found.get(side, 0.0) + rate.flows - keeps
    return found


def above_since(
    given: Background,
    in_force: Mapping[Flow, int],
    before: Mapping[Flow, float],
    now_seconds: float,
) -> dict[Flow, float]:
    """Since when more passes than the rate of ours allows, over all that was read."""
    found: dict[Flow, float] = {}
    for flow, rate in in_force.items():
        mean = mean_of(given.spans.get(flow, ()))
        if mean is not None and mean * 100 > rate * _INEFFECTIVE_PERCENT:
            found[flow] = before.get(flow, now_seconds)
    return found
