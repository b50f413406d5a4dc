"""The one entry of this package: what replication may use now, and which throttles that takes.

The order of a pass:

    1. moves       replicas that are being filled, what is left, how fast it goes       moves
    2. rates       fair rates under the room of both sides of each move, floors first,  rates
                   and on top what replicas in sync have of them                        in_sync
    3. background  rates of tiered storage and log directories, of what that leaves     background
       throttles   lists and rates from that; small and early changes are left out      throttles
    4. leftovers   what a dead tool left behind, removed where the policy asks for it   throttles
    5. report      ETA and bottleneck, stalls, what someone else set

Nothing is written on incomplete knowledge: without an answer from the brokers everything stays,
and where a NIC is not known its side keeps the rate that it has. Without moves, or with both kinds
Off, everything of ours is taken away. The same input and memory give the same decision, and a
decision whose changes were all applied is followed by one without any.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from tidegate_logic.model import (
    Level,
    ReplicationBeside,
    ReplicationOnNics,
)
from tidegate_logic.replication.background import (
    DIRECTIONS,
    INEFFECTIVE_AFTER_SECONDS,
    Background,
    above_since,
    background_rates,
    gives,
    takings,
)
from tidegate_logic.replication.background import Flow as BackgroundFlow
from tidegate_logic.replication.in_sync import (
    in_sync_by_side,
    known_rates,
    rate_if_leading,
    rate_of,
)
from tidegate_logic.replication.moves import (
    KEEP_SECONDS,
    ClusterReplication,
    Move,
    MoveKind,
    Progress,
    Side,
    by_side,
    bytes_left,
    egress_of,
    lately_over,
    moves_of,
)
from tidegate_logic.replication.rates import (
    Estimate,
    NicRoom,
    Priority,
    Rates,
    ReplicationMode,
    SideRate,
    Stall,
    Terms,
    Throttled,
    estimate,
    fair_rates,
    leaves_of,
    moved_by,
    rank_of,
    room_for,
    takings_of,
)
from tidegate_logic.replication.throttles import (
    BACKGROUND_KEYS,
    EVERY_REPLICA,
    RATE_KEYS,
    ConfigChange,
    ConfigPlan,
    Configs,
    Items,
    OthersThrottle,
    Resource,
    ResourceKind,
    broker_resource,
    is_lasting,
    items_of,
    lists_after,
    lists_of,
    others_of,
    plan_configs,
    possible_sources,
    removal_of,
    side_resource,
    topic_resource,
    wanted_lists,
    with_items,
)

LEAST_CHANGE_PERCENT = 10
LEAST_DISTANCE_SECONDS = 15.0
LEFTOVER_AFTER_SECONDS = 300.0  # a tool sets its throttle before it begins
LEFTOVER_LOOKS_SECONDS = 150.0  # what nobody looked at for longer may be another tool's by now
MOST_REPAIRS = 2
SETTLE_SECONDS = 15.0  # a broker may show a change later than the controller took it

_OFF = {kind: Terms() for kind in MoveKind}
_NO_ROOM = NicRoom()


@dataclass(frozen=True, slots=True)
class ReplicationInput:
    """Everything that one pass knows of replication.

    `now_seconds` is on a clock that never goes back, and on no other one: readings have their own.
    `seen` None = the brokers did not answer in full. `nics` lacks a side that has no limit and
    nothing known. `configs` are the throttles of the resources that `resources_of` names;
    `scanned` those of the whole cluster, None = not looked at in this pass. `background` is what
    is wanted and known beside replication.
    """

    now_seconds: float
    terms: Mapping[MoveKind, Terms] = field(default_factory=lambda: _OFF)
    cut_to_percent: int = 97
    seen: ClusterReplication | None = None
    nics: Mapping[Side, NicRoom] = field(default_factory=dict)
    configs: Configs = field(default_factory=dict)
    record: Items = field(default_factory=dict)
    clean_up_leftovers: bool = False
    scanned: Configs | None = None
    background: Background = field(default_factory=Background)


_Given = tuple[float, Mapping[Level, float]]


@dataclass(frozen=True, slots=True)
class ReplicationMemory:
    """What one pass hands to the next; if it is lost, only speeds and distances begin again.

    `written_at_seconds` is when each resource was written last, `seen_ours` what of ours was there
    in the last pass, `removed` how often someone took it away while it was wanted, `leftovers`
    each value of someone else: its text, since when it has been there, and when that was seen
    last. `absent` is since when an item of the record has not been there. `given` is what each
    level sent above its throttled rates in the last minutes, with the time of each reading.
    `moves` are those of the last pass, `over` those that have ended lately. `unmeasured` are the
    sides whose rate was set before it was known what replicas in sync have of it. `reset` is how
    often someone took a background rate of ours away, `above` since when one does not hold.
    """

    progress: Progress = field(default_factory=dict)
    written_at_seconds: Mapping[Resource, float] = field(default_factory=dict)
    seen_ours: Items = field(default_factory=dict)
    removed: Mapping[Resource, int] = field(default_factory=dict)
    leftovers: Mapping[tuple[Resource, str], tuple[str, float, float]] = field(default_factory=dict)
    absent: Mapping[tuple[Resource, str, str], float] = field(default_factory=dict)
    given: Mapping[Side, tuple[_Given, ...]] = field(default_factory=dict)
    moves: tuple[Move, ...] = ()
    over: tuple[Move, ...] = ()
    unmeasured: frozenset[Side] = frozenset()
    reset: Mapping[BackgroundFlow, int] = field(default_factory=dict)
    above: Mapping[BackgroundFlow, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BackgroundDecision:
    """What one pass decided on background traffic.

    `rates` is what each is to have, `in_force` what it will have of us. `lacking` are brokers whose
    Kafka has no such rate, `unmeasured` those whose bytes are not known, so theirs stay;
    `left_alone` where someone keeps taking ours away. In `ineffective` more passes than allowed.
    """

    rates: Mapping[BackgroundFlow, SideRate] = field(default_factory=dict)
    in_force: Mapping[BackgroundFlow, int] = field(default_factory=dict)
    others: tuple[OthersThrottle, ...] = ()
    lacking: tuple[BackgroundFlow, ...] = ()
    left_alone: tuple[BackgroundFlow, ...] = ()
    ineffective: tuple[BackgroundFlow, ...] = ()

    @property
    def unmeasured(self) -> tuple[BackgroundFlow, ...]:
        return tuple(flow for flow, rate in self.rates.items() if rate.held)


@dataclass(frozen=True, slots=True)
class ReplicationDecision:
    """What one pass decided; every number on replication that a user sees comes from here.

    `changes` are made after `record` was written. `in_force` is the rate of each throttled side as
    it will be then. `beside` is what all of it means for clients, for the quotas of the next pass.
    `left_alone` are resources where someone keeps removing ours; `unknown` those of ours of which
    nothing is known, because their broker is down. `held` says why nothing was decided.
    """

    moves: tuple[Move, ...] = ()
    rates: Rates = field(default_factory=Rates)
    in_force: Mapping[Side, int] = field(default_factory=dict)
    estimates: Mapping[MoveKind, Estimate] = field(default_factory=dict)
    changes: tuple[ConfigChange, ...] = ()
    record: Items = field(default_factory=dict)
    others: tuple[OthersThrottle, ...] = ()
    leftovers: tuple[OthersThrottle, ...] = ()
    removed_leftovers: tuple[OthersThrottle, ...] = ()
    left_alone: tuple[Resource, ...] = ()
    unknown: tuple[Resource, ...] = ()
    beside: ReplicationOnNics = field(default_factory=dict)
    held: str = ""
    background: BackgroundDecision = field(default_factory=BackgroundDecision)

    def of(self, kind: MoveKind) -> tuple[Move, ...]:
        return tuple([move for move in self.moves if move.kind is kind])

    def bytes_left(self, kind: MoveKind) -> int | None:
        return bytes_left(self.of(kind))

    @property
    def stalls(self) -> tuple[Stall, ...]:
        """Every side of a NIC where replication never catches up, each once."""
        found = [stall for one in self.estimates.values() for stall in one.stalls]
        return tuple({stall.side: stall for stall in found}.values())

    @property
    def throttles_replication(self) -> bool:
        """Whether a list or rate of replication is ours, or may be."""
        return any(not is_lasting(key) for keys in self.record.values() for key in keys)

    @property
    def is_busy(self) -> bool:
        """Whether anything of ours is set for a while only, or on its way out."""
        is_leaving = bool(self.record) and not self.background.rates
        return bool(self.moves) or self.throttles_replication or is_leaving

    @property
    def is_finished(self) -> bool:
        """Nothing of ours is left, or may be."""
        return not self.held and not self.changes and not self.record


def resources_of(
    seen: ClusterReplication | None, record: Items, brokers: Iterable[int] = ()
) -> frozenset[Resource]:
    """The brokers and topics whose throttles a pass has to know; `brokers` in any case."""
    found = {*record, *map(broker_resource, brokers)}
    for partition in () if seen is None else seen.partitions:
        found.add(topic_resource(partition.topic))
        found.update(broker_resource(broker) for broker in partition.replicas)
    return frozenset(found)


def decide_replication(
    given: ReplicationInput, memory: ReplicationMemory
) -> tuple[ReplicationDecision, ReplicationMemory]:
    """Decide what to throttle; the module's docstring has the order."""
    if given.seen is None:
        return (
            ReplicationDecision(
                record=given.record,
                held="the brokers did not answer in full; every throttle stays as it is",
            ),
            memory,
        )
    nics, levels_gave = _over_the_same_time(given.nics, memory)
    moves, progress = moves_of(given.seen, memory.progress)
    over = lately_over(
        memory.over,
        memory.moves,
        moves,
        now_seconds=given.seen.read_at_seconds,
        since_seconds=min(
            [nic.at_seconds - nic.span_seconds for nic in nics.values() if nic.span_seconds > 0],
            default=given.seen.read_at_seconds,
        ),
    )
    given = replace(given, nics=nics)
    ours = _ours(given.configs, given.record)
    removed = _removed_by_others(given, moves, ours, memory)
    rates = _rates(given, moves, over, ours)
    wanted = _wanted(given, moves, rates, ours, memory)
    left_alone = tuple(sorted(one for one, times in removed.items() if times > MOST_REPAIRS))
    reset = _reset_by_others(given, ours, memory)
    behind = _background_rates(given, moves, over, rates, ours)
    plan = plan_configs(
        with_items(
            {one: keys for one, keys in wanted.items() if one not in left_alone},
            _wanted_in_background(given, behind, reset, ours, memory),
        ),
        given.configs,
        given.record,
    )
    above = above_since(
        given.background, _ours_in_background(given, ours), memory.above, given.now_seconds
    )
    ineffective = tuple(
        flow
        for flow, since in above.items()
        if given.now_seconds - since >= INEFFECTIVE_AFTER_SECONDS
    )
    # clients are not spared for what a rate does not hold back
    obeyed = {flow: rate for flow, rate in behind.items() if flow not in ineffective}
    in_force = _in_force(given.configs, plan)
    record, absent = _settled(plan.record, given, memory)
    found, leftovers = _leftovers(given, memory)
    due = _due(found, leftovers, given)
    lists = lists_after(given.configs, plan.changes)
    throttled = Throttled(in_force, lists, known_rates(in_sync_by_side(moves, lists)))
    removals = tuple(removal_of(one, given.scanned or {}) for one in due)
    written = {change.resource: given.now_seconds for change in plan.changes}
    decision = ReplicationDecision(
        moves,
        rates,
        in_force,
        {kind: estimate(kind, moves, throttled) for kind in MoveKind},
        (*plan.changes, *removals),
        record,
        tuple(one for one in plan.others if not is_lasting(one.key)),
        found,
        due,
        left_alone,
        plan.unknown,
        _beside(given, moves, over, rates, obeyed, ours, _rates_of_others(plan)),
        background=BackgroundDecision(
            behind,
            _background_in_force(behind, given.configs, plan),
            tuple(one for one in plan.others if is_lasting(one.key)),
            given.background.lacking,
            tuple(flow for flow, times in reset.items() if times > MOST_REPAIRS),
            ineffective,
        ),
    )
    kept = {
        resource: at_seconds
        for resource, at_seconds in memory.written_at_seconds.items()
        if given.now_seconds - at_seconds < LEAST_DISTANCE_SECONDS
    }
    return decision, ReplicationMemory(
        progress,
        {**kept, **written},
        ours,
        removed,
        leftovers,
        absent,
        levels_gave,
        moves,
        over,
        frozenset(side for side, rate in rates.sides.items() if rate.in_sync is None),
        reset,
        above,
    )


def not_applied(memory: ReplicationMemory, resources: Iterable[Resource]) -> ReplicationMemory:
    """The memory after changes of these resources failed: they may be tried again at once."""
    failed = set(resources)
    return replace(
        memory,
        written_at_seconds={
            one: at for one, at in memory.written_at_seconds.items() if one not in failed
        },
    )


def _over_the_same_time(
    nics: Mapping[Side, NicRoom], memory: ReplicationMemory
) -> tuple[dict[Side, NicRoom], dict[Side, tuple[_Given, ...]]]:
    """The NICs with what lower levels may give as a mean over the time of the NIC's own mean.

    What they send falls from reading to reading while they give way, and the NIC's mean follows
    later: between the two, room would seem to go.
    """
    found: dict[Side, NicRoom] = {}
    remembered: dict[Side, tuple[_Given, ...]] = {}
    for side, nic in nics.items():
        known = [
            one for one in memory.given.get(side, ()) if one[0] > nic.at_seconds - KEEP_SECONDS
        ]
        if nic.bytes_per_second is not None and (not known or known[-1][0] < nic.at_seconds):
            known.append((nic.at_seconds, nic.reducible))
        inside = [given for at, given in known if at > nic.at_seconds - nic.span_seconds]
        if nic.reducible and inside:
            mean = {
                level: sum(one.get(level, 0.0) for one in inside) / len(inside)
                for level in nic.reducible
            }
            nic = replace(nic, reducible=mean)
        found[side] = nic
        if any(given for _, given in known):
            remembered[side] = tuple(known)
    return found, remembered


def _ours(configs: Configs, record: Items) -> Items:
    """What the record has and what is really there; all of it where nothing is known."""
    found: dict[Resource, Mapping[str, frozenset[str]]] = {}
    for resource, keys in record.items():
        values = configs.get(resource)
        if values is None:
            found[resource] = keys
            continue
        there = {
            key: items & items_of(key, values[key]) for key, items in keys.items() if key in values
        }
        if any(there.values()):
            found[resource] = there
    return found


def _settled(
    planned: Items, given: ReplicationInput, memory: ReplicationMemory
) -> tuple[Items, Mapping[tuple[Resource, str, str], float]]:
    """The record, with what was in it until lately: a change of it may still be on its way."""
    record = {one: dict(keys) for one, keys in planned.items()}
    absent: dict[tuple[Resource, str, str], float] = {}
    for resource, keys in given.record.items():
        for key, items in keys.items():
            for item in items - planned.get(resource, {}).get(key, frozenset()):
                since = memory.absent.get((resource, key, item), given.now_seconds)
                if given.now_seconds - since >= SETTLE_SECONDS:
                    continue
                absent[resource, key, item] = since
                kept = record.setdefault(resource, {})
                kept[key] = kept.get(key, frozenset()) | {item}
    return record, absent


def _rate_of_ours(ours: Items, configs: Configs, resource: Resource, key: str) -> int | None:
    texts = ours.get(resource, {}).get(key, frozenset())
    present = configs.get(resource, {}).get(key)
    return int(present) if present in texts and present is not None else None


def _rates(
    given: ReplicationInput, moves: Sequence[Move], over: Sequence[Move], ours: Items
) -> Rates:
    in_force = {
        side: rate
        for move in moves
        if move.goes_on
        for side in move.sides
        if (rate := _rate_of_ours(ours, given.configs, *side_resource(side))) is not None
    }

    ended = by_side(over)

    def room(side: Side, here: Sequence[Move], terms: Terms) -> float | None:
        nic = given.nics.get(side, _NO_ROOM)
        moved = moved_by(nic, [*here, *ended.get(side, ())])
        return room_for(nic, moved, terms, given.cut_to_percent)

    mine = [move for move in moves if given.terms[move.kind].mode is not ReplicationMode.OFF]
    lists = with_items(lists_of(given.configs), wanted_lists(mine))
    in_sync: dict[Side, float | None] = {}
    for side, listed in in_sync_by_side(moves, lists).items():
        nic = given.nics.get(side, _NO_ROOM)
        is_read = nic.bytes_per_second is not None and nic.span_seconds > 0
        # over the same time as the NIC's own mean: a part of that is what they had
        in_sync[side] = rate_of(listed, nic.at_seconds - nic.span_seconds if is_read else None)
    return fair_rates(moves, given.terms, room, in_force, in_sync)


def _wanted(
    given: ReplicationInput,
    moves: Sequence[Move],
    rates: Rates,
    ours: Items,
    memory: ReplicationMemory,
) -> Items:
    """Lists and rates, with the small and early changes left out."""
    mine = [move for move in moves if given.terms[move.kind].mode is not ReplicationMode.OFF]
    rank = min([given.terms[move.kind].priority.rank for move in mine], default=0)
    wanted: dict[Resource, dict[str, frozenset[str]]] = {}
    throttled: set[Side] = set()
    for side, rate in {**_may_lead(given, mine, rates), **rates.sides}.items():
        resource, key = side_resource(side)
        before = _rate_of_ours(ours, given.configs, resource, key)
        text = _rate_text(given, side, before, rate, memory, rank)
        if text is not None:
            wanted.setdefault(resource, {})[key] = frozenset({text})
            throttled.add(side)
    # a list without a rate on either side throttles nothing
    listed = [
        move for move in mine if not move.goes_on or any(side in throttled for side in move.sides)
    ]
    for resource, lists in wanted_lists(listed).items():
        kept = ours.get(resource, {}) if _is_early(given, resource, memory) else {}
        wanted[resource] = {key: items | kept.get(key, frozenset()) for key, items in lists.items()}
    return wanted


def _may_lead(given: ReplicationInput, moves: Sequence[Move], rates: Rates) -> dict[Side, SideRate]:
    """Sides that no move passes now, and might when the leader changes."""
    found: dict[Side, SideRate] = {}
    for kind, terms in given.terms.items():
        of_kind = [move for move in moves if move.kind is kind]
        for broker in possible_sources(of_kind):
            side = egress_of(broker)
            if side in rates.sides:
                continue
            room: float | None = inf
            if terms.mode is ReplicationMode.FOLLOW:
                room = room_for(given.nics.get(side, _NO_ROOM), 0.0, terms, given.cut_to_percent)
            most = inf if terms.maximum is None else terms.maximum
            cap = most if room is None else min(room, most)
            floor = int(min(terms.minimum, most))
            least = floor
            if terms.mode is ReplicationMode.FOLLOW:
                might = [move for move in of_kind if broker in possible_sources([move])]
                least += int(rate_if_leading(might))
            rate = None if cap == inf else max(least, int(cap))
            before = found.get(side)
            if before is not None and before.rate is not None and rate is not None:
                rate = max(rate, before.rate)
            found[side] = SideRate(rate, floor=floor, held=room is None)
    return found


def _rate_text(
    given: ReplicationInput,
    side: Side,
    before: int | None,
    rate: SideRate,
    memory: ReplicationMemory,
    rank: int,
) -> str | None:
    """The rate to have in force; what is there where a change would be small, early or blind.

    `before` is the rate of ours that is there, `rank` that of the lowest priority of all moves.
    """
    if rate.held:
        return None if before is None else str(before)
    if rate.rate is None or before is None:
        return None if rate.rate is None else str(rate.rate)
    if rate.in_sync is None and rate.rate < before and not _is_over(given, side):
        return str(before)  # what replicas in sync have of it is not known yet
    # of what is left for replicas that are being filled
    is_small = abs(rate.rate - before) * 100 < LEAST_CHANGE_PERCENT * (before - (rate.in_sync or 0))
    # over the limit clients get less than they want: every lowering counts, unless they give way
    is_small &= rate.rate >= before or not _is_over(given, side) or _give_way(given, side, rank)
    if is_small and before >= rate.floor:
        return str(before)
    is_corrected = side in memory.unmeasured and rate.in_sync is not None and rate.rate > before
    if not is_corrected and _is_early(given, side_resource(side)[0], memory):
        return str(before)
    return str(rate.rate)


def _is_over(given: ReplicationInput, side: Side) -> bool:
    nic = given.nics.get(side, _NO_ROOM)
    return (
        nic.limit is not None
        and nic.bytes_per_second is not None
        and nic.bytes_per_second * 100 > nic.limit * given.cut_to_percent
    )


def _give_way(given: ReplicationInput, side: Side, rank: int) -> bool:
    """Whether levels below this priority still have something to give there."""
    reducible = given.nics.get(side, _NO_ROOM).reducible
    return any(amount > 0 for level, amount in reducible.items() if rank_of(level) < rank)


def _is_early(given: ReplicationInput, resource: Resource, memory: ReplicationMemory) -> bool:
    at_seconds = memory.written_at_seconds.get(resource)
    return at_seconds is not None and given.now_seconds - at_seconds < LEAST_DISTANCE_SECONDS


def _removed_by_others(
    given: ReplicationInput, moves: Sequence[Move], ours: Items, memory: ReplicationMemory
) -> dict[Resource, int]:
    """How often someone took ours away from a resource that replication still passes."""
    passed = resources_of(given.seen, {}) if moves else frozenset()
    removed = {one: times for one, times in memory.removed.items() if one in passed}
    for resource, keys in memory.seen_ours.items():
        if resource not in passed or resource not in given.configs:
            continue
        was = {
            key
            for key, items in keys.items()
            if items and not is_lasting(key) and not ours.get(resource, {}).get(key)
        }
        ours_changed = resource in memory.written_at_seconds  # we may have removed it ourselves
        if was and not ours_changed:
            removed[resource] = removed.get(resource, 0) + 1
    return removed


def _background_rates(
    given: ReplicationInput,
    moves: Sequence[Move],
    over: Sequence[Move],
    rates: Rates,
    ours: Items,
) -> dict[BackgroundFlow, SideRate]:
    """The rates of background traffic, of what replication leaves."""
    replication: dict[Side, float] = {}
    for one in takings_of(moves, given.terms, given.nics, rates, {}, over):
        replication[one.side] = replication.get(one.side, 0.0) + one.bytes_per_second
    return background_rates(
        given.background,
        given.nics,
        _ours_in_background(given, ours),
        replication,
        given.cut_to_percent,
    )


def _ours_in_background(given: ReplicationInput, ours: Items) -> dict[BackgroundFlow, int]:
    return {
        flow: rate
        for flow in given.background.flows
        if (rate := _rate_of_ours(ours, given.configs, *_setting_of(flow))) is not None
    }


def _setting_of(flow: BackgroundFlow) -> tuple[Resource, str]:
    """Where the rate of background traffic is set."""
    return broker_resource(flow[0]), BACKGROUND_KEYS[flow[1]]


def _reset_by_others(
    given: ReplicationInput, ours: Items, memory: ReplicationMemory
) -> dict[BackgroundFlow, int]:
    """How often someone took a rate of ours away that is wanted."""
    found: dict[BackgroundFlow, int] = {}
    for flow in given.background.flows:
        resource, key = _setting_of(flow)
        was = memory.seen_ours.get(resource, {}).get(key)
        is_gone = resource in given.configs and was and not ours.get(resource, {}).get(key)
        times = memory.reset.get(flow, 0)
        if is_gone and resource not in memory.written_at_seconds:  # else it may be on its way
            times += 1
        if times:
            found[flow] = times
    return found


def _wanted_in_background(
    given: ReplicationInput,
    rates: Mapping[BackgroundFlow, SideRate],
    reset: Mapping[BackgroundFlow, int],
    ours: Items,
    memory: ReplicationMemory,
) -> Items:
    """The settings to have; what is not known, or not to be had, stays as it is."""
    wanted: dict[Resource, dict[str, frozenset[str]]] = {}
    unknown = {(broker, kind) for broker in _silent(given) for kind in given.background.terms}
    for flow in {*rates, *unknown}:
        resource, key = _setting_of(flow)
        rate = rates.get(flow, SideRate(None, held=True))
        text: str | None
        if rate.held or reset.get(flow, 0) > MOST_REPAIRS:
            text = given.configs.get(resource, {}).get(key)
        else:
            before = _rate_of_ours(ours, given.configs, resource, key)
            terms = given.background.terms[flow[1]]
            if terms.mode is ReplicationMode.FIXED:
                text = str(rate.rate)
            else:
                side = Side(flow[0], DIRECTIONS[flow[1]])
                text = _rate_text(given, side, before, rate, memory, terms.priority.rank)
        if text is not None:
            wanted.setdefault(resource, {})[key] = frozenset({text})
    return wanted


def _silent(given: ReplicationInput) -> frozenset[int]:
    """Live brokers that did not say whether they have tiered storage."""
    alive = frozenset() if given.seen is None else given.seen.brokers
    return alive - given.background.brokers.keys()


def _background_in_force(
    rates: Mapping[BackgroundFlow, SideRate], configs: Configs, plan: ConfigPlan
) -> dict[BackgroundFlow, int]:
    """The rate of all of it once the plan's changes are made, no matter who set it."""
    texts = _texts_after(configs, plan)
    return {
        flow: int(text) for flow in rates if (text := texts.get(_setting_of(flow), "")).isdecimal()
    }


def _in_force(configs: Configs, plan: ConfigPlan) -> dict[Side, int]:
    """The rate of each side once the plan's changes are made, no matter who set it."""
    return {
        side: int(text)
        for (resource, key), text in _texts_after(configs, plan).items()
        for side in (Side(int(resource.name), direction) for direction in RATE_KEYS)
        if side_resource(side) == (resource, key) and text.isdecimal()
    }


def _texts_after(configs: Configs, plan: ConfigPlan) -> dict[tuple[Resource, str], str]:
    """The settings of brokers once the plan's changes are made."""
    texts: dict[tuple[Resource, str], str] = {
        (resource, key): text
        for resource, values in configs.items()
        if resource.kind is ResourceKind.BROKER
        for key, text in values.items()
    }
    for change in plan.changes:
        if change.resource.kind is ResourceKind.BROKER:
            if change.value:
                texts[change.resource, change.key] = change.value
            else:
                texts.pop((change.resource, change.key), None)
    return texts


def _rates_of_others(plan: ConfigPlan) -> dict[Side, int]:
    """The rates that someone else set where ours were wanted."""
    return {
        Side(int(one.resource.name), direction): int(one.value)
        for one in plan.others
        for direction, key in RATE_KEYS.items()
        if one.key == key and one.value.isdecimal()
    }


def _beside(
    given: ReplicationInput,
    moves: Sequence[Move],
    over: Sequence[Move],
    rates: Rates,
    behind: Mapping[BackgroundFlow, SideRate],
    ours: Items,
    others: Mapping[Side, int],
) -> ReplicationOnNics:
    """What replication and background traffic mean for clients on each side that they pass."""
    given_up = _gives(given, moves, rates, ours)
    for side, amount in gives(given.background, behind, _ours_in_background(given, ours)).items():
        given_up[side] = given_up.get(side, 0.0) + amount
    taking = (
        *takings_of(moves, given.terms, given.nics, rates, others, over),
        *takings(given.background, behind),
    )
    leaves = leaves_of(taking, given.nics, given.cut_to_percent)
    return {
        side: ReplicationBeside(given_up.get(side, 0.0), leaves.get(side, {}))
        for side in given_up.keys() | leaves.keys()
    }


def _gives(
    given: ReplicationInput, moves: Sequence[Move], rates: Rates, ours: Items
) -> dict[Side, float]:
    """How much replication is slowed down, on each side that has a rate of ours.

    Below L3 that is what it moves above its floor, else what it moves above what it may.
    """
    found: dict[Side, float] = {}
    for kind, terms in given.terms.items():
        if terms.mode is not ReplicationMode.FOLLOW:
            continue
        through = rates.through(kind)
        for side, here in by_side([move for move in moves if move.kind is kind]).items():
            if _rate_of_ours(ours, given.configs, *side_resource(side)) is None:
                continue
            keeps = terms.minimum if terms.priority is Priority.BELOW_L3 else through[side]
            amount = moved_by(given.nics.get(side, _NO_ROOM), here) - keeps
            if amount > 0:
                found[side] = found.get(side, 0.0) + amount
    return found


def _leftovers(
    given: ReplicationInput, memory: ReplicationMemory
) -> tuple[tuple[OthersThrottle, ...], Mapping[tuple[Resource, str], tuple[str, float, float]]]:
    """Throttles that nobody needs: someone else's, while no partition is reassigned."""
    if given.seen is not None and any(one.is_reassigned for one in given.seen.partitions):
        return (), {}
    if given.scanned is None:
        known = tuple(
            OthersThrottle(resource, key, text)
            for (resource, key), (text, _, _) in memory.leftovers.items()
        )
        return known, memory.leftovers
    found, now_seconds = others_of(given.scanned, given.record), given.now_seconds
    since: dict[tuple[Resource, str], tuple[str, float, float]] = {}
    for one in found:
        text, at_seconds, seen_seconds = memory.leftovers.get(
            (one.resource, one.key), ("", 0.0, 0.0)
        )
        if text != one.value or now_seconds - seen_seconds > LEFTOVER_LOOKS_SECONDS:
            at_seconds = now_seconds
        since[one.resource, one.key] = (one.value, at_seconds, now_seconds)
    return found, since


def _due(
    found: tuple[OthersThrottle, ...],
    since: Mapping[tuple[Resource, str], tuple[str, float, float]],
    given: ReplicationInput,
) -> tuple[OthersThrottle, ...]:
    """The leftovers that were there long enough to be removed, where the policy wants that."""
    if not given.clean_up_leftovers or given.scanned is None:
        return ()
    return tuple(
        one
        for one in found
        if one.value != EVERY_REPLICA
        and given.now_seconds - since[one.resource, one.key][1] >= LEFTOVER_AFTER_SECONDS
    )
