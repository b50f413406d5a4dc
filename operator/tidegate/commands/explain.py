"""`tidegate explain`: the quota a client really gets: its level, author, cause, what it shadows."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import typer

from controller_logic.contracts.desired import MemberReport, MemberState
from controller_logic.decide import decide
from controller_logic.decision import Memory
from controller_logic.model import (
    BYTE_RATE_KEYS,
    Default,
    Entity,
    LedgerEntry,
    LedgerRecord,
    Override,
    QuotaKey,
    StoredQuota,
)
from controller_logic.quota_values import (
    KEY_WORDS,
    enforced_rate,
    quota_words,
    rate_words,
    same_quota,
)
from controller_logic.quotas.precedence import (
    Applicable,
    PrecedenceLevel,
    Shadowed,
    applicable,
    candidates,
)
from tidegate.commands import options
from tidegate.commands.context import CommandContext, command_context
from tidegate.commands.inputs import (
    AccessOptions,
    find_policy,
    live_brokers,
    observed,
    opened_cluster,
    opened_tree,
)
from tidegate.commands.options import CommandOptions, takes_policy_and_cluster
from tidegate.commands.output import (
    KEY_ORDER,
    Document,
    OutputFormat,
    Page,
    ago_words,
    publish,
    short_words,
)
from tidegate.commands.plan import entity_document
from tidegate.control.report.status import rfc3339
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore

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

    `still_ours` is false where another writer changed the value after Tidegate wrote it.
    """

    record: LedgerRecord
    entry: LedgerEntry
    still_ours: bool


@dataclass(frozen=True, slots=True)
class KeyExplanation:
    """One quota key of one client. `applies` None = no level has the key: Kafka does not limit it.

    `author` None = not set by Tidegate. `report` is the decision's report on the member that has
    this entity; None where no policy is known or no member has the entity. `shadowed_ours` are
    weaker values of Tidegate's without effect for this client. `override` is the one that applies
    to the member's contract.
    """

    key: QuotaKey
    applies: Applicable | None
    author: Author | None
    report: MemberReport | None
    shadowed_ours: tuple[Shadowed, ...]
    override: Override | None = None

    def total_over(self, brokers: int | None) -> int | None:
        """The limit of one bucket over all brokers; None = unknown or unlimited.

        It is in bytes per second or the key's own unit.
        """
        value = enforced_rate(self.applies.text) if self.applies else None
        return value * brokers if value is not None and brokers else None


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
    if applies is None:
        return KeyExplanation(key, None, None, None, ())
    ours = tuple(hidden for hidden in applies.shadows if author_of(quotas, hidden.entity, key))
    return KeyExplanation(
        key, applies, author_of(quotas, applies.entity, key), reports.get(applies.entity), ours
    )


def author_of(quotas: Mapping[Entity, StoredQuota], entity: Entity, key: QuotaKey) -> Author | None:
    """The writer of this value by the ledger; None = it has no entry, so it was not Tidegate."""
    stored = quotas.get(entity)
    record = stored.ledger if stored else None
    entry = record.entries.get(key) if record else None
    if stored is None or record is None or entry is None:
        return None
    return Author(record, entry, same_quota(stored.values.get(key), entry.written))


def unreadable(quotas: Mapping[Entity, StoredQuota], subject: Subject) -> tuple[StoredQuota, ...]:
    """Those of the eight entities whose znode is unreadable; with any, the answer may be wrong."""
    found = (quotas.get(entity) for _, entity in candidates(subject.user, subject.client_id))
    return tuple(stored for stored in found if stored is not None and stored.problem is not None)


def nothing_is_metered(quotas: Mapping[Entity, StoredQuota]) -> bool:
    """Whether the cluster has no client quota at all. Brokers then do not measure any client."""
    return not any(stored.values for stored in quotas.values())


# An explanation as sentences for somebody who was just woken up: the limit, who set it and why, and
# what it shadows.
#
# One short paragraph for each quota key, the most important sentence first.


LEVEL_WORDS = {
    PrecedenceLevel.USER_AND_CLIENT: "this user with this client id",
    PrecedenceLevel.USER_AND_DEFAULT_CLIENT: "this user with any client id",
    PrecedenceLevel.USER: "this user",
    PrecedenceLevel.DEFAULT_USER_AND_CLIENT: "any user with this client id",
    PrecedenceLevel.DEFAULT_USER_AND_DEFAULT_CLIENT: "any user with any client id",
    PrecedenceLevel.DEFAULT_USER: "any user",
    PrecedenceLevel.CLIENT: "this client id",
    PrecedenceLevel.DEFAULT_CLIENT: "any client id",
}


def show_explanation(
    page: Page,
    subject: Subject,
    explanations: Sequence[KeyExplanation],
    *,
    brokers: int | None,
    warnings: Sequence[str],
    now_seconds: float,
) -> None:
    """Print the answer: warnings, each key that is limited, and one line for those that are not."""
    client = f"client id {subject.client_id}" if subject.client_id else "no client id"
    page.say(f"User {subject.user}, {client}", "bold")
    for warning in warnings:
        page.warn(warning)
    for explanation in explanations:
        if explanation.applies:
            _show_key(
                page, explanation, explanation.applies, brokers=brokers, now_seconds=now_seconds
            )
    unlimited = [
        KEY_WORDS[explanation.key] for explanation in explanations if explanation.applies is None
    ]
    if unlimited:
        page.say()
        page.say(
            f"Unlimited, because none of Kafka's eight levels has a value: {', '.join(unlimited)}."
        )


def _show_key(
    page: Page,
    explanation: KeyExplanation,
    applies: Applicable,
    *,
    brokers: int | None,
    now_seconds: float,
) -> None:
    page.heading(
        f"{KEY_WORDS[explanation.key]}: {quota_words(explanation.key, applies.text)} on each broker"
    )
    sentences = [
        (
            f"Decided at level {applies.level.value} of 8, {LEVEL_WORDS[applies.level]} "
            f"({applies.entity})."
        ),
        _bucket_sentence(applies.bucket),
        *_author_sentences(explanation, now_seconds),
        *_override_sentences(explanation),
        *_total_sentences(explanation, applies, brokers),
        *_shadow_sentences(explanation, applies),
        *_next_sentences(explanation.report),
    ]
    for sentence in sentences:
        page.say(f"  {sentence}")


def _bucket_sentence(bucket: Entity) -> str:
    if bucket.client_id is None:
        return (
            f"All connections of user {bucket.user} to one broker share it, whatever their "
            f"client id."
        )
    client = (
        "without a client id"
        if isinstance(bucket.client_id, Default)
        else f"with client id {bucket.client_id}"
    )
    if bucket.user is None:
        return f"All connections {client} to one broker share it, whoever the user."
    return f"All connections of user {bucket.user} {client} to one broker share it."


def _author_sentences(explanation: KeyExplanation, now_seconds: float) -> Iterator[str]:
    author, report = explanation.author, explanation.report
    if author is None:
        yield "Not set by Tidegate: the ledger has no record of it."
        return
    if not author.still_ours:
        yield (
            "Another writer changed it: Tidegate wrote "
            f"{quota_words(explanation.key, author.entry.written)} {_age(author, now_seconds)} "
            f"for policy {author.record.policy_key}."
        )
        return
    member = (
        f", tier {report.tier_key} ({report.level.value}), member {report.member_name}"
        if report
        else ""
    )
    yield f"Set by Tidegate {_age(author, now_seconds)}: policy {author.record.policy_key}{member}."
    yield f"Why: {author.entry.reason.value}. {author.entry.reason.meaning}"
    yield from _throttle_sentences(author, report)
    yield f"Before Tidegate it was {quota_words(explanation.key, author.entry.before)}."


def _throttle_sentences(author: Author, report: MemberReport | None) -> Iterator[str]:
    """How far the value is below the contract, and where to see why."""
    written, contract = enforced_rate(author.entry.written), author.entry.of_contract
    if contract is None or written is None:
        return
    policy = author.record.policy_key
    level = f" of level {report.level.value}" if report else ""
    yield (
        f"It is throttled to {100 * written / contract:.0f} % of its contract, "
        f"{rate_words(contract)} ({contract} B/s) on each broker."
    )
    yield (
        f"Which broker's load that is for: `tidegate top --policy {policy}`; what was "
        f"done{level}: `tidegate audit`."
    )


def _override_sentences(explanation: KeyExplanation) -> Iterator[str]:
    override = explanation.override
    if override is None:
        return
    does = (
        "replaces the contract"
        if override.sets(explanation.key)
        else "leaves the contract as it is"
    )
    until = rfc3339(override.expires_at_seconds)
    yield (
        f"Override {override.key}, for {override.target}, {does} and forbids throttling until "
        f"{until}: {override.reason}"
    )


def _age(author: Author, now_seconds: float) -> str:
    return ago_words(now_seconds - author.entry.written_at_seconds)


def _total_sentences(
    explanation: KeyExplanation, applies: Applicable, brokers: int | None
) -> Iterator[str]:
    if explanation.key not in BYTE_RATE_KEYS:
        return
    if enforced_rate(applies.text) is None:
        yield "Kafka accepts this value, but it limits nothing."
        return
    report, total = explanation.report, explanation.total_over(brokers)
    if report and explanation.key in report.permitted_total:
        yield _scaled_sentence(explanation, report)
    if brokers == 0:
        yield (
            "Every broker counts for itself. No broker is registered in ZooKeeper now, so "
            "there is no total to show."
        )
    elif total is None:
        yield (
            "Every broker counts for itself, so the total is this value times the brokers that "
            "the client reaches."
        )
    else:
        yield (
            f"Every broker counts for itself: up to {short_words(explanation.key, total)} over "
            f"{_brokers(brokers)}."
        )


def _brokers(count: int | None) -> str:
    return "the only broker" if count == 1 else f"all {count} brokers"


def _scaled_sentence(explanation: KeyExplanation, report: MemberReport) -> str:
    permitted = short_words(explanation.key, report.permitted_total[explanation.key])
    skew = "" if report.leader_skew is None else f" (leader skew {report.leader_skew:.2f})"
    promised = report.contract_total.get(explanation.key)
    promise = (
        ""
        if promised is None
        else f"; {short_words(explanation.key, promised)} are promised over all of them"
    )
    where = (
        f"Its topics have {report.leaders} leaders on {report.leading_brokers} "
        f"brokers{skew}{promise}"
    )
    target = short_words(explanation.key, report.target.get(explanation.key))
    return f"{where}, and the target of {target} each permits {permitted}."


def _shadow_sentences(explanation: KeyExplanation, applies: Applicable) -> Iterator[str]:
    for hidden in applies.shadows:
        ours = (
            "set by Tidegate, without effect for this client"
            if hidden in explanation.shadowed_ours
            else "not by Tidegate"
        )
        value = quota_words(explanation.key, hidden.text)
        yield (
            f"Shadows level {hidden.level.value}, {LEVEL_WORDS[hidden.level]} "
            f"({hidden.entity}): {value}, {ours}."
        )


def _next_sentences(report: MemberReport | None) -> Iterator[str]:
    if report and report.state not in (MemberState.CONTRACT, MemberState.UNLIMITED):
        yield f"Now {report.state.value}: {report.message}"


# An explanation as plain data for programs, for `--output json` and `yaml`. Values are exact texts
# as Kafka holds them, totals are integers in bytes per second, and an absent field is unknown.


def explain_document(
    subject: Subject,
    explanations: Sequence[KeyExplanation],
    *,
    brokers: int | None,
    warnings: Sequence[str],
) -> Document:
    """`keys` has all four quota keys; one without `level` is unlimited."""
    return {
        "user": subject.user,
        "clientId": subject.client_id,
        "brokers": brokers,
        "keys": {explanation.key.value: _key(explanation, brokers) for explanation in explanations},
        "warnings": list(warnings),
    }


def _key(explanation: KeyExplanation, brokers: int | None) -> Document:
    applies = explanation.applies
    if applies is None:
        return {"limited": False}
    document: dict[str, object] = {
        "limited": True,
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
    if explanation.report:
        document["member"] = _member(explanation, explanation.report)
    if explanation.override:
        document["override"] = _override_document(explanation.key, explanation.override)
    return document


def _override_document(key: QuotaKey, override: Override) -> Document:
    return {
        "name": override.key,
        "target": override.target,
        "sets": override.sets(key),
        "until": rfc3339(override.expires_at_seconds),
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


def _member(explanation: KeyExplanation, report: MemberReport) -> Document:
    return {
        "tier": report.tier_key,
        "member": report.member_name,
        "level": report.level.value,
        "state": report.state.value,
        "message": report.message,
        "target": report.target.get(explanation.key),
        "leaders": report.leaders,
        "leadingBrokers": report.leading_brokers,
        "leaderSkew": None if report.leader_skew is None else round(report.leader_skew, 3),
        "promisedTotal": report.contract_total.get(explanation.key),
        "permittedTotal": report.permitted_total.get(explanation.key),
    }


ANONYMOUS = "ANONYMOUS"  # what Kafka calls every client that did not log in


@dataclass(frozen=True, slots=True)
class Known:
    """A cluster's quotas and number of live brokers; with a policy also what it decides."""

    quotas: Mapping[Entity, StoredQuota]
    brokers: int | None
    reports: tuple[MemberReport, ...] = ()
    warnings: tuple[str, ...] = field(default=())
    overrides: Mapping[Entity, Override] = field(default_factory=dict)


@takes_policy_and_cluster
def explain(
    context: typer.Context,
    *,
    user: Annotated[
        str,
        typer.Option(
            "--user",
            "-u",
            help="Principal name without 'User:'; clients without a login are ANONYMOUS.",
        ),
    ] = ANONYMOUS,
    client_id: Annotated[
        str,
        typer.Option(
            "--client-id", "-c", help="Client id as the client sends it; leave out for none."
        ),
    ] = "",
    asked: CommandOptions,
    output: options.Output = OutputFormat.TABLE,
    debug: options.Debug = False,
) -> None:
    """Say which quota applies to a client, key by key: level, value, who set it and why, what it
    shadows, and the total over all brokers.

    With --zookeeper alone nothing else is read, and the ledger names the writer of a value. With a
    policy (--file, or Kubernetes) the answer also has tiers, totals over the brokers that lead, and
    what happens next. Nothing is written.
    """
    around = command_context(context, debug=debug)
    known = (
        _from_zookeeper(around, asked.access)
        if asked.names_no_policy
        else _from_policy(around, asked)
    )
    _answer(around, Subject(user, client_id), known, output=output)


def _answer(
    around: CommandContext, subject: Subject, known: Known, *, output: OutputFormat
) -> None:
    explanations = explain_client(known.quotas, subject, known.reports, known.overrides)
    warnings = (
        *known.warnings,
        *_not_allowed(known.reports, subject),
        *_general_warnings(known.quotas, subject),
    )

    def show(page: Page) -> None:
        now_seconds = around.now_seconds()
        show_explanation(
            page,
            subject,
            explanations,
            brokers=known.brokers,
            warnings=warnings,
            now_seconds=now_seconds,
        )

    publish(
        around.out,
        output,
        explain_document(subject, explanations, brokers=known.brokers, warnings=warnings),
        show=show,
    )


def _from_zookeeper(around: CommandContext, access: AccessOptions) -> Known:
    with opened_tree(around, None, access) as tree:
        return Known(ZooKeeperQuotaStore(tree).read_everything(), live_brokers(tree))


def _from_policy(around: CommandContext, asked: CommandOptions) -> Known:
    source = find_policy(around, asked.policy)
    with opened_cluster(around, source, asked.access) as cluster:
        seen = observed(around, source, cluster)
        decision, _ = decide(seen.observation, Memory())
        warnings = (
            *(f"{hold.reason.value}: {hold.message}" for hold in decision.holds),
            *source.remarks(),
            *(warning.message for warning in seen.warnings),
        )
        brokers = len(seen.observation.topology.brokers) if seen.observation.topology else None
        return Known(
            cluster.store.read_everything(),
            brokers,
            decision.members,
            warnings,
            decision.overridden.applied,
        )


def _not_allowed(reports: Iterable[MemberReport], subject: Subject) -> Iterator[str]:
    """Why members that would be this client's have no part in the answer."""
    for report in reports:
        user, client_id = report.entity.user or subject.user, report.entity.client_id
        is_subject = (user, client_id or subject.client_id) == (subject.user, subject.client_id)
        if report.state is MemberState.NOT_ALLOWED and is_subject:
            yield f"{report.tier_key}, member {report.member_name}: {report.message}."


def _general_warnings(quotas: Mapping[Entity, StoredQuota], subject: Subject) -> Iterator[str]:
    for stored in unreadable(quotas, subject):
        yield (
            f"The znode of {stored.entity} cannot be read safely ({stored.problem}). Brokers of "
            "different versions read it differently, so the answer below may be wrong. Repair it "
            "with Kafka's own kafka-configs."
        )
    if nothing_is_metered(quotas):
        yield (
            "No user or client id has a quota on this cluster, so its brokers do not measure "
            "any client: there are no rates per user."
        )
