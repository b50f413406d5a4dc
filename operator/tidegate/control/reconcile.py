"""One control pass over one policy: observe, decide, write, and read again until no write is left.

The result was read from the store after the last write, so it is what is there and no guess. No
threads, no Kubernetes, no waiting.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

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
from tidegate_logic.model import QuotaWrite, Readings, StrimziUsers, Usage
from tidegate_logic.quotas.strimzi import writes_over_others
from tidegate_logic.reasons import Reason

# --- sending writes -------------------------------------------------------------------------------
#
# Nothing is repeated: the next reading of the store finds what was not applied. Being killed
# anywhere in here is safe, because each entity changes together with its ledger record or not at
# all.


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


@dataclass(slots=True)
class _Tally:
    done: list[QuotaWrite] = field(default_factory=list)
    refused: list[WriteOutcome] = field(default_factory=list)
    batches: int = 0


def apply_writes(
    writes: Sequence[QuotaWrite],
    store: QuotaStore,
    *,
    cluster_id: str,
    may_write: Callable[[], bool],
    owner: Claim | None = None,
    as_sent: Callable[[QuotaWrite], QuotaWrite] = lambda write: write,
) -> Applied:
    """Send the writes in order, in batches of the store, while `may_write` (the Lease).

    The store asks for the Lease again before each request: see `QuotaStore.only_while`.
    `owner` is the claim that they are sent under: see QuotaStore.write. `as_sent` is asked for each
    write right before its batch.

    Never raises a TidegateError: the first one ends the sending and is handed back with what was
    done until then.
    """
    tally = _Tally()
    for start in range(0, len(writes), store.most_writes):
        error = _send(
            writes[start : start + store.most_writes],
            store,
            cluster_id=cluster_id,
            may_write=may_write,
            owner=owner,
            as_sent=as_sent,
            tally=tally,
        )
        if error is not None:
            break
    else:
        error = None
    return Applied(tuple(tally.done), tuple(tally.refused), error, tally.batches, store.most_writes)


def _send(
    batch: Sequence[QuotaWrite],
    store: QuotaStore,
    *,
    cluster_id: str,
    may_write: Callable[[], bool],
    owner: Claim | None,
    as_sent: Callable[[QuotaWrite], QuotaWrite],
    tally: _Tally,
) -> TidegateError | None:
    if not may_write():
        return LeaseLost()
    batch = [as_sent(write) for write in batch]
    try:
        outcomes = store.write(batch, cluster_id, owner)
    except TidegateError as error:
        return error
    tally.batches += 1
    for write, outcome in zip(batch, outcomes, strict=True):
        if outcome.applied:
            tally.done.append(write)
        else:
            tally.refused.append(outcome)
    return None


def written_now(
    write: QuotaWrite, *, decided_at_seconds: float, now_seconds: Callable[[], float]
) -> QuotaWrite:
    """The write with the time at which it is sent in its ledger record.

    A process that was stopped, or a store that was slow, sends long after it decided. The distance
    to the next lowering counts from when the brokers learned of this one.
    """
    sent_at_seconds = now_seconds()
    if write.ledger is None or sent_at_seconds <= decided_at_seconds:
        return write
    entries = {
        key: replace(entry, written_at_seconds=sent_at_seconds)
        if entry.written_at_seconds == decided_at_seconds
        else entry
        for key, entry in write.ledger.entries.items()
    }
    return replace(write, ledger=replace(write.ledger, entries=entries))


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
        kafka_users_anew: Callable[[], StrimziUsers | None] | None = None,
    ) -> PassResult:
        """One pass.

        `prepare` is called before the first write and returns the claim that all are sent under;
        its TidegateError refuses them. `before_writes` is called with each round of writes before
        they are sent, and may refuse them in the same way. `kafka_users_anew` is called before a
        write over somebody else's value of a user, so that the KafkaUser that may have brought it
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
        if kafka_users_anew is not None and writes_over_others(decision.writes, declared.strimzi):
            newest = kafka_users_anew()
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
        with self.tracing.span("replication"):
            replication = self.replication.run(
                declared,
                cluster.replication,
                cluster.store,
                facts=result.seen.facts,
                decision=result.decision,
                owner=owner,
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
                    owner=owner,
                    as_sent=partial(
                        written_now,
                        decided_at_seconds=seen.observation.now_seconds,
                        now_seconds=self.now_seconds,
                    ),
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
