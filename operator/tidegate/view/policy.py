"""One policy at one moment, put together from objects and readings.

Pure. The operator's own words come from the statuses that it wrote; what brokers and members carry
now comes from Prometheus, judged as the operator judges it. None is unknown, never zero.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from operator import is_
from typing import Final

from tidegate.errors import RetryLater, TidegateError
from tidegate.kube.api import (
    BROKER_BANDWIDTH_POLICIES,
    BUSINESS_TIERS,
    DELAY_QUEUES,
    EVENTS,
    PASS_ANNOTATION,
    QUOTA_OVERRIDES,
    ResourceKind,
)
from tidegate.observe.declared import Declared, SpecReader, belongs_to, declare, object_key
from tidegate.view.load import RELAXING, Load, NicNow, RawObject, level_words, state_words
from tidegate.view.queues import QueueNow, queues_now
from tidegate_logic.contracts.desired import AT_CONTRACT, MemberState
from tidegate_logic.model import (
    KEY_OF,
    Direction,
    Entity,
    Level,
    Member,
    Mode,
    Observation,
    RateKey,
    Readings,
    Tier,
    TopicLeaders,
    Topology,
)
from tidegate_logic.reasons import Reason
from tidegate_logic.throttle.nic_status import Pressure
from tidegate_logic.throttle.schedules import in_force

_NOTHING: Final = 1.0  # bytes per second: what is left of a mean long after
_WAY_NAMES: Final = {Direction.EGRESS: "fetch", Direction.INGRESS: "produce"}


@dataclass(frozen=True, slots=True)
class Objects:
    """Policies, tiers, overrides and queues as Kubernetes has them, and Events about these.

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
    queues: tuple[RawObject, ...] = ()

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
            queues=seen(DELAY_QUEUES, self.queues),
        )


@dataclass(frozen=True, slots=True)
class LeaseNow:
    """Which replica holds a policy's Lease ("" = none) by its last look; `problem`: why unknown."""

    holder: str = ""
    at_seconds: float | None = None
    problem: str = ""

    def is_known(self, now_seconds: float) -> bool:
        return InputNow("Lease", self.at_seconds, 30.0, self.problem).is_known(now_seconds)


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
class LevelNow:
    """One level as the status has it; `members`, and how many are throttled, None = not known.

    `state` is that of its members where they say more: Contended, or Throttled.
    """

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
    is what the quota should be, None = what it is. `is_throttled`: it is below its contract for a
    broker over its limit. `by_broker` has what it sends through each broker.
    """

    tier_key: str
    name: str
    level: Level
    entity: Entity
    direction: Direction
    sends: float | None
    delayed_seconds: float | None
    by_broker: Mapping[int, float]
    state: str
    message: str
    quota: int | None
    contract: int | None
    permitted: int | None
    leaders: int | None
    skew: str
    override: str
    is_known: bool
    target: int | None
    is_throttled: bool

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
    """One override: whom it is for, its state, and when it begins (None = it has) and ends."""

    key: str
    target: str
    action: str
    state: str
    until_seconds: float | None
    reason: str
    starts_seconds: float | None = None


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
    """Everything that pages show of one policy. `events` are the newest first, `queues` the worst.

    At `judged_until_seconds` a reading becomes too old or counts at last, and what was judged by it
    is judged again. `cannot_help_since`: since when it is known, without a break, that the operator
    has nothing left to throttle; None = it has.
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
    queues: tuple[QueueNow, ...] = ()
    cannot_help_since: float | None = field(default=None, compare=False)  # of earlier moments

    @property
    def readings(self) -> Readings | None:
        return self.measured.readings

    @cached_property
    def elsewhere(self) -> tuple[MemberNow, ...]:
        """Members not at their contracted rates: the least important first, then the largest."""
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
    def is_spent(self) -> bool:
        """Whether nothing is left to throttle, and not for a moment between two steps."""
        since = self.cannot_help_since
        return since is not None and self.now_seconds - since >= STEADY_SECONDS

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
_CANNOT_HELP: Final = frozenset({Reason.QUOTA_EXHAUSTED.value, Reason.QUOTA_CANNOT_HELP.value})
STEADY_SECONDS: Final = 30.0  # so long something holds before a page changes its verdict for it
KUBERNETES, OPERATOR, PROMETHEUS, KAFKA = "Kubernetes", "Operator", "Prometheus", "Kafka"
_KUBERNETES_FRESH_SECONDS: Final = 15.0
_MOST_EVENTS: Final = 100  # of a policy; the API server forgets them after an hour


def policy_now(
    objects: Objects,
    policy_key: str,
    measured: Measured,
    now_seconds: float,
    reader: SpecReader | None = None,
    before: PolicyNow | None = None,
) -> PolicyNow | None:
    """The policy at this moment; None if there is no such policy.

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
    found = _joined(raw, tiers, overrides, objects, measured, now_seconds, reader, declared)
    if found.condition("Throttling").get("reason") not in _CANNOT_HELP:
        return found
    since = None if before is None else before.cannot_help_since
    return replace(found, cannot_help_since=min(now_seconds, since or now_seconds))


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
        queues=queues_now(objects.queues, before.raw_policy),
    )


def _joined(
    raw: RawObject,
    tiers: tuple[RawObject, ...],
    overrides: tuple[RawObject, ...],
    objects: Objects,
    measured: Measured,
    now_seconds: float,
    reader: SpecReader | None,
    declared: Declared | None,
) -> PolicyNow:
    """What objects and readings have of one policy; read where it is not `declared` yet."""
    problems: list[str] = []
    if declared is None:
        try:
            declared = declare(
                *(raw, tiers, reader),
                overrides=overrides,
                lets_in=lambda namespace: _is_let_in(tiers, namespace),
            )
        except TidegateError as error:
            problems.append(error.message)
    status: RawObject = raw.get("status") or {}
    brokers = tuple(sorted(one["id"] for one in status.get("brokers") or ()))
    nics: tuple[NicNow, ...] = ()
    members: tuple[MemberNow, ...] = ()
    newest, judged_until = None, float("inf")
    if declared is not None:
        topology = Topology(now_seconds, frozenset(brokers), {})
        readings = measured.readings
        policy = in_force(declared.policy, declared.tiers, now_seconds)
        load = Load(Observation(now_seconds, policy, (), topology, None, readings=readings), status)
        newest, judged_until = load.newest_seconds, load.judged_until_seconds
        nics = tuple(load.nics(declared.tiers or (), measured.problem))
        members = tuple(_members(load, declared.tiers or (), tiers, status))
        problems += _problems(declared, readings)
    return PolicyNow(
        object_key(raw),
        now_seconds,
        str(status.get("clusterId") or ""),
        (raw.get("spec") or {}).get("mode") or Mode.ENFORCE.value,
        () if declared is None else declared.policy.paused_by,
        tuple(status.get("conditions") or ()),
        _inputs(raw, declared, objects, measured, newest),
        brokers,
        nics,
        tuple(_levels(status, members)),
        members,
        tuple(map(_override, overrides)),
        tuple(problems),
        raw,
        tiers,
        overrides,
        declared,
        measured,
        judged_until,
        objects.leases.get(object_key(raw)),
        _events(objects, raw, tiers, overrides),
        objects.events_problem,
        queues_now(objects.queues, raw),
    )


def _problems(declared: Declared, readings: Readings | None) -> Iterator[str]:
    """What cannot be read, and what readings lack."""
    yield from (f"{broken.key}: {broken.message}" for broken in declared.broken)
    yield from (broken.message for broken in declared.broken_overrides)
    if readings is not None and declared.spec.metrics:
        yield from (one.message for one in readings.problems)


def _levels(status: RawObject, members: Sequence[MemberNow]) -> Iterator[LevelNow]:
    for level, said in level_words(status).items():
        mine = [one for one in members if one.level is level]
        below = len({one.key for one in mine if one.is_throttled})
        are_known = all(one.is_known for one in mine)
        state = said.state
        if any(one.is_known and one.state == MemberState.CONTENDED for one in mine):
            state = MemberState.CONTENDED.value
        elif below and state == "Contract":
            state = MemberState.THROTTLED.value
        yield LevelNow(
            level,
            state,
            said.since,
            said.because,
            len({one.key for one in mine}),
            below if are_known else None,
        )


def _members(
    load: Load, tiers: Iterable[Tier], raw_tiers: Iterable[RawObject], status: RawObject
) -> Iterator[MemberNow]:
    statuses = {
        (object_key(raw), one["name"]): one
        for raw in raw_tiers
        for one in (raw.get("status") or {}).get("members") or ()
    }
    levels = {level: said.state for level, said in level_words(status).items()}
    for tier in tiers:
        for member in tier.members:
            said = statuses.get((tier.key, member.name), {})
            yield from _ways(load, tier, member, said, levels.get(tier.level, ""))


def _ways(
    load: Load, tier: Tier, member: Member, status: RawObject, level_state: str
) -> Iterator[MemberNow]:
    quotas, contracts, permitted, targets = (
        status.get(one) or {} for one in ("quota", "contractTotal", "permittedTotal", "target")
    )
    state = str(status.get("state") or "")
    is_held = state == MemberState.HELD
    is_known = bool(state) and not (is_held and {"quota", "contractTotal"}.isdisjoint(status))
    for way, name in _WAY_NAMES.items():
        client = load.client((member.entity, way))
        quota, contract = _number(quotas.get(name)), _number(contracts.get(name))
        target = _number(targets.get(name))
        has_quota = quota is not None or contract is not None
        sends = any(one >= _NOTHING for one in client.by_broker.values())
        if not (has_quota or sends or (not is_known and _declares(member, way))):
            continue
        # a throttle stays while the policy is paused
        is_lowered = quota is not None and target is not None and quota < target
        is_throttled = (
            is_lowered and level_state == MemberState.THROTTLED
            if is_held
            else has_quota and state == MemberState.THROTTLED
        )
        yield MemberNow(
            *(tier.key, member.name, tier.level, member.entity, way),
            *client,
            # a level is recovering when all its throttled members are
            RELAXING if level_state == RELAXING and not is_held and is_throttled else state,
            str(status.get("message") or ""),
            quota,
            contract,
            _number(permitted.get(name)),
            status.get("leaders"),
            _skew(status),
            str(status.get("override") or ""),
            is_known,
            target,
            is_throttled,
        )


def _override(raw: RawObject) -> OverrideNow:
    status, spec = raw.get("status") or {}, raw.get("spec") or {}
    target = (spec.get("target") or {}).items()
    return OverrideNow(
        object_key(raw),
        str((status.get("summary") or {}).get("target") or "")
        or ", ".join(f"{name}={value}" for name, value in target),
        str(spec.get("action") or ""),
        str(status.get("state") or "not seen yet"),
        seconds_of(status.get("until") or spec.get("expiresAt")),
        str(spec.get("reason") or ""),
        seconds_of(status.get("startsAt")),
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
            seconds_of(reachable.get("lastTransitionTime")),
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

    The console reads no namespaces. Raises RetryLater if nothing was written yet.
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
        seconds_of(at) or 0.0,
        str(raw.get("type") or ""),
        f"{regarding.get('kind')} {regarding.get('name')}",
        state_words(str(raw.get("reason") or "")),
        str(raw.get("note") or ""),
        str((metadata.get("annotations") or {}).get(PASS_ANNOTATION) or ""),
    )


def _skew(status: RawObject) -> str:
    """The skew of leaders, and that of fetch where consumers read from followers."""
    leaders, fetch = (str(status.get(name) or "") for name in ("leaderSkew", "fetchSkew"))
    by = str(status.get("fetchBy") or "").lower()
    return f"{leaders} (fetch {fetch} by {by})" if fetch else leaders


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def seconds_of(text: object) -> float | None:
    """Seconds since the epoch of a time as Kubernetes writes it; None for anything else."""
    try:
        return datetime.fromisoformat(str(text)).timestamp() if text else None
    except ValueError:
        return None


# What "What if" needs besides


def quotas_in_force(policy: PolicyNow) -> Mapping[RateKey, int]:
    """Quotas below the contract, per broker, of members that are throttled."""
    return {
        (one.entity, one.direction): one.quota
        for one in policy.members
        if one.quota is not None and one.is_throttled
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
