"""An explanation as sentences for somebody who was just woken up: what the limit is, who set it and why, what hides behind it.

One short paragraph a quota key, the most important sentence first; every number comes from the explanation.
"""

from collections.abc import Iterator, Sequence

from controller_logic.decision import MemberReport, MemberState
from controller_logic.model import BYTE_RATE_KEYS, Default, Entity
from controller_logic.quotas.precedence import Applicable, PrecedenceLevel
from controller_logic.quotas.values import KEY_WORDS, enforced_rate, quota_words, rate_words
from tidegate.commands.explanation import Author, KeyExplanation, Subject
from tidegate.commands.output import Page
from tidegate.commands.quantity import ago_words, short_words
from tidegate.control.report.status import rfc3339

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
    """The whole answer: warnings first, then each key that is limited, then in one line those that are not."""
    client = f"client id {subject.client_id}" if subject.client_id else "no client id"
    page.say(f"User {subject.user}, {client}", "bold")
    for warning in warnings:
        page.warn(warning)
    for explanation in explanations:
        if explanation.applies:
            _show_key(page, explanation, explanation.applies, brokers=brokers, now_seconds=now_seconds)
    unlimited = [KEY_WORDS[explanation.key] for explanation in explanations if explanation.applies is None]
    if unlimited:
        page.say()
        page.say(f"Unlimited, because none of Kafka's eight levels has a value: {', '.join(unlimited)}.")


def _show_key(page: Page, explanation: KeyExplanation, applies: Applicable, *, brokers: int | None, now_seconds: float) -> None:
    page.heading(f"{KEY_WORDS[explanation.key]}: {quota_words(explanation.key, applies.text)} on each broker")
    sentences = [
        f"Decided at level {applies.level.value} of 8, {LEVEL_WORDS[applies.level]} ({applies.entity}).",
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
        return f"All connections of user {bucket.user} to one broker share it, whatever their client id."
    client = "without a client id" if isinstance(bucket.client_id, Default) else f"with client id {bucket.client_id}"
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
            f"Another writer changed it: Tidegate wrote {quota_words(explanation.key, author.entry.written)} "
            f"{_age(author, now_seconds)} for policy {author.record.policy_key}."
        )
        return
    member = f", tier {report.tier_key} ({report.level.value}), member {report.member_name}" if report else ""
    yield f"Set by Tidegate {_age(author, now_seconds)}: policy {author.record.policy_key}{member}."
    yield f"Why: {author.entry.reason.value}. {author.entry.reason.meaning}"
    yield from _throttle_sentences(author, report)
    yield f"Before Tidegate it was {quota_words(explanation.key, author.entry.before)}."


def _throttle_sentences(author: Author, report: MemberReport | None) -> Iterator[str]:
    """Of which contract it is a throttle, and where to see why."""
    written, contract = enforced_rate(author.entry.written), author.entry.of_contract
    if contract is None or written is None:
        return
    policy = author.record.policy_key
    level = f" of level {report.level.value}" if report else ""
    yield f"It is throttled to {100 * written / contract:.0f} % of its contract, {rate_words(contract)} ({contract} B/s) on each broker."
    yield f"Which broker's load that is for: `tidegate top --policy {policy}`; what was done{level}: `tidegate audit`."


def _override_sentences(explanation: KeyExplanation) -> Iterator[str]:
    override = explanation.override
    if override is None:
        return
    does = "stands in place of the contract" if override.sets(explanation.key) else "leaves the contract as it is"
    until = rfc3339(override.expires_at_seconds)
    yield f"Override {override.key}, for {override.target}, {does} and forbids throttling until {until}: {override.reason}"


def _age(author: Author, now_seconds: float) -> str:
    return ago_words(now_seconds - author.entry.written_at_seconds)


def _total_sentences(explanation: KeyExplanation, applies: Applicable, brokers: int | None) -> Iterator[str]:
    if explanation.key not in BYTE_RATE_KEYS:
        return
    if enforced_rate(applies.text) is None:
        yield "Kafka accepts this value, but it limits nothing."
        return
    report, total = explanation.report, explanation.total_over(brokers)
    if report and explanation.key in report.permitted_total:
        yield _scaled_sentence(explanation, report)
    if total is None:
        yield "Every broker counts for itself, so the total is this value times the brokers that the client reaches."
    else:
        yield f"Every broker counts for itself: up to {short_words(explanation.key, total)} over all {brokers} brokers."


def _scaled_sentence(explanation: KeyExplanation, report: MemberReport) -> str:
    permitted = short_words(explanation.key, report.permitted_total[explanation.key])
    skew = "" if report.leader_skew is None else f" (leader skew {report.leader_skew:.2f})"
    promised = report.contract_total.get(explanation.key)
    promise = "" if promised is None else f"; {short_words(explanation.key, promised)} are promised over all of them"
    where = f"Its topics have {report.leaders} leaders on {report.leading_brokers} brokers{skew}{promise}"
    target = short_words(explanation.key, report.target.get(explanation.key))
    return f"{where}, and the target of {target} each permits {permitted}."


def _shadow_sentences(explanation: KeyExplanation, applies: Applicable) -> Iterator[str]:
    for hidden in applies.shadows:
        ours = "set by Tidegate, without effect for this client" if hidden in explanation.shadowed_ours else "not by Tidegate"
        value = quota_words(explanation.key, hidden.text)
        yield f"Shadows level {hidden.level.value}, {LEVEL_WORDS[hidden.level]} ({hidden.entity}): {value}, {ours}."


def _next_sentences(report: MemberReport | None) -> Iterator[str]:
    if report and report.state not in (MemberState.CONTRACT, MemberState.UNLIMITED):
        yield f"Now {report.state.value}: {report.message}"
