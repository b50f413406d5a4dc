"""The quota store on the admin protocol, with its ledger in a compacted topic of the cluster.

It works on every cluster from Kafka 2.6 on, whatever keeps its metadata. What others change in the
milliseconds between reading and writing is found by the next pass; the ledger itself is exact.
"""

import contextlib
import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from tidegate.errors import Conflict, ForeignContent, LedgerElsewhere, TidegateError
from tidegate.kafka.adminapi.batch import Batch
from tidegate.kafka.adminapi.client import AdminClient, Lost
from tidegate.kafka.adminapi.journal import (
    claim_record,
    moved_record,
    outcome,
    throttles_record,
)
from tidegate.kafka.adminapi.ledger import TopicLedger, no_name
from tidegate.kafka.adminapi.quotas import describe, has_controller
from tidegate.kafka.claim import claim_to_bytes, next_claim, require_writable
from tidegate.kafka.ledger import compact, record_to_bytes
from tidegate.kafka.quota_store import Claim, ClusterFacts, WriteOutcome, require_batch
from tidegate.kafka.settings import KafkaConnection
from tidegate_logic.model import (
    BYTE_RATE_KEYS,
    Entity,
    LedgerRecord,
    QuotaKey,
    QuotaWrite,
    StoredQuota,
)

LEDGER_TOPIC = "__tidegate_ledger"
MAX_WRITES = 5000  # a ledger of some MB in one transaction, and a batch is read as a whole
_WATCH_SECONDS = 0.1  # asking takes 0.1 ms of processor


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
        self._ledger = TopicLedger(self._client, topic)
        self._lock = threading.RLock()
        self._watch: _BrokerWatch | None = None

    @property
    def address(self) -> str:
        """See QuotaStore."""
        return self._client.address

    def is_kraft(self) -> bool:
        """Whether the brokers have their metadata from a quorum, asked now."""
        with self._lock:
            return self._client.is_kraft()

    def controllers(self) -> frozenset[int]:
        """The ids of the quorum's controllers; empty where this login may not know them."""
        with self._lock:
            return self._client.controllers()

    def has_controller(self) -> bool:
        """Whether an active controller takes changes of quotas, asked now; nothing is changed."""
        with self._lock:
            return has_controller(self._client, self._ledger.topic)

    def only_while(self, may_write: Callable[[], bool]) -> None:
        """See QuotaStore."""
        self._client.may_write = may_write

    def live_brokers(self) -> int:
        """See QuotaStore."""
        with self._lock:
            return len(self._client.metadata().brokers)

    def facts(self) -> ClusterFacts:
        """See QuotaStore."""
        with self._lock:
            self._ledger.catch_up()
            self._ledger.end_late()
            return self._ledger.facts()

    def claim(self, wanted: Claim, replaces: str = "", *, renews: bool = False) -> Claim:
        """See QuotaStore."""
        with self._lock:
            self._ledger.catch_up()
            ours = self._next_claim(wanted, replaces, renews)
            if self._ledger.journal.claim == ours:
                return ours
            return self._ledger.as_writer(lambda: self._claimed(wanted, replaces, renews))

    def _next_claim(self, wanted: Claim, replaces: str, renews: bool) -> Claim:
        journal = self._ledger.journal
        return next_claim(
            journal.claim,
            wanted,
            replaces,
            renews=renews,
            released_epoch=journal.released_epoch,
        )

    def _claimed(self, wanted: Claim, replaces: str, renews: bool) -> Claim:
        ours = self._next_claim(wanted, replaces, renews)
        if self._ledger.journal.claim != ours:
            self._ledger.commit([claim_record(claim_to_bytes(ours))])
        return ours

    @property
    def topic(self) -> str:
        """The topic of the ledger."""
        return self._ledger.topic

    def has_ledger(self) -> bool:
        """Whether this cluster's ledger is in the topic: someone's claim, or one that moved there.

        A ledger that moved stays here for good, with or without a claim. Raises ForeignContent
        where the topic does not say so in a way that can be read.
        """
        with self._lock:
            facts = self.facts()
            return facts.claim is not None or self._has_moved(facts.cluster_id)

    def _has_moved(self, cluster_id: str) -> bool:
        return self._ledger.journal.moved_cluster_id == cluster_id

    def begin_ledger(
        self,
        claim: Claim,
        records: Mapping[Entity, bytes],
        *,
        throttles: bytes | None = None,
        only_if: Callable[[], None],
    ) -> None:
        """Fill the empty ledger with another store's claim and records (JSON), all or nothing.

        `throttles` is its record of replication throttles.

        `only_if` is called as the last thing before, with the cluster ready to take changes; what
        it raises keeps the ledger empty. Raises ForeignContent if the topic has a ledger, and
        LedgerElsewhere where this cluster's has moved there before: what another store has is out
        of date then.
        """
        with self._lock:
            self._ledger.as_writer(lambda: self._begin(claim, records, throttles, only_if))

    def _begin(
        self,
        claim: Claim,
        records: Mapping[Entity, bytes],
        throttles: bytes | None,
        only_if: Callable[[], None],
    ) -> None:
        journal = self._ledger.journal
        if journal.claim == claim and journal.items.keys() == records.keys():
            return  # an earlier try, whose answer was lost
        cluster_id = self._ledger.facts().cluster_id
        if self._has_moved(cluster_id):
            raise LedgerElsewhere(
                f"The topic {self.topic} got this cluster's ledger when Kafka left ZooKeeper, and "
                "what ZooKeeper has is out of date since, so it is not moved again. Quotas are "
                "written through the brokers: remove spec.kafka.zookeeper."
            )
        if journal.claim is not None or journal.items or journal.strange:
            raise ForeignContent(
                f"The topic {self.topic} has a ledger already, so no other one is put there. "
                "`tidegate explain --bootstrap-servers` shows whose it is, and `tidegate restore "
                "--bootstrap-servers` restores the quotas that it keeps."
            )
        only_if()
        copies = [outcome(entity, compact(json.loads(data))) for entity, data in records.items()]
        if throttles is not None:
            copies.append(throttles_record(throttles))
        self._ledger.commit(
            [*copies, moved_record(cluster_id), claim_record(claim_to_bytes(claim))]
        )

    def mend_ledger(
        self,
        claim: Claim,
        records: Mapping[Entity, LedgerRecord],
        expected_cluster_id: str,
        *,
        throttles: bytes | None = None,
    ) -> None:
        """See QuotaStore. One transaction has all of it."""

        def attempt() -> None:
            require_writable(
                self.address,
                self._ledger.facts(),
                expected_cluster_id,
                (claim.policy_key,),
                replace(claim, epoch=0),
            )
            journal = self._ledger.journal
            missing = [
                outcome(entity, record_to_bytes(record))
                for entity, record in records.items()
                if journal.item(entity) is None
            ]
            if throttles is not None and journal.throttles is None:
                missing.append(throttles_record(throttles))
            self._ledger.commit([*missing, claim_record(claim_to_bytes(claim))])

        with self._lock:
            self._ledger.as_writer(attempt)

    def release_claim(self, policy_key: str, policy_uid: str | None = None) -> None:
        """See QuotaStore. An unreadable ledger record counts as ours: its policy is not known."""
        with self._lock:
            self._ledger.catch_up()
            if not self._may_release(policy_key, policy_uid):
                return
            late = self._ledger.as_writer(lambda: self._release(policy_key, policy_uid))
            if late:
                raise Conflict(
                    f"Changes of {late} quotas that a process sent before it ended may still "
                    f"arrive, for {self._ledger.late_seconds():.0f} s. Until then the claim of "
                    f"policy {policy_key} stays, so that they would be known as Tidegate's."
                )

    def _may_release(self, policy_key: str, policy_uid: str | None) -> bool:
        claim = self._ledger.journal.claim
        return (
            claim is not None
            and claim.policy_key == policy_key
            and policy_uid in (None, claim.policy_uid)
            and not self._ledger.journal.strange
            and self._ledger.journal.throttles is None
            and all(
                item.record.policy_key != policy_key
                if item.record is not None
                else item.intent is not None
                for item in self._ledger.journal.items.values()
            )
        )

    def _release(self, policy_key: str, policy_uid: str | None) -> int:
        """Remove the claim, or return how many changes may still arrive."""
        if not self._may_release(policy_key, policy_uid):  # what was under way is settled by now
            return 0
        self._ledger.end_late()
        journal = self._ledger.journal
        late = sum(1 for item in journal.items.values() if item.intent is not None)
        if not late:
            note = moved_record(journal.moved_cluster_id or "", journal.claim)
            self._ledger.commit([claim_record(None), note])
        return late

    def ledger_entities(self) -> frozenset[Entity]:
        """See QuotaStore."""
        with self._lock:
            self._ledger.catch_up()
            return frozenset(self._ledger.journal.items)

    def read(self, entities: Iterable[Entity]) -> Mapping[Entity, StoredQuota]:
        """See QuotaStore."""
        wanted = list(dict.fromkeys(entities))
        named = [entity for entity in wanted if no_name(entity) is None]
        with self._lock:
            self._ledger.catch_up()
            values = describe(self._client, named, self._ledger.topic)
            return {
                entity: self._ledger.stored(entity, values.get(entity, {})) for entity in wanted
            }

    def read_everything(self) -> Mapping[Entity, StoredQuota]:
        """See QuotaStore."""
        with self._lock:
            self._ledger.catch_up()
            values = describe(self._client, None, self._ledger.topic)
            return {
                entity: self._ledger.stored(entity, values.get(entity, {}))
                for entity in dict.fromkeys([*values, *self._ledger.journal.items])
            }

    def unreadable_nodes(self) -> tuple[str, ...]:
        """See QuotaStore."""
        with self._lock:
            self._ledger.catch_up()
            return tuple(sorted(self._ledger.journal.strange))

    def has_client_id_quotas(self) -> bool:
        """See QuotaStore."""
        with self._lock:
            quotas = describe(self._client, None, self._ledger.topic)
        return any(
            entity.user is None and BYTE_RATE_KEYS & values.keys()
            for entity, values in quotas.items()
        )

    def write(
        self, writes: Sequence[QuotaWrite], expected_cluster_id: str, owner: Claim | None = None
    ) -> tuple[WriteOutcome, ...]:
        """See QuotaStore."""
        require_batch(writes, self.most_writes)
        batch = Batch(self._ledger, expected_cluster_id, owner)
        with self._lock:
            batch.write(writes)
        return tuple(batch.outcomes[write.entity] for write in writes)

    def brokers_without(
        self, values: Mapping[Entity, Mapping[QuotaKey, str | None]]
    ) -> Mapping[str, tuple[Entity, ...]]:
        """See QuotaStore."""
        without: dict[str, tuple[Entity, ...]] = {}
        with self._lock:
            for broker in self._client.metadata().brokers if values else ():
                try:
                    at = (broker.host, broker.port)
                    shown = describe(self._client, list(values), self._ledger.topic, at)
                except Lost:
                    missing = tuple(values)
                else:
                    missing = tuple(
                        entity
                        for entity, wanted in values.items()
                        if any(
                            shown.get(entity, {}).get(key) != text for key, text in wanted.items()
                        )
                    )
                if missing:
                    without[str(broker.node_id)] = missing
        return without

    def throttle_record(self) -> bytes | None:
        """See QuotaStore."""
        with self._lock:
            self._ledger.catch_up()
            return self._ledger.journal.throttles

    def keep_throttle_record(
        self,
        content: bytes | None,
        expected_cluster_id: str,
        owner: Claim | None = None,
        *,
        seen: bytes | None,
    ) -> None:
        """See QuotaStore."""

        def require() -> None:
            require_writable(
                self.address,
                self._ledger.facts(),
                expected_cluster_id,
                () if owner is None else (owner.policy_key,),
                owner,
            )
            if self._ledger.journal.throttles not in (seen, content):
                raise Conflict(
                    f"The record of replication throttles in the topic {self.topic} has changed "
                    "since it was read.",
                    consequence="the next pass tries again.",
                )

        def attempt() -> None:
            require()
            if self._ledger.journal.throttles != content:
                self._ledger.commit([throttles_record(content)])

        with self._lock:
            self._ledger.as_writer(attempt, only_if=require)

    def watch(self, wake: Callable[[], None]) -> None:
        """See QuotaStore. The protocol has no notifications, so this polls the brokers."""
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
            self._ledger.give_up()
            self._client.close()


class _BrokerWatch:
    """Asks who the brokers are, ten times a second, on a connection of its own."""

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
