"""`tidegate ledger import`: moves the ledger by hand, where the operator cannot reach both."""

from typing import Annotated

import typer

from tidegate.commands import options
from tidegate.commands.context import command_context
from tidegate.commands.inputs import AccessOptions, opened_both
from tidegate.commands.output import ExitCode, OutputFormat, Page, publish
from tidegate.errors import InvalidResource, WriteRefused
from tidegate.kafka.ledger_move import LedgerMove
from tidegate.kafka.zookeeper.nodes import read_cluster
from tidegate_logic.reasons import Reason

WATCHED_SECONDS = 5.0  # controllers write to ZooKeeper twice a second as long as they do

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="The record of what was there before Tidegate.",
)


@app.callback()
def _ledger() -> None:
    """Keep `import` a command of its own while it is the only one."""


@app.command("import", short_help="Move the ledger from ZooKeeper to a topic.")
def import_ledger(
    context: typer.Context,
    *,
    zookeeper: options.ZooKeeper = None,
    credentials_file: options.CredentialsFile = None,
    bootstrap_servers: options.BootstrapServers = None,
    client_credentials_file: options.ClientCredentialsFile = None,
    ledger_topic: options.LedgerTopic = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do it. Without this, only show what would be done.")
    ] = False,
    output: options.Output = OutputFormat.TABLE,
    debug: options.Debug = False,
) -> None:
    """Move the ledger from ZooKeeper to a topic, when Kafka has moved to KRaft. Without --yes it
    only shows what it would do.

    An operator that reaches both does this by itself. The command watches ZooKeeper for five
    seconds: while Kafka's controllers still write there, there is a way back, and nothing moves. No
    quota changes, and what ZooKeeper has stays there.
    """
    around = command_context(context, debug=debug)
    if not zookeeper or not bootstrap_servers:
        raise InvalidResource(
            "The ledger goes from one place to the other: give the ZooKeeper with --zookeeper "
            "HOST:PORT/CHROOT, and the brokers with --bootstrap-servers HOST:PORT."
        )
    access = AccessOptions(
        zookeeper=zookeeper,
        credentials_file=credentials_file,
        bootstrap_servers=bootstrap_servers,
        client_credentials_file=client_credentials_file,
        ledger_topic=ledger_topic,
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
