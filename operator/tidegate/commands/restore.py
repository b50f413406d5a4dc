"""`tidegate restore`: every quota back from the ledger alone, without Kubernetes or an operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.commands import options
from tidegate.commands.context import CommandContext
from tidegate.commands.inputs import opened_store
from tidegate.commands.output import Column, Document, ExitCode, OutputFormat, Page, Sheet, publish
from tidegate.commands.plan import entity_document
from tidegate.commands.restore_throttles import (
    ThrottleRestoration,
    ThrottleRow,
    throttle_document,
    throttle_restoration,
    throttle_sheet,
    throttle_warning,
)
from tidegate.errors import Conflict, RetryLater, WriteRefused
from tidegate.kafka.claim import wrong_cluster
from tidegate.kafka.quota_store import ClusterFacts, QuotaStore
from tidegate_logic.decide import decide
from tidegate_logic.decision import Decision, Memory
from tidegate_logic.model import (
    Default,
    DeletionPolicy,
    Entity,
    LedgerEntry,
    Observation,
    Policy,
    QuotaKey,
    QuotaWindow,
    StoredQuota,
    Topology,
)
from tidegate_logic.quota_values import KEY_ORDER, KEY_WORDS, short_words
from tidegate_logic.quotas.steps import is_disturbed
from tidegate_logic.reasons import Reason
from tidegate_logic.words import ago_words

if TYPE_CHECKING:
    from tidegate.control.reconcile import Applied

# One round of giving back: the operator's own decision for a policy that is being deleted.
#
# Each policy found in the ledger is treated as one that is being deleted with `Restore`. So the
# bound on mutes, the order and the respect for other writers are those of the operator. The write
# budget applies to neither.


NO_MUTE_BOUND_SECONDS = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which ledger records to restore; None = all. `policy` is `namespace/name` or a name."""

    user: str | None = None
    client_id: str | None = None
    policy: str | None = None

    @property
    def everything(self) -> bool:
        return self.user is None and self.client_id is None

    def covers(self, stored: StoredQuota) -> bool:
        """Whether the entity has a record asked for; `<default>` is Kafka's default entity."""
        record = stored.ledger
        return (
            record is not None
            and self.covers_policy(record.policy_key)
            and self._covers_entity(stored.entity)
        )

    def covers_throttles(self, policy_key: str) -> bool:
        """Whether that policy's replication throttles go, too: no single entity is asked for."""
        return self.everything and self.covers_policy(policy_key)

    def covers_policy(self, policy_key: str) -> bool:
        return self.policy is None or self.policy in (policy_key, policy_key.partition("/")[2])

    def _covers_entity(self, entity: Entity) -> bool:
        wanted = ((self.user, entity.user), (self.client_id, entity.client_id))
        return all(
            name is None or name == (part.value if isinstance(part, Default) else part)
            for name, part in wanted
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """How gently to lower: the longest mute of a client, and the brokers' quota window."""

    max_mute_seconds: int
    window: QuotaWindow


@dataclass(frozen=True, slots=True)
class Giveback:
    """One policy's quotas in the store, and the operator's decision to restore them."""

    policy_key: str
    quotas: Mapping[Entity, StoredQuota]
    decision: Decision
    decided_at_seconds: float

    @property
    def longest_mute_seconds(self) -> float:
        """The longest time for which this round's writes are predicted to silence a client."""
        return max((write.predicted_mute_seconds for write in self.decision.writes), default=0.0)


@dataclass(slots=True)
class Restoration:
    """Reads, decides and, with --yes, writes, round by round. Rounds share only the ledger."""

    store: QuotaStore
    selection: Selection
    guard: Guard
    now_seconds: Callable[[], float]

    def look(self) -> tuple[Giveback, ...]:
        """Read the ledger and decide the next round, policy by policy. Nothing is written."""
        selected = [
            stored
            for stored in self.store.read_everything().values()
            if self.selection.covers(stored)
        ]
        return tuple(
            self._giveback(policy_key, quotas) for policy_key, quotas in _by_policy(selected)
        )

    def write(self, giveback: Giveback, *, cluster_id: str) -> Applied:
        """Send the round's writes. The next look finds those that failed."""
        from tidegate.control.reconcile import apply_writes

        return apply_writes(
            giveback.decision.writes,
            self.store,
            cluster_id=cluster_id,
            may_write=lambda: True,
            decided_at_seconds=giveback.decided_at_seconds,
            now_seconds=self.now_seconds,
        )

    def _giveback(self, policy_key: str, quotas: Mapping[Entity, StoredQuota]) -> Giveback:
        now_seconds = self.now_seconds()
        observation = Observation(
            now_seconds=now_seconds,
            policy=_deleting_policy(policy_key, quotas, self.guard),
            tiers=(),
            topology=Topology(now_seconds, frozenset(), {}),
            quotas=quotas,
        )
        decision, _ = decide(observation, Memory())
        return Giveback(policy_key, quotas, decision, now_seconds)


def _deleting_policy(policy_key: str, quotas: Mapping[Entity, StoredQuota], guard: Guard) -> Policy:
    uid = next((stored.ledger.policy_uid for stored in quotas.values() if stored.ledger), "")
    return Policy(
        key=policy_key,
        uid=uid,
        deleting=True,
        deletion_policy=DeletionPolicy.RESTORE,
        window=guard.window,
        max_mute_seconds=guard.max_mute_seconds,
    )


def _by_policy(selected: Iterable[StoredQuota]) -> list[tuple[str, dict[Entity, StoredQuota]]]:
    policies: dict[str, dict[Entity, StoredQuota]] = {}
    for stored in selected:
        if stored.ledger is not None:
            policies.setdefault(stored.ledger.policy_key, {})[stored.entity] = stored
    return sorted(policies.items())


# Rounds until nothing is left, with the safe wait between steps and progress for people. It may be
# interrupted: every round reads the ledger again, so the same command goes on where it stopped.


FRUITLESS_ROUNDS = 5
FIRST_RETRY_SECONDS = 2.0


@dataclass(slots=True)
class RestoreRun:
    """One run on one cluster. `page` gets the progress; `wait_seconds` is how it sleeps."""

    restoration: Restoration
    cluster_id: str
    page: Page
    wait_seconds: Callable[[float], None]
    written: int = 0
    fruitless: int = 0

    def to_the_end(self) -> None:
        """Go on until nothing is left. Raises the last RetryLater after five rounds in vain."""
        while True:
            try:
                if not self._round():
                    return
            except RetryLater as error:
                self._retry(error)

    def _round(self) -> bool:
        """One look and its writes, or one wait; false when there was neither."""
        givebacks = self.restoration.look()
        if any(giveback.decision.writes for giveback in givebacks):
            self._write(givebacks)
            return True
        waits = [giveback.decision.next_pass_in_seconds for giveback in givebacks]
        due = min((wait for wait in waits if wait is not None), default=None)
        if due is None:
            return False
        self.page.say(
            f"waiting {due:.0f} s before the next safe step, so that no client is delayed for long"
        )
        self.wait_seconds(due)
        return True

    def _write(self, givebacks: Sequence[Giveback]) -> None:
        before = self.written
        for giveback in givebacks:
            applied = self.restoration.write(giveback, cluster_id=self.cluster_id)
            self.written += len(applied.done)
            if applied.done:
                entities = "1 entity" if len(applied.done) == 1 else f"{len(applied.done)} entities"
                self.page.say(f"{giveback.policy_key}: wrote {entities}")
            if applied.error is not None:
                raise applied.error
            for refused in applied.refused:
                self.page.say(f"{refused.entity}: not written ({refused.message}); read again")
        if self.written > before:
            self.fruitless = 0
        else:
            self._retry(
                Conflict("No write was accepted: another writer keeps changing the same quotas.")
            )

    def _retry(self, error: RetryLater) -> None:
        self.fruitless += 1
        if self.fruitless >= FRUITLESS_ROUNDS:
            raise error
        pause = FIRST_RETRY_SECONDS * 2 ** (self.fruitless - 1)
        self.page.say(f"{error.for_command} Trying again in {pause:.0f} s.")
        self.wait_seconds(pause)


# The output: a sheet for people, plain data for programs. The values come from the ledger and the
# store, the next step from the decision; nothing is computed here.


COLUMNS = (
    Column("entity", fold=True),
    Column("key"),
    Column("now", right=True),
    Column("next", right=True),
    Column("restores to", right=True),
    Column("written", right=True),
    Column("policy", fold=True),
    Column("remark", fold=True),
)


@dataclass(frozen=True, slots=True)
class RestoreRow:
    """One quota key of the ledger. `in_force` is Kafka's value, `next` the one after this round.

    Both are exact; None = no quota.
    """

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
            return (
                f"stays: another writer changed it from {short_words(self.key, self.entry.written)}"
            )
        if self.in_force == self.entry.before:
            return "has this value already; only our record is removed"
        if self.next == self.in_force:
            return "waits: safe steps keep a distance from the last write"
        return "" if self.next == self.entry.before else "first of several safe steps"


def restore_rows(givebacks: Sequence[Giveback]) -> tuple[RestoreRow, ...]:
    """Every key of ours in the ledger, by policy, users before their clients, fetch first."""
    return tuple(row for giveback in givebacks for row in _rows(giveback))


def _rows(giveback: Giveback) -> Iterator[RestoreRow]:
    writes = {write.entity: write.values for write in giveback.decision.writes}
    for entity in sorted(giveback.quotas, key=lambda entity: entity.sort_key):
        stored = giveback.quotas[entity]
        entries = stored.ledger.entries if stored.ledger else {}
        for key in sorted(entries, key=KEY_ORDER.__getitem__):
            in_force = stored.values.get(key)
            following = writes.get(entity, {}).get(key, in_force)
            yield RestoreRow(
                giveback.policy_key, entity, key, in_force, following, entries[key], stored.problem
            )


def restore_sheet(rows: Sequence[RestoreRow], now_seconds: float) -> Sheet:
    """The rows as a table; `restores to` is the value from before Tidegate."""
    return Sheet(
        COLUMNS,
        [
            (
                str(row.entity),
                KEY_WORDS[row.key],
                short_words(row.key, row.in_force),
                "same" if row.next == row.in_force else short_words(row.key, row.next),
                ""
                if row.changed_by_another or row.problem
                else short_words(row.key, row.entry.before),
                ago_words(now_seconds - row.entry.written_at_seconds),
                row.policy_key,
                row.remark,
            )
            for row in rows
        ],
    )


def show_dry_run(
    page: Page,
    rows: Sequence[RestoreRow],
    throttles: Sequence[ThrottleRow],
    *,
    warnings: Sequence[str],
    now_seconds: float,
) -> None:
    """Print what `--yes` would do; warnings last, where they are seen before it is typed."""
    page.sheet(restore_sheet(rows, now_seconds))
    if throttles:
        page.sheet(throttle_sheet(throttles))
    if rows or throttles:
        page.say()
    for warning in warnings:
        page.warn(warning)
    if rows or throttles:
        and_throttles = f" and remove {len(throttles)} replication throttles" if throttles else ""
        page.say(
            f"Dry run: nothing was written. Run the same command with --yes to restore "
            f"{len(rows)} quota values{and_throttles}.",
            "bold",
        )
    else:
        page.say("The ledger shows nothing of ours that was asked for.", "bold")


def restore_document(
    rows: Sequence[RestoreRow],
    throttles: Sequence[ThrottleRow],
    *,
    written: bool,
    complete: bool,
    warnings: Sequence[str],
    unconfirmed: Sequence[str] = (),
) -> Document:
    """`written` false = a dry run; `complete` true = the ledger has none of it any more.

    `unconfirmed` is what a live broker does not show as restored yet; then it is not complete.
    """
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
        "throttles": [throttle_document(row) for row in throttles],
        "warnings": list(warnings),
        **({"unconfirmed": list(unconfirmed)} if written else {}),
    }


LONG_MUTE_SECONDS = 30.0
ROUND_SECONDS = 5.0
CLAIM_ATTEMPTS = 20  # of five seconds, where a change may arrive for a minute
CONFIRM_SECONDS, CONFIRM_EVERY_SECONDS = 20.0, 0.5


@options.command
def restore(
    around: CommandContext,
    *,
    access: options.AccessOptions,
    cluster_id: Annotated[
        str | None,
        typer.Option("--cluster-id", help="Refuse to run against any other Kafka cluster."),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            metavar="[NAMESPACE/]NAME",
            help="Restore only what this policy wrote, according to the ledger.",
        ),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(
            "--user",
            "-u",
            help="Restore only entities of this user; <default> is Kafka's default user.",
        ),
    ] = None,
    client_id: Annotated[
        str | None,
        typer.Option(
            "--client-id",
            "-c",
            help="Restore only entities of this client id; <default> is Kafka's default client id.",
        ),
    ] = None,
    yes: options.Yes = False,
    at_once: Annotated[
        bool,
        typer.Option(
            "--at-once",
            help="Lower in one step instead of several safe ones: clients may be delayed for "
            "minutes.",
        ),
    ] = False,
    max_mute_seconds: Annotated[
        int,
        typer.Option(
            "--max-mute-seconds",
            min=1,
            max=3600,
            help="Longest throttle delay that a step may cause, in seconds.",
        ),
    ] = 12,
    window_samples: Annotated[
        int, typer.Option("--window-samples", min=1, max=600, help="Brokers' quota.window.num.")
    ] = 11,
    window_sample_seconds: Annotated[
        int,
        typer.Option(
            "--window-sample-seconds",
            min=1,
            max=600,
            help="Brokers' quota.window.size.seconds.",
        ),
    ] = 1,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Restore the original quotas from the ledger.

    Reads only the ledger, in ZooKeeper or, with --bootstrap-servers, in a topic. Without --yes, it
    only shows what it would do.

    Tidegate's replication throttles are removed too, from their own record, unless --user or
    --client-id narrows the selection. Only brokers can remove them, so add --bootstrap-servers when
    you use --zookeeper.

    Quotas are lowered in steps, so that no client is delayed for long, and the command waits
    between them. You can interrupt it and run it again. A value that another writer changed since
    is left alone. At the end, the policy's claim on the cluster is released. Stop, pause or delete
    the operator's policy first: a running operator would write its contracts again.
    """
    guard = Guard(
        max_mute_seconds=NO_MUTE_BOUND_SECONDS if at_once else max_mute_seconds,
        window=QuotaWindow(window_samples, window_sample_seconds),
    )
    with opened_store(around, access) as store:
        facts = store.facts()
        _refuse_other_cluster(facts, cluster_id, store.address)
        restoration = Restoration(
            store,
            Selection(user=user, client_id=client_id, policy=policy),
            guard,
            around.now_seconds,
        )
        with throttle_restoration(
            around, store, access, restoration.selection.covers_throttles
        ) as throttles:
            act = _give_back if yes else _dry_run
            act(around, restoration, throttles, facts, output=output)


def _refuse_other_cluster(facts: ClusterFacts, expected: str | None, address: str) -> None:
    if expected is not None and facts.cluster_id != expected:
        raise WriteRefused(
            Reason.WRONG_CLUSTER,
            (
                f"{wrong_cluster(address, facts.cluster_id, expected)} as --cluster-id requires. "
                "Nothing was written."
            ),
        )


def _dry_run(
    around: CommandContext,
    restoration: Restoration,
    throttles: ThrottleRestoration,
    facts: ClusterFacts,
    *,
    output: OutputFormat,
) -> None:
    givebacks = restoration.look()
    rows, throttled = restore_rows(givebacks), throttles.look()
    unable = throttle_warning(throttled, throttles)
    warnings = (
        *_warnings(
            givebacks, facts, restoration.store.unreadable_nodes(), now_seconds=around.now_seconds()
        ),
        *(() if unable is None else (unable,)),
    )

    def show(page: Page) -> None:
        show_dry_run(page, rows, throttled, warnings=warnings, now_seconds=around.now_seconds())

    publish(
        around.out,
        output,
        restore_document(
            rows,
            throttled,
            written=False,
            complete=not rows and not throttled,
            warnings=warnings,
        ),
        show=show,
    )
    around.exit_code = (
        ExitCode.WOULD_CHANGE
        if rows or throttled or _releases_claim(restoration, facts)
        else ExitCode.OK
    )


def _give_back(
    around: CommandContext,
    restoration: Restoration,
    throttles: ThrottleRestoration,
    facts: ClusterFacts,
    *,
    output: OutputFormat,
) -> None:
    progress = Page(around.err)
    first, throttled = restoration.look(), throttles.look()
    unable = throttle_warning(throttled, throttles)
    warnings = (
        *_warnings(
            first, facts, restoration.store.unreadable_nodes(), now_seconds=around.now_seconds()
        ),
        *(() if unable is None else (unable,)),
    )
    for warning in warnings:
        progress.warn(warning)
    run = RestoreRun(restoration, facts.cluster_id, progress, around.wait_seconds)
    run.to_the_end()
    throttles.to_the_end(facts.cluster_id, progress, around.wait_seconds)
    still = throttles.look()
    if facts.owner_policy_key and restoration.selection.covers_policy(facts.owner_policy_key):
        _release_claim(run, facts.owner_policy_key)
    claim = restoration.store.facts().owner_policy_key
    left = restore_rows(restoration.look())
    restored = _restored(restore_rows(first), left)
    unconfirmed = [
        *_confirm(lambda: _without(restoration.store, restored), around),
        *throttles.unconfirmed,
    ]

    def show(page: Page) -> None:
        page.say(
            f"Restored {len(restore_rows(first)) - len(left)} quota values in {run.written} "
            f"writes; {len(left)} are left.",
            "bold",
        )
        for row in left:
            page.warn(
                f"{row.entity}: {row.remark or 'not restored yet; run the same command again'}"
            )
        if throttled:
            page.say(f"Removed {len(throttled) - len(still)} replication throttles.", "bold")
        for one in still:
            why = "" if throttles.unconfirmed else one.remark
            page.warn(
                f"{one.resource} {one.key}: {why or 'not confirmed as removed yet'}; run the same "
                "command again"
            )
        for what in unconfirmed:
            page.warn(
                f"Not confirmed: {what}. A broker that lags behind applies the change when it has "
                "caught up; ask it with kafka-configs --describe."
            )
        page.say(
            f"Policy {claim} still claims the cluster."
            if claim
            else "No policy claims the cluster any more."
        )

    publish(
        around.out,
        output,
        restore_document(
            left,
            still,
            written=True,
            complete=not (left or still or unconfirmed),
            warnings=warnings,
            unconfirmed=unconfirmed,
        ),
        show=show,
    )
    around.exit_code = ExitCode.ERROR if left or still or unconfirmed else ExitCode.OK


def _release_claim(run: RestoreRun, policy_key: str) -> None:
    """Release it once no change of an operator that has ended can arrive any more.

    What arrives meanwhile is restored, too.
    """
    for _ in range(CLAIM_ATTEMPTS):
        try:
            run.restoration.store.release_claim(policy_key)
            return
        except Conflict as error:
            run.page.say(f"{error.for_command} Trying again in {ROUND_SECONDS:.0f} s.")
        run.wait_seconds(ROUND_SECONDS)
        run.to_the_end()


def _restored(
    first: Sequence[RestoreRow], left: Sequence[RestoreRow]
) -> dict[Entity, dict[QuotaKey, str | None]]:
    """The values that were restored, by entity, without those that another writer had changed."""
    waiting = {(row.entity, row.key) for row in left}
    restored: dict[Entity, dict[QuotaKey, str | None]] = {}
    for row in first:
        if not (row.problem or row.changed_by_another or (row.entity, row.key) in waiting):
            restored.setdefault(row.entity, {})[row.key] = row.entry.before
    return restored


def _without(
    store: QuotaStore, restored: Mapping[Entity, Mapping[QuotaKey, str | None]]
) -> list[str]:
    return [
        f"broker {broker} does not show what was restored for {entities[0]}"
        + (f" and {len(entities) - 1} more" if entities[1:] else "")
        for broker, entities in sorted(store.brokers_without(restored).items())
    ]


def _confirm(look: Callable[[], list[str]], around: CommandContext) -> list[str]:
    """What live brokers still do not show when they have had some time for it."""
    until = around.now_seconds() + CONFIRM_SECONDS
    while (unconfirmed := look()) and around.now_seconds() < until:
        around.wait_seconds(CONFIRM_EVERY_SECONDS)
    return unconfirmed


def _releases_claim(restoration: Restoration, facts: ClusterFacts) -> bool:
    owner = facts.owner_policy_key
    return (
        owner is not None
        and restoration.selection.everything
        and restoration.selection.covers_policy(owner)
    )


def _warnings(
    givebacks: Sequence[Giveback],
    facts: ClusterFacts,
    strange: Sequence[str],
    *,
    now_seconds: float,
) -> Iterator[str]:
    if facts.owner_policy_key is not None:
        last = max(
            (entry.written_at_seconds for giveback in givebacks for entry in _entries(giveback)),
            default=None,
        )
        wrote = "" if last is None else f" (last write {ago_words(now_seconds - last)})"
        yield (
            f"Policy {facts.owner_policy_key} claims cluster {facts.cluster_id}{wrote}. An "
            "operator that still runs it writes its contracts again: stop it, or pause the "
            "policy with spec.suspend: true, before you restore."
        )
    mute_seconds = max((giveback.longest_mute_seconds for giveback in givebacks), default=0.0)
    if mute_seconds >= LONG_MUTE_SECONDS:
        yield (
            f"Some clients would be delayed for up to {mute_seconds:.0f} s at once, and raising a "
            "quota later does not free them. Leave out --at-once to go down in safe steps."
        )
    if strange:
        yield (
            f"These nodes have names that neither Kafka nor Tidegate writes, so they are left "
            f"alone: {', '.join(strange[:5])}"
            f"{f' and {len(strange) - 5} more' if len(strange) > 5 else ''}. While one of them "
            f"is in the ledger, the claim is kept."
        )
    if facts.migration_running:
        yield (
            "The cluster is being migrated to KRaft: nothing can be written through ZooKeeper "
            "until that is over."
        )


def _entries(giveback: Giveback) -> Iterator[LedgerEntry]:
    for stored in giveback.quotas.values():
        if stored.ledger is not None:
            yield from stored.ledger.entries.values()
