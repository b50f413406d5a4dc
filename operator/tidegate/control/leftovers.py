"""Which quotas may be Tidegate's after a ledger was lost, key by key, and the message about them:
only a person removes them now.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote

from tidegate_logic.model import (
    BYTE_RATE_KEYS,
    Default,
    Entity,
    LedgerEntry,
    LedgerRecord,
    QuotaKey,
    StoredQuota,
    StrimziUsers,
)
from tidegate_logic.quotas.strimzi import declaring
from tidegate_logic.words import counted

_EVENT_BYTES = 1000
_MOST_EVENTS = 20


@dataclass(frozen=True, slots=True)
class Suspect:
    """One quota key that may be Tidegate's, of which the ledger has no record.

    `before` is what was there before Tidegate; None = nothing was, or it is not known. `key` None =
    the entity's quotas cannot be read, and `text` says why.
    """

    entity: Entity
    key: QuotaKey | None
    text: str
    before: str | None
    is_declared: bool

    @property
    def words(self) -> str:
        if self.key is None:
            return f"{self.entity} (its quotas cannot be read: {self.text})"
        return f"{self.entity} ({self.key.value}={self.text})"

    def command(self, bootstrap_servers: str) -> str:
        """Kafka's own command that removes it, or puts back what was there before.

        "" where there is none. Brokers with ZooKeeper take the same one: since 3.0 the tool changes
        no quota in ZooKeeper itself.
        """
        if self.key is None:
            return ""
        change = (
            f"--delete-config {self.key.value}"
            if self.before is None
            else f"--add-config {self.key.value}={self.before}"
        )
        return " ".join(
            [
                f"kafka-configs.sh --bootstrap-server {bootstrap_servers} --alter",
                *entity_options(self.entity),
                change,
            ]
        )


def suspects_of(
    everything: Mapping[Entity, StoredQuota],
    declared: Collection[Entity],
    *,
    known: Mapping[Entity, Mapping[QuotaKey, LedgerEntry]] | None,
    strimzi: StrimziUsers | None,
    is_older: bool = False,
    accepted: Mapping[Entity, LedgerRecord] | None = None,
) -> list[Suspect]:
    """The quota keys in Kafka without a record that may be a policy's.

    Those that are `known` to be; else (None) every byte rate there is, for anything may have been a
    member once. An entity's record says which of its keys are ours, unless it is of an older
    ledger. `accepted` are records that are about to be written. What a KafkaUser declares is
    Strimzi's. Those of `declared` entities come first.
    """
    anything: Mapping[QuotaKey, LedgerEntry | None] = dict.fromkeys(BYTE_RATE_KEYS)
    found = []
    for entity, stored in everything.items():
        if declaring(strimzi, entity) is not None:
            continue
        record = (accepted or {}).get(entity) or stored.ledger
        if known is None and stored.ledger is not None and not is_older:
            continue
        ours = anything if known is None else known.get(entity, {})
        if stored.problem is not None and stored.ledger_version is None and ours:
            found.append(Suspect(entity, None, stored.problem, None, entity in declared))
        for key in sorted(stored.values.keys() & ours.keys()):
            text, entry = stored.values[key], ours[key]
            before = None if entry is None else entry.before
            if (record is None or key not in record.entries) and text != before:
                found.append(Suspect(entity, key, text, before, entity in declared))
    return sorted(found, key=lambda one: (not one.is_declared, one.entity.sort_key))


def entity_options(entity: Entity) -> list[str]:
    """How Kafka's own tools name the entity."""
    named = [("users", entity.user), ("clients", entity.client_id)]
    return [
        f"--entity-type {kind} "
        + ("--entity-default" if isinstance(name, Default) else f"--entity-name {quote(name)}")
        for kind, name in named
        if name is not None
    ]


def suspects_words(suspects: Sequence[Suspect], bootstrap_servers: str) -> list[str]:
    """Messages for Events with a command for each; the last one says how many are in the log."""
    messages: list[str] = []
    for number, one in enumerate(suspects):
        command = one.command(bootstrap_servers)
        words = f"{one.words}: {command or 'inspect its node by hand'}"
        if messages and len(messages[-1].encode()) + len(words.encode()) + 2 <= _EVENT_BYTES:
            messages[-1] = f"{messages[-1]}; {words}"
        elif len(messages) < _MOST_EVENTS:
            messages.append(f"May be Tidegate's: {words}")
        else:
            messages.append(
                f"{counted(len(suspects) - number, 'more quota')} may be Tidegate's: the "
                'operator\'s log has a command for each ("Quota may be left behind")'
            )
            break
    return messages


def left_words(left: Sequence[Suspect]) -> str:
    """What the Event about an accepted loss says of them."""
    return (
        f"{counted(len(left), 'quota')} without a record, which no contract names now, may be "
        "Tidegate's too and stay as they are. Events LedgerLost, and lines \"Quota may be left "
        "behind\" in the operator's log, have the command for each: run those of quotas that no "
        "one needs"
    )
