"""Whether the ledger is still the one that the policy's status remembers, and what a person answers
where it is not.

A ledger that is gone looks like a cluster that Tidegate never wrote to: its own quotas would count
as those from before, and nobody would ever remove them. So the status remembers the claim's epoch
and how many records there are at least. A process also remembers the records themselves, and can
write them back.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any

from tidegate.control.leftovers import Suspect, left_words, suspects_of
from tidegate.control.report.conditions import listed
from tidegate.errors import RetryLater, TidegateError
from tidegate.kafka.quota_store import Claim, ClusterFacts, QuotaStore
from tidegate.observe.observation import LedgerLook, LedgerLoss
from tidegate.resources.status import LedgerStatus
from tidegate_logic.contracts.desired import DEFAULT_USER, NEVER_BINDS, MemberReport
from tidegate_logic.model import (
    Entity,
    LedgerEntry,
    LedgerRecord,
    Policy,
    QuotaKey,
    QuotaWrite,
    StoredQuota,
    StrimziUsers,
)
from tidegate_logic.reasons import Reason
from tidegate_logic.words import counted

# a broker that has just started knows no topics, and a ZooKeeper server may lag behind
CONFIRMED_AFTER_SECONDS = 10.0


Quotas = Mapping[Entity, StoredQuota]


class Answer(StrEnum):
    """What a person has done about a lost ledger."""

    REBUILD = "rebuild"  # write back what this process remembers
    ACCEPT = "accept"  # begin again; the quotas of members that are there count as Tidegate's
    KEEP = "accept-keeping-quotas"  # begin again; they count as from before Tidegate

    def for_epoch(self, epoch: int) -> str:
        """The annotation's value. It names the ledger that was lost, so it answers only once."""
        return f"{self.value}@{epoch}"


@dataclass(frozen=True, slots=True)
class Remembered:
    """The ledger in the status. `topic` "" = it is in ZooKeeper; `records` = at least so many."""

    cluster_id: str
    topic: str
    epoch: int
    records: int

    def answer_in(self, annotation: str) -> Answer | None:
        """The answer that the annotation gives for this ledger; None = it gives none."""
        return next((one for one in Answer if one.for_epoch(self.epoch) == annotation), None)

    def as_status(self, managed: int | None) -> LedgerStatus:
        return LedgerStatus(
            cluster_id=self.cluster_id,
            topic=self.topic or None,
            epoch=self.epoch,
            records=self.records,
            managed=managed,
        )


def look_of(status: Mapping[str, Any], policy: Policy) -> LedgerLook:
    """The look for a command, by the policy's status; it looks once."""
    watch = LedgerWatch(
        policy.key, monotonic=lambda: 0.0, confirmed_after_seconds=0.0, is_operator=False
    )
    watch.begin(status)
    return partial(watch.look, policy=policy)


def remembered_of(status: Mapping[str, Any]) -> Remembered | None:
    """What a policy's status remembers; None = it knows of no ledger.

    An earlier version changes `quotas` and leaves `ledger` as it is. Its count is not used then.
    """
    noted = status.get("ledger")
    if not noted or not noted.get("epoch"):
        return None
    is_current = noted.get("managed") == managed_of(status)
    return Remembered(
        str(noted.get("clusterId") or ""),
        str(noted.get("topic") or ""),
        int(noted["epoch"]),
        int(noted.get("records") or 0) if is_current else 0,
    )


def managed_of(status: Mapping[str, Any]) -> int | None:
    return (status.get("quotas") or {}).get("managed")


@dataclass(frozen=True, slots=True)
class Mending:
    """How a person's answer is carried out, all of it known before anything is.

    `records` are put back where the ledger lacks them, `missing` of them; it has `there` of the
    policy's. `left` may be the policy's and has no record afterwards.
    """

    answer: Answer
    claim: Claim
    facts: ClusterFacts
    records: Mapping[Entity, LedgerRecord]
    throttles: bytes | None
    there: int
    missing: int
    left: tuple[Suspect, ...]


class LedgerWatch:
    """The ledger of one policy, as its status and this process remember it."""

    def __init__(
        self,
        policy_key: str,
        *,
        monotonic: Callable[[], float],
        confirmed_after_seconds: float = CONFIRMED_AFTER_SECONDS,
        is_operator: bool = True,
    ) -> None:
        self._key = policy_key
        self._is_operator = is_operator
        self._monotonic = monotonic
        self._confirmed_after_seconds = confirmed_after_seconds
        self._remembered: Remembered | None = None
        self._records: Mapping[Entity, LedgerRecord] | None = None  # None = nothing is remembered
        self._throttles: bytes | None = None
        self._sent: dict[Entity, QuotaWrite] = {}  # whose outcome may not be known
        self._noted: Remembered | None = None  # what the status may show, with its highest count
        self._missing_since_seconds: float | None = None
        self._not_done = ""  # why a person's answer was not carried out yet

    @property
    def remembered(self) -> Remembered | None:
        return self._remembered

    @property
    def epoch(self) -> int:
        """The claim's epoch that is remembered; 0 = none is."""
        return 0 if self._remembered is None else self._remembered.epoch

    @property
    def status(self) -> LedgerStatus | None:
        """The same for the status; a report adds the count of managed quotas."""
        return None if self._remembered is None else self._remembered.as_status(None)

    @property
    def records(self) -> Mapping[Entity, LedgerRecord] | None:
        """The records that this process remembers; None = it never saw the ledger."""
        return self._records

    def begin(self, status: Mapping[str, Any]) -> None:
        """Take in the policy's status before a pass. What another process did since counts."""
        found, ours = remembered_of(status), self._remembered
        if found is None:
            return
        self._noted = self._noted or found
        if ours is None or found.epoch > ours.epoch:
            self._remembered, self._records = found, None
        elif found.epoch == ours.epoch and found.records < ours.records:
            self._remembered = replace(ours, records=found.records)

    def look(
        self, facts: ClusterFacts, quotas: Quotas | None, store: QuotaStore, *, policy: Policy
    ) -> LedgerLoss | None:
        """The loss, if the ledger is not the one that is remembered."""
        remembered = self._remembered
        what = "" if remembered is None else self._gone(remembered, facts, quotas, store, policy)
        if remembered is None or not what:
            self._missing_since_seconds, self._not_done = None, ""
            return None
        now_seconds = self._monotonic()
        if self._missing_since_seconds is None:
            self._missing_since_seconds = now_seconds
        lasts_seconds = now_seconds - self._missing_since_seconds
        if not facts.ledger.is_whole:
            return LedgerLoss(
                f"{what}. Another producer keeps a transaction open on that topic, so the rest "
                "cannot be read yet. Every quota stays as it is until it ends",
                is_confirmed=False,
            )
        if lasts_seconds < self._confirmed_after_seconds:
            return LedgerLoss(f"{what}. Tidegate looks for it again", is_confirmed=False)
        if policy.deleting:
            return LedgerLoss(what, is_confirmed=True)
        advice = self._advice(remembered, facts)
        if self._not_done:
            advice += f". An answer was given and could not be carried out yet: {self._not_done}"
        return LedgerLoss(f"{what}. {advice}", is_confirmed=True)

    def _gone(
        self,
        remembered: Remembered,
        facts: ClusterFacts,
        quotas: Quotas | None,
        store: QuotaStore,
        policy: Policy,
    ) -> str:
        """What is gone, as a sentence without its stop; "" = nothing."""
        claim, place = facts.claim, _place(facts.ledger.topic)
        if claim is not None and not claim.is_of(policy.key, policy.uid):
            return ""  # another policy's: there are reasons for that
        found = _count(quotas, policy.key)
        knows = f"status.ledger remembers at least {counted(remembered.records, 'record')}"
        if remembered.topic and not facts.ledger.topic:
            return (
                f"The ledger of this policy is in the topic {remembered.topic}, and was looked for "
                "in ZooKeeper. What ZooKeeper has is out of date"
            )
        if claim is None and not found and facts.ledger.released_epoch >= remembered.epoch:
            return ""  # all was restored, by `tidegate restore`, this policy or who took its claim
        if claim is None:
            what = "neither a claim nor a record" if not found else f"no claim and {found} records"
            return (
                f"The ledger of this policy is gone: {place} has {what}, and {knows} (epoch "
                f"{remembered.epoch})"
            )
        if 0 < claim.epoch < remembered.epoch:
            return (
                f"The ledger of this policy was replaced by an older one: the claim in {place} has "
                f"epoch {claim.epoch}, and the status remembers epoch {remembered.epoch}"
            )
        if quotas is None or facts.cluster_id != remembered.cluster_id:
            return ""
        if found < remembered.records:
            return (
                f"A part of the ledger of this policy is gone: {place} has "
                f"{counted(found, 'record')}, and {knows}"
            )
        vanished = self._vanished(quotas, store)
        if vanished:
            return (
                f"A part of the ledger of this policy is gone: {place} has no record of "
                f"{listed(sorted(map(str, vanished)))}, whose quotas are still as Tidegate wrote "
                "them"
            )
        return ""

    def _vanished(self, quotas: Quotas, store: QuotaStore) -> list[Entity]:
        """The entities whose record is gone although their quota is still what we wrote."""
        suspects = {
            entity: record
            for entity, record in (self._records or {}).items()
            if entity not in self._sent and _lacks_record(quotas.get(entity))
        }
        if not suspects:
            return []
        now = store.read(suspects)
        return [
            entity
            for entity, record in suspects.items()
            if now[entity].ledger is None and _is_as_written(record, now[entity])
        ]

    def _advice(self, remembered: Remembered, facts: ClusterFacts) -> str:
        stays = "Nothing is written, and every quota stays as it is, until that is settled."
        accept = f"`tidegate ledger accept {self._key}`"
        if facts.cluster_id != remembered.cluster_id:
            return (
                f"{stays} The ledger is in Kafka cluster {remembered.cluster_id}, and cluster "
                f"{facts.cluster_id} answers now. If the address in spec.kafka is wrong, correct "
                "it. If Kafka was rebuilt, or this policy is to manage this cluster instead, "
                f"{accept} begins a ledger here, and the quotas that are here count as from before "
                "Tidegate"
            )
        if remembered.topic != facts.ledger.topic:
            return f"{stays} {_moved_advice(remembered, facts)}"
        if self._records is not None:
            return (
                f"{stays} This operator has the whole ledger in memory "
                f"({counted(len(self._records), 'record')}): `tidegate ledger rebuild {self._key}` "
                "writes it back. Do it before the operator restarts"
            )
        if not self._is_operator:
            return f"{stays} The policy's condition Ready says which answer to give"
        return (
            f"{stays} This operator has not seen the ledger since it started, so it cannot write "
            f"it back. {accept} goes on with the records that are there. A quota of a member "
            "without a record then counts as Tidegate's and is removed in the end, because what "
            "was there before Tidegate is not known any more. Do not name another topic"
        )

    # --- before and after writes ------------------------------------------------------------------

    def before_writes(
        self,
        writes: Sequence[QuotaWrite],
        claim: Claim,
        facts: ClusterFacts,
        quotas: Quotas,
        *,
        note: Callable[[Remembered], None],
    ) -> None:
        """Have the status remember the ledger before these writes are sent.

        `note` writes into the status and raises what keeps it from that. It is called for a ledger
        that the status does not know yet, and before records are removed: their count in the
        status is never above that in the ledger, so nothing is removed where it raises.
        """
        removed = sum(one.ledger is None and one.seen.ledger is not None for one in writes)
        now = Remembered(
            facts.cluster_id,
            facts.ledger.topic,
            claim.epoch,
            max(0, _count(quotas, claim.policy_key) - removed),
        )
        noted = self._noted
        if noted is None or (noted.cluster_id, noted.topic) != (now.cluster_id, now.topic):
            with suppress(TidegateError):  # no quota waits for that; the report is next to try
                note(now)
            self._noted = now
        elif now.records < noted.records:
            note(now)
            self._noted = now
        self._remembered = now
        self._sent.update({one.entity: one for one in writes})

    def after_pass(
        self, claim: Claim | None, facts: ClusterFacts, quotas: Quotas, throttles: bytes | None
    ) -> None:
        """Remember the ledger as it is at the end of a pass that found it sound.

        `claim` None = the policy has none, and writes nothing.
        """
        if claim is None or not claim.epoch:
            return
        self._records = {
            entity: stored.ledger for entity, stored in quotas.items() if stored.ledger is not None
        }
        self._throttles = throttles
        self._sent.clear()
        count = _count(quotas, claim.policy_key)
        self._remembered = Remembered(facts.cluster_id, facts.ledger.topic, claim.epoch, count)
        if self._noted is None or self._noted.records < count:
            self._noted = self._remembered  # the report on this pass says so

    # --- answers ----------------------------------------------------------------------------------

    def prepare(
        self,
        answer: Answer,
        claim: Claim,
        *,
        facts: ClusterFacts,
        quotas: Quotas,
        members: Sequence[MemberReport],
        policy: Policy,
        strimzi: StrimziUsers | None,
        store: QuotaStore,
        now_seconds: float,
    ) -> Mending | None:
        """How the answer is carried out, under `claim` with the next epoch. Changes nothing.

        Everything that may be left behind is read here: afterwards nobody could tell any more which
        quotas had no record. Raises TidegateError if that, or Strimzi's KafkaUsers, could not be
        read. None if this process cannot do it, as the loss's message says.
        """
        remembered = self._remembered
        if remembered is None:
            return None
        records: Mapping[Entity, LedgerRecord] = {}
        left: list[Suspect] = []
        throttles = None
        if answer is Answer.REBUILD:
            if self._records is None or facts.cluster_id != remembered.cluster_id:
                return None
            records, throttles = self._as_sent(store), self._throttles
        elif answer is Answer.ACCEPT and facts.cluster_id == remembered.cluster_id:
            if strimzi is not None and strimzi.unread:
                raise RetryLater(
                    Reason.KAFKA_USERS_UNREAD,
                    f"The KafkaUsers of Strimzi's cluster {strimzi.cluster} could not be read, so "
                    f"which quotas are Strimzi's is not known ({strimzi.unread.rstrip('.')}).",
                )
            quotas = store.read_everything()  # an observation leaves out what is in doubt
            records = accepted_records(members, policy, quotas, now_seconds=now_seconds)
            left = self.suspects(
                quotas,
                {one.entity for one in members} | policy.defaults.keys(),
                strimzi=strimzi,
                claim=facts.claim,
                accepted=records,
            )
        epoch = max(remembered.epoch, facts.claim.epoch if facts.claim is not None else 0) + 1
        former = facts.claim.former if facts.claim is not None else ()
        missing = sum(
            one.policy_key == policy.key
            and ((stored := quotas.get(entity)) is None or stored.ledger is None)
            for entity, one in records.items()
        )
        return Mending(
            answer,
            replace(claim, epoch=epoch, former=former),
            facts,
            records,
            throttles,
            _count(quotas, policy.key),
            missing,
            tuple(left),
        )

    def mend(self, mending: Mending, store: QuotaStore) -> str:
        """Carry the answer out; returns what was done, for people.

        Raises TidegateError if that could not be done; the ledger still counts as lost then.
        """
        facts, there, missing = mending.facts, mending.there, mending.missing
        store.mend_ledger(
            mending.claim, mending.records, facts.cluster_id, throttles=mending.throttles
        )
        epoch = mending.claim.epoch
        self._remembered = self._noted = Remembered(
            facts.cluster_id, facts.ledger.topic, epoch, there + missing
        )
        self._missing_since_seconds, self._not_done = None, ""
        self._sent.clear()
        if mending.answer is not Answer.REBUILD:
            self._records = None
        done = _done_words(mending.answer, there, missing, epoch)
        return f"{done}. {left_words(mending.left)}" if mending.left else done

    def could_not_mend(self, why: str) -> None:
        """Have the loss's message say why a person's answer was not carried out yet."""
        self._not_done = why

    def suspects(
        self,
        everything: Quotas,
        declared: Collection[Entity],
        *,
        strimzi: StrimziUsers | None,
        claim: Claim | None,
        accepted: Mapping[Entity, LedgerRecord] | None = None,
    ) -> list[Suspect]:
        """The quota keys without a record that may be this policy's; `claim` is in the ledger."""
        return suspects_of(
            everything,
            declared,
            known=self._remembered_entries(),
            strimzi=strimzi,
            is_older=claim is not None and 0 < claim.epoch < self.epoch,
            accepted=accepted,
        )

    def _remembered_entries(self) -> Mapping[Entity, Mapping[QuotaKey, LedgerEntry]] | None:
        """The keys that this process set, as far as it remembers, those of its last writes too.

        It never knew others. None = it never saw the ledger.
        """
        if self._records is None:
            return None
        sent = [one.ledger for one in self._sent.values() if one.ledger is not None]
        found: dict[Entity, dict[QuotaKey, LedgerEntry]] = {}
        for record in (*self._records.values(), *sent):
            if record.policy_key == self._key:
                found.setdefault(record.entity, {}).update(
                    (key, entry)
                    for key, entry in record.entries.items()
                    if entry.written != entry.before  # else it was restored
                )
        return found

    def _as_sent(self, store: QuotaStore) -> dict[Entity, LedgerRecord]:
        """The records that are remembered, and those of writes that were sent and did happen.

        A key counts by itself: another writer may have changed the other one since.
        """
        records = dict(self._records or {})
        now = store.read(self._sent)
        for entity, write in self._sent.items():
            happened = {
                key for key, text in write.values.items() if now[entity].values.get(key) == text
            }
            if write.values and not happened:
                continue
            is_whole = len(happened) == len(write.values)
            entries = dict(records[entity].entries) if entity in records else {}
            record = write.ledger or records.get(entity)
            if record is None:
                continue
            new = {} if write.ledger is None else write.ledger.entries
            for key in (entries.keys() | new.keys()) if is_whole else happened:
                entries.pop(key, None)
                if key in new:
                    entries[key] = new[key]
            if entries or write.ledger is not None:
                records[entity] = replace(record, entries=entries)
            else:
                records.pop(entity, None)
        return records


def accepted_records(
    members: Iterable[MemberReport], policy: Policy, quotas: Quotas, *, now_seconds: float
) -> dict[Entity, LedgerRecord]:
    """Records for quotas without one that count as ours: nothing is known from before them.

    Only of keys that the policy sets for the entity. What metering writes for Kafka's default user
    is known by its value.
    """
    keys: dict[Entity, Collection[QuotaKey]] = {
        one.entity: one.target for one in members if one.counts
    }
    keys |= policy.defaults
    if policy.metering_enabled and DEFAULT_USER not in keys and DEFAULT_USER in quotas:
        metered = quotas[DEFAULT_USER].values
        keys[DEFAULT_USER] = {key for key, text in metered.items() if text == str(NEVER_BINDS)}
    found: dict[Entity, LedgerRecord] = {}
    for entity, wanted in keys.items():
        stored = quotas.get(entity)
        if stored is None or stored.ledger is not None or stored.problem is not None:
            continue
        entries = {
            key: LedgerEntry(None, text, None, now_seconds, Reason.ADOPTED)
            for key, text in stored.values.items()
            if key in wanted
        }
        if entries:
            found[entity] = LedgerRecord(entity, policy.key, policy.uid, entries)
    return found


def _count(quotas: Quotas | None, policy_key: str) -> int:
    """The policy's records, with those that cannot be read: of whom they are is not known."""
    return sum(
        one.ledger.policy_key == policy_key
        if one.ledger is not None
        else one.problem is not None and one.ledger_version is not None
        for one in (quotas or {}).values()
    )


def _lacks_record(stored: StoredQuota | None) -> bool:
    return stored is None or (stored.ledger is None and stored.problem is None)


def _is_as_written(record: LedgerRecord, stored: StoredQuota) -> bool:
    """Whether a quota still is what we wrote, and not what was there before."""
    return any(
        entry.written not in (None, entry.before) and stored.values.get(key) == entry.written
        for key, entry in record.entries.items()
    )


def _place(topic: str) -> str:
    return f"the topic {topic}" if topic else "ZooKeeper (/tidegate)"


def _moved_advice(remembered: Remembered, facts: ClusterFacts) -> str:
    if not remembered.topic:
        return (
            "The ledger is in ZooKeeper, and spec.kafka names none any more: give "
            "spec.kafka.zookeeper again, or take the ledger along with `tidegate ledger import`"
        )
    if not facts.ledger.topic:
        return (
            "If spec.kafka was changed, change it back. If that topic is gone, remove "
            "spec.kafka.zookeeper, and the status says what to do"
        )
    return (
        f"The ledger is in the topic {remembered.topic}, and the policy names "
        f"{facts.ledger.topic}: set spec.kafka.ledgerTopic to {remembered.topic} again. If that "
        "topic is gone, set it nevertheless, and the status says what to do"
    )


def _done_words(answer: Answer, there: int, missing: int, epoch: int) -> str:
    if answer is Answer.REBUILD:
        return (
            f"The operator wrote the lost ledger back from its memory (epoch {epoch}): "
            f"{counted(missing, 'record')} had been lost, and {there} were still there"
        )
    what = (
        f"{counted(missing, 'quota')} of tiers' members, without a record, now count as "
        "Tidegate's, and what was there before is not known"
        if answer is Answer.ACCEPT and missing
        else "quotas without a record count as from before Tidegate"
    )
    return f"A new ledger was begun instead of the lost one (epoch {epoch}): {what}"
