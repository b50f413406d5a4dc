"""One look of `tidegate top` as plain data for programs. Rates are bytes per second; null is unknown."""

from collections.abc import Sequence

from tidegate.commands.output import Document
from tidegate.commands.plan_document import entity_document
from tidegate.commands.sight import Sight
from tidegate.commands.top_rows import BrokerRow, LevelRow, RateRow, broker_rows, level_rows, rate_rows


def sight_document(sight: Sight) -> Document:
    """Everything, also the rates that a table would leave out."""
    observation, rates = sight.observation, rate_rows(sight)
    readings = sight.readings
    return {
        "atSeconds": round(observation.now_seconds, 3),
        "policy": observation.policy.key,
        "cluster": sight.cluster_id,
        "mode": observation.policy.mode.value,
        "paused": observation.policy.paused,
        "brokers": None if sight.watched is None else [_broker(row) for row in broker_rows(sight)],
        "levels": [_level(row) for row in level_rows(sight, rates)],
        "members": [_rate(row) for row in rates],
        "holds": [{"reason": hold.reason.value, "message": hold.message} for hold in sight.decision.holds],
        "problems": _problems(sight) if readings is not None else None,
        "warnings": list(sight.warnings),
    }


def _problems(sight: Sight) -> Sequence[Document]:
    problems = sight.readings.problems if sight.readings is not None else ()
    return [{"reason": problem.reason.value, "broker": problem.broker, "message": problem.message} for problem in problems]


def _broker(row: BrokerRow) -> Document:
    card = row.card
    return {
        "id": row.broker,
        "direction": None if row.direction is None else row.direction.value,
        "bytesPerSecond": None if card is None else card.bytes_per_second,
        "limit": None if card is None else card.limit,
        "capacity": None if card is None else card.capacity,
        "clientsBytesPerSecond": row.clients,
        "ageSeconds": row.age_seconds,
        "pressure": row.pressure.value,
        "why": row.why,
    }


def _level(row: LevelRow) -> Document:
    return {
        "level": row.level.value,
        "said": None if row.word is None else {"state": row.word.state, "since": row.word.since, "because": row.word.because},
        "tiers": row.tiers,
        "members": row.members,
        "belowContract": row.below,
        "fetchBytesPerSecond": row.fetch,
        "produceBytesPerSecond": row.produce,
        "longestThrottleSeconds": row.delay_seconds,
    }


def _rate(row: RateRow) -> Document:
    report, entry = row.report, row.entry
    document: dict[str, object] = {
        "level": report.level.value,
        "tier": report.tier_key,
        "member": report.member_name,
        "entity": entity_document(report.entity),
        "key": row.key.value,
        "bytesPerSecond": row.sends,
        "throttleSeconds": row.delay_seconds,
        "quotaKnown": row.is_read,
        "quota": row.in_force,
        "contract": row.contract,
        "belowContract": row.is_below,
        "state": report.state.value,
        "message": report.message,
    }
    if entry is not None:
        document["written"] = {"reason": entry.reason.value, "atSeconds": round(entry.written_at_seconds, 3)}
    return document
