"""What applies to one client: Kafka's choice among its quotas, who set them, and why.

As values, and as plain data for programs; `explain.py` has the sentences for people.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from tidegate.commands.output import Document
from tidegate.commands.plan import entity_document, fetch_fields
from tidegate_logic.contracts.desired import MemberReport
from tidegate_logic.model import (
    BYTE_RATE_KEYS,
    Entity,
    LedgerEntry,
    LedgerRecord,
    Override,
    QuotaKey,
    StoredQuota,
)
from tidegate_logic.quota_values import KEY_ORDER, enforced_rate, same_quota
from tidegate_logic.quotas.leaving import is_restored
from tidegate_logic.quotas.precedence import (
    Applicable,
    PrecedenceLevel,
    Shadowed,
    applicable,
    candidates,
)
from tidegate_logic.words import rfc3339

# Kafka's choice among its eight levels, joined with the ledger's entry for each value.
#
# `controller_logic.quotas.precedence` makes the choice, and the decision computes targets and
# totals. Here they are joined by quota key.


@dataclass(frozen=True, slots=True)
class Subject:
    """The client asked about. Without login its user is `ANONYMOUS`; an empty client id = none."""

    user: str
    client_id: str


@dataclass(frozen=True, slots=True)
class Author:
    """The ledger's record and entry for one value, and whether the value is still ours.

    `still_ours` is false where another writer changed the value after Tidegate wrote it, `notified`
    where it is not known that brokers learned of it as it stands.
    """

    record: LedgerRecord
    entry: LedgerEntry
    still_ours: bool
    notified: bool = True


@dataclass(frozen=True, slots=True)
class Missing:
    """A value that should stand at this level, by the ledger or by a contract, and does not.

    It is stronger than the one that applies, if any does. `author` None = Tidegate has not written
    it yet; `report` as in KeyExplanation.
    """

    level: PrecedenceLevel
    entity: Entity
    author: Author | None
    report: MemberReport | None


@dataclass(frozen=True, slots=True)
class Outlook:
    """What becomes of a value that another writer changed or removed.

    `left_alone_until` has the members that the operator leaves alone, by what their tiers' statuses
    say; `asked` = there are such statuses. `held` is why the operator writes nothing now, empty =
    nothing is known to keep it from it; `managed` are the entities that the policy names.
    `restored_at` is when quotas that no member names any more are restored (epoch seconds).
    `policy_key` None = no policy is known.
    """

    policy_key: str | None = None
    asked: bool = False
    held: str = ""
    left_alone_until: Mapping[Entity, str] = field(default_factory=dict)
    managed: frozenset[Entity] = frozenset()
    restored_at: Mapping[Entity, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KeyExplanation:
    """One quota key of one client. `applies` None = no level has the key: Kafka does not limit it.

    `author` None = not set by Tidegate. `report` is the decision's report on the member that has
    this entity; None if no policy is known or no member has the entity. `shadowed_ours` are
    weaker values of Tidegate's without effect for this client. `missing` are values that should
    stand, the strongest first. `override` is the one that applies to the member's contract.
    """

    key: QuotaKey
    applies: Applicable | None
    author: Author | None
    report: MemberReport | None
    shadowed_ours: tuple[Shadowed, ...]
    missing: tuple[Missing, ...] = ()
    override: Override | None = None

    def total_over(self, brokers: int | None) -> int | None:
        """The limit of one bucket over all brokers; None = unknown or unlimited.

        It is in bytes per second or the key's own unit.
        """
        value = enforced_rate(self.applies.text) if self.applies else None
        return value * brokers if value is not None and brokers else None


@dataclass(frozen=True, slots=True)
class Explained:
    """The answer about one client: all four quota keys, fetch first.

    `brokers` is how many are alive, None = not known.
    """

    subject: Subject
    keys: tuple[KeyExplanation, ...]
    brokers: int | None
    warnings: tuple[str, ...]
    outlook: Outlook


def explain_client(
    quotas: Mapping[Entity, StoredQuota],
    subject: Subject,
    reports: Sequence[MemberReport],
    overrides: Mapping[Entity, Override] | None = None,
) -> tuple[KeyExplanation, ...]:
    """All four quota keys, fetch first.

    `quotas` must be everything that the store holds; `overrides` are those that apply, by entity.
    """
    by_entity = {report.entity: report for report in reports if report.counts}
    explained = (_explain_key(quotas, subject, by_entity, key=key) for key in KEY_ORDER)
    return tuple(replace(one, override=_override(one, overrides or {})) for one in explained)


def _override(explanation: KeyExplanation, overrides: Mapping[Entity, Override]) -> Override | None:
    """Overrides are about byte rates only."""
    applies = explanation.applies
    return (
        overrides.get(applies.entity)
        if applies is not None and explanation.key in BYTE_RATE_KEYS
        else None
    )


def _explain_key(
    quotas: Mapping[Entity, StoredQuota],
    subject: Subject,
    reports: Mapping[Entity, MemberReport],
    *,
    key: QuotaKey,
) -> KeyExplanation:
    applies = applicable(quotas, subject.user, subject.client_id, key=key)
    missing = tuple(_missing(quotas, subject, reports, applies, key=key))
    if applies is None:
        return KeyExplanation(key, None, None, None, (), missing)
    ours = tuple(hidden for hidden in applies.shadows if author_of(quotas, hidden.entity, key))
    author, report = author_of(quotas, applies.entity, key), reports.get(applies.entity)
    return KeyExplanation(key, applies, author, report, ours, missing)


def _missing(
    quotas: Mapping[Entity, StoredQuota],
    subject: Subject,
    reports: Mapping[Entity, MemberReport],
    applies: Applicable | None,
    *,
    key: QuotaKey,
) -> Iterator[Missing]:
    """What the ledger or a contract has at a level above the one that decides."""
    for level, entity in candidates(subject.user, subject.client_id):
        if applies is not None and level >= applies.level:
            return
        stored = quotas.get(entity)
        if stored is not None and stored.problem is not None:
            continue
        author, report = author_of(quotas, entity, key), reports.get(entity)
        if author is not None and author.entry.written is not None:
            yield Missing(level, entity, author, report)
        elif author is None and report is not None and key in report.target:
            yield Missing(level, entity, None, report)


def author_of(quotas: Mapping[Entity, StoredQuota], entity: Entity, key: QuotaKey) -> Author | None:
    """The writer of this value by the ledger; None = it has no entry, so it was not Tidegate."""
    stored = quotas.get(entity)
    record = stored.ledger if stored else None
    entry = record.entries.get(key) if record else None
    if stored is None or record is None or entry is None or is_restored(entry):
        return None
    still_ours = same_quota(stored.values.get(key), entry.written)
    return Author(record, entry, still_ours, stored.notified)


def unreadable(quotas: Mapping[Entity, StoredQuota], subject: Subject) -> tuple[StoredQuota, ...]:
    """Those of the eight entities whose znode is unreadable; with any, the answer may be wrong."""
    found = (quotas.get(entity) for _, entity in candidates(subject.user, subject.client_id))
    return tuple(stored for stored in found if stored is not None and stored.problem is not None)


def nothing_is_metered(quotas: Mapping[Entity, StoredQuota]) -> bool:
    """Whether the cluster has no client quota at all. Brokers then do not measure any client."""
    return not any(stored.values or stored.problem for stored in quotas.values())


# An explanation as plain data for programs, for `--output json` and `yaml`. Values are exact texts
# as Kafka holds them, totals are integers in bytes per second, and an absent field is unknown.


def explain_document(answer: Explained, now_seconds: float) -> Document:
    """`keys` has all four quota keys; one without `level` is unlimited."""
    return {
        "user": answer.subject.user,
        "clientId": answer.subject.client_id,
        "brokers": answer.brokers,
        "keys": {
            one.key.value: _key(one, answer.brokers, answer.outlook, now_seconds)
            for one in answer.keys
        },
        "warnings": list(answer.warnings),
    }


def _key(
    explanation: KeyExplanation, brokers: int | None, outlook: Outlook, now_seconds: float
) -> Document:
    applies = explanation.applies
    missing = [_missing_document(explanation.key, one, outlook) for one in explanation.missing]
    absent: dict[str, object] = {"missing": missing} if missing else {}
    if applies is None:
        return {"limited": False, **absent}
    document: dict[str, object] = {
        "limited": True,
        **absent,
        "level": applies.level.value,
        "entity": entity_document(applies.entity),
        "value": applies.text,
        "bucket": entity_document(applies.bucket),
        "setByTidegate": explanation.author is not None and explanation.author.still_ours,
        "shadows": [
            {
                "level": hidden.level.value,
                "entity": entity_document(hidden.entity),
                "value": hidden.text,
                "setByTidegate": hidden in explanation.shadowed_ours,
            }
            for hidden in applies.shadows
        ],
    }
    if explanation.key in BYTE_RATE_KEYS:
        document["totalOverBrokers"] = explanation.total_over(brokers)
    if explanation.author:
        document["ledger"] = _ledger(explanation.author)
        if not explanation.author.still_ours:
            document["leftAloneUntil"] = outlook.left_alone_until.get(applies.entity)
        if (restored_at := outlook.restored_at.get(applies.entity)) is not None:
            document["restoredAt"] = rfc3339(ceil(restored_at))
    if explanation.report:
        document["member"] = _member(explanation.key, explanation.report)
    if explanation.override:
        document["override"] = _override_document(
            explanation.key, explanation.override, now_seconds
        )
    return document


def _missing_document(key: QuotaKey, one: Missing, outlook: Outlook) -> Document:
    report = one.report
    return {
        "level": one.level.value,
        "entity": entity_document(one.entity),
        "ledger": None if one.author is None else _ledger(one.author),
        "member": None if report is None else _member(key, report),
        "leftAloneUntil": outlook.left_alone_until.get(one.entity),
    }


def _override_document(key: QuotaKey, override: Override, now_seconds: float) -> Document:
    return {
        "name": override.key,
        "target": override.target,
        "sets": override.sets(key),
        "until": rfc3339(override.until_seconds(now_seconds)),
        "reason": override.reason,
    }


def _ledger(author: Author) -> Document:
    entry = author.entry
    return {
        "policy": author.record.policy_key,
        "written": entry.written,
        "writtenAtSeconds": round(entry.written_at_seconds, 3),
        "before": entry.before,
        "reason": entry.reason.value,
        "throttleOfContract": entry.of_contract,
    }


def _member(key: QuotaKey, report: MemberReport) -> Document:
    return {
        "tier": report.tier_key,
        "member": report.member_name,
        "level": report.level.value,
        "state": report.state.value,
        "message": report.message,
        "target": report.target.get(key),
        "leaders": report.leaders,
        "leadingBrokers": report.leading_brokers,
        "leaderSkew": None if report.leader_skew is None else round(report.leader_skew, 3),
        **(fetch_fields(report) if key is QuotaKey.CONSUMER_BYTE_RATE else {}),
        "promisedTotal": report.contract_total.get(key),
        "permittedTotal": report.permitted_total.get(key),
    }
