"""One batch of quota writes through the brokers, whose ledger is written ahead.

    intents, committed -> AlterClientQuotas -> read back -> outcomes, committed

The protocol compares nothing. So all quotas of the batch are read before its intents, and once more
before each request that changes some; a write whose entity has changed since it was decided is not
sent. After a lost answer the whole batch is tried again: what an earlier try has done is found by
its records.

A batch that was fenced after its first intent is not tried again. The writer that fenced it has
settled what it left under way and may have restored it since, which looks like a quota that was
never written: the batch would find everything as it was decided.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from tidegate.errors import Conflict, OutcomeUnknown, Unreachable
from tidegate.kafka.adminapi.client import Fenced
from tidegate.kafka.adminapi.journal import intent, record_after
from tidegate.kafka.adminapi.ledger import TopicLedger, no_name
from tidegate.kafka.adminapi.quotas import Changes, Values, alter, describe
from tidegate.kafka.claim import require_writable
from tidegate.kafka.quota_store import Claim, WriteOutcome, unsafe_value
from tidegate_logic.model import Entity, QuotaWrite
from tidegate_logic.reasons import Reason

_ALTERED_AT_ONCE = 2000  # with four quotas each, below the 10,000 records of one request
_VISIBLE_SECONDS = 2.0  # a broker shows what the controller has committed, usually within 20 ms
_CHANGED = "{}: another writer changed it since it was read; read again and retried."
_FENCED = (
    "{}: another process has started writing the ledger, and settles what this one left "
    "unfinished; read again before anything else is written."
)


class Batch:
    """One batch of writes; `outcomes` grows until every write has one."""

    def __init__(self, ledger: TopicLedger, cluster_id: str, owner: Claim | None) -> None:
        self._ledger = ledger
        self._cluster_id = cluster_id
        self._owner = owner
        self._begun: set[Entity] = set()
        self.outcomes: dict[Entity, WriteOutcome] = {}

    def write(self, writes: Sequence[QuotaWrite]) -> None:
        """Give every write its outcome. Raises what `QuotaStore.write` promises."""
        try:
            self._ledger.as_writer(
                lambda: self._attempt_until_fenced(writes),
                only_if=lambda: self._require_writable(writes),  # before anybody else is fenced
            )
        except (OutcomeUnknown, Unreachable, Conflict) as error:
            if self._begun:
                raise OutcomeUnknown(error.what, Reason.OUTCOME_UNKNOWN, **error.more) from error
            if isinstance(error, Conflict):
                raise
            raise Unreachable(Reason.BROKERS_UNREACHABLE, error.what, **error.more) from error

    def _require_writable(self, writes: Iterable[QuotaWrite]) -> None:
        records = (record for write in writes for record in (write.ledger, write.seen.ledger))
        require_writable(
            self._ledger.client.address,
            self._ledger.facts(),
            self._cluster_id,
            {record.policy_key for record in records if record is not None},
            self._owner,
        )

    def _attempt_until_fenced(self, writes: Sequence[QuotaWrite]) -> None:
        """Try once; what has no outcome when a batch is fenced that has begun is a conflict.

        Raises WriteRefused if the cluster is not this policy's any more.
        """
        try:
            self._attempt(writes)
        except Fenced:
            if not self._begun:
                raise
            self._ledger.give_up()
            self._ledger.catch_up()
            with suppress(Conflict):  # a replica that took over
                self._require_writable(writes)
            for write in writes:
                if write.entity not in self.outcomes:
                    self._drop(write, Reason.CONFLICT, _FENCED.format(write.entity))

    def _attempt(self, writes: Sequence[QuotaWrite]) -> None:
        """Try those without outcome once. Raises LeaseLost, Lost and Fenced.

        After Lost it is tried again.
        """
        ledger = self._ledger
        pending = [write for write in writes if write.entity not in self.outcomes]
        self._require_writable(pending)
        named = [write for write in pending if not self._is_nameless(write)]
        values = describe(ledger.client, [write.entity for write in named], ledger.topic)
        sound = [write for write in named if self._is_sound(write, values.get(write.entity, {}))]
        if not sound:
            return
        changes = {write.entity: _changes(write, values.get(write.entity, {})) for write in sound}
        changing = [write for write in sound if changes[write.entity]]
        before = {write.entity: self._record(write.entity, values) for write in sound}
        after = {write.entity: record_after(write, before[write.entity]) for write in sound}
        self._begun.update(changes)
        ledger.commit(
            [
                intent(write, before[write.entity], after[write.entity])
                if changes[write.entity]
                else ledger.outcome(write.entity, after[write.entity], write.seen.values)
                for write in sound
            ]
        )
        self._applied(write for write in sound if not changes[write.entity])
        if not changing:
            return
        refused: dict[Entity, str | None] = {}
        for start in range(0, len(changing), _ALTERED_AT_ONCE):
            part = changing[start : start + _ALTERED_AT_ONCE]
            refused.update(self._altered(part, changes))
        done = {entity: changes[entity] for entity, why in refused.items() if why is None}
        self._wait_until_visible(done)
        ledger.commit(
            [
                ledger.outcome(
                    write.entity,
                    after[write.entity] if write.entity in done else before[write.entity],
                    {**write.seen.values, **done.get(write.entity, {})},
                )
                for write in changing
            ]
        )
        self._applied(write for write in changing if write.entity in done)
        for write in changing:
            if write.entity not in refused:
                self._drop(write, Reason.CONFLICT, _CHANGED.format(write.entity))
            elif write.entity not in done:
                self._drop(
                    write,
                    Reason.FOREIGN_CONTENT,
                    f"{write.entity}: the brokers refused the quota "
                    f"({refused[write.entity]}); it stays as it is.",
                )

    def _altered(
        self, writes: Sequence[QuotaWrite], changes: Mapping[Entity, Changes]
    ) -> dict[Entity, str | None]:
        """Send those that are still as they were seen: entity -> why it was refused, None = done.

        The intents took a while to commit, and so did those that were sent before.
        """
        ledger = self._ledger
        now = describe(ledger.client, [write.entity for write in writes], ledger.topic)
        wanted = {
            write.entity: changes[write.entity]
            for write in writes
            if now.get(write.entity, {}) == write.seen.values
        }
        ledger.require_alone()
        refused = alter(ledger.client, wanted, ledger.topic)
        return {entity: refused.get(entity) for entity in wanted}

    def _record(self, entity: Entity, values: Mapping[Entity, Values]) -> bytes | None:
        item = self._ledger.journal.item(entity)
        return None if item is None else item.settled_raw(values.get(entity, {}))

    def _wait_until_visible(self, done: Mapping[Entity, Changes]) -> None:
        """Return once the broker that is asked shows them, or someone else has changed them."""
        deadline = time.monotonic() + _VISIBLE_SECONDS
        pause_seconds = 0.005
        missing = dict(done)
        while missing and time.monotonic() < deadline:
            now = describe(self._ledger.client, list(missing), self._ledger.topic)
            missing = {
                entity: wanted
                for entity, wanted in missing.items()
                if any(now.get(entity, {}).get(key) != text for key, text in wanted.items())
            }
            if missing:
                time.sleep(pause_seconds)
                pause_seconds = min(2 * pause_seconds, 0.1)

    def _is_nameless(self, write: QuotaWrite) -> bool:
        problem = no_name(write.entity)
        if problem is not None:
            self._drop(write, Reason.FOREIGN_CONTENT, f"{write.entity}: {problem}")
        return problem is not None

    def _is_sound(self, write: QuotaWrite, values: Values) -> bool:
        now = self._ledger.stored(write.entity, values)
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


def _changes(write: QuotaWrite, values: Values) -> Changes:
    return {key: text for key, text in write.values.items() if values.get(key) != text}
