"""Replication throttles of the record taken away by `tidegate restore`, as the operator would do it
for a policy that is being deleted.

The record alone says what is ours, so values of others stay. An item leaves the record when it has
not been seen for a quarter of a minute, because brokers may show a change late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidegate.commands.context import CommandContext
from tidegate.commands.inputs import opened_replication
from tidegate.commands.options import AccessOptions
from tidegate.commands.output import Column, Document, Page, Sheet
from tidegate.errors import RetryLater, TidegateError
from tidegate.kafka.quota_store import QuotaStore
from tidegate.kafka.throttle_record import policy_key_of, record_of, record_to_bytes
from tidegate_logic.replication.replication_pass import (
    SETTLE_SECONDS,
    ReplicationInput,
    ReplicationMemory,
    decide_replication,
    not_applied,
)
from tidegate_logic.replication.throttles import Configs, Items, Resource, items_of, without_items

if TYPE_CHECKING:
    from tidegate.observe.observation import ReplicationSource

_ROUND_SECONDS = 5.0
_LONGEST_SECONDS = 60.0  # for a broker that does not answer, or somebody who writes the record, too
_COLUMNS = (
    *(Column("throttle of", fold=True), Column("key"), Column("ours", fold=True)),
    *(Column("now", fold=True), Column("remark", fold=True)),
)


@dataclass(frozen=True, slots=True)
class ThrottleRow:
    """One key that may be ours. `in_force` None = there is none; `known` = its broker answered."""

    resource: Resource
    key: str
    ours: frozenset[str]
    in_force: str | None
    known: bool

    @property
    def remark(self) -> str:
        if not self.known:
            return "not known: the brokers were not asked, or this one did not answer"
        there = frozenset() if self.in_force is None else items_of(self.key, self.in_force)
        if not there & self.ours:
            return "not there any more; only our record is removed"
        return "others' items stay" if there - self.ours else ""


@dataclass(slots=True)
class ThrottleRestoration:
    """Shows and takes away what the record has. `source` None = no address of brokers was given.

    `problem` is why the brokers could not be asked: quotas are restored all the same.
    `unconfirmed` says which live brokers do not agree that what was taken away is gone: each has a
    copy of its own of what the controller decided, so the record stays until all of them do.
    """

    store: QuotaStore
    source: ReplicationSource | None
    covers_policy: Callable[[str], bool]
    now_seconds: Callable[[], float]
    problem: str | None = None
    unconfirmed: list[str] = field(default_factory=list)
    _memory: ReplicationMemory = field(default_factory=ReplicationMemory)

    def look(self) -> tuple[ThrottleRow, ...]:
        """Every key of the record that was asked for. Nothing is written."""
        content = self.store.throttle_record()
        if content is None or not self.covers_policy(policy_key_of(content)):
            return ()
        record = record_of(content)
        found = self._configs(record)
        return tuple(
            ThrottleRow(one, key, items, found.get(one, {}).get(key), one in found)
            for one, keys in sorted(record.items())
            for key, items in sorted(keys.items())
        )

    def _configs(self, record: Items) -> Configs:
        self.problem = None
        if self.source is None or not record:
            return {}
        try:
            self.source.read(with_recovery=False)  # it asks for the brokers' addresses
            return self.source.configs(frozenset(record))
        except TidegateError as error:
            self.problem = error.for_command
            return {}

    def to_the_end(
        self, cluster_id: str, page: Page, wait_seconds: Callable[[float], None]
    ) -> None:
        """Take away round by round until the record is empty, or a minute has brought nothing."""
        until = self.now_seconds() + _LONGEST_SECONDS
        while self.look() and self.source is not None:
            try:
                self._round(self.source, cluster_id, page)
            except RetryLater as error:
                page.say(f"{error.for_command} Trying again in {_ROUND_SECONDS:.0f} s.")
            except TidegateError as error:  # a right is missing: waiting does not help
                page.say(error.for_command)
                return
            if not self.look() or self.now_seconds() >= until:
                return
            wait_seconds(_ROUND_SECONDS)

    def _round(self, source: ReplicationSource, cluster_id: str, page: Page) -> None:
        from tidegate.control.replication import still_shown

        content = self.store.throttle_record()
        record = record_of(content)
        seen = source.read(with_recovery=False)
        decision, self._memory = decide_replication(
            ReplicationInput(
                self.now_seconds(),
                seen=seen,
                configs=source.configs(frozenset(record)),
                record=record,
            ),
            self._memory,
        )
        leaving = without_items(record, decision.record)
        self.unconfirmed = still_shown(source, leaving)
        for what in self.unconfirmed:
            page.say(f"{what}, so the record stays for now")
        if leaving and content is not None and not self.unconfirmed:
            self.store.keep_throttle_record(
                record_to_bytes(decision.record, policy_key_of(content)), cluster_id, seen=content
            )
        failed = source.alter(decision.changes) if decision.changes else {}
        self._memory = not_applied(self._memory, failed)
        for change in decision.changes:
            if change.resource in failed:
                page.say(f"{change}: not done ({failed[change.resource]})")
            else:
                page.say(str(change))
        if not decision.changes and decision.record:
            page.say(
                f"waiting until the brokers have shown for {SETTLE_SECONDS:.0f} s that nothing "
                "of ours is left"
            )


@contextmanager
def throttle_restoration(
    around: CommandContext,
    store: QuotaStore,
    options: AccessOptions,
    covers_policy: Callable[[str], bool],
) -> Iterator[ThrottleRestoration]:
    """What is known of throttles; brokers are connected to only where the record has some."""
    if store.throttle_record() is None or not options.bootstrap_servers:
        yield ThrottleRestoration(store, None, covers_policy, around.now_seconds)
        return
    with opened_replication(around, options) as source:
        yield ThrottleRestoration(store, source, covers_policy, around.now_seconds)


def throttle_warning(rows: Sequence[ThrottleRow], restoration: ThrottleRestoration) -> str | None:
    """What to add to the command where throttles cannot be taken away as it is."""
    if not rows:
        return None
    if restoration.problem is not None:
        return f"Replication throttles stay as they are for now: {restoration.problem}"
    if restoration.source is not None:
        return None
    return (
        f"{len(rows)} replication throttles of ours are recorded, and only brokers take them away. "
        "Give --bootstrap-servers beside --zookeeper; without it they stay, and so does the claim."
    )


def throttle_sheet(rows: Sequence[ThrottleRow]) -> Sheet:
    """The rows as a table."""
    return Sheet(
        _COLUMNS,
        [
            (
                str(row.resource),
                row.key,
                ",".join(sorted(row.ours)),
                row.in_force or ("none" if row.known else "?"),
                row.remark,
            )
            for row in rows
        ],
    )


def throttle_document(row: ThrottleRow) -> Document:
    """One row for programs."""
    return {
        "resource": row.resource.kind.value,
        "name": row.resource.name,
        "key": row.key,
        "ours": sorted(row.ours),
        "inForce": row.in_force,
        "known": row.known,
    }
