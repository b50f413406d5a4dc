"""Kafka's replication throttles: what is wanted, what is ours, what is someone else's, what to do.

A throttle has two halves: rates on brokers, and lists of replicas on topics. Kafka throttles only a
replica that is on the list and out of sync, and counts what is on the list in sync as well (see
`in_sync`). The record (kept beside the quotas' ledger) has what we may have written. It is written
first, so a process that is killed at any point leaves nothing that is not in it. Taking away
removes exactly that; a value that is not in the record stays as it is.

Rates of background traffic are settings that people make for good. So theirs are replaced, the
record has what was there before, and taking away puts that back. One that somebody changes after
us is theirs: it stays.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from tidegate_logic.model import BackgroundKind, Direction
from tidegate_logic.replication.moves import Move, MoveKind, PartitionState, Side

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LEADER_LIST = "leader.replication.throttled.replicas"
FOLLOWER_LIST = "follower.replication.throttled.replicas"
RATE_KEYS = {Direction.EGRESS: LEADER_RATE, Direction.INGRESS: FOLLOWER_RATE}
LIST_KEYS = {Direction.EGRESS: LEADER_LIST, Direction.INGRESS: FOLLOWER_LIST}
BACKGROUND_KEYS = {
    BackgroundKind.REMOTE_COPY: "remote.log.manager.copy.max.bytes.per.second",
    BackgroundKind.REMOTE_FETCH: "remote.log.manager.fetch.max.bytes.per.second",
    BackgroundKind.LOG_DIRS: "replica.alter.log.dirs.io.max.bytes.per.second",
}
EVERY_REPLICA = "*"
_LASTING = frozenset(BACKGROUND_KEYS.values())
_RATES = _LASTING | frozenset(RATE_KEYS.values())
_BEFORE = "before="  # an item of the record of a lasting rate: what was there before ours


class ResourceKind(StrEnum):
    """What a configuration belongs to."""

    BROKER = "broker"
    TOPIC = "topic"


class Resource(NamedTuple):
    """One broker or one topic, with the configuration of its own."""

    kind: ResourceKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind.value} {self.name}"


def broker_resource(broker: int) -> Resource:
    return Resource(ResourceKind.BROKER, str(broker))


def topic_resource(topic: str) -> Resource:
    return Resource(ResourceKind.TOPIC, topic)


KEYS = {
    ResourceKind.BROKER: (LEADER_RATE, FOLLOWER_RATE, *BACKGROUND_KEYS.values()),
    ResourceKind.TOPIC: (LEADER_LIST, FOLLOWER_LIST),
}
# resource -> key -> text, of the resource itself and no default; without it, it is not known
Configs = Mapping[Resource, Mapping[str, str]]
# resource -> key -> items of a list, or texts of a rate
Items = Mapping[Resource, Mapping[str, frozenset[str]]]


class Operation(StrEnum):
    """How a configuration is changed, as IncrementalAlterConfigs has it."""

    SET = "Set"
    DELETE = "Delete"
    APPEND = "Append"
    SUBTRACT = "Subtract"


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One key of one resource: what is done to it, and the value."""

    resource: Resource
    key: str
    operation: Operation
    value: str = ""

    def __str__(self) -> str:
        value = f" {self.value}" if self.value else ""
        return f"{self.resource}: {self.operation.value.lower()} {self.key}{value}"


@dataclass(frozen=True, slots=True)
class OthersThrottle:
    """A rate or a list that someone else set: it stays as it is."""

    resource: Resource
    key: str
    value: str

    def __str__(self) -> str:
        shown = self.value if len(self.value) <= 60 else f"{self.value[:57]}..."
        return f"{self.resource} {self.key}={shown}"


def items_of(key: str, value: str) -> frozenset[str]:
    """The items of a list, or the text of a rate."""
    if key in _RATES:
        return frozenset({value})
    return frozenset(item.strip() for item in value.split(",") if item.strip())


def wanted_lists(moves: Iterable[Move]) -> dict[Resource, dict[str, frozenset[str]]]:
    """The replicas that have to be on the lists for these moves to be throttled.

    The leaders' list has every old replica, because the leader may change meanwhile; the followers'
    list has those that are being filled, with those of the same reassignment that are filled
    already and might fall behind again.
    """
    leaders: dict[str, set[str]] = {}
    followers: dict[str, set[str]] = {}
    for move in moves:
        partition = move.partition
        leaders.setdefault(partition.topic, set()).update(
            f"{partition.partition}:{broker}" for broker in _sources(move, partition)
        )
        filled = partition.adding if move.kind is MoveKind.REASSIGNMENT else {move.destination}
        followers.setdefault(partition.topic, set()).update(
            f"{partition.partition}:{broker}" for broker in filled
        )
    return {
        topic_resource(topic): {
            LEADER_LIST: frozenset(leaders[topic]),
            FOLLOWER_LIST: frozenset(followers[topic]),
        }
        for topic in leaders
    }


def is_listed(lists: Items, side: Side, partition: PartitionState) -> bool:
    """Whether this broker counts that partition against the rate of that side of its NIC."""
    items = lists.get(topic_resource(partition.topic), {}).get(LIST_KEYS[side.direction], ())
    return EVERY_REPLICA in items or f"{partition.partition}:{side.broker}" in items


def lists_of(configs: Configs) -> Items:
    """The lists that there are."""
    return {
        resource: {key: items_of(key, text) for key, text in values.items()}
        for resource, values in configs.items()
        if resource.kind is ResourceKind.TOPIC
    }


def lists_after(configs: Configs, changes: Iterable[ConfigChange]) -> Items:
    """The lists as they are when these changes are made."""
    lists = {one: dict(keys) for one, keys in lists_of(configs).items()}
    for change in changes:
        if change.resource.kind is not ResourceKind.TOPIC:
            continue
        keys = lists.setdefault(change.resource, {})
        there, given = keys.get(change.key, frozenset()), items_of(change.key, change.value)
        match change.operation:
            case Operation.DELETE:
                keys[change.key] = frozenset()
            case Operation.SET:
                keys[change.key] = given
            case Operation.APPEND:
                keys[change.key] = there | given
            case Operation.SUBTRACT:
                keys[change.key] = there - given
    return lists


def with_items(lists: Items, more: Items) -> Items:
    """The items of both."""
    both = {one: dict(keys) for one, keys in lists.items()}
    for resource, keys in more.items():
        kept = both.setdefault(resource, {})
        for key, items in keys.items():
            kept[key] = kept.get(key, frozenset()) | items
    return both


def without_items(lists: Items, kept: Items) -> Items:
    """The items that are not among the kept ones; no list is empty."""
    left = {
        resource: {
            key: rest
            for key, items in keys.items()
            if (rest := items - kept.get(resource, {}).get(key, frozenset()))
        }
        for resource, keys in lists.items()
    }
    return {resource: keys for resource, keys in left.items() if keys}


def possible_sources(moves: Iterable[Move]) -> frozenset[int]:
    """The brokers that may come to lead one of these moves."""
    return frozenset(broker for move in moves for broker in _sources(move, move.partition))


def _sources(move: Move, partition: PartitionState) -> tuple[int, ...]:
    if move.kind is MoveKind.REASSIGNMENT:
        return partition.old_replicas
    return tuple([one for one in partition.replicas if one != move.destination])


def side_resource(side: Side) -> tuple[Resource, str]:
    """Where the rate of one side of a NIC is set."""
    return broker_resource(side.broker), RATE_KEYS[side.direction]


@dataclass(frozen=True, slots=True)
class ConfigPlan:
    """What to change, and the record that has to be there before.

    `others` are values that someone else set where ours were wanted; `unknown` are resources of
    the record that nothing is known of now: a broker that is down keeps its rate.
    """

    changes: tuple[ConfigChange, ...] = ()
    record: Items = field(default_factory=dict)
    others: tuple[OthersThrottle, ...] = ()
    unknown: tuple[Resource, ...] = ()


def plan_configs(wanted: Items, present: Configs, record: Items) -> ConfigPlan:
    """Make `present` have what is `wanted`, and nothing else of what the record has.

    The record of the plan has everything that is ours before or after its changes.
    """
    changes: list[ConfigChange] = []
    after: dict[Resource, Mapping[str, frozenset[str]]] = {}
    others: list[OthersThrottle] = []
    unknown: list[Resource] = []
    for resource in sorted({*wanted, *record}):
        values, ours = present.get(resource), record.get(resource, {})
        if values is None:
            if ours:
                unknown.append(resource)
                after[resource] = ours
            continue
        kept: dict[str, frozenset[str]] = {}
        for key in KEYS[resource.kind]:
            want = wanted.get(resource, {}).get(key, frozenset())
            step = _step(resource, key, want, values.get(key), ours.get(key, frozenset()))
            changes += step.changes
            others += step.others
            if step.record:
                kept[key] = step.record
        if kept:
            after[resource] = kept
    return ConfigPlan(tuple(changes), after, tuple(others), tuple(unknown))


class _Step(NamedTuple):
    changes: tuple[ConfigChange, ...]
    record: frozenset[str]
    others: tuple[OthersThrottle, ...] = ()


def _step(
    resource: Resource, key: str, want: frozenset[str], value: str | None, ours: frozenset[str]
) -> _Step:
    there = frozenset() if value is None else items_of(key, value)
    still_ours, foreign = there & ours, there - ours
    theirs = (OthersThrottle(resource, key, value or ""),) if foreign and want else ()
    if is_lasting(key):
        return _lasting_step(resource, key, want, value, ours)
    if key in _RATES:
        if foreign:
            return _Step((), frozenset(), theirs)
        if not want:
            gone = (ConfigChange(resource, key, Operation.DELETE),) if still_ours else ()
            return _Step(gone, still_ours)
        if want == there:
            return _Step((), still_ours)
        return _Step((ConfigChange(resource, key, Operation.SET, *want),), still_ours | want)
    if EVERY_REPLICA in foreign:
        return _Step((), frozenset(), theirs)
    changes = []
    # first what comes: brokers in ZooKeeper mode append to an empty list behind a comma, and fail
    # to read that
    if added := want - there:
        how = Operation.APPEND if there else Operation.SET
        changes.append(ConfigChange(resource, key, how, _joined(added)))
    if removed := still_ours - want:
        changes.append(
            ConfigChange(resource, key, Operation.DELETE)
            if removed == there and not want
            else ConfigChange(resource, key, Operation.SUBTRACT, _joined(removed))
        )
    return _Step(tuple(changes), still_ours | added, theirs)


def is_lasting(key: str) -> bool:
    """Whether people set this for good, so that what was there before ours is put back."""
    return key in _LASTING


def before_of(items: Iterable[str]) -> str | None:
    """What was there before a lasting rate of ours, by its items of the record; None = nothing."""
    return next((one.removeprefix(_BEFORE) for one in items if one.startswith(_BEFORE)), None)


def _lasting_step(
    resource: Resource, key: str, want: frozenset[str], value: str | None, ours: frozenset[str]
) -> _Step:
    there = frozenset() if value is None else frozenset({value})
    if there and there == want:
        return _Step((), ours)
    before, is_ours = before_of(ours), bool(there & ours)
    if ours and value not in (None, before) and not is_ours:
        if not want:
            return _Step((), frozenset())
        return _Step((), ours, (OthersThrottle(resource, key, value or ""),))
    if not want:
        if not is_ours:
            return _Step((), frozenset())
        if before is None:
            return _Step((ConfigChange(resource, key, Operation.DELETE),), ours)
        return _Step((ConfigChange(resource, key, Operation.SET, before),), ours)
    before = before if ours else value
    kept = frozenset() if before is None else frozenset({f"{_BEFORE}{before}"})
    record = kept | (there & ours) | (want - {before})
    return _Step((ConfigChange(resource, key, Operation.SET, *want),), record)


def _joined(items: frozenset[str]) -> str:
    return ",".join(sorted(items, key=_by_number))


def _by_number(item: str) -> tuple[int, ...]:
    return tuple(int(part) for part in item.split(":") if part.isdecimal())


def others_of(present: Configs, record: Items) -> tuple[OthersThrottle, ...]:
    """Every rate and list of replication that is not ours, no matter who set it and why."""
    found = []
    for resource in sorted(present):
        for key, value in sorted(present[resource].items()):
            if is_lasting(key):
                continue
            ours = record.get(resource, {}).get(key, frozenset())
            foreign = items_of(key, value) - ours
            if foreign or not value:
                shown = value if not ours else _joined(foreign)
                found.append(OthersThrottle(resource, key, shown))
    return tuple(found)


def removal_of(one: OthersThrottle, present: Configs) -> ConfigChange:
    """What removes someone else's throttle, and leaves what is ours beside it."""
    value = present.get(one.resource, {}).get(one.key)
    if value is None or value == one.value:
        return ConfigChange(one.resource, one.key, Operation.DELETE)
    return ConfigChange(one.resource, one.key, Operation.SUBTRACT, one.value)
