"""An explanation as plain data for programs: what `tidegate explain --output json` and `yaml` print.

Values are exact texts as Kafka holds them; totals are integers in bytes per second; an absent field is unknown.
"""

from collections.abc import Sequence

from controller_logic.decision import MemberReport
from controller_logic.model import BYTE_RATE_KEYS, Override, QuotaKey
from tidegate.commands.explanation import Author, KeyExplanation, Subject
from tidegate.commands.output import Document
from tidegate.commands.plan_document import entity_document
from tidegate.control.report.status import rfc3339


def explain_document(subject: Subject, explanations: Sequence[KeyExplanation], *, brokers: int | None, warnings: Sequence[str]) -> Document:
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
        document["override"] = _override(explanation.key, explanation.override)
    return document


def _override(key: QuotaKey, override: Override) -> Document:
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
