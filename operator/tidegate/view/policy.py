"""What the pages show of one policy at one moment, put together from objects and readings.

Pure. The operator's own words come from the statuses that it wrote; what brokers and members carry
now comes from Prometheus, judged as the operator judges it. None is unknown, never zero.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from operator import is_
from typing import Any, Final

from tidegate.errors import RetryLater, TidegateError
from tidegate.kube.api import (
    BROKER_BANDWIDTH_POLICIES,
    BUSINESS_TIERS,
    EVENTS,
    PASS_ANNOTATION,
    QUOTA_OVERRIDES,
    ResourceKind,
)
from tidegate.observe.declared import Declared, SpecReader, belongs_to, declare, object_key
from tidegate_logic.contracts.desired import MemberState
from tidegate_logic.model import (
    KEY_OF,
    Direction,
    Entity,
    Level,
    Member,
    Mode,
    Observation,
    Override,
    RateKey,
    Readings,
    Tier,
    TopicLeaders,
    Topology,
)
from tidegate_logic.readings import Flows, flows_of
from tidegate_logic.reasons import Reason
from tidegate_logic.throttle.nic_status import (
    NicStatus,
    Pressure,
    WatchedBroker,
    watch,
)

RawObject = Mapping[str, Any]
AT_CONTRACT: Final = frozenset({"Contract", "Unlimited"})
_NOTHING: Final = 1.0  # bytes per second: what is left of a mean long after
_WAY_NAMES: Final = {Direction.EGRESS: "fetch", Direction.INGRESS: "produce"}
_LEVELS: Final = {level.value: level for level in Level}


@dataclass(frozen=True, slots=True)
class Objects:
    """Policies, tiers and overrides as Kubernetes has them, and Events about these.

    `heard_at_seconds` is when the API server was heard last, None = never; `problem` says why it is
    not heard now, "" = it is; `events_problem` the same of Events. `leases` has each policy's.
    """

    policies: tuple[RawObject, ...] = ()
    tiers: tuple[RawObject, ...] = ()
    overrides: tuple[RawObject, ...] = ()
    heard_at_seconds: float | None = None
    problem: str = ""
    events: tuple[RawObject, ...] = ()
    events_problem: str = ""
    leases: Mapping[str, "LeaseNow"] = field(default_factory=dict)

    def only(self, may_see: Callable[[ResourceKind, str], bool]) -> "Objects":
        """Those of kinds and namespaces that a viewer may see."""

        def seen(kind: ResourceKind, objects: Iterable[RawObject]) -> tuple[RawObject, ...]:
            return tuple(one for one in objects if may_see(kind, one["metadata"]["namespace"]))

        events = seen(EVENTS, self.events)
        return replace(
            self,
            events=events,
            events_problem=self.events_problem
            or ("" if len(events) == len(self.events) else "you may not list some of them"),
            policies=seen(BROKER_BANDWIDTH_POLICIES, self.policies),
            tiers=seen(BUSINESS_TIERS, self.tiers),
            overrides=seen(QUOTA_OVERRIDES, self.overrides),
        )


@dataclass(frozen=True, slots=True)
class LeaseNow:
    """Which replica holds a policy's Lease ("" = none) by its last look; `problem`: why unknown."""

    holder: str = ""
    at_seconds: float | None = None
    problem: str = ""

    def is_known(self, now_seconds: float) -> bool:
        return (
            not self.problem
            and self.at_seconds is not None
            and now_seconds - self.at_seconds <= _LEASE_FRESH_SECONDS
        )


@dataclass(frozen=True, slots=True)
class Measured:
    """The newest reading of one policy's Prometheus. `problem` says why there is none now."""

    readings: Readings | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class InputNow:
    """One input: when it was known last (None = never), how old that may be, and what is wrong."""

    name: str
    at_seconds: float | None
    fresh_seconds: float
    problem: str = ""

    def is_known(self, now_seconds: float) -> bool:
        if self.problem or self.at_seconds is None:
            return False
        return now_seconds - self.at_seconds <= self.fresh_seconds


@dataclass(frozen=True, slots=True)
class NicNow:
    """One broker's NIC one way, in bytes/s. `share` is of the limit.

    What it carries is split into members by level, `foreign` clients that no tier names, and the
    rest, which is replication for the most part; None where clients are not measured.
    """

    broker: int
    direction: Direction
    pressure: Pressure
    limit: int | None
    bytes_per_second: float | None
    at_seconds: float | None
    why: str
    since: str
    by_level: Mapping[Level, float] = field(default_factory=dict)
    foreign: float | None = None

    @property
    def share(self) -> float | None:
        if not self.is_known or self.bytes_per_second is None or not self.limit:
            return None
        return self.bytes_per_second / self.limit

    @property
    def is_known(self) -> bool:
        return self.pressure is not Pressure.UNKNOWN and self.bytes_per_second is not None

    @property
    def rest(self) -> float | None:
        """What is neither a member's nor another client's; None = not known."""
        if self.foreign is None or self.bytes_per_second is None:
            return None
        return max(0.0, self.bytes_per_second - self.foreign - sum(self.by_level.values()))


@dataclass(frozen=True, slots=True)
class LevelNow:
    """One level as the status has it; `members`, and how many give, None = not known now."""

    level: Level
    state: str
    since: str
    because: str
    members: int
    below: int | None


@dataclass(frozen=True, slots=True)
class MemberNow:
    """One member one way, in bytes/s. `sends` is over all brokers, `quota` on each of them.

    `contract` is over all brokers. `quota` and `contract` None = none, or not known where
    `is_known` is False: the operator has not seen it yet, or does not reach the cluster. `target`
    is what the quota should be, None = what it is. `gives`: it is below its contract for a broker
    over its limit. `by_broker` has what it moves on each broker.
    """

    tier_key: str
    name: str
    level: Level
    entity: Entity
    direction: Direction
    state: str
    message: str
    sends: float | None
    delayed_seconds: float | None
    quota: int | None
    contract: int | None
    permitted: int | None
    leaders: int | None
    skew: str
    override: str
    is_known: bool
    target: int | None = None
    gives: bool = False
    by_broker: Mapping[int, float] = field(default_factory=dict)

    @property
    def is_elsewhere(self) -> bool:
        """Whether it is not at its contract, for whatever reason: also contended, or held there."""
        has_quota = self.quota is not None or self.contract is not None
        stays_right = self.state == MemberState.HELD and self.target is None
        return has_quota and self.is_known and self.state not in AT_CONTRACT and not stays_right

    @property
    def key(self) -> str:
        """What an address names it by."""
        return f"{self.tier_key}/{self.name}"

    @property
    def way(self) -> str:
        return _WAY_NAMES[self.direction]


@dataclass(frozen=True, slots=True)
class OverrideNow:
    """One override: whom it is for, its state, and when it ends."""

    key: str
    target: str
    action: str
    state: str
    until_seconds: float | None
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class EventNow:
    """One Event about the policy or an object of it; `pass_id` is of the pass that posted it."""

    uid: str
    at_seconds: float
    type: str
    regarding: str
    reason: str
    note: str
    pass_id: str


@dataclass(frozen=True)
class PolicyNow:
    """Everything that pages show of one policy. `events` are the newest first.

    At `judged_until_seconds` a reading becomes too old or counts at last, and what was judged by it
    is judged anew.
    """

    key: str
    now_seconds: float
    cluster_id: str
    mode: str
    paused_by: tuple[str, ...]
    conditions: tuple[RawObject, ...]
    inputs: tuple[InputNow, ...]
    brokers: tuple[int, ...]
    nics: tuple[NicNow, ...]
    levels: tuple[LevelNow, ...]
    members: tuple[MemberNow, ...]
    overrides: tuple[OverrideNow, ...]
    problems: tuple[str, ...]
    raw_policy: RawObject
    raw_tiers: tuple[RawObject, ...]
    raw_overrides: tuple[RawObject, ...]
    declared: Declared | None
    measured: Measured
    judged_until_seconds: float
    lease: LeaseNow | None = None
    events: tuple[EventNow, ...] = ()
    events_problem: str = ""

    @property
    def readings(self) -> Readings | None:
        return self.measured.readings

    @cached_property
    def elsewhere(self) -> tuple[MemberNow, ...]:
        """Who is not at the contract: the least important first, of these who sends most."""
        return self._least_important_first(one for one in self.members if one.is_elsewhere)

    @cached_property
    def would_change(self) -> tuple[MemberNow, ...]:
        """In mode Observe: whose quota Enforce would change."""
        held = (one for one in self.members if one.state == MemberState.HELD and one.is_known)
        return self._least_important_first(held if self.mode == Mode.OBSERVE else ())

    def _least_important_first(self, members: Iterable[MemberNow]) -> tuple[MemberNow, ...]:
        return tuple(sorted(members, key=lambda one: (one.level, one.sends or 0.0), reverse=True))

    def is_still_judged_by(self, measured: Measured, now_seconds: float) -> bool:
        """Whether these readings would be judged at this time as they were."""
        return (
            measured is self.measured
            and self.now_seconds <= now_seconds < self.judged_until_seconds
        )

    @property
    def over(self) -> tuple[NicNow, ...]:
        return tuple(one for one in self.nics if one.pressure is Pressure.OVER)

    @property
    def is_held(self) -> bool:
        """Whether the operator says that nothing changes: it lacks an input, or is paused."""
        said = self.condition("Ready")
        return bool(said) and said.get("status") != "True" and said.get("reason") not in _GOES_ON

    def condition(self, kind: str) -> RawObject:
        return next((one for one in self.conditions if one.get("type") == kind), {})

    def input_of(self, name: str) -> InputNow:
        return next(one for one in self.inputs if one.name == name)


def policy_keys(objects: Objects) -> tuple[str, ...]:
    """Every policy, as namespace/name."""
    return tuple(sorted(object_key(raw) for raw in objects.policies))


# a policy that is not Ready for one of these changes other quotas all the same
_GOES_ON: Final = frozenset(
    {Reason.REMOVAL_HELD.value, Reason.CONTENDED.value, Reason.WRITE_BUDGET_SPENT.value}
)
KUBERNETES, OPERATOR, PROMETHEUS, KAFKA = "Kubernetes", "Operator", "Prometheus", "Kafka"
_KUBERNETES_FRESH_SECONDS: Final = 15.0
_LEASE_FRESH_SECONDS: Final = 30.0
_MOST_EVENTS: Final = 100  # of a policy; the API server forgets them after an hour


def policy_now(
    objects: Objects,
    policy_key: str,
    measured: Measured,
    now_seconds: float,
    reader: SpecReader | None = None,
    before: PolicyNow | None = None,
) -> PolicyNow | None:
    """The policy at this moment; None where there is no such policy.

    A `reader` keeps specs that it has read before. Of `before`, which is the policy as it was put
    together last, what came from the same objects and readings is taken over: while nothing
    changes, time alone goes on.
    """
    raw = next((one for one in objects.policies if object_key(one) == policy_key), None)
    if raw is None:
        return None
    tiers = tuple(one for one in objects.tiers if belongs_to(one, raw))
    overrides = tuple(one for one in objects.overrides if belongs_to(one, raw))
    declared = None
    if before is not None and before.declared is not None:
        is_same = _are_same(
            (raw, *tiers, *overrides),
            (before.raw_policy, *before.raw_tiers, *before.raw_overrides),
        )
        if is_same and before.is_still_judged_by(measured, now_seconds):
            return _later(before, objects, now_seconds)
        declared = before.declared if is_same else None
    return _Joined(raw, tiers, overrides, objects, measured, now_seconds, reader, declared).policy()


def _are_same(now: Sequence[RawObject], before: Sequence[RawObject]) -> bool:
    """Whether these are the objects themselves: a change comes as another object."""
    return len(now) == len(before) and all(map(is_, now, before))


def _later(before: PolicyNow, objects: Objects, now_seconds: float) -> PolicyNow:
    """The same policy with everything that time, the API server and the Lease do to it."""
    newest = before.input_of(PROMETHEUS).at_seconds
    return replace(
        before,
        now_seconds=now_seconds,
        inputs=_inputs(before.raw_policy, before.declared, objects, before.measured, newest),
        lease=objects.leases.get(before.key),
        events=_events(objects, before.raw_policy, before.raw_tiers, before.raw_overrides),
        events_problem=objects.events_problem,
    )


class _Joined:
    """Puts together what objects and readings have of one policy."""

    def __init__(
        self,
        raw: RawObject,
        tiers: tuple[RawObject, ...],
        overrides: tuple[RawObject, ...],
        objects: Objects,
        measured: Measured,
        now_seconds: float,
        reader: SpecReader | None,
        declared: Declared | None,
    ) -> None:
        self._reader = reader
        self._raw, self._tiers, self._overrides = raw, tiers, overrides
        self._objects, self._measured, self._now = objects, measured, now_seconds
        self._status: RawObject = raw.get("status") or {}
        self._problems: list[str] = []
        self._declared = self._declare() if declared is None else self._with_problems(declared)
        policy = None if self._declared is None else self._declared.policy
        self._stale = 45.0 if policy is None else policy.stale_after_seconds
        self._flows = flows_of(
            measured.readings, now_seconds=now_seconds, stale_after_seconds=self._stale
        )
        tiers_read = () if self._declared is None else self._declared.tiers or ()
        self._level_of = {
            member.entity: tier.level for tier in reversed(tiers_read) for member in tier.members
        }
        # of each NIC; None = of clients that no tier names
        self._sums: dict[tuple[int, Direction], dict[Level | None, float]] = defaultdict(dict)
        for (entity, way), at in self._flows.by_key.items():
            level = self._level_of.get(entity)
            for broker, rate in at.items():
                sums = self._sums[broker, way]
                sums[level] = sums.get(level, 0.0) + rate.bytes_per_second

    def policy(self) -> PolicyNow:
        raw, declared, status = self._raw, self._declared, self._status
        members = tuple(self._members())
        brokers = tuple(sorted(one["id"] for one in status.get("brokers") or ()))
        mode = (raw.get("spec") or {}).get("mode") or Mode.ENFORCE.value
        return PolicyNow(
            object_key(raw),
            self._now,
            str(status.get("clusterId") or ""),
            mode,
            () if declared is None else declared.policy.paused_by,
            tuple(status.get("conditions") or ()),
            _inputs(raw, declared, self._objects, self._measured, self._newest()),
            brokers,
            tuple(self._nics(brokers)),
            tuple(self._levels(members)),
            members,
            tuple(self._overrides_now()),
            (*self._problems, *self._missing()),
            raw,
            self._tiers,
            self._overrides,
            declared,
            self._measured,
            self._judged_until(),
            self._objects.leases.get(object_key(raw)),
            _events(self._objects, raw, self._tiers, self._overrides),
            self._objects.events_problem,
        )

    def _declare(self) -> Declared | None:
        try:
            declared = declare(
                *(self._raw, self._tiers, self._reader),
                overrides=self._overrides,
                lets_in=lambda namespace: _is_let_in(self._tiers, namespace),
            )
        except TidegateError as error:
            self._problems.append(error.message)
            return None
        return self._with_problems(declared)

    def _with_problems(self, declared: Declared) -> Declared:
        self._problems += [f"{broken.key}: {broken.message}" for broken in declared.broken]
        self._problems += [broken.message for broken in declared.broken_overrides]
        return declared

    def _missing(self) -> Iterator[str]:
        """What readings lack."""
        readings = self._measured.readings
        if readings is not None and self._declared is not None and self._declared.spec.metrics:
            yield from (one.message for one in readings.problems)

    def _judged_until(self) -> float:
        """When the first reading is too old to be judged by, or new enough at last.

        A NIC whose newest reading is of another time has its age in words, so it is judged anew
        each time.
        """
        readings, now, stale = self._measured.readings, self._now, self._stale
        if readings is None:
            return float("inf")
        nics = {spans[-1].at_seconds for spans in readings.nic.values() if spans}
        if any(abs(now - at) > stale for at in nics):
            return now
        times = nics | {rate.at_seconds for rate in readings.clients.values()}
        turns = (turn for at in times for turn in (at - stale, at + stale) if turn >= now)
        return min(turns, default=float("inf"))

    def _newest(self) -> float | None:
        """When the newest sample of any NIC was."""
        readings = self._measured.readings
        nics = {} if readings is None else readings.nic
        return max((spans[-1].at_seconds for spans in nics.values() if spans), default=None)

    def _nics(self, brokers: Sequence[int]) -> Iterator[NicNow]:
        said = {one["id"]: one for one in self._status.get("brokers") or ()}
        for broker, way, nic, is_over in self._watched(brokers):
            entry = said.get(broker, {})
            # its load swings around the limit while it is throttled
            swings = nic.pressure is not Pressure.UNKNOWN and is_over
            pressure = Pressure.OVER if swings else nic.pressure
            is_measured = self._flows.is_measured(broker, way)
            sums = self._sums.get((broker, way), {})
            yield NicNow(
                broker,
                way,
                pressure,
                nic.limit,
                nic.bytes_per_second,
                nic.at_seconds or self._sampled_at((broker, way)),
                nic.why or self._measured.problem,
                str(entry.get("since") or "") if pressure.value == entry.get("pressure") else "",
                {level: rate for level, rate in sums.items() if level is not None},
                sums.get(None, 0.0) if is_measured else None,
            )

    def _sampled_at(self, place: tuple[int, Direction]) -> float | None:
        """When the newest sample was, however old it is."""
        readings = self._measured.readings
        spans = readings.nic.get(place) if readings is not None else None
        return spans[-1].at_seconds if spans else None

    def _watched(self, brokers: Sequence[int]) -> Iterator[tuple[int, Direction, NicStatus, bool]]:
        """Every limited NIC as the operator would judge it; unknown without a reading."""
        if self._declared is None:
            return
        policy, topology = self._declared.policy, self.topology(brokers)
        seen: dict[int, WatchedBroker] = {}
        if self._measured.readings is not None and brokers:
            observation = Observation(
                self._now, policy, (), topology, None, readings=self._measured.readings
            )
            before = {
                one["id"]: Pressure(one["pressure"])
                for one in self._status.get("brokers") or ()
                if one.get("pressure") in set(Pressure)
            }
            seen = {one.broker: one for one in watch(observation, self._flows, before) or ()}
        for broker in brokers:
            limits = policy.limits.of(broker)
            for way in Direction:
                if limits.limit(way) is None:
                    continue
                one = seen.get(broker)
                nic = None if one is None else one.nics.get(way)
                if nic is None:
                    nic = NicStatus(
                        broker, Pressure.UNKNOWN, limits.limit(way), limits.capacity(way)
                    )
                is_over = one is not None and one.pressure is Pressure.OVER
                yield broker, way, nic, is_over and _is_fullest(one, nic)

    def topology(self, brokers: Sequence[int]) -> Topology:
        return Topology(self._now, frozenset(brokers), {})

    def _levels(self, members: Sequence[MemberNow]) -> Iterator[LevelNow]:
        for one in self._status.get("levels") or ():
            level = _LEVELS.get(one.get("level"))
            if level is None:
                continue
            mine = {(m.tier_key, m.name) for m in members if m.level is level}
            below = {(m.tier_key, m.name) for m in members if m.level is level and m.gives}
            are_known = all(m.is_known for m in members if m.level is level)
            yield LevelNow(
                level,
                str(one.get("state") or ""),
                str(one.get("since") or ""),
                str(one.get("because") or ""),
                len(mine),
                len(below) if are_known else None,
            )

    def _members(self) -> Iterator[MemberNow]:
        declared = self._declared
        statuses = {
            (object_key(raw), one["name"]): one
            for raw in self._tiers
            for one in (raw.get("status") or {}).get("members") or ()
        }
        for tier in () if declared is None else declared.tiers or ():
            for member in tier.members:
                yield from self._ways(tier, member, statuses.get((tier.key, member.name), {}))

    def _ways(self, tier: Tier, member: Member, status: RawObject) -> Iterator[MemberNow]:
        for way, name in _WAY_NAMES.items():
            flows = self._flows.of((member.entity, way))
            quota = _number((status.get("quota") or {}).get(name))
            contract = _number((status.get("contractTotal") or {}).get(name))
            target = _number((status.get("target") or {}).get(name))
            state = str(status.get("state") or "")
            is_known = bool(state) and not (
                state == MemberState.HELD and {"quota", "contractTotal"}.isdisjoint(status)
            )
            moves = any(one.bytes_per_second >= _NOTHING for one in flows.values())
            is_missed = not is_known and _declares(member, way)
            if quota is None and contract is None and not moves and not is_missed:
                continue
            delays = [
                one.throttle_milliseconds
                for one in flows.values()
                if one.throttle_milliseconds is not None
            ]
            yield MemberNow(
                tier.key,
                member.name,
                tier.level,
                member.entity,
                way,
                state,
                str(status.get("message") or ""),
                sum(one.bytes_per_second for one in flows.values())
                if flows
                else _nothing_or_unknown(self._flows, way),
                max(delays) / 1000 if delays else None,
                quota,
                contract,
                _number((status.get("permittedTotal") or {}).get(name)),
                status.get("leaders"),
                str(status.get("leaderSkew") or ""),
                str(status.get("override") or ""),
                is_known,
                target,
                self._gives(state, tier.level, quota, contract, target),
                {broker: one.bytes_per_second for broker, one in sorted(flows.items())},
            )

    def _gives(
        self,
        state: str,
        level: Level,
        quota: int | None,
        contract: int | None,
        target: int | None,
    ) -> bool:
        if state == MemberState.HELD:  # a throttle stays while the policy is paused
            is_lowered = quota is not None and target is not None and quota < target
            return is_lowered and self._throttled_levels >= {level.value}
        return state == MemberState.THROTTLED and (quota is not None or contract is not None)

    @property
    def _throttled_levels(self) -> set[str]:
        levels = self._status.get("levels") or ()
        return {one["level"] for one in levels if one.get("state") == "Throttled"}

    def _overrides_now(self) -> Iterator[OverrideNow]:
        for raw in self._overrides:
            status, spec = raw.get("status") or {}, raw.get("spec") or {}
            conditions = status.get("conditions") or ()
            ready: RawObject = next((c for c in conditions if c.get("type") == "Ready"), {})
            target = (status.get("summary") or {}).get("target") or _target(spec)
            yield OverrideNow(
                object_key(raw),
                str(target),
                str(spec.get("action") or ""),
                str(status.get("state") or "not seen yet"),
                _seconds(status.get("until") or spec.get("expiresAt")),
                str(spec.get("reason") or ""),
                str(ready.get("message") or ""),
            )


def _inputs(
    raw: RawObject,
    declared: Declared | None,
    objects: Objects,
    measured: Measured,
    newest_sample_seconds: float | None,
) -> tuple[InputNow, ...]:
    conditions = (raw.get("status") or {}).get("conditions") or ()
    said: Mapping[str, RawObject] = {str(one.get("type")): one for one in reversed(conditions)}
    heard, fresh = objects.heard_at_seconds, _KUBERNETES_FRESH_SECONDS
    unseen = "" if "Ready" in said else "no status yet: no operator has seen this policy"
    reachable = said.get("ClusterReachable", {})
    is_reached = reachable.get("status") == "True"
    spec = None if declared is None else declared.spec.metrics
    return (
        InputNow(KUBERNETES, heard, fresh, objects.problem),
        InputNow(OPERATOR, heard, fresh, unseen),
        InputNow(KAFKA, heard, fresh)
        if is_reached
        else InputNow(
            KAFKA,
            _seconds(reachable.get("lastTransitionTime")),
            fresh,
            str(reachable.get("message") or "not known"),
        ),
        InputNow(PROMETHEUS, None, 0.0, "the policy names no metrics")
        if declared is None or spec is None
        else InputNow(
            PROMETHEUS,
            newest_sample_seconds,
            declared.policy.stale_after_seconds,
            measured.problem,
        ),
    )


def _is_let_in(tiers: Iterable[RawObject], namespace: str) -> bool:
    """Whether spec.allowedTiers lets in a namespace, by what the operator wrote to its tiers.

    The console reads no namespaces. Raises RetryLater where nothing was written yet.
    """
    for raw in tiers:
        for one in (raw.get("status") or {}).get("conditions") or ():
            reason = one.get("reason")
            if raw["metadata"]["namespace"] != namespace or one.get("type") != "Ready":
                continue
            if reason != Reason.NAMESPACES_UNREAD:
                return bool(reason != Reason.TIER_NOT_ALLOWED)
    raise RetryLater(
        Reason.NAMESPACES_UNREAD,
        f"The operator has said nothing yet of the BusinessTiers of namespace {namespace}",
    )


def _declares(member: Member, way: Direction) -> bool:
    return member.contract is not None and member.contract.gives(KEY_OF[way])


def _is_fullest(one: WatchedBroker | None, nic: NicStatus) -> bool:
    """Whether no other NIC of the broker carries a larger share of its limit."""
    others = [] if one is None else one.nics.values()
    return all(other.above(1.0) <= nic.above(1.0) for other in others)


def _nothing_or_unknown(flows: Flows, way: Direction) -> float | None:
    """A client without series: rate zero where brokers report others, unknown where they do not."""
    return 0.0 if any(direction is way for _, direction in flows.totals) else None


_KINDS: Final = {
    kind.kind: kind for kind in (BROKER_BANDWIDTH_POLICIES, BUSINESS_TIERS, QUOTA_OVERRIDES)
}


def _about(raw: RawObject) -> tuple[ResourceKind | None, str]:
    regarding = raw.get("regarding") or {}
    key = f"{regarding.get('namespace')}/{regarding.get('name')}"
    return _KINDS.get(str(regarding.get("kind"))), key


def _events(
    objects: Objects, raw: RawObject, tiers: Iterable[RawObject], overrides: Iterable[RawObject]
) -> tuple[EventNow, ...]:
    """Events about the policy, its tiers and overrides: the newest first."""
    named = {
        (kind, object_key(one))
        for kind, mine in (
            (BROKER_BANDWIDTH_POLICIES, (raw,)),
            (BUSINESS_TIERS, tiers),
            (QUOTA_OVERRIDES, overrides),
        )
        for one in mine
    }
    found = [event_now(one) for one in objects.events if _about(one) in named]
    found.sort(key=lambda one: one.at_seconds, reverse=True)
    return tuple(found[:_MOST_EVENTS])


def event_now(raw: RawObject) -> EventNow:
    """An Event as the API of events.k8s.io has it."""
    metadata, regarding = raw["metadata"], raw.get("regarding") or {}
    at = raw.get("eventTime") or metadata.get("creationTimestamp")
    return EventNow(
        str(metadata["uid"]),
        _seconds(at) or 0.0,
        str(raw.get("type") or ""),
        f"{regarding.get('kind')} {regarding.get('name')}",
        str(raw.get("reason") or ""),
        str(raw.get("note") or ""),
        str((metadata.get("annotations") or {}).get(PASS_ANNOTATION) or ""),
    )


def _target(spec: RawObject) -> str:
    target = spec.get("target") or {}
    return ", ".join(f"{name}={value}" for name, value in target.items())


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _seconds(text: object) -> float | None:
    """Seconds since the epoch of a time as Kubernetes writes it; None for anything else."""
    try:
        return datetime.fromisoformat(str(text)).timestamp() if text else None
    except ValueError:
        return None


def seconds_of(text: str) -> float | None:
    """The same for pages."""
    return _seconds(text)


# What "What if" needs besides


def quotas_in_force(policy: PolicyNow) -> Mapping[RateKey, int]:
    """Quotas below the contract, per broker, of whoever is throttled."""
    return {
        (one.entity, one.direction): one.quota
        for one in policy.members
        if one.quota is not None and one.gives
    }


def assumed_topology(policy: PolicyNow, tiers: Iterable[Tier]) -> Topology:
    """Brokers as the status has them, and each topic led evenly by those that its members move
    bytes on; by all where none does.
    """
    counts = {(one.tier_key, one.name): (one.leaders or 0, one.by_broker) for one in policy.members}
    topics: dict[str, TopicLeaders] = {}
    for tier in tiers:
        for member in tier.members:
            leaders, at = counts.get((tier.key, member.name), (0, {}))
            named = [topic for topic in member.topics if not topic.endswith("*")]
            brokers = sorted(at) or list(policy.brokers)
            for topic in named:
                each, more = divmod(max(leaders // len(named), 1), len(brokers) or 1)
                led = {b: each + (place < more) for place, b in enumerate(brokers)}
                topics.setdefault(topic, TopicLeaders({b: n for b, n in led.items() if n}))
            for topic in member.topics:
                if topic.endswith("*"):
                    topics.setdefault(topic[:-1] + "…", TopicLeaders(dict.fromkeys(brokers, 1)))
    return Topology(policy.now_seconds, frozenset(policy.brokers), topics)


def declared_overrides(policy: PolicyNow) -> tuple[Override, ...]:
    return () if policy.declared is None else policy.declared.overrides or ()
