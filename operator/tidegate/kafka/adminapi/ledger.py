"""The ledger of one cluster: what the topic has, and its only writer.

Whoever writes next settles what an earlier writer left under way. Whoever only reads settles the
same for itself, and writes nothing.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from tidegate.errors import Conflict, ForeignContent, OutcomeUnknown, Unreachable, WriteRefused
from tidegate.kafka.adminapi.client import AdminClient, Fenced, Lost
from tidegate.kafka.adminapi.journal import Journal, outcome
from tidegate.kafka.adminapi.log import Entry, LedgerLog, Record
from tidegate.kafka.adminapi.quotas import Values, describe
from tidegate.kafka.quota_node import entity_path, is_readable
from tidegate.kafka.quota_store import ClusterFacts
from tidegate_logic.model import Entity, QuotaKey, StoredQuota
from tidegate_logic.reasons import Reason

_ATTEMPTS = 6
_PAUSE_SECONDS = 0.2

_Result = TypeVar("_Result")


class TopicLedger:
    """The topic's contents in `journal`, as they were read last. For one thread at a time."""

    def __init__(self, client: AdminClient, topic: str) -> None:
        self.client = client
        self.topic = topic
        self.journal = Journal(topic)
        self._log = LedgerLog(client, topic)

    @property
    def is_writer(self) -> bool:
        """Whether this process became the writer, and has seen no sign of another one since."""
        return self._log.is_writer

    def give_up(self) -> None:
        """Be the writer no more."""
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
                is_anew, entries = self._log.news()
            except Lost as error:
                lost = error
                continue
            if is_anew:
                self.journal.forget()
            self.journal.take(entries)
            return
        raise Unreachable(
            Reason.BROKERS_UNREACHABLE,
            f"The ledger in the topic {self.topic} at {self.client.address} cannot be read "
            f"({lost}). Every quota stays as it is.",
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

    def commit(self, records: Sequence[Record]) -> None:
        """Append to the ledger, as its writer. Raises Lost and Fenced."""
        start = self._log.commit(records)
        self.journal.take(
            Entry(start + number, key, value) for number, (key, value) in enumerate(records)
        )

    def as_writer(self, action: Callable[[], _Result]) -> _Result:
        """Do it as the only writer of the ledger, which is then as it was read last.

        Raises OutcomeUnknown after several tries: what was to be written may be there.
        """
        lost: Exception | None = None
        for attempt in range(_ATTEMPTS):
            _pause(attempt)
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
                f"Another process keeps writing the ledger in the topic {self.topic} ({lost}); "
                "the next pass tries again. Let only one Tidegate manage this cluster."
            )
        raise OutcomeUnknown(
            f"The ledger in the topic {self.topic} at {self.client.address} was not written for "
            f"sure ({lost}). It is read again before anything else is written."
        )

    def _become_writer(self) -> None:
        """Fence whoever wrote before, and find the outcome of what it left under way."""
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
        self._log.become_writer()
        self.catch_up()
        under_way = [
            entity for entity, item in self.journal.items.items() if item.intent is not None
        ]
        if under_way:
            values = describe(self.client, under_way, self.topic)
            self.commit(
                [
                    outcome(entity, self.journal.items[entity].settled_raw(values.get(entity, {})))
                    for entity in under_way
                ]
            )


def _pause(attempt: int) -> None:
    """Before the next attempt: none before the second, which asks anew who leads.

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
    return f"its {wrong[0]} is no number that brokers take; it is left alone." if wrong else None
