"""Our own znodes: one ledger record an entity, and the claim that says which policy manages the cluster.

They live beside Kafka's tree and never in it: Kafka reads every node below `/config` as an entity. Reading is strict, since a record
decides what is given back to whom; a record that does not read is a problem of its entity, never a guess.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from controller_logic.model import Entity, LedgerEntry, LedgerRecord, QuotaKey
from controller_logic.reasons import Reason
from tidegate.errors import ForeignContent
from tidegate.kafka.names import ledger_node

ROOT = "/tidegate"
LEDGER_ROOT = f"{ROOT}/ledger"
CLAIM_PATH = f"{ROOT}/claim"
_FORMAT = 1
_REASONS = {reason.value: reason for reason in Reason}


@dataclass(frozen=True, slots=True)
class Claim:
    """The policy whose ledger this cluster carries."""

    policy_key: str
    policy_uid: str


def ledger_path(entity: Entity) -> str:
    """The entity's ledger node, below the chroot."""
    return f"{LEDGER_ROOT}/{ledger_node(entity)}"


def record_to_bytes(record: LedgerRecord) -> bytes:
    """One record as compact JSON. The entity is not in it: the node's name carries it."""
    entries = {
        key.value: {
            "before": entry.before,
            "written": entry.written,
            "previous": entry.previous,
            "written_at_seconds": entry.written_at_seconds,
            "reason": entry.reason.value,
            "basis": entry.basis,
            **({} if entry.of_contract is None else {"of_contract": entry.of_contract}),
        }
        for key, entry in sorted(record.entries.items())
    }
    return _compact({"version": _FORMAT, "policy_key": record.policy_key, "policy_uid": record.policy_uid, "entries": entries})


def parse_record(entity: Entity, data: bytes | None) -> LedgerRecord:
    """Read one record. Raises ForeignContent when it is not exactly what `record_to_bytes` writes in a format we know."""
    try:
        root = _root(data, {"version", "policy_key", "policy_uid", "entries"})
        entries = {QuotaKey(key): _parse_entry(entry) for key, entry in _mapping(root["entries"]).items()}
        return LedgerRecord(entity, _text(root["policy_key"]), _text(root["policy_uid"]), entries)
    except (ValueError, RecursionError) as error:
        raise ForeignContent(f"its ledger record cannot be read ({error})") from error


def claim_to_bytes(claim: Claim) -> bytes:
    """The claim as compact JSON."""
    return _compact({"version": _FORMAT, "policy_key": claim.policy_key, "policy_uid": claim.policy_uid})


def parse_claim(data: bytes | None) -> Claim:
    """Read the claim. Raises ForeignContent when it is not one of ours in a format we know."""
    try:
        root = _root(data, {"version", "policy_key", "policy_uid"})
        return Claim(_text(root["policy_key"]), _text(root["policy_uid"]))
    except (ValueError, RecursionError) as error:
        raise ForeignContent(
            f"{CLAIM_PATH} in ZooKeeper cannot be read ({error}), so it is not known which policy manages this cluster and nothing is "
            "written. If a newer Tidegate wrote it, use that version; otherwise look at the node and delete it."
        ) from error


def _compact(content: Mapping[str, object]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def _root(data: bytes | None, fields: set[str]) -> Mapping[str, object]:
    root = _mapping(json.loads((data or b"").decode("utf-8")))
    if root.get("version") != _FORMAT:
        raise ValueError(f"its format is {root.get('version')!r}, only {_FORMAT} is known")
    if set(root) != fields:
        raise ValueError(f"its fields are {sorted(root)}")
    return root


def _parse_entry(content: object) -> LedgerEntry:
    entry = _mapping(content)
    if entry.keys() - {"of_contract"} != {"before", "written", "previous", "written_at_seconds", "reason", "basis"}:
        raise ValueError(f"an entry's fields are {sorted(entry)}")
    return LedgerEntry(
        before=_optional_text(entry["before"]),
        written=_optional_text(entry["written"]),
        previous=_optional_text(entry["previous"]),
        written_at_seconds=_seconds(entry["written_at_seconds"]),
        reason=_reason(entry["reason"]),
        basis=_text(entry["basis"]),
        of_contract=_contract(entry["of_contract"]) if "of_contract" in entry else None,
    )


def _reason(content: object) -> Reason:
    reason = _REASONS.get(_text(content))
    if reason is None:
        raise ValueError(f"the reason {content!r} is not known")
    return reason


def _mapping(content: object) -> Mapping[str, object]:
    if not isinstance(content, dict):
        raise ValueError("an object was expected")
    return content


def _text(content: object) -> str:
    if not isinstance(content, str):
        raise ValueError(f"a text was expected, not {content!r}")
    return content


def _optional_text(content: object) -> str | None:
    return None if content is None else _text(content)


def _contract(content: object) -> int:
    if isinstance(content, bool) or not isinstance(content, int) or content <= 0:
        raise ValueError(f"a contract in bytes per second was expected, not {content!r}")
    return content


def _seconds(content: object) -> float:
    if isinstance(content, bool) or not isinstance(content, int | float) or not 0 <= content < 1e12:
        raise ValueError(f"a time was expected, not {content!r}")
    return float(content)
