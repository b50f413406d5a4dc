"""Quotas that no contract names any more: a grace before they are restored, a memory afterwards.

A tier that is deleted and made again within seconds must neither free its clients nor throttle them
for minutes. So a quota that is no longer wanted stays for a grace, in which any member of the
policy that names its entity takes it over with its record. What was restored after that stays in
the ledger for a quarter of an hour, because a broker still measures what the client sent without a
limit: a first quota then steps down. See `steps.py`, and `sent_rates.py` for what it steps down
from.

In the ledger, a restored quota is an entry with nothing left to restore: `before` and `written` are
what stands now. Versions that do not know of the memory read it as a quota that has its value from
before Tidegate already, and drop the record.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace

from tidegate_logic.contracts.targets import NOTHING, Promise, is_override_only
from tidegate_logic.model import (
    BYTE_RATE_KEYS,
    Entity,
    LedgerEntry,
    LedgerRecord,
    Policy,
    QuotaKey,
    StoredQuota,
)
from tidegate_logic.quota_values import enforced_rate
from tidegate_logic.reasons import Reason

GRACE_SECONDS = 30.0
REMEMBERED_SECONDS = 15 * 60.0
# how often a pass looks while a quota waits, and the longest break in which nothing can be missed
LOOK_EVERY_SECONDS = 10.0
_LONGEST_BREAK_SECONDS = 15.0
_MOST_RESTARTS = 2


@dataclass(frozen=True, slots=True)
class Waiting:
    """How long a quota has been seen to be unwanted: from when on, and when last (epoch seconds).

    `restarts` is how often its grace has begun again.
    """

    since_seconds: float
    seen_at_seconds: float
    restarts: int = 0

    def seen_again(self, now_seconds: float) -> "Waiting":
        """What this pass knows: the grace goes on, or begins again after a break.

        A process that stood still, or whose clock jumped, cannot know whether the quota was wanted
        in between. But passes that are always slow must not keep a quota forever, so a grace begins
        again at most twice: passes that are at most x seconds apart restore it within 3 * (30 + x)
        seconds of the first one, whatever x is.
        """
        is_break = abs(now_seconds - self.seen_at_seconds) > _LONGEST_BREAK_SECONDS
        if is_break and self.restarts < _MOST_RESTARTS:
            return Waiting(now_seconds, now_seconds, self.restarts + 1)
        return Waiting(min(self.since_seconds, now_seconds), now_seconds, self.restarts)

    @property
    def ends_at_seconds(self) -> float:
        """When the grace is over."""
        return self.since_seconds + GRACE_SECONDS


Unwanted = Mapping[tuple[Entity, QuotaKey], Waiting]
RestoredKeys = Mapping[QuotaKey, LedgerEntry]
_NOTHING: RestoredKeys = {}


def in_grace(
    losing: Iterable[tuple[StoredQuota, Promise]], before: Unwanted, now_seconds: float
) -> "Grace":
    """Which quotas of those that lose some still wait, and how long each was seen to be unwanted.

    `before` is the last pass's answer; a pass that may not know all members has none. Nothing waits
    that limits no one, that is being restored already, that a throttle or an override gave, or
    whose policy is being deleted: those have an end of their own.
    """
    unwanted: dict[tuple[Entity, QuotaKey], Waiting] = {}
    until: dict[Entity, dict[QuotaKey, float]] = {}
    for stored, promise in losing:
        for key in _leaving_keys(stored, promise):
            quota = stored.entity, key
            waiting = unwanted[quota] = _seen(before.get(quota), now_seconds)
            if waiting.ends_at_seconds > now_seconds:
                until.setdefault(stored.entity, {})[key] = waiting.ends_at_seconds
    return Grace(unwanted, until)


def _seen(before: Waiting | None, now_seconds: float) -> Waiting:
    return Waiting(now_seconds, now_seconds) if before is None else before.seen_again(now_seconds)


@dataclass(frozen=True, slots=True)
class Grace:
    """The quotas that stay although they are unwanted: when each may be restored (epoch seconds).

    `unwanted` has all that are, also those whose grace is over.
    """

    unwanted: Unwanted = field(default_factory=dict)
    until: Mapping[Entity, Mapping[QuotaKey, float]] = field(default_factory=dict)

    def of(self, entity: Entity) -> Mapping[QuotaKey, float]:
        """The end of the grace of each of the entity's quotas that still waits."""
        return self.until.get(entity, {})


def staying_keys(stored: StoredQuota, unwanted: Unwanted, now_seconds: float) -> Set[QuotaKey]:
    """The unwanted keys of ours that this pass does not restore, since their grace is not over."""
    if stored.ledger is None:
        return frozenset()
    return {
        key
        for key, entry in stored.ledger.entries.items()
        if entry.reason is not Reason.GIVEN_BACK
        and now_seconds < _seen(unwanted.get((stored.entity, key)), now_seconds).ends_at_seconds
    }


def _leaving_keys(stored: StoredQuota, promise: Promise) -> Iterable[QuotaKey]:
    if stored.ledger is None or stored.problem is not None:
        return
    for key, entry in stored.ledger.entries.items():
        is_limit = key not in BYTE_RATE_KEYS or enforced_rate(entry.written) is not None
        if (
            key not in promise.keys
            and is_limit
            and entry.reason is not Reason.GIVEN_BACK
            and not is_end_of_throttle(entry, promise)
            and not is_override_only(entry.basis)
        ):
            yield key


def is_end_of_throttle(entry: LedgerEntry, promise: Promise) -> bool:
    """Whether the key goes because a throttle ends, of a member that has no contract for it."""
    return entry.of_contract is not None and promise is not NOTHING


def remembered(
    entry: LedgerEntry, key: QuotaKey, text: str | None, *, now_seconds: float
) -> LedgerEntry | None:
    """What the ledger keeps of a quota of ours in whose place `text` stands from now on.

    None if clients were limited by nothing, or still are limited: nothing is to be known then.
    """
    if (
        key not in BYTE_RATE_KEYS
        or enforced_rate(entry.written) is None
        or enforced_rate(text) is not None
    ):
        return None
    return LedgerEntry(text, text, entry.written, now_seconds, Reason.GIVEN_BACK, entry.basis)


def is_restored(entry: LedgerEntry) -> bool:
    """Whether the entry only remembers a quota that was restored: nothing of it is ours."""
    return entry.reason is Reason.GIVEN_BACK and enforced_rate(entry.written) is None


def is_recent(entry: LedgerEntry, now_seconds: float) -> bool:
    """Whether it was restored less than a quarter of an hour ago.

    A time that lies ahead by more was stamped by a wrong clock.
    """
    return abs(now_seconds - entry.written_at_seconds) < REMEMBERED_SECONDS


@dataclass(frozen=True, slots=True)
class Restored:
    """What the ledger remembers of restored quotas.

    `stored` has these entities as they are in the store, `keys` their restored quotas.
    """

    stored: Mapping[Entity, StoredQuota] = field(default_factory=dict)
    keys: Mapping[Entity, RestoredKeys] = field(default_factory=dict)

    def of(self, entity: Entity) -> RestoredKeys:
        """The restored quotas of one entity."""
        return self.keys.get(entity, _NOTHING)

    def recent(self, entity: Entity, now_seconds: float) -> RestoredKeys:
        """Those of them that are still remembered."""
        found = self.of(entity)
        return (
            {key: entry for key, entry in found.items() if is_recent(entry, now_seconds)}
            if found
            else found
        )

    def forgettable(self, policy: Policy, now_seconds: float) -> Iterable[StoredQuota]:
        """This policy's entities with a memory that is over, as they are in the store."""
        for entity, stored in self.stored.items():
            if stored.is_of(policy) and len(self.recent(entity, now_seconds)) < len(
                self.keys[entity]
            ):
                yield stored


def without_restored(
    quotas: Mapping[Entity, StoredQuota],
) -> tuple[Mapping[Entity, StoredQuota], Restored]:
    """The quotas with only what is ours in their records, and what these remember."""
    keys = {
        entity: found
        for entity, stored in quotas.items()
        if stored.ledger is not None and (found := _restored_keys(stored.ledger))
    }
    if not keys:
        return quotas, Restored()
    restored = Restored({entity: quotas[entity] for entity in keys}, keys)
    return {
        entity: _without(stored, keys[entity].keys()) if entity in keys else stored
        for entity, stored in quotas.items()
    }, restored


def _restored_keys(record: LedgerRecord) -> RestoredKeys:
    return {key: entry for key, entry in record.entries.items() if is_restored(entry)}


def _without(stored: StoredQuota, keys: Set[QuotaKey]) -> StoredQuota:
    if stored.ledger is None:
        return stored
    left = {key: entry for key, entry in stored.ledger.entries.items() if key not in keys}
    return replace(stored, ledger=replace(stored.ledger, entries=left) if left else None)
