"""The part of a pass that looks after replication: observe, decide, record, change.

It comes after the quotas and is bounded in time: what goes wrong here never holds a quota up. The
record is kept before anything is changed, so being killed anywhere leaves nothing unknown. A pass
that changes nothing writes nothing.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from tidegate.errors import TidegateError
from tidegate.kafka.quota_store import Claim, ClusterFacts, QuotaStore, require_lease
from tidegate.kafka.throttle_record import record_of, record_to_bytes
from tidegate.observe.declared import Declared
from tidegate.observe.observation import ReplicationSource
from tidegate.resources.replication import (
    DEFAULT_MINIMUM_RATE,
    BackgroundRates,
    ReassignmentRates,
    Reassignments,
    Recovery,
    RemoteTraffic,
    Replication,
)
from tidegate.resources.replication import Background as BackgroundSpec
from tidegate_logic.decision import Decision
from tidegate_logic.model import (
    BackgroundKind,
    BackgroundSpans,
    BrokerLimits,
    Level,
    Mode,
    ReplicationOnNics,
)
from tidegate_logic.replication.background import Background, Flow
from tidegate_logic.replication.moves import ClusterReplication, MoveKind, Side
from tidegate_logic.replication.rates import (
    NicRoom,
    Priority,
    ReplicationMode,
    Stall,
    Terms,
)
from tidegate_logic.replication.replication_pass import (
    ReplicationDecision,
    ReplicationInput,
    ReplicationMemory,
    decide_replication,
    not_applied,
    resources_of,
)
from tidegate_logic.replication.throttles import (
    RATE_KEYS,
    ConfigChange,
    Configs,
    Items,
    Operation,
    Resource,
    items_of,
    with_items,
    without_items,
)
from tidegate_logic.throttle.decision import ThrottleDecision
from tidegate_logic.throttle.schedules import in_force

SCAN_SECONDS = 60.0  # how often the throttles of the whole cluster are looked at
FIGURES_SECONDS = 60.0  # numbers alone renew a status no sooner
PASS_SECONDS = 5.0  # while replicas are being filled
_OFF = {kind: Terms() for kind in MoveKind}


@dataclass(frozen=True, slots=True)
class Figures:
    """What is being filled for one reason; the figures of a status are renewed once a minute."""

    partitions: int
    bytes_left: int | None
    seconds: float | None
    bottleneck: Side | None


@dataclass(frozen=True, slots=True)
class ReplicationResult:
    """What a pass did about replication. `decision` None = it could not even look.

    `applied` are the changes that were made, `failed` says for each resource why not. `is_idle` =
    the policy asks for nothing and nothing of ours is left. `figures`, `stalls` and the rates in
    force of `background` are those of the status.
    `begins` = it passes a NIC, and the quotas of this pass were decided without that.
    """

    decision: ReplicationDecision | None = None
    applied: tuple[ConfigChange, ...] = ()
    failed: Mapping[Resource, str] = field(default_factory=dict)
    error: TidegateError | None = None
    is_idle: bool = False
    figures: Mapping[MoveKind, Figures] = field(default_factory=dict)
    stalls: tuple[Stall, ...] = ()
    background: Mapping[Flow, int] = field(default_factory=dict)
    begins: bool = False

    @property
    def next_pass_in_seconds(self) -> float | None:
        """How soon the next look should come; None = nothing is being filled."""
        if self.begins:
            return 0.0
        is_moving = self.decision is not None and self.decision.is_busy
        return PASS_SECONDS if is_moving or self.error is not None else None

    @property
    def is_finished(self) -> bool:
        """Whether nothing of ours is left."""
        return self.is_idle or (
            self.error is None and self.decision is not None and self.decision.is_finished
        )


IDLE = ReplicationResult(is_idle=True)


class ReplicationControl:
    """Looks after the replication of one policy's cluster, from pass to pass.

    Everything that it waits for is counted by `monotonic`: a wall clock that is set back would make
    a policy that is deleted wait for longer than it may.
    """

    def __init__(self, monotonic: Callable[[], float], may_write: Callable[[], bool]) -> None:
        self._now_seconds = monotonic
        self._may_write = may_write
        self._memory = ReplicationMemory()
        self._scanned_at_seconds: float | None = None
        self._known_empty: QuotaStore | None = None
        self._beside: ReplicationOnNics = {}
        self._figures: Mapping[MoveKind, Figures] = {}
        self._stalls: tuple[Stall, ...] = ()
        self._background: Mapping[Flow, int] = {}
        self._figures_at_seconds = 0.0

    @property
    def beside(self) -> ReplicationOnNics:
        """What replication means for clients on each side of a NIC, of the last pass."""
        return self._beside

    def run(
        self,
        declared: Declared,
        source: ReplicationSource | None,
        store: QuotaStore,
        *,
        facts: ClusterFacts,
        decision: Decision,
        owner: Claim | None,
        spans: BackgroundSpans = MappingProxyType({}),
    ) -> ReplicationResult:
        """One pass, after that of the quotas. Never raises a TidegateError.

        `spans` are what was read of background traffic.
        """
        spec = None if declared.policy.deleting else declared.spec.replication
        behind = background_terms(None if declared.policy.deleting else declared.spec.background)
        known = bool(self._beside)
        self._beside = {}
        if source is None or (spec is None and not behind and self._known_empty is store):
            return IDLE
        background = Background(behind, spans=spans)
        try:
            result = self._run(declared, spec, background, source, store, facts, decision, owner)
        except TidegateError as error:
            return ReplicationResult(error=error)
        if result.decision is None:
            return result
        self._beside = result.decision.beside
        is_replication = spec is not None or result.decision.throttles_replication
        self._renew(result.decision, terms_of(spec))
        return replace(
            result,
            figures=self._figures if is_replication else {},
            stalls=self._stalls if is_replication else (),
            background=self._background,
            begins=bool(self._beside) and not known,
        )

    def _renew(self, decided: ReplicationDecision, terms: Mapping[MoveKind, Terms]) -> None:
        """New figures for the status: once a minute, and where something begins or ends."""
        now_seconds = self._now_seconds()
        figures = {
            kind: _figures(decided, kind)
            for kind in MoveKind
            if decided.of(kind)
            and (kind is MoveKind.REASSIGNMENT or terms[kind].mode is not ReplicationMode.OFF)
        }
        is_same = [one.side for one in decided.stalls] == [one.side for one in self._stalls]
        is_same &= {kind: one.partitions for kind, one in figures.items()} == {
            kind: one.partitions for kind, one in self._figures.items()
        }
        rates = decided.background.in_force
        is_same &= rates.keys() == self._background.keys()
        if not is_same or not 0 <= now_seconds - self._figures_at_seconds < FIGURES_SECONDS:
            self._figures, self._figures_at_seconds = figures, now_seconds
            self._stalls, self._background = decided.stalls, rates

    def _run(
        self,
        declared: Declared,
        spec: Replication | None,
        background: Background,
        source: ReplicationSource,
        store: QuotaStore,
        facts: ClusterFacts,
        decision: Decision,
        owner: Claim | None,
    ) -> ReplicationResult:
        content = store.throttle_record()
        record = record_of(content)
        self._known_empty = None
        if spec is None and not background.terms and not record:
            self._known_empty = store
            return IDLE
        terms = terms_of(spec)
        seen = source.read(with_recovery=terms[MoveKind.RECOVERY].mode is not ReplicationMode.OFF)
        brokers = seen.brokers if background.terms else ()
        if background.terms:
            background = replace(background, brokers=source.tiering())
        configs = source.configs(resources_of(seen, record, brokers))
        now_seconds = self._now_seconds()
        policy = in_force(declared.policy, declared.tiers, now_seconds)
        decided, self._memory = decide_replication(
            ReplicationInput(
                now_seconds,
                terms,
                declared.policy.cut_to_percent,
                seen,
                nics_of(decision.throttle, policy.limits, seen.brokers),
                configs,
                record,
                spec is not None and bool(spec.clean_up_leftovers),
                self._scan(spec, source, seen),
                background,
            ),
            self._memory,
        )
        if declared.policy.mode is Mode.OBSERVE or declared.policy.paused:
            self._memory = not_applied(self._memory, [one.resource for one in decided.changes])
            return ReplicationResult(decided)
        return self._write(
            decided, configs, declared.policy.key, content, source, store, facts, owner
        )

    def _scan(
        self, spec: Replication | None, source: ReplicationSource, seen: ClusterReplication
    ) -> Configs | None:
        now_seconds = self._now_seconds()
        last = self._scanned_at_seconds
        if (
            spec is None
            or any(one.is_reassigned for one in seen.partitions)
            or (last is not None and 0 <= now_seconds - last < SCAN_SECONDS)
        ):
            return None
        self._scanned_at_seconds = now_seconds
        return source.scan()

    def _write(
        self,
        decided: ReplicationDecision,
        configs: Configs,
        policy_key: str,
        seen: bytes | None,
        source: ReplicationSource,
        store: QuotaStore,
        facts: ClusterFacts,
        owner: Claim | None,
    ) -> ReplicationResult:
        changes, failed = decided.changes, dict[Resource, str]()
        try:
            leaving = without_items(record_of(seen), decided.record)
            if still_shown(source, leaving):  # looked at again in the next passes
                decided = replace(decided, record=with_items(decided.record, leaving))
            if decided.record != record_of(seen):
                require_lease(self._may_write)
                store.keep_throttle_record(
                    record_to_bytes(decided.record, policy_key), facts.cluster_id, owner, seen=seen
                )
                failed = changed_meanwhile(source, changes, configs)
                changes = tuple([one for one in changes if one.resource not in failed])
            if changes:
                failed |= source.alter(changes, self._may_write)
        except TidegateError as error:
            self._memory = not_applied(self._memory, [one.resource for one in decided.changes])
            return ReplicationResult(decided, error=error)
        self._memory = not_applied(self._memory, failed)
        applied = tuple([one for one in decided.changes if one.resource not in failed])
        return ReplicationResult(decided, applied, failed)


def changed_meanwhile(
    source: ReplicationSource, changes: Sequence[ConfigChange], decided_on: Configs
) -> dict[Resource, str]:
    """The resources with a value to set or delete that is not the one decided on any more, and why.

    Kafka compares nothing, and keeping the record may take long: what another tool set meanwhile
    would be overwritten. Items of a list are added and taken one by one, so those need no look.
    """
    replaced = [one for one in changes if one.operation in (Operation.SET, Operation.DELETE)]
    now = source.configs({one.resource for one in replaced}) if replaced else {}
    return {
        one.resource: "another tool changed it at the same time"
        if one.resource in now
        else "it did not answer"
        for one in replaced
        if one.resource not in now
        or now[one.resource].get(one.key) != decided_on.get(one.resource, {}).get(one.key)
    }


def still_shown(source: ReplicationSource, leaving: Items) -> list[str]:
    """What live brokers still show of these throttles, or do not say; a sentence each.

    Each broker has a copy of its own of what the controller decided, so what is taken away is gone
    once all of them say so. Without any items none is asked.
    """
    shown = source.everywhere(leaving.keys()) if leaving else {}
    return [
        *(
            f"broker {broker} did not say which throttles it has"
            for broker, configs in sorted(shown.items())
            if configs is None
        ),
        *(
            f"broker {broker} still shows {resource} {key}={value}"
            for broker, configs in sorted(shown.items())
            for resource, keys in sorted(leaving.items())
            for key, items in sorted(keys.items())
            if (value := (configs or {}).get(resource, {}).get(key)) is not None
            and items_of(key, value) & items
        ),
    ]


def _figures(decided: ReplicationDecision, kind: MoveKind) -> Figures:
    estimate = decided.estimates[kind]
    return Figures(
        len({(one.key.topic, one.key.partition) for one in decided.of(kind)}),
        decided.bytes_left(kind),
        estimate.seconds,
        estimate.bottleneck,
    )


def terms_of(spec: Replication | None) -> Mapping[MoveKind, Terms]:
    """What a policy wants, with every unset field at its documented default."""
    if spec is None:
        return _OFF
    return {
        MoveKind.REASSIGNMENT: _terms(spec.reassignments, Priority.BELOW_L3),
        MoveKind.RECOVERY: _terms(spec.recovery, Priority.L1),
    }


def background_terms(spec: BackgroundSpec | None) -> dict[BackgroundKind, Terms]:
    """What a policy wants of background traffic; what is Off is left out."""
    if spec is None:
        return {}
    found = {
        BackgroundKind.REMOTE_COPY: _terms(spec.remote_copy, Priority.BELOW_L3),
        BackgroundKind.REMOTE_FETCH: _terms(spec.remote_fetch, Priority.BELOW_L3),
    }
    if spec.log_dirs is not None and spec.log_dirs.rate is not None:
        rate = spec.log_dirs.rate.max
        found[BackgroundKind.LOG_DIRS] = Terms(ReplicationMode.FIXED, maximum=rate)
    return {kind: one for kind, one in found.items() if one.mode is not ReplicationMode.OFF}


def _terms(declared: Reassignments | Recovery | RemoteTraffic | None, priority: Priority) -> Terms:
    if declared is None:
        return Terms()
    rate = declared.rate
    maximum = rate.max if isinstance(rate, ReassignmentRates | BackgroundRates) else None
    minimum = DEFAULT_MINIMUM_RATE if rate is None or rate.min is None else rate.min
    return Terms(
        ReplicationMode(declared.mode),
        priority if declared.priority is None else Priority(declared.priority),
        minimum if maximum is None else min(minimum, maximum),
        maximum,
    )


def nics_of(
    throttle: ThrottleDecision | None, limits: BrokerLimits, brokers: Collection[int]
) -> dict[Side, NicRoom]:
    """Every side of the brokers' NICs as the throttle of this pass saw it.

    A side with a limit of which the throttle knows nothing is not known.
    """
    nics = {
        Side(broker, direction): NicRoom(limits.of(broker).limit_of_rates(direction))
        for broker in brokers
        for direction in RATE_KEYS
    }
    if throttle is None:
        return nics
    throttled: dict[Side, set[Level]] = {}
    for step in throttle.steps.values():
        # a release that is not in force yet ends nothing
        if min(step.value, step.in_force or step.contract) < step.contract:
            for broker in step.bucket.flows:
                throttled.setdefault(Side(broker, step.direction), set()).add(step.level)
    for one in throttle.rounds:
        for view in one.brokers:
            nic = view.nic
            if nic.limit is None or not nic.known or nic.at_seconds is None:
                continue
            sides = [Side(nic.broker, part) for part in one.direction.parts]
            below = frozenset[Level]().union(*(throttled.get(side, ()) for side in sides))
            room = NicRoom(
                nic.limit,
                nic.steady_bytes_per_second,
                nic.at_seconds,
                nic.steady_seconds,
                below,
                view.cuttable,
                view.promised,
                is_shared=len(sides) > 1,
            )
            nics |= dict.fromkeys(sides, room)
    return nics
