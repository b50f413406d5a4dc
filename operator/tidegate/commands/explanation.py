"""Why a client gets the quota it gets: Kafka's choice among its eight levels, joined with what the ledger knows of each value.

The choice itself is made by `controller_logic.quotas.precedence`, targets and totals by the decision; this module only brings
together what belongs to one quota key. Nothing is read or written here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from controller_logic.decision import MemberReport, MemberState
from controller_logic.model import BYTE_RATE_KEYS, Entity, LedgerEntry, LedgerRecord, Override, QuotaKey, StoredQuota
from controller_logic.quotas.precedence import Applicable, Shadowed, applicable, candidates
from controller_logic.quotas.values import enforced_rate, same_quota
from tidegate.commands.quantity import KEY_ORDER


@dataclass(frozen=True, slots=True)
class Subject:
    """The client that is asked about. An unauthenticated client's user is `ANONYMOUS`; an empty client id is none."""

    user: str
    client_id: str


@dataclass(frozen=True, slots=True)
class Author:
    """What the ledger knows of one value: the record and the entry of its key, and whether the value is still ours.

    `still_ours` is false where another writer changed the value after Tidegate wrote it.
    """

    record: LedgerRecord
    entry: LedgerEntry
    still_ours: bool


@dataclass(frozen=True, slots=True)
class KeyExplanation:
    """One quota key of one client. `applies` None = no level has the key, so Kafka does not limit it.

    `author` None = not set by Tidegate. `report` is what the policy's decision says of the member that has this entity;
    None where no policy is known or nobody claims it. `shadowed_ours` are weaker values that Tidegate wrote in vain for this client.
    `override` is the one that is laid over the member's contract.
    """

    key: QuotaKey
    applies: Applicable | None
    author: Author | None
    report: MemberReport | None
    shadowed_ours: tuple[Shadowed, ...]
    override: Override | None = None

    def total_over(self, brokers: int | None) -> int | None:
        """What one bucket may use over all brokers together, bytes per second or the key's own unit; None = unknown or unlimited."""
        value = enforced_rate(self.applies.text) if self.applies else None
        return None if value is None or brokers is None else value * brokers


def explain_client(
    quotas: Mapping[Entity, StoredQuota],
    subject: Subject,
    reports: Sequence[MemberReport],
    overrides: Mapping[Entity, Override] | None = None,
) -> tuple[KeyExplanation, ...]:
    """All four quota keys, fetch first. `quotas` must be everything that the store holds; `overrides` are those that apply, by entity."""
    by_entity = {report.entity: report for report in reports if report.state is not MemberState.OVERLAPPING}
    explained = (_explain_key(quotas, subject, by_entity, key=key) for key in KEY_ORDER)
    return tuple(replace(one, override=_override(one, overrides or {})) for one in explained)


def _override(explanation: KeyExplanation, overrides: Mapping[Entity, Override]) -> Override | None:
    """Overrides are about byte rates only."""
    applies = explanation.applies
    return overrides.get(applies.entity) if applies is not None and explanation.key in BYTE_RATE_KEYS else None


def _explain_key(
    quotas: Mapping[Entity, StoredQuota], subject: Subject, reports: Mapping[Entity, MemberReport], *, key: QuotaKey
) -> KeyExplanation:
    applies = applicable(quotas, subject.user, subject.client_id, key=key)
    if applies is None:
        return KeyExplanation(key, None, None, None, ())
    ours = tuple(hidden for hidden in applies.shadows if author_of(quotas, hidden.entity, key))
    return KeyExplanation(key, applies, author_of(quotas, applies.entity, key), reports.get(applies.entity), ours)


def author_of(quotas: Mapping[Entity, StoredQuota], entity: Entity, key: QuotaKey) -> Author | None:
    """Who set this value according to the ledger; None = the ledger has nothing on it, so it was not Tidegate."""
    stored = quotas.get(entity)
    record = stored.ledger if stored else None
    entry = record.entries.get(key) if record else None
    if stored is None or record is None or entry is None:
        return None
    return Author(record, entry, same_quota(stored.values.get(key), entry.written))


def unreadable(quotas: Mapping[Entity, StoredQuota], subject: Subject) -> tuple[StoredQuota, ...]:
    """Those of the eight entities whose znode cannot be read safely: the answer may be wrong while they are."""
    found = (quotas.get(entity) for _, entity in candidates(subject.user, subject.client_id))
    return tuple(stored for stored in found if stored is not None and stored.problem is not None)


def nothing_is_metered(quotas: Mapping[Entity, StoredQuota]) -> bool:
    """Whether the cluster has no client quota at all: brokers then measure nobody (kafka-quotas 3.2)."""
    return not any(stored.values for stored in quotas.values())
