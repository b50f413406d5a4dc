"""`tidegate explain`: the quota a client really gets: its level, author, cause, what it shadows."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated

import typer

from tidegate.commands import options
from tidegate.commands.context import CommandContext
from tidegate.commands.explanation import (
    Author,
    Explained,
    KeyExplanation,
    Outlook,
    Subject,
    explain_client,
    explain_document,
    nothing_is_metered,
    unreadable,
)
from tidegate.commands.inputs import (
    PolicySource,
    find_policy,
    observed,
    opened_cluster,
    opened_store,
)
from tidegate.commands.options import AccessOptions, CommandOptions
from tidegate.commands.output import Document, OutputFormat, Page, publish
from tidegate.kafka.ledger import LEDGER_RECORD
from tidegate.kafka.zookeeper.nodes import LEDGER_ROOT
from tidegate_logic.contracts.budgets import BudgetReport
from tidegate_logic.contracts.desired import AT_CONTRACT, MemberReport, MemberState
from tidegate_logic.contracts.targets import fetch_words
from tidegate_logic.decide import decide
from tidegate_logic.decision import Decision
from tidegate_logic.model import (
    BYTE_RATE_KEYS,
    KEY_OF,
    Default,
    Entity,
    Mode,
    Override,
    QuotaKey,
    StoredQuota,
)
from tidegate_logic.quota_values import KEY_WORDS, enforced_rate, quota_words, short_words
from tidegate_logic.quotas.contention import resync_command
from tidegate_logic.quotas.precedence import Applicable, PrecedenceLevel
from tidegate_logic.quotas.strimzi import removal_words
from tidegate_logic.words import ago_words, rate_of_words, rate_words, rfc3339, size_words

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


def show_explanation(page: Page, answer: Explained, now_seconds: float) -> None:
    """Print the answer: warnings, each key that is or should be limited, a line for the others."""
    subject, outlook = answer.subject, answer.outlook
    client = f"client id {subject.client_id}" if subject.client_id else "no client id"
    page.say(f"User {subject.user}, {client}", "bold")
    for warning in answer.warnings:
        page.warn(warning)
    for explanation in answer.keys:
        if explanation.applies:
            _show_key(page, explanation, explanation.applies, answer, now_seconds)
        elif explanation.missing:
            page.heading(f"{KEY_WORDS[explanation.key]}: unlimited now, but it should not be")
            for sentence in _missing_sentences(explanation, outlook, now_seconds):
                page.say(f"  {sentence}")
    unlimited = [
        KEY_WORDS[explanation.key]
        for explanation in answer.keys
        if explanation.applies is None and not explanation.missing
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
    answer: Explained,
    now_seconds: float,
) -> None:
    outlook = answer.outlook
    page.heading(
        f"{KEY_WORDS[explanation.key]}: {quota_words(explanation.key, applies.text)} on each broker"
    )
    sentences = [
        (
            f"Decided at level {applies.level.value} of 8, {LEVEL_WORDS[applies.level]} "
            f"({applies.entity})."
        ),
        _bucket_sentence(applies.bucket),
        *_author_sentences(explanation, applies, outlook, now_seconds),
        *_override_sentences(explanation, now_seconds),
        *_total_sentences(explanation, applies, answer.brokers),
        *_shadow_sentences(explanation, applies),
        *_missing_sentences(explanation, outlook, now_seconds),
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
        return f"All connections {client} to one broker share it, regardless of the user."
    return f"All connections of user {bucket.user} {client} to one broker share it."


def _author_sentences(
    explanation: KeyExplanation, applies: Applicable, outlook: Outlook, now_seconds: float
) -> Iterator[str]:
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
        yield from _contract_sentences(explanation.key, report)
        yield _outlook_sentence(applies.entity, author.record.policy_key, outlook, now_seconds)
        return
    member = (
        f", tier {report.tier_key} ({report.level.value}), member {report.member_name}"
        if report
        else ""
    )
    yield f"Set by Tidegate {_age(author, now_seconds)}: policy {author.record.policy_key}{member}."
    if not author.notified:
        yield (
            "Brokers may not know it: another tool wrote it again, or an earlier version of "
            "Tidegate recorded it, and ZooKeeper does not say whether brokers were notified. The "
            "operator notifies them, of 20 such quotas a minute at most."
        )
    yield f"Why: {author.entry.reason.value}. {author.entry.reason.meaning}"
    yield from _throttle_sentences(author, report)
    yield f"Before Tidegate it was {quota_words(explanation.key, author.entry.before)}."
    restored_at = outlook.restored_at.get(applies.entity)
    if restored_at is not None:
        yield (
            f"No member names it any more: that is restored in "
            f"{max(0.0, restored_at - now_seconds):.0f} s, unless a member names it again."
        )


def _missing_sentences(
    explanation: KeyExplanation, outlook: Outlook, now_seconds: float
) -> Iterator[str]:
    """Who removed what, what the contract is, and when it stands again."""
    key = explanation.key
    for one in explanation.missing:
        where = f"level {one.level.value}, {LEVEL_WORDS[one.level]} ({one.entity})"
        if one.author is None:
            yield f"There is no quota at {where}, although a contract covers it."
        else:
            yield (
                f"Someone removed the quota at {where}: Tidegate wrote "
                f"{quota_words(key, one.author.entry.written)} {_age(one.author, now_seconds)} for "
                f"policy {one.author.record.policy_key}. Kafka does not record who."
            )
        yield from _contract_sentences(key, one.report)
        policy = None if one.author is None else one.author.record.policy_key
        yield _outlook_sentence(one.entity, policy, outlook, now_seconds)


def _contract_sentences(key: QuotaKey, report: MemberReport | None) -> Iterator[str]:
    target = None if report is None else report.target.get(key)
    if report is not None and target is not None:
        yield (
            f"Its contract is {quota_words(key, str(target))} on each broker: tier "
            f"{report.tier_key} ({report.level.value}), member {report.member_name}."
        )


def _outlook_sentence(
    entity: Entity, policy_key: str | None, outlook: Outlook, now_seconds: float
) -> str:
    """When the operator writes it again, as far as is known here."""
    from tidegate.resources.fields import parse_moment

    policy = outlook.policy_key or policy_key
    if outlook.policy_key is None:
        return f"Whether and when the operator writes it again: add --policy {policy}."
    if entity not in outlook.managed:
        return "The policy does not name it any more, so the operator only forgets about it."
    until = outlook.left_alone_until.get(entity)
    if until is not None and parse_moment(until) > now_seconds:
        return (
            f"The operator leaves it alone until {until}, because it is changed again and again, "
            f"and then writes it once more. To end that at once: "
            f"{resync_command(policy or '', entity)}"
        )
    if outlook.held:
        return f"The operator does not write it now: {outlook.held}"
    if outlook.asked:
        return "The operator writes it again with its next pass."
    return (
        "The operator writes it again with its next pass, unless it leaves it alone, because it is "
        "changed again and again: the tier's status in Kubernetes says so."
    )


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


def _override_sentences(explanation: KeyExplanation, now_seconds: float) -> Iterator[str]:
    override = explanation.override
    if override is None:
        return
    does = (
        "replaces the contract"
        if override.sets(explanation.key)
        else "leaves the contract as it is"
    )
    until = rfc3339(override.until_seconds(now_seconds))
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
        f"brokers{skew}{_fetch_words(explanation, report)}{promise}"
    )
    target = short_words(explanation.key, report.target.get(explanation.key))
    return f"{where}, and the target of {target} each permits {permitted}."


def _fetch_words(explanation: KeyExplanation, report: MemberReport) -> str:
    fetch = report.fetch
    if explanation.key is not QuotaKey.CONSUMER_BYTE_RATE or fetch is None:
        return ""
    skew = "" if fetch.skew is None else f" (skew {fetch.skew:.2f})"
    basis = fetch.fetch_basis
    return "" if basis is None else f"; {fetch_words(basis, fetch.serving)}{skew}"


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
    if report and report.state not in AT_CONTRACT:
        yield f"Now {report.state.value}: {report.message}"


ANONYMOUS = "ANONYMOUS"  # what Kafka calls every client that did not log in


@dataclass(frozen=True, slots=True)
class Known:
    """A cluster's quotas and number of live brokers; with a policy also what it decides.

    `removed_by_strimzi` says what to set for a quota that is gone, `fetch_notes` what matters for a
    fetch contract that leaders scale. `budgets` are those that limit a member now.
    """

    quotas: Mapping[Entity, StoredQuota]
    brokers: int | None
    reports: tuple[MemberReport, ...] = ()
    warnings: tuple[str, ...] = field(default=())
    overrides: Mapping[Entity, Override] = field(default_factory=dict)
    outlook: Outlook = field(default_factory=Outlook)
    removed_by_strimzi: Mapping[Entity, str] = field(default_factory=dict)
    fetch_notes: tuple[str, ...] = ()
    budgets: tuple[BudgetReport, ...] = ()


@options.command
def explain(
    around: CommandContext,
    *,
    user: Annotated[
        str,
        typer.Option(
            "--user",
            "-u",
            help="Principal name without 'User:'; clients that do not log in are ANONYMOUS.",
        ),
    ] = ANONYMOUS,
    client_id: Annotated[
        str,
        typer.Option("--client-id", "-c", help="Client id as the client sends it. Unset: none."),
    ] = "",
    asked: CommandOptions,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Explain which quota applies to a client.

    Shows for each key the level, the value, who set it and why, what it shadows, and the total over
    all brokers.

    With only --zookeeper, or --bootstrap-servers and --ledger-topic, nothing else is read, and the
    ledger names the writer of a value. With a policy (--file, or Kubernetes), the answer also has
    tiers, totals over the brokers that lead, and what happens next. Nothing is written.
    """
    known = (
        _from_cluster(around, asked.access)
        if asked.names_no_policy
        else _of_policy(around, find_policy(around, asked.policy), asked.access)
    )
    answer = _answer(known, Subject(user, client_id))
    publish(
        around.out,
        output,
        explain_document(answer, around.now_seconds()),
        show=lambda page: show_explanation(page, answer, around.now_seconds()),
    )


def _answer(known: Known, subject: Subject) -> Explained:
    keys = explain_client(known.quotas, subject, known.reports, known.overrides)
    warnings = (
        *known.warnings,
        *_left_out(known.reports, subject),
        *(words for one, words in known.removed_by_strimzi.items() if one.user == subject.user),
        *_budget_sentences(known.budgets, keys),
        *(known.fetch_notes if _fetch_is_scaled(keys) else ()),
        *_general_warnings(known.quotas, subject),
    )
    return Explained(subject, keys, known.brokers, warnings, known.outlook)


def _from_cluster(around: CommandContext, access: AccessOptions) -> Known:
    with opened_store(around, access) as store:
        return Known(store.read_everything(), store.live_brokers())


def explained(
    around: CommandContext, source: PolicySource, access: AccessOptions, user: str, client_id: str
) -> Document:
    """The document of `tidegate explain` for one client of a policy, read now."""
    known = _of_policy(around, source, access)
    return explain_document(_answer(known, Subject(user, client_id)), around.now_seconds())


def _of_policy(around: CommandContext, source: PolicySource, access: AccessOptions) -> Known:
    from tidegate.observe.broker_settings import follower_reads_notes

    with opened_cluster(around, source, access) as cluster:
        seen = observed(around, source, cluster)
        observation = seen.observation
        memory = source.memory(observation.quotas or (), observation.now_seconds)
        decision, _ = decide(observation, memory)
        warnings = (
            *(f"{hold.reason.value}: {hold.message}" for hold in decision.holds),
            *source.remarks(),
            *(warning.message for warning in seen.warnings),
            *_replication_words(source),
        )
        outlook = _outlook(source, decision)
        brokers = len(seen.observation.topology.brokers) if seen.observation.topology else None
        return Known(
            cluster.store.read_everything(),
            brokers,
            decision.members,
            warnings,
            decision.overridden.applied,
            outlook,
            dict(_removed_by_strimzi(source, seen.observation.quotas or {}, outlook)),
            follower_reads_notes(seen.reads, observation.tiers, observation.policy),
            tuple(decision.budgets.values()),
        )


def _budget_sentences(
    budgets: Iterable[BudgetReport], keys: Iterable[KeyExplanation]
) -> Iterator[str]:
    """Which budget allows the client less than its contract."""
    members = {one.report.entity for one in keys if one.report is not None}
    for budget in budgets:
        for member in budget.members:
            for way in sorted(member.short) if member.member.entity in members else ():
                total = budget.budget.totals.get(KEY_OF[way])
                yield (
                    f"Its {KEY_WORDS[KEY_OF[way]]} is limited by budget {budget.budget.key}: "
                    f"{rate_of_words(member.limits[way], total)} over all brokers, by what its "
                    "members use. That replaces the contract while it is lower."
                )


def _fetch_is_scaled(keys: Iterable[KeyExplanation]) -> bool:
    """Whether the client has a fetch contract that leaders scale."""
    fetch = QuotaKey.CONSUMER_BYTE_RATE
    return any(
        one.key is fetch and one.report is not None and fetch in one.report.permitted_total
        for one in keys
    )


def _replication_words(source: PolicySource) -> Iterator[str]:
    """What replication does beside the client, as the operator last wrote it to the status.

    No quota counts it, and it shares the NICs with every client.
    """
    replication = source.declared.spec.replication
    known = source.status.get("replication") or {}
    if replication is None:
        return
    for name, words, terms in (
        ("moving", "being reassigned", replication.reassignments),
        ("recovering", "catching up", replication.recovery),
    ):
        figures = known.get(name)
        if not figures:
            continue
        left = figures.get("bytesLeft")
        size = "" if left is None else f", {size_words(left)} left"
        seconds = figures.get("etaSeconds")
        end = "" if seconds is None else f", about {seconds} s by {figures.get('bottleneck')}"
        mode = "Off" if terms is None else terms.mode
        how = {
            "Follow": "Their rate follows what clients leave of the limit",
            "Fixed": "Their rate is fixed",
            "Off": "Nothing of Tidegate throttles them",
        }[mode]
        yield (
            f"Replication shares the NICs with this client, outside of every quota: partitions "
            f"{words}: {figures.get('partitions')}{size}{end}. {how}; "
            "`tidegate reassignments` shows each of them."
        )


def _removed_by_strimzi(
    source: PolicySource, quotas: Mapping[Entity, StoredQuota], outlook: Outlook
) -> Iterator[tuple[Entity, str]]:
    """What to set for quotas that are gone and left alone, where the cluster is Strimzi's."""
    strimzi = source.declared.strimzi
    if strimzi is None:
        return
    for entity in outlook.left_alone_until:
        if entity in quotas and not quotas[entity].values:
            words = removal_words(strimzi, entity)
            if words:
                yield entity, f"{words}."


_NO_PART = (MemberState.NOT_ALLOWED, MemberState.OWNED_BY_STRIMZI)


def _left_out(reports: Iterable[MemberReport], subject: Subject) -> Iterator[str]:
    """Why members that would be this client's have no part in the answer, or no fetch quota."""
    for report in reports:
        user, client_id = report.entity.user or subject.user, report.entity.client_id
        is_subject = (user, client_id or subject.client_id) == (subject.user, subject.client_id)
        if is_subject and (report.state in _NO_PART or report.member.protected):
            yield f"{report.tier_key}, member {report.member_name}: {report.message}."


def _outlook(source: PolicySource, decision: Decision) -> Outlook:
    """What the policy and the statuses of its tiers say of quotas that another writer changed."""
    policy = source.declared.policy
    until = {
        (tier, member["name"]): member["contendedUntil"]
        for tier, status in source.tier_statuses.items()
        for member in status.get("members") or ()
        if member.get("contendedUntil")
    }
    held = decision.holds[0].message if decision.holds else ""
    if not held and policy.mode is Mode.OBSERVE:
        held = "mode is Observe, so nothing is written."
    alone = {
        report.entity: until[report.tier_key, report.member_name]
        for report in decision.members
        if (report.tier_key, report.member_name) in until
    }
    refused = {report.entity for report in decision.members if not report.counts}
    counting = {report.entity for report in decision.members if report.counts}
    managed = source.declared.entities - (refused - counting)
    asked = source.kubernetes is not None
    return Outlook(policy.key, asked, held, alone, managed, decision.leaving)


def _general_warnings(quotas: Mapping[Entity, StoredQuota], subject: Subject) -> Iterator[str]:
    for stored in unreadable(quotas, subject):
        if (stored.problem or "").startswith((LEDGER_ROOT, LEDGER_RECORD)):
            yield (
                f"Tidegate's own record of {stored.entity} cannot be read, so its quota is not in "
                f"the answer below, although brokers enforce it: {stored.problem}"
            )
            continue
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
