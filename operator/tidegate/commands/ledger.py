"""`tidegate ledger`: what a person does about a ledger that is lost, or has to be moved by hand.

`rebuild` and `accept` answer by an annotation, on which the operator acts: only it may write, and
only it remembers what was there. `import` moves the ledger where the operator cannot reach both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.commands import options
from tidegate.commands.context import CommandContext
from tidegate.commands.inputs import opened_both, stored_policy
from tidegate.commands.options import PolicyOptions
from tidegate.commands.output import ExitCode, OutputFormat, Page, publish
from tidegate.errors import InvalidResource, Unauthorized, WriteRefused
from tidegate.kafka.ledger_move import LedgerMove
from tidegate.kafka.zookeeper.nodes import read_cluster
from tidegate.kube.api import BROKER_BANDWIDTH_POLICIES, ObjectRef
from tidegate_logic.reasons import Reason

if TYPE_CHECKING:
    from tidegate.control.ledger_watch import Answer

WATCHED_SECONDS = 5.0  # controllers write to ZooKeeper twice a second as long as they do

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Recover or move the ledger of original quotas.",
)


@app.command("rebuild", short_help="Rebuild a lost ledger from the operator's memory.")
@options.command
def rebuild(
    around: CommandContext,
    *,
    named: options.StoredPolicy,
    dry_run: options.DryRunOption = options.DryRun.NONE,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Rebuild a lost ledger from the operator's memory.

    Only a process that saw the ledger before it was lost can do that; the policy's condition Ready
    says whether it did. No quota changes.
    """
    from tidegate.control.ledger_watch import Answer

    _answer(around, named, Answer.REBUILD, dry_run=dry_run, output=output)


@app.command("accept", short_help="Accept the loss of ledger records and continue.")
@options.command
def accept(
    around: CommandContext,
    *,
    named: options.StoredPolicy,
    keep_quotas: Annotated[
        bool,
        typer.Option(
            "--keep-quotas",
            help="Treat existing quotas as originals. Without this, those of members count as "
            "Tidegate's and are removed in the end.",
        ),
    ] = False,
    dry_run: options.DryRunOption = options.DryRun.NONE,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Accept the loss of ledger records and continue.

    Remaining records are kept. A quota of a member without a record counts as Tidegate's: it is
    removed when the member or the policy is deleted, because its original value is no longer known.
    On a Kafka cluster that never had this ledger, existing quotas count as originals.
    """
    from tidegate.control.ledger_watch import Answer

    answer = Answer.KEEP if keep_quotas else Answer.ACCEPT
    _answer(around, named, answer, dry_run=dry_run, output=output)


def _answer(
    around: CommandContext,
    named: PolicyOptions,
    answer: Answer,
    *,
    dry_run: options.DryRun,
    output: OutputFormat,
) -> None:
    from tidegate.control.ledger_watch import remembered_of
    from tidegate.observe.declared import LOST_LEDGER, object_key

    kubernetes, raw, _ = stored_policy(around, named)
    ref = ObjectRef.of(BROKER_BANDWIDTH_POLICIES, raw)
    status = raw.get("status") or {}
    conditions: Sequence[Mapping[str, str]] = status.get("conditions") or ()
    ready = next((one for one in conditions if one["type"] == "Ready"), {})
    remembered = remembered_of(status)
    if remembered is None or ready.get("reason") != Reason.LEDGER_LOST.value:
        raise InvalidResource(
            f"Policy {object_key(raw)} has lost no ledger: its condition Ready is "
            f"{ready.get('status', 'not there')} ({ready.get('reason', 'no reason')}). Nothing was "
            "asked."
        )
    value = answer.for_epoch(remembered.epoch)
    command = (
        f"kubectl annotate bbp {ref.name} -n {ref.namespace} {quote(f'{LOST_LEDGER}={value}')} "
        "--overwrite"
    )
    is_dry = dry_run is options.DryRun.CLIENT
    if not is_dry:
        try:
            kubernetes.annotate(ref, LOST_LEDGER, value)
        except Unauthorized as error:
            raise Unauthorized(
                error.what,
                advice="Your own login needs the right to patch brokerbandwidthpolicies. "
                f"Someone who has it can run: {command}",
            ) from error

    def show(page: Page) -> None:
        if is_dry:
            page.say("Nothing was asked. By hand:", "bold")
            page.say(f"  {command}")
        else:
            page.say(f"Asked the operator of policy {object_key(raw)}: {answer.value}.", "bold")
            page.say("It acts with its next pass and posts the Event LedgerRebuilt:")
            page.say(f"  kubectl events -n {ref.namespace} --for bbp/{ref.name}")
        page.say(str(ready.get("message", "")))

    document = {
        "policy": object_key(raw),
        "asked": not is_dry,
        "annotation": LOST_LEDGER,
        "value": value,
    }
    publish(around.out, output, document, show=show)
    around.exit_code = ExitCode.WOULD_CHANGE if is_dry else ExitCode.OK


@app.command("import", short_help="Move the ledger from ZooKeeper to a topic.")
@options.command
def import_ledger(
    around: CommandContext,
    *,
    access: options.AccessOptions,
    yes: options.Yes = False,
    output: options.Output = OutputFormat.TABLE,
) -> None:
    """Move the ledger from ZooKeeper to a topic, for KRaft.

    Without --yes, it only shows what it would do. An operator that reaches both does this
    automatically. The command watches ZooKeeper for five seconds: while Kafka's controllers still
    write there, a rollback is possible, and nothing is moved. No quota changes, and the records in
    ZooKeeper stay.
    """
    if not access.zookeeper or not access.bootstrap_servers:
        raise InvalidResource(
            "The ledger goes from one place to the other: give the ZooKeeper with --zookeeper "
            "HOST:PORT/CHROOT, and the brokers with --bootstrap-servers HOST:PORT."
        )
    with opened_both(around, access) as (tree, open_brokers):
        claim = read_cluster(tree).claim
        if claim is None:
            raise InvalidResource(
                f"ZooKeeper {tree.address} has no ledger of Tidegate, so there is nothing to move. "
                "Remove spec.kafka.zookeeper from the policy."
            )
        said, waited_seconds = None, 0.0
        move = LedgerMove(
            tree, open_brokers, quiet_seconds=WATCHED_SECONDS, monotonic=lambda: waited_seconds
        )
        # a first look to have something to compare with; then one each second
        while said is None and waited_seconds <= WATCHED_SECONDS + 1:
            said = move.attempt(claim, write=yes)
            around.wait_seconds(1.0)
            waited_seconds += 1.0
        if said is None:
            raise WriteRefused(
                Reason.MIGRATION_RUNNING,
                f"Kafka's controllers still write to ZooKeeper {tree.address}, or the brokers "
                "still use it. Nothing was moved. Finish the migration, and run this again.",
            )

    def show(page: Page) -> None:
        page.say(f"{said}.")
        if not yes:
            page.say("Nothing was written. --yes does it.")

    document = {"policy": claim.policy_key, "moved": yes, "message": said}
    publish(around.out, output, document, show=show)
    around.exit_code = ExitCode.OK if yes else ExitCode.WOULD_CHANGE
