"""A plan as plain data for programs: what `tidegate plan --output json` and `yaml` print.

Byte rates are integers in bytes per second, stored values are exact texts; an absent field is unknown or does not apply.
"""

from collections.abc import Mapping, Sequence

from controller_logic.decision import Decision, MemberReport, Note
from controller_logic.model import Advice, Default, Entity, Observation, QuotaKey
from tidegate.commands.output import Document
from tidegate.commands.plan_rows import PlanRow, plan_rows, planned_writes


def plan_document(observation: Observation, decision: Decision, *, warnings: Sequence[str] = ()) -> Document:
    """The whole plan. `changes` has a row a quota key that would be written, `members` one a member, changed or not."""
    rows = plan_rows(observation, decision)
    policy = observation.policy
    return {
        "policy": policy.key,
        "mode": policy.mode.value,
        "paused": policy.paused,
        "brokers": sorted(observation.topology.brokers) if observation.topology else None,
        "changes": [_change(row) for row in rows if row.changes],
        "members": [_member(report) for report in decision.members],
        "recommendations": [_recommendation(one) for said in decision.advice.values() for one in said],
        "holds": [{"reason": hold.reason.value, "message": hold.message} for hold in decision.holds],
        "notes": [_note(note) for note in decision.notes],
        "warnings": list(warnings),
        "summary": _summary(rows, decision),
    }


def entity_document(entity: Entity) -> Document:
    """`user` and `clientId`, each only if part of the entity; `defaults` names those that are Kafka's default entity."""
    parts = {"user": entity.user, "clientId": entity.client_id}
    document: dict[str, object] = {
        name: part.value if isinstance(part, Default) else part for name, part in parts.items() if part is not None
    }
    defaults = [name for name, part in parts.items() if isinstance(part, Default)]
    return {**document, "defaults": defaults} if defaults else document


def _change(row: PlanRow) -> Document:
    change: dict[str, object] = {"entity": entity_document(row.entity), "key": row.key.value}
    change |= {"inForce": row.in_force, "next": row.next, "target": row.target}
    if row.write:
        change |= {
            "kind": row.write.kind.value,
            "reason": row.write.reason.value,
            "message": row.write.message,
            "predictedMuteSeconds": round(row.write.predicted_mute_seconds, 1) if row.lowers else 0.0,
            "charged": row.write.charged,
        }
    if row.report:
        change |= {"tier": row.report.tier_key, "member": row.report.member_name}
    return change


def _member(report: MemberReport) -> Document:
    return {
        "tier": report.tier_key,
        "member": report.member_name,
        "level": report.level.value,
        "entity": entity_document(report.entity),
        "state": report.state.value,
        "reason": report.reason.value,
        "message": report.message,
        "leaders": report.leaders,
        "leadingBrokers": report.leading_brokers,
        "leaderSkew": None if report.leader_skew is None else round(report.leader_skew, 3),
        "quota": _rates(report.quota),
        "target": _rates(report.target),
        "promisedTotal": _rates(report.contract_total),
        "permittedTotal": _rates(report.permitted_total),
    }


def _recommendation(advice: Advice) -> Document:
    document: dict[str, object] = {"tier": advice.tier_key, "member": advice.member_name, "key": advice.key.value}
    document |= {"declared": advice.declared, "recommended": advice.recommended, "applied": advice.applied}
    return document | {"reason": advice.reason.value, "message": advice.message}


def _rates(values: Mapping[QuotaKey, int]) -> Document:
    return {key.value: value for key, value in values.items()}


def _note(note: Note) -> Document:
    document: dict[str, object] = {"reason": note.reason.value, "message": note.message}
    if note.entity:
        document["entity"] = entity_document(note.entity)
    return document | ({"tier": note.tier_key} if note.tier_key else {})


def _summary(rows: tuple[PlanRow, ...], decision: Decision) -> Document:
    return {
        "entitiesToWrite": len(planned_writes(decision)),
        "keysToChange": sum(row.changes for row in rows),
        "managed": decision.managed,
        "inSync": decision.in_sync,
        "contended": decision.contended,
        "deferredWrites": decision.deferred_writes,
        "nextPassInSeconds": decision.next_pass_in_seconds,
        "largestLeaderSkew": decision.largest_leader_skew,
    }
