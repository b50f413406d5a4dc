"""Runs the passes of one policy, from cached resources to the report, and its release.

It waits for nothing: the loop in `manager.py` decides when a pass runs, and the queue in
`report/reporter.py` delivers the report while the next pass may run already.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from decimal import Decimal
from threading import Timer

import structlog

from controller_logic.decision import Decision
from controller_logic.model import Mode, Readings, StoredQuota, Topology
from controller_logic.quota_values import number_of
from controller_logic.reasons import Reason
from tidegate.control.connections import Connection
from tidegate.control.declared import Declared, TierReader, age_key, belongs_to, declare, object_key
from tidegate.control.metrics_watch import Dependencies, MetricsWatch
from tidegate.control.namespaces import KnownLabels
from tidegate.control.observe import ObservationResult
from tidegate.control.reconcile import Applied, ControlPass, PassResult
from tidegate.control.report.conditions import counted, listed
from tidegate.control.report.reporter import PassReport, ReportQueue
from tidegate.control.rollups import RollupDependencies, RollupLook, RollupProgress, RollupWatch
from tidegate.control.runtime import Backoff, Cause, OperatorContext
from tidegate.control.trust import refuse_other_hosts
from tidegate.errors import InvalidResource, NotFound, RetryLater, TidegateError
from tidegate.kafka.quota_store import REPLACE_CLAIM, Claim, ClusterFacts, QuotaStore
from tidegate.kube.api import (
    BROKER_BANDWIDTH_POLICIES,
    BUSINESS_TIERS,
    QUOTA_OVERRIDES,
    JsonObject,
    Kubernetes,
    ObjectRef,
    ResourceKind,
)
from tidegate.metrics import count_writes
from tidegate.throttle_metrics import PolicyReading, inputs_of, policy_labels

log = structlog.get_logger(__name__)


class Controller:
    """Passes of policy `key` (namespace/name). `may_write` is its Lease, `wake` asks for a pass."""

    def __init__(
        self,
        key: str,
        context: OperatorContext,
        *,
        may_write: Callable[[], bool],
        wake: Callable[[Cause], None],
    ) -> None:
        self._key = key
        self._context = context
        self._pass = ControlPass(context.clock.wall, may_write)
        namespace = key.partition("/")[0]
        self._connection = Connection(
            namespace,
            kubernetes=context.kubernetes,
            opener=context.open_cluster,
            wake=lambda: wake(Cause.BROKERS),
            monotonic=context.clock.monotonic,
            bounds=context.settings.bounds,
        )
        self._metrics = MetricsWatch(
            namespace, _metrics_dependencies(key, context, lambda: wake(Cause.METRICS))
        )
        self._rollups = RollupWatch(
            key,
            _rollup_dependencies(
                key, context, may_write=may_write, wake=lambda: wake(Cause.ROLLUPS)
            ),
        )
        self._backoff = Backoff()
        self._deletion = Deletion(context.settings.restore_deadline_seconds)
        self._reports = ReportQueue(self._report, f"reports of {key}", beside=context.report_beside)
        self._reader = TierReader()
        self._labels = KnownLabels(
            context.kubernetes,
            context.clock.monotonic,
            keep_seconds=context.settings.list_stale_after_seconds,
            beside=context.report_beside,
        )
        self._declared: Declared | None = None
        self._topology: Topology | None = None
        self._seen_before = False

    def close(self) -> None:
        """Deliver the last report and close the connections."""
        self._metrics.close()
        self._rollups.close()
        self._reports.close()
        self._connection.close()

    def pass_once(self) -> float:
        """One pass; returns after how many seconds the next is due at the latest."""
        policy = self._context.policies().get(self._key)
        if policy is None or (
            policy["metadata"].get("deletionTimestamp") and not has_finalizer(policy)
        ):
            return self._context.settings.poll_seconds
        started_seconds = self._context.clock.monotonic()
        result = self._observe_and_act(
            policy, self._of(policy, BUSINESS_TIERS), self._of(policy, QUOTA_OVERRIDES)
        )
        self._context.telemetry.pass_seconds.labels(*policy_labels(self._key)).observe(
            self._context.clock.monotonic() - started_seconds
        )
        if policy["metadata"].get("deletionTimestamp"):
            self._release_when_restored(policy, result)
        return self._next_in_seconds(result)

    def broke(self, error: Exception) -> float:
        """Report a bug in a pass; returns when to try again."""
        self._reports.catch_up()
        self._report_internal_error(error)
        return self._backoff.next_seconds()

    def leaders_moved(self) -> bool:
        """Whether brokers or leaders differ from the last pass; False also when none answers."""
        if self._declared is None or self._topology is None:
            return False
        try:
            now = self._connection.cluster(self._declared.spec.kafka).topology.read(
                self._declared.topics
            )
        except TidegateError:
            return False
        return (now.brokers, now.topics) != (self._topology.brokers, self._topology.topics)

    def _of(self, policy: JsonObject, kind: ResourceKind) -> list[JsonObject]:
        """The objects of this kind that refer to the policy and are not being deleted."""
        known = [raw for raw in self._context.cache.snapshot(kind) if belongs_to(raw, policy)]
        return [raw for raw in known if not raw["metadata"].get("deletionTimestamp")]

    def _observe_and_act(
        self, policy: JsonObject, tiers: list[JsonObject], overrides: list[JsonObject]
    ) -> PassResult | None:
        fresh = self._context.list_is_fresh
        try:
            self._declared = declared = declare(
                policy,
                tiers if fresh(BUSINESS_TIERS) else None,
                self._reader,
                overrides=overrides if fresh(QUOTA_OVERRIDES) else None,
                labels=self._labels,
                lease_namespace=self._context.settings.lease_namespace,
            )
            refuse_other_hosts(self._key, declared.spec, self._context.settings.bounds)
        except InvalidResource as error:
            self._declared = None
            self._reports.catch_up()
            self._context.reporter.unread(policy, error, tiers, overrides)
            self._context.telemetry.passes.labels(*policy_labels(self._key), "invalid").inc()
            return None
        rollups = (
            None if declared.policy.deleting else self._rollups.latest(policy, declared.spec.rollup)
        )
        with self._pending_report(policy, tiers, overrides) as cluster_answered:
            result = self._run(policy, declared, rollups, cluster_answered)
        self._topology = result.seen.observation.topology or self._topology
        self._newest_reading(declared)  # of the brokers that are known now
        written = tuple(write for done in result.applied for write in done.done)
        resynced = "".join(one.resynced for one in (*result.decided, result.decision))
        self._reports.post(
            PassReport(
                result,
                declared,
                policy,
                tuple(tiers),
                written,
                tuple(overrides),
                rollups,
                resynced,
            )
        )
        self._measure(result, rollups)
        return result

    def _report(self, report: PassReport) -> None:
        """Deliver a report in the queue's thread. The one before may have written new statuses."""
        known = self._context.cache.with_known_status
        thread = f"reports of {self._key}"
        self._context.vital_signs.beat(thread)
        try:
            self._context.reporter.passed(
                replace(
                    report,
                    policy=known(BROKER_BANDWIDTH_POLICIES, report.policy),
                    tiers=tuple(known(BUSINESS_TIERS, tier) for tier in report.tiers),
                    overrides=tuple(
                        known(QUOTA_OVERRIDES, override) for override in report.overrides
                    ),
                )
            )
        except Exception as error:
            log.exception("Report abandoned", policy=self._key)
            self._report_internal_error(error)
        finally:
            self._context.vital_signs.forget(thread)

    def _report_internal_error(self, error: Exception) -> None:
        self._context.telemetry.passes.labels(*policy_labels(self._key), "broken").inc()
        policy = self._context.policies().get(self._key)
        if policy is not None:
            self._context.reporter.broke(policy, error)

    def _newest_reading(self, declared: Declared) -> Readings | None:
        brokers = None if self._topology is None else self._topology.brokers
        return self._metrics.latest(
            None if declared.policy.deleting else declared.spec.metrics, brokers
        )

    def _pending_report(
        self, policy: JsonObject, tiers: list[JsonObject], overrides: list[JsonObject]
    ) -> AbstractContextManager[Callable[[], None]]:
        if self._seen_before:
            return nullcontext(lambda: None)
        self._seen_before = True
        return report_pending_if_slow(
            lambda: self._context.reporter.first_seen(policy, tiers, overrides),
            PENDING_AFTER_SECONDS,
        )

    def _run(
        self,
        policy: JsonObject,
        declared: Declared,
        rollups: RollupProgress | None,
        cluster_answered: Callable[[], None],
    ) -> PassResult:
        readings, usage = self._newest_reading(declared), None if rollups is None else rollups.usage
        try:
            cluster = self._connection.cluster(declared.spec.kafka)
        except TidegateError as error:
            return self._pass.without_cluster(declared, error)

        def prepare(seen: ObservationResult) -> Claim:
            cluster_answered()  # a pass that only has much to write reports it when it ends
            owned = take_ownership(
                seen,
                policy,
                operator=self._context.settings.identity,
                lease_namespace=declared.lease_namespace,
                replaces=declared.replaces_claim,
                kubernetes=self._context.kubernetes,
                store=cluster.store,
            )
            if owned.changed is not None:
                self._context.cache.put(BROKER_BANDWIDTH_POLICIES, owned.changed)
            if owned.replaced is not None:
                self._reports.catch_up()
                message = take_over_words(owned.replaced, owned.claim)
                self._context.reporter.took_claim_over(policy, message)
            return owned.claim

        others = self._context.policies().values()
        return self._pass.run(
            declared,
            cluster,
            readings=readings,
            usage=usage,
            prepare=prepare,
            rival=lambda facts: competing_policy(policy, facts, others),
        )

    def _release_when_restored(self, policy: JsonObject, result: PassResult | None) -> None:
        kafka = (policy.get("spec") or {}).get("kafka") or {}
        address = str((kafka.get("zookeeper") or {}).get("connect", "ADDRESS"))
        now_seconds = self._context.clock.monotonic()
        farewell = self._deletion.conclude(
            result, policy_key=self._key, address=address, now_seconds=now_seconds
        )
        if farewell is None:
            return
        self._reports.catch_up()
        try:
            if farewell.incomplete is None and self._declared is not None:
                store = self._connection.cluster(self._declared.spec.kafka).store
                store.release_claim(self._key, self._declared.policy.uid)
            self._context.kubernetes.remove_finalizer(
                ObjectRef.of(BROKER_BANDWIDTH_POLICIES, policy), RESTORE_FINALIZER
            )
        except TidegateError as error:
            log.warning("Policy could not be let go yet", policy=self._key, error=error.message)
            return
        if farewell.incomplete is not None:
            self._context.reporter.left_behind(policy, farewell.reason, farewell.incomplete)
        else:
            self._context.reporter.gone(policy)

    def _next_in_seconds(self, result: PassResult | None) -> float:
        poll_seconds = self._context.settings.poll_seconds
        if result is None:
            return poll_seconds
        if (
            result.error is not None
            or (result.decision.writes and not result.decision.holds)
            or result.seen.facts is None
        ):
            return min(poll_seconds, self._backoff.next_seconds())
        self._backoff.reset()
        due_seconds, ends_at_seconds = (
            result.decision.next_pass_in_seconds,
            result.decision.overridden.next_expiry_seconds,
        )
        due = [poll_seconds] if due_seconds is None else [poll_seconds, due_seconds]
        if ends_at_seconds is not None:
            due.append(ends_at_seconds - result.seen.observation.now_seconds)
        return max(0.0, min(due))

    def _measure(self, result: PassResult, rollups: RollupProgress | None) -> None:
        telemetry, decision = self._context.telemetry, result.decision
        telemetry.passes.labels(
            *policy_labels(self._key),
            "complete" if result.complete else "held" if decision.holds else "partial",
        ).inc()
        for done in result.applied:
            kinds = ((write.kind.value, write.reason.value) for write in done.done)
            count_writes(telemetry, self._key, kinds_and_reasons=kinds, transactions=done.batches)
            for outcome in done.refused:
                telemetry.write_conflicts.labels(
                    *policy_labels(self._key), str(outcome.reason or "")
                ).inc()
        self._keep_record(result)
        telemetry.readings.put(
            self._key,
            replace(
                self._reading(result, decision), rollups=None if rollups is None else rollups.due
            ),
        )

    def _keep_record(self, result: PassResult) -> None:
        """Audit lines and counters, of each decision that was sent and of the last one."""
        facts, readings = result.seen.facts, result.seen.observation.readings
        for decision, applied in (
            *zip(result.decided, result.applied, strict=True),
            (result.decision, Applied()),
        ):
            self._context.telemetry.throttle.note(
                self._key, decision, readings, written=applied.done
            )
            self._context.audit.note(
                self._key,
                None if facts is None else facts.cluster_id,
                decision=decision,
                applied=applied,
                readings=readings,
                now_seconds=self._context.clock.wall(),
            )

    def _reading(self, result: PassResult, decision: Decision) -> PolicyReading:
        return PolicyReading(
            decision,
            finished_at_seconds=self._context.clock.wall(),
            charged_writes=sum(count for _, count in self._pass.memory.charged),
            write_budget=result.seen.observation.policy.write_budget_changes,
            readings=result.seen.observation.readings,
            inputs=inputs_of(result.seen.observation),
        )


def _metrics_dependencies(
    key: str, context: OperatorContext, wake: Callable[[], None]
) -> Dependencies:
    thread = f"metrics of {key}"
    return Dependencies(
        context.kubernetes,
        wake=wake,
        beat=lambda: context.vital_signs.beat(thread),
        forget=lambda: context.vital_signs.forget(thread),
        opener=context.open_reader,
        bounds=context.settings.bounds,
    )


def _rollup_dependencies(
    key: str, context: OperatorContext, *, may_write: Callable[[], bool], wake: Callable[[], None]
) -> RollupDependencies:
    offer = context.settings.rollups
    if offer is None:
        return RollupDependencies(None, wake, context.clock.wall)

    def count(result: str) -> None:
        context.telemetry.rollup_jobs.labels(*policy_labels(key), result).inc()

    def open_look() -> RollupLook:
        return RollupLook(
            context.kubernetes,
            offer,
            may_write=may_write,
            wall=context.clock.wall,
            count=count,
            bounds=context.settings.bounds,
        )

    return RollupDependencies(open_look, wake, context.clock.wall)


# --- deletion: the policy may go when everything is given back, or the time for it is over --------
#
# The finalizer never blocks for ever: the deadline counts from the last progress that this process
# saw, whether ZooKeeper answers or not. Quotas that are left then stay in the ledger, and the claim
# stays with them, until `tidegate restore`.


@dataclass(frozen=True, slots=True)
class DeletionOutcome:
    """The policy may go. `incomplete` names what is left behind, None when nothing is."""

    incomplete: str | None
    reason: Reason = Reason.RESTORE_INCOMPLETE


class Deletion:
    """Decides when the finalizer of one policy comes off."""

    def __init__(self, deadline_seconds: float) -> None:
        self._deadline_seconds = deadline_seconds
        self._ends_at_seconds: float | None = None
        self._least: tuple[int, Decimal] | None = None

    def conclude(
        self, result: PassResult | None, *, policy_key: str, address: str, now_seconds: float
    ) -> DeletionOutcome | None:
        """The outcome; None while there are quotas left and time. `result` None = a broken spec."""
        progress = result is not None and self._goes_on(result, policy_key)
        if self._ends_at_seconds is None or progress:
            due_seconds = (result.decision.next_pass_in_seconds or 0.0) if result else 0.0
            self._ends_at_seconds = now_seconds + due_seconds + self._deadline_seconds
        if result is not None and result.decision.finished_deleting and result.error is None:
            notes = [note.message for note in result.decision.notes]
            return DeletionOutcome(listed(notes) if notes else None)
        elsewhere = [] if result is None else _claimed_elsewhere(result)
        if elsewhere:
            return DeletionOutcome(elsewhere[0], Reason.CLAIMED_ELSEWHERE)
        if now_seconds < self._ends_at_seconds:
            return None
        return DeletionOutcome(self._left_behind(result, policy_key=policy_key, address=address))

    def _goes_on(self, result: PassResult, policy_key: str) -> bool:
        """Whether less is left than ever before: fewer quotas, or as many at lower rates.

        Not whether anything was written: another writer of the same ledger could undo that for
        ever, and the policy would never go.
        """
        ours = _ours(result, policy_key)
        if ours is None:
            return False
        left = (len(ours), sum(map(_rates_of_ours, ours), Decimal(0)))
        if self._least is not None and left >= self._least:
            return False
        self._least = left
        return True

    def _left_behind(self, result: PassResult | None, *, policy_key: str, address: str) -> str:
        left = None if result is None else _ours(result, policy_key)
        what = (
            "It is not known how many quotas"
            if left is None
            else f"{counted(len(left), 'quota')} ({listed(_names(left))})"
        )
        why = (
            ""
            if result is None or not result.decision.holds
            else f" because {result.decision.holds[0].message}."
        )
        return (
            f"{what} could not be given back: there was no progress for "
            f"{self._deadline_seconds:.0f} s. The policy is released and they stay as they are."
            f"{why} The ledger still has the quotas from before: `tidegate restore --zookeeper "
            f"{address}` gives it back"
        )


def _claimed_elsewhere(result: PassResult) -> list[str]:
    """Why nothing is this policy's to give back: another one has the claim, and the quotas."""
    return [
        f"The policy is released, and every quota stays as it is: {hold.message}"
        for hold in result.decision.holds
        if hold.reason is Reason.CLAIMED_ELSEWHERE
    ]


def _ours(result: PassResult, policy_key: str) -> list[StoredQuota] | None:
    quotas = result.seen.observation.quotas
    if quotas is None:
        return None
    return [
        quota
        for quota in quotas.values()
        if quota.ledger is not None and quota.ledger.policy_key == policy_key
    ]


def _names(quotas: Iterable[StoredQuota]) -> list[str]:
    return sorted(str(quota.entity) for quota in quotas)


def _rates_of_ours(quota: StoredQuota) -> Decimal:
    """The sum of the rates that the ledger shows as ours; each step of giving back lowers it."""
    entries = quota.ledger.entries if quota.ledger is not None else {}
    return sum((number_of(quota.values.get(key)) or Decimal(0) for key in entries), Decimal(0))


# --- the first status of a new object -------------------------------------------------------------
#
# A first pass reports itself when it ends. Only one that waits for a cluster that does not answer
# needs a report meanwhile.

PENDING_AFTER_SECONDS = 5.0


@contextmanager
def report_pending_if_slow(
    say: Callable[[], None], after_seconds: float
) -> Iterator[Callable[[], None]]:
    """Call `say`, from another thread, if the body is slow to end or to call what it was given.

    After that call, and on leaving, `say` has returned or will never be called, so that the next
    report is the last one.
    """
    timer = Timer(after_seconds, say)
    timer.daemon = True
    timer.start()

    def unneeded() -> None:
        timer.cancel()
        timer.join()

    try:
        yield unneeded
    finally:
        unneeded()


# --- before the first write: the finalizer and the claim on the cluster ---------------------------
#
# With the finalizer a deletion gives quotas back. A policy that writes nothing (Observe, paused,
# held or being deleted) takes neither.

RESTORE_FINALIZER = "tidegate.io/restore"


def has_finalizer(raw: JsonObject) -> bool:
    return RESTORE_FINALIZER in (raw["metadata"].get("finalizers") or ())


@dataclass(frozen=True, slots=True)
class Ownership:
    """The claim that the writes of a pass are sent under; epoch 0 = none was taken for them.

    `changed` is the policy if it got its finalizer now, `replaced` the claim that was taken over.
    """

    claim: Claim
    changed: JsonObject | None = None
    replaced: Claim | None = None


def take_ownership(
    seen: ObservationResult,
    raw: JsonObject,
    *,
    operator: str,
    lease_namespace: str,
    replaces: str,
    kubernetes: Kubernetes,
    store: QuotaStore,
) -> Ownership:
    """Put the finalizer on and claim the cluster for this `operator` where missing.

    Raises RetryLater when the object is being deleted, WriteRefused when another policy was faster.
    """
    policy, facts = seen.observation.policy, seen.facts
    found = None if facts is None else facts.claim
    ours = found if found is not None and found.is_of(policy.key, policy.uid) else None
    wanted = Claim(
        policy.key,
        policy.uid,
        operator,
        since_seconds=float(int(seen.observation.now_seconds)),
        lease_namespace=lease_namespace,
    )
    if (
        facts is None
        or seen.observation.missing
        or policy.mode is Mode.OBSERVE
        or policy.paused
        or policy.deleting
    ):
        return Ownership(ours or wanted)
    changed: JsonObject | None = None
    if ours is None or not has_finalizer(raw):
        # also where the cache shows it: the cache may be late, and another replica may have given
        # everything back and let the policy go; what is written then no one would give back
        changed = _held_by_finalizer(ObjectRef.of(BROKER_BANDWIDTH_POLICIES, raw), kubernetes)
    if ours is not None and ours.epoch and ours.lease_namespace == lease_namespace:
        return Ownership(ours, changed)
    claim = store.claim(wanted, replaces)
    is_replaced = found is not None and (
        ours is None or found.is_of_another_operator(policy.uid, lease_namespace)
    )
    return Ownership(claim, changed, found if is_replaced else None)


def _held_by_finalizer(ref: ObjectRef, kubernetes: Kubernetes) -> JsonObject:
    """The policy as it is now, with our finalizer. Raises RetryLater when it is going, or gone."""
    try:
        found = kubernetes.add_finalizer(ref, RESTORE_FINALIZER)
    except NotFound:
        found = None
    if found is None or found["metadata"].get("deletionTimestamp"):
        what = "does not exist any more" if found is None else "is being deleted"
        raise RetryLater(Reason.CONFLICT, f"{ref} {what}; nothing is written for it")
    return found


def take_over_words(replaced: Claim, claim: Claim) -> str:
    """The message of a policy whose claim was another's before."""
    by = f" (operator {replaced.holder})" if replaced.holder else ""
    return (
        f"The claim on the Kafka cluster was that of policy {replaced.policy_key} with uid "
        f"{replaced.policy_uid}{by}, which the annotation {REPLACE_CLAIM} names; now it is this "
        f"one's (epoch {claim.epoch}). The annotation has done its work and may go"
    )


# The older of two policies has the right to a Kafka cluster. The claim in ZooKeeper decides in the
# end, also between replicas; this keeps a younger policy from claiming first.


def competing_policy(
    policy: JsonObject, facts: ClusterFacts, policies: Iterable[JsonObject]
) -> str | None:
    """Names an older policy with the same cluster id in its status; None when ours is first."""
    if facts.owner_policy_key == object_key(policy):
        return None
    for other in sorted(policies, key=age_key):
        if age_key(other) >= age_key(policy):
            return None
        same_cluster = (other.get("status") or {}).get("clusterId") == facts.cluster_id
        if same_cluster and not other["metadata"].get("deletionTimestamp"):
            return (
                f"Policy {object_key(other)} is older and is for cluster {facts.cluster_id} too; "
                "this policy changes nothing. Delete one of the two, or point one at another "
                "cluster"
            )
    return None
