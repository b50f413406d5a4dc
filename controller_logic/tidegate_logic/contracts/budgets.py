"""One limit for many members: a BandwidthBudget divides its total among them by measured demand.

It runs after overrides and before anything is worked out on leaders. What a member may have of the
budget replaces its contract where it is lower, so scaling, the mute guard and the write budget
treat it as they treat a contract, and a throttle below it counts as well.

The division (`divide`) is weighted max-min, in this order: what members of L0 and members with an
override use, which no budget limits, and some headroom; what everybody wants of its minimum, and of
what clients need to work, which L0 cannot take away; the demand of L1, then of L2, then of L3; what
is left, up to the contracts. Every budget above a member, its parents too, has to have room for it.
So a budget that is short is short for the least important. A minimum that is not wanted is lent: it
stays permitted, and others use it until a reading shows that it is wanted.

Demand is what a member was measured to send, and some headroom, while its quota does not hold it
back; without bound where it does. A new division waits until readings show the last one in full,
and limits stay while nobody needs 10 % more than it has, so that steady load writes nothing. What
is not known changes nothing: without readings of every broker that counts, all limits stay. Those
that are not remembered are found again by the quota in force.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf
from typing import Final

from tidegate_logic.contracts.leader_scaling import Leaders, LeaderSpread, partition_scale
from tidegate_logic.model import (
    CONSUMER_FLOOR_BYTES_PER_SECOND,
    KEY_OF,
    MIN_BYTE_RATE,
    PRODUCER_FLOOR_BYTES_PER_SECOND,
    Budget,
    ClientRate,
    Contract,
    Direction,
    Entity,
    Level,
    Member,
    Observation,
    QuotaKey,
    RateForm,
    RateKey,
    ScalingMethod,
    Tier,
)
from tidegate_logic.quota_values import enforced_rate
from tidegate_logic.readings import BINDING, Flows, is_throttled
from tidegate_logic.reasons import Reason
from tidegate_logic.value import value
from tidegate_logic.words import broker_words

HYSTERESIS: Final = 0.10  # of a limit; a smaller change is not worth a write
_FREE = 2.0  # times a limit: what is free changes with everybody's load, and few will need it
# from this share of the quota in force on, it holds the member back; BINDING without throttle times
FULL: Final = 0.95
# a throttled client runs at half of its quota or more; Kafka's throttle time is a mean of a minute
THROTTLED_USE: Final = 0.5
# how much more than it sends a member may want; the quota must not hold it back by that alone
HEADROOM: Final = 1.1
FLOOR_OF: Final = {
    QuotaKey.CONSUMER_BYTE_RATE: CONSUMER_FLOOR_BYTES_PER_SECOND,
    QuotaKey.PRODUCER_BYTE_RATE: PRODUCER_FLOOR_BYTES_PER_SECOND,
}
HEADROOM_UNSURE: Final = 1.3
_SEEN_AFTER_SECONDS = 2.0  # beyond the quota window: until every broker obeys a write
_OF_WRITE_BUDGET = 0.5  # from this share of it on, a division waits

# --- the division of one direction among members, in bytes/s of the whole cluster ---


@value(frozen=True, slots=True)
class Claim:
    """One member's part in a division. `path` has its budget, then that one's parents.

    `least` is its minimum, `most` what its contract gives it (inf = no contract). A claim that is
    `fixed` takes its demand whatever the budgets say; the others keep their `floor` even then.
    """

    path: tuple[str, ...]
    level: Level
    weight: float
    least: float
    demand: float
    most: float = inf
    fixed: bool = False
    floor: float = 0.0

    def taken(self, limit: float, used: float) -> float:
        """How much room a limit takes: all of it, but of a minimum only what is used."""
        return limit if limit > max(self.least, self.floor) else min(limit, used)


def divide(claims: Sequence[Claim], totals: Mapping[str, float]) -> list[float]:
    """What each claim gets; what they want of it is never above a total, but for fixed claims.

    All of it can be, by the minimums that are not wanted: at most by another total. Fixed claims
    have headroom, so that a little more of them is no reason for another division.
    """
    shares = [claim.demand if claim.fixed else 0.0 for claim in claims]
    room = rooms(claims, totals, headroom=HEADROOM)
    free = [place for place, claim in enumerate(claims) if not claim.fixed]

    def fill(needs: Mapping[int, float], weights: Mapping[int, float]) -> None:
        active = {place: need for place, need in needs.items() if need > shares[place]}
        while active:
            heavy: dict[str, float] = {}
            for place in active:
                for budget in claims[place].path:
                    heavy[budget] = heavy.get(budget, 0.0) + weights[place]
            tightest = min(heavy, key=lambda budget: room[budget] / heavy[budget])
            step = room[tightest] / heavy[tightest]
            done = [
                place
                for place, need in active.items()
                if need - shares[place] <= step * weights[place]
            ]
            for place in done or active:
                before, need = shares[place], active[place]
                shares[place] = need if done else min(need, before + step * weights[place])
                for budget in claims[place].path:
                    room[budget] = max(0.0, room[budget] + before - shares[place])
            if not done:
                room[tightest] = 0.0
                done = [place for place in active if tightest in claims[place].path]
            for place in done:
                del active[place]

    floors = {place: min(claims[place].floor, claims[place].most) for place in free}
    fill(floors, floors)
    least = {place: min(claims[place].least, claims[place].most) for place in free}
    by_least = {place: claims[place].least or 1.0 for place in free}
    fill(least, by_least)
    least = {place: shares[place] for place in free}  # as many of them as there is room for
    room.update(rooms(claims, totals, headroom=HEADROOM))
    shares = [claim.demand if claim.fixed else 0.0 for claim in claims]
    fill({place: min(least[place], claims[place].demand) for place in free}, by_least)
    weights = {place: claims[place].weight for place in free}
    for level in Level:
        of_level = [place for place in free if claims[place].level is level]
        fill({one: min(claims[one].demand, claims[one].most) for one in of_level}, weights)
    fill(least, by_least)
    fill({place: claims[place].most for place in free}, weights)
    return [max(share, least.get(place, 0.0)) for place, share in enumerate(shares)]


def rooms(
    claims: Iterable[Claim], totals: Mapping[str, float], *, headroom: float = 1.0
) -> dict[str, float]:
    """What fixed claims leave of each total: the floors of the others at least."""
    room, floors = dict(totals), dict.fromkeys(totals, 0.0)
    for claim in claims:
        for budget in claim.path:
            if claim.fixed:
                room[budget] -= claim.demand * headroom
            else:
                floors[budget] += min(claim.floor, claim.most)
    return {budget: max(left, floors[budget]) for budget, left in room.items()}


def settled(
    claims: Sequence[Claim],
    room: Mapping[str, float],
    *,
    before: Sequence[int | None],
    now: Sequence[int],
) -> Sequence[int]:
    """The new limits without those changes that are not worth a write.

    Nothing changes while everybody has what it needs and nobody could have twice as much. What is
    kept takes room, a minimum as much as is wanted of it, so raises share what is left. Where even
    that is too little, or too little for a minimum, all limits are the new ones.
    """
    inside: dict[str, list[int]] = {budget: [] for budget in room}
    for place, one in enumerate(claims):
        for budget in () if one.fixed else one.path:
            inside[budget].append(place)
    was = [now[n] if limit is None else limit for n, limit in enumerate(before)]
    is_needed = any(
        limit is None or min(new, claim.demand) > limit * (1 + HYSTERESIS) or new > limit * _FREE
        for claim, limit, new in zip(claims, before, now, strict=True)
        if not claim.fixed
    )
    if not is_needed and all(
        sum(claims[n].taken(was[n], claims[n].demand / HEADROOM) for n in places) <= room[budget]
        for budget, places in inside.items()
    ):
        return was
    kept = [
        limit if abs(new - limit) < HYSTERESIS * limit else new
        for limit, new in zip(was, now, strict=True)
    ]
    raised = [max(0, new - limit) for limit, new in zip(was, kept, strict=True)]
    part = 1.0
    for budget, places in inside.items():
        raises = sum(raised[place] for place in places)
        left = room[budget] - sum(
            claims[n].taken(kept[n] - raised[n], claims[n].demand) for n in places
        )
        if left < 0:
            return now
        if raises > left:
            part = min(part, left / raises)
    shared = [new - more + int(more * part) for new, more in zip(kept, raised, strict=True)]
    is_fair = all(
        not more or limit >= min(new, int(claim.least))
        for claim, limit, more, new in zip(claims, shared, raised, now, strict=True)
    )
    return shared if is_fair else now


# --- a pass ---

_KNOWN = (Reason.BUDGET_DIVIDED, "")
_UNMEASURED = frozenset({Reason.BUDGET_UNMEASURED, Reason.METRICS_NOT_WATCHED})


@dataclass(frozen=True, slots=True)
class BudgetMemory:
    """The limits in bytes/s of the whole cluster, and when those of a family changed last.

    A family is a budget without a parent (its key) and all below it.
    """

    limits: Mapping[RateKey, int] = field(default_factory=dict)
    changed: Mapping[tuple[str, Direction], float] = field(default_factory=dict)


@value(frozen=True, slots=True)
class BudgetedMember:
    """One member of a budget. `measured` is what it sends, `limits` what the budget allows it.

    Both in bytes/s of the whole cluster; a direction that is not known, or that the budget does not
    limit, is absent. `short` are the directions in which the budget allows less than the contract,
    `held_back` those of them in which the member uses all that it may.
    """

    tier: Tier
    member: Member
    measured: Mapping[Direction, float]
    limits: Mapping[Direction, int]
    short: frozenset[Direction]
    held_back: frozenset[Direction] = frozenset()


@dataclass(frozen=True, slots=True)
class BudgetReport:
    """One budget after a pass. `reason` says whether it is divided, `message` why it is not.

    `measured` is what its members and those of the budgets below it send, in bytes/s; a direction
    in which that is not known in full is absent.
    """

    budget: Budget
    reason: Reason
    message: str = ""
    members: tuple[BudgetedMember, ...] = ()
    measured: Mapping[Direction, float] = field(default_factory=dict)
    children: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Budgeted:
    """The tiers with the limits of budgets, what to remember, and the reports by budget."""

    tiers: tuple[Tier, ...] | None
    memory: BudgetMemory
    reports: Mapping[str, BudgetReport] = field(default_factory=dict)


def apply_budgets(
    observation: Observation,
    leaders: Leaders | None,
    flows: Flows,
    memory: BudgetMemory,
    *,
    charged: int,
) -> Budgeted:
    """Divide the budgets, and lay their limits over the tiers.

    `charged` is how many writes the write budget's period has paid for. A policy that is being
    deleted limits nobody.
    """
    if observation.policy.deleting or not observation.budgets:
        return Budgeted(observation.tiers, BudgetMemory())
    if observation.tiers is None or leaders is None or observation.quotas is None:
        return Budgeted(observation.tiers, memory)
    return _Division(observation, leaders, flows, memory, charged).budgeted()


@value(frozen=True, slots=True)
class _Part:
    """One member under one budget, and how many times its contract's rate is the whole cluster's.

    `scale` is what makes a rate the number on each broker, `brokers` are those that it may use.
    """

    budget: Budget
    tier: Tier
    member: Member
    form: RateForm
    times: int
    scale: float
    brokers: frozenset[int]

    @property
    def is_free(self) -> bool:
        return self.tier.level is Level.L0 or self.member.override is not None

    def most(self, key: QuotaKey) -> float:
        rate = None if self.member.contract is None else self.member.contract.byte_rate(key)
        return inf if rate is None else float(rate * self.times)


class _Division:
    """The budgets of one pass whose tiers, leaders and quotas are known."""

    def __init__(
        self,
        observation: Observation,
        leaders: Leaders,
        flows: Flows,
        memory: BudgetMemory,
        charged: int,
    ) -> None:
        self._observation, self._leaders, self._flows = observation, leaders, flows
        self._before, self._charged = memory, charged
        self._budgets = {budget.key: budget for budget in observation.budgets}
        self._problems: dict[str, tuple[Reason, str]] = {}
        self._paths = {key: self._path(key) for key in self._budgets}
        self._overlapping: dict[str, list[str]] = {}
        self._parts = self._assigned()
        self._limits: dict[RateKey, int] = {}
        self._changed: dict[tuple[str, Direction], float] = {}
        self._why: dict[str, tuple[Reason, str]] = {}

    def budgeted(self) -> Budgeted:
        families: dict[str, list[_Part]] = {}
        for part in self._parts.values():
            families.setdefault(self._paths[part.budget.key][-1], []).append(part)
        for root, parts in families.items():
            for direction in KEY_OF:
                self._divide(root, parts, direction)
        shared = {part.tier.key for part in self._parts.values()}
        tiers = tuple(
            [
                self._limited_tier(tier) if tier.key in shared else tier
                for tier in self._observation.tiers or ()
            ]
        )
        memory = BudgetMemory(self._limits, self._changed)
        if memory == self._before:
            memory = self._before
        return Budgeted(tiers, memory, self._reports())

    # --- who is under which budget ---

    def _path(self, key: str) -> tuple[str, ...]:
        """The budget and its parents. One whose parents do not fit counts for itself."""
        path = [key]
        while (parent := self._budgets[path[-1]].parent) is not None:
            if parent in path or parent not in self._budgets:
                what = "is its own parent" if parent in path else "does not exist in this policy"
                self._problems[key] = (
                    Reason.BUDGET_PARENT_UNFIT,
                    f"parent {parent} {what}, so only its own total limits its members",
                )
                return (key,)
            path.append(parent)
        return tuple(path)

    def _assigned(self) -> dict[Entity, _Part]:
        parts: dict[Entity, _Part] = {}
        seen: set[Entity] = set()
        budgets = self._budgets.values()
        # most members have the same few labels, or none
        alike: dict[tuple[str, tuple[tuple[str, str], ...]], list[Budget]] = {}
        for tier in self._observation.tiers or ():
            for member in tier.members:
                if member.entity in seen:
                    continue
                seen.add(member.entity)
                kind = tier.key, member.labels
                named = alike.get(kind)
                if named is None:
                    named = alike[kind] = [one for one in budgets if one.names(tier, member)]
                if named:
                    parts[member.entity] = self._part(named[0], tier, member)
                for other in named[1:]:
                    self._overlapping.setdefault(other.key, []).append(
                        f"{tier.key} {member.name} is in the older budget {named[0].key}"
                    )
        return parts

    def _part(self, budget: Budget, tier: Tier, member: Member) -> _Part:
        contract, live = member.contract, self._leaders.topology.brokers
        # without a contract in the form in which it is throttled
        form = RateForm.PER_PARTITION if member.topics else RateForm.PER_BROKER
        form = form if contract is None else contract.form
        spread = self._leaders.spread(member.topics) if member.topics else None
        brokers = frozenset(spread.leading) if spread is not None and spread.leading else live
        times, scale = len(brokers), 1.0
        if form is RateForm.TOTAL:
            times, scale = 1, 1 / max(1, len(brokers))
        elif form is RateForm.PER_PARTITION:
            spread = spread or LeaderSpread()
            method = self._observation.policy.scaling
            # Adaptive may be anywhere between Mean and Max
            method = ScalingMethod.MEAN if method is ScalingMethod.ADAPTIVE else method
            found = partition_scale(spread, method)
            times, scale = spread.partitions, found.times / found.parts
        return _Part(budget, tier, member, form, times, scale, brokers)

    # --- one direction of one family ---

    def _divide(self, root: str, family: list[_Part], direction: Direction) -> None:
        key = KEY_OF[direction]
        totals = {
            name: float(one.totals[key]) for name, one in self._budgets.items() if key in one.totals
        }
        family = [
            part for part in family if any(name in totals for name in self._paths[part.budget.key])
        ]
        unscaled = [part for part in family if not part.times]  # none of its topics exists now
        self._keep(unscaled, direction, [self._limit_before(part, direction) for part in unscaled])
        parts = [part for part in family if part.times]
        before = [self._limit_before(part, direction) for part in parts]
        place = (root, direction)
        if place in self._before.changed:
            self._changed[place] = self._before.changed[place]
        why = self._why_not(parts, place)
        if why is not None and why[0] is Reason.BUDGET_UNMEASURED:
            before = self._metered(parts, place, totals, before)
        if why is not None or not parts:
            if why is not None:
                self._why[root] = why
            self._keep(parts, direction, before)
            return
        if not self._shows_the_last(parts, place):
            self._keep(parts, direction, before)
            return
        counts = Counter(name for part in parts for name in self._paths[part.budget.key])
        own = Counter(part.budget.key for part in parts)
        even = {name: total / counts[name] for name, total in totals.items() if counts[name]}
        claims = [
            self._claim(part, direction, totals, even, count=own[part.budget.key]) for part in parts
        ]
        now = [int(round(share, 3)) for share in divide(claims, totals)]
        limits = settled(claims, rooms(claims, totals), before=before, now=now)
        changes = zip(parts, before, limits, strict=True)
        if any(was != limit for part, was, limit in changes if not part.is_free):
            self._changed[place] = self._observation.now_seconds
        self._keep(parts, direction, limits)

    def _keep(
        self, parts: Sequence[_Part], direction: Direction, limits: Sequence[int | None]
    ) -> None:
        for part, limit in zip(parts, limits, strict=True):
            if limit is not None and not part.is_free:
                self._limits[part.member.entity, direction] = limit

    def _metered(
        self,
        parts: Sequence[_Part],
        place: tuple[str, Direction],
        totals: Mapping[str, float],
        before: list[int | None],
    ) -> list[int | None]:
        """The limits before, and the whole budget for each member without a quota.

        Where nobody has one, brokers meter nobody, and the budget would never be divided.
        """
        policy, direction = self._observation.policy, place[1]
        if self._observation.readings is None or self._observation.missing:
            return before
        if policy.paused or policy.metering_enabled:  # with metering, readings are to come
            return before
        if any(self._flows.is_measured(one, direction) for part in parts for one in part.brokers):
            return before
        found = [
            min(int(totals[name]) for name in self._paths[part.budget.key] if name in totals)
            if limit is None and not part.is_free and not self._has_quota(part, direction)
            else limit
            for part, limit in zip(parts, before, strict=True)
        ]
        if found != before:  # the first readings are of a time without it
            self._changed[place] = self._observation.now_seconds
        return found

    def _has_quota(self, part: _Part, direction: Direction) -> bool:
        stored = (self._observation.quotas or {}).get(part.member.entity)
        return stored is not None and KEY_OF[direction] in stored.values

    def _limit_before(self, part: _Part, direction: Direction) -> int | None:
        """The limit that is remembered, or what the quota in force was written for."""
        if part.is_free:
            return None
        known = self._before.limits.get((part.member.entity, direction))
        if known is not None or not self._observation.policy.measured:
            return known
        key = KEY_OF[direction]
        stored = (self._observation.quotas or {}).get(part.member.entity)
        entry = None if stored is None else stored.entries_of(self._observation.policy).get(key)
        if stored is None or entry is None:
            return None
        in_force = entry.of_contract or enforced_rate(stored.values.get(key))
        if in_force is None:
            return None
        found = round(in_force / part.scale) * part.times
        return found if found < part.most(key) else None

    def _claim(
        self,
        part: _Part,
        direction: Direction,
        totals: Mapping[str, float],
        even: Mapping[str, float],
        *,
        count: int,
    ) -> Claim:
        """`count` members are in its budget, and `even` is an even share of each budget."""
        key, budget = KEY_OF[direction], part.budget
        path = tuple(name for name in self._paths[budget.key] if name in totals)
        flows = self._flows.of((part.member.entity, direction))
        measured = sum(flow.bytes_per_second for flow in flows.values())
        if part.is_free:
            return Claim(path, part.tier.level, 1.0, 0.0, measured, fixed=True)
        percent = min(budget.minimum_percent, 100 / count)
        return Claim(
            path,
            part.tier.level,
            budget.weight / count,
            totals.get(budget.key, 0.0) * percent / 100,
            self._demand(part, direction),
            part.most(key),
            floor=min(FLOOR_OF[key] / part.scale * part.times, *(even[name] for name in path)),
        )

    def _demand(self, part: _Part, direction: Direction) -> float:
        flows = self._flows.of((part.member.entity, direction))
        stored = (self._observation.quotas or {}).get(part.member.entity)
        in_force = None if stored is None else enforced_rate(stored.values.get(KEY_OF[direction]))
        fullest = max((flow.bytes_per_second for flow in flows.values()), default=0.0)
        return demand_of(flows.values(), in_force, fullest / part.scale * part.times)

    def _why_not(
        self, parts: Sequence[_Part], place: tuple[str, Direction]
    ) -> tuple[Reason, str] | None:
        """Why this division has to wait; None where nothing is in its way."""
        observation, direction = self._observation, place[1]
        if not observation.policy.measured:
            words = "the policy names no metrics, so it is not known what members use"
            return Reason.METRICS_NOT_WATCHED, words
        if observation.readings is None or observation.missing or observation.policy.paused:
            return Reason.BUDGET_UNMEASURED, "there is no usable reading of what members use"
        if self._charged > _OF_WRITE_BUDGET * observation.policy.write_budget_changes:
            words = "more than half of the write budget is used up, and the rest is for contracts"
            return Reason.BUDGET_WAITS, words
        brokers = frozenset[int]().union(*(part.brokers for part in parts))
        silent = {one for one in brokers if not self._flows.is_measured(one, direction)}
        if not silent and all(self._is_known(part, direction) for part in parts):
            return None
        which = f" from {broker_words(silent)}" if silent else ""
        return Reason.BUDGET_UNMEASURED, f"no usable reading{which} of what members use"

    def _is_known(self, part: _Part, direction: Direction) -> bool:
        """Whether every reported rate of the member may be used."""
        key, readings = (part.member.entity, direction), self._observation.readings
        reported = {} if readings is None else readings.by_sender.get(key, {})
        return reported.keys() <= self._flows.of(key).keys()

    def _shows_the_last(self, parts: Sequence[_Part], place: tuple[str, Direction]) -> bool:
        """Whether the readings are from after the last change, the brokers' window and all."""
        since = self._before.changed.get(place)
        now_seconds = self._observation.now_seconds
        if since is None or since > now_seconds:  # a clock that was set back
            return True
        times = [
            flow.at_seconds
            for part in parts
            for flow in self._flows.of((part.member.entity, place[1])).values()
        ]
        shown_seconds = since + self._observation.policy.window.seconds + _SEEN_AFTER_SECONDS
        return min(times, default=now_seconds) >= shown_seconds

    # --- what follows for the tiers, and what people read ---

    def _limited_tier(self, tier: Tier) -> Tier:
        members = tuple([self._limited(member) for member in tier.members])
        return tier if members == tier.members else replace(tier, members=members)

    def _limited(self, member: Member) -> Member:
        part = self._parts.get(member.entity)
        if part is None or part.member is not member:
            return member
        rates = {
            KEY_OF[direction]: max(
                self._limits[member.entity, direction] // part.times,
                ceil(MIN_BYTE_RATE / part.scale),
            )
            for direction in KEY_OF
            if self._is_short(part, direction)
        }
        if not rates:
            return member
        contract = member.contract or Contract(part.form)
        own = frozenset(key for key in rates if not contract.gives(key))
        return replace(
            member,
            contract=replace(
                contract,
                fetch_bytes_per_second=rates.get(
                    QuotaKey.CONSUMER_BYTE_RATE, contract.fetch_bytes_per_second
                ),
                produce_bytes_per_second=rates.get(
                    QuotaKey.PRODUCER_BYTE_RATE, contract.produce_bytes_per_second
                ),
                # they end with the budget
                override_only_keys=contract.override_only_keys | own,
            ),
        )

    def _is_short(self, part: _Part, direction: Direction) -> bool:
        limit = self._limits.get((part.member.entity, direction))
        return bool(part.times) and limit is not None and limit < part.most(KEY_OF[direction])

    def _reports(self) -> Mapping[str, BudgetReport]:
        members: dict[str, list[BudgetedMember]] = {}
        measured: dict[tuple[str, Direction], float] = {}
        for part in self._parts.values():
            found = self._member(part)
            members.setdefault(part.budget.key, []).append(found)
            for name in self._paths[part.budget.key]:
                for direction, rate in found.measured.items():
                    measured[name, direction] = measured.get((name, direction), 0.0) + rate
        children: dict[str, list[str]] = {}
        for path in self._paths.values():
            if len(path) > 1:
                children.setdefault(path[1], []).append(path[0])
        return {
            key: BudgetReport(
                budget,
                *self._verdict(key, bool(members.get(key) or children.get(key))),
                tuple(members.get(key, ())),
                {}
                if self._why.get(self._paths[key][-1], _KNOWN)[0] in _UNMEASURED
                else {way: measured.get((key, way), 0.0) for way in KEY_OF},
                tuple(children.get(key, ())),
            )
            for key, budget in self._budgets.items()
        }

    def _member(self, part: _Part) -> BudgetedMember:
        entity = part.member.entity
        short = frozenset(one for one in KEY_OF if self._is_short(part, one))
        return BudgetedMember(
            part.tier,
            part.member,
            {
                direction: sum(flow.bytes_per_second for flow in flows.values())
                for direction in KEY_OF
                if (flows := self._flows.of((entity, direction)))
            },
            {
                direction: self._limits[entity, direction]
                for direction in KEY_OF
                if (entity, direction) in self._limits
            },
            short,
            frozenset(one for one in short if self._demand(part, one) == inf),
        )

    def _verdict(self, key: str, has_any: bool) -> tuple[Reason, str]:
        overlapping = self._overlapping.get(key)
        if overlapping:
            more = f", and {len(overlapping) - 1} more" if len(overlapping) > 1 else ""
            return Reason.OVERLAPPING, f"{overlapping[0]}, which limits it{more}"
        if key in self._problems:
            return self._problems[key]
        if not has_any:
            return Reason.NO_SUCH_MEMBER, "no member of the policy's tiers is in it"
        root = self._paths[key][-1]
        return self._why.get(root, _KNOWN)


def demand_of(flows: Iterable[ClientRate], in_force: int | None, least_limit: float) -> float:
    """What a member would send, in bytes/s; inf while the quota in force holds it back.

    `least_limit` is the limit under which no broker would hold it back.
    """
    rates = list(flows)
    if not rates:
        return 0.0
    measured = sum(flow.bytes_per_second for flow in rates)
    is_sure = all(flow.throttle_milliseconds is not None for flow in rates)
    full = FULL if is_sure else BINDING
    for flow in rates if in_force is not None else ():
        used = flow.bytes_per_second / max(in_force or 0, MIN_BYTE_RATE)
        if used >= full or (used >= THROTTLED_USE and is_throttled(flow)):
            return inf
    return max(measured, least_limit) * (HEADROOM if is_sure else HEADROOM_UNSURE)
