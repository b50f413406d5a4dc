"""The quota store on the admin protocol, with its ledger in a compacted topic of the cluster.

It works on every cluster from Kafka 2.6 on, whatever keeps its metadata. The protocol compares
nothing: so all quotas of a batch are read before it, and a write whose entity has changed since it
was decided is not sent. What others change in the milliseconds between is found by the next pass.
The ledger itself is exact: see `log`. A batch goes

    intents, committed -> AlterClientQuotas -> read back -> outcomes, committed
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from controller_logic.model import (
    BYTE_RATE_KEYS,
    Entity,
    QuotaKey,
    QuotaWrite,
    StoredQuota,
)
from controller_logic.reasons import Reason
from tidegate.errors import Conflict, ForeignContent, OutcomeUnknown, TidegateError, Unreachable
from tidegate.kafka.adminapi.client import AdminClient, Fenced, Lost
from tidegate.kafka.adminapi.journal import (
    Item,
    Journal,
    claim_record,
    intent,
    outcome,
    record_after,
)
from tidegate.kafka.adminapi.log import Entry, LedgerLog, Record
from tidegate.kafka.adminapi.quotas import Changes, Values, alter, describe
from tidegate.kafka.claim import claim_to_bytes, next_claim, require_writable
from tidegate.kafka.quota_node import entity_path, is_readable
from tidegate.kafka.quota_store import (
    Claim,
    ClusterFacts,
    WriteOutcome,
    require_batch,
    unsafe_value,
)
from tidegate.kafka.settings import KafkaConnection

LEDGER_TOPIC = "__tidegate_ledger"
MAX_WRITES = 1000  # far below the 10,000 records that a controller takes at once
_ATTEMPTS = 5
_PAUSE_SECONDS = 0.2
_VISIBLE_SECONDS = 2.0  # a broker shows what the controller has committed, usually within 20 ms
_WATCH_SECONDS = 0.3

_CHANGED = "{}: somebody else changed it since it was read; read again and retried."

_Result = TypeVar("_Result")


class AdminQuotaStore:
    """A QuotaStore on the admin protocol; see the protocol for what each call promises."""

    most_writes = MAX_WRITES

    def __init__(
        self,
        settings: KafkaConnection,
        topic: str = LEDGER_TOPIC,
        client: AdminClient | None = None,
    ) -> None:
        self._settings = settings
        self._client = client or AdminClient(settings)
        self._log = LedgerLog(self._client, topic)
        self._journal = Journal(topic)
        self._topic = topic
        self._lock = threading.RLock()
        self._watch: _BrokerWatch | None = None

    @property
    def address(self) -> str:
        """The brokers, for messages."""
        return self._client.address

    def is_kraft(self) -> bool:
        """Whether the brokers have their metadata from a quorum, asked now."""
        with self._lock:
            return self._client.is_kraft()

    def live_brokers(self) -> int:
        """How many brokers there are now."""
        with self._lock:
            return len(self._client.metadata().brokers)

    def facts(self) -> ClusterFacts:
        """See QuotaStore."""
        with self._lock:
            self._catch_up()
            return self._facts()

    def claim(self, wanted: Claim, replaces: str = "") -> Claim:
        """See QuotaStore."""
        with self._lock:
            self._catch_up()
            current = self._journal.claim
            if current == (ours := next_claim(current, wanted, replaces)):
                return ours
            return self._as_writer(lambda: self._claimed(wanted, replaces))

    def _claimed(self, wanted: Claim, replaces: str) -> Claim:
        current = self._journal.claim
        ours = next_claim(current, wanted, replaces)
        if current != ours:
            self._commit([claim_record(claim_to_bytes(ours))])
        return ours

    def release_claim(self, policy_key: str, policy_uid: str | None = None) -> None:
        """See QuotaStore. An unreadable ledger record counts as ours: its policy is not known."""
        with self._lock:
            self._catch_up()
            if self._may_release(policy_key, policy_uid):
                self._as_writer(lambda: self._release(policy_key, policy_uid))

    def _may_release(self, policy_key: str, policy_uid: str | None) -> bool:
        claim = self._journal.claim
        return (
            claim is not None
            and claim.policy_key == policy_key
            and policy_uid in (None, claim.policy_uid)
            and not self._journal.strange
            and all(
                item.record is not None and item.record.policy_key != policy_key
                for item in self._journal.items.values()
            )
        )

    def _release(self, policy_key: str, policy_uid: str | None) -> None:
        if self._may_release(policy_key, policy_uid):
            self._commit([claim_record(None)])

    def ledger_entities(self) -> frozenset[Entity]:
        """See QuotaStore."""
        with self._lock:
            self._catch_up()
            return frozenset(self._journal.items)

    def read(self, entities: Iterable[Entity]) -> Mapping[Entity, StoredQuota]:
        """See QuotaStore."""
        wanted = list(dict.fromkeys(entities))
        nameless = {entity: why for entity in wanted if (why := _no_name(entity))}
        with self._lock:
            self._catch_up()
            values = describe(
                self._client, [one for one in wanted if one not in nameless], self._topic
            )
            return {
                entity: self._stored(entity, values.get(entity, {}), nameless.get(entity))
                for entity in wanted
            }

    def read_everything(self) -> Mapping[Entity, StoredQuota]:
        """See QuotaStore."""
        with self._lock:
            self._catch_up()
            values = describe(self._client, None, self._topic)
            return {
                entity: self._stored(entity, values.get(entity, {}), _no_name(entity))
                for entity in dict.fromkeys([*values, *self._journal.items])
            }

    def unreadable_nodes(self) -> tuple[str, ...]:
        """See QuotaStore."""
        with self._lock:
            self._catch_up()
            return tuple(sorted(self._journal.strange))

    def has_client_id_quotas(self) -> bool:
        """See QuotaStore."""
        with self._lock:
            quotas = describe(self._client, None, self._topic)
        return any(
            entity.user is None and BYTE_RATE_KEYS & values.keys()
            for entity, values in quotas.items()
        )

    def write(
        self, writes: Sequence[QuotaWrite], expected_cluster_id: str, owner: Claim | None = None
    ) -> tuple[WriteOutcome, ...]:
        """See QuotaStore."""
        require_batch(writes, self.most_writes)
        batch = _Batch(self, expected_cluster_id, owner)
        with self._lock:
            batch.write(writes)
        return tuple(batch.outcomes[write.entity] for write in writes)

    def watch(self, wake: Callable[[], None]) -> None:
        """See QuotaStore. The protocol tells nothing by itself, so brokers are asked for."""
        with self._lock:
            if self._watch is not None:
                self._watch.stop()
            self._watch = _BrokerWatch(self._settings, wake)

    def topic_names(self) -> frozenset[str]:
        """See QuotaStore. Those that the user may describe."""
        with self._lock:
            return frozenset(topic.name for topic in self._client.metadata(None).topics)

    def close(self) -> None:
        """See QuotaStore."""
        with self._lock:
            if self._watch is not None:
                self._watch.stop()
            self._log.give_up()
            self._client.close()

    # --- the ledger, read and written -------------------------------------------------------------

    def _facts(self) -> ClusterFacts:
        answer = self._client.metadata()
        return ClusterFacts(
            cluster_id=str(answer.cluster_id),
            controller_version=None if answer.controller_id < 0 else 0,
            migration_running=False,
            claim=self._journal.claim,
            answered_by="The brokers",
        )

    def _catch_up(self) -> None:
        """Read what was committed to the ledger since; raises Unreachable when it cannot be read.

        The writer needs to read nothing: it is told when it is no writer any more.
        """
        lost: Lost | None = None
        for attempt in range(_ATTEMPTS):
            time.sleep(_PAUSE_SECONDS * attempt)
            try:
                is_anew, entries = self._log.news()
            except Lost as error:
                lost = error
                continue
            if is_anew:
                self._journal.forget()
            self._journal.take(entries)
            return
        raise Unreachable(
            Reason.BROKERS_UNREACHABLE,
            f"The ledger in the topic {self._topic} at {self.address} cannot be read ({lost}). "
            "Every quota stays as it is.",
        )

    def _stored(self, entity: Entity, values: Values, no_name: str | None) -> StoredQuota:
        item = self._journal.item(entity)
        problem = no_name or (item.problem if item is not None else None)
        if problem is None:
            problem = _unreadable(values)
        return StoredQuota(
            entity=entity,
            values={} if problem else values,
            version=0 if values else None,
            ledger=None if item is None or problem else item.settled(values),
            ledger_version=None if item is None else item.offset,
            problem=problem,
        )

    def _commit(self, records: Sequence[Record]) -> None:
        start = self._log.commit(records)
        self._journal.take(
            Entry(start + number, key, value) for number, (key, value) in enumerate(records)
        )

    def _as_writer(self, action: Callable[[], _Result]) -> _Result:
        """Do it as the only writer of the ledger, which is then as it was read last.

        Raises OutcomeUnknown after several tries: what was to be written may be there.
        """
        lost: Exception | None = None
        for attempt in range(_ATTEMPTS):
            time.sleep(_PAUSE_SECONDS * attempt)
            try:
                self._become_writer()
                return action()
            except (Lost, Fenced) as error:
                lost = error
            except BaseException:
                self._log.give_up()  # whoever writes next finds out what is under way
                raise
            self._log.give_up()
        if isinstance(lost, Fenced):
            raise Conflict(
                f"Another process keeps writing the ledger in the topic {self._topic} ({lost}); "
                "the next pass tries again. Let only one Tidegate manage this cluster."
            )
        raise OutcomeUnknown(
            f"The ledger in the topic {self._topic} at {self.address} was not written for sure "
            f"({lost}). It is read again before anything else is written."
        )

    def _become_writer(self) -> None:
        """Fence whoever wrote before, and find the outcome of what it left under way."""
        if self._log.is_writer:
            return
        self._log.become_writer()
        self._catch_up()
        under_way = [
            entity for entity, item in self._journal.items.items() if item.intent is not None
        ]
        if under_way:
            values = describe(self._client, under_way, self._topic)
            self._commit(
                [
                    outcome(entity, self._journal.items[entity].settled_raw(values.get(entity, {})))
                    for entity in under_way
                ]
            )


class _Batch:
    """One batch of writes; `outcomes` grows until every write has one."""

    def __init__(self, store: AdminQuotaStore, cluster_id: str, owner: Claim | None) -> None:
        self._store = store
        self._cluster_id = cluster_id
        self._owner = owner
        self._begun: set[Entity] = set()
        self.outcomes: dict[Entity, WriteOutcome] = {}

    def write(self, writes: Sequence[QuotaWrite]) -> None:
        """Give every write its outcome. Raises what `QuotaStore.write` promises."""
        store = self._store
        if not store._log.is_writer:
            store._catch_up()
            self._require_writable(writes)  # before anybody else is fenced
        try:
            store._as_writer(lambda: self._attempt(writes))
        except (OutcomeUnknown, Unreachable) as error:
            if not self._begun:
                raise Unreachable(Reason.BROKERS_UNREACHABLE, error.message) from error
            raise OutcomeUnknown(error.message) from error

    def _require_writable(self, writes: Iterable[QuotaWrite]) -> None:
        records = (record for write in writes for record in (write.ledger, write.seen.ledger))
        require_writable(
            self._store.address,
            self._store._facts(),
            self._cluster_id,
            {record.policy_key for record in records if record is not None},
            self._owner,
        )

    def _attempt(self, writes: Sequence[QuotaWrite]) -> None:
        """Try those without outcome once. Raises Lost and Fenced, after which it is tried again."""
        store = self._store
        pending = [write for write in writes if write.entity not in self.outcomes]
        self._require_writable(pending)
        named = [write for write in pending if not self._is_nameless(write)]
        values = describe(store._client, [write.entity for write in named], store._topic)
        sound = [write for write in named if self._is_sound(write, values.get(write.entity, {}))]
        if not sound:
            return
        changes = {write.entity: _changes(write, values.get(write.entity, {})) for write in sound}
        changing = [write for write in sound if changes[write.entity]]
        before = {write.entity: store._journal.item(write.entity) for write in sound}
        after = {write.entity: record_after(write, before[write.entity]) for write in sound}
        self._begun.update(changes)
        store._commit(
            [
                intent(write, before[write.entity], after[write.entity])
                if changes[write.entity]
                else outcome(write.entity, after[write.entity])
                for write in sound
            ]
        )
        self._applied(write for write in sound if not changes[write.entity])
        if not changing:
            return
        # the intents took a while to commit, and the protocol compares nothing
        now = describe(store._client, [write.entity for write in changing], store._topic)
        wanted = {
            write.entity: changes[write.entity]
            for write in changing
            if now.get(write.entity, {}) == write.seen.values
        }
        refused = alter(store._client, wanted, store._topic)
        done = {entity: one for entity, one in wanted.items() if refused.get(entity) is None}
        self._wait_until_visible(done)
        store._commit(
            [
                outcome(
                    write.entity,
                    after[write.entity] if write.entity in done else _raw(before[write.entity]),
                )
                for write in changing
            ]
        )
        self._applied(write for write in changing if write.entity in done)
        for write in changing:
            if write.entity not in wanted:
                self._drop(write, Reason.CONFLICT, _CHANGED.format(write.entity))
            elif write.entity not in done:
                self._drop(
                    write,
                    Reason.FOREIGN_CONTENT,
                    f"{write.entity}: the brokers refused the quota "
                    f"({refused[write.entity]}); it stays as it is.",
                )

    def _wait_until_visible(self, done: Mapping[Entity, Changes]) -> None:
        """Return once the broker that is asked shows them, or somebody else has changed them."""
        deadline = time.monotonic() + _VISIBLE_SECONDS
        pause_seconds = 0.005
        missing = dict(done)
        while missing and time.monotonic() < deadline:
            now = describe(self._store._client, list(missing), self._store._topic)
            missing = {
                entity: wanted
                for entity, wanted in missing.items()
                if any(now.get(entity, {}).get(key) != text for key, text in wanted.items())
            }
            if missing:
                time.sleep(pause_seconds)
                pause_seconds = min(2 * pause_seconds, 0.1)

    def _is_nameless(self, write: QuotaWrite) -> bool:
        problem = _no_name(write.entity)
        if problem is not None:
            self._drop(write, Reason.FOREIGN_CONTENT, f"{write.entity}: {problem}")
        return problem is not None

    def _is_sound(self, write: QuotaWrite, values: Values) -> bool:
        now = self._store._stored(write.entity, values, None)
        if now.problem is not None:
            return self._drop(write, Reason.FOREIGN_CONTENT, f"{write.entity}: {now.problem}")
        if (
            write.entity in self._begun
            and now.ledger == write.ledger
            and not _changes(write, values)
        ):
            self._applied([write])  # an earlier try of this batch, whose answer was lost
            return False
        if (now.values, now.ledger) != (write.seen.values, write.seen.ledger):
            return self._drop(write, Reason.CONFLICT, _CHANGED.format(write.entity))
        unsafe = unsafe_value(write, values)
        if unsafe is not None:
            return self._drop(write, Reason.FOREIGN_CONTENT, unsafe)
        return True

    def _applied(self, writes: Iterable[QuotaWrite]) -> None:
        for write in writes:
            self.outcomes[write.entity] = WriteOutcome(write.entity, applied=True)

    def _drop(self, write: QuotaWrite, reason: Reason, message: str) -> bool:
        self.outcomes[write.entity] = WriteOutcome(
            write.entity, applied=False, reason=reason, message=message
        )
        return False


class _BrokerWatch:
    """Asks who the brokers are, a few times a second, on a connection of its own."""

    def __init__(self, settings: KafkaConnection, wake: Callable[[], None]) -> None:
        self._client = AdminClient(settings)
        self._wake = wake
        self._ends = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="tidegate-brokers-watch", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """End it; it may be in the middle of a question for some seconds."""
        self._ends.set()

    def _run(self) -> None:
        known: frozenset[int] | None = None
        while not self._ends.wait(_WATCH_SECONDS):
            with contextlib.suppress(TidegateError):
                brokers = frozenset(one.node_id for one in self._client.metadata().brokers)
                if known is not None and brokers != known and not self._ends.is_set():
                    self._wake()
                known = brokers
        self._client.close()


def _changes(write: QuotaWrite, values: Values) -> Changes:
    return {key: text for key, text in write.values.items() if values.get(key) != text}


def _raw(item: Item | None) -> bytes | None:
    return item.raw if item is not None else None


def _no_name(entity: Entity) -> str | None:
    try:
        entity_path(entity)
    except ForeignContent as error:
        return error.message
    return None


def _unreadable(values: Mapping[QuotaKey, str]) -> str | None:
    wrong = sorted(key.value for key, text in values.items() if not is_readable(key, text))
    return f"its {wrong[0]} is no number that brokers take; it is left alone." if wrong else None
