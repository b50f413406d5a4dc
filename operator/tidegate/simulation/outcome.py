"""What a play came to: its events in order, and sums by broker, level and member.

Everything is taken from what was decided and what the cluster did; nothing is decided here. Rates
are bytes/s, amounts bytes, times seconds from the start of the play.
"""

from bisect import bisect
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate
from math import inf
from typing import Final

from tidegate.simulation.cluster import BucketPlace, Flow, Mute, NicPlace
from tidegate.simulation.play import Member, Pass, Play
from tidegate_logic.contracts.desired import MemberState
from tidegate_logic.model import (
    DIRECTION_OF,
    Direction,
    LedgerEntry,
    Level,
    QuotaWrite,
    RateKey,
)
from tidegate_logic.quota_values import enforced_rate
from tidegate_logic.reasons import Reason
from tidegate_logic.throttle.decision import StepKind
from tidegate_logic.throttle.nic_status import Pressure

_MEAN_SECONDS: Final = 10  # of the NIC, for how long a broker was over its limit
_AT_THE_LIMIT: Final = 1.01  # a mean up to this share of the limit is not over it


class EventKind(StrEnum):
    """What one line of the timeline is about."""

    OVER = "Over"
    WITHIN = "Within"
    UNKNOWN = "Unknown"
    LOWERED = "Lowered"
    RAISED = "Raised"
    GIVEN_BACK = "GivenBack"
    CHANGED = "Changed"  # for another reason than load: an override began or ended
    FINDING = "Finding"
    ALL_BACK = "AllBack"


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the timeline.

    `member`, `before`, `after` belong to a changed quota: what was in force on each broker before
    and after it (None = no quota), and whether load holds it below the contract after it.
    `longest_mute_seconds` is the longest mute of the member until its next change,
    `predicted_mute_seconds` what the decision expected at most. `nics` has what carries how much of
    which limit: where a broker went over or within by means of ten seconds, and where a member was
    lowered by the reading that it was lowered for. `reason` and `words` belong to a finding.
    """

    at_seconds: float
    kind: EventKind
    member: Member | None = None
    before: int | None = None
    after: int | None = None
    is_below_contract: bool = False
    brokers: tuple[int, ...] = ()
    predicted_mute_seconds: float = 0.0
    longest_mute_seconds: float = 0.0
    nics: tuple[tuple[Direction, float, int], ...] = ()
    reason: Reason | None = None
    words: str = ""


@dataclass(frozen=True, slots=True)
class Amounts:
    """Bytes that were wanted, and what became of them; `waiting` still waits at the end.

    What was not moved when it was wanted was held back by a throttle, by the contract itself, or by
    a NIC that was full. `caught_up` is the part of it that was moved later.
    """

    wanted: float = 0.0
    moved: float = 0.0
    held_by_throttle: float = 0.0
    held_by_contract: float = 0.0
    held_by_nic: float = 0.0
    caught_up: float = 0.0

    def plus(self, flow: "Flow | Amounts") -> "Amounts":
        return Amounts(
            self.wanted + flow.wanted,
            self.moved + flow.moved,
            self.held_by_throttle + flow.held_by_throttle,
            self.held_by_contract + flow.held_by_contract,
            self.held_by_nic + flow.held_by_nic,
            self.caught_up + flow.caught_up,
        )

    @property
    def held_back(self) -> float:
        return self.held_by_throttle + self.held_by_contract + self.held_by_nic


@dataclass(frozen=True, slots=True)
class MemberOutcome:
    """One member one way. `lowest` is the lowest quota that was in force.

    `lowered_at` is when it was first lowered below its contract, `back_at` when it was last
    restored; None = it never was, or is not back at the end. `silent_seconds` are those of the
    broker where it was muted for longest while it wanted something.
    """

    member: Member
    amounts: Amounts
    longest_mute_seconds: float
    silent_seconds: float
    lowest: int | None
    lowered_at: float | None
    back_at: float | None

    @property
    def level(self) -> Level:
        return self.member.report.level


@dataclass(frozen=True, slots=True)
class LevelOutcome:
    """All members of a level, both ways; `lowered` of them were lowered, fields as above."""

    level: Level
    members: int
    lowered: int
    amounts: Amounts
    longest_mute_seconds: float
    lowered_at: float | None
    back_at: float | None


@dataclass(frozen=True, slots=True)
class NicOutcome:
    """One limited NIC: seconds above its limit and the highest load, by means of ten seconds.

    `limit` is the lowest of the play, where schedules change it.
    """

    broker: int
    direction: Direction
    limit: int
    over_seconds: int
    highest: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """A play, in numbers. `below_at_end` are those who are not back at their contract."""

    seconds: int
    events: tuple[Event, ...]
    nics: tuple[NicOutcome, ...]
    levels: tuple[LevelOutcome, ...]
    members: tuple[MemberOutcome, ...]
    below_at_end: tuple[Member, ...]
    remarks: tuple[str, ...]


def outcome_of(played: Play) -> Outcome:
    """Events and sums of a play."""
    mutes = _mutes_by_key(played)
    events = tuple(_events(played, mutes))
    members = tuple(_members(played, events, mutes))
    return Outcome(
        len(played.seconds),
        events,
        tuple(_nics(played)),
        tuple(_levels(members)),
        members,
        tuple(one.member for one in members if one.lowered_at is not None and one.back_at is None),
        tuple(_remarks(played)),
    )


def _mutes_by_key(played: Play) -> Mapping[RateKey, Sequence[Mute]]:
    found: dict[RateKey, list[Mute]] = defaultdict(list)
    for second in played.seconds:
        for mute in second.mutes:
            found[mute.entity, mute.direction].append(mute)
    return found


# The timeline


def _events(played: Play, mutes: Mapping[RateKey, Sequence[Mute]]) -> Iterator[Event]:
    writes = sorted(_written(played), key=lambda event: event.at_seconds)
    following: dict[RateKey, float] = {}
    measured: list[Event] = []
    for event in reversed(writes):
        key = event.member.key if event.member is not None else None
        if key is not None:
            until = following.get(key, float("inf"))
            following[key] = event.at_seconds
            measured.append(_with_mute(event, mutes.get(key, ()), until))
    others = [*_broker_events(played), *_finding_events(played), *_all_back_events(played)]
    # of one moment: what was seen, what was done, what follows
    yield from sorted(
        [*others, *reversed(measured)], key=lambda event: (event.at_seconds, _ORDER[event.kind])
    )


_ORDER: Final = {
    **dict.fromkeys((EventKind.OVER, EventKind.WITHIN, EventKind.UNKNOWN), 0),
    **dict.fromkeys((EventKind.LOWERED, EventKind.RAISED, EventKind.CHANGED), 1),
    EventKind.GIVEN_BACK: 1,
    EventKind.FINDING: 2,
    EventKind.ALL_BACK: 3,
}
_KIND_OF: Final = {
    Reason.THROTTLED: EventKind.LOWERED,
    Reason.CALENDAR: EventKind.LOWERED,
    Reason.RELAXING: EventKind.RAISED,
    Reason.RELEASED: EventKind.GIVEN_BACK,
}


def _written(played: Play) -> Iterator[Event]:
    causes: dict[RateKey, tuple[int, ...]] = {}
    for one in played.passes:
        if one.decision.throttle is not None:
            # a cut that waits for its turn is later only held to, so its cause is remembered
            causes |= {
                step.key: step.brokers
                for step in one.decision.throttle.steps.values()
                if step.kind is StepKind.CUT
            }
        for write in one.decision.writes:
            yield from _write_events(played, one, write, causes)


def _write_events(
    played: Play, one: Pass, write: QuotaWrite, causes: Mapping[RateKey, tuple[int, ...]]
) -> Iterator[Event]:
    steps = one.decision.throttle.steps if one.decision.throttle is not None else {}
    for key, text in write.values.items():
        way = DIRECTION_OF.get(key)
        member = None if way is None else played.members.get((write.entity, way))
        if way is None or member is None:
            continue
        before, after = enforced_rate(write.seen.values.get(key)), enforced_rate(text)
        entry = None if write.ledger is None else write.ledger.entries.get(key)
        step = steps.get(member.key)
        lowers = after is not None and (before is None or after < before)
        yield Event(
            one.at_seconds,
            _kind(entry, after),
            member,
            before,
            after,
            entry is not None and entry.of_contract is not None,
            causes.get(member.key, ()) if lowers else (),
            step.predicted_mute_seconds if step is not None and lowers else 0.0,
            nics=tuple(_read_over(one, causes.get(member.key, ()), way)) if lowers else (),
        )


def _read_over(
    one: Pass, brokers: Collection[int], way: Direction
) -> Iterator[tuple[Direction, float, int]]:
    """What the operator read of the fullest of these brokers that it found over its limit."""
    found = [
        (nic.bytes_per_second, nic.limit, metered)
        for watched in one.decision.watched or ()
        if watched.broker in brokers
        for metered, nic in watched.nics.items()
        if way in metered.parts
        if nic.bytes_per_second is not None and nic.limit is not None and nic.is_full
    ]
    if found:
        rate, limit, metered = max(found, key=lambda read: read[0] / read[1])
        yield metered, rate, limit


def _kind(entry: LedgerEntry | None, after: int | None) -> EventKind:
    """By this key's own entry of the ledger: a write may be of both ways, for two reasons."""
    if entry is None:
        return EventKind.GIVEN_BACK if after is None else EventKind.CHANGED
    kind = _KIND_OF.get(entry.reason) if isinstance(entry.reason, Reason) else None
    return kind or EventKind.CHANGED


def _with_mute(event: Event, mutes: Iterable[Mute], until: float) -> Event:
    if event.kind is not EventKind.LOWERED:
        return event
    longest = max(
        [one.seconds for one in mutes if event.at_seconds <= one.at_seconds < until], default=0.0
    )
    return replace(event, longest_mute_seconds=longest)


def _broker_events(played: Play) -> Iterator[Event]:
    """When each broker goes over its limit and is within it again, and when its load is not known.

    By the means of `_nics`, not by what the operator read: single readings see bursts of throttled
    clients, and the seconds of the table would not be those between these events. A broker is
    within its limit again once that lasts as long as a mean does.
    """
    over: dict[int, list[bool]] = {}
    means: dict[NicPlace, list[float]] = {}
    for broker, way, limit in _limits(played):
        means[broker, way] = nic_rates(played, (broker, way), _MEAN_SECONDS)
        is_over = _over(means[broker, way], limit)
        known = over.get(broker, [False] * len(is_over))
        over[broker] = [one or other for one, other in zip(known, is_over, strict=True)]
    for broker, seconds in over.items():
        limits = {way: limit for at, way, limit in _limits(played) if at == broker}
        for begin, end in _spans(seconds):
            for kind, at in ((EventKind.OVER, begin), (EventKind.WITHIN, end)):
                if at >= len(seconds):
                    continue
                nics = [
                    (way, means[broker, way][at], round(limit[at]))
                    for way, limit in limits.items()
                    if limit[at] < inf
                ]
                hot = [one for one in nics if one[1] > _AT_THE_LIMIT * one[2]]
                shown = tuple(hot if kind is EventKind.OVER else nics)
                yield Event(at + 1.0, kind, brokers=(broker,), nics=shown)
    yield from _unknown_events(played)


def _spans(seconds: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Begin and end of each span in which it holds, with gaps shorter than a mean left out."""
    found: list[tuple[int, int]] = []
    for at, holds in enumerate(seconds):
        if not holds:
            continue
        if found and at - found[-1][1] < _MEAN_SECONDS:
            found[-1] = (found[-1][0], at + 1)
        else:
            found.append((at, at + 1))
    return iter(found)


def _unknown_events(played: Play) -> Iterator[Event]:
    was: set[int] = set()
    for one in played.passes:
        now = {
            watched.broker
            for watched in one.decision.watched or ()
            if watched.pressure is Pressure.UNKNOWN
        }
        for broker in sorted(now - was):
            yield Event(one.at_seconds, EventKind.UNKNOWN, brokers=(broker,))
        was = now


def _finding_events(played: Play) -> Iterator[Event]:
    """Each finding once while it lasts; numbers in its words may change meanwhile."""
    lasting: set[tuple[object, ...]] = set()
    for one in played.passes:
        rounds = one.decision.throttle.rounds if one.decision.throttle is not None else ()
        now = {
            (round_.direction, found.reason, found.broker, found.entity): found
            for round_ in rounds
            for found in round_.findings
        }
        for key, found in now.items():
            if key not in lasting:
                yield Event(
                    one.at_seconds, EventKind.FINDING, reason=found.reason, words=found.message
                )
        lasting = set(now)


def _all_back_events(played: Play) -> Iterator[Event]:
    was_throttled = False
    for one in played.passes:
        throttled = any(level.below_contract for level in one.decision.levels)
        if was_throttled and not throttled:
            yield Event(one.at_seconds, EventKind.ALL_BACK)
        was_throttled = throttled


# Sums


def _nics(played: Play) -> Iterator[NicOutcome]:
    for broker, way, limit in _limits(played):
        means = nic_rates(played, (broker, way), _MEAN_SECONDS)
        over = sum(_over(means, limit))
        yield NicOutcome(broker, way, round(min(limit)), over, max(means, default=0.0))


def _over(means: Sequence[float], limit: Sequence[float]) -> list[bool]:
    """Whether each second is above the limit in force then."""
    return [mean > _AT_THE_LIMIT * most for mean, most in zip(means, limit, strict=True)]


def _limits(played: Play) -> Iterator[tuple[int, Direction, Sequence[float]]]:
    """Each side of a NIC that is limited at some time, with its limit at each second.

    Infinity = it has none then. One that is made ready for does not count before its time.
    """
    policy = played.scenario.policy
    seconds = range(len(played.seconds))
    for broker, limits in played.scenario.limits.items():
        scheduled = [
            (one.at_seconds, policy.limits_at(one.decision.limits.schedule).of(broker))
            for one in played.passes
            if one.decision.limits is not None
        ] or [(0.0, limits)]
        changes = [at_seconds for at_seconds, _ in scheduled]
        for way in Direction:
            known = [limit.limit(way) for _, limit in scheduled]
            if any(limit is not None for limit in known):
                found = [inf if limit is None else limit for limit in known]
                yield broker, way, [found[max(0, bisect(changes, at) - 1)] for at in seconds]


def moving_means(values: Sequence[float], seconds: int) -> list[float]:
    """The mean of the last so many seconds at each second; of fewer at the beginning."""
    sums = [0.0, *accumulate(values)]
    return [
        (sums[place] - sums[max(0, place - seconds)]) / min(place, seconds)
        for place in range(1, len(sums))
    ]


def _members(
    played: Play, events: Sequence[Event], mutes: Mapping[RateKey, Sequence[Mute]]
) -> Iterator[MemberOutcome]:
    amounts: dict[RateKey, Amounts] = defaultdict(Amounts)
    silent: dict[BucketPlace, float] = defaultdict(float)
    for second in played.seconds:
        for place, flow in second.flows.items():
            amounts[place[0]] = amounts[place[0]].plus(flow)
            silent[place] += flow.muted
    changes: dict[RateKey, list[Event]] = defaultdict(list)
    for event in events:
        if event.member is not None:
            changes[event.member.key].append(event)
    ordered = sorted(
        played.members.values(),
        key=lambda one: (one.report.level, one.report.entity.sort_key, one.direction),
    )
    for member in ordered:
        key = member.key
        if not amounts[key].wanted and not changes[key]:
            continue
        muted = mutes.get(key, ())
        lowered = [one for one in changes[key] if one.kind is EventKind.LOWERED]
        last = changes[key][-1] if changes[key] else None
        is_back = last is not None and not last.is_below_contract
        in_force = [quota for quota in played.quotas[key] if quota is not None]
        yield MemberOutcome(
            member,
            amounts[key],
            max([one.seconds for one in muted], default=0.0),
            max([seconds for place, seconds in silent.items() if place[0] == key], default=0.0),
            min(in_force, default=None),
            lowered[0].at_seconds if lowered else None,
            last.at_seconds if lowered and last is not None and is_back else None,
        )


def _levels(members: Sequence[MemberOutcome]) -> Iterator[LevelOutcome]:
    for level in Level:
        mine = [one for one in members if one.level is level]
        if not mine:
            continue
        total = Amounts()
        for one in mine:
            total = total.plus(one.amounts)
        lowered = [one for one in mine if one.lowered_at is not None]
        back = [one.back_at for one in lowered]
        yield LevelOutcome(
            level,
            len({one.member.report.entity for one in mine}),
            len({one.member.report.entity for one in lowered}),
            total,
            max(one.longest_mute_seconds for one in mine),
            _least(one.lowered_at for one in lowered),
            None if None in back else max([at for at in back if at is not None], default=None),
        )


def _least(values: Iterable[float | None]) -> float | None:
    return min([one for one in values if one is not None], default=None)


def _remarks(played: Play) -> Iterator[str]:
    """What the first decision says of members that are not simply at their contract; its notes
    name those that overlap or are not allowed.
    """
    if not played.passes:
        return
    decision = played.passes[0].decision
    for report in decision.members:
        is_held = report.state is MemberState.HELD
        if is_held or report.reason is Reason.NO_THROTTLED_RATE:
            yield f"{report.tier_key} / {report.member_name}: {report.message}"
    for note in decision.notes:
        yield note.message


# What plots and programs take: rates by time


def nic_rates(played: Play, place: NicPlace, seconds: int) -> list[float]:
    """Bytes/s through a NIC at each second, as means of the last so many seconds."""
    return moving_means([one.through(*place) for one in played.seconds], seconds)


def moved_by_level(played: Play, place: NicPlace, seconds: int) -> dict[Level, list[float]]:
    """Bytes/s that each level's members transfer through a NIC, as means over `seconds`."""
    broker, way = place
    found = {
        level: [0.0] * len(played.seconds)
        for level in Level
        if any(one.report.level is level for one in played.members.values())
    }
    for row, second in enumerate(played.seconds):
        for (key, at), flow in second.flows.items():
            if at == broker and key[1] in way.parts:
                found[played.members[key].report.level][row] += flow.moved
    return {level: moving_means(moved, seconds) for level, moved in found.items()}
