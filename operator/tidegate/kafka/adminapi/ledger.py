"""The ledger of one cluster: what the topic has, and its only writer.

The next writer settles what an earlier one left under way. A process that only reads settles the
same for itself, and writes nothing.

A change that the brokers do not show may still be on its way to them: its writer was stopped right
before it sent the request, or a broker holds the request up. Nothing can call that request back. So
the intent of such a change is kept for a minute, and with it the record that would leave. Where the
change is made after all, it is known as ours and can be restored, even where the quota was restored
meanwhile and has no other record.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from tidegate.errors import Conflict, ForeignContent, OutcomeUnknown, Unreachable, WriteRefused
from tidegate.kafka.adminapi.client import AdminClient, Fenced, Lost
from tidegate.kafka.adminapi.journal import Intent, Journal, outcome
from tidegate.kafka.adminapi.log import Entry, LedgerLog, Record
from tidegate.kafka.adminapi.quotas import Changes, Values, describe
from tidegate.kafka.quota_node import entity_path, is_readable
from tidegate.kafka.quota_store import ClusterFacts, require_lease
from tidegate.kafka.settings import QUOTAS_STAY
from tidegate_logic.model import Entity, QuotaKey, StoredQuota
from tidegate_logic.reasons import Reason

_ATTEMPTS = 6
_PAUSE_SECONDS = 0.2
LATE_SECONDS = 60.0  # so long a request may be on its way, after its writer was found to be gone

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class _Late:
    """A change that may still arrive, and when it was found not to be made."""

    intent: Intent
    since_seconds: float


class TopicLedger:
    """The topic's contents in `journal`, as they were read last. For one thread at a time."""

    def __init__(
        self,
        client: AdminClient,
        topic: str,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.client = client
        self.topic = topic
        self.journal = Journal(topic)
        self._monotonic = monotonic
        self._log = LedgerLog(client, topic)
        self._late: dict[Entity, _Late] = {}

    @property
    def is_writer(self) -> bool:
        """Whether this process became the writer, and has seen no sign of another one since."""
        return self._log.is_writer

    def give_up(self) -> None:
        """Stop being the writer. The next one finds in the topic what is under way."""
        self._log.give_up()

    def facts(self) -> ClusterFacts:
        """The cluster as it is now, with the claim as it was read last."""
        answer = self.client.metadata()
        return ClusterFacts(
            cluster_id=str(answer.cluster_id),
            controller_version=None if answer.controller_id < 0 else 0,
            migration_running=False,
            claim=self.journal.claim,
            answered_by="The brokers",
            ledger=replace(self._log.facts, released_epoch=self.journal.released_epoch),
        )

    def catch_up(self) -> None:
        """Read what was committed to the ledger since; raises Unreachable when it cannot be read.

        What this process wrote itself is there already.
        """
        lost: Lost | None = None
        for attempt in range(_ATTEMPTS):
            _pause(attempt)
            try:
                is_reset, entries = self._log.news()
            except Lost as error:
                lost = error
                continue
            if is_reset:
                self.journal.forget()
            self.journal.take(entries)
            return
        raise Unreachable(
            Reason.BROKERS_UNREACHABLE,
            f"The ledger in the topic {self.topic} at {self.client.address} cannot be read "
            f"({lost}).",
            consequence=QUOTAS_STAY,
        )

    def stored(self, entity: Entity, values: Values) -> StoredQuota:
        """The entity with these values, and its record as it stands given them."""
        item = self.journal.item(entity)
        problem = no_name(entity) or (item.problem if item is not None else None)
        problem = problem or _unreadable(values)
        return StoredQuota(
            entity=entity,
            values={} if problem else values,
            version=0 if values else None,
            ledger=None if item is None or problem else item.settled(values),
            ledger_version=None if item is None else item.offset,
            problem=problem,
        )

    def outcome(self, entity: Entity, record: bytes | None, values: Changes) -> Record:
        """The log's record of an entity that has this ledger record and these values now.

        A change that may still arrive, and would be known by no record then, stays with it.
        """
        late = self._late.get(entity)
        if late is None or record is not None or late.intent.is_in_force(values):
            return outcome(entity, record)
        return outcome(entity, record, late.intent.over(values))

    def late_seconds(self) -> float:
        """How long changes of an earlier writer may still arrive; 0 = none may."""
        since = max((late.since_seconds for late in self._late.values()), default=None)
        return 0.0 if since is None else max(0.0, since + LATE_SECONDS - self._monotonic())

    def end_late(self) -> None:
        """Settle for good what did not arrive for a minute, if this process is the writer.

        Being fenced or cut off ends its turn as the writer, and is no error here.
        """
        due_seconds = self._monotonic() - LATE_SECONDS
        due = [one for one, late in self._late.items() if late.since_seconds <= due_seconds]
        if not due or not self.is_writer or not self.client.may_write():
            return
        kept = [one for one in due if self._has_intent(one)]
        try:
            self._settle(kept, describe(self.client, kept, self.topic))
        except (Lost, Fenced):
            self.give_up()
            return
        for one in due:
            del self._late[one]

    def _has_intent(self, entity: Entity) -> bool:
        item = self.journal.item(entity)
        return item is not None and item.intent is not None

    def _settle(self, entities: Sequence[Entity], values: Mapping[Entity, Values]) -> None:
        """Commit the outcome of their intents, by what the brokers have."""
        if entities:
            items = self.journal.items
            self.commit(
                [outcome(one, items[one].settled_raw(values.get(one, {}))) for one in entities]
            )

    def require_alone(self) -> None:
        """Raise Fenced if another process has written the ledger since our last commit.

        Unlike the Lease this needs no clock: a machine that stood still may have stopped its own.
        """
        self._log.require_alone()

    def commit(self, records: Sequence[Record]) -> None:
        """Append to the ledger, as its writer. Raises LeaseLost, Lost and Fenced."""
        start = self._log.commit(records)
        self.journal.take(
            Entry(start + number, key, value) for number, (key, value) in enumerate(records)
        )

    def as_writer(
        self, action: Callable[[], _Result], *, only_if: Callable[[], None] | None = None
    ) -> _Result:
        """Do it as the only writer of the ledger, which is then as it was read last.

        `only_if` may raise before anyone else is fenced, with the ledger as it was read just now.
        Raises LeaseLost, and OutcomeUnknown after several tries: what was to be written may be
        there.
        """
        lost: Exception | None = None
        for attempt in range(_ATTEMPTS):
            _pause(attempt)
            try:
                require_lease(self.client.may_write)
                self._become_writer(only_if)
                return action()
            except (Lost, Fenced) as error:
                lost = error
            except BaseException:
                self.give_up()  # the next writer finds out what is under way
                raise
            self.give_up()
        if isinstance(lost, Fenced):
            raise Conflict(
                f"Another process keeps writing the ledger in the topic {self.topic} ({lost}).",
                consequence="the next pass tries again.",
                advice="Let only one Tidegate manage this cluster.",
            )
        raise OutcomeUnknown(
            f"The ledger in the topic {self.topic} at {self.client.address} may not have been "
            f"written ({lost}).",
            consequence="It is read again before anything else is written.",
        )

    def _become_writer(self, only_if: Callable[[], None] | None) -> None:
        """Fence the previous writer, and find the outcome of what it left under way."""
        if self._log.is_writer:
            return
        partitions = self._log.facts.partitions
        if partitions > 1 and self.journal.is_empty:
            raise WriteRefused(
                Reason.FOREIGN_CONTENT,
                f"The topic {self.topic} has {partitions} partitions and no ledger in it. A new "
                "ledger needs a topic with one partition: name another one in "
                "spec.kafka.ledgerTopic, or delete this one if it is empty.",
            )
        if only_if is not None:
            self.catch_up()
            only_if()
        self._log.become_writer()
        self.catch_up()
        under_way = {
            entity: item.intent
            for entity, item in self.journal.items.items()
            if item.intent is not None
        }
        if not under_way:
            self.end_late()
            return
        values = describe(self.client, under_way, self.topic)
        late = {
            entity
            for entity, intent in under_way.items()
            if intent.raw is not None and not intent.is_in_force(values.get(entity, {}))
        }
        for entity in late:
            known = self._late.get(entity)
            if known is None or not known.intent.is_same(under_way[entity]):
                self._late[entity] = _Late(under_way[entity], self._monotonic())
        self._settle([entity for entity in under_way if entity not in late], values)
        self.end_late()


def _pause(attempt: int) -> None:
    """Before the next attempt: none before the second, which asks again who leads.

    The broker that led may just have died, and quotas wait to be corrected.
    """
    if attempt > 1:
        time.sleep(_PAUSE_SECONDS * (attempt - 1))


def no_name(entity: Entity) -> str | None:
    """Why no quota can have this name; None = it can."""
    try:
        entity_path(entity)
    except ForeignContent as error:
        return error.message
    return None


def _unreadable(values: Mapping[QuotaKey, str]) -> str | None:
    wrong = sorted(key.value for key, text in values.items() if not is_readable(key, text))
    if not wrong:
        return None
    return f"its {wrong[0]} is not a number that brokers accept; it is left alone."
