"""Runs the passes of one policy, from cached objects to the report, and its release.

A pass: read what the objects say (`declare`), take readings and rollups as they are known, connect,
observe, decide, take the claim, have the status remember the ledger, write, read again
(`reconcile.py`), post the report. Three things are beside it, so that a pass never waits for them:
Prometheus is read in a thread (`metrics_watch.py`), reports are delivered by a queue
(`report/reporter.py`), and rollups are looked at in a thread (`rollups.py`).

Everything that is remembered here may be lost: a new process, or another replica, begins with
`_first_pass` and finds what it needs in the ledger, the claim and the status. So whatever a pass
must not forget is written there before it acts, and what is kept here only saves work or Events.

A pass that fails has changed nothing beyond what its result says, and the next one starts from what
the store has. When a pass runs is not decided here: see `ControlLoop` in `manager.py`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from threading import Timer
from typing import TYPE_CHECKING

import structlog

from tidegate.control.ledger_watch import (
    CONFIRMED_AFTER_SECONDS,
    LedgerWatch,
    Remembered,
    managed_of,
)
from tidegate.control.leftovers import Suspect, suspects_words
from tidegate.control.ownership import (
    RESTORE_FINALIZER,
    Deletion,
    competing_policy,
    has_finalizer,
    may_move_ledger,
    take_over_words,
    take_ownership,
)
from tidegate.control.queues.report import QueueTask, reading_of
from tidegate.control.queues.watch import QueueDependencies, QueueWatch
from tidegate.control.reconcile import Applied, ControlPass, PassResult
from tidegate.control.report.reporter import PassReport, ReportQueue
from tidegate.control.rollups import RollupDependencies, RollupLook, RollupProgress, RollupWatch
from tidegate.control.runtime import Backoff, Cause, OperatorContext
from tidegate.errors import InvalidResource, LedgerElsewhere, TidegateError
from tidegate.kafka.quota_store import Claim, QuotaStore
from tidegate.kube.api import (
    BANDWIDTH_BUDGETS,
    BROKER_BANDWIDTH_POLICIES,
    BUSINESS_TIERS,
    DELAY_QUEUES,
    QUOTA_OVERRIDES,
    JsonObject,
    ObjectRef,
    ResourceKind,
)
from tidegate.metrics import count_writes
from tidegate.observe.connections import Connection
from tidegate.observe.declared import Declared, SpecReader, belongs_to, declare, object_key
from tidegate.observe.metrics_watch import Dependencies, MetricsWatch
from tidegate.observe.namespaces import KnownLabels, labels_now
from tidegate.observe.observation import KafkaCluster, ObservationResult, Rival
from tidegate.observe.secrets_and_hosts import refuse_other_hosts
from tidegate.observe.strimzi import KnownKafkaUsers
from tidegate.settings import ForwarderOffer
from tidegate.throttle_metrics import PolicyReading, inputs_of, policy_labels
from tidegate_logic.decision import Decision
from tidegate_logic.model import Mode, QuotaWrite, Readings, Topology
from tidegate_logic.queues.shift import crowded_brokers
from tidegate_logic.reasons import Reason
from tidegate_logic.throttle.schedules import in_force

if TYPE_CHECKING:
    from tidegate.control.queues.keeper import QueueKeeper

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Parts:
    """The objects that refer to one policy, as they are in the cache."""

    tiers: list[JsonObject]
    overrides: list[JsonObject]
    budgets: list[JsonObject]

    @property
    def all(self) -> tuple[list[JsonObject], ...]:
        """All of them, as reports take them."""
        return self.tiers, self.overrides, self.budgets


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
        self._may_write = may_write
        self._uid = ""
        self._crowded: frozenset[int] | None = None  # brokers without room for what may wait
        self._pass = self._first_pass()
        namespace = key.partition("/")[0]
        self._connection = Connection(
            namespace,
            kubernetes=context.kubernetes,
            opener=context.open_cluster,
            wake=lambda: wake(Cause.BROKERS),
            may_write=may_write,
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
        self._queues = QueueWatch(key, _queue_dependencies(key, context, may_write=may_write))
        self._backoff = Backoff()
        self._deletion = Deletion(context.settings.restore_deadline_seconds)
        self._reports = ReportQueue(
            self._report,
            f"reports of {key}",
            beside=context.report_beside,
            goes_on=context.vital_signs.goes_on,
        )
        self._reader = SpecReader()
        self._labels = KnownLabels(
            context.kubernetes,
            context.clock.monotonic,
            keep_seconds=context.settings.list_stale_after_seconds,
            beside=context.report_beside,
        )
        self._kafka_users = KnownKafkaUsers(
            context.kubernetes,
            context.clock.monotonic,
            keep_seconds=context.settings.list_stale_after_seconds,
            beside=context.report_beside,
        )
        self._declared: Declared | None = None
        self._topology: Topology | None = None
        self._seen_before = False
        self._no_reading_since: float | None = None
        self._ledger_moved = False
        self._ledger = LedgerWatch(key, monotonic=context.clock.monotonic)
        self._ledger_mended = False
        self._named_left: tuple[Suspect, ...] = ()

    def close(self) -> None:
        """Deliver the last report and close the connections."""
        self._metrics.close()
        self._rollups.close()
        self._queues.close()
        self._reports.close()
        self._connection.close()

    def prepare(self) -> None:
        """Open the cluster and read what the first pass will read, which then is done sooner.

        For a replica whose turn is to come: nothing is decided, written or reported. What goes
        wrong here goes wrong in the first pass too, which reports it.
        """
        policy = self._context.policies().get(self._key)
        if policy is None or policy["metadata"].get("deletionTimestamp"):
            return
        with suppress(TidegateError):
            declared = self._read_declared(policy, self._parts_of(policy))
            self._pass.observer.observe(
                declared,
                self._connection.cluster(declared.spec.kafka),
                now_seconds=self._context.clock.wall(),
                rival=self._rival_of(policy),
            )

    def pass_once(self) -> float:
        """One pass; returns after how many seconds the next is due at the latest."""
        policy = self._context.policies().get(self._key)
        if policy is None or (
            policy["metadata"].get("deletionTimestamp") and not has_finalizer(policy)
        ):
            return self._context.settings.poll_seconds
        self._forget_another(policy["metadata"]["uid"])
        started_seconds = self._context.clock.monotonic()
        result = self._observe_and_act(policy, self._parts_of(policy))
        self._context.telemetry.pass_seconds.labels(*policy_labels(self._key)).observe(
            self._context.clock.monotonic() - started_seconds
        )
        if policy["metadata"].get("deletionTimestamp"):
            self._release_when_restored(policy, result)
        return self._next_in_seconds(result)

    def _forget_another(self, uid: str) -> None:
        """A policy of this name that was deleted and made again has no past."""
        if self._uid and self._uid != uid:
            self._pass = self._first_pass()
            self._deletion = Deletion(self._context.settings.restore_deadline_seconds)
            self._declared, self._topology, self._seen_before = None, None, False
            self._ledger = LedgerWatch(self._key, monotonic=self._context.clock.monotonic)
        self._uid = uid

    def _first_pass(self) -> ControlPass:
        """Passes of a policy that nothing is remembered of."""
        clock = self._context.clock
        return ControlPass(
            clock.wall, clock.monotonic, self._may_write, tracing=self._context.tracing
        )

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
        except Exception as error:  # the next pass meets it again and reports it
            if not isinstance(error, TidegateError):
                log.exception("Look at leaders abandoned", policy=self._key)
            return False
        return (now.brokers, now.topics) != (self._topology.brokers, self._topology.topics)

    @property
    def follows_moves(self) -> bool:
        """Whether the policy wants to know of reassignments between passes."""
        declared = self._declared
        return (
            declared is not None
            and declared.spec.replication is not None
            and not declared.policy.deleting
        )

    def reassignments_changed(self) -> bool:
        """Whether a reassignment has begun or ended since it was last asked; never raises."""
        if self._declared is None:
            return False
        try:
            source = self._connection.cluster(self._declared.spec.kafka).replication
            return source is not None and source.has_changed()
        except Exception as error:  # the next pass meets it again and reports it
            if not isinstance(error, TidegateError):
                log.exception("Look at reassignments abandoned", policy=self._key)
            return False

    def _of(self, policy: JsonObject, kind: ResourceKind) -> list[JsonObject]:
        """The objects of this kind that refer to the policy and are not being deleted."""
        known = [raw for raw in self._context.cache.snapshot(kind) if belongs_to(raw, policy)]
        return [raw for raw in known if not raw["metadata"].get("deletionTimestamp")]

    def _want_queues(self, policy: JsonObject, declared: Declared) -> None:
        queues = self._queues_of(policy)
        self._queues.want(QueueTask(declared.policy, declared.spec, queues, self._crowded))

    def _queues_of(self, policy: JsonObject) -> tuple[JsonObject, ...]:
        """The queues that refer to the policy, those that are being deleted as well."""
        known = self._context.cache.snapshot(DELAY_QUEUES)
        return tuple(raw for raw in known if belongs_to(raw, policy))

    def _parts_of(self, policy: JsonObject) -> _Parts:
        kinds = (BUSINESS_TIERS, QUOTA_OVERRIDES, BANDWIDTH_BUDGETS)
        return _Parts(*(self._of(policy, kind) for kind in kinds))

    def _budgets_are_unknown(self, policy: JsonObject, parts: _Parts) -> bool:
        """Whether the policy has budgets, and which they are now cannot be known.

        A process that has never had their list takes it from the policy's status.
        """
        if self._context.list_is_fresh(BANDWIDTH_BUDGETS):
            return False
        is_remembered = bool((policy.get("status") or {}).get("budgets"))
        was_listed = self._context.cache.list_age_seconds(BANDWIDTH_BUDGETS) is not None
        return bool(parts.budgets) or (is_remembered and not was_listed)

    def _observe_and_act(self, policy: JsonObject, parts: _Parts) -> PassResult | None:
        try:
            self._declared = declared = self._read_declared(policy, parts)
        except InvalidResource as error:
            self._declared = None
            self._metrics.latest(None, None)  # nothing goes on by the spec from before
            self._rollups.latest(policy, None)
            self._queues.want(None)
            self._reports.catch_up()
            self._context.reporter.unread(policy, error, *parts.all)
            self._context.telemetry.passes.labels(*policy_labels(self._key), "invalid").inc()
            return None
        rollups = (
            None if declared.policy.deleting else self._rollups.latest(policy, declared.spec.rollup)
        )
        self._want_queues(policy, declared)
        self._ledger.begin(policy.get("status") or {})
        with self._pending_report(policy, parts) as cluster_answered:
            result = self._run(policy, declared, rollups, cluster_answered)
        self._topology = result.seen.observation.topology or self._topology
        self._newest_reading(declared)  # of the brokers that are known now
        self._crowded = crowded_brokers(
            result.decision.watched,
            is_throttling=any(one.below_contract for one in result.decision.levels),
            before=self._crowded,
        )
        self._want_queues(policy, declared)
        written = tuple(write for done in result.applied for write in done.done)
        resynced = "".join(one.resynced for one in (*result.decided, result.decision))
        self._reports.post(
            PassReport(
                result,
                declared,
                policy,
                tuple(parts.tiers),
                written,
                tuple(parts.overrides),
                tuple(parts.budgets),
                rollups,
                resynced,
                self._ledger.status,
            )
        )
        self._measure(result, rollups)
        return result

    def _read_declared(self, policy: JsonObject, parts: _Parts) -> Declared:
        """What the objects say. Raises InvalidResource when the policy cannot be followed."""
        fresh = self._context.list_is_fresh
        declared = declare(
            policy,
            parts.tiers if fresh(BUSINESS_TIERS) else None,
            self._reader,
            overrides=parts.overrides if fresh(QUOTA_OVERRIDES) else None,
            budgets=None if self._budgets_are_unknown(policy, parts) else parts.budgets,
            labels=self._labels,
            lease_namespace=self._context.settings.lease_namespace,
            kafka_users=self._kafka_users,
            unread_budgets=self._context.why_unlisted(BANDWIDTH_BUDGETS),
        )
        refuse_other_hosts(self._key, declared.spec, self._context.settings.bounds)
        return declared

    def _rival_of(self, policy: JsonObject) -> Rival:
        others = self._context.policies().values()
        return lambda facts: competing_policy(policy, facts, others)

    def _report(self, report: PassReport) -> None:
        """Deliver a report in the queue's thread. The one before may have written new statuses."""
        report.context.run(self._report_here, report)

    def _report_here(self, report: PassReport) -> None:
        if not self._may_write():
            return  # the replica that holds the Lease by now reports what it finds
        known = self._context.cache.with_known_status
        thread = f"reports of {self._key}"
        self._context.vital_signs.beat(thread)
        if self._context.report_beside:
            self._context.first_passes.go_first(_REPORT_WAITS_SECONDS)
        try:
            with self._context.tracing.span("report"):
                self._context.reporter.passed(
                    replace(
                        report,
                        policy=known(BROKER_BANDWIDTH_POLICIES, report.policy),
                        tiers=tuple(known(BUSINESS_TIERS, tier) for tier in report.tiers),
                        overrides=tuple(
                            known(QUOTA_OVERRIDES, override) for override in report.overrides
                        ),
                        budgets=tuple(known(BANDWIDTH_BUDGETS, one) for one in report.budgets),
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
        # what a reading a scrape sooner would be for: only who writes has a use for it
        acts = declared.policy.mode is not Mode.OBSERVE and self._may_write()
        now_seconds = self._context.clock.wall()
        policy = in_force(declared.policy, declared.tiers, now_seconds) if acts else None
        return self._metrics.latest(
            None if declared.policy.deleting else declared.spec.metrics,
            brokers,
            None if policy is None else policy.limits,
            background=declared.spec.background is not None and declared.spec.background.is_remote,
        )

    def _pending_report(
        self, policy: JsonObject, parts: _Parts
    ) -> AbstractContextManager[Callable[[], None]]:
        if self._seen_before:
            return nullcontext(lambda: None)
        self._seen_before = True

        def say() -> None:
            self._context.vital_signs.beat(f"policy {self._key}")  # its pass waits for this thread
            self._context.reporter.first_seen(policy, *parts.all)

        return report_pending_if_slow(say, PENDING_AFTER_SECONDS)

    def _run(
        self,
        policy: JsonObject,
        declared: Declared,
        rollups: RollupProgress | None,
        cluster_answered: Callable[[], None],
    ) -> PassResult:
        readings, usage = self._newest_reading(declared), None if rollups is None else rollups.usage
        is_applied = declared.policy.advice.max_change_percent is not None
        try:
            cluster = self._connection.cluster(declared.spec.kafka)
        except TidegateError as error:
            return self._pass.without_cluster(declared, error)

        owner: Claim | None = None

        def prepare(seen: ObservationResult) -> Claim:
            nonlocal owner
            cluster_answered()  # a pass that only has much to write reports it when it ends
            self._take_ledger_along(policy, declared, cluster, seen)
            owned = take_ownership(
                seen,
                policy,
                operator=self._context.settings.identity,
                lease_namespace=declared.lease_namespace,
                replaces=declared.replaces_claim,
                may_write=self._may_write,
                kubernetes=self._context.kubernetes,
                store=cluster.store,
                least_epoch=self._ledger.epoch,
            )
            owner = owned.claim
            if owned.changed is not None:
                self._context.cache.put(BROKER_BANDWIDTH_POLICIES, owned.changed)
            if owned.replaced is not None:
                self._reports.catch_up()
                message = take_over_words(owned.replaced, owned.claim)
                self._context.reporter.took_claim_over(policy, message)
            return owned.claim

        result = self._pass.run(
            declared,
            cluster,
            readings=readings,
            usage=usage,
            usage_awaited=is_applied and (rollups is None or rollups.unread),
            rates_awaited=self._is_first_reading_awaited(declared, readings),
            prepare=prepare,
            before_writes=partial(self._have_ledger_remembered, policy),
            rival=self._rival_of(policy),
            ledger=partial(self._ledger.look, policy=declared.policy),
            fresh_kafka_users=self._kafka_users.fresh,
        )
        self._keep_ledger(policy, declared, cluster, result, owner)
        if self._ledger_moved:  # the next pass finds where it is now
            self._ledger_moved = False
            self._connection.close()
        return result

    def _have_ledger_remembered(
        self,
        policy: JsonObject,
        writes: Sequence[QuotaWrite],
        seen: ObservationResult,
        owner: Claim | None,
    ) -> None:
        """Before writes: the status knows of budgets and of the ledger.

        Raises what keeps it from knowing of a smaller ledger.
        """
        self._note_budgets(policy, len(seen.observation.budgets))
        quotas, facts = seen.observation.quotas, seen.facts
        if owner is None or not owner.epoch or quotas is None or facts is None:
            return

        def note(now: Remembered) -> None:
            self._note_ledger(policy, now)

        self._ledger.before_writes(writes, owner, facts, quotas, note=note)

    def _note_budgets(self, policy: JsonObject, count: int) -> None:
        """Have the status know that there are budgets, whatever becomes of this process."""
        newest = self._context.cache.with_known_status(BROKER_BANDWIDTH_POLICIES, policy)
        if count and not (newest.get("status") or {}).get("budgets"):
            with suppress(TidegateError):  # no quota waits for that; the report is next to try
                self._reports.catch_up()
                self._context.reporter.remember_budgets(newest, count)

    def _note_ledger(self, policy: JsonObject, ledger: Remembered) -> None:
        """Write it into the status after every report that is on its way."""
        self._reports.catch_up()
        newest = self._context.cache.with_known_status(BROKER_BANDWIDTH_POLICIES, policy)
        managed = managed_of(newest.get("status") or {})
        self._context.reporter.remember_ledger(newest, ledger.as_status(managed))

    def _keep_ledger(
        self,
        policy: JsonObject,
        declared: Declared,
        cluster: KafkaCluster,
        result: PassResult,
        owner: Claim | None,
    ) -> None:
        """After a pass: remember the ledger, or do what a person said about one that is lost."""
        seen, quotas = result.seen, result.seen.observation.quotas
        if seen.facts is None or quotas is None:
            return
        if seen.ledger_loss is not None:
            if not declared.policy.deleting:
                self._mend_ledger(policy, declared, cluster, result)
            return
        if result.error is not None:
            return  # what was read before and after it may not be of one ledger
        claim = owner if owner is not None and owner.epoch else seen.facts.claim
        if claim is None or not claim.is_of(declared.policy.key, declared.policy.uid):
            return
        throttles = None
        if declared.spec.replication is not None or declared.spec.background is not None:
            try:
                throttles = cluster.store.throttle_record()
            except TidegateError:
                return  # the next pass remembers all of it
        self._ledger.after_pass(claim, seen.facts, quotas, throttles)

    def _mend_ledger(
        self, policy: JsonObject, declared: Declared, cluster: KafkaCluster, result: PassResult
    ) -> None:
        remembered, loss, facts = (
            self._ledger.remembered,
            result.seen.ledger_loss,
            result.seen.facts,
        )
        answer = None if remembered is None else remembered.answer_in(declared.lost_ledger)
        if (
            answer is None
            or facts is None
            or loss is None
            or not loss.is_confirmed
            or declared.policy.mode is not Mode.ENFORCE
            or declared.policy.paused
            or not self._may_write()
        ):
            return
        claim = Claim(
            declared.policy.key,
            declared.policy.uid,
            self._context.settings.identity,
            since_seconds=float(int(result.seen.observation.now_seconds)),
            lease_namespace=declared.lease_namespace,
        )
        try:
            mending = self._ledger.prepare(
                answer,
                claim,
                facts=facts,
                quotas=result.seen.observation.quotas or {},
                members=result.decision.members,
                policy=declared.policy,
                strimzi=declared.strimzi,
                store=cluster.store,
                now_seconds=result.seen.observation.now_seconds,
            )
            if mending is None:
                return
            # first of all: who comes after a process that ended here could not name them any more
            self._name_left(policy, declared, mending.left)
            done = self._ledger.mend(mending, cluster.store)
        except TidegateError as error:
            log.warning("Lost ledger: not done yet", policy=self._key, error=error.message)
            self._ledger.could_not_mend(error.message)
            return
        self._ledger_mended = True
        if self._ledger.remembered is not None:
            with suppress(TidegateError):  # the next report says so
                self._note_ledger(policy, self._ledger.remembered)
        self._context.reporter.mended_ledger(policy, done)

    def _is_first_reading_awaited(self, declared: Declared, readings: Readings | None) -> bool:
        """Whether a first quota still waits for what its clients send: half a minute at most."""
        if readings is not None or declared.spec.metrics is None or declared.policy.deleting:
            self._no_reading_since = None
            return False
        now_seconds = self._context.clock.monotonic()
        if self._no_reading_since is None:
            self._no_reading_since = now_seconds
        return now_seconds - self._no_reading_since < _FIRST_READING_SECONDS

    def _take_ledger_along(
        self,
        policy: JsonObject,
        declared: Declared,
        cluster: KafkaCluster,
        seen: ObservationResult,
    ) -> None:
        """Move the ledger with a cluster that has left ZooKeeper; raises what keeps it there."""
        if cluster.ledger_move is None or not may_move_ledger(seen) or not self._may_write():
            return
        wanted = Claim(
            declared.policy.key,
            declared.policy.uid,
            self._context.settings.identity,
            since_seconds=float(int(seen.observation.now_seconds)),
            lease_namespace=declared.lease_namespace,
        )
        try:
            moved = cluster.ledger_move.attempt(wanted, may_write=self._may_write)
        except LedgerElsewhere:  # another replica, or a person, moved it since this one looked
            self._ledger_moved = True
            raise
        if moved is not None:
            self._ledger_moved = True
            self._reports.catch_up()
            self._context.reporter.moved_ledger(policy, moved)

    def _release_when_restored(self, policy: JsonObject, result: PassResult | None) -> None:
        kafka = (policy.get("spec") or {}).get("kafka") or {}
        zookeeper = (kafka.get("zookeeper") or {}).get("connect")
        address = (
            f"--zookeeper {zookeeper}"
            if zookeeper
            else f"--bootstrap-servers {kafka.get('bootstrapServers', 'ADDRESS')}"
        )
        now_seconds = self._context.clock.monotonic()
        farewell = self._deletion.conclude(
            result, policy_key=self._key, address=address, now_seconds=now_seconds
        )
        if farewell is None or not self._may_write():
            return  # what is left may be another replica's to restore by now
        self._reports.catch_up()
        left: list[str] = []
        try:
            if self._declared is not None and farewell.may_release_claim:
                store = self._connection.cluster(self._declared.spec.kafka).store
                if farewell.reason is Reason.LEDGER_LOST:
                    left = self._name_suspects(
                        self._declared, self._suspects(self._declared, store, result)
                    )
                store.release_claim(self._key, self._declared.policy.uid)
            self._context.kubernetes.remove_finalizer(
                ObjectRef.of(BROKER_BANDWIDTH_POLICIES, policy), RESTORE_FINALIZER
            )
        except TidegateError as error:
            log.warning("Policy could not be released yet", policy=self._key, error=error.message)
            return
        if farewell.incomplete is not None:
            self._context.reporter.left_behind(policy, farewell.reason, farewell.incomplete, *left)
        else:
            self._context.reporter.gone(policy)

    def _suspects(
        self, declared: Declared, store: QuotaStore, result: PassResult | None
    ) -> list[Suspect]:
        facts = None if result is None else result.seen.facts
        return self._ledger.suspects(
            store.read_everything(),
            declared.entities,
            strimzi=declared.strimzi,
            claim=None if facts is None else facts.claim,
        )

    def _name_left(
        self, policy: JsonObject, declared: Declared, suspects: tuple[Suspect, ...]
    ) -> None:
        """Name the quotas that an accepted loss leaves behind, in log and Events, once."""
        if suspects != self._named_left:
            words = self._name_suspects(declared, suspects)
            self._context.reporter.left_behind(policy, Reason.LEDGER_LOST, *words)
            self._named_left = suspects

    def _name_suspects(self, declared: Declared, suspects: Sequence[Suspect]) -> list[str]:
        """Log every quota that may be left behind; returns the same for Events."""
        servers = str(declared.spec.kafka.bootstrap_servers)
        for one in suspects:
            log.warning(
                "Quota may be left behind",
                policy=self._key,
                quota=one.words,
                declared=one.is_declared,
                command=one.command(servers),
            )
        words = suspects_words(suspects, servers)
        if suspects and declared.strimzi is not None and declared.strimzi.unread:
            words.append(
                f"The KafkaUsers of Strimzi's cluster {declared.strimzi.cluster} could not be "
                "read: do not remove what one of them declares"
            )
        return words

    def _next_in_seconds(self, result: PassResult | None) -> float:
        poll_seconds = self._context.settings.poll_seconds
        if result is None:
            return poll_seconds
        if self._ledger_mended:
            self._ledger_mended = False
            return 0.0
        if (
            result.error is not None
            or (result.decision.writes and not result.decision.holds)
            or result.seen.facts is None
        ):
            return min(poll_seconds, self._backoff.next_seconds())
        self._backoff.reset()
        changes_at_seconds = result.decision.overridden.next_change_seconds
        due = [
            poll_seconds,
            *(
                one.next_pass_in_seconds
                for one in (result.decision, result.replication)
                if one.next_pass_in_seconds is not None
            ),
        ]
        if result.seen.ledger_loss is not None and not result.seen.ledger_loss.is_confirmed:
            due.append(CONFIRMED_AFTER_SECONDS)
        if changes_at_seconds is not None:
            due.append(changes_at_seconds - result.seen.observation.now_seconds)
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
        for change in result.replication.applied:
            telemetry.replication_writes.labels(
                *policy_labels(self._key), change.resource.kind.value
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
            replication=result.replication.decision,
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
        exporters=context.exporters,
        count_direct=lambda result: context.telemetry.direct_readings.labels(
            *policy_labels(key), result
        ).inc(),
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


def _queue_dependencies(
    key: str, context: OperatorContext, *, may_write: Callable[[], bool]
) -> QueueDependencies:
    offer = context.settings.forwarders

    def open_keeper(offer: ForwarderOffer) -> "QueueKeeper":
        # a policy without queues does without these
        from tidegate.control.queues.forwarders import ForwarderKeeper
        from tidegate.control.queues.keeper import QueueKeeper

        forwarders = ForwarderKeeper(
            context.kubernetes,
            offer,
            bounds=context.settings.bounds,
            may_write=may_write,
            wall=context.clock.wall,
        )
        return QueueKeeper(
            key,
            kubernetes=context.kubernetes,
            forwarders=forwarders,
            labels=labels_now(context.kubernetes),
            may_write=may_write,
            monotonic=context.clock.monotonic,
            bounds=context.settings.bounds,
            changed=lambda raw: context.cache.put(DELAY_QUEUES, raw),
        )

    return QueueDependencies(
        None if offer is None else partial(open_keeper, offer),
        context.reporter.queues,
        context.clock.monotonic,
        may_write,
        newest=lambda raw: context.cache.with_known_status(DELAY_QUEUES, raw),
        measured=lambda found: context.telemetry.queues.put(
            key, {object_key(one.raw): reading_of(one) for one in found}
        ),
    )


# --- the first status of a new object -------------------------------------------------------------
#
# A first pass reports itself when it ends. Only one that waits for a cluster that does not answer
# needs a report meanwhile.

PENDING_AFTER_SECONDS = 5.0
_REPORT_WAITS_SECONDS = 15.0
_FIRST_READING_SECONDS = 30.0


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
