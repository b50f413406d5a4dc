"""Reports a pass in statuses, Events and log lines, all from the same decision.

A status is sent only when it differs from the present one, and an Event only with such a change. A
report that cannot be delivered never fails the pass: the next one sends it.
"""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextvars import Context, copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypeVar, cast

import structlog

from tidegate.control.reconcile import PassResult
from tidegate.control.report.budgets import (
    BudgetVerdict,
    budget_reports,
    starting_budget,
    unread_budget,
)
from tidegate.control.report.conditions import Truth, Verdict, ready, shortened, stalled
from tidegate.control.report.events import (
    NORMAL,
    WARNING,
    EventDraft,
    SteadyWords,
    broker_events,
    budget_events,
    condition_events,
    leaving_events,
    level_events,
    member_events,
    replication_events,
    write_events,
    writes_by_tier,
)
from tidegate.control.report.status import (
    OverrideVerdict,
    PolicyVerdict,
    TierVerdict,
    leaving_words,
    override_reports,
    policy_verdict,
    starting_override,
    starting_policy,
    starting_tier,
    tier_verdict,
    unread_override,
    unread_policy,
    unread_tier,
)
from tidegate.control.rollups import RollupProgress
from tidegate.errors import (
    InvalidResource,
    OutcomeUnknown,
    ServerFault,
    TidegateError,
    Unreachable,
)
from tidegate.kube.api import (
    BANDWIDTH_BUDGETS,
    BROKER_BANDWIDTH_POLICIES,
    BUSINESS_TIERS,
    DELAY_QUEUES,
    QUOTA_OVERRIDES,
    EventType,
    JsonObject,
    ObjectRef,
    ResourceKind,
)
from tidegate.kube.cache import ResourceCache
from tidegate.kube.events import EventRecorder
from tidegate.kube.status import Answers, StatusWriter
from tidegate.metrics import Telemetry
from tidegate.observe.declared import Declared, object_key
from tidegate.resources.delay_queue import DelayQueueStatus
from tidegate.resources.schema import SchemaModel
from tidegate.resources.status import LedgerStatus, PolicyStatus
from tidegate_logic.contracts.desired import MemberReport
from tidegate_logic.model import Advice, Hold, Mode, QuotaWrite
from tidegate_logic.reasons import Reason

log = structlog.get_logger(__name__)

# --- the queue of reports: a quota must not wait for a Kubernetes that is slow or away ------------


@dataclass(frozen=True, slots=True)
class PassReport:
    """The content of the report on a pass. `written` also has writes of passes without a report."""

    result: PassResult
    declared: Declared
    policy: JsonObject
    tiers: tuple[JsonObject, ...]
    written: tuple[QuotaWrite, ...]
    overrides: tuple[JsonObject, ...] = ()
    budgets: tuple[JsonObject, ...] = ()
    rollups: RollupProgress | None = None
    resynced: str = ""  # what a person's resync did
    ledger: LedgerStatus | None = None  # as it is remembered
    # of the pass: its id and its span, for the thread that delivers
    context: Context = field(default_factory=copy_context, repr=False, compare=False)

    def after(self, earlier: "PassReport") -> "PassReport":
        """This report instead of both: the objects as they are now, and the writes of both."""
        resynced = self.resynced or earlier.resynced
        return replace(self, written=earlier.written + self.written, resynced=resynced)


class ReportQueue:
    """Delivers one policy's reports in order: in its own thread, or at once when not `beside`.

    At most one report waits: while one is under way, the passes that end are folded into one.
    `deliver` must not raise: no caller would get the error. `goes_on` is called every 5 s by who
    catches up.
    """

    def __init__(
        self,
        deliver: Callable[[PassReport], None],
        name: str,
        *,
        beside: bool,
        goes_on: Callable[[], None] = lambda: None,
    ) -> None:
        self._deliver = deliver
        self._goes_on = goes_on
        self._hand: Executor | None = (
            ThreadPoolExecutor(1, thread_name_prefix=name) if beside else None
        )
        self._lock = threading.Lock()
        self._waiting: PassReport | None = None

    def post(self, report: PassReport) -> None:
        """Have it delivered; returns before it is."""
        if self._hand is None:
            self._deliver(report)
            return
        with self._lock:
            asked_for = self._waiting is not None
            self._waiting = report if self._waiting is None else report.after(self._waiting)
        if not asked_for:
            self._hand.submit(self._deliver_what_waits)

    def catch_up(self) -> None:
        """Return once everything that was posted is delivered.

        The thread that delivers has its own sign of life, so who waits for it goes on meanwhile.
        """
        if self._hand is not None:
            _waited_for(self._hand.submit(lambda: None), self._goes_on)

    def close(self) -> None:
        """Catch up and end the thread."""
        if self._hand is not None:
            self._hand.shutdown(wait=True)

    def _deliver_what_waits(self) -> None:
        with self._lock:
            report, self._waiting = self._waiting, None
        if report is not None:
            self._deliver(report)


_LOOK_SECONDS = 5.0
_T = TypeVar("_T")


def _waited_for(future: Future[_T], every_look: Callable[[], None]) -> _T:
    """The result of `future`; `every_look` is called every 5 s until it is there."""
    while True:
        try:
            return future.result(_LOOK_SECONDS)
        except TimeoutError:
            if future.done():
                raise
            every_look()


Advices = tuple[Advice, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """The report on one object; verdicts become conditions. `status` None = Events only."""

    kind: ResourceKind
    raw: JsonObject
    status: SchemaModel | None
    verdicts: Sequence[Verdict] = ()
    events: Sequence[EventDraft] = ()


class Publisher(Protocol):
    """Takes reports; `KubernetesPublisher` is the real one."""

    def publish(self, reports: Sequence[Report]) -> frozenset[str]:
        """Write every status, then send the Events. Does not raise when Kubernetes is unreachable.

        Returns the uids of the objects whose status was the same already.
        """
        ...

    def note(self, kind: ResourceKind, raw: JsonObject, status: SchemaModel) -> None:
        """Write these fields of the status now, and raise the TidegateError that prevents it."""
        ...


@dataclass(frozen=True, slots=True)
class _Basis:
    """What a tier's report is made from, and the version of the object it would be written over."""

    resource_version: str
    members: tuple[MemberReport, ...]
    holds: tuple[Hold, ...]
    mode: Mode
    advice: tuple[Advices, ...] = ()
    leaving: tuple[str, ...] = ()


class Reporter:
    """Reports on a process's policies and their tiers. Each policy has one caller at a time."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        # by policy and uid: the basis of the tier's present status; the same again makes no report
        self._reported: dict[str, dict[str, _Basis]] = {}
        self._words = SteadyWords()

    def first_seen(
        self,
        policy: JsonObject,
        tiers: Iterable[JsonObject],
        overrides: Iterable[JsonObject] = (),
        budgets: Iterable[JsonObject] = (),
    ) -> None:
        """Report `Unknown` for objects without conditions: absence must not pass for readiness."""
        fresh = [] if _conditions(policy) else [_of_policy(policy, starting_policy())]
        fresh += [_of_tier(tier, starting_tier()) for tier in tiers if not _conditions(tier)]
        fresh += [
            _of_override(override, starting_override(override))
            for override in overrides
            if not _conditions(override)
        ]
        fresh += [_of_budget(starting_budget(one)) for one in budgets if not _conditions(one)]
        self._publisher.publish(fresh)

    def passed(self, report: PassReport) -> None:
        """Report a pass. Tiers, overrides and budgets are raw objects, broken ones included."""
        result, declared = report.result, report.declared
        by_tier = writes_by_tier(report.written, result.decision.members)
        bases = _bases(result, declared, report.tiers)
        reported = self._reported.get(declared.policy.key, {})
        reports = _broken_tiers(declared, report.tiers)
        for raw in report.tiers:
            uid, writes = raw["metadata"]["uid"], by_tier.get(object_key(raw), ())
            if uid in bases and (writes or reported.get(uid) != bases[uid]):
                verdict = tier_verdict(bases[uid].members, result.decision, declared.policy.mode)
                reports.append(_of_tier(raw, verdict, writes, bases[uid].members))
        reports += [
            _of_override(raw, verdict)
            for raw, verdict in override_reports(result, declared, report.overrides)
        ]
        reports += [_of_budget(one) for one in budget_reports(result, declared, report.budgets)]
        ownerless = _ownerless(by_tier, result.decision.members)
        previous = _status(report.policy)
        policy_status = self._words.of(
            declared.policy.key,
            policy_verdict(
                result,
                declared.spec,
                previous=previous,
                rollups=report.rollups,
                ledger=report.ledger,
                budgets=_budget_count(declared, previous),
                unreadable=[
                    tier.key
                    for tier in declared.broken
                    if tier.reason is not Reason.NAMESPACES_UNREAD  # a warning says so already
                ],
            ),
            previous,
            now_seconds=result.seen.observation.now_seconds,
        )
        loads = (
            *broker_events(previous, result.decision.watched),
            *level_events(previous, result.decision.levels),
            *leaving_events(previous, result.decision),
            *replication_events(previous, result.replication),
            *budget_events(previous, declared),
        )
        if report.resynced:
            loads = (*loads, EventDraft(NORMAL, Reason.RESYNCED, shortened(report.resynced)))
        reports.append(_of_policy(report.policy, policy_status, ownerless, loads))
        unchanged = self._publisher.publish(reports)
        self._reported[declared.policy.key] = {
            uid: basis
            for uid, basis in bases.items()
            if uid in unchanged or reported.get(uid) == basis
        }
        _log_writes(declared.policy.key, report.written)

    def unread(
        self,
        policy: JsonObject,
        error: InvalidResource,
        tiers: Iterable[JsonObject],
        overrides: Iterable[JsonObject] = (),
        budgets: Iterable[JsonObject] = (),
    ) -> None:
        """Report a policy that cannot be read, and all objects of it as not looked at."""
        text = (
            f"Policy {object_key(policy)} is not valid, so nothing is changed for this object "
            f"until it is fixed: {error.message}"
        )
        reports = [_of_policy(policy, unread_policy(error.reason, error.message))]
        reports += [  # what is in a policy is nothing for namespaces that it may not let in
            _of_tier(tier, unread_tier(error.reason, text))
            for tier in tiers
            if tier["metadata"]["namespace"] == policy["metadata"]["namespace"]
        ]
        reports += [
            _of_override(one, unread_override(one, error.reason, text)) for one in overrides
        ]
        reports += [_of_budget(unread_budget(one, error.reason, text)) for one in budgets]
        self._publisher.publish(reports)

    def broke(self, policy: JsonObject, error: Exception) -> None:
        """Report a bug: the pass was abandoned."""
        text = (
            f"A bug in Tidegate, {type(error).__name__}: {error}. The pass was aborted; quotas "
            "stay as they are, and Tidegate retries"
        )
        self._publisher.publish([_of_policy(policy, unread_policy(Reason.INTERNAL_ERROR, text))])

    def without_policy(self, objects: Iterable[tuple[ResourceKind, JsonObject, str]]) -> None:
        """Report tiers and overrides, each with the key of its policy, which does not exist."""
        self._publisher.publish([_without_policy(*named) for named in objects])

    def queues(
        self, found: Iterable[tuple[JsonObject, DelayQueueStatus, Sequence[Verdict]]]
    ) -> None:
        """Report DelayQueues, each with its status and its conditions, Ready first."""
        self._publisher.publish([_of_queue(*one) for one in found])

    def took_claim_over(self, policy: JsonObject, message: str) -> None:
        """Report that the claim was another policy's. That one sees it in its next pass."""
        self._send(policy, EventDraft(WARNING, Reason.CLAIM_TAKEN_OVER, message))

    def moved_ledger(self, policy: JsonObject, message: str) -> None:
        """Report that the ledger went with the cluster from ZooKeeper to KRaft."""
        self._send(policy, EventDraft(NORMAL, Reason.LEDGER_MOVED, message))

    def remember_ledger(self, policy: JsonObject, ledger: LedgerStatus) -> None:
        """Have the policy's status remember this ledger, now. Raises what keeps it from that."""
        self._publisher.note(BROKER_BANDWIDTH_POLICIES, policy, PolicyStatus(ledger=ledger))

    def remember_budgets(self, policy: JsonObject, count: int) -> None:
        """Have the policy's status know that it has budgets. Raises what keeps it from that."""
        self._publisher.note(BROKER_BANDWIDTH_POLICIES, policy, PolicyStatus(budgets=count))

    def mended_ledger(self, policy: JsonObject, message: str) -> None:
        """Report what was done about a lost ledger."""
        self._send(policy, EventDraft(NORMAL, Reason.LEDGER_REBUILT, message))

    def left_behind(self, policy: JsonObject, reason: Reason, *messages: str) -> None:
        """Report that a policy is released although quotas of it stay in Kafka."""
        events = tuple(EventDraft(WARNING, reason, message) for message in messages)
        self._publisher.publish([Report(BROKER_BANDWIDTH_POLICIES, policy, None, events=events)])

    def gone(self, policy: JsonObject) -> None:
        """Report that everything was restored."""
        self._reported.pop(object_key(policy), None)
        self._words.forget(object_key(policy))
        self._send(
            policy,
            EventDraft(
                NORMAL,
                Reason.GIVEN_BACK,
                "Nothing of this policy is left in Kafka, and it can be deleted",
            ),
        )

    def _send(self, policy: JsonObject, event: EventDraft) -> None:
        self._publisher.publish([Report(BROKER_BANDWIDTH_POLICIES, policy, None, events=(event,))])


def _without_policy(kind: ResourceKind, raw: JsonObject, policy_key: str) -> Report:
    text = (
        f"BrokerBandwidthPolicy {policy_key} does not exist; this object has no effect until it "
        "does"
    )
    if kind == DELAY_QUEUES:
        verdict = ready(Truth.FALSE, Reason.POLICY_NOT_FOUND, text)
        return _of_queue(raw, DelayQueueStatus(), (verdict,))
    if kind == QUOTA_OVERRIDES:
        return _of_override(raw, unread_override(raw, Reason.POLICY_NOT_FOUND, text))
    if kind == BANDWIDTH_BUDGETS:
        return _of_budget(unread_budget(raw, Reason.POLICY_NOT_FOUND, text))
    return _of_tier(raw, unread_tier(Reason.POLICY_NOT_FOUND, text))


def _of_policy(
    raw: JsonObject,
    verdict: PolicyVerdict,
    written: Sequence[QuotaWrite] = (),
    loads: Sequence[EventDraft] = (),
) -> Report:
    events = (*condition_events(_status(raw), verdict.verdicts), *loads, *write_events(written))
    return Report(
        BROKER_BANDWIDTH_POLICIES, raw, verdict.status, _with_stalled(verdict.verdicts), events
    )


def _of_tier(
    raw: JsonObject,
    verdict: TierVerdict,
    written: Sequence[QuotaWrite] = (),
    members: Sequence[MemberReport] = (),
) -> Report:
    changed = condition_events(_status(raw), verdict.verdicts)
    reasons = {event.reason for event in changed}
    until = {one.name: one.contended_until for one in verdict.status.members or ()}
    troubles = [
        event
        for event in member_events(_status(raw), members, until)
        if event.reason not in reasons
    ]
    return Report(
        BUSINESS_TIERS,
        raw,
        verdict.status,
        _with_stalled(verdict.verdicts),
        (*write_events(written), *changed, *troubles),
    )


def _of_override(raw: JsonObject, verdict: OverrideVerdict) -> Report:
    events = condition_events(_status(raw), verdict.verdicts)
    return Report(QUOTA_OVERRIDES, raw, verdict.status, _with_stalled(verdict.verdicts), events)


def _of_budget(found: BudgetVerdict) -> Report:
    raw, status, verdicts = found
    events = condition_events(_status(raw), verdicts)
    return Report(BANDWIDTH_BUDGETS, raw, status, _with_stalled(verdicts), events)


def _of_queue(raw: JsonObject, status: DelayQueueStatus, verdicts: Sequence[Verdict]) -> Report:
    events = condition_events(_status(raw), verdicts)
    return Report(DELAY_QUEUES, raw, status, _with_stalled(verdicts), events)


def _with_stalled(verdicts: Sequence[Verdict]) -> tuple[Verdict, ...]:
    """The verdicts with Stalled after Ready, without Events: those of Ready have the same cause."""
    return (verdicts[0], stalled(verdicts[0]), *verdicts[1:])


def _broken_tiers(declared: Declared, tiers: Iterable[JsonObject]) -> list[Report]:
    broken = {tier.key: (tier.reason, tier.message) for tier in declared.broken}
    broken |= {key: (Reason.TIER_NOT_ALLOWED, why) for key, why in declared.not_let_in.items()}
    return [
        _of_tier(raw, unread_tier(*broken[key]))
        for raw in tiers
        if (key := object_key(raw)) in broken
    ]


def _bases(
    result: PassResult, declared: Declared, tiers: Iterable[JsonObject]
) -> dict[str, _Basis]:
    """The bases by uid, of every tier with members that were decided on."""
    members: dict[str, list[MemberReport]] = defaultdict(list)
    for member in result.decision.members:
        members[member.tier_key].append(member)
    advice = result.decision.advice
    return {
        raw["metadata"]["uid"]: _Basis(
            raw["metadata"]["resourceVersion"],
            tuple(members[key]),
            tuple(result.decision.holds),
            declared.policy.mode,
            tuple(advice.get((key, member.member_name), ()) for member in members[key])
            if advice
            else (),
            leaving_words(result.decision, key),
        )
        for raw in tiers
        if (key := object_key(raw)) in members
    }


def _ownerless(
    by_tier: Mapping[str | None, Sequence[QuotaWrite]], members: Iterable[MemberReport]
) -> list[QuotaWrite]:
    """The writes for no tier that is reported: defaults, and restored quotas."""
    reported = {member.tier_key for member in members}
    return [write for key, writes in by_tier.items() if key not in reported for write in writes]


def _budget_count(declared: Declared, previous: Mapping[str, Any]) -> int | None:
    """How many budgets the policy has, as the status has it; what is not known stays."""
    if declared.budgets is None:
        count: int | None = previous.get("budgets")
        return count
    return len(declared.budgets) + len(declared.broken_budgets) or None


def _status(raw: JsonObject) -> Mapping[str, Any]:
    return raw.get("status") or {}


def _conditions(raw: JsonObject) -> Sequence[Any]:
    return _status(raw).get("conditions") or ()


def _log_writes(policy_key: str, written: Sequence[QuotaWrite]) -> None:
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for write in written:
        counts[(write.kind.value, write.reason.value)] += 1
    if log.is_enabled_for(logging.DEBUG):  # formatting every write takes longer than deciding on it
        for write in written:
            log.debug(
                "Quota written",
                policy=policy_key,
                entity=str(write.entity),
                reason=write.reason.value,
                change=write.message,
            )
    for (kind, reason), count in counts.items():
        log.info("Quotas written", policy=policy_key, kind=kind, reason=reason, count=count)


# --- delivery to Kubernetes -----------------------------------------------------------------------
#
# An unreachable API server costs a log line and one time limit, not one for every object or policy.
# An object that it fails at delays no other. The next pass sends what is still missing.


# Each hand rests for as long as its call took: the status of a large tier keeps an API server busy,
# and after hundreds of them calls for Leases took 2 s and were lost.
_LONGEST_REST_SECONDS = 1.0


class KubernetesPublisher:
    """A Publisher for one process. With an `executor` several objects are reported at once.

    `goes_on` is called in the thread that reports, whenever one object of any report is done.
    """

    def __init__(
        self,
        writer: StatusWriter,
        recorder: EventRecorder,
        *,
        cache: ResourceCache,
        telemetry: Telemetry,
        executor: Executor | None = None,
        goes_on: Callable[[], None] = lambda: None,
    ) -> None:
        self._writer = writer
        self._recorder = recorder
        self._cache = cache
        self._telemetry = telemetry
        self._executor = executor
        self._goes_on = goes_on
        self._lock = threading.Lock()
        self._done = 0  # objects
        self._silences = 0  # writes without an answer

    def publish(self, reports: Sequence[Report]) -> frozenset[str]:
        """Write all statuses, for which people and Argo CD wait, before the first Event."""
        shown = [report for report in reports if report.status is not None]
        shown.sort(key=lambda report: self._writer.failed(report.raw))
        unchanged = self._each(partial(self._put, Answers(), self._silences), shown)
        self._each(self._post_events, reports)
        return frozenset(uid for uid in unchanged if uid is not None)

    def note(self, kind: ResourceKind, raw: JsonObject, status: SchemaModel) -> None:
        """See Publisher."""
        done = self._writer.write(kind, raw, _named_fields(status))
        if done.written and done.object is not None:
            self._cache.put(kind, done.object)

    def _each(
        self, send: Callable[[Report], str | None], reports: Sequence[Report]
    ) -> list[str | None]:
        """Send every report, and wait until that is done."""

        def sent(report: Report) -> str | None:
            began = time.monotonic()
            try:
                return send(report)
            finally:
                with self._lock:
                    self._done += 1
                if self._executor is not None:
                    time.sleep(min(time.monotonic() - began, _LONGEST_REST_SECONDS))

        if self._executor is None:
            return [self._noted(sent(report)) for report in reports]
        done = self._done

        def look() -> None:
            nonlocal done
            if self._done != done:
                done = self._done
                self._goes_on()

        under_way = [self._executor.submit(copy_context().run, sent, report) for report in reports]
        return [self._noted(_waited_for(one, look)) for one in under_way]

    def _noted(self, uid: str | None) -> str | None:
        self._goes_on()
        return uid

    def _put(self, answers: Answers, silences: int, report: Report) -> str | None:
        """Write the status unless Kubernetes is unreachable; the uid when there was no change.

        Another report's write that got no answer since this one began shows the same.
        """
        if answers.away or self._silences != silences:
            return None
        generation = int(report.raw["metadata"].get("generation", 0))
        fields = {} if report.status is None else _named_fields(report.status)
        # Only the fields that the report set are written; the others stay as they are.
        desired = {
            **fields,
            "observedGeneration": generation,
            "conditions": [_condition(v, generation) for v in report.verdicts],
        }
        try:
            done = self._writer.write(report.kind, report.raw, desired)
        except TidegateError as error:
            log.warning(
                "Status could not be written",
                object=object_key(report.raw),
                kind=report.kind.kind,
                error=error.message,
            )
            answers.note(error)
            if isinstance(error, Unreachable | OutcomeUnknown) and not isinstance(
                error, ServerFault
            ):
                with self._lock:
                    self._silences += 1
            return None
        if done.written and done.object is not None:
            answers.note(None)
            self._telemetry.status_writes.labels(report.kind.kind).inc()
            self._cache.put(report.kind, done.object)
        return None if done.written else str(report.raw["metadata"]["uid"])

    def _post_events(self, report: Report) -> None:
        for event in report.events:
            event_type = cast(EventType, event.type)
            about = ObjectRef.of(report.kind, report.raw)
            if self._recorder.record(
                about, event_type, reason=event.reason.value, message=event.message
            ):
                self._telemetry.events.labels(event.type, event.reason.value).inc()
            log.info(
                "Event",
                object=object_key(report.raw),
                kind=report.kind.kind,
                reason=event.reason.value,
                message=event.message,
            )


def _named_fields(part: SchemaModel) -> dict[str, Any]:
    """The fields that the report set; None = a field to be removed. Lists are whole values."""
    document = part.as_document()
    named: dict[str, Any] = {}
    for name in part.model_fields_set:
        alias = type(part).model_fields[name].alias or name
        value = getattr(part, name)
        named[alias] = (
            _named_fields(value) if isinstance(value, SchemaModel) else document.get(alias)
        )
    return named


def _condition(verdict: Verdict, generation: int) -> dict[str, Any]:
    return {
        "type": verdict.type,
        "status": verdict.status.value,
        "observedGeneration": generation,
        "reason": verdict.reason.value,
        "message": verdict.message,
    }
