"""One control pass over one policy: observe, decide, write, and read again until no write is left.

The result was read from the store after the last write, so it is what is there and no guess. No
threads, no Kubernetes, no waiting.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tidegate.control.replication import IDLE, ReplicationControl, ReplicationResult
from tidegate.errors import LeaseLost, TidegateError
from tidegate.kafka.quota_store import Claim, QuotaStore, WriteOutcome
from tidegate.observe.declared import Declared
from tidegate.observe.observation import (
    KafkaCluster,
    LedgerLook,
    ObservationResult,
    Observer,
    Rival,
    ledger_unknown,
)
from tidegate.tracing import OFF, Tracing
from tidegate_logic.decide import decide, settle
from tidegate_logic.decision import Decision, Memory
from tidegate_logic.model import LedgerRecord, QuotaWrite, Readings, StrimziUsers, Usage, WriteKind
from tidegate_logic.quotas.strimzi import writes_over_others
from tidegate_logic.reasons import Reason

# --- sending writes -------------------------------------------------------------------------------
#
# Nothing is repeated: the next reading of the store finds what was not applied. Being killed
# anywhere in here is safe, because each entity changes together with its ledger record or not at
# all.
#
# The distance to the next lowering counts from when the brokers learned of this one. A process that
# was stopped sends long after it decided, so the ledger gets the time of sending; where the answer
# is late as well, it gets the time of the answer by a second write.

_IN_TIME_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Applied:
    """The writes sent: `done` happened, `refused` did not, `error` ended the sending early.

    A batch, such as the one that the error met, has at most `most_writes`.
    """

    done: tuple[QuotaWrite, ...] = ()
    refused: tuple[WriteOutcome, ...] = ()
    error: TidegateError | None = None
    batches: int = 0
    most_writes: int = 200

    @property
    def complete(self) -> bool:
        return self.error is None and not self.refused


def apply_writes(
    writes: Sequence[QuotaWrite],
    store: QuotaStore,
    *,
    cluster_id: str,
    may_write: Callable[[], bool],
    decided_at_seconds: float,
    now_seconds: Callable[[], float],
    owner: Claim | None = None,
) -> Applied:
    """Send the writes in order, in batches of the store, while `may_write` (the Lease).

    The store asks for the Lease again before each request: see `QuotaStore.only_while`.
    `owner` is the claim that they are sent under: see QuotaStore.write. What the decision dated
    `decided_at_seconds` gets the time at which it is sent, or answered if that is much later.

    Never raises a TidegateError: the first one ends the sending and is handed back with what was
    done until then.
    """
    done: list[QuotaWrite] = []
    refused: list[WriteOutcome] = []
    late: list[tuple[QuotaWrite, LedgerRecord]] = []
    error: TidegateError | None = None
    batches = 0
    try:
        for start in range(0, len(writes), store.most_writes):
            _ask(may_write)
            sent_at_seconds = max(now_seconds(), decided_at_seconds)
            batch = [
                replace(one, ledger=_dated(one.ledger, decided_at_seconds, sent_at_seconds))
                for one in writes[start : start + store.most_writes]
            ]
            outcomes = store.write(batch, cluster_id, owner)
            batches += 1
            happened = [
                one for one, outcome in zip(batch, outcomes, strict=True) if outcome.applied
            ]
            done += happened
            refused += [outcome for outcome in outcomes if not outcome.applied]
            answered_at_seconds = now_seconds()
            if answered_at_seconds - sent_at_seconds > _IN_TIME_SECONDS:
                late += [
                    (one, record)
                    for one in happened
                    if one.values
                    and (record := _dated(one.ledger, sent_at_seconds, answered_at_seconds))
                ]
        for start in range(0, len(late), store.most_writes):
            _ask(may_write)
            _date_late(late[start : start + store.most_writes], store, cluster_id, owner)
    except TidegateError as failed:
        error = failed
    return Applied(tuple(done), tuple(refused), error, batches, store.most_writes)


def _ask(may_write: Callable[[], bool]) -> None:
    if not may_write():
        raise LeaseLost


def _dated(
    record: LedgerRecord | None, old_seconds: float, new_seconds: float
) -> LedgerRecord | None:
    """The record with another time on what was written at `old_seconds`."""
    if record is None or old_seconds == new_seconds:
        return record
    entries = {
        key: replace(entry, written_at_seconds=new_seconds)
        if entry.written_at_seconds == old_seconds
        else entry
        for key, entry in record.entries.items()
    }
    return replace(record, entries=entries)


def _date_late(
    late: Sequence[tuple[QuotaWrite, LedgerRecord]],
    store: QuotaStore,
    cluster_id: str,
    owner: Claim | None,
) -> None:
    """Date records to when their writes were answered, unless they have changed since."""
    now = store.read([write.entity for write, _ in late])
    records = [
        QuotaWrite(
            write.entity,
            {},
            now[write.entity],
            record,
            WriteKind.RECORD,
            write.reason,
            f"{write.entity}: the ledger says when its quota was in force",
            charged=False,
        )
        for write, record in late
        if now[write.entity].ledger == write.ledger
    ]
    if records:
        store.write(records, cluster_id, owner)


# a write that the second reading does not confirm was contested or refused: it waits for a pass
MAX_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class PassResult:
    """The end of a pass. `decision` is on the last observation.

    `applied` has each round of writes before it, `decided` their decisions. `replication` is what
    was done about replication after them.
    """

    seen: ObservationResult
    decision: Decision
    applied: tuple[Applied, ...] = ()
    error: TidegateError | None = None
    decided: tuple[Decision, ...] = ()
    replication: ReplicationResult = IDLE

    @property
    def complete(self) -> bool:
        """Nothing failed, nothing is held, and no write is left over."""
        return (
            self.error is None
            and not self.decision.holds
            and not self.decision.writes
            and all(done.complete for done in self.applied)
        )


BeforeWrites = Callable[[Sequence[QuotaWrite], ObservationResult, Claim | None], None]

# with these the cluster is not ours to write, or not now: replication is left alone like quotas
_NOT_TO_BE_WRITTEN = frozenset(
    {
        Reason.WRONG_CLUSTER,
        Reason.CLUSTER_ALREADY_MANAGED,
        Reason.CLAIMED_ELSEWHERE,
        Reason.MIGRATION_RUNNING,
        Reason.CONTROLLER_ABSENT,
        Reason.LEDGER_AT_RISK,
        Reason.LEDGER_LOST,
        Reason.LEDGER_NOT_FOUND,
    }
)


def may_be_written(decision: Decision) -> bool:
    """Whether nothing forbids to write the cluster as a whole."""
    return not any(hold.reason in _NOT_TO_BE_WRITTEN for hold in decision.holds)


@dataclass(slots=True)
class ControlPass:
    """Runs one policy's passes with a memory. `may_write` is the Lease, `now_seconds` wall time."""

    now_seconds: Callable[[], float]
    monotonic: Callable[[], float]
    may_write: Callable[[], bool]
    observer: Observer = field(default_factory=Observer)
    memory: Memory = field(default_factory=Memory)
    tracing: Tracing = OFF
    replication: ReplicationControl = field(init=False)

    def __post_init__(self) -> None:
        self.replication = ReplicationControl(self.monotonic, self.may_write)

    def run(
        self,
        declared: Declared,
        cluster: KafkaCluster,
        *,
        readings: Readings | None = None,
        usage: Usage | None = None,
        usage_awaited: bool = False,
        rates_awaited: bool = False,
        prepare: Callable[[ObservationResult], Claim | None] = lambda _: None,
        before_writes: BeforeWrites = lambda *_: None,
        rival: Rival = lambda _: None,
        ledger: LedgerLook = ledger_unknown,
        fresh_kafka_users: Callable[[], StrimziUsers | None] | None = None,
    ) -> PassResult:
        """One pass.

        `prepare` is called before the first write and returns the claim that all are sent under;
        its TidegateError refuses them. `before_writes` is called with each round of writes before
        they are sent, and may refuse them in the same way. `fresh_kafka_users` is called before a
        write over someone else's value of a user, so that the KafkaUser that may have brought it
        is known.
        """

        def observe(now_declared: Declared) -> ObservationResult:
            with self.tracing.span("observe"):
                return self.observer.observe(
                    now_declared,
                    cluster,
                    now_seconds=self.now_seconds(),
                    readings=readings,
                    usage=usage,
                    usage_awaited=usage_awaited,
                    rates_awaited=rates_awaited,
                    rival=rival,
                    ledger=ledger,
                    replication=self.replication.beside,
                )

        before, seen = self.memory, observe(declared)
        decision = self._decide(seen)
        if fresh_kafka_users is not None and writes_over_others(decision.writes, declared.strimzi):
            newest = fresh_kafka_users()
            if newest != declared.strimzi:
                self.memory = before
                seen = observe(replace(declared, strimzi=newest))
                decision = self._decide(seen)
        try:
            owner = prepare(seen)
        except TidegateError as error:
            return PassResult(seen, decision, error=error)
        result = self._write_until_settled(cluster, seen, decision, owner, before_writes)
        if result.seen.facts is None or not may_be_written(result.decision):
            return result
        read = result.seen.observation.readings
        with self.tracing.span("replication"):
            replication = self.replication.run(
                declared,
                cluster.replication,
                cluster.store,
                facts=result.seen.facts,
                decision=result.decision,
                owner=owner,
                spans={} if read is None else read.background,
            )
        return replace(result, replication=replication)

    def without_cluster(self, declared: Declared, error: TidegateError) -> PassResult:
        """The pass when the cluster cannot even be connected to: everything is held."""
        seen = self.observer.nothing_reached(declared, error, now_seconds=self.now_seconds())
        return PassResult(seen, self._decide(seen), error=error)

    def _write_until_settled(
        self,
        cluster: KafkaCluster,
        seen: ObservationResult,
        decision: Decision,
        owner: Claim | None,
        before_writes: BeforeWrites,
    ) -> PassResult:
        rounds: list[Applied] = []
        decided: list[Decision] = []
        while decision.writes and seen.facts is not None and len(rounds) < MAX_ROUNDS:
            if rounds and writes_over_others(decision.writes, seen.observation.strimzi):
                break  # what came meanwhile is for a pass that reads KafkaUsers after it
            try:
                before_writes(decision.writes, seen, owner)
            except TidegateError as error:
                return PassResult(seen, decision, tuple(rounds), error, tuple(decided))
            with self.tracing.span("apply") as span:
                done = apply_writes(
                    decision.writes,
                    cluster.store,
                    cluster_id=seen.facts.cluster_id,
                    may_write=self.may_write,
                    decided_at_seconds=seen.observation.now_seconds,
                    now_seconds=self.now_seconds,
                    owner=owner,
                )
                span.note(done=len(done.done), refused=len(done.refused))
            rounds.append(done)
            decided.append(decision)
            written = frozenset(write.entity for write in done.done)
            self.memory = settle(self.memory, decision, written, now_seconds=self.now_seconds())
            touched = [write.entity for write in decision.writes]
            with self.tracing.span("observe", what="what was written"):
                seen = self.observer.reread(
                    seen, cluster, entities=touched, now_seconds=self.now_seconds()
                )
            decision = self._decide(seen)
            if done.error is not None:
                return PassResult(seen, decision, tuple(rounds), done.error, tuple(decided))
        return PassResult(seen, decision, tuple(rounds), decided=tuple(decided))

    def _decide(self, seen: ObservationResult) -> Decision:
        with self.tracing.span("decide") as span:
            decision, self.memory = decide(seen.observation, self.memory)
            span.note(managed=decision.managed, writes=len(decision.writes))
        return decision
