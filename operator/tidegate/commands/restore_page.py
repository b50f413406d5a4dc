"""What giving back looks like, before and while it happens: for people as a sheet, for programs as plain data.

The values come out of the ledger and the store, the next step out of the decision; nothing is computed here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from controller_logic.model import Entity, LedgerEntry, QuotaKey
from controller_logic.quotas.steps import is_disturbed
from controller_logic.quotas.values import KEY_WORDS
from tidegate.commands.output import Document, Page
from tidegate.commands.plan_document import entity_document
from tidegate.commands.quantity import KEY_ORDER, ago_words, short_words
from tidegate.commands.restoration import Giveback
from tidegate.commands.sheet import Column, Sheet

COLUMNS = (
    Column("entity", fold=True),
    Column("key"),
    Column("now", right=True),
    Column("next", right=True),
    Column("gives back", right=True),
    Column("written", right=True),
    Column("policy", fold=True),
    Column("remark", fold=True),
)


@dataclass(frozen=True, slots=True)
class RestoreRow:
    """One quota key of the ledger. `in_force` stands in Kafka now, `next` will after this round (both exact; None = no quota)."""

    policy_key: str
    entity: Entity
    key: QuotaKey
    in_force: str | None
    next: str | None
    entry: LedgerEntry
    problem: str | None

    @property
    def changed_by_another(self) -> bool:
        return self.problem is None and is_disturbed(self.entry, self.in_force)

    @property
    def remark(self) -> str:
        if self.problem is not None:
            return f"not touched: {self.problem}"
        if self.changed_by_another:
            return f"stays: another writer changed it from {short_words(self.key, self.entry.written)}"
        if self.in_force == self.entry.before:
            return "stands already; only our record is removed"
        if self.next == self.in_force:
            return "waits: safe steps keep a distance from the last write"
        return "" if self.next == self.entry.before else "first of several safe steps"


def restore_rows(givebacks: Sequence[Giveback]) -> tuple[RestoreRow, ...]:
    """Every key that the ledger shows as ours, policy by policy, users before their clients, fetch before produce."""
    return tuple(row for giveback in givebacks for row in _rows(giveback))


def _rows(giveback: Giveback) -> Iterator[RestoreRow]:
    writes = {write.entity: write.values for write in giveback.decision.writes}
    for entity in sorted(giveback.quotas, key=lambda entity: entity.sort_key):
        stored = giveback.quotas[entity]
        entries = stored.ledger.entries if stored.ledger else {}
        for key in sorted(entries, key=KEY_ORDER.__getitem__):
            in_force = stored.values.get(key)
            following = writes.get(entity, {}).get(key, in_force)
            yield RestoreRow(giveback.policy_key, entity, key, in_force, following, entries[key], stored.problem)


def restore_sheet(rows: Sequence[RestoreRow], now_seconds: float) -> Sheet:
    """The rows as a table; `gives back` is what stood there before Tidegate."""
    return Sheet(
        COLUMNS,
        [
            (
                str(row.entity),
                KEY_WORDS[row.key],
                short_words(row.key, row.in_force),
                "same" if row.next == row.in_force else short_words(row.key, row.next),
                "" if row.changed_by_another or row.problem else short_words(row.key, row.entry.before),
                ago_words(now_seconds - row.entry.written_at_seconds),
                row.policy_key,
                row.remark,
            )
            for row in rows
        ],
    )


def show_dry_run(page: Page, rows: Sequence[RestoreRow], *, warnings: Sequence[str], now_seconds: float) -> None:
    """What `--yes` would do; warnings last, next to the hand that is about to type it."""
    page.sheet(restore_sheet(rows, now_seconds))
    if rows:
        page.say()
    for warning in warnings:
        page.warn(warning)
    if rows:
        page.say(f"Dry run: nothing was written. Run the same command with --yes to give back {len(rows)} quota values.", "bold")
    else:
        page.say("The ledger shows nothing of ours that was asked for.", "bold")


def restore_document(rows: Sequence[RestoreRow], *, written: bool, complete: bool, warnings: Sequence[str]) -> Document:
    """`written` false = a dry run; `complete` true = nothing that was asked for is left in the ledger."""
    return {
        "written": written,
        "complete": complete,
        "quotas": [
            {
                "policy": row.policy_key,
                "entity": entity_document(row.entity),
                "key": row.key.value,
                "inForce": row.in_force,
                "next": row.next,
                "before": row.entry.before,
                "changedByAnother": row.changed_by_another,
                "problem": row.problem,
            }
            for row in rows
        ],
        "warnings": list(warnings),
    }
