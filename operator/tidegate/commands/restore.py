"""`tidegate restore`: gives every quota back from the ledger alone, with no Kubernetes and no running operator."""

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from controller_logic.model import LedgerEntry, QuotaWindow
from controller_logic.reasons import Reason
from tidegate.commands import options
from tidegate.commands.cluster_access import AccessOptions, opened_tree
from tidegate.commands.context import Surroundings, surroundings_of
from tidegate.commands.output import ExitCode, OutputFormat, Page, publish
from tidegate.commands.quantity import ago_words
from tidegate.commands.restoration import NO_MUTE_BOUND_SECONDS, Giveback, Guard, Restoration, Selection
from tidegate.commands.restore_page import restore_document, restore_rows, show_dry_run
from tidegate.commands.restore_run import RestoreRun
from tidegate.errors import WriteRefused
from tidegate.kafka.quota_store import ClusterFacts
from tidegate.kafka.zookeeper.store import ZooKeeperQuotaStore

LONG_MUTE_SECONDS = 30.0


def restore(
    context: typer.Context,
    *,
    zookeeper: options.ZooKeeper = None,
    credentials_file: options.CredentialsFile = None,
    cluster_id: Annotated[str | None, typer.Option("--cluster-id", help="Guard: refuse any other Kafka cluster.")] = None,
    policy: Annotated[
        str | None, typer.Option("--policy", metavar="[NAMESPACE/]NAME", help="Only what this policy wrote, as the ledger has it.")
    ] = None,
    user: Annotated[str | None, typer.Option("--user", "-u", help="Only entities of this user; <default> is Kafka's default user.")] = None,
    client_id: Annotated[str | None, typer.Option("--client-id", "-c", help="Only entities of this client id; <default> as above.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Without this, only show what would be done.")] = False,
    at_once: Annotated[
        bool, typer.Option("--at-once", help="Lower in one step instead of several safe ones: clients may be muted for minutes.")
    ] = False,
    max_mute_seconds: Annotated[
        int, typer.Option("--max-mute-seconds", min=1, max=3600, help="The longest time for which a step may silence a client.")
    ] = 12,
    window_samples: Annotated[int, typer.Option("--window-samples", min=1, max=600, help="The brokers' quota.window.num.")] = 11,
    window_sample_seconds: Annotated[
        int, typer.Option("--window-sample-seconds", min=1, max=600, help="The brokers' quota.window.size.seconds.")
    ] = 1,
    output: options.Output = OutputFormat.TABLE,
    debug: options.Debug = False,
) -> None:
    """Give every quota back as it was before Tidegate, from the ledger in ZooKeeper alone. Without --yes it only shows what it would do.

    Lowerings go down in steps, so that no client is muted for long, and the command waits between them; interrupt it and
    start it again as you like. A value that another writer changed since stays as it is. The policy's claim on the cluster
    is released at the end. Stop, pause or delete the operator's policy first: a running operator would write its contracts again.
    """
    around = surroundings_of(context, debug=debug)
    guard = Guard(
        max_mute_seconds=NO_MUTE_BOUND_SECONDS if at_once else max_mute_seconds, window=QuotaWindow(window_samples, window_sample_seconds)
    )
    access = AccessOptions(zookeeper=zookeeper, credentials_file=credentials_file)
    with opened_tree(around, None, access) as tree:
        store = ZooKeeperQuotaStore(tree)
        facts = store.facts()
        _refuse_other_cluster(facts, cluster_id, tree.address)
        restoration = Restoration(store, Selection(user=user, client_id=client_id, policy=policy), guard, around.now_seconds)
        if yes:
            _give_back(around, restoration, facts, output=output)
        else:
            _dry_run(around, restoration, facts, output=output)


def _refuse_other_cluster(facts: ClusterFacts, expected: str | None, address: str) -> None:
    if expected is not None and facts.cluster_id != expected:
        raise WriteRefused(
            Reason.WRONG_CLUSTER,
            f"The Kafka cluster at {address} has id {facts.cluster_id}, not {expected} as --cluster-id demands. Nothing was written.",
        )


def _dry_run(around: Surroundings, restoration: Restoration, facts: ClusterFacts, *, output: OutputFormat) -> None:
    givebacks = restoration.look()
    rows = restore_rows(givebacks)
    warnings = tuple(_warnings(givebacks, facts, restoration.store.unreadable_nodes(), now_seconds=around.now_seconds()))

    def show(page: Page) -> None:
        show_dry_run(page, rows, warnings=warnings, now_seconds=around.now_seconds())

    publish(around.out, output, restore_document(rows, written=False, complete=not rows, warnings=warnings), show=show)
    around.exit_code = ExitCode.WOULD_CHANGE if rows or _releases_claim(restoration, facts) else ExitCode.OK


def _give_back(around: Surroundings, restoration: Restoration, facts: ClusterFacts, *, output: OutputFormat) -> None:
    progress = Page(around.err)
    first = restoration.look()
    warnings = tuple(_warnings(first, facts, restoration.store.unreadable_nodes(), now_seconds=around.now_seconds()))
    for warning in warnings:
        progress.warn(warning)
    run = RestoreRun(restoration, facts.cluster_id, progress, around.wait_seconds)
    run.to_the_end()
    if facts.owner_policy_key and restoration.selection.covers_policy(facts.owner_policy_key):
        restoration.store.release_claim(facts.owner_policy_key)
    claim = restoration.store.facts().owner_policy_key
    left = restore_rows(restoration.look())

    def show(page: Page) -> None:
        page.say(f"Gave back {len(restore_rows(first)) - len(left)} quota values in {run.written} writes; {len(left)} are left.", "bold")
        for row in left:
            page.warn(f"{row.entity}: {row.remark or 'not given back yet; run the same command again'}")
        page.say(f"The claim of policy {claim} on the cluster stands." if claim else "No policy claims the cluster any more.")

    publish(around.out, output, restore_document(left, written=True, complete=not left, warnings=warnings), show=show)
    around.exit_code = ExitCode.ERROR if left else ExitCode.OK


def _releases_claim(restoration: Restoration, facts: ClusterFacts) -> bool:
    owner = facts.owner_policy_key
    return owner is not None and restoration.selection.everything and restoration.selection.covers_policy(owner)


def _warnings(givebacks: Sequence[Giveback], facts: ClusterFacts, strange: Sequence[str], *, now_seconds: float) -> Iterator[str]:
    if facts.owner_policy_key is not None:
        last = max((entry.written_at_seconds for giveback in givebacks for entry in _entries(giveback)), default=None)
        wrote = "" if last is None else f" (last write {ago_words(now_seconds - last)})"
        yield (
            f"Policy {facts.owner_policy_key} claims cluster {facts.cluster_id}{wrote}. An operator that still runs it writes its "
            "contracts again: stop it, or pause the policy with the annotation tidegate.io/paused=true, before you give back."
        )
    mute_seconds = max((giveback.longest_mute_seconds for giveback in givebacks), default=0.0)
    if mute_seconds >= LONG_MUTE_SECONDS:
        yield (
            f"Some clients would be muted for up to {mute_seconds:.0f} s at once, and raising a quota later does not free them. "
            "Leave out --at-once to go down in safe steps."
        )
    if strange:
        yield (
            f"These nodes have names that neither Kafka nor Tidegate writes, so they are left alone: {', '.join(strange[:5])}"
            f"{f' and {len(strange) - 5} more' if len(strange) > 5 else ''}. While one of them is in the ledger, the claim stands."
        )
    if facts.migration_running:
        yield "The cluster is being migrated to KRaft: nothing can be written through ZooKeeper until that is over."


def _entries(giveback: Giveback) -> Iterator[LedgerEntry]:
    for stored in giveback.quotas.values():
        if stored.ledger is not None:
            yield from stored.ledger.entries.values()
