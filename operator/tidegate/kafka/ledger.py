"""The ledger: for each entity a record of what was there before us, what we wrote, why.

A quota store keeps it beside the quotas: see `zookeeper` and `adminapi`. Reading is strict, because
quotas are restored from records; but a record may come from a newer version, which was rolled back.
Versions keep to this:

- Another format means that the other fields may mean something else: nothing of it is understood.
- Whatever is new within a format, a field or a reason, leaves the meaning of the others as it is,
  and the record names the version that wrote it in `written_by`. A record with nothing new has no
  such field, because the earliest versions take no record with a field that they do not know.
- Who rewrites a record keeps what it does not know, but for the fields of an entry that it
  replaces: they describe the write before.
"""

import json
import re
from collections.abc import Mapping

from tidegate import __version__
from tidegate.errors import ForeignContent
from tidegate.kafka.quota_node import json_problem
from tidegate_logic.model import Entity, LedgerEntry, LedgerRecord, QuotaKey
from tidegate_logic.reasons import NewerReason, Reason

LEDGER_RECORD = "The ledger's record"  # how a problem of a record in a topic begins
_FORMAT = 1
_WRITER = "written_by"
_FIELDS = frozenset({"version", "policy_key", "policy_uid", "entries"})
_ENTRY_FIELDS = frozenset(
    {"before", "written", "previous", "written_at_seconds", "reason", "basis"}
)
_ALL_ENTRY_FIELDS = _ENTRY_FIELDS | {"of_contract"}
_KEYS = {key.value: key for key in QuotaKey}
_REASONS = {reason.value: reason for reason in Reason}
_REASON = re.compile(r"[A-Z][A-Za-z0-9]{1,63}", re.ASCII)
# those that the earliest versions write and read; a record with another one names its writer
_FIRST_REASONS = frozenset(
    {
        Reason.ADAPTED,
        Reason.ADOPTED,
        Reason.CONTRACT,
        Reason.CONTRACT_CHANGED,
        Reason.FIRST_QUOTA,
        Reason.GIVEN_BACK,
        Reason.LEADERS_MOVED,
        Reason.RELAXING,
        Reason.RELEASED,
        Reason.REPAIRED,
        Reason.STEPPING,
        Reason.THROTTLED,
    }
)


def record_to_bytes(record: LedgerRecord, before: bytes | None = None) -> bytes:
    """One record as compact JSON, without the entity, which the node's name has.

    `before` is the node that this record replaces; what a newer version put there is kept.
    """
    entries = {key.value: _entry_content(one) for key, one in sorted(record.entries.items())}
    more: dict[str, object] = {}
    writer: object = None
    if before is not None and f'"{_WRITER}"'.encode() in before:
        root, known = json.loads(before), parse_record(record.entity, before).entries
        more = {field: root[field] for field in root if field not in {*_FIELDS, _WRITER}}
        writer = root.get(_WRITER)
        stay = {key.value for key, entry in record.entries.items() if known.get(key) == entry}
        entries.update({key: root["entries"][key] for key in stay})
    if not more and not any(_is_newer(entry) for entry in entries.values()):
        ours_are_new = any(entry["reason"] not in _FIRST_REASONS for entry in entries.values())
        writer = __version__ if ours_are_new else None
    return compact(
        {
            "version": _FORMAT,
            "policy_key": record.policy_key,
            "policy_uid": record.policy_uid,
            "entries": entries,
            **({} if writer is None else {_WRITER: writer}),
            **more,
        }
    )


def parse_record(entity: Entity, data: bytes | None) -> LedgerRecord:
    """Read one ledger record.

    Raises ForeignContent, with what to do, when it is not what `record_to_bytes` writes in a format
    we know, or a newer version within it.
    """
    try:
        content = json.loads((data or b"").decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ForeignContent(_unreadable({}, json_problem(error))) from error
    return record_of(entity, content)


def record_of(entity: Entity, content: object) -> LedgerRecord:
    """The record of what JSON has; see `parse_record`."""
    root: Mapping[str, object] = {}
    try:
        root = mapping(content)
        if root.get("version") != _FORMAT:
            raise ValueError(f"its format is {root.get('version')!r}, only {_FORMAT} is known")
        is_signed = _WRITER in root and bool(text(root[_WRITER]))
        _require_fields("its", root, _FIELDS, _FIELDS | {_WRITER}, may_have_more=is_signed)
        entries = {
            _quota_key(key): _parse_entry(entry, may_have_more=is_signed)
            for key, entry in mapping(root["entries"]).items()
        }
        return LedgerRecord(entity, text(root["policy_key"]), text(root["policy_uid"]), entries)
    except (ValueError, RecursionError) as error:
        raise ForeignContent(_unreadable(root, json_problem(error))) from error


def _unreadable(root: Mapping[str, object], problem: str) -> str:
    version, writer = root.get("version"), root.get(_WRITER)
    named = f"Tidegate {writer}" if isinstance(writer, str) and writer != __version__ else None
    if named is None and not (type(version) is int and version > _FORMAT):
        return f"its ledger record cannot be read ({problem}). Correct or delete the node."
    return (
        f"its ledger record was written by {named or 'a newer Tidegate'} and cannot be read by "
        f"this version ({problem}). The node is kept as it is, and its quota is not changed. It "
        f"has the value from before Tidegate, so do not delete it: run "
        f"{f'{named} or newer' if named else 'the version that wrote it'}."
    )


def _entry_content(entry: LedgerEntry) -> dict[str, object]:
    return {
        "before": entry.before,
        "written": entry.written,
        "previous": entry.previous,
        "written_at_seconds": entry.written_at_seconds,
        "reason": entry.reason.value,
        "basis": entry.basis,
        **({} if entry.of_contract is None else {"of_contract": entry.of_contract}),
    }


def _is_newer(entry: Mapping[str, object]) -> bool:
    """Whether an entry, as it stands in the node, has what this version does not know."""
    return entry["reason"] not in _REASONS or not entry.keys() <= _ALL_ENTRY_FIELDS


def _parse_entry(content: object, *, may_have_more: bool) -> LedgerEntry:
    entry = mapping(content)
    _require_fields(
        "an entry's", entry, _ENTRY_FIELDS, _ALL_ENTRY_FIELDS, may_have_more=may_have_more
    )
    return LedgerEntry(
        before=_optional_text(entry["before"]),
        written=_optional_text(entry["written"]),
        previous=_optional_text(entry["previous"]),
        written_at_seconds=seconds(entry["written_at_seconds"]),
        reason=_reason(entry["reason"]),
        basis=text(entry["basis"]),
        of_contract=_contract(entry["of_contract"]) if "of_contract" in entry else None,
    )


def _require_fields(
    whose: str,
    found: Mapping[str, object],
    needed: frozenset[str],
    known: frozenset[str],
    *,
    may_have_more: bool,
) -> None:
    if not needed <= found.keys() or not (may_have_more or found.keys() <= known):
        raise ValueError(f"{whose} fields are {sorted(found)}")


def _quota_key(key: str) -> QuotaKey:
    if key not in _KEYS:
        raise ValueError(f"the quota {key!r} is not known")
    return _KEYS[key]


def _reason(content: object) -> Reason | NewerReason:
    word = text(content)
    if word not in _REASONS and not _REASON.fullmatch(word):
        raise ValueError(f"{content!r} is no reason")
    return _REASONS.get(word) or NewerReason(word)


def compact(content: Mapping[str, object]) -> bytes:
    """An object as JSON without white space."""
    return json.dumps(content, separators=(",", ":")).encode()


def mapping(content: object) -> Mapping[str, object]:
    """The content, if it is an object. Raises ValueError."""
    if not isinstance(content, dict):
        raise ValueError("an object was expected")
    return content


def text(content: object) -> str:
    """The content, if it is a text. Raises ValueError."""
    if not isinstance(content, str):
        raise ValueError(f"a text was expected, not {content!r}")
    return content


def _optional_text(content: object) -> str | None:
    return None if content is None else text(content)


def _contract(content: object) -> int:
    if isinstance(content, bool) or not isinstance(content, int) or content <= 0:
        raise ValueError(f"a contract in bytes per second was expected, not {content!r}")
    return content


def seconds(content: object) -> float:
    """A time in seconds since the epoch. Raises ValueError."""
    if isinstance(content, bool) or not isinstance(content, int | float) or not 0 <= content < 1e12:
        raise ValueError(f"a time was expected, not {content!r}")
    return float(content)
