"""The ledger in a topic: claim, records and intents by key, as they are after every record read.

The log is written ahead: a change of a quota is first an intent in the ledger, with the record that
it leaves behind. Its outcome then replaces it. An intent without outcome is one whose writer died
or lost its connection: what the brokers have shows whether the change was made. One that was not
made may stay beside the entity's record for a while, for a request that arrives late.

    claim                  {"version": 3, "policy_key": ...}                 as in every quota store
    moved                  {"version": 1, "cluster_id": ...}      where it came from another store;
                             "released": {...} = the claim that was released last
    throttles              {"version": 1, ...}             replication throttles that may be set
    users/alice            {"version": 1, "record": {...}}                   record of an entity
    users/alice            {"version": 1, "record": {...} | null, "intent":
                             {"values": {...}, "seen": {...}, "record": {...} | null}}
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

from tidegate.errors import ForeignContent
from tidegate.kafka.adminapi.log import Entry, Record
from tidegate.kafka.adminapi.quotas import Changes, Values
from tidegate.kafka.claim import parse_claim, parse_release, release_to_bytes
from tidegate.kafka.ledger import LEDGER_RECORD, compact, mapping, record_of, record_to_bytes, text
from tidegate.kafka.quota_node import entity_of_path, entity_path, json_problem
from tidegate.kafka.quota_store import Claim
from tidegate_logic.model import Entity, LedgerRecord, QuotaKey, QuotaWrite

_CLAIM_KEY = b"claim"
_MOVED_KEY = b"moved"
_THROTTLES_KEY = b"throttles"
_FORMAT = 1
_FIELDS = {"version", "record", "intent"}
_INTENT = b'"intent":'
_KEYS = {key.value: key for key in QuotaKey}


@dataclass(frozen=True, slots=True)
class Intent:
    """A change under way: what it sets, what was there before, and the record that it leaves."""

    values: Changes
    seen: Changes
    record: LedgerRecord | None
    raw: bytes | None  # the same, as text

    def is_in_force(self, values: Changes) -> bool:
        """Whether these values are what it sets, so that making it once more changes nothing."""
        return all(values.get(key) == text for key, text in self.values.items())

    def is_made(self, values: Changes) -> bool:
        """Whether the change was made, by what the brokers have.

        Where they have what was there before, it was not. Otherwise it was, even if someone has
        changed it again: its record has the value from before Tidegate, which must not be lost.
        """
        is_as_before = all(values.get(key) == text for key, text in self.seen.items())
        return not is_as_before or self.is_in_force(values)

    def is_same(self, other: "Intent") -> bool:
        """Whether it is the same change, whatever the entity had by then."""
        return (self.values, self.raw) == (other.values, other.raw)

    def over(self, values: Changes) -> "Intent":
        """The same change, of an entity that has these values by now."""
        return replace(self, seen={key: values.get(key) for key in self.values})


@dataclass(frozen=True)
class Item:
    """What the ledger has of one entity, parsed when it is asked for."""

    topic: str
    entity: Entity
    offset: int
    value: bytes

    @property
    def record(self) -> LedgerRecord | None:
        """The record, from before the change that may be under way."""
        return self._content.record

    @property
    def raw(self) -> bytes | None:
        """The record as text."""
        return self._content.raw

    @property
    def intent(self) -> Intent | None:
        """The change that is under way."""
        return self._content.intent if _INTENT in self.value else None

    @property
    def problem(self) -> str | None:
        """Why it cannot be read, and is not touched."""
        return self._content.problem

    def settled(self, values: Values) -> LedgerRecord | None:
        """The record that stands, given what the brokers have."""
        intent = self.intent
        return intent.record if intent is not None and intent.is_made(values) else self.record

    def settled_raw(self, values: Values) -> bytes | None:
        """The same as text."""
        intent = self.intent
        return intent.raw if intent is not None and intent.is_made(values) else self.raw

    @cached_property
    def _content(self) -> "_Content":
        try:
            root = mapping(json.loads(self.value.decode("utf-8")))
            if root.get("version") != _FORMAT or not {"record"} <= root.keys() <= _FIELDS:
                raise ValueError(f"its format is {root.get('version')!r}, only {_FORMAT} is known")
            record, raw = _record(self.entity, root["record"])
            return _Content(record, raw, _intent(self.entity, root.get("intent")))
        except ForeignContent as error:
            problem = error.message
        except (ValueError, RecursionError) as error:
            problem = f"its ledger record cannot be read ({json_problem(error)})."
        place = f"{LEDGER_RECORD} {entity_path(self.entity)} in the topic {self.topic}"
        return _Content(problem=f"{place} is left alone: {problem}")


@dataclass(frozen=True, slots=True)
class _Content:
    record: LedgerRecord | None = None
    raw: bytes | None = None
    intent: Intent | None = None
    problem: str | None = None


@dataclass
class Journal:
    """The contents of the ledger's topic."""

    topic: str
    items: dict[Entity, Item] = field(default_factory=dict)
    strange: set[str] = field(default_factory=set)
    _claim: bytes | None = None
    _moved: bytes | None = None
    throttles: bytes | None = None

    @property
    def claim(self) -> Claim | None:
        """The claim on the cluster. Raises ForeignContent when it cannot be read."""
        place = f"The claim in the topic {self.topic}"
        return None if self._claim is None else parse_claim(self._claim, place)

    @property
    def moved_cluster_id(self) -> str | None:
        """The cluster whose ledger was moved here from another store; None = none was.

        It stays when claim and records are gone. Raises ForeignContent when it cannot be read.
        """
        if self._moved is None:
            return None
        try:  # "" = none was, and it says which claim was released
            root = mapping(json.loads(self._moved.decode("utf-8")))
            if root.get("version") != _FORMAT:
                raise ValueError(f"its format is {root.get('version')!r}, only {_FORMAT} is known")
            return text(root.get("cluster_id")) or None
        except (ValueError, RecursionError) as error:
            raise ForeignContent(
                f"The topic {self.topic} says in a way that cannot be read ({json_problem(error)}) "
                "whether the ledger moved there from ZooKeeper, so nothing is written. If a newer "
                "Tidegate wrote it, use that version."
            ) from error

    @property
    def released_epoch(self) -> int:
        """The epoch of the claim that was released last, with nothing left under it; 0 = none."""
        return parse_release(self._moved)

    @property
    def is_empty(self) -> bool:
        """Whether there is neither a claim nor a record."""
        return self._claim is None and not self.items

    def forget(self) -> None:
        """Start from nothing, as a topic that was made again does."""
        self.items.clear()
        self.strange.clear()
        self._claim = self._moved = self.throttles = None

    def take(self, entries: Iterable[Entry]) -> None:
        """Take over what was read or written."""
        for entry in entries:
            if entry.key == _CLAIM_KEY:
                self._claim = entry.value
                continue
            if entry.key == _MOVED_KEY:
                self._moved = entry.value
                continue
            if entry.key == _THROTTLES_KEY:
                self.throttles = entry.value
                continue
            try:
                entity = entity_of_path(entry.key.decode("utf-8"))
            except (ForeignContent, UnicodeDecodeError):
                name = f"{self.topic}: {entry.key!r}"
                (self.strange.discard if entry.value is None else self.strange.add)(name)
                continue
            if entry.value is None:
                self.items.pop(entity, None)
            else:
                self.items[entity] = Item(self.topic, entity, entry.offset, entry.value)

    def item(self, entity: Entity) -> Item | None:
        """The last entry for this entity; None = there is none."""
        return self.items.get(entity)


def claim_record(claim: bytes | None) -> Record:
    """The log's record that sets the claim, or removes it."""
    return _CLAIM_KEY, claim


def moved_record(cluster_id: str, released: Claim | None = None) -> Record:
    """The log's record that this cluster's ledger was moved here from another store; "" = it was
    not.

    It also says which claim was `released` last: earlier versions take no key that they do not
    know, but leave the fields of this one alone.
    """
    more = {} if released is None else json.loads(release_to_bytes(released))
    return _MOVED_KEY, compact({**more, "version": _FORMAT, "cluster_id": cluster_id})


def throttles_record(content: bytes | None) -> Record:
    """The log's record of the replication throttles that may be set, or its removal."""
    return _THROTTLES_KEY, content


def outcome(entity: Entity, record: bytes | None, late: Intent | None = None) -> Record:
    """The log's record that leaves the entity with this ledger record.

    It has no intent any more, but for a change that may still arrive `late`.
    """
    if late is not None:
        return _key(entity), _value(record, _under_way(late.values, late.seen, late.raw))
    return _key(entity), None if record is None else _value(record)


def intent(write: QuotaWrite, before: bytes | None, after: bytes | None) -> Record:
    """The log's record of a change about to be made, of which records are the text."""
    seen = {key: write.seen.values.get(key) for key in write.values}
    return _key(write.entity), _value(before, _under_way(write.values, seen, after))


def record_after(write: QuotaWrite, before: bytes | None) -> bytes | None:
    """The ledger record that the write leaves; what a newer version put there is kept."""
    return None if write.ledger is None else record_to_bytes(write.ledger, before)


def _key(entity: Entity) -> bytes:
    return entity_path(entity).encode()


def _value(record: bytes | None, under_way: bytes = b"") -> bytes:
    return b'{"version":%d,"record":%b%b}' % (_FORMAT, record or b"null", under_way)


def _under_way(values: Changes, seen: Changes, record: bytes | None) -> bytes:
    texts = b'"values":%b,"seen":%b' % (compact(_texts(values)), compact(_texts(seen)))
    return b',%b{%b,"record":%b}' % (_INTENT, texts, record or b"null")


def _texts(values: Changes) -> dict[str, str | None]:
    return {key.value: text for key, text in values.items()}


def _record(entity: Entity, content: object) -> tuple[LedgerRecord | None, bytes | None]:
    if content is None:
        return None, None
    return record_of(entity, content), compact(mapping(content))


def _intent(entity: Entity, content: object) -> Intent | None:
    if content is None:
        return None
    root = mapping(content)
    if root.keys() != {"values", "seen", "record"}:
        raise ValueError(f"an intent's fields are {sorted(root)}")
    record, raw = _record(entity, root["record"])
    return Intent(_changes(root["values"]), _changes(root["seen"]), record, raw)


def _changes(content: object) -> Changes:
    values = mapping(content)
    if not values.keys() <= _KEYS.keys():
        raise ValueError(f"the quotas {sorted(values)} are not all known")
    return {_KEYS[key]: None if one is None else text(one) for key, one in values.items()}
